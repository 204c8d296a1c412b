//! What `/healthz` and `/readyz` answer, and who is asking.

use palyra_types::{DeviceId, Timestamp, TokenId, WorkspaceName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A daemon that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` while it answers.
    pub status: String,
    /// Its version.
    pub version: String,
}

/// Whether the daemon can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether calls can run.
    pub ready: bool,
    /// What was looked at.
    pub checks: Vec<Check>,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// What.
    pub name: String,
    /// How it is.
    pub state: CheckState,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// As it should be.
    Good,
    /// It works, and could be better.
    Doubtful,
    /// It does not work.
    Bad,
}

/// Who is asking, as the daemon sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Identity {
    /// The principal.
    pub principal: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// The kind of credential: `device`, `token` or `console`.
    pub credential: String,
    /// The device, if it is one, or the one that opened the console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub device: Option<DeviceId>,
    /// The token, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub token: Option<TokenId>,
    /// What the token may be used for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// The workspaces it is bound to. Without them it is bound to none in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Name>>)]
    pub workspaces: Option<Vec<WorkspaceName>>,
    /// Until when the credential counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub until: Option<Timestamp>,
}
