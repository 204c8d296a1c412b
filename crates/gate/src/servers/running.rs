//! A server from the record that it starts to the record that it ended.
//!
//! Guarantees: it starts only once the first of them is durable; whatever ends it, nothing of it is left when the second is written, and its
//! directory is removed. Policy is asked again whenever something changes. Does not: decide what it may connect to. Its door does.

use std::{sync::Arc, time::Duration};

use palyra_journal::RecordKind;
use palyra_sandbox::{
    Containment, Door, EgressHost, Ended, InterceptedBy, Outcome, Prepared, ProgramEnds, Reason, RunInput,
    RunningProcess, StopCause, Stopper, Streams, executor_of, not_enforced_by,
};
use palyra_types::{EgressEnforcementMode, ObjectId, Sha256Digest};
use rustix::fs::ResolveFlags;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::{spawn, spawn_blocking},
};

use super::{
    RunningServer, ServerEnd, ServerHandle, ServerInput, ServerOutput, ServerPlan,
    door::ServerDoor,
    finding::{Asking, FoundServer},
    notes::Notes,
    places::ServerPlace,
};
use crate::{
    account::Account,
    arming::CallSecrets,
    attest::NetworkUse,
    execute::{program_files, stopped},
    gate::{Gate, Inner, internal},
    output::each_text,
    plan::{Unfit, UnfitReason},
    refusal::Refusal,
    secret::UsedSecret,
    tool::IntendError,
    tools::CallError,
};

impl Gate {
    /// Starts a server. What its configuration names is what it may have, unless policy forbids it.
    ///
    /// # Errors
    /// When policy forbids it, when it cannot be contained, found or started, when too many servers run, or when nothing can be recorded.
    pub async fn start_server(&self, plan: ServerPlan) -> Result<RunningServer, Refusal> {
        let inner = Arc::clone(&self.inner);
        // To its end, whoever goes away meanwhile: a server that nobody holds then is stopped, and both are on record.
        spawn(async move { inner.start_server(plan).await }).await.map_err(internal)?
    }
}

impl Inner {
    async fn start_server(self: Arc<Self>, plan: ServerPlan) -> Result<RunningServer, Refusal> {
        let place = ServerPlace::take(&self)?;
        // From before policy is asked, so that no change is missed.
        let changes = self.policies.subscribe();
        let server = plan.name.clone();
        let started = Starting::begin(&self, plan, place, changes).await;
        if let Err(refusal @ (Refusal::Denied(_) | Refusal::NoPlan(_) | Refusal::Call(_))) = &started {
            self.tell(RecordKind::ServerStarted, &json!({ "server": server, "refused": refusal.to_string() })).await?;
        }
        started
    }
}

/// A server of which everything is ready.
struct Starting {
    inner: Arc<Inner>,
    server: ObjectId,
    found: FoundServer,
    account: Arc<Account>,
    notes: Arc<Notes>,
    secrets: Option<Arc<CallSecrets>>,
}

impl Starting {
    async fn begin(
        inner: &Arc<Inner>,
        plan: ServerPlan,
        place: ServerPlace,
        changes: watch::Receiver<u64>,
    ) -> Result<RunningServer, Refusal> {
        let server = plan.name.clone();
        let looking = Arc::clone(inner);
        let found = spawn_blocking(move || looking.find_server(plan)).await.map_err(internal)??;
        let account = Arc::new(Account::of_server(Arc::clone(inner), server.clone()));
        let secrets = inner.arm(&found.work.secrets, &account).map_err(unarmed)?;
        let starting = Self { inner: Arc::clone(inner), server, found, account, notes: Arc::default(), secrets };
        let unusable = |error: std::io::Error| internal(error);
        let (ends, input, output) = ProgramEnds::connect().map_err(unusable)?;
        let prepared = starting.prepare(ends).await?;
        inner.tell(RecordKind::ServerStarted, &starting.told()).await?;
        let process = match prepared.start().await {
            Ok(process) => process,
            Err(error) => {
                let refusal = refused(error);
                let told = json!({ "server": starting.server, "why": refusal.to_string() });
                inner.tell(RecordKind::ServerEnded, &told).await?;
                return Err(refusal);
            }
        };
        Ok(starting.run(process, (input, output), place, changes))
    }

