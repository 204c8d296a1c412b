//! What surfaces need of the gate besides calls: who may do what, the configuration in force, what stands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::{fs, path::Path, sync::Arc, time::Duration};

use palyra_gate::{
    DecisionScope, GateConfig, OpenError, Petitioner, PostureSetting, Refusal, StandingApproval, ToolProposal,
    WorkspaceError, approval::record::Pattern, config::WorkspaceSection, posture::PostureLayer,
};
use palyra_journal::{JournalStore, RecordKind};
use palyra_tests::{Lab, Plan, TIER_B, operator, owner, text};
use palyra_types::{
    AbsolutePath, Action, Channel, Posture, Principal, Resource, Sha256Digest, Timestamp, ToolName, WorkspaceName,
    clock::ManualClock,
};
use serde_json::{Value, json};

#[tokio::test]
async fn policy_says_who_may_do_what_is_no_call() {
    let lab = Lab::new().await;
    let tool = || Resource::Tool(ToolName::parse("process.run").unwrap());
    assert_eq!(lab.gate.may(&operator(), Action::PostureSet, tool()), Ok(()));
    let agent = Principal::parse("agent:claude").unwrap();
    let refused = lab.gate.may(&agent.into(), Action::PostureSet, tool());
    assert!(matches!(refused, Err(Refusal::NotPermitted(_))), "{refused:?}");
}

#[tokio::test]
async fn policy_is_told_the_channel_of_what_is_no_call() {
    let rule = r#"@id("console-only")
        forbid (principal, action == Palyra::Action::"posture.set", resource)
        unless { context has channel && context.channel == "console" };"#;
    let lab = Plan::default().policies(rule).open().await;
    let may = |channel: Option<&str>| {
        let tool = Resource::Tool(ToolName::parse("process.run").unwrap());
        let channel = channel.map(|channel| Channel::parse(channel).unwrap());
        lab.gate.may(&Petitioner { channel, ..operator() }, Action::PostureSet, tool).is_ok()
    };
    assert_eq!([Some("console"), Some("cli"), None].map(may), [true, false, false]);
}

#[tokio::test]
async fn the_configuration_in_force_can_be_read() {
    let lab = Plan::default().config("[budget]\ncalls = 7").open().await;
    assert_eq!(lab.gate.config().budget.calls, 7);
    let workspaces: Vec<_> = lab.gate.evaluation().workspaces.keys().map(ToString::to_string).collect();
    assert_eq!(workspaces, ["lab"]);
}

fn absolute(path: &Path) -> AbsolutePath {
    AbsolutePath::parse(path.to_str().unwrap()).unwrap()
}

/// The configuration in force, changed.
fn changed(lab: &Lab, change: impl FnOnce(&mut GateConfig)) -> GateConfig {
    let mut config = GateConfig::clone(&lab.gate.config());
    change(&mut config);
    config
}

fn section(name: &str, path: &Path) -> WorkspaceSection {
    WorkspaceSection { name: WorkspaceName::parse(name).unwrap(), path: absolute(path) }
}

