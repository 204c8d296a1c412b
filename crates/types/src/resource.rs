//! What an action is about: a tool, a path, a host, a secret, or one of the daemon's own objects.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    host::{HostError, HostName},
    name::{NameError, ObjectId, SkillId, ToolName},
    path::{AbsolutePath, PathError},
    vault::SecretRefError,
    visible::visible,
    word::words,
};

pub use crate::vault::SecretRef;

words! {
    /// The kinds of object that need no richer type than an id.
    pub enum ObjectKind ("kind of resource") {
        /// A conversation or connection.
        Session = "session",
        /// A scheduled call.
        CronJob = "cron",
        /// A memory scope.
        Memory = "memory",
        /// The daemon itself.
        Daemon = "daemon",
        /// A configured workspace.
        Workspace = "workspace",
        /// A question that waits for an answer.
        Approval = "approval",
        /// The policies in force.
        PolicySet = "policy",
        /// A paired device.
        Device = "device",
        /// An API token.
        Token = "token",
        /// A member of a workspace.
        Member = "member",
        /// The journal.
        Journal = "journal",
        /// An upstream MCP server.
        McpServer = "mcp",
    }
}

/// The thing an action is about. Written `kind:id`, such as `tool:process.run`, `path:/work/a.rs` or `host:example.org`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A tool.
    Tool(ToolName),
    /// An installed skill.
    Skill(SkillId),
    /// A secret in the vault.
    Secret(SecretRef),
    /// A file or directory.
    Path(AbsolutePath),
    /// A host on the network.
    Host(HostName),
    /// One of the daemon's own objects.
    Object(ObjectKind, ObjectId),
}

impl Resource {
    /// Reads `kind:id`.
    ///
    /// # Errors
    /// When the kind is unknown or the id does not fit it.
    pub fn parse(text: &str) -> Result<Self, ResourceError> {
        let (kind, id) = text.split_once(':').ok_or_else(|| ResourceError::NoKind(text.to_owned()))?;
        Ok(match kind {
            "tool" => Self::Tool(ToolName::parse(id)?),
            "skill" => Self::Skill(SkillId::parse(id)?),
            "secret" => Self::Secret(SecretRef::parse(id)?),
            "path" => Self::Path(AbsolutePath::parse(id)?),
            "host" => Self::Host(HostName::parse(id)?),
            _ => match ObjectKind::parse(kind) {
                Ok(kind) => Self::Object(kind, ObjectId::parse(id)?),
                Err(_) => return Err(ResourceError::UnknownKind(kind.to_owned())),
            },
        })
    }

    /// The word in front of the colon.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tool(_) => "tool",
            Self::Skill(_) => "skill",
            Self::Secret(_) => "secret",
            Self::Path(_) => "path",
            Self::Host(_) => "host",
            Self::Object(kind, _) => kind.as_str(),
        }
    }

    /// What stands behind the colon.
    #[must_use]
    pub fn id(&self) -> Cow<'_, str> {
        match self {
            Self::Tool(name) => name.as_str().into(),
            Self::Skill(id) => id.as_str().into(),
            Self::Secret(secret) => secret.to_string().into(),
            Self::Path(path) => path.as_str().into(),
            Self::Host(host) => host.as_str().into(),
            Self::Object(_, id) => id.as_str().into(),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.id())
    }
}

impl FromStr for Resource {
    type Err = ResourceError;
    fn from_str(text: &str) -> Result<Self, ResourceError> {
        Self::parse(text)
    }
}

impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a resource was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// No `kind:` in front.
    #[error("`{}` has no kind; write it like `tool:process.run` or `path:/work/file`", visible(.0))]
    NoKind(String),
    /// A kind that does not exist.
    #[error(
        "unknown kind of resource `{}`; expected one of: tool, skill, secret, path, host, {}",
        visible(.0),
        ObjectKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
    )]
    UnknownKind(String),
    /// The id is not a secret.
    #[error(transparent)]
    Secret(#[from] SecretRefError),
    /// The id is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The id is not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The id is not a host.
    #[error(transparent)]
    Host(#[from] HostError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back_as_it_was_written() {
        for text in [
            "tool:process.run",
            "skill:acme/markdown",
            "secret:workspace:shop/deploy-key",
            "secret:skill:acme/markdown/token",
            "path:/work/a b",
            "host:api.example.org",
            "cron:nightly",
            "policy:active",
        ] {
            assert_eq!(Resource::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_resource_of_no_kind_is_refused() {
        assert!(matches!(Resource::parse("process.run"), Err(ResourceError::NoKind(_))));
        assert!(matches!(Resource::parse("widget:x"), Err(ResourceError::UnknownKind(_))));
        assert!(matches!(Resource::parse("path:relative"), Err(ResourceError::Path(_))));
        assert!(matches!(Resource::parse("secret:noscope"), Err(ResourceError::Secret(_))));
        assert!(matches!(Resource::parse("secret:shop/key"), Err(ResourceError::Secret(_))));
    }
}
