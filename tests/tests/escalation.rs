//! Ways to become more than one is, or to stay when one is out: each was tried on a daemon that let it happen.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::time::{Duration, Instant};

use palyra_api::{
    approval::{Approve, Scope},
    device::{ConfirmPairing, NewPairing, PairingState, RevokeDevice, RotateAuthority, RotationStep},
    mcp::McpSettings,
    member::{ChangeMember, NewInvitation, SetFlag},
    token::{NewToken, RevokeToken},
    tool::PostureSetting,
};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, accepted, asked, command, refused, tool, yes},
    paired::{Candidate, Granting, grant, pair, pin, renew},
    token::token,
};
use palyra_types::{PrincipalId, SecretRef, WorkspaceRole};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A member with a device.
async fn member(lab: &DaemonLab, name: &str, role: WorkspaceRole) -> Client {
    let owner = lab.owner();
    owner.set_flag("team_mode", &SetFlag { on: true }).await.unwrap();
    let user = PrincipalId::parse(name).unwrap();
    owner.invite(&NewInvitation { user, role, workspaces: None, lifetime_seconds: None }).await.unwrap();
    let theirs = NewPairing { principal: Some(format!("user:{name}")), ..NewPairing::default() };
    lab.of_device(&pair(lab, &theirs).await)
}

