//! `/api/v1/memory`: what agents remember, for people who look after it.
//!
//! Guarantees: which scope somebody reads is decided by policy, as it is for agents; whoever deletes what others keep governs, and that is on
//! record. What is kept for one workspace is also for those who are bound to it.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{ErrorBody, memory as told};
use palyra_journal::{RecordKind, Subject};
use palyra_notebook::{Entry, EntryId, MemoryScope, MemoryStore, Query as Words};
use palyra_types::Action;
use serde_json::json;

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Named},
    failure::Failure,
    keeping::scope,
    oversight::{count, holds_everywhere, page},
    reply::Reply,
};

/// The notes of a scope, or those that hold some words.
#[utoipa::path(get, path = "/api/v1/memory", tag = "memory", security(("bearer" = []), ("certificate" = [])), params(told::MemoryQuery),
    responses((status = 200, body = told::Memories), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(query): Asked<told::MemoryQuery>,
) -> Result<Reply<told::Memories>, Failure> {
    let scope = readable(&app, &caller, Action::MemoryList, query.scope.as_deref())?;
    let (limit, after) = (page(query.limit)?, cursor(query.after.as_deref())?);
    let asked = scope.clone();
    let (entries, next) = with(&app, move |store| match query.query {
        Some(words) => {
            let found = store.search(&[asked], &Words::new(&words), limit)?;
            Ok((found.into_iter().map(|hit| hit.entry).collect::<Vec<_>>(), None))
        }
        None => store.list(&asked, after, limit).map(|page| (page.items, page.next)),
    })
    .await?;
    let next = next.map(|id| id.to_string());
    Ok(Reply(told::Memories { scope: scope.to_string(), entries: entries.into_iter().map(memory).collect(), next }))
}

/// Where something is kept, and how much.
#[utoipa::path(get, path = "/api/v1/memory/scopes", tag = "memory", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = told::KeptScopes), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn scopes(State(app): State<Arc<App>>, caller: Caller) -> Result<Reply<told::KeptScopes>, Failure> {
    let (memories, keeping) = (with(&app, MemoryStore::scopes).await?, app.keeping.clone());
    let artifacts = blocking(move || Ok(keeping.artifacts.scopes()?)).await?;
    let mut scopes: Vec<MemoryScope> = memories.iter().map(|(scope, _)| scope.clone()).collect();
    scopes.extend(artifacts.iter().map(|(scope, ..)| scope.clone()));
    scopes.sort();
    scopes.dedup();
    let told = scopes.into_iter().filter(|scope| reaches(&caller, scope).is_ok()).map(|scope| {
        let usage = memories.iter().find(|(known, _)| *known == scope).map(|(_, usage)| *usage).unwrap_or_default();
        let files =
            artifacts.iter().find(|(known, ..)| *known == scope).map_or((0, 0), |(_, files, bytes)| (*files, *bytes));
        told::KeptScope {
            scope: scope.to_string(),
            memories: number(usage.entries),
            memory_bytes: usage.bytes,
            artifacts: number(files.0),
            artifact_bytes: files.1,
        }
    });
    Ok(Reply(told::KeptScopes { scopes: told.collect() }))
}

/// Forgets one note, whoever's it is.
#[utoipa::path(delete, path = "/api/v1/memory/{id}", tag = "memory", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = told::Forgotten), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<EntryId>,
) -> Result<Reply<told::Forgotten>, Failure> {
    let unknown = || Failure::new("unknown_memory", format!("there is no entry {id}"), "list the entries of the scope");
    let entry = with(&app, move |store| store.get(id)).await?.ok_or_else(unknown)?;
    governs(&app, &caller, &entry.scope)?;
    let was_there = with(&app, move |store| store.delete(id)).await?;
    if !was_there {
        return Err(unknown());
    }
    forgotten(&app, &caller, &json!({ "scope": entry.scope, "memory": id })).await?;
    Ok(Reply(told::Forgotten { deleted: 1 }))
}

