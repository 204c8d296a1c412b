//! A gate to try things on: everything is real but the clock, which tests may set.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a laboratory that cannot be set up ends the test")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use palyra_gate::{
    Answer, Answerer, ApprovalRecord, Completed, Connector, DecisionScope, Gate, Output, PendingToolApproval,
    Petitioner, Refusal, ToolProposal, approval::AnswerError,
};
use palyra_journal::{JournalStore, RecordKind, SqliteJournal, StoredRecord, state::Charge, state::Waiting};
use palyra_policy::Engine;
use palyra_types::{
    Channel, Clock, JsonObject, Principal, Timestamp, ToolName, WorkspaceName,
    clock::ManualClock,
    entropy::SystemEntropy,
    id::{ApprovalId, CallId, RunId, SessionId},
    json::Limits,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    faults::Faults,
    setup::{Opened, Setup},
};

/// What a laboratory is to be like.
#[derive(Default)]
pub struct Plan {
    config: String,
    policies: Option<String>,
    clock: Option<Arc<ManualClock>>,
    pin: Option<String>,
    faults: Arc<Faults>,
    net: Option<Arc<Connector>>,
}

impl Plan {
    /// With this configuration, besides the workspace.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// With these policies instead of the preset's.
    #[must_use]
    pub fn policies(mut self, cedar: &str) -> Self {
        self.policies = Some(cedar.to_owned());
        self
    }

    /// With a clock that the test sets.
    #[must_use]
    pub fn clock(mut self, clock: &Arc<ManualClock>) -> Self {
        self.clock = Some(Arc::clone(clock));
        self
    }

    /// With this PIN.
    #[must_use]
    pub fn pin(mut self, pin: &str) -> Self {
        self.pin = Some(pin.to_owned());
        self
    }

    /// With a journal that fails where these say so.
    #[must_use]
    pub fn faults(mut self, faults: &Arc<Faults>) -> Self {
        self.faults = Arc::clone(faults);
        self
    }

    /// With this way into the world instead of the machine's own.
    #[must_use]
    pub fn net(mut self, net: Connector) -> Self {
        self.net = Some(Arc::new(net));
        self
    }

    /// Opens it in a fresh directory.
    pub async fn open(self) -> Lab {
        let (home, workspace) = (tempfile::tempdir().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
        let state = home.path().join("state");
        Lab::open(home, Arc::new(self), Place { workspace, state }).await
    }
}

/// A gate with everything around it.
pub struct Lab {
    /// The gate.
    pub gate: Gate,
    /// The journal.
    pub journal: Arc<SqliteJournal>,
    /// The policy engine.
    pub engine: Arc<Engine>,
    /// What calls are proposed in.
    pub session: SessionId,
    /// The run that calls belong to.
    pub run: RunId,
    home: TempDir,
    place: Place,
    plan: Arc<Plan>,
    clock: Arc<dyn Clock>,
}

/// What stays the same for a daemon that is started again.
#[derive(Clone)]
struct Place {
    workspace: Arc<TempDir>,
    /// Where the state directory is, as far as calls are told.
    state: PathBuf,
}

impl Lab {
    /// A laboratory with the preset `cautious`.
    pub async fn new() -> Self {
        Plan::default().open().await
    }

    async fn open(home: TempDir, plan: Arc<Plan>, place: Place) -> Self {
        let clock = plan.clock.as_ref().map(|clock| -> Arc<dyn Clock> { Arc::<ManualClock>::clone(clock) });
        let setup = Setup {
            journal: &home.path().join("state/journal"),
            state: &place.state,
            workspace: place.workspace.path(),
            config: &plan.config,
            policies: plan.policies.as_deref(),
            pin: plan.pin.as_deref(),
            clock,
            faults: Some(Arc::clone(&plan.faults)),
        };
        let opened = match &plan.net {
            Some(net) => setup.open_towards(Arc::clone(net)).await,
            None => setup.open().await,
        };
        let Opened { gate, journal, engine, clock } = opened;
        let entropy = SystemEntropy;
        let session = SessionId::generate(clock.now(), &entropy).unwrap();
        let run = RunId::generate(clock.now(), &entropy).unwrap();
        let mut lab = Self { gate, journal, engine, session, run, home, place, plan, clock };
        lab.run = lab.open_run(None).await;
        lab
    }

    /// What a daemon that starts after a `kill -9` at this moment finds: the same directory, as the disk holds it now. Nothing has been
    /// recovered yet.
    pub async fn crash(&self) -> Self {
        let home = tempfile::tempdir().unwrap();
        copy(self.home.path(), home.path());
        Self::open(home, Arc::clone(&self.plan), self.place.clone()).await
    }

    /// Opens another run.
    pub async fn open_run(&self, limits: Option<Charge>) -> RunId {
        self.gate.open_run(self.session, &agent(), limits).await.unwrap()
    }

    /// Where calls work.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.place.workspace.path().to_owned()
    }

    /// Where the journal is.
    #[must_use]
    pub fn journal_directory(&self) -> PathBuf {
        self.home.path().join("state/journal")
    }

