//! `/api/v1/authorize`, `/hooks/…` and `/api/v1/authorizations`: what other programs ask before they do something themselves, and what they
//! were told.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    authorize::{Authorization, AuthorizationExplanation, AuthorizationQuery, Authorizations, Authorize, HookQuery},
};
use serde_json::Value;

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Handed, LONGEST_BODY, Named, Said},
    failure::Failure,
    hooks::{self, claude_code as claude, recorded},
    oversight,
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
    handed: Result<Handed, Failure>,
) -> Reply<Value> {
    Reply(match handed {
        Ok(Handed(Ok(said))) => claude::answer(&app, &caller, &said, query.on_ask).await,
        Ok(Handed(Err(garbled))) => claude::answer_garbled(&app, &caller, &garbled).await,
        // Who is not let in any more gets no decision, and leaves no record.
        Err(failure) => claude::denied(&failure, None),
    })
}

/// What other programs were told lately about what they wanted to do themselves, newest first.
#[utoipa::path(get, path = "/api/v1/authorizations", tag = "hooks", security(("bearer" = []), ("certificate" = [])), params(AuthorizationQuery),
    responses((status = 200, body = Authorizations), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Caller,
    Asked(query): Asked<AuthorizationQuery>,
) -> Result<Reply<Authorizations>, Failure> {
    let most = oversight::page(query.limit)?;
    oversight::authorizations_last(&app, query.which, most).await.map(Reply)
}

/// Why another program was told what is on record under this number, and the smallest rule that would change it.
#[utoipa::path(get, path = "/api/v1/authorizations/{seq}/explanation", tag = "hooks", security(("bearer" = []), ("certificate" = [])),
    params(("seq" = u64, Path)),
    responses((status = 200, body = AuthorizationExplanation), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn explain(
    State(app): State<Arc<App>>,
    _: Caller,
    Named(seq): Named<u64>,
) -> Result<Reply<AuthorizationExplanation>, Failure> {
    recorded::explain(&app, seq).await.map(Reply)
}
