//! What handlers are handed: parsed bodies, queries and ids. Whatever does not parse is refused here, in the one shape of errors.
//!
//! Guarantees: a JSON body has one reading (no key twice, nothing behind its end, no unknown field), is not longer and holds no more values
//! than it may, came in time, and from somebody who is still let in when it has come.

use std::{fmt::Display, str::FromStr, sync::Arc, time::Duration};

use axum::{
    RequestPartsExt,
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use palyra_api::skill::NewSkill;
use palyra_package::PackageId;
use palyra_types::{
    Json, SecretRef, Sha256Digest, VaultScope,
    json::{self, JsonError, JsonFault, Limits},
    name::SecretName,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

use crate::{app::App, authorise, failure::Failure};

/// A JSON body, and the digest of its one spelling.
pub struct Said<T, const MOST: usize = SHORT_BODY> {
    /// What it says.
    pub said: T,
    /// The digest of its one spelling.
    pub digest: Sha256Digest,
}

impl<T: DeserializeOwned, const MOST: usize> FromRequest<Arc<App>> for Said<T, MOST> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let (parts, body) = request.into_parts();
        let bytes = read(body, MOST, BODY_PATIENCE).await?;
        authorise::again(app, &parts)?;
        let json = Json::parse(&bytes, limits(MOST)).map_err(|error| unreadable(&error))?;
        if !json.value().is_object() {
            return Err(no_object());
        }
        let digest = json.digest();
        let said =
            serde_json::from_value(json.into_value()).map_err(|error| Failure::bad_request(error.to_string()))?;
        Ok(Self { said, digest })
    }
}

/// A JSON object for a model: whatever fields it has, and no digest, because nobody proposes it a second time by a key.
pub struct Heard(pub Map<String, Value>);

impl FromRequest<Arc<App>> for Heard {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let (parts, body) = request.into_parts();
        let bytes = read(body, FACADE_BODY, BODY_PATIENCE).await?;
        authorise::again(app, &parts)?;
        object_in(&bytes, FACADE_BODY).map(Self)
    }
}

/// What a hook hands over: a JSON object, or why it is none.
pub struct Handed(pub Result<Map<String, Value>, Garbled>);

/// Something that is no JSON object.
pub struct Garbled {
    /// Why it is none. The words may quote it.
    pub failure: Failure,
    /// The digest of what came, if all of it did.
    pub sha256: Option<Sha256Digest>,
}

impl FromRequest<Arc<App>> for Handed {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let is_json = is_json(request.headers());
        let (parts, body) = request.into_parts();
        let came = read(body, LONGEST_BODY, BODY_PATIENCE).await;
        authorise::again(app, &parts)?;
        let bytes = match came {
            Ok(bytes) => bytes,
            Err(failure) => return Ok(Self(Err(Garbled { failure, sha256: None }))),
        };
        let object = if is_json { object_in(&bytes, LONGEST_BODY) } else { Err(not_json()) };
        Ok(Self(object.map_err(|failure| Garbled::of(failure, &bytes))))
    }
}

impl Garbled {
    fn of(failure: Failure, bytes: &[u8]) -> Self {
        Self { failure, sha256: Some(Sha256Digest::of(bytes)) }
    }
}

/// A JSON body with the package of a skill. One is read at a time, from whoever may install skills.
pub struct Packed {
    /// The package.
    pub archive: Vec<u8>,
    /// What else was said. The package is not in it any more.
    pub said: NewSkill,
    /// The turn, which is over when the package has been dealt with.
    pub turn: Turn,
}

/// A turn to deal with a package.
pub struct Turn(OwnedSemaphorePermit);

impl Turn {
    /// Deals with the package. The turn lasts as long as that does, also when whoever sent the package is gone.
    ///
    /// # Errors
    /// When it panics.
    pub async fn keep<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> Result<T, Failure> {
        let working = tokio::spawn(async move {
            let done = work.await;
            drop(self.0);
            done
        });
        working.await.map_err(|error| Failure::internal(error.to_string()))
    }
}

impl FromRequest<Arc<App>> for Packed {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let (parts, body) = request.into_parts();
        // SECURITY: a package takes several times its size while it is read, so whoever sends many must not have them read all at once. Some
        // may be on their way meanwhile, so that nobody waits for whoever sends slowly.
        let _sending = turn(&app.uploads).await?;
        let bytes = read(body, PACKAGE_BODY, PACKAGE_PATIENCE).await?;
        let turn = turn(&app.packages).await?;
        authorise::again(app, &parts)?;
        let reading = tokio::task::spawn_blocking(move || unpacked(bytes));
        let (archive, said) = reading.await.map_err(|error| Failure::internal(error.to_string()))??;
        Ok(Self { archive, said, turn: Turn(turn) })
    }
}

async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
    match tokio::time::timeout(PACKAGE_PATIENCE, Arc::clone(turns).acquire_owned()).await {
        Ok(Ok(turn)) => Ok(turn),
        _ => {
            let message = "other packages are being read";
            Err(Failure::new("too_many_requests", message, "try again when they have been"))
        }
    }
}

