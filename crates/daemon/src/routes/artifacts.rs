//! `/api/v1/artifacts`: files that agents kept, for people who fetch them.
//!
//! Guarantees: which scope somebody reads is decided by policy. A content leaves as bytes to be stored and nothing else, whatever its maker says
//! it is.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};
use palyra_api::{ErrorBody, memory as told};
use palyra_notebook::{Artifact, ArtifactId};
use palyra_types::Action;
use serde_json::json;

use super::memory::{blocking, forgotten, governs, may, readable};
use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Named},
    failure::Failure,
    oversight::page,
    reply::Reply,
};

/// The files that were kept in a scope.
#[utoipa::path(get, path = "/api/v1/artifacts", tag = "memory", security(("bearer" = []), ("certificate" = [])), params(told::ArtifactQuery),
    responses((status = 200, body = told::Artifacts), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(query): Asked<told::ArtifactQuery>,
) -> Result<Reply<told::Artifacts>, Failure> {
    let scope = readable(&app, &caller, Action::ArtifactList, query.scope.as_deref())?;
    let after = query.after.as_deref().map(ArtifactId::parse).transpose();
    let (limit, after) = (page(query.limit)?, after.map_err(|error| Failure::bad_request(error.to_string()))?);
    let (store, asked) = (Arc::clone(&app.keeping.artifacts), scope.clone());
    let page = blocking(move || Ok(store.list(&asked, after, limit)?)).await?;
    let (artifacts, next) = (page.items.into_iter().map(artifact).collect(), page.next.map(|id| id.to_string()));
    Ok(Reply(told::Artifacts { scope: scope.to_string(), artifacts, next }))
}

/// The content of a file that was kept.
#[utoipa::path(get, path = "/api/v1/artifacts/{id}", tag = "memory", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = palyra_api::schema::Bytes, content_type = "application/octet-stream"), (status = "4XX", body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn fetch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<ArtifactId>,
) -> Result<Response, Failure> {
    known(&app, id, |artifact| may(&app, &caller, Action::ArtifactGet, &artifact.scope)).await?;
    let store = Arc::clone(&app.keeping.artifacts);
    let content = blocking(move || store.get(id, None)?.ok_or_else(|| unknown(id))).await?;
    // SECURITY: what an agent made must not be taken for a page of this origin.
    let mut response = Response::new(Body::from(content.bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Deletes a file that was kept, whoever's it is.
#[utoipa::path(delete, path = "/api/v1/artifacts/{id}", tag = "memory", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = told::Forgotten), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<ArtifactId>,
) -> Result<Reply<told::Forgotten>, Failure> {
    let artifact = known(&app, id, |artifact| governs(&app, &caller, &artifact.scope)).await?;
    let store = Arc::clone(&app.keeping.artifacts);
    if !blocking(move || Ok(store.delete(id)?)).await? {
        return Err(unknown(id));
    }
    forgotten(&app, &caller, &json!({ "scope": artifact.scope, "artifact": id })).await?;
    Ok(Reply(told::Forgotten { deleted: 1 }))
}

/// A file that they may know of. Whoever may not is told that there is none.
async fn known(
    app: &App,
    id: ArtifactId,
    may: impl FnOnce(&Artifact) -> Result<(), Failure>,
) -> Result<Artifact, Failure> {
    let store = Arc::clone(&app.keeping.artifacts);
    let artifact = blocking(move || Ok(store.about(id)?)).await?.ok_or_else(|| unknown(id))?;
    may(&artifact).map_err(|_| unknown(id))?;
    Ok(artifact)
}

fn unknown(id: ArtifactId) -> Failure {
    Failure::new("unknown_artifact", format!("there is no artifact {id}"), "list the artifacts of the scope")
}

fn artifact(artifact: Artifact) -> told::Artifact {
    let Artifact { id, name, media_type, sha256, size, created, by, .. } = artifact;
    told::Artifact { id: id.to_string(), name, media_type: media_type.to_string(), sha256, size, created, by }
}
