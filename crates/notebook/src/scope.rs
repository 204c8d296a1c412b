//! Whose something is: a principal's own, a workspace's, a session's, or everybody's.
//!
//! Guarantees: a scope has exactly one spelling, so what is equal is written alike. Does not: say who may read or write in it.

use std::{borrow::Cow, fmt, str::FromStr};

use palyra_types::{
    NameError, Principal, PrincipalId, PrincipalKind, WorkspaceName,
    id::{IdError, SessionId},
    visible::visible,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Whose an entry or an artifact is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryScope {
    /// Everybody's. Written `global`.
    Global,
    /// One principal's own. Written `agent:claude`, `user:ada`, `service:ci`.
    Principal(PrincipalKind, PrincipalId),
    /// That of all who work in one workspace. Written `workspace:shop`.
    Workspace(WorkspaceName),
    /// That of one session. Written `session:` and its id.
    Session(SessionId),
}

impl MemoryScope {
    /// A principal's own, whatever roles it holds.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        Self::Principal(principal.kind(), principal.id().clone())
    }

    /// Reads `global`, `agent:NAME`, `user:NAME`, `service:NAME`, `workspace:NAME` or `session:ID`.
    ///
    /// # Errors
    /// When it is none of these, or what is named has no such name.
    pub fn parse(text: &str) -> Result<Self, MemoryScopeError> {
        Ok(match text.split_once(':') {
            None if text == GLOBAL => Self::Global,
            Some(("agent", name)) => Self::Principal(PrincipalKind::Agent, PrincipalId::parse(name)?),
            Some(("user", name)) => Self::Principal(PrincipalKind::User, PrincipalId::parse(name)?),
            Some(("service", name)) => Self::Principal(PrincipalKind::Service, PrincipalId::parse(name)?),
            Some(("workspace", name)) => Self::Workspace(WorkspaceName::parse(name)?),
            Some(("session", id)) => Self::Session(SessionId::parse(id)?),
            _ => return Err(MemoryScopeError::Unknown(text.to_owned())),
        })
    }
}

impl fmt::Display for MemoryScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str(GLOBAL),
            Self::Principal(kind, name) => write!(f, "{kind}:{name}"),
            Self::Workspace(name) => write!(f, "workspace:{name}"),
            Self::Session(id) => write!(f, "session:{id}"),
        }
    }
}

impl FromStr for MemoryScope {
    type Err = MemoryScopeError;
    fn from_str(text: &str) -> Result<Self, MemoryScopeError> {
        Self::parse(text)
    }
}

impl Serialize for MemoryScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MemoryScope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a scope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryScopeError {
    /// No scope looks like this.
    #[error(
        "unknown scope `{}`; expected `global`, `agent:NAME`, `user:NAME`, `service:NAME`, `workspace:NAME` or `session:ID`",
        visible(.0)
    )]
    Unknown(String),
    /// The principal or the workspace cannot be called that.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The session has no such id.
    #[error(transparent)]
    Session(#[from] IdError),
}

impl MemoryScopeError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "write it like `global`, `agent:claude`, `user:ada` or `workspace:shop`",
            Self::Name(error) => error.advice(),
            Self::Session(_) => "take the id of the session as Palyra told it",
        }
    }
}

/// The one scope that names nothing.
const GLOBAL: &str = "global";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_reads_back_as_it_was_written() {
        let session = "session:01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for text in ["global", "agent:claude", "user:ada", "service:ci", "workspace:a/b:c", session] {
            let scope = MemoryScope::parse(text).unwrap();
            assert_eq!(scope.to_string(), text);
            assert_eq!(serde_json::from_value::<MemoryScope>(serde_json::to_value(&scope).unwrap()).unwrap(), scope);
        }
    }

    #[test]
    fn a_principal_has_one_scope_whatever_its_roles() {
        let scope = MemoryScope::of(&Principal::parse("user:ada@owner").unwrap());
        assert_eq!(scope, MemoryScope::parse("user:ada").unwrap());
    }

    #[test]
    fn every_other_scope_is_refused() {
        for text in ["", "Global", "global:x", "agent", "skill:a/b", "workspace", " global"] {
            assert_eq!(MemoryScope::parse(text), Err(MemoryScopeError::Unknown(text.to_owned())), "{text}");
        }
        for text in ["agent:", "user:ada@owner", "workspace:a b"] {
            assert!(matches!(MemoryScope::parse(text), Err(MemoryScopeError::Name(_))), "{text}");
        }
        assert!(matches!(MemoryScope::parse("session:one"), Err(MemoryScopeError::Session(_))));
    }
}
