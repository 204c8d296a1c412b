//! Notes that agents keep, found again by their words.
//!
//! Guarantees: an entry belongs to one scope and never leaves it; a search sees the scopes it is given and no others; any text is a query, and
//! none of it is syntax; a search ends after a while; nobody replaces what somebody else kept; a scope, an author and all of them together
//! never hold more than their limits, because what they hold is counted in the transaction that changes it. What is deleted or purged is gone
//! from the file, its index and its log when the call returns. What is replaced is overwritten in the file with the next such call or
//! checkpoint; the index can keep the beginning of one of its words until a scope is purged.
//! Does not: decide which scopes somebody may search.

mod entry;
mod error;
mod query;
mod rows;
mod scrub;

use std::{path::Path, sync::Arc, time::Duration};

use palyra_types::{Clock, Entropy};
use rusqlite::{ErrorCode, Transaction, types::Value};

pub use self::{
    entry::{
        Entry, Hit, MOST_AUTHOR_BYTES, MOST_AUTHOR_ENTRIES, MOST_BYTES_IN_ALL, MOST_ENTRIES, MOST_ENTRIES_IN_ALL,
        MOST_KEY_CHARS, MOST_SCOPE_BYTES, MOST_TAG_CHARS, MOST_TAGS, MOST_TEXT_BYTES, MOST_TITLE_CHARS, NewEntry,
        Place, Usage,
    },
    error::MemoryError,
    query::Query,
};
use crate::{
    database::{Database, Purpose, count, number},
    directory::private_directory,
    error::StoreError,
    id::EntryId,
    page::{Page, bounded},
    scope::MemoryScope,
};

/// Everything that agents remember, in `memory.sqlite`.
pub struct MemoryStore {
    database: Database,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl MemoryStore {
    /// Opens the memory in a directory; both are made if they are not there.
    ///
    /// # Errors
    /// When it cannot be opened, or is something else.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Result<Self, MemoryError> {
        private_directory(directory)?;
        let database = Database::open(&directory.join("memory.sqlite"), &PURPOSE)?;
        Ok(Self { database, clock, entropy })
    }

    /// Keeps an entry, in the place that it names. What was there keeps its id, its key and the time it was made.
    ///
    /// # Errors
    /// When it breaks a limit, it replaces what is not there or is somebody else's, or the file cannot be written. Then what was there stays.
    pub fn put(&self, new: &NewEntry) -> Result<Entry, MemoryError> {
        new.check()?;
        let now = self.clock.now();
        self.database.write(|transaction| {
            let scope = new.scope.to_string();
            let before = match &new.place {
                Place::New => None,
                Place::Key(key) => rows::by_key(transaction, &scope, key)?,
                // SECURITY: an id of another scope is as unknown as one that never was.
                Place::Id(id) => {
                    let found = rows::by_id(transaction, *id)?.filter(|(_, entry)| entry.scope == new.scope);
                    Some(found.ok_or(MemoryError::Unknown(*id))?)
                }
            };
            let (row, entry) = match before {
                None => {
                    let id = EntryId::generate(now, self.entropy.as_ref()).map_err(StoreError::from)?;
                    (None, new.entry(id, now))
                }
                // SECURITY: what was there is gone then, and to delete it a person would be asked.
                Some((_, old)) if old.by != new.by => return Err(MemoryError::NotOwn(old.id)),
                Some((row, old)) => {
                    rows::change_usage(transaction, &scope, &old, rows::Change::Gone)?;
                    rows::unindex(transaction, row)?;
                    (Some(row), new.replacing(old, now))
                }
            };
            rows::change_usage(transaction, &scope, &entry, rows::Change::Added)?;
            rows::check_usage(rows::usage(transaction, &scope)?)?;
            rows::keep(transaction, row, &entry)?;
            rows::check_author(transaction, &entry.by)?;
            Ok(entry)
        })
    }

