//! Conducts one call along its path. Read this first.
//!
//! Every step either hands on what the next one needs or refuses, and every refusal is journalled, but for a call
//! whose id was used before: its record would stand in another call's story. What was begun is attested.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_journal::{
    CommitError, NewRecord, RecordKind,
    state::{ApprovalRow, ApprovalState, CallRow, CallState, Change, Charge, Conflict},
};
use palyra_policy::{PolicyRequest, Verdict};
use palyra_types::{
    AbsolutePath, Action, Resource, Sha256Digest, Timestamp,
    id::{ApprovalId, AttestationId},
};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use crate::{
    action::CallAction,
    approval::{
        answer::read,
        apply_tool_approval_outcome,
        grant::{CachedApproval, Covered, resolve_cached_tool_approval_for_proposal},
        record::{ApprovalDocument, ApprovalPromptRecord, Asked, PendingToolApproval},
    },
    attest::{Completed, Ending, Receipt, ToolAttestation},
    deadline::Deadline,
    decide::{Security, ToolDecision, context_of, evaluate_tool_proposal_security, recorded_request},
    execute::{Executed, Executor, execute_tool_call},
    gate::{Cancel, Inner, Settings, internal},
    permit::{Approver, CallFacts, Permit},
    plan::{Machine, Plan, Unfit, candidates},
    posture,
    proposal::ToolProposal,
    refusal::{CancelCause, Refusal},
    risk,
    tool::{Intent, Place, ToolDefinition},
    workspace::Workspace,
};

/// A proposal that was understood and decided about, with everything that follows from it.
pub(crate) struct Judged {
    pub(crate) proposal: ToolProposal,
    pub(crate) proposed_at: Timestamp,
    pub(crate) definition: Sha256Digest,
    pub(crate) intent: Intent,
    pub(crate) decision: ToolDecision,
    /// Absent when the call is denied.
    pub(crate) runnable: Option<Runnable>,
    pub(crate) workspace: Option<Arc<Workspace>>,
    settings: Arc<Settings>,
}

/// How a call would run, and the digest of that.
pub(crate) struct Runnable {
    pub(crate) plan: Plan,
    pub(crate) action: CallAction,
}

/// What a call is started with, besides what it is.
struct Start {
    /// Records that are not written yet.
    records: Vec<NewRecord>,
    /// Changes that go with them.
    changes: Vec<Change>,
    approver: Option<Approver>,
}

/// Why a call has not begun.
enum Hitch {
    Refused(Refusal),
    /// The standing approval that it was to use was ended meanwhile.
    GrantEnded,
}

impl From<Refusal> for Hitch {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A question that a call waits for the answer to. Its document stays in the journal, because thousands of calls may wait and each may have
/// large arguments.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) id: ApprovalId,
    answer_by: Deadline,
    valid_for: Duration,
}

impl From<&PendingToolApproval> for Question {
    fn from(prompt: &PendingToolApproval) -> Self {
        let valid_for = Duration::from_secs(prompt.valid_for_seconds.into());
        Self { id: prompt.id, answer_by: prompt.answer_by, valid_for }
    }
}

/// What a call that waits for its answer listens to, besides the answer.
pub(crate) struct Ear {
    pub(crate) cancel: Cancel,
    /// Changes when policies do.
    pub(crate) policies: watch::Receiver<u64>,
}

impl Inner {
    /// From proposal to receipt.
    pub(crate) async fn conduct(
        self: Arc<Self>,
        proposal: ToolProposal,
        cancel: Cancel,
        durable: Option<oneshot::Sender<()>>,
    ) -> Result<Completed, Refusal> {
        let proposed_at = self.clock.now();
        // From before the decision, so that no change of policies falls between the decision and the waiting.
        let ear = Ear { cancel, policies: self.policies.subscribe() };
        let judged = match self.judge(proposal.clone(), proposed_at).await {
            Ok(judged) => {
                drop(proposal);
                judged
            }
            Err(refusal) => return Err(self.refuse(&proposal, refusal).await),
        };
        let records = self.opening(&judged)?;
        match judged.decision.verdict {
            Verdict::Deny => {
                let refusal = Refusal::Denied(Box::new(judged.decision.clone()));
                let ended = Change::AddCall(self.call_row(&judged.proposal, CallState::Ended, String::new()));
                self.commit(records, vec![ended]).await?;
                Err(refusal)
            }
            Verdict::Allow => {
                let changes = vec![Change::AddCall(self.call_row(&judged.proposal, CallState::Started, String::new()))];
                let start = Start { records, changes, approver: None };
                match self.write_start(&judged, &start, &ear.cancel).await {
                    Ok(begun) => self.carry_out(judged, begun, &ear.cancel, durable).await,
                    Err(hitch) => Err(self.not_begun(&judged.proposal, hitch).await),
                }
            }
            Verdict::Ask => self.ask(judged, records, ear, durable).await,
        }
    }

