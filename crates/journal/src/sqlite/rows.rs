//! Reads rows back into what they were.
//!
//! Guarantees: a row that does not parse is an error, never a default; a record is the one that its hash and its commitment say, or an error
//! that names it.

use palyra_types::{
    IdempotencyKey, Posture, Sha256Digest, Timestamp, ToolName,
    id::{ApprovalId, CallId, NodeId, RunId, SessionId},
};
use rusqlite::{Connection, OptionalExtension, Params, Row, params, types::Type};

use super::head::digest;
use crate::{
    body::{SALT_LENGTH, commitment},
    record::{Record, StoredRecord},
    state::{
        ApprovalRow, ApprovalState, CallRow, CallState, Charge, GrantRow, KEY_LIFE, KeyRow, PostureRow, RunRow,
        VaultRow, Waiting,
    },
    store::ReadError,
    trouble::Trouble,
};

pub(super) const CALL: &str =
    "SELECT call, node, session, run, waiting, state, first_seq, last_seq, document FROM calls";
pub(super) const APPROVAL: &str = "SELECT id, call, session, principal, digest, state, document FROM approvals";
pub(super) const GRANT: &str = "SELECT id, session, principal, tool, ended, uses, document FROM grants";
pub(super) const RECORD: &str = "SELECT seq, record, hash, salt, body FROM records";
pub(super) const HEADER: &str = "SELECT seq, record FROM records";
pub(super) const LAST_HEADER: &str = "SELECT seq, record FROM records ORDER BY seq DESC LIMIT 1";

/// All rows that a query gives.
pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(parameters, read)?.collect()
}

/// The one row that a query gives, if it gives one.
pub(super) fn one<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(parameters, read).optional()
}

/// The one number that a query gives.
pub(super) fn count(connection: &Connection, sql: &str) -> rusqlite::Result<u64> {
    connection.prepare_cached(sql)?.query_row([], |row| number(row, 0))
}

pub(super) fn call(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    Ok(CallRow {
        call: word(row, 0, CallId::parse)?,
        node: word(row, 1, NodeId::parse)?,
        session: word(row, 2, SessionId::parse)?,
        run: word(row, 3, RunId::parse)?,
        waiting: word(row, 4, Waiting::parse)?,
        state: word(row, 5, CallState::parse)?,
        first_seq: number(row, 6)?,
        last_seq: number(row, 7)?,
        document: row.get(8)?,
    })
}

/// The call that took a key, if that was not too long before this time.
pub(super) fn key(
    connection: &Connection,
    principal: &str,
    key: &IdempotencyKey,
    now: Timestamp,
) -> rusqlite::Result<Option<KeyRow>> {
    let sql = "SELECT call, body, time FROM call_keys WHERE principal = ?1 AND key = ?2 AND time > ?3";
    let over = now.unix_millis().saturating_sub(KEY_LIFE);
    one(connection, sql, params![principal, key.as_str(), over], |row| {
        let time = Timestamp::from_unix_millis(row.get(2)?);
        Ok(KeyRow { call: word(row, 0, CallId::parse)?, body: hash(row, 1)?, time })
    })
}

pub(super) fn approval_state(row: &Row<'_>) -> rusqlite::Result<ApprovalState> {
    word(row, 0, ApprovalState::parse)
}

pub(super) fn approval(row: &Row<'_>) -> rusqlite::Result<ApprovalRow> {
    Ok(ApprovalRow {
        id: word(row, 0, ApprovalId::parse)?,
        call: word(row, 1, CallId::parse)?,
        session: word(row, 2, SessionId::parse)?,
        principal: row.get(3)?,
        digest: hash(row, 4)?,
        state: word(row, 5, ApprovalState::parse)?,
        document: row.get(6)?,
    })
}

pub(super) fn grant(row: &Row<'_>) -> rusqlite::Result<GrantRow> {
    Ok(GrantRow {
        id: word(row, 0, ApprovalId::parse)?,
        session: word(row, 1, SessionId::parse)?,
        principal: row.get(2)?,
        tool: word(row, 3, ToolName::parse)?,
        ended: row.get(4)?,
        uses: number(row, 5)?,
        document: row.get(6)?,
    })
}

