//! Erases bodies: in the live database, in sealed segments, and in the state that tells the same again.
//!
//! Guarantees: the record that names what is erased is durable before anything is missing; afterwards the bytes are in no file of the
//! journal: they are overwritten, the freed space is cleared, and the write-ahead log is emptied.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use palyra_types::{Timestamp, id::CallId};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::{
    apply::number,
    archive::{Archive, segment_path},
    keeper::Keeper,
    schema::{open_segment_for_erasing, work_log_in},
    seal::id_at,
};
use crate::{
    keep::{Erased, Selection},
    ranges::Ranges,
    record::{Record, RecordKind},
    state::CallState,
    trouble::Trouble,
};

/// Bodies that are erased in one transaction.
#[derive(Default)]
struct Chunk {
    live: Ranges,
    sealed: Ranges,
    calls: BTreeSet<CallId>,
    bodies: usize,
    bytes: usize,
    left: u64,
    /// Where to go on, if there may be more.
    next: Option<u64>,
    /// The first record that was looked at and is not old enough.
    young: Option<u64>,
}

/// What a pass looks for.
#[derive(Clone, Copy)]
struct Search {
    selection: Selection,
    last: u64,
    /// Stop after this many records in a row that are not old enough.
    patience: u64,
}

impl Keeper {
    /// Erases what is selected.
    pub(super) fn erase(&mut self, selection: Selection, reason: &str) -> Result<Erased, Trouble> {
        let (first, last) = match selection {
            Selection::Records { first, last } => (first, last),
            Selection::Call(call) => self.extent_of(call)?,
            Selection::Before(_) => (0, u64::MAX),
        };
        let (erased, _) = self.erase_where(first, Search { selection, last, patience: u64::MAX }, reason)?;
        Ok(erased)
    }

    /// Erases what is older than bodies are kept.
    pub(super) fn erase_aged(&mut self, now: Timestamp) -> Result<Erased, Trouble> {
        let Some(before) = self.keeping.retention.erase_before(now) else { return Ok(Erased::default()) };
        // The wall clock may have jumped, so one young record does not end the search; thousands in a row do.
        let search = Search { selection: Selection::Before(before), last: u64::MAX, patience: 4_096 };
        let (erased, young) = self.erase_where(self.aged, search, "retention")?;
        self.aged = young.unwrap_or(self.aged);
        self.erase_aged_documents(before)?;
        Ok(erased)
    }

    /// Erases the documents of what is over and was begun before a time: a call or a grant may end after its records were erased.
    fn erase_aged_documents(&mut self, before: Timestamp) -> Result<(), Trouble> {
        let (reader, before) = (self.reader()?, id_at(before));
        for over in OVER {
            let sql = format!(
                "SELECT {id} FROM {table} WHERE {id} < ?1 AND document <> '' AND {over} LIMIT {CHUNK}",
                id = over.id,
                table = over.table,
                over = over.condition
            );
            loop {
                let ids: Vec<String> =
                    reader.prepare_cached(&sql)?.query_map([&before], |row| row.get(0))?.collect::<Result<_, _>>()?;
                if ids.is_empty() {
                    break;
                }
                self.log_to_empty = true;
                let which = format!("{} = ?1 AND {}", over.id, over.condition);
                self.ask(move |writer| {
                    writer.tidy(|connection| {
                        ids.iter().try_for_each(|id| erase_documents_where(connection, over.table, &which, id))
                    })
                })?;
            }
        }
        let _ = self.empty_log();
        Ok(())
    }

    fn erase_where(&mut self, first: u64, search: Search, reason: &str) -> Result<(Erased, Option<u64>), Trouble> {
        let (mut erased, mut young) = (Erased::default(), None);
        let mut next = Some(first);
        while let Some(from) = next {
            let chunk = self.find(from, search)?;
            erased.bodies += u64::try_from(chunk.bodies).unwrap_or(u64::MAX);
            erased.left += chunk.left;
            young = young.or(chunk.young);
            next = chunk.next;
            if chunk.bodies > 0 {
                // From here on the log may hold what is erased, whatever comes of it.
                self.log_to_empty = true;
                self.announce(chunk, reason.to_owned())?;
                self.finish_erasures()?;
            }
        }
        erased.in_log = self.empty_log().is_err();
        Ok((erased, young))
    }

