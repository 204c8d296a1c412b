//! Approvals: the whole question, and its answer.

use std::collections::BTreeMap;

use palyra_types::{
    AbsolutePath, Sha256Digest, SkillId, Timestamp, ToolName,
    id::{ApprovalId, CallId, RunId, SessionId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{
    call::PolicyRef,
    schema,
    skill::{FileAccess, SkillLimits},
};

/// A question to a person: everything about a call, uncut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    /// The question.
    #[schema(value_type = schema::Ulid)]
    pub id: ApprovalId,
    /// The call it is about.
    #[schema(value_type = schema::Ulid)]
    pub call: CallId,
    /// Its task.
    #[schema(value_type = schema::Ulid)]
    pub run: RunId,
    /// Its conversation.
    #[schema(value_type = schema::Ulid)]
    pub session: SessionId,
    /// Who asks.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// The user that they act for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The workspace it works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The tool.
    #[schema(value_type = schema::Name)]
    pub tool: ToolName,
    /// The call in one line, with nothing hidden and nothing cut.
    pub summary: String,
    /// The arguments as they were given.
    #[schema(value_type = Object)]
    pub args: Value,
    /// The program it would run, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// What it would do with files, if that is what it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub files: Option<Value>,
    /// The skill it would run, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<SkillCall>,
    /// How it would run.
    pub plan: Containment,
    /// How much is at stake.
    pub risk: Risk,
    /// Why it asks.
    pub reason: String,
    /// Who can change what, so that it does not ask any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<String>,
    /// The policies behind that.
    pub policies: Vec<PolicyRef>,
    /// What exactly is approved. An answer has to repeat it.
    #[schema(value_type = schema::Digest)]
    pub digest: Sha256Digest,
    /// When it was asked.
    #[schema(value_type = schema::Time)]
    pub asked_at: Timestamp,
    /// Until when it can be answered.
    #[schema(value_type = schema::Time)]
    pub answer_by: Timestamp,
    /// How long it can be answered still, in milliseconds. 0 once it was answered.
    pub answer_within_ms: u64,
    /// For how many seconds an answer then waits for the call to start.
    pub valid_for_seconds: u32,
    /// Whether the call ends with whoever made it (`attached`), or can go on without them (`accepted`).
    pub waiting: String,
    /// What came of it.
    pub state: ApprovalState,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answered>,
}

/// What came of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has answered yet.
    Pending,
    /// Somebody said yes.
    Approved,
    /// Somebody said yes, and the call has used it.
    Consumed,
    /// Somebody said no.
    Denied,
    /// Nobody answered in time, or the answer was not used in time.
    Expired,
    /// The call was withdrawn.
    Cancelled,
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Command {
    /// What is executed.
    pub program: String,
    /// Where that really is, if it is a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<String>,
    /// Its arguments, one by one.
    pub args: Vec<String>,
    /// Where it starts.
    pub cwd: String,
    /// The variables it gets besides the fixed ones.
    pub environment: BTreeMap<String, String>,
    /// The digest of what it reads on its standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Digest>)]
    pub stdin_sha256: Option<Sha256Digest>,
    /// Files that it would run as code.
    pub scripts: Vec<String>,
}

/// A tool of a skill to run, with everything that it can reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillCall {
    /// The skill.
    #[schema(value_type = schema::SkillText)]
    pub id: SkillId,
    /// Its version.
    pub version: String,
    /// Who publishes it.
    #[schema(value_type = schema::PublisherText)]
    pub publisher: String,
    /// The id of the key that its package is signed with; absent for one that is being developed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::KeyId>)]
    pub signed_by: Option<String>,
    /// The tool, by its name in the skill.
    pub tool: String,
    /// The digest of its package.
    #[schema(value_type = schema::Digest)]
    pub package_sha256: Sha256Digest,
    /// The digest of its program.
    #[schema(value_type = schema::Digest)]
    pub component_sha256: Sha256Digest,
    /// The directories that it may use, by the names that it calls them.
    pub directories: BTreeMap<String, SkillDirectory>,
    /// What it may use, in sentences.
    pub may: Vec<String>,
    /// How much it may use.
    pub limits: SkillLimits,
}

/// A directory that a skill may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillDirectory {
    /// The directory, by its real path.
    #[schema(value_type = schema::Path)]
    pub path: AbsolutePath,
    /// How it may be used.
    pub access: FileAccess,
}

