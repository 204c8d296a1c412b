//! `kill -9` of the real daemon at any moment, under load over HTTP: what was acknowledged is there, nothing ran twice, nothing ran
//! unrecorded or unattested, an accepted call that is approved after the restart runs once, and one whose caller waited is withdrawn.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use palyra_api::{
    approval::ApprovalQuery,
    call::{Call, CallState, NewCall},
};
use palyra_client::{Client, ClientError, IdempotencyKey};
use palyra_journal::{JournalStore, RecordKind, SqliteJournal, StoredRecord, Trust, verify};
use palyra_tests::{
    Audit,
    daemon::{DaemonLab, DaemonPlan, accepted, approve, over, tool},
};
use palyra_types::{clock::SystemClock, entropy::SystemEntropy, id::CallId};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// Calls whose file is `allowed.log` or `written.log` run at once; those whose file is `asked.log` ask; others are denied.
const POLICIES: &str = r#"
@id("files") permit (principal, action in [Palyra::Action::"fs.read", Palyra::Action::"fs.write"], resource);
@id("allowed") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context has process && context.process has arg2 && context.process.arg2 == "allowed.log" };
@id("written") permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"fs.write");
@id("asked") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context.approved && context has process && context.process has arg2 && context.process.arg2 == "asked.log" };
@id("nothing-else") forbid (principal, action == Palyra::Action::"tool.execute", resource)
unless { resource == Palyra::Tool::"fs.write" ||
  (context has process && context.process has arg2 && ["allowed.log", "asked.log"].contains(context.process.arg2)) };
"#;

const CALLERS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_kills_of_the_daemon_lose_nothing_and_double_nothing() {
    kill_again_and_again(plan(), 200, 260).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_for_the_daemon_of_an_ordinary_user() {
    kill_again_and_again(plan().ordinary_user(), 20, 800).await;
}

fn plan() -> DaemonPlan {
    DaemonPlan::default()
        .config("[budget]\ncalls = 1000000\n[policy]\npreset = \"none\"\nallow_sensitive_tools = true")
        .policies("lab.cedar", POLICIES)
}

/// What callers were told.
#[derive(Default)]
struct Heard {
    ran: Mutex<Vec<(CallId, u64, String)>>,
    accepted: Mutex<Vec<CallId>>,
    withdrawn: AtomicUsize,
    denied: AtomicUsize,
    approved: AtomicUsize,
    replayed: AtomicUsize,
    over: AtomicBool,
    /// Whether every caller has its answer.
    quiet: AtomicBool,
    next: AtomicU64,
}

/// `longest` is the longest moment before a kill, in milliseconds.
async fn kill_again_and_again(plan: DaemonPlan, rounds: u32, longest: u64) {
    let mut lab = plan.start();
    let heard = Arc::new(Heard::default());
    let callers: Vec<_> =
        (0..CALLERS).map(|caller| tokio::spawn(call_until_over(lab.agent(), Arc::clone(&heard), caller))).collect();
    let approver = tokio::spawn(approve_until_quiet(lab.owner(), Arc::clone(&heard)));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    for _ in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis(40 + (random >> 33) % longest)).await;
        lab.kill();
        lab = tokio::task::spawn_blocking(move || {
            lab.start();
            lab
        })
        .await
        .unwrap();
    }
    heard.over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    heard.quiet.store(true, Ordering::SeqCst);
    approver.await.unwrap();
    finish(&lab, &heard).await;
    assert!(lab.stop().success(), "{}", lab.log());
    check(&lab, &heard, rounds).await;
}

