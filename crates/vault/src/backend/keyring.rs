//! Keys in the keyring of the system.
//!
//! One kind for each system: the Secret Service on Linux (by D-Bus), the Keychain on macOS, and on Windows the user's credentials, which the
//! system protects with DPAPI. Guarantees: a keyring that is away or locked is an error, never an empty one.
//! Does not: start a keyring. Blocks while the keyring asks its user something, so it is not called on a thread that others wait for.

use std::{collections::HashMap, fmt, sync::Arc};

use keyring_core::{CredentialStore, Entry, Error};
use zeroize::Zeroizing;

use super::{BackendError, BackendKind, Blob, BlobBackend, BlobName};

/// Keys in the keyring of the system.
pub struct Keyring {
    store: Arc<CredentialStore>,
}

impl Keyring {
    /// The keyring of the session that this program was started in.
    ///
    /// # Errors
    /// When there is none.
    pub fn open() -> Result<Self, BackendError> {
        let store = open_store().map_err(refused)?;
        Ok(Self { store })
    }

    /// The keyring of this system, if its kind is the one that is asked for.
    ///
    /// # Errors
    /// When this system has another kind, or no keyring is there.
    pub fn of_kind(kind: BackendKind) -> Result<Self, BackendError> {
        if kind == BackendKind::of_this_system() { Self::open() } else { Err(BackendError::OtherSystem(kind)) }
    }

    fn entry(&self, name: &BlobName) -> Result<Entry, BackendError> {
        self.store.build(SERVICE, name.as_str(), Some(&HashMap::new())).map_err(refused)
    }
}

impl BlobBackend for Keyring {
    fn kind(&self) -> BackendKind {
        BackendKind::of_this_system()
    }

    fn get(&self, name: &BlobName) -> Result<Option<Blob>, BackendError> {
        match self.entry(name)?.get_secret() {
            Ok(secret) => Ok(Some(Zeroizing::new(secret))),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn put(&self, name: &BlobName, blob: &Blob) -> Result<(), BackendError> {
        self.entry(name)?.set_secret(blob).map_err(refused)
    }

    fn delete(&self, name: &BlobName) -> Result<(), BackendError> {
        match self.entry(name)?.delete_credential() {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring")
    }
}

#[cfg(target_os = "linux")]
fn open_store() -> Result<Arc<CredentialStore>, Error> {
    Ok(zbus_secret_service_keyring_store::Store::new()?)
}

#[cfg(target_os = "macos")]
fn open_store() -> Result<Arc<CredentialStore>, Error> {
    Ok(apple_native_keyring_store::keychain::Store::new()?)
}

#[cfg(target_os = "windows")]
fn open_store() -> Result<Arc<CredentialStore>, Error> {
    Ok(windows_native_keyring_store::Store::new()?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "windows")))]
fn open_store() -> Result<Arc<CredentialStore>, Error> {
    Err(Error::NotSupportedByStore("this system has no keyring that is known".to_owned()))
}

fn refused(error: Error) -> BackendError {
    match error {
        Error::NoStorageAccess(_) => BackendError::Locked,
        // SECURITY: an error may carry the blob that could not be read as a text. Its words do not.
        error => BackendError::NoKeyring(error.to_string()),
    }
}

/// What the entries of keyrings are filed under.
const SERVICE: &str = "palyra";
