//! Finds the program that a command names, and pins what could be changed behind an approval.
//!
//! Guarantees: a name without `/` means a program in the configured directories, never one of the workspace or of a caller's `PATH`.
//! A program found there keeps its name, because some programs act by the name they are called; any other is named by its real
//! path, so a link called `git` that leads to a shell is seen as the shell.

use std::{fs, io::Read, os::unix::fs::MetadataExt, path::Path};

use palyra_sandbox::{Executable, LARGEST_PROGRAM, ProgramFile, SandboxProcessRunErrorKind, is_changeable};
use palyra_types::{AbsolutePath, RunningDigest, Sha256Digest};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
};

use crate::{
    tool::{IntendError, Look, Place, Script},
    workspace::{Workspace, WorkspaceError, open_regular, path_of},
};

/// A program that was found.
pub(super) struct Program {
    /// What is executed.
    pub(super) path: AbsolutePath,
    /// Where it really is, if that is elsewhere.
    pub(super) leads_to: Option<AbsolutePath>,
    /// Its digest, if somebody other than root could change it.
    pub(super) sha256: Option<Sha256Digest>,
    /// For a script: its interpreters, as far as somebody other than root could change them, or where their names lead.
    pub(super) interpreters: Vec<Script>,
    /// All of them, open, if they can be.
    pub(super) opened: Option<Executable>,
}

impl Program {
    pub(super) fn find(name: &str, cwd: &AbsolutePath, place: &Place<'_>) -> Result<Self, IntendError> {
        let workspace = place.workspace()?;
        if name.is_empty() {
            return Err(IntendError::NoProgram);
        }
        if !name.contains('/') {
            return Self::search(name, place);
        }
        place.whole()?;
        let path = if name.starts_with('/') { AbsolutePath::parse(name)? } else { cwd.join(name)? };
        let real = real_path(&path).ok_or_else(|| WorkspaceError::Absent(name.to_owned()))?;
        if workspace.is_hidden(&real) {
            return Err(WorkspaceError::Absent(name.to_owned()).into());
        }
        if !is_executable(&real) {
            return Err(IntendError::NotExecutable(name.to_owned()));
        }
        let parent = path.ancestors().next().unwrap_or("/");
        let keeps_its_name = place.programs.directories().iter().any(|directory| directory.as_str() == parent);
        let path = if keeps_its_name { path } else { real.clone() };
        let opened = Executable::open(&path).ok();
        Self::pin(path, real, opened, workspace)
    }

    fn search(name: &str, place: &Place<'_>) -> Result<Self, IntendError> {
        let (programs, workspace) = (place.programs, place.workspace()?);
        if !programs.is_roots_alone() {
            place.whole()?;
        }
        for directory in programs.directories() {
            let path = match name {
                "." | ".." => break,
                _ => directory.join(name)?,
            };
            if place.look == Look::Glance {
                match Self::glance(&path, workspace)? {
                    Some(found) => return Ok(found),
                    None => continue,
                }
            }
            let opened = match Executable::open(&path) {
                Err(error) if error.kind == SandboxProcessRunErrorKind::ProgramNotFound => continue,
                // What cannot be opened now is refused when it is to run.
                opened => opened.ok(),
            };
            let real = match &opened {
                Some(opened) => Some(opened.program().real_path().clone()),
                None => real_path(&path).filter(is_executable),
            };
            if let Some(real) = real.filter(|real| !workspace.is_hidden(real)) {
                return Self::pin(path, real, opened, workspace);
            }
        }
        let searched: Vec<&str> = programs.directories().iter().map(AbsolutePath::as_str).collect();
        Err(IntendError::ProgramNotFound { name: name.to_owned(), searched: searched.join(":") })
    }

    /// The program at a path of the system by its names alone, if there is one: enough for policy, not to run it.
    fn glance(path: &AbsolutePath, workspace: &Workspace) -> Result<Option<Self>, IntendError> {
        match real_program(path) {
            Ok(None) => Ok(None),
            // What is odd about it, the whole tells.
            Err(_) => Err(IntendError::TakesLonger),
            Ok(Some(real)) if workspace.is_hidden(&real) || real.is_within(workspace.root()) => {
                Err(IntendError::TakesLonger)
            }
            Ok(Some(real)) => {
                let leads_to = (*path != real).then_some(real);
                Ok(Some(Self { path: path.clone(), leads_to, sha256: None, interpreters: Vec::new(), opened: None }))
            }
        }
    }

