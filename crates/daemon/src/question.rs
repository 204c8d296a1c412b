//! Questions and answers, from the gate's words into those of the wire.

use std::{collections::BTreeMap, fmt};

use palyra_api::{
    approval::{
        Answered, Approval, ApprovalState as Told, Approve, Command, Containment, Grant, Risk, Scope, SkillCall,
        SkillDirectory,
    },
    call::PolicyRef,
};
use palyra_gate::{
    ApprovalRecord, DecisionScope, Deputy, ElsewhereWork, HostPort, PendingToolApproval, ProcessWork, ServiceWork,
    SkillTerms, SkillWork, Work, approval::record::Pattern, plan::Plan, secret::SecretUse,
};
use palyra_journal::{state::ApprovalState, store::ApprovalQuery};
use palyra_package::FileAccess;
use palyra_types::{Clock, SandboxTier, Timestamp, id::ApprovalId, visible::visible};
use serde_json::{Value, json};

use crate::{app::App, failure::Failure, skills};

/// Where a person finds a question in the console, whose local listener is there.
#[must_use]
pub fn place(local: impl fmt::Display, approval: ApprovalId) -> String {
    format!("http://{local}/#{approval}")
}

/// A question, and what came of it.
#[must_use]
pub fn told(prompt: &PendingToolApproval, answer: Option<&ApprovalRecord>, clock: &dyn Clock) -> Approval {
    let remaining = prompt.answer_by.remaining(clock, Timestamp::from_unix_millis(0));
    let within = if answer.is_some() { 0 } else { u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX) };
    let (command, files, skill) = match &prompt.work {
        Work::Process(work) => (Some(command(work)), None, None),
        Work::Files(work) => (None, serde_json::to_value(work).ok(), None),
        Work::Skill(work) => (None, None, Some(skill(work, &prompt.plan))),
        Work::Elsewhere(work) => (run_elsewhere(work), files_elsewhere(work), None),
        Work::Fetch(_) | Work::Service(_) | Work::Connect(_) | Work::Report { .. } => (None, None, None),
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
        skill,
        plan: containment(&prompt.work, &prompt.plan),
        risk: Risk { level: prompt.risk.level.to_string(), reasons: prompt.risk.reasons.clone() },
        reason: prompt.reason.clone(),
        change: prompt.change.clone(),
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

/// Questions that are told together.
#[derive(Default)]
pub struct Page {
    /// The questions.
    pub approvals: Vec<Approval>,
    /// Those among them that cannot be read.
    pub unreadable: Vec<ApprovalId>,
    /// Whether there are more.
    pub more: bool,
}

/// Questions that are pending, after this one: so many, and not much more than a page of bytes. One that cannot be read is named, and hides no
/// other.
///
/// # Errors
/// When the journal cannot be read.
pub async fn page(app: &App, after: Option<ApprovalId>, most: usize) -> Result<Page, Failure> {
    let (mut page, mut after, mut bytes) = (Page::default(), after, 0);
    loop {
        let (questions, last) = portion(app, after).await?;
        for (id, prompt) in questions {
            if page.approvals.len() == most || bytes > PAGE_BYTES {
                return Ok(Page { more: true, ..page });
            }
            match prompt {
                Some(prompt) => {
                    bytes += prompt.summary.len() * 2;
                    page.approvals.push(told(&prompt, None, app.clock.as_ref()));
                }
                None => page.unreadable.push(id),
            }
        }
        if last.is_none() {
            return Ok(page);
        }
        after = last;
        // A page takes a while to read; others come first.
        tokio::task::yield_now().await;
    }
}

/// Some questions that are pending, after this one; and the last of them, if there may be more behind it. Nothing stands for one that cannot be
/// read.
async fn portion(app: &App, after: Option<ApprovalId>) -> Result<(Vec<Pending>, Option<ApprovalId>), Failure> {
    let prompts = app.gate.pending_approvals(after, PORTION).await?;
    if prompts.len() == PORTION {
        let last = prompts.last().map(|prompt| prompt.id);
        return Ok((prompts.into_iter().map(|prompt| (prompt.id, Some(prompt))).collect(), last));
    }
    // There are no more, or some cannot be read and were left out.
    let query = ApprovalQuery { state: ApprovalState::Pending, after, most: PORTION };
    let rows = app.store.approvals_in(query).await?;
    let mut prompts: BTreeMap<_, _> = prompts.into_iter().map(|prompt| (prompt.id, prompt)).collect();
    let mut questions = Vec::new();
    for row in &rows {
        let prompt = match prompts.remove(&row.id) {
            Some(prompt) => Some(prompt),
            // It may have come meanwhile, and be answered already.
            None => match app.gate.approval(row.id).await {
                Ok(Some((prompt, None))) => Some(prompt),
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(approval = %row.id, %error, "a question cannot be read");
                    None
                }
            },
        };
        questions.push((row.id, prompt));
    }
    Ok((questions, rows.get(PORTION - 1).map(|last| last.id)))
}

/// A question, if it can be read.
type Pending = (ApprovalId, Option<PendingToolApproval>);

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

