//! `/api/v1/tools`: the tools there are.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    tool::{Tool, Tools},
};
use palyra_gate::ToolDefinition;

use crate::{app::App, caller::Caller, failure::Failure, reply::Reply};

/// The tools there are, with what each needs and how it is called.
#[utoipa::path(get, path = "/api/v1/tools", tag = "tools", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Tools), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Tools>, Failure> {
    Ok(Reply(Tools { tools: app.gate.registry().definitions().map(told).collect() }))
}

/// A tool, as it is told.
pub(crate) fn told(definition: &ToolDefinition) -> Tool {
    let metadata = definition.metadata();
    Tool {
        name: metadata.name.clone(),
        summary: metadata.summary.clone(),
        description: definition.description().to_owned(),
        capabilities: metadata.capabilities.iter().copied().collect(),
        default_posture: metadata.default_posture(),
        input_schema: definition.input_schema().clone(),
        digest: definition.digest(),
    }
}
