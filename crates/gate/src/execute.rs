//! Step three: execute. Spends a permit and says what happened.
//!
//! Guarantees: runs exactly what the permit was issued for, once; what it was stopped by is told apart from how it ended by itself; output is
//! told while it runs. Does not: decide, ask or record. Whoever holds no [`Permit`] runs nothing.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use palyra_journal::state::Charge;
use palyra_sandbox::{
    Aftermath, Containment, Door, Ended, InterceptedBy, Limits, OutputChunk, OutputStream, PinnedFile, Prepared,
    ProcessPlan, ProgramFiles, Reason, RunInput, SandboxProcessRunError, SandboxProcessRunner, StopCause, Streams,
    egress::fetch::{Fetcher, Trust},
    executor_of, not_enforced_by,
};
use palyra_skills::outcome::LogLine;
use palyra_types::{
    AbsolutePath, Clock, Entropy, SandboxTier,
    id::{CallId, RunId, SessionId},
};
use rustix::fs::ResolveFlags;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{broadcast, watch},
};

use crate::{
    action::CallAction,
    arming::{CallSecrets, LiveRedaction},
    attest::{Ending, NetworkUse, SkillAttestation},
    door::CallDoor,
    fetch,
    output::Output,
    permit::{CallFacts, Permit, Spent},
    plan::Plan,
    secret::UsedSecret,
    service::{self, Service},
    skills::{self, SkillShelf},
    tool::{FileWork, HostPort, ProcessWork, Report, Work},
    tools::files::{self, Heed, OutputCaps},
    workspace::Workspace,
};

/// What a call needs to run, besides the permission.
pub struct Executor {
    pub(crate) runner: Arc<SandboxProcessRunner>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) workspace: Option<Arc<Workspace>>,
    /// Reads the arguments of the call into what would be done, once more. Looks at files.
    pub(crate) reread: Arc<dyn Fn() -> Option<Work> + Send + Sync>,
    pub(crate) reports: Arc<dyn Reports>,
    /// Whether a path below the one that was decided about may be read.
    pub(crate) may_read: Arc<dyn Fn(&AbsolutePath) -> bool + Send + Sync>,
    pub(crate) live: broadcast::Sender<LiveOutput>,
    pub(crate) stop: watch::Receiver<Option<StopCause>>,
    /// The process, if it was prepared while the start was being written.
    pub(crate) prepared: Mutex<Option<PreparedProcess>>,
    /// Whose call it is.
    pub(crate) principal: String,
    /// Decides about its connections.
    pub(crate) door: Arc<CallDoor>,
    /// The secrets that it uses, or why they are not to be had.
    pub(crate) secrets: Result<Option<Arc<CallSecrets>>, String>,
    /// Whether a path below a directory that was decided about may be written.
    pub(crate) may_write: Arc<dyn Fn(&AbsolutePath) -> bool + Send + Sync>,
    /// What runs skills.
    pub(crate) skills: Arc<SkillShelf>,
    /// How many bytes of what a skill asks of the host are recorded.
    pub(crate) record_bytes: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The service that does it, for what one does.
    pub(crate) service: Option<Arc<dyn Service>>,
}

/// A process that is all but started, or why it cannot be.
pub(crate) type PreparedProcess = Result<Prepared, SandboxProcessRunError>;

impl Executor {
    fn ground(&self) -> ProcessGround {
        ProcessGround {
            runner: Arc::clone(&self.runner),
            workspace: self.workspace.clone(),
            principal: self.principal.clone(),
            door: Arc::clone(&self.door),
            secrets: self.secrets.clone().ok().flatten(),
            trust: self.fetcher.trust(),
        }
    }

