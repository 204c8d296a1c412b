//! Why something is not kept.

use std::{io, path::PathBuf};

use palyra_types::visible::visible;

/// Why something is not kept, or not to be had.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// No key.
    #[error("`{}` is no key of 1 to 512 bytes of visible text", visible(.0))]
    Key(String),
    /// More bytes than the quota.
    #[error("it would keep {wanted} bytes; its quota is {quota}")]
    TooManyBytes {
        /// How many it would keep.
        wanted: u64,
        /// How many it may.
        quota: u64,
    },
    /// More entries than the quota.
    #[error("it would keep more than {quota} entries, which is its quota")]
    TooManyEntries {
        /// How many it may keep.
        quota: u64,
    },
    /// Too many keys for one list.
    #[error("the keys take more than {most} bytes")]
    TooManyKeys {
        /// How many may be listed.
        most: usize,
    },
    /// The skill was removed.
    #[error("the skill is not installed any more")]
    Gone,
    /// The file cannot be used.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Of another time.
    #[error("the file is of version {0}, which is not understood")]
    Version(i64),
    /// Something else.
    #[error("the file is no store of skills")]
    Foreign,
    /// The database refused.
    #[error("the store of skills: {0}")]
    Database(#[from] rusqlite::Error),
}

impl KvError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Key(_) => "use a shorter key, of visible characters",
            Self::TooManyBytes { .. } | Self::TooManyEntries { .. } => {
                "delete what the skill no longer needs, or have it ask for more and grant that"
            }
            Self::Gone => "install the skill again",
            Self::TooManyKeys { .. } => "list keys that begin with something longer",
            Self::File { .. } | Self::Database(_) => "check the disk, and that the daemon's user owns the file",
            Self::Version(_) => "start the version of Palyra that wrote it, or restore the file from a backup",
            Self::Foreign => "move the file away, or name another one",
        }
    }
}
