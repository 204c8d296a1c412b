//! Members and what they may do, invitations, and the parts of the daemon that can be switched on and off.

use palyra_types::{PrincipalId, Timestamp, WorkspaceName, WorkspaceRole};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The members, and who is invited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// Those who are members.
    pub members: Vec<Member>,
    /// Those who are invited.
    pub invitations: Vec<Invitation>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Their name.
    #[schema(value_type = schema::Name)]
    pub user: PrincipalId,
    /// Their role.
    #[schema(value_type = schema::Role)]
    pub role: WorkspaceRole,
    /// The workspaces they belong to. Without them, to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Name>>)]
    pub workspaces: Option<Vec<WorkspaceName>>,
    /// Since when.
    #[schema(value_type = schema::Time)]
    pub joined: Timestamp,
    /// Who let them in.
    pub by: String,
    /// How many of their devices are let in.
    pub devices: u32,
    /// How many tokens that they answer for work.
    pub tokens: u32,
}

/// Somebody who is invited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    /// The invitation.
    #[schema(value_type = schema::Name)]
    pub id: String,
    /// Their name.
    #[schema(value_type = schema::Name)]
    pub user: PrincipalId,
    /// The role they will have.
    #[schema(value_type = schema::Role)]
    pub role: WorkspaceRole,
    /// The workspaces they will belong to. Without them, to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Name>>)]
    pub workspaces: Option<Vec<WorkspaceName>>,
    /// Who invited them.
    pub by: String,
    /// Until when.
    #[schema(value_type = schema::Time)]
    pub until: Timestamp,
}

/// Somebody to be invited. They are a member once a device was paired for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// Their name.
    #[schema(value_type = schema::Name)]
    pub user: PrincipalId,
    /// The role they will have.
    #[schema(value_type = schema::Role)]
    pub role: WorkspaceRole,
    /// The workspaces they will belong to. Without them, to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Name>>)]
    pub workspaces: Option<Vec<WorkspaceName>>,
    /// How long the invitation holds, in seconds: a minute to 30 days. Without it, seven days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 2_592_000)]
    pub lifetime_seconds: Option<u64>,
}

/// What a member becomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeMember {
    /// Their role from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Role>)]
    pub role: Option<WorkspaceRole>,
    /// The workspaces they belong to from now on; `null` leaves them as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Name>>)]
    pub workspaces: Option<Vec<WorkspaceName>>,
    /// Whether they belong to all workspaces from now on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_workspaces: bool,
}

/// What there is of roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Roles {
    /// From most to least.
    pub roles: Vec<RolePermissions>,
}

/// A role, and what it may do unless a policy says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolePermissions {
    /// The role.
    #[schema(value_type = schema::Role)]
    pub role: WorkspaceRole,
    /// What it is, in a sentence.
    pub about: String,
    /// The actions that it may take.
    pub permissions: Vec<String>,
}

/// The parts of the daemon that can be switched on and off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Flags {
    /// Each of them.
    pub flags: Vec<Flag>,
}

/// A part of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Flag {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether it is on unless somebody says otherwise.
    pub by_default: bool,
}

/// Whether a part of the daemon is to be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetFlag {
    /// Whether it is.
    pub on: bool,
}
