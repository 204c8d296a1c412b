//! A vault in a directory of its own, with a stand-in for the journal that remembers one head.

use std::{path::PathBuf, sync::Arc};

use palyra_types::{HostName, SecretRef, Timestamp, clock::ManualClock, entropy::SystemEntropy};
use palyra_vault::{
    Belief, BindingTerms, Ground, Head, NewSecret, OpenError, Opened, SecretValue, Staged, Vault, VaultChange,
    backend::{BlobBackend, KeyFile},
};
use tempfile::TempDir;

pub(crate) struct Place {
    pub(crate) directory: TempDir,
    pub(crate) clock: Arc<ManualClock>,
    /// What the journal knows.
    pub(crate) known: Option<Head>,
    pub(crate) keep_versions: usize,
}

impl Place {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_000_000)));
        Self { directory: tempfile::tempdir().unwrap(), clock, known: None, keep_versions: 1 }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("vault/secrets.vault")
    }

    pub(crate) fn next(&self) -> PathBuf {
        self.directory.path().join("vault/secrets.vault.next")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.directory.path().join("keys")
    }

    pub(crate) fn ground(&self) -> Ground {
        let backend: Arc<dyn BlobBackend> = Arc::new(KeyFile::new(self.keys()));
        Ground {
            directory: self.directory.path().join("vault"),
            backend,
            clock: Arc::<ManualClock>::clone(&self.clock),
            entropy: Arc::new(SystemEntropy),
            keep_versions: self.keep_versions,
        }
    }

    /// Opens the vault as the daemon does: the journal hears of what is new.
    pub(crate) fn open(&mut self) -> Arc<Vault> {
        let Opened { vault, .. } = self.try_open().unwrap();
        self.known = Some(vault.head());
        vault
    }

    pub(crate) fn try_open(&self) -> Result<Opened, OpenError> {
        Vault::open(self.ground(), Belief::Journal(self.known))
    }

    /// Makes a change as the daemon does: staged, known to the journal, confirmed.
    pub(crate) fn change(&mut self, vault: &Arc<Vault>, change: VaultChange) -> palyra_vault::Added {
        let staged: Staged = vault.stage(change).unwrap();
        assert_eq!(Some(staged.before()), self.known);
        self.known = Some(staged.after());
        let after = staged.after();
        let added = staged.confirm();
        assert_eq!(vault.head(), after);
        added
    }

    pub(crate) fn put(&mut self, vault: &Arc<Vault>, name: &str, value: &str) {
        self.change(vault, put(name, value));
    }
}

pub(crate) fn secret(name: &str) -> SecretRef {
    SecretRef::parse(&format!("global/{name}")).unwrap()
}

pub(crate) fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

pub(crate) fn new(name: &str, text: &str) -> NewSecret {
    NewSecret { secret: secret(name), value: value(text), expires: None, rotate_after_days: None, note: None }
}

pub(crate) fn put(name: &str, text: &str) -> VaultChange {
    VaultChange::Add { secrets: vec![new(name, text)], bindings: Vec::new() }
}

pub(crate) fn bind(name: &str, host: &str) -> VaultChange {
    let terms = BindingTerms::usual(secret(name), HostName::parse(host).unwrap());
    VaultChange::Add { secrets: Vec::new(), bindings: vec![terms] }
}

pub(crate) fn read(vault: &Vault, name: &str) -> Option<String> {
    vault.get(&secret(name)).ok().map(|lease| String::from_utf8(lease.value.expose().to_vec()).unwrap())
}