    /// Opens and checks what a process needs to start. Nothing of it runs.
    ///
    /// Not for what is looked at once more before it starts: that comes first then.
    pub(crate) async fn prepare(&self, work: &Work, plan: &Plan, reserved: Charge) -> Option<PreparedProcess> {
        match (work, plan) {
            (Work::Process(work), Plan::Process { process, .. }) if work.scripts.is_empty() && self.secrets.is_ok() => {
                let (ground, runtime) = (self.ground(), Handle::current());
                let (work, process) = (work.clone(), process.clone());
                // By another thread: this one rests, so that the kernel's own work for the sync does not wait for it.
                let prepared =
                    tokio::task::spawn_blocking(move || runtime.block_on(ready(&ground, &work, (&process, reserved))));
                prepared.await.ok()?
            }
            _ => None,
        }
    }
}

/// Where a process is started.
struct ProcessGround {
    runner: Arc<SandboxProcessRunner>,
    workspace: Option<Arc<Workspace>>,
    principal: String,
    door: Arc<CallDoor>,
    secrets: Option<Arc<CallSecrets>>,
    /// Who is trusted to say which host is which.
    trust: Trust,
}

/// A process that only has to be let go; nothing if its working directory is not there any more.
async fn ready(
    ground: &ProcessGround,
    work: &ProcessWork,
    (plan, reserved): (&ProcessPlan, Charge),
) -> Option<PreparedProcess> {
    let workspace = ground.workspace.as_deref()?;
    // Opened beneath the workspace as that was opened, whatever its path leads to by now.
    let directory = workspace.enter(&work.cwd, ResolveFlags::NO_SYMLINKS).ok()?;
    let (private_variables, private_files) =
        ground.secrets.as_ref().map(|secrets| secrets.private()).unwrap_or_default();
    let intercepts = matches!(&plan.containment, Containment::Enclosure(enclosure) if enclosure.intercepts);
    let interceptor = ground.secrets.clone().filter(|_| intercepts);
    let input = RunInput {
        deadline: Some(Duration::from_millis(reserved.wall_ms)),
        program: program_files(work),
        directory: Some(directory),
        workspace: Some(workspace.directory().ok()?),
        executable: work.opened.0.clone(),
        streams: Streams::Captured { stdin: work.stdin.clone() },
        principal: ground.principal.clone(),
        door: Some(Door(ground.door.clone())),
        interceptor: interceptor.map(|secrets| InterceptedBy { interceptor: secrets, trust: ground.trust.clone() }),
        private_variables,
        private_files,
    };
    Some(ground.runner.prepare(plan, input).await)
}

/// What the daemon knows about itself.
pub trait Reports: Send + Sync {
    /// Tells about this.
    fn report(&self, about: Report) -> Value;
}

/// Output of a call that runs.
#[derive(Debug, Clone)]
pub struct LiveOutput {
    /// The conversation, for whoever may see only their own.
    pub session: SessionId,
    /// The task.
    pub run: RunId,
    /// The call.
    pub call: CallId,
    /// Standard output or standard error.
    pub stream: OutputStream,
    /// Where in that stream the piece begins. Whoever fell behind sees the gap by this.
    pub offset: u64,
    /// What it said.
    pub bytes: Arc<[u8]>,
}

impl LiveOutput {
    /// `stdout` or `stderr`.
    #[must_use]
    pub const fn stream_name(&self) -> &'static str {
        match self.stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        }
    }
}

/// What became of a call that was started.
#[derive(Debug)]
#[must_use = "an execution that is not attested has no receipt"]
pub struct Executed {
    pub(crate) ending: Ending,
    pub(crate) detail: Option<String>,
    pub(crate) output: Output,
    pub(crate) executor: &'static str,
    pub(crate) layers: Vec<String>,
    /// What the sandbox knows about why something did not work.
    pub(crate) reasons: Vec<Reason>,
    /// What went through its network.
    pub(crate) network: Option<NetworkUse>,
    /// Where it was connected to that it had not declared.
    pub(crate) undeclared: BTreeSet<SocketAddr>,
    /// The secrets that were really used.
    pub(crate) secrets: Vec<UsedSecret>,
    pub(crate) not_enforced: Option<&'static str>,
    /// Which skill it was, and what it used.
    pub(crate) skill: Option<Box<SkillAttestation>>,
    /// What the skill said.
    pub(crate) log: Vec<LogLine>,
    pub(crate) ran: Duration,
    /// Kept until it is attested.
    pub(crate) _aftermath: Option<Aftermath>,
}

