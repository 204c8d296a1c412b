//! Step four: attest. A signed statement of what was run, under whose authority, in which sandbox, and what came out.
//!
//! Guarantees: the statement is a C2SP signed note over one line of canonical JSON, so foreign tools can verify it; it names the layers that
//! were really active, not those that were planned; a call that was cancelled, crashed or interrupted is attested as such.

use std::{collections::BTreeSet, net::SocketAddr};

use palyra_sandbox::{Reason, egress::EgressSummary};
use palyra_skills::outcome::{LogLine, SkillUsage};
use palyra_types::{
    EgressEnforcementMode, JsonError, PolicyId, SandboxTier, Sha256Digest, SkillId, Timestamp, ToolName,
    id::{AttestationId, CallId, RunId, SessionId},
    json::canonical_of,
    word::words,
};
use serde::Serialize;

use crate::{
    execute::Executed,
    output::Output,
    permit::{Approver, CallFacts},
    secret::UsedSecret,
};

words! {
    /// How a call ended.
    pub enum Ending ("ending of a call") {
        /// It ran to its end, whatever its exit code.
        Completed = "completed",
        /// It could not be started.
        NotStarted = "not_started",
        /// It ran longer than its plan allows.
        TimedOut = "timed_out",
        /// It ran longer than was left of the run's budget.
        BudgetSpent = "budget_spent",
        /// It was ended for using more than its plan allows.
        LimitExceeded = "limit_exceeded",
        /// It was stopped because nobody wants it any more.
        Cancelled = "cancelled",
        /// The part of the daemon that ran it failed.
        Crashed = "crashed",
        /// The daemon ended while it ran.
        Interrupted = "interrupted",
    }
}

/// What is attested about an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolAttestation {
    /// The version of this form.
    pub v: u8,
    /// The statement.
    pub attestation_id: AttestationId,
    /// The call.
    pub call: CallId,
    /// Its task.
    pub run: RunId,
    /// Its conversation.
    pub session: SessionId,
    /// Who proposed it.
    pub principal: String,
    /// The user that they act for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The tool.
    pub tool: ToolName,
    /// The digest of the tool's definition.
    pub tool_definition_sha256: Sha256Digest,
    /// What exactly was run.
    pub action_digest: Sha256Digest,
    /// The digest of the arguments.
    pub input_sha256: Sha256Digest,
    /// The digest of what came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_sha256: Option<Sha256Digest>,
    /// The digest of the decision.
    pub decision_sha256: Sha256Digest,
    /// The policies that decided.
    pub policies: Vec<PolicyId>,
    /// The policy set that they belong to.
    pub policy_set: Sha256Digest,
    /// Who approved it, where policy asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approver: Option<Approver>,
    /// What ran it.
    pub executor: String,
    /// The tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<SandboxTier>,
    /// How its network was to be held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressEnforcementMode>,
    /// The layers that were really active.
    pub sandbox_enforcement: Vec<String>,
    /// What is not enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_enforced: Option<String>,
    /// What the sandbox knows about why something did not work for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ToldReason>,
    /// What went through its network, where that was its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkUse>,
    /// Where it was seen to be connected to that no declared host has, where hosts are checked and not enforced.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub undeclared: BTreeSet<SocketAddr>,
    /// The secrets that were really used: where each went, or how its value was handed over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<UsedSecret>,
    /// Which skill it was, and what it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<Box<SkillAttestation>>,
    /// How it ended.
    pub ending: Ending,
    /// More about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Its exit code, if it is a process that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// When and for how long.
    pub times: Times,
    /// The record that was written before it ran.
    pub started_seq: u64,
}

/// A reason, with what it says and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToldReason {
    /// The reason.
    #[serde(flatten)]
    pub reason: Reason,
    /// What it says.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

impl From<&Reason> for ToldReason {
    fn from(reason: &Reason) -> Self {
        Self { reason: reason.clone(), message: reason.to_string(), help: reason.advice() }
    }
}

/// What went through the network of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NetworkUse {
    /// Connections that were made.
    pub connections: u64,
    /// Connections and names that were refused.
    pub refused: u64,
    /// Bytes that went out.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