fn reaching_out(lab: &Lab) -> ToolProposal {
    lab.call("process.run", json!({ "command": ["true"], "egress_hosts": ["example.org:443"] }))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_configuration_comes_into_force_whole() {
    let lab = Plan::default().config(TIER_B).open().await;
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("a"), "there").unwrap();
    let read = || ToolProposal {
        workspace: Some(WorkspaceName::parse("other").unwrap()),
        ..lab.call("fs.read", json!({ "path": "a" }))
    };
    assert_eq!(lab.gate.run(read()).await.unwrap_err().code(), "unknown_workspace");
    assert_eq!(lab.gate.run(reaching_out(&lab)).await.unwrap_err().code(), "no_sandbox");
    let config = changed(&lab, |config| {
        config.workspace.push(section("other", other.path()));
        config.egress = toml::from_str("[[host]]\nhost = \"example.org\"").unwrap();
        config.budget.calls = 1;
    });
    lab.gate.reconfigure(config.clone()).unwrap();
    assert_eq!(*lab.gate.config(), config);
    assert!(text(&lab.gate.run(read()).await.unwrap()).contains("there"));
    lab.approved(reaching_out(&lab), DecisionScope::Once).await.unwrap();
    let run = lab.open_run(None).await;
    assert_eq!(lab.journal.run(run).await.unwrap().unwrap().limits.calls, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_cannot_be_used_changes_nothing() {
    let lab = Lab::new().await;
    let before = lab.gate.config();
    let config = changed(&lab, |config| {
        config.budget.calls = 1;
        config.workspace.push(section("missing", Path::new("/there/is/none")));
    });
    assert!(matches!(lab.gate.reconfigure(config), Err(OpenError::Workspace(_))));
    assert_eq!(lab.gate.config(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_are_decided_anew_by_another_configuration() {
    let lab = Lab::new().await;
    let waiting = lab.propose(lab.command(["true"]));
    lab.asked(1).await;
    lab.gate.reconfigure(changed(&lab, |config| config.workspace.clear())).unwrap();
    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "the call was cancelled: there is no workspace `lab`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_is_configured_by_a_link_is_the_workspace_for_policy_too() {
    let lab = Lab::new().await;
    let (home, real) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let link = home.path().join("link");
    std::os::unix::fs::symlink(real.path(), &link).unwrap();
    fs::write(real.path().join("a"), "there").unwrap();
    lab.gate.reconfigure(changed(&lab, |config| config.workspace = vec![section("lab", &link)])).unwrap();
    // Reading inside of the workspace is not asked about.
    let read = lab.gate.run(lab.call("fs.read", json!({ "path": "a" })));
    let read = tokio::time::timeout(Duration::from_secs(5), read).await.expect("somebody was asked");
    assert!(text(&read.unwrap()).contains("there"));
}

#[tokio::test]
async fn a_directory_in_a_configured_workspace_belongs_to_the_innermost_one() {
    let lab = Lab::new().await;
    let inner = lab.workspace().join("inner");
    fs::create_dir_all(inner.join("deep")).unwrap();
    lab.gate.reconfigure(changed(&lab, |config| config.workspace.push(section("inner", &inner)))).unwrap();
    let adopt = |path: &Path| lab.gate.adopt_directory(&absolute(path)).unwrap().to_string();
    assert_eq!([adopt(&inner.join("deep")), adopt(&inner), adopt(&lab.workspace())], ["inner", "inner", "lab"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_nobody_configured_is_a_workspace_for_as_long_as_the_daemon_runs() {
    let lab = Lab::new().await;
    let own = tempfile::tempdir().unwrap();
    fs::write(own.path().join("a"), "mine").unwrap();
    let links = tempfile::tempdir().unwrap();
    for link in [links.path().join("link"), lab.workspace().join("link")] {
        std::os::unix::fs::symlink(own.path(), link).unwrap();
    }
    let name = lab.gate.adopt_directory(&absolute(own.path())).unwrap();
    let real = fs::canonicalize(own.path()).unwrap();
    let digest = Sha256Digest::of(real.to_str().unwrap().as_bytes()).to_string();
    assert_eq!(name.to_string(), format!("dir-{}", digest.get(..16).unwrap()));
    assert_eq!(lab.gate.adopt_directory(&absolute(&links.path().join("link"))).unwrap(), name);
    // A program may have put it there.
    let answer = lab.gate.adopt_directory(&absolute(&lab.workspace().join("link")));
    assert!(matches!(answer, Err(WorkspaceError::LinkInWorkspace(_))), "{answer:?}");
    assert_eq!(lab.gate.evaluation().workspaces.get(&name), Some(&absolute(&real)));
    // Policy lets agents read inside of the workspace unasked.
    let read = || ToolProposal { workspace: Some(name.clone()), ..lab.call("fs.read", json!({ "path": "a" })) };
    assert!(text(&lab.gate.run(read()).await.unwrap()).contains("mine"));
    lab.gate.reconfigure(changed(&lab, |config| config.workspace.clear())).unwrap();
    assert!(text(&lab.gate.run(read()).await.unwrap()).contains("mine"));
    let next = lab.crash().await;
    assert!(!next.gate.evaluation().workspaces.contains_key(&name));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_took_the_place_of_an_adopted_one_is_adopted_in_its_place() {
    let lab = Lab::new().await;
    let home = tempfile::tempdir().unwrap();
    let own = home.path().join("own");
    fs::create_dir(&own).unwrap();
    let name = lab.gate.adopt_directory(&absolute(&own)).unwrap();
    fs::rename(&own, home.path().join("gone")).unwrap();
    fs::create_dir(&own).unwrap();
    fs::write(own.join("a"), "new").unwrap();
    let read = || ToolProposal { workspace: Some(name.clone()), ..lab.call("fs.read", json!({ "path": "a" })) };
    assert_eq!(lab.gate.run(read()).await.unwrap_err().code(), "bad_arguments");
    assert_eq!(lab.gate.adopt_directory(&absolute(&own)).unwrap(), name);
    assert!(text(&lab.gate.run(read()).await.unwrap()).contains("new"));
}

#[tokio::test]
async fn what_nothing_could_run_under_is_refused_with_its_key() {
    let lab = Lab::new().await;
    let read = |path: &str| vec![AbsolutePath::parse(path).unwrap()];
    for path in ["/", "/proc", "/proc/1", "/dev", "/sys", "/run", "/etc", "/tmp", "/var"] {
        let refused = lab.gate.reconfigure(changed(&lab, |config| config.sandbox.read_only = read(path))).unwrap_err();
        assert!(refused.to_string().contains("`read_only` under [sandbox] cannot be so"), "{path}: {refused}");
    }
    let links = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/proc", links.path().join("link")).unwrap();
    let link = links.path().join("link");
    let by_link = |config: &mut GateConfig| config.sandbox.read_only = read(link.to_str().unwrap());
    assert!(lab.gate.reconfigure(changed(&lab, by_link)).is_err());
    let refused = lab.gate.reconfigure(changed(&lab, |config| config.sandbox.plans.clear())).unwrap_err();
    assert!(refused.to_string().contains("`plans`"), "{refused}");
    let refused = lab.gate.reconfigure(changed(&lab, |config| config.sandbox.limits.wall_ms = 0)).unwrap_err();
    assert!(refused.to_string().contains("`limits.wall_ms`"), "{refused}");
    lab.gate.reconfigure(changed(&lab, |config| config.sandbox.read_only = read("/opt"))).unwrap();
}

#[tokio::test]
async fn the_state_directory_is_never_adopted_nor_what_holds_it() {
    let lab = Lab::new().await;
    let journal = fs::canonicalize(lab.journal_directory()).unwrap();
    let (state, home) = (journal.parent().unwrap(), journal.ancestors().nth(2).unwrap());
    let adopt = |path: &Path| lab.gate.adopt_directory(&absolute(path)).unwrap_err();
    assert_eq!(adopt(&journal), WorkspaceError::InsideState(absolute(&journal)));
    assert_eq!(adopt(state), WorkspaceError::InsideState(absolute(state)));
    assert_eq!(adopt(home), WorkspaceError::HoldsState(absolute(home)));
    assert_eq!(adopt(Path::new("/")), WorkspaceError::WholeMachine);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_adopted_directories_the_longest_unused_goes_first() {
    let lab = Lab::new().await;
    let home = tempfile::tempdir().unwrap();
    let adopt = |number: usize| {
        let path = home.path().join(number.to_string());
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("a"), "x").unwrap();
        lab.gate.adopt_directory(&absolute(&path)).unwrap()
    };
    let names: Vec<_> = (0..256).map(adopt).collect();
    let read = ToolProposal { workspace: Some(names[0].clone()), ..lab.call("fs.read", json!({ "path": "a" })) };
    lab.gate.run(read).await.unwrap();
    let last = adopt(256);
    let known = lab.gate.evaluation();
    let is_known = |name: &WorkspaceName| known.workspaces.contains_key(name);
    assert_eq!([&names[0], &names[1], &names[2], &last].map(is_known), [true, false, true, true]);
    assert_eq!(known.workspaces.len(), 257, "the configured one, and as many as may be");
}

#[tokio::test]
async fn the_journal_tells_of_the_daemon_and_of_reloads_that_were_refused() {
    let lab = Lab::new().await;
    lab.gate.daemon_started(&json!({ "version": "1" })).await.unwrap();
    lab.gate.policies_refused("user:ada", "`lab.cedar` does not parse").await.unwrap();
    lab.gate.stop(Duration::from_secs(1)).await;
    lab.gate.daemon_stopped(&json!({ "left": 0 })).await.unwrap();
    let records = lab.records().await;
    let told: Vec<(RecordKind, Value)> = records
        .iter()
        .rev()
        .take(3)
        .rev()
        .map(|one| (one.record.kind, serde_json::from_str(one.body.as_ref().unwrap()).unwrap()))
        .collect();
    let refused = json!({
        "policy_set": lab.engine.snapshot().digest(),
        "by": "user:ada",
        "refused": "`lab.cedar` does not parse",
    });
    let expected = [
        (RecordKind::DaemonStarted, json!({ "version": "1" })),
        (RecordKind::PolicyReloaded, refused),
        (RecordKind::DaemonStopped, json!({ "left": 0 })),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn every_posture_that_is_set_is_listed() {
    let lab = Lab::new().await;
    let setting = |layer, key: &str, tool: &str, posture| PostureSetting {
        layer,
        key: key.to_owned(),
        tool: ToolName::parse(tool).unwrap(),
        posture: Some(posture),
    };
    let settings = [
        setting(PostureLayer::Workspace, "lab", "fs.read", Posture::AskEachTime),
        setting(PostureLayer::Agent, "agent:claude", "process.run", Posture::Disabled),
    ];
    for setting in &settings {
        lab.gate.set_posture(setting, &operator()).await.unwrap();
    }
    assert_eq!(lab.gate.postures().await.unwrap(), settings);
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_that_stand_are_listed_as_long_as_they_do() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_770_000_000_000)));
    let lab = Plan::default().clock(&clock).open().await;
    let scope = DecisionScope::Timeboxed { minutes: 1, pattern: Pattern::Exact };
    let first = lab.propose(lab.command(["echo", "box"]));
    let question = lab.asked(1).await.remove(0);
    lab.approve(question.id, scope).await.unwrap();
    first.await.unwrap().unwrap();
    lab.gate.run(lab.command(["echo", "box"])).await.unwrap();
    let expected = StandingApproval {
        id: question.id,
        session: lab.session,
        principal: "agent:claude".to_owned(),
        on_behalf_of: None,
        workspace: Some(WorkspaceName::parse("lab").unwrap()),
        tool: ToolName::parse("process.run").unwrap(),
        covers: "exactly: /usr/bin/echo box".to_owned(),
        by: owner().principal,
        scope,
        until: Some(Timestamp::from_unix_millis(1_770_000_060_000)),
        uses: 1,
    };
    assert_eq!(lab.gate.grants().await.unwrap(), [expected]);
    clock.advance(60_000);
    assert_eq!(lab.gate.grants().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_what_is_recorded_is_counted() {
    let lab = Lab::new().await;
    assert_eq!(lab.gate.pending_count().await.unwrap(), 0);
    let waiting = [lab.propose(lab.command(["true"])), lab.propose(lab.command(["false"]))];
    lab.asked(2).await;
    assert_eq!(lab.gate.pending_count().await.unwrap(), 2);
    assert_eq!(lab.gate.store().size().await.unwrap(), lab.records().await.len() as u64);
    assert_eq!(lab.gate.trouble(), None);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
