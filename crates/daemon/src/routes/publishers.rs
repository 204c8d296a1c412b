//! `/api/v1/publishers`: whose skills are installed, and by which keys they are known.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use palyra_api::{
    ErrorBody, schema,
    skill::{PinKey, Publishers},
};
use palyra_gate::skills::{SkillRefusal, StoreError};
use palyra_package::PublisherName;

use crate::{
    app::App,
    caller::Caller,
    extract::{Named, Said, TwoNamed},
    failure::Failure,
    oversight::holds_everywhere,
    reply::Reply,
    skills,
};

/// The publishers that are known, and their keys.
#[utoipa::path(get, path = "/api/v1/publishers", tag = "skills", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Publishers), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Publishers>, Failure> {
    Ok(Reply(skills::publishers(app.gate.skills()?.publishers())))
}

/// Lets a key count for a publisher.
#[utoipa::path(put, path = "/api/v1/publishers/{publisher}/keys", tag = "skills",
    security(("bearer" = []), ("certificate" = [])), params(("publisher" = schema::PublisherText, Path)),
    request_body = PinKey,
    responses((status = 200, body = Publishers), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn pin(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(publisher): Named<PublisherName>,
    Said { said, .. }: Said<PinKey>,
) -> Result<Reply<Publishers>, Failure> {
    holds_everywhere(&caller)?;
    app.gate.trust_publisher(publisher, skills::key(&said.key)?, true, &caller.petitioner()).await?;
    Ok(Reply(skills::publishers(app.gate.skills()?.publishers())))
}

/// Says that a key of a publisher counts no more. What it signed is put into quarantine.
#[utoipa::path(delete, path = "/api/v1/publishers/{publisher}/keys/{key_id}", tag = "skills",
    security(("bearer" = []), ("certificate" = [])),
    params(("publisher" = schema::PublisherText, Path), ("key_id" = schema::KeyId, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn distrust(
    State(app): State<Arc<App>>,
    caller: Caller,
    TwoNamed(publisher, key_id): TwoNamed<PublisherName, String>,
) -> Result<StatusCode, Failure> {
    holds_everywhere(&caller)?;
    let installed = app.gate.skills()?;
    let keys = installed.publishers().of(&publisher).into_iter().flat_map(|keys| keys.trusted.keys());
    // Two keys may have one id. Both are struck off: whoever wants one of them knows its whole text.
    let meant: Vec<_> = keys.filter(|key| key.key_id() == key_id).cloned().collect();
    if meant.is_empty() {
        return Err(SkillRefusal::from(StoreError::NotTrusted { publisher, key_id }).into());
    }
    for key in meant {
        app.gate.trust_publisher(publisher.clone(), key, false, &caller.petitioner()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
