//! What is answered to which message.
//!
//! Guarantees: a message is answered in the protocol that it is of, with the statuses that this has; a session that is not the credential's is
//! as good as none.

use std::sync::Arc;

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use palyra_types::WorkspaceName;
use rmcp::model::{ErrorCode, TASKS_EXTENSION_ID};
use serde_json::{Map, Value, json};

use super::{
    calling, listing,
    message::{self, Message, Notification, Request, RpcError},
    notices,
    sessions::Session,
    tasks,
    wire::{self, Abilities, Wire},
};
use crate::{app::App, authorise::not_that_way, caller::Caller, failure::Failure, reply};

/// Answers a message.
///
/// # Errors
/// When the client would not understand the answer.
pub async fn answer(
    app: &Arc<App>,
    caller: &Caller,
    (headers, workspace): (&HeaderMap, Option<WorkspaceName>),
    object: Map<String, Value>,
) -> Result<Response, Failure> {
    accepts(headers, &["application/json", "text/event-stream"])?;
    let request = match Message::read(object) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification(told)) => return Ok(hear(app, caller, headers, &told)),
        Ok(Message::Response) => return Ok(StatusCode::ACCEPTED.into_response()),
        Err(error) => return Ok(error.response(None)),
    };
    if wire::is_stateless(&request, headers) {
        return Ok(match wire::check(&request, headers) {
            Ok(abilities) => serve(app, caller, request, (Wire::Stateless(abilities), workspace)).await,
            Err(error) => error.response(Some(&request.id)),
        });
    }
    if request.method == "initialize" {
        return initialize(app, caller, &request);
    }
    Ok(match session(app, caller, headers) {
        Ok(session) => serve(app, caller, request, (Wire::Session(session), workspace)).await,
        Err(error) => error.response(Some(&request.id)),
    })
}

/// The stream of a session.
///
/// # Errors
/// When the client would not understand it, or speaks the protocol that has none.
pub fn listen(app: &Arc<App>, caller: &Caller, headers: &HeaderMap) -> Result<Response, Failure> {
    if is_newer(headers) {
        return Ok(only_post());
    }
    accepts(headers, &["text/event-stream"])?;
    Ok(match session(app, caller, headers) {
        Ok(session) => notices::listen(app, caller, &session),
        Err(error) => error.response(None),
    })
}

