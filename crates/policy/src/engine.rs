//! Decides. The only place where a verdict is made.
//!
//! Guarantees: deny unless a policy permits; any error denies; nothing is parsed or validated per call; a reload swaps the whole
//! set at once or leaves the old one in force.
//!
//! Ask needs no side channel. A request is evaluated with `context.approved` false and then true: allowed at once means run;
//! allowed only when approved means ask; allowed in neither means deny.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use cedar_policy::{Authorizer, PolicySet, Request, Response};
use palyra_types::{Action, Resource};

use crate::{
    cedar_request::{CedarRequest, RequestError},
    decision::{CallDecision, Cause, Decision, EvaluationFailure, PartDecision, PolicyInfo, Verdict},
    facts::ProcessFacts,
    problem::LoadError,
    question::Question,
    request::{CallRequest, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, Touch},
    set::Snapshot,
    slice::Slice,
    source::SourceFile,
};

/// The policy engine: a policy set in force, and the way to replace it.
#[derive(Debug)]
pub struct Engine {
    active: ArcSwap<Snapshot>,
}

impl Engine {
    /// An engine with the baseline and these operator policies in force.
    ///
    /// # Errors
    /// When the policies cannot be loaded; see [`LoadError`].
    pub fn new(operator: &[SourceFile]) -> Result<Self, LoadError> {
        Ok(Self { active: ArcSwap::from_pointee(Snapshot::load(operator)?) })
    }

    /// Puts the baseline and these operator policies in force, all at once. On error the old set stays in force.
    ///
    /// # Errors
    /// When the policies cannot be loaded; see [`LoadError`].
    pub fn reload(&self, operator: &[SourceFile]) -> Result<Arc<Snapshot>, LoadError> {
        let next = Arc::new(Snapshot::load(operator)?);
        self.active.store(Arc::clone(&next));
        Ok(next)
    }

    /// Puts a set in force that was loaded before.
    pub fn adopt(&self, next: Arc<Snapshot>) {
        self.active.store(next);
    }