    /// Has a process wait behind all its layers. Nothing of the program runs.
    async fn prepare(&self, ends: ProgramEnds) -> Result<Prepared, Refusal> {
        let FoundServer { asking, work, plan, workspace, settings, .. } = &self.found;
        let door = ServerDoor {
            inner: Arc::clone(&self.inner),
            principal: asking.principal.clone(),
            context: asking.context.clone(),
            declared: plan.egress.hosts.iter().cloned().collect(),
            admitted: std::sync::Mutex::default(),
            account: Arc::clone(&self.account),
            notes: Arc::clone(&self.notes),
        };
        let (private_variables, private_files) =
            self.secrets.as_ref().map(|secrets| secrets.private()).unwrap_or_default();
        let intercepts = matches!(&plan.containment, Containment::Enclosure(enclosure) if enclosure.intercepts);
        let interceptor = self.secrets.clone().filter(|_| intercepts);
        let trust = settings.fetcher.trust();
        let input = RunInput {
            streams: Streams::Connected(ends),
            deadline: None,
            program: program_files(work),
            directory: Some(workspace.enter(&work.cwd, ResolveFlags::NO_SYMLINKS).map_err(internal)?),
            workspace: Some(workspace.directory().map_err(internal)?),
            executable: work.opened.0.clone(),
            principal: asking.principal.to_string(),
            door: Some(Door(Arc::new(door))),
            interceptor: interceptor.map(|secrets| InterceptedBy { interceptor: secrets, trust }),
            private_variables,
            private_files,
        };
        settings.runner.prepare(plan, input).await.map_err(refused)
    }

    /// What is on record before it starts.
    fn told(&self) -> impl Serialize {
        let FoundServer { asking, work, plan, .. } = &self.found;
        Started {
            server: self.server.clone(),
            principal: asking.principal.to_string(),
            command: std::iter::once(&work.argv0).chain(&work.args).cloned().collect(),
            program: work.program.to_string(),
            program_sha256: work.program_sha256,
            cwd: asking.context.workspace.is_some().then(|| work.cwd.to_string()),
            hosts: plan.egress.hosts.iter().map(|EgressHost { host, port }| format!("{host}:{port}")).collect(),
            secrets: work.secrets.iter().map(|one| one.secret.to_string()).collect(),
            egress: plan.egress.mode,
            executor: executor_of(plan),
        }
    }

    fn run(
        self,
        process: RunningProcess,
        (input, output): (tokio::net::unix::pipe::Sender, tokio::net::unix::pipe::Receiver),
        place: ServerPlace,
        changes: watch::Receiver<u64>,
    ) -> RunningServer {
        let stopper = process.stopper();
        place.runs(&stopper);
        let (ended, end) = watch::channel(None);
        let handle = ServerHandle {
            executor: executor_of(&self.found.plan),
            layers: process.layers().iter().map(ToString::to_string).collect(),
            stopper: stopper.clone(),
            end,
        };
        let lines = self.secrets.as_ref().map(|secrets| secrets.lines());
        spawn(async move {
            let end = self.accompany(process, &stopper, changes).await;
            // Only now may another server take its place, and the gate be taken to have stopped.
            drop(place);
            ended.send_replace(Some(end));
        });
        RunningServer { input: ServerInput(input), output: ServerOutput::new(output, lines), handle }
    }

    /// Watches it to its end, and tells about that.
    async fn accompany(
        mut self,
        process: RunningProcess,
        stopper: &Stopper,
        changes: watch::Receiver<u64>,
    ) -> ServerEnd {
        let own = self.found.own.take();
        let outcome = process.outcome();
        tokio::pin!(outcome);
        let taken_back = taken_back(&self.inner, &self.found.asking, changes);
        tokio::pin!(taken_back);
        let mut why_not = None;
        let outcome = loop {
            tokio::select! {
                outcome = &mut outcome => break outcome,
                reason = &mut taken_back, if why_not.is_none() => {
                    stopper.stop(StopCause::Revoked);
                    why_not = Some(reason);
                }
            }
        };
        self.notes.close(&self.account);
        self.account.close().await;
        let why = why(&outcome, why_not);
        let stderr = self.last_words(&outcome);
        let mut told = serde_json::to_value(Over::of(&self, &outcome, &why)).unwrap_or_default();
        if let Some(secrets) = &self.secrets {
            each_text(&mut told, &|text| secrets.redact_text(text));
        }
        self.tell_end(&told).await;
        // Waits for the disk.
        let _ = spawn_blocking(move || drop(own)).await;
        ServerEnd { why, stderr }
    }

