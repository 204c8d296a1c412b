//! Moves old records into sealed segments, drops the oldest segments, and prunes the state that went with them.
//!
//! Guarantees: a segment is whole and synced before the journal names it, and named before its rows leave the live database; a segment that
//! is dropped leaves the roots and the signed checkpoint that the rest is verified with; the newest records stay in the live database.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    sync::atomic::Ordering,
};

use palyra_types::{Sha256Digest, Timestamp, id::CallId};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::{
    DATABASE_FILE, SEGMENTS_DIRECTORY,
    apply::number,
    archive::{Archive, segment_path},
    disk,
    head::place,
    keeper::Keeper,
    schema::create_segment,
    tiles::Tiles,
};
use crate::{
    checkpoint::Checkpoint,
    keep::DAY,
    record::{RecordKind, genesis},
    state::KEY_LIFE,
    tree::{TILE_HEIGHT, TILE_RECORDS},
    trouble::Trouble,
};

impl Keeper {
    /// Seals what is too much for the live database, and drops what is too much in all. Returns how many records.
    pub(super) fn rotate(&mut self) -> Result<(u64, u64), Trouble> {
        let mut sealed = 0;
        if self.load.live.load(Ordering::SeqCst) > self.keeping.rotation.segment_bytes {
            sealed = self.seal()?;
            self.remove_sealed_rows()?;
        }
        Ok((sealed, self.drop_oldest()?))
    }

