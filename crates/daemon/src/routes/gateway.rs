//! `/mcp`: the MCP server, as clients of the Streamable HTTP transport ask it.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use palyra_api::gateway::{AskedOfMcp, McpQuery};
use serde_json::{Map, Value};

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked as Query, LONGEST_BODY, Said},
    failure::Failure,
    mcp::{serving, switched_on},
};

/// One message of JSON-RPC, in either protocol. A call that takes its time is answered as a stream.
#[utoipa::path(post, path = "/mcp", tag = "mcp", security(("bearer" = [])), params(McpQuery), request_body = AskedOfMcp,
    responses((status = 200, content((Object = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "It was heard"), (status = "4XX", body = Object), (status = "5XX", body = Object)))]
pub(super) async fn post(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<McpQuery>,
    Said { said, .. }: Said<Map<String, Value>, LONGEST_BODY>,
) -> Result<Response, Failure> {
    switched_on(&app)?;
    serving::answer(&app, &caller, (&headers, query.workspace), said).await
}

/// What a session's client is told besides answers.
#[utoipa::path(get, path = "/mcp", tag = "mcp", security(("bearer" = [])),
    responses((status = 200, content((String = "text/event-stream"))), (status = "4XX", body = Object)))]
pub(super) async fn listen(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    switched_on(&app)?;
    serving::listen(&app, &caller, &headers)
}

/// Ends a session.
#[utoipa::path(delete, path = "/mcp", tag = "mcp", security(("bearer" = [])),
    responses((status = 204, description = "It is over"), (status = "4XX", body = Object)))]
pub(super) async fn end(State(app): State<Arc<App>>, caller: Caller, headers: HeaderMap) -> Result<Response, Failure> {
    switched_on(&app)?;
    Ok(serving::end(&app, &caller, &headers))
}
