//! What surfaces need of the gate besides calls: who may do what, the configuration in force, what stands.

use palyra_gate::Refusal;
use palyra_tests::{Lab, Plan, owner};
use palyra_types::{Action, Channel, Principal, Resource, ToolName};

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
