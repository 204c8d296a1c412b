//! Where the registry's document is kept.
//!
//! Guarantees of an implementation: a save that returned without an error stays after a power cut; a document is there whole or not at all;
//! after a save that failed the document before it is there, unless the error says that this is not certain.

use std::{io, path::PathBuf};

use crate::{document::DocumentError, state::Inconsistency};

/// Keeps one document. Both methods block.
pub trait RegistryStore: Send + Sync {
    /// The document, if there is one.
    ///
    /// # Errors
    /// When there is one that cannot be read, or it cannot be told whether there is.
    fn load(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Replaces the document.
    ///
    /// # Errors
    /// When it could not be made to stay.
    fn save(&self, document: &[u8]) -> Result<(), StoreError>;
}

/// Why a document could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another program keeps it.
    #[error("{} is in use by another program", .0.display())]
    Held(PathBuf),
    /// No file of a directory.
    #[error("{} does not name a file in a directory", .0.display())]
    NoFile(PathBuf),
    /// A link, a directory or something else.
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// Somebody else's.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// Others can read or write it.
    #[error("{} is open to other users", .0.display())]
    OpenToOthers(PathBuf),
    /// More than is ever kept.
    #[error("the registry takes {bytes} bytes; the limit is {most}")]
    TooLarge {
        /// How much it takes.
        bytes: u64,
        /// How much it may take.
        most: u64,
    },
    /// The operating system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The new document is there, but may be gone after a power cut. What is in force is still the old one.
    #[error("{} was replaced, but it is not certain that it stays: {source}", .path.display())]
    Unsure {
        /// What was replaced.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The state cannot be written down.
    #[error("the registry cannot be written: {0}")]
    Unwritable(#[from] DocumentError),
    /// The state cannot be, so it was not written.
    #[error("the change would make the registry contradict itself: {0}")]
    Inconsistent(#[from] Inconsistency),
    /// The program ends.
    #[error("the change was interrupted")]
    Interrupted,
}

impl StoreError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Held(_) => "stop the other daemon first".to_owned(),
            Self::NoFile(_) => "name a file".to_owned(),
            Self::NotRegular(path) => format!("put a regular file there, or move {} away", path.display()),
            Self::Foreign(path) => format!("start the daemon as the user that {} belongs to", path.display()),
            Self::OpenToOthers(path) => format!("if nobody else has changed it: `chmod 600 {}`", path.display()),
            Self::TooLarge { .. } => "revoke tokens that nobody needs, and name fewer workspaces in them".to_owned(),
            Self::Io { path, .. } | Self::Unsure { path, .. } => {
                format!("check the disk, and that the daemon's user owns {}", path.display())
            }
            Self::Unwritable(_) | Self::Inconsistent(_) => "report this; nothing was changed".to_owned(),
            Self::Interrupted => "look whether it is in force, and try again".to_owned(),
        }
    }
}
