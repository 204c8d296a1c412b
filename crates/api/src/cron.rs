//! Schedules: calls that are proposed later, when each is due, and what came of it.

use palyra_types::{
    Timestamp, ToolName, WorkspaceName,
    id::{CallId, SessionId},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::schema;

/// The schedules that whoever asks may see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Schedules {
    /// Oldest first.
    pub schedules: Vec<Schedule>,
}

/// A call that is proposed later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Its id.
    #[schema(value_type = schema::Ulid)]
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// Who it acts for, as `kind:name`.
    #[schema(value_type = schema::PrincipalText)]
    pub owner: String,
    /// The tool that is called.
    #[schema(value_type = schema::Name)]
    pub tool: ToolName,
    /// Its arguments. What looks like a token is masked.
    #[schema(value_type = Object)]
    pub args: Map<String, Value>,
    /// The workspace of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub workspace: Option<WorkspaceName>,
    /// The conversation of the call.
    #[schema(value_type = schema::Ulid)]
    pub session: SessionId,
    /// When it is due, in words.
    pub when: String,
    /// What becomes of times that were missed: `skip`, `once` or `all`.
    pub missed: String,
    /// How long a call may run, in seconds.
    pub timeout_seconds: u32,
    /// Whether it fires.
    pub enabled: bool,
    /// Why it does not, and who said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// When it was created.
    #[schema(value_type = schema::Time)]
    pub created: Timestamp,
    /// The call that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub created_by_call: Option<CallId>,
    /// When it fired last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub last_fired: Option<Timestamp>,
    /// When it fires next, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub next_due: Option<Timestamp>,
    /// The call that is under way or waits for its answer, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub running: Option<String>,
    /// What came of its last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<String>,
    /// How often it failed since it last succeeded.
    pub failures: u32,
    /// How many times passed without it.
    pub missed_times: u32,
}
