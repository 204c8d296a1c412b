//! The one entry: proposals go in, receipts or refusals come out.
//!
//! ```text
//!  ToolProposal ─► decide ─► approve ─► (started, durable) ─► execute ─► attest ─► Receipt
//!                     └─────────┴──────────────┴─► Refusal, journalled
//! ```
//!
//! Guarantees: nothing runs but through here; any error on the way means that nothing runs; a call whose caller is gone is withdrawn or
//! stopped, and attested if it had begun.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwap;
use palyra_journal::{
    CommitError, JournalStore, ReadError, RecordKind, Subject, Transaction, Trouble,
    state::{Change, Charge, KeyRow, RunRow, Waiting},
};
use palyra_policy::Engine;
use palyra_sandbox::{SandboxProcessRunError, egress::Connector};
use palyra_types::{
    AbsolutePath, Clock, DeviceId, Entropy, IdempotencyKey, Principal, Timestamp, TokenId, ToolName,
    id::{ApprovalId, CallId, RunId, SessionId},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, broadcast, oneshot, watch},
};

use crate::{
    admission::Admission,
    approval::presence::PresencePin,
    attest::Completed,
    cancel::{Cancel, CancelOnDrop},
    config::GateConfig,
    credentials::Credentials,
    execute::{LiveOutput, Reports},
    memory::Memory,
    petitioner::Petitioner,
    proposal::{Origin, ToolProposal},
    question::{Ear, Question},
    refusal::{CancelCause, Refusal},
    safekeeping::Safekeeping,
    servers::{ServerPlaces, sweep},
    settings::{Ground, Settings},
    skills::SkillShelf,
    tools::Registry,
    waiting::Waiters,
    workspace::WorkspaceError,
};

/// The gate. Cheap to clone; all clones are one gate.
#[derive(Clone)]
pub struct Gate {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    pub(crate) store: Arc<dyn JournalStore>,
    pub(crate) settings: ArcSwap<Settings>,
    /// The tools there are. Exchanged together with the settings.
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) reports: Arc<dyn Reports>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) credentials: Arc<dyn Credentials>,
    pub(crate) presence: Option<PresencePin>,
    pub(crate) ground: Ground,
    /// Held by whoever changes the settings.
    pub(crate) changing: Mutex<()>,
    /// Held for writing while settings and policies are exchanged, so that nobody sees one of before and the other of after.
    pub(crate) exchanging: RwLock<()>,
    pub(crate) waiters: Waiters,
    pub(crate) live: broadcast::Sender<LiveOutput>,
    /// Counts reloads; calls that wait are decided anew when it changes.
    pub(crate) policies: watch::Sender<u64>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) memory: Memory,
    pub(crate) vault: Safekeeping,
    pub(crate) skills: Arc<SkillShelf>,
    pub(crate) servers: ServerPlaces,
    /// The standing approvals that were ended while this daemon runs.
    pub(crate) ended: Mutex<BTreeSet<ApprovalId>>,
    calls: Mutex<HashMap<CallId, UnderWay>>,
    /// Whether nothing is let in any more.
    pub(crate) stopping: AtomicBool,
    /// Whether what an earlier daemon left is in order, so that whatever nobody conducts from now on is this daemon's to tidy up.
    pub(crate) in_order: AtomicBool,
    /// Told whenever a call or a server is over.
    pub(crate) left: Notify,
    /// The latest time that is known to have been.
    recorded: AtomicI64,
}

/// What a gate is made of.
pub struct Parts {
    /// Decides.
    pub engine: Arc<Engine>,
    /// Keeps.
    pub store: Arc<dyn JournalStore>,
    /// What is configured.
    pub config: GateConfig,
    /// The tools.
    pub registry: Registry,
    /// Palyra's own directory, out of reach of every call.
    pub state_directory: AbsolutePath,
    /// The daemon's own environment; what the configuration names of it is passed on.
    pub environment: BTreeMap<String, String>,
    /// What the daemon knows about itself.
    pub reports: Arc<dyn Reports>,
    /// Knows who is let in.
    pub credentials: Arc<dyn Credentials>,
    /// The PIN that shows that a person is there, if one was set.
    pub presence: Option<PresencePin>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The way into the world, for calls that may go there.
    pub net: Arc<Connector>,
}

