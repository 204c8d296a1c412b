//! Opens the vault as it is configured: finds out who holds its key, and asks them.
//!
//! Guarantees: a vault is opened by whoever holds its key and by nobody in their place; a key that is in a file is there before the daemon
//! serves, and a keyring is asked while it serves already. Whatever keeps the vault closed keeps nothing else from working.
//! Does not: keep the vault. The gate does.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use palyra_gate::{
    Gate,
    safekeeping::{Closed, VaultRefusal, VaultState},
};
use palyra_identity::private_file;
use palyra_types::{Clock, Entropy, Principal, StateHome};
use palyra_vault::{
    BackendKind, BlobBackend, Ground, OpenError,
    backend::{BackendError, KeyFile, Keyring, Passphrase},
    recorded_backend,
};
use zeroize::Zeroizing;

use crate::{config::VaultSection, failure::Failure};

/// Opens the vault.
pub struct VaultOpener {
    section: VaultSection,
    directory: PathBuf,
    keys: PathBuf,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    word: VaultWord,
    /// Held by whoever opens it.
    opening: tokio::sync::Mutex<()>,
}

/// How the vault is, in a word, for those who learn no more than that.
#[derive(Clone)]
pub struct VaultWord(Arc<Mutex<&'static str>>);

impl Default for VaultWord {
    fn default() -> Self {
        Self(Arc::new(Mutex::new("closed")))
    }
}

impl VaultWord {
    /// The word.
    #[must_use]
    pub fn now(&self) -> &'static str {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: &VaultState) {
        let word = match state {
            VaultState::Open(_) => "open",
            VaultState::Closed(Closed { is_locked: true, .. }) => "locked",
            VaultState::Closed(_) => "closed",
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = word;
    }
}

/// Who holds the key, and what it takes to have it.
enum Holder {
    /// A file.
    File,
    /// A passphrase, which may stand in a file.
    Passphrase(Option<Zeroizing<String>>),
    /// The keyring of the system.
    Keyring(BackendKind),
    /// Nobody yet: the keyring of the system if one answers, else a file.
    Anybody,
}

impl VaultOpener {
    /// For the vault of a state directory.
    #[must_use]
    pub fn new(
        home: &StateHome,
        section: VaultSection,
        (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>),
        word: VaultWord,
    ) -> Self {
        let keys = section.key_directory.as_ref().map(|path| PathBuf::from(path.as_str()));
        let keys = keys.unwrap_or_else(|| home.path().join("identity").join("vault"));
        let directory = home.path().join("vault");
        Self { section, directory, keys, clock, entropy, word, opening: tokio::sync::Mutex::default() }
    }

    /// Opens it when the daemon starts, as far as that takes nobody: a passphrase that stands nowhere is waited for, and a keyring is asked
    /// in the background.
    pub async fn begin(self: &Arc<Self>, gate: &Gate) {
        match self.holder().await {
            Ok(Holder::Keyring(kind)) => self.begin_later(gate, Some(kind), Holder::Keyring(kind)),
            Ok(Holder::Anybody) => self.begin_later(gate, None, Holder::Anybody),
            Ok(Holder::Passphrase(None)) => match self.lost(gate).await {
                Some(lost) => self.close(gate, lost),
                None => self.close(gate, locked(self.is_new(gate).await)),
            },
            Ok(holder) => drop(self.open(gate, holder, None).await),
            Err(closed) => self.close(gate, closed),
        }
    }

    fn begin_later(self: &Arc<Self>, gate: &Gate, backend: Option<BackendKind>, holder: Holder) {
        self.close(gate, asking(backend));
        let (opener, gate) = (Arc::clone(self), gate.clone());
        tokio::spawn(async move {
            let _alone = opener.opening.lock().await;
            if !is_open(&gate) {
                let _ = opener.open(&gate, holder, None).await;
            }
        });
    }

    /// Opens it by somebody's wish: with their passphrase, or by asking whoever else holds the key again.
    ///
    /// # Errors
    /// When it does not open.
    pub async fn unlock(&self, gate: &Gate, passphrase: Option<Zeroizing<String>>) -> Result<(), Failure> {
        let _alone = self.opening.lock().await;
        if is_open(gate) {
            return Ok(());
        }
        self.open_with(gate, passphrase, None).await
    }

    /// Opens what is there by an owner's word, whatever the journal knows.
    ///
    /// # Errors
    /// When it is open already, or does not open all the same.
    pub async fn adopt(
        &self,
        gate: &Gate,
        passphrase: Option<Zeroizing<String>>,
        by: &Principal,
    ) -> Result<(), Failure> {
        let _alone = self.opening.lock().await;
        if is_open(gate) {
            return Err(Failure::new("vault_open", "the vault is open, so there is nothing to adopt", "use it"));
        }
        self.open_with(gate, passphrase, Some(by)).await
    }

    /// Whether there is no vault yet, and the journal knows of none.
    pub async fn is_new(&self, gate: &Gate) -> bool {
        !self.is_there().await && matches!(gate.known_vault().await, Ok(None))
    }

    /// Why it stays closed, if its file is gone: no passphrase helps then.
    async fn lost(&self, gate: &Gate) -> Option<Closed> {
        let known = gate.known_vault().await.ok()??;
        let error = OpenError::Missing { path: self.directory.join("secrets.vault"), known: known.generation };
        (!self.is_there().await).then(|| refused(Some(BackendKind::Passphrase), &error))
    }

    async fn is_there(&self) -> bool {
        let directory = self.directory.clone();
        let recorded = tokio::task::spawn_blocking(move || recorded_backend(&directory)).await;
        !matches!(recorded, Ok(Ok(None)))
    }

    async fn open_with(
        &self,
        gate: &Gate,
        passphrase: Option<Zeroizing<String>>,
        word: Option<&Principal>,
    ) -> Result<(), Failure> {
        let holder = match self.holder().await {
            Ok(holder) => holder,
            Err(closed) => {
                self.close(gate, closed.clone());
                return Err(VaultRefusal::Closed(closed).into());
            }
        };
        if let (Holder::Passphrase(_), None, Some(lost)) = (&holder, word, self.lost(gate).await) {
            self.close(gate, lost.clone());
            return Err(VaultRefusal::Closed(lost).into());
        }
        let holder = match (holder, passphrase) {
            (Holder::Passphrase(kept), given) => match given.or(kept) {
                None => return Err(no_passphrase()),
                words => Holder::Passphrase(words),
            },
            (holder, None) => holder,
            (_, Some(_)) => return Err(Failure::bad_request("no passphrase holds the key of this vault")),
        };
        Ok(self.open(gate, holder, word).await?)
    }

    /// Opens it, and says in the log what came of it.
    async fn open(&self, gate: &Gate, holder: Holder, word: Option<&Principal>) -> Result<(), VaultRefusal> {
        let opened = match self.backend(holder).await {
            Ok(backend) => {
                let ground = Ground {
                    directory: self.directory.clone(),
                    backend,
                    clock: Arc::clone(&self.clock),
                    entropy: Arc::clone(&self.entropy),
                    keep_versions: self.section.keep_versions.into(),
                };
                gate.open_vault(ground, word).await
            }
            Err((backend, error)) => {
                gate.close_vault(closed_by(backend, &error));
                Err(VaultRefusal::Open(OpenError::Backend(error)))
            }
        };
        // What the journal could not be told of leaves the vault as it was.
        if let (Err(VaultRefusal::Gate(refusal)), false) = (&opened, is_open(gate)) {
            gate.close_vault(Closed {
                backend: None,
                is_locked: false,
                message: refusal.to_string(),
                advice: refusal.advice(),
            });
        }
        self.tell(gate);
        opened
    }

    fn close(&self, gate: &Gate, closed: Closed) {
        gate.close_vault(closed);
        self.tell(gate);
    }

    fn tell(&self, gate: &Gate) {
        let state = gate.vault();
        self.word.set(&state);
        match &*state {
            VaultState::Open(vault) => {
                let (generation, secrets) = (vault.head().generation, vault.count());
                tracing::info!(backend = %vault.backend(), generation, secrets, "the vault is open");
            }
            VaultState::Closed(closed) if closed.is_locked => {
                tracing::info!(why = closed.message, "the vault is locked")
            }
            VaultState::Closed(closed) => {
                tracing::warn!(why = closed.message, help = closed.advice, "the vault is closed; all else works");
            }
        }
    }

    /// Who holds the key: whoever the vault's file names, who has to be the one that is configured, if one is.
    async fn holder(&self) -> Result<Holder, Closed> {
        let (directory, section) = (self.directory.clone(), self.section.clone());
        let found = tokio::task::spawn_blocking(move || find_holder(&directory, &section)).await;
        found.unwrap_or_else(|error| Err(closed(None, &error.to_string(), "try again: `palyra vault unlock`")))
    }

    async fn backend(&self, holder: Holder) -> Result<Arc<dyn BlobBackend>, (BackendKind, BackendError)> {
        let file = || Arc::new(KeyFile::new(self.keys.clone()));
        match holder {
            Holder::File => Ok(file()),
            Holder::Passphrase(words) => {
                let words = words.unwrap_or_default();
                let made = Passphrase::new(self.keys.clone(), words, Arc::clone(&self.entropy));
                Ok(Arc::new(made.map_err(|error| (BackendKind::Passphrase, error))?))
            }
            Holder::Keyring(kind) => Ok(Arc::new(keyring(kind).await.map_err(|error| (kind, error))?)),
            Holder::Anybody => match keyring(BackendKind::of_this_system()).await {
                Ok(keyring) => Ok(Arc::new(keyring)),
                Err(error) => {
                    tracing::info!(why = %error, "no keyring answers, so a file holds the key of the new vault");
                    Ok(file())
                }
            },
        }
    }
}

/// The keyring of the system, if it answers in time.
async fn keyring(kind: BackendKind) -> Result<Keyring, BackendError> {
    let (told, heard) = tokio::sync::oneshot::channel();
    // A thread of its own: one that never gets an answer must not keep the daemon from ending.
    std::thread::spawn(move || told.send(Keyring::of_kind(kind)));
    match tokio::time::timeout(KEYRING_PATIENCE, heard).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) | Err(_) => {
            Err(BackendError::NoKeyring(format!("nobody answered within {} seconds", KEYRING_PATIENCE.as_secs())))
        }
    }
}

