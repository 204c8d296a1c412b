//! Secrets by reference: where one belongs and what it is called. The value is nowhere near these types.
//!
//! Guarantees: a scope and a secret have exactly one spelling each, so what is equal is written alike and can be compared as text.
//! Does not: say whether there is such a secret, or who may have it. That is the vault's and policy's.

use std::fmt;

use crate::{
    id::{IdError, SessionId},
    name::{NameError, PrincipalId, SecretName, SkillId, WorkspaceName},
    visible::visible,
    written_as_text,
};

/// Where a secret belongs: whoever acts elsewhere cannot have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VaultScope {
    /// Everywhere. Written `global`.
    Global,
    /// Calls in one workspace. Written `workspace:shop`.
    Workspace(WorkspaceName),
    /// One agent. Written `agent:claude`.
    Agent(PrincipalId),
    /// One skill. Written `skill:acme/markdown`.
    Skill(SkillId),
    /// One session. Written `session:` and its id.
    Session(SessionId),
}

impl VaultScope {
    /// Reads `global`, `workspace:NAME`, `agent:NAME`, `skill:ID` or `session:ID`.
    ///
    /// # Errors
    /// When it is none of these, or what is named has no such name.
    pub fn parse(text: &str) -> Result<Self, VaultScopeError> {
        Ok(match text.split_once(':') {
            None if text == GLOBAL => Self::Global,
            Some(("workspace", name)) => Self::Workspace(WorkspaceName::parse(name)?),
            Some(("agent", name)) => Self::Agent(PrincipalId::parse(name)?),
            Some(("skill", id)) => Self::Skill(SkillId::parse(id)?),
            Some(("session", id)) => Self::Session(SessionId::parse(id)?),
            _ => return Err(VaultScopeError::Unknown(text.to_owned())),
        })
    }
}

impl fmt::Display for VaultScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str(GLOBAL),
            Self::Workspace(name) => write!(f, "workspace:{name}"),
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::Skill(id) => write!(f, "skill:{id}"),
            Self::Session(id) => write!(f, "session:{id}"),
        }
    }
}

/// A secret: its scope and its name in it. Written `global/github`, `workspace:shop/deploy-key`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretRef {
    scope: VaultScope,
    name: SecretName,
}

impl SecretRef {
    /// A secret of this name in this scope.
    #[must_use]
    pub const fn new(scope: VaultScope, name: SecretName) -> Self {
        Self { scope, name }
    }

    /// Reads `scope/name`. The last `/` divides them: names of workspaces and skills may hold some, the name of a secret holds none.
    ///
    /// # Errors
    /// When there is no `/`, no such scope, or the name is not a name.
    pub fn parse(text: &str) -> Result<Self, SecretRefError> {
        let (scope, name) = text.rsplit_once('/').ok_or_else(|| SecretRefError::NoScope(text.to_owned()))?;
        Ok(Self::new(VaultScope::parse(scope)?, SecretName::parse(name)?))
    }

    /// Reads what a person wrote: `scope/name`, or a bare name, which is global.
    ///
    /// # Errors
    /// When there is no such scope, or the name is not a name.
    pub fn parse_or_global(text: &str) -> Result<Self, SecretRefError> {
        match text.contains('/') {
            true => Self::parse(text),
            // A scope whose name is still to come is no name either; what is missing is told.
            false if text.contains(':') => {
                VaultScope::parse(text)?;
                Err(SecretRefError::NoName(text.to_owned()))
            }
            false => Ok(Self::new(VaultScope::Global, SecretName::parse(text)?)),
        }
    }

    /// Where it belongs.
    #[must_use]
    pub const fn scope(&self) -> &VaultScope {
        &self.scope
    }

    /// The name within the scope.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.name)
    }
}

written_as_text! {
    VaultScope, VaultScopeError;
    SecretRef, SecretRefError;
}

/// Why a scope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultScopeError {
    /// No scope looks like this.
    #[error(
        "unknown scope `{}`; expected `global`, `workspace:NAME`, `agent:NAME`, `skill:ID` or `session:ID`",
        visible(.0)
    )]
    Unknown(String),
    /// The workspace, agent or skill cannot be called that.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The session has no such id.
    #[error(transparent)]
    Session(#[from] IdError),
}

