//! `/api/v1/tokens`: what programs are let in by.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode, response::Response};
use palyra_access::{
    ApiTokenRecord, Extent, Membership, NewToken as Wanted, Scope, Snapshot, TokenKind, TokenRevocation, TokenRotation,
    role,
};
use palyra_api::{
    ErrorBody,
    device::Revoked,
    token::{MintedToken, NewToken, RevokeToken, RotateToken, Scopes, Token, TokenScope, TokenState, Tokens},
};
use palyra_journal::RecordKind;
use palyra_types::{Action, ObjectKind, Principal, PrincipalKind, Timestamp, TokenId, WorkspaceRole};

use crate::{
    app::App,
    caller::Caller,
    extract::{Asked, Named, Said},
    failure::Failure,
    governing,
    oversight::{count, object, thing, workspaces},
    reply,
    reply::Reply,
};

/// The tokens there are, without what makes them work.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Tokens), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Reply<Tokens> {
    let snapshot = app.access.snapshot();
    let mut records: Vec<&ApiTokenRecord> = snapshot.state().tokens().collect();
    records.sort_by_key(|record| record.created);
    let now = app.clock.now();
    Reply(Tokens { tokens: records.into_iter().map(|record| told(&snapshot, record, now)).collect() })
}

/// What tokens can be used for.
#[utoipa::path(get, path = "/api/v1/scopes", tag = "tokens", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Scopes), (status = "4XX", body = ErrorBody)))]
pub(super) async fn scopes(_: Caller) -> Reply<Scopes> {
    let told = |scope: &Scope| TokenScope {
        name: scope.to_string(),
        about: scope.about().to_owned(),
        needs: scope.needs(),
        feature: scope.feature().map(|feature| feature.to_string()),
        suits: PrincipalKind::ALL.iter().filter(|kind| scope.suits(**kind)).map(ToString::to_string).collect(),
    };
    Reply(Scopes { scopes: Scope::ALL.iter().map(told).collect() })
}

/// Mints a token. What makes it work is told once.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", security(("bearer" = []), ("certificate" = [])),
    request_body = NewToken,
    responses((status = 201, body = MintedToken), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn mint(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said: new, .. }: Said<NewToken>,
) -> Result<Response, Failure> {
    let wanted = wanted(&app, &caller, new)?;
    caller.may_about_role(&app, (Action::TokenCreate, object(ObjectKind::Token)?), wanted.role)?;
    let kind = kind_of(&wanted.principal);
    let (secret, fresh) = app.access.fresh_token(kind).map_err(|error| Failure::internal(error.to_string()))?;
    let actor = caller.actor();
    let minted = governing::grant(&app, RecordKind::TokenMinted, &caller.doer(), move |state, at| {
        state.mint(&actor, wanted, fresh, at)
    })
    .await?;
    answer(&app, &minted.id, &secret)
}

/// Has a token followed by a new one. The old one works for a while longer.
#[utoipa::path(post, path = "/api/v1/tokens/{id}/rotate", tag = "tokens",
    security(("bearer" = []), ("certificate" = [])), params(("id" = palyra_api::schema::Name, Path)),
    request_body = RotateToken,
    responses((status = 201, body = MintedToken), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<TokenId>,
    Said { said: how, .. }: Said<RotateToken>,
) -> Result<Response, Failure> {
    let snapshot = app.access.snapshot();
    let old = snapshot.state().token(&id);
    let (role, kind) = (old.and_then(|old| old.role), old.map_or(TokenKind::Agent, |old| old.kind));
    caller.may_about_role(&app, (Action::TokenCreate, thing(ObjectKind::Token, id.as_str())?), role)?;
    let (secret, fresh) = app.access.fresh_token(kind).map_err(|error| Failure::internal(error.to_string()))?;
    let rotation = TokenRotation {
        id,
        overlap: how.overlap_seconds.map_or(DEFAULT_OVERLAP, Duration::from_secs),
        lifetime: how.lifetime_seconds.map(Duration::from_secs),
    };
    let actor = caller.actor();
    let rotated = governing::grant(&app, RecordKind::TokenRotated, &caller.doer(), move |state, at| {
        state.rotate(&actor, rotation, fresh, at)
    })
    .await?;
    answer(&app, &rotated.id, &secret)
}

