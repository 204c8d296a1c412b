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
use palyra_types::{Json, json::Limits};
use serde::de::DeserializeOwned;

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
            return Err(Failure::new(
                "not_json",
                "the body is not said to be JSON",
                "send `Content-Type: application/json`",
            ));
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

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The longest body that is read. A call's arguments may take half of it.
pub const LONGEST_BODY: usize = 2 << 20;

/// The longest body of most requests.
pub const SHORT_BODY: usize = 64 << 10;

/// The longest body that is read from somebody without a credential.
pub const STRANGERS_BODY: usize = 1 << 10;

/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
