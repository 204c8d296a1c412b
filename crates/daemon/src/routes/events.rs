//! `/api/v1/events`: everything that is journalled, as it happens.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use palyra_api::{ErrorBody, event::EventQuery};

use crate::{app::App, caller::Caller, extract::Asked, failure::Failure, hub::Wanted, streams};

/// Everything that is journalled, as it happens, and again for whoever missed it.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", security(("bearer" = []), ("certificate" = [])),
    params(EventQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Begin behind this record")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = "4XX", body = ErrorBody)))]
pub(super) async fn all(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(query): Asked<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let after = streams::resume(&headers, query.after)?;
    streams::follow(&app, &caller, Wanted::All, after)
}
