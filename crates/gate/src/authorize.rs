//! Decides what another program may do itself. Nothing is run here; the program is told, and acts or does not.
//!
//! Guarantees: whoever is told `allow` has it on record before, and what it takes from the run's budget is taken; whatever goes wrong on the way
//! is a `deny` with its reason. A person who is asked approves exactly what was asked, once, as with any call: the waiting, the digest and
//! standing approvals are those of `conduct`.
//! Does not: hold the program to its word. That is why policy knows that it happens elsewhere.

use std::sync::{Arc, atomic::Ordering};

use palyra_journal::{
    CommitError, RecordKind, Subject,
    state::{Change, Charge, Conflict},
};
use palyra_policy::{RequestDocument, Verdict};
use palyra_types::{
    PolicyId, Sha256Digest,
    id::{ApprovalId, CallId},
    word::words,
};
use serde::Serialize;

use crate::{
    approval::grant::CachedApproval,
    attest::{Completed, Ending},
    conduct::{Hitch, Judged},
    decide::{ToolDecision, recorded_request},
    gate::{Gate, Inner, internal},
    proposal::{LONGEST_REFUSED, ProposalDocument, ToolProposal},
    refusal::{CancelCause, Refusal},
};

words! {
    /// What happens where policy asks.
    pub enum OnAsk ("way to ask") {
        /// The program asks its own user.
        Defer = "defer",
        /// A person is asked here, and the program waits.
        Wait = "wait",
    }
}

/// What another program is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an answer that nobody is told protects nothing"]
pub struct Authorized {
    /// Whether it may: at once, if its own user lets it, or not.
    pub verdict: Verdict,
    /// A word for programs.
    pub code: &'static str,
    /// Why.
    pub reason: String,
    /// The policies behind that.
    pub policies: Vec<PolicyId>,
    /// What would change it.
    pub help: Option<String>,
    /// The record of the decision. None only if it could not be written, which denies.
    pub record: Option<u64>,
    /// The call that a person was asked about.
    pub call: Option<CallId>,
    /// The answer that was used: to the question about this, or one that stands.
    pub approval: Option<ApprovalId>,
}

impl Gate {
    /// Decides what another program wants to do itself: a proposal that says so in `elsewhere`.
    pub async fn authorize(&self, proposal: ToolProposal, on_ask: OnAsk) -> Authorized {
        let inner = &self.inner;
        if inner.stopping.load(Ordering::SeqCst) {
            return Authorized::refused(&Refusal::Stopping { goes_on: false });
        }
        let decided = inner.decide_about(&proposal, on_ask).await;
        match decided {
            // What cannot be recorded is not tried again.
            Err(refusal @ (Refusal::Journal(_) | Refusal::Unreadable(_) | Refusal::TooManyCalls { .. })) => {
                Authorized::refused(&refusal)
            }
            Ok(Some(told)) => told,
            Ok(None) => self.have_asked(proposal).await,
            Err(refusal) => inner.tell_refused(&proposal, &refusal, None).await,
        }
    }

    /// Lets something pass that is decided about where it arrives, and records that.
    pub async fn let_pass(&self, proposal: &ToolProposal, why: &str) -> Authorized {
        let told = Authorized { reason: why.to_owned(), ..Authorized::plain(Verdict::Allow, "allowed") };
        let document = Told::of(proposal, &told);
        match self.inner.tell_hook(proposal, &document, Vec::new()).await {
            Ok(seq) => Authorized { record: Some(seq), ..told },
            Err(refusal) => Authorized::refused(&refusal),
        }
    }

    /// Records something that another program tells and nobody decides about.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn hook_told(&self, body: &impl Serialize) -> Result<(), Refusal> {
        self.inner.tell(RecordKind::HookTold, body).await
    }

    /// Records that another program was refused something that could not be read, so that there is nothing to decide about. The number of the
    /// record is returned.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn hook_refused(&self, body: &impl Serialize) -> Result<u64, Refusal> {
        let record = self.inner.record(RecordKind::HookDecided, Subject::default(), body)?;
        let committed = self.inner.commit(vec![record], Vec::new()).await?;
        committed.last().map(|(seq, _)| seq).ok_or_else(|| internal("no record was written"))
    }

    /// Has a person asked, as about any call, and waits.
    async fn have_asked(&self, proposal: ToolProposal) -> Authorized {
        let call = proposal.call;
        let outcome = self.run_own(proposal.clone()).await;
        match outcome {
            // Somebody stopped it after the answer, or it is not what was asked any more.
            Ok(completed) if completed.receipt.attestation.ending != Ending::Completed => {
                let why = completed.receipt.attestation.detail.clone().unwrap_or_else(|| "it was stopped".to_owned());
                self.inner.tell_refused(&proposal, &Refusal::Cancelled(CancelCause::Withdrawn(why)), Some(call)).await
            }
            Ok(completed) => {
                let told = Authorized::approved(call, &completed);
                match self.inner.tell_hook(&proposal, &Told::of(&proposal, &told), Vec::new()).await {
                    Ok(seq) => Authorized { record: Some(seq), ..told },
                    Err(refusal) => Authorized::refused(&refusal),
                }
            }
            Err(refusal) => self.inner.tell_refused(&proposal, &refusal, Some(call)).await,
        }
    }
}

