//! How much may be under way at once, who may interfere with it, and how a daemon lets go of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::{sync::Arc, time::Duration};

use palyra_gate::{
    AnswerError, CancelCause, DecisionScope, Ending, Petitioner, PostureSetting, Recovered, Refusal, ToolProposal,
    posture::PostureLayer,
};
use palyra_journal::{
    JournalStore, RecordKind, Selection, Trouble,
    state::{ApprovalState, Charge},
};
use palyra_policy::SourceFile;
use palyra_tests::{Faults, Lab, Plan, operator, until};
use palyra_types::{Posture, Principal, ToolName, id::CallId};
use serde_json::json;

const ALLOW_ALL: &str = "@id(\"allow-all\") permit (principal, action, resource);";
const DENY_ALL: &str = "@id(\"deny-all\") @why(\"it is late\") forbid (principal, action, resource);";

// ---- How much at once ------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_principal_take_turns_and_do_not_hold_up_another() {
    let lab = Plan::default().policies(ALLOW_ALL).config("[calls]\nmost_running_of_one = 1").open().await;
    let first = lab.command(["sleep", "60"]);
    let id = first.call;
    let running = lab.propose(first);
    started(&lab, id).await;
    let second = lab.command(["true"]);
    let waits = second.call;
    let queued = lab.propose(second);
    // Another gets its turn meanwhile.
    lab.gate.run(of(&lab, "agent:other", &["true"]).await).await.unwrap();
    assert_eq!(lab.story(waits).await, []);
    assert!(lab.gate.cancel(id, &operator()).unwrap());
    assert_eq!(running.await.unwrap().unwrap().receipt.attestation.ending, Ending::Cancelled);
    assert_eq!(queued.await.unwrap().unwrap().receipt.attestation.ending, Ending::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policy_denies_while_a_call_waits_for_its_turn_does_not_run() {
    let lab = Plan::default().policies(ALLOW_ALL).config("[calls]\nmost_running_of_one = 1").open().await;
    let first = lab.command(["sleep", "60"]);
    let id = first.call;
    let running = lab.propose(first);
    started(&lab, id).await;
    let queued = lab.propose(lab.command(["touch", "marker"]));
    tokio::time::sleep(Duration::from_millis(200)).await;
    lab.engine.reload(&[SourceFile::operator("late.cedar", DENY_ALL)]).unwrap();
    lab.gate.policies_changed("user:ada").await.unwrap();
    running.abort();
    assert!(matches!(queued.await.unwrap(), Err(Refusal::Denied(_))));
    assert_eq!(lab.read("marker"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_its_turn_can_be_withdrawn() {
    let lab = Plan::default().policies(ALLOW_ALL).config("[calls]\nmost_running_of_one = 1").open().await;
    let first = lab.command(["sleep", "60"]);
    let id = first.call;
    let _running = lab.propose(first);
    started(&lab, id).await;
    let second = lab.command(["touch", "marker"]);
    let waits = second.call;
    let queued = lab.propose(second);
    until(|| async { lab.gate.cancel(waits, &operator()).unwrap() }).await;
    assert_eq!(queued.await.unwrap().unwrap_err().code(), "cancelled");
    assert_eq!(lab.story(waits).await, [RecordKind::ToolProposed, RecordKind::ToolDecided]);
    assert_eq!(lab.used(lab.run).await.calls, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_turned_away_without_a_trace_and_others_get_through() {
    let config = "[calls]\nmost_running_of_one = 1\nmost_under_way_of_one = 8";
    let lab = Plan::default().policies(ALLOW_ALL).config(config).open().await;
    let first = lab.command(["sleep", "60"]);
    let id = first.call;
    let _running = lab.propose(first);
    started(&lab, id).await;
    let before = lab.records().await.len();
    let flood: Vec<_> = (0..500).map(|_| lab.propose(lab.command(["true"]))).collect();
    let over = || flood.iter().filter(|call| call.is_finished()).count();
    until(|| async { over() >= 493 }).await;
    assert_eq!((over(), lab.records().await.len()), (493, before));
    for call in flood.into_iter().filter(tokio::task::JoinHandle::is_finished) {
        assert_eq!(call.await.unwrap(), Err(Refusal::TooManyCalls { limit: 8 }));
    }
    lab.gate.run(of(&lab, "agent:other", &["true"]).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_bounded_by_their_size_too() {
    let lab = Plan::default().config("[approvals]\nmost_pending_bytes_of_one = 500000").open().await;
    let large = || lab.call("fs.write", json!({ "path": "a", "content": "x".repeat(100_000) }));
    let asked = lab.propose(large());
    lab.asked(1).await;
    let mut others: Vec<_> = (0..3).map(|_| lab.propose(large())).collect();
    let refusal = loop {
        others.push(lab.propose(large()));
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(at) = others.iter().position(tokio::task::JoinHandle::is_finished) {
            break others.remove(at).await.unwrap().unwrap_err();
        }
        assert!(others.len() < 20, "nothing bounds them");
    };
    assert_eq!(refusal, Refusal::PendingTooLarge { limit: 500_000 });
    assert!(!asked.is_finished());
}

// ---- Who may interfere -----------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stops_its_own_calls_and_nobody_elses() {
    let lab = Lab::new().await;
    let call = lab.command(["true"]);
    let (id, own) = (call.call, call.principal.clone());
    let waiting = lab.propose(call);
    lab.asked(1).await;
    let other = Principal::parse("agent:other").unwrap();
    assert!(matches!(lab.gate.cancel(id, &other.into()), Err(Refusal::NotPermitted(_))));
    assert!(!waiting.is_finished());
    assert_eq!(lab.gate.cancel(id, &own.into()), Ok(true));
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_changes_neither_postures_nor_standing_approvals() {
    let lab = Lab::new().await;
    let agent = Petitioner::from(Principal::parse("agent:claude").unwrap());
    let tool = ToolName::parse("process.run").unwrap();
    let free =
        PostureSetting { layer: PostureLayer::Global, key: String::new(), tool, posture: Some(Posture::AlwaysAllow) };
    assert!(matches!(lab.gate.set_posture(&free, &agent).await, Err(Refusal::NotPermitted(_))));
    let exact = DecisionScope::Session { pattern: palyra_gate::approval::record::Pattern::Exact };
    let done = lab.approved(lab.command(["true"]), exact).await.unwrap();
    let grant = done.receipt.attestation.approver.unwrap().approval;
    assert_eq!(lab.gate.end_grant(grant, &agent).await, Err(AnswerError::Agent));
    // It stands.
    lab.gate.run(lab.command(["true"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_posture_reaches_the_calls_that_wait_even_if_whoever_set_it_is_gone() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let waiting = lab.propose(lab.command(["true"]));
    lab.asked(1).await;
    let is_posture = |record: &palyra_journal::NewRecord| record.kind == RecordKind::PostureSet;
    let hold = faults.hold(move |transaction| transaction.records.iter().any(is_posture));
    let (gate, tool) = (lab.gate.clone(), ToolName::parse("process.run").unwrap());
    let setting =
        PostureSetting { layer: PostureLayer::Global, key: String::new(), tool, posture: Some(Posture::Disabled) };
    let set = tokio::spawn(async move { gate.set_posture(&setting, &operator()).await });
    hold.reached().await;
    set.abort();
    hold.release();
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_names_a_foreign_run_leaves_no_trace_in_its_story() {
    let lab = Plan::default().policies(DENY_ALL).open().await;
    let mut call = of(&lab, "agent:other", &["true"]).await;
    call.run = lab.run;
    let id = call.call;
    assert!(matches!(lab.gate.run(call).await, Err(Refusal::ForeignRun(..))));
    let records = lab.records().await;
    let told = records.iter().filter(|one| one.body.as_deref().is_some_and(|body| body.contains(&id.to_string())));
    assert_eq!(told.filter(|one| one.record.subject().run.is_none()).count(), 1, "the refusal is recorded");
    let kinds: Vec<_> = records.iter().filter(|one| one.record.subject().run == Some(lab.run)).collect();
    assert_eq!(kinds.len(), 1, "only that it was opened");
}

// ---- Letting go ------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_attests_what_runs_and_leaves_what_was_accepted_to_the_next() {
    let lab = Plan::default().open().await;
    // One runs, one waits with its caller, one waits without.
    let runs = lab.command(["sleep", "60"]);
    let (id, running) = (runs.call, lab.propose(runs));
    let question = lab.asked(1).await.remove(0).id;
    lab.approve(question, DecisionScope::Once).await.unwrap();
    started(&lab, id).await;
    let attached = lab.propose(lab.command(["touch", "attached"]));
    lab.asked(1).await;
    let accepted = lab.gate.submit(lab.command(["touch", "accepted"])).await.unwrap();
    assert_eq!(lab.gate.stop(Duration::from_secs(20)).await, 0);
    assert_eq!(running.await.unwrap().unwrap().receipt.attestation.ending, Ending::Cancelled);
    assert_eq!(
        attached.await.unwrap(),
        Err(Refusal::Cancelled(CancelCause::Withdrawn("the daemon is stopping".to_owned())))
    );
    assert_eq!(accepted.outcome.await.unwrap(), Err(Refusal::Stopping { goes_on: true }));
    let refused = lab.gate.run(lab.command(["true"])).await;
    assert_eq!(refused, Err(Refusal::Stopping { goes_on: false }));
    let next = lab.crash().await;
    assert_eq!(next.gate.recover().await.unwrap(), Recovered { resumed: 1, ..Recovered::default() });
    let pending = next.asked(1).await;
    assert_eq!(pending[0].call, accepted.call);
    next.approve(pending[0].id, DecisionScope::Once).await.unwrap();
    until(|| async { next.read("accepted").is_some() }).await;
    assert_eq!(next.read("attached"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_a_question_that_is_over_holds_no_token() {
    let lab = Lab::new().await;
    let token = "ghp_".to_owned() + &"a1".repeat(18);
    let running = lab.propose(lab.command(["echo", &token]));
    let id = lab.asked(1).await.remove(0).id;
    let before = lab.journal.approval(id).await.unwrap().unwrap();
    assert!(before.document.contains(&token), "what is to run is kept as it is");
    lab.approve(id, DecisionScope::Once).await.unwrap();
    let done = running.await.unwrap().unwrap();
    assert!(palyra_tests::text(&done).contains(&token), "and run as it is");
    let after = lab.journal.approval(id).await.unwrap().unwrap();
    assert_eq!((after.state, after.document.contains(&token)), (ApprovalState::Consumed, false));
    assert!(lab.gate.approval(id).await.unwrap().unwrap().1.is_some(), "it can still be shown");
    lab.journal.erase(Selection::Call(done.receipt.attestation.call), "asked for".to_owned()).await.unwrap();
    assert_eq!(lab.gate.approval(id).await.unwrap(), None, "until it is erased");
}

// ---- A disk that is full ---------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn while_the_disk_is_full_nothing_runs_and_everybody_is_told_why() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().policies(ALLOW_ALL).faults(&faults).open().await;
    faults.fail_commits(|_| Some(Trouble::DiskFull));
    let refused = lab.gate.run(lab.command(["touch", "marker"])).await.unwrap_err();
    assert_eq!((refused.code(), lab.read("marker")), ("journal_unwritable", None));
    assert!(refused.to_string().contains("nothing can be recorded, so nothing runs"), "{refused}");
    assert!(refused.advice().contains("space"), "{}", refused.advice());
    assert_eq!(lab.used(lab.run).await, Charge::default());
    faults.heal();
    lab.gate.run(lab.command(["touch", "marker"])).await.unwrap();
    assert!(lab.read("marker").is_some());
}

async fn of(lab: &Lab, principal: &str, argv: &[&str]) -> ToolProposal {
    let principal = Principal::parse(principal).unwrap();
    let run = lab.gate.open_run(lab.session, &principal, None).await.unwrap();
    ToolProposal { principal, run, ..lab.call("process.run", json!({ "command": argv })) }
}

async fn started(lab: &Lab, id: CallId) {
    until(|| async { lab.story(id).await.contains(&RecordKind::ToolStarted) }).await;
}
