//! The rows of the memory: reading them, counting them, and keeping the index in step with them.

use palyra_types::Timestamp;
use rusqlite::{OptionalExtension, Row, ToSql, Transaction, params};

use super::{
    entry::{
        Entry, MOST_AUTHOR_BYTES, MOST_AUTHOR_ENTRIES, MOST_BYTES_IN_ALL, MOST_ENTRIES, MOST_ENTRIES_IN_ALL,
        MOST_SCOPE_BYTES, Usage,
    },
    error::MemoryError,
};
use crate::{
    database::{count, number},
    error::StoreError,
    id::EntryId,
    scope::MemoryScope,
};

/// What happens to an entry.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Added,
    Gone,
}

/// The row and the entry of an id.
pub(super) fn by_id(transaction: &Transaction<'_>, id: EntryId) -> Result<Option<(i64, Entry)>, StoreError> {
    one(transaction, "SELECT * FROM entry WHERE id = ?1", &[&id.to_string()])
}

/// The row and the entry of a key.
pub(super) fn by_key(
    transaction: &Transaction<'_>,
    scope: &str,
    key: &str,
) -> Result<Option<(i64, Entry)>, StoreError> {
    one(transaction, "SELECT * FROM entry WHERE scope = ?1 AND key = ?2", &[&scope, &key])
}

/// The entries of a scope behind an id, one more than the limit.
pub(super) fn listed(
    transaction: &Transaction<'_>,
    scope: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<Entry>, StoreError> {
    let mut statement =
        transaction.prepare_cached("SELECT * FROM entry WHERE scope = ?1 AND id > ?2 ORDER BY id LIMIT ?3")?;
    let mut rows = statement.query(params![scope, after, number(count(limit.saturating_add(1)))])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(entry(row)?.1);
    }
    Ok(entries)
}

/// How much of a scope is used.
pub(super) fn usage(transaction: &Transaction<'_>, scope: &str) -> Result<Usage, MemoryError> {
    let found = transaction
        .prepare_cached("SELECT entries, bytes FROM scope WHERE name = ?1")
        .and_then(|mut statement| statement.query_row([scope], used).optional());
    Ok(found.map_err(StoreError::from)?.unwrap_or_default())
}

/// The scopes that hold something, in the order of their names.
pub(super) fn scopes(transaction: &Transaction<'_>) -> Result<Vec<(MemoryScope, Usage)>, MemoryError> {
    let mut statement = transaction
        .prepare_cached("SELECT name, entries, bytes FROM scope WHERE entries > 0 ORDER BY name")
        .map_err(StoreError::from)?;
    let mut rows = statement.query([]).map_err(StoreError::from)?;
    let mut scopes = Vec::new();
    while let Some(row) = rows.next().map_err(StoreError::from)? {
        let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs).map_err(StoreError::from);
        let name: String = row.get(0).map_err(StoreError::from)?;
        let scope = MemoryScope::parse(&name)
            .map_err(|error| StoreError::Damaged { what: "memory", why: error.to_string() })?;
        scopes.push((scope, Usage { entries: count(1)?, bytes: count(2)? }));
    }
    Ok(scopes)
}

/// Counts an entry in, or out.
pub(super) fn change_usage(
    transaction: &Transaction<'_>,
    scope: &str,
    entry: &Entry,
    change: Change,
) -> Result<(), StoreError> {
    let sign = match change {
        Change::Added => 1,
        Change::Gone => -1,
    };
    transaction
        .prepare_cached("INSERT OR IGNORE INTO scope (name, entries, bytes) VALUES (?1, 0, 0)")?
        .execute([scope])?;
    transaction
        .prepare_cached("UPDATE scope SET entries = entries + ?2, bytes = bytes + ?2 * ?3 WHERE name = ?1")?
        .execute(params![scope, sign, number(entry.bytes())])?;
    Ok(())
}

/// Whether a scope may hold this much.
pub(super) const fn check_usage(usage: Usage) -> Result<(), MemoryError> {
    if usage.entries > MOST_ENTRIES {
        return Err(MemoryError::TooManyEntries);
    }
    if usage.bytes > MOST_SCOPE_BYTES {
        return Err(MemoryError::TooManyBytes(usage.bytes));
    }
    Ok(())
}