/// Ends a session.
pub fn end(app: &App, caller: &Caller, headers: &HeaderMap) -> Response {
    if is_newer(headers) {
        return only_post();
    }
    match session(app, caller, headers) {
        Ok(session) => {
            app.mcp.sessions.end(&session);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => error.response(None),
    }
}

async fn serve(
    app: &Arc<App>,
    caller: &Caller,
    request: Request,
    (wire, workspace): (Wire, Option<WorkspaceName>),
) -> Response {
    let result = match (request.method.as_str(), &wire) {
        ("tools/call", _) => return calling::call(app, caller, request, (wire, workspace)).await,
        ("subscriptions/listen", Wire::Stateless(_)) => return notices::subscribe(app, caller, (request, wire)),
        ("tools/list", _) => listing::page(app, caller, request.text("cursor")).map(|page| kept(page, &wire)),
        ("server/discover", Wire::Stateless(_)) => Ok(kept(discovered(), &wire)),
        ("tasks/get" | "tasks/update" | "tasks/cancel", Wire::Stateless(abilities)) => {
            tasks::answer(app, caller, &request, *abilities).await
        }
        ("ping", Wire::Session(_)) => Ok(Map::new()),
        (other, _) => Err(RpcError::no_method(other)),
    };
    match result {
        Ok(result) => reply::json(StatusCode::OK, &message::result(&request.id, wire.finished(result))),
        Err(error) => reply::json(wire.status(&error), &error.message(Some(&request.id))),
    }
}

/// Begins a session.
fn initialize(app: &Arc<App>, caller: &Caller, request: &Request) -> Result<Response, Failure> {
    let capabilities = request.params.get("capabilities").filter(|one| one.is_object());
    let (Some(wanted), Some(capabilities)) = (request.text("protocolVersion"), capabilities) else {
        let error = RpcError::invalid_params("`initialize` says `protocolVersion` and `capabilities`");
        return Ok(error.response(Some(&request.id)));
    };
    let version = wire::negotiated(Some(wanted));
    let session = app.mcp.sessions.open(app, caller, (version, Abilities::of(capabilities)))?;
    let mut result = able();
    result.insert("protocolVersion".to_owned(), json!(session.version.as_str()));
    result.insert("serverInfo".to_owned(), wire::server_info());
    let mut response = reply::json(StatusCode::OK, &message::result(&request.id, result));
    if let Ok(id) = HeaderValue::from_str(&session.id) {
        response.headers_mut().insert(wire::SESSION, id);
    }
    Ok(response)
}

/// Hears what a client tells.
fn hear(app: &App, caller: &Caller, headers: &HeaderMap, told: &Notification) -> Response {
    // Of the newer protocol, whoever cancels a request hangs up.
    if !is_newer(headers) {
        let session = match session(app, caller, headers) {
            Ok(session) => session,
            Err(error) => return error.response(None),
        };
        if told.method == "notifications/cancelled"
            && let Some(id) = told.params.get("requestId")
        {
            session.cancel(id);
        }
    }
    StatusCode::ACCEPTED.into_response()
}

/// The session that a request names.
fn session(app: &App, caller: &Caller, headers: &HeaderMap) -> Result<Arc<Session>, RpcError> {
    let Some(id) = wire::header(headers, wire::SESSION)? else {
        return Err(RpcError::invalid_request("the header Mcp-Session-Id is missing; `initialize` begins a session"));
    };
    let session = app.mcp.sessions.find(id, &caller.shown).ok_or_else(|| {
        RpcError::new(NO_SESSION, "there is no such session; `initialize` begins another").status(StatusCode::NOT_FOUND)
    })?;
    wire::check_session(headers)?;
    Ok(session)
}

fn is_newer(headers: &HeaderMap) -> bool {
    headers.get(wire::VERSION).is_some_and(|version| version == "2026-07-28")
}

fn only_post() -> Response {
    let mut response = not_that_way().into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}

/// Whether a client takes what it may be answered with.
fn accepts(headers: &HeaderMap, kinds: &[&str]) -> Result<(), Failure> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|one| one.to_str().ok());
    let accepted: Vec<&str> =
        accepted.flat_map(|one| one.split(',')).map(|one| one.split(';').next().unwrap_or_default().trim()).collect();
    let takes = |kind: &str| accepted.iter().any(|one| one.eq_ignore_ascii_case(kind) || *one == "*/*");
    match kinds.iter().find(|kind| !takes(kind)) {
        None => Ok(()),
        Some(_) => {
            let message = format!("whoever asks this accepts {}", kinds.join(" and "));
            Err(Failure::new("not_acceptable", message, "say so in `Accept`"))
        }
    }
}

/// What is told of this server to whoever discovers it.
fn discovered() -> Map<String, Value> {
    let mut result = able();
    let able = json!({ "tools": { "listChanged": true }, "extensions": { TASKS_EXTENSION_ID: {} } });
    result.insert("capabilities".to_owned(), able);
    result.insert("supportedVersions".to_owned(), json!(wire::supported()));
    result
}

/// What it can do.
fn able() -> Map<String, Value> {
    Map::from_iter([
        ("capabilities".to_owned(), json!({ "tools": { "listChanged": true } })),
        ("instructions".to_owned(), json!(INSTRUCTIONS)),
    ])
}

/// A result with how long it may be kept, which the newer protocol wants to know: not at all, and by nobody else.
fn kept(mut result: Map<String, Value>, wire: &Wire) -> Map<String, Value> {
    if matches!(wire, Wire::Stateless(_)) {
        result.insert("ttlMs".to_owned(), json!(0));
        result.insert("cacheScope".to_owned(), json!("private"));
    }
    result
}

const INSTRUCTIONS: &str = "Tools of this machine, governed by Palyra: policy decides about each call, and where policy says so a person is \
    asked, which can take minutes. A refusal says why and what to do. Where it says `retry: false`, do not try the same again.";

/// A session that is not there, as servers of this protocol call it.
const NO_SESSION: ErrorCode = ErrorCode(-32_001);
