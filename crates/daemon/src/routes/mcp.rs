//! `/api/v1/mcp`: the MCP servers behind the gateway, and what is pinned of their tools.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use palyra_access::Scope;
use palyra_api::{
    ErrorBody,
    mcp::{McpServer, McpServers, McpSettings, PinMcpTools},
    schema,
};
use palyra_types::{Action, Resource};
use palyra_upstream::{Reach, ServerName};

use super::secrets::governs;
use crate::{
    app::App,
    authorise::check_scope,
    caller::Caller,
    extract::{Named, Said},
    failure::Failure,
    oversight::holds_everywhere,
    reply::{self, Reply},
    upstream,
};

/// The servers there are, without what they say of their tools.
#[utoipa::path(get, path = "/api/v1/mcp", tag = "mcp", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = McpServers), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Reply<McpServers> {
    Reply(app.upstreams.list())
}

/// One server, with what it says of its tools and how that differs from what is pinned.
#[utoipa::path(get, path = "/api/v1/mcp/{name}", tag = "mcp", security(("bearer" = []), ("certificate" = [])),
    params(("name" = schema::McpName, Path)),
    responses((status = 200, body = McpServer), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    _: Caller,
    Named(name): Named<ServerName>,
) -> Result<Reply<McpServer>, Failure> {
    Ok(Reply(app.upstreams.show(&name)?))
}

/// Adds a server. It is started or connected to; nothing of it is offered before it is pinned.
#[utoipa::path(put, path = "/api/v1/mcp/{name}", tag = "mcp", security(("bearer" = []), ("certificate" = [])),
    params(("name" = schema::McpName, Path)), request_body = McpSettings,
    responses((status = 201, body = McpServer), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn add(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<ServerName>,
    Said { said, .. }: Said<McpSettings>,
) -> Result<Response, Failure> {
    holds_everywhere(&caller)?;
    let section = upstream::section(&name, &said)?;
    // SECURITY: whoever has a secret sent to an address learns it there, so it takes what binding it there would take.
    if let Reach::Address(address) = &section.reach {
        for secret in address.bearer.iter().chain(address.headers.values()) {
            // A token's role may do what its scopes do not.
            check_scope(&app, &caller, &[Scope::VaultManage])?;
            caller.may(&app, Action::VaultBind, Resource::Secret(secret.clone()))?;
            governs(&caller, secret)?;
        }
    }
    app.upstreams.add(section, &caller.principal).await?;
    Ok(reply::json(StatusCode::CREATED, &app.upstreams.show(&name)?))
}

/// Removes a server that was added here, and what is pinned of it.
#[utoipa::path(delete, path = "/api/v1/mcp/{name}", tag = "mcp", security(("bearer" = []), ("certificate" = [])),
    params(("name" = schema::McpName, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<ServerName>,
) -> Result<StatusCode, Failure> {
    holds_everywhere(&caller)?;
    app.upstreams.remove(&name, &caller.principal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets definitions of tools count from now on: those whose digests are sent, as somebody has seen them.
#[utoipa::path(post, path = "/api/v1/mcp/{name}/pins", tag = "mcp", security(("bearer" = []), ("certificate" = [])),
    params(("name" = schema::McpName, Path)), request_body = PinMcpTools,
    responses((status = 200, body = McpServer), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn pin(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<ServerName>,
    Said { said, .. }: Said<PinMcpTools>,
) -> Result<Reply<McpServer>, Failure> {
    holds_everywhere(&caller)?;
    app.upstreams.pin(&name, &said.tools, &caller.principal).await?;
    Ok(Reply(app.upstreams.show(&name)?))
}
