//! The registry's document in a file.
//!
//! Guarantees: the file is replaced as a whole and is on the disk before a save returns; one program at a time holds it; a file that is
//! somebody else's, open to others or no regular file is not read. What an interrupted save left behind is removed when it is opened.
//! Does not: look at what is in the file.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, fsync, open, openat, renameat, unlinkat,
    },
    io::Errno,
    process::{geteuid, getpid},
};

use crate::store::{RegistryStore, StoreError};

/// A document in a file, held by this program alone for as long as this lives.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    name: OsString,
    directory: OwnedFd,
    /// Counts saves, so that no two are written to the same place.
    saves: AtomicU64,
    _lock: OwnedFd,
}

impl FileStore {
    /// Holds a file, which need not exist yet. Its directory must.
    ///
    /// # Errors
    /// When another program holds it, or the directory cannot be used.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let name = path.file_name().ok_or_else(|| StoreError::NoFile(path.to_owned()))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| at(parent, errno))?;
        let lock = hold(&directory, path)?;
        let store = Self { path: path.to_owned(), name, directory, saves: AtomicU64::new(0), _lock: lock };
        store.tidy(parent)?;
        Ok(store)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what interrupted saves left behind. Nobody else writes while this holds the lock.
    fn tidy(&self, parent: &Path) -> Result<(), StoreError> {
        let io = |source| StoreError::Io { path: parent.to_owned(), source };
        let beginning = self.beside("");
        for entry in std::fs::read_dir(parent).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            if name.as_bytes().starts_with(beginning.as_bytes()) {
                unlinkat(&self.directory, &name, AtFlags::empty()).map_err(|errno| at(&parent.join(&name), errno))?;
            }
        }
        Ok(())
    }

    /// The name of a file that becomes the document.
    fn beside(&self, which: &str) -> OsString {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(".new-");
        name.push(which);
        name
    }

    /// Puts a document in its place, or leaves everything as it was.
    fn put(&self, document: &[u8]) -> io::Result<()> {
        let count = self.saves.fetch_add(1, Ordering::Relaxed);
        let name = self.beside(&format!("{}-{count}", getpid().as_raw_nonzero()));
        self.write(&name, document).inspect_err(|_| {
            let _ = unlinkat(&self.directory, &name, AtFlags::empty());
        })
    }

    fn write(&self, name: &OsStr, document: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, OWN)?;
        fchmod(&file, OWN)?;
        let mut file = File::from(file);
        file.write_all(document)?;
        file.sync_all()?;
        Ok(renameat(&self.directory, name, &self.directory, &self.name)?)
    }
}

impl RegistryStore for FileStore {
    fn load(&self) -> Result<Option<Vec<u8>>, StoreError> {
        // A pipe in its place must not make this wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.directory, &self.name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(StoreError::NotRegular(self.path.clone())),
            Err(errno) => return Err(at(&self.path, errno)),
        };
        let found = fstat(&file).map_err(|errno| at(&self.path, errno))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(StoreError::NotRegular(self.path.clone()));
        }
        if found.st_uid != geteuid().as_raw() {
            return Err(StoreError::Foreign(self.path.clone()));
        }
        if found.st_mode & 0o077 != 0 {
            return Err(StoreError::OpenToOthers(self.path.clone()));
        }
        let mut document = Vec::new();
        let read = File::from(file).take(MOST_BYTES + 1).read_to_end(&mut document);
        read.map_err(|source| StoreError::Io { path: self.path.clone(), source })?;
        fits(&document)?;
        Ok(Some(document))
    }

    fn save(&self, document: &[u8]) -> Result<(), StoreError> {
        fits(document)?;
        let old = self.load()?;
        self.put(document).map_err(|source| StoreError::Io { path: self.path.clone(), source })?;
        let Err(errno) = fsync(&self.directory) else { return Ok(()) };
        // SECURITY: what is refused must not be in force for the next program that opens this, so the old document is put back.
        let put_back = match old {
            Some(old) => self.put(&old),
            None => unlinkat(&self.directory, &self.name, AtFlags::empty()).map_err(io::Error::from),
        };
        let (path, source) = (self.path.clone(), errno.into());
        Err(if put_back.is_ok() { StoreError::Io { path, source } } else { StoreError::Unsure { path, source } })
    }
}

/// Takes the lock beside a file.
fn hold(directory: &OwnedFd, path: &Path) -> Result<OwnedFd, StoreError> {
    let lock = path.with_extension("lock");
    let name = lock.file_name().unwrap_or_default();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, OWN).map_err(|errno| at(&lock, errno))?;
    // A program that was killed while it started another one leaves the lock with the child until that has become another program.
    for _ in 0..LOCK_ATTEMPTS {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_AGAIN),
            Err(errno) => return Err(at(&lock, errno)),
        }
    }
    Err(StoreError::Held(path.to_owned()))
}

fn fits(document: &[u8]) -> Result<(), StoreError> {
    let bytes = u64::try_from(document.len()).unwrap_or(u64::MAX);
    if bytes > MOST_BYTES { Err(StoreError::TooLarge { bytes, most: MOST_BYTES }) } else { Ok(()) }
}

fn at(path: &Path, errno: Errno) -> StoreError {
    StoreError::Io { path: path.to_owned(), source: errno.into() }
}

/// For the owner alone.
const OWN: Mode = Mode::RUSR.union(Mode::WUSR);

/// The largest document that is written or read: 64 MiB.
pub const MOST_BYTES: u64 = 64 << 20;

/// How often the lock is tried, and how long in between: half a second in all.
const LOCK_ATTEMPTS: u32 = 25;
const LOCK_AGAIN: Duration = Duration::from_millis(20);