    /// Understands a proposal and puts it to policy, as of a time. Changes nothing.
    pub(crate) async fn judge(self: &Arc<Self>, proposal: ToolProposal, now: Timestamp) -> Result<Judged, Refusal> {
        let settings = self.settings.load_full();
        let workspace = match &proposal.workspace {
            Some(name) => {
                Some(settings.workspaces.get(name).cloned().ok_or_else(|| Refusal::UnknownWorkspace(name.clone()))?)
            }
            None => None,
        };
        let definition = self.registry.definition(&proposal.tool).map_err(Refusal::Call)?;
        let (intent, plans, unfit) = self.understand(&proposal, workspace.clone(), Arc::clone(&settings)).await?;
        if plans.is_empty() {
            return Err(Refusal::NoPlan(unfit));
        }
        let postures = self.store.postures(proposal.tool.clone()).await?;
        let policies = self.engine.snapshot();
        let security = Security {
            policies: &policies,
            config: &settings.evaluation,
            posture: posture::effective(&postures, &proposal, definition.metadata()),
            tool: definition.metadata(),
            now,
        };
        let decision = evaluate_tool_proposal_security(&proposal, &intent, plans, unfit, &security)
            .ok_or_else(|| Refusal::NoPlan(Vec::new()))?;
        let definition = definition.digest();
        let runnable = match &decision.plan {
            Some(plan) => {
                let action = CallAction::of(&proposal, definition, &intent.work, plan).map_err(internal)?;
                Some(Runnable { plan: plan.clone(), action })
            }
            None => None,
        };
        Ok(Judged { proposal, proposed_at: now, definition, intent, decision, runnable, workspace, settings })
    }