    /// The end of what it wrote to standard error, from the beginning of a line if something is missing.
    fn last_words(&self, outcome: &Outcome) -> String {
        let stderr = &outcome.stderr;
        let begins = stderr.bytes.iter().position(|&byte| byte == b'\n').filter(|_| stderr.truncated());
        let mut bytes = stderr.bytes.get(begins.map_or(0, |at| at + 1)..).unwrap_or_default().to_vec();
        if let Some(secrets) = &self.secrets {
            secrets.redact(&mut bytes, false);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Does not give up while the disk is in trouble that can pass, unless the daemon stops.
    async fn tell_end(&self, told: &Value) {
        let mut pause = Duration::from_millis(50);
        while let Err(refusal) = self.inner.tell(RecordKind::ServerEnded, told).await {
            if !refusal.may_pass() || self.inner.is_stopping() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}

/// Waits until policy takes back what a server was started by, and says why.
async fn taken_back(inner: &Inner, asking: &Asking, mut changes: watch::Receiver<u64>) -> String {
    while changes.changed().await.is_ok() {
        if let Err(decision) = asking.ask_again(inner) {
            return decision.reason();
        }
    }
    std::future::pending().await
}

/// A secret is there, and cannot be used.
fn unarmed(message: String) -> Refusal {
    let help = "`palyra vault show NAME` tells about it";
    Refusal::Call(CallError::Intend(IntendError::Service { message, help }))
}

fn refused(error: palyra_sandbox::SandboxProcessRunError) -> Refusal {
    let tier = Some(palyra_types::SandboxTier::C);
    Refusal::NoPlan(vec![Unfit { tier, reason: UnfitReason::Refused(error) }])
}

/// Why a server ended, in words.
fn why(outcome: &Outcome, taken_back: Option<String>) -> String {
    let ended = match (outcome.ended, taken_back) {
        (Ended::Cancelled(StopCause::Revoked), Some(reason)) => format!("policy changed: {reason}"),
        (Ended::Cancelled(cause), _) => stopped(cause).to_owned(),
        (Ended::Exited(code), _) => format!("it ended by itself with code {code}"),
        (Ended::Signalled(signal), _) => format!("it was ended by signal {signal}"),
        (Ended::ProcessLimit, _) => "it had more processes than its plan allows".to_owned(),
        (Ended::WallClock | Ended::Deadline, _) => "its time ran out".to_owned(),
        (Ended::SupervisorLost, _) => "its supervisor was lost".to_owned(),
    };
    // What it was refused on the network is on record as it happened, and ends nothing.
    let known = outcome.reasons.iter().filter(|reason| !matches!(reason, Reason::Egress { .. }));
    known.fold(ended, |told, reason| format!("{told}; {reason}"))
}

/// What is on record before a server starts.
#[derive(Serialize)]
struct Started {
    server: ObjectId,
    principal: String,
    command: Vec<String>,
    program: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    program_sha256: Option<Sha256Digest>,
    /// In which directory of its workspace, if it works in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<String>,
    egress: EgressEnforcementMode,
    executor: &'static str,
}

/// What is on record about one that ended.
#[derive(Serialize)]
struct Over<'a> {
    server: &'a ObjectId,
    why: &'a str,
    executor: &'static str,
    layers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_enforced: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkUse>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<UsedSecret>,
    ran_ms: u64,
    stderr_bytes: u64,
}

impl<'a> Over<'a> {
    fn of(starting: &'a Starting, outcome: &Outcome, why: &'a str) -> Self {
        let plan = &starting.found.plan;
        Self {
            server: &starting.server,
            why,
            executor: executor_of(plan),
            layers: outcome.layers.iter().map(ToString::to_string).collect(),
            not_enforced: not_enforced_by(plan),
            reasons: outcome.reasons.clone(),
            network: outcome.egress.as_ref().map(NetworkUse::from),
            secrets: starting.secrets.as_ref().map(|secrets| secrets.used()).unwrap_or_default(),
            ran_ms: u64::try_from(outcome.usage.wall.as_millis()).unwrap_or(u64::MAX),
            stderr_bytes: outcome.stderr.total,
        }
    }
}