impl Inner {
    /// Puts it to policy and to standing approvals. What is decided is on record when this returns; nothing is if a person is to be asked
    /// here.
    async fn decide_about(
        self: &Arc<Self>,
        proposal: &ToolProposal,
        on_ask: OnAsk,
    ) -> Result<Option<Authorized>, Refusal> {
        self.registry.load().callable(&proposal.tool).map_err(Refusal::Call)?;
        let entered = self.admission.enter(&proposal.principal);
        let _place = entered.map_err(|limit| Refusal::TooManyCalls { limit })?;
        let shared = Arc::new(proposal.clone());
        for _ in 0..ATTEMPTS {
            let mut judged = self.judge(Arc::clone(&shared), self.clock.now()).await?;
            let cached = match (judged.decision.verdict, &judged.runnable) {
                (Verdict::Ask, Some(runnable)) => self.standing(&judged, runnable).await?,
                _ => None,
            };
            let is_asked_elsewhere = judged.decision.verdict == Verdict::Ask && on_ask == OnAsk::Defer;
            if is_asked_elsewhere && cached.is_none() {
                judged.name_the_posture()?;
            }
            let told = Authorized::decided(&judged.decision, cached.as_ref());
            let mut changes = Vec::new();
            match told.verdict {
                Verdict::Ask if on_ask == OnAsk::Wait => return Ok(None),
                // Whatever may come of it takes a call; a refusal takes nothing.
                Verdict::Ask | Verdict::Allow => changes.push(Change::Reserve { run: proposal.run, amount: ONE_CALL }),
                Verdict::Deny => {}
            }
            changes.extend(cached.map(|cached| Change::UseGrant(cached.id)));
            // What is set from here on counts for the next.
            if !self.still_holds(&judged) {
                continue;
            }
            match self.write_hook(proposal, &Told::of(proposal, &told).about(self, &judged)?, changes).await {
                Ok(seq) => return Ok(Some(Authorized { record: Some(seq), ..told })),
                Err(Hitch::JudgeAgain) => {}
                Err(Hitch::Refused(refusal)) => return Err(refusal),
            }
        }
        Err(internal("policies change too fast to decide by"))
    }

    /// Records that something was refused, and says why.
    async fn tell_refused(&self, proposal: &ToolProposal, refusal: &Refusal, call: Option<CallId>) -> Authorized {
        let told = Authorized { call, ..Authorized::refused(refusal) };
        match self.tell_hook(proposal, &Told::of(proposal, &told), Vec::new()).await {
            Ok(seq) => Authorized { record: Some(seq), ..told },
            Err(unwritten) => Authorized::refused(&unwritten),
        }
    }

    /// Writes a decision down that uses no standing approval.
    async fn tell_hook(&self, proposal: &ToolProposal, told: &Told<'_>, changes: Vec<Change>) -> Result<u64, Refusal> {
        self.write_hook(proposal, told, changes).await.map_err(|hitch| match hitch {
            Hitch::Refused(refusal) => refusal,
            Hitch::JudgeAgain => internal(Conflict::GrantEnded),
        })
    }

    /// Writes a decision down.
    async fn write_hook(&self, proposal: &ToolProposal, told: &Told<'_>, changes: Vec<Change>) -> Result<u64, Hitch> {
        // The call, if one was asked about, has its own story.
        let subject = Subject { session: Some(proposal.session), run: Some(proposal.run), ..Subject::default() };
        let record = self.record(RecordKind::HookDecided, subject, told)?;
        let committed = self.commit(vec![record], changes).await.map_err(|error| match error {
            CommitError::Conflict(Conflict::GrantEnded) => Hitch::JudgeAgain,
            error => Hitch::Refused(error.into()),
        })?;
        committed.last().map(|(seq, _)| seq).ok_or_else(|| internal("no record was written").into())
    }
}

