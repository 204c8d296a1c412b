//! Walks a directory tree without following links.
//!
//! Guarantees: entries come in the order of their names' bytes; hidden directories are absent; a directory is entered only at its real
//! path and only if it may be read; a name that is not Unicode is told but never entered, because policy cannot judge it.

use rustix::{
    fs::{AtFlags, Dir, statat},
    io::Errno,
};

use palyra_types::AbsolutePath;

use super::files::{FileError, Heed};
use crate::workspace::{Kind, Workspace};

/// An entry that was met.
pub(super) struct Met<'a> {
    /// Its name from the start of the walk, such as `src/main.rs`.
    pub(super) name: &'a [u8],
    /// Where it is, if its name is Unicode.
    pub(super) path: Option<&'a AbsolutePath>,
    /// What it is.
    pub(super) kind: Kind,
    /// Its size in bytes.
    pub(super) size: u64,
}

/// How a walk goes on after an entry.
pub(super) enum Next {
    /// To the next one, through this one if it is a directory.
    On,
    /// To the next one.
    Past,
    /// Nowhere; enough was seen.
    Enough,
}

/// A walk through the directories below a start.
pub(super) struct Walk<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) heed: Heed<'a>,
    /// How many levels to go down; 1 is the start alone.
    pub(super) depth: u32,
    /// Directories that policy keeps back.
    pub(super) withheld: usize,
    /// Directories that cannot be read, or hold more entries than are looked at.
    pub(super) incomplete: usize,
    /// How many entries may still be met.
    pub(super) left: usize,
}

impl<'a> Walk<'a> {
    pub(super) const fn new(workspace: &'a Workspace, heed: Heed<'a>, depth: u32) -> Self {
        Self { workspace, heed, depth, withheld: 0, incomplete: 0, left: MOST_ENTRIES }
    }

    /// Walks from a directory, which must be readable. Returns whether the walk came to its end.
    pub(super) fn from(
        &mut self,
        start: &AbsolutePath,
        visit: &mut dyn FnMut(&Met<'_>) -> Result<Next, FileError>,
    ) -> Result<bool, FileError> {
        let names = self.names(start)?;
        self.through(start, &[], names, visit)
    }

    fn through(
        &mut self,
        directory: &AbsolutePath,
        prefix: &[u8],
        names: Vec<(Vec<u8>, Kind, u64)>,
        visit: &mut dyn FnMut(&Met<'_>) -> Result<Next, FileError>,
    ) -> Result<bool, FileError> {
        let level = prefix.iter().filter(|byte| **byte == b'/').count();
        for (name, kind, size) in names {
            self.heed.go_on()?;
            let path = std::str::from_utf8(&name).ok().and_then(|name| directory.join(name).ok());
            if path.as_ref().is_some_and(|path| self.workspace.is_hidden(path)) {
                continue;
            }
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            let mut name = [prefix, &name].concat();
            match visit(&Met { name: &name, path: path.as_ref(), kind, size })? {
                Next::On => {}
                Next::Past => continue,
                Next::Enough => return Ok(false),
            }
            let deep_enough = u32::try_from(level).unwrap_or(u32::MAX).saturating_add(1) >= self.depth;
            let (Kind::Directory, Some(path), false) = (kind, path, deep_enough) else { continue };
            if !(self.heed.may_read)(&path) {
                self.withheld += 1;
                continue;
            }
            // A directory that vanished or cannot be read does not end the walk.
            let Ok(names) = self.names(&path) else {
                self.incomplete += 1;
                continue;
            };
            name.push(b'/');
            if !self.through(&path, &name, names, visit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The entries of a directory, in the order of their names' bytes.
    fn names(&mut self, directory: &AbsolutePath) -> Result<Vec<(Vec<u8>, Kind, u64)>, FileError> {
        let failed = |errno: Errno| FileError::errno(directory, errno);
        let descriptor = self.workspace.open_directory(directory)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&descriptor).map_err(failed)? {
            self.heed.go_on()?;
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() >= MOST_IN_ONE_DIRECTORY {
                self.incomplete += 1;
                break;
            }
            // An entry that vanished meanwhile is not there.
            if let Ok(status) = statat(&descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
                let size = u64::try_from(status.st_size).unwrap_or_default();
                names.push((name.to_bytes().to_vec(), Kind::of(&status), size));
            }
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }
}

/// How many entries of one directory are looked at.
const MOST_IN_ONE_DIRECTORY: usize = 50_000;

/// How many entries one walk meets.
const MOST_ENTRIES: usize = 500_000;
