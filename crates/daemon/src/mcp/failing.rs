//! Errors of the daemon in a shape that MCP clients understand.
//!
//! Guarantees: whoever is not let in learns why in a JSON-RPC error with the status that HTTP has for it, and what kind of credential is
//! wanted. No authorization server is named, because there is none: tokens are minted by people.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use palyra_api::ErrorDetail;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use super::message::RpcError;

/// An error as a JSON-RPC error that is about no request: the daemon has not read any.
#[must_use]
pub fn shape(status: StatusCode, detail: &ErrorDetail) -> Value {
    let code = match detail.code.as_str() {
        "bad_json" => ErrorCode::PARSE_ERROR,
        "bad_request" | "not_json" | "not_acceptable" | "too_large" | "method_not_allowed" => {
            ErrorCode::INVALID_REQUEST
        }
        _ => REFUSED,
    };
    let message = match &detail.help {
        Some(help) => format!("{} ({help})", detail.message),
        None => detail.message.clone(),
    };
    let again =
        matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) || status.is_server_error();
    RpcError::new(code, message)
        .with(json!({ "code": detail.code, "help": detail.help, "retry": again, "request_id": detail.request_id }))
        .message(None)
}

/// Says what a credential lacks, as RFC 6750 has it.
pub fn challenge(headers: &mut HeaderMap, detail: &ErrorDetail) {
    let challenge = match detail.code.as_str() {
        "expired" | "revoked" => "Bearer error=\"invalid_token\"",
        "missing_scope" => "Bearer error=\"insufficient_scope\", scope=\"mcp.call\"",
        _ => return,
    };
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
}

/// The code of what the daemon refuses, from the range that JSON-RPC leaves to servers.
pub const REFUSED: ErrorCode = ErrorCode(-32_000);
