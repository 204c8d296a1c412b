//! What surfaces need of the gate besides calls: who may do what, the configuration in force, what stands.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::{fs, path::Path};

use palyra_gate::{DecisionScope, GateConfig, OpenError, Refusal, ToolProposal, config::WorkspaceSection};
use palyra_journal::JournalStore;
use palyra_tests::{Lab, Plan, owner, text};
use palyra_types::{AbsolutePath, Action, Channel, Principal, Resource, ToolName, WorkspaceName};
use serde_json::json;

#[tokio::test]
async fn policy_says_who_may_do_what_is_no_call() {
    let lab = Lab::new().await;
    let tool = || Resource::Tool(ToolName::parse("process.run").unwrap());
    let channel = || Some(Channel::parse("cli").unwrap());
    assert_eq!(lab.gate.may(&owner().principal, Action::PostureSet, tool(), channel()), Ok(()));
    let agent = Principal::parse("agent:claude").unwrap();
    let refused = lab.gate.may(&agent, Action::PostureSet, tool(), channel());
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
        lab.gate.may(&owner().principal, Action::PostureSet, tool, channel).is_ok()
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

/// The configuration in force, changed.
fn changed(lab: &Lab, change: impl FnOnce(&mut GateConfig)) -> GateConfig {
    let mut config = GateConfig::clone(&lab.gate.config());
    change(&mut config);
    config
}

fn section(name: &str, path: &Path) -> WorkspaceSection {
    let path = AbsolutePath::parse(path.to_str().unwrap()).unwrap();
    WorkspaceSection { name: WorkspaceName::parse(name).unwrap(), path }
}

fn reaching_out(lab: &Lab) -> ToolProposal {
    lab.call("process.run", json!({ "command": ["true"], "egress_hosts": ["example.org:443"] }))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_configuration_comes_into_force_whole() {
    let lab = Lab::new().await;
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
