//! What is made of calls that were under way when the daemon ended.
//!
//! Guarantees: a call that had begun and did not end is attested as interrupted and never run again by itself; a call whose caller was
//! attached to the old daemon is withdrawn; a call that was accepted goes on waiting for its answer, or starts if it has it. The same is
//! done for what an outage of the journal left behind, but that nothing goes on which its caller was told would not.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use palyra_journal::{
    CommitError, RecordKind, Subject,
    state::{ApprovalRow, ApprovalState, CallRow, CallState, Change, Charge, Conflict, Waiting},
};
use palyra_types::id::AttestationId;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use crate::{
    approval::{answer::read, grant::GrantDocument},
    attest::Ending,
    gate::{Gate, Inner, internal},
    question::Question,
    refusal::{CancelCause, Refusal},
};

/// What was found and done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Calls that had begun, attested as interrupted.
    pub interrupted: usize,
    /// Calls that were withdrawn, because nobody waits for them any more.
    pub withdrawn: usize,
    /// Accepted calls that wait on.
    pub resumed: usize,
}

impl Gate {
    /// Brings what an earlier daemon left in order. To be called before anything is let through.
    ///
    /// # Errors
    /// When the journal cannot be read or written.
    pub async fn recover(&self) -> Result<Recovered, Refusal> {
        let mut recovered = Recovered::default();
        let node = self.inner.store.node();
        // What this very daemon is about is not left behind by anybody.
        let left_behind = |row: &&CallRow| row.node == node && !self.conducts(row.call);
        for row in self.inner.store.calls_in(CallState::Started).await?.iter().filter(left_behind) {
            self.inner.interrupt(row).await?;
            recovered.interrupted += 1;
        }
        for row in self.inner.store.calls_in(CallState::Waiting).await?.iter().filter(left_behind) {
            if self.resume(row).await? {
                recovered.resumed += 1;
            } else {
                recovered.withdrawn += 1;
            }
        }
        self.inner.end_grants_that_are_over().await?;
        self.inner.in_order.store(true, Ordering::SeqCst);
        Ok(recovered)
    }

    /// Listens for the end of every outage of the journal, and tidies up behind it. What was refused in an outage may have been written all
    /// the same: such a call was told that it does not run, and does not.
    pub(crate) fn tidy_after_outages(&self) {
        let (inner, mut events) = (Arc::downgrade(&self.inner), self.inner.store.subscribe());
        tokio::spawn(async move {
            loop {
                let over = match events.recv().await {
                    Ok(events) => events.iter().any(|event| event.kind == RecordKind::JournalRecovered),
                    Err(RecvError::Lagged(_)) => true,
                    Err(RecvError::Closed) => return,
                };
                // Calls that are about to notice come first, and some take longer.
                for _ in 0..if over { TIDYINGS } else { 0 } {
                    tokio::time::sleep(TIDY_AFTER).await;
                    let Some(inner) = inner.upgrade() else { return };
                    // What cannot be tidied now is tidied the next time, or by the next daemon.
                    let _ = Self { inner }.tidy().await;
                }
            }
        });
    }

    /// Ends a call whose conduct panicked, which nobody conducts any more.
    pub(crate) async fn tidy_after_a_panic(&self) -> Refusal {
        match self.tidy().await {
            Ok(()) => internal("conducting the call failed"),
            Err(refusal) => refusal,
        }
    }

    /// Ends calls that nobody conducts, though this daemon is alive.
    async fn tidy(&self) -> Result<(), Refusal> {
        let node = self.inner.store.node();
        for state in [CallState::Started, CallState::Waiting] {
            for row in self.inner.store.calls_in(state).await? {
                // Asked last: a call that is under way may have come to its end since the list was made, and is in another state then.
                if row.node != node || self.conducts(row.call) {
                    continue;
                }
                // And this after it: whoever leaves because the daemon stops leaves its call to the next one.
                if !self.inner.owns_what_is_left() {
                    return Ok(());
                }
                let asked = self.inner.store.approval_of(row.call).await?;
                match (state, asked) {
                    (CallState::Started, _) => self.inner.interrupt(&row).await?,
                    (_, Some(asked)) if matches!(asked.state, ApprovalState::Pending | ApprovalState::Approved) => {
                        let cause =
                            CancelCause::Withdrawn("the daemon or its journal failed while it was asked".to_owned());
                        self.inner.withdraw(&asked, ApprovalState::Cancelled, &cause.to_string()).await?;
                    }
                    _ => self.inner.discard(&row).await?,
                }
            }
        }
        Ok(())
    }