    /// The entry of an id.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, id: EntryId) -> Result<Option<Entry>, MemoryError> {
        self.database.read(|transaction| Ok(rows::by_id(transaction, id)?.map(|(_, entry)| entry)))
    }

    /// The entry of a key in a scope.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get_by_key(&self, scope: &MemoryScope, key: &str) -> Result<Option<Entry>, MemoryError> {
        let found = self.database.read(|transaction| rows::by_key(transaction, &scope.to_string(), key));
        Ok(found?.map(|(_, entry)| entry))
    }

    /// The entries of these scopes that fit a query, best first. A query without words finds what was changed last.
    ///
    /// Entries that have all the words are found; if there is none, those that have some.
    ///
    /// # Errors
    /// When it takes too long, or the file cannot be read.
    pub fn search(&self, scopes: &[MemoryScope], query: &Query, limit: usize) -> Result<Vec<Hit>, MemoryError> {
        let scopes = serde_json::json!(scopes).to_string();
        let tags = serde_json::json!(query.tags()).to_string();
        let limit = number(count(bounded(limit)));
        let (clock, begun) = (Arc::clone(&self.clock), self.clock.boot().millis);
        // Whoever asked may be gone by then, and whoever else wants to read waits for it.
        let is_over = move || Duration::from_millis(clock.boot().millis.saturating_sub(begun)) >= SEARCHED;
        let found = self.database.read_until(is_over, |transaction| {
            let Some([all, any]) = query.expressions() else {
                return hits(transaction, LATEST, &[scopes.into(), tags.into(), limit.into()]);
            };
            let found = |words: String| {
                let values = [scopes.clone().into(), tags.clone().into(), limit.into(), words.into()];
                hits(transaction, MATCHING, &values)
            };
            let best = found(all)?;
            if best.is_empty() { found(any) } else { Ok(best) }
        });
        found.map_err(|error| match error {
            MemoryError::Store(StoreError::Database(why))
                if why.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) =>
            {
                MemoryError::TooSlow
            }
            other => other,
        })
    }

    /// The entries of a scope, oldest first, from behind an entry on.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(
        &self,
        scope: &MemoryScope,
        after: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<Entry, EntryId>, MemoryError> {
        let limit = bounded(limit);
        self.database.read(|transaction| {
            let after = after.map(|id| id.to_string()).unwrap_or_default();
            let entries = rows::listed(transaction, &scope.to_string(), &after, limit)?;
            Ok(Page::of(entries, limit, |last| last.id))
        })
    }

    /// How much of a scope is used.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn usage(&self, scope: &MemoryScope) -> Result<Usage, MemoryError> {
        self.database.read(|transaction| rows::usage(transaction, &scope.to_string()))
    }

    /// The scopes that hold something, and how much.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn scopes(&self) -> Result<Vec<(MemoryScope, Usage)>, MemoryError> {
        self.database.read(rows::scopes)
    }

    /// Forgets an entry. Says whether there was one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn delete(&self, id: EntryId) -> Result<bool, MemoryError> {
        let was_there = self.database.write(|transaction| {
            let Some((row, entry)) = rows::by_id(transaction, id)? else { return Ok::<_, MemoryError>(false) };
            rows::unindex(transaction, row)?;
            rows::change_usage(transaction, &entry.scope.to_string(), &entry, rows::Change::Gone)?;
            transaction.execute("DELETE FROM entry WHERE number = ?1", [row]).map_err(StoreError::from)?;
            scrub::scrub(transaction, &entry)?;
            Ok(true)
        })?;
        if was_there {
            self.database.give_back()?;
        }
        Ok(was_there)
    }

    /// Forgets everything in a scope. Says how many entries there were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn purge(&self, scope: &MemoryScope) -> Result<u64, MemoryError> {
        let gone =
            self.database.write(|transaction| Ok::<_, MemoryError>(rows::purge(transaction, &scope.to_string())?))?;
        if gone > 0 {
            self.database.give_back()?;
        }
        Ok(gone)
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

/// Runs a search. The last column is the part of the text to show.
fn hits(transaction: &Transaction<'_>, sql: &str, values: &[Value]) -> Result<Vec<Hit>, MemoryError> {
    let mut statement = transaction.prepare_cached(sql).map_err(StoreError::from)?;
    let mut found = statement.query(rusqlite::params_from_iter(values)).map_err(StoreError::from)?;
    let mut hits = Vec::new();
    while let Some(row) = found.next().map_err(StoreError::from)? {
        let (_, entry) = rows::entry(row)?;
        let snippet: Option<String> = row.get("snippet").map_err(StoreError::from)?;
        let snippet = snippet.unwrap_or_else(|| query::beginning(&entry.text));
        hits.push(Hit { entry, snippet });
    }
    Ok(hits)
}

const MATCHING: &str = "
    SELECT entry.*, snippet(found, 1, '', '', '…', 32) AS snippet
    FROM found JOIN entry ON entry.number = found.rowid
    WHERE found MATCH ?4
      AND entry.scope IN (SELECT value FROM json_each(?1))
      AND NOT EXISTS (SELECT 1 FROM json_each(?2) AS asked
                      WHERE asked.value NOT IN (SELECT value FROM json_each(entry.tags)))
    ORDER BY bm25(found, 4.0, 1.0, 2.0), entry.updated DESC, entry.id
    LIMIT ?3";

const LATEST: &str = "
    SELECT entry.*, NULL AS snippet FROM entry
    WHERE entry.scope IN (SELECT value FROM json_each(?1))
      AND NOT EXISTS (SELECT 1 FROM json_each(?2) AS asked
                      WHERE asked.value NOT IN (SELECT value FROM json_each(entry.tags)))
    ORDER BY entry.updated DESC, entry.id DESC
    LIMIT ?3";

/// How long a search takes at the most.
const SEARCHED: Duration = Duration::from_secs(2);

/// Titles weigh four times as much as text, tags twice; see `MATCHING`.
const PURPOSE: Purpose = Purpose {
    what: "memory",
    // `Plme`.
    application: 0x506c_6d65,
    migrations: &[
        "
        CREATE TABLE scope (
            name TEXT PRIMARY KEY,
            entries INTEGER NOT NULL CHECK (entries >= 0),
            bytes INTEGER NOT NULL CHECK (bytes >= 0)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE entry (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            scope TEXT NOT NULL,
            key TEXT,
            title TEXT,
            text TEXT NOT NULL,
            tags TEXT NOT NULL,
            created INTEGER NOT NULL,
            updated INTEGER NOT NULL,
            by TEXT NOT NULL,
            UNIQUE (scope, key)
        ) STRICT;
        CREATE INDEX entry_listed ON entry (scope, id);
        CREATE INDEX entry_latest ON entry (scope, updated);
        CREATE VIRTUAL TABLE found USING fts5 (
            title, text, tags,
            content = 'entry', content_rowid = 'number', tokenize = 'porter unicode61 remove_diacritics 2'
        );
        INSERT INTO found (found, rank) VALUES ('secure-delete', 1);
        CREATE VIRTUAL TABLE terms USING fts5vocab (found, row);
    ",
        "
        ALTER TABLE entry ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0);
        UPDATE entry SET bytes = length(CAST(text AS BLOB)) + coalesce(length(CAST(title AS BLOB)), 0)
            + coalesce(length(CAST(key AS BLOB)), 0)
            + (SELECT coalesce(sum(length(CAST(tag.value AS BLOB))), 0) FROM json_each(entry.tags) AS tag);
        CREATE INDEX entry_author ON entry (by, bytes);
    ",
    ],
};

#[cfg(test)]
mod tests;
