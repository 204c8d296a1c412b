//! What the journal keeps beside the chain: calls and their keys, approvals, grants, runs and postures as they stand now.
//!
//! Each is a few columns that the store compares and looks up by, and a document that belongs to the gate. They change only through
//! [`Change`]s, in one transaction with the records that tell of them, and every change says what it expects to find.

use palyra_types::{
    IdempotencyKey, Posture, Sha256Digest, Timestamp, ToolName,
    id::{ApprovalId, CallId, NodeId, RunId, SessionId},
    word::words,
};

use crate::keep::DAY;

words! {
    /// How far a call is.
    pub enum CallState ("state of a call") {
        /// A person is asked.
        Waiting = "waiting",
        /// It runs, or ran when the daemon ended.
        Started = "started",
        /// It is over and attested, or was refused.
        Ended = "ended",
    }
}

words! {
    /// What came of a question.
    pub enum ApprovalState ("state of an approval") {
        /// Nobody has answered yet.
        Pending = "pending",
        /// Somebody said yes.
        Approved = "approved",
        /// Somebody said yes, and the call has used it.
        Consumed = "consumed",
        /// Somebody said no.
        Denied = "denied",
        /// Nobody answered in time, or the answer was not used in time.
        Expired = "expired",
        /// The call was withdrawn.
        Cancelled = "cancelled",
    }
}

words! {
    /// Who waits for the outcome of a call.
    pub enum Waiting ("way of waiting") {
        /// The caller holds a connection; the call ends with it and with the daemon.
        Attached = "attached",
        /// The call was accepted and lives until its deadline, through restarts.
        Accepted = "accepted",
    }
}

/// A call as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRow {
    /// The call.
    pub call: CallId,
    /// The daemon that conducts it.
    pub node: NodeId,
    /// Its conversation.
    pub session: SessionId,
    /// Its task.
    pub run: RunId,
    /// Who waits for it.
    pub waiting: Waiting,
    /// How far it is.
    pub state: CallState,
    /// The first record about it.
    pub first_seq: u64,
    /// The last record about it.
    pub last_seq: u64,
    /// What the gate needs to go on with it after a restart. Empty once it was erased, which happens after its end only.
    pub document: String,
}

/// A key that a call carries, and the digest of the request that it came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallKey {
    /// The key.
    pub key: IdempotencyKey,
    /// The digest of the whole request, by which another one with the same key is told apart.
    pub body: Sha256Digest,
}

/// A key that a call takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenKey {
    /// Whose key it is, as `kind:name`. Somebody else's of the same text is another.
    pub principal: String,
    /// The key.
    pub key: CallKey,
    /// When it is taken.
    pub time: Timestamp,
}

/// The call that took a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRow {
    /// The call.
    pub call: CallId,
    /// The digest of the request that it came with.
    pub body: Sha256Digest,
    /// When.
    pub time: Timestamp,
}

/// How long a key is taken, in milliseconds.
pub const KEY_LIFE: i64 = DAY;

/// A question as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRow {
    /// The question.
    pub id: ApprovalId,
    /// The call it is about.
    pub call: CallId,
    /// The conversation it comes from.
    pub session: SessionId,
    /// Who asks, as `kind:name`.
    pub principal: String,
    /// What exactly would run.
    pub digest: Sha256Digest,
    /// What came of it.
    pub state: ApprovalState,
    /// The whole question, and the answer once there is one. Empty once it was erased, which happens after its end only.
    pub document: String,
}

/// A standing approval as it stands: a scope wider than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// The question whose answer it is.
    pub id: ApprovalId,
    /// The conversation it holds for.
    pub session: SessionId,
    /// Whom it covers, as `kind:name`.
    pub principal: String,
    /// The tool it covers.
    pub tool: ToolName,
    /// Whether it was ended before its time.
    pub ended: bool,
    /// How often it was used.
    pub uses: u64,
    /// What it covers and until when. Empty once it was erased, which happens after its end only.
    pub document: String,
}

/// An amount of what a budget bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// Calls that ran.
    pub calls: u64,
    /// Milliseconds they ran for.
    pub wall_ms: u64,
    /// Bytes they printed.
    pub output_bytes: u64,
}

impl Charge {
    /// Whether every amount is within the other's.
    #[must_use]
    pub const fn is_within(self, limits: Self) -> bool {
        self.calls <= limits.calls && self.wall_ms <= limits.wall_ms && self.output_bytes <= limits.output_bytes
    }

    /// Both together, or as much as there are numbers for.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            wall_ms: self.wall_ms.saturating_add(other.wall_ms),
            output_bytes: self.output_bytes.saturating_add(other.output_bytes),
        }
    }

    /// What is left of this after the other, or nothing.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            wall_ms: self.wall_ms.saturating_sub(other.wall_ms),
            output_bytes: self.output_bytes.saturating_sub(other.output_bytes),
        }
    }
}

