//! Conducts one call along its path. Read this first.
//!
//! Every step either hands on what the next one needs or refuses, and every refusal is journalled, but for these: a call whose id was used
//! before, because its record would stand in another call's story; one whose key another call has, because it is that call again; one of a
//! principal that has too many under way, because a flood would fill the disk; and one that finds the gate closing or the journal in
//! trouble. What was begun is attested.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use palyra_journal::{
    Announced, CommitError, NewRecord, RecordKind, StoredRecord, Subject,
    mask::masked,
    state::{CallRow, CallState, Change, Charge, Conflict, RunRow, TakenKey},
};
use palyra_policy::{PolicyRequest, ProcessFacts, RequestDocument, Snapshot, Verdict};
use palyra_skills::outcome::LogLine;
use palyra_types::{
    AbsolutePath, Action, Principal, Resource, SecretRef, Sha256Digest, Timestamp, ToolName,
    id::{AttestationId, CallId},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::{
    account::Account,
    action::CallAction,
    admission::{Place, Turn},
    approval::{
        grant::{CachedApproval, Covered, resolve_cached_tool_approval_for_proposal},
        record::summary,
    },
    arming::CallSecrets,
    attest::{Completed, Ending, Receipt, ToolAttestation},
    cancel::Cancel,
    decide::{Grounds, Security, ToolDecision, context_of, evaluate_tool_proposal_security, recorded_request},
    door::{CallDoor, CallDoorParts},
    execute::{Executed, Executor, PreparedProcess, execute_tool_call},
    gate::{Inner, internal},
    memory::KnownRun,
    output::Kept,
    permit::{Approver, CallFacts, Permit},
    plan::Plan,
    posture,
    proposal::ToolProposal,
    question::Ear,
    reading::{Surroundings, Understood},
    refusal::Refusal,
    secret::SecretUse,
    settings::{InForce, Settings},
    tool::{self, Intent, Look, ToolDefinition},
    tools::Registry,
    workspace::Workspace,
};

/// A proposal that was understood and decided about, with everything that follows from it.
pub(crate) struct Judged {
    pub(crate) proposal: Arc<ToolProposal>,
    pub(crate) proposed_at: Timestamp,
    /// As of when it was judged.
    judged_at: Timestamp,
    /// The state of policies and postures that it was judged by.
    pub(crate) version: u64,
    pub(crate) definition: Sha256Digest,
    pub(crate) intent: Intent,
    pub(crate) decision: ToolDecision,
    /// The policies that decided, and what was read off the process for them.
    policies: Arc<Snapshot>,
    process: ProcessFacts,
    /// Absent when the call is denied.
    pub(crate) runnable: Option<Runnable>,
    pub(crate) workspace: Option<Arc<Workspace>>,
    /// The run it belongs to.
    run: Arc<KnownRun>,
    pub(crate) settings: Arc<Settings>,
    /// The tools that it was judged among.
    pub(crate) registry: Arc<Registry>,
    /// The record of the proposal.
    proposed: NewRecord,
    /// For a call that was denied at a glance, which is written at once.
    announced: Option<Announced>,
}

/// How a call would run, and the digest of that.
pub(crate) struct Runnable {
    pub(crate) plan: Plan,
    pub(crate) action: CallAction,
    /// The decision as it is recorded.
    recorded: Recorded,
}

/// A decision in the form that its digest is of.
struct Recorded {
    text: Box<RawValue>,
    digest: Sha256Digest,
}

/// What a call is started with, besides what it is.
pub(crate) struct Start {
    /// Records that are not written yet.
    pub(crate) records: Vec<NewRecord>,
    /// Changes that go with them.
    pub(crate) changes: Vec<Change>,
    pub(crate) approver: Option<Approver>,
}

/// A call that may run, because everything it needs is durable.
pub(crate) struct Begun {
    facts: Arc<CallFacts>,
    plan: Plan,
    executor: Executor,
    /// The digest of what is about to run, worked out from the very values that are handed to the executor.
    found: Option<Sha256Digest>,
    /// The process, all but started.
    prepared: Option<PreparedProcess>,
}

/// Why a call has not begun.
pub(crate) enum Hitch {
    Refused(Refusal),
    /// Something that it was judged by is not so any more: policies, postures, or the standing approval that it was to use.
    JudgeAgain,
}

impl From<Refusal> for Hitch {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Where a call goes once it is judged.
enum Route {
    /// It does not run.
    Denied,
    /// It runs, by policy alone or by a standing approval.
    Runs(Option<CachedApproval>),
    /// Somebody has to be asked.
    Asks,
}

impl Judged {
    /// Works out which posture asks, as somebody is about to be asked.
    pub(crate) fn name_the_posture(&mut self) -> Result<(), Refusal> {
        let definition = self.registry.definition_for(&self.proposal).map_err(Refusal::Call)?;
        let grounds = Grounds {
            proposal: &self.proposal,
            intent: &self.intent,
            tool: definition.metadata(),
            policies: &self.policies,
            config: &self.settings.evaluation,
            process: &self.process,
            now: self.judged_at,
        };
        let detail = grounds.posture_that_asks(&self.decision);
        self.decision.detail = detail;
        Ok(())
    }

    /// What a call takes from its run's budget before it runs: one call, and at most what its plan allows of the rest.
    pub(crate) fn affordable(&self, run: &RunRow) -> Result<Charge, Refusal> {
        let left = run.limits.minus(run.used);
        if left.calls == 0 || left.wall_ms == 0 || left.output_bytes == 0 {
            return Err(Refusal::Budget { limits: run.limits, used: run.used });
        }
        let plan = self.runnable.as_ref().map(|runnable| &runnable.plan);
        Ok(Charge {
            calls: 1,
            wall_ms: left.wall_ms.min(plan.map_or(0, Plan::wall_ms)),
            output_bytes: left.output_bytes.min(plan.map_or(0, Plan::output_bytes)),
        })
    }
}

impl Inner {
    /// From proposal to receipt.
    pub(crate) async fn conduct(
        self: Arc<Self>,
        proposal: ToolProposal,
        (cancel, place): (Cancel, Place),
        durable: Option<oneshot::Sender<()>>,
    ) -> Result<Completed, Refusal> {
        let proposed_at = self.clock.now();
        // From before the decision, so that no change of policies falls between the decision and the waiting.
        let ear = Ear { cancel, policies: self.policies.subscribe() };
        let proposal = Arc::new(proposal);
        let mut turn = None;
        loop {
            let (mut judged, route) = match self.decide(&proposal, proposed_at).await {
                Ok(decided) => decided,
                Err(refusal) => return Err(self.refuse(&proposal, refusal).await),
            };
            match route {
                Route::Denied => {
                    let ended = self.add_call(&proposal, CallState::Ended);
                    let writing = self.commit(self.opening(&judged)?, vec![ended]);
                    judged.announced = None;
                    writing.await?;
                    return Err(Refusal::Denied(Box::new(judged.decision)));
                }
                Route::Asks => {
                    drop((turn, proposal));
                    let asking = self.ask(&judged, self.opening(&judged)?, durable);
                    let (question, waiter) = Box::pin(asking).await?;
                    drop((judged, place));
                    return Box::pin(self.await_answer(question, &waiter, ear)).await;
                }
                Route::Runs(cached) => {
                    let (waited, taken) = match self.take_turn(turn.take(), &proposal, &ear.cancel).await {
                        Ok(taken) => taken,
                        Err(refusal) => return Err(self.refuse(&proposal, refusal).await),
                    };
                    turn = Some(taken);
                    if waited {
                        // What held when it came may not hold any more.
                        continue;
                    }
                    let mut changes = vec![self.add_call(&proposal, CallState::Started)];
                    changes.extend(cached.as_ref().map(|cached| Change::UseGrant(cached.id)));
                    let by = |cached: CachedApproval| Approver::new(cached.by, cached.id, Some(cached.covers));
                    let start = Start { records: self.opening(&judged)?, changes, approver: cached.map(by) };
                    match Box::pin(self.write_start(&judged, &start, &ear.cancel)).await {
                        Ok(begun) => return Box::pin(self.carry_out(judged, begun, &ear.cancel, durable)).await,
                        Err(Hitch::JudgeAgain) => {}
                        // What cannot be recorded, or is recorded already, is not recorded again.
                        Err(Hitch::Refused(refusal @ (Refusal::Journal(_) | Refusal::Repeated))) => {
                            return Err(refusal);
                        }
                        // The call was not recorded with what refused it, because the two are one transaction.
                        Err(Hitch::Refused(refusal)) => return Err(self.refuse(&proposal, refusal).await),
                    }
                }
            }
        }
    }

    /// Judges a proposal and looks whether a standing approval covers it.
    async fn decide(
        self: &Arc<Self>,
        proposal: &Arc<ToolProposal>,
        proposed_at: Timestamp,
    ) -> Result<(Judged, Route), Refusal> {
        let mut judged = self.judge(Arc::clone(proposal), self.clock.now()).await?;
        judged.proposed_at = proposed_at;
        let route = match (judged.decision.verdict, &judged.runnable) {
            (Verdict::Deny, _) => Route::Denied,
            (Verdict::Allow, _) => Route::Runs(None),
            (Verdict::Ask, Some(runnable)) => match self.standing(&judged, runnable).await? {
                Some(cached) => Route::Runs(Some(cached)),
                None => {
                    judged.name_the_posture()?;
                    Route::Asks
                }
            },
            (Verdict::Ask, None) => return Err(internal("a call that asks has no plan")),
        };
        Ok((judged, route))
    }

    /// The turn of a call to run, and whether it had to wait for it.
    async fn take_turn(
        &self,
        turn: Option<Turn>,
        proposal: &ToolProposal,
        cancel: &Cancel,
    ) -> Result<(bool, Turn), Refusal> {
        if self.registry.load().is_internal(&proposal.tool) {
            return Ok((false, Turn::within_another()));
        }
        match turn.or_else(|| self.admission.turn_now(&proposal.principal)) {
            Some(turn) => Ok((false, turn)),
            None => Ok((true, self.turn(&proposal.principal, &proposal.tool, cancel).await?)),
        }
    }

    /// Waits for a turn to run, as long as anybody wants it.
    pub(crate) async fn turn(&self, principal: &Principal, tool: &ToolName, cancel: &Cancel) -> Result<Turn, Refusal> {
        if self.registry.load().is_internal(tool) {
            return Ok(Turn::within_another());
        }
        tokio::select! {
            turn = self.admission.turn(principal) => turn.ok_or_else(|| internal("nothing runs any more")),
            cause = cancel.asked() => Err(Refusal::Cancelled(cause)),
        }
    }

    /// Understands a proposal and puts it to policy, as of a time. Changes nothing.
    pub(crate) async fn judge(
        self: &Arc<Self>,
        proposal: Arc<ToolProposal>,
        now: Timestamp,
    ) -> Result<Judged, Refusal> {
        let InForce { settings, registry, policies, version } = self.in_force();
        let proposal = self.by_whoever_counts(proposal)?;
        let workspace = match &proposal.workspace {
            Some(name) => Some(settings.workspace(name).ok_or_else(|| Refusal::UnknownWorkspace(name.clone()))?),
            None => None,
        };
        let definition = registry.definition_for(&proposal).map_err(Refusal::Call)?;
        let run = self.run_of(&proposal).await?;
        let postures = self.known_postures(&proposal.tool, version).await?;
        let security = Security {
            policies: &policies,
            config: &settings.evaluation,
            posture: posture::effective(&postures, &proposal, definition.metadata()),
            tool: definition.metadata(),
            now,
        };
        let decided = |(intent, ways, unfit): Understood| {
            let process = ProcessFacts::default();
            let decision = evaluate_tool_proposal_security(&proposal, (&intent, &process), ways, unfit, &security);
            decision.map(|decision| (intent, process, decision)).map_err(Refusal::NoPlan)
        };
        let surroundings = Surroundings {
            workspace: workspace.clone(),
            settings: Arc::clone(&settings),
            registry: Arc::clone(&registry),
        };
        let is_enough = |decision: &ToolDecision| {
            matches!(
                decision.plan,
                None | Some(Plan::Daemon | Plan::Fetch { .. } | Plan::Skill { .. } | Plan::Service { .. })
            )
        };
        let at_a_glance = || {
            let glanced = self.glance(&proposal, &surroundings)?.map(decided).transpose()?;
            Ok::<_, Refusal>(glanced.filter(|(.., decision)| is_enough(decision)))
        };
        let glances = run.is_worth_a_glance(&proposal.tool);
        let mut announced = glances.then(|| self.store.announce());
        let seen = if glances { at_a_glance()? } else { None };
        let mut proposed = None;
        let (intent, process, decision) = match seen {
            Some(seen) => seen,
            None => {
                announced = None;
                let reading = self.read(&proposal, &surroundings).await;
                // Meanwhile there is time for this.
                proposed = Some(self.proposed(&proposal)?);
                match reading.understood().await.and_then(decided) {
                    // What policy denies is denied, whatever else is wrong with it.
                    Err(refusal) if !glances => at_a_glance()?.ok_or(refusal)?,
                    read => read?,
                }
            }
        };
        run.remember(&proposal.tool, is_enough(&decision));
        if decision.verdict != Verdict::Deny {
            announced = None;
        }
        let proposed = match proposed {
            Some(proposed) => proposed,
            None => self.proposed(&proposal)?,
        };
        let definition = definition.digest();
        let runnable = match &decision.plan {
            Some(plan) => {
                let action = CallAction::of(&proposal, definition, &intent.work, plan).map_err(internal)?;
                Some(Runnable { plan: plan.clone(), action, recorded: Recorded::of(&decision)? })
            }
            None => None,
        };
        Ok(Judged {
            proposal,
            proposed_at: now,
            judged_at: now,
            version,
            proposed,
            announced,
            definition,
            intent,
            decision,
            policies,
            process,
            runnable,
            workspace,
            run,
            settings,
            registry,
        })
    }

    /// Whether what something was judged by is still in force.
    pub(crate) fn still_holds(&self, judged: &Judged) -> bool {
        let InForce { policies, version, .. } = self.in_force();
        policies.digest() == judged.decision.policy_set && version == judged.version
    }

    /// The record of a proposal.
    fn proposed(&self, proposal: &ToolProposal) -> Result<NewRecord, Refusal> {
        self.record(RecordKind::ToolProposed, proposal.subject(), &proposal.document())
    }

    /// The run of a proposal. It comes before any decision: nobody proposes anything in the name of somebody else's run.
    async fn run_of(&self, proposal: &ToolProposal) -> Result<Arc<KnownRun>, Refusal> {
        let run = self.known_run(proposal.run).await?.ok_or(Refusal::UnknownRun(proposal.run))?;
        if run.row.session != proposal.session || run.row.principal != proposal.principal.to_string() {
            return Err(Refusal::ForeignRun(proposal.run, proposal.principal.to_string()));
        }
        Ok(run)
    }

    /// The run of a proposal with what it has used by now.
    pub(crate) async fn run_now(&self, proposal: &ToolProposal) -> Result<RunRow, Refusal> {
        self.store.run(proposal.run).await?.ok_or(Refusal::UnknownRun(proposal.run))
    }

    /// The records that every call begins with: what was proposed, and what policy says.
    fn opening(&self, judged: &Judged) -> Result<Vec<NewRecord>, Refusal> {
        let Judged { proposal, intent, decision, .. } = judged;
        let definition = judged.registry.definition_for(proposal).map_err(Refusal::Call)?;
        let tool = definition.metadata();
        let brief = decision.verdict == Verdict::Deny && proposal.is_too_long_to_refuse();
        let decided = Decided {
            decision: match &judged.runnable {
                Some(runnable) => Told::Spelt(&runnable.recorded.text),
                None => Told::Plain(decision),
            },
            reason: decision.reason(),
            request: (!brief).then(|| recorded_request(proposal, intent, decision, tool, judged.judged_at)),
            action_digest: judged.runnable.as_ref().map(|runnable| runnable.action.digest),
        };
        let decided = self.record(RecordKind::ToolDecided, proposal.subject(), &decided)?;
        let proposed = if brief {
            self.record(RecordKind::ToolProposed, proposal.subject(), &proposal.brief())?
        } else {
            judged.proposed.clone()
        };
        Ok(vec![proposed, decided])
    }

    /// Journals a refusal that policy was not asked about, or could not prevent.
    pub(crate) async fn refuse(&self, proposal: &ToolProposal, refusal: Refusal) -> Refusal {
        // What names somebody else's run has no place in that run's story.
        let foreign = matches!(refusal, Refusal::UnknownRun(_) | Refusal::ForeignRun(..));
        let subject = if foreign { Subject::default() } else { proposal.subject() };
        let ended = (!foreign).then(|| self.add_call(proposal, CallState::Ended));
        let told = Refused { refused: refusal.code(), reason: refusal.to_string(), advice: refusal.advice() };
        let records = self
            .record(RecordKind::ToolProposed, subject, &proposal.brief())
            .and_then(|proposed| Ok(vec![proposed, self.record(RecordKind::ToolDecided, subject, &told)?]));
        match records {
            Ok(records) => match self.commit(records, ended.into_iter().collect()).await {
                Ok(_) => refusal,
                Err(error) => Refusal::from(error),
            },
            Err(error) => error,
        }
    }

    /// The standing approval that covers a call, if there is one.
    pub(crate) async fn standing(
        &self,
        judged: &Judged,
        runnable: &Runnable,
    ) -> Result<Option<CachedApproval>, Refusal> {
        // Handing a value over is asked about each time.
        if judged.intent.work.secrets().iter().any(SecretUse::is_revealed) {
            return Ok(None);
        }
        let proposal = &judged.proposal;
        let principal = proposal.principal.to_string();
        let mut grants = self.store.grants_for(proposal.session, principal, proposal.tool.clone()).await?;
        grants.retain(|row| self.giver_counts(row));
        let covered = Covered {
            proposal,
            work: &judged.intent.work,
            plan: &runnable.plan,
            action: &runnable.action,
            definition: judged.definition,
        };
        Ok(resolve_cached_tool_approval_for_proposal(&grants, &covered, self.clock.as_ref(), self.recorded()))
    }

    /// Step three, once everything that it needs is durable: runs the call and attests it.
    pub(crate) async fn carry_out(
        &self,
        judged: Judged,
        begun: Begun,
        cancel: &Cancel,
        durable: Option<oneshot::Sender<()>>,
    ) -> Result<Completed, Refusal> {
        if let Some(durable) = durable {
            let _ = durable.send(());
        }
        let Begun { facts, plan, executor, found, prepared } = begun;
        if let Some(cause) = cancel.already() {
            return self.attest(&facts, Executed::unknown(Ending::Cancelled, &cause.to_string())).await;
        }
        let permit = Permit::issue(Arc::clone(&facts), judged.intent.work, plan, found);
        let executor = Executor { prepared: Mutex::new(prepared), ..executor };
        // On a task of its own, so that a failure in it is attested like everything else.
        let execution = tokio::spawn(async move { execute_tool_call(permit, &executor).await });
        let executed = execution.await.unwrap_or_else(|_| Executed::unknown(Ending::Crashed, "the executor failed"));
        self.attest(&facts, executed).await
    }

    /// Takes from the budget and writes `tool.started`. Only who holds the result may let the call run.
    pub(crate) async fn write_start(
        self: &Arc<Self>,
        judged: &Judged,
        start: &Start,
        cancel: &Cancel,
    ) -> Result<Begun, Hitch> {
        let Some(Runnable { plan, action, recorded }) = &judged.runnable else {
            return Err(internal("a call that runs has no plan").into());
        };
        let proposal = &judged.proposal;
        let attestation = AttestationId::generate(self.clock.now(), self.entropy.as_ref()).map_err(internal)?;
        // Most runs have enough left, and the transaction says if this one has not.
        let mut run = judged.run.row.clone();
        for _ in 0..RESERVATION_ATTEMPTS {
            let reserved = judged.affordable(&run)?;
            if let Some(cause) = cancel.already() {
                return Err(Refusal::Cancelled(cause).into());
            }
            // What is set from here on counts for the next call.
            if !self.still_holds(judged) {
                return Err(Hitch::JudgeAgain);
            }
            let started_at = self.clock.now();
            let mut subject = proposal.subject();
            subject.approval = start.approver.as_ref().map(|approver| approver.approval);
            let body = Started {
                action_digest: action.digest,
                plan,
                approver: start.approver.as_ref(),
                policy_set: judged.decision.policy_set,
                reserved,
            };
            let mut records = start.records.clone();
            records.push(self.record(RecordKind::ToolStarted, subject, &body)?);
            let mut changes = start.changes.clone();
            changes.push(Change::Reserve { run: proposal.run, amount: reserved });
            let writing = self.commit(records, changes);
            // While that is being synced, what comes next is worked out; nothing of it has an effect.
            let found = CallAction::of(proposal, judged.definition, &judged.intent.work, plan).ok();
            let executor = self.executor(judged, start, started_at, cancel);
            let preparing = executor.prepare(&judged.intent.work, plan, reserved);
            let mut facts = CallFacts {
                attestation,
                proposal: proposal.clone(),
                input: proposal.args.digest(),
                definition: judged.definition,
                decision: judged.decision.clone(),
                decision_digest: recorded.digest,
                digest: action.digest,
                approver: start.approver.clone(),
                reserved,
                proposed_at: judged.proposed_at,
                started_at,
                started_seq: 0,
            };
            let (written, prepared) = tokio::join!(writing, preparing);
            match written {
                Ok(committed) => {
                    facts.started_seq = committed.last().map(|(seq, _)| seq).unwrap_or_default();
                    let plan = plan.clone();
                    return Ok(Begun {
                        prepared,
                        facts: Arc::new(facts),
                        plan,
                        executor,
                        found: found.map(|found| found.digest),
                    });
                }
                // There is less left than that, or another call of the run was quicker.
                Err(CommitError::Conflict(Conflict::OverBudget { .. })) => run = self.run_now(proposal).await?,
                Err(CommitError::Conflict(Conflict::GrantEnded)) => return Err(Hitch::JudgeAgain),
                Err(error) => return Err(Refusal::from(error).into()),
            }
        }
        Err(internal("the run's budget is too contended").into())
    }

    fn executor(self: &Arc<Self>, judged: &Judged, start: &Start, now: Timestamp, cancel: &Cancel) -> Executor {
        let (policies, settings) = (self.engine.snapshot(), Arc::clone(&judged.settings));
        let principal = judged.proposal.principal.clone();
        let definition = judged.registry.definition_for(&judged.proposal).ok();
        let tool = definition.as_deref().map(ToolDefinition::metadata);
        // The whole context of the call: a rule about a device, a token or a run holds for what is found on the way, too.
        let context = context_of(&judged.proposal, &judged.intent, &judged.decision, tool, now);
        let approved = start.approver.is_some();
        let hosts = judged.runnable.as_ref().map(|runnable| runnable.plan.hosts()).unwrap_or_default();
        let door = CallDoor::new(CallDoorParts {
            inner: Arc::clone(self),
            proposal: judged.proposal.clone(),
            context: context.clone(),
            declared: hosts.iter().cloned().collect(),
            summary: summary(&judged.proposal, &judged.intent),
            approved,
        });
        let may = Arc::new(move |action: Action, path: &AbsolutePath| {
            let resource = Resource::Path(path.clone());
            let request = PolicyRequest { principal: principal.clone(), action, resource };
            match policies.decide(&request, &context, &settings.evaluation).verdict {
                Verdict::Allow => true,
                Verdict::Ask => approved,
                Verdict::Deny => false,
            }
        });
        let may_write = Arc::clone(&may);
        let (registry, proposal) = (Arc::clone(&judged.registry), judged.proposal.clone());
        let (workspace, settings) = (judged.workspace.clone(), Arc::clone(&judged.settings));
        let inner = Arc::clone(self);
        let reread = move || {
            let bindings = |secret: &SecretRef, tool: &ToolName| inner.bindings_for(secret, tool);
            let (workspace, programs) = (workspace.as_deref(), &settings.programs);
            let place =
                tool::Place { workspace, asker: proposal.asker(), programs, look: Look::Whole, bindings: &bindings };
            registry.intend(&proposal.tool, &proposal.args, &place).ok().map(|intent| intent.work)
        };
        let door = Arc::new(door);
        Executor {
            secrets: self.arm(judged.intent.work.secrets(), door.account()),
            runner: Arc::clone(&judged.settings.runner),
            fetcher: Arc::clone(&judged.settings.fetcher),
            workspace: judged.workspace.clone(),
            reread: Arc::new(reread),
            reports: Arc::clone(&self.reports),
            may_read: Arc::new(move |path: &AbsolutePath| may(Action::FsRead, path)),
            may_write: Arc::new(move |path: &AbsolutePath| may_write(Action::FsWrite, path)),
            skills: Arc::clone(&self.skills),
            record_bytes: judged.settings.config.skills.record_bytes,
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
            live: self.live.clone(),
            stop: cancel.stopper(),
            prepared: Mutex::default(),
            principal: judged.proposal.principal.to_string(),
            service: judged.registry.service(&judged.proposal.tool),
            door,
        }
    }

    /// The secrets that a call uses, or why they are not to be had.
    pub(crate) fn arm(&self, uses: &[SecretUse], account: &Arc<Account>) -> Result<Option<Arc<CallSecrets>>, String> {
        match uses {
            [] => Ok(None),
            uses => {
                let vault = self.opened_vault().map_err(|closed| closed.to_string())?;
                let armed = CallSecrets::arm(uses, &vault, self.entropy.as_ref(), account)?;
                Ok(Some(Arc::new(armed)))
            }
        }
    }

    /// Step four: makes what happened durable, and does not give up while the disk is in trouble that can pass.
    pub(crate) async fn attest(&self, facts: &CallFacts, executed: Executed) -> Result<Completed, Refusal> {
        let attestation = ToolAttestation::of(facts, &executed, self.clock.now());
        // Masked before it is signed: what is kept verifies.
        let text = masked(attestation.canonical().map_err(internal)?) + "\n";
        let note = self.store.key().sign(&text).map_err(internal)?;
        let used = Charge {
            calls: 1,
            // What ending it took is not the run's to pay.
            wall_ms: u64::try_from(executed.ran.as_millis()).unwrap_or(u64::MAX).min(facts.reserved.wall_ms),
            output_bytes: executed.output.length().min(facts.reserved.output_bytes),
        };
        let proposal = &facts.proposal;
        let body = Attested { note: &note, output: Kept(&executed.output), log: &executed.log };
        let changes = vec![
            Change::MoveCall { call: proposal.call, from: CallState::Started, to: CallState::Ended },
            Change::Settle { run: proposal.run, reserved: facts.reserved, used },
        ];
        let mut record = self.record(RecordKind::ToolAttested, proposal.subject(), &body);
        loop {
            match &record {
                Ok(made) => match self.commit(vec![made.clone()], changes.clone()).await {
                    Ok(committed) => {
                        let (seq, hash) = committed.last().ok_or_else(|| internal("no record was written"))?;
                        let receipt = Receipt { attestation, note, seq, hash };
                        return Ok(Completed { receipt, output: executed.output, log: executed.log });
                    }
                    // It was written when it was said that it could not be.
                    Err(CommitError::Conflict(Conflict::Call(CallState::Ended))) => {
                        let (seq, hash) = self.attested_before(proposal.call, &note).await?;
                        let receipt = Receipt { attestation, note, seq, hash };
                        return Ok(Completed { receipt, output: executed.output, log: executed.log });
                    }
                    Err(CommitError::Unwritable(trouble)) if trouble.can_pass() => {}
                    Err(CommitError::Unwritable(trouble)) => return Err(Refusal::Unattested(trouble)),
                    Err(error) => return Err(error.into()),
                },
                // There was no randomness for its salt, which passes.
                Err(_) => record = self.record(RecordKind::ToolAttested, proposal.subject(), &body),
            }
            tokio::time::sleep(JOURNAL_AGAIN).await;
        }
    }

    /// Where the attestation of a call is that was written already.
    async fn attested_before(&self, call: CallId, note: &str) -> Result<(u64, Sha256Digest), Refusal> {
        #[derive(Deserialize)]
        struct Kept {
            note: String,
        }
        let row = self.store.call(call).await?.ok_or_else(|| internal("the call is gone"))?;
        let kept = self.store.records(row.last_seq, 1).await?.into_iter().next();
        let same = |one: &StoredRecord| {
            let kept = one.body.as_deref().and_then(|body| serde_json::from_str::<Kept>(body).ok());
            kept.is_some_and(|kept| kept.note == note)
        };
        let found = kept.filter(same).ok_or_else(|| internal("something else was attested about the call"))?;
        Ok((row.last_seq, found.hash))
    }

    /// Puts a call on record, and takes its key with it.
    pub(crate) fn add_call(&self, proposal: &ToolProposal, state: CallState) -> Change {
        let (principal, time) = (proposal.principal.to_string(), self.clock.now());
        let key = proposal.key.clone().map(|key| TakenKey { principal, key, time });
        let row = CallRow {
            call: proposal.call,
            node: self.store.node(),
            session: proposal.session,
            run: proposal.run,
            waiting: proposal.waiting,
            state,
            first_seq: 0,
            last_seq: 0,
            document: String::new(),
        };
        Change::AddCall { row, key }
    }
}

impl Recorded {
    fn of(decision: &ToolDecision) -> Result<Self, Refusal> {
        let text = palyra_types::json::canonical_of(decision).map_err(internal)?;
        Ok(Self { digest: Sha256Digest::of(text.as_bytes()), text: RawValue::from_string(text).map_err(internal)? })
    }
}

/// The body of `tool.decided` for a call that policy was asked about.
#[derive(Serialize)]
struct Decided<'a> {
    decision: Told<'a>,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestDocument>,
    action_digest: Option<Sha256Digest>,
}

/// A decision. What may run is attested with the digest of its decision, so that one is written as it was digested.
#[derive(Serialize)]
#[serde(untagged)]
enum Told<'a> {
    Spelt(&'a RawValue),
    Plain(&'a ToolDecision),
}

/// The body of `tool.decided` for a call that was refused on other grounds.
#[derive(Serialize)]
struct Refused {
    refused: &'static str,
    reason: String,
    advice: String,
}

/// The body of `tool.started`.
#[derive(Serialize)]
struct Started<'a> {
    action_digest: Sha256Digest,
    plan: &'a Plan,
    approver: Option<&'a Approver>,
    policy_set: Sha256Digest,
    reserved: Charge,
}

/// The body of `tool.attested`. The note is the attestation, so that nothing beside it can say otherwise.
#[derive(Serialize)]
struct Attested<'a> {
    note: &'a str,
    output: Kept<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    log: &'a [LogLine],
}

/// How often a call looks again at what is left of its run's budget.
const RESERVATION_ATTEMPTS: usize = 16;

/// How long before something is tried again that a journal in trouble did not take.
pub(crate) const JOURNAL_AGAIN: Duration = Duration::from_millis(250);