/// A command that the agent runs itself.
fn run_elsewhere(work: &ElsewhereWork) -> Option<Command> {
    let process = work.process.as_ref()?;
    Some(Command {
        program: process.program.to_string(),
        leads_to: process.leads_to.as_ref().map(ToString::to_string),
        args: process.args.clone(),
        cwd: process.cwd.as_ref().map(ToString::to_string).unwrap_or_default(),
        environment: work.environment.clone(),
        stdin_sha256: None,
        scripts: Vec::new(),
    })
}

/// The files that the agent reaches itself, by every path that they have.
fn files_elsewhere(work: &ElsewhereWork) -> Option<Value> {
    let has_none = work.reads.is_empty() && work.writes.is_empty();
    (!has_none).then(|| json!({ "operation": work.tool, "reads": work.reads, "writes": work.writes }))
}

/// The hosts that the agent reaches itself: those that it names, unless it runs a program or nobody knows what it does.
fn hosts_elsewhere(work: &ElsewhereWork) -> Vec<String> {
    let names_nothing = work.reads.is_empty() && work.writes.is_empty() && work.hosts.is_empty();
    if work.process.is_some() || names_nothing {
        return vec!["any: nothing holds its network back".to_owned()];
    }
    work.hosts.iter().map(|HostPort { host, port }| format!("{host}:{port}")).collect()
}

fn skill(work: &SkillWork, plan: &Plan) -> SkillCall {
    let terms = match plan {
        Plan::Skill { terms, .. } => terms.clone(),
        // A skill has no other plan.
        _ => SkillTerms::default(),
    };
    let directories = work.directories.iter().map(|(name, one)| {
        (name.clone(), SkillDirectory { path: one.path.clone(), access: skills::access(one.access) })
    });
    let publisher = work.skill.as_str().split('/').next().unwrap_or_default();
    SkillCall {
        id: work.skill.clone(),
        version: work.version.clone(),
        publisher: publisher.to_owned(),
        signed_by: work.signed_by.clone(),
        tool: work.tool.clone(),
        package_sha256: work.package_sha256,
        component_sha256: work.component_sha256,
        directories: directories.collect(),
        may: terms.grants.words(),
        limits: skills::limits(&terms.limits),
    }
}

/// What a skill may write: directories, by their real paths, and what it keeps for itself.
fn written_by(work: &SkillWork, plan: &Plan) -> String {
    let directories = work.directories.values().filter(|one| one.access == FileAccess::Write);
    let mut places: Vec<String> = directories.map(|one| visible(one.path.as_str())).collect();
    places.sort();
    places.dedup();
    if matches!(plan, Plan::Skill { terms, .. } if terms.grants.kv.is_some()) {
        places.push("what it keeps for its later calls".to_owned());
    }
    match places.is_empty() {
        true => "nothing".to_owned(),
        false => format!("{}, and nothing else", places.join(", ")),
    }
}

fn containment(work: &Work, plan: &Plan) -> Containment {
    let writes = match (plan, plan.tier()) {
        (Plan::Fetch { .. }, _) => "nothing",
        (Plan::Elsewhere, _) => {
            "whatever the agent's user can write: the agent does it itself, and nothing contains it"
        }
        _ if matches!(work, Work::Connect(_)) => "nothing more than before: the program that wants this runs already",
        (_, None) => "what its arguments name, inside the workspace",
        (_, Some(SandboxTier::B)) => "whatever the daemon's user can write: tier b contains nothing",
        (_, Some(SandboxTier::A | SandboxTier::C)) => "the workspace, and nothing else",
    };
    let deputy = match work {
        Work::Service(ServiceWork { deputy, .. }) => deputy.as_ref(),
        _ => None,
    };
    let writes = match (work, deputy) {
        (Work::Skill(work), _) => written_by(work, plan),
        (_, Some(deputy)) => written_by_deputy(deputy),
        _ => writes.to_owned(),
    };
    let mut hosts: Vec<String> = plan.hosts().iter().map(|host| format!("{}:{}", host.host, host.port)).collect();
    if let Work::Connect(HostPort { host, port }) = work {
        hosts.push(format!("{host}:{port}"));
    }
    if let Work::Elsewhere(work) = work {
        hosts.extend(hosts_elsewhere(work));
    }
    hosts.extend(deputy.into_iter().flat_map(Deputy::places).map(|HostPort { host, port }| format!("{host}:{port}")));
    let used = deputy.into_iter().flat_map(Deputy::secrets).map(ToString::to_string);
    Containment {
        tier: plan.tier().map(|tier| tier.to_string()),
        elsewhere: matches!(plan, Plan::Elsewhere),
        egress: plan.egress().map(|egress| egress.to_string()),
        writes,
        hosts,
        only_once: work.secrets().iter().any(SecretUse::is_revealed),
        secrets: work.secrets().iter().map(|one| visible(&one.words())).chain(used).collect(),
        wall_ms: plan.wall_ms(),
    }
}

/// What a program or a server of somebody else may write.
fn written_by_deputy(deputy: &Deputy) -> String {
    match deputy {
        Deputy::Program { workspace: Some(workspace), .. } => format!("the workspace {workspace}, and nothing else"),
        Deputy::Program { workspace: None, .. } => "an empty directory of its own, and nothing else".to_owned(),
        Deputy::Server { .. } => "whatever the server can write: nothing here contains it".to_owned(),
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
const PORTION: usize = 8;

/// How many bytes of questions are told at once, more or less.
const PAGE_BYTES: usize = 4 << 20;
