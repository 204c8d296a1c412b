//! Takes the last of a deleted entry out of the index.
//!
//! The index tells its pages apart by the beginnings of words, and keeps those when the words themselves are taken out. Where such a beginning
//! is of no word that is left, the index is made anew.

use std::collections::HashSet;

use rusqlite::{Transaction, params};

use super::entry::Entry;
use crate::error::StoreError;

/// Sees to it that no page of the index is told from others by a word of an entry that is gone.
pub(super) fn scrub(transaction: &Transaction<'_>, gone: &Entry) -> Result<(), StoreError> {
    let ends = page_ends(transaction)?;
    for word in words_of(transaction, gone)? {
        for length in 1..=word.len() {
            let end = word.as_bytes().get(..length).unwrap_or_default();
            if ends.contains(end) && !is_beginning_of_a_word(transaction, &word, end)? {
                transaction.execute("INSERT INTO found (found) VALUES ('rebuild')", [])?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The beginnings of words by which the index tells its pages apart.
pub(super) fn page_ends(transaction: &Transaction<'_>) -> Result<HashSet<Vec<u8>>, StoreError> {
    // Looking at the words writes what the index still holds in memory.
    transaction.prepare_cached("SELECT 1 FROM terms LIMIT 1")?.exists([])?;
    let mut statement = transaction.prepare_cached("SELECT CAST(term AS BLOB) FROM found_idx")?;
    let mut rows = statement.query([])?;
    let mut ends = HashSet::new();
    while let Some(row) = rows.next()? {
        // The first byte says which index is meant; there is one.
        if let [_, end @ ..] = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?
            && !end.is_empty()
        {
            ends.insert(end.to_vec());
        }
    }
    Ok(ends)
}

/// The words of an entry as the index spells them.
fn words_of(transaction: &Transaction<'_>, entry: &Entry) -> Result<Vec<String>, StoreError> {
    // As the index itself is made.
    transaction.execute_batch(
        "CREATE VIRTUAL TABLE temp.gone USING fts5 (
             title, text, tags, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
         );
         CREATE VIRTUAL TABLE temp.gone_terms USING fts5vocab (temp, gone, row);",
    )?;
    let tags = serde_json::json!(entry.tags).to_string();
    let sql = "INSERT INTO temp.gone (rowid, title, text, tags) VALUES (1, ?1, ?2, ?3)";
    transaction.execute(sql, params![entry.title, entry.text, tags])?;
    let words = {
        let mut statement = transaction.prepare("SELECT term FROM temp.gone_terms")?;
        statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?
    };
    transaction.execute_batch("DROP TABLE temp.gone_terms; DROP TABLE temp.gone;")?;
    Ok(words)
}

/// Whether a word that is left begins so. `word` is one that begins so too.
fn is_beginning_of_a_word(transaction: &Transaction<'_>, word: &str, end: &[u8]) -> Result<bool, StoreError> {
    // The beginning can end inside of a character.
    let from = word.get(..word.floor_char_boundary(end.len())).unwrap_or_default();
    let mut statement = transaction.prepare_cached("SELECT term FROM terms WHERE term >= ?1")?;
    let mut rows = statement.query([from])?;
    while let Some(row) = rows.next()? {
        let term = row.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?;
        if term.starts_with(end) {
            return Ok(true);
        }
        if !term.starts_with(from.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(false)
}
