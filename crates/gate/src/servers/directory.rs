//! The directory in which a server begins that works in no workspace: empty, its own, and gone with it.
//!
//! Guarantees: nobody but the daemon's user may look into it; where it is stands in the state directory before it is made, so that the next daemon
//! removes what one left that was killed. Does not: bound what is written there.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use palyra_types::{AbsolutePath, Entropy, path::PathError};

/// A directory of one server. Dropping it removes it.
#[derive(Debug)]
pub(super) struct OwnDirectory {
    path: AbsolutePath,
    note: PathBuf,
}

impl OwnDirectory {
    /// Makes one among temporary files.
    pub(super) fn make(temporary: &AbsolutePath, notes: &Path, entropy: &dyn Entropy) -> io::Result<Self> {
        let mut random = [0; 16];
        entropy.fill(&mut random).map_err(io::Error::other)?;
        let name = format!("{PREFIX}{:032x}", u128::from_le_bytes(random));
        let path = temporary.join(&name).map_err(|error: PathError| io::Error::other(error))?;
        fs::create_dir_all(notes)?;
        let own = Self { note: notes.join(&name), path };
        fs::write(&own.note, own.path.as_str())?;
        fs::DirBuilder::new().mode(0o700).create(own.path.as_str())?;
        Ok(own)
    }

    /// Where it is.
    pub(super) const fn path(&self) -> &AbsolutePath {
        &self.path
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        remove(Path::new(self.path.as_str()), &self.note);
    }
}

/// Removes what daemons left that were killed. To be called while no server runs.
pub(crate) fn sweep(notes: &Path) {
    let Ok(entries) = fs::read_dir(notes) else { return };
    for note in entries.flatten().map(|entry| entry.path()) {
        let Ok(path) = fs::read_to_string(&note).map(PathBuf::from) else { continue };
        let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
        if is_ours {
            remove(&path, &note);
        }
    }
}

fn remove(path: &Path, note: &Path) {
    // SECURITY: among temporary files, somebody else may have put something at this place since.
    let own = rustix::process::geteuid().as_raw();
    let is_own = |found: &fs::Metadata| found.is_dir() && found.uid() == own;
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if is_own(&found) => fs::remove_dir_all(path),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    // What could not be removed now is tried again by the next daemon.
    if removed.is_ok() || !path.exists() {
        let _ = fs::remove_file(note);
    }
}

const PREFIX: &str = "palyra-server-";

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;

    use super::*;

    #[test]
    fn what_a_killed_daemon_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let temporary = AbsolutePath::parse(place.path().to_str().unwrap()).unwrap();
        let notes = place.path().join("notes");
        let left = OwnDirectory::make(&temporary, &notes, &SystemEntropy).unwrap();
        fs::write(Path::new(left.path().as_str()).join("file"), "x").unwrap();
        let path = PathBuf::from(left.path().as_str());
        std::mem::forget(left);
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(notes.join("made-up"), other.to_str().unwrap()).unwrap();
        sweep(&notes);
        assert!(!path.exists() && other.exists());
        assert_eq!(fs::read_dir(&notes).unwrap().count(), 1);
    }

    #[test]
    fn it_goes_with_its_server() {
        let place = tempfile::tempdir().unwrap();
        let temporary = AbsolutePath::parse(place.path().to_str().unwrap()).unwrap();
        let notes = place.path().join("notes");
        drop(OwnDirectory::make(&temporary, &notes, &SystemEntropy).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(&notes).unwrap().count(), 0);
    }
}
