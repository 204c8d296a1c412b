//! The vault in the gate's hands: opened, changed, and told about in the journal.
//!
//! Guarantees: a change of the vault is on the disk before the journal knows of it, and in force only after; if nobody knows whether the
//! journal has it, nothing else is changed until that is known. What changes where secrets may go is heard of by every call, those that wait and
//! those that run. Names are recorded, never values.
//! Refuses: to use a vault whose file is not the one that the journal knows. Everything that needs no secret goes on meanwhile.
//! Does not: ask whether somebody may. Whoever serves a request asks policy first.

use std::sync::Arc;

use palyra_journal::{
    CommitError, RecordKind, Subject,
    state::{Change, VaultRow},
};
use palyra_types::{Principal, SecretRef, ToolName, visible::visible};
use palyra_vault::{
    Added, BackendKind, Belief, Binding, Ground, Head, OpenError, Opened, SecretDescription, Staged, Vault,
    VaultChange, VaultError,
    backup::{Backup, BackupError, Sealing},
};
use serde::Serialize;
use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{
    gate::{Gate, Inner, internal},
    refusal::Refusal,
};

/// The vault, if it is open, and why not otherwise.
#[derive(Debug, Clone)]
pub enum VaultState {
    /// It is open.
    Open(Arc<Vault>),
    /// It is not.
    Closed(Closed),
}

/// Why the vault is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Who holds its key.
    pub backend: Option<BackendKind>,
    /// Whether it waits for a passphrase or for a keyring to be unlocked, and nothing is wrong.
    pub is_locked: bool,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

/// What the gate keeps of a vault.
pub(crate) struct Safekeeping {
    pub(crate) state: arc_swap::ArcSwap<VaultState>,
    /// Held by whoever changes it. What it holds is a change of which it is not known whether the journal has it.
    changing: Mutex<Option<Staged>>,
}

impl Default for Safekeeping {
    fn default() -> Self {
        let closed = Closed {
            backend: None,
            is_locked: false,
            message: "there is no vault here".to_owned(),
            advice: "start the daemon, which makes one".to_owned(),
        };
        Self { state: arc_swap::ArcSwap::from_pointee(VaultState::Closed(closed)), changing: Mutex::default() }
    }
}

impl Gate {
    /// The vault, if it is open, and why not otherwise.
    #[must_use]
    pub fn vault(&self) -> Arc<VaultState> {
        self.inner.vault.state.load_full()
    }

    /// Opens the vault, or makes the first one. By an owner's word also one that the journal knows otherwise.
    ///
    /// # Errors
    /// When it cannot be opened. It is closed then, and says why.
    pub async fn open_vault(&self, ground: Ground, word: Option<&Principal>) -> Result<(), VaultRefusal> {
        let gate = self.clone();
        let word = word.cloned();
        // To its end, whoever goes away meanwhile.
        let opening = tokio::spawn(async move { gate.inner.open_vault(ground, word).await });
        opening.await.map_err(|error| VaultRefusal::Gate(internal(error)))?
    }

    /// Says why the vault is not open, while nothing was tried.
    pub fn close_vault(&self, closed: Closed) {
        self.inner.vault.state.store(Arc::new(VaultState::Closed(closed)));
        self.inner.policies.send_modify(|count| *count += 1);
    }

    /// Changes the vault.
    ///
    /// # Errors
    /// When it cannot be. Nothing has changed then, unless the journal is in trouble: then nobody knows before it is back.
    pub async fn change_vault(&self, change: VaultChange, by: &Principal) -> Result<Added, VaultRefusal> {
        let (gate, by) = (self.clone(), by.clone());
        let changing = tokio::spawn(async move { gate.inner.change_vault(change, &by).await });
        changing.await.map_err(|error| VaultRefusal::Gate(internal(error)))?
    }

    /// A backup of everything that counts.
    ///
    /// # Errors
    /// When it cannot be made or recorded.
    pub async fn export_vault(&self, sealing: Sealing, by: &Principal) -> Result<Vec<u8>, VaultRefusal> {
        let vault = self.inner.opened_vault()?;
        let secrets = vault.count();
        let to = match &sealing {
            Sealing::Recipients(recipients) => recipients.iter().map(|one| visible(one)).collect(),
            Sealing::Passphrase(_) => vec!["a passphrase".to_owned()],
        };
        let made = spawn_blocking(move || vault.export(&sealing)).await;
        let backup = made.map_err(|error| VaultRefusal::Gate(internal(error)))??;
        let body = serde_json::json!({ "by": by.to_string(), "secrets": secrets, "to": to });
        self.inner.tell(RecordKind::VaultExported, &body).await?;
        Ok(backup)
    }

