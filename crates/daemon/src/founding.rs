//! Founds who is let in: the registry with its owner, the authority, the owner's command line as the first device, and the agents' token.
//!
//! Guarantees: whoever may write the state directory becomes its owner, without meeting a pairing, and gets in again if their device is gone,
//! whatever became of them; each part is made once and whole, and a founding that broke off is taken up where it was; what is there is never
//! replaced, and a registry that vanished beside its authority is not begun anew. A device that was revoked stays revoked.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use palyra_access::{
    AccessRegistry, Actor, Credential, DeviceState, FeatureFlag, FileStore, FreshToken, Holder, Membership, NewDevice,
    NewToken, OpenError, Refusal, Scope, StoreError, TokenKind, TokenRefusal, TokenRotation, registry::FreshError,
};
use palyra_identity::{
    Address, Authority, AuthorityError, CertificateError, DeviceIdentity, KeepingError, RequestError, issue_device,
    new_device_key,
    private_file::{self, PrivateFileError},
    request_for,
};
use palyra_types::{Clock, Entropy, Principal, PrincipalId, PrincipalKind, WorkspaceRole};

use crate::{config::ListenSection, installation::Files};

/// Makes what is missing.
///
/// # Errors
/// When something cannot be made, or what is there is not in order.
pub(crate) fn found(
    files: &Files,
    listen: &ListenSection,
    (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>),
) -> Result<(), FoundingError> {
    let store = match FileStore::open(&files.registry) {
        Ok(store) => Arc::new(store),
        // A daemon is at work here, and looks after all of it.
        Err(StoreError::Held(_)) => return Ok(()),
        Err(error) => return Err(OpenError::from(error).into()),
    };
    // What a founding that was killed left beside its files may hold keys.
    for directory in [&files.registry, &files.authority].into_iter().filter_map(|file| file.parent()) {
        private_file::tidy(directory)?;
    }
    let founded = files.authority.exists();
    let opened = AccessRegistry::open(Arc::<FileStore>::clone(&store), Arc::clone(&clock), Arc::clone(&entropy));
    let registry = match opened {
        // SECURITY: a registry that is gone must not come back with everybody in it forgotten, those who were revoked included.
        Err(OpenError::Missing) if founded => return Err(FoundingError::Gone(files.registry.clone())),
        Err(OpenError::Missing) => AccessRegistry::create(store, Arc::clone(&clock), Arc::clone(&entropy), owner()?)?,
        opened => opened?,
    };
    // SECURITY: nor must an authority that is gone be followed by one that nobody knows.
    if !founded && registry.snapshot().state().devices().len() > 0 {
        return Err(FoundingError::Gone(files.authority.clone()));
    }
    let founding = Founding { files, listen, registry, clock, entropy };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(FoundingError::Runtime)?;
    runtime.block_on(founding.finish())
}

