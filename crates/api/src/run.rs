//! Runs: tasks with a budget.

use palyra_types::id::{RunId, SessionId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{schema, strict};

/// A run to be opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewRun {
    /// The conversation it belongs to. Without one it is a new conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub session: Option<SessionId>,
    /// What it may use, if less than the configuration allows.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "strict::optional")]
    pub limits: Option<Limits>,
}

/// What a run may use. What is left out is as the configuration says, and nothing is more than that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub calls: Option<u64>,
    /// Milliseconds that calls run for, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub wall_ms: Option<u64>,
    /// Bytes that calls print, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub output_bytes: Option<u64>,
}

/// A run as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// The run.
    #[schema(value_type = schema::Ulid)]
    pub id: RunId,
    /// Its conversation.
    #[schema(value_type = schema::Ulid)]
    pub session: SessionId,
    /// Who opened it.
    pub principal: String,
    /// What it may use.
    pub limits: Amount,
    /// What it has used, what running calls may use included.
    pub used: Amount,
}

/// An amount of what a budget bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// Calls.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub calls: u64,
    /// Milliseconds that calls run for, all together.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub wall_ms: u64,
    /// Bytes that calls print, all together.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub output_bytes: u64,
}