    /// Brings back what is in a backup, and tells how much of it was left out because it is there already or has expired.
    ///
    /// # Errors
    /// As [`Self::change_vault`].
    pub async fn import_vault(&self, backup: Backup, by: &Principal) -> Result<(Added, usize), VaultRefusal> {
        let (change, left_out) = backup.into_change(self.inner.opened_vault()?.as_ref());
        Ok((self.change_vault(change, by).await?, left_out))
    }

    /// How far the vault is that the journal knows of, if it knows of one.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn known_vault(&self) -> Result<Option<Head>, Refusal> {
        Ok(self.inner.store.vault().await.map_err(Refusal::from)?.map(head))
    }

    /// What is known of all secrets, in the order of their names.
    ///
    /// # Errors
    /// When the vault is not open.
    pub fn secrets(&self) -> Result<Vec<SecretDescription>, VaultRefusal> {
        Ok(self.inner.opened_vault()?.list())
    }

    /// What is known of a secret.
    ///
    /// # Errors
    /// When the vault is not open, or there is no such secret.
    pub fn secret(&self, secret: &SecretRef) -> Result<SecretDescription, VaultRefusal> {
        Ok(self.inner.opened_vault()?.describe(secret)?)
    }
}

impl Inner {
    /// The vault, if it is open.
    pub(crate) fn opened_vault(&self) -> Result<Arc<Vault>, VaultRefusal> {
        match &*self.vault.state.load_full() {
            VaultState::Open(vault) => Ok(Arc::clone(vault)),
            VaultState::Closed(closed) => Err(VaultRefusal::Closed(closed.clone())),
        }
    }

    /// Where a tool may send a secret, as of now. Nowhere, if there is no such secret or no vault.
    pub(crate) fn bindings_for(&self, secret: &SecretRef, tool: &ToolName) -> Vec<Binding> {
        self.opened_vault().map(|vault| vault.bindings_for(secret, tool)).unwrap_or_default()
    }

    async fn open_vault(&self, ground: Ground, word: Option<Principal>) -> Result<(), VaultRefusal> {
        let mut changing = self.vault.changing.lock().await;
        let known = self.store.vault().await.map_err(Refusal::from)?;
        let belief = match &word {
            Some(_) => Belief::File,
            None => Belief::Journal(known.map(head)),
        };
        let backend = ground.backend.kind();
        let opened = spawn_blocking(move || Vault::open(ground, belief)).await;
        let opened = opened.map_err(|error| VaultRefusal::Gate(internal(error)))?;
        let Opened { vault, is_news } = match opened {
            Ok(opened) => opened,
            Err(error) => return Err(self.refuse_vault(backend, error).await),
        };
        let to = row(vault.head());
        if is_news && known != Some(to) {
            let body = Told {
                by: word.as_ref().map(ToString::to_string),
                generation: to.generation,
                backend: Some(backend),
                adopted: word.is_some().then_some(true),
                ..Told::default()
            };
            let record = self.record(RecordKind::VaultOpened, Subject::default(), &body)?;
            self.commit(vec![record], vec![Change::SetVault { from: known, to }]).await.map_err(Refusal::from)?;
        }
        // Whatever was not known of the vault that was open before is known now: this one was opened by what the journal says.
        *changing = None;
        self.vault.state.store(Arc::new(VaultState::Open(vault)));
        self.policies.send_modify(|count| *count += 1);
        Ok(())
    }

    /// The vault stays closed, and the journal hears why.
    async fn refuse_vault(&self, backend: BackendKind, error: OpenError) -> VaultRefusal {
        use palyra_vault::backend::BackendError;
        let is_locked = matches!(error, OpenError::Backend(BackendError::Locked | BackendError::WrongPassphrase));
        let closed =
            Closed { backend: Some(backend), is_locked, message: error.to_string(), advice: error.advice().to_owned() };
        self.vault.state.store(Arc::new(VaultState::Closed(closed)));
        let body = Told { backend: Some(backend), refused: Some(error.to_string()), ..Told::default() };
        // The daemon says it in any case.
        let _ = self.tell(RecordKind::VaultOpened, &body).await;
        VaultRefusal::Open(error)
    }

