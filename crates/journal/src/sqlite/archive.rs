//! A journal's directory as it was at one moment, for reading only: the live database in one snapshot, and the sealed segments.
//!
//! Guarantees: nothing is changed; a daemon that writes meanwhile is neither disturbed nor seen; rows come out one at a time.

use std::path::{Path, PathBuf};

use palyra_types::Sha256Digest;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params, types::ValueRef};

use super::{
    DATABASE_FILE, SEGMENTS_DIRECTORY,
    files::log_of,
    head::{digest, open_tile, open_tiles, place},
    schema::open_for_reading,
};
use crate::{record::genesis, tree::Tree, trouble::Trouble};

/// A journal's directory at one moment.
pub(crate) struct Archive {
    live: Connection,
    dropped: Option<Dropped>,
    segments: Vec<Segment>,
}

/// What was before the first record that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Dropped {
    pub(crate) size: u64,
    pub(crate) prev: Sha256Digest,
    pub(crate) note: String,
}

/// A sealed segment, open for reading.
pub(crate) struct Segment {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) note: String,
    path: PathBuf,
    /// `None` if its file is missing.
    connection: Option<Connection>,
}

/// What a segment says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) prev: Vec<u8>,
    pub(crate) roots: Vec<u8>,
    pub(crate) note: String,
}

/// A row as it is stored. Text that is no text is an error when it is asked for.
pub(crate) struct StoredRow<'a> {
    pub(crate) seq: i64,
    pub(crate) text: &'a str,
    pub(crate) hash: &'a [u8],
    pub(crate) salt: Option<&'a [u8]>,
    pub(crate) body: Option<&'a str>,
}

/// A tile as it is stored.
pub(crate) struct StoredTile {
    pub(crate) root: Vec<u8>,
    pub(crate) hashes: Vec<u8>,
}

impl Archive {
    /// Opens the journal of a directory as it is now.
    pub(crate) fn open(directory: &Path) -> rusqlite::Result<Self> {
        let mut attempt = 0;
        loop {
            let opened = Self::open_once(directory)?;
            // A segment may be dropped between reading its name and opening it; what is there then names it no longer.
            if attempt == ATTEMPTS || opened.segments.iter().all(|segment| !segment.is_missing()) {
                return Ok(opened);
            }
            attempt += 1;
        }
    }

