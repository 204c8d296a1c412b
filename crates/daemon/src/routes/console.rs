//! `/api/v1/console`: signing in by a link that works once, and signing out.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use palyra_api::{
    ErrorBody,
    console::{ConsoleLink, ConsoleSession, ConsoleSignIn},
};

use crate::{
    app::App,
    caller::Caller,
    credential::CredentialKind,
    extract::{STRANGERS_BODY, Said},
    failure::Failure,
    reply,
    reply::Reply,
};

/// Makes a link that opens the console once.
#[utoipa::path(post, path = "/api/v1/console/links", tag = "console", security(("bearer" = [])),
    responses((status = 201, body = ConsoleLink), (status = "4XX", body = ErrorBody)))]
pub(super) async fn link(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Failure> {
    if caller.credential != CredentialKind::Owner {
        return Err(Failure::new("denied_by_policy", "only the owner opens the console", "use the owner's credential"));
    }
    let issued = app.console.link().map_err(|error| Failure::internal(error.to_string()))?;
    let url = format!("http://{}/#code={}", app.local, *issued.secret);
    Ok(reply::json(StatusCode::CREATED, &ConsoleLink { url, until: issued.until }))
}

/// Exchanges the code of a link for a session. A code works once.
#[utoipa::path(post, path = "/api/v1/console/session", tag = "console", request_body = ConsoleSignIn,
    responses((status = 200, body = ConsoleSession), (status = "4XX", body = ErrorBody)))]
pub(super) async fn sign_in(
    State(app): State<Arc<App>>,
    Said { said: sign_in, .. }: Said<ConsoleSignIn, STRANGERS_BODY>,
) -> Result<Reply<ConsoleSession>, Failure> {
    let issued = app.console.sign_in(&sign_in.code).map_err(|error| Failure::internal(error.to_string()))?;
    let issued = issued.ok_or_else(|| {
        Failure::new("unauthenticated", "the link was used, or is over", "make a new one: `palyra open`")
    })?;
    Ok(Reply(ConsoleSession {
        bearer: issued.secret.to_string(),
        principal: app.holders.owner.1.to_string(),
        until: issued.until,
    }))
}

/// Ends the session.
#[utoipa::path(delete, path = "/api/v1/console/session", tag = "console", security(("bearer" = [])),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn sign_out(State(app): State<Arc<App>>, caller: Caller) -> StatusCode {
    app.console.sign_out(&caller.shown);
    StatusCode::NO_CONTENT
}
