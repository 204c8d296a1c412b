//! The files that a program consists of, held open: the program and, for a script, the interpreters that first lines name.
//!
//! Guarantees: what is compared with a decision is what is executed, since both go through one descriptor; a path that is exchanged
//! after it was opened changes nothing. A script is the exception that cannot be avoided: its interpreter opens it once more, by
//! its path, so that path is compared again just before the interpreter starts.
//! Does not: hold back somebody who may write to one of the files from doing so. What it finds out is that they did.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use palyra_types::{
    digest::{RunningDigest, Sha256Digest},
    path::AbsolutePath,
    visible::visible,
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    first_line::{FirstLine, LOOKED_AT},
    ownership::is_changeable,
    protocol::{Stamp, Unchanged},
    stamp::{is_settled, status_of},
};

/// The largest file of a program whose content is digested.
pub const LARGEST_PROGRAM: u64 = 512 << 20;

/// A program's files, open. A copy has the same files.
#[derive(Debug, Clone)]
pub struct Executable {
    program: ProgramFile,
    /// The interpreter of the program, the interpreter of that one, and so on. The last one is no script.
    interpreters: Vec<ProgramFile>,
}

/// One of them.
#[derive(Debug, Clone)]
pub struct ProgramFile {
    named: Vec<u8>,
    argument: Option<Vec<u8>>,
    real: AbsolutePath,
    entry: Arc<OwnedFd>,
    /// For reading, where this user may.
    content: Option<Arc<File>>,
    stamp: Stamp,
}

/// A file of a program, as it was decided about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedFile {
    /// Where it really is.
    pub path: AbsolutePath,
    /// The digest of its content. Without one, nobody but root may be able to change the file.
    pub sha256: Option<Sha256Digest>,
}

/// What the files of a program must be, when they are opened to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProgramFiles {
    /// Whatever the plan's path leads to.
    #[default]
    AsFound,
    /// These, and no others that somebody but root could change.
    Pinned {
        /// The program.
        program: PinnedFile,
        /// Its interpreters, as far as somebody but root could change them, or where their names lead. There may be others in it.
        interpreters: Vec<PinnedFile>,
    },
}

impl ProgramFiles {
    /// Whether finding out takes reading a file.
    pub(crate) fn has_digest(&self) -> bool {
        match self {
            Self::AsFound => false,
            Self::Pinned { program, interpreters } => {
                program.sha256.is_some() || interpreters.iter().any(|interpreter| interpreter.sha256.is_some())
            }
        }
    }
}

impl Executable {
    /// Opens the program that a path leads to and, for a script, its interpreters.
    ///
    /// # Errors
    /// When there is none, or it cannot be executed.
    pub fn open(program: &AbsolutePath) -> Result<Self, Error> {
        let program = ProgramFile::open(program.as_str().as_bytes().to_vec(), None)?;
        let mut interpreters: Vec<ProgramFile> = Vec::new();
        while let Some(next) = interpreters.last().unwrap_or(&program).interpreter()? {
            if interpreters.len() == MOST_INTERPRETERS {
                return Err(program.refused(Kind::NotExecutable, "scripts upon scripts interpret"));
            }
            interpreters.push(next);
        }
        Ok(Self { program, interpreters })
    }

    /// Whether these are the files that this path was opened by.
    pub(crate) fn is_of(&self, program: &AbsolutePath) -> bool {
        self.program.named == program.as_str().as_bytes()
    }

    /// The program itself.
    #[must_use]
    pub const fn program(&self) -> &ProgramFile {
        &self.program
    }

    /// Its interpreters, the first one first. There are none unless it is a script.
    #[must_use]
    pub fn interpreters(&self) -> &[ProgramFile] {
        &self.interpreters
    }

