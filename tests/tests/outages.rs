//! What was refused because the disk failed, and is on it all the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends")]

use std::{sync::Arc, time::Duration};

use palyra_gate::{AnswerError, DecisionScope, Ending, approval::record::Pattern};
use palyra_journal::{
    Body, JournalStore, NewRecord, RecordKind, Subject, Transaction,
    state::{ApprovalState, CallState, Charge},
};
use palyra_tests::{Faults, Lab, Plan, until};
use palyra_types::{entropy::SystemEntropy, id::CallId};
use serde_json::json;

const ALLOW_ALL: &str = "@id(\"allow-all\") permit (principal, action, resource);";
const SESSION: DecisionScope = DecisionScope::Session { pattern: Pattern::Exact };

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_refused_and_written_runs_nothing_and_is_attested() {
    let (lab, faults) = lab(Some(ALLOW_ALL)).await;
    faults.lie_about_commit(|transaction| has(transaction, RecordKind::ToolStarted));
    let call = lab.command(["touch", "marker"]);
    let id = call.call;
    assert_eq!(lab.gate.run(call).await.unwrap_err().code(), "journal_unwritable");
    assert_eq!(lab.journal.call(id).await.unwrap().unwrap().state, CallState::Started);
    the_outage_ends(&lab).await;
    until_over(&lab, id).await;
    assert_eq!((lab.attested(id).await["ending"].as_str(), lab.read("marker")), (Some("interrupted"), None));
    assert_eq!(lab.used(lab.run).await.output_bytes, 0, "what was held for it is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_was_refused_and_written_is_withdrawn() {
    let (lab, faults) = lab(None).await;
    faults.lie_about_commit(|transaction| has(transaction, RecordKind::ApprovalRequested));
    let call = lab.command(["touch", "marker"]);
    let id = call.call;
    assert_eq!(lab.gate.submit(call).await.err().unwrap().code(), "journal_unwritable");
    let question = lab.asked(1).await.remove(0).id;
    the_outage_ends(&lab).await;
    until_over(&lab, id).await;
    assert_eq!(lab.journal.approval_state(question).await.unwrap(), Some(ApprovalState::Cancelled));
    lab.approve(question, DecisionScope::Once).await.unwrap_err();
    assert_eq!((lab.read("marker"), lab.used(lab.run).await), (None, Charge::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_while_it_tidies_up_leaves_what_was_accepted_to_the_next() {
    let (lab, faults) = lab(None).await;
    faults.lie_about_commit(|transaction| has(transaction, RecordKind::ApprovalRequested));
    lab.gate.submit(lab.command(["touch", "refused"])).await.err().unwrap();
    let accepted = lab.gate.submit(lab.command(["touch", "accepted"])).await.unwrap();
    let hold = faults.hold(|transaction| has(transaction, RecordKind::ApprovalResolved));
    the_outage_ends(&lab).await;
    hold.reached().await;
    assert_eq!(lab.gate.stop(Duration::from_secs(20)).await, 0);
    hold.release();
    until(|| async { lab.journal.calls_in(CallState::Waiting).await.unwrap().len() == 1 }).await;
    // It looks a few times.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let question = lab.journal.approval_of(accepted.call).await.unwrap().unwrap();
    assert_eq!(question.state, ApprovalState::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_use_was_refused_and_written_is_not_used_again() {
    let (lab, faults) = lab(None).await;
    let call = lab.command(["touch", "marker"]);
    let id = call.call;
    let running = lab.propose(call);
    let question = lab.asked(1).await.remove(0).id;
    faults.lie_about_commit(|transaction| has(transaction, RecordKind::ToolStarted));
    lab.approve(question, DecisionScope::Once).await.unwrap();
    running.await.unwrap().unwrap_err();
    the_outage_ends(&lab).await;
    until_over(&lab, id).await;
    assert_eq!((lab.attested(id).await["ending"].as_str(), lab.read("marker")), (Some("interrupted"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_gives_an_answer_that_is_refused_and_written_is_not_told_that_nothing_runs() {
    let (lab, faults) = lab(None).await;
    let running = lab.propose(lab.command(["touch", "marker"]));
    let question = lab.asked(1).await.remove(0).id;
    faults.lie_about_commit(|transaction| has(transaction, RecordKind::ApprovalResolved));
    let refused = lab.approve(question, DecisionScope::Once).await.unwrap_err();
    assert!(matches!(refused, AnswerError::Unsure(_)), "{refused}");
    running.await.unwrap().unwrap();
    assert!(lab.read("marker").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_that_was_refused_and_written_reaches_the_caller() {
    let (lab, faults) = lab(Some(ALLOW_ALL)).await;
    faults.lie_about_commit(|transaction| has(transaction, RecordKind::ToolAttested));
    let call = lab.command(["echo", "done"]);
    let id = call.call;
    let done = lab.gate.run(call).await.unwrap();
    assert_eq!((done.receipt.attestation.ending, palyra_tests::text(&done).as_str()), (Ending::Completed, "done\n"));
    let records = lab.records().await;
    let kept = records.iter().find(|one| one.hash == done.receipt.hash).unwrap();
    assert_eq!((kept.record.seq, kept.record.subject().call), (done.receipt.seq, Some(id)));
    assert_eq!(lab.story(id).await.iter().filter(|&&kind| kind == RecordKind::ToolAttested).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn however_large_a_call_is_that_was_approved_for_a_session_it_is_attested() {
    let (lab, _) = lab(None).await;
    lab.write("large", "");
    let write = || lab.call("fs.write", json!({ "path": "large", "content": "\"\n".repeat(200_000) }));
    lab.approved(write(), SESSION).await.unwrap();
    let again = lab.gate.run(write()).await.unwrap();
    assert_eq!(again.receipt.attestation.ending, Ending::Completed);
    assert!(again.receipt.note.len() < 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_what_an_answer_covers_is_neither_kept_nor_breaks_the_signature() {
    let (lab, _) = lab(None).await;
    let token = "ghp_".to_owned() + &"a1".repeat(18);
    lab.approved(lab.command(["echo", &token]), SESSION).await.unwrap();
    let again = lab.command(["echo", &token]);
    let id = again.call;
    lab.gate.run(again).await.unwrap();
    let attested = lab.attested(id).await;
    assert_eq!(attested["approver"]["covers"], "exactly: /usr/bin/echo [masked github token]");
}

async fn lab(policies: Option<&str>) -> (Lab, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let mut plan = Plan::default().faults(&faults);
    if let Some(policies) = policies {
        plan = plan.policies(policies);
    }
    let lab = plan.open().await;
    lab.gate.recover().await.unwrap();
    (lab, faults)
}

/// What the journal says when it can be written again.
async fn the_outage_ends(lab: &Lab) {
    let body = Body::new("{}".to_owned(), &SystemEntropy).unwrap();
    let record = NewRecord { kind: RecordKind::JournalRecovered, subject: Subject::default(), time: lab.now(), body };
    lab.journal.commit(Transaction { records: vec![record], changes: Vec::new() }).await.unwrap();
}

async fn until_over(lab: &Lab, id: CallId) {
    until(|| async { lab.journal.call(id).await.unwrap().unwrap().state == CallState::Ended }).await;
}

fn has(transaction: &Transaction, kind: RecordKind) -> bool {
    transaction.records.iter().any(|record| record.kind == kind)
}
