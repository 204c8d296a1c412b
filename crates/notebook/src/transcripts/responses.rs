//! Finished responses, kept so that a later request can continue them.

use std::time::Duration;

use palyra_types::{ObjectId, Timestamp, id::SessionId};
use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use serde_json::Value;

use super::{TranscriptStore, damaged, error::TranscriptError};
use crate::{
    database::{count, number},
    error::StoreError,
    label::check,
};

/// How long a response can be continued: 30 days.
pub const RESPONSE_LIFETIME: Duration = Duration::from_hours(30 * 24);
/// Most bytes of the conversation of one response.
pub const MOST_RESPONSE_BYTES: usize = 8 << 20;
/// Most responses that are kept. The oldest of whoever has most go first.
pub const MOST_RESPONSES: u64 = 10_000;
/// Most bytes of all conversations. The oldest of whoever holds most go first.
pub const MOST_RESPONSES_BYTES: u64 = 256 << 20;

/// A finished response.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Response {
    /// Which.
    pub id: ObjectId,
    /// The session that it was made in.
    pub session: SessionId,
    /// Whose it is. Nobody else continues it.
    pub principal: String,
    /// Everything that was said so far.
    pub conversation: Value,
    /// When it was kept.
    pub created: Timestamp,
    /// Until when it can be continued.
    pub expires: Timestamp,
}

/// What is to be kept.
#[derive(Debug, Clone, Copy)]
pub struct NewResponse<'a> {
    /// Which.
    pub id: &'a ObjectId,
    /// The session that it was made in.
    pub session: SessionId,
    /// Whose it is.
    pub principal: &'a str,
    /// Everything that was said so far.
    pub conversation: &'a Value,
}

impl TranscriptStore {
    /// Keeps a finished response for 30 days. The oldest make room for it.
    ///
    /// # Errors
    /// When there is one of this id, it is too long, or the file cannot be written.
    pub fn put_response(&self, new: &NewResponse<'_>) -> Result<Response, TranscriptError> {
        check("principal", new.principal, MOST_PRINCIPAL_CHARS)?;
        let conversation = new.conversation.to_string();
        if conversation.len() > MOST_RESPONSE_BYTES {
            return Err(TranscriptError::TooLong(conversation.len()));
        }
        let created = self.clock.now();
        let lifetime = i64::try_from(RESPONSE_LIFETIME.as_millis()).unwrap_or(i64::MAX);
        let expires = Timestamp::from_unix_millis(created.unix_millis().saturating_add(lifetime));
        let bytes = number(count(conversation.len()));
        self.database.write(|transaction| {
            drop_expired(transaction, created)?;
            // SECURITY: an id that is taken stays its owner's; nobody puts words into another's conversation.
            let sql = "INSERT OR IGNORE INTO response (id, session, principal, conversation, created, expires, bytes)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let kept = transaction.prepare_cached(sql).and_then(|mut statement| {
                let (id, session) = (new.id.as_str(), new.session.to_string());
                let (created, expires) = (created.unix_millis(), expires.unix_millis());
                statement.execute(params![id, session, new.principal, conversation, created, expires, bytes])
            });
            if kept.map_err(StoreError::from)? == 0 {
                return Err(TranscriptError::Taken(new.id.clone()));
            }
            Ok(drop_oldest(transaction, MOST_RESPONSES, MOST_RESPONSES_BYTES)?)
        })?;
        Ok(Response {
            id: new.id.clone(),
            session: new.session,
            principal: new.principal.to_owned(),
            conversation: new.conversation.clone(),
            created,
            expires,
        })
    }

    /// A response that can still be continued. Compare whose it is before anything is made of it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn response(&self, id: &ObjectId) -> Result<Option<Response>, TranscriptError> {
        let now = self.clock.now().unix_millis();
        let found = self.database.read(|transaction| {
            let sql = "SELECT session, principal, conversation, created, expires FROM response WHERE id = ?1 AND expires > ?2";
            let mut statement = transaction.prepare_cached(sql)?;
            let read = statement.query_row(params![id.as_str(), now], |row| {
                let texts: [String; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
                Ok((texts, row.get(3)?, row.get(4)?))
            });
            Ok::<_, StoreError>(read.optional()?)
        })?;
        let Some(([session, principal, conversation], created, expires)) = found else { return Ok(None) };
        Ok(Some(Response {
            id: id.clone(),
            session: SessionId::parse(&session).map_err(damaged)?,
            principal,
            conversation: serde_json::from_str(&conversation).map_err(damaged)?,
            created: Timestamp::from_unix_millis(created),
            expires: Timestamp::from_unix_millis(expires),
        }))
    }

    /// Forgets a response. Says whether there was one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn delete_response(&self, id: &ObjectId) -> Result<bool, TranscriptError> {
        let gone = self.database.write(|transaction| {
            Ok::<_, StoreError>(transaction.execute("DELETE FROM response WHERE id = ?1", [id.as_str()])?)
        })?;
        if gone > 0 {
            self.database.give_back()?;
        }
        Ok(gone > 0)
    }
}

/// Forgets what cannot be continued any more.
pub(super) fn drop_expired(transaction: &Transaction<'_>, now: Timestamp) -> Result<usize, StoreError> {
    Ok(transaction.execute("DELETE FROM response WHERE expires <= ?1", [now.unix_millis()])?)
}

/// Forgets the oldest of whoever holds most, until no more than this is left. The last that was kept always is.
// SECURITY: whoever keeps responses without end makes room for them out of their own, and not out of anybody else's.
pub(super) fn drop_oldest(transaction: &Transaction<'_>, most: u64, bytes: u64) -> Result<(), StoreError> {
    let totals = "SELECT count(*), coalesce(sum(bytes), 0) FROM response";
    loop {
        let (responses, used): (i64, i64) =
            transaction.prepare_cached(totals)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if responses <= 1 || (responses <= number(most) && used <= number(bytes)) {
            return Ok(());
        }
        let most_of = if used > number(bytes) { "sum(bytes)" } else { "count(*)" };
        let sql = format!(
            "DELETE FROM response WHERE number = (
                SELECT min(number) FROM response WHERE number < (SELECT max(number) FROM response)
                GROUP BY principal ORDER BY {most_of} DESC, min(number) LIMIT 1
            )"
        );
        transaction.prepare_cached(&sql)?.execute([])?;
    }
}

const MOST_PRINCIPAL_CHARS: usize = 256;
