//! `/api/v1/vault/secrets`: which secrets there are, and what is put there. No route answers with a value.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_api::{
    ErrorBody, schema,
    vault::{Encoding, KeptSecret, PutSecret, RemoveSecret, Secret, SecretVersion, Secrets},
};
use palyra_gate::{Refusal, safekeeping::VaultRefusal};
use palyra_types::{SecretRef, Timestamp, VaultScope};
use palyra_vault::{NewSecret, SecretDescription, SecretValue, VaultChange, VaultError};
use zeroize::Zeroizing;

use super::bindings;
use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, NamedSecret, SaidInSecret},
    failure::Failure,
    reply::Reply,
};

/// The secrets that there are, without their values.
#[utoipa::path(get, path = "/api/v1/vault/secrets", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Secrets), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Reply<Secrets>, Failure> {
    let now = app.clock.now();
    let seen = app.gate.secrets()?.into_iter().filter(|one| reaches(&caller, &one.secret));
    Ok(Reply(Secrets { secrets: seen.map(|one| told(one, now)).collect() }))
}

/// One secret, without its value.
#[utoipa::path(get, path = "/api/v1/vault/secrets/{scope}/{name}", tag = "vault",
    security(("bearer" = []), ("certificate" = [])),
    params(("scope" = schema::ScopeText, Path), ("name" = schema::SecretNameText, Path)),
    responses((status = 200, body = Secret), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSecret(secret): NamedSecret,
) -> Result<Reply<Secret>, Failure> {
    // Whether others have such a secret is not told.
    if !reaches(&caller, &secret) {
        return Err(VaultRefusal::Vault(VaultError::NoSecret(secret)).into());
    }
    Ok(Reply(told(app.gate.secret(&secret)?, app.clock.now())))
}

/// Puts a value: the first version of a secret, or the next one.
#[utoipa::path(put, path = "/api/v1/vault/secrets/{scope}/{name}", tag = "vault",
    security(("bearer" = []), ("certificate" = [])),
    params(("scope" = schema::ScopeText, Path), ("name" = schema::SecretNameText, Path)), request_body = PutSecret,
    responses((status = 200, body = KeptSecret), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn put(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSecret(secret): NamedSecret,
    SaidInSecret(said): SaidInSecret<PutSecret>,
) -> Result<Reply<KeptSecret>, Failure> {
    governs(&caller, &secret)?;
    let new = new_secret(secret.clone(), said)?;
    let change = VaultChange::Add { secrets: vec![new], bindings: Vec::new() };
    let added = app.gate.change_vault(change, &caller.principal).await?;
    let (_, version) = added.versions.into_iter().next().ok_or_else(|| Failure::internal("nothing was put"))?;
    Ok(Reply(KeptSecret { secret, version }))
}

/// Removes a secret with everything about it, or one of its versions.
#[utoipa::path(delete, path = "/api/v1/vault/secrets/{scope}/{name}", tag = "vault",
    security(("bearer" = []), ("certificate" = [])),
    params(("scope" = schema::ScopeText, Path), ("name" = schema::SecretNameText, Path), RemoveSecret),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamedSecret(secret): NamedSecret,
    Asked(RemoveSecret { version }): Asked<RemoveSecret>,
) -> Result<StatusCode, Failure> {
    governs(&caller, &secret)?;
    app.gate.change_vault(VaultChange::Remove { secret, version }, &caller.principal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether somebody's workspaces let them see a secret.
pub(super) fn reaches(caller: &Caller, secret: &SecretRef) -> bool {
    match (&caller.member_of, secret.scope()) {
        (None, _) => true,
        (Some(bound), VaultScope::Workspace(name)) => bound.contains(name),
        (Some(_), _) => false,
    }
}

/// Whether somebody's workspaces let them govern a secret. What they may do at all, policy was asked.
// SECURITY: what holds beyond a workspace is not for those who are bound to some.
pub(super) fn governs(caller: &Caller, secret: &SecretRef) -> Result<(), Failure> {
    if reaches(caller, secret) {
        return Ok(());
    }
    Err(Refusal::NotPermitted("the secret belongs beyond the workspaces that they belong to".to_owned()).into())
}

fn new_secret(secret: SecretRef, said: PutSecret) -> Result<NewSecret, Failure> {
    let PutSecret { mut value, encoding, expires_at, rotate_after_days, note } = said;
    let bytes = match encoding {
        Encoding::Utf8 => Zeroizing::new(std::mem::take(&mut *value).into_bytes()),
        // What is wrong with it is not told: the error would quote it.
        Encoding::Base64 => Zeroizing::new(
            BASE64_STANDARD
                .decode(value.as_bytes())
                .map_err(|_| Failure::new("bad_secret", "the value is not in base 64", "spell it with padding"))?,
        ),
    };
    if rotate_after_days.is_some_and(|days| days == 0 || days > MOST_DAYS) {
        return Err(Failure::new(
            "bad_secret",
            format!("`rotate_after_days` is 1 to {MOST_DAYS}"),
            "say how many days",
        ));
    }
    let mut bytes = bytes;
    let value = SecretValue::new(std::mem::take(&mut *bytes)).map_err(VaultError::from).map_err(VaultRefusal::from)?;
    Ok(NewSecret { secret, value, expires: expires_at, rotate_after_days, note })
}

fn told(one: SecretDescription, now: Timestamp) -> Secret {
    let (has_expired, is_due) = (one.has_expired(now), one.is_due(now));
    let newest = one.versions.first();
    Secret {
        version: newest.map_or(0, |newest| newest.number),
        created: newest.map_or(now, |newest| newest.created),
        expires_at: one.expires,
        has_expired,
        rotate_after_days: one.rotate_after_days,
        is_due,
        note: one.note,
        versions: one
            .versions
            .iter()
            .map(|version| SecretVersion { version: version.number, created: version.created })
            .collect(),
        bindings: one.bindings.iter().map(bindings::told).collect(),
        secret: one.secret,
    }
}

/// A hundred years.
const MOST_DAYS: u32 = 36_500;
