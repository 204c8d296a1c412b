//! Pairing over real connections: who is let in, who is not, and what is left of a pairing that comes to nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::time::Duration;

use palyra_api::{
    device::{ConfirmPairing, DeviceState, NewPairing, OpenPairing, PairingState, RevokeDevice},
    journal::RecordQuery,
};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, refused},
    paired::{Candidate, grant, pair, pin, renew, secret},
    until,
};
use palyra_types::WorkspaceRole;

async fn open(owner: &Client) -> OpenPairing {
    owner.open_pairing(&NewPairing::default()).await.unwrap()
}

/// Some other PIN.
fn wrong(pin: &str) -> String {
    pin.chars().map(|digit| if digit == '9' { '0' } else { char::from(u8::try_from(digit).unwrap() + 1) }).collect()
}

async fn kinds(owner: &Client) -> Vec<String> {
    owner.records(&RecordQuery::default()).await.unwrap().records.into_iter().map(|record| record.kind).collect()
}

#[tokio::test]
async fn a_device_that_knows_the_pin_and_is_confirmed_is_let_in_with_its_role() {
    let lab = DaemonLab::new();
    let new =
        NewPairing { role: Some(WorkspaceRole::Operator), name: Some("phone".to_owned()), ..NewPairing::default() };
    let device = pair(&lab, &new).await;
    let client = lab.of_device(&device);
    let identity = client.identity().await.unwrap();
    assert_eq!(
        (identity.principal.as_str(), identity.roles.as_slice()),
        ("user:owner", ["operator".to_owned()].as_slice())
    );
    assert_eq!(identity.device.as_ref(), Some(&device.device));
    // It answers questions, and governs nothing else.
    client.approvals(&Default::default()).await.unwrap();
    assert_eq!(refused(client.reload().await.unwrap_err()), (403, "denied_by_policy".to_owned()));
    assert_eq!(refused(client.open_pairing(&NewPairing::default()).await.unwrap_err()).0, 403);
    let listed = lab.owner().devices().await.unwrap().devices;
    let names: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.this_one, one.state)).collect();
    assert_eq!(names, [("this machine", true, DeviceState::Active), ("phone", false, DeviceState::Active)]);
    assert!(kinds(&lab.owner()).await.contains(&"device.paired".to_owned()));
    // It is known through restarts.
    let mut lab = lab;
    lab.kill();
    lab.start();
    lab.of_device(&device).identity().await.unwrap();
}

#[tokio::test]
async fn the_secret_of_the_qr_code_does_as_the_pin_does() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let open = open(&owner).await;
    assert_eq!(open.address, lab.control().to_string());
    let mut device = Candidate::connect(&lab, "tablet").await;
    let proved = device.prove(secret(&open.qr)).await.unwrap();
    let told = owner.pairing(&open.id).await.unwrap();
    assert_eq!(told.state, PairingState::Proved);
    let shown = told.device.unwrap();
    assert_eq!((shown.reported.name.as_str(), shown.reported.os.as_str()), ("tablet", "Lab OS 1"));
    assert!(shown.observed.address.starts_with("127.0.0.1:"), "{}", shown.observed.address);
    let confirm = ConfirmPairing { key: shown.observed.key };
    let (confirmed, granted) = tokio::join!(owner.confirm_pairing(&open.id, &confirm), async {
        let granted = device.granted(&proved).await.unwrap();
        device.kept().await.unwrap();
        granted
    });
    let confirmed = confirmed.unwrap();
    assert_eq!((confirmed.state, confirmed.paired.as_ref()), (PairingState::Paired, Some(&granted.device_id)));
    lab.of_device(&device.identity(&lab, &granted)).identity().await.unwrap();
}

#[tokio::test]
async fn three_wrong_guesses_end_a_pairing_and_the_right_one_comes_too_late() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let open = open(&owner).await;
    for left in [2, 1, 0] {
        let mut device = Candidate::connect(&lab, "guess").await;
        assert_eq!(device.prove(pin(&wrong(&open.pin))).await.err().unwrap(), "wrong_code");
        assert_eq!(owner.pairing(&open.id).await.unwrap().guesses, left);
    }
    let mut device = Candidate::connect(&lab, "late").await;
    assert!(device.prove(pin(&open.pin)).await.is_err());
    assert_eq!(owner.pairing(&open.id).await.unwrap().state, PairingState::Over);
    assert_eq!(owner.devices().await.unwrap().devices.len(), 1);
    let failed = kinds(&owner).await.into_iter().filter(|kind| kind == "pairing.failed").count();
    assert!(failed >= 3, "{failed} attempts are on record");
    // Another one can be opened.
    open_again(&owner).await;
}

