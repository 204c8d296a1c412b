//! Scheduled calls: they fire as whoever created them counts then, once, whatever crashes, and people see and stop every one of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on ends")]

use std::time::Duration;

use palyra_api::{
    approval::Approval,
    member::{ChangeMember, NewInvitation, SetFlag},
    token::{MintedToken, RevokeToken, RotateToken},
};
use palyra_client::Client;
use palyra_tests::{
    Said,
    daemon::{DaemonLab, DaemonPlan, accepted, approve, asked, over, tool},
    services::{each_minute, fired, records, refusal, says, says_once_approved, scheduled},
    token::token,
    until,
};
use palyra_types::{PrincipalId, WorkspaceName, WorkspaceRole, id::CallId};
use serde_json::{Value, json};

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// A daemon whose clock the test sets.
fn lab() -> DaemonLab {
    DaemonPlan::default().own_clock().start()
}

async fn robot(lab: &DaemonLab) -> (MintedToken, Client) {
    let minted = lab.owner().mint_token(&token("agent:robot", &["calls.create", "calls.read"])).await.unwrap();
    let client = lab.holder_of(&minted.secret);
    (minted, client)
}

/// The only schedule there is, as the owner sees it.
async fn the_schedule(lab: &DaemonLab) -> palyra_api::cron::Schedule {
    lab.owner().schedules().await.unwrap().schedules.remove(0)
}

/// Waits until so many calls were fired, and returns how many were.
async fn fired_at_least(lab: &DaemonLab, count: usize) -> usize {
    until(|| async { fired(lab).await.len() >= count }).await;
    fired(lab).await.len()
}