/// A run as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The run.
    pub run: RunId,
    /// Its conversation.
    pub session: SessionId,
    /// Who opened it, as `kind:name`.
    pub principal: String,
    /// What it may use.
    pub limits: Charge,
    /// What it has used, reservations of running calls included.
    pub used: Charge,
}

/// Where a posture holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PostureRow {
    /// The layer: `session`, `agent`, `workspace` or `global`.
    pub layer: String,
    /// Which session, agent or workspace; empty for global.
    pub key: String,
    /// The tool.
    pub tool: ToolName,
    /// Its posture there.
    pub posture: Posture,
}

/// How far the vault is, as the journal knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultRow {
    /// Counts what was done to it.
    pub generation: u64,
    /// The digest of all that it holds.
    pub digest: Sha256Digest,
}

/// A change of state. It happens together with the other changes and records of its transaction, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new call. Expects that there is none of this id, and that its key was not taken within [`KEY_LIFE`].
    AddCall {
        /// The call.
        row: CallRow,
        /// The key that it takes, if it carries one.
        key: Option<TakenKey>,
    },
    /// A call goes on. Expects it in the state `from`; the last record about it is the last of this transaction.
    MoveCall {
        /// The call.
        call: CallId,
        /// Where it must be.
        from: CallState,
        /// Where it goes.
        to: CallState,
    },
    /// A new question. Expects that there is none of this id, and fewer pending ones than the bounds say.
    AddApproval {
        /// The question.
        row: ApprovalRow,
        /// How many may be pending, this one included.
        limits: PendingLimits,
    },
    /// A question is answered, used, or over. Expects it in the state `from`.
    MoveApproval {
        /// The question.
        id: ApprovalId,
        /// Where it must be.
        from: ApprovalState,
        /// Where it goes.
        to: ApprovalState,
        /// The new document, if it changes.
        document: Option<String>,
    },
    /// A new standing approval.
    AddGrant(GrantRow),
    /// A standing approval is used. Expects that it was not ended.
    UseGrant(ApprovalId),
    /// A standing approval is ended. Expects that it was not ended.
    EndGrant(ApprovalId),
    /// A new run. Expects that there is none of this id.
    AddRun(RunRow),
    /// A call takes from a run's budget before it runs. Expects that the run can afford it.
    Reserve {
        /// The run.
        run: RunId,
        /// At most this much.
        amount: Charge,
    },
    /// A call that ran gives back what it did not use.
    Settle {
        /// The run.
        run: RunId,
        /// What was taken.
        reserved: Charge,
        /// What was used.
        used: Charge,
    },
    /// A posture is set, or taken away.
    SetPosture {
        /// Where, for which tool, and which; the posture is ignored when it is taken away.
        row: PostureRow,
        /// Whether it is taken away.
        remove: bool,
    },
    /// The vault goes on. Expects it where it was.
    SetVault {
        /// Where it must be; nothing if there was none.
        from: Option<VaultRow>,
        /// Where it is from now on.
        to: VaultRow,
    },
}

/// How many questions may be pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingLimits {
    /// How many in all.
    pub most: u64,
    /// How many of the same principal.
    pub most_of_one: u64,
    /// How many bytes the documents of the same principal may take together.
    pub most_bytes_of_one: u64,
}

/// Why a transaction changed nothing: something was not as it expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// There is one of this id already.
    #[error("it exists already")]
    Exists,
    /// The key was taken, by this call.
    #[error("the call {0} has taken the key")]
    KeyTaken(CallId),
    /// There is none of this id.
    #[error("it does not exist")]
    Missing,
    /// The call is in another state.
    #[error("the call is {0} by now")]
    Call(CallState),
    /// The question is in another state.
    #[error("the approval is {0} by now")]
    Approval(ApprovalState),
    /// The standing approval was ended.
    #[error("the standing approval was ended")]
    GrantEnded,
    /// The vault is elsewhere.
    #[error("the vault is at another generation by now")]
    Vault,
    /// Too many questions are pending.
    #[error("{pending} approvals are pending, and the limit is {limit}")]
    TooManyPending {
        /// How many are pending.
        pending: u64,
        /// How many may be.
        limit: u64,
        /// Whether the limit is the one for a single principal.
        of_one: bool,
    },
    /// The pending questions of a principal are too large together.
    #[error("the pending approvals of one principal may take {limit} bytes together")]
    PendingTooLarge {
        /// How many bytes they may take.
        limit: u64,
    },
    /// The run's budget does not allow it.
    #[error("the run has used up its budget")]
    OverBudget {
        /// What the run may use.
        limits: Charge,
        /// What it has used.
        used: Charge,
    },
}
