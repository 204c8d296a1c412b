//! Contents as files, each named by the digest of what is in it.
//!
//! Guarantees: a file is whole or not there, because it is written under another name, synced and renamed; what is read is what was written,
//! because its digest is compared; equal content is one file.
//! Does not: count who refers to a file. That is [`crate::artifacts`]'s, which calls one function of this at a time.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use palyra_types::Sha256Digest;
use rustix::fs::OFlags;

use crate::{
    directory::{private_directory, sync_directory},
    error::StoreError,
};

/// The directory of the contents: two letters, and in each the files whose digests begin so.
#[derive(Debug)]
pub(crate) struct Blobs {
    root: PathBuf,
}

/// What stands in the place of a content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The content.
    Whole(Vec<u8>),
    /// Something else.
    Changed,
    /// Nothing.
    Missing,
}

impl Blobs {
    /// Opens the directory, which is made if it is not there.
    pub(crate) fn open(root: &Path) -> Result<Self, StoreError> {
        private_directory(root)?;
        Ok(Self { root: root.to_owned() })
    }

    /// Writes a content, unless it is there.
    pub(crate) fn keep(&self, digest: Sha256Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(digest);
        if matches!(self.read(digest, bytes.len())?, Found::Whole(_)) {
            return Ok(());
        }
        let directory = path.parent().unwrap_or(&self.root);
        let is_new = !directory.exists();
        private_directory(directory)?;
        let draft = directory.join(DRAFT);
        let written = write(&draft, bytes).and_then(|()| fs::rename(&draft, &path));
        written.map_err(|source| StoreError::File { path: path.clone(), source })?;
        sync_directory(directory)?;
        if is_new { sync_directory(&self.root) } else { Ok(()) }
    }

    /// Reads a content of this length.
    pub(crate) fn read(&self, digest: Sha256Digest, length: usize) -> Result<Found, StoreError> {
        let path = self.path(digest);
        // SECURITY: a link planted here leads nowhere, and a pipe holds nobody up.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Ok(Found::Changed);
            }
            Err(source) => return Err(StoreError::File { path, source }),
        };
        let mut bytes = Vec::with_capacity(length);
        let most = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(1);
        match file.metadata().map(|found| found.is_file()) {
            Ok(true) => {}
            Ok(false) => return Ok(Found::Changed),
            Err(source) => return Err(StoreError::File { path, source }),
        }
        file.take(most).read_to_end(&mut bytes).map_err(|source| StoreError::File { path, source })?;
        let is_whole = bytes.len() == length && Sha256Digest::of(&bytes) == digest;
        Ok(if is_whole { Found::Whole(bytes) } else { Found::Changed })
    }

    /// Removes a content. One that is not there is removed already.
    pub(crate) fn remove(&self, digest: Sha256Digest) -> Result<(), StoreError> {
        remove(&self.path(digest))
    }

    /// Removes every file but these contents: drafts that were never finished, and what nobody refers to. Says how many there were.
    pub(crate) fn keep_only(&self, wanted: &HashSet<String>) -> Result<u64, StoreError> {
        let mut removed = 0;
        for directory in listed(&self.root)? {
            let is_ours = fs::symlink_metadata(&directory).is_ok_and(|found| found.is_dir());
            if !is_ours {
                remove(&directory)?;
                removed += 1;
                continue;
            }
            for file in listed(&directory)? {
                let is_wanted =
                    file.file_name().and_then(|name| name.to_str()).is_some_and(|name| wanted.contains(name));
                let is_in_place = |name: &str| file == self.root.join(name.get(..2).unwrap_or_default()).join(name);
                let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if !is_wanted || !is_in_place(name) {
                    remove(&file)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    fn path(&self, digest: Sha256Digest) -> PathBuf {
        let name = digest.to_hex();
        self.root.join(name.get(..2).unwrap_or_default()).join(name)
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A draft of a content that was being written when the disk was full.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::File { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn listed(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let paths = fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    paths.map_err(|source| StoreError::File { path: directory.to_owned(), source })
}

/// The name of a content that is being written. One at a time is.
const DRAFT: &str = "draft";

#[cfg(test)]
mod tests {
    use super::*;

    struct Lab {
        _directory: tempfile::TempDir,
        blobs: Blobs,
    }

    fn lab() -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&directory.path().join("blobs")).unwrap();
        Lab { _directory: directory, blobs }
    }

    #[test]
    fn a_content_is_read_as_it_was_written_until_it_is_removed() {
        let Lab { blobs, .. } = &lab();
        let digest = Sha256Digest::of(b"hello");
        assert_eq!(blobs.read(digest, 5).unwrap(), Found::Missing);
        for _ in 0..2 {
            blobs.keep(digest, b"hello").unwrap();
            assert_eq!(blobs.read(digest, 5).unwrap(), Found::Whole(b"hello".to_vec()));
        }
        assert!(blobs.path(digest).ends_with(format!("2c/{digest}")));
        for _ in 0..2 {
            blobs.remove(digest).unwrap();
            assert_eq!(blobs.read(digest, 5).unwrap(), Found::Missing);
        }
    }

    #[test]
    fn a_content_that_was_changed_is_told_and_keeping_it_again_heals_it() {
        let Lab { blobs, .. } = &lab();
        let digest = Sha256Digest::of(b"hello");
        blobs.keep(digest, b"hello").unwrap();
        for changed in ["jello", "hello there", ""] {
            fs::write(blobs.path(digest), changed).unwrap();
            assert_eq!(blobs.read(digest, 5).unwrap(), Found::Changed, "{changed}");
        }
        fs::remove_file(blobs.path(digest)).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", blobs.path(digest)).unwrap();
        assert_eq!(blobs.read(digest, 5).unwrap(), Found::Changed);
        blobs.keep(digest, b"hello").unwrap();
        assert_eq!(blobs.read(digest, 5).unwrap(), Found::Whole(b"hello".to_vec()));
    }

    #[test]
    fn drafts_and_what_nobody_refers_to_are_removed() {
        let Lab { blobs, .. } = &lab();
        let (kept, other) = (Sha256Digest::of(b"kept"), Sha256Digest::of(b"other"));
        blobs.keep(kept, b"kept").unwrap();
        blobs.keep(other, b"other").unwrap();
        fs::write(blobs.path(kept).with_file_name(DRAFT), "torn").unwrap();
        fs::write(blobs.root.join("stray"), "stray").unwrap();
        assert_eq!(blobs.keep_only(&[kept.to_hex()].into()).unwrap(), 3);
        assert_eq!(blobs.keep_only(&[kept.to_hex()].into()).unwrap(), 0);
        assert_eq!(blobs.read(kept, 4).unwrap(), Found::Whole(b"kept".to_vec()));
        assert_eq!(blobs.read(other, 5).unwrap(), Found::Missing);
    }

    #[test]
    fn a_draft_that_was_left_does_not_hinder_the_next() {
        let Lab { blobs, .. } = &lab();
        let digest = Sha256Digest::of(b"hello");
        let directory = blobs.path(digest).parent().unwrap().to_owned();
        private_directory(&directory).unwrap();
        fs::write(directory.join(DRAFT), "torn and longer than the content").unwrap();
        blobs.keep(digest, b"hello").unwrap();
        assert_eq!(blobs.read(digest, 5).unwrap(), Found::Whole(b"hello".to_vec()));
        assert_eq!(listed(&directory).unwrap().len(), 1);
    }
}