    /// The set in force now. Several questions put to one snapshot are answered by one set, whatever is reloaded meanwhile.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.active.load_full()
    }

    /// Decides one request.
    pub fn decide(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> Decision {
        self.active.load().decide(request, context, config)
    }

    /// Decides a whole call.
    pub fn decide_call(
        &self,
        call: &CallRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> CallDecision {
        self.active.load().decide_call(call, context, config)
    }
}

/// Decides one request by the baseline alone, the way a daemon without operator policies would.
///
/// # Errors
/// When the built-in baseline cannot be loaded, which is a broken build. Nothing is decided then, so nothing may run.
pub fn evaluate_with_context(
    request: &PolicyRequest,
    context: &PolicyRequestContext,
    config: &PolicyEvaluationConfig,
) -> Result<Decision, LoadError> {
    static BASELINE: OnceLock<Result<Engine, LoadError>> = OnceLock::new();
    match BASELINE.get_or_init(|| Engine::new(&[])) {
        Ok(engine) => Ok(engine.decide(request, context, config)),
        Err(error) => Err(error.clone()),
    }
}

impl Snapshot {
    /// Decides one request.
    pub fn decide(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> Decision {
        self.decide_part(request, context, config, &ProcessFacts::default())
    }

    /// Decides one part of a call; `process` is what was read off the call's process, shared by its parts.
    pub(crate) fn decide_part(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
        process: &ProcessFacts,
    ) -> Decision {
        let cedar = CedarRequest::new(&self.vocabulary, request, context, config, process);
        let (verdict, cause) = cedar
            .and_then(|cedar| self.evaluate(&cedar))
            .unwrap_or_else(|error| (Verdict::Deny, Cause::Malformed { error }));
        Decision { verdict, cause, policy_set: self.digest() }
    }

    /// Decides a whole call: every part on its own, the strictest wins.
    pub fn decide_call(
        &self,
        call: &CallRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> CallDecision {
        self.decide_call_of(call, context, config, &ProcessFacts::default())
    }

    /// The same for one of several decisions about one process by one configuration: it is read once for all of them.
    pub fn decide_call_of(
        &self,
        call: &CallRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
        process: &ProcessFacts,
    ) -> CallDecision {
        let mut parts = vec![PartDecision {
            decision: self.decide_part(&call.request, context, config, process),
            request: call.request.clone(),
        }];
        for touch in &call.touches {
            let (request, context) = part_of(&call.request, touch, context);
            parts.push(PartDecision { decision: self.decide_part(&request, &context, config, process), request });
        }
        let verdict = parts.iter().map(|part| part.decision.verdict).max().unwrap_or(Verdict::Deny);
        CallDecision { verdict, parts }
    }

    /// What the policies say to a request.
    pub(crate) fn evaluate(&self, request: &CedarRequest<'_>) -> Result<(Verdict, Cause), RequestError> {
        let slice = self.index.slice(request, |position| self.entry(position));
        let question = Question::of(&request.facts(), slice.demands);
        if let Some(answer) = question.as_ref().and_then(|question| slice.answers.to(question)) {
            return Ok(answer);
        }
        let answer = self.authorize(request, &slice)?;
        if let Some(question) = question {
            slice.answers.keep(question, answer.clone());
        }
        Ok(answer)
    }

    /// Puts a request to Cedar.
    fn authorize(&self, request: &CedarRequest<'_>, slice: &Slice) -> Result<(Verdict, Cause), RequestError> {
        let entities = request.entities(slice.demands)?;
        let context = request.context(slice.demands)?;
        let ask =
            |set: &PolicySet, question: &Request| self.said(&Authorizer::new().is_authorized(question, set, &entities));
        // What does not look at `context.approved` says the same in both cases, and is asked once.
        let Some(open) = &slice.open else {
            return Ok(conclude(ask(&slice.settled, &request.within(context)?).answer(), None));
        };
        let settled = ask(&slice.settled, &request.within(context.clone())?);
        let unapproved = ask(open, &request.with_approved(context.clone(), false)?).with(&settled).answer();
        let approved = match unapproved.failures.is_empty() {
            true => Some(ask(open, &request.with_approved(context, true)?).with(&settled).answer()),
            false => None,
        };
        Ok(conclude(unapproved, approved))
    }

    fn said(&self, response: &Response) -> Said {
        let (reasons, failures) = (self.reasons(response), self.failures(response));
        let (permits, forbids) = match response.decision() {
            cedar_policy::Decision::Allow => (reasons, Vec::new()),
            cedar_policy::Decision::Deny => (Vec::new(), reasons),
        };
        Said { permits, forbids, failures }
    }

    fn reasons(&self, response: &Response) -> Vec<Arc<PolicyInfo>> {
        let mut reasons: Vec<_> =
            response.diagnostics().reason().filter_map(|id| self.info(id)).map(Arc::clone).collect();
        reasons.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        reasons
    }

    fn failures(&self, response: &Response) -> Vec<EvaluationFailure> {
        let mut failures: Vec<_> = response
            .diagnostics()
            .errors()
            // INVARIANT: a slice holds policies of this snapshot only, so every id is known and no failure is lost here.
            .filter_map(|error| {
                let cedar_policy::AuthorizationError::PolicyEvaluationError(failure) = error;
                let policy = Arc::clone(self.info(failure.policy_id())?);
                Some(EvaluationFailure { policy, message: failure.inner().to_string() })
            })
            .collect();
        failures.sort_unstable_by(|a, b| a.policy.id.cmp(&b.policy.id));
        failures
    }
}

/// What some policies say. Where one forbids, Cedar does not tell which others permit, and it does not matter.
struct Said {
    permits: Vec<Arc<PolicyInfo>>,
    forbids: Vec<Arc<PolicyInfo>>,
    failures: Vec<EvaluationFailure>,
}

impl Said {
    /// What these and others say together.
    fn with(mut self, others: &Self) -> Self {
        self.permits.extend_from_slice(&others.permits);
        self.forbids.extend_from_slice(&others.forbids);
        self.failures.extend_from_slice(&others.failures);
        self.permits.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        self.forbids.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        self.failures.sort_unstable_by(|a, b| a.policy.id.cmp(&b.policy.id));
        self
    }

    /// One forbid outweighs every permit, and without a permit nothing is allowed.
    fn answer(self) -> Answer {
        let Self { permits, forbids, failures } = self;
        let allowed = forbids.is_empty() && !permits.is_empty();
        Answer { allowed, reasons: if forbids.is_empty() { permits } else { forbids }, failures }
    }
}

/// What Cedar says to one of the two questions.
struct Answer {
    allowed: bool,
    reasons: Vec<Arc<PolicyInfo>>,
    failures: Vec<EvaluationFailure>,
}

/// Two answers make a verdict. `approved` is absent where it would be the same answer, or where the first one already failed.
fn conclude(unapproved: Answer, approved: Option<Answer>) -> (Verdict, Cause) {
    // SECURITY: Cedar skips a policy that fails, even a forbid, so any failure on either side denies.
    if !unapproved.failures.is_empty() {
        return (Verdict::Deny, Cause::Failed { failures: unapproved.failures });
    }
    let Some(approved) = approved else {
        return match (unapproved.allowed, unapproved.reasons) {
            (true, by) => (Verdict::Allow, Cause::Permitted { by }),
            (false, by) if by.is_empty() => (Verdict::Deny, Cause::NotPermitted),
            (false, by) => (Verdict::Deny, Cause::Forbidden { by }),
        };
    };
    if !approved.failures.is_empty() {
        return (Verdict::Deny, Cause::Failed { failures: approved.failures });
    }
    match (unapproved.allowed, approved.allowed) {
        (true, true) => (Verdict::Allow, Cause::Permitted { by: unapproved.reasons }),
        (false, true) => (Verdict::Ask, Cause::NeedsApproval { by: approved.reasons, held_by: unapproved.reasons }),
        (true, false) => (Verdict::Deny, Cause::Contradictory { by: approved.reasons }),
        (false, false) if approved.reasons.is_empty() => (Verdict::Deny, Cause::NotPermitted),
        (false, false) => (Verdict::Deny, Cause::Forbidden { by: approved.reasons }),
    }
}

/// The request that a touch makes on its own, in the context of the call it belongs to.
pub(crate) fn part_of<'c>(
    call: &PolicyRequest,
    touch: &Touch,
    context: &'c PolicyRequestContext,
) -> (PolicyRequest, Cow<'c, PolicyRequestContext>) {
    let (action, resource, port) = match touch {
        Touch::Read(path) => (Action::FsRead, Resource::Path(path.clone()), None),
        Touch::Write(path) => (Action::FsWrite, Resource::Path(path.clone()), None),
        Touch::Connect(host, port) => (Action::NetConnect, Resource::Host(host.clone()), Some(*port)),
        Touch::Use(secret) => (Action::VaultUse, Resource::Secret(secret.clone()), None),
        Touch::Reveal(secret) => (Action::VaultGet, Resource::Secret(secret.clone()), None),
        Touch::Execute(skill) => (Action::SkillExecute, Resource::Skill(skill.clone()), None),
        Touch::Object { action, resource } => (*action, resource.clone(), None),
    };
    let request = PolicyRequest { principal: call.principal.clone(), action, resource };
    let context = if context.port == port {
        Cow::Borrowed(context)
    } else {
        Cow::Owned(PolicyRequestContext { port, ..context.clone() })
    };
    (request, context)
}

#[cfg(test)]
mod tests {
    use palyra_types::{AbsolutePath, Principal, Process, Timestamp};

    use super::*;
    use crate::baseline::Preset;

    fn ask(action: Action, resource: &str) -> Decision {
        let request = PolicyRequest {
            principal: Principal::parse("agent:claude").unwrap(),
            action,
            resource: Resource::parse(resource).unwrap(),
        };
        let context = PolicyRequestContext::at(Timestamp::from_unix_millis(0));
        evaluate_with_context(&request, &context, &Preset::Cautious.config().unwrap()).unwrap()
    }

    #[test]
    fn the_baseline_and_every_preset_load_without_a_doubt() {
        Snapshot::load(&[]).unwrap();
        for preset in Preset::ALL {
            let set = Snapshot::load(&[preset.source()]).unwrap();
            assert_eq!(set.warnings(), [], "{preset}");
        }
    }

    #[test]
    fn the_baseline_alone_permits_reading_asks_for_tools_and_denies_the_rest() {
        assert_eq!(ask(Action::DaemonStatus, "daemon:local").verdict, Verdict::Allow);
        assert_eq!(ask(Action::ToolExecute, "tool:process.run").verdict, Verdict::Ask);
        assert_eq!(ask(Action::FsRead, "path:/etc/hosts").cause, Cause::NotPermitted);
    }

    #[test]
    fn what_asks_says_who_can_change_that_and_what_is_permitted_or_not_known_does_not() {
        let changes = |action, resource| ask(action, resource).changes().map(str::to_owned).collect::<Vec<_>>();
        let own =
            "an owner or admin adds a rule that permits it, or sets the posture `always_allow` where that is enough";
        assert_eq!(changes(Action::ToolExecute, "tool:process.run"), [own]);
        // What holds it back counts, and not what would permit it.
        let held = "nobody; approve the call when it asks";
        assert_eq!(changes(Action::MemoryPurge, "memory:agent:claude"), [held]);
        assert_eq!(changes(Action::DaemonStatus, "daemon:local"), [""; 0]);
        assert_eq!(changes(Action::FsRead, "path:/etc/hosts"), [""; 0]);
    }

    #[test]
    fn an_action_on_the_wrong_kind_of_resource_is_denied_as_malformed() {
        let decision = ask(Action::ToolExecute, "host:example.org");
        assert_eq!(decision.verdict, Verdict::Deny);
        assert_eq!(decision.reason(), "`tool.execute` is not about a host");
    }

    #[test]
    fn what_is_run_is_read_once_however_much_the_call_touches() {
        let tool = Resource::parse("tool:process.run").unwrap();
        let principal = Principal::parse("agent:claude").unwrap();
        let request = PolicyRequest { principal, action: Action::ToolExecute, resource: tool };
        let path = |n: usize| Touch::Read(AbsolutePath::parse(&format!("/work/{n}")).unwrap());
        let call = CallRequest { request, touches: (0..300).map(path).collect() };
        let context = PolicyRequestContext {
            process: Some(Process {
                program: AbsolutePath::parse("/bin/bash").unwrap(),
                leads_to: None,
                args: vec!["a ".repeat(100_000)],
                cwd: AbsolutePath::parse("/work").ok(),
            }),
            ..PolicyRequestContext::at(Timestamp::from_unix_millis(0))
        };
        let config = PolicyEvaluationConfig {
            state_directory: AbsolutePath::parse("/var/lib/palyra").ok(),
            ..Preset::Cautious.config().unwrap()
        };
        let started = std::time::Instant::now();
        let decision = Snapshot::load(&[]).unwrap().decide_call(&call, &context, &config);
        assert_eq!((decision.verdict, decision.parts.len()), (Verdict::Deny, 301));
        // Read once a part, this takes a hundred times as long.
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    #[test]
    fn an_approval_that_would_take_a_permission_away_denies() {
        let answer = |allowed| Answer { allowed, reasons: Vec::new(), failures: Vec::new() };
        let (verdict, cause) = conclude(answer(true), Some(answer(false)));
        assert_eq!((verdict, cause), (Verdict::Deny, Cause::Contradictory { by: Vec::new() }));
    }
}