impl Gate {
    /// Opens the gate. Call [`Gate::recover`] before anything is let through.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the configuration cannot be used, the sandbox cannot run, or the journal cannot be read.
    pub async fn open(parts: Parts) -> Result<Self, OpenError> {
        let (state_directory, environment) = (parts.state_directory, parts.environment);
        let ground = Ground { state_directory, environment, net: parts.net };
        sweep(&ground.servers_directory());
        let settings = Settings::first(parts.config, &ground)?;
        let recorded = parts.store.latest().await?;
        let (live, _) = broadcast::channel(LIVE_BACKLOG);
        let admission = Admission::new(settings.config.calls);
        let inner = Arc::new(Inner {
            engine: parts.engine,
            settings: ArcSwap::from_pointee(settings),
            registry: ArcSwap::from_pointee(parts.registry),
            reports: parts.reports,
            clock: parts.clock,
            entropy: parts.entropy,
            credentials: parts.credentials,
            presence: parts.presence,
            ground,
            changing: Mutex::default(),
            exchanging: RwLock::default(),
            waiters: Waiters::default(),
            live,
            policies: watch::channel(0).0,
            admission,
            memory: Memory::default(),
            vault: Safekeeping::default(),
            skills: Arc::default(),
            servers: ServerPlaces::default(),
            ended: Mutex::default(),
            calls: Mutex::default(),
            stopping: AtomicBool::new(false),
            in_order: AtomicBool::new(false),
            left: Notify::new(),
            recorded: AtomicI64::new(recorded.unix_millis()),
            store: parts.store,
        });
        inner.waiters.listen(inner.store.subscribe());
        let gate = Self { inner };
        gate.tidy_after_outages();
        Ok(gate)
    }

