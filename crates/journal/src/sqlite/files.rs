//! The files of the database: whether they are still those that were opened, and why they cannot be written.
//!
//! Guarantees: a database that was deleted or exchanged while it is open is noticed at the next commit, before anything is acknowledged.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::disk;
use crate::trouble::Trouble;

/// The database and its write-ahead log, as they were when they were opened.
#[derive(Debug)]
pub(super) struct Files([(PathBuf, Identity); 2]);

/// Tells a file from any other of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The file at this path now.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { device: file.dev(), inode: file.ino() })
    }

    /// Whether the file at this path is still this one.
    pub(super) fn check(self, path: &Path) -> Result<(), Trouble> {
        match Self::of(path) {
            Some(found) if found == self => Ok(()),
            Some(_) => Err(Trouble::Replaced("another file is in the place of the database".to_owned())),
            None => Err(gone()),
        }
    }
}

impl Files {
    /// The files of an open database.
    pub(super) fn at(database: &Path) -> Result<Self, Trouble> {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let opened = |path: PathBuf| Identity::of(&path).map(|identity| (path, identity)).ok_or_else(gone);
        Ok(Self([opened(database.to_owned())?, opened(PathBuf::from(log))?]))
    }

    /// The database itself.
    pub(super) const fn database(&self) -> Identity {
        let [(_, database), _] = &self.0;
        *database
    }

    /// Whether they are still there.
    pub(super) fn check(&self) -> Result<(), Trouble> {
        self.0.iter().try_for_each(|(path, identity)| identity.check(path))
    }
}

pub(super) fn gone() -> Trouble {
    Trouble::Replaced("the database is gone".to_owned())
}

/// Says what is behind an error of the disk, which SQLite does not always tell.
pub(super) fn diagnosed(trouble: Trouble, database: &Path) -> Trouble {
    if !matches!(trouble, Trouble::Disk(_) | Trouble::ReadOnly) {
        return trouble;
    }
    // A file that cannot be opened for writing for whatever reason, SQLite opens for reading, and calls read-only.
    let writing = OpenOptions::new().write(true).open(database).map_err(disk).err();
    match (writing, file_system(database)) {
        (Some(told @ (Trouble::ReadOnly | Trouble::DiskFull)), _) | (_, Some(told)) => told,
        (Some(told), None) if trouble == Trouble::ReadOnly && database.exists() => told,
        _ => trouble,
    }
}

/// Why nothing can be written, if the file system says so.
fn file_system(database: &Path) -> Option<Trouble> {
    let system = rustix::fs::statvfs(database.parent()?).ok()?;
    if system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Some(Trouble::ReadOnly);
    }
    (system.f_bavail == 0).then_some(Trouble::DiskFull)
}
