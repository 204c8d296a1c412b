//! Answers that hold for more than one call: for a session, or for some time.
//!
//! Guarantees: a grant covers the same principal for the same user in the same session and workspace with the same tool, exactly the same work or a trailing
//! wildcard that was shown, and a plan that is equal or narrower; never a program that runs what it is handed by wildcard; a new start of the
//! machine ends it if it was for the session; and it replaces the question only, so policy is asked anew for every call.

use palyra_journal::state::GrantRow;
use palyra_types::{
    AbsolutePath, Clock, DeviceId, Principal, Sha256Digest, Timestamp, TokenId, ToolName, WorkspaceName,
    id::{ApprovalId, SessionId},
    json::digest_of,
    process::{is_interpreter, is_launcher},
    visible::visible,
};
use serde::{Deserialize, Serialize};

use super::record::{DecisionScope, Pattern, PendingToolApproval};
use crate::{
    action::CallAction,
    deadline::Deadline,
    gate::Gate,
    plan::{Bounds, Plan},
    proposal::ToolProposal,
    refusal::Refusal,
    secret::SecretUse,
    tool::{HostPort, ProcessWork, Work},
};

/// A standing approval that covers a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedApproval {
    /// The question it answers.
    pub id: ApprovalId,
    /// Who gave it.
    pub by: Principal,
    /// What it covers, in words.
    pub covers: String,
}

/// A standing approval, for whoever looks at what stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StandingApproval {
    /// The question whose answer it is, by which it can be ended.
    pub id: ApprovalId,
    /// The conversation it holds for.
    pub session: SessionId,
    /// Whom it covers, as `kind:name`.
    pub principal: String,
    /// The user that they act for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<Principal>,
    /// The workspace it holds in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceName>,
    /// The tool it covers.
    pub tool: ToolName,
    /// What it covers, in words.
    pub covers: String,
    /// Who gave it.
    pub by: Principal,
    /// How much was given.
    pub scope: DecisionScope,
    /// Until when; for the session it has no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How often it was used.
    pub uses: u64,
}

impl Gate {
    /// The approvals that stand now, oldest first.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn grants(&self) -> Result<Vec<StandingApproval>, Refusal> {
        let inner = &self.inner;
        let standing = |row: GrantRow| {
            // A grant that cannot be read covers nothing.
            let document: GrantDocument = serde_json::from_str(&row.document).ok()?;
            document.holds(inner.clock.as_ref(), inner.recorded()).then(|| StandingApproval {
                id: row.id,
                session: row.session,
                principal: row.principal,
                on_behalf_of: document.on_behalf_of,
                workspace: document.workspace,
                tool: row.tool,
                covers: document.covers,
                by: document.by,
                scope: document.scope,
                until: matches!(document.scope, DecisionScope::Timeboxed { .. }).then_some(document.until.at),
                uses: row.uses,
            })
        };
        Ok(inner.store.grants().await?.into_iter().filter_map(standing).collect())
    }
}

/// What a standing approval covers, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantDocument {
    pub(crate) by: Principal,
    /// The device that they answered from, or the token that they answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<DeviceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<TokenId>,
    pub(crate) scope: DecisionScope,
    /// In words, without tokens.
    pub(crate) covers: String,
    pub(crate) workspace: Option<WorkspaceName>,
    /// The user that the call was made for. Whoever may not approve their own calls must not get by with what was given for another's.
    #[serde(default)]
    pub(crate) on_behalf_of: Option<Principal>,
    pub(crate) definition: Sha256Digest,
    pub(crate) cover: Cover,
    pub(crate) bounds: Bounds,
    /// For the session: never, but it names the start of the machine that it holds for.
    pub(crate) until: Deadline,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Cover {
    /// Exactly this.
    Exact { intent: Sha256Digest },
    /// This program with these first arguments.
    Trailing {
        program: AbsolutePath,
        #[serde(default)]
        leads_to: Option<AbsolutePath>,
        program_sha256: Option<Sha256Digest>,
        cwd: AbsolutePath,
        fixed: usize,
        /// The digest of the first arguments, the variables, which may hold tokens, and the secrets with where they may go.
        words: Sha256Digest,
    },
}

/// The standing approval that covers this call, if there is one that holds now.
#[must_use]
pub fn resolve_cached_tool_approval_for_proposal(
    rows: &[GrantRow],
    call: &Covered<'_>,
    clock: &dyn Clock,
    recorded: Timestamp,
) -> Option<CachedApproval> {
    rows.iter().find_map(|row| {
        // A grant that cannot be read covers nothing.
        let document: GrantDocument = serde_json::from_str(&row.document).ok()?;
        let same_row = row.session == call.proposal.session
            && row.principal == call.proposal.principal.to_string()
            && row.tool == call.proposal.tool
            && !row.ended;
        (same_row && document.holds(clock, recorded) && document.covers(call)).then_some(CachedApproval {
            id: row.id,
            by: document.by,
            covers: document.covers,
        })
    })
}

/// A call that a standing approval may cover.
pub struct Covered<'a> {
    /// The call.
    pub proposal: &'a ToolProposal,
    /// What it would do.
    pub work: &'a Work,
    /// How it would run.
    pub plan: &'a Plan,
    /// Its digests.
    pub action: &'a CallAction,
    /// The digest of the tool's definition.
    pub definition: Sha256Digest,
}

