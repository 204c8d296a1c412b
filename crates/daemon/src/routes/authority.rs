//! `/api/v1/authority`: the authority that certifies devices, and how it is replaced without pairing anything anew.

use std::sync::Arc;

use axum::extract::State;
use palyra_access::DeviceState;
use palyra_api::{
    ErrorBody,
    device::{Authority, AuthorityPhase, RotateAuthority, RotationStep},
};
use palyra_identity::{Phase, grouped};
use palyra_journal::RecordKind;
use palyra_types::{DeviceId, WorkspaceRole};

use crate::{
    app::App,
    caller::Caller,
    certifier::{Certified, CertifierError},
    extract::Said,
    failure::Failure,
    oversight::count,
    reply::Reply,
};

/// The authority, how far its rotation is, and which devices the next step would cut off.
#[utoipa::path(get, path = "/api/v1/authority", tag = "devices", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Authority), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(State(app): State<Arc<App>>, _: Caller) -> Reply<Authority> {
    Reply(told(&app, &app.certifier.now()))
}

/// Takes a step of the rotation.
#[utoipa::path(post, path = "/api/v1/authority/rotation", tag = "devices",
    security(("bearer" = []), ("certificate" = [])), request_body = RotateAuthority,
    responses((status = 200, body = Authority), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said: rotate, .. }: Said<RotateAuthority>,
) -> Result<Reply<Authority>, Failure> {
    let behind = behind(&app, &app.certifier.now());
    let cuts_off = matches!(rotate.step, RotationStep::Switch | RotationStep::Finish);
    if cuts_off && !behind.is_empty() && !rotate.even_if_behind {
        let message = match behind.len() {
            1 => "one device has not followed yet, and would be cut off".to_owned(),
            count => format!("{count} devices have not followed yet, and would be cut off"),
        };
        let help = "let each of them connect once, or revoke them, or say that they are to be cut off";
        return Err(Failure::new("behind", message, help));
    }
    // SECURITY: cutting devices off is revoking them, whoever they belong to.
    if cuts_off && !behind.is_empty() && caller.actor().role() != Some(WorkspaceRole::Owner) {
        let help = "let each of them connect once, or let an owner do this";
        return Err(Failure::new("above_own_role", "only an owner cuts devices off that have not followed", help));
    }
    // Whoever asks would not hear the answer.
    if cuts_off && caller.device().is_some_and(|own| behind.contains(own)) {
        let message = "the device that asks has not followed yet, and would be cut off itself";
        return Err(Failure::new("behind", message, "renew its certificate first; every `palyra` command does"));
    }
    let told_before = serde_json::json!({ "by": caller.principal.to_string(), "step": rotate.step, "behind": behind });
    app.gate.record_access(RecordKind::AuthorityRotated, &told_before).await?;
    let certified = app.certifier.step(|authority, clock, entropy| match rotate.step {
        RotationStep::Announce => authority.announce(clock, entropy),
        RotationStep::Switch => authority.switch(),
        RotationStep::Finish => authority.finish(),
        RotationStep::Abandon => authority.abandon(),
    });
    let certified = match certified.await {
        Ok(certified) => certified,
        Err(error) => {
            let unkept = serde_json::json!({ "by": caller.principal.to_string(), "kind": RecordKind::AuthorityRotated,
                "why": error.to_string() });
            app.gate.record_access(RecordKind::AccessUnkept, &unkept).await?;
            return Err(refused(&error));
        }
    };
    Ok(Reply(told(&app, &certified)))
}

fn told(app: &App, certified: &Certified) -> Authority {
    let authority = &certified.authority;
    let snapshot = app.access.snapshot();
    let devices = snapshot.state().devices().filter(|device| device.state == DeviceState::Active).count();
    Authority {
        phase: match authority.phase() {
            Phase::Steady => AuthorityPhase::Steady,
            Phase::Announced => AuthorityPhase::Announced,
            Phase::Switched => AuthorityPhase::Switched,
        },
        fingerprint: grouped(&authority.fingerprint()),
        bundle: authority.bundle_fingerprint(),
        authorities: authority.bundle_pem(),
        devices: count(devices),
        behind: behind(app, certified),
    }
}

/// The devices that the next step would cut off: those that do not trust the next authority when it is about to certify, and those whose
/// certificate comes from the old one when that is about to be trusted no more.
fn behind(app: &App, certified: &Certified) -> Vec<DeviceId> {
    let authority = &certified.authority;
    let (bundle, issuing) = (authority.bundle_fingerprint(), authority.fingerprint());
    let snapshot = app.access.snapshot();
    let active = snapshot.state().devices().filter(|device| device.state == DeviceState::Active);
    let left = active.filter(|device| match authority.phase() {
        Phase::Steady => false,
        Phase::Announced => device.follows != Some(bundle),
        Phase::Switched => device.authority != issuing,
    });
    left.map(|device| device.id.clone()).collect()
}

fn refused(error: &CertifierError) -> Failure {
    match error {
        CertifierError::Authority(error) => Failure::new("not_as_it_stands", error.to_string(), error.advice()),
        other => Failure::new("unkept", other.to_string(), other.advice()),
    }
}