async fn open_again(owner: &Client) {
    until(|| async { owner.open_pairing(&NewPairing::default()).await.is_ok() }).await;
}

#[tokio::test]
async fn hanging_up_after_hello_burns_a_guess() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let open = open(&owner).await;
    for _ in 0..3 {
        let mut device = Candidate::connect(&lab, "curious").await;
        device.greet(pin("123456")).await.unwrap();
        drop(device);
    }
    until(|| async { owner.pairing(&open.id).await.unwrap().state == PairingState::Over }).await;
    assert!(Candidate::connect(&lab, "late").await.prove(pin(&open.pin)).await.is_err());
}

#[tokio::test]
async fn a_pairing_is_for_one_device_and_one_at_a_time() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    assert!(Candidate::connect(&lab, "early").await.prove(pin("123456")).await.is_err());
    let open = open(&owner).await;
    assert_eq!(
        refused(owner.open_pairing(&NewPairing::default()).await.unwrap_err()),
        (409, "pairing_open".to_owned())
    );
    let mut first = Candidate::connect(&lab, "first").await;
    let _proved = first.prove(pin(&open.pin)).await.unwrap();
    assert_eq!(Candidate::connect(&lab, "second").await.prove(pin(&open.pin)).await.err().unwrap(), "busy");
    // Whoever confirms what they were not shown confirms nothing.
    let other = palyra_types::Sha256Digest::of(b"another key");
    assert_eq!(refused(owner.confirm_pairing(&open.id, &ConfirmPairing { key: other }).await.unwrap_err()).0, 404);
    assert_eq!(owner.pairing(&open.id).await.unwrap().state, PairingState::Proved);
    // No.
    owner.end_pairing(&open.id).await.unwrap();
    assert_eq!(first.hear().await.err().unwrap(), "denied");
    assert_eq!(owner.devices().await.unwrap().devices.len(), 1);
}

#[tokio::test]
async fn a_device_that_does_not_say_that_it_kept_its_certificate_is_not_paired() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let open = open(&owner).await;
    let mut device = Candidate::connect(&lab, "forgetful").await;
    let proved = device.prove(pin(&open.pin)).await.unwrap();
    let key = owner.pairing(&open.id).await.unwrap().device.unwrap().observed.key;
    let confirm = ConfirmPairing { key };
    let (confirmed, identity) = tokio::join!(owner.confirm_pairing(&open.id, &confirm), async {
        let granted = device.granted(&proved).await.unwrap();
        let identity = device.identity(&lab, &granted);
        drop(device);
        identity
    });
    assert_eq!(confirmed.unwrap().state, PairingState::Over);
    let devices = owner.devices().await.unwrap().devices;
    assert_eq!(devices.len(), 1, "{devices:?}");
    let refusal = refused(lab.of_device(&identity).identity().await.unwrap_err());
    assert_eq!(refusal, (401, "unknown_device".to_owned()));
}

#[tokio::test]
async fn a_daemon_that_is_killed_in_the_middle_of_a_pairing_leaves_nobody_let_in() {
    let mut lab = DaemonLab::new();
    let unlucky = grant(&lab, lab.owner(), &NewPairing::default()).await;
    lab.kill();
    assert!(unlucky.confirming.await.unwrap().is_err());
    lab.start();
    assert_eq!(refused(lab.of_device(&unlucky.identity).identity().await.unwrap_err()).1, "unknown_device");
    assert_eq!(lab.owner().devices().await.unwrap().devices.len(), 1);
}

#[tokio::test]
async fn a_pairing_is_over_after_two_minutes_by_the_daemons_clock() {
    let lab = DaemonPlan::default().own_clock().start();
    let owner = lab.owner();
    let open = open(&owner).await;
    lab.set_ahead(Duration::from_secs(121));
    assert_eq!(owner.pairing(&open.id).await.unwrap().state, PairingState::Over);
    assert!(Candidate::connect(&lab, "late").await.prove(pin(&open.pin)).await.is_err());
}

#[tokio::test]
async fn nonsense_in_the_place_of_a_pairing_is_refused_and_holds_up_nobody() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let open = open(&owner).await;
    for bytes in [
        &b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 0],
        &[0, 0, 0, 2, b'{', b'}'],
        &[0, 0, 0, 5, b'[', b'1', b',', b'2', b']'],
        br#"    {"type":"hello"}"#,
    ] {
        let mut device = Candidate::connect(&lab, "noise").await;
        device.raw(bytes).await;
        let answer = device.hear().await.err().unwrap();
        assert!(["bad_message", "closed"].contains(&answer.as_str()), "{answer}");
    }
    // None of that was a guess.
    assert_eq!(owner.pairing(&open.id).await.unwrap().guesses, 3);
    assert!(Candidate::connect(&lab, "phone").await.prove(pin(&open.pin)).await.is_ok());
}

