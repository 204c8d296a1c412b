//! The files of the store.
//!
//! Guarantees: a file is replaced as a whole and is on the disk before a save returns; one program at a time holds the store; a file that is
//! somebody else's, open to others or no regular file is not read. What an interrupted save left behind is removed when it is opened.
//! Does not: look at what is in the files.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{File, Metadata},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use palyra_package::archive::MOST_ARCHIVE_BYTES;
use palyra_types::Sha256Digest;
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, fchmod, flock, fsync, mkdirat, open, openat, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};

use super::{change::PackageFiles, error::StoreError};

/// What a file looks like from outside. Writing to it, or putting another one in its place, changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The directory of the store, held by this program alone.
#[derive(Debug)]
pub struct Files {
    root: Directory,
    packages: Directory,
    /// Counts saves, so that no two are written to the same place.
    saves: AtomicU64,
    _lock: OwnedFd,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    fd: File,
}

impl Files {
    /// Holds a directory, which is made if it is not there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let root = Directory::open(path)?;
        let lock = root.hold()?;
        let packages = Directory::open(&path.join(PACKAGES))?;
        Ok(Self { root, packages, saves: AtomicU64::new(0), _lock: lock })
    }

    /// Where the registry is.
    pub fn registry_path(&self) -> PathBuf {
        self.root.path.join(REGISTRY)
    }

    /// The registry, if there is one.
    pub fn load_registry(&self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.root.read(REGISTRY, MOST_REGISTRY_BYTES) {
            Ok((document, _)) => Ok(Some(document)),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there are packages. When there are some and no registry, somebody took it away: an empty one is written before the first package.
    pub fn has_packages(&self) -> Result<bool, StoreError> {
        Ok(!self.packages.names()?.is_empty())
    }

    /// Replaces the registry.
    pub fn save_registry(&self, document: &[u8]) -> Result<(), StoreError> {
        if document.len() > MOST_REGISTRY_BYTES {
            return Err(StoreError::TooLarge { path: self.registry_path(), most: MOST_REGISTRY_BYTES });
        }
        let old = self.load_registry()?;
        self.put(&self.root, REGISTRY, document)?;
        let Err(errno) = fsync(&self.root.fd) else { return Ok(()) };
        // SECURITY: what is refused must not be in force for the next program that opens this, so the old document is put back.
        let put_back = match old {
            Some(old) => self.put(&self.root, REGISTRY, &old).is_ok(),
            None => unlinkat(&self.root.fd, REGISTRY, AtFlags::empty()).is_ok(),
        };
        let (path, source) = (self.registry_path(), errno.into());
        Err(if put_back { StoreError::Io { path, source } } else { StoreError::Unsure { path, source } })
    }

    /// Puts a package and its signature there. A file that nobody refers to does no harm, so this comes before the registry.
    pub fn save_package(&self, package: &PackageFiles) -> Result<(), StoreError> {
        self.put(&self.packages, &archive_name(&package.digest), &package.archive)?;
        if let Some(signature) = &package.signature {
            self.put(&self.packages, &signature_name(&package.digest), signature.as_bytes())?;
        }
        fsync(&self.packages.fd).map_err(|errno| self.packages.at("", errno))
    }

    /// A package, and what its file looks like.
    pub fn load_package(&self, digest: &Sha256Digest) -> Result<(Vec<u8>, Stamp), StoreError> {
        self.packages.read(&archive_name(digest), MOST_ARCHIVE_BYTES)
    }

    /// The signature of a package.
    pub fn load_signature(&self, digest: &Sha256Digest) -> Result<String, StoreError> {
        let name = signature_name(digest);
        let (bytes, _) = self.packages.read(&name, MOST_SIGNATURE_BYTES)?;
        let source = || io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
        String::from_utf8(bytes).map_err(|_| StoreError::Io { path: self.packages.path.join(name), source: source() })
    }

    /// What the file of a package looks like.
    pub fn stamp(&self, digest: &Sha256Digest) -> Result<Stamp, StoreError> {
        let path = self.packages.path.join(archive_name(digest));
        match std::fs::symlink_metadata(&path) {
            Ok(found) => Ok(Stamp::of(&found)),
            Err(source) => Err(StoreError::Io { path, source }),
        }
    }

    /// Removes a package. What stays is removed when the store is opened the next time.
    pub fn remove_package(&self, digest: &Sha256Digest) {
        for name in [archive_name(digest), signature_name(digest)] {
            let _ = unlinkat(&self.packages.fd, &name, AtFlags::empty());
        }
    }

    /// Removes what interrupted saves left behind and what nobody refers to. Nobody else writes while this holds the lock.
    pub fn tidy(&self, wanted: &BTreeSet<Sha256Digest>) -> Result<(), StoreError> {
        for name in self.root.names()? {
            if name.as_bytes().starts_with(UNFINISHED.as_bytes()) {
                self.root.remove(&name)?;
            }
        }
        let kept: BTreeSet<String> =
            wanted.iter().flat_map(|digest| [archive_name(digest), signature_name(digest)]).collect();
        for name in self.packages.names()? {
            if !name.to_str().is_some_and(|name| kept.contains(name)) {
                self.packages.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Puts a file in its place, or leaves everything as it was.
    fn put(&self, directory: &Directory, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let unfinished = format!("{UNFINISHED}{}", self.saves.fetch_add(1, Ordering::Relaxed));
        directory.write(&unfinished, name, content).map_err(|source| {
            let _ = unlinkat(&directory.fd, &unfinished, AtFlags::empty());
            StoreError::Io { path: directory.path.join(name), source }
        })
    }
}

impl Directory {
    /// Opens a directory, and makes it if it is not there. Its parent has to be.
    fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |errno: Errno| StoreError::Io { path: path.to_owned(), source: errno.into() };
        match mkdirat(rustix::fs::CWD, path, DIRECTORY) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = File::from(open(path, flags, Mode::empty()).map_err(failed)?);
        let found = fd.metadata().map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
        own(path, &found)?;
        Ok(Self { path: path.to_owned(), fd })
    }

    /// Takes the lock.
    fn hold(&self) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.fd, LOCK, flags, FILE).map_err(|errno| self.at(LOCK, errno))?;
        // A program that was killed while it started another one leaves the lock with the child until that has become another program.
        for _ in 0..LOCK_ATTEMPTS {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_AGAIN),
                Err(errno) => return Err(self.at(LOCK, errno)),
            }
        }
        Err(StoreError::Held(self.path.clone()))
    }

    fn read(&self, name: &str, most: usize) -> Result<(Vec<u8>, Stamp), StoreError> {
        let path = self.path.join(name);
        // A pipe in its place must not make this wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP | Errno::NXIO) => return Err(StoreError::NotRegular(path)),
            Err(errno) => return Err(self.at(name, errno)),
        };
        let failed = |source| StoreError::Io { path: path.clone(), source };
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(StoreError::NotRegular(path));
        }
        own(&path, &found)?;
        let mut content = Vec::new();
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        file.take(limit).read_to_end(&mut content).map_err(failed)?;
        if content.len() > most {
            return Err(StoreError::TooLarge { path, most });
        }
        Ok((content, Stamp::of(&found)))
    }

    fn write(&self, unfinished: &str, name: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.fd, unfinished, flags, FILE)?;
        fchmod(&file, FILE)?;
        let mut file = File::from(file);
        file.write_all(content)?;
        file.sync_all()?;
        Ok(renameat(&self.fd, unfinished, &self.fd, name)?)
    }

    fn names(&self) -> Result<Vec<std::ffi::OsString>, StoreError> {
        let failed = |source| StoreError::Io { path: self.path.clone(), source };
        let entries = std::fs::read_dir(&self.path).map_err(failed)?;
        entries.map(|entry| Ok(entry.map_err(failed)?.file_name())).collect()
    }

    fn remove(&self, name: &OsStr) -> Result<(), StoreError> {
        unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|errno| StoreError::Io { path: self.path.join(name), source: errno.into() })
    }

    fn at(&self, name: &str, errno: Errno) -> StoreError {
        StoreError::Io { path: self.path.join(name), source: errno.into() }
    }
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// Refuses what belongs to, or is open to, anybody else.
fn own(path: &Path, found: &Metadata) -> Result<(), StoreError> {
    if found.uid() != geteuid().as_raw() {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    if found.mode() & 0o077 != 0 { Err(StoreError::OpenToOthers(path.to_owned())) } else { Ok(()) }
}

fn archive_name(digest: &Sha256Digest) -> String {
    format!("{digest}.skill")
}

fn signature_name(digest: &Sha256Digest) -> String {
    format!("{digest}.minisig")
}

const REGISTRY: &str = "registry.json";
const LOCK: &str = "registry.lock";
const PACKAGES: &str = "packages";
const UNFINISHED: &str = ".new-";

/// For the owner alone.
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIRECTORY: Mode = Mode::RWXU;

/// The largest registry that is written or read: 256 MiB.
const MOST_REGISTRY_BYTES: usize = 256 << 20;
const MOST_SIGNATURE_BYTES: usize = 16 << 10;

/// How often the lock is tried, and how long in between: half a second in all.
const LOCK_ATTEMPTS: u32 = 25;
const LOCK_AGAIN: Duration = Duration::from_millis(20);