/// Proposes calls, and asks again with the same key after every kill, until each is answered.
async fn call_until_over(agent: Client, heard: Arc<Heard>, caller: u64) {
    while !heard.over.load(Ordering::SeqCst) {
        let number = heard.next.fetch_add(1, Ordering::SeqCst);
        // Whoever answers is not left too far behind: what waits is judged again at every start.
        let waiting = heard.accepted.lock().await.len().saturating_sub(heard.approved.load(Ordering::SeqCst));
        let (call, kind) = proposal(number, if waiting < 20 { caller } else { 0 });
        let key = IdempotencyKey::parse(&format!("call-{number}")).unwrap();
        let mut again = false;
        loop {
            match agent.propose(&call, Some(&key)).await {
                Ok(answered) => {
                    acknowledge(&heard, &answered, kind).await;
                    heard.replayed.fetch_add(usize::from(again), Ordering::SeqCst);
                    break;
                }
                Err(ClientError::Refused { error, .. }) => match error.code.as_str() {
                    "denied_by_policy" if kind == Kind::Denied => {
                        heard.denied.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    "cancelled" => {
                        heard.withdrawn.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    "stopping" | "journal_unwritable" => {}
                    code => panic!("{code}: {}", error.message),
                },
                // It is gone, and comes back.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            again = true;
            if heard.over.load(Ordering::SeqCst) && kind == Kind::Asked {
                // Nobody approves any more.
                break;
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Runs,
    Asked,
    Accepted,
    Denied,
}

fn proposal(number: u64, caller: u64) -> (NewCall, Kind) {
    let line = format!("call-{number}\n");
    let run_by = |file: &str| tool("process.run", json!({ "command": ["tee", "-a", file], "stdin": line }));
    match number % 6 {
        0 => (run_by("allowed.log"), Kind::Runs),
        1 | 2 if caller.is_multiple_of(2) => (run_by("asked.log"), Kind::Asked),
        1 | 2 => (accepted(run_by("asked.log")), Kind::Accepted),
        3 => (tool("process.run", json!({ "command": ["tee", "-a", "denied.log"], "stdin": line })), Kind::Denied),
        // The daemon does these itself, so that many come to their end between two kills.
        _ => (tool("fs.write", json!({ "path": "written.log", "content": line, "mode": "append" })), Kind::Runs),
    }
}

async fn acknowledge(heard: &Heard, answered: &Call, kind: Kind) {
    if kind == Kind::Accepted {
        heard.accepted.lock().await.push(answered.id);
        return;
    }
    assert_eq!(answered.state, CallState::Ended);
    let receipt = answered.receipt.as_ref().expect("a call that is answered with 200 has a receipt");
    heard.ran.lock().await.push((answered.id, receipt.seq, receipt.hash.to_string()));
}

/// A caller who asked at the last moment waits for an answer, and the test for the caller.
async fn approve_until_quiet(owner: Client, heard: Arc<Heard>) {
    while !heard.quiet.load(Ordering::SeqCst) {
        if let Ok(pending) = owner.approvals(&ApprovalQuery::default()).await {
            for question in pending.approvals {
                let approved = approve(&owner, &question).await.is_ok();
                heard.approved.fetch_add(usize::from(approved), Ordering::SeqCst);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Approves what is left, and waits until every accepted call is over.
async fn finish(lab: &DaemonLab, heard: &Heard) {
    let owner = lab.owner();
    loop {
        let pending = owner.approvals(&ApprovalQuery::default()).await.unwrap().approvals;
        if pending.is_empty() {
            break;
        }
        for question in pending {
            // It may have been withdrawn just now, because its caller left.
            let _ = approve(&owner, &question).await;
        }
    }
    for id in heard.accepted.lock().await.iter() {
        let call = over(&owner, *id).await;
        assert!(call.receipt.is_some(), "the accepted call {id} was approved and did not run: {:?}", call.refusal);
    }
}

async fn check(lab: &DaemonLab, heard: &Heard, rounds: u32) {
    let report = verify(&lab.journal(), &Trust::default(), &mut |_, _| {}).expect("the journal verifies");
    let journal = SqliteJournal::open(&lab.journal(), Arc::new(SystemClock::new()), Arc::new(SystemEntropy)).unwrap();
    let records = journal.records(0, usize::MAX).await.unwrap();
    assert_eq!(report.records, u64::try_from(records.len()).unwrap());

    let Audit { started, used } = Audit::of(&records);
    let mut lines = HashMap::new();
    for record in records.iter().filter(|record| record.record.kind == RecordKind::ToolProposed) {
        let known = lines.insert(line_of(record), record.record.subject().call.unwrap());
        assert_eq!(known, None, "one key, two calls");
    }
    for state in [palyra_journal::state::CallState::Started, palyra_journal::state::CallState::Waiting] {
        assert!(journal.calls_in(state).await.unwrap().is_empty(), "calls are left {state}");
    }

    let acknowledged = heard.ran.lock().await;
    for (call, seq, hash) in acknowledged.iter() {
        let record = &records[usize::try_from(*seq).unwrap()];
        assert_eq!((record.hash.to_string(), record.record.subject().call), (hash.clone(), Some(*call)));
        assert_eq!(record.record.kind, RecordKind::ToolAttested);
    }
    let mut ran = HashSet::new();
    for file in ["allowed.log", "asked.log", "written.log", "denied.log"] {
        for line in fs::read_to_string(lab.workspace().join(file)).unwrap_or_default().lines() {
            let call = lines.get(line).unwrap_or_else(|| panic!("`{line}` ran without a record"));
            assert!(ran.insert(*call), "the call {call} ran twice");
            assert!(started.contains(call), "the call {call} ran without a durable record");
            assert_ne!(file, "denied.log");
        }
    }
    let (accepted, approved) = (heard.accepted.lock().await.len(), heard.approved.load(Ordering::SeqCst));
    let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    println!(
        "{} records, {} acknowledged, {accepted} accepted, {approved} approved, {} withdrawn, {} denied, {} answered again",
        records.len(),
        acknowledged.len(),
        count(&heard.withdrawn),
        count(&heard.denied),
        count(&heard.replayed),
    );
    let enough = usize::try_from(rounds).unwrap();
    assert!(acknowledged.len() > enough, "{} calls came to their end, too few to show anything", acknowledged.len());
    assert!(used.len() > enough / 4, "{} answers were used, too few to show anything", used.len());
    assert!(count(&heard.withdrawn) > 0, "no caller was cut off while it waited, so nothing is shown about those");
    assert!(count(&heard.replayed) > 0, "nothing was asked again, so nothing is shown about keys");
}

/// The line that a call was to write, which names it.
fn line_of(record: &StoredRecord) -> String {
    let body: Value = serde_json::from_str(record.body.as_ref().unwrap()).unwrap();
    let line = body["args"].get("stdin").or_else(|| body["args"].get("content")).unwrap();
    line.as_str().unwrap().trim().to_owned()
}
