//! `/api/v1/devices`: which are paired, how another one is, and how one is revoked.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode, response::Response};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use palyra_access::{DeviceRecord, DeviceRevocation, DeviceState as Kept, FeatureFlag, Refusal, role};
use palyra_api::{
    ErrorBody,
    device::{
        ConfirmPairing, Device, DeviceState, Devices, NewPairing, OpenPairing, Pairing, Renewal, Renewed, Reported,
        RevokeDevice, Revoked,
    },
};
use palyra_identity::{DeviceKeyRequest, grouped, pairing::Label};
use palyra_journal::RecordKind;
use palyra_types::{Action, DeviceId, ObjectKind, Principal, PrincipalKind, WorkspaceRole};

use crate::{
    app::App,
    caller::Caller,
    certifier::Certified,
    extract::{Asked, Named, Said},
    failure::Failure,
    governing,
    oversight::{count, object, thing},
    pairings::PairingPlan,
    renewals::Renewals,
    reply,
    reply::Reply,
    rotation,
};

/// The devices that are paired, and those that were revoked.
#[utoipa::path(get, path = "/api/v1/devices", tag = "devices", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Devices), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Reply<Devices> {
    let snapshot = app.access.snapshot();
    let certified = app.certifier.now();
    let mut records: Vec<&DeviceRecord> = snapshot.state().devices().collect();
    records.sort_by_key(|record| record.paired);
    let told = |record: &&DeviceRecord| {
        let last_seen = snapshot.last_seen(&record.id).or(record.last_seen);
        Device { last_seen, this_one: caller.device() == Some(&record.id), ..told(record, &certified) }
    };
    Reply(Devices { devices: records.iter().map(told).collect() })
}

/// Revokes a device, at once: its connections, its console sessions and its calls end with it.
#[utoipa::path(delete, path = "/api/v1/devices/{id}", tag = "devices", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Name, Path), RevokeDevice),
    responses((status = 200, body = Revoked), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<DeviceId>,
    Asked(how): Asked<RevokeDevice>,
) -> Result<Reply<Revoked>, Failure> {
    let snapshot = app.access.snapshot();
    let device = snapshot.state().device(&id);
    let reaches = |most: WorkspaceRole| caller.actor().role().is_some_and(|own| role::is_within(most, own));
    let own = device.is_some_and(|device| caller.is(&device.principal.to_string()) && device.role.is_some_and(reaches));
    // Whoever lost a device of their own needs nobody's permission, unless they use one that may do less.
    if !own {
        let resource = thing(ObjectKind::Device, id.as_str())?;
        let role = device.and_then(|device| device.role);
        caller.may_about_role(&app, (Action::DeviceRevoke, resource), role)?;
    }
    let certified = app.certifier.now();
    let cut_off = snapshot.state().devices().filter(|device| rotation::is_cut_off(&certified, device));
    let cut_off = cut_off.map(|device| device.id.clone()).collect();
    let revocation = DeviceRevocation { id, why: "revoked".to_owned(), even_the_last: how.even_the_last, cut_off };
    let actor = caller.actor();
    let doer = caller.doer();
    let taken = governing::take_away(&app, RecordKind::DeviceRevoked, &doer, move |state, at| {
        state.revoke_device(&actor, revocation, at)
    });
    let (revoked, calls) = taken.await?;
    Ok(Reply(Revoked { devices: vec![revoked.id], tokens: Vec::new(), calls: count(calls) }))
}

