//! Whether a request is let in: the one place where a credential becomes a [`Caller`], and where policy is asked about a route.
//!
//! Guarantees, in this order: a route without a row in [`rules`] answers nobody; on the control listener the certificate of the connection is
//! the credential, on the local one a bearer, and nobody shows two; a credential that was revoked, has expired or is unknown is refused as
//! such and counted; a token that lacks the scope, needs a feature that is off, or goes too fast, learns so precisely; policy is asked; then
//! the handler is reached.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{Extensions, HeaderMap, HeaderValue, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use palyra_access::{
    Credential, CredentialKind, DeviceRefusal, FeatureFlag, Holder, Limited, MissingScope, Pass, Scope, TokenRefusal,
    TokenText,
};
use palyra_package::PackageId;
use palyra_types::{Channel, DeviceId, ObjectId, Resource, SecretRef, Sha256Digest, SkillId, TokenId};

use crate::{
    app::App,
    attempts::Attempt,
    caller::{Caller, Shown},
    compat::failing,
    conversation::Kept,
    edge::Listener,
    extract,
    failure::Failure,
    origin::Origin,
    oversight::{ANY_SKILL, any_secret, any_skill, object},
    places::{Asker, Place},
    rules::{self, Asks, Credentials, Entry, Needs},
};

/// Lets a request through to its handler, or answers it.
pub async fn pass(State(app): State<Arc<App>>, path: MatchedPath, request: Request, next: Next) -> Response {
    let needs = match rules::of(request.method(), path.as_str()) {
        Some(Entry::Open) => return next.run(request).await,
        Some(Entry::Known(needs)) => needs,
        None => return not_that_way().into_response(),
    };
    let (mut parts, body) = request.into_parts();
    match admit(&app, &parts, needs).await {
        Ok((caller, taken)) => {
            parts.extensions.insert(caller);
            parts.extensions.insert(needs);
            let mut response = next.run(Request::from_parts(parts, body)).await;
            if let Some(taken) = taken {
                tell_limits(response.headers_mut(), &taken);
                // A request is under way until its answer has left.
                response = response.map(|body| Body::new(Kept::new(body, taken)));
            }
            response
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Asks once more who is asking and whether they may: the body of a request may come long after its head.
///
/// # Errors
/// When they may not any more.
// SECURITY: whoever sends all but the last byte of a request and is revoked, signed out or demoted meanwhile would otherwise still have it
// done when that byte comes.
pub(crate) fn again(app: &App, request: &Parts) -> Result<(), Failure> {
    let Some(needs) = request.extensions.get::<Needs>().copied() else { return Ok(()) };
    let (caller, _) = identify(app, request)?;
    check_credential(&caller, needs.credentials)?;
    check_scope(app, &caller, needs.scopes)?;
    ask(app, &caller, needs.asks, request)
}

/// The refusal of a method that a route does not have.
pub(crate) fn not_that_way() -> Failure {
    Failure::new("method_not_allowed", "this is not asked for in that way", "`/openapi.json` lists the methods")
}

/// Whoever is let in, and what they take of their limits meanwhile.
async fn admit(app: &Arc<App>, request: &Parts, needs: Needs) -> Result<(Caller, Option<Pass>), Failure> {
    let extensions = &request.extensions;
    let (caller, holder) = identify(app, request).inspect_err(|refusal| note(app, extensions, refusal))?;
    if let Some(place) = extensions.get::<Arc<Place>>() {
        place.hold(if caller.is_agent() { Asker::Agent } else { Asker::Person }).await?;
    }
    if let Some(origin) = extensions.get::<Arc<Origin>>() {
        origin.known_by(&caller.shown);
    }
    let taken = match &holder.limits {
        Some(meter) => Some(meter.enter().map_err(|limited| too_fast(&limited))?),
        None => None,
    };
    check_credential(&caller, needs.credentials)?;
    check_scope(app, &caller, needs.scopes)?;
    ask(app, &caller, needs.asks, request)?;
    Ok((caller, taken))
}

/// Who shows which credential.
fn identify(app: &App, request: &Parts) -> Result<(Caller, Arc<Holder>), Failure> {
    let headers = &request.headers;
    match request.extensions.get::<Listener>().copied().unwrap_or(Listener::Local) {
        Listener::Control => {
            // SECURITY: whoever sends a token over a connection that a certificate opened means one of the two, and must not be taken for the
            // other.
            if headers.contains_key(header::AUTHORIZATION) {
                return Err(Failure::new(
                    "two_credentials",
                    "the certificate of this connection is the credential here, and a second one was sent",
                    "leave `Authorization` out, or use the token on the local listener",
                ));
            }
            let origin = request.extensions.get::<Arc<Origin>>();
            let peer = origin.and_then(|origin| origin.peer.as_ref()).ok_or_else(unauthenticated)?;
            // SECURITY: a connection may be older than the end of its certificate, or of the authority that it comes from.
            if peer.validity.until <= app.clock.now() || !app.certifier.now().trusts(&peer.issuer) {
                return Err(over("expired", "the certificate of this device does not hold any more", PAIR_AGAIN));
            }
            by_device(app, peer.key)
        }
        Listener::Local => by_bearer(app, bearer(headers).ok_or_else(unauthenticated)?, request.uri.path()),
    }
}

fn by_device(app: &App, key: Sha256Digest) -> Result<(Caller, Arc<Holder>), Failure> {
    let holder = app.access.by_device_key(&key).map_err(|refusal| no_device(&refusal))?;
    let id = device_of(&holder)?;
    let caller = Caller::of(&holder, Shown::Device(id), channel("cli")?);
    Ok((caller, holder))
}

fn by_bearer(app: &App, text: &str, path: &str) -> Result<(Caller, Arc<Holder>), Failure> {
    match TokenText::check(text).map_err(|_| unauthenticated())? {
        CredentialKind::Link => Err(unauthenticated()),
        CredentialKind::Console => {
            let session = Sha256Digest::of(text.as_bytes());
            let key = app.console.opened_by(&session).ok_or_else(unauthenticated)?;
            let holder = app.access.by_device_key(&key).map_err(|refusal| no_device(&refusal))?;
            let device = device_of(&holder)?;
            // SECURITY: a session is worth no more than the device that opened it, which cannot come in any more itself.
            if !app.certifies(&device) {
                let message = "the certificate of the device that opened this session does not hold any more";
                return Err(over("expired", message, PAIR_AGAIN));
            }
            let mut caller = Caller::of(&holder, Shown::Console { session, device }, channel("console")?);
            caller.until = app.console.until(&session);
            Ok((caller, holder))
        }
        CredentialKind::Agent | CredentialKind::User | CredentialKind::Service => {
            let holder = app.access.by_token(text).map_err(|refusal| no_token(&refusal))?;
            let id = token_of(&holder)?;
            // What a token is bound to goes with it, whichever surface it is shown to.
            let bound = holder.channel.clone();
            let caller = Caller::of(&holder, Shown::Token(id), bound.map_or_else(|| channel(surface(path)), Ok)?);
            Ok((caller, holder))
        }
    }
}

fn device_of(holder: &Holder) -> Result<DeviceId, Failure> {
    match &holder.credential {
        Credential::Device(id) => Ok(id.clone()),
        Credential::Token(_) => Err(unauthenticated()),
    }
}

fn token_of(holder: &Holder) -> Result<TokenId, Failure> {
    match &holder.credential {
        Credential::Token(id) => Ok(id.clone()),
        Credential::Device(_) => Err(unauthenticated()),
    }
}

fn check_credential(caller: &Caller, wanted: Credentials) -> Result<(), Failure> {
    match (wanted, &caller.shown) {
        (Credentials::All, _)
        | (Credentials::Devices, Shown::Device(_))
        | (Credentials::Tokens, Shown::Token(_))
        | (Credentials::Console, Shown::Console { .. }) => Ok(()),
        (Credentials::Devices, _) => Err(Failure::new(
            "wrong_credential",
            "this is for paired devices, by their certificate",
            "use the control listener; `palyra` does",
        )),
        (Credentials::Tokens, _) => Err(Failure::new(
            "wrong_credential",
            "this is for programs that hold an API token",
            "mint one: `palyra tokens create`, or `palyra mcp connect` for an MCP client",
        )),
        (Credentials::Console, _) => Err(Failure::new(
            "wrong_credential",
            "this is for sessions of the console",
            "sign in by a link: `palyra open`",
        )),
    }
}

/// Whether a token has one of the scopes that its route needs. Devices and sessions are bound by their role alone.
///
/// # Errors
/// When it has none of them.
pub(crate) fn check_scope(app: &App, caller: &Caller, wanted: &'static [Scope]) -> Result<(), Failure> {
    let Some(held) = &caller.scopes else { return Ok(()) };
    match wanted.first() {
        Some(first) if !wanted.iter().any(|scope| held.contains(scope)) => Err(without_features(app, wanted)
            .unwrap_or_else(|| {
                let missing = MissingScope { scope: *first };
                Failure::new("missing_scope", missing.to_string(), missing.advice())
            })),
        _ => Ok(()),
    }
}

/// The refusal of scopes that count for nobody now, because their features are off: another token would not help.
fn without_features(app: &App, wanted: &[Scope]) -> Option<Failure> {
    let access = app.access.snapshot();
    let off = |scope: &Scope| scope.feature().filter(|feature| !access.state().is_on(*feature));
    // Where one scope would do, another token may help after all.
    let features: Option<Vec<FeatureFlag>> = wanted.iter().map(off).collect();
    let feature = *features?.first()?;
    Some(Failure::new(
        "feature_off",
        format!("the feature {feature} is off"),
        format!("an owner or admin switches it on: `palyra access flags set {feature} on`"),
    ))
}

/// Asks policy about the route.
fn ask(app: &App, caller: &Caller, asks: Asks, request: &Parts) -> Result<(), Failure> {
    match asks {
        Asks::Nothing | Asks::Own | Asks::Kept(_) | Asks::Gate => Ok(()),
        Asks::About(action, kind) => caller.may(app, action, object(kind)?),
        Asks::Named(action, kind) => {
            // What is no name of anything is told by the handler, to those who might ask about something that is.
            match named(request.uri.path()).and_then(|name| ObjectId::parse(&name).ok()) {
                Some(id) => caller.may(app, action, Resource::Object(kind, id)),
                None => caller.may(app, action, object(kind)?),
            }
        }
        Asks::Secret(action) => {
            let secret = named_secret(request.uri.path()).map_or_else(any_secret, Ok)?;
            caller.may(app, action, Resource::Secret(secret))
        }
        Asks::Skill(action) => {
            let skill = named_skill(request.uri.path()).map_or_else(any_skill, Ok)?;
            caller.may(app, action, Resource::Skill(skill))
        }
    }
}

/// The skill in a path, `/api/v1/skills/PUBLISHER/NAME`, or one that stands for all of a publisher: `/api/v1/publishers/PUBLISHER/keys`.
fn named_skill(path: &str) -> Option<SkillId> {
    let mut parts = path.split('/').skip(3);
    let (noun, publisher) = (parts.next()?, percent_decoded(parts.next()?)?);
    let name = match noun {
        "skills" => percent_decoded(parts.next()?)?,
        _ => ANY_SKILL.to_owned(),
    };
    PackageId::parse(&format!("{publisher}/{name}")).ok().map(|id| id.skill_id().clone())
}

/// The secret in a path: `/api/v1/vault/secrets/SCOPE/NAME`.
fn named_secret(path: &str) -> Option<SecretRef> {
    let mut parts = path.split('/').skip(5);
    let (scope, name) = (percent_decoded(parts.next()?)?, percent_decoded(parts.next()?)?);
    extract::secret(&scope, &name).ok()
}

/// The first part of a path below its noun: `/api/v1/noun/NAME/…`.
fn named(path: &str) -> Option<String> {
    percent_decoded(path.split('/').nth(4)?)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit =
                    |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(rest.next())? << 4 | digit(rest.next())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// What stands in `Authorization: Bearer …`. Two of them are as good as none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, more) = (values.next()?, values.next());
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    (more.is_none() && scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty()).then_some(rest)
}

/// The surface that a program with a token uses.
fn surface(path: &str) -> &'static str {
    match path {
        path if failing::is_facade(path) => "compat",
        "/mcp" => "mcp",
        path if path.starts_with("/hooks/") || path == "/api/v1/authorize" => "hook",
        _ => "api",
    }
}

fn channel(surface: &str) -> Result<Channel, Failure> {
    Channel::parse(surface).map_err(|error| Failure::internal(error.to_string()))
}

fn unauthenticated() -> Failure {
    Failure::new(
        "unauthenticated",
        "no credential that is known here was sent",
        "send `Authorization: Bearer …` with an API token; `palyra tokens create` mints one",
    )
}

fn over(code: &str, message: impl Into<String>, help: &str) -> Failure {
    Failure::new(code, message, help)
}

fn no_device(refusal: &DeviceRefusal) -> Failure {
    match refusal {
        DeviceRefusal::Revoked { .. } => over("revoked", refusal.to_string(), PAIR_AGAIN),
        DeviceRefusal::Expired { .. } => over("expired", refusal.to_string(), PAIR_AGAIN),
        DeviceRefusal::Unknown | DeviceRefusal::Awaiting => over("unknown_device", refusal.to_string(), PAIR_AGAIN),
        DeviceRefusal::Off(_) => over("feature_off", refusal.to_string(), refusal.advice()),
    }
}

fn no_token(refusal: &TokenRefusal) -> Failure {
    match refusal {
        TokenRefusal::Malformed(_) | TokenRefusal::Unknown => unauthenticated(),
        TokenRefusal::Expired { .. } | TokenRefusal::Superseded { .. } => {
            over("expired", refusal.to_string(), refusal.advice())
        }
        TokenRefusal::Revoked { .. } | TokenRefusal::MinterGone => {
            over("revoked", refusal.to_string(), refusal.advice())
        }
        TokenRefusal::Off => over("feature_off", refusal.to_string(), refusal.advice()),
    }
}

/// The refusal of a token that goes too fast, and when to come back.
fn too_fast(limited: &Limited) -> Failure {
    Failure::new("rate_limited", limited.to_string(), limited.advice()).retry_after(limited.retry_after, limited.limit)
}

/// Whole seconds, at least one.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX).max(1)
}

fn tell_limits(headers: &mut HeaderMap, taken: &Pass) {
    for (name, value) in [
        ("ratelimit-limit", u64::from(taken.limit)),
        ("ratelimit-remaining", u64::from(taken.remaining)),
        ("ratelimit-reset", taken.reset_seconds),
    ] {
        headers.insert(name, HeaderValue::from(value));
    }
}

/// Counts somebody who was not let in.
fn note(app: &App, extensions: &Extensions, refusal: &Failure) {
    let listener = extensions.get::<Listener>().copied().unwrap_or(Listener::Local);
    let from: Option<IpAddr> = extensions.get::<Arc<Origin>>().map(|origin| origin.address.ip());
    app.attempts.note(Attempt { listener, from, code: refusal.detail.code.clone() });
}

const PAIR_AGAIN: &str = "pair it again: `palyra devices pair` on a device that is let in, then `palyra pair` here";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_in_a_path_is_read_as_it_was_meant() {
        let read = |path: &str| named_secret(path).map(|secret| secret.to_string());
        let workspace = read("/api/v1/vault/secrets/workspace%3Aa%2Fb/github");
        assert_eq!(workspace.as_deref(), Some("workspace:a/b/github"));
        assert_eq!(read("/api/v1/vault/secrets/global/github").as_deref(), Some("global/github"));
        for path in
            ["/api/v1/vault/secrets/global", "/api/v1/vault/secrets/shop/a", "/api/v1/vault/secrets/skill:a/b%2Fc"]
        {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn the_skill_in_a_path_is_read_as_the_handler_reads_it() {
        let read = |path: &str| named_skill(path).map(|id| id.to_string());
        for path in ["/api/v1/skills/acme/text-diff", "/api/v1/skills/acme/text%2Ddiff/grants"] {
            assert_eq!(read(path).as_deref(), Some("acme/text-diff"), "{path}");
        }
        assert_eq!(read("/api/v1/publishers/acme/keys/00FF").as_deref(), Some("acme/any"));
        for path in
            ["/api/v1/skills", "/api/v1/skills/inspect", "/api/v1/skills/a%2Fb/c", "/api/v1/publishers/Acme/keys"]
        {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn the_name_in_a_path_is_read_as_it_was_meant() {
        assert_eq!(named("/api/v1/tokens/t%2F1/rotate").as_deref(), Some("t/1"));
        assert_eq!(named("/api/v1/approvals/01X").as_deref(), Some("01X"));
        for path in ["/api/v1/tokens", "/api/v1/tokens/%zz", "/api/v1/tokens/%f", "/api/v1/tokens/%ff"] {
            assert_eq!(named(path), None, "{path}");
        }
    }
}
