//! What handlers are handed: parsed bodies, queries and ids. Whatever does not parse is refused here, in the one shape of errors.
//!
//! Guarantees: a JSON body has one reading (no key twice, nothing behind its end, no unknown field), is not longer than it may be, came in
//! time, and from somebody who is still let in when it has come.

use std::{fmt::Display, str::FromStr, sync::Arc, time::Duration};

use axum::{
    RequestPartsExt,
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use palyra_types::{Json, SecretRef, VaultScope, json::Limits, name::SecretName};
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::{app::App, authorise, failure::Failure};

/// A JSON body, and the digest of its one spelling.
pub struct Said<T, const MOST: usize = SHORT_BODY> {
    /// What it says.
    pub said: T,
    /// The digest of its one spelling.
    pub digest: palyra_types::Sha256Digest,
}

impl<T: DeserializeOwned, const MOST: usize> FromRequest<Arc<App>> for Said<T, MOST> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let (parts, body) = request.into_parts();
        let bytes = read(body, MOST).await?;
        authorise::again(app, &parts)?;
        let limits = Limits { bytes: MOST, ..Limits::default() };
        let json = Json::parse(&bytes, limits)
            .map_err(|error| Failure::new("bad_json", error.to_string(), "send one JSON value, each key once"))?;
        // serde would read an array as an object whose keys are left out.
        if !json.value().is_object() {
            return Err(Failure::bad_request("the body is no JSON object"));
        }
        let digest = json.digest();
        let said =
            serde_json::from_value(json.into_value()).map_err(|error| Failure::bad_request(error.to_string()))?;
        Ok(Self { said, digest })
    }
}

/// A JSON body that holds a value or a passphrase: wiped once it was read, and never quoted.
pub struct SaidInSecret<T, const MOST: usize = SECRET_BODY>(pub T);

impl<T: DeserializeOwned, const MOST: usize> FromRequest<Arc<App>> for SaidInSecret<T, MOST> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let Sealed(bytes) = Sealed::<MOST>::from_request(request, app).await?;
        // SECURITY: what serde says about a wrong value quotes it. Where it is wrong is told, and what is there is not.
        let wrong = |error: &serde_json::Error| {
            let message =
                format!("the body is not what this takes, at line {} column {}", error.line(), error.column());
            Failure::new("bad_request", message, "`/openapi.json` describes every request")
        };
        serde_json::from_slice(&bytes).map(Self).map_err(|error| wrong(&error))
    }
}

/// A JSON object that holds values, as it came.
pub struct Sealed<const MOST: usize = BACKUP_BODY>(pub Zeroizing<Vec<u8>>);

impl<const MOST: usize> FromRequest<Arc<App>> for Sealed<MOST> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let (parts, body) = request.into_parts();
        let bytes = Zeroizing::new(read(body, MOST).await?);
        authorise::again(app, &parts)?;
        // serde would read an array as an object whose keys are left out.
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => Ok(Self(bytes)),
            _ => Err(Failure::bad_request("the body is no JSON object")),
        }
    }
}

/// The secret that a path names: its scope and its name, each a part of its own.
pub struct NamedSecret(pub SecretRef);

impl<S: Send + Sync> FromRequestParts<S> for NamedSecret {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Path((scope, name)) =
            parts.extract::<Path<(String, String)>>().await.map_err(|error| Failure::bad_request(error.body_text()))?;
        secret(&scope, &name).map(Self)
    }
}

/// A secret by its scope and its name.
pub(crate) fn secret(scope: &str, name: &str) -> Result<SecretRef, Failure> {
    let scope = VaultScope::parse(scope).map_err(|error| Failure::bad_request(error.to_string()))?;
    let name = SecretName::parse(name).map_err(|error| Failure::bad_request(error.to_string()))?;
    Ok(SecretRef::new(scope, name))
}

/// A query.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Query(asked) = Query::try_from_uri(&parts.uri).map_err(|error| Failure::bad_request(error.body_text()))?;
        Ok(Self(asked))
    }
}

/// An id or a number in the path.
pub struct Named<T>(pub T);

impl<S: Send + Sync, T: FromStr<Err: Display>> FromRequestParts<S> for Named<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Path(text) =
            parts.extract::<Path<String>>().await.map_err(|error| Failure::bad_request(error.body_text()))?;
        text.parse().map(Self).map_err(|error: T::Err| Failure::bad_request(error.to_string()))
    }
}

/// Reads a whole body, if it is not too long and not too slow.
async fn read(body: Body, most: usize) -> Result<Vec<u8>, Failure> {
    let reading = Limited::new(body, most).collect();
    match tokio::time::timeout(BODY_PATIENCE, reading).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(most)),
        Ok(Err(error)) => Err(Failure::bad_request(format!("the body broke off: {error}"))),
        Err(_) => {
            let message = format!("the body did not come within {} seconds", BODY_PATIENCE.as_secs());
            Err(Failure::new("too_slow", message, "send it in one go"))
        }
    }
}

/// The refusal of a body that is too long.
pub(crate) fn too_large(most: usize) -> Failure {
    Failure::new("too_large", format!("this body may have {most} bytes"), "send less")
}

fn not_json() -> Failure {
    Failure::new("not_json", "the body is not said to be JSON", "send `Content-Type: application/json`")
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The longest body that is read. A call's arguments may take half of it.
pub const LONGEST_BODY: usize = 2 << 20;

/// The longest body of most requests.
pub const SHORT_BODY: usize = 64 << 10;

/// The longest body with a value: the longest value, however it is spelt.
pub const SECRET_BODY: usize = 512 << 10;

/// The longest part of a backup of a vault that is read at once.
pub const BACKUP_BODY: usize = 16 << 20;

/// The longest body that is read from somebody without a credential.
pub const STRANGERS_BODY: usize = 1 << 10;

/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
