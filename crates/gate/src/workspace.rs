//! A directory that file tools are confined to.
//!
//! Guarantees: the directory is opened once, and everything below is reached from it with `openat2(RESOLVE_BENEATH |
//! RESOLVE_NO_MAGICLINKS)`, so neither `..` nor a planted link leads out. Policy judges *real* paths: [`Workspace::resolve`] follows
//! the links that stay inside and says where they end. Whoever acts afterwards opens that real path without following any
//! link, so a swap in between fails instead of leading elsewhere. What is neither a file nor a directory is never opened.
//! Refuses: `/` as a workspace, a workspace inside the state directory, one that a link in another workspace leads to. A state directory inside the
//! workspace is absent from it, also where another mount shows it there.
//!
//! Absolute links are refused even when they point back inside: the kernel resolves them from the root of the machine.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use palyra_types::{AbsolutePath, NameError, Sha256Digest, WorkspaceName, path::PathError, visible::visible};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat},
    io::Errno,
};

use crate::{elsewhere::elsewhere, way};

/// A configured workspace, open.
#[derive(Debug)]
pub struct Workspace {
    name: WorkspaceName,
    root: AbsolutePath,
    directory: OwnedFd,
    hidden: Vec<AbsolutePath>,
    /// Held while a file is written, so that of two calls that append to one file neither loses what the other wrote.
    writing: Mutex<()>,
}

impl Workspace {
    /// Waits until no other call writes here, and keeps others from it until what is returned is dropped.
    pub(crate) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a workspace. Links on the way to it are followed, since the operator named them.
    ///
    /// # Errors
    /// When the directory cannot be opened, is the root of the machine, or lies inside the state directory.
    pub fn open(
        name: WorkspaceName,
        path: &AbsolutePath,
        state_directory: &AbsolutePath,
    ) -> Result<Self, WorkspaceError> {
        Self::open_among(name, path, state_directory, &[])
    }

    /// As [`Self::open`], where there are other workspaces, by their real paths. No link that stands in one of those is followed.
    ///
    /// # Errors
    /// As [`Self::open`], and for such a link.
    pub(crate) fn open_among(
        name: WorkspaceName,
        path: &AbsolutePath,
        state_directory: &AbsolutePath,
        others: &[AbsolutePath],
    ) -> Result<Self, WorkspaceError> {
        Self::open_as(|_| Ok(name), path, state_directory, others)
    }

    /// Opens a directory that nobody configured, under a name that its real path gives it.
    ///
    /// # Errors
    /// As [`Self::open_among`].
    pub(crate) fn adopt(
        path: &AbsolutePath,
        state_directory: &AbsolutePath,
        others: &[AbsolutePath],
    ) -> Result<Self, WorkspaceError> {
        let name = |root: &AbsolutePath| {
            let digest = Sha256Digest::of(root.as_str().as_bytes()).to_string();
            let failed = |cause: NameError| WorkspaceError::Failed { path: root.to_string(), cause: cause.to_string() };
            WorkspaceName::parse(&format!("dir-{}", digest.get(..16).unwrap_or(&digest))).map_err(failed)
        };
        Self::open_as(name, path, state_directory, others)
    }