impl Executed {
    /// An execution of which nothing more is known.
    pub(crate) fn unknown(ending: Ending, detail: &str) -> Self {
        Self {
            ending,
            detail: Some(detail.to_owned()),
            output: Output::Nothing,
            executor: UNKNOWN_EXECUTOR,
            layers: Vec::new(),
            reasons: Vec::new(),
            network: None,
            undeclared: BTreeSet::new(),
            secrets: Vec::new(),
            not_enforced: None,
            skill: None,
            log: Vec::new(),
            ran: Duration::ZERO,
            _aftermath: None,
        }
    }
}

/// Runs a call and spends its permit.
pub async fn execute_tool_call(permit: Permit, executor: &Executor) -> Executed {
    let Spent { facts, work, plan, found } = permit.spend();
    let begun = Instant::now();
    if let Err(why) = &executor.secrets {
        return Executed::unknown(Ending::NotStarted, why);
    }
    // What is about to run is held to what was approved: files that could have changed are looked at once more.
    let (work, found) = match work {
        Work::Process(ref process) if !process.scripts.is_empty() => {
            let reread = Arc::clone(&executor.reread);
            match tokio::task::spawn_blocking(move || reread()).await {
                Ok(Some(work)) => {
                    let found = CallAction::of(&facts.proposal, facts.definition, &work, &plan).ok();
                    (work, found.map(|found| found.digest))
                }
                Ok(None) | Err(_) => return Executed::unknown(Ending::NotStarted, CHANGED),
            }
        }
        // The program itself is compared as it starts, by the descriptor it is started from; and file work is held to its real
        // paths as it is done.
        work => (work, found),
    };
    if found != Some(facts.digest) {
        return Executed::unknown(Ending::NotStarted, CHANGED);
    }
    let mut executed = match (work, &plan) {
        (Work::Process(work), Plan::Process { tier, process }) => {
            run_process(&facts, work, (*tier, process), executor).await
        }
        (Work::Connect(HostPort { host, port }), Plan::Daemon) => {
            let value = serde_json::json!({ "host": host.as_str(), "port": port, "let_through": true });
            let told = in_daemon(Ending::Completed, None, Output::Value { value });
            Executed { layers: Vec::new(), ..told }
        }
        (Work::Elsewhere(_), Plan::Elsewhere) => {
            let value = serde_json::json!({ "authorized": true });
            let told = in_daemon(Ending::Completed, None, Output::Value { value });
            Executed { layers: Vec::new(), ..told }
        }
        (Work::Fetch(work), Plan::Fetch { wall_ms, .. }) => fetch::perform(&facts, work, *wall_ms, executor).await,
        (Work::Skill(work), Plan::Skill { terms, .. }) => skills::run::perform(&facts, *work, terms, executor).await,
        (Work::Service(work), Plan::Service { terms }) => {
            let with = (executor.service.clone(), executor.stop.clone());
            service::perform(&facts, work, *terms, with).await
        }
        (Work::Files(work), Plan::Daemon) => work_on_files(&facts, work, plan.wall_ms(), executor).await,
        (Work::Report { about }, Plan::Daemon) => {
            let told = in_daemon(Ending::Completed, None, Output::Value { value: executor.reports.report(about) });
            Executed { layers: Vec::new(), ..told }
        }
        _ => Executed::unknown(Ending::NotStarted, "the plan does not fit the work"),
    };
    if let Ok(Some(secrets)) = &executor.secrets {
        executed.output.redact(secrets);
        executed.detail.iter_mut().for_each(|detail| secrets.redact_text(detail));
        executed.reasons.iter_mut().for_each(|reason| reason.each_text(&mut |text| secrets.redact_text(text)));
        executed.secrets = secrets.used();
    }
    executed.ran = begun.elapsed();
    executed
}

