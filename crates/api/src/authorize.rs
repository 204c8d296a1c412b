//! What another program asks before it does something itself, what it is told, and why.

use palyra_types::{
    Timestamp, ToolName, WorkspaceName,
    id::{ApprovalId, CallId},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::{call::PolicyRef, policy::Reconsidered, schema};

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

/// Which decisions are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuthorizationQuery {
    /// `refused`: only what was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub which: Option<AuthorizationSelection>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Which decisions are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationSelection {
    /// What was denied.
    Refused,
}

/// Some decisions, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Authorizations {
    /// The decisions: some megabytes of them at once.
    pub authorizations: Vec<AuthorizationRecord>,
    /// Whether there are more.
    #[serde(default)]
    pub more: bool,
}

/// A decision about what another program wanted to do itself, as it is on record. Known shapes of tokens are masked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuthorizationRecord {
    /// When it was made.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// Who asked.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// The surface it came in by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The API token that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the program calls its tool, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The tool in the words of policy. Absent for what makes no proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub meant: Option<ToolName>,
    /// Its arguments; of long ones, their digest and their beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub args: Option<Value>,
    /// What the program was told.
    pub told: Authorization,
}

/// Why another program was told what it was told, and what would change that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuthorizationExplanation {
    /// The decision.
    pub decided: AuthorizationRecord,
    /// The policies behind it, as they stand in the set that is in force.
    pub policies: Vec<PolicyRef>,
    /// What policy says to the same now. Absent if policy was not asked, or what it was asked is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Reconsidered>,
}
