//! What was said in a run, and responses that a later request can continue.
//!
//! Guarantees: the messages of a run are numbered from 0 without gaps, in the order in which they were appended; a run belongs to one session
//! and one principal; what is too long is cut and marked, never dropped in silence; a response is its owner's for 30 days at most, and the
//! store holds a bounded number of them. Where there is too much, the oldest goes of whoever holds most.
//! Does not: decide who may read. [`RunSummary::principal`] and [`Response::principal`] are what a caller compares.

mod cut;
mod error;
mod message;
mod responses;
mod sessions;

use std::{path::Path, sync::Arc};

use palyra_types::{
    Clock, Timestamp,
    id::{RunId, SessionId},
};
use rusqlite::{Row, Transaction, params};

pub use self::{
    error::TranscriptError,
    message::{Line, Message, NewMessage, Role, RunOf, RunSummary},
    responses::{MOST_RESPONSE_BYTES, MOST_RESPONSES, MOST_RESPONSES_BYTES, NewResponse, RESPONSE_LIFETIME, Response},
    sessions::{DueRuns, SessionSummary},
};
use crate::{
    database::{Database, Purpose, count, number},
    directory::private_directory,
    error::StoreError,
    page::{Page, bounded},
};

/// Most bytes of the content of one message, as JSON. What is longer is cut.
pub const MOST_MESSAGE_BYTES: usize = 1 << 20;
/// Most bytes of the messages of one run. The last is cut to what is left; then the run takes no more.
pub const MOST_RUN_BYTES: u64 = 32 << 20;

/// Every transcript, in `transcripts.sqlite`.
pub struct TranscriptStore {
    database: Database,
    clock: Arc<dyn Clock>,
}

impl TranscriptStore {
    /// Opens the transcripts in a directory; both are made if they are not there.
    ///
    /// # Errors
    /// When they cannot be opened, or are something else.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>) -> Result<Self, TranscriptError> {
        private_directory(directory)?;
        let database = Database::open(&directory.join("transcripts.sqlite"), &PURPOSE)?;
        Ok(Self { database, clock })
    }

    /// Appends a message to a run, which begins with its first.
    ///
    /// # Errors
    /// When the run is another's or is full, or the file cannot be written.
    pub fn append(&self, of: &RunOf, new: &NewMessage) -> Result<Message, TranscriptError> {
        let time = self.clock.now();
        self.database.write(|transaction| append(transaction, of, new, time))
    }

    /// Appends messages to runs, all with one write. Says which were not taken, and why: the others are there.
    ///
    /// # Errors
    /// When the file cannot be written. Then none is there.
    pub fn append_all(&self, lines: &[Line]) -> Result<Vec<(usize, TranscriptError)>, StoreError> {
        let time = self.clock.now();
        self.database.write(|transaction| {
            let mut refused = Vec::new();
            for (index, Line { of, new }) in lines.iter().enumerate() {
                match append(transaction, of, new, time) {
                    Ok(_) => {}
                    Err(TranscriptError::Store(error)) => return Err(error),
                    Err(other) => refused.push((index, other)),
                }
            }
            Ok(refused)
        })
    }

    /// The messages of a run behind a number, in order. A page ends early where its messages are long.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self, run: RunId, after: Option<u64>, limit: usize) -> Result<Page<Message, u64>, TranscriptError> {
        let limit = bounded(limit);
        self.database.read(|transaction| {
            let sql = "SELECT * FROM message WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
            let mut statement = transaction.prepare_cached(sql).map_err(StoreError::from)?;
            let after = after.map_or(-1, number);
            let found = statement.query(params![run.to_string(), after, number(count(limit + 1))]);
            let mut rows = found.map_err(StoreError::from)?;
            let (mut messages, mut bytes) = (Vec::new(), 0_usize);
            while let Some(row) = rows.next().map_err(StoreError::from)? {
                let text =
                    row.get_ref("content").and_then(|content| Ok(content.as_str()?)).map_err(StoreError::from)?;
                bytes = bytes.saturating_add(text.len());
                // The first that is too much tells that there is more, and is left out.
                let is_too_much = bytes > MOST_PAGE_BYTES && !messages.is_empty();
                messages.push(message::read(row, text)?);
                if is_too_much {
                    let fitting = messages.len() - 1;
                    return Ok(Page::of(messages, fitting, |last: &Message| last.seq));
                }
            }
            Ok(Page::of(messages, limit, |last| last.seq))
        })
    }

    /// The runs of a session behind one, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn runs(
        &self,
        session: SessionId,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunSummary, RunId>, TranscriptError> {
        let limit = bounded(limit);
        let runs = self.database.read(|transaction| {
            let sql = "SELECT * FROM run WHERE session = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
            let mut statement = transaction.prepare_cached(sql)?;
            let after = after.map(|id| id.to_string()).unwrap_or_default();
            let mut rows = statement.query(params![session.to_string(), after, number(count(limit + 1))])?;
            let mut runs = Vec::new();
            while let Some(row) = rows.next()? {
                runs.push(read_summary(row)?);
            }
            Ok::<_, StoreError>(runs)
        })?;
        Ok(Page::of(runs, limit, |last| last.run))
    }

    /// What is known of a run.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn run(&self, run: RunId) -> Result<Option<RunSummary>, TranscriptError> {
        self.database.read(|transaction| Ok(summary(transaction, run)?))
    }
}

