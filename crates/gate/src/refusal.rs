//! Why a call did not run. Every refusal says what happened and, separately, what can be done.

use palyra_journal::{ReadError, Trouble, state::Charge};
use palyra_types::{
    Principal, Sha256Digest, WorkspaceName,
    id::{ApprovalId, CallId, RunId},
    visible::visible,
};

use crate::{decide::ToolDecision, plan::Unfit, tool::IntendError, tools::CallError};

/// Why a call did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The tool is unknown or the arguments make no sense.
    #[error(transparent)]
    Call(CallError),
    /// The workspace is not configured.
    #[error("there is no workspace `{0}`")]
    UnknownWorkspace(WorkspaceName),
    /// Policy denies it.
    #[error("{}", .0.reason())]
    Denied(Box<ToolDecision>),
    /// There is no way to run it here.
    #[error("there is no way to run it: {}", list(.0))]
    NoPlan(Vec<Unfit>),
    /// A person said no.
    #[error("{by} said no{}", .message.as_ref().map(|message| format!(": {}", visible(message))).unwrap_or_default())]
    Rejected {
        /// The question.
        approval: ApprovalId,
        /// Who.
        by: String,
        /// What they want the agent to know.
        message: Option<String>,
    },
    /// Nobody answered in time, or the call did not start in time after the answer.
    #[error("the approval expired")]
    Expired(ApprovalId),
    /// The call was withdrawn.
    #[error("the call was cancelled: {0}")]
    Cancelled(CancelCause),
    /// The gate is closing.
    #[error("{}", if *.goes_on { "the daemon is stopping; the call waits for the next one" } else { "the daemon is stopping" })]
    Stopping {
        /// Whether the call was accepted, so that the next daemon goes on with it.
        goes_on: bool,
    },
    /// There is no such posture to take away.
    #[error("no posture is set there")]
    NoPosture,
    /// What would run is not what was approved.
    #[error("what would run now is not what was approved")]
    Mismatch {
        /// The question.
        approval: ApprovalId,
        /// What was approved.
        approved: Sha256Digest,
        /// What would run.
        found: Sha256Digest,
    },
    /// Too many questions are pending.
    #[error("{pending} approvals are pending, and the limit is {limit}")]
    TooManyPending {
        /// How many are pending.
        pending: u64,
        /// How many may be.
        limit: u64,
    },
    /// The questions that wait are too large together.
    #[error("the approvals that are pending for this principal may take {limit} bytes together")]
    PendingTooLarge {
        /// How many bytes they may take.
        limit: u64,
    },
    /// The principal has too many calls under way.
    #[error("{limit} calls of this principal are under way, which is the limit")]
    TooManyCalls {
        /// How many may be.
        limit: usize,
    },
    /// Too many servers run.
    #[error("{limit} servers run, which is the limit")]
    TooManyServers {
        /// How many may.
        limit: usize,
    },
    /// Policy does not let somebody do what is no call.
    #[error("policy does not permit it: {0}")]
    NotPermitted(String),
    /// The run has used up its budget, or calls that run may.
    #[error("the run has used up its budget, or its running calls may: {}", spent(.limits, .used))]
    Budget {
        /// What the run may use.
        limits: Charge,
        /// What it has used.
        used: Charge,
    },
    /// There is no such run.
    #[error("there is no run {0}")]
    UnknownRun(RunId),
    /// The run belongs to somebody else.
    #[error("the run {0} is not one of {1} in this session")]
    ForeignRun(RunId, String),
    /// The call was proposed before.
    #[error("a call with this id exists already")]
    Repeated,
    /// The principal gave the key to another call, less than a day ago.
    #[error("the call {0} has this key already")]
    KeyTaken(CallId),
    /// The journal cannot be written, so nothing may run.
    #[error("nothing can be recorded, so nothing runs: {0}")]
    Journal(Trouble),
    /// The journal cannot be read, so what holds is not known.
    #[error("what holds is not known, so nothing runs: {0}")]
    Unreadable(ReadError),
    /// The call ran, and what it did could not be recorded yet.
    #[error("the call ran, and what it did could not be recorded yet: {0}")]
    Unattested(Trouble),
    /// Something went wrong inside the gate.
    #[error("the gate failed: {0}")]
    Internal(String),
}

