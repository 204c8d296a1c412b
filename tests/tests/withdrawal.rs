//! Whatever takes a credential away takes along what was begun with it, whichever rule it was that did, and whatever became of the daemon
//! meanwhile; and whoever may write the state directory always gets in again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_access::{AccessRegistry, Actor, DeviceRevocation, FileStore};
use palyra_api::{
    approval::{Approve, Scope},
    device::{AuthorityPhase, ConfirmPairing, DeviceState, NewPairing, RevokeDevice, RotateAuthority, RotationStep},
    member::{ChangeMember, NewInvitation, SetFlag},
    token::{MintedToken, RevokeToken, RotateToken},
};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, accepted, asked, command, over, refused, yes},
    paired::{Candidate, pair, pin, renew},
    token::token,
};
use palyra_types::{
    DeviceId, Principal, PrincipalId, WorkspaceName, WorkspaceRole, clock::SystemClock, entropy::SystemEntropy,
    id::CallId,
};

/// An agent's token, and a call of it that waits for an answer.
async fn waiting(lab: &DaemonLab) -> (MintedToken, CallId) {
    let minted = lab.owner().mint_token(&token("agent:ci", &["calls.create", "calls.read"])).await.unwrap();
    let call = proposed(lab, &lab.holder_of(&minted.secret)).await;
    (minted, call)
}

/// A call of somebody that waits for an answer.
async fn proposed(lab: &DaemonLab, by: &Client) -> CallId {
    let call = by.propose(&accepted(command(["true"])), None).await.unwrap();
    asked(&lab.owner(), 1).await;
    call.id
}

async fn is_withdrawn(lab: &DaemonLab, call: CallId) {
    assert_eq!(over(&lab.owner(), call).await.refusal.unwrap().code, "cancelled");
}

#[tokio::test]
async fn a_token_that_is_followed_by_another_at_once_leaves_no_call_behind_and_one_that_overlaps_does() {
    let lab = DaemonLab::new();
    let (minted, call) = waiting(&lab).await;
    let how = RotateToken { overlap_seconds: Some(600), lifetime_seconds: None };
    let next = lab.owner().rotate_token(&minted.token.id, &how).await.unwrap();
    assert_eq!(asked(&lab.owner(), 1).await.len(), 1, "what was accepted from it goes on");
    lab.owner().cancel(call).await.unwrap();
    is_withdrawn(&lab, call).await;

    let call = proposed(&lab, &lab.holder_of(&next.secret)).await;
    let at_once = RotateToken { overlap_seconds: Some(0), lifetime_seconds: None };
    lab.owner().rotate_token(&next.token.id, &at_once).await.unwrap();
    is_withdrawn(&lab, call).await;
}

#[tokio::test]
async fn what_is_switched_off_takes_its_calls_along() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let (minted, call) = waiting(&lab).await;
    owner.set_flag("api_tokens", &SetFlag { on: false }).await.unwrap();
    is_withdrawn(&lab, call).await;
    let client = lab.holder_of(&minted.secret);
    assert_eq!(refused(client.identity().await.unwrap_err()), (403, "feature_off".to_owned()));
    owner.set_flag("api_tokens", &SetFlag { on: true }).await.unwrap();
    client.identity().await.unwrap();
    assert_eq!(asked_now(&owner).await, 0, "what was withdrawn does not come back");
}

async fn asked_now(by: &Client) -> usize {
    by.approvals(&Default::default()).await.unwrap().approvals.len()
}

