//! Tier B: starts plans under limits.
//!
//! Guarantees: each plan is checked every time, and runs as it says or not at all; the layers in an outcome are those that the
//! kernel accepted. Refuses: what tier B cannot enforce, such as strict egress.
//! Does not: isolate. [`TIER_B_DOES_NOT`] is the sentence for it.

use std::{
    collections::BTreeSet,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    guard,
    image::{self, Image},
    init::{Init, Launched},
    outcome::{Ended, Layer, Outcome},
    plan::{EgressHost, Limits, ProcessPlan},
    protocol::{MAX_ORDER, Order, REPORT_LENGTH, Report},
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
pub struct SandboxProcessRunner {
    image: Image,
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
        Ok(Self { image, allowed_egress_hosts: allowed_egress_hosts.into_iter().collect(), layers })
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
        guard::check(plan, &self.allowed_egress_hosts).map(|_| ())
    }

    /// Starts a plan. When this returns, the program runs; dropping the future before that ends the attempt.
    ///
    /// Must be called within a tokio runtime that has its I/O and time drivers on.
    ///
    /// # Errors
    /// When the plan is refused, or the program does not start. Nothing of it is left then.
    pub async fn start(&self, plan: &ProcessPlan, input: RunInput) -> Result<RunningProcess, Error> {
        let checked = guard::check(plan, &self.allowed_egress_hosts)?;
        let wall = Duration::from_millis(plan.limits.wall_ms);
        let shorter = input.deadline.filter(|&deadline| deadline < wall);
        let mut order = order(plan, shorter.unwrap_or(wall));
        order.hidden = checked.hidden.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        let failed = |error: io::Error| Error::new(Kind::SpawnFailed, error.to_string());
        let mut fds = vec![checked.directory];
        if let Some(stdin) = &input.stdin {
            order.has_stdin = true;
            fds.push(image::constant(stdin).map_err(failed)?);
        }
        check_size(&order)?;

        let (live, output) = mpsc::channel(LIVE_CHUNKS);
        let (mut streams, mut ends) = (Vec::new(), Vec::new());
        for which in [OutputStream::Stdout, OutputStream::Stderr] {
            let (reader, writer) = io::pipe().map_err(failed)?;
            streams.push(
                Stream::new(which, OwnedFd::from(reader), plan.limits.output_bytes, live.clone()).map_err(failed)?,
            );
            ends.push(Stdio::from(writer));
        }
        let (Ok([stdout, stderr]), Ok(ends)) = (<[Stream; 2]>::try_from(streams), <[Stdio; 2]>::try_from(ends)) else {
            return Err(Error::new(Kind::SpawnFailed, "there are two streams"));
        };
        let Launched { init, control, unsent } = Init::launch(&self.image, &order, &fds, ends).map_err(failed)?;
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
    let bytes = |text: &str| text.as_bytes().to_vec();
    let name = plan.argv0.as_deref().unwrap_or(plan.program.as_str());
    Order {
        program: bytes(plan.program.as_str()),
        args: std::iter::once(name).chain(plan.args.iter().map(String::as_str)).map(bytes).collect(),
        env: plan.env.iter().map(|(name, value)| bytes(&format!("{name}={value}"))).collect(),
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
    let Launched { init, mut control, .. } = Init::launch(image, &order, &[], [Stdio::null(), Stdio::null()])?;
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
