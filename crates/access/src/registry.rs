//! The registry that everybody shares.
//!
//! Guarantees: readers never wait; changes are made one after the other; a change is saved before it is in force, and if it cannot be saved
//! nothing changes. Whoever prepares a change can put it on record before it is made. A document that cannot be understood whole is refused
//! with its own error, never taken for empty.

use std::{num::NonZeroU32, sync::Arc};

use arc_swap::ArcSwap;
use palyra_types::{
    Clock, DeviceId, Entropy, NameError, ObjectId, PrincipalId, Sha256Digest, Timestamp, TokenId, entropy::NoEntropy,
};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use zeroize::Zeroizing;

use crate::{
    api_token::FreshToken,
    document::{self, DocumentError},
    holder::{Credential, DeviceRefusal, Holder, TokenRefusal},
    index::Surroundings,
    limits::DEFAULT_PRINCIPAL_RATE_LIMIT_PER_MINUTE,
    moment,
    snapshot::Snapshot,
    state::State,
    store::{RegistryStore, StoreError},
    token::{TokenKind, TokenText},
};

/// Who there is, what they may hold, what is switched on, and how fast tokens may go. Clones are the same registry.
#[derive(Clone)]
pub struct AccessRegistry {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn RegistryStore>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    principal_per_minute: NonZeroU32,
    current: ArcSwap<Snapshot>,
    /// Whoever holds it changes the registry.
    turn: Arc<Mutex<()>>,
    revisions: watch::Sender<u64>,
}

impl AccessRegistry {
    /// Opens what is in the store. Blocks.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be read or understood whole.
    pub fn open(
        store: Arc<dyn RegistryStore>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, OpenError> {
        let document = store.load()?.ok_or(OpenError::Missing)?;
        let (state, revision) = document::decode(&document)?;
        Ok(Self::start(state, revision, Parts { store, clock, entropy }))
    }

    /// Founds a registry of one owner, if there is none. Blocks.
    ///
    /// # Errors
    /// When there is one, or it cannot be told, or the new one cannot be saved.
    pub fn create(
        store: Arc<dyn RegistryStore>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        owner: PrincipalId,
    ) -> Result<Self, OpenError> {
        if store.load()?.is_some() {
            return Err(OpenError::Exists);
        }
        let state = State::found(owner, clock.now());
        store.save(&document::encode(&state, FIRST_REVISION)?)?;
        Ok(Self::start(state, FIRST_REVISION, Parts { store, clock, entropy }))
    }

    /// The same registry with another pace for each principal. To be called before it is shared: paces begin anew.
    #[must_use]
    pub fn with_principal_per_minute(self, per_minute: NonZeroU32) -> Self {
        let snapshot = self.snapshot();
        let parts = Parts {
            store: Arc::clone(&self.shared.store),
            clock: Arc::clone(&self.shared.clock),
            entropy: Arc::clone(&self.shared.entropy),
        };
        Self::start_at(snapshot.state().clone(), snapshot.revision(), parts, per_minute)
    }

    /// The registry as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.current.load_full()
    }

    /// How many changes there were.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.current.load().revision()
    }

    /// Tells the revision after every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.revisions.subscribe()
    }

    /// Whoever holds the device of this key.
    ///
    /// # Errors
    /// When the device is not good now.
    pub fn by_device_key(&self, key: &Sha256Digest) -> Result<Arc<Holder>, DeviceRefusal> {
        self.shared.current.load().by_device_key(key, self.shared.clock.now())
    }

    /// Whoever holds the token of this text.
    ///
    /// # Errors
    /// When the token is not good now.
    pub fn by_token(&self, text: &str) -> Result<Arc<Holder>, TokenRefusal> {
        self.shared.current.load().by_token(text, self.shared.clock.now())
    }

    /// Whether a credential is still good now. Does not count as use.
    #[must_use]
    pub fn is_good(&self, credential: &Credential) -> bool {
        self.shared.current.load().is_good(credential, self.shared.clock.now())
    }

    /// Works out a change and waits for nothing but changes before it. Nothing is changed until [`Pending::commit`], and no other change is
    /// prepared until then or until the pending one is dropped.
    ///
    /// # Errors
    /// When the change refuses.
    pub async fn prepare<T, E>(
        &self,
        change: impl FnOnce(&mut State, Timestamp) -> Result<T, E>,
    ) -> Result<Pending<T>, E> {
        let turn = Arc::clone(&self.shared.turn).lock_owned().await;
        let current = self.snapshot();
        let mut next = current.state().clone();
        let outcome = change(&mut next, moment::tellable(self.shared.clock.now()))?;
        let revision = current.revision().saturating_add(1);
        Ok(Pending { outcome, next, revision, turn, shared: Arc::clone(&self.shared) })
    }

    /// Saves when devices and tokens were last used, if that is news. Says whether it was. Is no change: the revision stays.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub async fn flush_use(&self) -> Result<bool, StoreError> {
        let turn = Arc::clone(&self.shared.turn).lock_owned().await;
        let current = self.snapshot();
        let next = current.with_use(current.state().clone());
        if next == *current.state() {
            return Ok(false);
        }
        put(Arc::clone(&self.shared), next, current.revision(), turn).await.map(|_| true)
    }

    /// Makes the text of a new token, and what it will be known by. It works once it is minted.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn fresh_token(&self, kind: TokenKind) -> Result<(Zeroizing<String>, FreshToken), FreshError> {
        let entropy = self.shared.entropy.as_ref();
        let (text, digest) = TokenText::generate(kind.into(), entropy)?;
        let id = TokenId::parse(&fresh_id("tok", entropy)?)?;
        Ok((text, FreshToken { id, digest }))
    }

    /// Makes the id of a new device.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn fresh_device_id(&self) -> Result<DeviceId, FreshError> {
        Ok(DeviceId::parse(&fresh_id("dev", self.shared.entropy.as_ref())?)?)
    }

    /// Makes the id of a new invitation.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn fresh_invitation_id(&self) -> Result<ObjectId, FreshError> {
        Ok(ObjectId::parse(&fresh_id("inv", self.shared.entropy.as_ref())?)?)
    }

    fn start(state: State, revision: u64, parts: Parts) -> Self {
        Self::start_at(state, revision, parts, DEFAULT_PRINCIPAL_RATE_LIMIT_PER_MINUTE)
    }

    fn start_at(state: State, revision: u64, parts: Parts, principal_per_minute: NonZeroU32) -> Self {
        let Parts { store, clock, entropy } = parts;
        let snapshot = Snapshot::first(state, revision, &Surroundings { clock: &clock, principal_per_minute });
        let shared = Shared {
            store,
            clock,
            entropy,
            principal_per_minute,
            current: ArcSwap::from_pointee(snapshot),
            turn: Arc::default(),
            revisions: watch::channel(revision).0,
        };
        Self { shared: Arc::new(shared) }
    }
}

