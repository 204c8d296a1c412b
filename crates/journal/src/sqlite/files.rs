//! The files of the database: whether they are still those that were opened, and why they cannot be written.
//!
//! Guarantees: a database that was deleted or exchanged while it is open is noticed at the next commit, before anything is acknowledged.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::Access;

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
        let opened = |path: PathBuf| Identity::of(&path).map(|identity| (path, identity)).ok_or_else(gone);
        Ok(Self([opened(database.to_owned())?, opened(log_of(database))?]))
    }

    /// The database itself.
    pub(super) const fn database(&self) -> Identity {
        let [(_, database), _] = &self.0;
        *database
    }

    /// Whether the database is still there, whatever became of its log.
    pub(super) fn is_database_there(&self) -> bool {
        let [(path, database), _] = &self.0;
        database.check(path).is_ok()
    }

    /// Whether another file is in the place of the log.
    pub(super) fn is_log_another(&self) -> bool {
        let [_, (path, log)] = &self.0;
        Identity::of(path).is_some_and(|found| found != *log)
    }

    /// Whether they are still there.
    pub(super) fn check(&self) -> Result<(), Trouble> {
        self.0.iter().try_for_each(|(path, identity)| identity.check(path))
    }
}

/// The write-ahead log of a database.
pub(super) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

pub(super) fn gone() -> Trouble {
    Trouble::Replaced("the database is gone".to_owned())
}

/// Says what is behind an error of the disk, which SQLite does not always tell.
pub(super) fn diagnosed(trouble: Trouble, database: &Path) -> Trouble {
    if !matches!(trouble, Trouble::Disk(_) | Trouble::ReadOnly) {
        return trouble;
    }
    match (unwritable(database), file_system(database)) {
        (Some(told @ (Trouble::ReadOnly | Trouble::DiskFull)), _) | (_, Some(told)) => told,
        // A file that cannot be opened for writing for whatever reason, SQLite opens for reading, and calls read-only.
        (Some(told), None) if trouble == Trouble::ReadOnly && database.exists() => told,
        _ => trouble,
    }
}

/// Why the database or its log cannot be written, if they cannot.
fn unwritable(database: &Path) -> Option<Trouble> {
    // INVARIANT: the database itself is not opened. Closing it would end all locks that SQLite holds on it for this process.
    let access = rustix::fs::access(database, Access::WRITE_OK).map_err(io::Error::from);
    let log = OpenOptions::new().write(true).open(log_of(database)).map(drop);
    let log = log.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) });
    log.and(access).map_err(disk).err()
}

/// Why nothing can be written, if the file system says so.
fn file_system(database: &Path) -> Option<Trouble> {
    let system = rustix::fs::statvfs(database.parent()?).ok()?;
    if system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Some(Trouble::ReadOnly);
    }
    (system.f_bavail == 0).then_some(Trouble::DiskFull)
}