    fn open_as(
        name: impl FnOnce(&AbsolutePath) -> Result<WorkspaceName, WorkspaceError>,
        path: &AbsolutePath,
        state_directory: &AbsolutePath,
        others: &[AbsolutePath],
    ) -> Result<Self, WorkspaceError> {
        let real = way::follow(path, others)?;
        let failed = |errno: Errno| match errno {
            // It was a real path a moment ago.
            Errno::LOOP => WorkspaceError::Changed(real.clone()),
            errno => WorkspaceError::from_errno(path.as_str(), errno),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat2(CWD, real.as_str(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(failed)?;
        let root = path_of(&directory, path.as_str())?;
        if root == AbsolutePath::root() {
            return Err(WorkspaceError::WholeMachine);
        }
        let state = real_or_given(state_directory);
        if root.is_within(&state) || root.is_within(state_directory) {
            return Err(WorkspaceError::InsideState(root));
        }
        let workspace = Self { name: name(&root)?, root, directory, hidden: Vec::new(), writing: Mutex::new(()) };
        let hidden = elsewhere(&state).into_iter().chain([state, state_directory.clone()]);
        Ok(hidden.fold(workspace, Self::hide))
    }

    /// Treats a path, and everything below it, as absent.
    #[must_use]
    pub fn hide(mut self, path: AbsolutePath) -> Self {
        if path.is_within(&self.root) && !self.hidden.contains(&path) {
            self.hidden.push(path);
        }
        self
    }

    /// Whether both are the same open directory, at the same place.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let identity = |one: &Self| fstat(&one.directory).map(|status| (status.st_dev, status.st_ino)).ok();
        self.root == other.root && identity(self).is_some_and(|known| identity(other) == Some(known))
    }

    /// Whether the state directory lies in it, where it is treated as absent.
    pub(crate) const fn holds_state(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// The configured name.
    #[must_use]
    pub const fn name(&self) -> &WorkspaceName {
        &self.name
    }

    /// The real path of the directory.
    #[must_use]
    pub const fn root(&self) -> &AbsolutePath {
        &self.root
    }

    /// Whether a real path is treated as absent.
    #[must_use]
    pub fn is_hidden(&self, path: &AbsolutePath) -> bool {
        self.hidden.iter().any(|hidden| path.is_within(hidden))
    }

    /// Finds out what a path names: relative to the workspace, or absolute and inside it. Links that stay inside are followed.
    ///
    /// # Errors
    /// When the path leads out, steps upwards, names nothing, or may not be looked at.
    pub fn resolve(&self, text: &str) -> Result<Resolved, WorkspaceError> {
        self.resolve_below(&self.root, text)
    }

    /// As [`Self::resolve`], with relative paths taken from a directory of the workspace.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_below(&self, directory: &AbsolutePath, text: &str) -> Result<Resolved, WorkspaceError> {
        let mut found = self.resolve_once(directory, text);
        // Whoever saves a file puts a new one in its place, and a moment later the new one is found.
        for _ in 1..RETRIES {
            match found {
                Err(WorkspaceError::Changed(_)) => found = self.resolve_once(directory, text),
                found => return found,
            }
        }
        found
    }

    fn resolve_once(&self, directory: &AbsolutePath, text: &str) -> Result<Resolved, WorkspaceError> {
        let asked = self.locate(directory, text)?;
        if asked == self.root {
            return self.resolve_root(text);
        }
        let entry = self.enter(&asked, ResolveFlags::empty())?;
        let status = fstat(&entry).map_err(|errno| WorkspaceError::from_errno(text, errno))?;
        let path = path_of(&entry, text)?;
        if !path.is_within(&self.root) {
            // The kernel kept us beneath the directory, so the directory itself was moved.
            return Err(WorkspaceError::Changed(asked));
        }
        if self.is_hidden(&path) {
            return Err(WorkspaceError::Absent(text.to_owned()));
        }
        // SECURITY: a deleted entry reads as `name (deleted)`, which another entry may really be called. Only the entry
        // that the real path leads to, without any link, is the one that was found.
        let again = self.enter(&path, ResolveFlags::NO_SYMLINKS).map_err(|_| WorkspaceError::Changed(path.clone()))?;
        match fstat(&again) {
            Ok(same) if (same.st_dev, same.st_ino) == (status.st_dev, status.st_ino) => {}
            _ => return Err(WorkspaceError::Changed(path)),
        }
        Ok(Resolved { path, kind: Kind::of(&status), size: u64::try_from(status.st_size).unwrap_or_default() })
    }

    /// The workspace itself, which is open already.
    fn resolve_root(&self, text: &str) -> Result<Resolved, WorkspaceError> {
        if path_of(&self.directory, text)? != self.root {
            return Err(WorkspaceError::Changed(self.root.clone()));
        }
        let status = fstat(&self.directory).map_err(|errno| WorkspaceError::from_errno(text, errno))?;
        Ok(Resolved {
            path: self.root.clone(),
            kind: Kind::of(&status),
            size: u64::try_from(status.st_size).unwrap_or_default(),
        })
    }

    /// The path that a text means, before anything on the way to it is looked at.
    pub(crate) fn locate(&self, directory: &AbsolutePath, text: &str) -> Result<AbsolutePath, WorkspaceError> {
        let path = if text.starts_with('/') { AbsolutePath::parse(text)? } else { directory.join(text)? };
        if path.is_within(&self.root) { Ok(path) } else { Err(WorkspaceError::LeadsOut(text.to_owned())) }
    }

    /// The root of the workspace, opened as it was.
    pub(crate) fn directory(&self) -> std::io::Result<OwnedFd> {
        self.directory.try_clone()
    }

    /// Opens an entry for nothing but looking at it.
    pub(crate) fn enter(&self, path: &AbsolutePath, extra: ResolveFlags) -> Result<OwnedFd, WorkspaceError> {
        let below = path.as_str().strip_prefix(self.root.as_str()).unwrap_or_default().trim_start_matches('/');
        let below = if below.is_empty() { "." } else { below };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | extra;
        for _ in 0..RETRIES {
            match openat2(&self.directory, below, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // Something was renamed while the kernel walked; it asks to try again.
                Err(Errno::AGAIN) => {}
                answer => return answer.map_err(|errno| WorkspaceError::from_errno(path.as_str(), errno)),
            }
        }
        Err(WorkspaceError::Changed(path.clone()))
    }

    /// Opens a regular file at its real path for reading. No link is followed.
    pub(crate) fn open_file(&self, path: &AbsolutePath) -> Result<(File, Stat), WorkspaceError> {
        let (entry, status) = self.open_real(path)?;
        match Kind::of(&status) {
            Kind::File => Ok((reopen(&entry, OFlags::RDONLY, path)?.into(), status)),
            kind => Err(WorkspaceError::NotAFile { path: path.to_string(), kind }),
        }
    }

    /// Opens a directory at its real path for reading. No link is followed.
    pub(crate) fn open_directory(&self, path: &AbsolutePath) -> Result<OwnedFd, WorkspaceError> {
        let (entry, status) = self.open_real(path)?;
        match Kind::of(&status) {
            Kind::Directory => reopen(&entry, OFlags::RDONLY | OFlags::DIRECTORY, path),
            kind => Err(WorkspaceError::NotADirectory { path: path.to_string(), kind }),
        }
    }

    fn open_real(&self, path: &AbsolutePath) -> Result<(OwnedFd, Stat), WorkspaceError> {
        if !path.is_within(&self.root) {
            return Err(WorkspaceError::LeadsOut(path.to_string()));
        }
        if self.is_hidden(path) {
            return Err(WorkspaceError::Absent(path.to_string()));
        }
        let entry = self.enter(path, ResolveFlags::NO_SYMLINKS).map_err(|error| match error {
            WorkspaceError::Denied(_) | WorkspaceError::Failed { .. } => error,
            // The path was real when it was judged.
            _ => WorkspaceError::Changed(path.clone()),
        })?;
        let status = fstat(&entry).map_err(|errno| WorkspaceError::from_errno(path.as_str(), errno))?;
        Ok((entry, status))
    }
}

/// What a path turned out to name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Where it really is.
    pub path: AbsolutePath,
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
}

impl Resolved {
    /// The real path, if it is a regular file's.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn file(self) -> Result<AbsolutePath, WorkspaceError> {
        match self.kind {
            Kind::File => Ok(self.path),
            kind => Err(WorkspaceError::NotAFile { path: self.path.to_string(), kind }),
        }
    }