fn find_holder(directory: &Path, section: &VaultSection) -> Result<Holder, Closed> {
    let recorded = recorded_backend(directory).map_err(|error| refused(None, &error))?;
    let kind = match (section.backend.named(), recorded) {
        (None, None) if has_session() => return Ok(Holder::Anybody),
        (None, None) => BackendKind::KeyFile,
        (Some(configured), Some(recorded)) if configured != recorded => {
            return Err(refused(Some(recorded), &OpenError::OtherBackend { recorded, configured }));
        }
        (Some(kind), _) | (None, Some(kind)) => kind,
    };
    Ok(match kind {
        BackendKind::KeyFile => Holder::File,
        BackendKind::Passphrase => Holder::Passphrase(passphrase(section)?),
        BackendKind::SecretService | BackendKind::Keychain | BackendKind::Dpapi => Holder::Keyring(kind),
    })
}

/// The passphrase that stands in a file, if one is configured.
fn passphrase(section: &VaultSection) -> Result<Option<Zeroizing<String>>, Closed> {
    let Some(path) = &section.passphrase_file else { return Ok(None) };
    let unusable = |message: &str, advice: &str| closed(Some(BackendKind::Passphrase), message, advice);
    let bytes = private_file::read(Path::new(path.as_str()), LONGEST_PASSPHRASE)
        .map_err(|error| unusable(&error.to_string(), error.advice()))?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| unusable(&format!("{path} is no text"), "write the passphrase there, in UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    Ok(Some(Zeroizing::new(text.strip_suffix('\r').unwrap_or(text).to_owned())))
}

/// Whether there may be a keyring: on Linux one is reached by the bus of a session.
fn has_session() -> bool {
    if BackendKind::of_this_system() != BackendKind::SecretService {
        return true;
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let bus = |directory| Path::new(&directory).join("bus").exists();
    set("DBUS_SESSION_BUS_ADDRESS").is_some() || set("XDG_RUNTIME_DIR").is_some_and(bus)
}

fn is_open(gate: &Gate) -> bool {
    matches!(&*gate.vault(), VaultState::Open(_))
}

fn refused(backend: Option<BackendKind>, error: &OpenError) -> Closed {
    closed(backend, &error.to_string(), error.advice())
}

fn closed_by(backend: BackendKind, error: &BackendError) -> Closed {
    let is_locked = matches!(error, BackendError::Locked | BackendError::WeakPassphrase { .. });
    Closed { is_locked, ..closed(Some(backend), &error.to_string(), error.advice()) }
}

fn closed(backend: Option<BackendKind>, message: &str, advice: &str) -> Closed {
    Closed { backend, is_locked: false, message: message.to_owned(), advice: advice.to_owned() }
}

fn locked(is_new: bool) -> Closed {
    let (message, advice) = match is_new {
        true => {
            ("there is none yet, and it is to have a passphrase", "choose one: `palyra vault unlock` makes the vault")
        }
        false => ("it waits for its passphrase", "run `palyra vault unlock`"),
    };
    let told = closed(Some(BackendKind::Passphrase), message, advice);
    Closed { is_locked: true, ..told }
}

fn asking(backend: Option<BackendKind>) -> Closed {
    let told = closed(backend, "the keyring is being asked for its key", "unlock the keyring if it asks you to");
    Closed { is_locked: true, ..told }
}

fn no_passphrase() -> Failure {
    Failure::new("no_passphrase", "a passphrase holds the key of the vault, and none was given", "send `passphrase`")
}

/// How long a keyring may take to answer at all.
const KEYRING_PATIENCE: Duration = Duration::from_secs(10);

/// Longer than a passphrase is.
const LONGEST_PASSPHRASE: u64 = 4 << 10;
