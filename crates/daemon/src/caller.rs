//! Who is asking. The one place where a request becomes a [`Caller`].
//!
//! Guarantees: a handler that takes a `Caller` is not reached without a credential that is known; an agent's credential never yields anybody
//! else; who is known keeps their place until they are answered. Does not: say what they may do. Policy does, through [`Caller::may`].

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use palyra_gate::Answerer;
use palyra_types::{Action, Channel, Principal, PrincipalKind, Resource, Sha256Digest, TokenId};

use crate::{
    app::App,
    credential::{self, CredentialKind},
    edge::Listener,
    failure::Failure,
    places::{Asker, Place},
};

/// Whoever sent a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who.
    pub principal: Principal,
    /// By which credential.
    pub credential: CredentialKind,
    /// The surface they came in by.
    pub channel: Channel,
    /// The credential's name in the journal.
    pub token: TokenId,
    /// The digest of what they showed.
    pub shown: Sha256Digest,
}

/// Who the credentials of the state directory stand for.
pub struct Holders {
    /// The digest of the owner's credential, and who it stands for.
    pub owner: (Sha256Digest, Principal),
    /// The digest of the agents' credential, and who it stands for.
    pub agent: (Sha256Digest, Principal),
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let shown = bearer(&parts.headers).map(credential::digest).ok_or_else(unauthenticated)?;
        let listener = parts.extensions.get::<Listener>().copied().unwrap_or(Listener::Local);
        let (credential, principal) = if shown == app.holders.owner.0 {
            (CredentialKind::Owner, app.holders.owner.1.clone())
        } else if shown == app.holders.agent.0 {
            (CredentialKind::Agent, app.holders.agent.1.clone())
        } else if app.console.holds(&shown) {
            (CredentialKind::Console, app.holders.owner.1.clone())
        } else {
            return Err(unauthenticated());
        };
        if let Some(place) = parts.extensions.get::<Arc<Place>>() {
            place.hold(if credential == CredentialKind::Agent { Asker::Agent } else { Asker::Person }).await?;
        }
        let surface = match (credential, listener) {
            (CredentialKind::Console, _) => "console",
            (CredentialKind::Owner, Listener::Control) => "cli",
            (CredentialKind::Owner | CredentialKind::Agent, _) => "api",
        };
        let name = |error: palyra_types::NameError| Failure::internal(error.to_string());
        let channel = Channel::parse(surface).map_err(name)?;
        let token = TokenId::parse(credential.as_str()).map_err(name)?;
        Ok(Self { principal, credential, channel, token, shown })
    }
}

impl Caller {
    /// Whether policy lets them do something that is no call.
    ///
    /// # Errors
    /// When it does not.
    pub fn may(&self, app: &App, action: Action, resource: Resource) -> Result<(), Failure> {
        Ok(app.gate.may(&self.principal, action, resource, Some(self.channel.clone()))?)
    }

    /// Whether it is an agent.
    #[must_use]
    pub fn is_agent(&self) -> bool {
        self.principal.kind() == PrincipalKind::Agent
    }

    /// Whether they are who this names, as `kind:name`.
    #[must_use]
    pub fn is(&self, principal: &str) -> bool {
        self.principal.to_string() == principal
    }

    /// Them, answering a question. A console is used by a person; whoever holds the owner's credential says whether one is there.
    #[must_use]
    pub fn answerer(&self, at_terminal: bool) -> Answerer {
        Answerer {
            principal: self.principal.clone(),
            interactive: match self.credential {
                CredentialKind::Console => true,
                CredentialKind::Owner => at_terminal,
                CredentialKind::Agent => false,
            },
            channel: Some(self.channel.clone()),
            device: None,
            session: self.shown.to_string(),
        }
    }
}

/// What stands in `Authorization: Bearer …`. Two of them are as good as none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, more) = (values.next()?, values.next());
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    (more.is_none() && scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty()).then_some(rest)
}

fn unauthenticated() -> Failure {
    Failure::new(
        "unauthenticated",
        "no credential that is known here was sent",
        "send `Authorization: Bearer …`; `palyra paths` shows where the credentials are",
    )
}
