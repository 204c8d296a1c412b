//! Who may answer, and what becomes of it.
//!
//! Guarantees: an agent never answers; nobody answers their own call, or one made on their behalf, but a person at a terminal where policy lets
//! them; policy is asked about every answer; a question is answered once, and whoever is late is told so.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use palyra_journal::{
    CommitError, NewRecord, RecordKind, Trouble,
    mask::masked,
    state::{ApprovalRow, ApprovalState, CallState, Change, Conflict, GrantRow},
    store::ApprovalQuery,
};
use palyra_policy::{PolicyRequest, PolicyRequestContext, Verdict};
use palyra_types::{
    Action, Channel, Clock, DeviceId, ObjectId, ObjectKind, Principal, PrincipalKind, Resource, Sha256Digest,
    Timestamp, TokenId, WorkspaceName, id::ApprovalId,
};

use super::{
    grant::{Cover, GrantDocument, PatternError},
    presence::PresenceError,
    record::{ApprovalDocument, ApprovalRecord, DecisionScope, Pattern, PendingToolApproval, RefusalRecord},
};
use crate::{
    config::Presence,
    deadline::Deadline,
    gate::{Gate, Inner, internal},
    permit::Approver,
    petitioner::Petitioner,
    question::over,
    refusal::{CancelCause, Refusal},
    settings::InForce,
};

/// Whoever answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answerer {
    /// Who.
    pub principal: Principal,
    /// Whether a person sits there: a terminal or a console, not a token that a program holds.
    pub interactive: bool,
    /// The surface they answer on.
    pub channel: Option<Channel>,
    /// The device they answer from.
    pub device: Option<DeviceId>,
    /// The API token they answer with.
    pub token: Option<TokenId>,
    /// The workspaces they are bound to; none means that they are bound to none in particular.
    pub member_of: Option<BTreeSet<WorkspaceName>>,
    /// The session of answering, which a PIN unlocks.
    pub session: String,
}

impl Answerer {
    /// What a PIN unlocks: this session of this principal. The name of a session is no secret.
    fn presence(&self) -> String {
        format!("{}\n{}", self.principal, self.session)
    }
}

/// What they say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Yes.
    Approve(DecisionScope),
    /// No, and what the agent is told.
    Deny(Option<String>),
}

