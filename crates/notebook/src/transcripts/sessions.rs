//! Sessions: the runs that belong together, and how they are forgotten.

use palyra_types::{Timestamp, id::SessionId};
use rusqlite::{Row, Transaction, params};
use serde::Serialize;

use super::{TranscriptStore, damaged, error::TranscriptError, responses};
use crate::{
    database::{count, number},
    error::StoreError,
    page::{Page, bounded},
};

/// What is known of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionSummary {
    /// Which.
    pub session: SessionId,
    /// Whose it is.
    pub principal: String,
    /// How many runs it has.
    pub runs: u64,
    /// How many messages these have.
    pub messages: u64,
    /// The bytes of these.
    pub bytes: u64,
    /// When the first message was kept.
    pub first: Timestamp,
    /// When the last was.
    pub last: Timestamp,
}

/// What is about to be forgotten of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DueRuns {
    /// Which.
    pub session: SessionId,
    /// Whose it is.
    pub principal: String,
    /// How many of its runs.
    pub runs: u64,
}

impl TranscriptStore {
    /// Sessions that began before one, newest first: those of a principal, or all.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn sessions(
        &self,
        principal: Option<&str>,
        before: Option<SessionId>,
        limit: usize,
    ) -> Result<Page<SessionSummary, SessionId>, TranscriptError> {
        let limit = bounded(limit);
        // No id is above this, because ids are digits and capital letters.
        let before = before.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let sessions = self.database.read(|transaction| {
            let whose = if principal.is_some() { "principal = ?1" } else { "?1 IS NULL" };
            let sql = format!(
                "SELECT {SUMMARY} FROM run WHERE {whose} AND session < ?2
                 GROUP BY session, principal ORDER BY session DESC LIMIT ?3"
            );
            let mut statement = transaction.prepare_cached(&sql)?;
            let mut rows = statement.query(params![principal, before, number(count(limit + 1))])?;
            let mut sessions = Vec::new();
            while let Some(row) = rows.next()? {
                sessions.push(read(row)?);
            }
            Ok::<_, StoreError>(sessions)
        })?;
        Ok(Page::of(sessions, limit, |last| last.session))
    }

    /// What is known of a session.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn session(&self, session: SessionId) -> Result<Option<SessionSummary>, TranscriptError> {
        self.database.read(|transaction| {
            let sql = format!("SELECT {SUMMARY} FROM run WHERE session = ?1 GROUP BY session, principal");
            let mut statement = transaction.prepare_cached(&sql).map_err(StoreError::from)?;
            let mut rows = statement.query([session.to_string()]).map_err(StoreError::from)?;
            Ok(rows.next().map_err(StoreError::from)?.map(read).transpose()?)
        })
    }

    /// Forgets a session: its runs, what was said in them, and its responses. Says how many runs there were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forget_session(&self, session: SessionId) -> Result<u64, TranscriptError> {
        let gone = self.database.write(|transaction| {
            let session = session.to_string();
            let responses = transaction.execute("DELETE FROM response WHERE session = ?1", [&session])?;
            let runs = transaction.execute("DELETE FROM run WHERE session = ?1", [&session])?;
            Ok::<_, StoreError>((runs, responses))
        })?;
        self.given_back(gone)
    }

    /// What [`Self::forget_before`] would forget now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn due_before(&self, time: Timestamp) -> Result<Vec<DueRuns>, TranscriptError> {
        self.database.read(|transaction| Ok(due(transaction, "last < ?1", time.unix_millis())?))
    }

    /// Forgets the runs in which nothing was said since a time, and responses that are as old or past their own time. Says how many runs
    /// there were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forget_before(&self, time: Timestamp) -> Result<u64, TranscriptError> {
        let now = self.clock.now();
        let gone = self.database.write(|transaction| {
            let mut responses = responses::drop_expired(transaction, now)?;
            responses += transaction.execute("DELETE FROM response WHERE created < ?1", [time.unix_millis()])?;
            let runs = transaction.execute("DELETE FROM run WHERE last < ?1", [time.unix_millis()])?;
            Ok::<_, StoreError>((runs, responses))
        })?;
        self.given_back(gone)
    }

    /// What [`Self::forget_beyond`] would forget now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn due_beyond(&self, bytes: u64) -> Result<Vec<DueRuns>, TranscriptError> {
        self.database.read(|transaction| match share(transaction, bytes)? {
            Some(share) => Ok(due(transaction, BEYOND_SHARE, number(share))?),
            None => Ok(Vec::new()),
        })
    }

    /// Forgets runs until the others have no more bytes than this: of whoever holds most, and of theirs those in which nothing was said for
    /// longest. Whoever holds no more than their share of it loses nothing, however much others say. Says how many there were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forget_beyond(&self, bytes: u64) -> Result<u64, TranscriptError> {
        let gone = self.database.write(|transaction| {
            let Some(share) = share(transaction, bytes)? else { return Ok::<_, StoreError>((0, 0)) };
            let sql = format!("DELETE FROM run WHERE {BEYOND_SHARE}");
            Ok((transaction.execute(&sql, [number(share)])?, 0))
        })?;
        self.given_back(gone)
    }

    fn given_back(&self, (runs, responses): (usize, usize)) -> Result<u64, TranscriptError> {
        if (runs, responses) != (0, 0) {
            self.database.give_back()?;
        }
        Ok(count(runs))
    }
}

