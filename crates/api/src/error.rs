//! The one shape of errors: `{ "error": { "code", "message", "help", "request_id" } }`.

use palyra_types::id::CallId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// An error as it goes over the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What happened and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// A word for programs.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The request it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The call that was refused, if there was one and it is journalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub call: Option<CallId>,
    /// Which part of the request it is about, as a provider calls it. Only clients of other products are told.
    #[serde(skip)]
    pub param: Option<String>,
}