    /// The arguments with which the last interpreter is started, by the kernel's rules; for a program that is no script, those given.
    pub(crate) fn arguments(&self, name: &str, given: &[String]) -> Vec<Vec<u8>> {
        let mut arguments = match self.interpreters.is_empty() {
            true => vec![name.as_bytes().to_vec()],
            false => vec![self.program.named.clone()],
        };
        arguments.extend(given.iter().map(|argument| argument.as_bytes().to_vec()));
        for interpreter in &self.interpreters {
            let before = std::iter::once(interpreter.named.clone()).chain(interpreter.argument.clone());
            arguments.splice(0..0, before);
        }
        arguments
    }

    /// Whether these are the files that were decided about. Returns what must be as it is now when the program starts.
    ///
    /// Reads them, if they are to have a digest.
    pub(crate) fn confirm(&mut self, expected: &ProgramFiles) -> Result<Vec<Unchanged>, Error> {
        let ProgramFiles::Pinned { program, interpreters } = expected else { return Ok(Vec::new()) };
        if self.program.real != program.path {
            return Err(self.program.refused(Kind::Changed, "links lead elsewhere by now from"));
        }
        let mut unchanged = Vec::new();
        let is_binary = self.interpreters.is_empty();
        if self.program.confirm(Some(program))? {
            unchanged.push(self.program.unchanged(is_binary));
        }
        let last = self.interpreters.len();
        for (at, file) in self.interpreters.iter_mut().enumerate() {
            if file.confirm(interpreters.iter().find(|pinned| pinned.path == file.real))? {
                unchanged.push(file.unchanged(at + 1 == last));
            }
        }
        Ok(unchanged)
    }

    /// The one file that the kernel executes: where it is, and which one.
    pub(crate) fn binary(&self) -> (&AbsolutePath, Stamp) {
        let file = self.interpreters.last().unwrap_or(&self.program);
        (&file.real, file.stamp)
    }

    /// The one file that the kernel executes.
    pub(crate) fn into_binary(mut self) -> Arc<OwnedFd> {
        self.interpreters.pop().unwrap_or(self.program).entry
    }
}

impl ProgramFile {
    /// Where it really is.
    #[must_use]
    pub const fn real_path(&self) -> &AbsolutePath {
        &self.real
    }

    /// Whether anybody but root could change it, or make its name lead to another.
    #[must_use]
    pub fn is_changeable(&self) -> bool {
        is_changeable(Path::new(OsStr::from_bytes(&self.named)))
    }

