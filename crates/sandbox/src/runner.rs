//! Tier B: starts plans under limits.
//!
//! Guarantees: each plan is checked every time, and runs as it says or not at all; the layers in an outcome are those that the
//! kernel accepted. Refuses: what tier B cannot enforce, such as strict egress.
//! Does not: isolate. [`TIER_B_DOES_NOT`] is the sentence for it.

use std::{
    collections::BTreeSet,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    executable::{Executable, ProgramFiles},
    guard::{self, Checked},
    image::{self, Image},
    init::{Idle, Launched},
    outcome::{Ended, Layer, Outcome},
    plan::{EgressHost, Limits, ProcessPlan},
    protocol::{MAX_ORDER, Order, REPORT_LENGTH, Report, Unchanged},
    running::{RunningProcess, Stopper},
    stream::{OutputChunk, OutputStream, Stream},
    supervision::{self, Supervision},
};

/// The executor's name in attestations.
pub const TIER_B_EXECUTOR: &str = "sandbox_tier_b_rlimits";

/// What tier B does not do, for attestations and for people.
pub const TIER_B_DOES_NOT: &str = "no file system or network isolation: the process may read, write and connect to whatever the \
                                   daemon's own user may, except for the hidden directories where Landlock hides them; memory is \
                                   limited for each process, not for the tree; declared hosts are checked, not enforced";

/// Runs plans in tier B.
#[derive(Debug)]
pub struct SandboxProcessRunner {
    inits: Arc<Inits>,
    allowed_egress_hosts: BTreeSet<EgressHost>,
    layers: Vec<Layer>,
}

/// What belongs to one run and not to the plan.
#[derive(Debug, Default)]
pub struct RunInput {
    /// Standard input; empty when not given.
    pub stdin: Option<Vec<u8>>,
    /// What is left of the run's budget. It counts where it is shorter than the plan's wall clock.
    pub deadline: Option<Duration>,
    /// What the files of the program must be.
    pub program: ProgramFiles,
    /// The working directory, from whoever opened it when the plan was made. Without it, it is opened beneath the workspace's path.
    pub directory: Option<OwnedFd>,
}

impl SandboxProcessRunner {
    /// A runner that lets plans declare these hosts. It rehearses once, to know what this machine enforces.
    ///
    /// # Errors
    /// When no process can be supervised here.
    pub fn new(allowed_egress_hosts: impl IntoIterator<Item = EgressHost>) -> Result<Self, Error> {
        let unavailable =
            |error: io::Error| Error::new(Kind::Unavailable, format!("no supervisor can be started: {error}"));
        let image = Image::new().map_err(unavailable)?;
        let layers = match rehearse(&image).map_err(unavailable)? {
            Some(Report::Started { layers, landlock, .. }) => Layer::from_bits(layers, landlock),
            other => return Err(Error { kind: Kind::Unavailable, ..supervision::refusal(other) }),
        };
        let inits = Arc::new(Inits { idle: Mutex::new(None), image });
        inits.refill();
        Ok(Self { inits, allowed_egress_hosts: allowed_egress_hosts.into_iter().collect(), layers })
    }

    /// The layers that tier B has on this machine, with something to hide.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Whether a plan would be started, as far as can be told without doing so. Starting it checks everything again.
    ///
    /// # Errors
    /// When the plan would be refused.
    pub fn check(&self, plan: &ProcessPlan) -> Result<(), Error> {
        guard::check(plan, &self.allowed_egress_hosts, None).map(|_| ())
    }

    /// Starts a plan. When this returns, the program runs; dropping the future before that ends the attempt.
    ///
    /// Must be called within a tokio runtime that has its I/O and time drivers on.
    ///
    /// # Errors
    /// When the plan is refused, or the program does not start. Nothing of it is left then.
    pub async fn start(&self, plan: &ProcessPlan, input: RunInput) -> Result<RunningProcess, Error> {
        let Checked { executable, directory, hidden } =
            guard::check(plan, &self.allowed_egress_hosts, input.directory)?;
        let (executable, unchanged) = confirm(executable, input.program).await?;
        let wall = Duration::from_millis(plan.limits.wall_ms);
        let shorter = input.deadline.filter(|&deadline| deadline < wall);
        let mut order = Order {
            args: executable.arguments(plan.argv0.as_deref().unwrap_or(plan.program.as_str()), &plan.args),
            hidden: hidden.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
            unchanged,
            ..order(plan, shorter.unwrap_or(wall))
        };
        let failed = |error: io::Error| Error::new(Kind::SpawnFailed, error.to_string());
        let (live, output) = mpsc::channel(LIVE_CHUNKS);
        let keep = plan.limits.output_bytes;
        let (stdout, stdout_end) = stream(OutputStream::Stdout, keep, live.clone()).map_err(failed)?;
        let (stderr, stderr_end) = stream(OutputStream::Stderr, keep, live).map_err(failed)?;
        let mut fds = vec![directory, stdout_end, stderr_end, executable.into_binary()];
        if let Some(stdin) = &input.stdin {
            order.has_stdin = true;
            fds.push(image::constant(stdin).map_err(failed)?);
        }
        check_size(&order)?;
        let Launched { init, control, unsent } = self.inits.launch(&order, &fds).map_err(failed)?;
        drop(fds);
        let inits = self.inits.clone();
        // Off the runtime: starting a process takes a while.
        tokio::task::spawn_blocking(move || inits.refill());
        let control = UnixStream::from_std(control).map_err(failed)?;

        let (stop, stopped) = watch::channel(None);
        let (outcome_sender, outcome) = oneshot::channel();
        let (started, starting) = oneshot::channel();
        let running = RunningProcess { output, outcome, stop: Stopper(Arc::new(stop)) };
        let supervision = Supervision {
            init,
            control,
            unsent,
            stdout,
            stderr,
            stop: stopped,
            started,
            outcome: outcome_sender,
            wall: shorter.unwrap_or(wall),
            out_of_time: if shorter.is_some() { Ended::Deadline } else { Ended::WallClock },
        };
        tokio::spawn(supervision.run());
        starting.await.unwrap_or_else(|_| Err(supervision::refusal(None)))?;
        Ok(running)
    }
}

