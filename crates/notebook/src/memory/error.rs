//! Why something is not remembered.

use super::SEARCHED;
use super::entry::{
    MOST_AUTHOR_BYTES, MOST_AUTHOR_ENTRIES, MOST_BYTES_IN_ALL, MOST_ENTRIES, MOST_ENTRIES_IN_ALL, MOST_SCOPE_BYTES,
    MOST_TAGS, MOST_TEXT_BYTES, Usage,
};
use crate::{error::StoreError, id::EntryId, label::LabelError};

/// Why something is not remembered, or not to be had.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Nothing to remember.
    #[error("the text is empty")]
    Empty,
    /// Too much text for one entry.
    #[error("the text is {0} bytes long; the limit is {MOST_TEXT_BYTES}")]
    TooLong(usize),
    /// The title, a tag, the key or the author cannot be written so.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Too many tags.
    #[error("there are {0} tags; the limit is {MOST_TAGS}")]
    TooManyTags(usize),
    /// The scope is full.
    #[error("the scope would hold more than {MOST_ENTRIES} entries, which is the limit")]
    TooManyEntries,
    /// The scope is full.
    #[error("the scope would hold {0} bytes; the limit is {MOST_SCOPE_BYTES}")]
    TooManyBytes(u64),
    /// The author keeps too much, wherever it is.
    #[error("`{author}` would keep {} entries with {} bytes in all scopes together; the limits are {MOST_AUTHOR_ENTRIES} and {MOST_AUTHOR_BYTES}", .usage.entries, .usage.bytes)]
    AuthorFull {
        /// Who.
        author: String,
        /// How much it would be.
        usage: Usage,
    },
    /// All authors together keep too much.
    #[error("the memory would hold {} entries with {} bytes of all authors together; the limits are {MOST_ENTRIES_IN_ALL} and {MOST_BYTES_IN_ALL}", .0.entries, .0.bytes)]
    Full(Usage),
    /// What was to be replaced is somebody else's.
    #[error("entry {0} was kept by somebody else, so it is not replaced")]
    NotOwn(EntryId),
    /// A search that goes through too much.
    #[error("the search was given up after {} seconds", SEARCHED.as_secs())]
    TooSlow,
    /// What was to be replaced is not in this scope.
    #[error("there is no entry {0} in this scope")]
    Unknown(EntryId),
    /// The file cannot be opened, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MemoryError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Empty => "say what to remember",
            Self::TooLong(_) => "keep the long text as an artifact, and remember what it is about",
            Self::Label(error) => error.advice(),
            Self::TooManyTags(_) => "keep the tags that tell it from other entries",
            Self::TooManyEntries | Self::TooManyBytes(_) => "delete what is not needed any more, or purge the scope",
            Self::AuthorFull { .. } => {
                "delete what is not needed any more, in any scope; notes of conversations that are over count as well"
            }
            Self::Full(_) => {
                "an owner deletes or purges what is not needed any more: `palyra memory list` tells where it is"
            }
            Self::NotOwn(_) => "delete it first, which a person is asked about, or keep this under another key",
            Self::TooSlow => "search for fewer words, or for words that stand in fewer notes",
            Self::Unknown(_) => "list the entries of the scope, or leave the id out to make a new one",
            Self::Store(error) => error.advice(),
        }
    }
}
