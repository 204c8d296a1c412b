//! Who is asking: what [`authorise`](crate::authorise) has found out about a request.
//!
//! Guarantees: a handler that takes a `Caller` is not reached without a credential that counts and that its route lets in.
//! Does not: say what they may do. Policy does, through [`Caller::may`].

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::FromRequestParts, http::request::Parts};
use palyra_access::{Actor, Credential, Holder, Membership, Scope, role};
use palyra_gate::{Answerer, Petitioner, Refusal};
use palyra_types::{
    Action, Channel, DeviceId, Principal, PrincipalKind, Resource, Sha256Digest, Timestamp, TokenId, WorkspaceName,
    WorkspaceRole,
};

use crate::{app::App, failure::Failure, governing::Doer};

/// Whoever sent a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who, with the roles that count for this credential.
    pub principal: Principal,
    /// By which credential.
    pub shown: Shown,
    /// The surface they came in by.
    pub channel: Channel,
    /// The workspaces they are bound to; none means that they are bound to none in particular.
    pub member_of: Option<BTreeSet<WorkspaceName>>,
    /// What the token may be used for, if it is one.
    pub scopes: Option<Arc<BTreeSet<Scope>>>,
    /// Until when the credential counts.
    pub until: Option<Timestamp>,
}

/// A credential that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A device.
    Device(DeviceId),
    /// An API token.
    Token(TokenId),
    /// A session of the console.
    Console {
        /// The digest of what the page holds.
        session: Sha256Digest,
        /// The device that opened it.
        device: DeviceId,
    },
}

impl Shown {
    /// The kind of credential, in a word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Device(_) => "device",
            Self::Token(_) => "token",
            Self::Console { .. } => "console",
        }
    }

    /// The device, or the one that opened the session.
    #[must_use]
    pub const fn device(&self) -> Option<&DeviceId> {
        match self {
            Self::Device(id) | Self::Console { device: id, .. } => Some(id),
            Self::Token(_) => None,
        }
    }

    /// The token.
    #[must_use]
    pub const fn token(&self) -> Option<&TokenId> {
        match self {
            Self::Token(id) => Some(id),
            Self::Device(_) | Self::Console { .. } => None,
        }
    }

    /// Whether it still counts.
    #[must_use]
    pub fn counts(&self, app: &App) -> bool {
        let device_counts = |id: &DeviceId| app.access.is_good(&Credential::Device(id.clone())) && app.certifies(id);
        match self {
            Self::Device(id) => device_counts(id),
            Self::Token(id) => app.access.is_good(&Credential::Token(id.clone())),
            Self::Console { session, device } => app.console.holds(session) && device_counts(device),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let known = parts.extensions.get::<Self>().cloned();
        known.ok_or_else(|| Failure::internal("a handler was reached without anybody having asked who is asking"))
    }
}

impl Caller {
    /// Whoever holds a credential.
    pub(crate) fn of(holder: &Holder, shown: Shown, channel: Channel) -> Self {
        let member_of = holder.membership.bound();
        let (principal, scopes) = (holder.principal.clone(), holder.scopes.clone());
        Self { principal, shown, channel, member_of, scopes, until: Some(holder.expires) }
    }

    /// The same caller, as their credential counts now; none if it was taken away.
    #[must_use]
    pub fn now(&self, app: &App) -> Option<Self> {
        let snapshot = app.access.snapshot();
        let credential = match &self.shown {
            Shown::Device(id) | Shown::Console { device: id, .. } => Credential::Device(id.clone()),
            Shown::Token(id) => Credential::Token(id.clone()),
        };
        let holder = snapshot.standing(&credential).filter(|_| self.shown.counts(app))?;
        Some(Self { until: self.until, ..Self::of(holder, self.shown.clone(), self.channel.clone()) })
    }

    /// Whether policy lets them do something that is no call.
    ///
    /// # Errors
    /// When it does not.
    pub fn may(&self, app: &App, action: Action, resource: Resource) -> Result<(), Failure> {
        self.explained(action, app.gate.may(&self.petitioner(), action, resource))
    }

    /// The same for something that gives, changes or takes away a role: the highest of them.
    ///
    /// # Errors
    /// When it does not.
    pub fn may_about_role(
        &self,
        app: &App,
        (action, resource): (Action, Resource),
        role: Option<WorkspaceRole>,
    ) -> Result<(), Failure> {
        self.explained(action, app.gate.may_about_role(&self.petitioner(), action, resource, role))
    }

    /// What policy says, and for people what their role has to do with it.
    fn explained(&self, action: Action, said: Result<(), Refusal>) -> Result<(), Failure> {
        let Err(refusal) = said else { return Ok(()) };
        let failure = Failure::from(&refusal);
        let takes = [WorkspaceRole::Operator, WorkspaceRole::Admin, WorkspaceRole::Owner];
        let takes = takes.into_iter().find(|role| role::permissions(*role).contains(&action));
        let has = self.actor().role();
        match (takes, self.principal.kind()) {
            (Some(takes), PrincipalKind::User) if !has.is_some_and(|has| role::is_within(takes, has)) => {
                let has = has.map_or_else(|| "no role".to_owned(), |has| format!("the role {has}"));
                let message = format!("`{action}` takes the role {takes}, and this {} has {has}", self.shown.as_str());
                let help = "use a device that may do more, or ask somebody of that role; `palyra access roles` shows what each may";
                Err(Failure::new(&failure.detail.code, message, help))
            }
            _ => Err(failure),
        }
    }

    /// The device they ask from, or that opened their session.
    #[must_use]
    pub const fn device(&self) -> Option<&DeviceId> {
        self.shown.device()
    }

    /// The token they ask with.
    #[must_use]
    pub const fn token(&self) -> Option<&TokenId> {
        self.shown.token()
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

    /// Them, as the gate is told.
    #[must_use]
    pub fn petitioner(&self) -> Petitioner {
        Petitioner {
            principal: self.principal.clone(),
            channel: Some(self.channel.clone()),
            device: self.device().cloned(),
            token: self.token().cloned(),
            member_of: self.member_of.clone(),
        }
    }

    /// Them, as they are on record when they change who is let in.
    #[must_use]
    pub fn doer(&self) -> Doer {
        Doer { principal: self.principal.clone(), shown: self.shown.clone() }
    }

    /// Them, as the registry is told.
    #[must_use]
    pub fn actor(&self) -> Actor {
        let membership = self.member_of.clone().map_or(Membership::All, Membership::Only);
        let (scopes, token) = (self.scopes.as_deref().cloned(), self.token().cloned());
        Actor { principal: self.principal.clone(), membership, scopes, token }
    }

    /// Them, answering a question. A console is used by a person; whoever uses a device says whether one is there; a token is used by a
    /// program.
    #[must_use]
    pub fn answerer(&self, at_terminal: bool) -> Answerer {
        let (interactive, session) = match &self.shown {
            Shown::Console { session, .. } => (true, session.to_string()),
            Shown::Device(id) => (at_terminal, format!("device:{id}")),
            Shown::Token(id) => (false, format!("token:{id}")),
        };
        Answerer {
            principal: self.principal.clone(),
            interactive,
            channel: Some(self.channel.clone()),
            device: self.device().cloned(),
            token: self.token().cloned(),
            member_of: self.member_of.clone(),
            session,
        }
    }
}
