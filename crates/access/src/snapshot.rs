//! The registry as it is at one revision. It never changes; another takes its place.

use std::{collections::BTreeSet, sync::Arc};

use palyra_types::{DeviceId, Sha256Digest, Timestamp, TokenId};

use crate::{
    feature::FeatureFlag,
    holder::{Credential, DeviceRefusal, Holder, TokenRefusal},
    index::{Index, Surroundings},
    state::State,
    token::TokenText,
};

/// A state, its revision, and an index of who holds what.
pub struct Snapshot {
    state: State,
    revision: u64,
    index: Index,
}

impl Snapshot {
    pub(crate) fn first(state: State, revision: u64, surroundings: &Surroundings<'_>) -> Self {
        let index = Index::build(&state, &Index::default(), surroundings);
        Self { state, revision, index }
    }

    /// The snapshot after this one. Paces, slots and times of use go on.
    pub(crate) fn next(&self, state: State, revision: u64, surroundings: &Surroundings<'_>) -> Self {
        let index = Index::build(&state, &self.index, surroundings);
        Self { state, revision, index }
    }

    /// The state. What it says about last use is as old as the last save; [`Self::last_used`] and [`Self::last_seen`] are not.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// How many changes there were.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// When a token was last used.
    #[must_use]
    pub fn last_used(&self, id: &TokenId) -> Option<Timestamp> {
        self.index.token(id).and_then(|entry| entry.used.get())
    }

    /// When a device was last here.
    #[must_use]
    pub fn last_seen(&self, id: &DeviceId) -> Option<Timestamp> {
        self.index.device(id).and_then(|entry| entry.seen.get())
    }

    /// Whoever holds the device of this key, at a time.
    ///
    /// # Errors
    /// When the device is not good.
    pub fn by_device_key(&self, key: &Sha256Digest, at: Timestamp) -> Result<Arc<Holder>, DeviceRefusal> {
        let entry = self.index.device_by_key(key).ok_or(DeviceRefusal::Unknown)?;
        entry.check(at)?;
        entry.seen.note(at);
        Ok(Arc::clone(&entry.holder))
    }

    /// Whoever holds the token of this text, at a time.
    ///
    /// # Errors
    /// When the token is not good.
    pub fn by_token(&self, text: &str, at: Timestamp) -> Result<Arc<Holder>, TokenRefusal> {
        TokenText::check(text)?;
        if !self.state.is_on(FeatureFlag::ApiTokens) {
            return Err(TokenRefusal::Off);
        }
        let entry = self.index.token_by_digest(&TokenText::digest(text)).ok_or(TokenRefusal::Unknown)?;
        entry.check(at)?;
        entry.used.note(at);
        Ok(Arc::clone(&entry.holder))
    }

    /// Whether a credential is good at a time. Does not count as use.
    #[must_use]
    pub fn is_good(&self, credential: &Credential, at: Timestamp) -> bool {
        match credential {
            Credential::Device(id) => self.index.device(id).is_some_and(|entry| entry.check(at).is_ok()),
            Credential::Token(id) => {
                self.state.is_on(FeatureFlag::ApiTokens)
                    && self.index.token(id).is_some_and(|entry| entry.check(at).is_ok())
            }
        }
    }

    /// The credentials that were good in the snapshot before a change and are not in this one, both looked at for the same time: what the
    /// change took away, and not what came to its end by itself.
    #[must_use]
    pub fn ended_since(&self, before: &Self, at: Timestamp) -> Ended {
        let ended = |credential: &Credential| before.is_good(credential, at) && !self.is_good(credential, at);
        let devices = before.state.devices().map(|device| device.id.clone());
        let tokens = before.state.tokens().map(|token| token.id.clone());
        Ended {
            devices: devices.filter(|id| ended(&Credential::Device(id.clone()))).collect(),
            tokens: tokens.filter(|id| ended(&Credential::Token(id.clone()))).collect(),
        }
    }

    /// Whoever holds a credential that was not taken away from them. One that ran out by itself was not.
    #[must_use]
    pub fn standing(&self, credential: &Credential) -> Option<&Arc<Holder>> {
        match credential {
            Credential::Device(id) => {
                self.index.device(id).filter(|entry| !entry.is_taken()).map(|entry| &entry.holder)
            }
            Credential::Token(id) => {
                let entry = self.index.token(id).filter(|_| self.state.is_on(FeatureFlag::ApiTokens));
                entry.filter(|entry| !entry.is_taken()).map(|entry| &entry.holder)
            }
        }
    }

    /// Whether somebody counts for something else than before a change: for less, for more, or not at all.
    #[must_use]
    pub fn differs_since(&self, before: &Self) -> bool {
        let devices = before.state.devices().map(|device| Credential::Device(device.id.clone()));
        let tokens = before.state.tokens().map(|token| Credential::Token(token.id.clone()));
        let told = |holder: &Arc<Holder>| (holder.principal.clone(), holder.membership.clone());
        devices
            .chain(tokens)
            .any(|credential| self.standing(&credential).map(told) != before.standing(&credential).map(told))
    }

    /// A state with the times of use that this snapshot knows of.
    pub(crate) fn with_use(&self, mut state: State) -> State {
        state.note_use(self.index.devices_seen(), self.index.tokens_used());
        state
    }
}

/// Credentials that do not count any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Devices.
    pub devices: BTreeSet<DeviceId>,
    /// Tokens.
    pub tokens: BTreeSet<TokenId>,
}

impl Ended {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.tokens.is_empty()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot(revision {})", self.revision)
    }
}