    async fn change_vault(&self, change: VaultChange, by: &Principal) -> Result<Added, VaultRefusal> {
        let mut uncertain = self.vault.changing.lock().await;
        self.settle_vault(&mut uncertain).await?;
        let vault = self.opened_vault()?;
        let mut told = Told::of(&change);
        let staged = spawn_blocking(move || vault.stage(change)).await;
        let staged = staged.map_err(|error| VaultRefusal::Gate(internal(error)))??;
        told.complete(by, &staged);
        let record = match self.record(RecordKind::VaultChanged, Subject::default(), &told) {
            Ok(record) => record,
            Err(refusal) => {
                undo(staged).await;
                return Err(refusal.into());
            }
        };
        let (from, to) = (Some(row(staged.before())), row(staged.after()));
        match self.commit(vec![record], vec![Change::SetVault { from, to }]).await {
            Ok(_) => {
                let added = confirm(staged).await?;
                self.policies.send_modify(|count| *count += 1);
                Ok(added)
            }
            Err(error @ CommitError::Conflict(_)) => {
                undo(staged).await;
                Err(Refusal::from(error).into())
            }
            Err(error) => {
                // It may be on the disk all the same.
                *uncertain = Some(staged);
                Err(Refusal::from(error).into())
            }
        }
    }

    /// Finds out whether the journal has a change of which that is not known.
    async fn settle_vault(&self, uncertain: &mut Option<Staged>) -> Result<(), VaultRefusal> {
        let Some(staged) = uncertain.take() else { return Ok(()) };
        let known = match self.store.vault().await {
            // The trouble is over, as far as reading tells; what was being written then is on the disk or will never be.
            Ok(known) if self.store.trouble().is_none() => known,
            other => {
                *uncertain = Some(staged);
                return match other {
                    Err(error) => Err(Refusal::from(error).into()),
                    Ok(_) => Err(self
                        .store
                        .trouble()
                        .map_or(VaultRefusal::Vault(VaultError::Busy), |trouble| Refusal::Journal(trouble).into())),
                };
            }
        };
        if known == Some(row(staged.after())) {
            confirm(staged).await?;
            self.policies.send_modify(|count| *count += 1);
        } else {
            undo(staged).await;
        }
        Ok(())
    }
}

/// Why something cannot be done with the vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultRefusal {
    /// It is not open.
    #[error("the vault is not open: {}", .0.message)]
    Closed(Closed),
    /// It does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The vault says no.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The backup is none.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// It cannot be recorded, so it is not done.
    #[error(transparent)]
    Gate(#[from] Refusal),
}

impl VaultRefusal {
    /// Whether the vault only waits to be unlocked.
    pub(crate) const fn is_locked(&self) -> bool {
        matches!(self, Self::Closed(Closed { is_locked: true, .. }))
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Closed(closed) => closed.advice.clone(),
            Self::Open(error) => error.advice().to_owned(),
            Self::Vault(error) => error.advice().to_owned(),
            Self::Backup(error) => error.advice().to_owned(),
            Self::Gate(refusal) => refusal.advice(),
        }
    }
}

/// What the journal is told about a change. Names, never values.
#[derive(Debug, Default, Serialize)]
struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    generation: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    put: Vec<ToldVersion>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bound: Vec<Binding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unbound: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rekeyed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<BackendKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adopted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct ToldVersion {
    secret: SecretRef,
    version: u32,
}

impl Told {
    fn of(change: &VaultChange) -> Self {
        match change {
            VaultChange::Add { .. } => Self::default(),
            VaultChange::Remove { secret, version } => {
                Self { removed: Some(secret.clone()), version: *version, ..Self::default() }
            }
            VaultChange::Unbind(id) => Self { unbound: Some(*id), ..Self::default() },
            VaultChange::RotateKey => Self { rekeyed: Some(true), ..Self::default() },
        }
    }

    fn complete(&mut self, by: &Principal, staged: &Staged) {
        let version = |(secret, version): &(SecretRef, u32)| ToldVersion { secret: secret.clone(), version: *version };
        self.by = Some(by.to_string());
        self.generation = staged.after().generation;
        self.put = staged.added().versions.iter().map(version).collect();
        self.bound = staged.added().bindings.clone();
    }
}

/// In a thread of its own: it waits for the disk.
async fn confirm(staged: Staged) -> Result<Added, VaultRefusal> {
    spawn_blocking(move || staged.confirm()).await.map_err(|error| VaultRefusal::Gate(internal(error)))
}

async fn undo(staged: Staged) {
    let _ = spawn_blocking(move || staged.undo()).await;
}

const fn row(head: Head) -> VaultRow {
    VaultRow { generation: head.generation, digest: head.digest }
}

const fn head(row: VaultRow) -> Head {
    Head { generation: row.generation, digest: row.digest }
}
