//! Why a store cannot be opened, read or written.

use std::{io, path::PathBuf};

use palyra_types::entropy::NoEntropy;

/// Why a store cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or the directory cannot be used.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file or the directory belongs to somebody else, or is no file or directory.
    #[error("`{}` is not a {expected} of this user", .0.display(), expected = .1)]
    NotOurs(PathBuf, &'static str),
    /// The file holds something else.
    #[error("`{}` is no {what}", .path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
        /// What it was to be.
        what: &'static str,
    },
    /// A later version wrote the file.
    #[error("the {what} is of version {found}; this program knows versions up to {known}")]
    Newer {
        /// What was opened.
        what: &'static str,
        /// The version of the file.
        found: i64,
        /// The latest version that is understood.
        known: i64,
    },
    /// What the file holds cannot be read.
    #[error("the {what} holds something that cannot be read: {why}")]
    Damaged {
        /// Where it was found.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// There is no randomness to make an id of.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The database refused.
    #[error("the database: {0}")]
    Database(#[from] rusqlite::Error),
}

impl StoreError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::File { .. } | Self::Database(_) => {
                "check that the disk has room, and that the daemon's user owns the file"
            }
            Self::NotOurs(..) => "give it to the daemon's user, or move it away",
            Self::Foreign { .. } => "move the file away, or name another directory",
            Self::Newer { .. } => "start the version of Palyra that wrote it, or restore the file from a backup",
            Self::Damaged { .. } => "restore the file from a backup, or move it away to start anew",
            Self::Entropy(_) => "try again when the operating system gives randomness",
        }
    }
}
