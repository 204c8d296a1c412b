//! Whatever takes a credential away takes along what was begun with it, whichever rule it was that did; and whoever may write the state
//! directory always gets in again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::{fs, time::Instant};

use palyra_api::{
    device::{AuthorityPhase, DeviceState, NewPairing, RotateAuthority, RotationStep},
    member::{ChangeMember, NewInvitation, SetFlag},
    token::{MintedToken, RotateToken},
};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, accepted, asked, command, over, refused},
    paired::{pair, renew},
    token::token,
};
use palyra_types::{PrincipalId, WorkspaceRole, id::CallId};

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
