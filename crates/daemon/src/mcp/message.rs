//! JSON-RPC 2.0, as far as MCP speaks it: requests, notifications and responses in, results and errors out.
//!
//! Guarantees: a message that is read has one meaning; a request has an id that is a text or a whole number. Batches are refused: neither
//! protocol that is served has them.

use axum::{http::StatusCode, response::Response};
use rmcp::model::ErrorCode;
use serde_json::{Map, Value, json};

use crate::reply;

/// What a client sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Something that is answered.
    Request(Request),
    /// Something that is not.
    Notification(Notification),
    /// An answer to something that nobody asked here.
    Response,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What its answer is known by.
    pub id: Value,
    /// What is asked for.
    pub method: String,
    /// With which parameters.
    pub params: Map<String, Value>,
}

/// A notification.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// What is told.
    pub method: String,
    /// With which parameters.
    pub params: Map<String, Value>,
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(mut object: Map<String, Value>) -> Result<Self, RpcError> {
        let id = match object.remove("id") {
            None => None,
            Some(id) if id.is_string() || id.is_i64() || id.is_u64() => Some(id),
            Some(_) => return Err(RpcError::invalid_request("the id of a request is a text or a whole number")),
        };
        let refused = |message: &str| Err(RpcError::invalid_request(message).about(id.clone()));
        if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return refused("a message says `\"jsonrpc\": \"2.0\"`");
        }
        let Some(method) = object.remove("method") else {
            let is_response = object.contains_key("result") || object.contains_key("error");
            return if is_response {
                Ok(Self::Response)
            } else {
                refused("a message has a method, a result or an error")
            };
        };
        let Value::String(method) = method else { return refused("a method is a text") };
        let params = match object.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return refused("parameters are a JSON object"),
        };
        Ok(match id {
            Some(id) => Self::Request(Request { id, method, params }),
            None => Self::Notification(Notification { method, params }),
        })
    }
}

impl Request {
    /// What is said about the request itself.
    #[must_use]
    pub fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(key)
    }

    /// A parameter that is a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.params.get(key)?.as_str()
    }
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// The code.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
    /// More about it, for programs.
    pub data: Option<Value>,
    /// The status, where the protocol has one for it.
    pub status: StatusCode,
    /// The request, where it is not known otherwise.
    pub id: Option<Value>,
}

impl RpcError {
    /// An error with this code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let status = match code {
            ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            ErrorCode::HEADER_MISMATCH
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::INVALID_REQUEST
            | ErrorCode::PARSE_ERROR => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        Self { code, message: message.into(), data: None, status, id: None }
    }

    /// The message makes no sense.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    /// Its parameters make no sense.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, message)
    }

    /// There is no such method.
    pub fn no_method(method: &str) -> Self {
        let message = format!("there is no method `{}`", palyra_types::visible::visible(method));
        Self::new(ErrorCode::METHOD_NOT_FOUND, message)
    }

    /// The same, with more for programs.
    #[must_use]
    pub fn with(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The same, with this status.
    #[must_use]
    pub const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The same, about this request.
    #[must_use]
    pub fn about(self, id: Option<Value>) -> Self {
        Self { id, ..self }
    }

    /// As a message.
    #[must_use]
    pub fn message(&self, id: Option<&Value>) -> Value {
        let mut error = json!({ "code": self.code.0, "message": self.message });
        if let (Some(error), Some(data)) = (error.as_object_mut(), &self.data) {
            error.insert("data".to_owned(), data.clone());
        }
        match id.or(self.id.as_ref()) {
            Some(id) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            None => json!({ "jsonrpc": "2.0", "error": error }),
        }
    }

    /// As a response, with the status that the protocol has for it.
    #[must_use]
    pub fn response(&self, id: Option<&Value>) -> Response {
        reply::json(self.status, &self.message(id))
    }
}

/// A result as a message.
#[must_use]
pub fn result(id: &Value, result: Map<String, Value>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// A notification as a message.
#[must_use]
pub fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Message, RpcError> {
        let Value::Object(object) = value else { panic!("{value}") };
        Message::read(object)
    }

    #[test]
    fn a_message_has_one_meaning() {
        let request = read(json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" })).unwrap();
        let expected = Request { id: json!(7), method: "ping".to_owned(), params: Map::new() };
        assert_eq!(request, Message::Request(expected));
        let told = read(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).unwrap();
        assert!(matches!(told, Message::Notification(_)));
        assert_eq!(read(json!({ "jsonrpc": "2.0", "id": "a", "result": {} })).unwrap(), Message::Response);
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id_if_it_has_one() {
        for wrong in [
            json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": 1 }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": 5 }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1] }),
        ] {
            let error = read(wrong.clone()).unwrap_err();
            assert_eq!((error.code, error.id), (ErrorCode::INVALID_REQUEST, Some(json!(1))), "{wrong}");
        }
        for id in [json!(null), json!(1.5), json!([])] {
            let error = read(json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).unwrap_err();
            assert_eq!((error.code, error.id), (ErrorCode::INVALID_REQUEST, None));
        }
    }
}