async fn run_process(
    facts: &CallFacts,
    work: ProcessWork,
    (tier, plan): (SandboxTier, &ProcessPlan),
    executor: &Executor,
) -> Executed {
    if tier == SandboxTier::A || (tier == SandboxTier::B) != plan.containment.is_none() {
        return Executed::unknown(Ending::NotStarted, "the plan does not fit its tier");
    }
    let mut stop = executor.stop.clone();
    let prepared = executor.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
    let prepared = match prepared {
        Some(prepared) => Some(prepared),
        None => ready(&executor.ground(), &work, (plan, facts.reserved)).await,
    };
    if let Ok(Some(secrets)) = &executor.secrets {
        secrets.tell_handed();
    }
    let started = match prepared {
        Some(Ok(prepared)) => prepared.start().await,
        Some(Err(error)) => Err(error),
        None => return Executed::unknown(Ending::NotStarted, CHANGED),
    };
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            let failed = Executed::unknown(Ending::NotStarted, &format!("{error}"));
            return Executed { executor: executor_of(plan), not_enforced: not_enforced_by(plan), ..failed };
        }
    };
    let stopper = running.stopper();
    let (session, run, call) = (facts.proposal.session, facts.proposal.run, facts.proposal.call);
    let tell = |stream, (offset, bytes): (u64, Vec<u8>)| {
        if !bytes.is_empty() {
            // Nobody may be listening.
            let _ = executor.live.send(LiveOutput { session, run, call, stream, offset, bytes: bytes.into() });
        }
    };
    let secrets = executor.secrets.as_ref().ok().and_then(Option::as_ref);
    let mut redactions = secrets.map(|secrets| [secrets.live(), secrets.live()]);
    let mut watched = true;
    loop {
        tokio::select! {
            chunk = running.next_output() => match chunk {
                Some(OutputChunk { stream, offset, bytes }) => match redactions.as_mut().map(|both| of_stream(both, stream)) {
                    Some(redaction) => tell(stream, redaction.push(offset, &bytes)),
                    None => tell(stream, (offset, bytes)),
                },
                None => break,
            },
            cause = asked_to_stop(&mut stop), if watched => {
                watched = false;
                stopper.stop(cause);
            }
        }
    }
    if let Some(both) = &mut redactions {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            tell(stream, of_stream(both, stream).finish());
        }
    }
    let aftermath = Some(running.aftermath());
    let outcome = running.outcome().await;
    executor.door.close().await;
    let (ending, detail) = ending(outcome.ended, &plan.limits);
    let layers = outcome.layers.iter().map(ToString::to_string).collect();
    let reasons = outcome.reasons.clone();
    let network = outcome.egress.as_ref().map(NetworkUse::from);
    let undeclared = outcome.unexpected.clone();
    Executed {
        ending,
        detail,
        // What is left of the run's budget may be less than the plan keeps.
        output: Output::of_process(outcome).within(facts.reserved.output_bytes),
        executor: executor_of(plan),
        layers,
        reasons,
        network,
        undeclared,
        secrets: Vec::new(),
        not_enforced: not_enforced_by(plan),
        skill: None,
        log: Vec::new(),
        ran: Duration::ZERO,
        _aftermath: aftermath,
    }
}

const fn of_stream([stdout, stderr]: &mut [LiveRedaction; 2], stream: OutputStream) -> &mut LiveRedaction {
    match stream {
        OutputStream::Stdout => stdout,
        OutputStream::Stderr => stderr,
    }
}

/// The program and its interpreters, as they were decided about.
pub(crate) fn program_files(work: &ProcessWork) -> ProgramFiles {
    let path = work.leads_to.as_ref().unwrap_or(&work.program).clone();
    let scripts = work.scripts.iter().map(|script| PinnedFile { path: script.path.clone(), sha256: script.sha256 });
    ProgramFiles::Pinned { program: PinnedFile { path, sha256: work.program_sha256 }, interpreters: scripts.collect() }
}