    /// The real path, if it is a directory's.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn directory(self) -> Result<AbsolutePath, WorkspaceError> {
        match self.kind {
            Kind::Directory => Ok(self.path),
            kind => Err(WorkspaceError::NotADirectory { path: self.path.to_string(), kind }),
        }
    }
}

palyra_types::words! {
    /// The kinds of entry in a directory.
    pub enum Kind ("kind of file") {
        /// A regular file.
        File = "file",
        /// A directory.
        Directory = "directory",
        /// A symbolic link.
        Link = "link",
        /// A named pipe.
        Pipe = "pipe",
        /// A socket.
        Socket = "socket",
        /// A character or block device.
        Device = "device",
        /// Something the kernel has no name for.
        Unknown = "unknown",
    }
}

impl Kind {
    pub(crate) const fn of(status: &Stat) -> Self {
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Fifo => Self::Pipe,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::Unknown => Self::Unknown,
        }
    }
}

/// Why something in a workspace was not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    /// The root of the machine was to be a workspace.
    #[error("a workspace cannot be the whole machine")]
    WholeMachine,
    /// The workspace lies in the state directory.
    #[error("the workspace `{}` lies inside the state directory", visible(.0.as_str()))]
    InsideState(AbsolutePath),
    /// A directory that nobody configured holds the state directory.
    #[error("the directory `{}` holds the state directory", visible(.0.as_str()))]
    HoldsState(AbsolutePath),
    /// A link on the way to a directory that was configured stands in a workspace.
    #[error("the link `{}` stands in a workspace, where a program could have put it", visible(.0))]
    LinkInWorkspace(String),
    /// The path, or a link on it, goes elsewhere.
    #[error("`{}` leads out of the workspace", visible(.0))]
    LeadsOut(String),
    /// The path has no good spelling.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A name on the real path is not Unicode.
    #[error("`{}` leads to a name that is not Unicode", visible(.0))]
    NotUnicode(String),
    /// Nothing is there.
    #[error("`{}` does not exist", visible(.0))]
    Absent(String),
    /// A regular file was wanted.
    #[error("`{}` is a {kind}, not a file", visible(.path))]
    NotAFile {
        /// The path.
        path: String,
        /// What it is.
        kind: Kind,
    },
    /// A directory was wanted.
    #[error("`{}` is a {kind}, not a directory", visible(.path))]
    NotADirectory {
        /// The path.
        path: String,
        /// What it is.
        kind: Kind,
    },
    /// A link whose end does not exist.
    #[error("`{}` is a link to something that does not exist", visible(.0))]
    DanglingLink(String),
    /// The system does not let the daemon look.
    #[error("the system does not give access to `{}`", visible(.0))]
    Denied(String),
    /// Links upon links.
    #[error("`{}` is a loop of links, or a link that may not be followed", visible(.0))]
    Loop(String),
    /// It is not what it was when it was judged.
    #[error("`{}` changed while it was looked at", visible(.0.as_str()))]
    Changed(AbsolutePath),
    /// The system said no.
    #[error("`{}` cannot be used: {cause}", visible(.path))]
    Failed {
        /// The path.
        path: String,
        /// The system's words.
        cause: String,
    },
}