impl Authorized {
    fn plain(verdict: Verdict, code: &'static str) -> Self {
        let (reason, policies) = (String::new(), Vec::new());
        Self { verdict, code, reason, policies, help: None, record: None, call: None, approval: None }
    }

    /// What policy says, and a standing approval that covers it.
    fn decided(decision: &ToolDecision, cached: Option<&CachedApproval>) -> Self {
        let policies: Vec<PolicyId> = decision.policies().into_iter().map(|policy| policy.id.clone()).collect();
        let reason = decision.reason();
        match (decision.verdict, cached) {
            (Verdict::Allow, _) => Self { reason, policies, ..Self::plain(Verdict::Allow, "allowed") },
            (Verdict::Ask, Some(CachedApproval { id, by, covers })) => Self {
                reason: format!("{by} approved this before: {covers}"),
                policies,
                approval: Some(*id),
                ..Self::plain(Verdict::Allow, "allowed")
            },
            (Verdict::Ask, None) => Self { reason, policies, ..Self::plain(Verdict::Ask, "asks") },
            (Verdict::Deny, _) => Self::refused(&Refusal::Denied(Box::new(decision.clone()))),
        }
    }

    /// A person said yes, or policy did meanwhile.
    fn approved(call: CallId, completed: &Completed) -> Self {
        let approver = completed.receipt.attestation.approver.as_ref();
        let reason =
            approver.map_or_else(|| "policy lets it".to_owned(), |approver| format!("{} approved it", approver.by));
        let approval = approver.map(|approver| approver.approval);
        Self { reason, approval, call: Some(call), ..Self::plain(Verdict::Allow, "allowed") }
    }

    /// Why not, and what to do about it.
    fn refused(refusal: &Refusal) -> Self {
        let policies = match refusal {
            Refusal::Denied(decision) => decision.policies().into_iter().map(|policy| policy.id.clone()).collect(),
            _ => Vec::new(),
        };
        let approval = match refusal {
            Refusal::Rejected { approval, .. } | Refusal::Mismatch { approval, .. } | Refusal::Expired(approval) => {
                Some(*approval)
            }
            _ => None,
        };
        let (reason, help) = (refusal.to_string(), Some(refusal.advice()));
        Self { reason, policies, help, approval, ..Self::plain(Verdict::Deny, refusal.code()) }
    }
}

/// The body of `hook.decided`.
#[derive(Serialize)]
struct Told<'a> {
    verdict: Verdict,
    code: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    policies: &'a [PolicyId],
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_set: Option<Sha256Digest>,
    /// Of the arguments, which may be too long to be kept.
    input_sha256: Sha256Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_about: Option<CallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalId>,
    proposal: ProposalDocument,
}

impl<'a> Told<'a> {
    fn of(proposal: &ToolProposal, told: &'a Authorized) -> Self {
        Self {
            verdict: told.verdict,
            code: told.code,
            reason: &told.reason,
            advice: told.help.as_deref(),
            policies: &told.policies,
            policy_set: None,
            input_sha256: proposal.args.digest(),
            request: None,
            asked_about: told.call,
            approval: told.approval,
            proposal: proposal.brief(),
        }
    }

    /// The same, with the request that was put to policy.
    fn about(mut self, inner: &Inner, judged: &Judged) -> Result<Self, Refusal> {
        let definition = judged.registry.definition_for(&judged.proposal).map_err(Refusal::Call)?;
        let request = recorded_request(
            &judged.proposal,
            &judged.intent,
            &judged.decision,
            definition.metadata(),
            inner.clock.now(),
        );
        self.policy_set = Some(judged.decision.policy_set);
        // What is put to policy may be short where the arguments are not: it names a file, and not what is written there.
        let is_short = || serde_json::to_vec(&request).is_ok_and(|text| text.len() <= LONGEST_REFUSED);
        let is_kept = !judged.proposal.is_too_long_to_refuse() || is_short();
        self.request = is_kept.then_some(request);
        Ok(self)
    }
}

/// What a decision takes from its run's budget, if something may come of it.
const ONE_CALL: Charge = Charge { calls: 1, wall_ms: 0, output_bytes: 0 };

/// How often something is judged anew because what it was judged by changed.
const ATTEMPTS: usize = 16;