#[tokio::test]
async fn a_device_that_a_rotation_cuts_off_is_listed_as_such_and_its_session_and_its_calls_end() {
    let lab = DaemonLab::new();
    let mut owner = lab.device();
    let (idle, robot) = (pair(&lab, &NewPairing::default()).await, pair(&lab, &for_agent()).await);
    let link = lab.of_device(&idle).console_link().await.unwrap();
    let session = lab.holder_of(&lab.sign_in(&link.url).await);
    session.identity().await.unwrap();
    let call = proposed(&lab, &lab.of_device(&robot)).await;
    let forced = |step| RotateAuthority { step, even_if_behind: true };
    lab.of_device(&owner).rotate_authority(&forced(RotationStep::Announce)).await.unwrap();
    renew(&lab, &mut owner).await;
    lab.of_device(&owner).rotate_authority(&forced(RotationStep::Switch)).await.unwrap();
    renew(&lab, &mut owner).await;
    session.identity().await.unwrap();
    let finished = lab.of_device(&owner).rotate_authority(&forced(RotationStep::Finish)).await.unwrap();
    assert_eq!((finished.phase, finished.devices, finished.behind), (AuthorityPhase::Steady, 1, vec![]));

    let client = lab.of_device(&owner);
    let listed = client.devices().await.unwrap().devices;
    let states: Vec<_> = listed.iter().map(|device| (&device.id, device.state)).collect();
    let expected = [
        (&owner.device, DeviceState::Active),
        (&idle.device, DeviceState::CutOff),
        (&robot.device, DeviceState::CutOff),
    ];
    assert_eq!(states, expected);
    assert_eq!(refused(session.identity().await.unwrap_err()), (401, "expired".to_owned()));
    assert_eq!(over(&client, call).await.refusal.unwrap().code, "cancelled");
    // Those who are cut off hold up no other rotation.
    let announced = client.rotate_authority(&forced(RotationStep::Announce)).await.unwrap();
    assert_eq!(announced.behind, [owner.device.clone()]);
}

fn for_agent() -> NewPairing {
    NewPairing { principal: Some("agent:robot".to_owned()), ..NewPairing::default() }
}

#[tokio::test]
async fn an_agent_goes_no_faster_as_a_device_than_with_its_tokens() {
    let lab = DaemonPlan::default().config("[access]\nprincipal_per_minute = 60\n").start();
    let robot = lab.of_device(&pair(&lab, &for_agent()).await);
    let minted = lab.owner().mint_token(&token("agent:robot", &["calls.read"])).await.unwrap();
    let (mut passed, begun) = (0, Instant::now());
    for by in [&robot, &lab.holder_of(&minted.secret)] {
        let refusal = loop {
            match by.identity().await {
                Ok(_) => passed += 1,
                Err(error) => break refused(error),
            }
        };
        assert_eq!(refusal, (429, "rate_limited".to_owned()));
        // Ten at once, and one more for each second that it took.
        let most = 10 + begun.elapsed().as_secs() + 1;
        assert!((10..=most).contains(&passed), "{passed} of {most}");
    }
    lab.owner().identity().await.unwrap();
}

#[tokio::test]
async fn whoever_may_write_the_state_directory_gets_in_again_although_they_were_removed() {
    let mut lab = DaemonLab::new();
    let owner = lab.owner();
    owner.set_flag("team_mode", &SetFlag { on: true }).await.unwrap();
    let user = PrincipalId::parse("ada").unwrap();
    let invitation =
        NewInvitation { user: user.clone(), role: WorkspaceRole::Admin, workspaces: None, lifetime_seconds: None };
    owner.invite(&invitation).await.unwrap();
    let theirs = NewPairing { principal: Some("user:ada".to_owned()), ..NewPairing::default() };
    let ada = lab.of_device(&pair(&lab, &theirs).await);
    let promoted = ChangeMember { role: Some(WorkspaceRole::Owner), workspaces: None, all_workspaces: false };
    owner.change_member(&user, &promoted).await.unwrap();
    ada.remove_member(&PrincipalId::parse("owner").unwrap()).await.unwrap();
    ada.set_flag("device_pairing", &SetFlag { on: false }).await.unwrap();
    assert_eq!(refused(lab.owner().identity().await.unwrap_err()).1, "revoked");

    assert!(lab.stop().success());
    fs::remove_file(lab.home().join("identity/device.json")).unwrap();
    fs::remove_file(lab.home().join("identity/agent.token")).unwrap();
    lab.start();
    let again = lab.owner().identity().await.unwrap();
    assert_eq!((again.principal.as_str(), again.roles), ("user:owner", vec!["owner".to_owned()]));
    lab.agent().identity().await.unwrap();
    ada.identity().await.unwrap();
}

