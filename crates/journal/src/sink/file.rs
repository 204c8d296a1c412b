//! A file that checkpoints are appended to, best on another file system or another machine.
//!
//! Guarantees: a checkpoint is on disk when it counts as published; the file is its owner's alone; what is there is never written again.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{CheckpointSink, SinkError};
use crate::store::Later;

/// Appends checkpoints to a file.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
}

impl FileSink {
    /// A sink that appends to this file, which must not be in the journal's directory.
    ///
    /// # Errors
    /// When it is in the journal's directory, or its own directory does not exist.
    pub fn new(path: &Path, journal: &Path) -> Result<Self, SinkError> {
        let directory = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Err(io::Error::from(io::ErrorKind::InvalidInput).into()),
        };
        if fs::canonicalize(directory)?.starts_with(fs::canonicalize(journal)?) {
            return Err(SinkError::Inside(path.display().to_string()));
        }
        Ok(Self { path: path.to_owned() })
    }

    fn append(&self, note: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&self.path, flags, Mode::RUSR | Mode::WUSR)?);
        let before = file.metadata()?.len();
        let written = file.write_all(format!("{note}\n").as_bytes()).and_then(|()| file.sync_all());
        if written.is_err() {
            // Half a checkpoint is none.
            let _ = file.set_len(before);
        }
        written?;
        if before == 0 {
            let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    }
}

impl CheckpointSink for FileSink {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn publish<'a>(&'a mut self, note: &'a str) -> Later<'a, Result<(), SinkError>> {
        // The thread is this sink's own.
        Box::pin(std::future::ready(self.append(note).map_err(SinkError::from)))
    }
}

/// The checkpoints in the text of such a file. What was cut off at its end is left out.
#[must_use]
pub fn saved_checkpoints(text: &str) -> Vec<String> {
    // A checkpoint is a text, an empty line, its signatures and an empty line. What follows the last empty line is not whole.
    let mut parts: Vec<&str> = text.split("\n\n").collect();
    parts.pop();
    let (pairs, _) = parts.as_chunks::<2>();
    pairs.iter().map(|[said, signatures]| format!("{said}\n\n{signatures}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use palyra_types::{Sha256Digest, entropy::SystemEntropy};

    use super::*;
    use crate::{checkpoint::Checkpoint, key::JournalKey};

    #[test]
    fn checkpoints_are_appended_and_read_back() {
        let (directory, journal) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (key, _) = JournalKey::generate("palyra.local/x", &SystemEntropy).unwrap();
        let note = |size| Checkpoint { size, root: Sha256Digest::of(b"") }.sign(&key).unwrap();
        let path = directory.path().join("checkpoints");
        let sink = FileSink::new(&path, journal.path()).unwrap();
        for size in 0..3 {
            sink.append(&note(size)).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(saved_checkpoints(&text), [note(0), note(1), note(2)]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for cut in 1..text.chars().count() / 3 {
            let text: String = text.chars().take(text.chars().count() - cut).collect();
            assert_eq!(saved_checkpoints(&text), [note(0), note(1)], "{cut} characters are gone");
        }
        assert_eq!(saved_checkpoints(""), Vec::<String>::new());
    }

    #[test]
    fn a_file_in_the_journal_or_a_link_is_refused() {
        let (directory, journal) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let inside = journal.path().join("segments/../checkpoints");
        fs::create_dir(journal.path().join("segments")).unwrap();
        assert!(matches!(FileSink::new(&inside, journal.path()), Err(SinkError::Inside(_))));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(journal.path().join("journal.db"), &link).unwrap();
        assert!(FileSink::new(&link, journal.path()).unwrap().append("x").is_err());
    }
}
