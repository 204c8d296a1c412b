//! Whose something is, as calls say it: `own`, `workspace`, `session`, or a scope by its name.
//!
//! Guarantees: what is not said means the principal's own; the scope that is meant is part of what a person approves, and the one that is then
//! worked in.

use std::collections::BTreeMap;

use palyra_gate::{Asker, IntendError, ServiceIntent, ServiceOrder};
use palyra_notebook::MemoryScope;
use palyra_policy::Touch;
use palyra_types::{Action, ObjectId, ObjectKind, Resource};
use serde_json::{Value, json};

/// The scope that a call means.
///
/// # Errors
/// When there is no such scope, or the call is in no workspace and means its own.
pub fn meant(said: Option<&str>, asker: Asker<'_>) -> Result<MemoryScope, IntendError> {
    match said {
        None | Some("own") => Ok(MemoryScope::of(asker.principal)),
        Some("session") => Ok(MemoryScope::Session(asker.session)),
        Some("workspace") => Ok(MemoryScope::Workspace(asker.workspace.ok_or(IntendError::NoWorkspace)?.clone())),
        Some(name) => MemoryScope::parse(name)
            .map_err(|error| IntendError::Service { message: error.to_string(), help: error.advice() }),
    }
}

/// Every scope that a call is in: its principal's own, its conversation's, its workspace's, everybody's.
#[must_use]
pub fn all(asker: Asker<'_>) -> Vec<MemoryScope> {
    let workspace = asker.workspace.map(|name| MemoryScope::Workspace(name.clone()));
    let own = [MemoryScope::of(asker.principal), MemoryScope::Session(asker.session)];
    own.into_iter().chain(workspace).chain([MemoryScope::Global]).collect()
}

/// Whether a scope is that of whoever asks, or of their conversation: what is there is no secret from them, whatever policy says.
#[must_use]
pub fn is_own(scope: &MemoryScope, asker: Asker<'_>) -> bool {
    *scope == MemoryScope::of(asker.principal) || *scope == MemoryScope::Session(asker.session)
}

/// What policy is asked about something in some scopes.
///
/// # Errors
/// When a scope has a name that is too long.
pub fn intent(action: Action, scopes: &[MemoryScope]) -> Result<ServiceIntent, IntendError> {
    let touch = |scope: &MemoryScope| Ok(Touch::Object { action, resource: resource(scope)? });
    let names: Vec<String> = scopes.iter().map(ToString::to_string).collect();
    Ok(ServiceIntent {
        touches: scopes.iter().map(touch).collect::<Result<_, IntendError>>()?,
        about: BTreeMap::from([(ABOUT.to_owned(), names.join(" "))]),
        ..ServiceIntent::default()
    })
}

/// The scopes that were decided about.
#[must_use]
pub fn decided(order: &ServiceOrder) -> Vec<MemoryScope> {
    let names = order.work.about.get(ABOUT).map(String::as_str).unwrap_or_default();
    names.split(' ').filter_map(|name| MemoryScope::parse(name).ok()).collect()
}

/// A scope as policy knows it.
///
/// # Errors
/// When its name is too long.
pub fn resource(scope: &MemoryScope) -> Result<Resource, IntendError> {
    let id = ObjectId::parse(&scope.to_string())
        .map_err(|error| IntendError::Service { message: error.to_string(), help: error.advice() })?;
    Ok(Resource::Object(ObjectKind::Memory, id))
}

/// The argument that names a scope, for a schema.
#[must_use]
pub fn schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 192,
        "description": "Whose it is: `own` (the default), `session`, `workspace` (of the call), `global` (everybody's), \
            or a scope by its name, such as `workspace:shop`.",
    })
}

/// What a person is shown the scopes as.
const ABOUT: &str = "scope";