impl std::fmt::Debug for TranscriptStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TranscriptStore").finish_non_exhaustive()
    }
}

fn summary(transaction: &Transaction<'_>, run: RunId) -> Result<Option<RunSummary>, StoreError> {
    let mut statement = transaction.prepare_cached("SELECT * FROM run WHERE id = ?1")?;
    let mut rows = statement.query([run.to_string()])?;
    rows.next()?.map(read_summary).transpose()
}

fn read_summary(row: &Row<'_>) -> Result<RunSummary, StoreError> {
    let number = |name: &str| row.get::<_, i64>(name);
    Ok(RunSummary {
        run: RunId::parse(&row.get::<_, String>("id")?).map_err(damaged)?,
        session: SessionId::parse(&row.get::<_, String>("session")?).map_err(damaged)?,
        principal: row.get("principal")?,
        model: row.get("model")?,
        messages: number("messages")?.unsigned_abs(),
        bytes: number("bytes")?.unsigned_abs(),
        first: Timestamp::from_unix_millis(number("first")?),
        last: Timestamp::from_unix_millis(number("last")?),
    })
}

fn append(
    transaction: &Transaction<'_>,
    of: &RunOf,
    new: &NewMessage,
    time: Timestamp,
) -> Result<Message, TranscriptError> {
    of.check()?;
    new.check()?;
    let before = summary(transaction, of.run)?;
    if before.as_ref().is_some_and(|known| known.session != of.session || known.principal != of.principal) {
        return Err(TranscriptError::OtherSession(of.run));
    }
    let (seq, used) = before.map_or((0, 0), |known| (known.messages, known.bytes));
    let room = MOST_RUN_BYTES.saturating_sub(used).saturating_sub(OVERHEAD);
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(MOST_MESSAGE_BYTES);
    if room < LEAST_ROOM {
        return Err(TranscriptError::Full(of.run));
    }
    let (content, text, cut) = cut::to_fit(&new.content, room);
    let message = new.message(seq, time, content, cut);
    insert(transaction, of, &message, &text)?;
    Ok(message)
}

fn insert(transaction: &Transaction<'_>, of: &RunOf, message: &Message, text: &str) -> Result<(), StoreError> {
    let (run, time) = (of.run.to_string(), message.time.unix_millis());
    let bytes = number(count(text.len()).saturating_add(OVERHEAD));
    transaction
        .prepare_cached(
            "INSERT INTO run (id, session, principal, model, messages, bytes, first, last)
             VALUES (?1, ?2, ?5, ?6, 1, ?3, ?4, ?4)
             ON CONFLICT (id) DO UPDATE SET messages = messages + 1, bytes = bytes + ?3, last = max(last, ?4)",
        )?
        .execute(params![run, of.session.to_string(), bytes, time, of.principal, of.model])?;
    transaction
        .prepare_cached(
            "INSERT INTO message (run, seq, time, role, name, call_id, content, cut) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            run,
            number(message.seq),
            time,
            message.role.as_str(),
            message.name,
            message.call_id,
            text,
            message.cut
        ])?;
    Ok(())
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { what: "store of transcripts", why: why.to_string() }
}

/// What a message counts besides its content, so that a run has a bounded number of them.
const OVERHEAD: u64 = 256;
/// The least room for a message; a run that has less takes no more.
const LEAST_ROOM: usize = 1024;
/// Where a page ends early.
const MOST_PAGE_BYTES: usize = 8 << 20;

const PURPOSE: Purpose = Purpose {
    what: "store of transcripts",
    // `Pltr`.
    application: 0x506c_7472,
    migrations: &[
        "
        CREATE TABLE run (
            id TEXT PRIMARY KEY,
            session TEXT NOT NULL,
            principal TEXT NOT NULL,
            model TEXT NOT NULL,
            messages INTEGER NOT NULL CHECK (messages >= 0),
            bytes INTEGER NOT NULL CHECK (bytes >= 0),
            first INTEGER NOT NULL,
            last INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX run_of_session ON run (session, id);
        CREATE INDEX run_of_principal ON run (principal, session);
        CREATE INDEX run_last ON run (last, bytes);
        CREATE TABLE message (
            run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            time INTEGER NOT NULL,
            role TEXT NOT NULL,
            name TEXT,
            call_id TEXT,
            content TEXT NOT NULL,
            cut INTEGER NOT NULL,
            UNIQUE (run, seq)
        ) STRICT;
        CREATE TABLE response (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            session TEXT NOT NULL,
            principal TEXT NOT NULL,
            conversation TEXT NOT NULL,
            created INTEGER NOT NULL,
            expires INTEGER NOT NULL,
            bytes INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX response_size ON response (number, bytes);
        CREATE INDEX response_of_session ON response (session);
        CREATE INDEX response_expires ON response (expires);
    ",
        "
        CREATE INDEX response_of_principal ON response (principal, number, bytes);
    ",
    ],
};

#[cfg(test)]
mod tests;