    /// The records that may be about a call.
    fn extent_of(&self, call: CallId) -> Result<(u64, u64), Trouble> {
        let sql = "SELECT first_seq FROM calls WHERE call = ?1";
        let first: Option<i64> = self.reader()?.query_row(sql, [call.to_string()], |row| row.get(0)).optional()?;
        Ok((first.map_or(0, i64::unsigned_abs), u64::MAX))
    }

    /// Looks for the next bodies to erase.
    fn find(&self, from: u64, search: Search) -> Result<Chunk, Trouble> {
        let archive = Archive::open(&self.directory)?;
        let live_from = archive.live_from();
        let (mut chunk, mut young_in_a_row) = (Chunk::default(), 0);
        let found = archive.visit((from, search.last), |row| {
            let record = Record::parse(row.text).map_err(|error| Enough::Trouble(damaged(row.seq, error)))?;
            let is_full = chunk.bodies == CHUNK || chunk.bytes > CHUNK_BYTES;
            if is_full || young_in_a_row == search.patience {
                chunk.next = is_full.then_some(record.seq);
                return Err(Enough::Reached);
            }
            let wanted = match search.selection {
                Selection::Records { .. } => true,
                Selection::Call(call) => record.subject().call == Some(call),
                Selection::Before(time) => record.time() < time,
            };
            if !wanted {
                young_in_a_row += 1;
                chunk.young = chunk.young.or(Some(record.seq));
                return Ok(());
            }
            young_in_a_row = 0;
            let Some(body) = row.body.filter(|_| !record.kind.is_about_the_journal()) else { return Ok(()) };
            if !is_over(archive.live(), &record)? {
                chunk.left += 1;
                chunk.young = chunk.young.or(Some(record.seq));
                return Ok(());
            }
            let place = if record.seq < live_from { &mut chunk.sealed } else { &mut chunk.live };
            place.insert(record.seq, record.seq);
            chunk.calls.extend(record.subject().call);
            chunk.bodies += 1;
            chunk.bytes += body.len();
            Ok(())
        });
        match found {
            Ok(()) | Err(Enough::Reached) => Ok(chunk),
            Err(Enough::Trouble(trouble)) => Err(trouble),
        }
    }

    /// Writes the record that tells of an erasure, and erases what is in the live database with it.
    fn announce(&self, chunk: Chunk, reason: String) -> Result<(), Trouble> {
        self.ask(move |writer| {
            let mut all = chunk.live.clone();
            chunk.sealed.iter().for_each(|(first, last)| all.insert(first, last));
            let body = json!({ "records": all, "reason": reason });
            writer.keep(RecordKind::JournalErased, &body, |connection| {
                // A sealed record may be in the live database still.
                for (first, last) in all.iter() {
                    erase_rows(connection, first, last)?;
                }
                for (first, last) in chunk.sealed.iter() {
                    connection
                        .prepare_cached("INSERT OR REPLACE INTO erasures (first, last) VALUES (?1, ?2)")?
                        .execute(params![number(first), number(last)])?;
                }
                chunk.calls.iter().try_for_each(|call| erase_documents(connection, &call.to_string()))
            })
        })
    }

    /// Erases in the segments what was announced.
    pub(super) fn finish_erasures(&self) -> Result<(), Trouble> {
        let reader = self.reader()?;
        let mut select = reader.prepare("SELECT first, last FROM erasures ORDER BY first")?;
        let announced: Vec<(i64, i64)> =
            select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        if announced.is_empty() {
            return Ok(());
        }
        let mut select = reader.prepare("SELECT first, last FROM segments ORDER BY first")?;
        let segments: Vec<(i64, i64)> =
            select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        for (first, last) in segments {
            let here: Vec<_> = announced.iter().filter(|range| range.0 <= last && range.1 >= first).collect();
            if here.is_empty() {
                continue;
            }
            let path = segment_path(&self.directory, first.unsigned_abs(), last.unsigned_abs());
            let mut segment = open_segment_for_erasing(&path)?;
            let transaction = segment.transaction()?;
            for range in here {
                erase_rows(&transaction, range.0.max(first).unsigned_abs(), range.1.min(last).unsigned_abs())?;
            }
            transaction.commit()?;
        }
        self.ask(move |writer| {
            writer.tidy(|connection| {
                let mut delete = connection.prepare_cached("DELETE FROM erasures WHERE first = ?1 AND last = ?2")?;
                announced.iter().try_for_each(|&(first, last)| delete.execute([first, last]).map(drop))
            })
        })
    }