/// Sends all of a request but its last byte, has something happen, and sends the rest.
async fn late(lab: &DaemonLab, bearer: &str, meanwhile: impl Future<Output = ()>) -> (u16, String) {
    let body = serde_json::to_string(&token("agent:late", &["calls.read"])).unwrap();
    let head = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {bearer}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        lab.local(),
        body.len()
    );
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // Whoever is told to go on has been let in.
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut go_on).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&go_on), "HTTP/1.1 100 Continue\r\n\r\n");
    let (most, last) = body.split_at(body.len() - 1);
    stream.write_all(most.as_bytes()).await.unwrap();
    meanwhile.await;
    let _ = stream.write_all(last.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    (text.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default(), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_out_before_their_request_is_whole_has_nothing_done() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    // Revoked.
    let minted = owner.mint_token(&token("user:owner", &["tokens.manage"])).await.unwrap();
    let (status, text) = late(&lab, &minted.secret, async {
        owner.revoke_token(&minted.token.id, &RevokeToken::default()).await.unwrap();
    })
    .await;
    // Its connection is closed a moment later, whether the answer has left or not.
    assert!(status == 401 || text.is_empty(), "{text}");
    // Signed out.
    let session = lab.console().await;
    let (status, text) = late(&lab, &session, async {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        let request = format!(
            "DELETE /api/v1/console/session HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {session}\r\nConnection: close\r\n\r\n",
            lab.local()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    })
    .await;
    assert_eq!(status, 401, "{text}");
    // Demoted.
    let ada = member(&lab, "ada", WorkspaceRole::Admin).await;
    let link = ada.console_link().await.unwrap();
    let session = lab.sign_in(&link.url).await;
    let (status, text) = late(&lab, &session, async {
        let change = ChangeMember { role: Some(WorkspaceRole::Operator), workspaces: None, all_workspaces: false };
        owner.change_member(&PrincipalId::parse("ada").unwrap(), &change).await.unwrap();
    })
    .await;
    assert_eq!(status, 403, "{text}");
    let names: Vec<_> = owner.tokens().await.unwrap().tokens.into_iter().map(|one| one.principal).collect();
    assert!(!names.contains(&"agent:late".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_was_confirmed_by_one_that_is_revoked_since_is_not_let_in() {
    let lab = DaemonLab::new();
    let laptop = pair(&lab, &NewPairing::default()).await;
    let accomplice = grant(&lab, lab.of_device(&laptop), &NewPairing::default()).await;
    let Granting { mut device, identity, confirming } = accomplice;
    lab.owner().revoke_device(&laptop.device, &RevokeDevice::default()).await.unwrap();
    assert!(device.kept().await.is_err());
    let _ = confirming.await.unwrap();
    let refusal = refused(lab.of_device(&identity).identity().await.unwrap_err());
    assert_eq!(refusal, (401, "unknown_device".to_owned()));
}

#[tokio::test]
async fn a_pairing_goes_with_the_device_that_opened_it() {
    let lab = DaemonLab::new();
    let laptop = pair(&lab, &NewPairing::default()).await;
    let open = lab.of_device(&laptop).open_pairing(&NewPairing::default()).await.unwrap();
    lab.owner().revoke_device(&laptop.device, &RevokeDevice::default()).await.unwrap();
    assert_eq!(lab.owner().pairing(&open.id).await.unwrap().state, PairingState::Over);
    assert!(Candidate::connect(&lab, "phone").await.prove(pin(&open.pin)).await.is_err());
    lab.owner().open_pairing(&NewPairing::default()).await.unwrap();
}

#[tokio::test]
async fn a_token_pairs_no_device() {
    let lab = DaemonLab::new();
    let minted = lab.owner().mint_token(&token("user:owner", &["devices.manage"])).await.unwrap();
    let program = lab.holder_of(&minted.secret);
    let refusal = refused(program.open_pairing(&NewPairing::default()).await.unwrap_err());
    assert_eq!(refusal, (422, "not_allowed_so".to_owned()));
    let open = lab.owner().open_pairing(&NewPairing::default()).await.unwrap();
    let mut device = Candidate::connect(&lab, "phone").await;
    assert!(device.prove(pin(&open.pin)).await.is_ok());
    let key = lab.owner().pairing(&open.id).await.unwrap().device.unwrap().observed.key;
    let refusal = refused(program.confirm_pairing(&open.id, &ConfirmPairing { key }).await.unwrap_err());
    assert_eq!(refusal, (422, "not_allowed_so".to_owned()));
    lab.owner().end_pairing(&open.id).await.unwrap();
    let for_agent = NewPairing { principal: Some("agent:ci".to_owned()), ..NewPairing::default() };
    let refusal = refused(program.open_pairing(&for_agent).await.unwrap_err());
    assert_eq!(refusal, (422, "not_allowed_so".to_owned()));
}

#[tokio::test]
async fn what_may_do_less_puts_out_no_token_that_may_do_more() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let strong = owner.mint_token(&token("user:owner", &["policy.write"])).await.unwrap();
    let new = NewPairing { role: Some(WorkspaceRole::Operator), ..NewPairing::default() };
    let phone = lab.of_device(&pair(&lab, &new).await);
    let refusal = refused(phone.revoke_token(&strong.token.id, &RevokeToken::default()).await.unwrap_err());
    assert_eq!(refusal, (403, "denied_by_policy".to_owned()));
    lab.holder_of(&strong.secret).identity().await.unwrap();
}

#[tokio::test]
async fn a_token_for_calls_of_its_own_sees_nobody_elses_whoever_it_stands_for() {
    let lab = DaemonLab::new();
    let (owner, agent) = (lab.owner(), lab.agent());
    let call = agent.propose(&tool("tool.list", json!({})), None).await.unwrap();
    let run = call.run;
    let mint = async |scopes: &[&str]| {
        let minted = owner.mint_token(&token("user:owner", scopes)).await.unwrap();
        lab.holder_of(&minted.secret)
    };
    let narrow = mint(&["calls.create", "calls.read"]).await;
    let status = |error| refused(error).0;
    assert_eq!(status(narrow.call(call.id).await.unwrap_err()), 404);
    assert_eq!(status(narrow.explanation(call.id).await.unwrap_err()), 404);
    assert_eq!(status(narrow.replay_call(call.id).await.unwrap_err()), 404);
    assert_eq!(status(narrow.cancel(call.id).await.unwrap_err()), 404);
    assert_eq!(refused(narrow.run(run).await.unwrap_err()), (404, "unknown_run".to_owned()));
    assert_eq!(status(narrow.run_stream(run, None).await.map(drop).unwrap_err()), 404);
    // What is one's own, and what a token for the journal reads, is there as before.
    let own = narrow.propose(&tool("tool.list", json!({})), None).await.unwrap();
    assert_eq!(narrow.call(own.id).await.unwrap().id, own.id);
    assert_eq!(narrow.run(own.run).await.unwrap().principal, "user:owner");
    for overseer in [&mint(&["calls.read", "journal.read"]).await, &owner] {
        assert_eq!(overseer.call(call.id).await.unwrap().id, call.id);
        assert_eq!(overseer.run(run).await.unwrap().id, run);
    }
}

#[tokio::test]
async fn an_admin_cuts_nobody_off_by_replacing_the_authority() {
    let lab = DaemonLab::new();
    let ada = member(&lab, "ada", WorkspaceRole::Admin).await;
    let step = |step, even_if_behind| RotateAuthority { step, even_if_behind };
    ada.rotate_authority(&step(RotationStep::Announce, false)).await.unwrap();
    let refusal = refused(ada.rotate_authority(&step(RotationStep::Switch, true)).await.unwrap_err());
    assert_eq!(refusal, (403, "above_own_role".to_owned()));
    lab.owner().identity().await.unwrap();
}

#[tokio::test]
async fn what_somebody_approved_for_longer_stands_no_longer_than_they_belong_here() {
    let lab = DaemonLab::new();
    let opal = member(&lab, "opal", WorkspaceRole::Operator).await;
    let agent = lab.agent();
    agent.propose(&accepted(command(["true"])), None).await.unwrap();
    let question = asked(&opal, 1).await.remove(0);
    let answer = Approve { scope: Scope::Timeboxed, minutes: Some(60), ..yes(&question) };
    opal.approve(question.id, &answer).await.unwrap();
    assert_eq!(lab.owner().grants().await.unwrap().grants.len(), 1);
    lab.owner().remove_member(&PrincipalId::parse("opal").unwrap()).await.unwrap();
    assert!(lab.owner().grants().await.unwrap().grants.is_empty());
}

#[tokio::test]
async fn strangers_who_ask_for_a_pairing_that_is_not_open_fill_no_journal() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let before = owner.head().await.unwrap().size;
    for _ in 0..60 {
        assert!(Candidate::connect(&lab, "stranger").await.greet(pin("123456")).await.is_err());
    }
    let begun = Instant::now();
    let mut told = 0;
    // Those who are not let in are counted for five seconds, and told together.
    while told == 0 || begun.elapsed() < Duration::from_secs(6) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        told = owner.head().await.unwrap().size - before;
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody is told of them");
    }
    assert!(told <= 4, "{told} records");
}

#[test]
fn an_authority_that_is_gone_is_not_followed_by_another() {
    let mut lab = DaemonLab::new();
    lab.stop();
    let authority = lab.home().join("identity/authority.json");
    std::fs::rename(&authority, lab.home().join("elsewhere")).unwrap();
    let told = lab.palyra().arg("init").output().unwrap();
    assert!(!told.status.success());
    assert!(!authority.exists(), "{}", String::from_utf8_lossy(&told.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_steps_of_a_rotation_at_once_cut_nobody_off() {
    let lab = DaemonLab::new();
    let mut devices = vec![lab.device(), pair(&lab, &NewPairing::default()).await];
    let step = |step| RotateAuthority { step, even_if_behind: false };
    lab.owner().rotate_authority(&step(RotationStep::Announce)).await.unwrap();
    for device in &mut devices {
        renew(&lab, device).await;
    }
    let steps = [RotationStep::Switch].into_iter().chain([RotationStep::Finish; 8]);
    let asking = steps.map(|next| {
        let by = lab.of_device(&devices[0]);
        tokio::spawn(async move { by.rotate_authority(&RotateAuthority { step: next, even_if_behind: false }).await })
    });
    let mut taken = 0;
    for asked in asking.collect::<Vec<_>>() {
        taken += usize::from(asked.await.unwrap().is_ok());
    }
    assert_eq!(taken, 1, "only the switch was due");
    for device in &mut devices {
        renew(&lab, device).await;
        lab.of_device(device).identity().await.unwrap();
    }
}

#[tokio::test]
async fn a_token_that_was_revoked_long_ago_does_not_come_back_because_its_text_is_still_there() {
    let mut lab = DaemonPlan::default().own_clock().start();
    let id = lab.agent().identity().await.unwrap().token.unwrap();
    lab.owner().revoke_token(&id, &RevokeToken::default()).await.unwrap();
    let manager =
        NewToken { lifetime_seconds: 366 * 24 * 60 * 60, ..token("user:owner", &["tokens.manage", "calls.read"]) };
    let manager = NewToken { role: Some(WorkspaceRole::Owner), ..manager };
    let manager = lab.owner().mint_token(&manager).await.unwrap().secret;
    for days in [100, 101] {
        assert!(lab.stop().success());
        lab.set_ahead(Duration::from_secs(days * 24 * 60 * 60));
        lab.start();
        // What has been over for long makes room for it.
        lab.holder_of(&manager).mint_token(&token("agent:other", &["calls.read"])).await.unwrap();
        assert_eq!(refused(lab.agent().identity().await.unwrap_err()).0, 401);
    }
    let listed = lab.holder_of(&manager).tokens().await.unwrap().tokens;
    assert!(listed.iter().all(|token| token.id != id), "it is not even known any more");
}

#[tokio::test]
async fn a_token_gives_nobody_a_role() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    member(&lab, "ada", WorkspaceRole::Operator).await;
    let narrow = NewToken { role: Some(WorkspaceRole::Owner), ..token("user:owner", &["members.manage"]) };
    let program = lab.holder_of(&owner.mint_token(&narrow).await.unwrap().secret);
    let ada = PrincipalId::parse("ada").unwrap();
    let promote = ChangeMember { role: Some(WorkspaceRole::Owner), workspaces: None, all_workspaces: false };
    let refusal = refused(program.change_member(&ada, &promote).await.unwrap_err());
    assert_eq!(refusal, (422, "not_allowed_so".to_owned()));
    let user = PrincipalId::parse("bob").unwrap();
    let invitation = NewInvitation { user, role: WorkspaceRole::Operator, workspaces: None, lifetime_seconds: None };
    assert_eq!(refused(program.invite(&invitation).await.unwrap_err()).0, 422);
    program.remove_member(&ada).await.unwrap();
}

#[tokio::test]
async fn whoever_is_bound_to_a_workspace_governs_no_other() {
    let shop = tempfile::tempdir().unwrap();
    let other = format!("[[workspace]]\nname = \"shop\"\npath = \"{}\"\n", shop.path().display());
    let lab = DaemonPlan::default().config(&other).start();
    let owner = lab.owner();
    let (mallory, bob) = (PrincipalId::parse("mallory").unwrap(), PrincipalId::parse("bob").unwrap());
    let by = member(&lab, "mallory", WorkspaceRole::Admin).await;
    member(&lab, "bob", WorkspaceRole::Operator).await;
    let only = Some(vec![palyra_types::WorkspaceName::parse("shop").unwrap()]);
    let bound = ChangeMember { role: None, workspaces: only, all_workspaces: false };
    owner.change_member(&mallory, &bound).await.unwrap();
    let promote = ChangeMember { role: Some(WorkspaceRole::Admin), workspaces: None, all_workspaces: false };
    assert_eq!(refused(by.change_member(&bob, &promote).await.unwrap_err()), (403, "above_own_role".to_owned()));
    assert_eq!(refused(by.remove_member(&bob).await.unwrap_err()).0, 403);
    assert_eq!(refused(by.set_flag("rbac", &SetFlag { on: false }).await.unwrap_err()).0, 403);
    let announce = RotateAuthority { step: RotationStep::Announce, even_if_behind: false };
    assert_eq!(refused(by.rotate_authority(&announce).await.unwrap_err()).0, 403);
    let posture = |layer: &str, key: &str| PostureSetting {
        layer: layer.to_owned(),
        key: key.to_owned(),
        tool: palyra_types::ToolName::parse("process.run").unwrap(),
        posture: palyra_types::Posture::AlwaysAllow,
    };
    for (layer, key) in [("workspace", "lab"), ("global", ""), ("agent", "agent:local")] {
        assert_eq!(refused(by.set_posture(&posture(layer, key)).await.unwrap_err()).0, 403, "{layer}");
    }
    by.set_posture(&posture("workspace", "shop")).await.unwrap();
    let call = lab.agent().propose(&accepted(command(["true"])), None).await.unwrap();
    asked(&owner, 1).await;
    assert_eq!(refused(by.cancel(call.id).await.unwrap_err()).0, 403);
}

/// Whoever names the address of an MCP server learns the secrets that are sent there.
#[tokio::test]
async fn a_token_for_servers_alone_has_no_secret_sent_to_an_address() {
    let lab = DaemonLab::new();
    let new = NewToken { role: Some(WorkspaceRole::Admin), ..token("user:owner", &["mcp.manage"]) };
    let minted = lab.owner().mint_token(&new).await.unwrap();
    let holder = lab.holder_of(&minted.secret);
    let settings = McpSettings { url: Some("http://127.0.0.1:9/mcp".to_owned()), ..McpSettings::default() };
    let with_secret = McpSettings { bearer: Some(SecretRef::parse("global/github").unwrap()), ..settings.clone() };
    let refusal = holder.add_mcp_server("elsewhere", &with_secret).await.unwrap_err();
    assert_eq!(refused(refusal), (403, "missing_scope".to_owned()));
    assert_eq!(lab.owner().mcp_servers().await.unwrap().servers.len(), 0);
    holder.add_mcp_server("elsewhere", &settings).await.unwrap();
}
