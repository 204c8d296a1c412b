//! Reads what is asked for while the writer writes.
//!
//! Guarantees: what is read is from the file that was opened; one that took its place is not read, as it is not written.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, params};

use super::{apply::number, archive::segment_path, files::Files, rows, schema::open_for_reading};
use crate::{record::StoredRecord, store::ReadError, trouble::Trouble};

/// A connection for reading.
pub(super) struct Reader {
    path: PathBuf,
    connection: Connection,
    files: Files,
}

impl Reader {
    /// Reads the database at this path, which is open for writing.
    pub(super) fn at(path: &Path) -> Result<Self, Trouble> {
        Ok(Self { path: path.to_owned(), connection: open_for_reading(path)?, files: Files::at(path)? })
    }

    /// The connection, unless the file is gone or another.
    pub(super) fn connection(&mut self) -> Result<&Connection, Trouble> {
        // SECURITY: grants and approvals of a database that somebody else put there must not be believed.
        self.files.database().check(&self.path)?;
        if self.files.is_log_another() {
            // The log was deleted, and the writer has made a new one. What it writes there is not in the one that is open here.
            (self.connection, self.files) = (open_for_reading(&self.path)?, Files::at(&self.path)?);
        }
        Ok(&self.connection)
    }
}

impl From<Trouble> for ReadError {
    fn from(trouble: Trouble) -> Self {
        Self(trouble.to_string())
    }
}

/// Records from this number on, wherever they are.
pub(super) fn records(
    directory: &Path,
    connection: &Connection,
    from: u64,
    most: usize,
) -> rusqlite::Result<Vec<StoredRecord>> {
    let mut attempt = 0;
    loop {
        match records_now(directory, connection, from, most) {
            // A segment was dropped between reading its name and opening it; what is there now names it no longer.
            Err(error) if attempt < ATTEMPTS && error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
                attempt += 1
            }
            read => return read,
        }
    }
}

fn records_now(
    directory: &Path,
    connection: &Connection,
    from: u64,
    most: usize,
) -> rusqlite::Result<Vec<StoredRecord>> {
    // One moment of the journal, whatever is sealed meanwhile.
    let moment = connection.unchecked_transaction()?;
    let sql = format!("{} WHERE seq >= ?1 ORDER BY seq LIMIT ?2", rows::RECORD);
    let read = |connection: &Connection, from: u64, already: usize| {
        let most = i64::try_from(most.saturating_sub(already)).unwrap_or(i64::MAX);
        rows::all(connection, &sql, params![number(from), most], rows::record)
    };
    let segments: Vec<(i64, i64)> = rows::all(
        &moment,
        "SELECT first, last FROM segments WHERE last >= ?1 ORDER BY first",
        [number(from)],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut found = Vec::new();
    let mut next = from;
    for (first, last) in segments {
        if found.len() >= most {
            return Ok(found);
        }
        let path = segment_path(directory, first.unsigned_abs(), last.unsigned_abs());
        found.extend(read(&open_for_reading(&path)?, next, found.len())?);
        next = last.unsigned_abs() + 1;
    }
    found.extend(read(&moment, next, found.len())?);
    Ok(found)
}

/// How often a journal that changes is read again.
const ATTEMPTS: u32 = 5;
