//! `/api/v1/vault/bindings`: where secrets may go.

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use palyra_api::{
    ErrorBody,
    vault::{Binding as Told, NewBinding},
};
use palyra_gate::safekeeping::{VaultRefusal, VaultState};
use palyra_types::{Action, Resource, SecretRef};
use palyra_vault::{Binding, BindingError, BindingTerms, PathPrefix, Position, VaultChange, VaultError};

use super::secrets::governs;
use crate::{
    app::App,
    caller::Caller,
    extract::{Named, Said},
    failure::Failure,
    oversight::any_secret,
    reply,
};

/// Says where a secret may go.
#[utoipa::path(post, path = "/api/v1/vault/bindings", tag = "vault", security(("bearer" = []), ("certificate" = [])),
    request_body = NewBinding,
    responses((status = 201, body = Told), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn bind(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said, .. }: Said<NewBinding>,
) -> Result<Response, Failure> {
    may_bind(&app, &caller, &said.secret)?;
    let change = VaultChange::Add { secrets: Vec::new(), bindings: vec![terms(&app, said)?] };
    let added = app.gate.change_vault(change, &caller.principal).await?;
    let bound = added.bindings.first().ok_or_else(|| Failure::internal("nothing was bound"))?;
    Ok(reply::json(StatusCode::CREATED, &told(bound)))
}

/// Says that a secret may go there no more. Calls that wait or run hear of it.
#[utoipa::path(delete, path = "/api/v1/vault/bindings/{id}", tag = "vault",
    security(("bearer" = []), ("certificate" = [])), params(("id" = u64, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn unbind(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<u64>,
) -> Result<StatusCode, Failure> {
    let known = match &*app.gate.vault() {
        VaultState::Open(vault) => vault.binding(id),
        VaultState::Closed(_) => None,
    };
    match known {
        Some(binding) => may_bind(&app, &caller, &binding.terms.secret)?,
        // Whoever may bind nothing does not learn what there is.
        None => caller.may(&app, Action::VaultBind, Resource::Secret(any_secret()?))?,
    }
    app.gate.change_vault(VaultChange::Unbind(id), &caller.principal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A binding as it is told.
pub(super) fn told(binding: &Binding) -> Told {
    let BindingTerms { secret, host, port, positions, paths, tools } = &binding.terms;
    Told {
        id: binding.id,
        secret: secret.clone(),
        created: binding.created,
        host: host.to_string(),
        port: *port,
        positions: positions.iter().map(ToString::to_string).collect(),
        paths: paths.iter().map(ToString::to_string).collect(),
        tools: tools.iter().map(ToString::to_string).collect(),
        words: binding.terms.words(),
    }
}

fn may_bind(app: &App, caller: &Caller, secret: &SecretRef) -> Result<(), Failure> {
    caller.may(app, Action::VaultBind, Resource::Secret(secret.clone()))?;
    governs(caller, secret)
}

fn terms(app: &App, said: NewBinding) -> Result<BindingTerms, Failure> {
    let refused = |error: BindingError| VaultRefusal::from(VaultError::from(error));
    let mut terms = BindingTerms::usual(said.secret, said.host);
    terms.port = said.port.unwrap_or(terms.port);
    if !said.positions.is_empty() {
        let read = said.positions.iter().map(|text| Position::parse(text)).collect::<Result<BTreeSet<_>, _>>();
        terms.positions = read.map_err(refused)?;
    }
    let paths = said.paths.iter().map(|text| PathPrefix::parse(text)).collect::<Result<BTreeSet<_>, _>>();
    terms.paths = paths.map_err(refused)?;
    for tool in &said.tools {
        app.gate.registry().definition(tool).map_err(palyra_gate::Refusal::Call)?;
    }
    terms.tools = said.tools.into_iter().collect();
    terms.check().map_err(refused)?;
    Ok(terms)
}
