//! Keys in files that only their owner reads.
//!
//! Guarantees: a file is written whole or not at all, and is on the disk when that is told; one that others can read, or that is a link, is
//! not read. Does not: protect the key from whoever can read the owner's files. It is for machines where nobody is there to unlock anything.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use super::{BackendError, BackendKind, Blob, BlobBackend, BlobName};
use crate::files;

/// Keys in a directory of files.
#[derive(Debug)]
pub struct KeyFile {
    directory: PathBuf,
}

impl KeyFile {
    /// Keys in this directory, which need not exist yet.
    #[must_use]
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, name: &BlobName) -> PathBuf {
        self.directory.join(format!("{}.key", name.as_str()))
    }
}

impl BlobBackend for KeyFile {
    fn kind(&self) -> BackendKind {
        BackendKind::KeyFile
    }

    fn get(&self, name: &BlobName) -> Result<Option<Blob>, BackendError> {
        read(&self.path(name))
    }

    fn put(&self, name: &BlobName, blob: &Blob) -> Result<(), BackendError> {
        write(&self.path(name), blob)
    }

    fn delete(&self, name: &BlobName) -> Result<(), BackendError> {
        remove(&self.path(name))
    }
}

/// Reads a small file that is its owner's alone, if it is there.
pub(super) fn read(path: &Path) -> Result<Option<Blob>, BackendError> {
    let at = |error| BackendError::io(path, error);
    let mut file = match files::open_own(path) {
        Ok(file) => file,
        Err(files::OwnError::OpenToOthers) => return Err(BackendError::OpenToOthers(path.to_owned())),
        Err(files::OwnError::NotRegular) => return Err(BackendError::NotAKey(path.to_owned())),
        Err(files::OwnError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(files::OwnError::Io(error)) => return Err(at(error)),
    };
    let mut content = Zeroizing::new(Vec::with_capacity(LARGEST));
    Read::by_ref(&mut file).take(LARGEST_READ).read_to_end(&mut content).map_err(at)?;
    if content.is_empty() || content.len() > LARGEST {
        return Err(BackendError::NotAKey(path.to_owned()));
    }
    Ok(Some(content))
}

/// Writes a small file that is its owner's alone.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), BackendError> {
    let at = |error| BackendError::io(path, error);
    let directory = path.parent().unwrap_or(Path::new("."));
    files::make_own_directory(directory).map_err(at)?;
    let beside = path.with_extension("new");
    let put = (|| {
        let _ = fs::remove_file(&beside);
        let mut file = files::create_own(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        files::sync_directory(directory)
    })();
    put.map_err(at)
}

pub(super) fn remove(path: &Path) -> Result<(), BackendError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BackendError::io(path, error)),
        _ => Ok(()),
    }
}

/// How many bytes a blob has at most.
const LARGEST: usize = 4096;
const LARGEST_READ: u64 = 4097;
