//! Events: what happened, as it happens, and again for whoever missed it.
//!
//! The id of an event is the number of its journal record, so `Last-Event-ID` resumes where a reader was. Live output has no record and no
//! id; what a call printed is in its `tool.attested` event, too.

use palyra_types::{
    Timestamp,
    id::{CallId, RunId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{schema, strict};

/// An event: the envelope of every message of an event stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The version of this form.
    pub v: u8,
    /// The number of its journal record; absent for live output and for the end of a stream.
    pub seq: Option<u64>,
    /// When.
    #[schema(value_type = schema::Time)]
    pub time: Timestamp,
    /// What happened, such as `tool.proposed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The task it belongs to.
    #[schema(value_type = Option<schema::Ulid>)]
    pub run_id: Option<RunId>,
    /// The call it belongs to.
    #[schema(value_type = Option<schema::Ulid>)]
    pub call_id: Option<CallId>,
    /// What the record says; null once that was erased.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// The data of a `tool.output` event: a piece of what a call prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputPiece {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// Where in that stream it begins. A gap means that the reader was too slow; the whole is in `tool.attested`.
    pub offset: u64,
    /// The bytes, in base 64.
    pub base64: String,
}

/// The type of live output.
pub const TOOL_OUTPUT: &str = "tool.output";

/// The type of the last event of the stream that a proposed call is answered with. Its data is a [`Call`](crate::call::Call), or an
/// [`ErrorBody`](crate::error::ErrorBody) for a call that was refused.
pub const CALL_OVER: &str = "call.over";

/// Where a stream of events begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Begin behind this record. `Last-Event-ID` comes first. Without either, with what happens next.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::seq")]
    #[param(maximum = 9_007_199_254_740_991_u64)]
    pub after: Option<u64>,
}