    /// Opens a run: a task with a budget. Without limits it has those of the configuration, and never more.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn open_run(
        &self,
        session: SessionId,
        principal: &Principal,
        limits: Option<Charge>,
    ) -> Result<RunId, Refusal> {
        let inner = &self.inner;
        let run = RunId::generate(inner.clock.now(), inner.entropy.as_ref()).map_err(internal)?;
        let most = inner.settings.load().config.budget.limits();
        let limits = limits.map_or(most, |limits| Charge {
            calls: limits.calls.min(most.calls),
            wall_ms: limits.wall_ms.min(most.wall_ms),
            output_bytes: limits.output_bytes.min(most.output_bytes),
        });
        let subject = Subject { session: Some(session), run: Some(run), ..Subject::default() };
        let body = serde_json::json!({ "principal": principal.to_string(), "limits": limits });
        let record = inner.record(RecordKind::RunOpened, subject, &body)?;
        let row = RunRow { run, session, principal: principal.to_string(), limits, used: Charge::default() };
        inner.commit(vec![record], vec![Change::AddRun(row)]).await.map_err(Refusal::from)?;
        Ok(run)
    }

    /// Runs a call whose caller does nothing but wait for it. When the returned future is dropped, the call is withdrawn or stopped.
    ///
    /// The call is conducted by whoever polls the future, which costs no other thread's time, and on a task of its own once that is
    /// dropped. Whoever has other things to do meanwhile uses [`Self::run`].
    ///
    /// # Errors
    /// When it was refused.
    pub async fn run_here(&self, mut proposal: ToolProposal) -> Result<Completed, Refusal> {
        self.inner.registry.load().callable(&proposal.tool).map_err(Refusal::Call)?;
        proposal.waiting = Waiting::Attached;
        let cancel = Cancel::default();
        let work = self.conducting(proposal, cancel.clone(), None)?;
        Conducted { work: Some(Box::pin(work)), cancel }.await
    }

    /// Runs a call whose caller waits for it. When the returned future is dropped, the call is withdrawn or stopped.
    ///
    /// # Errors
    /// When it was refused.
    pub async fn run(&self, proposal: ToolProposal) -> Result<Completed, Refusal> {
        self.inner.registry.load().callable(&proposal.tool).map_err(Refusal::Call)?;
        self.run_own(proposal).await
    }

    /// The same, also for what only the daemon itself proposes.
    pub(crate) async fn run_own(&self, mut proposal: ToolProposal) -> Result<Completed, Refusal> {
        proposal.waiting = Waiting::Attached;
        let (cancel, finished) = self.begin(proposal, None);
        let mut gone = CancelOnDrop { cancel: Some(cancel) };
        let outcome = finished.await.unwrap_or_else(|_| Err(crashed()));
        gone.cancel = None;
        outcome
    }

    /// Accepts a call that goes on without its caller. Returns once the call is durable: it waits for its answer, runs, or is over.
    ///
    /// # Errors
    /// When it was refused at once.
    pub async fn submit(&self, mut proposal: ToolProposal) -> Result<Accepted, Refusal> {
        self.inner.registry.load().callable(&proposal.tool).map_err(Refusal::Call)?;
        proposal.waiting = Waiting::Accepted;
        let call = proposal.call;
        let (durable, accepted) = oneshot::channel();
        let (_, finished) = self.begin(proposal, Some(durable));
        match accepted.await {
            Ok(()) => Ok(Accepted { call, outcome: finished }),
            // It was over before it was accepted: what it came to says why.
            Err(_) => match finished.await {
                Ok(Err(refusal)) => Err(refusal),
                Ok(Ok(_)) | Err(_) => Err(crashed()),
            },
        }
    }

    /// The call that took this key of a principal less than a day ago, and the digest of the request that it came with.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn call_by_key(&self, principal: &Principal, key: &IdempotencyKey) -> Result<Option<KeyRow>, Refusal> {
        let now = self.inner.clock.now();
        Ok(self.inner.store.call_by_key(principal.to_string(), key.clone(), now).await?)
    }

    /// Withdraws or stops a call. Returns whether there was one to stop. Whoever proposed it may; anybody else needs the right to answer
    /// approvals.
    ///
    /// # Errors
    /// When policy does not let them.
    pub fn cancel(&self, call: CallId, by: &Petitioner) -> Result<bool, Refusal> {
        let found = self.inner.calls.lock().unwrap_or_else(PoisonError::into_inner).get(&call).cloned();
        let Some(UnderWay { cancel, origin: Origin { principal, workspace, .. } }) = found else { return Ok(false) };
        if (principal.kind(), principal.id()) != (by.principal.kind(), by.principal.id()) {
            self.inner.may_answer_about(by, &call.to_string(), workspace)?;
        }
        Ok(cancel.ask(&CancelCause::Requested(by.principal.clone())))
    }

    /// Withdraws or stops every call that was proposed with one of these credentials, which do not count any more. Says how many.
    pub fn cancel_all_of(&self, devices: &BTreeSet<DeviceId>, tokens: &BTreeSet<TokenId>, by: &Principal) -> usize {
        let calls = self.inner.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = calls.values().filter(|UnderWay { origin, .. }| {
            origin.device.as_ref().is_some_and(|device| devices.contains(device))
                || origin.token.as_ref().is_some_and(|token| tokens.contains(token))
        });
        theirs.filter(|one| one.cancel.ask(&CancelCause::CredentialRevoked(by.clone()))).count()
    }

    /// Withdraws or stops every call of some tools.
    pub(crate) fn cancel_tools(&self, are: impl Fn(&ToolName) -> bool, cause: &CancelCause) {
        let calls = self.inner.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.values().filter(|one| are(&one.origin.tool)).for_each(|one| {
            one.cancel.ask(cause);
        });
    }

    /// Lets nothing in any more, stops what runs, servers too, withdraws what waits for its caller's sake, and returns when all of that is attested, or
    /// after this long. Says how many calls were left. Calls that were accepted and wait for their answer wait for the next daemon.
    pub async fn stop(&self, patience: Duration) -> usize {
        self.inner.stopping.store(true, Ordering::SeqCst);
        let all_left = async {
            loop {
                let left = self.inner.left.notified();
                // After the flag is set nobody enters, so this meets everybody.
                let (under_way, servers) = (self.under_way(), self.inner.servers.stop_all());
                if under_way.is_empty() && servers == 0 {
                    return;
                }
                under_way.iter().for_each(|cancel| {
                    cancel.ask(&CancelCause::Stopping);
                });
                left.await;
            }
        };
        let _ = tokio::time::timeout(patience, all_left).await;
        self.under_way().len()
    }

    fn under_way(&self) -> Vec<Cancel> {
        let calls = self.inner.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.values().map(|one| one.cancel.clone()).collect()
    }

    /// Tells what calls print while they run.
    #[must_use]
    pub fn live_output(&self) -> broadcast::Receiver<LiveOutput> {
        self.inner.live.subscribe()
    }

    /// The tools there are.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.inner.registry.load_full()
    }

    /// Counts the changes of tools, policies and settings.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.policies.subscribe()
    }

    /// Whether there is a PIN that shows that a person is there.
    #[must_use]
    pub fn has_pin(&self) -> bool {
        self.inner.presence.is_some()
    }

    /// What keeps the journal.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn JournalStore> {
        &self.inner.store
    }

    /// What decides.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// The time.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Randomness.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.inner.entropy
    }

    /// Records something about who is let in. What is about anything else is recorded by whoever conducts it.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn record_access(&self, kind: RecordKind, body: &impl serde::Serialize) -> Result<(), Refusal> {
        if !kind.is_about_access() {
            return Err(Refusal::Internal(format!("a record of kind {kind} is not about who is let in")));
        }
        self.inner.tell(kind, body).await
    }

    /// Records something about schedules, or about what agents keep.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn record_keeping(
        &self,
        kind: RecordKind,
        subject: Subject,
        body: &impl serde::Serialize,
    ) -> Result<(), Refusal> {
        if !kind.is_about_keeping() {
            return Err(Refusal::Internal(format!("a record of kind {kind} is not about what is kept or scheduled")));
        }
        let record = self.inner.record(kind, subject, body)?;
        self.inner.commit(vec![record], Vec::new()).await.map(drop).map_err(Refusal::from)
    }

    /// What keeps the journal from being written, as far as is known. Nothing runs as long as there is something.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.inner.store.trouble()
    }

    /// Tells the gate that other policies are in force. Calls that wait are decided anew, and those that are denied now are withdrawn.
    ///
    /// # Errors
    /// When it cannot be recorded. The policies are in force all the same.
    pub async fn policies_changed(&self, by: &str) -> Result<(), Refusal> {
        self.inner.policies.send_modify(|count| *count += 1);
        self.policies_in_force(by).await
    }

    /// Records which policies are in force since [`Self::put_in_force`].
    ///
    /// # Errors
    /// When it cannot be recorded. They are in force all the same.
    pub async fn policies_in_force(&self, by: &str) -> Result<(), Refusal> {
        let body = serde_json::json!({ "policy_set": self.inner.engine.snapshot().digest(), "by": by });
        self.inner.tell(RecordKind::PolicyReloaded, &body).await
    }

    /// Records that a reload was refused, and why. What was in force stays in force.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn policies_refused(&self, by: &str, problem: &str) -> Result<(), Refusal> {
        let set = self.inner.engine.snapshot().digest();
        let body = serde_json::json!({ "policy_set": set, "by": by, "refused": problem });
        self.inner.tell(RecordKind::PolicyReloaded, &body).await
    }

    /// Records that a daemon started, and what it says about itself.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn daemon_started(&self, body: &impl serde::Serialize) -> Result<(), Refusal> {
        self.inner.tell(RecordKind::DaemonStarted, body).await
    }

    /// Records that a daemon stopped in good order, and what it says about that. To be called after [`Self::stop`].
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn daemon_stopped(&self, body: &impl serde::Serialize) -> Result<(), Refusal> {
        self.inner.tell(RecordKind::DaemonStopped, body).await
    }

    /// Goes on with a call that waits for its answer.
    pub(crate) fn begin_waiting(&self, call: CallId, origin: Origin, question: Question) {
        let (inner, cancel) = (Arc::clone(&self.inner), Cancel::default());
        let Some(leave) = self.enter(call, &UnderWay { cancel: cancel.clone(), origin }) else { return };
        if inner.stopping.load(Ordering::SeqCst) {
            return;
        }
        let waiter = inner.waiters.wait_for(question.id);
        let mut policies = inner.policies.subscribe();
        // Policies may have changed while no daemon ran.
        policies.mark_changed();
        let gate = self.clone();
        tokio::spawn(async move {
            let work = Box::pin(inner.await_answer(question, &waiter, Ear { cancel, policies }));
            let outcome = unless_it_panics(work).await;
            drop(leave);
            if outcome.is_none() {
                let _told_nobody = gate.tidy_after_a_panic().await;
            }
        });
    }

    /// Whether a call is under way in this very daemon.
    pub(crate) fn conducts(&self, call: CallId) -> bool {
        self.inner.calls.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&call)
    }

    /// Makes a call known, so that it can be cancelled, until what is returned is dropped.
    ///
    /// SECURITY: the first call of an id keeps its place. Whoever proposes the id again would otherwise put the first out of reach.
    fn enter(&self, call: CallId, under_way: &UnderWay) -> Option<LeaveOnDrop> {
        match self.inner.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(call) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert(under_way.clone());
                Some(LeaveOnDrop { inner: Arc::clone(&self.inner), call })
            }
        }
    }

    /// Starts a call on a task of its own, so that it is attested whatever becomes of its caller.
    pub(crate) fn begin(&self, proposal: ToolProposal, durable: Option<oneshot::Sender<()>>) -> (Cancel, Outcome) {
        let (cancel, (done, finished)) = (Cancel::default(), oneshot::channel());
        match self.conducting(proposal, cancel.clone(), durable) {
            Ok(work) => {
                tokio::spawn(async move {
                    let _ = done.send(work.await);
                });
            }
            Err(refusal) => {
                let _ = done.send(Err(refusal));
            }
        }
        (cancel, finished)
    }

    /// Lets a call in. What is returned conducts it to its end, and must be polled to there.
    fn conducting(
        &self,
        proposal: ToolProposal,
        cancel: Cancel,
        durable: Option<oneshot::Sender<()>>,
    ) -> Result<impl Future<Output = Result<Completed, Refusal>> + Send + use<>, Refusal> {
        let inner = Arc::clone(&self.inner);
        let entered = inner.admission.enter(&proposal.principal);
        let place = entered.map_err(|limit| Refusal::TooManyCalls { limit })?;
        let under_way = UnderWay { cancel: cancel.clone(), origin: proposal.origin() };
        let leave = self.enter(proposal.call, &under_way).ok_or(Refusal::Repeated)?;
        // Asked only now: whoever sets the flag meets everybody who entered before.
        if inner.stopping.load(Ordering::SeqCst) {
            return Err(Refusal::Stopping { goes_on: false });
        }
        let gate = self.clone();
        let work = Box::pin(inner.conduct(proposal, (cancel, place), durable));
        Ok(async move {
            let outcome = unless_it_panics(work).await;
            drop(leave);
            match outcome {
                Some(outcome) => outcome,
                None => Err(Box::pin(gate.tidy_after_a_panic()).await),
            }
        })
    }
}

