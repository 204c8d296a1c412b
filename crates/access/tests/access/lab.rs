//! A registry in memory, with a clock that stands still and a disk that fails when it is told to.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use palyra_access::{
    AccessRegistry, Actor, FeatureFlag, FreshToken, Membership, NewDevice, NewInvitation, NewToken, Refusal,
    RegistryStore, Scope, State, StoreError, Switch, TokenKind, state::Invitee,
};
use palyra_types::{
    Clock, DeviceId, ObjectId, Principal, PrincipalId, Sha256Digest, Timestamp, TokenId, WorkspaceName, WorkspaceRole,
    clock::ManualClock, entropy::SeededEntropy,
};

/// A disk that keeps one document.
#[derive(Default)]
pub struct Disk {
    document: Mutex<Option<Vec<u8>>>,
    pub failing: AtomicBool,
    pub saves: AtomicU32,
}

impl Disk {
    pub fn holding(document: &[u8]) -> Arc<Self> {
        Arc::new(Self { document: Mutex::new(Some(document.to_owned())), ..Self::default() })
    }

    pub fn document(&self) -> Vec<u8> {
        self.document.lock().unwrap().clone().unwrap()
    }
}

impl RegistryStore for Disk {
    fn load(&self) -> Result<Option<Vec<u8>>, StoreError> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(broken());
        }
        Ok(self.document.lock().unwrap().clone())
    }

    fn save(&self, document: &[u8]) -> Result<(), StoreError> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(broken());
        }
        *self.document.lock().unwrap() = Some(document.to_owned());
        self.saves.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn broken() -> StoreError {
    StoreError::Io { path: PathBuf::from("disk"), source: io::Error::from(io::ErrorKind::StorageFull) }
}

pub struct Lab {
    pub registry: AccessRegistry,
    pub disk: Arc<Disk>,
    pub clock: Arc<ManualClock>,
}

impl Lab {
    /// ada alone.
    pub fn new() -> Self {
        let (disk, clock) = (Arc::<Disk>::default(), Arc::new(ManualClock::at(at(0))));
        let (store, entropy) = (Arc::<Disk>::clone(&disk), Arc::new(SeededEntropy::new(1)));
        let time: Arc<ManualClock> = Arc::clone(&clock);
        let registry = AccessRegistry::create(store, time, entropy, user("ada")).unwrap();
        Self { registry, disk, clock }
    }

    /// ada, who owns, bea, an admin, and cid, an operator.
    pub async fn team() -> Self {
        let lab = Self::new();
        let ada = actor("user:ada@owner");
        lab.change(|state, _| state.set_feature(&ada, FeatureFlag::TeamMode, Switch::On)).await;
        for (name, role) in [("bea", WorkspaceRole::Admin), ("cid", WorkspaceRole::Operator)] {
            lab.change(|state, at| state.invite(&ada, invitation(name, role), at)).await;
            lab.change(|state, at| state.join(&Invitee::User(user(name)), at)).await;
        }
        lab
    }

    /// The same registry, read again from its disk.
    pub fn reopened(&self) -> AccessRegistry {
        open(Arc::<Disk>::clone(&self.disk), &self.clock)
    }

    pub async fn change<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> Result<T, Refusal>) -> T {
        self.registry.prepare(change).await.unwrap().commit().await.unwrap()
    }

    /// Mints a token by somebody, and returns its text and its id.
    pub async fn mint(&self, by: &str, new: NewToken) -> (String, TokenId) {
        let (text, fresh) = self.fresh(new.principal.kind().into());
        let id = fresh.id.clone();
        self.change(|state, at| state.mint(&actor(by), new, fresh, at)).await;
        (text, id)
    }

    /// Pairs a device by somebody, and returns its key and its id.
    pub async fn pair(&self, by: &str, id: &str, of: &str, role: Option<WorkspaceRole>) -> (Sha256Digest, DeviceId) {
        let new = device(id, of, role);
        let (key, id) = (new.key, new.id.clone());
        self.change(|state, at| state.add_device(&actor(by), new, at)).await;
        self.change(|state, at| state.activate_device(&id, at)).await;
        (key, id)
    }

    pub fn fresh(&self, kind: TokenKind) -> (String, FreshToken) {
        let (text, fresh) = self.registry.fresh_token(kind).unwrap();
        (text.to_string(), fresh)
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

pub fn open(disk: Arc<Disk>, clock: &Arc<ManualClock>) -> AccessRegistry {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    AccessRegistry::open(disk, clock, Arc::new(SeededEntropy::new(1_000_000))).unwrap()
}

/// So many minutes after the beginning.
pub fn at(minutes: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + minutes * 60_000)
}

pub fn user(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

/// Such as `user:ada@owner`.
pub fn principal(text: &str) -> Principal {
    Principal::parse(text).unwrap()
}

pub fn actor(text: &str) -> Actor {
    Actor::in_person(principal(text))
}

pub fn only<const N: usize>(names: [&str; N]) -> Membership {
    Membership::Only(names.iter().map(|name| WorkspaceName::parse(name).unwrap()).collect())
}

pub fn invitation(name: &str, role: WorkspaceRole) -> NewInvitation {
    NewInvitation {
        id: ObjectId::parse(&format!("inv-{name}")).unwrap(),
        user: user(name),
        role,
        workspaces: Membership::All,
        lifetime: Duration::from_secs(3_600),
    }
}

pub fn device(id: &str, of: &str, role: Option<WorkspaceRole>) -> NewDevice {
    NewDevice {
        id: DeviceId::parse(id).unwrap(),
        name: id.to_owned(),
        principal: principal(of),
        role,
        key: Sha256Digest::of(id.as_bytes()),
        observed: None,
        reported: None,
        authority: Sha256Digest::of(b"authority"),
        certificate_until: at(60 * 24 * 60),
        invitation: None,
    }
}

/// A token that lives for an hour.
pub fn token<const N: usize>(of: &str, scopes: [Scope; N]) -> NewToken {
    NewToken {
        name: "a token".to_owned(),
        principal: principal(of),
        role: None,
        workspaces: Membership::All,
        scopes: BTreeSet::from(scopes),
        channel: None,
        lifetime: Duration::from_secs(3_600),
        per_minute: None,
        concurrent: None,
    }
}
