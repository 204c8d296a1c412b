//! Step one: decide. Puts a proposal to policy, once for each way it could run.
//!
//! Guarantees: policy comes first: what it denies in every plan is denied, whatever the sandbox would say. Of the plans that the sandbox
//! takes, the first that policy allows is taken, else the first that asks; a call that no plan is left for is refused. The verdict is
//! policy's and nobody else's. What a process is read for is read once, however many plans there are. A posture is named as what asks only
//! where another one would let the whole call run at once.

use std::{collections::BTreeSet, sync::Arc};

use palyra_policy::{
    Allowlist, CallDecision, CallRequest, Cause, PartDecision, PolicyEvaluationConfig, PolicyInfo, PolicyRequest,
    PolicyRequestContext, PrincipalName, ProcessFacts, RequestDocument, Snapshot, Verdict,
};
use palyra_sandbox::{SandboxProcessRunError, SandboxProcessRunErrorKind};
use palyra_types::{
    Action, EgressEnforcementMode, Posture, Resource, Sha256Digest, Timestamp, ToolMetadata, visible::visible,
};
use serde::Serialize;

use crate::{
    plan::{Plan, Unfit, UnfitReason, Way},
    posture::PostureLayer,
    proposal::ToolProposal,
    tool::{Intent, Work},
};

/// What a proposal is judged by.
pub struct Security<'a> {
    /// The policy set.
    pub policies: &'a Snapshot,
    /// The operator's switches and allowlists.
    pub config: &'a PolicyEvaluationConfig,
    /// How freely the tool may be used here, and which layer says so.
    pub posture: (Posture, Option<PostureLayer>),
    /// What the tool is.
    pub tool: &'a ToolMetadata,
    /// When.
    pub now: Timestamp,
}

/// What policy says to a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[must_use = "a decision that nobody looks at protects nothing"]
pub struct ToolDecision {
    /// Allow, ask or deny.
    pub verdict: Verdict,
    /// Whether a person has to approve first.
    pub approval_required: bool,
    /// How it would run. Absent when it will not.
    pub plan: Option<Plan>,
    /// The answer, part by part, for that plan; for a denied call, for the strongest plan.
    pub decision: CallDecision,
    /// The plans that do not fit, and why.
    pub unfit: Vec<Unfit>,
    /// How freely the tool may be used here.
    pub posture: Posture,
    /// Which layer says so; absent for the tool's own default.
    pub posture_from: Option<PostureLayer>,
    /// The policy set that decided.
    pub policy_set: Sha256Digest,
    /// What the reason leaves open: the allowlist that the caller is not on, for a call that nothing permits, or the posture that asks, once
    /// somebody is about to be asked.
    #[serde(skip)]
    pub detail: Option<String>,
}

impl ToolDecision {
    /// Why, in one sentence: the reason of the first part that decided.
    #[must_use]
    pub fn reason(&self) -> String {
        let first = self.decision.deciding().next();
        let reason = first.map_or_else(|| "nothing decided".to_owned(), |part| part.decision.reason());
        match &self.detail {
            Some(detail) => format!("{reason}: {detail}"),
            None => reason,
        }
    }

    /// Who can change what, so that it runs at once, as far as the policies behind the verdict say.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        let mut known = BTreeSet::new();
        let all = self.decision.deciding().flat_map(|part| part.decision.changes());
        all.filter(|change| known.insert(*change)).map(visible).collect()
    }

    /// The policies behind the verdict.
    #[must_use]
    pub fn policies(&self) -> Vec<&Arc<PolicyInfo>> {
        let mut known = BTreeSet::new();
        let all = self.decision.deciding().flat_map(|part| part.decision.policies());
        // Several parts of a call may have one policy behind them.
        all.filter(|policy| known.insert(&policy.id)).collect()
    }
}

