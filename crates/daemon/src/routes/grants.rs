//! `/api/v1/grants`: standing approvals.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use palyra_api::{ErrorBody, approval::Grants};
use palyra_types::id::ApprovalId;

use crate::{app::App, caller::Caller, extract::Named, failure::Failure, question, reply::Reply};

/// The standing approvals.
#[utoipa::path(get, path = "/api/v1/grants", tag = "approvals", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Grants), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Grants>, Failure> {
    Ok(Reply(Grants { grants: app.gate.grants().await?.into_iter().map(question::grant).collect() }))
}

/// Ends a standing approval.
#[utoipa::path(delete, path = "/api/v1/grants/{id}", tag = "approvals", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn end(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<ApprovalId>,
) -> Result<StatusCode, Failure> {
    app.gate.end_grant(id, &caller.petitioner()).await?;
    Ok(StatusCode::NO_CONTENT)
}
