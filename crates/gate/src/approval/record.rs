//! The question and the answer, as they are kept, shown and journalled.

use palyra_journal::state::{ApprovalState, Waiting};
use palyra_types::{
    PolicyId, Principal, Sha256Digest, Timestamp, ToolName, WorkspaceName,
    id::{ApprovalId, CallId, RunId, SessionId},
    visible::visible,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    action::CallAction,
    deadline::Deadline,
    decide::ToolDecision,
    foreign::ElsewhereWork,
    plan::Plan,
    proposal::{ProposalDocument, ToolProposal},
    refusal::Refusal,
    risk::Risk,
    tool::{FetchWork, HostPort, Intent, Work},
};

/// A question to a person: everything about a call, uncut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingToolApproval {
    /// The question.
    pub id: ApprovalId,
    /// The call it is about.
    pub call: CallId,
    /// Its task.
    pub run: RunId,
    /// Its conversation.
    pub session: SessionId,
    /// Who asks.
    pub principal: Principal,
    /// The user that they act for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<Principal>,
    /// The workspace it works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceName>,
    /// The tool.
    pub tool: ToolName,
    /// The call in one line, with nothing hidden.
    pub summary: String,
    /// The arguments as they were given.
    pub args: Value,
    /// What would be done.
    pub work: Work,
    /// How it would run: tier, what it may write, hosts, limits.
    pub plan: Plan,
    /// How much is at stake.
    pub risk: Risk,
    /// Why it asks.
    pub reason: String,
    /// Who can change what, so that it does not ask any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<String>,
    /// The policies behind that.
    pub policies: Vec<Behind>,
    /// What exactly is approved.
    pub digest: Sha256Digest,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// Until when it can be answered.
    pub answer_by: Deadline,
    /// For how many seconds an answer then waits for the call to start.
    pub valid_for_seconds: u32,
    /// Who waits for the outcome.
    pub waiting: Waiting,
}

/// A policy behind a question, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behind {
    /// Its id.
    pub id: PolicyId,
    /// Its file and line.
    pub location: String,
    /// Why it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a question is made of.
pub(crate) struct Asked<'a> {
    pub(crate) proposal: &'a ToolProposal,
    pub(crate) intent: &'a Intent,
    pub(crate) decision: &'a ToolDecision,
    pub(crate) plan: &'a Plan,
    pub(crate) action: &'a CallAction,
    pub(crate) risk: Risk,
}

impl PendingToolApproval {
    pub(crate) fn new(
        id: ApprovalId,
        asked: Asked<'_>,
        asked_at: Timestamp,
        answer_by: Deadline,
        valid_for_seconds: u32,
    ) -> Self {
        let Asked { proposal, intent, decision, plan, action, risk } = asked;
        let behind = decision.policies().into_iter().map(|policy| Behind {
            id: policy.id.clone(),
            location: policy.location.to_string(),
            why: policy.why.clone(),
        });
        Self {
            id,
            call: proposal.call,
            run: proposal.run,
            session: proposal.session,
            principal: proposal.principal.clone(),
            on_behalf_of: proposal.on_behalf_of.clone(),
            workspace: proposal.workspace.clone(),
            tool: proposal.tool.clone(),
            summary: question(proposal, intent),
            args: proposal.args.value().clone(),
            work: intent.work.clone(),
            plan: plan.clone(),
            risk,
            reason: decision.reason(),
            change: decision.changes(),
            policies: behind.collect(),
            digest: action.digest,
            asked_at,
            answer_by,
            valid_for_seconds,
            waiting: proposal.waiting,
        }
    }
}

