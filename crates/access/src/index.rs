//! The index of a snapshot: from a digest to whoever holds the credential.
//!
//! Guarantees: a lookup costs the same however many credentials there are, and allocates nothing; what a holder is worth is worked out
//! once per change, not once per request; digests are compared in constant time.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use palyra_types::{Clock, DeviceId, Principal, PrincipalKind, Sha256Digest, Timestamp, TokenId, WorkspaceRole};

use crate::{
    api_token::{ApiTokenRecord, DEFAULT_TOKEN_CONCURRENCY},
    device::{DeviceRecord, DeviceState},
    feature::FeatureFlag,
    holder::{Credential, DeviceRefusal, Holder, TokenRefusal},
    limits::{Family, Meter, Pace},
    member::Membership,
    scope::Scope,
    state::State,
};

/// What an index is built with, besides a state.
pub(crate) struct Surroundings<'a> {
    /// What the paces go by.
    pub(crate) clock: &'a Arc<dyn Clock>,
    /// The pace of a principal.
    pub(crate) principal_per_minute: NonZeroU32,
}

/// Who holds what.
#[derive(Default)]
pub(crate) struct Index {
    devices_by_key: ByDigest<DeviceEntry>,
    devices: HashMap<DeviceId, Arc<DeviceEntry>>,
    tokens_by_digest: ByDigest<TokenEntry>,
    tokens: HashMap<TokenId, Arc<TokenEntry>>,
    families: HashMap<TokenId, Arc<Family>>,
    principals: HashMap<Principal, Arc<Pace>>,
}

impl Index {
    /// Builds the index of a state. What counts on across changes (paces, slots, when something was last used) is taken from the one before.
    pub(crate) fn build(state: &State, before: &Self, surroundings: &Surroundings<'_>) -> Self {
        let mut index = Self::default();
        for device in state.devices() {
            let seen = before.devices.get(&device.id).map(|entry| Arc::clone(&entry.seen));
            let meter = index.device_meter(device, before, surroundings);
            let seen = seen.unwrap_or_else(|| Use::at(device.last_seen));
            let entry = Arc::new(DeviceEntry::new(state, device, meter, seen));
            index.devices_by_key.insert(device.key, &entry);
            index.devices.insert(device.id.clone(), entry);
        }
        for token in state.tokens() {
            let used = before.tokens.get(&token.id).map(|entry| Arc::clone(&entry.used));
            let meter = index.token_meter(token, before, surroundings);
            let used = used.unwrap_or_else(|| Use::at(token.last_used));
            let entry = Arc::new(TokenEntry::new(state, token, meter, used));
            index.tokens_by_digest.insert(token.digest, &entry);
            index.tokens.insert(token.id.clone(), entry);
        }
        index
    }

    pub(crate) fn device_by_key(&self, key: &Sha256Digest) -> Option<&DeviceEntry> {
        self.devices_by_key.get(key)
    }

    pub(crate) fn device(&self, id: &DeviceId) -> Option<&DeviceEntry> {
        self.devices.get(id).map(Arc::as_ref)
    }

    pub(crate) fn token_by_digest(&self, digest: &Sha256Digest) -> Option<&TokenEntry> {
        self.tokens_by_digest.get(digest)
    }

    pub(crate) fn token(&self, id: &TokenId) -> Option<&TokenEntry> {
        self.tokens.get(id).map(Arc::as_ref)
    }

    /// When each device was last seen.
    pub(crate) fn devices_seen(&self) -> impl Iterator<Item = (&DeviceId, Timestamp)> {
        self.devices.iter().filter_map(|(id, entry)| entry.seen.get().map(|at| (id, at)))
    }

    /// When each token was last used.
    pub(crate) fn tokens_used(&self) -> impl Iterator<Item = (&TokenId, Timestamp)> {
        self.tokens.iter().filter_map(|(id, entry)| entry.used.get().map(|at| (id, at)))
    }

    /// The limits of a program's device. A person's has none.
    // SECURITY: what an agent may do as a device must not be without the limits that its tokens have.
    fn device_meter(
        &mut self,
        device: &DeviceRecord,
        before: &Self,
        surroundings: &Surroundings<'_>,
    ) -> Option<Arc<Meter>> {
        if device.principal.kind() == PrincipalKind::User {
            return None;
        }
        let principal = self.principal_pace(&device.principal, before, surroundings);
        let kept = before.devices.get(&device.id).and_then(|entry| entry.holder.limits.clone());
        Some(kept.unwrap_or_else(|| {
            let per_minute = surroundings.principal_per_minute.get();
            let line = Family::new(per_minute, DEFAULT_TOKEN_CONCURRENCY, surroundings.clock);
            Arc::new(Meter::new(Arc::new(line), principal))
        }))
    }