    /// The digest of its content; nothing if it is too large.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sha256(&self) -> io::Result<Option<Sha256Digest>> {
        let content = self.content.as_ref().ok_or(io::ErrorKind::PermissionDenied)?;
        let mut running = RunningDigest::default();
        let mut piece = vec![0; 64 << 10];
        let mut at = 0_u64;
        while at <= LARGEST_PROGRAM {
            match content.read_at(&mut piece, at)? {
                0 => return Ok(Some(running.finish())),
                read => {
                    running.update(piece.get(..read).unwrap_or_default());
                    at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
                }
            }
        }
        Ok(None)
    }

    fn open(named: Vec<u8>, argument: Option<Vec<u8>>) -> Result<Self, Error> {
        let shown = String::from_utf8_lossy(&named);
        let refused = |kind, what: &str| Error::about(kind, what, &shown);
        // SECURITY: by way of `/proc` a path could lead into the files of another process, where names mean something else: what has
        // the name of one of root's programs there would be taken for it.
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(CWD, &*named, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
        let entry = opened.map_err(|errno| {
            let denied = matches!(errno, Errno::ACCESS | Errno::PERM);
            let kind = if denied { Kind::NotExecutable } else { Kind::ProgramNotFound };
            Error::shortage(errno).unwrap_or_else(|| refused(kind, "there is no usable file"))
        })?;
        let status = status_of(&entry).map_err(|_| refused(Kind::NotExecutable, "the system does not describe"))?;
        if FileType::from_raw_mode(status.stx_mode.into()) != FileType::RegularFile {
            return Err(refused(Kind::NotExecutable, "this is not a file:"));
        }
        if status.stx_mode & 0o111 == 0 {
            return Err(refused(Kind::NotExecutable, "nobody may execute"));
        }
        let itself = format!("/proc/self/fd/{}", entry.as_raw_fd());
        let real = fs::read_link(&itself).ok().and_then(|real| AbsolutePath::parse(real.to_str()?).ok());
        let real = real.ok_or_else(|| refused(Kind::NotExecutable, "links lead to a name that is not Unicode from"))?;
        // Not before it is known to be a regular file: opening a pipe or a device would do something.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let content = rustix::fs::open(&itself, flags, Mode::empty());
        // SECURITY: what cannot be read passes for no script, so it must be its mode that says so.
        if let Some(short) = content.as_ref().err().and_then(|&errno| Error::shortage(errno)) {
            return Err(short);
        }
        let content = content.ok().map(|content| Arc::new(File::from(content)));
        let stamp = Stamp::from(&status);
        Ok(Self { named, argument, real, entry: Arc::new(entry), content, stamp })
    }

    /// The interpreter that its first line names.
    ///
    /// A file that only may be executed cannot be a script: its interpreter could not read it either.
    fn interpreter(&self) -> Result<Option<Self>, Error> {
        let Some(content) = &self.content else { return Ok(None) };
        let mut start = [0; LOOKED_AT];
        let mut have = 0;
        while let Some(room) = start.get_mut(have..).filter(|room| !room.is_empty()) {
            match content.read_at(room, u64::try_from(have).unwrap_or(u64::MAX)) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(self.refused(Kind::NotExecutable, "the system does not let anybody read")),
            }
        }
        match FirstLine::read(&start) {
            FirstLine::Absent => Ok(None),
            FirstLine::Broken => Err(self.refused(Kind::NotExecutable, "there is no interpreter in the first line of")),
            // It would depend on the working directory.
            FirstLine::Names { interpreter, .. } if !interpreter.starts_with(b"/") => {
                Err(self.refused(Kind::NotExecutable, "there is no absolute path in the first line of"))
            }
            FirstLine::Names { interpreter, argument } => Self::open(interpreter, argument).map(Some),
        }
    }

    /// Whether it is as pinned. Returns whether somebody could still change it.
    fn confirm(&mut self, pinned: Option<&PinnedFile>) -> Result<bool, Error> {
        let Some(sha256) = pinned.and_then(|pinned| pinned.sha256) else {
            // Where it really is counts for what is pinned there, and every step on the way for what is not.
            let place = pinned.map_or(OsStr::from_bytes(&self.named), |pinned| OsStr::new(pinned.path.as_str()));
            return match is_changeable(Path::new(place)) {
                false => Ok(false),
                true => Err(self.refused(Kind::Changed, "others than root can change by now")),
            };
        };
        self.stamp = self.settled_stamp()?;
        if self.sha256().ok().flatten() == Some(sha256) {
            Ok(true)
        } else {
            Err(self.refused(Kind::Changed, "it has not the content that was decided about:"))
        }
    }

    /// A stamp that no later change can leave as it is, if the file comes to rest soon.
    fn settled_stamp(&self) -> Result<Stamp, Error> {
        let look = || status_of(&self.entry).map(|status| Stamp::from(&status));
        let unknown = |_: Errno| self.refused(Kind::Changed, "the system does not describe");
        let mut stamp = look().map_err(unknown)?;
        for _ in 0..MOST_WAITS {
            if is_settled(&stamp) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
            stamp = look().map_err(unknown)?;
        }
        Ok(stamp)
    }

    /// What must not change before it starts. A binary is executed by its descriptor; a script is found by its path.
    fn unchanged(&self, is_binary: bool) -> Unchanged {
        Unchanged { path: if is_binary { Vec::new() } else { self.named.clone() }, stamp: self.stamp }
    }

    fn refused(&self, kind: Kind, what: &str) -> Error {
        Error::new(kind, format!("{what} `{}`", visible(&String::from_utf8_lossy(&self.named))))
    }
}

/// As many as the kernel goes through.
const MOST_INTERPRETERS: usize = 5;

/// How many milliseconds are spent at most on letting a change become old. A time in the future never does.
const MOST_WAITS: u32 = 50;
