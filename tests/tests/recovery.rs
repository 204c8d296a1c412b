//! What a daemon finds after a `kill -9`, and what it makes of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::time::Duration;

use palyra_gate::{DecisionScope, Recovered};
use palyra_journal::{
    JournalStore, RecordKind,
    state::{ApprovalState, CallState},
};
use palyra_tests::{Lab, Plan};

const ALLOW_ALL: &str = "@id(\"allow-all\") permit (principal, action, resource);";

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_had_begun_is_attested_as_interrupted_and_not_run_again() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let call = lab.command(["sleep", "30"]);
    let id = call.call;
    let running = lab.propose(call);
    while !lab.story(id).await.contains(&RecordKind::ToolStarted) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let after = lab.crash().await;
    running.abort();
    let recovered = after.gate.recover().await.unwrap();
    assert_eq!(recovered, Recovered { interrupted: 1, withdrawn: 0, resumed: 0 });
    assert_eq!(after.story(id).await.last(), Some(&RecordKind::ToolAttested));
    assert_eq!(after.attested(id).await["ending"], "interrupted");
    assert_eq!(after.journal.call(id).await.unwrap().unwrap().state, CallState::Ended);
    assert_eq!(after.gate.recover().await.unwrap(), Recovered::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_whose_caller_was_attached_is_withdrawn() {
    let lab = Lab::new().await;
    let running = lab.propose(lab.command(["touch", "marker"]));
    let question = lab.asked(1).await.remove(0);
    let after = lab.crash().await;
    assert_eq!(after.gate.recover().await.unwrap(), Recovered { interrupted: 0, withdrawn: 1, resumed: 0 });
    let late = after.approve(question.id, DecisionScope::Once).await.unwrap_err();
    assert_eq!(late.to_string(), "too late: the approval is cancelled");
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_call_waits_on_through_a_restart_and_runs_once_it_is_approved() {
    let lab = Lab::new().await;
    let call = lab.command(["touch", "marker"]);
    let id = call.call;
    lab.gate.submit(call).await.unwrap();
    let question = lab.asked(1).await.remove(0);
    let after = lab.crash().await;
    assert_eq!(after.gate.recover().await.unwrap(), Recovered { interrupted: 0, withdrawn: 0, resumed: 1 });
    after.approve(question.id, DecisionScope::Once).await.unwrap();
    while !after.story(id).await.contains(&RecordKind::ToolAttested) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(after.journal.approval(question.id).await.unwrap().unwrap().state, ApprovalState::Consumed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_call_that_was_approved_and_had_not_started_starts_after_the_restart() {
    let lab = Lab::new().await;
    let call = lab.command(["touch", "marker"]);
    let id = call.call;
    lab.gate.submit(call).await.unwrap();
    let question = lab.asked(1).await.remove(0);
    // The daemon that is asked dies; another one that knows nothing of the waiting call records the answer, and dies too.
    let between = lab.crash().await;
    between.approve(question.id, DecisionScope::Once).await.unwrap();
    assert_eq!(between.story(id).await.last(), Some(&RecordKind::ApprovalResolved));
    let after = between.crash().await;
    assert_eq!(after.gate.recover().await.unwrap(), Recovered { interrupted: 0, withdrawn: 0, resumed: 1 });
    while !after.story(id).await.contains(&RecordKind::ToolAttested) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
