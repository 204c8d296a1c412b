//! Performs file work: the executing half of the `fs.*` tools.
//!
//! Guarantees: opens only the real paths that the work names, or that lie below them, and follows no link; stops soon after it is
//! told to; results are bounded and never mix up names or bytes that are not UTF-8.
//! Does not: check a permit. It is for this crate, which does.

use std::io::{self, Read};

use base64::{Engine, engine::general_purpose::STANDARD};
use palyra_types::{AbsolutePath, json::MAX_INTEGER, visible::visible};
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::{
    fs_list, fs_read, fs_search, fs_write,
    walk::{Next, Walk},
};
use crate::{
    tool::{FileWork, IntendError},
    workspace::{Kind, Workspace, WorkspaceError},
};

/// How much a result holds at most, whatever the call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputCaps {
    /// Bytes of content.
    pub bytes: u64,
    /// Entries of a listing, or lines found.
    pub entries: usize,
}

impl Default for OutputCaps {
    /// 256 KiB, 2000 entries.
    fn default() -> Self {
        Self { bytes: 256 * 1024, entries: 2000 }
    }
}

/// What the work must heed while it is under way.
#[derive(Clone, Copy)]
pub(crate) struct Heed<'a> {
    /// Whether to give up: the call was cancelled or took too long.
    pub(crate) stop: &'a dyn Fn() -> bool,
    /// Whether a path below the one that was decided about may be read. Listing and searching skip what may not.
    pub(crate) may_read: &'a dyn Fn(&AbsolutePath) -> bool,
}

impl Heed<'_> {
    pub(super) fn go_on(&self) -> Result<(), FileError> {
        if (self.stop)() { Err(FileError::Stopped) } else { Ok(()) }
    }
}

/// Does the work. Blocks.
pub(crate) fn perform(
    work: &FileWork,
    workspace: &Workspace,
    caps: &OutputCaps,
    heed: Heed<'_>,
) -> Result<Value, FileError> {
    match work {
        FileWork::Read { path, offset, limit } => fs_read::perform(path, *offset, *limit, (workspace, caps, heed)),
        FileWork::List { path, depth, limit } => fs_list::perform(path, *depth, *limit, (workspace, caps, heed)),
        FileWork::Search { path, limit, .. } => fs_search::perform(work, path, *limit, (workspace, caps, heed)),
        FileWork::Write { path, replaces, appends, directories, content, .. } => {
            let task = fs_write::Task { path, replaces: *replaces, appends: *appends, directories, content };
            fs_write::perform(&task, workspace, heed)
        }
    }
}

/// The content of a file, up to so many bytes. Blocks.
pub(crate) fn read_whole(workspace: &Workspace, path: &AbsolutePath, most: u64) -> Result<Vec<u8>, FileError> {
    let (mut file, _) = workspace.open_file(path)?;
    read_some(&mut file, most, path, UNHEEDED)
}

/// The real path that a file is to be written at, whose directory has to be there, and whether it replaces one.
pub(crate) fn destination(workspace: &Workspace, path: &AbsolutePath) -> Result<(AbsolutePath, bool), IntendError> {
    let (path, _, replaces) = fs_write::destination(workspace, path.as_str(), false)?;
    Ok((path, replaces))
}

/// Makes or replaces a file. Blocks.
pub(crate) fn write_whole(
    workspace: &Workspace,
    path: &AbsolutePath,
    replaces: bool,
    content: &[u8],
) -> Result<(), FileError> {
    let task = fs_write::Task { path, replaces, appends: false, directories: &[], content };
    fs_write::perform(&task, workspace, UNHEEDED).map(|_| ())
}

/// Removes a file. Blocks.
pub(crate) fn remove(workspace: &Workspace, path: &AbsolutePath) -> Result<(), FileError> {
    fs_write::remove(workspace, path)
}

/// What is in a directory: names that are Unicode, and of directories those that may be read. Blocks.
pub(crate) fn entries(
    workspace: &Workspace,
    path: &AbsolutePath,
    may_read: &dyn Fn(&AbsolutePath) -> bool,
) -> Result<Vec<(String, Kind, u64)>, FileError> {
    let heed = Heed { stop: &|| false, may_read };
    let mut found = Vec::new();
    Walk::new(workspace, heed, 1).from(path, &mut |met| {
        if let Ok(name) = std::str::from_utf8(met.name) {
            found.push((name.to_owned(), met.kind, met.size));
        }
        Ok(Next::On)
    })?;
    Ok(found)
}

/// For what nobody waits for any longer than it takes.
const UNHEEDED: Heed<'static> = Heed { stop: &|| false, may_read: &|_| true };

/// What every performance takes.
pub(super) type Means<'a> = (&'a Workspace, &'a OutputCaps, Heed<'a>);

/// Why file work was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The path could not be reached.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The call was cancelled or took too long.
    #[error("the call was stopped before it was done")]
    Stopped,
    /// The file is too large to append to.
    #[error("`{}` has {size} bytes; only files up to {limit} bytes are appended to", visible(.path.as_str()))]
    TooLarge {
        /// The file.
        path: AbsolutePath,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A pattern that was fine when the call was proposed.
    #[error("the pattern does not compile any more")]
    Pattern,
}

impl FileError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Workspace(error) => error.advice(),
            Self::Stopped => "ask for less at once",
            Self::TooLarge { .. } => "append with a program",
            Self::Pattern => "propose the call again",
        }
    }

    pub(super) fn errno(path: &AbsolutePath, errno: Errno) -> Self {
        WorkspaceError::from_errno(path.as_str(), errno).into()
    }

    pub(super) fn io(path: &AbsolutePath, error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::errno(path, errno),
            None => WorkspaceError::Failed { path: path.to_string(), cause: error.to_string() }.into(),
        }
    }
}

/// Reads up to `most` bytes, in pieces, so that a stop is heeded.
pub(super) fn read_some(
    source: &mut impl Read,
    most: u64,
    path: &AbsolutePath,
    heed: Heed<'_>,
) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    let mut left = most;
    while left > 0 {
        heed.go_on()?;
        let piece = source.by_ref().take(left.min(PIECE)).read_to_end(&mut content);
        match piece.map_err(|error| FileError::io(path, &error))? {
            0 => break,
            read => left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX)),
        }
    }
    Ok(content)
}

/// Tells a name under `key`, or, if it is not UTF-8, its bytes under `key_base64`.
pub(super) fn tell_name(entry: &mut Map<String, Value>, key: &str, name: &[u8]) {
    match std::str::from_utf8(name) {
        Ok(name) => entry.insert(key.to_owned(), name.into()),
        Err(_) => entry.insert(format!("{key}_base64"), STANDARD.encode(name).into()),
    };
}

/// A size as it is told. A sparse file can claim more than a number of JSON holds; the largest such number stands for it.
pub(super) fn tell_size(size: u64) -> u64 {
    size.min(MAX_INTEGER)
}

/// How many bytes are read between two looks at whether to stop.
const PIECE: u64 = 256 * 1024;
