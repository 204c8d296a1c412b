//! What is checked about a plan before anything starts.
//!
//! Guarantees: a plan that passes can be handed to the kernel as it is; its working directory lies in its workspace once links
//! are followed. Directory and program are held open, so that exchanging a link, a file or the workspace afterwards changes nothing.
//! Does not: contain anything. The interpreter guard stops the obvious only.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use palyra_types::{path::AbsolutePath, process, sandbox::EgressEnforcementMode, visible::visible};
use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::{
    egress::HostRules,
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    executable::Executable,
    plan::{EgressHost, EgressPlan, Interpreters, ProcessPlan},
};

/// What the check found on the way and the start needs.
pub struct Checked {
    /// The program.
    pub executable: Executable,
    /// The working directory.
    pub directory: OwnedFd,
    /// The hidden directories with links followed.
    pub hidden: Vec<PathBuf>,
    /// Where the working directory really is.
    pub real: PathBuf,
}

/// What was opened for a plan before.
#[derive(Default)]
pub struct Opened {
    /// The program, if it was opened by the plan's path.
    pub executable: Option<Executable>,
    /// The working directory.
    pub directory: Option<OwnedFd>,
}

/// Checks a plan. Whoever has opened something of it already gives it along.
pub fn check(plan: &ProcessPlan, allowed: &HostRules, opened: Opened) -> Result<Checked, Error> {
    check_strings(plan)?;
    check_egress(plan, allowed)?;
    let executable = match opened.executable.filter(|opened| opened.is_of(&plan.program)) {
        Some(executable) => executable,
        None => Executable::open(&plan.program)?,
    };
    if plan.interpreters == Interpreters::Refuse {
        refuse_interpreters(plan, &executable)?;
    }
    let (directory, real) = match opened.directory {
        Some(directory) => as_planned(directory, plan)?,
        None => open_directory(plan)?,
    };
    let hidden: Vec<PathBuf> = plan.hidden.iter().map(follow).collect();
    if hidden.iter().any(|hidden| real.starts_with(hidden)) {
        return Err(Error::about(Kind::InvalidInput, "the plan hides its own working directory", plan.cwd.as_str()));
    }
    Ok(Checked { executable, directory, hidden, real })
}

/// C strings end at a NUL, so what the policy saw would not be what runs.
fn check_strings(plan: &ProcessPlan) -> Result<(), Error> {
    let given = plan.argv0.iter().chain(&plan.args).chain(plan.env.values());
    if let Some(bad) = given.chain(plan.env.keys()).find(|text| text.contains('\0')) {
        return Err(Error::about(Kind::InvalidInput, "there is a NUL in", bad));
    }
    match plan.env.keys().find(|name| name.is_empty() || name.contains('=')) {
        Some(bad) => Err(Error::about(Kind::InvalidInput, "no variable can be called", bad)),
        None => Ok(()),
    }
}

fn check_egress(plan: &ProcessPlan, allowed: &HostRules) -> Result<(), Error> {
    let EgressPlan { mode, hosts } = &plan.egress;
    match mode {
        EgressEnforcementMode::None => Ok(()),
        EgressEnforcementMode::Preflight => {
            match hosts.iter().find(|one| allowed.find(&one.host, one.port).is_none()) {
                Some(EgressHost { host, port }) => Err(Error::new(
                    Kind::EgressDenied,
                    format!("no rule under [[egress.host]] names `{host}` with port {port}"),
                )),
                None => Ok(()),
            }
        }
        EgressEnforcementMode::Strict if !plan.containment.is_none() => Ok(()),
        EgressEnforcementMode::Strict => {
            Err(Error::new(Kind::Unavailable, "tier B cannot enforce egress, which the mode `strict` asks for"))
        }
    }
}

fn refuse_interpreters(plan: &ProcessPlan, executable: &Executable) -> Result<(), Error> {
    let denied = |what, named: &str| Err(Error::about(Kind::InterpreterDenied, what, named));
    let (name, real_name) = (plan.program.file_name(), executable.program().real_path().file_name());
    if process::is_interpreter(name) || process::is_interpreter(real_name) {
        return denied("code can be handed to", real_name);
    }
    if !executable.interpreters().is_empty() {
        return denied("this is a script:", plan.program.as_str());
    }
    if ![name, real_name].into_iter().any(|name| process::is_launcher(name) || is_loader(name)) {
        return Ok(());
    }
    match launched(name, &plan.args).find(|word| names_interpreter(word)) {
        Some(word) => denied("the arguments start", word),
        None => Ok(()),
    }
}

