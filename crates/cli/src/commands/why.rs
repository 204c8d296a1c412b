//! `palyra why` and `palyra explain CALL`: why a call was refused, failed or was decided as it was, and what would change that.

use clap::Args;
use palyra_api::{
    call::{Call, CallQuery, CallSelection, Receipt},
    journal::{Record, RecordQuery},
    policy::{CallExplanation, Explanation},
};
use palyra_client::Client;
use palyra_types::{id::CallId, visible::visible};
use serde_json::Value;

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    failure::Failure,
    outcome, report,
    terminal::{DIM, Terminal, WAIT, shown},
};

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// The call: its id, or the beginning or the end of the id of one that is under way or was refused lately.
    call: String,
}

/// Explains the call that was refused or failed last.
pub(crate) fn why(at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        let refused = list(daemon, CallSelection::Refused, 1).await?.pop();
        let failed = failed_last(daemon, refused.as_ref().map(|call| call.last_seq)).await?;
        let Some(call) = failed.as_ref().or(refused.as_ref()) else {
            if terminal.json {
                terminal.document("why", Value::Null);
            } else {
                terminal.out("no call was refused or failed lately");
            }
            return Ok(Exit::Ok);
        };
        let by_policy = call.refusal.as_ref().is_some_and(|refusal| refusal.code == "denied_by_policy");
        if by_policy {
            let explanation = daemon.explanation(call.id).await?;
            show(&explanation, terminal);
        } else if terminal.json {
            terminal.document("call", call);
        } else {
            outcome::call(call, terminal);
            if let Some(receipt) = &call.receipt {
                failure(call, receipt, terminal);
            }
        }
        Ok(Exit::Ok)
    })
}

/// What happened to a call that ran, and what to do about it.
fn failure(call: &Call, receipt: &Receipt, terminal: &Terminal) {
    let how = outcome::ending(receipt);
    terminal.out_rows(format!("  failed   {}", how.strip_prefix("failed: ").unwrap_or(&how)));
    for line in outcome::advice(call, receipt) {
        terminal.out_rows(format!("           {line}"));
    }
}

/// The call that failed last, if that was after this record. Looks back only so far.
async fn failed_last(daemon: &Client, after: Option<u64>) -> Result<Option<Call>, Failure> {
    let mut before = daemon.records(&RecordQuery { from: None, limit: Some(1) }).await?.size;
    let oldest = before.saturating_sub(LOOK_BACK).max(after.map_or(0, |seq| seq.saturating_add(1)));
    while before > oldest {
        let from = before.saturating_sub(LOOKED_AT).max(oldest);
        if let Some(id) = failed_within(daemon, from, before).await? {
            return Ok(Some(daemon.call(id).await?));
        }
        before = from;
    }
    Ok(None)
}

/// The last call of which one of these records tells that it failed. The daemon hands out only so many bytes at once.
async fn failed_within(daemon: &Client, from: u64, before: u64) -> Result<Option<CallId>, Failure> {
    let (mut next, mut last) = (from, None);
    while next < before {
        let limit = u32::try_from(before - next).ok();
        let page = daemon.records(&RecordQuery { from: Some(next), limit }).await?.records;
        let Some(end) = page.last().map(|record| record.seq) else { break };
        // Where records were dropped, those after them are told in their place.
        last = page.iter().rev().filter(|record| record.seq < before).find_map(failed_by).or(last);
        next = end.saturating_add(1);
    }
    Ok(last)
}

/// The call that a record attests the failure of.
fn failed_by(record: &Record) -> Option<CallId> {
    if record.kind != ATTESTED {
        return None;
    }
    let note = record.body.as_ref()?.get("note")?.as_str()?;
    // The text of a note stands before its first empty line.
    let attestation: Value = serde_json::from_str(note.split("\n\n").next()?).ok()?;
    let call = CallId::parse(attestation.get("call")?.as_str()?).ok()?;
    let receipt = Receipt { attestation, note: note.to_owned(), seq: record.seq, hash: record.hash };
    outcome::has_failed(&receipt).then_some(call)
}

/// Explains one call.
pub(crate) fn explain(args: &ExplainArgs, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        let id = find(daemon, &args.call).await?;
        let explanation = daemon.explanation(id).await?;
        show(&explanation, terminal);
        Ok(Exit::Ok)
    })
}

fn show(explanation: &CallExplanation, terminal: &Terminal) {
    if terminal.json {
        terminal.document("call.explanation", explanation);
        return;
    }
    terminal.out(format!("call {}", explanation.call));
    terminal.out_rows(terminal.paint(DIM, &shown(&explanation.what)));
    terminal.out_rows(format!("{}  then: {}", terminal.verdict_word(&explanation.decided), shown(&explanation.reason)));
    if !explanation.same_policies {
        let verdict = visible(&explanation.verdict);
        terminal.out(terminal.paint(WAIT, &format!("! the policies have changed since; now it would be: {verdict}")));
    }
    // Where something denies, nothing else is worth a word: no other rule would change it.
    let denies = |part: &&Explanation| part.verdict == "deny";
    let all = !explanation.parts.iter().any(|part| denies(&part));
    for part in explanation.parts.iter().filter(|part| all || denies(part)) {
        report::explanation(part, terminal);
    }
}

/// The call that is meant: by its whole id, or by the beginning or the end of the id of one that is listed.
pub(crate) async fn find(client: &Client, text: &str) -> Result<CallId, Failure> {
    let text = text.trim().to_ascii_uppercase();
    if let Ok(id) = CallId::parse(&text) {
        return Ok(id);
    }
    let refused = |cause: String| {
        let help = "give the whole id; `palyra journal tail` shows them";
        Failure::new(Exit::Failure, "unknown_call", "no such call", cause, help)
    };
    if text.len() < 4 {
        return Err(refused(format!("`{text}` is too short; give at least 4 characters")));
    }
    let mut found = Vec::new();
    for which in [CallSelection::Refused, CallSelection::Waiting, CallSelection::Started] {
        for call in list(client, which, 1000).await? {
            let id = call.id.to_string();
            if (id.starts_with(&text) || id.ends_with(&text)) && !found.contains(&call.id) {
                found.push(call.id);
            }
        }
    }
    match found.as_slice() {
        [id] => Ok(*id),
        [] => Err(refused(format!("no call that is under way or was refused lately begins or ends with `{text}`"))),
        many => Err(refused(format!("{} calls have an id that begins or ends with `{text}`", many.len()))),
    }
}

async fn list(client: &Client, which: CallSelection, limit: u32) -> Result<Vec<Call>, Failure> {
    Ok(client.calls(&CallQuery { which: Some(which), limit: Some(limit) }).await?.calls)
}

/// What a record is that proves that a call ran.
const ATTESTED: &str = "tool.attested";
/// How many records are looked through for a call that failed.
const LOOK_BACK: u64 = 2_000;
/// How many of them at once.
const LOOKED_AT: u64 = 200;