/// How a call would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Containment {
    /// What contains it; absent when nothing does: the daemon does it itself, or another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Whether the agent's own program does it, with its own environment. Nothing contains it then, and nothing bounds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// How its network is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<String>,
    /// What it may write, in words.
    pub writes: String,
    /// The hosts that it may reach, as it names them; or that it may reach any.
    pub hosts: Vec<String>,
    /// Whether a yes counts for this call alone, because it is given the value of a secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_once: bool,
    /// The secrets that it uses: each by name, and how it is handed over and where it may go, in words.
    pub secrets: Vec<String>,
    /// How long it may run, in milliseconds. 0 when the agent's own program does it, which nothing bounds.
    pub wall_ms: u64,
}

/// How much is at stake, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Risk {
    /// `low`, `medium`, `high` or `critical`.
    pub level: String,
    /// Why.
    pub reasons: Vec<String>,
}

/// An answer that was given, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Answered {
    /// The question.
    #[schema(value_type = schema::Ulid)]
    pub id: ApprovalId,
    /// What came of it.
    pub state: ApprovalState,
    /// Who answered; nobody if it ran out or was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What the answer covers beyond this call, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// What the agent is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why it ended without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// When.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// Until when the call has to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub valid_until: Option<Timestamp>,
}

/// Yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// The digest of what was shown.
    #[schema(value_type = schema::Digest)]
    pub digest: Sha256Digest,
    /// How much the answer covers.
    #[serde(default)]
    pub scope: Scope,
    /// For how many minutes, if the scope is `timeboxed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub minutes: Option<u32>,
    /// For wider scopes: how many arguments are fixed; any may follow. Without it the arguments are fixed exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_arguments: Option<u32>,
    /// Whether all pending questions about exactly the same action are answered, too.
    #[serde(default)]
    pub together: bool,
    /// Whether a person who sits at a terminal answers. Who answers their own call has to.
    #[serde(default)]
    pub at_terminal: bool,
}

/// How much an answer covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call.
    #[default]
    Once,
    /// Calls like this one, in this session, until the machine starts anew.
    Session,
    /// Calls like this one, in this session, for some minutes.
    Timeboxed,
}

/// No.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    /// The digest of what was shown.
    #[schema(value_type = schema::Digest)]
    pub digest: Sha256Digest,
    /// What the agent is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub message: Option<String>,
    /// Whether all pending questions about exactly the same action are answered, too.
    #[serde(default)]
    pub together: bool,
    /// Whether a person who sits at a terminal answers. Who answers their own call has to.
    #[serde(default)]
    pub at_terminal: bool,
}

/// What came of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Answers {
    /// One for each question that was answered, the one that was named first.
    pub answered: Vec<Answered>,
}

/// Which questions are listed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    /// After this one, in the order they were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>, pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
    pub after: Option<ApprovalId>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Questions that nobody has answered yet, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Approvals {
    /// The last record before these were read: events after this one tell of every later change.
    pub seq: u64,
    /// The questions.
    pub approvals: Vec<Approval>,
    /// Whether there are more.
    pub more: bool,
    /// Questions among these that are pending and cannot be read. Nobody can answer them; they end with their time, or with their calls.
    #[serde(default)]
    #[schema(value_type = Vec<schema::Ulid>)]
    pub unreadable: Vec<ApprovalId>,
}

/// A PIN, to show that a person is there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Unlock {
    /// The PIN.
    pub pin: String,
}

impl std::fmt::Debug for Unlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unlock")
    }
}

/// A standing approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// The question whose answer it is.
    #[schema(value_type = schema::Ulid)]
    pub id: ApprovalId,
    /// The conversation it holds for.
    #[schema(value_type = schema::Ulid)]
    pub session: SessionId,
    /// Whom it covers.
    pub principal: String,
    /// The tool it covers.
    #[schema(value_type = schema::Name)]
    pub tool: ToolName,
    /// What it covers, in words.
    pub covers: String,
    /// Who gave it.
    pub by: String,
    /// Until when; absent for one that holds for the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub until: Option<Timestamp>,
    /// How often it was used.
    pub uses: u64,
}

/// The standing approvals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grants {
    /// The standing approvals.
    pub grants: Vec<Grant>,
}
