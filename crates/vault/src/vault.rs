//! The vault: names to values, one file.
//!
//! Guarantees: a value is read from the file and opened only when it is asked for, in the same time whatever else is there; what is opened is
//! what was put under this name, in this scope, as this version, or it is an error. Readers never wait for a change.
//! Does not: decide who may have a value. Whoever holds the vault has asked.

use std::{
    path::PathBuf,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_types::{Clock, SecretRef, ToolName, entropy::Entropy};

use crate::{
    backend::{BackendKind, BlobBackend},
    binding::Binding,
    contents::{Contents, SecretDescription, Version},
    error::VaultError,
    files,
    log::Head,
    seal::{Key, NotGenuine},
    value::SecretValue,
};

/// What a vault is made of, besides its file.
#[derive(Clone)]
pub struct Ground {
    /// Where the file is.
    pub directory: PathBuf,
    /// Who holds the key.
    pub backend: Arc<dyn BlobBackend>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// How many earlier versions of a secret are kept.
    pub keep_versions: usize,
}

/// A vault that is open.
pub struct Vault {
    pub(crate) ground: Ground,
    contents: RwLock<Contents>,
    /// Whether a change is under way.
    pub(crate) is_changing: AtomicBool,
}

/// A value, and which one it is. Wiped when it is dropped.
#[derive(Debug)]
pub struct Lease {
    /// The secret.
    pub secret: SecretRef,
    /// The version that the value is of.
    pub version: u32,
    /// The value.
    pub value: SecretValue,
}

impl Vault {
    pub(crate) fn new(ground: Ground, contents: Contents) -> Self {
        Self { ground, contents: RwLock::new(contents), is_changing: AtomicBool::new(false) }
    }

    /// How far it is.
    #[must_use]
    pub fn head(&self) -> Head {
        self.read().head
    }

    /// Who holds its key.
    #[must_use]
    pub fn backend(&self) -> BackendKind {
        self.read().header.backend
    }

    /// The how-manieth key it is sealed under.
    #[must_use]
    pub fn key_number(&self) -> u64 {
        self.read().header.key
    }

    /// The value of a secret: of its newest version.
    ///
    /// # Errors
    /// When there is no such secret, it has expired, or the file is not as it was.
    pub fn get(&self, secret: &SecretRef) -> Result<Lease, VaultError> {
        let contents = self.read();
        let version = contents.newest(secret).ok_or_else(|| VaultError::NoSecret(secret.clone()))?.clone();
        let reading = Reading::of(&contents);
        drop(contents);
        if let Some(at) = version.about.expires.filter(|&at| at <= self.ground.clock.now()) {
            return Err(VaultError::Expired { secret: secret.clone(), at });
        }
        reading.lease(&version)
    }

    /// Whether there is such a secret.
    #[must_use]
    pub fn has(&self, secret: &SecretRef) -> bool {
        self.read().secrets.contains_key(secret)
    }

    /// What is known of a secret.
    ///
    /// # Errors
    /// When there is no such secret.
    pub fn describe(&self, secret: &SecretRef) -> Result<SecretDescription, VaultError> {
        let contents = self.read();
        let versions = contents.secrets.get(secret).ok_or_else(|| VaultError::NoSecret(secret.clone()))?;
        Ok(SecretDescription::of(secret, versions, &contents.bindings))
    }

    /// What is known of all secrets, in the order of their names.
    #[must_use]
    pub fn list(&self) -> Vec<SecretDescription> {
        let contents = self.read();
        let told = |(secret, versions): (&SecretRef, &Vec<Version>)| {
            SecretDescription::of(secret, versions, &contents.bindings)
        };
        let mut all: Vec<SecretDescription> = contents.secrets.iter().map(told).collect();
        all.sort_by(|one, other| one.secret.cmp(&other.secret));
        all
    }

    /// Where a tool may send a secret.
    #[must_use]
    pub fn bindings_for(&self, secret: &SecretRef, tool: &ToolName) -> Vec<Binding> {
        let contents = self.read();
        let fits = |binding: &&Binding| binding.terms.secret == *secret && binding.terms.is_for(tool);
        contents.bindings.values().filter(fits).cloned().collect()
    }

    /// A binding, if it is still there.
    #[must_use]
    pub fn binding(&self, id: u64) -> Option<Binding> {
        self.read().bindings.get(&id).cloned()
    }

    /// How many secrets there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.read().secrets.len()
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the right to change it, which one has at a time.
    pub(crate) fn claim(&self) -> Result<(), VaultError> {
        match self.is_changing.swap(true, Ordering::AcqRel) {
            false => Ok(()),
            true => Err(VaultError::Busy),
        }
    }
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("directory", &self.ground.directory).finish_non_exhaustive()
    }
}

/// What it takes to read values, without holding anybody up.
pub(crate) struct Reading {
    file: Arc<std::fs::File>,
    key: Arc<Key>,
    vault: String,
}

impl Reading {
    pub(crate) fn of(contents: &Contents) -> Self {
        let (file, key) = (Arc::clone(&contents.file), Arc::clone(&contents.key));
        Self { file, key, vault: contents.header.vault.clone() }
    }

    /// Reads and opens a value.
    pub(crate) fn lease(&self, version: &Version) -> Result<Lease, VaultError> {
        let about = &version.about;
        let changed = |NotGenuine| VaultError::Changed(about.secret.clone());
        let key = self.data_key(version)?;
        let value = key.open(&about.about_value(&self.vault), &self.sealed(version)?).map_err(changed)?;
        let value = SecretValue::new(value.to_vec())?;
        Ok(Lease { secret: about.secret.clone(), version: about.version, value })
    }

    /// The key of a value.
    pub(crate) fn data_key(&self, version: &Version) -> Result<Key, VaultError> {
        let about = &version.about;
        let changed = || VaultError::Changed(about.secret.clone());
        let sealed = BASE64_STANDARD.decode(&about.key).map_err(|_| changed())?;
        let key = self.key.open(&about.about_key(&self.vault), &sealed).map_err(|NotGenuine| changed())?;
        Key::from_bytes(&key).ok_or_else(changed)
    }

    /// A value as it is in the file.
    pub(crate) fn sealed(&self, version: &Version) -> Result<Vec<u8>, VaultError> {
        let mut sealed = vec![0; version.length];
        match files::read_at(&self.file, &mut sealed, version.at) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(VaultError::Meddled),
            read => Ok(read.map(|()| sealed)?),
        }
    }
}
