//! Applies the changes of a transaction to the tables, each only if it finds what it expects.
//!
//! Guarantees: a change that does not find what it expects changes nothing and says what it found.

use palyra_types::id::{ApprovalId, CallId, RunId};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::rows;
use crate::{
    state::{
        ApprovalRow, ApprovalState, CallRow, CallState, Change, Charge, Conflict, GrantRow, PendingLimits, PostureRow,
        RunRow, TakenKey, VaultRow,
    },
    trouble::Trouble,
};

/// What stops a change.
pub(super) enum Stop {
    Conflict(Conflict),
    Hitch(Hitch),
}

/// Why SQLite does not do something.
pub(super) enum Hitch {
    /// It does not take this one thing, and would take others.
    Refused(String),
    /// Something is wrong with the database or the disk, and whatever comes next would fare no better.
    Trouble(Trouble),
}

impl From<rusqlite::Error> for Hitch {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // Without a code it is a stored value that cannot be understood, which matters to whoever needs it only.
            None
            | Some(
                ErrorCode::ConstraintViolation
                | ErrorCode::ParameterOutOfRange
                | ErrorCode::TooBig
                | ErrorCode::TypeMismatch
                | ErrorCode::Unknown,
            ) => Self::Refused(error.to_string()),
            Some(_) => Self::Trouble(error.into()),
        }
    }
}

