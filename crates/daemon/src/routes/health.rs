//! `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use palyra_api::{Health, health::Readiness};

use crate::{app::App, caller::Caller, failure::Failure, readiness, reply, reply::Reply};

/// Whether the daemon is there.
#[utoipa::path(get, path = "/healthz", tag = "daemon", responses((status = 200, body = Health)))]
pub(super) async fn healthz() -> Reply<Health> {
    Reply(Health { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Whether the daemon can do its work, and what it looked at.
#[utoipa::path(get, path = "/readyz", tag = "daemon",
    responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let readiness = readiness::of(&app);
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply::json(status, &readiness)
}

/// Figures for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "daemon", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = palyra_api::ErrorBody)))]
pub(super) async fn metrics(State(app): State<Arc<App>>, _: Caller) -> Result<Response, Failure> {
    let pending = app.gate.pending_count().await?;
    let text = app.figures.text(pending, app.hub.size(), app.gate.trouble().is_some());
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