/// Whether the program is what it must be. Off the runtime if that takes reading it.
async fn confirm(mut executable: Executable, expected: ProgramFiles) -> Result<(Executable, Vec<Unchanged>), Error> {
    let reads = expected.has_digest();
    let compare = move || executable.confirm(&expected).map(|unchanged| (executable, unchanged));
    if !reads {
        return compare();
    }
    match tokio::task::spawn_blocking(compare).await {
        Ok(compared) => compared,
        Err(_) => Err(Error::new(Kind::SpawnFailed, "the program could not be compared")),
    }
}

/// The inits of a runner: one that waits, so that a call finds it started.
///
/// An init serves one call and knows nothing before its order comes, so nothing passes from one call to another.
#[derive(Debug)]
struct Inits {
    idle: Mutex<Option<Idle>>,
    image: Image,
}

impl Inits {
    /// An init with this order: the one that waits, or else a new one.
    ///
    /// One that is killed just after it got its order is reported as lost and not replaced: the program may have begun, and nothing
    /// runs twice.
    fn launch(&self, order: &Order, fds: &[OwnedFd]) -> io::Result<Launched> {
        let waiting = self.idle().take().and_then(|mut idle| idle.is_alive().then_some(idle));
        match waiting.and_then(|idle| idle.order(order, fds).ok()) {
            Some(launched) => Ok(launched),
            None => Idle::new(&self.image)?.order(order, fds),
        }
    }

    /// Sees to it that one waits. Failing is no harm: the next call tries again, and says so.
    fn refill(&self) {
        if self.idle().is_none()
            && let Ok(started) = Idle::new(&self.image)
        {
            let surplus = self.idle().replace(started);
            drop(surplus);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Option<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream and the end into which the process writes.
fn stream(which: OutputStream, keep: u64, live: mpsc::Sender<OutputChunk>) -> io::Result<(Stream, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((Stream::new(which, OwnedFd::from(reader), keep, live)?, OwnedFd::from(writer)))
}

/// Runs a plan to its end and hands every piece of output to `sink` as it comes.
///
/// A sink that takes its time misses pieces; the outcome has them all, up to the plan's limit. Dropping the future ends the tree.
///
/// # Errors
/// When the plan is refused, or the program does not start.
pub async fn run_constrained_process(
    runner: &SandboxProcessRunner,
    plan: &ProcessPlan,
    input: RunInput,
    mut sink: impl FnMut(OutputChunk),
) -> Result<Outcome, Error> {
    let mut running = runner.start(plan, input).await?;
    while let Some(chunk) = running.next_output().await {
        sink(chunk);
    }
    Ok(running.outcome().await)
}

fn order(plan: &ProcessPlan, wall: Duration) -> Order {
    let Limits { cpu_seconds, address_space, processes, file_size, open_files, .. } = plan.limits;
    Order {
        env: plan.env.iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
        wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        cpu_seconds,
        address_space,
        processes,
        file_size,
        open_files,
        ..Order::default()
    }
}

fn check_size(order: &Order) -> Result<(), Error> {
    let lists = [&order.args, &order.env, &order.hidden];
    let size: usize = lists.into_iter().flatten().map(|item| item.len().saturating_add(4)).sum();
    if size < MAX_ORDER / 2 {
        Ok(())
    } else {
        Err(Error::new(Kind::InvalidInput, format!("the arguments and the environment have {size} bytes")))
    }
}

/// Sets every layer up and runs nothing. Something that does not exist is hidden, so that this is tried too.
fn rehearse(image: &Image) -> io::Result<Option<Report>> {
    let limits = Limits::default();
    let order = Order {
        hidden: vec![b"/palyra-rehearsal".to_vec()],
        wall_ms: 10_000,
        cpu_seconds: limits.cpu_seconds,
        address_space: limits.address_space,
        processes: limits.processes,
        file_size: limits.file_size,
        open_files: limits.open_files,
        ..Order::default()
    };
    let Launched { init, mut control, .. } = Idle::new(image)?.order(&order, &[])?;
    control.set_nonblocking(false)?;
    control.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut report = [0; REPORT_LENGTH];
    let read = control.read_exact(&mut report);
    drop(control);
    init.collect_blocking();
    Ok(read.ok().and_then(|()| Report::decode(&report)))
}

/// How many pieces the live stream holds for its reader.
const LIVE_CHUNKS: usize = 64;
