//! `/api/v1/calls`: propose, look at, withdraw, explain.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use palyra_api::{
    ErrorBody,
    call::{Call, CallQuery, CallSelection, CallState as Told, Calls, Cancelled, NewCall},
    policy::CallExplanation,
    skill::Replayed,
};
use palyra_journal::state::CallState;
use palyra_types::id::CallId;

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked as Query, LONGEST_BODY, Named, Said},
    failure::Failure,
    oversight, policies,
    proposing::{self, Asked},
    reply,
    reply::Reply,
    streams,
};

/// Proposes a call.
///
/// Answers with what came of it once it is over; with `"wait": false` as soon as it is durable. With `Accept: text/event-stream` it tells the
/// call's events as they happen, and ends with `call.over`. Who hangs up withdraws a call that was not accepted.
#[utoipa::path(post, path = "/api/v1/calls", tag = "calls", security(("bearer" = []), ("certificate" = [])), request_body = NewCall,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repetition harmless, for 24 hours",
        min_length = 1, max_length = 255, pattern = "^[!-~]+$")),
    responses(
        (status = 200, description = "It ran", content((Call = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "It was accepted", body = Call),
        (status = "4XX", description = "It was refused, or makes no sense", body = ErrorBody),
        (status = 503, description = "The daemon stops, or the journal is in trouble", body = ErrorBody)))]
pub(super) async fn propose(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Said { said: new, digest }: Said<NewCall, LONGEST_BODY>,
) -> Result<Response, Failure> {
    let (wait, streams) = (new.wait, wants_events(&headers));
    if streams && !wait {
        return Err(Failure::bad_request("events are told to whoever waits; leave `wait` out"));
    }
    match Asked::read(&app, &caller, new, (&headers, digest)).await? {
        Asked::Known(call) => Ok(answer(&proposing::again(&app, call, wait).await?)),
        Asked::New(proposing) if streams => streams::conduct(&app, &caller, *proposing),
        Asked::New(proposing) if wait => Ok(answer(&proposing.run().await?)),
        Asked::New(proposing) => Ok(answer(&proposing.submit(&app).await?)),
    }
}

/// Calls that are under way, or were refused last.
#[utoipa::path(get, path = "/api/v1/calls", tag = "calls", security(("bearer" = []), ("certificate" = [])), params(CallQuery),
    responses((status = 200, body = Calls), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Caller,
    Query(query): Query<CallQuery>,
) -> Result<Reply<Calls>, Failure> {
    let most = oversight::page(query.limit)?;
    Ok(Reply(match query.which.unwrap_or(CallSelection::Waiting) {
        CallSelection::Waiting => oversight::calls_in(&app, CallState::Waiting, most).await?,
        CallSelection::Started => oversight::calls_in(&app, CallState::Started, most).await?,
        CallSelection::Refused => oversight::refused_last(&app, most).await?,
    }))
}

/// One call: what was proposed and decided, its receipt and its output.
#[utoipa::path(get, path = "/api/v1/calls/{id}", tag = "calls", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Call), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<CallId>,
) -> Result<Reply<Call>, Failure> {
    let call = proposing::known(&app, id).await?;
    oversight::may_see(&app, &caller, &call)?;
    Ok(Reply(call))
}

/// Withdraws a call that waits, or stops one that runs.
#[utoipa::path(delete, path = "/api/v1/calls/{id}", tag = "calls", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Cancelled), (status = "4XX", body = ErrorBody)))]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<CallId>,
) -> Result<Reply<Cancelled>, Failure> {
    let call = proposing::known(&app, id).await?;
    oversight::may_see(&app, &caller, &call)?;
    Ok(Reply(Cancelled { cancelled: app.gate.cancel(id, &caller.petitioner())? }))
}

/// Why a call was decided as it was, and the smallest rule that would change it.
#[utoipa::path(get, path = "/api/v1/calls/{id}/explanation", tag = "calls", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = CallExplanation), (status = "4XX", body = ErrorBody)))]
pub(super) async fn explain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<CallId>,
) -> Result<Reply<CallExplanation>, Failure> {
    let call = proposing::known(&app, id).await?;
    oversight::may_see(&app, &caller, &call)?;
    Ok(Reply(policies::explain(&app, id).await?))
}

/// Runs a call of a skill once more, from what was recorded about it. Nothing is touched, asked or attested.
#[utoipa::path(post, path = "/api/v1/calls/{id}/replay", tag = "calls", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Replayed), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<CallId>,
) -> Result<Reply<Replayed>, Failure> {
    let call = proposing::known(&app, id).await?;
    oversight::may_see(&app, &caller, &call)?;
    let done = app.gate.replay_skill(id).await?;
    let host_calls = u64::try_from(done.host_calls).unwrap_or(u64::MAX);
    let (same, attested, replayed) = (done.is_same(), done.attested, done.replayed);
    Ok(Reply(Replayed { same, attested, replayed, output: done.output, host_calls }))
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted.is_some_and(|accept| accept.contains("text/event-stream"))
}

/// A call that is over with 200, one that goes on with 202, and where to find it.
fn answer(call: &Call) -> Response {
    let status = if call.state == Told::Ended { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = reply::json(status, call);
    if let Ok(location) = HeaderValue::from_str(&format!("/api/v1/calls/{}", call.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
