//! Replaces the authority step by step, and says whom the next step would cut off.
//!
//! Guarantees: nobody is cut off unless an owner says so, and never whoever asks; a step is on record before it is taken, and one that could
//! not be kept is on record as such; what was begun by devices that are cut off is withdrawn or stopped.

use std::{collections::BTreeSet, sync::Arc};

use palyra_access::{DeviceState, Ended};
use palyra_api::device::{RotateAuthority, RotationStep};
use palyra_identity::Phase;
use palyra_journal::RecordKind;
use palyra_types::{DeviceId, WorkspaceRole};
use serde_json::json;

use crate::{
    app::App,
    caller::Caller,
    certifier::{Certified, CertifierError},
    failure::Failure,
    governing,
};

/// Takes a step of the rotation.
///
/// # Errors
/// When it is not the time for this step, it would cut off somebody who must not be, or it cannot be recorded or kept.
pub(crate) async fn step(app: &Arc<App>, by: &Caller, rotate: &RotateAuthority) -> Result<Arc<Certified>, Failure> {
    let left = match rotate.step {
        RotationStep::Switch | RotationStep::Finish => behind(app, &app.certifier.now()),
        RotationStep::Announce | RotationStep::Abandon => Vec::new(),
    };
    if !left.is_empty() {
        may_cut_off(by, &left, rotate)?;
    }
    let who = by.principal.to_string();
    let told = json!({ "by": who, "step": rotate.step, "behind": left });
    app.gate.record_access(RecordKind::AuthorityRotated, &told).await?;
    let certified = app.certifier.step(|authority, clock, entropy| match rotate.step {
        RotationStep::Announce => authority.announce(clock, entropy),
        RotationStep::Switch => authority.switch(),
        RotationStep::Finish => authority.finish(),
        RotationStep::Abandon => authority.abandon(),
    });
    match certified.await {
        Ok(certified) => {
            // After a switch, those who are left can still be certified; after the end, they cannot.
            let devices: BTreeSet<_> = left.into_iter().filter(|id| !app.certifies(id)).collect();
            governing::withdraw(app, &by.principal, Ended { devices, ..Ended::default() });
            Ok(certified)
        }
        Err(error) => {
            let unkept = json!({ "by": who, "kind": RecordKind::AuthorityRotated, "why": error.to_string() });
            app.gate.record_access(RecordKind::AccessUnkept, &unkept).await?;
            Err(refused(&error))
        }
    }
}

/// The devices that the next step would cut off: those that do not trust the next authority when it is about to certify, and those whose
/// certificate comes from the old one when that is about to be trusted no more.
pub(crate) fn behind(app: &App, certified: &Certified) -> Vec<DeviceId> {
    let authority = &certified.authority;
    let (bundle, issuing) = (authority.bundle_fingerprint(), authority.fingerprint());
    let snapshot = app.access.snapshot();
    let active = snapshot.state().devices().filter(|device| device.state == DeviceState::Active);
    // Those that an earlier rotation has cut off are not cut off once more.
    let certified = active.filter(|device| certified.is_trusted(&device.authority));
    let left = certified.filter(|device| match authority.phase() {
        Phase::Steady => false,
        Phase::Announced => device.follows != Some(bundle),
        Phase::Switched => device.authority != issuing,
    });
    left.map(|device| device.id.clone()).collect()
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

fn refused(error: &CertifierError) -> Failure {
    match error {
        CertifierError::Authority(error) => Failure::new("not_as_it_stands", error.to_string(), error.advice()),
        other => Failure::new("unkept", other.to_string(), other.advice()),
    }
}
