//! Asking people: who may answer, what an answer covers, how long it holds, and who loses a race.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::{sync::Arc, time::Duration};

use palyra_gate::{
    Answer, AnswerError, Answerer, DecisionScope, Ending, PostureSetting, Refusal, ToolProposal,
    approval::record::Pattern, posture::PostureLayer,
};
use palyra_journal::{JournalStore, RecordKind, state::ApprovalState, store::ApprovalQuery};
use palyra_policy::SourceFile;
use palyra_tests::{Lab, Plan, operator, owner, text};
use palyra_types::{Posture, Principal, Timestamp, ToolName, clock::ManualClock};
use serde_json::json;

const SESSION: DecisionScope = DecisionScope::Session { pattern: Pattern::Exact };

#[tokio::test(flavor = "multi_thread")]
async fn a_question_shows_the_whole_call_and_hides_nothing() {
    let lab = Lab::new().await;
    let running = lab.propose(lab.command(["echo", "a b", "\u{202e}txt", "x".repeat(5_000).as_str()]));
    let question = lab.asked(1).await.remove(0);
    assert!(question.summary.starts_with("/usr/bin/echo 'a b' '<U+202E>txt' xxx"), "{}", question.summary);
    assert!(question.summary.len() > 5_000, "it was cut");
    assert_eq!(question.risk.level.as_str(), "medium");
    assert_eq!(question.policies[0].id.as_str(), "baseline.execute-ask");
    assert!(question.policies[0].location.contains("baseline.cedar:"), "{}", question.policies[0].location);
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    assert!(text(&running.await.unwrap().unwrap()).starts_with("a b \u{202e}txt xxx"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_carries_its_message_back_to_the_agent() {
    let lab = Lab::new().await;
    let running = lab.propose(lab.command(["touch", "marker"]));
    let question = lab.asked(1).await.remove(0);
    let answer = Answer::Deny(Some("use the build script".to_owned()));
    lab.gate.answer(question.id, &answer, &owner()).await.unwrap();
    let refused = running.await.unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "user:ada said no: use the build script");
    assert_eq!((refused.code(), lab.read("marker")), ("denied_by_person", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_answers_to_one_question_exactly_one_counts() {
    let lab = Arc::new(Lab::new().await);
    let running = lab.propose(lab.command(["true"]));
    let question = lab.asked(1).await.remove(0);
    let answers: Vec<_> = (0..64)
        .map(|n| {
            let lab = Arc::clone(&lab);
            tokio::spawn(async move {
                let answer = if n % 2 == 0 { Answer::Approve(DecisionScope::Once) } else { Answer::Deny(None) };
                lab.gate.answer(question.id, &answer, &owner()).await
            })
        })
        .collect();
    let mut counted = Vec::new();
    for answer in answers {
        match answer.await.unwrap() {
            Ok(record) => counted.push(record.state),
            Err(error) => assert!(matches!(error, AnswerError::TooLate(_)), "{error:?}"),
        }
    }
    assert_eq!(counted.len(), 1);
    assert_eq!(running.await.unwrap().is_ok(), counted[0] == ApprovalState::Approved);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_do_not_answer_and_nobody_answers_their_own_call_unseen() {
    let lab = Lab::new().await;
    let mut call = lab.command(["true"]);
    call.on_behalf_of = Some(owner().principal);
    let _running = lab.propose(call);
    let id = lab.asked(1).await.remove(0).id;
    let answer = Answer::Approve(DecisionScope::Once);
    let by = |principal: &str, interactive| Answerer {
        principal: Principal::parse(principal).unwrap(),
        interactive,
        ..owner()
    };
    for (answerer, expected) in [
        (by("agent:claude", true), AnswerError::Agent),
        (by("agent:other", false), AnswerError::Agent),
        (by("user:ada@owner", false), AnswerError::Own),
        (by("user:eve", true), AnswerError::Policy("no policy permits it".to_owned())),
        (by("service:cron", true), AnswerError::Policy("no policy permits it".to_owned())),
    ] {
        assert_eq!(lab.gate.answer(id, &answer, &answerer).await, Err(expected));
    }
    // A person at a terminal may answer what was asked on their behalf.
    assert!(lab.gate.answer(id, &answer, &by("user:ada@owner", true)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_the_session_covers_the_same_call_only() {
    let lab = Lab::new().await;
    let first = lab.approved(lab.command(["echo", "one"]), SESSION).await.unwrap();
    let again = lab.gate.run(lab.command(["echo", "one"])).await.unwrap();
    let (first, again) = (first.receipt.attestation.approver.unwrap(), again.receipt.attestation.approver.unwrap());
    assert_eq!((first.approval, &first.by), (again.approval, &again.by));
    assert_eq!(again.covers.as_deref(), Some("exactly: /usr/bin/echo one"));
    for other in [lab.command(["echo", "two"]), {
        let mut elsewhere = lab.command(["echo", "one"]);
        elsewhere.principal = Principal::parse("agent:other").unwrap();
        elsewhere
    }] {
        assert!(
            tokio::time::timeout(Duration::from_millis(200), lab.gate.run(other)).await.map_or(true, |r| r.is_err())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wildcard_covers_further_arguments_of_the_same_command() {
    let lab = Lab::new().await;
    let scope = DecisionScope::Timeboxed { minutes: 5, pattern: Pattern::Trailing { fixed: 1 } };
    lab.approved(lab.command(["echo", "-n", "a"]), scope).await.unwrap();
    assert_eq!(text(&lab.gate.run(lab.command(["echo", "-n", "b", "c"])).await.unwrap()), "b c");
    let _asks = lab.propose(lab.command(["echo", "-e", "b"]));
    assert_eq!(lab.asked(1).await[0].summary, "/usr/bin/echo -e b");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wildcard_is_given_to_what_runs_what_it_is_handed() {
    let lab = Plan::default().config("[sandbox]\ntier_b_interpreters = \"allow\"").open().await;
    let scope = DecisionScope::Session { pattern: Pattern::Trailing { fixed: 0 } };
    for (argv, name) in
        [(["python3", "-c", "1"], "python3"), (["env", "-i", "true"], "env"), (["find", ".", "-quit"], "find")]
    {
        let running = lab.propose(lab.command(argv));
        let question = lab.asked(1).await.remove(0);
        let refused = lab.approve(question.id, scope).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("`{name}` runs what it is handed, so further arguments could be anything")
        );
        lab.gate.answer(question.id, &Answer::Deny(None), &owner()).await.unwrap();
        assert!(running.await.unwrap().is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_a_standing_approval_holds_no_token_and_it_covers_what_it_did() {
    let token = "ghp_".to_owned() + &"a1".repeat(18);
    for pattern in [Pattern::Exact, Pattern::Trailing { fixed: 1 }] {
        let lab = Lab::new().await;
        let echo = || lab.call("process.run", json!({ "command": ["echo", token], "env": { "TOKEN": token } }));
        lab.approved(echo(), DecisionScope::Session { pattern }).await.unwrap();
        let kept = lab.journal.grants().await.unwrap().remove(0).document;
        assert!(!kept.contains(&token) && kept.contains("[masked github token]"), "{kept}");
        let again = lab.gate.run(echo()).await.unwrap();
        assert!(again.receipt.attestation.approver.is_some());
        let _asks = lab.propose(lab.command(["echo", &token]));
        lab.asked(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_does_not_outlive_what_policy_allows() {
    let lab = Lab::new().await;
    lab.approved(lab.command(["echo", "x"]), SESSION).await.unwrap();
    let forbid = "@id(\"no-echo\") forbid (principal, action, resource) when { context has process && context.process.name == \"echo\" };";
    lab.engine.reload(&[SourceFile::operator("no.cedar", forbid.to_owned())]).unwrap();
    assert_eq!(lab.gate.run(lab.command(["echo", "x"])).await.unwrap_err().code(), "denied_by_policy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_was_ended_covers_nothing() {
    let lab = Lab::new().await;
    let done = lab.approved(lab.command(["echo", "x"]), SESSION).await.unwrap();
    let id = done.receipt.attestation.approver.unwrap().approval;
    lab.gate.end_grant(id, &operator()).await.unwrap();
    let _asks = lab.propose(lab.command(["echo", "x"]));
    lab.asked(1).await;
    assert!(lab.gate.end_grant(id, &operator()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn time_ends_grants_whatever_is_done_to_the_clock() {
    let start = Timestamp::parse("2026-03-02T09:30:00Z").unwrap();
    let clock = Arc::new(ManualClock::at(start));
    let lab = Plan::default().clock(&clock).open().await;
    let minutes = |minutes| DecisionScope::Timeboxed { minutes, pattern: Pattern::Exact };
    lab.approved(lab.command(["echo", "box"]), minutes(10)).await.unwrap();
    lab.approved(lab.command(["echo", "session"]), SESSION).await.unwrap();
    let runs = async |what: &str| {
        let call = lab.command(["echo", what]);
        tokio::time::timeout(Duration::from_millis(700), lab.gate.run(call)).await.is_ok()
    };
    clock.set_wall(Timestamp::from_unix_millis(start.unix_millis() - 86_400_000));
    assert!(runs("box").await, "a clock that was set back ends nothing early");
    clock.advance(10 * 60_000);
    assert!(!runs("box").await, "a clock that was set back extends nothing");
    assert!(runs("session").await);
    clock.reboot();
    assert!(!runs("session").await, "a new start of the machine ends what was for the session");
    for minutes in [0, 481] {
        let _running = lab.propose(lab.command(["echo", "long"]));
        let question = loop {
            // Questions of callers that have left may still be there.
            let pending = lab.asked(1).await;
            if let Some(found) = pending.into_iter().rfind(|prompt| prompt.summary.ends_with("long")) {
                break found;
            }
        };
        let scope = DecisionScope::Timeboxed { minutes, pattern: Pattern::Exact };
        assert!(matches!(lab.approve(question.id, scope).await, Err(AnswerError::Timebox { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_before_the_machine_starts_anew_revives_no_grant() {
    let start = Timestamp::parse("2026-03-02T09:30:00Z").unwrap();
    let clock = Arc::new(ManualClock::at(start));
    let lab = Plan::default().clock(&clock).open().await;
    let minutes = DecisionScope::Timeboxed { minutes: 10, pattern: Pattern::Exact };
    lab.approved(lab.command(["echo", "box"]), minutes).await.unwrap();
    clock.advance(60 * 60_000);
    lab.open_run(None).await;
    clock.set_wall(start);
    // The last record tells the earlier time.
    lab.open_run(None).await;
    clock.reboot();
    let after = lab.crash().await;
    let call = ToolProposal { session: lab.session, run: lab.run, ..after.command(["echo", "box"]) };
    let _asks = after.propose(call);
    after.asked(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_time_is_over_is_ended_by_the_next_daemon() {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-03-02T09:30:00Z").unwrap()));
    let lab = Plan::default().clock(&clock).open().await;
    let minutes = |minutes| DecisionScope::Timeboxed { minutes, pattern: Pattern::Exact };
    for (what, scope) in [("short", minutes(10)), ("long", minutes(60)), ("session", SESSION)] {
        lab.approved(lab.command(["echo", what]), scope).await.unwrap();
    }
    let standing = async || {
        let after = lab.crash().await;
        after.gate.recover().await.unwrap();
        let ended = after.records().await.iter().filter(|one| one.record.kind == RecordKind::GrantEnded).count();
        (after.journal.grants().await.unwrap().len(), ended)
    };
    assert_eq!(standing().await, (3, 0));
    clock.advance(10 * 60_000);
    assert_eq!(standing().await, (2, 1));
    clock.reboot();
    assert_eq!(standing().await, (1, 2));
    clock.advance(60 * 60_000);
    assert_eq!(standing().await, (0, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_answers_expires() {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-03-02T09:30:00Z").unwrap()));
    let lab = Plan::default().clock(&clock).config("[approvals]\nanswer_within_seconds = 1").open().await;
    let running = lab.propose(lab.command(["touch", "marker"]));
    let question = lab.asked(1).await.remove(0);
    clock.advance(1_000);
    let late = lab.approve(question.id, DecisionScope::Once).await.unwrap_err();
    assert_eq!(late, AnswerError::TooLate(ApprovalState::Expired));
    assert_eq!(running.await.unwrap().unwrap_err(), Refusal::Expired(question.id));
    assert_eq!(lab.read("marker"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_that_comes_when_the_call_cannot_use_it_any_more_expires() {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-03-02T09:30:00Z").unwrap()));
    let lab = Plan::default().clock(&clock).config("[approvals]\nvalid_for_seconds = 0").open().await;
    let running = lab.propose(lab.command(["touch", "marker"]));
    let question = lab.asked(1).await.remove(0);
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap_err(), Refusal::Expired(question.id));
    assert_eq!(lab.journal.approval(question.id).await.unwrap().unwrap().state, ApprovalState::Expired);
    assert_eq!(lab.read("marker"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_denies_now_withdraws_what_waits_and_leaves_the_rest() {
    let lab = Lab::new().await;
    let (doomed, spared) = (lab.propose(lab.command(["touch", "a"])), lab.propose(lab.command(["echo", "b"])));
    lab.asked(2).await;
    let cautious = palyra_policy::Preset::Cautious.source();
    let forbid = "@id(\"no-touch\") @why(\"touching is over\") forbid (principal, action, resource) \
                  when { context has process && context.process.name == \"touch\" };";
    lab.engine.reload(&[cautious, SourceFile::operator("no.cedar", forbid.to_owned())]).unwrap();
    lab.gate.policies_changed("ada").await.unwrap();
    let refused = doomed.await.unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "the call was cancelled: policy changed: touching is over [no-touch]");
    let question = lab.asked(1).await.remove(0);
    lab.approve(question.id, DecisionScope::Once).await.unwrap();
    assert_eq!(text(&spared.await.unwrap().unwrap()), "b\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_calls_are_answered_together() {
    let lab = Lab::new().await;
    let equal: Vec<_> = (0..5).map(|_| lab.propose(lab.command(["echo", "same"]))).collect();
    let other = lab.propose(lab.command(["echo", "other"]));
    let pending = lab.asked(6).await;
    let first = pending.iter().find(|prompt| prompt.summary.ends_with("same")).unwrap();
    let answered = lab.gate.answer_together(first.id, &Answer::Approve(DecisionScope::Once), &owner()).await.unwrap();
    assert_eq!(answered.len(), 5);
    for call in equal {
        assert_eq!(text(&call.await.unwrap().unwrap()), "same\n");
    }
    assert_eq!(lab.asked(1).await.len(), 1);
    other.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_what_was_not_shown_does_not_count() {
    let lab = Lab::new().await;
    let (shown, asked) = (lab.propose(lab.command(["echo", "shown"])), lab.propose(lab.command(["touch", "marker"])));
    let pending = lab.asked(2).await;
    let of = |word: &str| pending.iter().find(|prompt| prompt.summary.ends_with(word)).unwrap();
    let (digest, id, yes) = (of("shown").digest, of("marker").id, Answer::Approve(DecisionScope::Once));
    let refused = lab.gate.answer_shown(id, digest, &yes, &owner()).await.unwrap_err();
    assert_eq!((&refused, refused.code()), (&AnswerError::NotShown, "not_shown"));
    assert_eq!(lab.gate.answer_together_shown(id, digest, &yes, &owner()).await, Err(AnswerError::NotShown));
    assert_eq!(lab.asked(2).await.len(), 2, "both are pending");
    lab.gate.answer_shown(id, of("marker").digest, &Answer::Deny(None), &owner()).await.unwrap();
    let answered = lab.gate.answer_together_shown(of("shown").id, digest, &yes, &owner()).await.unwrap();
    assert_eq!(answered.len(), 1);
    assert_eq!(text(&shown.await.unwrap().unwrap()), "shown\n");
    assert_eq!((asked.await.unwrap().unwrap_err().code(), lab.read("marker")), ("denied_by_person", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_calls_that_are_answered_together_for_the_session_make_one_grant_to_end() {
    let lab = Lab::new().await;
    let calls: Vec<_> = (0..3).map(|_| lab.propose(lab.command(["echo", "same"]))).collect();
    let first = lab.asked(3).await.remove(0).id;
    let answered = lab.gate.answer_together(first, &Answer::Approve(SESSION), &owner()).await.unwrap();
    assert_eq!(answered.len(), 3);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    lab.gate.run(lab.command(["echo", "same"])).await.unwrap();
    lab.gate.end_grant(first, &operator()).await.unwrap();
    let _asks = lab.propose(lab.command(["echo", "same"]));
    lab.asked(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postures_of_layers_combine_as_promised() {
    let lab = Lab::new().await;
    let tool = ToolName::parse("fs.read").unwrap();
    lab.write("a", "x");
    let read = || lab.call("fs.read", json!({ "path": "a" }));
    let set = |layer, key: &str, posture| {
        let setting = PostureSetting { layer, key: key.to_owned(), tool: tool.clone(), posture: Some(posture) };
        let gate = lab.gate.clone();
        async move { gate.set_posture(&setting, &operator()).await.unwrap() }
    };
    set(PostureLayer::Global, "", Posture::Disabled).await;
    set(PostureLayer::Agent, "agent:claude", Posture::AlwaysAllow).await;
    let refused = lab.gate.run(read()).await.unwrap_err();
    assert!(refused.to_string().starts_with("the tool is switched off"), "{refused}");
    set(PostureLayer::Global, "", Posture::AskEachTime).await;
    lab.gate.run(read()).await.unwrap();
    set(PostureLayer::Session, &lab.session.to_string(), Posture::AskEachTime).await;
    let asks = lab.propose(read());
    lab.asked(1).await;
    asks.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_posture_is_named_as_what_asks_where_another_one_would_let_the_whole_call_run() {
    let lab = Lab::new().await;
    let write = || lab.call("fs.write", json!({ "path": "a", "content": "x" }));
    let set = |tool: &str| {
        let (tool, posture) = (ToolName::parse(tool).unwrap(), Some(Posture::AlwaysAllow));
        let setting = PostureSetting { layer: PostureLayer::Global, key: String::new(), tool, posture };
        let gate = lab.gate.clone();
        async move { gate.set_posture(&setting, &operator()).await.unwrap() }
    };
    let asks = "the tool asks each time unless its posture is to run at once [baseline.execute-ask]";
    let running = lab.propose(lab.command(["true"]));
    let process = lab.asked(1).await.remove(0);
    assert_eq!(process.reason, format!("{asks}: its posture is `ask_each_time` by default"));
    lab.gate.answer(process.id, &Answer::Deny(None), &owner()).await.unwrap();
    running.await.unwrap().unwrap_err();
    set("process.run").await;
    lab.gate.run(lab.command(["true"])).await.unwrap();

    // Whatever the posture of the tool, the preset asks about the path.
    let running = lab.propose(write());
    let file = lab.asked(1).await.remove(0);
    assert_eq!(file.reason, asks);
    assert!(file.change[0].contains("where that is enough"), "{:?}", file.change);
    lab.gate.answer(file.id, &Answer::Deny(None), &owner()).await.unwrap();
    running.await.unwrap().unwrap_err();
    set("fs.write").await;
    let running = lab.propose(write());
    assert_eq!(lab.asked(1).await.remove(0).reason, "writing asks [cautious.write]");
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_presence_a_pin_is_needed_once_for_each_session_of_answering() {
    let lab = Plan::default().config("[approvals]\npresence = \"pin\"").pin("482913").open().await;
    let running = lab.propose(lab.command(["true"]));
    let id = lab.asked(1).await.remove(0).id;
    assert_eq!(lab.approve(id, DecisionScope::Once).await, Err(AnswerError::PinNeeded));
    assert!(lab.gate.unlock(&owner(), "000000").await.unwrap_err().to_string().contains("4 guesses are left"));
    lab.gate.unlock(&owner(), "482913").await.unwrap();
    let elsewhere = Answerer { session: "console".to_owned(), ..owner() };
    let answer = Answer::Approve(DecisionScope::Once);
    assert_eq!(lab.gate.answer(id, &answer, &elsewhere).await, Err(AnswerError::PinNeeded));
    lab.approve(id, DecisionScope::Once).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().receipt.attestation.ending, Ending::Completed);
    let checks = lab.records().await.into_iter().filter(|one| one.record.kind == RecordKind::PresenceChecked);
    assert_eq!(checks.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_questions_may_wait_and_one_more_is_refused_clearly() {
    let lab = Plan::default()
        .config(
            "[approvals]\nmost_pending_of_one = 20000\n[budget]\ncalls = 20000\n[calls]\nmost_under_way_of_one = 20000",
        )
        .open()
        .await;
    let calls: Vec<_> = (0..10_000).map(|n| lab.propose(lab.command(["echo", n.to_string().as_str()]))).collect();
    let pending = ApprovalQuery { state: ApprovalState::Pending, after: None, most: usize::MAX };
    while lab.journal.approvals_in(pending).await.unwrap().len() < 10_000 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let more = lab.command(["echo", "more"]);
    let id = more.call;
    let refused = lab.gate.run(more).await.unwrap_err();
    assert_eq!(refused.to_string(), "10000 approvals are pending, and the limit is 10000");
    assert_eq!(lab.story(id).await, [RecordKind::ToolProposed, RecordKind::ToolDecided]);
    for prompt in lab.gate.pending_approvals(None, 20).await.unwrap() {
        lab.approve(prompt.id, DecisionScope::Once).await.unwrap();
    }
    while lab.used(lab.run).await.calls < 20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Nobody waits for the others any more: every one of them is withdrawn, and none of them runs.
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    while !lab.journal.approvals_in(pending).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(lab.used(lab.run).await.calls, 20);
}
