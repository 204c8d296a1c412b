//! The registry's state: a value with methods that change it or refuse.
//!
//! Guarantees: whatever refuses has changed nothing; after every change the state is [consistent](State::check). Does not: read a clock, do
//! I/O, or make anything secret. Time and digests are parameters.
//!
//! The rules, in short: nobody invites, promotes, pairs or mints above their own role, and without a role nobody does; nobody changes what
//! belongs to somebody above them or beyond their workspaces; by a token nobody does more than its scopes say, gives a role, pairs a device,
//! or makes what outlasts it; agents do nothing of it. There is always an owner.
//!
//! | you look for | read |
//! |---|---|
//! | which role counts | `authority.rs` |
//! | the first owner, and their way back in | `founding.rs` |
//! | members and invitations | `members.rs` |
//! | devices | `devices.rs` |
//! | tokens | `tokens.rs` |
//! | feature flags | `features.rs` |
//! | what must always hold | [`consistency`] |

mod authority;
pub mod consistency;
mod devices;
mod features;
mod founding;
mod members;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeMap;

use palyra_types::{DeviceId, ObjectId, Principal, PrincipalId, Timestamp, TokenId, WorkspaceRole};

pub use self::{consistency::Inconsistency, members::Invitee};
use crate::{
    api_token::ApiTokenRecord,
    device::DeviceRecord,
    feature::{FeatureFlag, Switch},
    member::{InvitationRecord, MemberRecord},
};

/// Everything the registry knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// What was said about features. Where nothing was, they are as they are by default.
    features: BTreeMap<FeatureFlag, Switch>,
    members: BTreeMap<PrincipalId, MemberRecord>,
    invitations: BTreeMap<ObjectId, InvitationRecord>,
    devices: BTreeMap<DeviceId, DeviceRecord>,
    tokens: BTreeMap<TokenId, ApiTokenRecord>,
}

impl State {
    /// The members, by name.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &MemberRecord> {
        self.members.values()
    }

    /// One member.
    #[must_use]
    pub fn member(&self, user: &PrincipalId) -> Option<&MemberRecord> {
        self.members.get(user)
    }

    /// The invitations, those that are over included.
    pub fn invitations(&self) -> impl ExactSizeIterator<Item = &InvitationRecord> {
        self.invitations.values()
    }

    /// One invitation.
    #[must_use]
    pub fn invitation(&self, id: &ObjectId) -> Option<&InvitationRecord> {
        self.invitations.get(id)
    }

    /// The devices, those that are revoked included.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &DeviceRecord> {
        self.devices.values()
    }

    /// One device.
    #[must_use]
    pub fn device(&self, id: &DeviceId) -> Option<&DeviceRecord> {
        self.devices.get(id)
    }

    /// The tokens, those that are over included for a while.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &ApiTokenRecord> {
        self.tokens.values()
    }

    /// One token.
    #[must_use]
    pub fn token(&self, id: &TokenId) -> Option<&ApiTokenRecord> {
        self.tokens.get(id)
    }

    /// Notes when devices and tokens were last here. Never goes back in time.
    pub(crate) fn note_use<'a>(
        &mut self,
        devices: impl Iterator<Item = (&'a DeviceId, Timestamp)>,
        tokens: impl Iterator<Item = (&'a TokenId, Timestamp)>,
    ) {
        for (id, at) in devices {
            if let Some(device) = self.devices.get_mut(id) {
                device.last_seen = device.last_seen.max(Some(at));
            }
        }
        for (id, at) in tokens {
            if let Some(token) = self.tokens.get_mut(id) {
                token.last_used = token.last_used.max(Some(at));
            }
        }
    }

    fn owners(&self) -> usize {
        self.members.values().filter(|member| member.role == WorkspaceRole::Owner).count()
    }
}

/// A principal without its roles.
fn bare(principal: &Principal) -> Principal {
    Principal::new(principal.kind(), principal.id().clone())
}

/// The most members there are.
pub const MOST_MEMBERS: usize = 10_000;

/// The most open invitations there are.
pub const MOST_INVITATIONS: usize = 1_000;

/// The most devices there are, those that are revoked included.
pub const MOST_DEVICES: usize = 10_000;

/// The most tokens there are, those that are over included until they are pruned.
pub const MOST_TOKENS: usize = 10_000;