/// Opens a pairing: for two minutes and three guesses, whoever knows the PIN or the secret can ask to be paired.
#[utoipa::path(post, path = "/api/v1/devices/pairings", tag = "devices", security(("bearer" = []), ("certificate" = [])),
    request_body = NewPairing,
    responses((status = 201, body = OpenPairing), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn pair(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said: new, .. }: Said<NewPairing>,
) -> Result<Response, Failure> {
    let plan = plan(&app, &caller, new)?;
    caller.may_about_role(&app, (Action::DevicePair, object(ObjectKind::Device)?), plan.role)?;
    let (principal, role) = (plan.principal.to_string(), plan.role);
    let open = app.pairings.open(&app, plan)?;
    let told = serde_json::json!({ "by": caller.principal.to_string(), "by_device": caller.device(),
        "by_token": caller.token(), "pairing": open.id, "for": principal, "role": role });
    // The codes are told to nobody before it is on record that there are some.
    if let Err(error) = app.gate.record_access(RecordKind::PairingOpened, &told).await {
        app.pairings.end(&app, &open.id)?;
        return Err(error.into());
    }
    Ok(reply::json(StatusCode::CREATED, &open))
}

/// How a pairing stands.
#[utoipa::path(get, path = "/api/v1/devices/pairings/{id}", tag = "devices",
    security(("bearer" = []), ("certificate" = [])), params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Pairing), (status = "4XX", body = ErrorBody)))]
pub(super) async fn pairing(
    State(app): State<Arc<App>>,
    _: Caller,
    Named(id): Named<String>,
) -> Result<Reply<Pairing>, Failure> {
    Ok(Reply(app.pairings.show(&app, &id)?))
}

/// Ends a pairing, or says no to the device that waits.
#[utoipa::path(delete, path = "/api/v1/devices/pairings/{id}", tag = "devices",
    security(("bearer" = []), ("certificate" = [])), params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Pairing), (status = "4XX", body = ErrorBody)))]
pub(super) async fn end_pairing(
    State(app): State<Arc<App>>,
    _: Caller,
    Named(id): Named<String>,
) -> Result<Reply<Pairing>, Failure> {
    Ok(Reply(app.pairings.end(&app, &id)?))
}

