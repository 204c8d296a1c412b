//! An entry: what is kept, and how much of it there may be.

use std::collections::BTreeSet;

use palyra_types::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::MemoryError;
use crate::{
    database::count,
    id::EntryId,
    label::{LabelError, check},
    scope::MemoryScope,
};

/// Most bytes of text in one entry.
pub const MOST_TEXT_BYTES: usize = 64 << 10;
/// Most characters of a title.
pub const MOST_TITLE_CHARS: usize = 256;
/// Most characters of a key.
pub const MOST_KEY_CHARS: usize = 128;
/// Most tags of one entry.
pub const MOST_TAGS: usize = 16;
/// Most characters of a tag.
pub const MOST_TAG_CHARS: usize = 64;
/// Most entries of one scope.
pub const MOST_ENTRIES: u64 = 10_000;
/// Most bytes of one scope, titles, tags and keys included.
pub const MOST_SCOPE_BYTES: u64 = 32 << 20;
/// Most entries of one author, in all scopes together.
pub const MOST_AUTHOR_ENTRIES: u64 = 20_000;
/// Most bytes of one author, in all scopes together.
pub const MOST_AUTHOR_BYTES: u64 = 64 << 20;
/// Most entries of all authors.
pub const MOST_ENTRIES_IN_ALL: u64 = 100_000;
/// Most bytes of all authors.
pub const MOST_BYTES_IN_ALL: u64 = 512 << 20;

/// Something that is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Which.
    pub id: EntryId,
    /// Whose.
    pub scope: MemoryScope,
    /// The name that its author chose, unique in the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is remembered.
    pub text: String,
    /// Words to find it by.
    pub tags: BTreeSet<String>,
    /// When it was first kept.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
    /// The principal who changed it last.
    pub by: String,
}

/// What is to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    /// Whose.
    pub scope: MemoryScope,
    /// Where.
    pub place: Place,
    /// What it is about.
    pub title: Option<String>,
    /// What is remembered.
    pub text: String,
    /// Words to find it by.
    pub tags: BTreeSet<String>,
    /// The principal who says so.
    pub by: String,
}

/// Where an entry goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Beside all others.
    New,
    /// Under this key: in the place of the entry that has it in the scope, if there is one.
    Key(String),
    /// In the place of this entry, which must be there. What is replaced must be the author's own, here as with a key.
    Id(EntryId),
}

/// An entry that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// The entry.
    pub entry: Entry,
    /// The part of its text around the words, or its beginning.
    pub snippet: String,
}

/// How much of a scope is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Entries.
    pub entries: u64,
    /// Bytes of texts, titles, tags and keys.
    pub bytes: u64,
}

impl Entry {
    /// The bytes that count against the limit of the scope.
    pub(super) fn bytes(&self) -> u64 {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let tags: usize = self.tags.iter().map(String::len).sum();
        count(self.text.len() + length(&self.title) + length(&self.key) + tags)
    }
}

impl NewEntry {
    pub(super) fn check(&self) -> Result<(), MemoryError> {
        if self.text.is_empty() {
            return Err(MemoryError::Empty);
        }
        if self.text.len() > MOST_TEXT_BYTES {
            return Err(MemoryError::TooLong(self.text.len()));
        }
        if let Some(title) = &self.title {
            check_title(title)?;
        }
        if self.tags.len() > MOST_TAGS {
            return Err(MemoryError::TooManyTags(self.tags.len()));
        }
        for tag in &self.tags {
            check("tag", tag, MOST_TAG_CHARS)?;
        }
        if let Place::Key(key) = &self.place {
            check("key", key, MOST_KEY_CHARS)?;
        }
        Ok(check("author", &self.by, MOST_AUTHOR_CHARS)?)
    }

    pub(super) fn entry(&self, id: EntryId, now: Timestamp) -> Entry {
        Entry {
            id,
            scope: self.scope.clone(),
            key: if let Place::Key(key) = &self.place { Some(key.clone()) } else { None },
            title: self.title.clone(),
            text: self.text.clone(),
            tags: self.tags.clone(),
            created: now,
            updated: now,
            by: self.by.clone(),
        }
    }

    pub(super) fn replacing(&self, old: Entry, now: Timestamp) -> Entry {
        Entry { key: old.key, created: old.created, ..self.entry(old.id, now) }
    }
}

/// Agents write titles with signs that are joined invisibly, so only what breaks the line is refused.
fn check_title(title: &str) -> Result<(), LabelError> {
    let length = title.chars().count();
    if length > MOST_TITLE_CHARS {
        return Err(LabelError::TooLong { what: "title", length, most: MOST_TITLE_CHARS });
    }
    match title.chars().find(|c| c.is_control()) {
        Some(character) => Err(LabelError::Character { what: "title", text: title.to_owned(), character }),
        None => Ok(()),
    }
}

const MOST_AUTHOR_CHARS: usize = 256;
