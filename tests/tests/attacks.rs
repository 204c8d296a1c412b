//! Attempts to get past the gate, or to wear it out: each test is a way that somebody could try.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::{path::Path, sync::Arc, time::Duration};

use palyra_gate::{
    Answer, AnswerError, Answerer, CancelCause, DecisionScope, Ending, Recovered, Refusal, approval::record::Pattern,
};
use palyra_journal::{
    JournalStore, RecordKind, Transaction, Trouble,
    state::{ApprovalState, CallState, Change, Charge},
};
use palyra_policy::{Preset, SourceFile};
use palyra_tests::{Faults, Lab, Plan, operator, owner, text, until};
use palyra_types::{
    DeviceId, EgressEnforcementMode, Principal, Timestamp,
    clock::ManualClock,
    id::{ApprovalId, CallId, RunId},
};
use serde_json::json;

const ALLOW_ALL: &str = "@id(\"allow-all\") permit (principal, action, resource);";
const NO_TOUCH: &str = "@id(\"no-touch\") @why(\"touching is over\") forbid (principal, action, resource) \
                        when { context has process && context.process.name == \"touch\" };";
const REFUSED: [RecordKind; 2] = [RecordKind::ToolProposed, RecordKind::ToolDecided];

// ---- Ids -------------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn proposing_the_id_of_a_running_call_again_does_not_put_it_out_of_reach() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let call = lab.command(["sleep", "60"]);
    let (id, again) = (call.call, call.clone());
    let running = lab.propose(call);
    started(&lab, id).await;
    assert_eq!(lab.gate.run(again).await, Err(Refusal::Repeated));
    assert!(lab.gate.cancel(id, &operator()).unwrap(), "the running call cannot be cancelled any more");
    assert_eq!(ended(running).await.unwrap().receipt.attestation.ending, Ending::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_proposals_with_one_id_one_runs() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let call = lab.call("fs.write", json!({ "path": "log", "content": "x", "mode": "append" }));
    let id = call.call;
    let calls: Vec<_> = (0..32).map(|_| lab.propose(call.clone())).collect();
    let mut ran = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => ran += 1,
            Err(refusal) => assert_eq!(refusal, Refusal::Repeated),
        }
    }
    assert_eq!((ran, lab.read("log").as_deref()), (1, Some("x")));
    assert_eq!(count(&lab.story(id).await, RecordKind::ToolStarted), 1);
}