    fn pin(
        path: AbsolutePath,
        real: AbsolutePath,
        opened: Option<Executable>,
        workspace: &Workspace,
    ) -> Result<Self, IntendError> {
        let is_changeable = is_anybodys(&real, workspace) || (path != real && is_changeable(Path::new(path.as_str())));
        let sha256 = if is_changeable {
            let digest = digest_of_file(&real, LARGEST_PROGRAM)?;
            Some(digest.ok_or(IntendError::ProgramTooLarge { path: real.clone(), limit: LARGEST_PROGRAM })?)
        } else {
            None
        };
        let interpreters = opened.iter().flat_map(Executable::interpreters);
        let interpreters = interpreters.filter_map(|file| pin_interpreter(file, workspace).transpose());
        let interpreters = interpreters.collect::<Result<_, _>>()?;
        let leads_to = (path != real).then_some(real);
        Ok(Self { path, leads_to, sha256, interpreters, opened })
    }

    /// The file names that the program is known by.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.path.file_name()).chain(self.leads_to.as_ref().map(AbsolutePath::file_name))
    }
}

/// An interpreter that could change, with its digest; or, if only the way to it could, where that leads.
fn pin_interpreter(file: &ProgramFile, workspace: &Workspace) -> Result<Option<Script>, IntendError> {
    let path = file.real_path().clone();
    if !is_anybodys(&path, workspace) {
        return Ok(file.is_changeable().then_some(Script { path, sha256: None, stamp: None }));
    }
    let failed = |cause: std::io::Error| WorkspaceError::Failed { path: path.to_string(), cause: cause.to_string() };
    match file.sha256().map_err(failed)? {
        sha256 @ Some(_) => Ok(Some(Script { path, sha256, stamp: None })),
        None => Err(IntendError::ProgramTooLarge { path, limit: LARGEST_PROGRAM }),
    }
}

/// Whether the agent, or anybody else but root, could change the file at a real path.
fn is_anybodys(real: &AbsolutePath, workspace: &Workspace) -> bool {
    real.is_within(workspace.root()) || is_changeable(Path::new(real.as_str()))
}

/// The digest of a file's content, or nothing if there is more of it than `limit`.
pub(super) fn digest_of_file(path: &AbsolutePath, limit: u64) -> Result<Option<Sha256Digest>, WorkspaceError> {
    let (file, status) = open_regular(path)?;
    if u64::try_from(status.st_size).unwrap_or_default() > limit {
        return Ok(None);
    }
    digest_of(file, limit).map_err(|error| WorkspaceError::Failed { path: path.to_string(), cause: error.to_string() })
}

/// The digest of what can be read, or nothing if there is more of it than `limit`.
pub(super) fn digest_of(source: impl Read, limit: u64) -> std::io::Result<Option<Sha256Digest>> {
    let mut source = source.take(limit.saturating_add(1));
    let mut running = RunningDigest::default();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match source.read(&mut piece)? {
            0 => break,
            read => running.update(piece.get(..read).unwrap_or_default()),
        }
    }
    // The reader's own limit is used up only if there was more.
    Ok((source.limit() > 0).then(|| running.finish()))
}

/// Where the program at a path really is, if there is anything; an error if that is odd.
fn real_program(path: &AbsolutePath) -> Result<Option<AbsolutePath>, WorkspaceError> {
    let odd = |errno| WorkspaceError::from_errno(path.as_str(), errno);
    let open = |resolve| openat2(CWD, path.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    // What is reached without a link is where it says, which spares the question.
    let (entry, is_real) = match open(ResolveFlags::NO_SYMLINKS) {
        Err(Errno::LOOP) => (open(ResolveFlags::NO_MAGICLINKS), false),
        opened => (opened, true),
    };
    let entry = match entry {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(odd)?,
    };
    let status = fstat(&entry).map_err(odd)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || status.st_mode & 0o111 == 0 {
        return Err(odd(Errno::ACCESS));
    }
    if is_real { Ok(Some(path.clone())) } else { path_of(&entry, path.as_str()).map(Some) }
}

fn real_path(path: &AbsolutePath) -> Option<AbsolutePath> {
    let real = fs::canonicalize(path.as_str()).ok()?;
    AbsolutePath::parse(real.to_str()?).ok()
}

fn is_executable(path: &AbsolutePath) -> bool {
    fs::metadata(path.as_str()).is_ok_and(|status| status.is_file() && status.mode() & 0o111 != 0)
}