struct Founding<'a> {
    files: &'a Files,
    listen: &'a ListenSection,
    registry: AccessRegistry,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Founding<'_> {
    async fn finish(self) -> Result<(), FoundingError> {
        let authority = self.authority()?;
        self.device(&authority).await?;
        self.agent_token().await
    }

    fn authority(&self) -> Result<Authority, FoundingError> {
        let path = &self.files.authority;
        if !path.exists() {
            let made = Authority::create(self.clock.as_ref(), self.entropy.as_ref())?;
            private_file::write(path, made.to_document()?.as_bytes())?;
            return Ok(made);
        }
        let text = private_file::read(path, LONGEST)?;
        let text = std::str::from_utf8(&text).map_err(|_| FoundingError::Unreadable(path.clone()))?;
        Ok(Authority::parse(text)?)
    }

    /// The owner's command line on this machine, as a device. Its certificate is made anew here if it has run out, or comes from an authority
    /// that is trusted no more: whoever may write the state directory could make one themselves.
    async fn device(&self, authority: &Authority) -> Result<(), FoundingError> {
        let path = &self.files.device;
        let kept = if path.exists() { Some(DeviceIdentity::read(path)?) } else { None };
        let (key, request) = match &kept {
            Some(kept) => (kept.key.clone(), request_for(&kept.key)?),
            None => new_device_key()?,
        };
        let snapshot = self.registry.snapshot();
        let known = snapshot.state().devices().find(|device| device.key == request.key()).cloned();
        let id = match (&known, &kept) {
            (Some(known), Some(_)) if known.state == DeviceState::Revoked => return Ok(()),
            (Some(known), _) => known.id.clone(),
            (None, _) => self.registry.fresh_device_id()?,
        };
        let bundle = authority.bundle_pem();
        let is_sound = |kept: &DeviceIdentity| {
            let due = kept.renewal_is_due(self.clock.now()).unwrap_or(true);
            !due && kept.authorities == bundle && kept.device == id
        };
        if known.is_some() && kept.as_ref().is_some_and(is_sound) {
            return Ok(());
        }
        let certificate = issue_device(authority, &request, &id, self.clock.as_ref(), self.entropy.as_ref())?;
        let identity = DeviceIdentity {
            name: "local".to_owned(),
            address: self.address()?,
            authorities: bundle,
            certificate: certificate.pem.clone(),
            key,
            device: id.clone(),
            principal: founder()?.to_string(),
            role: Some(WorkspaceRole::Owner.to_string()),
        };
        // First the key, then who has it: a device that nobody knows is let in by the next founding, one that lost its key never comes back.
        identity.write(path)?;
        let (fingerprint, until) = (certificate.authority, certificate.validity.until);
        let follows = authority.bundle_fingerprint();
        let new = NewDevice {
            id: id.clone(),
            name: "this machine".to_owned(),
            principal: bare_founder()?,
            role: Some(WorkspaceRole::Owner),
            key: request.key(),
            observed: None,
            reported: None,
            authority: fingerprint,
            certificate_until: until,
            invitation: None,
        };
        let pending = self.registry.prepare(move |state, at| {
            match known {
                None => drop(state.readmit(new, at)?),
                Some(_) => drop(state.renew_device(&id, fingerprint, until)?),
            }
            state.follow(&id, follows)
        });
        pending.await?.commit().await.map_err(OpenError::from)?;
        Ok(())
    }

    /// The token of agents on this machine: made once, and followed by a new one before it runs out. One that somebody revoked stays so, and
    /// none is made while tokens are switched off, or nobody is left here who could answer for it.
    async fn agent_token(&self) -> Result<(), FoundingError> {
        let (snapshot, founder) = (self.registry.snapshot(), Actor::in_person(founder()?));
        let state = snapshot.state();
        if !state.is_on(FeatureFlag::ApiTokens) || state.standing(&founder).is_none() {
            return Ok(());
        }
        self.take_up_next()?;
        match self.kept(&self.files.agent_token)? {
            Some(Ok(holder)) => self.follow_up(&holder).await,
            None | Some(Err(TokenRefusal::Expired { .. } | TokenRefusal::Superseded { .. })) => self.mint().await,
            // SECURITY: one that is not known was known once, or comes from elsewhere. What was revoked long ago is not known any more, and
            // must not come back because its text is still there.
            Some(Err(_)) => Ok(()),
        }
    }

    /// What a token in a file counts for, if there is one.
    fn kept(&self, path: &Path) -> Result<Option<Result<Arc<Holder>, TokenRefusal>>, FoundingError> {
        if !path.exists() {
            return Ok(None);
        }
        let bytes = private_file::read(path, LONGEST)?;
        Ok(Some(self.registry.by_token(std::str::from_utf8(&bytes).unwrap_or_default().trim())))
    }

    /// Puts a token in its place that an earlier founding made and had no time to. One that it had no time to make known is none.
    fn take_up_next(&self) -> Result<(), FoundingError> {
        let next = &self.files.next_agent_token;
        match self.kept(next)? {
            None => Ok(()),
            Some(Ok(_)) => Ok(private_file::rename(next, &self.files.agent_token)?),
            Some(Err(_)) => Ok(private_file::remove(next)?),
        }
    }

    /// Writes down the text of a new token. It is in its place once the registry knows it, so that a text in that place was known once.
    fn write_next(&self) -> Result<FreshToken, FoundingError> {
        let (text, fresh) = self.registry.fresh_token(TokenKind::Agent)?;
        private_file::write(&self.files.next_agent_token, format!("{}\n", *text).as_bytes())?;
        Ok(fresh)
    }

    async fn mint(&self) -> Result<(), FoundingError> {
        let fresh = self.write_next()?;
        let agent = PrincipalId::parse("local").map_err(|error| FoundingError::Name(error.to_string()))?;
        let new = NewToken {
            name: "agents on this machine".to_owned(),
            principal: Principal::new(PrincipalKind::Agent, agent),
            role: None,
            workspaces: Membership::All,
            scopes: [Scope::CallsCreate, Scope::CallsRead].into(),
            channel: None,
            lifetime: AGENT_TOKEN_FOR,
            per_minute: Some(AGENT_TOKEN_PER_MINUTE),
            concurrent: Some(AGENT_TOKEN_AT_ONCE),
        };
        let actor = Actor::in_person(founder()?);
        let pending = self.registry.prepare(move |state, at| state.mint(&actor, new, fresh, at)).await?;
        pending.commit().await.map_err(OpenError::from)?;
        self.take_up_next()
    }

    /// Has a token that is about to run out followed by a new one. The old one works beside it as long as it would have.
    async fn follow_up(&self, holder: &Holder) -> Result<(), FoundingError> {
        let left = holder.expires.unix_millis().saturating_sub(self.clock.now().unix_millis());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        let Credential::Token(id) = holder.credential.clone() else { return Ok(()) };
        let snapshot = self.registry.snapshot();
        // Somebody may have had it followed by another already; when its own time is over, it is replaced.
        let followed = snapshot.state().token(&id).is_none_or(|token| token.superseded_at.is_some());
        if left > FOLLOW_UP_WITHIN || followed {
            return Ok(());
        }
        let fresh = self.write_next()?;
        let (actor, rotation) = (Actor::in_person(founder()?), TokenRotation { id, overlap: left, lifetime: None });
        let pending = self.registry.prepare(move |state, at| state.rotate(&actor, rotation, fresh, at)).await?;
        pending.commit().await.map_err(OpenError::from)?;
        self.take_up_next()
    }

    fn address(&self) -> Result<Address, FoundingError> {
        let reachable = self.listen.reachable();
        let local = || Address::parse(&format!("localhost:{}", self.listen.control.port()));
        reachable.map_or_else(local, Ok).map_err(|error| FoundingError::Name(error.to_string()))
    }
}