    fn token_meter(&mut self, token: &ApiTokenRecord, before: &Self, surroundings: &Surroundings<'_>) -> Arc<Meter> {
        let family = self.families.entry(token.family.clone()).or_insert_with(|| {
            let kept = before.families.get(&token.family).map(Arc::clone);
            kept.unwrap_or_else(|| Arc::new(Family::new(token.per_minute, token.concurrent, surroundings.clock)))
        });
        let family = Arc::clone(family);
        Arc::new(Meter::new(family, self.principal_pace(&token.principal, before, surroundings)))
    }

    /// The pace of a principal, over all of its tokens and devices.
    fn principal_pace(&mut self, of: &Principal, before: &Self, surroundings: &Surroundings<'_>) -> Arc<Pace> {
        let pace = self.principals.entry(of.clone()).or_insert_with(|| {
            let kept = before.principals.get(of).map(Arc::clone);
            kept.unwrap_or_else(|| Arc::new(Pace::new(surroundings.principal_per_minute, surroundings.clock)))
        });
        Arc::clone(pace)
    }
}

/// A device as it counts now.
pub(crate) struct DeviceEntry {
    pub(crate) holder: Arc<Holder>,
    pub(crate) seen: Arc<Use>,
    key: Sha256Digest,
    /// What is wrong with it whatever the time.
    fault: Option<DeviceRefusal>,
}

impl DeviceEntry {
    fn new(state: &State, device: &DeviceRecord, limits: Option<Arc<Meter>>, seen: Arc<Use>) -> Self {
        let user = device.principal.id();
        let fault = match (&device.revoked, device.state) {
            (Some(revoked), _) => Some(DeviceRefusal::Revoked { at: revoked.at }),
            (None, DeviceState::Awaiting) => Some(DeviceRefusal::Awaiting),
            (None, _) if !answered_for(state, device) => Some(DeviceRefusal::Off(FeatureFlag::TeamMode)),
            (None, _) => None,
        };
        let role = device.role.and_then(|most| state.effective_role(user, most));
        // SECURITY: what was paired for an agent reaches no further than whoever paired it, just as a token and its minter.
        let minder = device.answered_by().and_then(|minder| state.member(&minder));
        let membership = minder.map_or_else(|| Membership::Only(BTreeSet::new()), |minder| minder.workspaces.clone());
        let holder = Holder {
            principal: with_role(&device.principal, role),
            membership,
            credential: Credential::Device(device.id.clone()),
            scopes: None,
            channel: None,
            limits,
            minted_by: None,
            expires: device.certificate_until,
        };
        Self { holder: Arc::new(holder), seen, key: device.key, fault }
    }

    /// Whether it was taken away, whatever the time.
    pub(crate) const fn is_taken(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether it is good at a time.
    pub(crate) fn check(&self, at: Timestamp) -> Result<(), DeviceRefusal> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.holder.expires <= at => Err(DeviceRefusal::Expired { at: self.holder.expires }),
            None => Ok(()),
        }
    }
}

/// A token as it counts now.
pub(crate) struct TokenEntry {
    pub(crate) holder: Arc<Holder>,
    pub(crate) used: Arc<Use>,
    digest: Sha256Digest,
    revoked_at: Option<Timestamp>,
    superseded_at: Option<Timestamp>,
    minter_belongs: bool,
}

impl TokenEntry {
    fn new(state: &State, token: &ApiTokenRecord, meter: Arc<Meter>, used: Arc<Use>) -> Self {
        let minter = token.minted_by.id();
        let role = token.role.and_then(|most| state.effective_role(minter, most));
        let bound = match token.principal.kind() {
            PrincipalKind::User => role,
            PrincipalKind::Agent | PrincipalKind::Service => state.effective_role(minter, WorkspaceRole::Owner),
        };
        let counts =
            |scope: &Scope| scope.is_reached_by(bound) && scope.feature().is_none_or(|feature| state.is_on(feature));
        let membership = match state.member(minter) {
            Some(member) => token.workspaces.and(&member.workspaces),
            None => Membership::Only(BTreeSet::new()),
        };
        let holder = Holder {
            principal: with_role(&token.principal, role),
            membership,
            credential: Credential::Token(token.id.clone()),
            scopes: Some(Arc::new(token.scopes.iter().copied().filter(counts).collect())),
            channel: token.channel.clone(),
            limits: Some(meter),
            minted_by: Some(token.minted_by.clone()),
            expires: token.expires,
        };
        Self {
            holder: Arc::new(holder),
            used,
            digest: token.digest,
            revoked_at: token.revoked.as_ref().map(|revoked| revoked.at),
            superseded_at: token.superseded_at,
            minter_belongs: state.belongs(minter),
        }
    }