    /// Works the write-ahead log into the database and empties it, so that nothing of what was erased is left in it.
    pub(super) fn empty_log(&mut self) -> Result<(), Trouble> {
        if !self.log_to_empty {
            return Ok(());
        }
        let connection = self.log()?;
        for _ in 0..LOG_ATTEMPTS {
            // The first does the work beside the writer. The second waits for a moment without readers, and the writer with it, so it does
            // not wait for long.
            work_log_in(&connection)?;
            let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
            self.log_to_empty = busy != 0;
            if busy == 0 {
                return Ok(());
            }
            if self.load.closing.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(LOG_PAUSE);
        }
        Err(Trouble::Disk("somebody reads the write-ahead log".to_owned()))
    }
}

/// Whether the call of a record is over. A call that is not kept any more is.
fn is_over(connection: &Connection, record: &Record) -> rusqlite::Result<bool> {
    let Some(call) = record.subject().call else { return Ok(true) };
    let mut select = connection.prepare_cached("SELECT state FROM calls WHERE call = ?1")?;
    let state: Option<String> = select.query_row([call.to_string()], |row| row.get(0)).optional()?;
    Ok(state.is_none_or(|state| state == CallState::Ended.as_str()))
}

/// Overwrites bodies and salts before they are removed: what a page keeps of a row that moved is zeros then.
fn erase_rows(connection: &Connection, first: u64, last: u64) -> rusqlite::Result<()> {
    for sql in [
        "UPDATE records SET salt = zeroblob(length(salt)), \
         body = substr(hex(zeroblob(length(CAST(body AS BLOB)))), 1, length(CAST(body AS BLOB))) \
         WHERE seq >= ?1 AND seq <= ?2 AND body IS NOT NULL",
        "UPDATE records SET salt = NULL, body = NULL WHERE seq >= ?1 AND seq <= ?2 AND body IS NOT NULL",
    ] {
        connection.prepare_cached(sql)?.execute([number(first), number(last)])?;
    }
    Ok(())
}

/// Erases what the state tells again of a call that is over.
fn erase_documents(connection: &Connection, call: &str) -> rusqlite::Result<()> {
    for over in OVER {
        let which = match over.table {
            "grants" => format!("id IN (SELECT id FROM approvals WHERE call = ?1) AND {}", over.condition),
            _ => format!("call = ?1 AND {}", over.condition),
        };
        erase_documents_where(connection, over.table, &which, call)?;
    }
    Ok(())
}

/// Overwrites documents before they are removed.
fn erase_documents_where(connection: &Connection, table: &str, which: &str, id: &str) -> rusqlite::Result<()> {
    for value in ["substr(hex(zeroblob(length(CAST(document AS BLOB)))), 1, length(CAST(document AS BLOB)))", "''"] {
        connection.prepare_cached(&format!("UPDATE {table} SET document = {value} WHERE {which}"))?.execute([id])?;
    }
    Ok(())
}

/// When a row with a document is over.
struct Over {
    table: &'static str,
    id: &'static str,
    condition: &'static str,
}

const OVER: [Over; 3] = [
    Over { table: "calls", id: "call", condition: "state = 'ended'" },
    Over { table: "grants", id: "id", condition: "ended = 1" },
    Over { table: "approvals", id: "id", condition: "state NOT IN ('pending', 'approved')" },
];

/// What ends a search before its end.
enum Enough {
    Reached,
    Trouble(Trouble),
}

impl From<rusqlite::Error> for Enough {
    fn from(error: rusqlite::Error) -> Self {
        Self::Trouble(error.into())
    }
}

fn damaged(seq: i64, error: crate::record::RecordError) -> Trouble {
    Trouble::Damaged(format!("record {seq}: {error}"))
}

/// How many bodies are erased in one transaction: some milliseconds of the writer's time.
const CHUNK: usize = 256;

/// How many bytes of bodies are erased in one transaction, about.
const CHUNK_BYTES: usize = 1 << 20;

/// How often emptying the log is tried, and how long after each other. After that it waits for the next occasion.
const LOG_ATTEMPTS: u32 = 20;
const LOG_PAUSE: Duration = Duration::from_millis(100);
