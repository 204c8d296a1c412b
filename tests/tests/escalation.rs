//! Ways to become more than one is, or to stay when one is out: each was tried on a daemon that let it happen.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::time::{Duration, Instant};

use palyra_api::{
    approval::{Approve, Scope},
    device::{ConfirmPairing, NewPairing, PairingState, RevokeDevice, RotateAuthority, RotationStep},
    member::{ChangeMember, NewInvitation, SetFlag},
    token::RevokeToken,
};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, accepted, asked, command, refused, yes},
    paired::{Candidate, Granting, grant, pair, pin},
    token::token,
};
use palyra_types::{PrincipalId, WorkspaceRole};
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
async fn a_token_pairs_no_device_for_a_person() {
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
    // For an agent it does.
    program
        .open_pairing(&NewPairing { principal: Some("agent:ci".to_owned()), ..NewPairing::default() })
        .await
        .unwrap();
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