impl Gate {
    /// Questions that nobody has answered yet, oldest first.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn pending_approvals(
        &self,
        after: Option<ApprovalId>,
        most: usize,
    ) -> Result<Vec<PendingToolApproval>, Refusal> {
        let query = ApprovalQuery { state: ApprovalState::Pending, after, most };
        let rows = self.inner.store.approvals_in(query).await?;
        // One that cannot be read cannot be answered either, and does not keep the others from being seen.
        Ok(rows.iter().filter_map(|row| read(row).ok()).map(|document| document.prompt).collect())
    }

    /// How many questions nobody has answered yet.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn pending_count(&self) -> Result<u64, Refusal> {
        Ok(self.inner.store.pending_count().await?)
    }

    /// One question, and its answer if it has one. Nothing is left of one that was erased.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn approval(
        &self,
        id: ApprovalId,
    ) -> Result<Option<(PendingToolApproval, Option<ApprovalRecord>)>, Refusal> {
        let row = self.inner.store.approval(id).await?.filter(|row| !row.document.is_empty());
        let Some(row) = row else { return Ok(None) };
        let document = read(&row)?;
        Ok(Some((document.prompt, document.answer)))
    }

    /// Answers a question.
    ///
    /// # Errors
    /// When the answer does not count.
    pub async fn answer(&self, id: ApprovalId, answer: &Answer, by: &Answerer) -> Result<ApprovalRecord, AnswerError> {
        let row = self.inner.asked(id).await?;
        self.inner.answer(&row, answer, by).await
    }

    /// Answers a question as it was shown. Whoever names the wrong question does not answer it by mistake.
    ///
    /// # Errors
    /// When the answer does not count, or this is not the digest of what is asked about.
    pub async fn answer_shown(
        &self,
        id: ApprovalId,
        shown: Sha256Digest,
        answer: &Answer,
        by: &Answerer,
    ) -> Result<ApprovalRecord, AnswerError> {
        let row = shown_as(self.inner.asked(id).await?, shown)?;
        self.inner.answer(&row, answer, by).await
    }

    /// Answers a question and all pending ones about exactly the same action, and returns what came of each. A standing approval is given
    /// by the first.
    ///
    /// # Errors
    /// When the answer to the first does not count.
    pub async fn answer_together(
        &self,
        id: ApprovalId,
        answer: &Answer,
        by: &Answerer,
    ) -> Result<Vec<ApprovalRecord>, AnswerError> {
        let row = self.inner.asked(id).await?;
        self.inner.answer_together(&row, answer, by).await
    }

    /// As [`Self::answer_together`], if this is the digest of what is asked about.
    ///
    /// # Errors
    /// When the answer to the first does not count, or something else was shown.
    pub async fn answer_together_shown(
        &self,
        id: ApprovalId,
        shown: Sha256Digest,
        answer: &Answer,
        by: &Answerer,
    ) -> Result<Vec<ApprovalRecord>, AnswerError> {
        let row = shown_as(self.inner.asked(id).await?, shown)?;
        self.inner.answer_together(&row, answer, by).await
    }

    /// Unlocks a session of answering with the PIN.
    ///
    /// # Errors
    /// When the PIN is wrong or none is set.
    pub async fn unlock(&self, by: &Answerer, pin: &str) -> Result<(), AnswerError> {
        let inner = &self.inner;
        // SECURITY: wrong guesses lock the PIN for everybody, so an agent does not get to guess.
        if by.principal.kind() == PrincipalKind::Agent {
            return Err(AnswerError::Agent);
        }
        if inner.presence.is_none() {
            return Err(AnswerError::NoPin);
        }
        let (inner, session, principal) = (Arc::clone(inner), by.presence(), by.principal.to_string());
        let pin = pin.to_owned();
        // SECURITY: on a task of its own. Whoever hangs up meanwhile has guessed all the same, and that is told.
        tokio::spawn(async move { inner.unlock(session, principal, pin).await }).await.map_err(internal)?
    }

    /// Ends a standing approval.
    ///
    /// # Errors
    /// When policy does not let them, there is none of this id, or it was ended before.
    pub async fn end_grant(&self, id: ApprovalId, by: &Petitioner) -> Result<(), AnswerError> {
        let inner = &self.inner;
        // Agents do not answer, and do not take back what was answered.
        if by.principal.kind() == PrincipalKind::Agent {
            return Err(AnswerError::Agent);
        }
        inner.may_answer_about(by, &id.to_string(), inner.workspace_of(id).await?)?;
        let subject = palyra_journal::Subject { approval: Some(id), ..palyra_journal::Subject::default() };
        let record =
            inner.record(RecordKind::GrantEnded, subject, &serde_json::json!({ "by": by.principal.to_string() }))?;
        match inner.commit(vec![record], vec![Change::EndGrant(id)]).await {
            Ok(_) => {
                inner.note_ended(id);
                Ok(())
            }
            Err(CommitError::Conflict(_)) => Err(AnswerError::Unknown(id)),
            Err(error) => Err(Refusal::from(error).into()),
        }
    }
}

