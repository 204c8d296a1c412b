//! Directories and files for their owner alone.
//!
//! Guarantees: what is made is never open to others, not for a moment; what is there and open to others is closed to them; a link, a pipe or
//! something of another user is refused.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::error::StoreError;

/// Makes a directory, or closes one that is there to others.
pub(crate) fn private_directory(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if !found.is_dir() || found.uid() != own_user() {
        return Err(StoreError::NotOurs(path.to_owned(), "directory"));
    }
    close(path, &found, 0o700)
}

/// Makes an empty file, or closes one that is there to others. A file that is there is not opened: closing it would give up SQLite's locks.
pub(crate) fn private_file(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        Err(_) => {}
    }
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if !found.is_file() || found.uid() != own_user() {
        return Err(StoreError::NotOurs(path.to_owned(), "file"));
    }
    close(path, &found, 0o600)
}

/// Makes what happened to the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|source| StoreError::File { path: path.to_owned(), source })
}

fn close(path: &Path, found: &fs::Metadata, mode: u32) -> Result<(), StoreError> {
    if found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    let closed = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    closed.map_err(|source| StoreError::File { path: path.to_owned(), source })
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_and_what_was_open_is_for_the_owner_alone() {
        let lab = tempfile::tempdir().unwrap();
        let (directory, file) = (lab.path().join("d"), lab.path().join("d/f"));
        for _ in 0..2 {
            private_directory(&directory).unwrap();
            private_file(&file).unwrap();
            assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        }
    }

    #[test]
    fn a_link_is_neither_a_directory_nor_a_file_of_ours() {
        let lab = tempfile::tempdir().unwrap();
        let link = lab.path().join("link");
        std::os::unix::fs::symlink(lab.path(), &link).unwrap();
        assert!(matches!(private_directory(&link), Err(StoreError::NotOurs(_, "directory"))));
        assert!(matches!(private_file(&link), Err(StoreError::NotOurs(_, "file"))));
        assert!(matches!(private_directory(&lab.path().join("a/b")), Err(StoreError::File { .. })));
    }
}