impl From<Trouble> for Hitch {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<Hitch> for Trouble {
    fn from(hitch: Hitch) -> Self {
        match hitch {
            Hitch::Refused(why) => Self::Refused(why),
            Hitch::Trouble(trouble) => trouble,
        }
    }
}

impl From<Hitch> for Stop {
    fn from(hitch: Hitch) -> Self {
        Self::Hitch(hitch)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Hitch(error.into())
    }
}

impl From<Conflict> for Stop {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

/// The numbers that the records of a transaction will have.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Applies one change.
pub(super) fn apply(connection: &Connection, change: &Change, span: Span) -> Result<(), Stop> {
    match change {
        Change::AddCall { row, key } => add_call(connection, row, key.as_ref(), span),
        Change::MoveCall { call, from, to } => move_call(connection, *call, (*from, *to), span),
        Change::AddApproval { row, limits } => add_approval(connection, row, *limits),
        Change::MoveApproval { id, from, to, document } => {
            move_approval(connection, *id, (*from, *to), document.as_deref())
        }
        Change::AddGrant(row) => add_grant(connection, row),
        Change::UseGrant(id) => {
            change_grant(connection, *id, "UPDATE grants SET uses = uses + 1 WHERE id = ?1 AND ended = 0")
        }
        Change::EndGrant(id) => {
            change_grant(connection, *id, "UPDATE grants SET ended = 1 WHERE id = ?1 AND ended = 0")
        }
        Change::AddRun(row) => add_run(connection, row),
        Change::Reserve { run, amount } => reserve(connection, *run, *amount),
        Change::Settle { run, reserved, used } => settle(connection, *run, *reserved, *used),
        Change::SetPosture { row, remove } => set_posture(connection, row, *remove),
        Change::SetVault { from, to } => set_vault(connection, *from, *to),
    }
}

fn add_call(connection: &Connection, row: &CallRow, key: Option<&TakenKey>, span: Span) -> Result<(), Stop> {
    if let Some(TakenKey { principal, key, time }) = key
        && let Some(taken) = rows::key(connection, principal, &key.key, *time)?
    {
        return Err(Conflict::KeyTaken(taken.call).into());
    }
    let mut insert = connection.prepare_cached(
        "INSERT OR IGNORE INTO calls (call, node, session, run, waiting, state, first_seq, last_seq, document) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let added = insert.execute(params![
        row.call.to_string(),
        row.node.to_string(),
        row.session.to_string(),
        row.run.to_string(),
        row.waiting.as_str(),
        row.state.as_str(),
        number(span.first),
        number(span.last),
        row.document,
    ])?;
    if added == 0 {
        return Err(Conflict::Exists.into());
    }
    key.map_or(Ok(()), |key| take_key(connection, row.call, key))
}

/// One of the same text whose time is over makes way.
fn take_key(connection: &Connection, call: CallId, taken: &TakenKey) -> Result<(), Stop> {
    let TakenKey { principal, key, time } = taken;
    let sql = "INSERT OR REPLACE INTO call_keys (principal, key, body, call, time) VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![principal, key.key.as_str(), key.body.as_bytes(), call.to_string(), time.unix_millis()];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn move_call(
    connection: &Connection,
    call: CallId,
    (from, to): (CallState, CallState),
    span: Span,
) -> Result<(), Stop> {
    let mut update =
        connection.prepare_cached("UPDATE calls SET state = ?3, last_seq = ?4 WHERE call = ?1 AND state = ?2")?;
    let id = call.to_string();
    if update.execute(params![id, from.as_str(), to.as_str(), number(span.last)])? == 1 {
        return Ok(());
    }
    let mut select = connection.prepare_cached("SELECT state FROM calls WHERE call = ?1")?;
    let state = select.query_row([id], |row| rows::word(row, 0, CallState::parse)).optional()?;
    Err(state.map_or(Conflict::Missing, Conflict::Call).into())
}

fn add_approval(connection: &Connection, row: &ApprovalRow, limits: PendingLimits) -> Result<(), Stop> {
    if row.state == ApprovalState::Pending {
        let all = "SELECT count(*) FROM approvals WHERE state = 'pending'";
        let pending: i64 = connection.prepare_cached(all)?.query_row([], |row| row.get(0))?;
        within(pending.unsigned_abs(), limits.most, false)?;
        let mut of_one = connection.prepare_cached(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM approvals \
             WHERE state = 'pending' AND principal = ?1",
        )?;
        let (pending, bytes): (i64, i64) = of_one.query_row([&row.principal], |row| Ok((row.get(0)?, row.get(1)?)))?;
        within(pending.unsigned_abs(), limits.most_of_one, true)?;
        let bytes = bytes.unsigned_abs().saturating_add(u64::try_from(row.document.len()).unwrap_or(u64::MAX));
        if bytes > limits.most_bytes_of_one {
            return Err(Conflict::PendingTooLarge { limit: limits.most_bytes_of_one }.into());
        }
    }
    let mut insert = connection.prepare_cached(
        "INSERT OR IGNORE INTO approvals (id, call, session, principal, digest, state, document, bytes) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let added = insert.execute(params![
        row.id.to_string(),
        row.call.to_string(),
        row.session.to_string(),
        row.principal,
        row.digest.as_bytes(),
        row.state.as_str(),
        row.document,
        i64::try_from(row.document.len()).unwrap_or(i64::MAX),
    ])?;
    if added == 1 { Ok(()) } else { Err(Conflict::Exists.into()) }
}

/// Whether one more is within the limit. The counts are over small partial indexes.
fn within(pending: u64, limit: u64, of_one: bool) -> Result<(), Stop> {
    if pending < limit { Ok(()) } else { Err(Conflict::TooManyPending { pending, limit, of_one }.into()) }
}

fn move_approval(
    connection: &Connection,
    id: ApprovalId,
    (from, to): (ApprovalState, ApprovalState),
    document: Option<&str>,
) -> Result<(), Stop> {
    let id = id.to_string();
    let moved = match document {
        Some(document) => connection
            .prepare_cached("UPDATE approvals SET state = ?3, document = ?4 WHERE id = ?1 AND state = ?2")?
            .execute(params![id, from.as_str(), to.as_str(), document])?,
        None => connection
            .prepare_cached("UPDATE approvals SET state = ?3 WHERE id = ?1 AND state = ?2")?
            .execute(params![id, from.as_str(), to.as_str()])?,
    };
    if moved == 1 {
        return Ok(());
    }
    let mut select = connection.prepare_cached("SELECT state FROM approvals WHERE id = ?1")?;
    let state = select.query_row([id], |row| rows::word(row, 0, ApprovalState::parse)).optional()?;
    Err(state.map_or(Conflict::Missing, Conflict::Approval).into())
}

