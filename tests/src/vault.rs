//! Values to put into a daemon's vault, and what is in there in the end.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a vault that cannot be read ends the test")]

use std::{path::Path, sync::Arc};

use age::secrecy::ExposeSecret;
use palyra_api::vault::{Encoding, ExportVault, PutSecret};
use palyra_client::Client;
use palyra_types::{clock::SystemClock, entropy::SystemEntropy};
use palyra_vault::{
    Ground, NewSecret,
    backend::KeyFile,
    backup::{Backup, Opening},
};
use zeroize::Zeroizing;

/// A value as it is put, with nothing else said about it.
#[must_use]
pub fn value(text: &str) -> PutSecret {
    PutSecret {
        value: Zeroizing::new(text.to_owned()),
        encoding: Encoding::Utf8,
        expires_at: None,
        rotate_after_days: None,
        note: None,
    }
}

/// Where the vault of a laboratory is: sealed by a key in a file, both below this directory.
#[must_use]
pub fn ground(directory: &Path) -> Ground {
    Ground {
        directory: directory.join("vault"),
        backend: Arc::new(KeyFile::new(directory.join("keys"))),
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
        keep_versions: 1,
    }
}

/// What is in the vault, by way of a backup, since no route tells it: names, and values as text.
pub async fn contents(by: &Client) -> Vec<(String, String)> {
    let key = age::x25519::Identity::generate();
    let to = ExportVault { recipients: vec![key.to_public().to_string()], passphrase: None };
    let backup = by.export_vault(&to).await.unwrap();
    assert!(backup.starts_with("-----BEGIN AGE ENCRYPTED FILE-----"), "{backup}");
    let opening = Opening::Identities(Zeroizing::new(key.to_string().expose_secret().to_owned()));
    let backup = Backup::open(backup.as_bytes(), &opening).unwrap();
    let told = |new: &NewSecret| (new.secret.to_string(), String::from_utf8(new.value.expose().to_vec()).unwrap());
    backup.secrets.iter().map(told).collect()
}
