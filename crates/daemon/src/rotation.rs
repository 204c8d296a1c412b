//! Replaces the authority step by step, and says whom the next step would cut off.
//!
//! Guarantees: nobody is cut off unless an owner says so, and never whoever asks; a step is on record before it is taken, and one that could
//! not be kept is on record as such; what was begun by devices that are cut off is withdrawn or stopped.

use std::sync::Arc;

use palyra_access::{DeviceRecord, DeviceState, Ended};
use palyra_api::device::{RotateAuthority, RotationStep};
use palyra_identity::Phase;
use palyra_journal::RecordKind;
use palyra_types::{DeviceId, WorkspaceRole};
use serde_json::json;

use crate::{app::App, caller::Caller, certifier::Certified, failure::Failure, governing};

/// Takes a step of the rotation. Whoever asked may hang up meanwhile.
///
/// # Errors
/// When it is not the time for this step, it would cut off somebody who must not be, or it cannot be recorded or kept.
pub(crate) async fn step(app: &Arc<App>, by: &Caller, rotate: RotateAuthority) -> Result<Arc<Certified>, Failure> {
    let (app, by) = (Arc::clone(app), by.clone());
    governing::finish(tokio::spawn(async move { take(&app, &by, &rotate).await })).await
}

async fn take(app: &Arc<App>, by: &Caller, rotate: &RotateAuthority) -> Result<Arc<Certified>, Failure> {
    // SECURITY: whom a step cuts off is looked at while nobody else takes one. Two steps at once would otherwise be judged by the phase before
    // both of them, in which the second cuts off nobody.
    let turn = app.certifier.turn().await;
    by.doer().check(app)?;
    if by.member_of.is_some() {
        let message = format!("the authority is for all workspaces, and this {} is bound to some", by.shown.as_str());
        return Err(Failure::new("above_own_role", message, "let somebody do it who belongs to all of them"));
    }
    let before = app.certifier.now();
    let left = match rotate.step {
        RotationStep::Switch | RotationStep::Finish => behind(app, &before),
        RotationStep::Announce | RotationStep::Abandon => Vec::new(),
    };
    if !left.is_empty() {
        may_cut_off(by, &left, rotate)?;
    }
    let next = turn.after(|authority, clock, entropy| match rotate.step {
        RotationStep::Announce => authority.announce(clock, entropy),
        RotationStep::Switch => authority.switch(),
        RotationStep::Finish => authority.finish(),
        RotationStep::Abandon => authority.abandon(),
    });
    let next = next.map_err(|error| Failure::new("not_as_it_stands", error.to_string(), error.advice()))?;
    let who = by.principal.to_string();
    let told = json!({ "by": who, "step": rotate.step, "behind": left });
    app.gate.record_access(RecordKind::AuthorityRotated, &told).await?;
    match turn.put(next) {
        Ok(after) => {
            governing::withdraw(app, &by.principal, cut_off(app, &before, &after));
            governing::look_again(app).await;
            Ok(after)
        }
        Err(error) => {
            let unkept = json!({ "by": who, "kind": RecordKind::AuthorityRotated, "why": error.to_string() });
            app.gate.record_access(RecordKind::AccessUnkept, &unkept).await?;
            Err(Failure::new("unkept", error.to_string(), error.advice()))
        }
    }
}

/// The devices that a step has cut off.
fn cut_off(app: &App, before: &Certified, after: &Certified) -> Ended {
    let snapshot = app.access.snapshot();
    let ended = snapshot
        .state()
        .devices()
        .filter(|device| before.is_trusted(&device.authority) && !after.is_trusted(&device.authority));
    Ended { devices: ended.map(|device| device.id.clone()).collect(), ..Ended::default() }
}

/// The devices that the next step would cut off: those that do not trust the next authority when it is about to certify, and those whose
/// certificate comes from the old one when that is about to be trusted no more.
pub(crate) fn behind(app: &App, certified: &Certified) -> Vec<DeviceId> {
    let authority = &certified.authority;
    let (bundle, issuing) = (authority.bundle_fingerprint(), authority.fingerprint());
    let snapshot = app.access.snapshot();
    // A device that is about to be let in counts, because it has its certificate.
    let known = snapshot.state().devices().filter(|device| device.state != DeviceState::Revoked);
    // Those that are cut off already are not cut off once more.
    let certified = known.filter(|device| !is_cut_off(certified, device));
    let left = certified.filter(|device| match authority.phase() {
        Phase::Steady => false,
        Phase::Announced => device.follows != Some(bundle),
        Phase::Switched => device.authority != issuing,
    });
    left.map(|device| device.id.clone()).collect()
}

/// Whether a device cannot come in any more: the authority that certified it is trusted no more, or it does not trust the one that certifies the
/// daemon by now.
pub(crate) fn is_cut_off(certified: &Certified, device: &DeviceRecord) -> bool {
    let authority = &certified.authority;
    let trusts_the_next =
        device.authority == authority.fingerprint() || device.follows == Some(authority.bundle_fingerprint());
    !certified.is_trusted(&device.authority) || (authority.phase() == Phase::Switched && !trusts_the_next)
}

/// Whether devices that have not followed are cut off by whoever asks.
fn may_cut_off(by: &Caller, left: &[DeviceId], rotate: &RotateAuthority) -> Result<(), Failure> {
    if !rotate.even_if_behind {
        let message = match left.len() {
            1 => "one device has not followed yet, and would be cut off".to_owned(),
            count => format!("{count} devices have not followed yet, and would be cut off"),
        };
        let help = "let each of them connect once, or revoke them, or say that they are to be cut off";
        return Err(Failure::new("behind", message, help));
    }
    // SECURITY: cutting devices off is revoking them, whoever they belong to.
    if by.actor().role() != Some(WorkspaceRole::Owner) {
        let help = "let each of them connect once, or let an owner do this";
        return Err(Failure::new("above_own_role", "only an owner cuts devices off that have not followed", help));
    }
    // Whoever asks would not hear the answer.
    if by.device().is_some_and(|own| left.contains(own)) {
        let message = "the device that asks has not followed yet, and would be cut off itself";
        return Err(Failure::new("behind", message, "renew its certificate first; every `palyra` command does"));
    }
    Ok(())
}
