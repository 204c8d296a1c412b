//! Step two: the question that a call waits for the answer to.
//!
//! Guarantees: a question is durable before anybody sees it; its answer is used once, for exactly what was shown, while it is valid and
//! policy still lets it; whoever is late, from either side, is told so. A journal in passing trouble is waited for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_journal::{
    NewRecord, RecordKind,
    state::{ApprovalRow, ApprovalState, CallState, Change, Waiting},
};
use palyra_policy::Verdict;
use palyra_types::id::ApprovalId;
use tokio::sync::{oneshot, watch};

use crate::{
    approval::{
        answer::read,
        apply_tool_approval_outcome,
        record::{ApprovalDocument, ApprovalPromptRecord, Asked, PendingToolApproval},
    },
    attest::Completed,
    cancel::Cancel,
    conduct::{Begun, Hitch, JOURNAL_AGAIN, Judged, Runnable, Start},
    deadline::Deadline,
    gate::{Inner, internal},
    permit::Approver,
    refusal::{CancelCause, Refusal},
    risk,
    waiting::Waiter,
};

/// A question that a call waits for the answer to. Its document stays in the journal, because thousands of calls may wait and each may have
/// large arguments.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) id: ApprovalId,
    answer_by: Deadline,
    valid_for: Duration,
    /// Whether the call lives on without its caller, and without this daemon.
    accepted: bool,
}

impl Question {
    pub(crate) fn new(prompt: &PendingToolApproval, waiting: Waiting) -> Self {
        let valid_for = Duration::from_secs(prompt.valid_for_seconds.into());
        Self { id: prompt.id, answer_by: prompt.answer_by, valid_for, accepted: waiting == Waiting::Accepted }
    }
}

/// What a call that waits for its answer listens to, besides the answer.
pub(crate) struct Ear {
    pub(crate) cancel: Cancel,
    /// Changes when policies do.
    pub(crate) policies: watch::Receiver<u64>,
}

impl Inner {
    /// Puts the question on record. From here on it can be answered, whatever becomes of this daemon.
    pub(crate) async fn ask(
        &self,
        judged: &Judged,
        mut records: Vec<NewRecord>,
        durable: Option<oneshot::Sender<()>>,
    ) -> Result<(Question, Waiter), Refusal> {
        let Some(runnable) = &judged.runnable else { return Err(internal("a call that asks has no plan")) };
        let proposal = &judged.proposal;
        // A call that could not be paid for is not worth anybody's time.
        if let Err(refusal) = judged.affordable(&self.run_now(proposal).await?) {
            return Err(self.refuse(proposal, refusal).await);
        }
        let config = &judged.settings.config.approvals;
        let now = self.clock.now();
        let id = ApprovalId::generate(now, self.entropy.as_ref()).map_err(internal)?;
        let prompt = self.prompt(id, judged, runnable)?;
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
        let question = Question::new(&document.prompt, proposal.waiting);
        drop(document);
        let asking = Change::AddApproval { row, limits: config.pending() };
        let waiting = self.add_call(proposal, CallState::Waiting);
        let waiter = self.waiters.wait_for(id);
        if let Err(error) = self.commit(records, vec![waiting, asking]).await {
            return Err(match Refusal::from(error) {
                refusal @ (Refusal::TooManyPending { .. } | Refusal::PendingTooLarge { .. }) => {
                    self.refuse(proposal, refusal).await
                }
                refusal => refusal,
            });
        }
        if let Some(durable) = durable {
            let _ = durable.send(());
        }
        Ok((question, waiter))
    }

    /// The question as it is shown.
    fn prompt(&self, id: ApprovalId, judged: &Judged, runnable: &Runnable) -> Result<PendingToolApproval, Refusal> {
        let config = &judged.settings.config.approvals;
        let tool = judged.registry.definition_for(&judged.proposal).map_err(Refusal::Call)?;
        let asked = Asked {
            proposal: &judged.proposal,
            intent: &judged.intent,
            decision: &judged.decision,
            plan: &runnable.plan,
            action: &runnable.action,
            risk: risk::assess(&judged.intent, &runnable.plan, &tool.metadata().capabilities),
        };
        let answer_by = Deadline::after(self.clock.as_ref(), Duration::from_secs(config.answer_within_seconds.into()));
        Ok(PendingToolApproval::new(id, asked, self.clock.now(), answer_by, config.valid_for_seconds))
    }

