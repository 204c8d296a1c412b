//! What always holds of a state.
//!
//! Guarantees: a state that passed has an owner, no two things of one name, key or digest, and nothing that refers to somebody who is not
//! there. Every document is held to this when it is read, and every state before it is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use palyra_types::{DeviceId, ObjectId, PrincipalId, PrincipalKind, TokenId, WorkspaceRole};

use super::{MOST_DEVICES, MOST_MEMBERS, MOST_TOKENS, State, tokens::stands_for};
use crate::{
    api_token::{ApiTokenRecord, MOST_CONCURRENT, MOST_PER_MINUTE, is_bindable},
    device::{DeviceRecord, DeviceState},
    feature::{FeatureFlag, Switch},
    label,
    member::{InvitationRecord, MemberRecord, Membership},
};

/// Everything that a state is made of, in the order it is written.
pub(crate) struct Records {
    pub(crate) features: BTreeMap<FeatureFlag, Switch>,
    pub(crate) members: Vec<MemberRecord>,
    pub(crate) invitations: Vec<InvitationRecord>,
    pub(crate) devices: Vec<DeviceRecord>,
    pub(crate) tokens: Vec<ApiTokenRecord>,
}

impl State {
    /// Takes records that somebody else wrote.
    pub(crate) fn of(records: Records) -> Result<Self, Inconsistency> {
        let state = Self {
            features: records.features,
            members: keyed(records.members, |member| &member.user, Inconsistency::TwoMembers)?,
            invitations: keyed(records.invitations, |invitation| &invitation.id, Inconsistency::TwoInvitations)?,
            devices: keyed(records.devices, |device| &device.id, Inconsistency::TwoDevices)?,
            tokens: keyed(records.tokens, |token| &token.id, Inconsistency::TwoTokens)?,
        };
        state.check()?;
        Ok(state)
    }

    /// What was said about features, as it is written.
    pub(crate) const fn said_of_features(&self) -> &BTreeMap<FeatureFlag, Switch> {
        &self.features
    }

    /// Whether everything that must hold does.
    ///
    /// # Errors
    /// When something does not; the error says what.
    pub fn check(&self) -> Result<(), Inconsistency> {
        for (feature, _) in self.features().filter(|(_, switch)| switch.is_on()) {
            if let Some(needs) = feature.needs().filter(|&needs| !self.is_on(needs)) {
                return Err(Inconsistency::Feature { feature, needs });
            }
        }
        if self.owners() == 0 {
            return Err(Inconsistency::NoOwner);
        }
        let sizes =
            [(self.members.len(), MOST_MEMBERS), (self.devices.len(), MOST_DEVICES), (self.tokens.len(), MOST_TOKENS)];
        if sizes.iter().any(|(size, most)| size > most) {
            return Err(Inconsistency::TooMany);
        }
        self.check_members()?;
        self.check_devices()?;
        self.check_tokens()
    }

    fn check_members(&self) -> Result<(), Inconsistency> {
        let limited = |member: &&MemberRecord| {
            member.role == WorkspaceRole::Owner && matches!(member.workspaces, Membership::Only(_))
        };
        if let Some(member) = self.members.values().find(limited) {
            return Err(Inconsistency::LimitedOwner(member.user.clone()));
        }
        let mut invited = BTreeSet::new();
        for invitation in self.invitations.values() {
            if self.members.contains_key(&invitation.user) || !invited.insert(&invitation.user) {
                return Err(Inconsistency::Invitation(invitation.id.clone()));
            }
            if invitation.role == WorkspaceRole::Owner && invitation.workspaces != Membership::All {
                return Err(Inconsistency::Invitation(invitation.id.clone()));
            }
        }
        Ok(())
    }

    fn check_devices(&self) -> Result<(), Inconsistency> {
        let invited: BTreeSet<_> = self.invitations.values().map(|invitation| &invitation.user).collect();
        let mut keys = HashMap::new();
        for device in self.devices.values() {
            let wrong = |what| Inconsistency::Device { id: device.id.clone(), what };
            if let Some(other) = keys.insert(device.key, &device.id) {
                return Err(Inconsistency::SharedKey(other.clone(), device.id.clone()));
            }
            label::check_name("name", &device.name).map_err(|_| wrong("has a name that no device has"))?;
            if !device.principal.roles().is_empty() {
                return Err(wrong("holds a role of its own"));
            }
            let is_user = device.principal.kind() == PrincipalKind::User;
            if is_user != device.role.is_some() {
                return Err(wrong("has a role that does not go with whom it stands for"));
            }
            if (device.state == DeviceState::Revoked) != device.revoked.is_some() {
                return Err(wrong("is neither revoked nor not"));
            }
            let user = device.principal.id();
            let member = self.members.contains_key(user);
            let at_home = match device.state {
                DeviceState::Active => member,
                DeviceState::Awaiting => member || invited.contains(user),
                DeviceState::Revoked => true,
            };
            if is_user && !at_home {
                return Err(wrong("belongs to nobody who is a member"));
            }
        }
        Ok(())
    }