/// Why a secret was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretRefError {
    /// No `scope/` in front.
    #[error("the secret `{}` has no scope; write it like `global/github`", visible(.0))]
    NoScope(String),
    /// Nothing behind the scope.
    #[error("`{}` is a scope and names no secret in it; write it like `workspace:shop/github`", visible(.0))]
    NoName(String),
    /// The scope cannot be read.
    #[error(transparent)]
    Scope(#[from] VaultScopeError),
    /// The name breaks the grammar.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl SecretRefError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NoScope(_) | Self::NoName(_) | Self::Scope(_) => {
                "write it like `global/github`, `workspace:shop/github`, `agent:claude/github` or `skill:acme/pdf/github`"
            }
            Self::Name(_) => "name a secret with letters, digits and . _ -, starting with a letter or a digit",
        }
    }
}

/// The one scope that names nothing.
const GLOBAL: &str = "global";

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "session:01ARZ3NDEKTSV4RRFFQ69G5FAV";

    #[test]
    fn every_scope_reads_back_as_it_was_written() {
        for text in ["global", "workspace:shop", "workspace:a/b:c", "agent:claude", "skill:acme/markdown", SESSION] {
            let scope = VaultScope::parse(text).unwrap();
            assert_eq!(scope.to_string(), text);
            assert_eq!(serde_json::to_value(&scope).unwrap(), text);
            assert_eq!(serde_json::from_value::<VaultScope>(text.into()).unwrap(), scope);
        }
    }

    #[test]
    fn every_other_scope_is_refused_and_the_scopes_there_are_told() {
        for text in ["", "Global", "global:x", "shop", "workspace", "user:ada", "bogus:x", ":x", " global"] {
            assert_eq!(VaultScope::parse(text), Err(VaultScopeError::Unknown(text.to_owned())), "{text}");
        }
        assert_eq!(
            VaultScope::parse("tenant:x\u{202e}").unwrap_err().to_string(),
            "unknown scope `tenant:x<U+202E>`; expected `global`, `workspace:NAME`, `agent:NAME`, `skill:ID` or `session:ID`"
        );
        for text in ["workspace:", "agent:ada@owner", "skill:a b"] {
            assert!(matches!(VaultScope::parse(text), Err(VaultScopeError::Name(_))), "{text}");
        }
        for text in ["session:one".to_owned(), SESSION.to_lowercase()] {
            assert!(matches!(VaultScope::parse(&text), Err(VaultScopeError::Session(_))), "{text}");
        }
    }

    #[test]
    fn a_secret_reads_back_as_it_was_written() {
        let session = format!("{SESSION}/cookie");
        for (text, name) in [
            ("global/github", "github"),
            ("workspace:shop/deploy-key", "deploy-key"),
            ("agent:claude/NPM_TOKEN", "NPM_TOKEN"),
            ("skill:acme/markdown/token", "token"),
            (&session, "cookie"),
        ] {
            let secret = SecretRef::parse(text).unwrap();
            assert_eq!((secret.to_string().as_str(), secret.name()), (text, name));
            assert_eq!(format!("{}/{name}", secret.scope()), text);
            assert_eq!(serde_json::to_value(&secret).unwrap(), text);
            assert_eq!(serde_json::from_value::<SecretRef>(text.into()).unwrap(), secret);
        }
    }

    #[test]
    fn a_secret_without_a_scope_or_a_name_is_refused() {
        assert_eq!(SecretRef::parse("github"), Err(SecretRefError::NoScope("github".to_owned())));
        assert_eq!(
            SecretRef::parse("shop/github"),
            Err(SecretRefError::Scope(VaultScopeError::Unknown("shop".to_owned())))
        );
        for text in ["global/", "global/a b", "global/a:b", "workspace:shop/.env"] {
            assert!(matches!(SecretRef::parse(text), Err(SecretRefError::Name(_))), "{text}");
        }
        assert!(serde_json::from_value::<SecretRef>("github".into()).is_err());
    }

    #[test]
    fn a_bare_name_is_global_only_where_people_write_it() {
        assert_eq!(SecretRef::parse_or_global("github"), SecretRef::parse("global/github"));
        assert_eq!(SecretRef::parse_or_global("agent:claude/github"), SecretRef::parse("agent:claude/github"));
        assert_eq!(SecretRef::parse_or_global("/github"), SecretRef::parse("/github"));
        assert_eq!(
            SecretRef::parse_or_global("workspace:shop"),
            Err(SecretRefError::NoName("workspace:shop".to_owned()))
        );
        assert!(matches!(SecretRef::parse_or_global("bogus:x"), Err(SecretRefError::Scope(_))));
        assert!(matches!(SecretRef::parse_or_global(""), Err(SecretRefError::Name(_))));
    }
}