#[tokio::test]
async fn a_key_that_was_revoked_never_comes_back_and_the_last_device_of_the_last_owner_stays() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let this = owner.identity().await.unwrap().device.unwrap();
    let refusal = refused(owner.revoke_device(&this, &RevokeDevice::default()).await.unwrap_err());
    assert_eq!(refusal, (409, "last_device".to_owned()));
    let phone = pair(&lab, &NewPairing::default()).await;
    let revoked = lab.of_device(&phone).revoke_device(&phone.device, &RevokeDevice::default()).await.unwrap();
    assert_eq!(revoked.devices, std::slice::from_ref(&phone.device));
    assert_eq!(refused(lab.of_device(&phone).identity().await.unwrap_err()), (401, "revoked".to_owned()));
    let listed = lab.owner().devices().await.unwrap().devices;
    assert_eq!(listed.iter().filter(|one| one.state == DeviceState::Revoked).count(), 1);
}

#[tokio::test]
async fn a_device_that_may_do_less_than_its_person_puts_out_none_that_may_do_more() {
    let lab = DaemonLab::new();
    let new = NewPairing { role: Some(WorkspaceRole::Operator), ..NewPairing::default() };
    let (phone, tablet) = (pair(&lab, &new).await, pair(&lab, &new).await);
    let laptop = lab.owner().identity().await.unwrap().device.unwrap();
    let phone_client = lab.of_device(&phone);
    for how in [false, true] {
        let how = RevokeDevice { even_the_last: how };
        let refusal = refused(phone_client.revoke_device(&laptop, &how).await.unwrap_err());
        assert_eq!(refusal, (403, "denied_by_policy".to_owned()));
    }
    // Others of its kind, and itself.
    phone_client.revoke_device(&tablet.device, &RevokeDevice::default()).await.unwrap();
    phone_client.revoke_device(&phone.device, &RevokeDevice::default()).await.unwrap();
    lab.owner().identity().await.unwrap();
}

#[tokio::test]
async fn a_member_who_is_promoted_is_so_on_the_devices_they_have() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    owner.set_flag("team_mode", &palyra_api::member::SetFlag { on: true }).await.unwrap();
    let user = palyra_types::PrincipalId::parse("ada").unwrap();
    let invitation = palyra_api::member::NewInvitation {
        user: user.clone(),
        role: WorkspaceRole::Operator,
        workspaces: None,
        lifetime_seconds: None,
    };
    owner.invite(&invitation).await.unwrap();
    let theirs = NewPairing { principal: Some("user:ada".to_owned()), ..NewPairing::default() };
    let ada = lab.of_device(&pair(&lab, &theirs).await);
    assert_eq!(ada.identity().await.unwrap().roles, ["operator"]);
    let refusal = ada.reload().await.unwrap_err();
    assert_eq!(refusal.to_string(), "`policy.write` takes the role admin, and this device has the role operator");
    let change = |role| palyra_api::member::ChangeMember { role: Some(role), workspaces: None, all_workspaces: false };
    owner.change_member(&user, &change(WorkspaceRole::Admin)).await.unwrap();
    ada.reload().await.unwrap();
    // Nobody gives more than they have, nor takes it from those above them.
    let above = refused(ada.change_member(&user, &change(WorkspaceRole::Owner)).await.unwrap_err());
    assert_eq!(above, (403, "denied_by_policy".to_owned()));
    let owners = palyra_types::PrincipalId::parse("owner").unwrap();
    assert_eq!(refused(ada.remove_member(&owners).await.unwrap_err()).0, 403);
    assert_eq!(refused(owner.remove_member(&owners).await.unwrap_err()), (409, "last_owner".to_owned()));
    let removed = owner.remove_member(&user).await.unwrap();
    assert_eq!(removed.devices.len(), 1);
    assert_eq!(refused(ada.identity().await.unwrap_err()), (401, "revoked".to_owned()));
}

