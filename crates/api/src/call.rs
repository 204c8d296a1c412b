//! Calls: what is proposed, and what came of it.

use std::time::Duration;

use palyra_types::{
    AbsolutePath, Sha256Digest, Timestamp, ToolName, WorkspaceName,
    id::{ApprovalId, CallId, RunId, SessionId},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// A call as it is proposed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCall {
    /// The tool.
    #[schema(value_type = schema::Name)]
    pub tool: ToolName,
    /// Its arguments, as its schema says.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub args: Map<String, Value>,
    /// The configured workspace it works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub workspace: Option<WorkspaceName>,
    /// Instead of a workspace, a person's own working directory. Refused to agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Path>)]
    pub directory: Option<AbsolutePath>,
    /// The run it belongs to. Without one it belongs to the run that the credential has for such calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub run: Option<RunId>,
    /// Whether the answer is what came of the call. Otherwise the call is accepted, goes on without its caller and through restarts,
    /// and the answer is 202.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    #[schema(default = true)]
    pub wait: bool,
}

impl NewCall {
    /// A call of a tool with these arguments, whose caller waits.
    #[must_use]
    pub const fn new(tool: ToolName, args: Map<String, Value>) -> Self {
        Self { tool, args, workspace: None, directory: None, run: None, wait: true }
    }
}

const fn yes() -> bool {
    true
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// A person is asked.
    Waiting,
    /// It runs.
    Started,
    /// It is over: it has a receipt, or was refused.
    Ended,
}

/// A call and what is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Call {
    /// The call.
    #[schema(value_type = schema::Ulid)]
    pub id: CallId,
    /// Its task.
    #[schema(value_type = schema::Ulid)]
    pub run: RunId,
    /// Its conversation.
    #[schema(value_type = schema::Ulid)]
    pub session: SessionId,
    /// How far it is.
    pub state: CallState,
    /// The first record about it.
    pub first_seq: u64,
    /// The last record about it.
    pub last_seq: u64,
    /// What was proposed. Absent once it was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<Proposed>,
    /// What policy said. Absent for a call that policy was not asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// The question about it, if somebody was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Ulid>)]
    pub approval: Option<ApprovalId>,
    /// The proof that it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// What came out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// Why it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refused>,
    /// What a skill said beside its answer, as far as there was room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<CallLogLine>,
}

/// A line that a skill said beside its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallLogLine {
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// What it says.
    pub message: String,
}

/// What was proposed. Known shapes of tokens are masked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Proposed {
    /// When.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// By whom.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// The tool.
    #[schema(value_type = schema::Name)]
    pub tool: ToolName,
    /// Its arguments.
    #[schema(value_type = Object)]
    pub args: Value,
    /// The workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The surface it came in by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

/// What policy said to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decided {
    /// `allow`, `ask` or `deny`.
    pub verdict: String,
    /// Why, in one sentence.
    pub reason: String,
    /// The policies behind it.
    pub policies: Vec<PolicyRef>,
    /// The policy set that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Digest>)]
    pub policy_set: Option<Sha256Digest>,
}

/// A policy, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyRef {
    /// Its id.
    pub id: String,
    /// Its file and line.
    pub location: String,
    /// Why it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The proof that a call ran, durable in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// What is attested. The text of the note says the same.
    #[schema(value_type = Object)]
    pub attestation: Value,
    /// The attestation as a signed note.
    pub note: String,
    /// The number of its record.
    pub seq: u64,
    /// The hash of its record.
    #[schema(value_type = schema::Digest)]
    pub hash: Sha256Digest,
}

impl Receipt {
    /// How the call ended, such as `completed` or `timed_out`.
    #[must_use]
    pub fn ending(&self) -> &str {
        self.text("ending").unwrap_or("unknown")
    }

    /// More about how it ended.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.text("detail")
    }

    /// The exit code, if it was a process that has one.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.number("exit_code")
    }

    /// The signal that ended the process.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.number("signal")
    }

    /// How long it ran.
    #[must_use]
    pub fn ran(&self) -> Duration {
        let ran = self.attestation.get("times").and_then(|times| times.get("ran_us")?.as_u64());
        Duration::from_micros(ran.unwrap_or_default())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.attestation.get(key)?.as_str()
    }

    fn number(&self, key: &str) -> Option<i32> {
        i32::try_from(self.attestation.get(key)?.as_i64()?).ok()
    }
}

/// What came out of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Output {
    /// Of a process.
    Process {
        /// Its exit code, if it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// The signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Its standard output.
        stdout: Stream,
        /// Its standard error.
        stderr: Stream,
    },
    /// Of a tool that answers with JSON.
    Value {
        /// The answer.
        #[schema(value_type = Object)]
        value: Value,
    },
    /// Nothing.
    Nothing,
}

/// What a process wrote to one stream, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stream {
    /// `utf-8`, or `base64` where it is no text.
    pub encoding: String,
    /// What is kept.
    pub data: String,
    /// How many bytes there were.
    pub total: u64,
    /// Whether there was more than is kept.
    pub truncated: bool,
}

/// Why a call did not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// A word for programs.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// Which calls are listed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CallQuery {
    /// `waiting` or `started`: calls that are under way. `refused`: the calls that were refused last, newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub which: Option<CallSelection>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Which calls are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallSelection {
    /// A person is asked about them.
    Waiting,
    /// They run.
    Started,
    /// They were refused last.
    Refused,
}

/// Some calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Calls {
    /// The calls: some megabytes of them at once.
    pub calls: Vec<Call>,
    /// Whether there are more.
    #[serde(default)]
    pub more: bool,
}

/// Whether there was something to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// Whether the call was under way, and is being stopped.
    pub cancelled: bool,
}