impl From<&EgressSummary> for NetworkUse {
    fn from(&EgressSummary { connections, refused, sent, received, .. }: &EgressSummary) -> Self {
        Self { connections, refused, sent, received }
    }
}

/// Which skill ran, and what it used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillAttestation {
    /// The skill.
    pub id: SkillId,
    /// Its version.
    pub version: String,
    /// The digest of its package.
    pub package_sha256: Sha256Digest,
    /// The digest of its program.
    pub component_sha256: Sha256Digest,
    /// Who published it.
    pub publisher: String,
    /// The key that its package is signed with; none for one that is being developed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// Fuel or ticks, memory, and what it asked of the host; nothing if it did not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<SkillUsage>,
    /// Whether it can be run again from what is recorded.
    pub replayable: bool,
}

/// When things happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Times {
    /// When it was proposed.
    pub proposed: Timestamp,
    /// When it was about to run.
    pub started: Timestamp,
    /// When it was over.
    pub ended: Timestamp,
    /// How long it ran, in microseconds, by a clock that nobody can set.
    pub ran_us: u64,
}

/// The proof that a call ran, durable in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// What is attested.
    pub attestation: ToolAttestation,
    /// The same as a signed note.
    pub note: String,
    /// The number of its record.
    pub seq: u64,
    /// The hash of its record, which the chain and the tree hold.
    pub hash: Sha256Digest,
}

/// A call that ran: its receipt and what came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Completed {
    /// The proof.
    pub receipt: Receipt,
    /// What came out.
    pub output: Output,
    /// What a skill said beside that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogLine>,
}

impl ToolAttestation {
    pub(crate) fn of(facts: &CallFacts, executed: &Executed, ended: Timestamp) -> Self {
        let proposal = &facts.proposal;
        let plan = facts.decision.plan.as_ref();
        Self {
            v: 1,
            attestation_id: facts.attestation,
            call: proposal.call,
            run: proposal.run,
            session: proposal.session,
            principal: proposal.principal.to_string(),
            on_behalf_of: proposal.on_behalf_of.as_ref().map(ToString::to_string),
            tool: proposal.tool.clone(),
            tool_definition_sha256: facts.definition,
            action_digest: facts.digest,
            input_sha256: facts.input,
            execution_sha256: executed.output.digest(),
            decision_sha256: facts.decision_digest,
            policies: facts.decision.policies().into_iter().map(|policy| policy.id.clone()).collect(),
            policy_set: facts.decision.policy_set,
            approver: facts.approver.clone(),
            executor: executed.executor.to_owned(),
            tier: plan.and_then(crate::plan::Plan::tier),
            egress: plan.and_then(crate::plan::Plan::egress),
            sandbox_enforcement: executed.layers.clone(),
            not_enforced: executed.not_enforced.map(str::to_owned),
            reasons: executed.reasons.iter().map(ToldReason::from).collect(),
            network: executed.network,
            undeclared: executed.undeclared.clone(),
            secrets: executed.secrets.clone(),
            skill: executed.skill.clone(),
            ending: executed.ending,
            detail: executed.detail.as_deref().map(beginning),
            exit_code: executed.output.exit_code(),
            signal: executed.output.signal(),
            times: Times {
                proposed: facts.proposed_at,
                started: facts.started_at,
                ended,
                ran_us: u64::try_from(executed.ran.as_micros()).unwrap_or(u64::MAX),
            },
            started_seq: facts.started_seq,
        }
    }

    /// The line that is signed.
    pub(crate) fn canonical(&self) -> Result<String, JsonError> {
        canonical_of(self)
    }
}

/// The beginning of what is said about an ending. A note that is signed has a largest size, and a call that ran is attested whatever it said.
fn beginning(detail: &str) -> String {
    match detail.get(..detail.floor_char_boundary(LONGEST_DETAIL)) {
        Some(kept) if kept.len() < detail.len() => format!("{kept}…"),
        _ => detail.to_owned(),
    }
}

/// How many bytes of what is said about an ending are attested.
const LONGEST_DETAIL: usize = 16 << 10;
