//! Idempotency keys: whoever proposes a call again does not run it again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::sync::Arc;

use palyra_gate::{CallKey, DecisionScope, Refusal, ToolProposal};
use palyra_journal::RecordKind;
use palyra_tests::{Faults, Lab, Plan, text};
use palyra_types::{IdempotencyKey, Principal, Sha256Digest, Timestamp, clock::ManualClock};
use serde_json::json;

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).unwrap()
}

/// A call that carries the key `k`.
fn keyed(call: ToolProposal) -> ToolProposal {
    let body = Sha256Digest::of(call.args.canonical().as_bytes());
    ToolProposal { key: Some(CallKey { key: key("k"), body }), ..call }
}

async fn holder(lab: &Lab, principal: &str) -> Option<(palyra_types::id::CallId, Sha256Digest)> {
    let found = lab.gate.call_by_key(&Principal::parse(principal).unwrap(), &key("k")).await.unwrap();
    found.map(|row| (row.call, row.body))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_proposed_again_by_its_key_does_not_run_again() {
    let lab = Lab::new().await;
    lab.write("a", "once");
    let (first, again) = (lab.call("fs.read", json!({ "path": "a" })), lab.call("fs.read", json!({ "path": "a" })));
    let (first, again) = (keyed(first), keyed(again));
    let (id, body, other) = (first.call, first.key.clone().unwrap().body, again.call);
    assert!(text(&lab.gate.run(first).await.unwrap()).contains("once"));
    let refused = lab.gate.run(again).await.unwrap_err();
    assert_eq!((&refused, refused.code()), (&Refusal::KeyTaken(id), "key_taken"));
    assert_eq!(lab.story(other).await, []);
    assert_eq!(holder(&lab, "agent:claude").await, Some((id, body)));
    assert_eq!(holder(&lab, "agent:other").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_calls_that_are_proposed_at_once_with_one_key_one_runs() {
    let lab = Lab::new().await;
    lab.write("a", "once");
    let calls: Vec<_> = (0..8).map(|_| lab.propose(keyed(lab.call("fs.read", json!({ "path": "a" }))))).collect();
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.unwrap());
    }
    let (id, _) = holder(&lab, "agent:claude").await.unwrap();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    assert!(refused.clone().all(|refusal| *refusal == Refusal::KeyTaken(id)), "{:?}", refused.collect::<Vec<_>>());
    assert_eq!(lab.used(lab.run).await.calls, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_or_was_refused_keeps_its_key_and_nobody_is_asked_twice() {
    let lab = Lab::new().await;
    let waiting = keyed(lab.command(["echo", "hi"]));
    let id = waiting.call;
    let running = lab.propose(waiting);
    let question = lab.asked(1).await.remove(0);
    assert_eq!(lab.gate.run(keyed(lab.command(["echo", "hi"]))).await.unwrap_err(), Refusal::KeyTaken(id));
    assert_eq!(lab.asked(1).await.len(), 1);
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    assert_eq!(text(&running.await.unwrap().unwrap()), "hi\n");

    let lab = Lab::new().await;
    let missing = keyed(lab.call("fs.read", json!({ "path": "missing" })));
    let id = missing.call;
    assert_eq!(lab.gate.run(missing).await.unwrap_err().code(), "bad_arguments");
    let again = keyed(lab.call("fs.read", json!({ "path": "missing" })));
    assert_eq!(lab.gate.run(again).await.unwrap_err(), Refusal::KeyTaken(id));
    assert_eq!(lab.story(id).await, [RecordKind::ToolProposed, RecordKind::ToolDecided]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_holds_for_a_day_and_through_a_crash() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_770_000_000_000)));
    let lab = Plan::default().clock(&clock).open().await;
    lab.write("a", "x");
    let first = keyed(lab.call("fs.read", json!({ "path": "a" })));
    let id = first.call;
    lab.gate.run(first).await.unwrap();
    let next = lab.crash().await;
    let again = || keyed(next.call("fs.read", json!({ "path": "a" })));
    clock.advance(24 * 60 * 60 * 1_000 - 1);
    assert_eq!(next.gate.run(again()).await.unwrap_err(), Refusal::KeyTaken(id));
    clock.advance(1);
    next.gate.run(again()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_not_be_recorded_leaves_no_key() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    lab.write("a", "x");
    faults.fail_commits(|_| Some(palyra_journal::Trouble::DiskFull));
    let call = || keyed(lab.call("fs.read", json!({ "path": "a" })));
    assert_eq!(lab.gate.run(call()).await.unwrap_err().code(), "journal_unwritable");
    faults.heal();
    assert_eq!(holder(&lab, "agent:claude").await, None);
    lab.gate.run(call()).await.unwrap();
}
