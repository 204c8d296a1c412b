//! `/api/v1/console`: signing in by a link that works once, and signing out.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use palyra_api::{
    ErrorBody,
    console::{ConsoleLink, ConsoleSession, ConsoleSignIn},
};

use palyra_access::{Credential, Holder};
use palyra_journal::RecordKind;
use palyra_types::Sha256Digest;

use crate::{
    app::App,
    attempts::Attempt,
    caller::{Caller, Shown},
    edge::Listener,
    extract::{STRANGERS_BODY, Said},
    failure::Failure,
    origin::Origin,
    reply,
    reply::Reply,
};

/// Makes a link that opens the console once, for whoever asks from a device.
#[utoipa::path(post, path = "/api/v1/console/links", tag = "console", security(("certificate" = [])),
    responses((status = 201, body = ConsoleLink), (status = "4XX", body = ErrorBody)))]
pub(super) async fn link(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Failure> {
    let snapshot = app.access.snapshot();
    let device = caller.device().and_then(|id| snapshot.state().device(id));
    let device = device.ok_or_else(|| Failure::internal("the device that asks is not registered"))?;
    let issued = app.console.link(device.key).map_err(|error| Failure::internal(error.to_string()))?;
    let url = format!("http://{}/#code={}", app.local, *issued.secret);
    Ok(reply::json(StatusCode::CREATED, &ConsoleLink { url, until: issued.until }))
}

/// Exchanges the code of a link for a session. A code works once.
#[utoipa::path(post, path = "/api/v1/console/session", tag = "console", request_body = ConsoleSignIn,
    responses((status = 200, body = ConsoleSession), (status = "4XX", body = ErrorBody)))]
pub(super) async fn sign_in(
    State(app): State<Arc<App>>,
    origin: Option<Extension<Arc<Origin>>>,
    Said { said: sign_in, .. }: Said<ConsoleSignIn, STRANGERS_BODY>,
) -> Result<Reply<ConsoleSession>, Failure> {
    let issued = app.console.sign_in(&sign_in.code).map_err(|error| Failure::internal(error.to_string()))?;
    let issued = issued.ok_or_else(|| {
        let from = origin.map(|Extension(origin)| origin.address.ip());
        app.attempts.note(Attempt { listener: Listener::Local, from, code: "no_link".to_owned() });
        Failure::new("unauthenticated", "the link was used, or is over", "make a new one: `palyra open`")
    })?;
    let opened_by = app.console.opened_by(&Sha256Digest::of(issued.secret.as_bytes()));
    let holder = opened_by.and_then(|key| app.access.by_device_key(&key).ok());
    let is_certified = |holder: &Arc<Holder>| match &holder.credential {
        Credential::Device(id) => app.certifies(id),
        Credential::Token(_) => false,
    };
    let holder = holder.filter(is_certified).ok_or_else(|| {
        Failure::new(
            "unauthenticated",
            "the device that made the link is not let in any more",
            "make a new one: `palyra open`",
        )
    })?;
    let told = serde_json::json!({ "by": holder.principal.to_string() });
    app.gate.record_access(RecordKind::ConsoleOpened, &told).await?;
    Ok(Reply(ConsoleSession {
        bearer: issued.secret.to_string(),
        principal: holder.principal.to_string(),
        until: issued.until,
    }))
}

/// Ends the session.
#[utoipa::path(delete, path = "/api/v1/console/session", tag = "console", security(("bearer" = []), ("certificate" = [])),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn sign_out(State(app): State<Arc<App>>, caller: Caller) -> StatusCode {
    if let Shown::Console { session, .. } = &caller.shown {
        app.console.sign_out(session);
    }
    StatusCode::NO_CONTENT
}