impl WorkspaceError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::WholeMachine | Self::InsideState(_) => "configure a directory that holds only what agents work on",
            Self::LinkInWorkspace(_) => {
                "look at what it leads to, then configure that directory itself, or put it back"
            }
            Self::HoldsState(_) => "work in a directory below it, or configure it as [[workspace]]",
            Self::LeadsOut(_) | Self::Path(_) => {
                "name a path inside the workspace, relative to its root and without `..`"
            }
            Self::NotUnicode(_) => "rename it; policy can only judge names that are Unicode",
            Self::Absent(_) | Self::NotAFile { .. } | Self::NotADirectory { .. } => "look with `fs.list` what is there",
            Self::DanglingLink(_) | Self::Loop(_) => "name the file itself instead of a link to it",
            Self::Denied(_) => "check the permissions and the owner of the file",
            Self::Changed(_) => "propose the call again",
            Self::Failed { .. } => "check the file system",
        }
    }

    pub(crate) fn from_io(path: &str, error: &std::io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::from_errno(path, errno),
            None => Self::Failed { path: path.to_owned(), cause: error.to_string() },
        }
    }

    pub(crate) fn from_errno(path: &str, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOENT => Self::Absent(path),
            Errno::XDEV => Self::LeadsOut(path),
            Errno::LOOP => Self::Loop(path),
            Errno::NOTDIR => Self::Absent(path),
            Errno::ACCESS | Errno::PERM => Self::Denied(path),
            other => Self::Failed { path, cause: other.to_string() },
        }
    }
}

/// Opens a regular file anywhere on the machine for reading. The last component is not followed if it is a link.
pub(crate) fn open_regular(path: &AbsolutePath) -> Result<(File, Stat), WorkspaceError> {
    let failed = |errno: Errno| WorkspaceError::from_errno(path.as_str(), errno);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = openat(CWD, path.as_str(), flags, Mode::empty()).map_err(failed)?;
    let status = fstat(&entry).map_err(failed)?;
    match Kind::of(&status) {
        Kind::File => Ok((reopen(&entry, OFlags::RDONLY, path)?.into(), status)),
        kind => Err(WorkspaceError::NotAFile { path: path.to_string(), kind }),
    }
}

/// Where an open entry really is.
pub(crate) fn path_of(entry: &OwnedFd, asked: &str) -> Result<AbsolutePath, WorkspaceError> {
    let link =
        readlinkat(CWD, own_descriptor(entry), Vec::new()).map_err(|errno| WorkspaceError::from_errno(asked, errno))?;
    let text = link.to_str().map_err(|_| WorkspaceError::NotUnicode(asked.to_owned()))?;
    Ok(AbsolutePath::parse(text)?)
}

/// Opens what was only looked at so far. It is the same entry, whatever its name leads to by now.
fn reopen(entry: &OwnedFd, flags: OFlags, path: &AbsolutePath) -> Result<OwnedFd, WorkspaceError> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    openat(CWD, own_descriptor(entry), flags, Mode::empty())
        .map_err(|errno| WorkspaceError::from_errno(path.as_str(), errno))
}

fn own_descriptor(entry: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", entry.as_fd().as_raw_fd())
}

/// The real path of a directory that may not exist yet: its nearest existing ancestor is made real.
fn real_or_given(path: &AbsolutePath) -> AbsolutePath {
    let existing = std::iter::once(path.as_str()).chain(path.ancestors()).find_map(|ancestor| {
        let real = std::fs::canonicalize(ancestor).ok()?;
        AbsolutePath::parse(real.to_str()?).ok()?.join(path.as_str().strip_prefix(ancestor)?).ok()
    });
    existing.unwrap_or_else(|| path.clone())
}

/// How often a walk that met a rename is tried again.
const RETRIES: usize = 8;

#[cfg(test)]
pub(crate) mod tests;
