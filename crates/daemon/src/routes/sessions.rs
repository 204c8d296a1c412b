//! `/api/v1/sessions` and transcripts: what was said with agent models, for those whose it is and those who oversee.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    session::{
        Forgotten, SaidMessage, SaidRun, Session, SessionQuery, SessionRuns, SessionRunsQuery, Sessions, Transcript,
        TranscriptQuery,
    },
};
use palyra_gate::{Refusal, models::TranscriptForgotten};
use palyra_notebook::{Message, RunSummary, SessionSummary};
use palyra_types::id::{RunId, SessionId};

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Named},
    failure::Failure,
    oversight,
    reply::Reply,
};

/// The sessions in which something was said: one's own, or all for those who may read the journal.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", security(("bearer" = []), ("certificate" = [])),
    params(SessionQuery), responses((status = 200, body = Sessions), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(query): Asked<SessionQuery>,
) -> Result<Reply<Sessions>, Failure> {
    let (whose, limit) = (whose(&app, &caller), page(query.limit)?);
    app.transcripts.settle().await;
    let page = app.transcripts.ask(move |store| store.sessions(whose.as_deref(), query.before, limit)).await?;
    Ok(Reply(Sessions { sessions: page.items.into_iter().map(told).collect(), next: page.next }))
}

/// A session and its runs.
#[utoipa::path(get, path = "/api/v1/sessions/{id}", tag = "sessions", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path), SessionRunsQuery),
    responses((status = 200, body = SessionRuns), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<SessionId>,
    Asked(query): Asked<SessionRunsQuery>,
) -> Result<Reply<SessionRuns>, Failure> {
    let limit = page(query.limit)?;
    app.transcripts.settle().await;
    let asked = app.transcripts.ask(move |store| Ok((store.session(id)?, store.runs(id, query.after, limit)?)));
    let (session, runs) = asked.await?;
    let whose = whose(&app, &caller);
    let visible = session.filter(|session| whose.as_ref().is_none_or(|whose| *whose == session.principal));
    let session = visible.ok_or_else(|| unknown(id))?;
    let told_runs = runs.items.into_iter().map(said_run).collect();
    Ok(Reply(SessionRuns { session: told(session), runs: told_runs, next: runs.next }))
}

/// What was said in a run.
#[utoipa::path(get, path = "/api/v1/runs/{id}/transcript", tag = "sessions", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path), TranscriptQuery),
    responses((status = 200, body = Transcript), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn transcript(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(run): Named<RunId>,
    Asked(query): Asked<TranscriptQuery>,
) -> Result<Reply<Transcript>, Failure> {
    let row = app.store.run(run).await?.ok_or(Refusal::UnknownRun(run))?;
    if whose(&app, &caller).is_some_and(|whose| whose != row.principal) {
        return Err(Refusal::UnknownRun(run).into());
    }
    let limit = page(query.limit)?;
    app.transcripts.settle().await;
    let asked = app.transcripts.ask(move |store| Ok((store.run(run)?, store.list(run, query.after, limit)?)));
    let (summary, page) = asked.await?;
    Ok(Reply(Transcript {
        run,
        session: row.session,
        principal: row.principal,
        model: summary.map(|summary| summary.model),
        messages: page.items.into_iter().map(said).collect(),
        lost: app.transcripts.lost(run),
        next: page.next,
    }))
}

/// Forgets what was said in a session, and the responses that were kept of it. The journal keeps who did so, and every call.
#[utoipa::path(delete, path = "/api/v1/sessions/{id}/transcript", tag = "sessions", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Forgotten), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn forget(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<SessionId>,
) -> Result<Reply<Forgotten>, Failure> {
    app.transcripts.settle().await;
    let known = app.transcripts.ask(move |store| store.session(id)).await?.ok_or_else(|| unknown(id))?;
    let by = caller.principal.to_string();
    let told = TranscriptForgotten { session: id, principal: known.principal, runs: known.runs, by };
    app.gate.transcript_forgotten(&told).await?;
    let runs = app.transcripts.ask(move |store| store.forget_session(id)).await?;
    Ok(Reply(Forgotten { session: id, runs }))
}

/// Whose transcripts they may read: none is anybody's.
fn whose(app: &App, caller: &Caller) -> Option<String> {
    (!oversight::oversees(app, caller)).then(|| caller.principal.to_string())
}

fn page(limit: Option<u32>) -> Result<usize, Failure> {
    match limit {
        None => Ok(DEFAULT_PAGE),
        Some(limit @ 1..=500) => Ok(usize::try_from(limit).unwrap_or(DEFAULT_PAGE)),
        Some(_) => Err(Failure::bad_request("`limit` is 1 to 500")),
    }
}

fn unknown(id: SessionId) -> Failure {
    let help = "`GET /api/v1/sessions` lists those in which something was said";
    Failure::new("unknown_session", format!("nothing is kept of a session {id} of yours"), help)
}

fn told(session: SessionSummary) -> Session {
    let SessionSummary { session: id, principal, runs, messages, bytes, first, last } = session;
    Session { id, principal, runs, messages, bytes, first, last }
}

fn said_run(run: RunSummary) -> SaidRun {
    let RunSummary { run: id, model, messages, bytes, first, last, .. } = run;
    SaidRun { id, model, messages, bytes, first, last }
}

fn said(message: Message) -> SaidMessage {
    let Message { seq, time, role, name, call_id, content, cut } = message;
    SaidMessage { seq, time, role: role.to_string(), name, call_id, content, cut }
}

const DEFAULT_PAGE: usize = 100;
