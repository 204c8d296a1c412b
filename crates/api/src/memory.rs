//! What agents keep: notes, files, and how much of each is where.

use std::collections::BTreeSet;

use palyra_types::{Sha256Digest, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// Notes of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Memories {
    /// Whose they are.
    #[schema(value_type = schema::KeptScopeText)]
    pub scope: String,
    /// Oldest first; those that were searched for, best first.
    pub entries: Vec<Memory>,
    /// Where to go on, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub next: Option<String>,
}

/// A note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Memory {
    /// Its id.
    #[schema(value_type = schema::Ulid)]
    pub id: String,
    /// The name that its author chose, unique in the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is remembered.
    pub text: String,
    /// Words to find it by.
    pub tags: BTreeSet<String>,
    /// When it was first kept.
    #[schema(value_type = schema::Time)]
    pub created: Timestamp,
    /// When it was last changed.
    #[schema(value_type = schema::Time)]
    pub updated: Timestamp,
    /// The principal who changed it last.
    #[schema(value_type = schema::PrincipalText)]
    pub by: String,
}

/// Which notes are told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MemoryQuery {
    /// Whose: `global`, `agent:NAME`, `user:NAME`, `service:NAME`, `workspace:NAME` or `session:ID`; one's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::KeptScopeText>)]
    pub scope: Option<String>,
    /// Words to look for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Behind this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Ulid>)]
    pub after: Option<String>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Which scope is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PurgeMemory {
    /// Whose: `global`, `agent:NAME`, `user:NAME`, `service:NAME`, `workspace:NAME` or `session:ID`.
    #[param(value_type = schema::KeptScopeText)]
    pub scope: String,
}

/// What was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forgotten {
    /// How many there were.
    pub deleted: u32,
}

/// Where something is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptScopes {
    /// In the order of their names.
    pub scopes: Vec<KeptScope>,
}

/// How much is kept in a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptScope {
    /// Whose it is.
    #[schema(value_type = schema::KeptScopeText)]
    pub scope: String,
    /// How many notes.
    pub memories: u32,
    /// Their bytes.
    pub memory_bytes: u64,
    /// How many files.
    pub artifacts: u32,
    /// Their bytes.
    pub artifact_bytes: u64,
}

/// Files that were kept in a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Artifacts {
    /// Whose they are.
    #[schema(value_type = schema::KeptScopeText)]
    pub scope: String,
    /// Oldest first.
    pub artifacts: Vec<Artifact>,
    /// Where to go on, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub next: Option<String>,
}

/// A file that was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Its id.
    #[schema(value_type = schema::Ulid)]
    pub id: String,
    /// What it is called. Not unique.
    pub name: String,
    /// What its maker says it is.
    pub media_type: String,
    /// The digest of its content.
    #[schema(value_type = schema::Digest)]
    pub sha256: Sha256Digest,
    /// Its bytes.
    pub size: u64,
    /// When it was kept.
    #[schema(value_type = schema::Time)]
    pub created: Timestamp,
    /// The principal who kept it.
    #[schema(value_type = schema::PrincipalText)]
    pub by: String,
}

/// Which files are told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ArtifactQuery {
    /// Whose: `global`, `agent:NAME`, `user:NAME`, `service:NAME`, `workspace:NAME` or `session:ID`; one's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::KeptScopeText>)]
    pub scope: Option<String>,
    /// Behind this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Ulid>)]
    pub after: Option<String>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}
