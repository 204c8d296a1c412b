//! `/api/v1/workspaces`: where calls may work.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    tool::{Workspace, Workspaces},
};

use crate::{app::App, caller::Caller, failure::Failure, reply::Reply};

/// The workspaces that are configured.
#[utoipa::path(get, path = "/api/v1/workspaces", tag = "tools", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Workspaces), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Workspaces>, Failure> {
    let config = app.gate.config();
    let told = config.workspace.iter().map(|one| Workspace { name: one.name.clone(), path: one.path.clone() });
    Ok(Reply(Workspaces { workspaces: told.collect() }))
}
