//! `palyra why` and `palyra explain ID`: why a call was refused, failed or was decided as it was, and what would change that. The same for what
//! other programs wanted to do themselves, which is known by the number of its record.

use clap::Args;
use palyra_api::{
    authorize::{
        Authorization, AuthorizationExplanation, AuthorizationQuery, AuthorizationRecord, AuthorizationSelection,
        Decision,
    },
    call::{Call, CallQuery, CallSelection, PolicyRef, Receipt},
    journal::{Record, RecordQuery},
    policy::{CallExplanation, Explanation, Reason},
};
use palyra_client::Client;
use palyra_types::{
    id::CallId,
    visible::{visible, visible_block},
};
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
    /// A call: its id, or the beginning or the end of the id of one that is under way or was refused lately. Or the number of the record of what a
    /// hook was told.
    #[arg(value_name = "CALL|RECORD")]
    id: String,
}

/// What did not work.
enum Setback {
    /// A call was refused.
    Refused(Box<Call>),
    /// A call failed.
    Failed(Box<Call>),
    /// Another program was denied something; it is known by this number.
    Denied(u64),
}

/// Explains what was refused or failed last: a call, or what another program wanted to do itself.
pub(crate) fn why(at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        match last(daemon).await? {
            None if terminal.json => terminal.document("why", Value::Null),
            None => terminal.out("nothing was refused or failed lately"),
            Some(Setback::Denied(seq)) => show_authorization(&daemon.authorization(seq).await?, terminal),
            Some(Setback::Refused(call)) if is_by_policy(&call) => {
                show(&daemon.explanation(call.id).await?, terminal);
            }
            Some(Setback::Refused(call) | Setback::Failed(call)) => {
                if terminal.json {
                    terminal.document("call", &*call);
                } else {
                    outcome::call(&call, terminal);
                    if let Some(receipt) = &call.receipt {
                        failure(&call, receipt, terminal);
                    }
                }
            }
        }
        Ok(Exit::Ok)
    })
}

/// What did not work last.
async fn last(daemon: &Client) -> Result<Option<Setback>, Failure> {
    let refused = list(daemon, CallSelection::Refused, 1).await?.pop();
    let query = AuthorizationQuery { which: Some(AuthorizationSelection::Refused), limit: Some(1) };
    let denied = daemon.authorizations(&query).await?.authorizations.pop().and_then(|one| one.told.record);
    let since = refused.as_ref().map(|call| call.last_seq).max(denied);
    if let Some(call) = failed_last(daemon, since).await? {
        return Ok(Some(Setback::Failed(Box::new(call))));
    }
    Ok(match (refused, denied) {
        (Some(call), denied) if denied.is_none_or(|seq| seq < call.last_seq) => Some(Setback::Refused(Box::new(call))),
        (_, denied) => denied.map(Setback::Denied),
    })
}

fn is_by_policy(call: &Call) -> bool {
    call.refusal.as_ref().is_some_and(|refusal| refusal.code == "denied_by_policy")
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

/// Explains one call, or one decision about what another program wanted to do itself.
pub(crate) fn explain(args: &ExplainArgs, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        // An id has 26 characters; no record has a number that long.
        let numbered = match args.id.trim().parse() {
            Ok(seq) => Some(daemon.authorization(seq).await.map_err(Failure::from)),
            Err(_) => None,
        };
        match numbered {
            Some(Ok(explanation)) => show_authorization(&explanation, terminal),
            // Digits may be a part of an id, too.
            Some(Err(failure)) => {
                let Ok(id) = find(daemon, &args.id).await else { return Err(failure) };
                show(&daemon.explanation(id).await?, terminal);
            }
            None => show(&daemon.explanation(find(daemon, &args.id).await?).await?, terminal),
        }
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
    then(&explanation.decided, &explanation.reason, terminal);
    let news = news(Some(&explanation.decided), &explanation.verdict, explanation.same_policies);
    now(news, &explanation.parts, terminal);
}

/// What another program wanted to do itself, what it was told, and why.
fn show_authorization(explanation: &AuthorizationExplanation, terminal: &Terminal) {
    if terminal.json {
        terminal.document("authorization.explanation", explanation);
        return;
    }
    let AuthorizationExplanation { decided, policies, now: reconsidered } = explanation;
    let told = &decided.told;
    terminal.out(format!("record {}  {}", told.record.unwrap_or_default(), decided.at));
    terminal.out_rows(asked_for(decided));
    match (reconsidered, &decided.args) {
        (Some(now), _) => terminal.out_rows(terminal.paint(DIM, &shown(&now.what))),
        (None, Some(args)) => {
            let text = serde_json::to_string_pretty(args).unwrap_or_else(|_| args.to_string());
            visible_block(&text).lines().for_each(|line| terminal.out(terminal.paint(DIM, &format!("  {line}"))));
        }
        (None, None) => {}
    }
    let verdict = match told.decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    };
    then(verdict, &told.reason, terminal);
    // What policy denies is explained below, if it is known what policy was asked.
    let is_explained = told.code == "denied_by_policy" && reconsidered.is_some();
    if let Some(help) = told.help.as_ref().filter(|_| !is_explained) {
        terminal.out_rows(format!("        help: {}", shown(help)));
    }
    match reconsidered {
        Some(said) => now(news(said_then(told), &said.verdict, said.same_policies), &said.parts, terminal),
        None => policies.iter().for_each(|policy| report::reason(&behind(policy), terminal)),
    }
}