impl GrantDocument {
    pub(crate) fn holds(&self, clock: &dyn Clock, recorded: Timestamp) -> bool {
        match self.scope {
            DecisionScope::Once => false,
            DecisionScope::Session { .. } => !self.until.is_from_another_boot(clock),
            DecisionScope::Timeboxed { .. } => !self.until.has_passed(clock, recorded),
        }
    }

    fn covers(&self, call: &Covered<'_>) -> bool {
        self.workspace == call.proposal.workspace
            && same(self.on_behalf_of.as_ref(), call.proposal.on_behalf_of.as_ref())
            && self.definition == call.definition
            && self.bounds.covers(&call.plan.bounds())
            && self.cover.covers(call)
    }
}

impl Cover {
    /// What a pattern covers for this work.
    pub(crate) fn of(pattern: Pattern, work: &Work, intent: Sha256Digest) -> Result<Self, PatternError> {
        if work.secrets().iter().any(SecretUse::is_revealed) {
            return Err(PatternError::Revealed);
        }
        let Pattern::Trailing { fixed } = pattern else { return Ok(Self::Exact { intent }) };
        let Work::Process(work) = work else { return Err(PatternError::NoProcess) };
        if runs_what_it_is_handed(work) {
            return Err(PatternError::RunsAnything(work.program.file_name().to_owned()));
        }
        if work.stdin_sha256.is_some() {
            return Err(PatternError::Stdin);
        }
        let words = words(work, fixed).ok_or(PatternError::TooFewArguments { given: work.args.len(), fixed })?;
        Ok(Self::Trailing {
            program: work.program.clone(),
            leads_to: work.leads_to.clone(),
            program_sha256: work.program_sha256,
            cwd: work.cwd.clone(),
            fixed,
            words,
        })
    }

    /// What it covers in words, to be shown before it is given for this.
    pub(crate) fn shown(&self, prompt: &PendingToolApproval) -> String {
        match (self, &prompt.work) {
            (Self::Trailing { program, fixed, .. }, Work::Process(work)) => {
                let (program, args) = (program.clone(), work.args.iter().take(*fixed).cloned().collect());
                let process = palyra_types::Process { program, leads_to: None, args, cwd: None };
                format!("{} … with any further arguments", visible(&process.command()))
            }
            // What wanted it is not part of it: the next program of the session wants the same.
            (_, Work::Connect(HostPort { host, port })) => {
                format!("connections of any program to {host} port {port}")
            }
            _ => format!("exactly: {}", prompt.summary),
        }
    }

    fn covers(&self, call: &Covered<'_>) -> bool {
        match (self, call.work) {
            (Self::Exact { intent }, _) => *intent == call.action.intent,
            (Self::Trailing { program, leads_to, program_sha256, cwd, fixed, words: known }, Work::Process(work)) => {
                // SECURITY: a program that runs what it is handed is never covered, even if it became one since.
                !runs_what_it_is_handed(work)
                    && work.stdin_sha256.is_none()
                    && *program == work.program
                    && *leads_to == work.leads_to
                    && *program_sha256 == work.program_sha256
                    && *cwd == work.cwd
                    && words(work, *fixed) == Some(*known)
            }
            (
                Self::Trailing { .. },
                Work::Files(_)
                | Work::Fetch(_)
                | Work::Skill(_)
                | Work::Service(_)
                | Work::Connect(_)
                | Work::Elsewhere(_)
                | Work::Report { .. },
            ) => false,
        }
    }
}

/// The digest of the words that a wildcard fixes, if there are so many.
fn words(work: &ProcessWork, fixed: usize) -> Option<Sha256Digest> {
    let args = work.args.get(..fixed)?;
    match work.secrets.as_slice() {
        [] => digest_of(&(&work.argv0, args, &work.env)).ok(),
        secrets => digest_of(&(&work.argv0, args, &work.env, secrets)).ok(),
    }
}

/// Whether both are nobody, or the same. Roles come and go, and do not count.
fn same(one: Option<&Principal>, other: Option<&Principal>) -> bool {
    let name = |principal: &Principal| (principal.kind(), principal.id().clone());
    one.map(name) == other.map(name)
}

fn runs_what_it_is_handed(work: &ProcessWork) -> bool {
    let names = [Some(&work.program), work.leads_to.as_ref()];
    let by_name =
        names.into_iter().flatten().any(|path| is_interpreter(path.file_name()) || is_launcher(path.file_name()));
    by_name || !work.scripts.is_empty()
}

/// Why a pattern cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The call is given the value of a secret.
    #[error("it is given the value of a secret, which is approved for one call at a time")]
    Revealed,
    /// Only commands have arguments to leave open.
    #[error("only a command can be approved with further arguments")]
    NoProcess,
    /// The program runs what it is handed.
    #[error("`{}` runs what it is handed, so further arguments could be anything", visible(.0))]
    RunsAnything(String),
    /// The call has standard input, which is handed over whole.
    #[error("the command reads standard input, which can only be approved exactly")]
    Stdin,
    /// More arguments are to be fixed than there are.
    #[error("{fixed} arguments are to be fixed, and the call has {given}")]
    TooFewArguments {
        /// How many there are.
        given: usize,
        /// How many are to be fixed.
        fixed: usize,
    },
}