    /// Goes on with a call that waited, if it lives on without its caller.
    async fn resume(&self, row: &CallRow) -> Result<bool, Refusal> {
        let inner = &self.inner;
        let asked = inner.store.approval_of(row.call).await?;
        let open = |asked: &ApprovalRow| matches!(asked.state, ApprovalState::Pending | ApprovalState::Approved);
        let Some(asked) = asked.filter(open) else {
            inner.discard(row).await?;
            return Ok(false);
        };
        match read(&asked) {
            Ok(document) if row.waiting == Waiting::Accepted => {
                let question = Question::new(&document.prompt, row.waiting);
                let origin = document.proposal.origin();
                self.begin_waiting(row.call, origin, question);
                Ok(true)
            }
            // A question that cannot be read cannot be answered, and must not keep the daemon from starting.
            Ok(_) | Err(_) => {
                inner.withdraw(&asked, ApprovalState::Cancelled, &CancelCause::Restarted.to_string()).await?;
                Ok(false)
            }
        }
    }
}

impl Inner {
    /// Ends the standing approvals whose time is over, so that they are erased and pruned like everything that is.
    async fn end_grants_that_are_over(&self) -> Result<(), Refusal> {
        for row in self.store.grants().await? {
            let holds = |document: GrantDocument| document.holds(self.clock.as_ref(), self.recorded());
            // One that cannot be read covers nothing.
            if serde_json::from_str(&row.document).is_ok_and(holds) {
                continue;
            }
            let subject = Subject { session: Some(row.session), approval: Some(row.id), ..Subject::default() };
            let record = self.record(RecordKind::GrantEnded, subject, &json!({ "cause": "its time is over" }))?;
            match self.commit(vec![record], vec![Change::EndGrant(row.id)]).await {
                Ok(_) | Err(CommitError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends a call that waits for a question that is not there, or is over. It cannot go on, and must not keep the daemon from starting.
    async fn discard(&self, row: &CallRow) -> Result<(), Refusal> {
        let cause = CancelCause::Withdrawn("nothing is left that it could wait for".to_owned());
        let refusal = Refusal::Cancelled(cause);
        let told = json!({ "refused": refusal.code(), "reason": refusal.to_string(), "advice": refusal.advice() });
        let record = self.record(RecordKind::ToolDecided, subject(row), &told)?;
        let ended = Change::MoveCall { call: row.call, from: CallState::Waiting, to: CallState::Ended };
        match self.commit(vec![record], vec![ended]).await {
            Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What a call that was begun took from its run's budget, and what it used of that as far as is known: at most the time since.
    async fn reserved(&self, row: &CallRow) -> Result<Option<(Charge, Charge)>, Refusal> {
        #[derive(Deserialize)]
        struct Started {
            reserved: Charge,
        }
        let records = self.store.records(row.last_seq, 1).await?;
        let Some(stored) = records.first().filter(|one| one.record.subject().call == Some(row.call)) else {
            return Ok(None);
        };
        // A body that was erased says nothing; what was taken stays taken then.
        let started = stored.body.as_deref().and_then(|body| serde_json::from_str::<Started>(body).ok());
        Ok(started.map(|Started { reserved }| {
            let since = self.clock.now().unix_millis().saturating_sub(stored.record.time().unix_millis());
            let wall_ms = u64::try_from(since).unwrap_or_default().min(reserved.wall_ms);
            (reserved, Charge { calls: reserved.calls, wall_ms, output_bytes: 0 })
        }))
    }

    /// Attests that a call had begun and that nothing more is known of it.
    async fn interrupt(self: &Arc<Self>, row: &CallRow) -> Result<(), Refusal> {
        let id = AttestationId::generate(self.clock.now(), self.entropy.as_ref()).map_err(internal)?;
        let attestation = json!({
            "v": 1,
            "attestation_id": id,
            "call": row.call,
            "run": row.run,
            "session": row.session,
            "ending": Ending::Interrupted,
            "detail": "the daemon or its journal failed while it ran or was about to; it was not run again",
            "times": { "ended": self.clock.now() },
            "records": { "first": row.first_seq, "started": row.last_seq },
        });
        let text = palyra_types::json::canonical_of(&attestation).map_err(internal)? + "\n";
        let note = self.store.key().sign(&text).map_err(internal)?;
        let record = self.record(RecordKind::ToolAttested, subject(row), &json!({ "note": note }))?;
        let mut changes = vec![Change::MoveCall { call: row.call, from: CallState::Started, to: CallState::Ended }];
        let settled = self.reserved(row).await?;
        changes.extend(settled.map(|(reserved, used)| Change::Settle { run: row.run, reserved, used }));
        match self.commit(vec![record], changes).await {
            // Another daemon that shares the store was quicker.
            Ok(_) | Err(CommitError::Conflict(Conflict::Call(_))) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// How long after an outage it is tidied up, and how often.
const TIDY_AFTER: Duration = Duration::from_secs(2);
const TIDYINGS: usize = 3;

const fn subject(row: &CallRow) -> Subject {
    Subject { session: Some(row.session), run: Some(row.run), call: Some(row.call), approval: None }
}