/// The words of the arguments that may name a program to start.
fn launched<'a>(launcher: &str, args: &'a [String]) -> impl Iterator<Item = &'a str> {
    // `find -name node` looks for a name; only what follows `-exec` and its like is started.
    let starts_only_after_exec = launcher == "find";
    let follows_exec = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| args.get(before));
        before.is_some_and(|before| matches!(before.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir"))
    };
    let relevant = args.iter().enumerate().filter(move |(at, _)| !starts_only_after_exec || follows_exec(*at));
    // `env -S "bash -c …"` and `--split-string=bash` hide the name within one argument.
    relevant.flat_map(|(_, arg)| arg.split(|c: char| c.is_whitespace() || c == '='))
}

fn names_interpreter(word: &str) -> bool {
    let path = Path::new(word);
    if process::is_interpreter(file_name(path)) {
        return true;
    }
    path.is_absolute()
        && fs::canonicalize(path)
            .is_ok_and(|real| process::is_interpreter(file_name(&real)) || (real.is_file() && is_script(&real)))
}

/// The dynamic loader runs whatever program it is given.
fn is_loader(name: &str) -> bool {
    name == "ld.so" || name.starts_with("ld-linux") || name.starts_with("ld-musl")
}

fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    // A file that only may be executed cannot be a script: its interpreter could not read it either.
    // SECURITY: somebody may put a named pipe in its place meanwhile, and opening that would wait for a writer for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(file, flags, Mode::empty()).map_err(io::Error::from).map(File::from);
    opened.and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Opens the working directory beneath its workspace, and returns where it really is. Links may not lead out.
fn open_directory(plan: &ProcessPlan) -> Result<(OwnedFd, PathBuf), Error> {
    let or_short = |errno, error: Error| Error::shortage(errno).unwrap_or(error);
    let unusable = |errno: Errno| {
        let what = format!("`{}`: {}", visible(plan.cwd.as_str()), io::Error::from(errno));
        or_short(errno, Error::new(Kind::DirectoryUnusable, what))
    };
    let outside = |what| Error::about(Kind::OutsideWorkspace, what, plan.cwd.as_str());
    if !plan.cwd.is_within(&plan.workspace) {
        return Err(outside("it does not hold"));
    }
    let root = open_workspace(plan)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let below = plan.cwd.as_str().strip_prefix(plan.workspace.as_str()).unwrap_or_default().trim_start_matches('/');
    let below = if below.is_empty() { "." } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel asks to try again when something was renamed while it walked.
    let directory = (0..TRIES)
        .map(|_| rustix::fs::openat2(&root, below, flags, Mode::empty(), resolve))
        .find(|opened| !matches!(opened, Err(Errno::AGAIN)))
        .unwrap_or(Err(Errno::AGAIN))
        .map_err(|errno| if errno == Errno::XDEV { outside("links lead out of it from") } else { unusable(errno) })?;
    let real = place_of(&directory).map_err(unusable)?;
    Ok((directory, real))
}

/// Opens the workspace by its path.
pub fn open_workspace(plan: &ProcessPlan) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let missing = || Error::about(Kind::OutsideWorkspace, "there is no workspace at", plan.workspace.as_str());
    rustix::fs::open(plan.workspace.as_str(), flags, Mode::empty())
        .map_err(|errno| Error::shortage(errno).unwrap_or_else(missing))
}

/// Whether an open directory is still where the plan says. Nothing is opened by its path here.
fn as_planned(directory: OwnedFd, plan: &ProcessPlan) -> Result<(OwnedFd, PathBuf), Error> {
    let moved = |what| Error::about(Kind::Changed, what, plan.cwd.as_str());
    let real = place_of(&directory).map_err(|_| moved("the system does not say where this is by now:"))?;
    if !plan.cwd.is_within(&plan.workspace) {
        return Err(Error::about(Kind::OutsideWorkspace, "it does not hold", plan.cwd.as_str()));
    }
    if real == Path::new(plan.cwd.as_str()) {
        Ok((directory, real))
    } else {
        Err(moved("it is no longer where it was:"))
    }
}

fn place_of(directory: &OwnedFd) -> Result<PathBuf, Errno> {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", directory.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(link.into_bytes())))
}

/// A path with its links followed, as far as it exists.
fn follow(path: &AbsolutePath) -> PathBuf {
    let whole = Path::new(path.as_str());
    for existing in whole.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(existing), whole.strip_prefix(existing)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    whole.to_owned()
}

/// How often a walk that met a rename is tried again.
const TRIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_program_does_not_hold_up_the_check() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("tool");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, Mode::from_raw_mode(0o755), 0).unwrap();
        let (done, checked) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(is_script(&pipe)));
        assert_eq!(checked.recv_timeout(std::time::Duration::from_secs(5)), Ok(false));
    }
}