/// A policy that decided something, where nothing more is known about why.
fn behind(policy: &PolicyRef) -> Reason {
    let PolicyRef { id, location, why } = policy.clone();
    Reason { title: "decided by".to_owned(), policy: Some(id), location: Some(location), why }
}

/// Who asked for which tool, in whose words, and how they came in.
fn asked_for(decided: &AuthorizationRecord) -> String {
    let what = match (&decided.tool, &decided.meant) {
        (Some(tool), Some(meant)) if tool != meant.as_str() => format!("to use {} ({meant}) itself", visible(tool)),
        (Some(tool), _) => format!("to use {} itself", visible(tool)),
        (None, Some(meant)) => format!("to use {meant} itself"),
        (None, None) => "for something that cannot be read".to_owned(),
    };
    let way = decided.channel.as_deref().map(|channel| format!(", by {}", visible(channel))).unwrap_or_default();
    let token = decided.token.as_deref().map(|id| format!(", with token {}", visible(id))).unwrap_or_default();
    format!("{} asked {what}{way}{token}", visible(&decided.principal))
}

/// What was decided then.
fn then(verdict: &str, reason: &str, terminal: &Terminal) {
    terminal.out_rows(format!("{}  then: {}", terminal.verdict_word(verdict), shown(reason)));
}

/// What policy said to what another program wanted, if it was policy that decided.
fn said_then(told: &Authorization) -> Option<&'static str> {
    match (told.code.as_str(), told.approval) {
        // A person let it, now or before, because policy asked.
        (_, Some(_)) => Some("ask"),
        ("allowed", None) => Some("allow"),
        ("asks", None) => Some("ask"),
        ("denied_by_policy", None) => Some("deny"),
        // A person said no, or policy was not asked, or something else came in between.
        (_, None) => None,
    }
}

/// What has changed since something was decided, if that is to be told.
fn news(then: Option<&str>, now: &str, same_policies: bool) -> Option<String> {
    let now_it_is = visible(now);
    match (same_policies, then) {
        (false, _) => Some(format!("! the policies have changed since; now it would be: {now_it_is}")),
        (true, Some(then)) if then != now => {
            Some(format!("! the policies are the same, but by the configuration of today it would be: {now_it_is}"))
        }
        (true, _) => None,
    }
}

/// What would be decided now.
fn now(news: Option<String>, parts: &[Explanation], terminal: &Terminal) {
    if let Some(news) = news {
        terminal.out(terminal.paint(WAIT, &news));
    }
    // Where something denies, nothing else is worth a word: no other rule would change it.
    let denies = |part: &&Explanation| part.verdict == "deny";
    let all = !parts.iter().any(|part| denies(&part));
    for part in parts.iter().filter(|part| all || denies(part)) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_verdict_that_is_another_today_is_told_and_one_that_a_person_changed_is_not() {
        let told = |decision: &str, code: &str, approval: Option<&str>| -> Authorization {
            let told = json!({ "decision": decision, "code": code, "reason": "x", "approval": approval });
            serde_json::from_value(told).unwrap()
        };
        let approval = Some("01JZ0000000000000000000000");
        let today = |verdict: &str| {
            Some(format!("! the policies are the same, but by the configuration of today it would be: {verdict}"))
        };
        for (told, now, expected) in [
            (told("deny", "denied_by_policy", None), "ask", today("ask")),
            (told("allow", "allowed", None), "ask", today("ask")),
            (told("ask", "asks", None), "allow", today("allow")),
            (told("ask", "asks", None), "ask", None),
            (told("allow", "allowed", approval), "ask", None),
            (told("deny", "denied_by_person", None), "ask", None),
            (told("deny", "over_budget", None), "allow", None),
        ] {
            assert_eq!(news(said_then(&told), now, true), expected, "{told:?}");
        }
        let changed = "! the policies have changed since; now it would be: allow".to_owned();
        assert_eq!(news(Some("allow"), "allow", false), Some(changed));
    }

    #[test]
    fn who_asked_for_which_tool_is_told_in_one_visible_line() {
        let told = json!({ "decision": "deny", "code": "x", "reason": "x" });
        let line = |mut decided: Value| {
            decided["at"] = json!("2026-03-02T09:30:00Z");
            decided["told"] = told.clone();
            asked_for(&serde_json::from_value(decided).unwrap())
        };
        let whole = json!({ "principal": "agent:local", "channel": "hook", "token": "tok-1", "tool": "Bash", "meant": "process.run" });
        assert_eq!(line(whole), "agent:local asked to use Bash (process.run) itself, by hook, with token tok-1");
        let same = json!({ "principal": "agent:local", "tool": "fs.read", "meant": "fs.read" });
        assert_eq!(line(same), "agent:local asked to use fs.read itself");
        let unread = json!({ "principal": "agent:local", "tool": "Re\u{202e}ad" });
        assert_eq!(line(unread), "agent:local asked to use Re<U+202E>ad itself");
        let garbled = json!({ "principal": "agent:local", "channel": "hook" });
        assert_eq!(line(garbled), "agent:local asked for something that cannot be read, by hook");
    }
}
