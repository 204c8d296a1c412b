//! `/api/v1/approvals`: what waits for a person, and their answers.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use palyra_api::{
    ErrorBody,
    approval::{Answers, Approval, ApprovalQuery, Approvals, Approve, Deny, Unlock},
};
use palyra_gate::{Answer, AnswerError, Answerer};
use palyra_types::{Sha256Digest, id::ApprovalId};

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Named, Said},
    failure::Failure,
    oversight, question,
    reply::Reply,
};

/// Questions that nobody has answered yet, oldest first, each whole.
#[utoipa::path(get, path = "/api/v1/approvals", tag = "approvals", security(("bearer" = []), ("certificate" = [])), params(ApprovalQuery),
    responses((status = 200, body = Approvals), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Caller,
    Asked(query): Asked<ApprovalQuery>,
) -> Result<Reply<Approvals>, Failure> {
    let most = oversight::page(query.limit)?;
    // Read before the questions are, so that events from there on tell of whatever changes after.
    let seq = app.hub.size().saturating_sub(1);
    let question::Page { approvals, unreadable, more } = question::page(&app, query.after, most).await?;
    Ok(Reply(Approvals { seq, approvals, more, unreadable }))
}

/// One question, whole, and its answer if it has one.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", tag = "approvals", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Approval), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    _: Caller,
    Named(id): Named<ApprovalId>,
) -> Result<Reply<Approval>, Failure> {
    let (prompt, answer) = app.gate.approval(id).await?.ok_or(AnswerError::Unknown(id))?;
    let mut told = question::told(&prompt, answer.as_ref(), app.clock.as_ref());
    // An answer does not know that it was used.
    if let Some(state) = app.store.approval_state(id).await? {
        told.state = question::state(state);
    }
    Ok(Reply(told))
}

/// Says yes to a question. What was shown is named by its digest.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/approve", tag = "approvals", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)), request_body = Approve,
    responses((status = 200, body = Answers), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn approve(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<ApprovalId>,
    Said { said: approve, .. }: Said<Approve>,
) -> Result<Reply<Answers>, Failure> {
    let answer = Answer::Approve(question::scope(&approve)?);
    let ruling = Ruling { id, shown: approve.digest, answer, together: approve.together };
    ruling.give(&app, &caller.answerer(approve.at_terminal)).await
}

/// Says no to a question, and what the agent is told.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/deny", tag = "approvals", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)), request_body = Deny,
    responses((status = 200, body = Answers), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn deny(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<ApprovalId>,
    Said { said: deny, .. }: Said<Deny>,
) -> Result<Reply<Answers>, Failure> {
    if deny.message.as_ref().is_some_and(|message| message.chars().count() > LONGEST_MESSAGE) {
        return Err(Failure::bad_request(format!("a message has at most {LONGEST_MESSAGE} characters")));
    }
    let ruling = Ruling { id, shown: deny.digest, answer: Answer::Deny(deny.message), together: deny.together };
    ruling.give(&app, &caller.answerer(deny.at_terminal)).await
}

/// Shows by a PIN that a person is there.
#[utoipa::path(post, path = "/api/v1/approvals/unlock", tag = "approvals", security(("bearer" = []), ("certificate" = [])),
    request_body = Unlock, responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn unlock(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said: unlock, .. }: Said<Unlock>,
) -> Result<StatusCode, Failure> {
    app.gate.unlock(&caller.answerer(true), &unlock.pin).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// An answer, and what it is about.
struct Ruling {
    id: ApprovalId,
    shown: Sha256Digest,
    answer: Answer,
    together: bool,
}

impl Ruling {
    async fn give(self, app: &App, by: &Answerer) -> Result<Reply<Answers>, Failure> {
        let Self { id, shown, answer, together } = self;
        let records = if together {
            app.gate.answer_together_shown(id, shown, &answer, by).await?
        } else {
            vec![app.gate.answer_shown(id, shown, &answer, by).await?]
        };
        Ok(Reply(Answers { answered: records.iter().map(question::answered).collect() }))
    }
}

const LONGEST_MESSAGE: usize = 4_096;
