//! `/api/v1/postures`: how freely tools may be used, by layer.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use palyra_api::{
    ErrorBody,
    tool::{PosturePlace, PostureSetting, Postures},
};
use palyra_gate::posture::PostureLayer;
use palyra_types::{Posture, ToolName};

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Said},
    failure::Failure,
    reply::Reply,
};

/// The postures that are set.
#[utoipa::path(get, path = "/api/v1/postures", tag = "tools", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Postures), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Postures>, Failure> {
    let told = |row: palyra_gate::PostureSetting| PostureSetting {
        layer: row.layer.to_string(),
        key: row.key,
        tool: row.tool,
        posture: row.posture.unwrap_or(Posture::Disabled),
    };
    Ok(Reply(Postures { postures: app.gate.postures().await?.into_iter().map(told).collect() }))
}

/// Sets a posture.
#[utoipa::path(put, path = "/api/v1/postures", tag = "tools", security(("bearer" = []), ("certificate" = [])), request_body = PostureSetting,
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said, .. }: Said<PostureSetting>,
) -> Result<StatusCode, Failure> {
    change(&app, &caller, (&said.layer, said.key, said.tool), Some(said.posture)).await
}

/// Takes a posture away, so that the next layer counts again.
#[utoipa::path(delete, path = "/api/v1/postures", tag = "tools", security(("bearer" = []), ("certificate" = [])), params(PosturePlace),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn clear(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(place): Asked<PosturePlace>,
) -> Result<StatusCode, Failure> {
    change(&app, &caller, (&place.layer, place.key, place.tool), None).await
}

async fn change(
    app: &App,
    caller: &Caller,
    (layer, key, tool): (&str, String, ToolName),
    posture: Option<Posture>,
) -> Result<StatusCode, Failure> {
    let layer = PostureLayer::parse(layer).map_err(|error| Failure::bad_request(error.to_string()))?;
    if key.is_empty() != (layer == PostureLayer::Global) {
        return Err(Failure::bad_request("`global` has no key, and every other layer needs one"));
    }
    app.gate.registry().definition(&tool).map_err(palyra_gate::Refusal::Call)?;
    let setting = palyra_gate::PostureSetting { layer, key, tool, posture };
    app.gate.set_posture(&setting, &caller.petitioner()).await?;
    Ok(StatusCode::NO_CONTENT)
}