/// Revokes a token, at once: its requests, its streams and its calls end with it.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Name, Path), RevokeToken),
    responses((status = 200, body = Revoked), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<TokenId>,
    Asked(how): Asked<RevokeToken>,
) -> Result<Reply<Revoked>, Failure> {
    let snapshot = app.access.snapshot();
    let record = snapshot.state().token(&id);
    let reaches = |most: WorkspaceRole| caller.actor().role().is_some_and(|own| role::is_within(most, own));
    let own = record.is_some_and(|record| caller.is(&record.minted_by.to_string()) && record.role.is_none_or(reaches));
    // Whoever lost a token of their own needs nobody's permission, unless what they use may do less.
    if !own || caller.is_agent() {
        let role = record.and_then(|record| record.role);
        caller.may_about_role(&app, (Action::TokenRevoke, thing(ObjectKind::Token, id.as_str())?), role)?;
    }
    let extent = if how.family { Extent::Family } else { Extent::One };
    let (actor, revocation) = (caller.actor(), TokenRevocation { id, extent, why: "revoked".to_owned() });
    let doer = caller.doer();
    let taken = governing::take_away(&app, RecordKind::TokenRevoked, &doer, move |state, at| {
        state.revoke_token(&actor, revocation, at)
    });
    let (revoked, calls) = taken.await?;
    Ok(Reply(Revoked { devices: Vec::new(), tokens: revoked.tokens, calls: count(calls) }))
}

fn wanted(app: &App, caller: &Caller, new: NewToken) -> Result<Wanted, Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::bad_request(error.to_string());
    let principal = Principal::parse(&new.principal).map_err(|error| bad(&error))?;
    let scopes = new.scopes.iter().map(|scope| Scope::parse(scope)).collect::<Result<BTreeSet<_>, _>>();
    // A user's token is bound by its role, which is their own unless it is to be less.
    let role = match principal.kind() {
        PrincipalKind::User => new.role.or_else(|| caller.actor().role()),
        PrincipalKind::Agent | PrincipalKind::Service => new.role,
    };
    // Whoever is bound to some workspaces mints nothing for others.
    let bound = match (new.workspaces, &caller.member_of) {
        (Some(names), _) => Membership::Only(workspaces(app, names)?),
        (None, Some(bound)) => Membership::Only(bound.clone()),
        (None, None) => Membership::All,
    };
    Ok(Wanted {
        name: new.name,
        principal: Principal::new(principal.kind(), principal.id().clone()),
        role,
        workspaces: bound,
        scopes: scopes.map_err(|error| bad(&error))?,
        channel: new.channel,
        lifetime: Duration::from_secs(new.lifetime_seconds),
        per_minute: new.per_minute,
        concurrent: new.concurrent,
    })
}

const fn kind_of(principal: &Principal) -> TokenKind {
    match principal.kind() {
        PrincipalKind::User => TokenKind::User,
        PrincipalKind::Agent => TokenKind::Agent,
        PrincipalKind::Service => TokenKind::Service,
    }
}

fn answer(app: &App, id: &TokenId, secret: &str) -> Result<Response, Failure> {
    let snapshot = app.access.snapshot();
    let record = snapshot.state().token(id).ok_or_else(|| Failure::internal("the token is gone already"))?;
    let token = told(&snapshot, record, app.clock.now());
    Ok(reply::json(StatusCode::CREATED, &MintedToken { token, secret: secret.to_owned() }))
}

fn told(snapshot: &Snapshot, record: &ApiTokenRecord, now: Timestamp) -> Token {
    let state = match (&record.revoked, record.superseded_at) {
        (Some(_), _) => TokenState::Revoked,
        _ if record.expires <= now => TokenState::Expired,
        (None, Some(at)) if at <= now => TokenState::Superseded,
        (None, Some(_)) => TokenState::Overlapping,
        (None, None) => TokenState::Active,
    };
    Token {
        id: record.id.clone(),
        name: record.name.clone(),
        principal: record.principal.to_string(),
        role: record.role,
        scopes: record.scopes.iter().map(ToString::to_string).collect(),
        channel: record.channel.clone(),
        workspaces: match &record.workspaces {
            Membership::All => None,
            Membership::Only(names) => Some(names.iter().cloned().collect()),
        },
        state,
        minted_by: record.minted_by.to_string(),
        family: record.family.clone(),
        rotated_from_token_id: record.rotated_from_token_id.clone(),
        created: record.created,
        expires: record.expires,
        works_until: record.over_at(),
        per_minute: record.per_minute,
        concurrent: record.concurrent,
        last_used: snapshot.last_used(&record.id).or(record.last_used),
    }
}

/// How long an old token works beside the one that takes over, unless something else is said.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(60 * 60);