    /// Waits for the answer to a question that is durable, and goes on from there. A journal in passing trouble is waited for as long as
    /// an answer could hold: nothing runs meanwhile. What is still pending after that is withdrawn when the trouble is over; see
    /// [`crate::recover`].
    pub(crate) async fn await_answer(
        self: Arc<Self>,
        question: Question,
        waiter: &Waiter,
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
    async fn follow(self: Arc<Self>, question: Question, waiter: &Waiter, ear: &mut Ear) -> Result<Completed, Refusal> {
        loop {
            let state = self.store.approval_state(question.id).await?.ok_or_else(gone)?;
            if state != ApprovalState::Pending {
                return self.answered(question, &ear.cancel).await;
            }
            let left = question.answer_by.remaining(self.clock.as_ref(), self.recorded());
            if left.is_zero() {
                // Whoever answers at the same moment wins or loses by the state of the row, never both.
                let row = self.question(question.id).await?;
                self.withdraw(&row, ApprovalState::Expired, "nobody answered in time").await?;
                continue;
            }
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
                    // The next daemon goes on with it; its caller did not count on this one.
                    if question.accepted && cause == CancelCause::Stopping {
                        return Err(Refusal::Stopping { goes_on: true });
                    }
                    let row = self.question(question.id).await?;
                    if row.state == ApprovalState::Pending {
                        self.withdraw(&row, ApprovalState::Cancelled, &cause.to_string()).await?;
                    }
                }
            }
        }
    }

    async fn question(&self, id: ApprovalId) -> Result<ApprovalRow, Refusal> {
        self.store.approval(id).await?.ok_or_else(gone)
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
        let mut judged = self.judge(Arc::new(proposal), self.clock.now()).await?;
        judged.proposed_at = prompt.asked_at;
        Ok((judged, prompt))
    }

    /// Goes on with a call whose question is not pending any more.
    async fn answered(self: Arc<Self>, question: Question, cancel: &Cancel) -> Result<Completed, Refusal> {
        let row = self.question(question.id).await?;
        // Before anything is looked at, so that what is found does not grow old in a queue.
        let turn = match row.state {
            ApprovalState::Approved => {
                let prompt = read(&row)?.prompt;
                Some(self.turn(&prompt.principal, &prompt.tool, cancel).await)
            }
            _ => None,
        };
        let outcome = apply_tool_approval_outcome(&row, self.clock.as_ref(), self.recorded());
        let begun = match (outcome, turn) {
            (Ok(approver), Some(Ok(turn))) => {
                self.begin_approved(&row, approver, cancel).await.map(|(judged, begun)| (judged, begun, turn))
            }
            (Ok(_), Some(Err(refusal))) | (Err(refusal), _) => Err(refusal),
            (Ok(_), None) => Err(internal("an answer that is no yes was taken for one")),
        };
        let refusal = match begun {
            Ok((judged, begun, turn)) => {
                drop(row);
                let completed = self.carry_out(judged, begun, cancel, None).await;
                drop(turn);
                return completed;
            }
            Err(refusal) => refusal,
        };
        // The next daemon starts what was approved, as it would after a crash of this one.
        if question.accepted && refusal == Refusal::Cancelled(CancelCause::Stopping) {
            return Err(Refusal::Stopping { goes_on: true });
        }
        // An answer that will not be used any more is not left standing.
        if row.state == ApprovalState::Approved && !refusal.may_pass() {
            let (to, cause, refused) = match &refusal {
                Refusal::Expired(_) => (ApprovalState::Expired, "it was not used in time".to_owned(), None),
                other => (ApprovalState::Cancelled, other.to_string(), Some(other)),
            };
            self.withdraw_for(&row, to, &cause, refused).await?;
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
        let changes = vec![
            Change::MoveApproval {
                id: row.id,
                from: ApprovalState::Approved,
                to: ApprovalState::Consumed,
                document: Some(over(&row.document)),
            },
            Change::MoveCall { call: row.call, from: CallState::Waiting, to: CallState::Started },
        ];
        let start = Start { records: Vec::new(), changes, approver: Some(approver) };
        loop {
            // An answer is about what was shown, not about what has become of it.
            let (judged, prompt) = self.judge_again(row).await?;
            let judged = still_approved(judged, &prompt)?;
            match self.write_start(&judged, &start, cancel).await {
                Ok(begun) => return Ok((judged, begun)),
                Err(Hitch::Refused(refusal)) => return Err(refusal),
                Err(Hitch::JudgeAgain) => {}
            }
        }
    }
}

/// Whether what would run now is what was approved, and policy still lets it.
fn still_approved(judged: Judged, prompt: &PendingToolApproval) -> Result<Judged, Refusal> {
    let Some(runnable) = &judged.runnable else { return Err(Refusal::Denied(Box::new(judged.decision))) };
    let (approved, found) = (prompt.digest, runnable.action.digest);
    if approved == found { Ok(judged) } else { Err(Refusal::Mismatch { approval: prompt.id, approved, found }) }
}

/// A question's document once it is over. Until then it holds the arguments as they are to be run; afterwards tokens in it are masked, as
/// they are in the journal.
pub(crate) fn over(document: &str) -> String {
    palyra_journal::mask::masked(document.to_owned())
}

fn gone() -> Refusal {
    internal("the question is gone")
}

/// How long a waiting call sleeps before it looks at the clock again: somebody may have set it.
const LONGEST_NAP: Duration = Duration::from_secs(10);