    /// Whether it was taken away, whatever the time.
    pub(crate) const fn is_taken(&self) -> bool {
        self.revoked_at.is_some() || !self.minter_belongs
    }

    /// Whether it is good at a time.
    pub(crate) fn check(&self, at: Timestamp) -> Result<(), TokenRefusal> {
        if let Some(at) = self.revoked_at {
            return Err(TokenRefusal::Revoked { at });
        }
        if let Some(since) = self.superseded_at.filter(|&since| since <= at) {
            return Err(TokenRefusal::Superseded { at: since });
        }
        if self.holder.expires <= at {
            return Err(TokenRefusal::Expired { at: self.holder.expires });
        }
        if self.minter_belongs { Ok(()) } else { Err(TokenRefusal::MinterGone) }
    }
}

/// When something was last used. Written with every request and never goes back.
#[derive(Debug)]
pub(crate) struct Use(AtomicI64);

impl Use {
    fn at(last: Option<Timestamp>) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(last.map_or(NEVER, Timestamp::unix_millis))))
    }

    pub(crate) fn note(&self, at: Timestamp) {
        let at = crate::moment::tellable(at).unix_millis();
        // Whoever asks many times in a millisecond writes once.
        if self.0.load(Ordering::Relaxed) < at {
            self.0.fetch_max(at, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Option<Timestamp> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&at| at != NEVER).map(Timestamp::from_unix_millis)
    }
}

/// Something that is found by a digest of its own.
trait Digested {
    fn digest(&self) -> &Sha256Digest;
}

impl Digested for DeviceEntry {
    fn digest(&self) -> &Sha256Digest {
        &self.key
    }
}

impl Digested for TokenEntry {
    fn digest(&self) -> &Sha256Digest {
        &self.digest
    }
}

/// A map by digests whose time tells nothing about how much of a digest was right: it finds by the first 64 bits, which nobody can steer
/// because they are hashed, and then compares all of them.
struct ByDigest<T>(HashMap<u64, Vec<Arc<T>>>);

impl<T> Default for ByDigest<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Digested> ByDigest<T> {
    fn insert(&mut self, digest: Sha256Digest, entry: &Arc<T>) {
        self.0.entry(beginning(&digest)).or_default().push(Arc::clone(entry));
    }

    fn get(&self, digest: &Sha256Digest) -> Option<&T> {
        let found = self.0.get(&beginning(digest))?;
        found.iter().map(Arc::as_ref).find(|entry| is_equal(entry.digest(), digest))
    }
}

fn beginning(digest: &Sha256Digest) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Whether two digests are equal, in a time that does not depend on where they differ.
fn is_equal(one: &Sha256Digest, other: &Sha256Digest) -> bool {
    let pairs = one.as_bytes().iter().zip(other.as_bytes());
    std::hint::black_box(pairs.fold(0, |differences, (one, other)| differences | (one ^ other))) == 0
}

/// A principal with the role that counts. Agents and services hold none, whatever is said.
fn with_role(principal: &Principal, role: Option<WorkspaceRole>) -> Principal {
    let bare = Principal::new(principal.kind(), principal.id().clone());
    bare.clone().with_roles(role).unwrap_or(bare)
}

/// Stands for no time at all.
const NEVER: i64 = i64::MIN;

/// Whether whoever answers for a device belongs here.
fn answered_for(state: &State, device: &DeviceRecord) -> bool {
    device.answered_by().is_some_and(|minder| state.belongs(&minder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_told_apart_wherever_they_differ() {
        let one = Sha256Digest::of(b"one");
        assert!(is_equal(&one, &one.clone()));
        for place in 0..32 {
            let mut bytes = *one.as_bytes();
            bytes[place] ^= 1;
            assert!(!is_equal(&one, &Sha256Digest::from_bytes(bytes)), "byte {place}");
        }
    }

    #[test]
    fn use_never_goes_back() {
        let used = Use::at(None);
        assert_eq!(used.get(), None);
        used.note(Timestamp::from_unix_millis(5));
        used.note(Timestamp::from_unix_millis(3));
        assert_eq!(used.get(), Some(Timestamp::from_unix_millis(5)));
    }
}
