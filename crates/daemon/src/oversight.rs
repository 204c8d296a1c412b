//! Who sees what: an agent sees its own calls and runs, people who oversee see everything.

use palyra_api::call::Call;
use palyra_journal::{RecordKind, state::CallState};
use palyra_types::{Action, ObjectId, ObjectKind, Resource, id::CallId};

use crate::{app::App, caller::Caller, failure::Failure, proposing::known};

/// Whether they may read what is journalled.
///
/// # Errors
/// When policy does not let them.
pub fn may_read_journal(app: &App, caller: &Caller) -> Result<(), Failure> {
    caller.may(app, Action::JournalRead, object(ObjectKind::Journal)?)
}

/// Whether they may see a call: their own, or any if they may read the journal.
///
/// # Errors
/// When they may not. They are not told whether there is such a call.
pub fn may_see(app: &App, caller: &Caller, call: &Call) -> Result<(), Failure> {
    if call.proposed.as_ref().is_some_and(|proposed| caller.is(&proposed.principal)) {
        return Ok(());
    }
    may_read_journal(app, caller).map_err(|_| Failure::not_found(format!("there is no call {}", call.id)))
}

/// A resource of which there is one.
///
/// # Errors
/// Never, but for a broken build.
pub fn object(kind: ObjectKind) -> Result<Resource, Failure> {
    let id = ObjectId::parse(ONLY).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(Resource::Object(kind, id))
}

/// How many are told at once.
///
/// # Errors
/// When it is none or too many.
pub fn page(limit: Option<u32>) -> Result<usize, Failure> {
    match limit {
        None => Ok(DEFAULT_PAGE),
        Some(limit @ 1..=1_000) => Ok(usize::try_from(limit).unwrap_or(DEFAULT_PAGE)),
        Some(_) => Err(Failure::bad_request("`limit` is 1 to 1000")),
    }
}

/// Calls in a state, oldest first.
///
/// # Errors
/// When the journal cannot be read.
pub async fn calls_in(app: &App, state: CallState, most: usize) -> Result<Vec<Call>, Failure> {
    let mut calls = Vec::new();
    for row in app.store.calls_in(state).await?.into_iter().take(most) {
        calls.push(known(app, row.call).await?);
    }
    Ok(calls)
}

/// The calls that were refused last, newest first. Looks back only so far.
///
/// # Errors
/// When the journal cannot be read.
pub async fn refused_last(app: &App, most: usize) -> Result<Vec<Call>, Failure> {
    let mut calls: Vec<Call> = Vec::new();
    let mut before = app.hub.size();
    let oldest = before.saturating_sub(LOOK_BACK);
    while before > oldest && calls.len() < most {
        let from = before.saturating_sub(PAGE).max(oldest);
        let records =
            app.store.records_within(from, usize::try_from(before - from).unwrap_or_default(), usize::MAX).await?;
        for record in records.iter().rev().filter(|record| record.record.seq < before) {
            let over = matches!(record.record.kind, RecordKind::ToolDecided | RecordKind::ApprovalResolved);
            let Some(id) = record.record.subject().call.filter(|_| over && calls.len() < most) else { continue };
            if is_known(&calls, id) {
                continue;
            }
            let call = known(app, id).await?;
            // Whoever withdrew a call was not refused anything.
            if call.refusal.as_ref().is_some_and(|refusal| refusal.code != "cancelled") {
                calls.push(call);
            }
        }
        before = from;
    }
    Ok(calls)
}

fn is_known(calls: &[Call], id: CallId) -> bool {
    calls.iter().any(|call| call.id == id)
}

const ONLY: &str = "daemon";

const DEFAULT_PAGE: usize = 100;

/// How many records are looked at for calls that were refused.
const LOOK_BACK: u64 = 20_000;

const PAGE: u64 = 256;