/// Waits until the call is to be stopped. If nobody can ask for that any more, it waits for ever.
pub(crate) async fn asked_to_stop(stop: &mut watch::Receiver<Option<StopCause>>) -> StopCause {
    match stop.wait_for(Option::is_some).await.map(|cause| *cause) {
        Ok(Some(cause)) => cause,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

fn ending(ended: Ended, limits: &Limits) -> (Ending, Option<String>) {
    match ended {
        Ended::Exited(_) | Ended::Signalled(_) => (Ending::Completed, None),
        Ended::WallClock => (Ending::TimedOut, Some(format!("its limit is {} ms", limits.wall_ms))),
        Ended::Deadline => (Ending::BudgetSpent, None),
        Ended::ProcessLimit => (Ending::LimitExceeded, Some("it had more processes than its plan allows".to_owned())),
        Ended::Cancelled(cause) => (Ending::Cancelled, Some(stopped(cause).to_owned())),
        Ended::SupervisorLost => (Ending::Crashed, Some("the supervisor of the process was lost".to_owned())),
    }
}

pub(crate) const fn stopped(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Requested => "somebody asked for it",
        StopCause::CallerGone => "its caller is gone",
        StopCause::Revoked => "it is not permitted any more",
        StopCause::Shutdown => "the daemon is stopping",
    }
}

async fn work_on_files(facts: &CallFacts, work: FileWork, wall_ms: u64, executor: &Executor) -> Executed {
    let Some(workspace) = executor.workspace.clone() else {
        return Executed::unknown(Ending::NotStarted, "the call has no workspace");
    };
    let limit = Duration::from_millis(wall_ms.min(facts.reserved.wall_ms));
    let caps =
        OutputCaps { bytes: OutputCaps::default().bytes.min(facts.reserved.output_bytes), ..OutputCaps::default() };
    let begun = Instant::now();
    let (stop, may_read) = (executor.stop.clone(), Arc::clone(&executor.may_read));
    let cancelled = executor.stop.clone();
    let work = tokio::task::spawn_blocking(move || {
        let heed =
            Heed { stop: &|| stop.borrow().is_some() || begun.elapsed() >= limit, may_read: &|path| may_read(path) };
        files::perform(&work, &workspace, &caps, heed)
    });
    match work.await {
        Ok(Ok(value)) => in_daemon(Ending::Completed, None, Output::Value { value }),
        Ok(Err(files::FileError::Stopped)) if cancelled.borrow().is_some() => {
            in_daemon(Ending::Cancelled, None, Output::Nothing)
        }
        Ok(Err(files::FileError::Stopped)) if facts.reserved.wall_ms < wall_ms => {
            in_daemon(Ending::BudgetSpent, None, Output::Nothing)
        }
        Ok(Err(files::FileError::Stopped)) => in_daemon(Ending::TimedOut, None, Output::Nothing),
        Ok(Err(error)) => {
            let value = serde_json::json!({ "error": { "message": error.to_string(), "help": error.advice() } });
            in_daemon(Ending::Completed, Some(error.to_string()), Output::Value { value })
        }
        Err(_) => in_daemon(Ending::Crashed, Some("the file tool failed".to_owned()), Output::Nothing),
    }
}

fn in_daemon(ending: Ending, detail: Option<String>, output: Output) -> Executed {
    Executed {
        ending,
        detail,
        output,
        executor: DAEMON_EXECUTOR,
        layers: vec!["openat2_beneath_workspace".to_owned()],
        reasons: Vec::new(),
        network: None,
        undeclared: BTreeSet::new(),
        secrets: Vec::new(),
        not_enforced: None,
        skill: None,
        log: Vec::new(),
        ran: Duration::ZERO,
        _aftermath: None,
    }
}

const CHANGED: &str = "what would run is not what was permitted";

const DAEMON_EXECUTOR: &str = "daemon";

const UNKNOWN_EXECUTOR: &str = "none";
