//! A job: what is done, when, for whom, and what becomes of times that were missed.

use palyra_types::{Timestamp, ToolName, WorkspaceName, id::SessionId, visible::is_hidden, words};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::ScheduleError,
    id::{FiringId, JobId},
    when::When,
};

/// Most characters of the name of a job.
pub const MOST_NAME_CHARS: usize = 128;
/// Most bytes of the arguments, and of the credential, as JSON.
pub const MOST_JSON_BYTES: usize = 64 << 10;
/// The longest time that a run may take: a day.
pub const MOST_TIMEOUT_SECONDS: u32 = 24 * 60 * 60;

words! {
    /// What becomes of times that were missed: because the program was not running, the job was paused, or its last run was not over.
    pub enum Missed ("way with missed times") {
        /// Nothing.
        Skip = "skip",
        /// They are made up for once.
        Once = "once",
        /// Each of the last ten is made up for, one after the other.
        All = "all",
    }
}

/// Who a job acts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// The principal, as text.
    pub principal: String,
    /// What of its credential must still count when the job fires: token, device, channel, memberships, on whose behalf. Not read here.
    pub credential: Value,
}

/// What is to be done later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// What it is called; its owner has no other job of this name.
    pub name: String,
    /// Who it acts for.
    pub owner: Owner,
    /// The workspace that the call is made in.
    pub workspace: Option<WorkspaceName>,
    /// The session that the call is made in.
    pub session: SessionId,
    /// The tool that is called.
    pub tool: ToolName,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// When.
    pub when: When,
    /// What becomes of times that were missed.
    pub missed: Missed,
    /// How long a run may take. Whoever runs it sees to that.
    pub timeout_seconds: u32,
}

/// A job, and how it fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Which.
    pub id: JobId,
    /// What is done, when, and for whom.
    #[serde(flatten)]
    pub what: NewJob,
    /// Whether it fires.
    pub enabled: bool,
    /// Why it does not, if somebody said so.
    pub paused: Option<String>,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last handed out.
    pub last_fired: Option<Timestamp>,
    /// When it is due. Nothing if that never happens again.
    pub next_due: Option<Timestamp>,
    /// The firing whose run is not over.
    pub running: Option<FiringId>,
    /// What came of its last run.
    pub last_outcome: Option<String>,
    /// How often it failed since it last succeeded.
    pub failures: u64,
    /// How many times passed without it, counted up to a thousand at once.
    pub missed_times: u64,
}

/// A job that is handed out to be run, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Firing {
    /// Which. [`crate::ScheduleStore::finished`] takes it.
    pub id: FiringId,
    /// The time that it was due at.
    pub due: Timestamp,
    /// The time that it was handed out at.
    pub fired: Timestamp,
    /// What to do.
    pub job: Job,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was to do.
    Succeeded(String),
    /// It did not.
    Failed(String),
}

impl NewJob {
    pub(crate) fn check(&self) -> Result<(), ScheduleError> {
        check_label("name", &self.name, MOST_NAME_CHARS)?;
        check_label("principal", &self.owner.principal, MOST_PRINCIPAL_CHARS)?;
        let args = serde_json::to_string(&self.args).map_or(usize::MAX, |text| text.len());
        if args > MOST_JSON_BYTES {
            return Err(ScheduleError::TooLong { what: "arguments", length: args });
        }
        let credential = self.owner.credential.to_string().len();
        if credential > MOST_JSON_BYTES {
            return Err(ScheduleError::TooLong { what: "credential", length: credential });
        }
        if !(1..=MOST_TIMEOUT_SECONDS).contains(&self.timeout_seconds) {
            return Err(ScheduleError::Timeout(self.timeout_seconds));
        }
        Ok(())
    }
}

impl Outcome {
    /// What is kept of it: a bounded text, and whether it is a failure.
    pub(crate) fn kept(&self) -> (String, bool) {
        let (text, is_failure) = match self {
            Self::Succeeded(text) => (text, false),
            Self::Failed(text) => (text, true),
        };
        (bounded(text), is_failure)
    }
}

/// A text that somebody says, as it is kept.
pub(crate) fn bounded(text: &str) -> String {
    let kept = text.get(..text.floor_char_boundary(MOST_OUTCOME_BYTES)).unwrap_or_default();
    if kept.len() == text.len() { kept.to_owned() } else { format!("{kept}…") }
}

fn check_label(what: &'static str, text: &str, most: usize) -> Result<(), ScheduleError> {
    let length = text.chars().count();
    if length == 0 || length > most || text.chars().any(is_hidden) {
        return Err(ScheduleError::Label { what, text: text.to_owned(), most });
    }
    Ok(())
}

const MOST_PRINCIPAL_CHARS: usize = 256;
const MOST_OUTCOME_BYTES: usize = 1024;