/// A call that is conducted by whoever polls this. If that is dropped before its end, the call is asked to stop and goes on to its end by
/// itself, so that it is attested whatever becomes of its caller.
struct Conducted<F: Future<Output = Result<Completed, Refusal>> + Send + 'static> {
    /// Absent once it is over.
    work: Option<Pin<Box<F>>>,
    cancel: Cancel,
}

impl<F: Future<Output = Result<Completed, Refusal>> + Send + 'static> Future for Conducted<F> {
    type Output = Result<Completed, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Ready(Err(crashed())) };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F: Future<Output = Result<Completed, Refusal>> + Send + 'static> Drop for Conducted<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.cancel.ask(&CancelCause::CallerGone);
            // Without a runtime nothing goes on any more, and the next daemon finds what was begun.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(work);
            }
        }
    }
}

/// What comes of something, or nothing if it panics. A call that was begun must not be forgotten by that.
async fn unless_it_panics<T>(mut work: Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// A call that was accepted.
pub struct Accepted {
    /// The call.
    pub call: CallId,
    /// What comes of it, for whoever wants to wait after all.
    pub outcome: Outcome,
}

/// What comes of a call.
pub type Outcome = oneshot::Receiver<Result<Completed, Refusal>>;

impl Inner {
    /// The latest time that is known to have been.
    pub(crate) fn recorded(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.recorded.load(Ordering::Relaxed))
    }

    /// Whether nothing is let in any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether what nobody conducts is this daemon's to tidy up: not what an earlier one left, nor what is left to the next.
    pub(crate) fn owns_what_is_left(&self) -> bool {
        self.in_order.load(Ordering::SeqCst) && !self.stopping.load(Ordering::SeqCst)
    }

    /// Writes at once; what is returned is done when that is durable.
    pub(crate) fn commit(
        &self,
        records: Vec<palyra_journal::NewRecord>,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<palyra_journal::Committed, CommitError>> + Send + '_ {
        let writing = self.store.commit(Transaction { records, changes });
        async move {
            let committed = writing.await?;
            self.recorded.fetch_max(self.clock.now().unix_millis(), Ordering::Relaxed);
            Ok(committed)
        }
    }

    /// A record that says this.
    pub(crate) fn record(
        &self,
        kind: RecordKind,
        subject: Subject,
        body: &impl serde::Serialize,
    ) -> Result<palyra_journal::NewRecord, Refusal> {
        let body = palyra_journal::Body::of(body, self.entropy.as_ref()).map_err(internal)?;
        Ok(palyra_journal::NewRecord { kind, subject, time: self.clock.now(), body })
    }

    /// Records something that belongs to no call and changes nothing.
    pub(crate) async fn tell(&self, kind: RecordKind, body: &impl serde::Serialize) -> Result<(), Refusal> {
        let record = self.record(kind, Subject::default(), body)?;
        self.commit(vec![record], Vec::new()).await?;
        Ok(())
    }
}

