//! Sessions, and what was said in their runs.

use palyra_types::{
    Timestamp,
    id::{RunId, SessionId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{schema, strict};

/// A session: the runs of one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Which.
    #[schema(value_type = schema::Ulid)]
    pub id: SessionId,
    /// Whose it is.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// How many runs were said something in.
    pub runs: u64,
    /// How many messages are kept of them.
    pub messages: u64,
    /// How many bytes.
    pub bytes: u64,
    /// When the first message was kept.
    #[schema(value_type = schema::Time)]
    pub first: Timestamp,
    /// When the last was.
    #[schema(value_type = schema::Time)]
    pub last: Timestamp,
}

/// Sessions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sessions {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// What `before` is for those that follow, if any do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub next: Option<SessionId>,
}

/// Which sessions are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionQuery {
    /// Those that began before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Ulid>)]
    pub before: Option<SessionId>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// A run in which something was said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SaidRun {
    /// Which.
    #[schema(value_type = schema::Ulid)]
    pub id: RunId,
    /// The model that was asked, as its client calls it.
    pub model: String,
    /// How many messages are kept of it.
    pub messages: u64,
    /// How many bytes.
    pub bytes: u64,
    /// When the first message was kept.
    #[schema(value_type = schema::Time)]
    pub first: Timestamp,
    /// When the last was.
    #[schema(value_type = schema::Time)]
    pub last: Timestamp,
}

/// A session and its runs, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionRuns {
    /// The session.
    pub session: Session,
    /// Its runs.
    pub runs: Vec<SaidRun>,
    /// What `after` is for those that follow, if any do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub next: Option<RunId>,
}

/// Which runs of a session are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionRunsQuery {
    /// Those behind this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Ulid>)]
    pub after: Option<RunId>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// What was said in a run, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Transcript {
    /// The run.
    #[schema(value_type = schema::Ulid)]
    pub run: RunId,
    /// Its session.
    #[schema(value_type = schema::Ulid)]
    pub session: SessionId,
    /// Who opened it.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// The model that was asked. Absent if nothing was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What was said, in order.
    pub messages: Vec<SaidMessage>,
    /// How many messages could not be kept since the daemon started.
    pub lost: u64,
    /// What `after` is for the messages that follow, if any do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SaidMessage {
    /// Its place in the run, from 0.
    pub seq: u64,
    /// When it was kept.
    #[schema(value_type = schema::Time)]
    pub time: Timestamp,
    /// Who said it: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The name of who said it, if they gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The model's id of the call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// What was said: a text, parts, or a text and calls.
    #[schema(value_type = Object)]
    pub content: Value,
    /// Whether it was longer.
    pub cut: bool,
}

/// Which messages of a run are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TranscriptQuery {
    /// Those behind this one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::seq")]
    #[param(maximum = 9_007_199_254_740_991_u64)]
    pub after: Option<u64>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// A session whose transcript is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forgotten {
    /// Which.
    #[schema(value_type = schema::Ulid)]
    pub session: SessionId,
    /// How many runs it had.
    pub runs: u64,
}
