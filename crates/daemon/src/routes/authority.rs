//! `/api/v1/authority`: the authority that certifies devices, and how it is replaced without pairing anything anew.

use std::sync::Arc;

use axum::extract::State;
use palyra_access::DeviceState;
use palyra_api::{
    ErrorBody,
    device::{Authority, AuthorityPhase, RotateAuthority},
};
use palyra_identity::{Phase, grouped};

use crate::{
    app::App, caller::Caller, certifier::Certified, extract::Said, failure::Failure, oversight::count, reply::Reply,
    rotation,
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
    let certified = rotation::step(&app, &caller, rotate).await?;
    Ok(Reply(told(&app, &certified)))
}

fn told(app: &App, certified: &Certified) -> Authority {
    let authority = &certified.authority;
    let snapshot = app.access.snapshot();
    let active = snapshot.state().devices().filter(|device| device.state == DeviceState::Active);
    let devices = active.filter(|device| !rotation::is_cut_off(certified, device)).count();
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
        behind: rotation::behind(app, certified),
    }
}
