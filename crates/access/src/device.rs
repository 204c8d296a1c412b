//! Paired devices: whose they are, the key they show, and what became of them.
//!
//! Guarantees: a device is known by the digest of its public key. The record of a revoked device stays for ever, because of its key.

use std::collections::BTreeSet;

use palyra_types::{
    DeviceId, ObjectId, Principal, PrincipalId, PrincipalKind, Sha256Digest, Timestamp, WorkspaceRole, word::words,
};
use serde::{Deserialize, Serialize};

use crate::revocation::Revocation;

words! {
    /// Where a device stands.
    pub enum DeviceState ("state of a device") {
        /// Its certificate was issued; it has not said yet that it kept it.
        Awaiting = "awaiting",
        /// It works.
        Active = "active",
        /// It works no more, and its key never will.
        Revoked = "revoked",
    }
}

/// A paired device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRecord {
    /// Names the device.
    pub id: DeviceId,
    /// What people call it.
    pub name: String,
    /// Whom it stands for, without roles.
    pub principal: Principal,
    /// The most that may be used through it, for a user's; agents and services have none.
    pub role: Option<WorkspaceRole>,
    /// The digest of its public key (SPKI).
    pub key: Sha256Digest,
    /// Where it stands.
    pub state: DeviceState,
    /// The address it was paired from.
    pub observed: Option<String>,
    /// What it says of itself.
    pub reported: Option<Reported>,
    /// When it was paired.
    pub paired: Timestamp,
    /// Who paired it, such as `user:ada`.
    pub paired_by: String,
    /// The fingerprint of the authority that issued its certificate.
    pub authority: Sha256Digest,
    /// Until when its certificate holds.
    pub certificate_until: Timestamp,
    /// The newest authority that it is known to trust.
    pub follows: Option<Sha256Digest>,
    /// When it was last here.
    pub last_seen: Option<Timestamp>,
    /// When, by whom and why it was revoked.
    pub revoked: Option<Revocation>,
}

impl DeviceRecord {
    /// Who answers for it: its user, or whoever paired it for an agent or a service.
    pub(crate) fn answered_by(&self) -> Option<PrincipalId> {
        match self.principal.kind() {
            PrincipalKind::User => Some(self.principal.id().clone()),
            PrincipalKind::Agent | PrincipalKind::Service => self.pairer().map(|pairer| pairer.id().clone()),
        }
    }

    /// The user who paired it.
    pub(crate) fn pairer(&self) -> Option<Principal> {
        Principal::parse(&self.paired_by).ok().filter(|pairer| pairer.kind() == PrincipalKind::User)
    }
}

/// What a device says of itself. Nobody checked it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// Its name.
    pub name: String,
    /// Its operating system.
    pub os: String,
}

/// A device to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDevice {
    /// Names the device.
    pub id: DeviceId,
    /// What people will call it.
    pub name: String,
    /// Whom it will stand for. Roles are not looked at.
    pub principal: Principal,
    /// The most that may be used through it, for a user's; none for others.
    pub role: Option<WorkspaceRole>,
    /// The digest of its public key (SPKI).
    pub key: Sha256Digest,
    /// The address it was paired from.
    pub observed: Option<String>,
    /// What it says of itself.
    pub reported: Option<Reported>,
    /// The fingerprint of the authority that issues its certificate.
    pub authority: Sha256Digest,
    /// Until when its certificate holds.
    pub certificate_until: Timestamp,
    /// The invitation by which its user becomes a member, if they are none yet.
    pub invitation: Option<ObjectId>,
}

/// A device to be revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRevocation {
    /// Which.
    pub id: DeviceId,
    /// Why. May be empty.
    pub why: String,
    /// Whether to revoke it even if it is the last one by which an owner gets in.
    pub even_the_last: bool,
    /// Devices whose certificates come from an authority that is trusted no more: none of them lets anybody in.
    pub cut_off: BTreeSet<DeviceId>,
}
