//! Reads what is asked for while the writer writes.
//!
//! Guarantees: what is read is from the file that was opened; one that took its place is not read, as it is not written.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, Row, params};

use super::{
    apply::number,
    archive::segment_path,
    files::Files,
    rows::{self, Unreadable},
    schema::open_for_reading,
};
use crate::{
    record::StoredRecord,
    store::{Heading, ReadError},
    trouble::Trouble,
};

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

/// What is wanted of the records of a chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portion {
    /// From this number on.
    pub(super) from: u64,
    /// At most this many.
    pub(super) most: usize,
    /// No more once the bodies are longer than this.
    pub(super) bytes: usize,
}

/// A pass over records, wherever they are.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    pub(super) connection: &'a Connection,
    /// Whether anybody still waits for it.
    pub(super) is_wanted: &'a dyn Fn() -> bool,
}

impl Scan<'_> {
    /// Records with what they say.
    pub(super) fn records(self, directory: &Path, portion: Portion) -> Result<Vec<StoredRecord>, Unreadable> {
        self.rows(directory, rows::RECORD, portion, |row| {
            let stored = rows::record(row)?;
            let bytes = stored.body.as_ref().map_or(0, String::len);
            Ok((stored, bytes))
        })
    }

    /// What records are about. What they say is not read.
    pub(super) fn subjects(self, directory: &Path, from: u64, most: usize) -> Result<Vec<Heading>, Unreadable> {
        let portion = Portion { from, most, bytes: usize::MAX };
        self.rows(directory, rows::HEADER, portion, |row| {
            let header = rows::header(row)?;
            Ok(((header.seq, header.kind, header.subject()), 0))
        })
    }

    fn rows<T>(
        self,
        directory: &Path,
        select: &str,
        portion: Portion,
        read: impl Fn(&Row<'_>) -> Result<(T, usize), Unreadable>,
    ) -> Result<Vec<T>, Unreadable> {
        let mut attempt = 0;
        loop {
            match self.rows_now(directory, select, portion, &read) {
                // A segment was dropped between reading its name and opening it; what is there now names it no longer.
                Err(Unreadable::Sqlite(error))
                    if attempt < ATTEMPTS && error.sqlite_error_code() == Some(ErrorCode::CannotOpen) =>
                {
                    attempt += 1;
                }
                read => return read,
            }
        }
    }

    fn rows_now<T>(
        self,
        directory: &Path,
        select: &str,
        portion: Portion,
        read: &impl Fn(&Row<'_>) -> Result<(T, usize), Unreadable>,
    ) -> Result<Vec<T>, Unreadable> {
        // One moment of the journal, whatever is sealed meanwhile.
        let moment = self.connection.unchecked_transaction()?;
        let sql = format!("{select} WHERE seq >= ?1 ORDER BY seq LIMIT ?2");
        let segments: Vec<(i64, i64)> = rows::all(
            &moment,
            "SELECT first, last FROM segments WHERE last >= ?1 ORDER BY first",
            [number(portion.from)],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let (mut found, mut bytes, mut next) = (Vec::new(), 0_usize, portion.from);
        // Says whether there may be more to find.
        let mut gather = |connection: &Connection, from: u64| {
            let most = i64::try_from(portion.most.saturating_sub(found.len())).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params![number(from), most])?;
            while let Some(row) = rows.next()? {
                let (one, length) = read(row)?;
                found.push(one);
                bytes = bytes.saturating_add(length);
                if bytes > portion.bytes || !(self.is_wanted)() {
                    return Ok(false);
                }
            }
            Ok::<_, Unreadable>(found.len() < portion.most)
        };
        for (first, last) in segments {
            let path = segment_path(directory, first.unsigned_abs(), last.unsigned_abs());
            if !gather(&open_for_reading(&path)?, next)? {
                return Ok(found);
            }
            next = last.unsigned_abs() + 1;
        }
        gather(&moment, next)?;
        Ok(found)
    }
}

/// How often a journal that changes is read again.
const ATTEMPTS: u32 = 5;
