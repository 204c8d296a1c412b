//! What is checked about a plan before anything starts.
//!
//! Guarantees: a plan that passes can be handed to the kernel as it is; its working directory lies in its workspace once links
//! are followed, and is held open, so that exchanging a link afterwards changes nothing.
//! Does not: contain anything. The interpreter guard stops the obvious only.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
};

use palyra_types::{path::AbsolutePath, process, sandbox::EgressEnforcementMode};
use rustix::fs::{Mode, OFlags};

use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    plan::{EgressHost, EgressPlan, Interpreters, ProcessPlan},
};

/// What the check found on the way and the start needs.
pub struct Checked {
    /// The working directory.
    pub directory: OwnedFd,
    /// The hidden directories with links followed.
    pub hidden: Vec<PathBuf>,
}

/// Checks a plan.
pub fn check(plan: &ProcessPlan, allowed: &BTreeSet<EgressHost>) -> Result<Checked, Error> {
    check_strings(plan)?;
    check_egress(&plan.egress, allowed)?;
    let target = check_program(&plan.program)?;
    if plan.interpreters == Interpreters::Refuse {
        refuse_interpreters(plan, &target)?;
    }
    let (directory, real) = open_directory(plan)?;
    let hidden: Vec<PathBuf> = plan.hidden.iter().map(follow).collect();
    if hidden.iter().any(|hidden| real.starts_with(hidden)) {
        return Err(Error::about(Kind::InvalidInput, "the plan hides its own working directory", plan.cwd.as_str()));
    }
    Ok(Checked { directory, hidden })
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

fn check_egress(egress: &EgressPlan, allowed: &BTreeSet<EgressHost>) -> Result<(), Error> {
    match egress.mode {
        EgressEnforcementMode::None => Ok(()),
        EgressEnforcementMode::Preflight => match egress.hosts.iter().find(|host| !allowed.contains(host)) {
            Some(EgressHost { host, port }) => Err(Error::new(
                Kind::EgressDenied,
                format!("`{host}` with port {port} is not in `allowed_egress_hosts`"),
            )),
            None => Ok(()),
        },
        EgressEnforcementMode::Strict => {
            Err(Error::new(Kind::Unavailable, "tier B cannot enforce egress, which the mode `strict` asks for"))
        }
    }
}

/// The file that would be executed, with links followed. The kernel has the last word when it is.
fn check_program(program: &AbsolutePath) -> Result<PathBuf, Error> {
    let about = |kind, what| move |_: io::Error| Error::about(kind, what, program.as_str());
    let found = fs::metadata(program.as_str()).map_err(|error| {
        let kind =
            if error.kind() == io::ErrorKind::PermissionDenied { Kind::NotExecutable } else { Kind::ProgramNotFound };
        Error::about(kind, "there is no usable file", program.as_str())
    })?;
    if !found.is_file() {
        return Err(Error::about(Kind::NotExecutable, "this is not a file:", program.as_str()));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(Error::about(Kind::NotExecutable, "nobody may execute", program.as_str()));
    }
    fs::canonicalize(program.as_str()).map_err(about(Kind::ProgramNotFound, "links lead nowhere from"))
}

fn refuse_interpreters(plan: &ProcessPlan, target: &Path) -> Result<(), Error> {
    let denied = |what, named: &str| Err(Error::about(Kind::InterpreterDenied, what, named));
    let (name, real_name) = (plan.program.file_name(), file_name(target));
    if process::is_interpreter(name) || process::is_interpreter(real_name) {
        return denied("code can be handed to", real_name);
    }
    if is_script(target) {
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

/// Opens the working directory, then asks the kernel where that really is.
fn open_directory(plan: &ProcessPlan) -> Result<(OwnedFd, PathBuf), Error> {
    let unusable = |error: io::Error| {
        Error::new(Kind::DirectoryUnusable, format!("`{}`: {error}", palyra_types::visible::visible(plan.cwd.as_str())))
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        rustix::fs::open(plan.cwd.as_str(), flags, Mode::empty()).map_err(|errno| unusable(errno.into()))?;
    let real = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).map_err(unusable)?;
    let root = fs::canonicalize(plan.workspace.as_str())
        .map_err(|_| Error::about(Kind::OutsideWorkspace, "there is no workspace at", plan.workspace.as_str()))?;
    if real.starts_with(root) {
        Ok((directory, real))
    } else {
        Err(Error::about(Kind::OutsideWorkspace, "it leads to", &real.to_string_lossy()))
    }
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