/// The call in one line. Never cut: what does not fit must be scrolled to, not guessed.
pub(crate) fn summary(proposal: &ToolProposal, intent: &Intent) -> String {
    match &intent.work {
        Work::Process(work) => visible(&work.process().command()),
        Work::Connect(HostPort { host, port }) => match &proposal.within {
            Some(within) => format!("connect to {host} port {port}, wanted by {}", within.summary),
            None => format!("connect to {host} port {port}"),
        },
        // What its arguments leave open, such as where it works, stands beside them.
        Work::Elsewhere(ElsewhereWork { process: Some(process), .. }) => {
            format!("{}, run by the agent itself", visible(&process.command()))
        }
        Work::Elsewhere(_) => {
            format!("{} {}, done by the agent itself", proposal.tool, visible(proposal.args.canonical()))
        }
        // A URL holds nothing hidden by now. Whatever else there is stands in the arguments.
        Work::Fetch(FetchWork { method, url, headers, body_sha256: None, .. }) if headers.is_empty() => {
            format!("{} {method} {url}", proposal.tool)
        }
        Work::Fetch(FetchWork { method, url, .. }) => {
            format!("{} {method} {url} {}", proposal.tool, visible(proposal.args.canonical()))
        }
        // What a service adds to the arguments is approved as well.
        Work::Service(work) if !work.about.is_empty() => {
            let about: Vec<String> =
                work.about.iter().map(|(what, value)| format!("{} {}", visible(what), visible(value))).collect();
            format!("{} {} ({})", proposal.tool, visible(proposal.args.canonical()), about.join(", "))
        }
        Work::Files(_) | Work::Skill(_) | Work::Service(_) | Work::Report { .. } => {
            format!("{} {}", proposal.tool, visible(proposal.args.canonical()))
        }
    }
}

/// The same for whoever is asked, with what wants it.
fn question(proposal: &ToolProposal, intent: &Intent) -> String {
    let summary = summary(proposal, intent);
    match (&intent.work, &proposal.within) {
        (Work::Connect(_), _) | (_, None) => summary,
        (_, Some(within)) => format!("{summary}, wanted by {}", within.summary),
    }
}

/// How much an answer covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case", deny_unknown_fields)]
pub enum DecisionScope {
    /// This call.
    Once,
    /// Calls like this one, in this session, until the machine starts anew.
    Session {
        /// What counts as like this one.
        #[serde(default)]
        pattern: Pattern,
    },
    /// Calls like this one, in this session, for some minutes.
    Timeboxed {
        /// For how long.
        minutes: u32,
        /// What counts as like this one.
        #[serde(default)]
        pattern: Pattern,
    },
}

/// Which calls are like the one that was asked about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Those with exactly the same arguments.
    #[default]
    Exact,
    /// Those that run the same program with the same first arguments, and any others behind them. Never for programs that run what they
    /// are handed.
    Trailing {
        /// How many arguments are fixed.
        fixed: usize,
    },
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRecord {
    /// The question.
    pub id: ApprovalId,
    /// What came of it.
    pub state: ApprovalState,
    /// Who answered; nobody if it ran out or was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// How much the answer covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<DecisionScope>,
    /// The pattern in words, as it was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// What the agent is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why it ended without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What refused a call that was approved, so that it is told in the same way later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalRecord>,
    /// When.
    pub at: Timestamp,
    /// What exactly was approved.
    pub digest: Sha256Digest,
    /// Until when the call has to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<Deadline>,
}

/// A refusal as it is kept, beside its words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusalRecord {
    /// What it is known by.
    pub code: String,
    /// What to do about it.
    pub advice: String,
}

impl From<&Refusal> for RefusalRecord {
    fn from(refusal: &Refusal) -> Self {
        Self { code: refusal.code().to_owned(), advice: refusal.advice() }
    }
}

/// A question as the journal tells of it.
#[derive(Debug, Serialize)]
pub struct ApprovalPromptRecord<'a> {
    /// The question.
    pub prompt: &'a PendingToolApproval,
}

/// A question as it is kept beside the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalDocument {
    pub(crate) prompt: PendingToolApproval,
    pub(crate) proposal: ProposalDocument,
    /// What a standing approval would compare.
    pub(crate) intent: Sha256Digest,
    pub(crate) definition: Sha256Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<ApprovalRecord>,
}
