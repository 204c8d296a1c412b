//! Tools, their postures, and the workspaces they work in.

use palyra_types::{AbsolutePath, Posture, Sha256Digest, SkillId, ToolCapability, ToolName, WorkspaceName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// A tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    /// Its name.
    #[schema(value_type = schema::Name)]
    pub name: ToolName,
    /// What it does, in a sentence.
    pub summary: String,
    /// What it does, at length.
    pub description: String,
    /// What it needs from the machine.
    #[schema(value_type = Vec<String>)]
    pub capabilities: Vec<ToolCapability>,
    /// How freely it may be used where nothing else is set.
    #[schema(value_type = String)]
    pub default_posture: Posture,
    /// The JSON Schema of its arguments.
    #[schema(value_type = Object)]
    pub input_schema: Value,
    /// The JSON Schema of what it answers, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Value>,
    /// The skill that it belongs to, if it is no built-in tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::SkillText>)]
    pub skill: Option<SkillId>,
    /// Who publishes that skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::PublisherText>)]
    pub publisher: Option<String>,
    /// Whether that skill is in quarantine, so that the tool cannot be called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// The digest of everything that is told about it.
    #[schema(value_type = schema::Digest)]
    pub digest: Sha256Digest,
}

/// The tools there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tools {
    /// The tools.
    pub tools: Vec<Tool>,
}

/// How freely a tool may be used in a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostureSetting {
    /// `session`, `agent`, `workspace` or `global`.
    #[schema(pattern = "^(session|agent|workspace|global)$")]
    pub layer: String,
    /// What of that layer: a session, an agent as `kind:name`, a workspace; empty for `global`.
    #[serde(default)]
    pub key: String,
    /// The tool.
    #[schema(value_type = schema::Name)]
    pub tool: ToolName,
    /// `always_allow`, `ask_each_time` or `disabled`.
    #[schema(value_type = String, pattern = "^(always_allow|ask_each_time|disabled)$")]
    pub posture: Posture,
}

/// A posture to take away, so that the next layer counts again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PosturePlace {
    /// `session`, `agent`, `workspace` or `global`.
    #[param(pattern = "^(session|agent|workspace|global)$")]
    pub layer: String,
    /// What of that layer; empty for `global`.
    #[serde(default)]
    pub key: String,
    /// The tool.
    #[param(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._:/+@-]{0,127}$")]
    pub tool: ToolName,
}

/// The postures that are set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Postures {
    /// The postures.
    pub postures: Vec<PostureSetting>,
}

/// A workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspace {
    /// What calls name it by.
    #[schema(value_type = schema::Name)]
    pub name: WorkspaceName,
    /// Its directory.
    #[schema(value_type = schema::Path)]
    pub path: AbsolutePath,
}

/// The workspaces that are configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspaces {
    /// The workspaces.
    pub workspaces: Vec<Workspace>,
}