/// Waits until the schedule has come to something.
async fn came_to(lab: &DaemonLab) -> String {
    until(|| async { the_schedule(lab).await.last_outcome.is_some() && the_schedule(lab).await.running.is_none() })
        .await;
    the_schedule(lab).await.last_outcome.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_fires_as_its_creator_by_the_channel_cron_in_a_run_of_its_own() {
    let lab = lab();
    let (_, robot) = robot(&lab).await;
    let made = scheduled(&lab, &robot, each_minute("notes")).await;
    assert_eq!((&made["owner"], &made["when"]), (&json!("agent:robot"), &json!("every 60 seconds")));
    lab.set_ahead(minutes(1));
    assert_eq!(fired_at_least(&lab, 1).await, 1);
    assert_eq!(came_to(&lab).await, "completed");
    let call = over(&lab.owner(), fired(&lab).await[0]).await;
    let proposed = call.proposed.unwrap();
    assert_eq!((proposed.principal.as_str(), proposed.channel.as_deref()), ("agent:robot", Some("cron")));
    let created = records(&lab, "cron.created").await.remove(0);
    assert_eq!(
        (&created["schedule"], &created["by"], &created["tool"]),
        (&json!("notes"), &json!("agent:robot"), &json!("memory.put"))
    );
    let told = records(&lab, "cron.fired").await.remove(0);
    assert_eq!((&told["id"], &told["run"]), (&created["id"], &json!(call.run)));
    let note = says(&robot, "memory.search", json!({ "query": "notes" })).await;
    assert_eq!(note["found"][0]["snippet"], "by notes");
    lab.set_ahead(minutes(2));
    assert_eq!(fired_at_least(&lab, 2).await, 2);
    let runs = records(&lab, "cron.fired").await;
    assert_ne!(runs[0]["run"], runs[1]["run"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_stops_its_schedule_which_says_why() {
    let lab = lab();
    let (minted, robot) = robot(&lab).await;
    scheduled(&lab, &robot, each_minute("notes")).await;
    lab.owner().revoke_token(&minted.token.id, &RevokeToken::default()).await.unwrap();
    lab.set_ahead(minutes(1));
    until(|| async { !the_schedule(&lab).await.enabled }).await;
    let paused = the_schedule(&lab).await;
    assert_eq!(paused.paused.as_deref(), Some("the token that created it was revoked, by the daemon"));
    until(|| async { records(&lab, "cron.refused").await.len() == 1 }).await;
    assert_eq!(records(&lab, "cron.refused").await[0]["why"], "the token that created it was revoked");
    assert_eq!(fired(&lab).await, []);
    // Whoever resumes it gives it nothing back.
    lab.owner().resume_schedule(&paused.id).await.unwrap();
    lab.set_ahead(minutes(3));
    until(|| async { records(&lab, "cron.refused").await.len() == 2 }).await;
    assert_eq!(fired(&lab).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_rotated_goes_on_as_the_new_one_and_stops_when_that_expires() {
    let lab = lab();
    let (minted, robot) = robot(&lab).await;
    scheduled(&lab, &robot, each_minute("notes")).await;
    let how = RotateToken { overlap_seconds: Some(0), lifetime_seconds: None };
    let second = lab.owner().rotate_token(&minted.token.id, &how).await.unwrap();
    lab.set_ahead(minutes(1));
    fired_at_least(&lab, 1).await;
    assert_eq!(records(&lab, "cron.fired").await[0]["token"], json!(second.token.id));
    assert_eq!(came_to(&lab).await, "completed");
    lab.set_ahead(minutes(70));
    until(|| async { !the_schedule(&lab).await.enabled }).await;
    assert_eq!(fired(&lab).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_belongs_to_the_workspace_no_more_has_nothing_fired_there() {
    let shop = tempfile::tempdir().unwrap();
    let other = format!("[[workspace]]\nname = \"shop\"\npath = \"{}\"\n", shop.path().display());
    let lab = DaemonPlan::default().config(&other).own_clock().start();
    let owner = lab.owner();
    owner.set_flag("team_mode", &SetFlag { on: true }).await.unwrap();
    let user = PrincipalId::parse("ada").unwrap();
    let invitation =
        NewInvitation { user: user.clone(), role: WorkspaceRole::Admin, workspaces: None, lifetime_seconds: None };
    owner.invite(&invitation).await.unwrap();
    let theirs = palyra_api::device::NewPairing { principal: Some("user:ada".to_owned()), ..Default::default() };
    let ada = lab.of_device(&palyra_tests::paired::pair(&lab, &theirs).await);
    scheduled(&lab, &ada, each_minute("notes")).await;
    let only = Some(vec![WorkspaceName::parse("shop").unwrap()]);
    let narrowed = ChangeMember { role: None, workspaces: only, all_workspaces: false };
    owner.change_member(&user, &narrowed).await.unwrap();
    lab.set_ahead(minutes(1));
    until(|| async { !the_schedule(&lab).await.enabled }).await;
    let why = the_schedule(&lab).await.paused.unwrap();
    assert_eq!(why, "whoever created it does not belong to the workspace `lab` any more, by the daemon");
    assert_eq!(fired(&lab).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_that_were_missed_are_skipped_or_made_up_for_once() {
    let mut lab = lab();
    let (_, robot) = robot(&lab).await;
    let hourly = |name: &str, missed: &str| json!({ "name": name, "tool": "memory.put", "args": { "text": name }, "every_seconds": 600, "missed": missed });
    scheduled(&lab, &robot, hourly("skips", "skip")).await;
    scheduled(&lab, &robot, hourly("makes-up", "once")).await;
    lab.stop();
    lab.set_ahead(minutes(45));
    lab.start();
    assert_eq!(fired_at_least(&lab, 1).await, 1);
    let told = records(&lab, "cron.fired").await.remove(0);
    assert_eq!((&told["schedule"], &told["missed_times"]), (&json!("makes-up"), &json!(3)));
    let missed: Vec<_> = lab.owner().schedules().await.unwrap().schedules.iter().map(|one| one.missed_times).collect();
    assert_eq!(missed, [4, 3]);
    lab.set_ahead(minutes(50) + Duration::from_secs(10));
    assert_eq!(fired_at_least(&lab, 3).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_call_waits_for_its_answer_its_schedule_does_not_fire_again_and_whoever_is_asked_sees_what_wants_it() {
    let lab = lab();
    let (_, robot) = robot(&lab).await;
    let args = json!({ "name": "build", "tool": "process.run", "args": { "command": ["true"] }, "every_seconds": 60 });
    scheduled(&lab, &robot, args).await;
    lab.set_ahead(minutes(1));
    let question = asked(&lab.owner(), 1).await.remove(0);
    assert!(question.summary.ends_with("true, wanted by the schedule `build`"), "{}", question.summary);
    lab.set_ahead(minutes(4));
    // Time enough to look at the clock, and more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(fired(&lab).await.len(), 1);
    approve(&lab.owner(), &question).await.unwrap();
    assert_eq!(came_to(&lab).await, "completed");
    let schedule = the_schedule(&lab).await;
    assert_eq!((schedule.failures, schedule.missed_times), (0, 3));
    lab.set_ahead(minutes(5));
    assert_eq!(fired_at_least(&lab, 2).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_fires_nothing_twice_and_its_question_goes_on() {
    let mut lab = lab();
    let (_, robot) = robot(&lab).await;
    let args = json!({ "name": "build", "tool": "process.run", "args": { "command": ["touch", "made"] }, "every_seconds": 60, "missed": "once" });
    scheduled(&lab, &robot, args).await;
    lab.set_ahead(minutes(1));
    let question = asked(&lab.owner(), 1).await.remove(0);
    for ahead in [2, 3, 4] {
        lab.kill();
        lab.set_ahead(minutes(ahead));
        lab.start();
        assert_eq!(asked(&lab.owner(), 1).await.remove(0).id, question.id);
    }
    assert_eq!(fired(&lab).await, [question.call]);
    approve(&lab.owner(), &question).await.unwrap();
    assert_eq!(over(&lab.owner(), question.call).await.receipt.unwrap().ending(), "completed");
    // What was missed meanwhile is made up for once, and at once.
    until(|| async { the_schedule(&lab).await.last_outcome.as_deref() == Some("completed") }).await;
    let next = asked(&lab.owner(), 1).await.remove(0);
    assert_ne!(next.call, question.call);
    assert_eq!(fired(&lab).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_any_moment_lose_no_schedule_and_repeat_no_call() {
    let mut lab = lab();
    let (minted, robot) = robot(&lab).await;
    scheduled(&lab, &robot, each_minute("notes")).await;
    let mut ahead = 0;
    for round in 0..8_u64 {
        ahead += 1;
        lab.set_ahead(minutes(ahead));
        tokio::time::sleep(Duration::from_millis(round * 170)).await;
        lab.kill();
        lab.start();
    }
    let before = fired(&lab).await.len();
    lab.set_ahead(minutes(ahead + 1));
    fired_at_least(&lab, before + 1).await;
    assert_eq!(came_to(&lab).await, "completed");
    let told = records(&lab, "cron.fired").await;
    let mut dues: Vec<_> = told.iter().map(|one| one["due"].as_str().unwrap().to_owned()).collect();
    dues.sort();
    dues.dedup();
    assert_eq!(dues.len(), told.len(), "a time was fired twice: {told:?}");
    let notes = says(&lab.holder_of(&minted.secret), "memory.list", json!({})).await;
    assert!(notes["entries"].as_array().unwrap().len() <= told.len());
}

#[tokio::test]
async fn what_could_not_be_called_cannot_be_scheduled() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    let base = |more: Value| {
        let mut args = each_minute("notes");
        more.as_object().unwrap().iter().for_each(|(key, value)| args[key] = value.clone());
        args
    };
    for (args, why) in [
        (base(json!({ "tool": "cron.create" })), "a schedule schedules nothing"),
        (base(json!({ "tool": "memory.putt" })), "there is no tool `memory.putt`; did you mean `memory.put`?"),
        (base(json!({ "tool": "net.connect" })), "there is no tool `net.connect`"),
        (base(json!({ "name": "../x" })), "no schedule can be called `../x`"),
        (base(json!({ "cron": "* * * * *" })), "it is said in no way, or in several, when it is due"),
        (json!({ "name": "a", "tool": "fs.list", "cron": "61 * * * *" }), "the minute `61`: is not between 0 and 59"),
        (json!({ "name": "a", "tool": "fs.list", "cron": "@daily", "zone": "Mars/Base" }), "Mars/Base"),
        (json!({ "name": "a", "tool": "fs.list", "at": "tomorrow" }), "`tomorrow` is no time"),
    ] {
        let (code, message) = refusal(&agent, "cron.create", args).await;
        assert!(code == "bad_arguments" && message.contains(why), "{message}");
    }
    let misfit = json!({ "name": "a", "tool": "fs.read", "args": { "pth": "x" }, "every_seconds": 60 });
    let (code, message) = refusal(&agent, "cron.create", misfit).await;
    assert!(code == "bad_arguments" && message.contains("`path` is missing"), "{message}");
    let past = json!({ "name": "a", "tool": "fs.list", "at": "2020-01-01T00:00:00Z" });
    let (code, message) = refusal(&agent, "cron.create", past).await;
    assert!(code == "bad_arguments" && message == "the time is past, so the job would never be due", "{message}");
    scheduled(&lab, &agent, each_minute("notes")).await;
    let (code, message) = refusal(&agent, "cron.create", each_minute("notes")).await;
    assert!(code == "bad_arguments" && message == "there is a job `notes` already", "{message}");
    assert_eq!(lab.owner().schedules().await.unwrap().schedules.len(), 1);
    assert_eq!(records(&lab, "approval.requested").await.len(), 1, "nobody was asked about what cannot be");
}

#[tokio::test]
async fn under_observe_nothing_is_scheduled() {
    let lab = DaemonPlan::default().config("[policy]\npreset = \"observe\"\nallow_sensitive_tools = false").start();
    let agent = lab.agent();
    let write =
        json!({ "name": "a", "tool": "fs.write", "args": { "path": "a", "content": "x" }, "every_seconds": 60 });
    let (code, message) = refusal(&agent, "cron.create", write).await;
    assert!(code == "bad_arguments" && message.contains("policy would deny every call of `fs.write`"), "{message}");
    let read = json!({ "name": "a", "tool": "fs.list", "every_seconds": 60 });
    assert_eq!(refusal(&agent, "cron.create", read).await.0, "denied_by_policy");
    assert_eq!(says(&agent, "cron.list", json!({})).await, json!({ "schedules": [] }));
}

#[tokio::test]
async fn the_schedule_of_another_agent_is_out_of_reach_and_ones_own_can_be_paused_resumed_and_deleted() {
    let lab = lab();
    let (_, robot) = robot(&lab).await;
    let agent = lab.agent();
    scheduled(&lab, &robot, each_minute("notes")).await;
    assert_eq!(says(&agent, "cron.list", json!({})).await, json!({ "schedules": [] }));
    for name in ["cron.pause", "cron.resume", "cron.delete"] {
        let (code, message) = refusal(&agent, name, json!({ "job": "agent:robot/notes" })).await;
        assert!(code == "denied_by_policy" && message.contains("the schedule belongs to somebody else"), "{message}");
    }
    for name in ["cron.pause", "cron.resume", "cron.delete"] {
        let (code, message) = refusal(&agent, name, json!({ "job": "notes" })).await;
        assert!(code == "bad_arguments" && message == "there is no schedule `agent:local/notes`", "{name}: {message}");
    }
    for job in ["agent:robot/notes", "agent:robot/there-is-none"] {
        let (code, _) = refusal(&agent, "cron.delete", json!({ "job": job })).await;
        assert_eq!(code, "denied_by_policy", "whether somebody else's is there is not told");
    }
    let paused = says(&robot, "cron.pause", json!({ "job": "notes" })).await;
    assert_eq!(
        (&paused["schedule"]["enabled"], &paused["schedule"]["paused"]),
        (&json!(false), &json!("paused, by agent:robot"))
    );
    lab.set_ahead(minutes(3));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(fired(&lab).await, []);
    let resumed = says_once_approved(&lab, &robot, "cron.resume", json!({ "job": "notes" })).await;
    assert_eq!(resumed["schedule"]["enabled"], true);
    let deleted = says_once_approved(&lab, &robot, "cron.delete", json!({ "job": "notes" })).await;
    assert_eq!(deleted["deleted"], "agent:robot/notes");
    for (kind, count) in [("cron.paused", 1), ("cron.resumed", 1), ("cron.deleted", 1)] {
        assert_eq!(records(&lab, kind).await.len(), count, "{kind}");
    }
}

/// The question about a call.
async fn question_of(lab: &DaemonLab, call: CallId, among: usize) -> Approval {
    asked(&lab.owner(), among).await.into_iter().find(|question| question.call == call).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lets_a_schedule_fire_again_sees_what_fires_and_lets_nothing_else() {
    let lab = lab();
    let (_, robot) = robot(&lab).await;
    let made = scheduled(&lab, &robot, each_minute("notes")).await;
    says(&robot, "cron.pause", json!({ "job": "notes" })).await;
    let resume = accepted(tool("cron.resume", json!({ "job": "notes" })));
    let resuming = robot.propose(&resume, None).await.unwrap().id;
    let question = question_of(&lab, resuming, 1).await;
    let id = made["id"].as_str().unwrap();
    let told = format!(
        "cron.resume {{\"job\":\"notes\"}} (id {id}, in_workspace lab, missed skip, schedule agent:robot/notes, \
         timeout_seconds 600, tool memory.put, when every 60 seconds, with {{\"text\":\"by notes\"}})"
    );
    assert_eq!(question.summary, told);
    // Another one takes its name, and what was looked at is not what would fire.
    lab.owner().delete_schedule(id).await.unwrap();
    let other =
        json!({ "name": "notes", "tool": "memory.put", "args": { "text": "something else" }, "every_seconds": 60 });
    let creating = robot.propose(&accepted(tool("cron.create", other)), None).await.unwrap().id;
    approve(&lab.owner(), &question_of(&lab, creating, 2).await).await.unwrap();
    over(&robot, creating).await;
    says(&robot, "cron.pause", json!({ "job": "notes" })).await;
    approve(&lab.owner(), &question).await.unwrap();
    assert_eq!(over(&robot, resuming).await.refusal.unwrap().code, "approval_mismatch");
    assert!(!the_schedule(&lab).await.enabled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_and_stops_every_schedule() {
    let lab = lab();
    let (_, robot) = robot(&lab).await;
    scheduled(&lab, &robot, each_minute("notes")).await;
    let palyra = async |args: &[&str]| {
        let mut command = lab.palyra();
        command.args(args);
        Said::of(tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    };
    let listed = palyra(&["cron", "list"]).await.expect(0).out;
    assert!(
        listed.contains("notes") && listed.contains("agent:robot") && listed.contains("every 60 seconds"),
        "{listed}"
    );
    assert_eq!(palyra(&["cron", "pause", "notes"]).await.expect(0).out, "✔ paused agent:robot/notes\n");
    let shown = palyra(&["cron", "show", "agent:robot/notes"]).await.expect(0).out;
    assert!(shown.contains("paused: paused, by user:owner"), "{shown}");
    palyra(&["cron", "resume", "notes"]).await.expect(0);
    lab.set_ahead(minutes(1));
    fired_at_least(&lab, 1).await;
    palyra(&["cron", "delete", "notes"]).await.expect(0);
    let gone = palyra(&["cron", "show", "notes"]).await.expect(1);
    assert!(gone.three_lines()[2].starts_with("help:  `palyra cron list` shows them"), "{}", gone.err);
    assert_eq!(lab.owner().schedules().await.unwrap().schedules, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_fires_nothing_twice() {
    let lab = lab();
    let (_, robot) = robot(&lab).await;
    scheduled(&lab, &robot, each_minute("notes")).await;
    lab.set_ahead(minutes(5));
    assert_eq!(fired_at_least(&lab, 1).await, 1);
    lab.set_ahead(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    lab.set_ahead(minutes(5));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(fired(&lab).await.len(), 1);
    lab.set_ahead(minutes(6));
    assert_eq!(fired_at_least(&lab, 2).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_can_forbid_the_channel_of_schedules() {
    let rule = r#"@id("no-cron") forbid (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"fs.write")
when { context has channel && context.channel == "cron" };"#;
    let lab = DaemonPlan::default().policies("no-cron.cedar", rule).own_clock().start();
    let write =
        json!({ "name": "a", "tool": "fs.write", "args": { "path": "a", "content": "x" }, "every_seconds": 60 });
    let (_, message) = refusal(&lab.agent(), "cron.create", write).await;
    assert!(message.contains("policy would deny every call of `fs.write` that is scheduled like this"), "{message}");
    // Somebody who is there can have the same done.
    let now = tool("fs.write", json!({ "path": "a", "content": "x" }));
    let call = lab.agent().propose(&accepted(now), None).await.unwrap();
    assert_eq!(asked(&lab.owner(), 1).await.remove(0).call, call.id);
}