/// Whether an author, and all of them together, may keep as much as they do by now.
// SECURITY: whoever opens sessions without end has scopes without end, so limits of scopes alone are none.
pub(super) fn check_author(transaction: &Transaction<'_>, author: &str) -> Result<(), MemoryError> {
    let counted = |sql: &str, values: &[&dyn ToSql]| {
        let counted = transaction.prepare_cached(sql).and_then(|mut statement| statement.query_row(values, used));
        counted.map_err(StoreError::from)
    };
    let usage = counted("SELECT count(*), coalesce(sum(bytes), 0) FROM entry WHERE by = ?1", &[&author])?;
    if usage.entries > MOST_AUTHOR_ENTRIES || usage.bytes > MOST_AUTHOR_BYTES {
        return Err(MemoryError::AuthorFull { author: author.to_owned(), usage });
    }
    let usage = counted("SELECT count(*), coalesce(sum(bytes), 0) FROM entry", &[])?;
    if usage.entries > MOST_ENTRIES_IN_ALL || usage.bytes > MOST_BYTES_IN_ALL {
        return Err(MemoryError::Full(usage));
    }
    Ok(())
}

/// Reads a number of entries and one of bytes.
fn used(row: &Row<'_>) -> rusqlite::Result<Usage> {
    let (entries, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
    Ok(Usage { entries: entries.unsigned_abs(), bytes: bytes.unsigned_abs() })
}

/// Writes an entry, in this row or a new one, and its words into the index.
pub(super) fn keep(transaction: &Transaction<'_>, row: Option<i64>, entry: &Entry) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO entry (number, id, scope, key, title, text, tags, created, updated, by, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            row,
            entry.id.to_string(),
            entry.scope.to_string(),
            entry.key,
            entry.title,
            entry.text,
            serde_json::json!(entry.tags).to_string(),
            entry.created.unix_millis(),
            entry.updated.unix_millis(),
            entry.by,
            number(entry.bytes()),
        ])?;
    let row = row.unwrap_or_else(|| transaction.last_insert_rowid());
    transaction
        .prepare_cached(
            "INSERT INTO found (rowid, title, text, tags) SELECT number, title, text, tags FROM entry WHERE number = ?1",
        )?
        .execute([row])?;
    Ok(())
}

/// Takes the words of a row out of the index. The index reads them from the row, so before that changes.
pub(super) fn unindex(transaction: &Transaction<'_>, row: i64) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "INSERT INTO found (found, rowid, title, text, tags)
             SELECT 'delete', number, title, text, tags FROM entry WHERE number = ?1",
        )?
        .execute([row])?;
    Ok(())
}

/// Takes out everything of a scope.
pub(super) fn purge(transaction: &Transaction<'_>, scope: &str) -> Result<u64, StoreError> {
    let gone = transaction.execute("DELETE FROM entry WHERE scope = ?1", [scope])?;
    transaction.execute("DELETE FROM scope WHERE name = ?1", [scope])?;
    if gone > 0 {
        // Made anew of what is left, so that no page of the index keeps a word of what is gone, not even to tell pages apart.
        transaction.execute("INSERT INTO found (found) VALUES ('rebuild')", [])?;
    }
    Ok(count(gone))
}

/// Reads a row.
pub(super) fn entry(row: &Row<'_>) -> Result<(i64, Entry), StoreError> {
    let text = |name: &str| row.get::<_, String>(name);
    let time = |name: &str| row.get(name).map(Timestamp::from_unix_millis);
    let damaged = |why: String| StoreError::Damaged { what: "memory", why };
    let entry = Entry {
        id: EntryId::parse(&text("id")?).map_err(|error| damaged(error.to_string()))?,
        scope: MemoryScope::parse(&text("scope")?).map_err(|error| damaged(error.to_string()))?,
        key: row.get("key")?,
        title: row.get("title")?,
        text: text("text")?,
        tags: serde_json::from_str(&text("tags")?).map_err(|error| damaged(error.to_string()))?,
        created: time("created")?,
        updated: time("updated")?,
        by: text("by")?,
    };
    Ok((row.get("number")?, entry))
}

fn one(transaction: &Transaction<'_>, sql: &str, values: &[&dyn ToSql]) -> Result<Option<(i64, Entry)>, StoreError> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    rows.next()?.map(entry).transpose()
}