fn add_grant(connection: &Connection, row: &GrantRow) -> Result<(), Stop> {
    let mut insert = connection.prepare_cached(
        "INSERT OR IGNORE INTO grants (id, session, principal, tool, ended, uses, document) VALUES (?1, ?2, ?3, ?4, 0, 0, ?5)",
    )?;
    let added = insert.execute(params![
        row.id.to_string(),
        row.session.to_string(),
        row.principal,
        row.tool.as_str(),
        row.document
    ])?;
    if added == 1 { Ok(()) } else { Err(Conflict::Exists.into()) }
}

fn change_grant(connection: &Connection, id: ApprovalId, sql: &str) -> Result<(), Stop> {
    if connection.prepare_cached(sql)?.execute([id.to_string()])? == 1 {
        return Ok(());
    }
    let mut select = connection.prepare_cached("SELECT 1 FROM grants WHERE id = ?1")?;
    Err(if select.exists([id.to_string()])? { Conflict::GrantEnded } else { Conflict::Missing }.into())
}

fn add_run(connection: &Connection, row: &RunRow) -> Result<(), Stop> {
    let mut insert = connection.prepare_cached(
        "INSERT OR IGNORE INTO runs (run, session, principal, calls, wall_ms, output_bytes, most_calls, most_wall_ms, \
         most_output_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let added = insert.execute(params![
        row.run.to_string(),
        row.session.to_string(),
        row.principal,
        number(row.used.calls),
        number(row.used.wall_ms),
        number(row.used.output_bytes),
        number(row.limits.calls),
        number(row.limits.wall_ms),
        number(row.limits.output_bytes),
    ])?;
    if added == 1 { Ok(()) } else { Err(Conflict::Exists.into()) }
}

fn reserve(connection: &Connection, run: RunId, amount: Charge) -> Result<(), Stop> {
    let Some(row) = rows::run(connection, run)? else { return Err(Conflict::Missing.into()) };
    let used = row.used.plus(amount);
    if !used.is_within(row.limits) {
        return Err(Conflict::OverBudget { limits: row.limits, used: row.used }.into());
    }
    set_used(connection, run, used)
}

fn settle(connection: &Connection, run: RunId, reserved: Charge, used: Charge) -> Result<(), Stop> {
    let Some(row) = rows::run(connection, run)? else { return Err(Conflict::Missing.into()) };
    set_used(connection, run, row.used.minus(reserved).plus(used))
}

fn set_used(connection: &Connection, run: RunId, used: Charge) -> Result<(), Stop> {
    let mut update =
        connection.prepare_cached("UPDATE runs SET calls = ?2, wall_ms = ?3, output_bytes = ?4 WHERE run = ?1")?;
    update.execute(params![run.to_string(), number(used.calls), number(used.wall_ms), number(used.output_bytes)])?;
    Ok(())
}

fn set_posture(connection: &Connection, row: &PostureRow, remove: bool) -> Result<(), Stop> {
    let changed = if remove {
        connection
            .prepare_cached("DELETE FROM postures WHERE tool = ?1 AND layer = ?2 AND key = ?3")?
            .execute(params![row.tool.as_str(), row.layer, row.key])?
    } else {
        connection
            .prepare_cached("INSERT OR REPLACE INTO postures (tool, layer, key, posture) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![row.tool.as_str(), row.layer, row.key, row.posture.as_str()])?
    };
    if changed == 1 { Ok(()) } else { Err(Conflict::Missing.into()) }
}

fn set_vault(connection: &Connection, from: Option<VaultRow>, to: VaultRow) -> Result<(), Stop> {
    if rows::vault(connection)? != from {
        return Err(Conflict::Vault.into());
    }
    let mut insert =
        connection.prepare_cached("INSERT OR REPLACE INTO vault (only, generation, digest) VALUES (0, ?1, ?2)")?;
    insert.execute(params![number(to.generation), to.digest.as_bytes()])?;
    Ok(())
}

/// SQLite's numbers are signed.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
