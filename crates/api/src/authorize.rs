//! What another program asks before it does something itself, and what it is told.

use palyra_types::{
    ToolName, WorkspaceName,
    id::{ApprovalId, CallId},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// What another program wants to do itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Authorize {
    /// The tool of Palyra that would do the same, or what the program calls its own.
    #[schema(value_type = schema::Name)]
    pub tool: ToolName,
    /// Its arguments. `process.run` takes a line for a shell as `command`, too.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub args: Map<String, Value>,
    /// Where the program works: relative paths are taken from there. Nothing is opened there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The configured workspace. Without one, that in which `cwd` lies, if it lies in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub workspace: Option<WorkspaceName>,
    /// What the program calls the conversation. Each has a budget of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// What happens where policy asks. Without it, `defer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_ask: Option<Asking>,
}

/// What happens where policy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Asking {
    /// The answer is `ask`, and the program asks its own user.
    Defer,
    /// A person is asked here, as about any call, and the answer waits for theirs.
    Wait,
}

/// How a hook is to be answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HookQuery {
    /// What happens where policy asks. Without it, `defer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub on_ask: Option<Asking>,
}

/// What another program is told. It is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Authorization {
    /// Whether it may.
    pub decision: Decision,
    /// A word for programs: `allowed`, `asks`, or why not.
    pub code: String,
    /// Why.
    pub reason: String,
    /// The first policy behind that, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// All of them.
    #[serde(default)]
    pub policies: Vec<String>,
    /// What would change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The record of the decision in the journal. None only if it could not be written, which denies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<u64>,
    /// The call that a person was asked about, with `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub call: Option<CallId>,
    /// The answer that was used: to the question about this, or one that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub approval: Option<ApprovalId>,
}

/// Whether another program may do something itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may, at once.
    Allow,
    /// It may if its own user lets it.
    Ask,
    /// It may not.
    Deny,
}