/// A call that is under way.
#[derive(Clone)]
struct UnderWay {
    cancel: Cancel,
    origin: Origin,
}

struct LeaveOnDrop {
    inner: Arc<Inner>,
    call: CallId,
}

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        self.inner.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.call);
        self.inner.left.notify_waiters();
    }
}

pub(crate) fn internal(error: impl std::fmt::Display) -> Refusal {
    Refusal::Internal(error.to_string())
}

fn crashed() -> Refusal {
    Refusal::Internal("the call's task ended early".to_owned())
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        use palyra_journal::state::Conflict;
        match error {
            CommitError::Unwritable(trouble) => Self::Journal(trouble),
            CommitError::Conflict(Conflict::OverBudget { limits, used }) => Self::Budget { limits, used },
            CommitError::Conflict(Conflict::TooManyPending { pending, limit, .. }) => {
                Self::TooManyPending { pending, limit }
            }
            CommitError::Conflict(Conflict::PendingTooLarge { limit }) => Self::PendingTooLarge { limit },
            CommitError::Conflict(Conflict::Exists) => Self::Repeated,
            CommitError::Conflict(Conflict::KeyTaken(call)) => Self::KeyTaken(call),
            CommitError::Conflict(other) => Self::Internal(other.to_string()),
        }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error)
    }
}