/// Puts a proposal to policy. `ways` are those it could run in, strongest first. What is read off its process stays in `process`, for whoever
/// has more to ask about it.
///
/// # Errors
/// When there is no way to run it at all, which is nothing that policy could answer: why each does not fit.
pub fn evaluate_tool_proposal_security(
    proposal: &ToolProposal,
    (intent, process): (&Intent, &ProcessFacts),
    ways: Vec<Way>,
    mut unfit: Vec<Unfit>,
    security: &Security<'_>,
) -> Result<ToolDecision, Vec<Unfit>> {
    let call = call_request(proposal, intent);
    // An allowed plan ends the search; otherwise the first of the least strict verdict counts.
    let mut best: Option<(CallDecision, Plan)> = None;
    for Way { plan, refused } in ways {
        let context = context(proposal, intent, &plan, security);
        let decision = security.policies.decide_call_of(&call, &context, security.config, process);
        // What the sandbox would refuse is not worth a question. But a person may let a call reach a host that nobody listed.
        let can_be_asked = |error: &SandboxProcessRunError| {
            error.kind == SandboxProcessRunErrorKind::EgressDenied
                && plan.egress() == Some(EgressEnforcementMode::Strict)
                && decision.verdict == Verdict::Ask
        };
        if let Some(error) = refused.filter(|error| decision.verdict != Verdict::Deny && !can_be_asked(error)) {
            unfit.push(Unfit { tier: plan.tier(), reason: UnfitReason::Refused(error) });
            continue;
        }
        if best.as_ref().is_none_or(|(known, _)| decision.verdict < known.verdict) {
            let allowed = decision.verdict == Verdict::Allow;
            best = Some((decision, plan));
            if allowed {
                break;
            }
        }
    }
    let Some((decision, plan)) = best else { return Err(unfit) };
    let verdict = decision.verdict;
    let detail = match verdict {
        Verdict::Allow | Verdict::Ask => None,
        Verdict::Deny => unlisted(proposal, &decision, security.config),
    };
    Ok(ToolDecision {
        verdict,
        approval_required: verdict == Verdict::Ask,
        plan: (verdict != Verdict::Deny).then_some(plan),
        decision,
        unfit,
        posture: security.posture.0,
        posture_from: security.posture.1,
        policy_set: security.policies.digest(),
        detail,
    })
}

/// What a call was decided by, for whoever asks why it asks.
pub(crate) struct Grounds<'a> {
    pub(crate) proposal: &'a ToolProposal,
    pub(crate) intent: &'a Intent,
    pub(crate) tool: &'a ToolMetadata,
    pub(crate) policies: &'a Snapshot,
    pub(crate) config: &'a PolicyEvaluationConfig,
    /// What was read off its process when it was decided about.
    pub(crate) process: &'a ProcessFacts,
    /// As of when that was.
    pub(crate) now: Timestamp,
}

impl Grounds<'_> {
    /// The tool's posture and where it is set, if with another one policy would let the whole call run at once. That is another decision, so
    /// it is worked out for calls that somebody is asked about.
    pub(crate) fn posture_that_asks(&self, asks: &ToolDecision) -> Option<String> {
        let is_about_the_tool = |part: &PartDecision| matches!(part.request.resource, Resource::Tool(_));
        asks.decision.deciding().next().filter(|part| is_about_the_tool(part))?;
        let known = context_of(self.proposal, self.intent, asks, Some(self.tool), self.now);
        let free = PolicyRequestContext { posture: Posture::AlwaysAllow, ..known };
        let call = call_request(self.proposal, self.intent);
        let freed = self.policies.decide_call_of(&call, &free, self.config, self.process);
        let holds = match asks.posture_from {
            None => "by default",
            Some(PostureLayer::Session) => "in this session",
            Some(PostureLayer::Agent) => "for this principal",
            Some(PostureLayer::Workspace) => "in this workspace",
            Some(PostureLayer::Global) => "everywhere",
        };
        (freed.verdict == Verdict::Allow).then(|| format!("its posture is `{}` {holds}", asks.posture))
    }
}

