//! Why an artifact is not kept, or not to be had.

use super::{
    MOST_ARTIFACT_BYTES, MOST_ARTIFACTS, MOST_ARTIFACTS_IN_ALL, MOST_AUTHOR_ARTIFACTS, MOST_AUTHOR_BYTES,
    MOST_BYTES_IN_ALL, MOST_SCOPE_BYTES,
};
use crate::{error::StoreError, id::ArtifactId, label::LabelError};

/// Why an artifact is not kept, or not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The name or the author cannot be written so.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Too long for one artifact.
    #[error("the artifact is {0} bytes long; the limit is {MOST_ARTIFACT_BYTES}")]
    TooLong(usize),
    /// The scope is full.
    #[error("the scope holds {MOST_ARTIFACTS} artifacts, which is the limit")]
    TooMany,
    /// The scope is full.
    #[error("the scope would hold {0} bytes; the limit is {MOST_SCOPE_BYTES}")]
    TooManyBytes(u64),
    /// The author keeps too much, wherever it is.
    #[error(
        "`{author}` would keep {artifacts} artifacts with {bytes} bytes in all scopes together; the limits are {MOST_AUTHOR_ARTIFACTS} and {MOST_AUTHOR_BYTES}"
    )]
    AuthorFull {
        /// Who.
        author: String,
        /// How many it would be.
        artifacts: u64,
        /// How much it would be.
        bytes: u64,
    },
    /// All authors together keep too much.
    #[error(
        "{artifacts} artifacts with {bytes} bytes would be kept of all authors together; the limits are {MOST_ARTIFACTS_IN_ALL} and {MOST_BYTES_IN_ALL}"
    )]
    Full {
        /// How many it would be.
        artifacts: u64,
        /// How much it would be.
        bytes: u64,
    },
    /// No such part of it.
    #[error("the artifact is {size} bytes long; there is nothing from {start} to {end}")]
    Range {
        /// Where the part was to begin.
        start: u64,
        /// Where it was to end.
        end: u64,
        /// How much there is.
        size: u64,
    },
    /// The content is not what was kept.
    #[error("the content of artifact {0} was changed since it was kept")]
    Changed(ArtifactId),
    /// The content is gone.
    #[error("the content of artifact {0} is gone")]
    Missing(ArtifactId),
    /// The file cannot be opened, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ArtifactError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Label(error) => error.advice(),
            Self::TooLong(_) => "split it, compress it, or leave it in the workspace",
            Self::TooMany | Self::TooManyBytes(_) => "delete artifacts that are not needed any more",
            Self::AuthorFull { .. } => {
                "delete what is not needed any more, in any scope; artifacts of conversations that are over count as well"
            }
            Self::Full { .. } => {
                "an owner deletes what is not needed any more: `palyra artifacts list` tells where it is"
            }
            Self::Range { .. } => "ask for a part that begins inside of the artifact",
            Self::Changed(_) | Self::Missing(_) => {
                "somebody changed the files of the daemon: restore them from a backup, or delete the artifact and make it again"
            }
            Self::Store(error) => error.advice(),
        }
    }
}