#[tokio::test]
async fn a_device_renews_its_certificate_with_the_key_it_has_and_no_other() {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let lab = DaemonLab::new();
    let mut phone = pair(&lab, &NewPairing::default()).await;
    let request = palyra_identity::request_for(&phone.key).unwrap();
    let csr = |der: &[u8]| palyra_api::device::Renewal { csr: BASE64_URL_SAFE_NO_PAD.encode(der) };
    let renewed = lab.of_device(&phone).renew(&csr(request.der())).await.unwrap();
    assert_ne!(renewed.certificate, phone.certificate);
    phone.certificate = renewed.certificate;
    lab.of_device(&phone).identity().await.unwrap();
    let (_, other) = palyra_identity::new_device_key().unwrap();
    let refusal = refused(lab.of_device(&phone).renew(&csr(other.der())).await.unwrap_err());
    assert_eq!(refusal, (422, "not_allowed_so".to_owned()));
    assert_eq!(refused(lab.of_device(&phone).renew(&csr(b"nonsense")).await.unwrap_err()).0, 422);
    // A token has no certificate to renew.
    assert_eq!(
        refused(lab.agent().renew(&csr(request.der())).await.unwrap_err()),
        (403, "wrong_credential".to_owned())
    );
}

#[test]
fn the_owners_command_line_has_its_certificate_renewed_at_a_start_when_a_third_is_left_and_when_it_has_run_out() {
    let mut lab = DaemonPlan::default().own_clock().start();
    let mut last = lab.device();
    for (days, renewed) in [(39, false), (41, true), (200, true)] {
        assert!(lab.stop().success());
        lab.set_ahead(Duration::from_secs(days * 24 * 60 * 60));
        lab.start();
        let now = lab.device();
        assert_eq!((now.certificate != last.certificate, now.key == last.key), (renewed, true), "{days} days");
        assert_eq!(now.until().unwrap() > last.until().unwrap(), renewed, "{days} days");
        last = now;
    }
}

#[tokio::test]
async fn the_authority_is_replaced_without_pairing_anything_anew() {
    use palyra_api::device::{AuthorityPhase, RotateAuthority, RotationStep};
    let lab = DaemonLab::new();
    let mut owner = lab.device();
    let mut phone = pair(&lab, &NewPairing::default()).await;
    let idle = pair(&lab, &NewPairing::default()).await;
    let step = |step| RotateAuthority { step, even_if_behind: false };
    let before = lab.of_device(&owner).authority().await.unwrap();
    assert_eq!(before.phase, AuthorityPhase::Steady);
    assert_eq!(refused(lab.of_device(&owner).rotate_authority(&step(RotationStep::Finish)).await.unwrap_err()).0, 409);
    let announced = lab.of_device(&owner).rotate_authority(&step(RotationStep::Announce)).await.unwrap();
    assert_eq!((announced.phase, announced.behind.len()), (AuthorityPhase::Announced, 3));
    // Whoever asks hears that there is more to trust.
    let client = lab.of_device(&phone);
    client.identity().await.unwrap();
    assert_eq!(client.authorities_told(), Some(announced.bundle));
    let refusal = refused(lab.of_device(&owner).rotate_authority(&step(RotationStep::Switch)).await.unwrap_err());
    assert_eq!(refusal, (409, "behind".to_owned()));
    renew(&lab, &mut owner).await;
    renew(&lab, &mut phone).await;
    let told = lab.of_device(&owner).authority().await.unwrap();
    assert_eq!(told.behind, std::slice::from_ref(&idle.device));
    let forced = |step| RotateAuthority { step, even_if_behind: true };
    let switched = lab.of_device(&owner).rotate_authority(&forced(RotationStep::Switch)).await.unwrap();
    assert_eq!(switched.phase, AuthorityPhase::Switched);
    assert_ne!(switched.fingerprint, before.fingerprint);
    // Old certificates hold, and whoever followed trusts the daemon's new one.
    lab.of_device(&phone).identity().await.unwrap();
    assert!(lab.of_device(&idle).identity().await.is_err(), "it does not know the new authority");
    renew(&lab, &mut owner).await;
    renew(&lab, &mut phone).await;
    let open = lab.of_device(&phone);
    let mut events = open.events(None).await.unwrap();
    let finished = lab.of_device(&owner).rotate_authority(&forced(RotationStep::Finish)).await.unwrap();
    assert_eq!((finished.phase, finished.behind.len()), (AuthorityPhase::Steady, 0));
    lab.of_device(&owner).identity().await.unwrap();
    lab.of_device(&phone).identity().await.unwrap();
    assert!(events.next().await.unwrap().is_some(), "a stream of somebody who followed goes on");
    // A daemon that starts anew has the new one, and the local command line with it.
    let mut lab = lab;
    lab.stop();
    lab.start();
    lab.owner().identity().await.unwrap();
    lab.of_device(&phone).identity().await.unwrap();
}