fn ada() -> PrincipalId {
    PrincipalId::parse("ada").unwrap()
}

/// ada, with a device.
async fn member(lab: &DaemonLab, role: WorkspaceRole) -> Client {
    let owner = lab.owner();
    owner.set_flag("team_mode", &SetFlag { on: true }).await.unwrap();
    let invitation = NewInvitation { user: ada(), role, workspaces: None, lifetime_seconds: None };
    owner.invite(&invitation).await.unwrap();
    let theirs = NewPairing { principal: Some("user:ada".to_owned()), ..NewPairing::default() };
    lab.of_device(&pair(lab, &theirs).await)
}

#[tokio::test]
async fn a_credential_that_was_taken_away_right_before_a_crash_leaves_no_call_to_be_approved() {
    let mut lab = DaemonLab::new();
    let robot = pair(&lab, &for_agent()).await;
    let call = proposed(&lab, &lab.of_device(&robot)).await;
    lab.kill();
    revoke_in_the_file(&lab, &robot.device).await;
    lab.start();
    is_withdrawn(&lab, call).await;
}

/// Revokes a device in the registry of a daemon that does not run.
async fn revoke_in_the_file(lab: &DaemonLab, id: &DeviceId) {
    let store = Arc::new(FileStore::open(&lab.home().join("access_registry.json")).unwrap());
    let registry = AccessRegistry::open(store, Arc::new(SystemClock::new()), Arc::new(SystemEntropy)).unwrap();
    let owner = Actor::in_person(Principal::parse("user:owner@owner").unwrap());
    let (id, why) = (id.clone(), "lost".to_owned());
    let revocation = DeviceRevocation { id, why, even_the_last: false, cut_off: [].into() };
    let pending = registry.prepare(|state, at| state.revoke_device(&owner, revocation, at)).await.unwrap();
    pending.commit().await.unwrap();
}

/// Says yes to a call for an hour.
async fn approve_for_an_hour(lab: &DaemonLab, by: &Client) {
    let agent = lab.agent();
    let call = agent.propose(&accepted(command(["true"])), None).await.unwrap();
    let [question] = <[_; 1]>::try_from(asked(by, 1).await).unwrap();
    by.approve(question.id, &Approve { scope: Scope::Timeboxed, minutes: Some(60), ..yes(&question) }).await.unwrap();
    assert!(over(&lab.owner(), call.id).await.receipt.is_some());
    let again = agent.propose(&accepted(command(["true"])), None).await.unwrap();
    assert!(over(&lab.owner(), again.id).await.receipt.is_some(), "it was approved for an hour");
}

/// Whether the same call asks anew.
async fn asks_again(lab: &DaemonLab) {
    lab.agent().propose(&accepted(command(["true"])), None).await.unwrap();
    assert_eq!(asked(&lab.owner(), 1).await.len(), 1);
    assert_eq!(lab.owner().grants().await.unwrap().grants.len(), 0);
}

#[tokio::test]
async fn what_was_approved_from_a_device_that_is_revoked_since_is_asked_about_anew() {
    let lab = DaemonLab::new();
    let phone = pair(&lab, &NewPairing::default()).await;
    approve_for_an_hour(&lab, &lab.of_device(&phone)).await;
    lab.owner().revoke_device(&phone.device, &RevokeDevice::default()).await.unwrap();
    asks_again(&lab).await;
}

#[tokio::test]
async fn what_was_approved_by_somebody_who_does_not_count_any_more_is_asked_about_anew() {
    let lab = DaemonLab::new();
    let ada = member(&lab, WorkspaceRole::Operator).await;
    approve_for_an_hour(&lab, &ada).await;
    lab.owner().set_flag("team_mode", &SetFlag { on: false }).await.unwrap();
    asks_again(&lab).await;
}