impl Refusal {
    /// A word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Call(CallError::UnknownTool { .. }) => "unknown_tool",
            Self::Call(CallError::NoVault { is_locked: true }) => "vault_locked",
            Self::Call(CallError::NoVault { is_locked: false }) => "vault_closed",
            Self::Call(CallError::Intend(IntendError::NotTheirs(_))) => "denied_by_policy",
            Self::Call(_) => "bad_arguments",
            Self::UnknownWorkspace(_) => "unknown_workspace",
            Self::Denied(_) => "denied_by_policy",
            Self::NoPlan(_) => "no_sandbox",
            Self::Rejected { .. } => "denied_by_person",
            Self::Expired(_) => "approval_expired",
            Self::Cancelled(_) => "cancelled",
            Self::Stopping { .. } => "stopping",
            Self::NoPosture => "no_posture",
            Self::Mismatch { .. } => "approval_mismatch",
            Self::TooManyPending { .. } | Self::PendingTooLarge { .. } => "too_many_pending",
            Self::TooManyCalls { .. } => "too_many_calls",
            Self::TooManyServers { .. } => "too_many_servers",
            Self::NotPermitted(_) => "denied_by_policy",
            Self::Budget { .. } => "budget_exceeded",
            Self::UnknownRun(_) | Self::ForeignRun(..) => "unknown_run",
            Self::Repeated => "repeated_call",
            Self::KeyTaken(_) => "key_taken",
            Self::Journal(_) => "journal_unwritable",
            Self::Unreadable(_) => "journal_unreadable",
            Self::Unattested(_) => "unattested",
            Self::Internal(_) => "internal",
        }
    }

    /// Whether it is the journal's trouble of the moment, and nothing about the call.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unreadable(_) => true,
            Self::Journal(trouble) => trouble.can_pass(),
            _ => false,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Call(error) => error.advice().to_owned(),
            Self::UnknownWorkspace(_) => {
                "name one that `palyra workspaces` lists, or add it to `config.toml` as [[workspace]]".to_owned()
            }
            Self::Denied(decision) => denied(decision),
            // The weakest plan is the one that came closest.
            Self::NoPlan(unfit) => {
                unfit.last().map_or("add a plan to `plans` under [sandbox]", Unfit::advice).to_owned()
            }
            Self::Rejected { .. } => "do not try the same again".to_owned(),
            Self::Expired(_) => "propose it again while somebody is there to answer".to_owned(),
            Self::Cancelled(_) => "propose it again".to_owned(),
            Self::Stopping { goes_on: true } => "do not propose it again; ask what came of it later".to_owned(),
            Self::Stopping { goes_on: false } => "propose it again once the daemon is back".to_owned(),
            Self::NoPosture => "look at what is set".to_owned(),
            Self::Mismatch { .. } => {
                "a program, a file or the configuration changed since; propose it again".to_owned()
            }
            Self::TooManyCalls { .. } => "wait until some of them are over".to_owned(),
            Self::TooManyServers { .. } => {
                "remove one, or raise `most` under [sandbox.servers] in config.toml".to_owned()
            }
            Self::NotPermitted(_) => "ask an owner or admin".to_owned(),
            Self::TooManyPending { .. } | Self::PendingTooLarge { .. } => {
                "answer or deny some of them first: `palyra approvals list`".to_owned()
            }
            Self::Budget { .. } => {
                "open a new run, or raise the limits under [budget]; what names no run has a new one `renew_seconds` after its last began"
                    .to_owned()
            },
            Self::UnknownRun(_) | Self::ForeignRun(..) => "open a run first".to_owned(),
            Self::Repeated => "give every call an id of its own".to_owned(),
            Self::KeyTaken(_) => "ask what came of that call, or give this one a key of its own".to_owned(),
            Self::Journal(trouble) | Self::Unattested(trouble) => trouble.advice().to_owned(),
            Self::Unreadable(_) => "run `palyra journal verify`".to_owned(),
            Self::Internal(_) => "report this".to_owned(),
        }
    }
}

/// Why a call was withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CancelCause {
    /// Its caller is gone.
    #[error("its caller is gone")]
    CallerGone,
    /// Somebody asked for it.
    #[error("{0} asked for it")]
    Requested(Principal),
    /// The credential that it came with does not count any more.
    #[error("{0} revoked the credential it came with")]
    CredentialRevoked(Principal),
    /// The credential that it came with was taken away.
    #[error("the credential it came with does not count any more")]
    CredentialGone,
    /// The daemon was started anew, and its caller was attached to the old one.
    #[error("the daemon was restarted")]
    Restarted,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
    /// It was withdrawn before, for this reason.
    #[error("{0}")]
    Withdrawn(String),
    /// Its skill was put into quarantine, removed or replaced, or may do less.
    #[error("{0} stopped or changed its skill")]
    SkillChanged(Principal),
    /// The configuration lets skills do less.
    #[error("the configuration lets its skill do less than when it began")]
    SkillsLimited,
    /// Policy denies it by now.
    #[error("policy changed: {0}")]
    PolicyChanged(String),
}

fn denied(decision: &ToolDecision) -> String {
    let change = decision.policies().into_iter().find_map(|policy| policy.change.clone());
    change.map_or_else(|| "`palyra why` shows which rule would allow it".to_owned(), |change| visible(&change))
}

fn list(unfit: &[Unfit]) -> String {
    match unfit {
        [] => "no plan is configured".to_owned(),
        unfit => unfit.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    }
}

fn spent(limits: &Charge, used: &Charge) -> String {
    format!(
        "{} of {} calls, {} of {} s, {} of {} bytes of output",
        used.calls,
        limits.calls,
        used.wall_ms / 1_000,
        limits.wall_ms / 1_000,
        used.output_bytes,
        limits.output_bytes
    )
}