// ---- Cancelling ------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cancelled_while_it_is_decided_about_never_starts() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().policies(ALLOW_ALL).faults(&faults).open().await;
    let call = lab.command(["touch", "marker"]);
    let (id, gate) = (call.call, lab.gate.clone());
    faults.fail_reads(move |what| {
        if what == "postures" {
            gate.cancel(id, &operator()).unwrap();
        }
        false
    });
    let refused = lab.gate.run(call).await.unwrap_err();
    assert_eq!(refused, Refusal::Cancelled(CancelCause::Requested(owner().principal)));
    assert_eq!((lab.story(id).await.as_slice(), lab.read("marker")), (REFUSED.as_slice(), None));
    assert_eq!(lab.used(lab.run).await, Charge::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cancelled_while_its_start_is_written_is_attested_and_runs_nothing() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().policies(ALLOW_ALL).faults(&faults).open().await;
    let call = lab.command(["touch", "marker"]);
    let id = call.call;
    let hold = faults.hold(|transaction| has(transaction, RecordKind::ToolStarted));
    let running = lab.propose(call);
    hold.reached().await;
    lab.gate.cancel(id, &operator()).unwrap();
    hold.release();
    let done = ended(running).await.unwrap();
    assert_eq!(done.receipt.attestation.ending, Ending::Cancelled);
    assert_eq!((lab.read("marker"), lab.used(lab.run).await.calls), (None, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_conduct_panics_is_attested_and_gives_back_its_budget() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().policies(ALLOW_ALL).faults(&faults).open().await;
    lab.gate.recover().await.unwrap();
    let call = lab.command(["true"]);
    let id = call.call;
    let mut first = true;
    faults.fail_commits(move |transaction| {
        assert!(!(has(transaction, RecordKind::ToolAttested) && std::mem::take(&mut first)), "a failure on the way");
        None
    });
    assert_eq!(lab.gate.run(call).await.unwrap_err().code(), "internal");
    let last = lab.story(id).await.pop();
    assert_eq!(last, Some(RecordKind::ToolAttested));
    assert!(lab.used(lab.run).await.wall_ms < 10_000, "what it did not use is given back");
    lab.gate.run(lab.command(["true"])).await.unwrap();
}

// ---- Budgets ---------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_call_gives_back_what_it_did_not_use_of_the_budget() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let call = lab.command(["sleep", "30"]);
    let id = call.call;
    let running = lab.propose(call);
    started(&lab, id).await;
    assert_eq!(lab.used(lab.run).await, Charge { calls: 1, wall_ms: 120_000, output_bytes: 2 << 20 });
    let after = lab.crash().await;
    running.abort();
    after.gate.recover().await.unwrap();
    let used = after.used(lab.run).await;
    assert_eq!((used.calls, used.output_bytes), (1, 0));
    assert!(used.wall_ms < 60_000, "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_becomes_of_a_call_nothing_stays_reserved() {
    let lab = Plan::default().config("[sandbox]\ntier_b_interpreters = \"allow\"").policies(ALLOW_ALL).open().await;
    lab.write("not-a-program", "\u{7f}ELF nonsense");
    let path = lab.workspace().join("not-a-program");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let not_started = lab.gate.run(lab.command([path.to_str().unwrap()])).await.unwrap();
    assert_eq!(not_started.receipt.attestation.ending, Ending::NotStarted);
    let failed = lab.gate.run(lab.command(["sh", "-c", "exit 7"])).await.unwrap();
    assert_eq!(failed.output.exit_code(), Some(7));
    let call = lab.command(["sleep", "60"]);
    let (id, running) = (call.call, lab.propose(call));
    started(&lab, id).await;
    running.abort();
    until(|| async { lab.journal.call(id).await.unwrap().unwrap().state == CallState::Ended }).await;
    let used = lab.used(lab.run).await;
    assert_eq!((used.calls, used.output_bytes), (3, 0));
    assert!(used.wall_ms < 60_000, "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_call_of_a_run_keeps_no_more_output_than_the_budget_has_left() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    lab.write("large", &"x".repeat(10_000));
    for call in [lab.command(["cat", "large"]), lab.call("fs.read", json!({ "path": "large" }))] {
        let run = lab.open_run(Some(Charge { calls: 9, wall_ms: 60_000, output_bytes: 100 })).await;
        let done = lab.gate.run(palyra_gate::ToolProposal { run, ..call }).await.unwrap();
        let used = lab.used(run).await;
        assert!(used.output_bytes < 1_000, "{used:?}");
        assert!(text(&done).contains("xxx"), "{}", text(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_would_ask_and_names_a_run_it_does_not_have_is_refused_in_the_journal_too() {
    let lab = Lab::new().await;
    let unknown = RunId::generate(lab.now(), &palyra_types::entropy::SystemEntropy).unwrap();
    let foreign = lab.gate.open_run(lab.session, &Principal::parse("agent:other").unwrap(), None).await.unwrap();
    let spent = lab.open_run(Some(Charge { calls: 0, wall_ms: 1, output_bytes: 1 })).await;
    for (run, code) in [(unknown, "unknown_run"), (foreign, "unknown_run"), (spent, "budget_exceeded")] {
        let mut call = lab.command(["true"]);
        call.run = run;
        let before = lab.records().await.len();
        assert_eq!(lab.gate.run(call).await.unwrap_err().code(), code);
        let told: Vec<_> = lab.records().await.split_off(before).iter().map(|one| one.record.kind).collect();
        assert_eq!(told, REFUSED);
    }
}

// ---- Answers and what they cover -------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_about_the_time_is_judged_by_the_time_of_the_start_not_of_the_question() {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-03-02T09:59:00Z").unwrap()));
    let until_ten = "@id(\"until-ten\") permit (principal, action, resource) \
                     when { context.approved && context.now < datetime(\"2026-03-02T10:00:00Z\") };
                     @id(\"answering\") permit (principal is Palyra::User, action, resource);";
    let config = "[policy]\npreset = \"none\"\nallow_sensitive_tools = true\nallowlisted_tools = []";
    let lab = Plan::default().clock(&clock).policies(until_ten).config(config).open().await;
    let running = lab.propose(lab.command(["touch", "marker"]));
    let question = lab.asked(1).await.remove(0);
    clock.advance(90_000);
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    assert_eq!(ended(running).await.unwrap_err().code(), "denied_by_policy");
    assert_eq!(lab.read("marker"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wildcard_for_calls_on_behalf_of_one_user_does_not_cover_those_for_another() {
    let lab = Lab::new().await;
    let for_user = |argv, user: Option<&str>| {
        let mut call = lab.command::<2>(argv);
        call.on_behalf_of = user.map(|user| Principal::parse(user).unwrap());
        call
    };
    let scope = DecisionScope::Session { pattern: Pattern::Trailing { fixed: 0 } };
    lab.approved(for_user(["echo", "a"], Some("user:eve")), scope).await.unwrap();
    assert_eq!(text(&lab.gate.run(for_user(["echo", "b"], Some("user:eve"))).await.unwrap()), "b\n");
    for (count, other) in [Some("user:ada"), None].into_iter().enumerate() {
        let _asks = lab.propose(for_user(["echo", "c"], other));
        let asked = lab.asked(count + 1).await.pop().unwrap();
        assert_eq!(asked.on_behalf_of.map(|user| user.to_string()).as_deref(), other);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_grant_is_ended_while_it_is_used_asks() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let scope = DecisionScope::Session { pattern: Pattern::Exact };
    let done = lab.approved(lab.command(["echo", "x"]), scope).await.unwrap();
    let grant = done.receipt.attestation.approver.unwrap().approval;
    let hold = faults.hold(|transaction| transaction.changes.iter().any(|one| matches!(one, Change::UseGrant(_))));
    let running = lab.propose(lab.command(["echo", "x"]));
    hold.reached().await;
    lab.gate.end_grant(grant, &operator()).await.unwrap();
    hold.release();
    let question = lab.asked(1).await.remove(0);
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    let done = ended(running).await.unwrap();
    assert_eq!(done.receipt.attestation.approver.unwrap().approval, question.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_of_the_others_does_not_hide_that_the_first_was_answered() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let calls: Vec<_> = (0..3).map(|_| lab.propose(lab.command(["echo", "same"]))).collect();
    let first = lab.asked(3).await[0].id;
    let mut answers = 0;
    faults.fail_commits(move |transaction| {
        answers += u32::from(has(transaction, RecordKind::ApprovalResolved));
        (answers > 1 && has(transaction, RecordKind::ApprovalResolved)).then_some(Trouble::DiskFull)
    });
    let answered = lab.gate.answer_together(first, &Answer::Approve(DecisionScope::Once), &owner()).await.unwrap();
    assert_eq!(answered.iter().map(|record| record.id).collect::<Vec<_>>(), [first]);
    faults.heal();
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_is_too_large_to_be_digested_does_not_change_behind_an_approval() {
    let lab = Plan::default().config("[sandbox]\ntier_b_interpreters = \"allow\"").open().await;
    let padded = |command: &str| format!("{command}\nexit\n{}", "#".repeat(17 << 20));
    lab.write("build.sh", &padded("echo good"));
    let running = lab.propose(lab.command(["sh", "build.sh"]));
    let question = lab.asked(1).await.remove(0);
    lab.write("build.sh", &padded("echo evil"));
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    let refused = ended(running).await.unwrap_err();
    assert!(matches!(refused, Refusal::Mismatch { .. }), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_behind_many_other_files_does_not_change_behind_an_approval() {
    let lab = Plan::default().config("[sandbox]\ntier_b_interpreters = \"allow\"").open().await;
    let mut argv = vec!["make".to_owned()];
    for n in 0..70 {
        lab.write(&format!("file{n}"), "");
        argv.push(format!("file{n}"));
    }
    lab.write("evil.mk", "all:");
    argv.extend(["-f", "evil.mk"].map(str::to_owned));
    let running = lab.propose(lab.call("process.run", json!({ "command": argv })));
    // Not every machine has `make`; nothing can be swapped where nothing runs.
    while !running.is_finished() && lab.gate.pending_approvals(None, 1).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if let Some(question) = lab.gate.pending_approvals(None, 1).await.unwrap().pop() {
        lab.write("evil.mk", "all:\n\ttouch marker");
        lab.approve(question.id, DecisionScope::Once).await.unwrap();
        let refused = ended(running).await.unwrap_err();
        assert!(matches!(refused, Refusal::Mismatch { .. }), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_or_script_that_changes_while_the_start_is_written_does_not_run() {
    let faults = Arc::new(Faults::default());
    let config = "[sandbox]\ntier_b_interpreters = \"allow\"";
    let lab = Plan::default().policies(ALLOW_ALL).config(config).faults(&faults).open().await;
    let path = lab.workspace().join("tool");
    let path = path.to_str().unwrap();
    for argv in [vec![path], vec!["sh", "tool"]] {
        lab.write("tool", "#!/bin/sh\necho good");
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let hold = faults.hold(|transaction| has(transaction, RecordKind::ToolStarted));
        let running = lab.propose(lab.call("process.run", json!({ "command": argv })));
        hold.reached().await;
        lab.write("tool", "#!/bin/sh\ntouch marker");
        hold.release();
        let done = ended(running).await.unwrap();
        assert_eq!((done.receipt.attestation.ending, lab.read("marker")), (Ending::NotStarted, None), "{argv:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exchanged_while_the_start_is_written_is_not_followed() {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };
    let faults = Arc::new(Faults::default());
    let config = "[sandbox]\ntier_b_interpreters = \"allow\"";
    let lab = Plan::default().policies(ALLOW_ALL).config(config).faults(&faults).open().await;
    let root = lab.workspace().to_owned();
    let (interpreter, inner, aside) = (root.join("interpreter"), root.join("inner"), root.with_extension("aside"));
    lab.write("tool", &format!("#!{}\n", interpreter.display()));
    fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&inner).unwrap();
    symlink("/usr/bin/true", &interpreter).unwrap();
    let evil = tempfile::tempdir().unwrap();
    fs::create_dir(evil.path().join("inner")).unwrap();
    for (argv, exchanged, evil) in [
        (&["./tool"][..], &interpreter, Path::new("/usr/bin/false")),
        (&["/usr/bin/touch", "marker"], &inner, evil.path()),
        (&["/usr/bin/touch", "marker"], &root, evil.path()),
    ] {
        let cwd = if argv.len() == 1 { "." } else { "inner" };
        let call = || lab.call("process.run", json!({ "command": argv, "cwd": cwd }));
        assert_eq!(lab.gate.run(call()).await.unwrap().receipt.attestation.ending, Ending::Completed, "{exchanged:?}");
        let hold = faults.hold(|transaction| has(transaction, RecordKind::ToolStarted));
        let running = lab.propose(call());
        hold.reached().await;
        fs::rename(exchanged, &aside).unwrap();
        symlink(evil, exchanged).unwrap();
        hold.release();
        let done = ended(running).await.unwrap();
        fs::remove_file(exchanged).unwrap();
        fs::rename(&aside, exchanged).unwrap();
        // It may run where it was permitted to, which is open already, or not at all.
        let ending = done.receipt.attestation.ending;
        assert!(
            ending == Ending::NotStarted || (argv.len() == 2 && done.output.exit_code() == Some(0)),
            "{exchanged:?}"
        );
        assert!(!evil.join("marker").exists() && !evil.join("inner/marker").exists(), "{exchanged:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stronger_way_to_run_is_taken_even_if_the_weaker_one_is_listed_first() {
    let plans = "[sandbox]\nplans = [{ tier = \"b\", egress = \"none\" }, { tier = \"b\", egress = \"preflight\" }]";
    let lab = Plan::default().policies(ALLOW_ALL).config(plans).open().await;
    let done = lab.gate.run(lab.command(["true"])).await.unwrap();
    assert_eq!(done.receipt.attestation.egress, Some(EgressEnforcementMode::Preflight));
}

// ---- The PIN ---------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_can_neither_unlock_answering_nor_lock_people_out_of_it() {
    let lab = Plan::default().config("[approvals]\npresence = \"pin\"").pin("482913").open().await;
    let agent = Answerer { principal: Principal::parse("agent:claude").unwrap(), ..owner() };
    for pin in ["482913", "000000", "000001", "000002", "000003", "000004", "000005"] {
        assert_eq!(lab.gate.unlock(&agent, pin).await, Err(AnswerError::Agent));
    }
    lab.gate.unlock(&owner(), "482913").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guess_of_the_pin_is_told_of_also_when_whoever_made_it_is_gone() {
    let lab = Plan::default().config("[approvals]\npresence = \"pin\"").pin("482913").open().await;
    for pin in ["000000", "482913"] {
        // It takes longer than that to find out.
        let guess = tokio::time::timeout(Duration::from_micros(1), lab.gate.unlock(&owner(), pin)).await;
        assert!(guess.is_err());
    }
    let told = async || {
        let records = lab.records().await;
        records.iter().filter(|one| one.record.kind == RecordKind::PresenceChecked).count()
    };
    until(|| async { told().await == 2 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_one_person_unlocked_is_not_unlocked_for_another_who_names_it() {
    let lab = Plan::default().config("[approvals]\npresence = \"pin\"").pin("482913").open().await;
    let running = lab.propose(lab.command(["true"]));
    let id = lab.asked(1).await.remove(0).id;
    lab.gate.unlock(&owner(), "482913").await.unwrap();
    let other = Answerer { principal: Principal::parse("user:bob@operator").unwrap(), ..owner() };
    let answer = Answer::Approve(DecisionScope::Once);
    assert_eq!(lab.gate.answer(id, &answer, &other).await, Err(AnswerError::PinNeeded));
    lab.approve(id, DecisionScope::Once).await.unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlocking_that_cannot_be_recorded_does_not_count() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().config("[approvals]\npresence = \"pin\"").pin("482913").faults(&faults).open().await;
    let _running = lab.propose(lab.command(["true"]));
    let id = lab.asked(1).await.remove(0).id;
    faults.fail_commits(|_| Some(Trouble::DiskFull));
    assert!(lab.gate.unlock(&owner(), "482913").await.is_err());
    faults.heal();
    assert_eq!(lab.approve(id, DecisionScope::Once).await, Err(AnswerError::PinNeeded));
}

// ---- A journal in trouble --------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_in_which_the_journal_cannot_be_read_does_not_orphan_a_question() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let running = lab.propose(lab.command(["echo", "x"]));
    let question = lab.asked(1).await.remove(0);
    let answer = Answer::Approve(DecisionScope::Once);
    let row = lab.journal.approval(question.id).await.unwrap();
    assert!(row.is_some());
    let mut left = 3;
    let mut first = true;
    // The first read is that of the answer itself; those after it are the waiting call's.
    faults.fail_reads(move |what| {
        let fails = what == "approval" && !std::mem::take(&mut first) && left > 0;
        left -= i32::from(fails);
        fails
    });
    lab.gate.answer(question.id, &answer, &owner()).await.unwrap();
    assert_eq!(text(&ended(running).await.unwrap()), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_that_finds_the_disk_full_is_used_once_there_is_room_again() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let call = lab.call("fs.write", json!({ "path": "log", "content": "x", "mode": "append" }));
    let id = call.call;
    let running = lab.propose(call);
    let question = lab.asked(1).await.remove(0);
    faults.fail_commits(|transaction| has(transaction, RecordKind::ToolStarted).then_some(Trouble::DiskFull));
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(lab.read("log"), None);
    faults.heal();
    assert_eq!(ended(running).await.unwrap().receipt.attestation.ending, Ending::Completed);
    assert_eq!(lab.read("log").as_deref(), Some("x"));
    assert_eq!(count(&lab.story(id).await, RecordKind::ToolStarted), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_that_cannot_be_written_is_written_later() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let running = lab.propose(lab.command(["touch", "marker"]));
    let question = lab.asked(1).await.remove(0);
    faults.fail_commits(|_| Some(Trouble::DiskFull));
    running.abort();
    tokio::time::sleep(Duration::from_millis(300)).await;
    faults.heal();
    until(|| async { approval_state(&lab, question.id).await == ApprovalState::Cancelled }).await;
    assert_eq!(lab.read("marker"), None);
}

/// The n-th commit of a call fails for ever: whichever it is, a program runs only behind a durable `tool.started`, and what ran is attested
/// by this daemon or the next.
#[tokio::test(flavor = "multi_thread")]
async fn whichever_commit_of_a_call_fails_nothing_runs_that_was_not_recorded_as_started() {
    for nth in 1..=4 {
        let faults = Arc::new(Faults::default());
        let lab = Plan::default().policies(ALLOW_ALL).faults(&faults).open().await;
        let call = lab.command(["touch", "marker"]);
        let id = call.call;
        let mut seen = 0;
        faults.fail_commits(move |_| {
            seen += 1;
            (seen >= nth).then(|| Trouble::Damaged("a fault".to_owned()))
        });
        let outcome = tokio::time::timeout(Duration::from_secs(20), lab.gate.run(call)).await.unwrap();
        let story = lab.story(id).await;
        let (ran, was_started) = (lab.read("marker").is_some(), story.contains(&RecordKind::ToolStarted));
        assert!(!ran || was_started, "commit {nth}: {story:?}");
        match outcome {
            Ok(_) => assert!(story.contains(&RecordKind::ToolAttested)),
            Err(Refusal::Unattested(_)) => {
                faults.heal();
                let after = lab.crash().await;
                assert_eq!(after.gate.recover().await.unwrap().interrupted, 1);
                assert_eq!(after.story(id).await.last(), Some(&RecordKind::ToolAttested));
            }
            Err(refusal) => assert!(matches!(refusal, Refusal::Journal(_)) && !ran, "commit {nth}: {refusal:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_read_of_a_call_fails_nothing_runs_and_the_refusal_is_recorded() {
    for what in ["postures", "grants_for", "run"] {
        let faults = Arc::new(Faults::default());
        let lab = Plan::default().faults(&faults).open().await;
        let call = lab.command(["touch", "marker"]);
        let id = call.call;
        faults.fail_reads(move |read| read == what);
        let refused = tokio::time::timeout(Duration::from_secs(20), lab.gate.run(call)).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), "journal_unreadable", "{what}");
        assert_eq!((lab.story(id).await.as_slice(), lab.read("marker")), (REFUSED.as_slice(), None), "{what}");
    }
}

// ---- Restarts and reloads --------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_cannot_be_read_any_more_stops_neither_the_list_nor_the_next_start() {
    let lab = Lab::new().await;
    let token = "ghp_".to_owned() + &"a1".repeat(18);
    let (broken, whole) = (lab.command(["touch", "broken"]), lab.command(["touch", "whole"]));
    let id = broken.call;
    lab.gate.submit(broken).await.unwrap();
    let question = lab.asked(1).await.remove(0).id;
    lab.gate.submit(whole).await.unwrap();
    lab.asked(2).await;
    let garbled = Change::MoveApproval {
        id: question,
        from: ApprovalState::Pending,
        to: ApprovalState::Pending,
        document: Some(format!("{{\"token\":\"{token}\"}}")),
    };
    lab.journal.commit(Transaction { records: Vec::new(), changes: vec![garbled] }).await.unwrap();
    assert_eq!(lab.gate.pending_approvals(None, 9).await.unwrap().len(), 1);
    assert!(lab.approve(question, DecisionScope::Once).await.is_err());
    let after = lab.crash().await;
    assert_eq!(after.gate.recover().await.unwrap(), Recovered { interrupted: 0, withdrawn: 1, resumed: 1 });
    let over = after.journal.approval(question).await.unwrap().unwrap();
    assert_eq!((over.state, over.document.contains(&token)), (ApprovalState::Cancelled, false));
    assert_eq!(after.journal.call(id).await.unwrap().unwrap().state, CallState::Ended);
    assert_eq!(after.story(id).await.last(), Some(&RecordKind::ApprovalResolved));
    assert_eq!(lab.read("broken"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_policy_denies_by_the_next_start_is_withdrawn() {
    let lab = Lab::new().await;
    lab.gate.submit(lab.command(["touch", "marker"])).await.unwrap();
    let question = lab.asked(1).await.remove(0).id;
    let after = lab.crash().await;
    after.engine.reload(&[Preset::Cautious.source(), SourceFile::operator("no.cedar", NO_TOUCH.to_owned())]).unwrap();
    after.gate.recover().await.unwrap();
    until(|| async { approval_state(&after, question).await == ApprovalState::Cancelled }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_between_the_decision_and_the_question_is_not_missed() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let hold = faults.hold(|transaction| has(transaction, RecordKind::ApprovalRequested));
    let running = lab.propose(lab.command(["touch", "marker"]));
    hold.reached().await;
    lab.engine.reload(&[Preset::Cautious.source(), SourceFile::operator("no.cedar", NO_TOUCH.to_owned())]).unwrap();
    lab.gate.policies_changed("ada").await.unwrap();
    hold.release();
    let refused = ended(running).await.unwrap_err();
    assert_eq!(refused.to_string(), "the call was cancelled: policy changed: touching is over [no-touch]");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_are_in_force_count_before_anybody_tells_the_gate_of_them() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    let exact = DecisionScope::Session { pattern: Pattern::Exact };
    lab.approved(lab.command(["touch", "marker"]), exact).await.unwrap();
    std::fs::remove_file(lab.workspace().join("marker")).unwrap();
    let engine = Arc::clone(&lab.engine);
    // Between the decision and the start.
    faults.fail_reads(move |what| {
        if what == "grants_for" {
            engine.reload(&[Preset::Cautious.source(), SourceFile::operator("late.cedar", NO_TOUCH)]).unwrap();
        }
        false
    });
    let refused = lab.gate.run(lab.command(["touch", "marker"])).await.unwrap_err();
    assert_eq!((refused.code(), lab.read("marker")), ("denied_by_policy", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn recovering_twice_leaves_the_calls_of_this_daemon_alone() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let call = lab.command(["sleep", "1"]);
    let (id, running) = (call.call, lab.propose(call));
    started(&lab, id).await;
    assert_eq!(lab.gate.recover().await.unwrap(), Recovered::default());
    assert_eq!(ended(running).await.unwrap().receipt.attestation.ending, Ending::Completed);
    assert_eq!(count(&lab.story(id).await, RecordKind::ToolAttested), 1);
}

// ---- Policy about what is found on the way ---------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_about_a_device_holds_for_what_a_search_finds_too() {
    let forbid = "@id(\"allow-all\") permit (principal, action, resource);
                  @id(\"not-from-there\") forbid (principal, action == Palyra::Action::\"fs.read\", resource) \
                  when { context has device_id && context.device_id == \"phone\" && resource.path like \"*/private/*\" };";
    let lab = Plan::default().policies(forbid).open().await;
    std::fs::create_dir(lab.workspace().join("private")).unwrap();
    lab.write("private/key", "canary");
    let mut call = lab.call("fs.search", json!({ "pattern": "canary" }));
    call.device = Some(DeviceId::parse("phone").unwrap());
    let found = text(&lab.gate.run(call).await.unwrap());
    assert!(!found.contains("\"text\""), "{found}");
}

// ---- What tests share ------------------------------------------------------------------------------------------------

fn has(transaction: &Transaction, kind: RecordKind) -> bool {
    transaction.records.iter().any(|record| record.kind == kind)
}

fn count(story: &[RecordKind], kind: RecordKind) -> usize {
    story.iter().filter(|one| **one == kind).count()
}

async fn approval_state(lab: &Lab, id: ApprovalId) -> ApprovalState {
    lab.journal.approval(id).await.unwrap().unwrap().state
}

async fn started(lab: &Lab, id: CallId) {
    until(|| async { lab.story(id).await.contains(&RecordKind::ToolStarted) }).await;
}

async fn ended<T>(running: tokio::task::JoinHandle<T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("the call hangs").unwrap()
}
