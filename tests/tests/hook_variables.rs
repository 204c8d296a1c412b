//! The variables of a command that an agent runs itself: they are judged, and a person sees them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use palyra_api::{
    approval::{Approve, Scope},
    authorize::{Asking, Authorize, Decision},
};
use palyra_tests::daemon::{DaemonLab, DaemonPlan, asked, no, refused, yes};
use serde_json::{Value, json};

use crate::hooks::{terminal, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn variables_make_no_other_command_of_a_permitted_one() {
    let lab = DaemonPlan::default().policies("own.cedar", STATUS_ANYWHERE).start();
    let agent = lab.agent();
    let with = |env: Value| wanted("process.run", json!({ "command": "true status", "env": env }));
    let ask = async |env: Value| agent.authorize(&with(env)).await.unwrap();
    let plain = ask(json!({ "LANG": "C" })).await;
    assert_eq!((plain.decision, plain.policy.as_deref()), (Decision::Allow, Some("status-anywhere")), "{plain:?}");
    for name in ["BASH_ENV", "LD_PRELOAD", "PATH", "GIT_SSH_COMMAND", "BASH_FUNC_true%%", "A=B", ""] {
        let told = ask(json!({ "LANG": "C", name: "/w/evil.sh" })).await;
        assert_eq!((told.decision, told.code.as_str()), (Decision::Deny, "bad_arguments"), "{name}: {told:?}");
    }
    for env in [json!("BASH_ENV=/w/evil.sh"), json!([["BASH_ENV", "/w/evil.sh"]]), json!({ "LANG": ["C"] })] {
        let error = agent.authorize(&with(env)).await.unwrap_err();
        assert_eq!(refused(error), (422, "bad_arguments".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_is_asked_sees_the_variables_of_what_the_agent_runs_itself() {
    let lab = DaemonLab::new();
    let (agent, owner) = (lab.agent(), lab.owner());
    let asking = |mode: &str| {
        let args = json!({ "command": ["true"], "env": { "NODE_ENV": mode } });
        let asked = Authorize { on_ask: Some(Asking::Wait), ..wanted("process.run", args) };
        let agent = agent.clone();
        tokio::spawn(async move { agent.authorize(&asked).await.unwrap() })
    };
    let waiting = asking("production");
    let question = asked(&owner, 1).await.remove(0);
    let shown = terminal(&lab, &question);
    assert!(shown.contains("  environment   NODE_ENV=production\n"), "{shown}");
    assert!(!shown.contains("`env`"), "it stands there once: {shown}");
    owner.approve(question.id, &Approve { scope: Scope::Session, ..yes(&question) }).await.unwrap();
    assert_eq!(waiting.await.unwrap().decision, Decision::Allow);
    assert_eq!(asking("production").await.unwrap().decision, Decision::Allow, "it is the same");
    let waiting = asking("test");
    let other = asked(&owner, 1).await.remove(0);
    assert_ne!(other.digest, question.digest, "what is approved includes the variables");
    owner.deny(other.id, &no(&other, None)).await.unwrap();
    assert_eq!(waiting.await.unwrap().decision, Decision::Deny);
}

/// A rule that permits one command by its words.
const STATUS_ANYWHERE: &str = r#"
@id("status-anywhere")
@why("looking at the state changes nothing")
permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"process.run")
when { context.elsewhere && context has process && context.process.command like "*/bash -c 'true status'" };
"#;