#[tokio::test]
async fn a_call_that_waits_in_a_workspace_that_was_taken_away_is_withdrawn_with_those_of_agents() {
    let shop = tempfile::tempdir().unwrap();
    let other = format!("[[workspace]]\nname = \"shop\"\npath = \"{}\"\n", shop.path().display());
    let lab = DaemonPlan::default().config(&other).start();
    let ada = member(&lab, WorkspaceRole::Admin).await;
    let minted = ada.mint_token(&token("agent:ci", &["calls.create", "calls.read"])).await.unwrap();
    let mut calls = Vec::new();
    for by in [&ada, &lab.holder_of(&minted.secret)] {
        calls.push(by.propose(&accepted(command(["true"])), None).await.unwrap().id);
    }
    asked(&lab.owner(), 2).await;
    let only = Some(vec![WorkspaceName::parse("shop").unwrap()]);
    let narrowed = ChangeMember { role: None, workspaces: only, all_workspaces: false };
    lab.owner().change_member(&self::ada(), &narrowed).await.unwrap();
    for call in calls {
        let refusal = over(&lab.owner(), call).await.refusal.unwrap();
        assert_eq!(refusal.code, "cancelled");
        assert!(refusal.message.contains("does not belong to"), "{}", refusal.message);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_the_right_to_read_it() {
    let lab = DaemonLab::new();
    let operator = NewPairing { role: Some(WorkspaceRole::Operator), ..NewPairing::default() };
    let phone = lab.of_device(&pair(&lab, &operator).await);
    let (mut theirs, mut owners) = (phone.events(None).await.unwrap(), lab.owner().events(None).await.unwrap());
    lab.owner().set_flag("rbac", &SetFlag { on: false }).await.unwrap();
    let ended = async { while let Ok(Some(_)) = theirs.next().await {} };
    tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    assert!(owners.next().await.unwrap().is_some(), "whoever may read goes on");
}

#[tokio::test]
async fn a_yes_to_a_device_can_be_taken_back_until_it_is_paired() {
    let lab = DaemonLab::new();
    for flag_off in [false, true] {
        let owner = lab.owner();
        let open = owner.open_pairing(&NewPairing::default()).await.unwrap();
        let mut device = Candidate::connect(&lab, "phone").await;
        let proved = device.prove(pin(&open.pin)).await.unwrap();
        let key = owner.pairing(&open.id).await.unwrap().device.unwrap().observed.key;
        let (by, id) = (lab.owner(), open.id.clone());
        let confirming = tokio::spawn(async move { by.confirm_pairing(&id, &ConfirmPairing { key }).await });
        device.granted(&proved).await.unwrap();
        if flag_off {
            owner.set_flag("device_pairing", &SetFlag { on: false }).await.unwrap();
        } else {
            owner.end_pairing(&open.id).await.unwrap();
        }
        assert!(device.kept().await.is_err());
        let _ = confirming.await.unwrap();
        assert_eq!(owner.devices().await.unwrap().devices.len(), 1, "nothing was paired");
    }
}

#[tokio::test]
async fn a_token_takes_along_what_was_minted_with_it() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let scopes = ["tokens.manage", "calls.read"];
    let parent = owner.mint_token(&token("user:owner", &scopes)).await.unwrap();
    let child = palyra_api::token::NewToken { lifetime_seconds: 600, ..token("agent:ci", &["calls.read"]) };
    let child = lab.holder_of(&parent.secret).mint_token(&child).await.unwrap();
    let child = lab.holder_of(&child.secret);
    child.identity().await.unwrap();
    owner.revoke_token(&parent.token.id, &RevokeToken::default()).await.unwrap();
    assert_eq!(refused(child.identity().await.unwrap_err()), (401, "revoked".to_owned()));
}