    /// Writes a file of the workspace.
    pub fn write(&self, name: &str, content: &str) {
        fs::write(self.workspace().join(name), content).unwrap();
    }

    /// Reads a file of the workspace.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(name)).ok()
    }

    /// A call of the agent.
    #[must_use]
    pub fn call(&self, tool: &str, args: Value) -> ToolProposal {
        ToolProposal {
            call: CallId::generate(self.clock.now(), &SystemEntropy).unwrap(),
            run: self.run,
            session: self.session,
            principal: agent(),
            on_behalf_of: None,
            channel: Some(Channel::parse("cli").unwrap()),
            device: None,
            token: None,
            member_of: None,
            workspace: Some(WorkspaceName::parse("lab").unwrap()),
            tool: ToolName::parse(tool).unwrap(),
            args: JsonObject::try_from_value(args, Limits::default()).unwrap(),
            waiting: Waiting::Attached,
            key: None,
            within: None,
            elsewhere: None,
        }
    }

    /// A call that runs a program.
    #[must_use]
    pub fn command<const N: usize>(&self, argv: [&str; N]) -> ToolProposal {
        self.call("process.run", json!({ "command": argv.to_vec() }))
    }

    /// Proposes a call on a task of its own.
    pub fn propose(&self, proposal: ToolProposal) -> tokio::task::JoinHandle<Result<Completed, Refusal>> {
        let gate = self.gate.clone();
        tokio::spawn(async move { gate.run(proposal).await })
    }

    /// Waits until this many questions are pending, and returns them.
    pub async fn asked(&self, count: usize) -> Vec<PendingToolApproval> {
        for _ in 0..2_000 {
            let pending = self.gate.pending_approvals(None, usize::MAX).await.unwrap();
            if pending.len() >= count {
                return pending;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        unreachable!("{count} questions were to be asked")
    }

    /// The owner says yes to a question.
    ///
    /// # Errors
    /// When the answer does not count.
    pub async fn approve(&self, id: ApprovalId, scope: DecisionScope) -> Result<ApprovalRecord, AnswerError> {
        self.gate.answer(id, &Answer::Approve(scope), &owner()).await
    }

    /// Proposes a call, approves it once and returns what came of it.
    ///
    /// # Errors
    /// When it was refused.
    pub async fn approved(&self, proposal: ToolProposal, scope: DecisionScope) -> Result<Completed, Refusal> {
        let call = proposal.call;
        let running = self.propose(proposal);
        let question = loop {
            let pending = self.gate.pending_approvals(None, usize::MAX).await?;
            if let Some(found) = pending.into_iter().find(|prompt| prompt.call == call) {
                break found;
            }
            if running.is_finished() {
                return running.await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        self.approve(question.id, scope).await.unwrap();
        running.await.unwrap()
    }

    /// Every record of the journal.
    pub async fn records(&self) -> Vec<StoredRecord> {
        self.journal.records(0, usize::MAX).await.unwrap()
    }

    /// The kinds of the records about a call, in order.
    pub async fn story(&self, call: CallId) -> Vec<RecordKind> {
        let records = self.records().await;
        records.iter().filter(|one| one.record.subject().call == Some(call)).map(|one| one.record.kind).collect()
    }

    /// What was attested about a call, if its signature is good.
    pub async fn attested(&self, call: CallId) -> Value {
        let records = self.records().await;
        let about = |one: &&StoredRecord| {
            one.record.kind == RecordKind::ToolAttested && one.record.subject().call == Some(call)
        };
        let body: Value = serde_json::from_str(records.iter().find(about).unwrap().body.as_ref().unwrap()).unwrap();
        let text = self.journal.key().public().open(body.get("note").and_then(Value::as_str).unwrap()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// What the run has used.
    pub async fn used(&self, run: RunId) -> Charge {
        self.journal.run(run).await.unwrap().unwrap().used
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// The agent of the laboratory.
fn agent() -> Principal {
    Principal::parse("agent:claude").unwrap()
}

/// Its owner, at a terminal.
#[must_use]
pub fn owner() -> Answerer {
    Answerer {
        principal: Principal::parse("user:ada@owner").unwrap(),
        interactive: true,
        channel: Some(Channel::parse("cli").unwrap()),
        device: None,
        token: None,
        member_of: None,
        session: "terminal".to_owned(),
    }
}

/// Them, when they want something that is no call.
#[must_use]
pub fn operator() -> Petitioner {
    owner().principal.into()
}

/// Waits until something holds, for ten seconds at most.
pub async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    unreachable!("it did not happen in ten seconds")
}

/// A configuration in which programs run in tier B only.
pub const TIER_B: &str = "[sandbox]\nplans = [{ tier = \"b\", egress = \"preflight\" }]";

/// What a process printed.
#[must_use]
pub fn text(completed: &Completed) -> String {
    match &completed.output {
        Output::Process { stdout, .. } => String::from_utf8_lossy(&stdout.bytes).into_owned(),
        Output::Value { value } => value.to_string(),
        Output::Nothing => String::new(),
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_name() == "sandbox" {
            // What the sandbox makes for its enclosures is made anew by the next daemon.
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