/// The runs that meet a condition, by their sessions.
fn due(transaction: &Transaction<'_>, condition: &str, value: i64) -> Result<Vec<DueRuns>, StoreError> {
    let sql = format!(
        "SELECT session, principal, count(*) FROM run WHERE {condition} GROUP BY session, principal ORDER BY session"
    );
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query([value])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push(DueRuns {
            session: SessionId::parse(&row.get::<_, String>(0)?).map_err(damaged)?,
            principal: row.get(1)?,
            runs: row.get::<_, i64>(2)?.unsigned_abs(),
        });
    }
    Ok(due)
}

/// How many bytes each principal may hold so that all together hold no more than this; none if they do not anyway. What somebody holds less
/// is there for the others.
fn share(transaction: &Transaction<'_>, bytes: u64) -> Result<Option<u64>, StoreError> {
    let mut statement =
        transaction.prepare_cached("SELECT sum(bytes) AS held FROM run GROUP BY principal ORDER BY held")?;
    let held = statement.query_map([], |row| row.get::<_, i64>(0))?.collect::<Result<Vec<_>, _>>()?;
    let (mut left, mut others) = (bytes, count(held.len()));
    for held in held.into_iter().map(i64::unsigned_abs) {
        let share = left / others.max(1);
        if held > share {
            return Ok(Some(share));
        }
        left -= held;
        others -= 1;
    }
    Ok(None)
}

/// What of somebody is beyond their share. What they said last stays: everything behind which there is more goes.
const BEYOND_SHARE: &str = "id IN (SELECT id FROM (
        SELECT id, sum(bytes) OVER (PARTITION BY principal ORDER BY last DESC, id DESC) AS held FROM run
    ) WHERE held > ?1)";

const SUMMARY: &str = "session, principal, count(*) AS runs, sum(messages) AS messages, sum(bytes) AS bytes, min(first) AS first, max(last) AS last";

fn read(row: &Row<'_>) -> Result<SessionSummary, StoreError> {
    let number = |name: &str| row.get::<_, i64>(name);
    Ok(SessionSummary {
        session: SessionId::parse(&row.get::<_, String>("session")?).map_err(damaged)?,
        principal: row.get("principal")?,
        runs: number("runs")?.unsigned_abs(),
        messages: number("messages")?.unsigned_abs(),
        bytes: number("bytes")?.unsigned_abs(),
        first: Timestamp::from_unix_millis(number("first")?),
        last: Timestamp::from_unix_millis(number("last")?),
    })
}