/// Why the gate does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A workspace cannot be used.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The preset's data is broken.
    #[error(transparent)]
    Data(#[from] palyra_policy::DataError),
    /// No process can be run.
    #[error(transparent)]
    Sandbox(#[from] SandboxProcessRunError),
    /// A file of certificates cannot be used.
    #[error("`{path}`, which [egress] trusts, cannot be used: {cause}")]
    Trust {
        /// The file.
        path: AbsolutePath,
        /// Why not.
        cause: String,
    },
    /// More is listed than an enclosure has room for.
    #[error("there are {count} {what}, and enclosures have room for {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// A setting that nothing could run under.
    #[error("`{key}` under [sandbox] cannot be so: {why}")]
    Setting {
        /// Which one.
        key: &'static str,
        /// Why not.
        why: String,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] ReadError),
    /// The journal cannot be written.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

impl OpenError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Workspace(error) => error.advice(),
            Self::Trust { .. } => "look at `trust` under [egress] in config.toml",
            Self::TooMany { .. } => "list fewer of them in config.toml",
            Self::Setting { .. } => "change it in config.toml",
            Self::Sandbox(_) => "let `palyra doctor` say what is missing",
            Self::Data(_) | Self::Journal(_) | Self::Trouble(_) => "look at what the daemon logs",
        }
    }
}

/// How many pieces of output a listener may fall behind.
const LIVE_BACKLOG: usize = 1_024;
