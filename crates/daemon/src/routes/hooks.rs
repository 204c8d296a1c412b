//! `/api/v1/authorize` and `/hooks/…`: what other programs ask before they do something themselves.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    authorize::{Authorization, Authorize, HookQuery},
};
use serde_json::{Map, Value};

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, LONGEST_BODY, Said},
    failure::Failure,
    hooks::{self, claude_code as claude},
    reply::Reply,
};

/// Decides what another program wants to do itself. Nothing is run.
///
/// The answer is 200 whatever was decided. With `"on_ask": "wait"` it waits for a person where policy asks.
#[utoipa::path(post, path = "/api/v1/authorize", tag = "hooks", security(("bearer" = []), ("certificate" = [])),
    request_body = Authorize,
    responses((status = 200, body = Authorization), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn authorize(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said, .. }: Said<Authorize, LONGEST_BODY>,
) -> Result<Reply<Authorization>, Failure> {
    hooks::authorize(&app, &caller, said).await.map(Reply)
}

/// Answers a hook of Claude Code, in the way that it expects.
///
/// The body is what Claude Code hands its hooks. `PreToolUse` is decided about; what makes no sense is denied, with 200, because Claude Code
/// goes on after any other status. Every other event is put on record and answered with an empty object.
#[utoipa::path(post, path = "/hooks/claude-code", tag = "hooks", security(("bearer" = []), ("certificate" = [])),
    params(HookQuery), request_body = Object,
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn claude_code(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(query): Asked<HookQuery>,
    said: Result<Said<Map<String, Value>, LONGEST_BODY>, Failure>,
) -> Reply<Value> {
    Reply(match said {
        Ok(Said { said, .. }) => claude::answer(&app, &caller, &said, query.on_ask).await,
        Err(failure) => claude::refused(&failure),
    })
}