/// Forgets every note of a scope.
#[utoipa::path(delete, path = "/api/v1/memory", tag = "memory", security(("bearer" = []), ("certificate" = [])), params(told::PurgeMemory),
    responses((status = 200, body = told::Forgotten), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn purge(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(query): Asked<told::PurgeMemory>,
) -> Result<Reply<told::Forgotten>, Failure> {
    let scope = parsed(&query.scope)?;
    governs(&app, &caller, &scope)?;
    let purged = scope.clone();
    let deleted = number(with(&app, move |store| store.purge(&purged)).await?);
    forgotten(&app, &caller, &json!({ "scope": scope, "memories": deleted })).await?;
    Ok(Reply(told::Forgotten { deleted }))
}

/// The scope that somebody asks about, if policy lets them read there.
pub(super) fn readable(app: &App, caller: &Caller, action: Action, said: Option<&str>) -> Result<MemoryScope, Failure> {
    let scope = said.map_or_else(|| Ok(MemoryScope::of(&caller.principal)), parsed)?;
    may(app, caller, action, &scope)?;
    Ok(scope)
}

/// Whether somebody may do this with what is kept in a scope.
pub(super) fn may(app: &App, caller: &Caller, action: Action, scope: &MemoryScope) -> Result<(), Failure> {
    let resource = scope::resource(scope).map_err(|error| Failure::bad_request(error.to_string()))?;
    caller.may(app, action, resource)?;
    let is_own = matches!(scope, MemoryScope::Global) || *scope == MemoryScope::of(&caller.principal);
    if is_own { Ok(()) } else { reaches(caller, scope) }
}

/// Whether somebody may delete what is kept in a scope.
pub(super) fn governs(app: &App, caller: &Caller, scope: &MemoryScope) -> Result<(), Failure> {
    let resource = scope::resource(scope).map_err(|error| Failure::bad_request(error.to_string()))?;
    caller.may(app, Action::MemoryManage, resource)?;
    reaches(caller, scope)
}

/// Whether a scope is within the workspaces of somebody who is bound to some.
fn reaches(caller: &Caller, scope: &MemoryScope) -> Result<(), Failure> {
    match (scope, &caller.member_of) {
        (MemoryScope::Workspace(name), Some(bound)) if bound.contains(name) => Ok(()),
        _ => holds_everywhere(caller),
    }
}

/// Puts on record that somebody has deleted what others kept.
pub(super) async fn forgotten(app: &App, caller: &Caller, what: &serde_json::Value) -> Result<(), Failure> {
    let by = (caller.principal.to_string(), caller.device().cloned(), caller.token().cloned());
    let told = json!({ "by": by.0, "by_device": by.1, "by_token": by.2, "what": what });
    Ok(app.gate.record_keeping(RecordKind::MemoryPurged, Subject::default(), &told).await?)
}

/// Works with files where blocking holds up nobody.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::internal(error.to_string()))?
}

async fn with<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&MemoryStore) -> Result<T, palyra_notebook::MemoryError> + Send + 'static,
) -> Result<T, Failure> {
    let store = Arc::clone(&app.keeping.memory);
    blocking(move || Ok(work(&store)?)).await
}

fn parsed(text: &str) -> Result<MemoryScope, Failure> {
    MemoryScope::parse(text).map_err(|error| Failure::new("bad_request", error.to_string(), error.advice()))
}

fn cursor(text: Option<&str>) -> Result<Option<EntryId>, Failure> {
    text.map(EntryId::parse).transpose().map_err(|error| Failure::bad_request(error.to_string()))
}

fn number(count_of: u64) -> u32 {
    count(usize::try_from(count_of).unwrap_or(usize::MAX))
}

fn memory(entry: Entry) -> told::Memory {
    let Entry { id, key, title, text, tags, created, updated, by, .. } = entry;
    told::Memory { id: id.to_string(), key, title, text, tags, created, updated, by }
}