pub(super) fn run(connection: &Connection, id: RunId) -> rusqlite::Result<Option<RunRow>> {
    let sql = "SELECT session, principal, calls, wall_ms, output_bytes, most_calls, most_wall_ms, most_output_bytes \
               FROM runs WHERE run = ?1";
    one(connection, sql, [id.to_string()], |row| {
        let charge = |first| {
            Ok::<_, rusqlite::Error>(Charge {
                calls: number(row, first)?,
                wall_ms: number(row, first + 1)?,
                output_bytes: number(row, first + 2)?,
            })
        };
        let (used, limits) = (charge(2)?, charge(5)?);
        Ok(RunRow { run: id, session: word(row, 0, SessionId::parse)?, principal: row.get(1)?, limits, used })
    })
}

pub(super) fn posture(row: &Row<'_>) -> rusqlite::Result<PostureRow> {
    Ok(PostureRow {
        tool: word(row, 0, ToolName::parse)?,
        layer: row.get(1)?,
        key: row.get(2)?,
        posture: word(row, 3, Posture::parse)?,
    })
}

/// How far the vault is, if there is one.
pub(super) fn vault(connection: &Connection) -> rusqlite::Result<Option<VaultRow>> {
    one(connection, "SELECT generation, digest FROM vault", [], |row| {
        Ok(VaultRow { generation: number(row, 0)?, digest: hash(row, 1)? })
    })
}

/// A record with what it says, held to what it commits to.
pub(super) fn record(row: &Row<'_>) -> Result<StoredRecord, Unreadable> {
    let (seq, record) = numbered(row)?;
    let changed = || Unreadable::Changed(seq);
    let hash = hash(row, 2).map_err(|_| changed())?;
    // SECURITY: whoever can write to the database can put words into anybody's mouth. A proof shows the header only, so what is handed out
    // with it must be what the header commits to.
    if hash != Record::hash(&record.canonical()) {
        return Err(changed());
    }
    let salt = row.get_ref(3)?.as_blob_or_null().map_err(|_| changed())?;
    let body = row.get_ref(4)?.as_str_or_null().map_err(|_| changed())?;
    match (salt, body) {
        (Some(salt), Some(body)) => {
            // INVARIANT: the salt has one length, or bytes could move between salt and body and hash alike.
            let salt: [u8; SALT_LENGTH] = salt.try_into().map_err(|_| changed())?;
            if commitment(&salt, body.as_bytes()) != record.body {
                return Err(changed());
            }
            Ok(StoredRecord { record, hash, salt: Some(salt), body: Some(body.to_owned()) })
        }
        (None, None) if !record.kind.is_about_the_journal() => {
            Ok(StoredRecord { record, hash, salt: None, body: None })
        }
        _ => Err(changed()),
    }
}

/// The header of a record.
pub(super) fn header(row: &Row<'_>) -> Result<Record, Unreadable> {
    numbered(row).map(|(_, record)| record)
}

/// A header in its place.
fn numbered(row: &Row<'_>) -> Result<(u64, Record), Unreadable> {
    let seq = number(row, 0)?;
    match word(row, 1, Record::parse) {
        Ok(record) if record.seq == seq => Ok((seq, record)),
        _ => Err(Unreadable::Changed(seq)),
    }
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// The record of this number is there, and not as it was written.
    #[error("record {0} is not what was written")]
    Changed(u64),
    /// Reading failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

impl From<Unreadable> for ReadError {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Changed(_) => Self(error.to_string()),
            Unreadable::Sqlite(error) => error.into(),
        }
    }
}

impl From<Unreadable> for Trouble {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Changed(_) => Self::Damaged(error.to_string()),
            Unreadable::Sqlite(error) => error.into(),
        }
    }
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Trouble::from(error).into()
    }
}

/// A column that holds text of a type of its own.
pub(super) fn word<T, E: std::error::Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: usize,
    parse: impl Fn(&str) -> Result<T, E>,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    parse(text).map_err(|error| unreadable(column, Type::Text, error))
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|error| unreadable(column, Type::Integer, error))
}

fn hash(row: &Row<'_>, column: usize) -> rusqlite::Result<Sha256Digest> {
    let bytes = row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?;
    digest(bytes).map_err(|error| unreadable(column, Type::Blob, error))
}

fn unreadable(column: usize, kind: Type, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
}