/// Says that the device that knew the code is the one that was meant, by the key that was shown.
#[utoipa::path(post, path = "/api/v1/devices/pairings/{id}/confirm", tag = "devices",
    security(("bearer" = []), ("certificate" = [])), params(("id" = palyra_api::schema::Ulid, Path)),
    request_body = ConfirmPairing,
    responses((status = 200, body = Pairing), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn confirm(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<String>,
    Said { said: confirm, .. }: Said<ConfirmPairing>,
) -> Result<Reply<Pairing>, Failure> {
    let role = app.pairings.plan(&id)?.role;
    if caller.token().is_some() {
        return Err(Refusal::InPerson.into());
    }
    caller.may_about_role(&app, (Action::DevicePair, object(ObjectKind::Device)?), role)?;
    Ok(Reply(app.pairings.confirm(&app, &id, confirm.key, (caller.actor(), caller.doer())).await?))
}

/// Gives a device a new certificate for the key that it has.
#[utoipa::path(post, path = "/api/v1/devices/certificate", tag = "devices", security(("certificate" = [])),
    request_body = Renewal,
    responses((status = 200, body = Renewed), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn renew(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said: renewal, .. }: Said<Renewal>,
) -> Result<Reply<Renewed>, Failure> {
    let refused = |message: String, help: &str| Failure::new("not_allowed_so", message, help);
    let der = BASE64_URL_SAFE_NO_PAD.decode(&renewal.csr);
    let der = der.map_err(|_| Failure::bad_request("`csr` is not base64url without padding"))?;
    let request = DeviceKeyRequest::parse(&der).map_err(|error| refused(error.to_string(), error.advice()))?;
    let snapshot = app.access.snapshot();
    let device = caller.device().and_then(|id| snapshot.state().device(id));
    let device = device.ok_or_else(|| Failure::internal("the device that asks is not registered"))?;
    if !app.renewals.takes(&device.id, app.clock.as_ref()) {
        let message = "the certificate of this device was renewed again and again";
        let failure = Failure::new("rate_limited", message, "wait a minute; once is enough");
        return Err(failure.retry_after(Duration::from_secs(60), Renewals::A_MINUTE));
    }
    if request.key() != device.key {
        let message = "the request is for another key than the device has".to_owned();
        return Err(refused(message, "ask with the key that was paired; a new key is paired anew"));
    }
    let certificate = app.certifier.certify(&request, &device.id);
    let certificate = certificate.map_err(|error| Failure::internal(error.to_string()))?;
    let (id, authority, until) = (device.id.clone(), certificate.authority, certificate.validity.until);
    let certified = app.certifier.now();
    let follows = certified.authority.bundle_fingerprint();
    governing::grant(&app, RecordKind::DeviceRenewed, &caller.doer(), move |state, _| {
        state.follow(&id, follows)?;
        state.renew_device(&id, authority, until)
    })
    .await?;
    let authorities = certified.authority.bundle_pem();
    Ok(Reply(Renewed { certificate: certificate.pem, authorities, until }))
}

/// What a new device will be: for whoever asks, unless somebody else is named, and never above the one or the other.
fn plan(app: &App, caller: &Caller, new: NewPairing) -> Result<PairingPlan, Failure> {
    let principal = match &new.principal {
        None => bare(&caller.principal),
        Some(text) => bare(&Principal::parse(text).map_err(|error| Failure::bad_request(error.to_string()))?),
    };
    let snapshot = app.access.snapshot();
    if !snapshot.state().is_on(FeatureFlag::DevicePairing) {
        return Err(Refusal::FeatureOff(FeatureFlag::DevicePairing).into());
    }
    // SECURITY: a device has no scopes and no end of its own, so that a token would come to be more than it is.
    if caller.token().is_some() {
        return Err(Refusal::InPerson.into());
    }
    if let Some(name) = &new.name {
        Label::parse(name).map_err(|error| Failure::new("not_allowed_so", error.to_string(), error.advice()))?;
    }
    let (role, invitation) = match principal.kind() {
        PrincipalKind::User => {
            let state = snapshot.state();
            let invitation = state.invitations().find(|invitation| invitation.user == *principal.id());
            let is_member = state.member(principal.id()).is_some();
            if !is_member && invitation.is_none() {
                let message = format!("`{principal}` is neither a member nor invited");
                let help = "invite them first: `palyra access members invite NAME`";
                return Err(Failure::new("unknown_member", message, help));
            }
            // Unless it is bound to less, it may do what whom it stands for may, as far as whoever pairs it reaches.
            let most = new.role.or_else(|| caller.actor().role());
            let invitation = invitation.filter(|_| !is_member);
            (most, invitation.map(|invitation| invitation.id.clone()))
        }
        PrincipalKind::Agent if new.role.is_none() => (None, None),
        PrincipalKind::Agent => return Err(Failure::bad_request("an agent has no role")),
        PrincipalKind::Service => {
            return Err(Failure::bad_request("a service is let in by a token, not as a device"));
        }
    };
    Ok(PairingPlan { principal, role, name: new.name, invitation, opener: caller.doer() })
}

fn bare(principal: &Principal) -> Principal {
    Principal::new(principal.kind(), principal.id().clone())
}

fn told(record: &DeviceRecord, certified: &Certified) -> Device {
    let role: Option<WorkspaceRole> = record.role;
    Device {
        id: record.id.clone(),
        name: record.name.clone(),
        principal: record.principal.to_string(),
        role,
        state: match record.state {
            Kept::Awaiting => DeviceState::Awaiting,
            Kept::Active if rotation::is_cut_off(certified, record) => DeviceState::CutOff,
            Kept::Active => DeviceState::Active,
            Kept::Revoked => DeviceState::Revoked,
        },
        fingerprint: grouped(&record.key),
        observed: record.observed.clone(),
        reported: record.reported.as_ref().map(|said| Reported { name: said.name.clone(), os: said.os.clone() }),
        paired: record.paired,
        paired_by: record.paired_by.clone(),
        certificate_until: record.certificate_until,
        last_seen: record.last_seen,
        revoked: record.revoked.as_ref().map(|revoked| revoked.at),
        this_one: false,
        follows: record.follows == Some(certified.authority.bundle_fingerprint()),
    }
}