    /// Seals all whole tiles but the newest records.
    fn seal(&self) -> Result<u64, Trouble> {
        let archive = Archive::open(&self.directory)?;
        let note = archive.note()?.ok_or_else(|| Trouble::Damaged("it has no signed head".to_owned()))?;
        let head = Checkpoint::open(&note, self.key.public()).map_err(|error| Trouble::Key(error.to_string()))?;
        let first = archive.live_from();
        let end = (head.size.saturating_sub(TILE_RECORDS) >> TILE_HEIGHT) << TILE_HEIGHT;
        if end <= first {
            return Ok(0);
        }
        let (last, tiles) = (end - 1, Tiles(archive.live()));
        let boundary = tiles.checkpoint(end).map_err(|error| Trouble::Damaged(error.to_string()))?;
        let note = boundary.sign(&self.key).map_err(|error| Trouble::Key(error.to_string()))?;
        let bytes = self.copy(&archive, (first, last), &note)?;
        drop(archive);
        self.ask(move |writer| {
            let body = json!({ "first": first, "last": last, "checkpoint": note });
            writer.keep(RecordKind::JournalSealed, &body, |connection| {
                connection
                    .prepare_cached("INSERT INTO segments (first, last, note) VALUES (?1, ?2, ?3)")?
                    .execute(params![number(first), number(last), note])
                    .map(drop)
            })
        })?;
        let _ =
            self.load.live.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |live| Some(live.saturating_sub(bytes)));
        Ok(end - first)
    }

    /// Copies records into a segment of their own, and makes it durable. Returns how many bytes they take.
    fn copy(&self, archive: &Archive, (first, last): (u64, u64), note: &str) -> Result<u64, Trouble> {
        let directory = self.directory.join(SEGMENTS_DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(disk)?;
        let path = segment_path(&self.directory, first, last);
        let unfinished = path.with_extension("new");
        remove(&unfinished)?;
        let connection = create_segment(&unfinished)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600)).map_err(disk)?;
        connection.execute_batch("BEGIN")?;
        let bytes = self.copy_rows(archive, (first, last), &connection)?;
        let tiles = Tiles(archive.live());
        let prev = match first.checked_sub(1) {
            None => genesis(self.key.public().name()),
            Some(before) if first == archive.first() => {
                archive.dropped().map(|dropped| dropped.prev).ok_or_else(|| lost(before))?
            }
            Some(before) => tiles.leaf(before).ok().flatten().ok_or_else(|| lost(before))?,
        };
        let roots: Vec<u8> = tiles.tree(first)?.range().roots().flat_map(|root| *root.as_bytes()).collect();
        connection.execute(
            "INSERT INTO boundary (only, first, last, prev, roots, note) VALUES (0, ?1, ?2, ?3, ?4, ?5)",
            params![number(first), number(last), prev.as_bytes(), roots, note],
        )?;
        connection.execute_batch("COMMIT")?;
        connection.close().map_err(|(_, error)| error)?;
        File::open(&unfinished).and_then(|file| file.sync_all()).map_err(disk)?;
        fs::rename(&unfinished, &path).map_err(disk)?;
        sync(&directory).and_then(|()| sync(&self.directory)).map_err(disk)?;
        Ok(bytes)
    }

    fn copy_rows(&self, archive: &Archive, extent: (u64, u64), to: &Connection) -> Result<u64, Trouble> {
        let mut insert =
            to.prepare("INSERT INTO records (seq, record, hash, salt, body) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let (mut bytes, mut count) = (0_usize, 0);
        archive.visit(extent, |row| {
            if self.load.closing.load(Ordering::SeqCst) {
                return Err(Trouble::Closed);
            }
            bytes += row_bytes(row.text, row.body);
            count += 1;
            insert.execute(params![row.seq, row.text, row.hash, row.salt, row.body])?;
            Ok(())
        })?;
        if count != extent.1 - extent.0 + 1 {
            return Err(Trouble::Damaged("records that should be sealed are missing".to_owned()));
        }
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Removes the rows that are in a segment from the live database, some at a time.
    pub(super) fn remove_sealed_rows(&self) -> Result<(), Trouble> {
        let reader = self.reader()?;
        let end: Option<i64> = reader.query_row("SELECT max(last) FROM segments", [], |row| row.get(0))?;
        let Some(end) = end else { return Ok(()) };
        loop {
            let rows: Vec<(i64, i64)> = reader
                .prepare_cached(
                    "SELECT seq, ifnull(length(body), 0) FROM records WHERE seq <= ?1 ORDER BY seq LIMIT ?2",
                )?
                .query_map([end, ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            let Some(&(first, _)) = rows.first() else { return Ok(()) };
            let running = rows.iter().scan(0, |bytes, &(seq, length)| {
                let before = *bytes;
                *bytes += length;
                (before < BYTES).then_some(seq)
            });
            let last = running.last().unwrap_or(first);
            self.ask(move |writer| {
                writer.tidy(|connection| {
                    let mut delete = connection.prepare_cached("DELETE FROM records WHERE seq >= ?1 AND seq <= ?2")?;
                    delete.execute([first, last]).map(drop)
                })
            })?;
        }
    }

    /// Drops the oldest segments until all that is kept is within its bound.
    fn drop_oldest(&self) -> Result<u64, Trouble> {
        let mut dropped = 0;
        loop {
            let archive = Archive::open(&self.directory)?;
            let sizes = archive.segments().iter().map(|segment| {
                fs::metadata(segment_path(&self.directory, segment.first, segment.last)).map_or(0, |file| file.len())
            });
            let total = sizes.sum::<u64>() + self.load.live.load(Ordering::SeqCst);
            let Some(oldest) = archive.segments().first().filter(|_| total > self.keeping.rotation.keep_bytes) else {
                break;
            };
            let (first, last, note) = (oldest.first, oldest.last, oldest.note.clone());
            let tiles = Tiles(archive.live());
            let prev = tiles.leaf(last).ok().flatten().ok_or_else(|| lost(last))?;
            let roots: Vec<Sha256Digest> = tiles.tree(last + 1)?.range().roots().collect();
            drop(archive);
            self.ask(move |writer| {
                let body = json!({ "first": first, "last": last, "prev": prev, "checkpoint": note, "range": roots });
                writer.keep(RecordKind::JournalDropped, &body, |connection| {
                    connection.execute("DELETE FROM segments WHERE first = ?1", [number(first)])?;
                    connection.execute("DELETE FROM erasures WHERE last <= ?1", [number(last)])?;
                    connection
                        .execute(
                            "INSERT OR REPLACE INTO dropped (only, size, prev, note) VALUES (0, ?1, ?2, ?3)",
                            params![number(last + 1), prev.as_bytes(), note],
                        )
                        .map(drop)
                })
            })?;
            remove(&segment_path(&self.directory, first, last))?;
            dropped += last - first + 1;
        }
        if dropped > 0 {
            sync(&self.directory.join(SEGMENTS_DIRECTORY)).map_err(disk)?;
            self.clear_dropped_tiles()?;
        }
        Ok(dropped)
    }

    /// Clears the bottom tiles over dropped records, some at a time. Their roots stay.
    pub(super) fn clear_dropped_tiles(&self) -> Result<(), Trouble> {
        let reader = self.reader()?;
        let size: Option<i64> =
            reader.query_row("SELECT size FROM dropped WHERE only = 0", [], |row| row.get(0)).optional()?;
        let Some(end) = size.map(|size| place(0, size.unsigned_abs() >> TILE_HEIGHT)) else { return Ok(()) };
        let sql = "SELECT max(place) FROM (SELECT place FROM tiles WHERE place < ?1 AND length(hashes) > 0 ORDER BY place LIMIT ?2)";
        loop {
            let last: Option<i64> = reader.query_row(sql, params![end, TILES], |row| row.get(0))?;
            let Some(last) = last else { return Ok(()) };
            self.ask(move |writer| {
                writer.tidy(|connection| {
                    let sql = "UPDATE tiles SET hashes = x'' WHERE place <= ?1 AND length(hashes) > 0";
                    connection.prepare_cached(sql)?.execute([last]).map(drop)
                })
            })?;
        }
    }

    /// Removes files among the segments that the journal does not name: a crash left them.
    pub(super) fn remove_strangers(&self) -> Result<(), Trouble> {
        let directory = self.directory.join(SEGMENTS_DIRECTORY);
        let Ok(files) = fs::read_dir(&directory) else { return Ok(()) };
        let mut known = HashSet::new();
        for segment in Archive::open(&self.directory)?.segments() {
            let path = segment_path(&self.directory, segment.first, segment.last);
            let name = path.file_name().unwrap_or_default().to_owned();
            let mut journal = name.clone();
            journal.push("-journal");
            known.extend([name, journal]);
        }
        for file in files {
            let file = file.map_err(disk)?;
            if !known.contains(&file.file_name()) {
                remove(&file.path())?;
            }
        }
        Ok(())
    }

    /// Removes the state of what ended before the live records begin, some rows at a time. What ended lately stays, for whoever asks again.
    pub(super) fn prune(&self, now: Timestamp) -> Result<(), Trouble> {
        let reader = self.reader()?;
        let sealed: Option<i64> = reader.query_row("SELECT max(last) FROM segments", [], |row| row.get(0))?;
        let Some(sealed) = sealed else { return Ok(()) };
        let long_ago = id_at(before(now, LATELY));
        for prune in PRUNES {
            let limit = if prune.table == "runs" { id_at(before(now, LONG)) } else { long_ago.clone() };
            loop {
                let sql = format!(
                    "SELECT {id} FROM {table} WHERE {id} < ?1 AND {over} AND ?2 >= 0 LIMIT {ROWS}",
                    id = prune.id,
                    table = prune.table,
                    over = prune.over
                );
                let ids: Vec<String> = reader
                    .prepare(&sql)?
                    .query_map(params![limit, sealed], |row| row.get(0))?
                    .collect::<Result<_, _>>()?;
                if ids.is_empty() {
                    break;
                }
                let sql = format!("DELETE FROM {} WHERE {} = ?1 AND {}", prune.table, prune.id, prune.still);
                self.ask(move |writer| {
                    writer.tidy(|connection| {
                        let mut delete = connection.prepare_cached(&sql)?;
                        ids.iter().try_for_each(|id| delete.execute([id]).map(drop))
                    })
                })?;
            }
        }
        Ok(())
    }

    /// Removes the keys of calls whose time is over, some at a time.
    pub(super) fn forget_keys(&self, now: Timestamp) -> Result<(), Trouble> {
        let (reader, over) = (self.reader()?, before(now, KEY_LIFE).unix_millis());
        let sql = "SELECT principal, key FROM call_keys WHERE time <= ?1 LIMIT ?2";
        loop {
            let keys: Vec<(String, String)> = reader
                .prepare_cached(sql)?
                .query_map([over, ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            if keys.is_empty() {
                return Ok(());
            }
            self.ask(move |writer| {
                writer.tidy(|connection| {
                    // One that was taken anew meanwhile stays.
                    let sql = "DELETE FROM call_keys WHERE principal = ?1 AND key = ?2 AND time <= ?3";
                    let mut delete = connection.prepare_cached(sql)?;
                    keys.iter().try_for_each(|(owner, key)| delete.execute(params![owner, key, over]).map(drop))
                })
            })?;
        }
    }
}

/// How rows of a table are pruned.
struct Prune {
    table: &'static str,
    id: &'static str,
    /// Which rows are over; `?2` is the last sealed record. Looked for beside the writer.
    over: &'static str,
    /// What must hold still when the row is deleted.
    still: &'static str,
}

const PRUNES: &[Prune] = &[
    Prune { table: "calls", id: "call", over: "state = 'ended' AND last_seq <= ?2", still: "state = 'ended'" },
    Prune {
        table: "grants",
        id: "id",
        over: "ended = 1 AND NOT EXISTS (SELECT 1 FROM calls JOIN approvals ON calls.call = approvals.call WHERE approvals.id = grants.id)",
        still: "ended = 1",
    },
    Prune {
        table: "approvals",
        id: "id",
        over: "state NOT IN ('pending', 'approved') AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.call = approvals.call) \
               AND NOT EXISTS (SELECT 1 FROM grants WHERE grants.id = approvals.id)",
        still: "state NOT IN ('pending', 'approved')",
    },
    Prune {
        table: "runs",
        id: "run",
        over: "run NOT IN (SELECT run FROM calls)",
        still: "NOT EXISTS (SELECT 1 FROM calls WHERE state <> 'ended' AND calls.run = runs.run)",
    },
];

/// The bytes that a record counts for.
pub(super) fn row_bytes(text: &str, body: Option<&str>) -> usize {
    text.len() + body.map_or(0, str::len) + 100
}

/// The smallest id that could be made at this time.
pub(super) fn id_at(time: Timestamp) -> String {
    CallId::from_parts(Timestamp::from_unix_millis(time.unix_millis().max(0)), 0).to_string()
}

fn before(now: Timestamp, ago: i64) -> Timestamp {
    Timestamp::from_unix_millis(now.unix_millis().saturating_sub(ago))
}

fn remove(path: &Path) -> Result<(), Trouble> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk(error)),
        _ => Ok(()),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn lost(seq: u64) -> Trouble {
    Trouble::Damaged(format!("the hash of record {seq} in {DATABASE_FILE} is missing"))
}

/// What ended within the last two days is kept: a caller may still ask what became of it.
const LATELY: i64 = 2 * DAY;

/// Runs have no end of their own. One that nothing ran in, and that was opened a month ago, is over.
const LONG: i64 = 30 * DAY;

/// How many rows are removed in one transaction: some milliseconds of the writer's time.
const ROWS: i64 = 256;

/// How many bytes of bodies are removed in one transaction, about.
const BYTES: i64 = 1 << 20;

/// How many tiles are cleared in one transaction.
const TILES: i64 = 64;