    fn check_tokens(&self) -> Result<(), Inconsistency> {
        let (mut digests, mut families) = (HashMap::new(), HashMap::new());
        for token in self.tokens.values() {
            if families.insert(&token.family, &token.principal).is_some_and(|other| *other != token.principal) {
                return Err(Inconsistency::SharedFamily(token.family.clone()));
            }
            if let Some(other) = digests.insert(token.digest, &token.id) {
                return Err(Inconsistency::SharedDigest(other.clone(), token.id.clone()));
            }
            check_token(token).map_err(|what| Inconsistency::Token { id: token.id.clone(), what })?;
        }
        Ok(())
    }
}

fn check_token(token: &ApiTokenRecord) -> Result<(), &'static str> {
    label::check_name("name", &token.name).map_err(|_| "has a name that no token has")?;
    let kind = token.principal.kind();
    let rules = [
        (token.kind.principal() == kind, "is not of the kind of whom it stands for"),
        (token.principal.roles().is_empty() && token.minted_by.roles().is_empty(), "holds a role of its own"),
        (stands_for(&token.principal, &token.minted_by), "stands for somebody whom its minter cannot answer for"),
        (token.role.is_none() || kind == PrincipalKind::User, "has a role that does not go with whom it stands for"),
        (
            !token.scopes.is_empty() && token.scopes.iter().all(|scope| scope.suits(kind)),
            "has scopes that it cannot have",
        ),
        (token.channel.as_ref().is_none_or(is_bindable), "is bound to a channel that stands for a surface"),
        (token.created <= token.expires, "expires before it begins"),
        (token.superseded_at.is_none_or(|at| at <= token.expires), "is taken over from after it expires"),
        ((1..=MOST_PER_MINUTE).contains(&token.per_minute), "has a pace that no token has"),
        ((1..=MOST_CONCURRENT).contains(&token.concurrent), "has more at once than any token has"),
        (
            (token.family == token.id) == token.rotated_from_token_id.is_none(),
            "is neither the first of its family nor took over from another",
        ),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, what)| Err(what))
}

fn keyed<K: Ord + Clone, V>(
    records: Vec<V>,
    key: impl Fn(&V) -> &K,
    twice: impl Fn(K) -> Inconsistency,
) -> Result<BTreeMap<K, V>, Inconsistency> {
    let mut map = BTreeMap::new();
    for record in records {
        let key = key(&record).clone();
        if map.insert(key.clone(), record).is_some() {
            return Err(twice(key));
        }
    }
    Ok(map)
}

/// Why a state cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistency {
    /// Nobody owns it.
    #[error("there is no owner")]
    NoOwner,
    /// More than can be kept of something.
    #[error("there are more members, devices or tokens than can be kept")]
    TooMany,
    /// A feature is on without the one it needs.
    #[error("the feature {feature} is on without the feature {needs}")]
    Feature {
        /// The feature that is on.
        feature: FeatureFlag,
        /// The one that is off.
        needs: FeatureFlag,
    },
    /// A member twice.
    #[error("there are two members `{0}`")]
    TwoMembers(PrincipalId),
    /// An owner who does not belong to all workspaces.
    #[error("the owner `{0}` does not belong to all workspaces")]
    LimitedOwner(PrincipalId),
    /// An invitation twice.
    #[error("there are two invitations `{0}`")]
    TwoInvitations(ObjectId),
    /// An invitation for a member, a second one for somebody, or one of an owner to some workspaces.
    #[error("the invitation `{0}` is for somebody who cannot be invited so")]
    Invitation(ObjectId),
    /// A device twice.
    #[error("there are two devices `{0}`")]
    TwoDevices(DeviceId),
    /// Two devices with one key.
    #[error("the devices `{0}` and `{1}` have the same key")]
    SharedKey(DeviceId, DeviceId),
    /// A device that cannot be.
    #[error("the device `{id}` {what}")]
    Device {
        /// Which.
        id: DeviceId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A token twice.
    #[error("there are two tokens `{0}`")]
    TwoTokens(TokenId),
    /// Two tokens with one digest.
    #[error("the tokens `{0}` and `{1}` have the same digest")]
    SharedDigest(TokenId, TokenId),
    /// A family whose tokens stand for different principals.
    #[error("the tokens of the family `{0}` stand for different principals")]
    SharedFamily(TokenId),
    /// A token that cannot be.
    #[error("the token `{id}` {what}")]
    Token {
        /// Which.
        id: TokenId,
        /// What is wrong with it.
        what: &'static str,
    },
}
