//! `/api/v1/vault`: how the vault is, and what concerns all of it.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use palyra_api::{
    ErrorBody,
    vault::{ExportVault, ImportedVault, KeptSecret, UnlockVault, VaultState as Told, VaultStatus},
};
use palyra_gate::safekeeping::{VaultRefusal, VaultState};
use palyra_types::WorkspaceRole;
use palyra_vault::{
    OpenError, VaultChange,
    backend::{BackendError, SHORTEST_PASSPHRASE},
    backup::{Backup, Sealing},
};

use super::secrets::reaches;
use crate::{
    app::App,
    caller::Caller,
    extract::{SaidInSecret, Sealed},
    failure::Failure,
    oversight::{count, holds_everywhere},
    reply::Reply,
};

/// Whether the vault is open, and why not otherwise.
#[utoipa::path(get, path = "/api/v1/vault", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = VaultStatus), (status = "4XX", body = ErrorBody)))]
pub(super) async fn status(State(app): State<Arc<App>>, caller: Caller) -> Reply<VaultStatus> {
    Reply(told(&app, &caller).await)
}

/// Seals everything under a new key.
#[utoipa::path(post, path = "/api/v1/vault/rotate", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = VaultStatus), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn rotate(State(app): State<Arc<App>>, caller: Caller) -> Result<Reply<VaultStatus>, Failure> {
    holds_everywhere(&caller)?;
    app.gate.change_vault(VaultChange::RotateKey, &caller.principal).await?;
    Ok(Reply(told(&app, &caller).await))
}

/// Opens the vault: with its passphrase, or by asking whoever else holds its key again. The first passphrase makes the vault.
#[utoipa::path(post, path = "/api/v1/vault/unlock", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    request_body = UnlockVault,
    responses((status = 200, body = VaultStatus), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn unlock(
    State(app): State<Arc<App>>,
    caller: Caller,
    SaidInSecret(said): SaidInSecret<UnlockVault>,
) -> Result<Reply<VaultStatus>, Failure> {
    holds_everywhere(&caller)?;
    app.vault.unlock(&app.gate, said.passphrase).await?;
    Ok(Reply(told(&app, &caller).await))
}

/// Opens what is there although the journal knows the vault otherwise: an older copy, another one, or none. An owner says so.
#[utoipa::path(post, path = "/api/v1/vault/adopt", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    request_body = UnlockVault,
    responses((status = 200, body = VaultStatus), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn adopt(
    State(app): State<Arc<App>>,
    caller: Caller,
    SaidInSecret(said): SaidInSecret<UnlockVault>,
) -> Result<Reply<VaultStatus>, Failure> {
    holds_everywhere(&caller)?;
    // SECURITY: whoever can put an old copy of the file in its place would have bindings and secrets back that were taken away.
    if caller.actor().role() != Some(WorkspaceRole::Owner) {
        let message = "only an owner says that this is the vault that is meant";
        return Err(Failure::new("above_own_role", message, "ask an owner"));
    }
    app.vault.adopt(&app.gate, said.passphrase, &caller.principal).await?;
    Ok(Reply(told(&app, &caller).await))
}

/// A backup of everything that counts, encrypted as age does, as text.
#[utoipa::path(post, path = "/api/v1/vault/export", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    request_body = ExportVault,
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn export(
    State(app): State<Arc<App>>,
    caller: Caller,
    SaidInSecret(said): SaidInSecret<ExportVault>,
) -> Result<Response, Failure> {
    holds_everywhere(&caller)?;
    let backup = app.gate.export_vault(sealing(said)?, &caller.principal).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], backup).into_response())
}

/// Brings back what is in a backup: the document, decrypted by whoever has the key.
#[utoipa::path(post, path = "/api/v1/vault/import", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    request_body = Object,
    responses((status = 200, body = ImportedVault), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn import(
    State(app): State<Arc<App>>,
    caller: Caller,
    Sealed(document): Sealed,
) -> Result<Reply<ImportedVault>, Failure> {
    holds_everywhere(&caller)?;
    let backup = Backup::read(&document).map_err(VaultRefusal::from)?;
    drop(document);
    let (added, left_out) = app.gate.import_vault(backup, &caller.principal).await?;
    let secrets = added.versions.into_iter().map(|(secret, version)| KeptSecret { secret, version }).collect();
    Ok(Reply(ImportedVault { secrets, bindings: count(added.bindings.len()), left_out: count(left_out) }))
}

fn sealing(said: ExportVault) -> Result<Sealing, Failure> {
    match (said.recipients.is_empty(), said.passphrase) {
        (false, None) => {
            // SECURITY: whoever mistakes the secret key for the public one must not find it in answers and in the journal.
            if !said.recipients.iter().all(|one| one.trim().starts_with("age1")) {
                let message = "a recipient is no public key of age";
                return Err(Failure::new("bad_recipient", message, "`age-keygen` prints one: it begins with `age1`"));
            }
            Ok(Sealing::Recipients(said.recipients))
        }
        (true, Some(words)) => match words.chars().count() {
            length if length < SHORTEST_PASSPHRASE => {
                let error = BackendError::WeakPassphrase { length };
                Err(VaultRefusal::from(OpenError::from(error)).into())
            }
            _ => Ok(Sealing::Passphrase(words)),
        },
        _ => {
            let message = "it is not said who can open the backup";
            Err(Failure::new("bad_recipient", message, "name `recipients`, or give a `passphrase`, and not both"))
        }
    }
}

async fn told(app: &App, caller: &Caller) -> VaultStatus {
    match &*app.gate.vault() {
        VaultState::Open(vault) => VaultStatus {
            state: Told::Open,
            backend: Some(vault.backend().to_string()),
            is_new: false,
            message: None,
            help: None,
            generation: Some(vault.head().generation),
            key: Some(vault.key_number()),
            secrets: Some(count(vault.list().iter().filter(|one| reaches(caller, &one.secret)).count())),
        },
        VaultState::Closed(closed) => VaultStatus {
            state: if closed.is_locked { Told::Locked } else { Told::Closed },
            backend: closed.backend.map(|backend| backend.to_string()),
            is_new: app.vault.is_new(&app.gate).await,
            message: Some(closed.message.clone()),
            help: Some(closed.advice.clone()),
            generation: None,
            key: None,
            secrets: None,
        },
    }
}
