//! The path of a call, from outside: what runs, what does not, and what is left behind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::{
    fs,
    time::{Duration, Instant},
};

use palyra_gate::{DecisionScope, Ending, Output, Refusal};
use palyra_journal::{RecordKind, state::Charge};
use palyra_tests::{Lab, Plan, TIER_B, text, until};
use serde_json::{Value, json};

const CONTAINED: [RecordKind; 4] =
    [RecordKind::ToolProposed, RecordKind::ToolDecided, RecordKind::ToolStarted, RecordKind::ToolAttested];

#[tokio::test(flavor = "multi_thread")]
async fn a_read_inside_the_workspace_runs_at_once_and_has_a_signed_receipt() {
    let lab = Lab::new().await;
    lab.write("notes.txt", "hello");
    let call = lab.call("fs.read", json!({ "path": "notes.txt" }));
    let id = call.call;
    let done = lab.gate.run(call).await.unwrap();
    assert!(text(&done).contains("\"content\":\"hello\""), "{}", text(&done));
    assert_eq!(lab.story(id).await, CONTAINED);
    let attested = done.receipt.attestation;
    assert_eq!((attested.ending, attested.approver, attested.tier), (Ending::Completed, None, None));
    let opened = lab.gate.store().key().public().open(&done.receipt.note).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&opened).unwrap()["call"], id.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_asks_and_runs_once_it_is_approved() {
    let lab = Lab::new().await;
    let call = lab.command(["echo", "hello world"]);
    let id = call.call;
    let done = lab.approved(call, DecisionScope::Once).await.unwrap();
    assert_eq!(text(&done), "hello world\n");
    assert_eq!(done.output.exit_code(), Some(0));
    let attested = &done.receipt.attestation;
    assert_eq!(attested.executor, "sandbox_tier_c_linux_bubblewrap");
    assert_eq!(attested.approver.as_ref().unwrap().by.to_string(), "user:ada");
    for layer in ["rlimits", "user_namespace", "network_namespace", "no_capabilities"] {
        assert!(attested.sandbox_enforcement.contains(&layer.to_owned()), "{layer}");
    }
    assert_eq!((attested.not_enforced.as_deref(), attested.reasons.len()), (None, 0));
    use RecordKind::{ApprovalRequested, ApprovalResolved, ToolAttested, ToolDecided, ToolProposed, ToolStarted};
    let expected = [ToolProposed, ToolDecided, ApprovalRequested, ApprovalResolved, ToolStarted, ToolAttested];
    assert_eq!(lab.story(id).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_says_what_it_does_not_do() {
    let lab = Plan::default().config(TIER_B).open().await;
    let done = lab.approved(lab.command(["echo", "hello"]), DecisionScope::Once).await.unwrap();
    let attested = &done.receipt.attestation;
    assert_eq!(attested.executor, "sandbox_tier_b_rlimits");
    assert!(attested.not_enforced.as_ref().unwrap().contains("no file system or network isolation"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_is_told_why_by_the_sandbox_itself() {
    let lab = Lab::new().await;
    let done = lab.approved(lab.command(["unshare", "-n", "true"]), DecisionScope::Once).await.unwrap();
    let reasons = &done.receipt.attestation.reasons;
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].message, "the sandbox refused the system call unshare");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stderr_of_a_failing_command_reaches_the_caller() {
    let lab = Lab::new().await;
    let done = lab.approved(lab.command(["ls", "/does/not/exist"]), DecisionScope::Once).await.unwrap();
    let Output::Process { exit_code, stderr, .. } = &done.output else { panic!("a process has an output") };
    assert_eq!(*exit_code, Some(2));
    assert!(String::from_utf8_lossy(&stderr.bytes).contains("/does/not/exist"));
    assert_eq!(done.receipt.attestation.ending, Ending::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_call_says_why_and_is_journalled() {
    let lab = Plan::default().config("[policy]\npreset = \"observe\"").open().await;
    let call = lab.command(["true"]);
    let id = call.call;
    let refused = lab.gate.run(call).await.unwrap_err();
    assert_eq!(refused.code(), "denied_by_policy");
    assert!(refused.to_string().contains("sensitive tools are off"), "{refused}");
    assert!(refused.advice().contains("allow_sensitive_tools"), "{}", refused.advice());
    assert_eq!(lab.story(id).await, [RecordKind::ToolProposed, RecordKind::ToolDecided]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policy_denies_is_denied_whatever_else_is_wrong_and_whatever_was_let_through_before() {
    let rules = r#"@id("all") permit (principal, action, resource);
@id("no-ls") forbid (principal, action == Palyra::Action::"tool.execute", resource)
when { context has process && context.process.name == "ls" };"#;
    let lab = Plan::default().policies(rules).open().await;
    let elsewhere = lab.workspace().with_extension("elsewhere");
    fs::rename(lab.workspace(), &elsewhere).unwrap();
    let refused = async |program: &str| lab.gate.run(lab.command([program])).await.unwrap_err().code();
    assert_eq!([refused("ls").await, refused("true").await], ["denied_by_policy", "bad_arguments"]);
    fs::rename(&elsewhere, lab.workspace()).unwrap();
    lab.gate.run(lab.command(["true"])).await.unwrap();
    fs::rename(lab.workspace(), &elsewhere).unwrap();
    assert_eq!([refused("ls").await, refused("true").await], ["denied_by_policy", "bad_arguments"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_is_refused_before_anybody_is_asked_where_only_tier_b_can_run() {
    let lab = Plan::default().config(TIER_B).open().await;
    let refused = lab.gate.run(lab.command(["sh", "-c", "echo no > x"])).await.unwrap_err();
    assert_eq!(refused.code(), "no_sandbox");
    assert_eq!(
        refused.to_string(),
        "there is no way to run it: tier b: the program is an interpreter: code can be handed to `dash`"
    );
    assert_eq!(
        refused.advice(),
        "call the program itself instead of a shell, or let tier b, which contains nothing, run interpreters: \
         `tier_b_interpreters = \"allow\"` under [sandbox] in config.toml"
    );
    assert_eq!(lab.read("x"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_changes_while_the_question_waits_does_not_run() {
    let lab = Plan::default().config("[sandbox]\ntier_b_interpreters = \"allow\"").open().await;
    lab.write("build.sh", "echo good");
    let running = lab.propose(lab.command(["sh", "build.sh"]));
    let question = lab.asked(1).await.remove(0);
    lab.write("build.sh", "echo evil > marker");
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    let refused = running.await.unwrap().unwrap_err();
    assert!(matches!(refused, Refusal::Mismatch { .. }), "{refused:?}");
    assert_eq!(lab.read("marker"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_caller_is_gone_is_withdrawn() {
    let lab = Lab::new().await;
    let call = lab.command(["touch", "marker"]);
    let id = call.call;
    let running = lab.propose(call);
    let question = lab.asked(1).await.remove(0);
    running.abort();
    until(|| async { lab.gate.pending_approvals(None, 9).await.unwrap().is_empty() }).await;
    let late = lab.approve(question.id, DecisionScope::Once).await.unwrap_err();
    assert_eq!(late.to_string(), "too late: the approval is cancelled");
    assert_eq!(lab.story(id).await.last(), Some(&RecordKind::ApprovalResolved));
    assert_eq!(lab.read("marker"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_call_whose_caller_is_gone_is_stopped_and_attested() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let call = lab.command(["sleep", "60"]);
    let id = call.call;
    let running = lab.propose(call);
    until(|| async { lab.story(id).await.contains(&RecordKind::ToolStarted) }).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    running.abort();
    until(|| async { lab.story(id).await.contains(&RecordKind::ToolAttested) }).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    let attested = lab.attested(id).await;
    assert_eq!((&attested["ending"], &attested["detail"]), (&json!("cancelled"), &json!("its caller is gone")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_output_that_is_no_text_reaches_the_caller_and_not_the_journal() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let token = "ghp_".to_owned() + &"a1".repeat(18);
    fs::write(lab.workspace().join("secret"), [b"\xff ".as_slice(), token.as_bytes()].concat()).unwrap();
    for (call, place) in [
        (lab.command(["cat", "secret"]), "/output/stdout/data"),
        (lab.call("fs.read", json!({ "path": "secret" })), "/output/value/content"),
    ] {
        let id = call.call;
        let done = serde_json::to_value(lab.gate.run(call).await.unwrap()).unwrap();
        let records = lab.records().await;
        let kept = records.iter().rfind(|one| one.record.subject().call == Some(id)).unwrap();
        let kept: Value = serde_json::from_str(kept.body.as_ref().unwrap()).unwrap();
        let [done, kept] = [&done, &kept].map(|told| told.pointer(place).unwrap().as_str().unwrap());
        // In base 64: what the file holds, and the same with `[masked github token]`.
        let told = "/yBnaHBfYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWEx";
        assert_eq!((done, kept), (told, "/yBbbWFza2VkIGdpdGh1YiB0b2tlbl0="));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_told_while_a_call_runs() {
    let lab = Plan::default().policies(ALLOW_ALL).config("[sandbox]\ntier_b_interpreters = \"allow\"").open().await;
    let mut live = lab.gate.live_output();
    let call = lab.command(["sh", "-c", "echo first; sleep 2; echo second"]);
    let id = call.call;
    let begun = Instant::now();
    let running = lab.propose(call);
    let first = live.recv().await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(1_500), "it came only after {:?}", begun.elapsed());
    assert_eq!((first.call, first.offset, &first.bytes[..]), (id, 0, &b"first\n"[..]));
    assert_eq!(text(&running.await.unwrap().unwrap()), "first\nsecond\n");
    let second = live.recv().await.unwrap();
    assert_eq!((second.offset, &second.bytes[..]), (6, &b"second\n"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_a_run_bounds_calls_and_denied_calls_are_free() {
    let lab = Lab::new().await;
    let limits = Charge { calls: 2, wall_ms: 60_000, output_bytes: 1 << 20 };
    let run = lab.open_run(Some(limits)).await;
    lab.write("a", "x");
    let read = || {
        let mut call = lab.call("fs.read", json!({ "path": "a" }));
        call.run = run;
        call
    };
    let mut bad = lab.call("fs.read", json!({ "path": "missing" }));
    bad.run = run;
    assert_eq!(lab.gate.run(bad).await.unwrap_err().code(), "bad_arguments");
    lab.gate.run(read()).await.unwrap();
    lab.gate.run(read()).await.unwrap();
    let over = read();
    let id = over.call;
    let refused = lab.gate.run(over).await.unwrap_err();
    assert_eq!(refused.code(), "budget_exceeded");
    assert!(
        refused.to_string().starts_with("the run has used up its budget, or its running calls may: 2 of 2 calls"),
        "{refused}"
    );
    assert_eq!(lab.story(id).await, [RecordKind::ToolProposed, RecordKind::ToolDecided]);
    assert_eq!(lab.used(run).await.calls, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_calls_that_append_to_one_file_none_loses_what_another_wrote() {
    let lab = Plan::default().policies("@id(\"all\") permit (principal, action, resource);").open().await;
    lab.write("log", "");
    let append =
        |n: usize| lab.call("fs.write", json!({ "path": "log", "content": format!("{n}\n"), "mode": "append" }));
    let calls: Vec<_> = (0..40).map(|n| lab.propose(append(n))).collect();
    for call in calls {
        let done = call.await.unwrap().unwrap();
        assert_eq!(done.receipt.attestation.detail, None);
    }
    let mut lines: Vec<usize> = lab.read("log").unwrap().lines().map(|line| line.parse().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..40).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_never_overdraw_a_budget() {
    let lab = Lab::new().await;
    lab.write("a", "x");
    let run = lab.open_run(Some(Charge { calls: 10, wall_ms: 3_600_000, output_bytes: 64 << 20 })).await;
    let calls = (0..40).map(|_| {
        let mut call = lab.call("fs.read", json!({ "path": "a" }));
        call.run = run;
        lab.propose(call)
    });
    let mut ran = 0;
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            Ok(_) => ran += 1,
            Err(refusal) => assert_eq!(refusal.code(), "budget_exceeded"),
        }
    }
    assert_eq!((ran, lab.used(run).await.calls), (10, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_stops_when_the_time_of_its_run_is_used_up() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let run = lab.open_run(Some(Charge { calls: 9, wall_ms: 400, output_bytes: 1 << 20 })).await;
    let mut call = lab.command(["sleep", "30"]);
    call.run = run;
    let begun = Instant::now();
    let done = lab.gate.run(call).await.unwrap();
    assert_eq!(done.receipt.attestation.ending, Ending::BudgetSpent);
    assert!(begun.elapsed() < Duration::from_secs(5));
    let mut next = lab.command(["true"]);
    next.run = run;
    assert_eq!(lab.gate.run(next).await.unwrap_err().code(), "budget_exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_somebody_else_cannot_be_used() {
    let lab = Lab::new().await;
    lab.write("a", "x");
    let mut call = lab.call("fs.read", json!({ "path": "a" }));
    call.principal = palyra_types::Principal::parse("agent:other").unwrap();
    assert_eq!(lab.gate.run(call).await.unwrap_err().code(), "unknown_run");
    assert_eq!(lab.used(lab.run).await.calls, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_is_one_call() {
    let lab = Lab::new().await;
    lab.write("a", "x");
    let call = lab.call("fs.read", json!({ "path": "a" }));
    lab.gate.run(call.clone()).await.unwrap();
    assert_eq!(lab.gate.run(call).await.unwrap_err(), Refusal::Repeated);
    assert_eq!(lab.used(lab.run).await.calls, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_does_not_tell_what_may_not_be_read() {
    let policies = format!(
        "{ALLOW_ALL}\n@id(\"no-secrets\") forbid (principal, action == Palyra::Action::\"fs.read\", resource) \
         when {{ resource.name == \".env\" }};"
    );
    let lab = Plan::default().policies(&policies).open().await;
    lab.write(".env", "needle=1");
    lab.write("code", "needle=2");
    let done = lab.gate.run(lab.call("fs.search", json!({ "pattern": "needle" }))).await.unwrap();
    assert!(text(&done).contains("needle=2") && !text(&done).contains("needle=1"), "{}", text(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_directory_is_out_of_reach() {
    let lab = Plan::default().policies(ALLOW_ALL).open().await;
    let key = lab.journal_directory().join("signing.key");
    let secret = fs::read_to_string(&key).unwrap();
    let refused = lab.gate.run(lab.command(["cat", key.to_str().unwrap()])).await.unwrap_err();
    assert!(refused.to_string().contains("state directory"), "{refused}");
    // Spelt so that policy does not see it; the sandbox does.
    lab.write("list", &format!("{}\n", key.display()));
    let call = lab.call("process.run", json!({ "command": ["xargs", "-a", "list", "cat"] }));
    if let Ok(done) = lab.gate.run(call).await {
        assert!(!text(&done).contains(secret.trim()));
    }
}

/// Everything runs unasked; the hard forbids of the baseline stay.
const ALLOW_ALL: &str = "@id(\"allow-all\") permit (principal, action, resource);";
