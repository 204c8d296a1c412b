//! Who asks: a user, an agent or a service.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    name::{NameError, PrincipalId},
    word::{UnknownWord, words},
};

words! {
    /// The kinds of principal.
    pub enum PrincipalKind ("kind of principal") {
        /// A person.
        User = "user",
        /// A program that proposes tool calls. It never governs.
        Agent = "agent",
        /// Another machine or a part of the daemon, such as the scheduler.
        Service = "service",
    }
}

words! {
    /// What a member may do in a workspace, from most to least.
    pub enum WorkspaceRole ("workspace role") {
        /// Everything, including members.
        Owner = "owner",
        /// Everything but making owners.
        Admin = "admin",
        /// Answers approvals and reads.
        Operator = "operator",
    }
}

/// A principal: its kind, its name, and the roles it holds.
///
/// INVARIANT: only users hold roles, so that no service or agent can come to govern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "PrincipalForm")]
pub struct Principal {
    kind: PrincipalKind,
    id: PrincipalId,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    roles: BTreeSet<WorkspaceRole>,
}

impl Principal {
    /// A principal without roles.
    #[must_use]
    pub const fn new(kind: PrincipalKind, id: PrincipalId) -> Self {
        Self { kind, id, roles: BTreeSet::new() }
    }

    /// The same principal, holding these roles.
    ///
    /// # Errors
    /// When there are roles and the principal is no user.
    pub fn with_roles(mut self, roles: impl IntoIterator<Item = WorkspaceRole>) -> Result<Self, PrincipalError> {
        self.roles = roles.into_iter().collect();
        if self.kind != PrincipalKind::User && !self.roles.is_empty() {
            return Err(PrincipalError::RoleOfNoUser(self.kind));
        }
        Ok(self)
    }

    /// Reads `kind:name`, such as `agent:claude`, or `user:ada@owner` with a role.
    ///
    /// # Errors
    /// When the kind is unknown or the name is not a name.
    pub fn parse(text: &str) -> Result<Self, PrincipalError> {
        let (kind, name) = text.split_once(':').ok_or_else(|| PrincipalError::NoKind(text.to_owned()))?;
        let kind = PrincipalKind::parse(kind)?;
        let (name, role) = match name.rsplit_once('@') {
            Some((name, role)) => (name, Some(WorkspaceRole::parse(role)?)),
            None => (name, None),
        };
        Self::new(kind, PrincipalId::parse(name)?).with_roles(role)
    }

    /// User, agent or service.
    #[must_use]
    pub const fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// Its name, unique within its kind.
    #[must_use]
    pub const fn id(&self) -> &PrincipalId {
        &self.id
    }

    /// The roles it holds.
    #[must_use]
    pub const fn roles(&self) -> &BTreeSet<WorkspaceRole> {
        &self.roles
    }
}

/// A principal as it is written, before it is known that only users hold roles.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrincipalForm {
    kind: PrincipalKind,
    id: PrincipalId,
    #[serde(default)]
    roles: BTreeSet<WorkspaceRole>,
}

impl TryFrom<PrincipalForm> for Principal {
    type Error = PrincipalError;
    fn try_from(form: PrincipalForm) -> Result<Self, PrincipalError> {
        Self::new(form.kind, form.id).with_roles(form.roles)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Why a principal was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// No `kind:` in front.
    #[error("`{}` has no kind; write `agent:NAME`, `user:NAME` or `service:NAME`", crate::visible::visible(.0))]
    NoKind(String),
    /// A role for something that is no user.
    #[error("a role belongs to a user, not to a kind `{0}`")]
    RoleOfNoUser(PrincipalKind),
    /// The kind or the role is unknown.
    #[error(transparent)]
    UnknownWord(#[from] UnknownWord),
    /// The name breaks the grammar.
    #[error(transparent)]
    Name(#[from] NameError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_reads_back_as_it_was_written() {
        assert_eq!(Principal::parse("agent:claude").unwrap().to_string(), "agent:claude");
        let ada = Principal::parse("user:ada@owner").unwrap();
        assert_eq!(ada.roles(), &BTreeSet::from([WorkspaceRole::Owner]));
        assert_eq!(ada.to_string(), "user:ada");
    }

    #[test]
    fn only_users_hold_roles() {
        assert_eq!(Principal::parse("agent:claude@owner"), Err(PrincipalError::RoleOfNoUser(PrincipalKind::Agent)));
        let written: Result<Principal, _> = serde_json::from_str(r#"{"kind":"service","id":"web","roles":["owner"]}"#);
        assert_eq!(written.unwrap_err().to_string(), "a role belongs to a user, not to a kind `service`");
        assert!(matches!(Principal::parse("claude"), Err(PrincipalError::NoKind(_))));
        assert!(matches!(Principal::parse("robot:x"), Err(PrincipalError::UnknownWord(_))));
    }
}
