//! Questions and answers, from the gate's words into those of the wire.

use palyra_api::{
    approval::{Answered, Approval, ApprovalState as Told, Approve, Command, Containment, Grant, Risk, Scope},
    call::PolicyRef,
};
use palyra_gate::{
    ApprovalRecord, DecisionScope, PendingToolApproval, ProcessWork, Work, approval::record::Pattern, plan::Plan,
};
use palyra_journal::state::ApprovalState;
use palyra_types::{Clock, SandboxTier, Timestamp, id::ApprovalId};

use crate::{app::App, failure::Failure};

/// A question, and what came of it.
#[must_use]
pub fn told(prompt: &PendingToolApproval, answer: Option<&ApprovalRecord>, clock: &dyn Clock) -> Approval {
    let remaining = prompt.answer_by.remaining(clock, Timestamp::from_unix_millis(0));
    let within = if answer.is_some() { 0 } else { u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX) };
    let (command, files) = match &prompt.work {
        Work::Process(work) => (Some(command(work)), None),
        Work::Files(work) => (None, serde_json::to_value(work).ok()),
        Work::Report { .. } => (None, None),
    };
    Approval {
        id: prompt.id,
        call: prompt.call,
        run: prompt.run,
        session: prompt.session,
        principal: prompt.principal.to_string(),
        on_behalf_of: prompt.on_behalf_of.as_ref().map(ToString::to_string),
        workspace: prompt.workspace.as_ref().map(ToString::to_string),
        tool: prompt.tool.clone(),
        summary: prompt.summary.clone(),
        args: prompt.args.clone(),
        command,
        files,
        plan: containment(&prompt.plan),
        risk: Risk { level: prompt.risk.level.to_string(), reasons: prompt.risk.reasons.clone() },
        reason: prompt.reason.clone(),
        policies: prompt
            .policies
            .iter()
            .map(|policy| PolicyRef {
                id: policy.id.to_string(),
                location: policy.location.clone(),
                why: policy.why.clone(),
            })
            .collect(),
        digest: prompt.digest,
        asked_at: prompt.asked_at,
        answer_by: prompt.answer_by.at,
        answer_within_ms: within,
        valid_for_seconds: prompt.valid_for_seconds,
        waiting: prompt.waiting.to_string(),
        state: answer.map_or(Told::Pending, |answer| state(answer.state)),
        answer: answer.map(answered),
    }
}

/// Questions that are pending, after this one: so many, and not much more than a page of bytes; and whether there are more.
///
/// # Errors
/// When the journal cannot be read.
pub async fn page(app: &App, after: Option<ApprovalId>, most: usize) -> Result<(Vec<Approval>, bool), Failure> {
    let (mut approvals, mut after, mut bytes) = (Vec::new(), after, 0);
    loop {
        let prompts = app.gate.pending_approvals(after, PAGE).await?;
        let Some(last) = prompts.last() else { return Ok((approvals, false)) };
        after = Some(last.id);
        for prompt in &prompts {
            if approvals.len() == most || bytes > PAGE_BYTES {
                return Ok((approvals, true));
            }
            bytes += prompt.summary.len() * 2;
            approvals.push(told(prompt, None, app.clock.as_ref()));
        }
        // A page takes a while to read; others come first.
        tokio::task::yield_now().await;
    }
}

/// An answer.
#[must_use]
pub fn answered(record: &ApprovalRecord) -> Answered {
    Answered {
        id: record.id,
        state: state(record.state),
        by: record.by.as_ref().map(ToString::to_string),
        covers: record.covers.clone(),
        message: record.message.clone(),
        cause: record.cause.clone(),
        at: record.at,
        valid_until: record.valid_until.map(|until| until.at),
    }
}

/// How much a yes covers.
///
/// # Errors
/// When what is said does not go together.
pub fn scope(approve: &Approve) -> Result<DecisionScope, Failure> {
    let pattern = match approve.fixed_arguments {
        None => Pattern::Exact,
        Some(fixed) => Pattern::Trailing { fixed: usize::try_from(fixed).unwrap_or(usize::MAX) },
    };
    match (approve.scope, approve.minutes) {
        (Scope::Once, None) if approve.fixed_arguments.is_none() => Ok(DecisionScope::Once),
        (Scope::Session, None) => Ok(DecisionScope::Session { pattern }),
        (Scope::Timeboxed, Some(minutes)) => Ok(DecisionScope::Timeboxed { minutes, pattern }),
        (Scope::Once, _) => {
            Err(Failure::bad_request("`once` covers this call and takes neither minutes nor a pattern"))
        }
        (Scope::Session, Some(_)) => Err(Failure::bad_request("`session` takes no minutes")),
        (Scope::Timeboxed, None) => Err(Failure::bad_request("`timeboxed` needs `minutes`")),
    }
}

/// A standing approval.
#[must_use]
pub fn grant(grant: palyra_gate::approval::grant::StandingApproval) -> Grant {
    Grant {
        id: grant.id,
        session: grant.session,
        principal: grant.principal,
        tool: grant.tool,
        covers: grant.covers,
        by: grant.by.to_string(),
        until: grant.until,
        uses: grant.uses,
    }
}

fn command(work: &ProcessWork) -> Command {
    Command {
        program: work.program.to_string(),
        leads_to: work.leads_to.as_ref().map(ToString::to_string),
        args: work.args.clone(),
        cwd: work.cwd.to_string(),
        environment: work.env.clone(),
        stdin_sha256: work.stdin_sha256,
        scripts: work.scripts.iter().map(|script| script.path.to_string()).collect(),
    }
}

fn containment(plan: &Plan) -> Containment {
    let writes = match plan.tier() {
        None => "what its arguments name, inside the workspace",
        Some(SandboxTier::B) => "whatever the daemon's user can write: tier b contains nothing",
        Some(SandboxTier::A | SandboxTier::C) => "the workspace, and nothing else",
    };
    let hosts = match plan {
        Plan::Process { process, .. } => {
            process.egress.hosts.iter().map(|host| format!("{}:{}", host.host, host.port)).collect()
        }
        Plan::Daemon => Vec::new(),
    };
    Containment {
        tier: plan.tier().map(|tier| tier.to_string()),
        egress: plan.egress().map(|egress| egress.to_string()),
        writes: writes.to_owned(),
        hosts,
        secrets: Vec::new(),
        wall_ms: plan.wall_ms(),
    }
}

/// What came of a question.
#[must_use]
pub const fn state(state: ApprovalState) -> Told {
    match state {
        ApprovalState::Pending => Told::Pending,
        ApprovalState::Approved => Told::Approved,
        ApprovalState::Consumed => Told::Consumed,
        ApprovalState::Denied => Told::Denied,
        ApprovalState::Expired => Told::Expired,
        ApprovalState::Cancelled => Told::Cancelled,
    }
}

/// How many questions are read at once.
const PAGE: usize = 8;

/// How many bytes of questions are told at once, more or less.
const PAGE_BYTES: usize = 4 << 20;