fn unpacked(bytes: Vec<u8>) -> Result<(Vec<u8>, NewSkill), Failure> {
    let value = Value::Object(object_in(&bytes, PACKAGE_BODY)?);
    drop(bytes);
    let mut said: NewSkill = serde_json::from_value(value).map_err(|error| Failure::bad_request(error.to_string()))?;
    // Where it breaks off says nothing to anybody.
    let archive = BASE64_STANDARD
        .decode(std::mem::take(&mut said.package))
        .map_err(|_| Failure::new("bad_package", "the package is not in base 64", "spell it with padding"))?;
    Ok((archive, said))
}

/// A body as a JSON object that everybody reads alike.
fn object_in(bytes: &[u8], most: usize) -> Result<Map<String, Value>, Failure> {
    match json::read(bytes, limits(most)) {
        Ok(Value::Object(object)) => Ok(object),
        // serde would read an array as an object whose keys are left out.
        Ok(_) => Err(no_object()),
        Err(error) => Err(unreadable(&error)),
    }
}

/// How much is read of a body that may have so many bytes.
fn limits(bytes: usize) -> Limits {
    Limits { bytes, values: MOST_VALUES, ..Limits::default() }
}

fn unreadable(error: &JsonError) -> Failure {
    match error.fault {
        JsonFault::TooMany { .. } => Failure::new("too_large", error.to_string(), error.advice()),
        _ => Failure::new("bad_json", error.to_string(), "send one JSON value, each key once"),
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
        let bytes = Zeroizing::new(read(body, MOST, BODY_PATIENCE).await?);
        authorise::again(app, &parts)?;
        // serde would read an array as an object whose keys are left out.
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => Ok(Self(bytes)),
            _ => Err(no_object()),
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

/// The skill that a path names: its publisher and its name, each a part of its own.
pub struct NamedSkill(pub PackageId);

impl<S: Send + Sync> FromRequestParts<S> for NamedSkill {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let TwoNamed(publisher, name) = parts.extract::<TwoNamed<String, String>>().await?;
        let id = PackageId::parse(&format!("{publisher}/{name}"));
        id.map(Self).map_err(|error| Failure::new("bad_request", error.to_string(), error.advice()))
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

/// Two names in the path.
pub struct TwoNamed<A, B>(pub A, pub B);

impl<S: Send + Sync, A: FromStr<Err: Display>, B: FromStr<Err: Display>> FromRequestParts<S> for TwoNamed<A, B> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Path((one, other)) =
            parts.extract::<Path<(String, String)>>().await.map_err(|error| Failure::bad_request(error.body_text()))?;
        let one = one.parse().map_err(|error: A::Err| Failure::bad_request(error.to_string()))?;
        let other = other.parse().map_err(|error: B::Err| Failure::bad_request(error.to_string()))?;
        Ok(Self(one, other))
    }
}

/// Reads a whole body, if it is not too long and not too slow.
async fn read(body: Body, most: usize, patience: Duration) -> Result<Vec<u8>, Failure> {
    let reading = Limited::new(body, most).collect();
    match tokio::time::timeout(patience, reading).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(most)),
        Ok(Err(error)) => Err(Failure::bad_request(format!("the body broke off: {error}"))),
        Err(_) => {
            let message = format!("the body did not come within {} seconds", patience.as_secs());
            Err(Failure::new("too_slow", message, "send it in one go"))
        }
    }
}

/// The refusal of a body that is too long.
pub(crate) fn too_large(most: usize) -> Failure {
    Failure::new("too_large", format!("this body may have {most} bytes"), "send less")
}

fn no_object() -> Failure {
    Failure::bad_request("the body is no JSON object")
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

/// The longest body with a package: 64 MiB of it in base 64, and what is said about it.
pub const PACKAGE_BODY: usize = 96 << 20;

/// The longest body for a model: a long conversation, or pictures.
pub const FACADE_BODY: usize = 16 << 20;

/// How many values a body may hold, however long it may be.
// SECURITY: a value takes many times the bytes that spell it, so a body of sixteen mebibytes could take gigabytes.
pub const MOST_VALUES: usize = 1 << 18;

/// The longest body that is read from somebody without a credential.
pub const STRANGERS_BODY: usize = 1 << 10;

/// How many bodies with a package are read at once.
pub const PACKAGES_AT_ONCE: usize = 1;

/// How many of them may be on their way.
pub const UPLOADS_AT_ONCE: usize = 4;

/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// How long a body with a package may take, and how long it may wait for its turn.
const PACKAGE_PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_more_values_than_may_be_is_refused_however_short_it_is() {
        let of = |values: usize| format!("{{\"messages\":[{}0]}}", "0,".repeat(values - 10)).into_bytes();
        assert!(object_in(&of(MOST_VALUES), FACADE_BODY).is_ok());
        let failure = object_in(&of(MOST_VALUES + 1), FACADE_BODY).unwrap_err();
        assert_eq!((failure.status.as_u16(), failure.detail.code.as_str()), (413, "too_large"));
        assert!(failure.detail.message.contains("more than 262144 values"), "{}", failure.detail.message);
        // Long texts are what such a body is for.
        let picture = format!("{{\"messages\":[\"{}\"]}}", "x".repeat(8 << 20));
        assert!(object_in(picture.as_bytes(), FACADE_BODY).is_ok());
    }
}
