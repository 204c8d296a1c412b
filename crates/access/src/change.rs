//! What a change did, to be told and to be put on record.
//!
//! Guarantees: nothing secret, and no digest of anything secret, is in any of these.

use std::collections::BTreeSet;

use palyra_types::{
    Channel, DeviceId, ObjectId, Principal, PrincipalId, Sha256Digest, Timestamp, TokenId, WorkspaceRole,
};
use serde::Serialize;

use crate::{
    feature::{FeatureFlag, Switch},
    member::Membership,
    scope::Scope,
};

/// Somebody was invited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Invited {
    /// The invitation.
    pub id: ObjectId,
    /// Who.
    pub user: PrincipalId,
    /// The role they will have.
    pub role: WorkspaceRole,
    /// The workspaces they will belong to.
    pub workspaces: Membership,
    /// Until when they can join.
    pub until: Timestamp,
}

/// An invitation was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Withdrawn {
    /// The invitation.
    pub id: ObjectId,
    /// Who was invited.
    pub user: PrincipalId,
    /// Devices that waited for it and are forgotten.
    pub devices: Vec<DeviceId>,
}

/// Somebody became a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Joined {
    /// The invitation by which they did.
    pub invitation: ObjectId,
    /// Who.
    pub user: PrincipalId,
    /// The role they have.
    pub role: WorkspaceRole,
    /// The workspaces they belong to.
    pub workspaces: Membership,
}

/// A member has another role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoleSet {
    /// Who.
    pub user: PrincipalId,
    /// The role they had.
    pub from: WorkspaceRole,
    /// The role they have.
    pub to: WorkspaceRole,
    /// Invitations of theirs that offered more than they have now, and are withdrawn.
    pub invitations: Vec<ObjectId>,
}

/// A member belongs to other workspaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkspacesSet {
    /// Who.
    pub user: PrincipalId,
    /// Where they were.
    pub from: Membership,
    /// Where they are.
    pub to: Membership,
    /// Invitations of theirs that offered more than they have now, and are withdrawn.
    pub invitations: Vec<ObjectId>,
}

/// Somebody is a member no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberRemoved {
    /// Who.
    pub user: PrincipalId,
    /// The role they had.
    pub role: WorkspaceRole,
    /// Their devices, which are revoked.
    pub devices: Vec<DeviceId>,
    /// Tokens that they minted or that stood for them, which are revoked.
    pub tokens: Vec<TokenId>,
    /// Invitations of theirs, which are withdrawn.
    pub invitations: Vec<ObjectId>,
}

/// A device waits to say that it kept its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceAdded {
    /// The device.
    pub id: DeviceId,
    /// What people call it.
    pub name: String,
    /// Whom it stands for.
    pub principal: Principal,
    /// The most that may be used through it.
    pub role: Option<WorkspaceRole>,
    /// The digest of its public key.
    pub key: Sha256Digest,
    /// Until when its certificate holds.
    pub certificate_until: Timestamp,
}

/// A device works from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceActivated {
    /// The device.
    pub id: DeviceId,
    /// Whom it stands for.
    pub principal: Principal,
    /// The member that its user became by it.
    pub joined: Option<Joined>,
}

/// Devices that never came to work are forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DevicesForgotten {
    /// Which.
    pub devices: Vec<DeviceId>,
}

/// A device works no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceRevoked {
    /// The device.
    pub id: DeviceId,
    /// Whom it stood for.
    pub principal: Principal,
    /// The digest of its public key, which never comes back.
    pub key: Sha256Digest,
    /// Why.
    pub why: String,
}

/// A device has a new certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceRenewed {
    /// The device.
    pub id: DeviceId,
    /// The authority that issued it.
    pub authority: Sha256Digest,
    /// Until when it holds.
    pub certificate_until: Timestamp,
}

/// A device is known to trust an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceFollows {
    /// The device.
    pub id: DeviceId,
    /// The authority.
    pub authority: Sha256Digest,
}

/// A token was minted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Minted {
    /// The token.
    pub id: TokenId,
    /// What people call it.
    pub name: String,
    /// Whom it stands for.
    pub principal: Principal,
    /// The most that may be used through it.
    pub role: Option<WorkspaceRole>,
    /// The workspaces it may be used in.
    pub workspaces: Membership,
    /// What it may be used for.
    pub scopes: BTreeSet<Scope>,
    /// The channel that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// Who answers for it.
    pub minted_by: Principal,
    /// From when on it is refused.
    pub expires: Timestamp,
    /// How many requests a minute.
    pub per_minute: u32,
    /// How many requests at once.
    pub concurrent: u32,
    /// Tokens whose records were old enough to go.
    pub pruned: Vec<TokenId>,
}

/// A token took over from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rotated {
    /// The new token.
    pub id: TokenId,
    /// The old one.
    pub rotated_from_token_id: TokenId,
    /// The first of their line.
    pub family: TokenId,
    /// Whom they stand for.
    pub principal: Principal,
    /// Who answers for the new one.
    pub minted_by: Principal,
    /// From when on the new one is refused.
    pub expires: Timestamp,
    /// From when on the old one is refused.
    pub superseded_at: Timestamp,
    /// Tokens whose records were old enough to go.
    pub pruned: Vec<TokenId>,
}

/// Tokens work no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokensRevoked {
    /// Which: those that were meant, and all that were minted with them.
    pub tokens: Vec<TokenId>,
    /// The first of the line that was meant.
    pub family: TokenId,
    /// Why.
    pub why: String,
}

/// A feature was switched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeatureSet {
    /// Which.
    pub feature: FeatureFlag,
    /// How it was set.
    pub from: Switch,
    /// How it is set.
    pub to: Switch,
}