/// Whoever may write the state directory.
pub(crate) fn founder() -> Result<Principal, FoundingError> {
    let founder = bare_founder()?.with_roles([WorkspaceRole::Owner]);
    founder.map_err(|error| FoundingError::Name(error.to_string()))
}

fn bare_founder() -> Result<Principal, FoundingError> {
    Ok(Principal::new(PrincipalKind::User, owner()?))
}

fn owner() -> Result<PrincipalId, FoundingError> {
    PrincipalId::parse(OWNER).map_err(|error| FoundingError::Name(error.to_string()))
}

/// Why nobody can be let in.
#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    /// The registry was there, and is gone.
    #[error("{} is gone, and what it said about who is let in with it", .0.display())]
    Gone(PathBuf),
    /// The registry cannot be used.
    #[error(transparent)]
    Registry(#[from] OpenError),
    /// A rule of the registry refuses.
    #[error(transparent)]
    Rule(#[from] Refusal),
    /// The authority cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// It is no text.
    #[error("{} is not readable", .0.display())]
    Unreadable(PathBuf),
    /// A certificate cannot be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] RequestError),
    /// The device cannot be kept.
    #[error(transparent)]
    Device(#[from] KeepingError),
    /// A file cannot be kept.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// Nothing new can be named.
    #[error(transparent)]
    Fresh(#[from] FreshError),
    /// A name of the program's own is none.
    #[error("{0}")]
    Name(String),
    /// The system gives no threads.
    #[error(transparent)]
    Runtime(std::io::Error),
}

impl FoundingError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Gone(_) => {
                "restore it from a backup; to begin anew with nobody let in, move `identity` away as well".to_owned()
            }
            Self::Registry(error) => error.advice(),
            Self::Rule(refusal) => refusal.advice(),
            Self::Authority(error) => error.advice().to_owned(),
            Self::Unreadable(path) => format!("restore {} from a backup", path.display()),
            Self::Certificate(error) => error.advice().to_owned(),
            Self::Key(error) => error.advice().to_owned(),
            Self::Device(error) => error.advice().to_owned(),
            Self::File(error) => error.advice().to_owned(),
            Self::Fresh(_) => "the system gives no random numbers; try again".to_owned(),
            Self::Name(_) => "this is a broken build; install Palyra again".to_owned(),
            Self::Runtime(_) => "check the limits of this shell".to_owned(),
        }
    }
}

/// The name of whoever may write the state directory.
const OWNER: &str = "owner";

/// Longer than an authority is written.
const LONGEST: u64 = 64 << 10;

const AGENT_TOKEN_FOR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Agents on the daemon's own machine are bound by its other limits.
const AGENT_TOKEN_PER_MINUTE: u32 = 100_000;

const AGENT_TOKEN_AT_ONCE: u32 = 1_000;

/// How much is left of the agents' token when it is followed by a new one.
const FOLLOW_UP_WITHIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);