impl Inner {
    /// Takes that a standing approval has ended. What runs by it is looked at again.
    pub(crate) fn note_ended(&self, grant: ApprovalId) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(grant);
        self.policies.send_modify(|count| *count += 1);
    }

    /// The workspace that a standing approval is about.
    async fn workspace_of(&self, grant: ApprovalId) -> Result<Option<WorkspaceName>, Refusal> {
        let row = self.store.grants().await?.into_iter().find(|row| row.id == grant);
        let document = row.and_then(|row| serde_json::from_str::<GrantDocument>(&row.document).ok());
        Ok(document.and_then(|document| document.workspace))
    }

    /// Whether somebody has ended a standing approval.
    pub(crate) fn has_ended(&self, grant: ApprovalId) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(&grant)
    }

    /// Unlocks a session of answering, once it is on record that somebody knew the PIN.
    async fn unlock(self: Arc<Self>, session: String, by: String, pin: String) -> Result<(), AnswerError> {
        let shared = Arc::clone(&self);
        // Hashing takes a processor for a while, which the other calls need.
        let outcome = tokio::task::spawn_blocking(move || match &shared.presence {
            Some(presence) => Ok(presence.check(&pin, shared.clock.as_ref())),
            None => Err(AnswerError::NoPin),
        });
        let outcome = outcome.await.map_err(internal)??;
        let told = serde_json::json!({ "by": by, "unlocked": outcome.is_ok() });
        let record = self.record(RecordKind::PresenceChecked, palyra_journal::Subject::default(), &told)?;
        // If it cannot be told, nobody could say later who answered with whose PIN.
        self.commit(vec![record], Vec::new()).await.map_err(Refusal::from)?;
        outcome?;
        self.presence.iter().for_each(|presence| presence.unlock(&session, self.clock.as_ref()));
        Ok(())
    }

    /// A question that there is.
    async fn asked(&self, id: ApprovalId) -> Result<ApprovalRow, AnswerError> {
        self.store.approval(id).await.map_err(Refusal::from)?.ok_or(AnswerError::Unknown(id))
    }

    async fn answer_together(
        &self,
        row: &ApprovalRow,
        answer: &Answer,
        by: &Answerer,
    ) -> Result<Vec<ApprovalRecord>, AnswerError> {
        let mut answered = vec![self.answer(row, answer, by).await?];
        // What stands from here on stands once, so that ending it ends it.
        let once = Answer::Approve(DecisionScope::Once);
        let answer = if matches!(answer, Answer::Approve(_)) { &once } else { answer };
        // The first is answered whatever comes of the others. One that somebody else was quicker with, or that cannot be recorded, is as it
        // was.
        for other in self.store.pending_with(row.digest).await.unwrap_or_default() {
            if let Ok(record) = self.answer(&other, answer, by).await {
                answered.push(record);
            }
        }
        Ok(answered)
    }

    async fn answer(&self, row: &ApprovalRow, answer: &Answer, by: &Answerer) -> Result<ApprovalRecord, AnswerError> {
        if row.state != ApprovalState::Pending {
            return Err(AnswerError::TooLate(row.state));
        }
        let mut document = read(row)?;
        self.may_answer(&document.prompt, answer, by)?;
        let (clock, prompt) = (self.clock.as_ref(), &document.prompt);
        if prompt.answer_by.has_passed(clock, self.recorded()) {
            return Err(AnswerError::TooLate(ApprovalState::Expired));
        }
        let (state, grant) = match answer {
            Answer::Approve(scope) => (ApprovalState::Approved, self.grant(*scope, &document, row, by)?),
            Answer::Deny(_) => (ApprovalState::Denied, None),
        };
        let valid_for = Duration::from_secs(prompt.valid_for_seconds.into());
        let record = ApprovalRecord {
            id: row.id,
            state,
            by: Some(by.principal.clone()),
            scope: if let Answer::Approve(scope) = answer { Some(*scope) } else { None },
            covers: grant.as_ref().map(|(document, _)| document.covers.clone()),
            message: if let Answer::Deny(message) = answer { message.clone() } else { None },
            cause: None,
            refused: None,
            at: clock.now(),
            digest: row.digest,
            valid_until: (state == ApprovalState::Approved).then(|| Deadline::after(clock, valid_for)),
        };
        document.answer = Some(record.clone());
        let mut changes = vec![Change::MoveApproval {
            id: row.id,
            from: ApprovalState::Pending,
            to: state,
            document: Some(match state {
                ApprovalState::Approved => serde_json::to_string(&document).map_err(internal)?,
                _ => over(&serde_json::to_string(&document).map_err(internal)?),
            }),
        }];
        changes.extend(grant.map(|(_, row)| Change::AddGrant(row)));
        if state == ApprovalState::Denied {
            changes.push(Change::MoveCall { call: row.call, from: CallState::Waiting, to: CallState::Ended });
        }
        let told = self.resolved(&document.prompt, &record)?;
        match self.commit(vec![told], changes).await {
            Ok(_) => Ok(record),
            Err(CommitError::Conflict(Conflict::Approval(state))) => Err(AnswerError::TooLate(state)),
            Err(CommitError::Unwritable(trouble)) => Err(AnswerError::Unsure(trouble)),
            Err(error) => Err(Refusal::from(error).into()),
        }
    }

    fn may_answer(&self, prompt: &PendingToolApproval, answer: &Answer, by: &Answerer) -> Result<(), AnswerError> {
        if by.principal.kind() == PrincipalKind::Agent {
            return Err(AnswerError::Agent);
        }
        let same = |other: &Principal| other.kind() == by.principal.kind() && other.id() == by.principal.id();
        let own = same(&prompt.principal) || prompt.on_behalf_of.as_ref().is_some_and(same);
        // Whoever says no to their own call withdraws it.
        let approves = matches!(answer, Answer::Approve(_));
        if own && approves && !(by.interactive && by.principal.kind() == PrincipalKind::User) {
            return Err(AnswerError::Own);
        }
        let InForce { settings, policies, .. } = self.in_force();
        let id = ObjectId::parse(&prompt.id.to_string()).map_err(internal)?;
        let request = PolicyRequest {
            principal: by.principal.clone(),
            action: Action::ApprovalAnswer,
            resource: Resource::Object(ObjectKind::Approval, id),
        };
        // A tool that works in a workspace of its own is approved by whoever belongs to that one, too.
        let own = self.registry.load().own_workspace(&prompt.tool).cloned();
        let own = own.filter(|own| prompt.workspace.as_ref() != Some(own));
        for workspace in std::iter::once(prompt.workspace.clone()).chain(own.map(Some)) {
            let context = PolicyRequestContext {
                channel: by.channel.clone(),
                device_id: by.device.clone(),
                tool_name: Some(prompt.tool.clone()),
                workspace,
                member_of: by.member_of.clone(),
                ..PolicyRequestContext::at(self.clock.now())
            };
            let decision = policies.decide(&request, &context, &settings.evaluation);
            if decision.verdict != Verdict::Allow {
                return Err(AnswerError::Policy(decision.reason()));
            }
        }
        match (settings.config.approvals.presence, &self.presence) {
            (Presence::None, _) => Ok(()),
            (Presence::Pin, None) => Err(AnswerError::NoPin),
            (Presence::Pin, Some(pin)) if pin.is_unlocked(&by.presence(), self.clock.as_ref()) => Ok(()),
            (Presence::Pin, Some(_)) => Err(AnswerError::PinNeeded),
        }
    }

    /// The standing approval that an answer gives, if it gives one.
    fn grant(
        &self,
        scope: DecisionScope,
        document: &ApprovalDocument,
        row: &ApprovalRow,
        by: &Answerer,
    ) -> Result<Option<(GrantDocument, GrantRow)>, AnswerError> {
        let longest = self.settings.load().config.approvals.longest_timebox_minutes;
        let (pattern, minutes) = match scope {
            DecisionScope::Once => return Ok(None),
            DecisionScope::Session { pattern } => (pattern, None),
            DecisionScope::Timeboxed { minutes, .. } if minutes == 0 || minutes > longest => {
                return Err(AnswerError::Timebox { minutes, longest });
            }
            DecisionScope::Timeboxed { minutes, pattern } => (pattern, Some(minutes)),
        };
        let duration = minutes.map_or(Duration::MAX, |minutes| Duration::from_secs(u64::from(minutes) * 60));
        let (prompt, cover) = (&document.prompt, cover(document, pattern)?);
        let grant = GrantDocument {
            by: by.principal.clone(),
            device: by.device.clone(),
            token: by.token.clone(),
            scope,
            // It stays as long as it covers anything, and is read by whoever may see what stands.
            covers: masked(cover.shown(prompt)),
            workspace: prompt.workspace.clone(),
            on_behalf_of: prompt.on_behalf_of.clone(),
            definition: document.definition,
            cover,
            bounds: prompt.plan.bounds(),
            until: Deadline::after(self.clock.as_ref(), duration),
        };
        let row = GrantRow {
            id: row.id,
            session: row.session,
            principal: row.principal.clone(),
            tool: prompt.tool.clone(),
            ended: false,
            uses: 0,
            document: serde_json::to_string(&grant).map_err(internal)?,
        };
        Ok(Some((grant, row)))
    }

    /// Ends a question as it was read, and its call with it, because nobody answers it or uses its answer any more. Does nothing if it is
    /// in another state by now. One that cannot be read is ended all the same.
    pub(crate) async fn withdraw(&self, row: &ApprovalRow, to: ApprovalState, cause: &str) -> Result<(), Refusal> {
        self.withdraw_for(row, to, cause, None).await
    }

    /// The same, once the answer was yes and something else refuses the call.
    pub(crate) async fn withdraw_for(
        &self,
        row: &ApprovalRow,
        to: ApprovalState,
        cause: &str,
        refusal: Option<&Refusal>,
    ) -> Result<(), Refusal> {
        let record = ApprovalRecord {
            id: row.id,
            state: to,
            by: None,
            scope: None,
            covers: None,
            message: None,
            cause: Some(cause.to_owned()),
            refused: refusal.map(RefusalRecord::from),
            at: self.clock.now(),
            digest: row.digest,
            valid_until: None,
        };
        let mut subject = palyra_journal::Subject {
            session: Some(row.session),
            call: Some(row.call),
            approval: Some(row.id),
            ..palyra_journal::Subject::default()
        };
        let document = match read(row) {
            Ok(document) => {
                subject.run = Some(document.prompt.run);
                let ended = ApprovalDocument { answer: Some(record.clone()), ..document };
                Some(over(&serde_json::to_string(&ended).map_err(internal)?))
            }
            Err(_) => Some(over(&row.document)),
        };
        let changes = vec![
            Change::MoveApproval { id: row.id, from: row.state, to, document },
            Change::MoveCall { call: row.call, from: CallState::Waiting, to: CallState::Ended },
        ];
        let told = self.record(RecordKind::ApprovalResolved, subject, &record)?;
        match self.commit(vec![told], changes).await {
            Ok(_) | Err(CommitError::Conflict(Conflict::Approval(_))) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn resolved(&self, prompt: &PendingToolApproval, record: &ApprovalRecord) -> Result<NewRecord, Refusal> {
        let subject = palyra_journal::Subject {
            session: Some(prompt.session),
            run: Some(prompt.run),
            call: Some(prompt.call),
            approval: Some(prompt.id),
        };
        self.record(RecordKind::ApprovalResolved, subject, record)
    }
}

/// What an answer makes of a call: the approver it may start with, or the refusal. Whatever is not a valid yes is a no.
///
/// # Errors
/// When the question was denied, ran out, was withdrawn or used, or cannot be read.
pub fn apply_tool_approval_outcome(
    row: &ApprovalRow,
    clock: &dyn Clock,
    recorded: Timestamp,
) -> Result<Approver, Refusal> {
    let (id, state) = (row.id, row.state);
    let answer = read(row)?.answer.ok_or_else(|| internal("the answer cannot be read"))?;
    match state {
        ApprovalState::Approved => {
            let valid = answer.valid_until.is_some_and(|until| !until.has_passed(clock, recorded));
            match answer.by {
                Some(by) if valid && answer.digest == row.digest => Ok(Approver::new(by, id, answer.covers)),
                _ => Err(Refusal::Expired(id)),
            }
        }
        ApprovalState::Denied => {
            let by = answer.by.map_or_else(|| "somebody".to_owned(), |by| by.to_string());
            Err(Refusal::Rejected { approval: id, by, message: answer.message })
        }
        ApprovalState::Expired => Err(Refusal::Expired(id)),
        ApprovalState::Cancelled => Err(Refusal::Cancelled(CancelCause::Withdrawn(answer.cause.unwrap_or_default()))),
        ApprovalState::Pending | ApprovalState::Consumed => Err(internal("the approval cannot be used")),
    }
}

/// What a pattern would cover, in words, to be shown before it is chosen.
///
/// # Errors
/// When the pattern cannot be given for this call.
pub fn shown_cover(prompt: &PendingToolApproval, pattern: Pattern) -> Result<String, PatternError> {
    Cover::of(pattern, &prompt.work, prompt.digest).map(|cover| cover.shown(prompt))
}

fn cover(document: &ApprovalDocument, pattern: Pattern) -> Result<Cover, PatternError> {
    Cover::of(pattern, &document.prompt.work, document.intent)
}

/// The question, if it is about what was shown.
fn shown_as(row: ApprovalRow, shown: Sha256Digest) -> Result<ApprovalRow, AnswerError> {
    if row.digest == shown { Ok(row) } else { Err(AnswerError::NotShown) }
}

pub(crate) fn read(row: &ApprovalRow) -> Result<ApprovalDocument, Refusal> {
    serde_json::from_str(&row.document)
        .map_err(|error| internal(format!("the approval {} cannot be read: {error}", row.id)))
}

/// Why an answer does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// There is no such question.
    #[error("there is no approval {0}")]
    Unknown(ApprovalId),
    /// Somebody or something else was quicker.
    #[error("too late: the approval is {0}")]
    TooLate(ApprovalState),
    /// Agents do not answer.
    #[error("an agent cannot answer approvals")]
    Agent,
    /// It is their own call.
    #[error("nobody approves their own call but at a terminal")]
    Own,
    /// Policy does not let them.
    #[error("policy does not let you answer: {0}")]
    Policy(String),
    /// A PIN is needed first.
    #[error("a PIN is needed first")]
    PinNeeded,
    /// A PIN is needed and none was set.
    #[error("a PIN is needed, and none was set")]
    NoPin,
    /// The PIN did not unlock it.
    #[error(transparent)]
    Presence(#[from] PresenceError),
    /// The pattern cannot be given.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The time is too long, or none.
    #[error("{minutes} minutes cannot be given; 1 to {longest} can")]
    Timebox {
        /// How long it was to be.
        minutes: u32,
        /// How long it can be.
        longest: u32,
    },
    /// What they were shown is not what is asked about.
    #[error("what is asked about is not what was shown")]
    NotShown,
    /// What was refused may be on disk all the same, and then it counts.
    #[error("whether the answer counts is not known, because it could not be recorded: {0}")]
    Unsure(Trouble),
    /// It could not be recorded or read.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl AnswerError {
    /// A word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_approval",
            Self::TooLate(_) => "too_late",
            Self::Agent => "agent_may_not_answer",
            Self::Own => "own_call",
            Self::Policy(_) => "denied_by_policy",
            Self::PinNeeded => "pin_needed",
            Self::NoPin => "no_pin",
            Self::Presence(PresenceError::Locked { .. }) => "pin_locked",
            Self::Presence(_) => "wrong_pin",
            Self::Pattern(_) => "bad_pattern",
            Self::Timebox { .. } => "bad_timebox",
            Self::NotShown => "not_shown",
            Self::Unsure(_) => "unsure",
            Self::Refused(refusal) => refusal.code(),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Unknown(_) => "`palyra approvals list` shows what is pending".to_owned(),
            Self::TooLate(_) => "nothing ran by this answer; the call can be proposed again".to_owned(),
            Self::Agent => "a person answers with their own credential".to_owned(),
            Self::Own => "answer at a terminal, or let somebody else answer".to_owned(),
            Self::Policy(_) => "ask an owner, admin or operator".to_owned(),
            Self::PinNeeded => "unlock with your PIN and answer again".to_owned(),
            Self::NoPin => "set one with `palyra approvals pin` and start the daemon anew, or set `presence = \"none\"` under [approvals]".to_owned(),
            Self::Presence(PresenceError::Locked { .. }) => "wait, then try again with the right PIN".to_owned(),
            Self::Presence(_) => "try again with the right PIN".to_owned(),
            Self::Pattern(_) => "approve it exactly instead".to_owned(),
            Self::Timebox { .. } => "choose another time".to_owned(),
            Self::NotShown => "look at the approval again, and answer what it shows".to_owned(),
            Self::Unsure(_) => {
                "look at the approval once the journal can be written, and answer again if it is pending".to_owned()
            }
            Self::Refused(refusal) => refusal.advice(),
        }
    }
}
