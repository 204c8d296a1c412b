//! What can be asked of a daemon about its vault. Nothing that comes back holds a value.
//!
//! Guarantees: a request that carries a value or a passphrase is wiped when it has been sent.

use hyper::{Method, body::Bytes};
use palyra_api::vault::{
    Binding, ExportVault, ImportedVault, KeptSecret, NewBinding, PutSecret, RemoveSecret, Secret, Secrets, UnlockVault,
    VaultStatus,
};
use palyra_types::SecretRef;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{
    client::{Ask, Client, Wait, refusal},
    error::ClientError,
    query::{segment, with_query},
};

/// # Errors
/// Every method fails when the daemon cannot be asked, refuses, or answers something else than the wire types say.
impl Client {
    /// Whether the vault is open, and why not otherwise.
    ///
    /// # Errors
    /// See above.
    pub async fn vault(&self) -> Result<VaultStatus, ClientError> {
        self.ask(Ask::get("/api/v1/vault")).await
    }

    /// The secrets that there are.
    ///
    /// # Errors
    /// See above.
    pub async fn secrets(&self) -> Result<Secrets, ClientError> {
        self.ask(Ask::get("/api/v1/vault/secrets")).await
    }

    /// One secret.
    ///
    /// # Errors
    /// See above.
    pub async fn secret(&self, secret: &SecretRef) -> Result<Secret, ClientError> {
        self.ask(Ask::get(place(secret))).await
    }

    /// Puts a value.
    ///
    /// # Errors
    /// See above.
    pub async fn put_secret(&self, secret: &SecretRef, put: &PutSecret) -> Result<KeptSecret, ClientError> {
        self.ask(Ask::new(Method::PUT, place(secret)).bytes(sealed(put)?).wait(Wait::Long)).await
    }

    /// Removes a secret, or one of its versions.
    ///
    /// # Errors
    /// See above.
    pub async fn remove_secret(&self, secret: &SecretRef, how: &RemoveSecret) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::DELETE, with_query(&place(secret), how)).wait(Wait::Long)).await
    }

    /// Says where a secret may go.
    ///
    /// # Errors
    /// See above.
    pub async fn bind_secret(&self, new: &NewBinding) -> Result<Binding, ClientError> {
        self.ask(Ask::post("/api/v1/vault/bindings").json(new)?.wait(Wait::Long)).await
    }

    /// Says that a secret may go there no more.
    ///
    /// # Errors
    /// See above.
    pub async fn unbind_secret(&self, id: u64) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::DELETE, format!("/api/v1/vault/bindings/{id}")).wait(Wait::Long)).await
    }

    /// Seals everything under a new key.
    ///
    /// # Errors
    /// See above.
    pub async fn rotate_vault(&self) -> Result<VaultStatus, ClientError> {
        self.ask(Ask::post("/api/v1/vault/rotate").wait(Wait::Long)).await
    }

    /// Opens the vault.
    ///
    /// # Errors
    /// See above.
    pub async fn unlock_vault(&self, with: &UnlockVault) -> Result<VaultStatus, ClientError> {
        self.ask(Ask::post("/api/v1/vault/unlock").bytes(sealed(with)?).wait(Wait::Long)).await
    }

    /// Opens what is there, although the journal knows the vault otherwise.
    ///
    /// # Errors
    /// See above.
    pub async fn adopt_vault(&self, with: &UnlockVault) -> Result<VaultStatus, ClientError> {
        self.ask(Ask::post("/api/v1/vault/adopt").bytes(sealed(with)?).wait(Wait::Long)).await
    }

    /// A backup of everything that counts, encrypted, as text.
    ///
    /// # Errors
    /// See above.
    pub async fn export_vault(&self, to: &ExportVault) -> Result<String, ClientError> {
        let ask = Ask::post("/api/v1/vault/export").bytes(sealed(to)?).accept("text/plain").wait(Wait::Long);
        let (status, body) = self.exchange(ask).await?;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        String::from_utf8(body.into()).map_err(|_| ClientError::Protocol("the backup is no text".to_owned()))
    }

    /// Brings back what is in a backup that was decrypted.
    ///
    /// # Errors
    /// See above.
    pub async fn import_vault(&self, document: Zeroizing<Vec<u8>>) -> Result<ImportedVault, ClientError> {
        self.ask(Ask::post("/api/v1/vault/import").bytes(Bytes::from_owner(document)).wait(Wait::Long)).await
    }
}

fn place(secret: &SecretRef) -> String {
    format!("/api/v1/vault/secrets/{}/{}", segment(&secret.scope().to_string()), segment(secret.name()))
}

/// A body that is wiped when it has been sent.
fn sealed(body: &impl Serialize) -> Result<Bytes, ClientError> {
    // Roomy, so that it is not copied while it grows.
    let mut bytes = Zeroizing::new(Vec::with_capacity(ROOM));
    serde_json::to_writer(&mut *bytes, body).map_err(|error| ClientError::Protocol(error.to_string()))?;
    Ok(Bytes::from_owner(bytes))
}

/// More than most values take.
const ROOM: usize = 128 << 10;
