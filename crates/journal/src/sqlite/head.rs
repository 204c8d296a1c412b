//! The end of the chain: where the next record goes and what it links to.
//!
//! Guarantees: read back from the database it is the one that was signed last, or reading it fails.

use palyra_types::{Sha256Digest, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use tlog_tiles::HASH_SIZE;

use super::rows::{self, Unreadable};
use crate::{
    checkpoint::Checkpoint,
    key::VerifyKey,
    record::genesis,
    tree::{FullTile, TILE_HEIGHT, Tree},
    trouble::Trouble,
};

/// The end of a chain.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) tree: Tree,
    /// The hash of the last record.
    pub(super) last: Sha256Digest,
    /// The latest time of any record.
    latest: Timestamp,
    /// The latest time that is kept beside the records, because a later one said an earlier time.
    noted: Option<Timestamp>,
}

impl Head {
    /// The end of an empty chain.
    pub(super) fn empty(origin: &str) -> Self {
        Self {
            tree: Tree::default(),
            last: genesis(origin),
            latest: Timestamp::from_unix_millis(i64::MIN),
            noted: None,
        }
    }

    /// The end of the chain in this database.
    pub(super) fn load(connection: &Connection, key: &VerifyKey) -> Result<Self, Trouble> {
        let last: Option<(u64, Vec<u8>)> = connection
            .query_row("SELECT seq, hash FROM records ORDER BY seq DESC LIMIT 1", [], |row| {
                Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
            })
            .optional()?;
        let Some((seq, hash)) = last else { return Ok(Self::empty(key.name())) };
        let size = seq + 1;
        let last = digest(&hash)?;
        let tree = Tree::restore(size, open_tiles(connection, size)?);
        let note: String = connection.query_row("SELECT note FROM head WHERE only = 0", [], |row| row.get(0))?;
        let signed = Checkpoint::open(&note, key).map_err(|error| Trouble::Key(error.to_string()))?;
        if signed != (Checkpoint { size, root: tree.root() }) {
            let (records, signed) = (size, signed.size);
            return Err(Trouble::Damaged(format!(
                "it holds {records} records, and the signed checkpoint says {signed}"
            )));
        }
        let (latest, noted) = (latest(connection)?, noted(connection)?);
        Ok(Self { tree, last, latest, noted })
    }

    /// Heeds the time of a record that is linked. Where the wall clock was set back, what it said before is kept: the last record does not
    /// tell it any more.
    pub(super) fn heed(&mut self, connection: &Connection, time: Timestamp) -> rusqlite::Result<()> {
        let back = self.latest.unix_millis().saturating_sub(time.unix_millis());
        if back > AT_ONCE && self.noted != Some(self.latest) {
            let sql = "INSERT OR REPLACE INTO latest (only, time) VALUES (0, ?1)";
            connection.prepare_cached(sql)?.execute([self.latest.unix_millis()])?;
            self.noted = Some(self.latest);
        }
        self.latest = self.latest.max(time);
        Ok(())
    }

    /// The checkpoint of the chain as it is.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        Checkpoint { size: self.tree.size(), root: self.tree.root() }
    }
}

/// The latest time of any record.
pub(super) fn latest(connection: &Connection) -> Result<Timestamp, Unreadable> {
    let mut select = connection.prepare_cached(rows::LAST_HEADER)?;
    let mut rows = select.query([])?;
    let last = rows::header(rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?)?;
    Ok(noted(connection)?.map_or(last.time(), |noted| noted.max(last.time())))
}

fn noted(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let noted = rows::one(connection, "SELECT time FROM latest WHERE only = 0", [], |row| row.get(0))?;
    Ok(noted.map(Timestamp::from_unix_millis))
}

/// Keeps a tile that became full.
pub(super) fn keep_tile(connection: &Connection, tile: &FullTile) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT INTO tiles (place, root, hashes) VALUES (?1, ?2, ?3)")?;
    insert.execute(params![place(tile.level, tile.index), tile.root.as_bytes(), tile.hashes])?;
    Ok(())
}

/// Where a tile is kept.
pub(super) fn place(level: u8, index: u64) -> i64 {
    (i64::from(level) << 56) | i64::try_from(index).unwrap_or(i64::MAX)
}

/// The hashes of the tiles that are not full, level by level: of records at the bottom, of full tiles above.
pub(super) fn open_tiles(connection: &Connection, size: u64) -> Result<Vec<Vec<u8>>, Trouble> {
    let mut levels = Vec::new();
    let mut entries = size;
    for level in 0_u8.. {
        if entries == 0 {
            break;
        }
        let first = (entries >> TILE_HEIGHT) << TILE_HEIGHT;
        let hashes = open_tile(connection, level, first, entries)?;
        let expected = usize::try_from(entries - first).unwrap_or(usize::MAX).saturating_mul(HASH_SIZE);
        if hashes.len() != expected {
            return Err(Trouble::Damaged("hashes of its tree are missing".to_owned()));
        }
        levels.push(hashes);
        entries >>= TILE_HEIGHT;
    }
    Ok(levels)
}

/// The entries `first..end` of a level, one after the other.
pub(super) fn open_tile(connection: &Connection, level: u8, first: u64, end: u64) -> rusqlite::Result<Vec<u8>> {
    let (sql, low, high) = match level.checked_sub(1) {
        None => {
            let (low, high) = (i64::try_from(first).unwrap_or(i64::MAX), i64::try_from(end).unwrap_or(i64::MAX));
            ("SELECT hash FROM records WHERE seq >= ?1 AND seq < ?2 ORDER BY seq", low, high)
        }
        Some(below) => {
            let sql = "SELECT root FROM tiles WHERE place >= ?1 AND place < ?2 ORDER BY place";
            (sql, place(below, first), place(below, end))
        }
    };
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([low, high])?;
    let mut hashes = Vec::new();
    while let Some(row) = rows.next()? {
        hashes.extend_from_slice(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    Ok(hashes)
}

pub(crate) fn digest(bytes: &[u8]) -> Result<Sha256Digest, Trouble> {
    let bytes = bytes.try_into().map_err(|_| Trouble::Damaged("a hash is not 32 bytes long".to_owned()))?;
    Ok(Sha256Digest::from_bytes(bytes))
}

/// How far the times of records differ, in milliseconds, though nobody set the clock: they are made at once and linked one after the other.
const AT_ONCE: i64 = 1_000;