impl std::fmt::Debug for AccessRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AccessRegistry(revision {})", self.revision())
    }
}

/// A change that is worked out but not made. Whoever drops it changes nothing.
#[must_use = "nothing is changed until it is committed"]
pub struct Pending<T> {
    outcome: T,
    next: State,
    revision: u64,
    turn: OwnedMutexGuard<()>,
    shared: Arc<Shared>,
}

impl<T> Pending<T> {
    /// What the change will have done.
    #[must_use]
    pub const fn outcome(&self) -> &T {
        &self.outcome
    }

    /// The revision that the registry will be at.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Saves the change, and then puts it in force. Once begun it goes on even if nobody waits for it.
    ///
    /// # Errors
    /// When it cannot be saved. What was in force still is.
    pub async fn commit(self) -> Result<T, StoreError> {
        self.commit_and_compare().await.map(|(outcome, _)| outcome)
    }

    /// The same, and tells what was in force before and right after the change, whatever has changed since.
    ///
    /// # Errors
    /// When it cannot be saved. What was in force still is.
    pub async fn commit_and_compare(self) -> Result<(T, Passage), StoreError> {
        let Self { outcome, next, revision, turn, shared } = self;
        let passage = put(shared, next, revision, turn).await?;
        Ok((outcome, passage))
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("outcome", &self.outcome).field("revision", &self.revision).finish()
    }
}

/// The registry before a change, and right after it.
#[derive(Debug, Clone)]
pub struct Passage {
    /// Before.
    pub before: Arc<Snapshot>,
    /// After.
    pub after: Arc<Snapshot>,
}

struct Parts {
    store: Arc<dyn RegistryStore>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

/// Saves a state and puts it in force, on a thread that may block. The turn ends there, so that nobody who stops waiting lets the next
/// change begin before this one is settled.
async fn put(
    shared: Arc<Shared>,
    state: State,
    revision: u64,
    turn: OwnedMutexGuard<()>,
) -> Result<Passage, StoreError> {
    let saving = move || {
        let current = shared.current.load_full();
        let state = current.with_use(state);
        // A mistake here must not become a document that the next start refuses.
        state.check()?;
        shared.store.save(&document::encode(&state, revision)?)?;
        let surroundings = Surroundings { clock: &shared.clock, principal_per_minute: shared.principal_per_minute };
        let next = Arc::new(current.next(state, revision, &surroundings));
        shared.current.store(Arc::clone(&next));
        shared.revisions.send_if_modified(|told| std::mem::replace(told, revision) != revision);
        drop(turn);
        Ok(Passage { before: current, after: next })
    };
    tokio::task::spawn_blocking(saving).await.unwrap_or(Err(StoreError::Interrupted))
}

/// An id that nobody else has: a word and 80 random bits, in letters that are not mistaken for each other.
fn fresh_id(word: &str, entropy: &dyn Entropy) -> Result<String, NoEntropy> {
    let mut random = [0; 16];
    entropy.fill(&mut random)?;
    let letter = |byte: u8| char::from(LETTERS.get(usize::from(byte % 32)).copied().unwrap_or(b'0'));
    Ok(format!("{word}-{}", String::from_iter(random.map(letter))))
}

/// Why something new cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreshError {
    /// No randomness.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    /// An id that is no name, which no id is.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Why there is no registry.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no document.
    #[error("there is no access registry")]
    Missing,
    /// There is one already.
    #[error("there is an access registry already")]
    Exists,
    /// It cannot be read, or the new one cannot be saved.
    #[error("the access registry cannot be read or written: {0}")]
    Store(#[from] StoreError),
    /// It cannot be understood.
    #[error("the access registry cannot be used: {0}")]
    Document(#[from] DocumentError),
}

impl OpenError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Missing => "restore it from a backup, or begin anew: `palyra init`".to_owned(),
            Self::Exists => "use the one there is".to_owned(),
            Self::Store(error) => error.advice(),
            Self::Document(error) => error.advice().to_owned(),
        }
    }
}

/// The revision of a registry that was just founded.
const FIRST_REVISION: u64 = 1;

/// The letters of ids: lower case, without those that look like digits or make words.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
