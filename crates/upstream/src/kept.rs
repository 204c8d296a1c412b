//! A document in a file of the state directory.
//!
//! Guarantees: it is replaced as a whole and is on the disk before a replacement returns; what is somebody else's, open to others or no
//! regular file is not read. Does not: look at what is in it, or keep others from writing it.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, fsync, open, openat, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};

/// A document in a file.
#[derive(Debug, Clone)]
pub struct KeptFile {
    directory: PathBuf,
    name: OsString,
}

impl KeptFile {
    /// The file of this name in a directory, which must be there.
    #[must_use]
    pub fn new(directory: &Path, name: &str) -> Self {
        Self { directory: directory.to_owned(), name: name.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// What is in it, or nothing if it is not there.
    ///
    /// # Errors
    /// When it is not the daemon's own, or cannot be read.
    pub fn read(&self) -> Result<Option<Vec<u8>>, KeptError> {
        // A pipe in its place must not make this wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match open(self.path(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(KeptError::Foreign(self.path())),
            Err(errno) => return Err(self.io(errno.into())),
        };
        let found = fstat(&file).map_err(|errno| self.io(errno.into()))?;
        let is_own = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_uid == geteuid().as_raw()
            && found.st_mode & 0o077 == 0;
        if !is_own {
            return Err(KeptError::Foreign(self.path()));
        }
        let mut document = Vec::new();
        File::from(file).take(MOST_BYTES + 1).read_to_end(&mut document).map_err(|source| self.io(source))?;
        self.fits(&document)?;
        Ok(Some(document))
    }

    /// Puts a document in its place.
    ///
    /// # Errors
    /// When it cannot be written. The old one is there then.
    pub fn replace(&self, document: &[u8]) -> Result<(), KeptError> {
        self.fits(document)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(&self.directory, flags, Mode::empty()).map_err(|errno| self.io(errno.into()))?;
        let mut beside = OsString::from(".");
        beside.push(&self.name);
        beside.push(".new");
        let written = || -> io::Result<()> {
            match unlinkat(&directory, &beside, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&directory, &beside, flags, OWN)?;
            fchmod(&file, OWN)?;
            let mut file = File::from(file);
            file.write_all(document)?;
            file.sync_all()?;
            renameat(&directory, &beside, &directory, &self.name)?;
            Ok(fsync(&directory)?)
        };
        written().map_err(|source| self.io(source))
    }

    fn fits(&self, document: &[u8]) -> Result<(), KeptError> {
        match u64::try_from(document.len()) {
            Ok(length) if length <= MOST_BYTES => Ok(()),
            _ => Err(KeptError::TooLarge(self.path())),
        }
    }

    fn io(&self, source: io::Error) -> KeptError {
        KeptError::Io { path: self.path(), why: source.to_string() }
    }
}

/// Why a document cannot be had or kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeptError {
    /// Not the daemon's own file, or open to others.
    #[error("{} is not a file of the daemon's user alone", .0.display())]
    Foreign(PathBuf),
    /// Too much of it.
    #[error("{} would be larger than {MOST_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    /// The system says no.
    #[error("{} cannot be read or written: {why}", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

/// For the owner alone.
const OWN: Mode = Mode::RUSR.union(Mode::WUSR);

const MOST_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_document_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let kept = KeptFile::new(directory.path(), "pins.json");
        assert_eq!(kept.read(), Ok(None));
        kept.replace(b"one").unwrap();
        kept.replace(b"two").unwrap();
        assert_eq!(kept.read(), Ok(Some(b"two".to_vec())));
        assert_eq!(std::fs::metadata(kept.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let kept = KeptFile::new(directory.path(), "pins.json");
        kept.replace(b"one").unwrap();
        std::fs::set_permissions(kept.path(), PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(kept.read(), Err(KeptError::Foreign(kept.path())));
        std::fs::remove_file(kept.path()).unwrap();
        symlink("/etc/passwd", kept.path()).unwrap();
        assert_eq!(kept.read(), Err(KeptError::Foreign(kept.path())));
    }
}
