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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// User, agent or service.
    pub kind: PrincipalKind,
    /// Unique within its kind.
    pub id: PrincipalId,
    /// Roles; only users hold any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<WorkspaceRole>,
}

impl Principal {
    /// A principal without roles.
    #[must_use]
    pub const fn new(kind: PrincipalKind, id: PrincipalId) -> Self {
        Self { kind, id, roles: BTreeSet::new() }
    }

    /// The same principal, holding these roles.
    #[must_use]
    pub fn with_roles(mut self, roles: impl IntoIterator<Item = WorkspaceRole>) -> Self {
        self.roles = roles.into_iter().collect();
        self
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
        if role.is_some() && kind != PrincipalKind::User {
            return Err(PrincipalError::RoleOfNoUser(kind));
        }
        Ok(Self::new(kind, PrincipalId::parse(name)?).with_roles(role))
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
        assert_eq!(ada.roles, BTreeSet::from([WorkspaceRole::Owner]));
        assert_eq!(ada.to_string(), "user:ada");
    }

    #[test]
    fn only_users_hold_roles() {
        assert_eq!(Principal::parse("agent:claude@owner"), Err(PrincipalError::RoleOfNoUser(PrincipalKind::Agent)));
        assert!(matches!(Principal::parse("claude"), Err(PrincipalError::NoKind(_))));
        assert!(matches!(Principal::parse("robot:x"), Err(PrincipalError::UnknownWord(_))));
    }
}
