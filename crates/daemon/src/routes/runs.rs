//! `/api/v1/runs`: open a run, look at it, follow it.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use palyra_api::{
    ErrorBody,
    event::EventQuery,
    run::{Amount, Limits, NewRun, Run},
};
use palyra_gate::Refusal;
use palyra_journal::state::{Charge, RunRow};
use palyra_types::id::RunId;

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Named, Said},
    failure::Failure,
    hub::Wanted,
    oversight, reply,
    reply::Reply,
    runs::new_session,
    streams,
};

/// Opens a run: a task with a budget.
#[utoipa::path(post, path = "/api/v1/runs", tag = "runs", security(("bearer" = []), ("certificate" = [])), request_body = NewRun,
    responses((status = 201, body = Run), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn open(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said: new, .. }: Said<NewRun>,
) -> Result<Response, Failure> {
    let session = match new.session {
        Some(session) => app.own_runs.session(session, &caller.principal).await?,
        None => new_session(&app.gate)?,
    };
    let run = app.own_runs.open(session, &caller.principal, new.limits.map(charge), &app.gate).await?;
    let row = app.store.run(run).await?.ok_or(Refusal::UnknownRun(run))?;
    Ok(reply::json(StatusCode::CREATED, &told(&row)))
}

/// A run, and what it has used.
#[utoipa::path(get, path = "/api/v1/runs/{id}", tag = "runs", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Run), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<RunId>,
) -> Result<Reply<Run>, Failure> {
    Ok(Reply(told(&visible_run(&app, &caller, id).await?)))
}

/// The events of a run, with the live output of its calls.
#[utoipa::path(get, path = "/api/v1/runs/{id}/stream", tag = "runs", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path), EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Begin behind this record")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = "4XX", body = ErrorBody)))]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<RunId>,
    Asked(query): Asked<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    visible_run(&app, &caller, id).await?;
    let after = streams::resume(&headers, query.after)?;
    streams::follow(&app, &caller, Wanted::Run(id), after)
}

/// A run that they may see: their own, or any if they oversee.
async fn visible_run(app: &App, caller: &Caller, id: RunId) -> Result<RunRow, Failure> {
    let row = app.store.run(id).await?.ok_or(Refusal::UnknownRun(id))?;
    match caller.is(&row.principal) || oversight::oversees(app, caller) {
        true => Ok(row),
        false => Err(Refusal::UnknownRun(id).into()),
    }
}

fn told(row: &RunRow) -> Run {
    Run {
        id: row.run,
        session: row.session,
        principal: row.principal.clone(),
        limits: amount(row.limits),
        used: amount(row.used),
    }
}

const fn amount(charge: Charge) -> Amount {
    Amount { calls: charge.calls, wall_ms: charge.wall_ms, output_bytes: charge.output_bytes }
}

/// At most this; the gate takes no more than is configured.
fn charge(limits: Limits) -> Charge {
    let most = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    Charge { calls: most(limits.calls), wall_ms: most(limits.wall_ms), output_bytes: most(limits.output_bytes) }
}
