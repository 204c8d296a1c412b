//! What can be wrong with the disk, in words that say what to do.
//!
//! Guarantees: each trouble is told by its cause, not by text; every one of them means that what was to be written is not, so that what
//! depends on it must not run.

use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Why nothing can be written to the journal now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// No space left.
    #[error("the disk is full")]
    DiskFull,
    /// The file system does not let anything be written.
    #[error("the journal is on a read-only file system")]
    ReadOnly,
    /// Writing or syncing failed.
    #[error("the disk reports an error: {0}")]
    Disk(String),
    /// The files are damaged.
    #[error("the journal's database is damaged: {0}")]
    Damaged(String),
    /// The database holds less than was acknowledged, or something else.
    #[error("the journal on disk is not the one that was written: {0}")]
    Replaced(String),
    /// The key is there, and nothing that it signed.
    #[error("the journal in `{}` has vanished: its key is there, and its records are not", .0.display())]
    Vanished(PathBuf),
    /// Another process holds it.
    #[error("another process uses the journal in `{}`", .0.display())]
    InUse(PathBuf),
    /// The disk and the database are well; they do not take this one thing.
    #[error("the journal's database refuses it: {0}")]
    Refused(String),
    /// The key does not fit or cannot sign.
    #[error("the journal's key cannot be used: {0}")]
    Key(String),
    /// The writer is gone; the daemon is stopping.
    #[error("the journal is closed")]
    Closed,
}

impl Trouble {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::DiskFull => "free some space; calls are accepted again by themselves",
            Self::ReadOnly => "make the file system writable again; calls are accepted again by themselves",
            Self::Disk(_) => "check the disk (`dmesg`); calls are accepted again by themselves once writing works",
            Self::Damaged(_) => "stop the daemon and run `palyra journal verify`; restore from a backup if it fails",
            Self::Replaced(_) => {
                "stop the daemon and run `palyra journal verify` against a checkpoint that was saved elsewhere"
            }
            Self::Vanished(_) => {
                "restore it from a backup; to begin a new journal, move the old key and what else is left of the old one away"
            }
            Self::InUse(_) => "stop the other daemon, or give this one a `PALYRA_HOME` of its own",
            Self::Refused(_) => "others can be written; report this, with what it was about",
            Self::Key(_) => "check `signing.key` in the journal's directory",
            Self::Closed => "start the daemon again",
        }
    }

    /// Whether it can pass by itself.
    #[must_use]
    pub const fn can_pass(&self) -> bool {
        matches!(self, Self::DiskFull | Self::ReadOnly | Self::Disk(_) | Self::InUse(_))
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::ReadOnly) => Self::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(text),
            // What is stored is not what was written.
            None if matches!(
                error,
                E::FromSqlConversionFailure(..) | E::InvalidColumnType(..) | E::QueryReturnedNoRows | E::Utf8Error(..)
            ) =>
            {
                Self::Damaged(text)
            }
            _ => Self::Disk(text),
        }
    }
}