    fn open_once(directory: &Path) -> rusqlite::Result<Self> {
        let live = open_read_only(&directory.join(DATABASE_FILE))?;
        // The first read of a transaction is the moment that the rest of it sees.
        live.execute_batch("BEGIN")?;
        let dropped = live
            .query_row("SELECT size, prev, note FROM dropped WHERE only = 0", [], |row| {
                let prev = digest(row.get_ref(1)?.as_blob()?).map_err(|error| unreadable(1, error))?;
                Ok(Dropped { size: number(row, 0)?, prev, note: row.get(2)? })
            })
            .optional()?;
        let rows: Vec<(u64, u64, String)> = live
            .prepare("SELECT first, last, note FROM segments ORDER BY first")?
            .query_map([], |row| Ok((number(row, 0)?, number(row, 1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let segments = rows
            .into_iter()
            .map(|(first, last, note)| {
                let path = segment_path(directory, first, last);
                let connection = match open_read_only(&path) {
                    Err(error) if is_absent(&error) => None,
                    opened => Some(opened?),
                };
                Ok(Segment { first, last, note, path, connection })
            })
            .collect::<rusqlite::Result<_>>()?;
        Ok(Self { live, dropped, segments })
    }

    /// What was before the first record that is kept, if anything was dropped.
    pub(crate) const fn dropped(&self) -> Option<&Dropped> {
        self.dropped.as_ref()
    }

    /// The sealed segments, oldest first.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The number of the first record that is kept.
    pub(crate) fn first(&self) -> u64 {
        self.dropped.as_ref().map_or(0, |dropped| dropped.size)
    }

    /// The number of the first record that is in no segment.
    pub(crate) fn live_from(&self) -> u64 {
        self.segments.last().map_or_else(|| self.first(), |segment| segment.last.saturating_add(1))
    }

    /// The live database.
    pub(crate) const fn live(&self) -> &Connection {
        &self.live
    }

    /// The signed checkpoint of the whole chain.
    pub(crate) fn note(&self) -> rusqlite::Result<Option<String>> {
        self.live.query_row("SELECT note FROM head WHERE only = 0", [], |row| row.get(0)).optional()
    }

    /// The tree over the records that were dropped, and the hash of the last of them.
    pub(crate) fn start(&self, origin: &str) -> Result<(Tree, Sha256Digest), Trouble> {
        match &self.dropped {
            None => Ok((Tree::default(), genesis(origin))),
            Some(dropped) => Ok((Tree::restore(dropped.size, open_tiles(&self.live, dropped.size)?), dropped.prev)),
        }
    }

    /// Visits the records `first..=last` in order, wherever they are, until `visit` says to stop.
    pub(crate) fn visit<E: From<rusqlite::Error>>(
        &self,
        (first, last): (u64, u64),
        mut visit: impl FnMut(StoredRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for segment in self.segments.iter().filter(|segment| segment.last >= first && segment.first <= last) {
            segment.visit((first.max(segment.first), last.min(segment.last)), &mut visit)?;
        }
        let first = first.max(self.live_from());
        if first <= last { rows(&self.live, RANGE, (signed(first), signed(last)), visit) } else { Ok(()) }
    }

    /// Visits every row of the live database from this number on.
    pub(crate) fn visit_live<E: From<rusqlite::Error>>(
        &self,
        first: u64,
        visit: impl FnMut(StoredRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        rows(&self.live, RANGE, (signed(first), i64::MAX), visit)
    }

    /// Visits every row of the live database below this number: what was sealed and is not removed yet.
    pub(crate) fn visit_sealed_in_live<E: From<rusqlite::Error>>(
        &self,
        end: u64,
        visit: impl FnMut(StoredRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        rows(&self.live, RANGE, (i64::MIN, signed(end) - 1), visit)
    }

    /// A full tile.
    pub(crate) fn tile(&self, level: u8, index: u64) -> rusqlite::Result<Option<StoredTile>> {
        let mut select = self.live.prepare_cached("SELECT root, hashes FROM tiles WHERE place = ?1")?;
        select
            .query_row([place(level, index)], |row| Ok(StoredTile { root: row.get(0)?, hashes: row.get(1)? }))
            .optional()
    }

    /// How many full tiles are kept.
    pub(crate) fn tile_count(&self) -> rusqlite::Result<u64> {
        self.live.query_row("SELECT count(*) FROM tiles", [], |row| number(row, 0))
    }

    /// The entries `first..end` of a level of the tree, one after the other.
    pub(crate) fn entries(&self, level: u8, first: u64, end: u64) -> rusqlite::Result<Vec<u8>> {
        open_tile(&self.live, level, first, end)
    }
}

impl Segment {
    /// Whether the file of the segment is missing.
    pub(crate) const fn is_missing(&self) -> bool {
        self.connection.is_none()
    }

    fn connection(&self) -> rusqlite::Result<&Connection> {
        self.connection.as_ref().ok_or_else(|| rusqlite::Error::InvalidPath(self.path.clone()))
    }

    /// What the segment says about itself.
    pub(crate) fn boundary(&self) -> rusqlite::Result<Boundary> {
        self.connection()?.query_row("SELECT first, last, prev, roots, note FROM boundary WHERE only = 0", [], |row| {
            Ok(Boundary {
                first: number(row, 0)?,
                last: number(row, 1)?,
                prev: row.get(2)?,
                roots: row.get(3)?,
                note: row.get(4)?,
            })
        })
    }

    /// Visits every row of the segment, those that do not belong there included.
    pub(crate) fn visit_all<E: From<rusqlite::Error>>(
        &self,
        visit: impl FnMut(StoredRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        rows(self.connection()?, RANGE, (i64::MIN, i64::MAX), visit)
    }

    fn visit<E: From<rusqlite::Error>>(
        &self,
        (first, last): (u64, u64),
        visit: impl FnMut(StoredRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        rows(self.connection()?, RANGE, (signed(first), signed(last)), visit)
    }
}

/// Where a segment is.
pub(crate) fn segment_path(directory: &Path, first: u64, last: u64) -> PathBuf {
    directory.join(SEGMENTS_DIRECTORY).join(format!("{first:012}-{last:012}.db"))
}

fn rows<E: From<rusqlite::Error>>(
    connection: &Connection,
    sql: &str,
    (first, last): (i64, i64),
    mut visit: impl FnMut(StoredRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(params![first, last])?;
    while let Some(row) = rows.next()? {
        visit(stored(row)?)?;
    }
    Ok(())
}

fn stored<'a>(row: &'a Row<'_>) -> rusqlite::Result<StoredRow<'a>> {
    let (salt, body) = (row.get_ref(3)?, row.get_ref(4)?);
    Ok(StoredRow {
        seq: row.get(0)?,
        text: row.get_ref(1)?.as_str()?,
        hash: row.get_ref(2)?.as_blob()?,
        salt: if salt == ValueRef::Null { None } else { Some(salt.as_blob()?) },
        body: if body == ValueRef::Null { None } else { Some(body.as_str()?) },
    })
}

/// Opens a database that may be in use, or may be on a file system where nothing can be written.
fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let connection = open_for_reading(path)?;
    match connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())) {
        Ok(()) => Ok(connection),
        // Nobody writes where there is no write-ahead log; without the means to share memory, the file is read as it is.
        Err(error) if is_absent(&error) && path.exists() && !log_of(path).exists() => {
            let uri = format!("file:{}?immutable=1", percent_encoded(path));
            Connection::open_with_flags(uri, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
        }
        Err(error) => Err(error),
    }
}

/// A path as part of an address.
fn percent_encoded(path: &Path) -> String {
    use std::{fmt::Write as _, os::unix::ffi::OsStrExt};
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn is_absent(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen)
}

pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|error| unreadable(column, error))
}

fn signed(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, Box::new(error))
}

const RANGE: &str = "SELECT seq, record, hash, salt, body FROM records WHERE seq >= ?1 AND seq <= ?2 ORDER BY seq";

/// How often a directory that changes is opened again.
const ATTEMPTS: u32 = 5;
