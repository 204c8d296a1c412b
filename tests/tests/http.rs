//! The daemon over HTTP: from a proposal to a receipt, by real programs, with real credentials.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use palyra_api::call::{CallState, Output};
use palyra_client::ClientError;
use palyra_tests::daemon::{DaemonLab, DaemonPlan, accepted, approve, asked, command, no, over, refused, tool};
use serde_json::json;

#[tokio::test]
async fn an_agent_proposes_a_person_approves_and_the_receipt_says_so() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    let proposing = tokio::spawn(async move { agent.propose(&command(["echo", "hello"]), None).await });
    let owner = lab.owner();
    let questions = asked(&owner, 1).await;
    assert_eq!(questions[0].summary, "/usr/bin/echo hello");
    approve(&owner, &questions[0]).await.unwrap();
    let call = proposing.await.unwrap().unwrap();
    assert_eq!(call.state, CallState::Ended);
    let Some(Output::Process { exit_code, stdout, .. }) = &call.output else { panic!("{call:?}") };
    assert_eq!((*exit_code, stdout.data.as_str()), (Some(0), "hello\n"));
    let receipt = call.receipt.as_ref().unwrap();
    assert_eq!(receipt.attestation["approver"]["by"]["id"], "owner");
    // The journal tells the same later.
    assert_eq!(lab.agent().call(call.id).await.unwrap().receipt, call.receipt);
    let proof = owner.proof(receipt.seq).await.unwrap();
    assert_eq!(proof.record.hash, receipt.hash);
    assert!(owner.verify().await.unwrap().ok);
}

#[tokio::test]
async fn an_ordinary_user_has_all_of_it() {
    let lab = DaemonPlan::default().ordinary_user().start();
    let agent = lab.agent();
    let proposing = tokio::spawn(async move { agent.propose(&command(["id", "-u"]), None).await });
    let owner = lab.owner();
    approve(&owner, &asked(&owner, 1).await[0]).await.unwrap();
    let call = proposing.await.unwrap().unwrap();
    let Some(Output::Process { stdout, .. }) = &call.output else { panic!("{call:?}") };
    assert_ne!(stdout.data, "0\n");
}

#[tokio::test]
async fn a_refusal_by_policy_explains_itself_and_is_journalled() {
    let lab = DaemonLab::new();
    let state = lab.home().join("config.toml");
    let error = lab.agent().propose(&command(["cat", state.to_str().unwrap()]), None).await.unwrap_err();
    let ClientError::Refused { status, error: body } = error else { panic!("{error}") };
    assert_eq!((status, body.code.as_str()), (403, "denied_by_policy"));
    let call = body.call.unwrap();
    let explanation = lab.agent().explanation(call).await.unwrap();
    assert_eq!((explanation.verdict.as_str(), explanation.same_policies), ("deny", true));
    assert_eq!(explanation.parts[0].reasons[0].policy.as_deref(), Some("baseline.touches-state"));
}

#[tokio::test]
async fn a_no_reaches_the_agent_with_its_message() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    let proposing = tokio::spawn(async move { agent.propose(&command(["echo"]), None).await });
    let owner = lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    owner.deny(question.id, &no(&question, Some("use printf"))).await.unwrap();
    let ClientError::Refused { status, error: body } = proposing.await.unwrap().unwrap_err() else { panic!() };
    assert_eq!((status, body.code.as_str()), (403, "denied_by_person"));
    assert!(body.message.contains("use printf"), "{}", body.message);
}

#[tokio::test]
async fn an_agent_proposes_and_reads_its_own_and_nothing_else() {
    let lab = DaemonLab::new();
    let (agent, owner) = (lab.agent(), lab.owner());
    let waiting = agent.propose(&accepted(command(["true"])), None).await.unwrap();
    assert_eq!(waiting.state, CallState::Waiting);
    assert_eq!(agent.call(waiting.id).await.unwrap().state, CallState::Waiting);
    let question = asked(&owner, 1).await.remove(0);
    let forbidden = |error: ClientError| assert_eq!(refused(error).0, 403);
    forbidden(agent.approvals(&Default::default()).await.unwrap_err());
    forbidden(agent.approval(question.id).await.unwrap_err());
    forbidden(approve(&agent, &question).await.unwrap_err());
    forbidden(agent.records(&Default::default()).await.unwrap_err());
    forbidden(agent.head().await.unwrap_err());
    forbidden(agent.events(None).await.err().unwrap());
    forbidden(agent.policy().await.unwrap_err());
    forbidden(agent.reload().await.unwrap_err());
    forbidden(agent.postures().await.unwrap_err());
    forbidden(agent.grants().await.unwrap_err());
    forbidden(agent.console_link().await.unwrap_err());
    forbidden(agent.calls(&Default::default()).await.unwrap_err());
    // What is somebody else's is as good as absent.
    let theirs = owner.propose(&accepted(command(["false"])), None).await.unwrap();
    assert_eq!(refused(agent.call(theirs.id).await.unwrap_err()).0, 404);
    assert_eq!(refused(agent.cancel(theirs.id).await.unwrap_err()).0, 404);
    assert_eq!(refused(agent.run(theirs.run).await.unwrap_err()).0, 404);
    assert!(!agent.tools().await.unwrap().tools.is_empty());
    assert_eq!(agent.workspaces().await.unwrap().workspaces.len(), 1);
}

#[tokio::test]
async fn a_stranger_is_told_nothing_but_that_the_daemon_is_there() {
    let lab = DaemonLab::new();
    let stranger = lab.stranger();
    stranger.health().await.unwrap();
    assert!(stranger.readiness().await.unwrap().ready);
    assert_eq!(refused(stranger.tools().await.unwrap_err()), (401, "unauthenticated".to_owned()));
    assert_eq!(refused(stranger.propose(&command(["true"]), None).await.unwrap_err()).0, 401);
    assert_eq!(refused(stranger.metrics().await.unwrap_err()).0, 401);
}

#[tokio::test]
async fn an_accepted_call_waits_through_a_kill_and_runs_once_when_it_is_approved() {
    let mut lab = DaemonLab::new();
    let call = accepted(tool("process.run", json!({ "command": ["tee", "-a", "log"], "stdin": "once\n" })));
    let waiting = lab.agent().propose(&call, None).await.unwrap();
    lab.kill();
    lab.start();
    let owner = lab.owner();
    approve(&owner, &asked(&owner, 1).await[0]).await.unwrap();
    let ended = over(&owner, waiting.id).await;
    assert_eq!(ended.receipt.unwrap().ending(), "completed");
    assert_eq!(std::fs::read_to_string(lab.workspace().join("log")).unwrap(), "once\n");
}

#[tokio::test]
async fn a_question_expires_by_the_daemons_own_clock() {
    let lab = DaemonPlan::default().own_clock().start();
    let owner = lab.owner();
    let waiting = lab.agent().propose(&accepted(command(["true"])), None).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    lab.set_ahead(std::time::Duration::from_secs(601));
    assert_eq!(refused(approve(&owner, &question).await.unwrap_err()), (409, "too_late".to_owned()));
    let ended = over(&owner, waiting.id).await;
    assert_eq!(ended.refusal.unwrap().code, "approval_expired");
}