/// The allowlist that the caller is not on, if nothing permits the call: most likely that is why.
fn unlisted(proposal: &ToolProposal, decision: &CallDecision, config: &PolicyEvaluationConfig) -> Option<String> {
    let nothing_permits = |part: &PartDecision| matches!(part.decision.cause, Cause::NotPermitted);
    if !decision.deciding().next().is_some_and(nothing_permits) {
        return None;
    }
    let channels = &config.tool_execute_channel_allowlist;
    let by_channel = match &proposal.channel {
        Some(channel) if !channels.contains(channel) => Some(format!("the channel `{channel}` is not")),
        None if *channels != Allowlist::Any => Some("a call by no channel is not".to_owned()),
        _ => None,
    };
    let principals = &config.tool_execute_principal_allowlist;
    let listed = principals.contains(&PrincipalName::from(&proposal.principal));
    match by_channel {
        Some(who) => Some(format!("{who} on `tool_execute_channel_allowlist`")),
        None if listed => None,
        None => Some(format!("`{}` is not on `tool_execute_principal_allowlist`", proposal.principal)),
    }
}

/// The request that a proposal makes, as it can be recorded and put to other policies later.
#[must_use]
pub fn recorded_request(
    proposal: &ToolProposal,
    intent: &Intent,
    decision: &ToolDecision,
    tool: &ToolMetadata,
    now: Timestamp,
) -> RequestDocument {
    let context = context_of(proposal, intent, decision, Some(tool), now);
    RequestDocument::record(&call_request(proposal, intent), &context)
}

/// The context that a call was decided in.
pub(crate) fn context_of(
    proposal: &ToolProposal,
    intent: &Intent,
    decision: &ToolDecision,
    tool: Option<&ToolMetadata>,
    now: Timestamp,
) -> PolicyRequestContext {
    let plan = decision.plan.as_ref();
    PolicyRequestContext {
        capabilities: tool.map(|tool| tool.capabilities.clone()).unwrap_or_default(),
        posture: decision.posture,
        tier: plan.and_then(Plan::tier),
        egress: plan.and_then(Plan::egress),
        ..bare_context(proposal, intent, now)
    }
}

fn call_request(proposal: &ToolProposal, intent: &Intent) -> CallRequest {
    CallRequest {
        request: PolicyRequest {
            principal: proposal.principal.clone(),
            action: Action::ToolExecute,
            resource: Resource::Tool(proposal.tool.clone()),
        },
        touches: intent.touches.clone(),
    }
}

fn context(proposal: &ToolProposal, intent: &Intent, plan: &Plan, security: &Security<'_>) -> PolicyRequestContext {
    PolicyRequestContext {
        capabilities: security.tool.capabilities.clone(),
        posture: security.posture.0,
        tier: plan.tier(),
        egress: plan.egress(),
        ..bare_context(proposal, intent, security.now)
    }
}

fn bare_context(proposal: &ToolProposal, intent: &Intent, now: Timestamp) -> PolicyRequestContext {
    let process = match &intent.work {
        Work::Process(work) => Some(work.process()),
        Work::Elsewhere(work) => work.process.clone(),
        Work::Files(_)
        | Work::Fetch(_)
        | Work::Skill(_)
        | Work::Service(_)
        | Work::Connect(_)
        | Work::Report { .. } => None,
    };
    let skill = match &intent.work {
        Work::Skill(work) => Some(work.skill.clone()),
        _ => None,
    };
    let bound = intent.work.secrets().iter().filter(|one| !one.bindings.is_empty());
    PolicyRequestContext {
        device_id: proposal.device.clone(),
        channel: proposal.channel.clone(),
        session_id: Some(proposal.session),
        run_id: Some(proposal.run),
        token_id: proposal.token.clone(),
        on_behalf_of: proposal.on_behalf_of.clone(),
        tool_name: Some(proposal.tool.clone()),
        skill_id: skill,
        workspace: proposal.workspace.clone(),
        member_of: proposal.member_of.clone(),
        bound_secrets: bound.map(|one| one.secret.clone()).collect(),
        process,
        elsewhere: proposal.elsewhere.is_some(),
        ..PolicyRequestContext::at(now)
    }
}