    /// Reads the arguments into what would be done, and works out the ways to do it. That looks at files and may digest large ones, so it
    /// does not hold up other calls.
    async fn understand(
        self: &Arc<Self>,
        proposal: &ToolProposal,
        workspace: Option<Arc<Workspace>>,
        settings: Arc<Settings>,
    ) -> Result<(Intent, Vec<Plan>, Vec<Unfit>), Refusal> {
        let (inner, tool, args) = (Arc::clone(self), proposal.tool.clone(), proposal.args.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let place = Place { workspace: workspace.as_deref(), programs: &settings.programs };
            let intent = inner.registry.intend(&tool, &args, &place)?;
            let machine = Machine {
                config: &settings.config.sandbox,
                runner: &inner.runner,
                tiers: inner.tiers(),
                state_directory: &inner.state_directory,
                environment: &inner.environment,
            };
            let (plans, unfit) = candidates(&intent.work, place.workspace.map(Workspace::root), &machine);
            Ok((intent, plans, unfit))
        });
        reading.await.map_err(internal)?.map_err(Refusal::Call)
    }

    /// The records that every call begins with: what was proposed, and what policy says.
    fn opening(&self, judged: &Judged) -> Result<Vec<NewRecord>, Refusal> {
        let Judged { proposal, intent, decision, .. } = judged;
        let tool = self.registry.definition(&proposal.tool).map_err(Refusal::Call)?.metadata();
        let proposed = self.record(RecordKind::ToolProposed, proposal.subject(), &proposal.document())?;
        let decided = json!({
            "decision": decision,
            "reason": decision.reason(),
            "request": recorded_request(proposal, intent, decision, tool, judged.proposed_at),
            "action_digest": judged.runnable.as_ref().map(|runnable| runnable.action.digest),
        });
        let decided = self.record(RecordKind::ToolDecided, proposal.subject(), &decided)?;
        Ok(vec![proposed, decided])
    }

    /// Journals a refusal that policy was not asked about, or could not prevent.
    async fn refuse(&self, proposal: &ToolProposal, refusal: Refusal) -> Refusal {
        let told = json!({ "refused": refusal.code(), "reason": refusal.to_string(), "advice": refusal.advice() });
        let records = self
            .record(RecordKind::ToolProposed, proposal.subject(), &proposal.document())
            .and_then(|proposed| Ok(vec![proposed, self.record(RecordKind::ToolDecided, proposal.subject(), &told)?]));
        let ended = Change::AddCall(self.call_row(proposal, CallState::Ended, String::new()));
        match records {
            Ok(records) => match self.commit(records, vec![ended]).await {
                Ok(_) => refusal,
                Err(error) => Refusal::from(error),
            },
            Err(error) => error,
        }
    }

    /// The refusal of a call that has not begun, journalled where that can be done.
    async fn not_begun(&self, proposal: &ToolProposal, hitch: Hitch) -> Refusal {
        match hitch {
            // What cannot be recorded, or is recorded already, is not recorded again.
            Hitch::Refused(refusal @ (Refusal::Journal(_) | Refusal::Repeated)) => refusal,
            // The call was not recorded with what refused it, because the two are one transaction.
            Hitch::Refused(refusal) => self.refuse(proposal, refusal).await,
            Hitch::GrantEnded => self.refuse(proposal, internal("a standing approval was ended too often")).await,
        }
    }

    /// Step two: asks a person, unless a standing approval covers the call.
    async fn ask(
        self: Arc<Self>,
        judged: Judged,
        mut records: Vec<NewRecord>,
        ear: Ear,
        durable: Option<oneshot::Sender<()>>,
    ) -> Result<Completed, Refusal> {
        let Some(runnable) = &judged.runnable else { return Err(internal("a call that asks has no plan")) };
        let proposal = &judged.proposal;
        loop {
            let cached = match self.standing(&judged, runnable).await {
                Ok(Some(cached)) => cached,
                Ok(None) => break,
                Err(refusal) => return Err(self.refuse(proposal, refusal).await),
            };
            let started = self.call_row(proposal, CallState::Started, String::new());
            let changes = vec![Change::UseGrant(cached.id), Change::AddCall(started)];
            let approver = Some(Approver { by: cached.by, approval: cached.id, covers: Some(cached.covers) });
            let start = Start { records: records.clone(), changes, approver };
            match self.write_start(&judged, &start, &ear.cancel).await {
                Ok(begun) => return self.carry_out(judged, begun, &ear.cancel, durable).await,
                // It is not among the standing ones any more: look again, and ask if nothing else covers the call.
                Err(Hitch::GrantEnded) => {}
                Err(hitch) => return Err(self.not_begun(proposal, hitch).await),
            }
        }

        // A call that could not be paid for is not worth anybody's time.
        if let Err(refusal) = self.affordable(&judged).await {
            return Err(self.refuse(proposal, refusal).await);
        }
        let config = &judged.settings.config.approvals;
        let now = self.clock.now();
        let id = ApprovalId::generate(now, self.entropy.as_ref()).map_err(internal)?;
        let capabilities = &self.registry.definition(&proposal.tool).map_err(Refusal::Call)?.metadata().capabilities;
        let asked = Asked {
            proposal,
            intent: &judged.intent,
            decision: &judged.decision,
            plan: &runnable.plan,
            action: &runnable.action,
            risk: risk::assess(&judged.intent, &runnable.plan, capabilities),
        };
        let answer_by = Deadline::after(self.clock.as_ref(), Duration::from_secs(config.answer_within_seconds.into()));
        let prompt = PendingToolApproval::new(id, asked, now, answer_by, config.valid_for_seconds);
        let mut subject = proposal.subject();
        subject.approval = Some(id);
        records.push(self.record(RecordKind::ApprovalRequested, subject, &ApprovalPromptRecord { prompt: &prompt })?);
        let document = ApprovalDocument {
            proposal: proposal.document(),
            intent: runnable.action.intent,
            definition: judged.definition,
            prompt,
            answer: None,
        };
        let row = ApprovalRow {
            id,
            call: proposal.call,
            session: proposal.session,
            principal: proposal.principal.to_string(),
            digest: runnable.action.digest,
            state: ApprovalState::Pending,
            document: serde_json::to_string(&document).map_err(internal)?,
        };
        let question = Question::from(&document.prompt);
        drop(document);
        let asking = Change::AddApproval { row, most: config.most_pending, most_of_one: config.most_pending_of_one };
        let waiting = Change::AddCall(self.call_row(proposal, CallState::Waiting, String::new()));
        let waiter = self.waiters.wait_for(id);
        if let Err(error) = self.commit(records, vec![waiting, asking]).await {
            return Err(match Refusal::from(error) {
                refusal @ Refusal::TooManyPending { .. } => self.refuse(proposal, refusal).await,
                refusal => refusal,
            });
        }
        if let Some(durable) = durable {
            let _ = durable.send(());
        }
        drop(judged);
        self.await_answer(question, &waiter, ear).await
    }

    /// The standing approval that covers a call, if there is one.
    async fn standing(&self, judged: &Judged, runnable: &Runnable) -> Result<Option<CachedApproval>, Refusal> {
        let proposal = &judged.proposal;
        let principal = proposal.principal.to_string();
        let grants = self.store.grants_for(proposal.session, principal, proposal.tool.clone()).await?;
        let covered = Covered {
            proposal,
            work: &judged.intent.work,
            plan: &runnable.plan,
            action: &runnable.action,
            definition: judged.definition,
        };
        Ok(resolve_cached_tool_approval_for_proposal(&grants, &covered, self.clock.as_ref(), self.recorded()))
    }

    /// Waits for the answer to a question that is durable, and goes on from there. A journal in passing trouble is waited for as long as
    /// an answer could hold: nothing runs meanwhile, and the question is not left behind with nobody who waits for it.
    pub(crate) async fn await_answer(
        self: Arc<Self>,
        question: Question,
        waiter: &crate::waiting::Waiter,
        mut ear: Ear,
    ) -> Result<Completed, Refusal> {
        let left = question.answer_by.remaining(self.clock.as_ref(), self.recorded());
        let give_up = Instant::now().checked_add(left.saturating_add(question.valid_for));
        loop {
            match Arc::clone(&self).follow(question, waiter, &mut ear).await {
                Err(refusal) if refusal.may_pass() && give_up.is_none_or(|end| Instant::now() < end) => {
                    tokio::time::sleep(JOURNAL_AGAIN).await;
                    // Whether policy denies it by now may be what could not be found out.
                    ear.policies.mark_changed();
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for the answer, and goes on from there.
    async fn follow(
        self: Arc<Self>,
        question: Question,
        waiter: &crate::waiting::Waiter,
        ear: &mut Ear,
    ) -> Result<Completed, Refusal> {
        loop {
            let row = self.question(question.id).await?;
            if row.state != ApprovalState::Pending {
                return self.answered(row, &ear.cancel).await;
            }
            let left = question.answer_by.remaining(self.clock.as_ref(), self.recorded());
            if left.is_zero() {
                // Whoever answers at the same moment wins or loses by the state of the row, never both.
                self.withdraw(&row, ApprovalState::Expired, "nobody answered in time").await?;
                continue;
            }
            drop(row);
            tokio::select! {
                () = waiter.news() => {}
                () = tokio::time::sleep(left.min(LONGEST_NAP)) => {}
                changed = ear.policies.changed() => {
                    let row = self.question(question.id).await?;
                    if changed.is_ok()
                        && row.state == ApprovalState::Pending
                        && let Some(reason) = self.denied_now(&row).await?
                    {
                        self.withdraw(&row, ApprovalState::Cancelled, &reason).await?;
                    }
                }
                cause = ear.cancel.asked() => {
                    let row = self.question(question.id).await?;
                    if row.state == ApprovalState::Pending {
                        self.withdraw(&row, ApprovalState::Cancelled, &cause.to_string()).await?;
                    }
                }
            }
        }
    }

    async fn question(&self, id: ApprovalId) -> Result<ApprovalRow, Refusal> {
        self.store.approval(id).await?.ok_or_else(|| internal("the question is gone"))
    }

    /// Why a waiting call is denied by now, if it is.
    async fn denied_now(self: &Arc<Self>, row: &ApprovalRow) -> Result<Option<String>, Refusal> {
        let judged = match self.judge_again(row).await {
            Ok((judged, _)) => judged,
            Err(refusal) if refusal.may_pass() => return Err(refusal),
            Err(refusal) => return Ok(Some(refusal.to_string())),
        };
        let denied = judged.decision.verdict == Verdict::Deny;
        Ok(denied.then(|| CancelCause::PolicyChanged(judged.decision.reason()).to_string()))
    }

    /// Judges a call that waits by what holds now: policy, posture, the time, the program and the files.
    async fn judge_again(self: &Arc<Self>, row: &ApprovalRow) -> Result<(Judged, PendingToolApproval), Refusal> {
        let ApprovalDocument { prompt, proposal, .. } = read(row)?;
        let proposal = proposal.proposal().ok_or_else(|| internal("the proposal cannot be read"))?;
        let judged = self.judge(proposal, self.clock.now()).await?;
        Ok((Judged { proposed_at: prompt.asked_at, ..judged }, prompt))
    }

    /// Goes on with a call whose question is not pending any more.
    async fn answered(self: Arc<Self>, row: ApprovalRow, cancel: &Cancel) -> Result<Completed, Refusal> {
        let begun = match apply_tool_approval_outcome(row.clone(), self.clock.as_ref(), self.recorded()) {
            Ok(approver) => self.begin_approved(&row, approver, cancel).await,
            Err(refusal) => Err(refusal),
        };
        let refusal = match begun {
            Ok((judged, begun)) => {
                drop(row);
                return self.carry_out(judged, begun, cancel, None).await;
            }
            Err(refusal) => refusal,
        };
        // An answer that will not be used any more is not left standing.
        if row.state == ApprovalState::Approved && !refusal.may_pass() {
            let (to, cause) = match &refusal {
                Refusal::Expired(_) => (ApprovalState::Expired, "it was not used in time".to_owned()),
                other => (ApprovalState::Cancelled, other.to_string()),
            };
            self.withdraw(&row, to, &cause).await?;
        }
        Err(refusal)
    }

    /// Spends an answer: from here on the call counts as started, and the answer as used.
    async fn begin_approved(
        self: &Arc<Self>,
        row: &ApprovalRow,
        approver: Approver,
        cancel: &Cancel,
    ) -> Result<(Judged, Begun), Refusal> {
        // An answer is about what was shown, not about what has become of it.
        let (judged, prompt) = self.judge_again(row).await?;
        let judged = still_approved(judged, &prompt)?;
        let changes = vec![
            Change::MoveApproval {
                id: row.id,
                from: ApprovalState::Approved,
                to: ApprovalState::Consumed,
                document: None,
            },
            Change::MoveCall { call: judged.proposal.call, from: CallState::Waiting, to: CallState::Started },
        ];
        let start = Start { records: Vec::new(), changes, approver: Some(approver) };
        match self.write_start(&judged, &start, cancel).await {
            Ok(begun) => Ok((judged, begun)),
            Err(Hitch::Refused(refusal)) => Err(refusal),
            Err(Hitch::GrantEnded) => Err(internal("an answer is no standing approval")),
        }
    }

    /// Step three, once everything that it needs is durable: runs the call and attests it.
    async fn carry_out(
        &self,
        judged: Judged,
        begun: Begun,
        cancel: &Cancel,
        durable: Option<oneshot::Sender<()>>,
    ) -> Result<Completed, Refusal> {
        if let Some(durable) = durable {
            let _ = durable.send(());
        }
        let Begun { facts, plan } = begun;
        if let Some(cause) = cancel.already() {
            return self.attest(&facts, Executed::unknown(Ending::Cancelled, &cause.to_string())).await;
        }
        let executor = self.executor(&judged, &facts, cancel);
        let permit = Permit::issue(Arc::clone(&facts), judged.intent.work, plan);
        // On a task of its own, so that a failure in it is attested like everything else.
        let execution = tokio::spawn(async move { execute_tool_call(permit, &executor).await });
        let executed = execution.await.unwrap_or_else(|_| Executed::unknown(Ending::Crashed, "the executor failed"));
        self.attest(&facts, executed).await
    }

    /// Takes from the budget and writes `tool.started`. Only who holds the result may let the call run.
    async fn write_start(&self, judged: &Judged, start: &Start, cancel: &Cancel) -> Result<Begun, Hitch> {
        let Some(Runnable { plan, action }) = &judged.runnable else {
            return Err(internal("a call that runs has no plan").into());
        };
        let proposal = &judged.proposal;
        for _ in 0..RESERVATION_ATTEMPTS {
            let reserved = self.affordable(judged).await?;
            if let Some(cause) = cancel.already() {
                return Err(Refusal::Cancelled(cause).into());
            }
            let started_at = self.clock.now();
            let mut subject = proposal.subject();
            subject.approval = start.approver.as_ref().map(|approver| approver.approval);
            let body = json!({
                "action_digest": action.digest,
                "plan": plan,
                "approver": start.approver,
                "policy_set": judged.decision.policy_set,
                "reserved": reserved,
            });
            let mut records = start.records.clone();
            records.push(self.record(RecordKind::ToolStarted, subject, &body)?);
            let mut changes = start.changes.clone();
            changes.push(Change::Reserve { run: proposal.run, amount: reserved });
            match self.commit(records, changes).await {
                Ok(committed) => {
                    let started_seq = committed.last().map(|(seq, _)| seq).unwrap_or_default();
                    let facts = CallFacts {
                        proposal: proposal.clone(),
                        definition: judged.definition,
                        decision: judged.decision.clone(),
                        digest: action.digest,
                        approver: start.approver.clone(),
                        reserved,
                        proposed_at: judged.proposed_at,
                        started_at,
                        started_seq,
                    };
                    return Ok(Begun { facts: Arc::new(facts), plan: plan.clone() });
                }
                // Another call of the run was quicker; look again at what is left.
                Err(CommitError::Conflict(Conflict::OverBudget { .. })) => {}
                Err(CommitError::Conflict(Conflict::GrantEnded)) => return Err(Hitch::GrantEnded),
                Err(error) => return Err(Refusal::from(error).into()),
            }
        }
        Err(internal("the run's budget is too contended").into())
    }

    /// What a call takes from its run's budget before it runs: one call, and at most what its plan allows of the rest.
    async fn affordable(&self, judged: &Judged) -> Result<Charge, Refusal> {
        let proposal = &judged.proposal;
        let row = self.store.run(proposal.run).await?.ok_or(Refusal::UnknownRun(proposal.run))?;
        if row.session != proposal.session || row.principal != proposal.principal.to_string() {
            return Err(Refusal::ForeignRun(proposal.run, proposal.principal.to_string()));
        }
        let left = row.limits.minus(row.used);
        if left.calls == 0 || left.wall_ms == 0 || left.output_bytes == 0 {
            return Err(Refusal::Budget { limits: row.limits, used: row.used });
        }
        let plan = judged.runnable.as_ref().map(|runnable| &runnable.plan);
        Ok(Charge {
            calls: 1,
            wall_ms: left.wall_ms.min(plan.map_or(0, Plan::wall_ms)),
            output_bytes: left.output_bytes.min(plan.map_or(0, Plan::output_bytes)),
        })
    }

    fn executor(&self, judged: &Judged, facts: &CallFacts, cancel: &Cancel) -> Executor {
        let (policies, settings) = (self.engine.snapshot(), Arc::clone(&judged.settings));
        let principal = judged.proposal.principal.clone();
        let tool = self.registry.definition(&judged.proposal.tool).ok().map(ToolDefinition::metadata);
        // The whole context of the call: a rule about a device, a token or a run holds for what is found on the way, too.
        let context = context_of(&judged.proposal, &judged.intent, &judged.decision, tool, facts.started_at);
        let approved = facts.approver.is_some();
        let may_read = move |path: &AbsolutePath| {
            let resource = Resource::Path(path.clone());
            let request = PolicyRequest { principal: principal.clone(), action: Action::FsRead, resource };
            match policies.decide(&request, &context, &settings.evaluation).verdict {
                Verdict::Allow => true,
                Verdict::Ask => approved,
                Verdict::Deny => false,
            }
        };
        let (registry, proposal) = (Arc::clone(&self.registry), facts.proposal.clone());
        let (workspace, settings) = (judged.workspace.clone(), Arc::clone(&judged.settings));
        let reread = move || {
            let place = Place { workspace: workspace.as_deref(), programs: &settings.programs };
            registry.intend(&proposal.tool, &proposal.args, &place).ok().map(|intent| intent.work)
        };
        Executor {
            runner: Arc::clone(&self.runner),
            workspace: judged.workspace.clone(),
            reread: Arc::new(reread),
            reports: Arc::clone(&self.reports),
            may_read: Arc::new(may_read),
            live: self.live.clone(),
            stop: cancel.stopper(),
        }
    }

    /// Step four: makes what happened durable, and does not give up while the disk is in trouble.
    pub(crate) async fn attest(&self, facts: &CallFacts, executed: Executed) -> Result<Completed, Refusal> {
        let id = AttestationId::generate(self.clock.now(), self.entropy.as_ref()).map_err(internal)?;
        let attestation = ToolAttestation::of(id, facts, &executed, self.clock.now()).map_err(internal)?;
        let note = attestation.sign(self.store.key()).map_err(internal)?;
        let used = Charge {
            calls: 1,
            wall_ms: u64::try_from(executed.ran.as_millis()).unwrap_or(u64::MAX),
            output_bytes: executed.output.length(),
        };
        let proposal = &facts.proposal;
        let body = json!({ "attestation": attestation, "note": note, "output": executed.output });
        let record = self.record(RecordKind::ToolAttested, proposal.subject(), &body)?;
        let changes = vec![
            Change::MoveCall { call: proposal.call, from: CallState::Started, to: CallState::Ended },
            Change::Settle { run: proposal.run, reserved: facts.reserved, used },
        ];
        loop {
            match self.commit(vec![record.clone()], changes.clone()).await {
                Ok(committed) => {
                    let (seq, hash) = committed.last().ok_or_else(|| internal("no record was written"))?;
                    let receipt = Receipt { attestation, note, seq, hash };
                    return Ok(Completed { receipt, output: executed.output });
                }
                Err(CommitError::Unwritable(trouble)) if trouble.can_pass() => {
                    tokio::time::sleep(JOURNAL_AGAIN).await;
                }
                Err(CommitError::Unwritable(trouble)) => return Err(Refusal::Unattested(trouble)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn call_row(&self, proposal: &ToolProposal, state: CallState, document: String) -> CallRow {
        CallRow {
            call: proposal.call,
            node: self.store.node(),
            session: proposal.session,
            run: proposal.run,
            waiting: proposal.waiting,
            state,
            first_seq: 0,
            last_seq: 0,
            document,
        }
    }
}

/// A call that may run, because everything it needs is durable.
struct Begun {
    facts: Arc<CallFacts>,
    plan: Plan,
}

/// Whether what would run now is what was approved, and policy still lets it.
fn still_approved(judged: Judged, prompt: &PendingToolApproval) -> Result<Judged, Refusal> {
    let Some(runnable) = &judged.runnable else { return Err(Refusal::Denied(Box::new(judged.decision))) };
    let (approved, found) = (prompt.digest, runnable.action.digest);
    if approved == found { Ok(judged) } else { Err(Refusal::Mismatch { approval: prompt.id, approved, found }) }
}

/// How long a waiting call sleeps before it looks at the clock again: somebody may have set it.
const LONGEST_NAP: Duration = Duration::from_secs(10);

/// How often a call looks again at what is left of its run's budget.
const RESERVATION_ATTEMPTS: usize = 16;

/// How long before something is tried again that a journal in trouble did not take.
const JOURNAL_AGAIN: Duration = Duration::from_millis(250);
