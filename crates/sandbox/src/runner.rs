//! Tier B: starts plans under limits.
//!
//! Guarantees: each plan is checked every time, and runs as it says or not at all; the layers in an outcome are those that the
//! kernel accepted. Refuses: what tier B cannot enforce, such as strict egress.
//! Does not: isolate. [`TIER_B_DOES_NOT`] is the sentence for it.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{io::Errno, net::SendFlags};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    executable::{Executable, ProgramFiles},
    guard::{self, Checked, Opened},
    image::{self, Image},
    init::{Idle, Init, send},
    outcome::{Ended, Layer, Outcome},
    plan::{EgressHost, Limits, ProcessPlan},
    protocol::{self, MAX_ORDER, Order, REPORT_LENGTH, Report, Unchanged},
    running::{Aftermath, RunningProcess, Stopper, off_the_runtime},
    stream::{OutputChunk, OutputStream, Stream},
    supervision::{self, Supervision},
    walls::{Found, Walls},
};

/// The executor's name in attestations.
pub const TIER_B_EXECUTOR: &str = "sandbox_tier_b_rlimits";

/// What tier B does not do, for attestations and for people.
pub const TIER_B_DOES_NOT: &str = "no file system or network isolation: the process may read, write and connect to whatever the \
                                   daemon's own user may, except for the content of the hidden directories where Landlock hides \
                                   it; memory is limited for each process, not for the tree; declared hosts are checked, not enforced";

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
    /// The program, from whoever opened it by the plan's path when the plan was made. Without it, it is opened.
    pub executable: Option<Executable>,
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
            [Some(Report::Waiting { .. }), Some(Report::Ended { held, .. })] => {
                Layer::from_bits(held.layers, held.landlock)
            }
            [other, _] => return Err(Error { kind: Kind::Unavailable, ..supervision::refusal(other) }),
        };
        let can_hide = layers.iter().any(|layer| matches!(layer, Layer::HiddenPaths { .. }));
        let inits = Arc::new(Inits { stock: Mutex::default(), image, walls: Walls::new(can_hide) });
        inits.refill(Found::Nothing);
        Ok(Self { inits, allowed_egress_hosts: allowed_egress_hosts.into_iter().collect(), layers })
    }

    /// The same runner, which lets plans declare other hosts. What is prepared and known of this machine is shared.
    #[must_use]
    pub fn with_hosts(&self, allowed_egress_hosts: impl IntoIterator<Item = EgressHost>) -> Self {
        let (inits, layers) = (Arc::clone(&self.inits), self.layers.clone());
        Self { inits, allowed_egress_hosts: allowed_egress_hosts.into_iter().collect(), layers }
    }

    /// The layers that tier B has on this machine, with something to hide.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Whether a plan would be started, as far as can be told without doing so. Starting it checks everything again. Whoever has opened the
    /// program already gives it along.
    ///
    /// # Errors
    /// When the plan would be refused.
    pub fn check(&self, plan: &ProcessPlan, executable: Option<&Executable>) -> Result<(), Error> {
        let opened = Opened { executable: executable.cloned(), directory: None };
        guard::check(plan, &self.allowed_egress_hosts, opened).map(|_| ())
    }

    /// Starts a plan. When this returns, the program runs; dropping the future before that ends the attempt.
    ///
    /// Must be called within a tokio runtime that has its I/O and time drivers on.
    ///
    /// # Errors
    /// When the plan is refused, or the program does not start. Nothing of it is left then.
    pub async fn start(&self, plan: &ProcessPlan, input: RunInput) -> Result<RunningProcess, Error> {
        self.prepare(plan, input).await?.start().await
    }

    /// Does everything for a plan that can be done without starting it: a process waits behind all its layers, as which the program will
    /// run. What is prepared is held open, and compared once more as it starts.
    ///
    /// Must be called within a tokio runtime that has its I/O and time drivers on.
    ///
    /// # Errors
    /// When the plan is refused.
    pub async fn prepare(&self, plan: &ProcessPlan, input: RunInput) -> Result<Prepared, Error> {
        let Checked { executable, directory, hidden } = guard::check(
            plan,
            &self.allowed_egress_hosts,
            Opened { executable: input.executable, directory: input.directory },
        )?;
        let (executable, unchanged) = confirm(executable, input.program).await?;
        let wall = Duration::from_millis(plan.limits.wall_ms);
        let shorter = input.deadline.filter(|&deadline| deadline < wall);
        let walls = self.inits.walls.find(&hidden);
        let order = Order {
            args: executable.arguments(plan.argv0.as_deref().unwrap_or(plan.program.as_str()), &plan.args),
            hidden: hidden_as_bytes(&hidden),
            unchanged,
            has_walls: matches!(walls, Found::Rules(_)),
            has_stdin: input.stdin.is_some(),
            ..order(plan, shorter.unwrap_or(wall))
        };
        check_size(&order)?;
        let (live, output) = mpsc::channel(LIVE_CHUNKS);
        let keep = plan.limits.output_bytes;
        let (stdout, stdout_end) = stream(OutputStream::Stdout, keep, live.clone()).map_err(failed)?;
        let (stderr, stderr_end) = stream(OutputStream::Stderr, keep, live).map_err(failed)?;
        let stdin = input.stdin.as_deref().map(image::constant).transpose().map_err(failed)?;
        let given =
            Given { directory, ends: [stdout_end, stderr_end], program: executable.into_binary(), stdin, walls };
        let launched = self.inits.launch(&order, &given.fds()).map_err(failed)?;
        Ok(Prepared {
            inits: Arc::clone(&self.inits),
            launched,
            order,
            given,
            streams: [stdout, stderr],
            output,
            wall: shorter.unwrap_or(wall),
            out_of_time: if shorter.is_some() { Ended::Deadline } else { Ended::WallClock },
        })
    }
}

/// A plan of which everything is ready: a process waits for the word to become the program. Dropping this ends it, and leaves nothing.
#[must_use = "nothing runs before it is started"]
pub struct Prepared {
    inits: Arc<Inits>,
    launched: Launched,
    order: Order,
    given: Given,
    streams: [Stream; 2],
    output: mpsc::Receiver<OutputChunk>,
    wall: Duration,
    out_of_time: Ended,
}

/// What goes along with an order.
struct Given {
    directory: OwnedFd,
    /// The ends into which the process writes.
    ends: [OwnedFd; 2],
    program: Arc<OwnedFd>,
    walls: Found,
    stdin: Option<OwnedFd>,
}

impl Given {
    /// In the order in which the init takes them.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let [stdout, stderr] = &self.ends;
        let mut fds = vec![self.directory.as_fd(), stdout.as_fd(), stderr.as_fd(), self.program.as_fd()];
        if let Found::Rules(rules) = &self.walls {
            fds.push(rules.as_fd());
        }
        fds.extend(self.stdin.as_ref().map(AsFd::as_fd));
        fds
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: its order holds arguments and variables, which do not belong in logs.
        f.write_str("Prepared")
    }
}

impl Prepared {
    /// Starts it. When this returns, the program runs; dropping the future before that ends the attempt.
    ///
    /// # Errors
    /// When the program does not start. Nothing of it is left then.
    pub async fn start(self) -> Result<RunningProcess, Error> {
        let Self { inits, mut launched, order, given, streams, output, wall, out_of_time } = self;
        let (stop, stopped) = watch::channel(None);
        // From here on every step is one that the program waits for.
        if !launched.go() {
            // Somebody killed it while it waited. Without the word nothing can have begun, so another one may.
            launched = inits.launch(&order, &given.fds()).map_err(failed)?;
            launched.go();
        }
        let Launched { init, control, orders, unsent } = launched;
        let [stdout, stderr] = streams;
        let Given { ends, walls, .. } = given;
        let supervision = Supervision { init, control, stdout, stderr, ends, stop: stopped, wall, out_of_time };
        let begun = supervision.begin(orders, unsent).await;
        let aftermath = Aftermath::new(move || inits.refill(walls));
        let begun = begun?;
        let (outcome_sender, outcome) = oneshot::channel();
        let refill = aftermath.clone();
        tokio::spawn(async move {
            let accompany = begun.run(outcome_sender);
            tokio::pin!(accompany);
            // A short program has the machine to itself, and so has what comes of it. Another init waits for whoever comes meanwhile.
            if tokio::time::timeout(SHORT, &mut accompany).await.is_err() {
                refill.now();
                accompany.await;
            }
        });
        Ok(RunningProcess { output, outcome, stop: Stopper(Arc::new(stop)), aftermath })
    }
}

/// How long a program is short.
const SHORT: Duration = Duration::from_millis(10);

fn failed(error: io::Error) -> Error {
    Error::new(Kind::SpawnFailed, error.to_string())
}

/// Whether the program is what it must be. Off the runtime if that takes reading it.
async fn confirm(mut executable: Executable, expected: ProgramFiles) -> Result<(Executable, Vec<Unchanged>), Error> {
    let reads = expected.has_digest();
    let compare = move || executable.confirm(&expected).map(|unchanged| (executable, unchanged));
    if !reads {
        return compare();
    }
    match tokio::spawn(off_the_runtime(compare)).await {
        Ok(Some(compared)) => compared,
        _ => Err(Error::new(Kind::SpawnFailed, "the program could not be compared")),
    }
}

/// The inits of a runner: some that wait, so that a call finds one started, and the next call too, while that one is replaced.
///
/// An init serves one call and knows nothing before its order comes, so nothing passes from one call to another.
#[derive(Debug)]
struct Inits {
    stock: Mutex<Stock>,
    image: Image,
    walls: Walls,
}

/// The inits that wait, and those that soon will.
#[derive(Debug, Default)]
struct Stock {
    /// The one that has waited longest first.
    idle: VecDeque<Idle>,
    /// How many are being started. Counted, as several calls may see to the stock at once, and it would grow beyond its size.
    coming: usize,
}

/// An init that has its order, with what connects to it.
struct Launched {
    init: Init,
    control: std::os::unix::net::UnixStream,
    orders: UnixStream,
    /// What did not fit into the socket yet.
    unsent: Vec<u8>,
}

impl Launched {
    /// Lets the program start, as soon as all of the order is there. Returns whether there is still somebody to tell.
    fn go(&mut self) -> bool {
        // At once if possible, and not by way of the runtime, which may not know yet that the socket can be written to.
        let told = match self.unsent.is_empty() {
            true => rustix::net::send(&self.orders, &[protocol::GO], SendFlags::NOSIGNAL | SendFlags::DONTWAIT),
            false => Err(Errno::AGAIN),
        };
        match told {
            Err(Errno::AGAIN) => self.unsent.push(protocol::GO),
            told => return told.is_ok(),
        }
        true
    }
}

impl Inits {
    /// An init with this order: the one that waits, or else a new one.
    ///
    /// One that is killed just after it was told to go is reported as lost and not replaced: the program may have begun, and nothing runs
    /// twice.
    fn launch(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<Launched> {
        while let Some(Idle { init, control, orders }) = self.next_idle() {
            // The runtime knows of the socket before anything can come out of it.
            let orders = UnixStream::from_std(orders)?;
            if let Ok(unsent) = send(&orders, order, fds) {
                return Ok(Launched { init, control, orders, unsent });
            }
        }
        let Idle { init, control, orders } = Idle::new(&self.image)?;
        let orders = UnixStream::from_std(orders)?;
        let unsent = match send(&orders, order, fds) {
            // It is gone already, and has said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Vec::new(),
            sent => sent?,
        };
        Ok(Launched { init, control, orders, unsent })
    }

    /// Sees to it that enough wait, and that there are rules for what is hidden. Failing is no harm: the next call tries again.
    fn refill(&self, walls: Found) {
        while self.reserve() {
            let started = Idle::new(&self.image);
            let failed = started.is_err();
            let mut stock = self.stock();
            stock.coming -= 1;
            stock.idle.extend(started);
            if failed {
                break;
            }
        }
        if let Found::NothingYet(neighbourhood) = walls {
            self.walls.build(neighbourhood, &self.image);
        }
    }

    /// Whether one more is needed. Who is told so starts it.
    fn reserve(&self) -> bool {
        let mut stock = self.stock();
        let needed = stock.idle.len() + stock.coming < WAITING;
        stock.coming += usize::from(needed);
        needed
    }

    /// One that still waits; somebody may have killed the others meanwhile.
    fn next_idle(&self) -> Option<Idle> {
        let mut stock = self.stock();
        loop {
            let mut next = stock.idle.pop_front()?;
            if next.is_alive() {
                return Some(next);
            }
        }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Paths as the init reads them.
pub fn hidden_as_bytes(hidden: &[PathBuf]) -> Vec<Vec<u8>> {
    hidden.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect()
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
fn rehearse(image: &Image) -> io::Result<[Option<Report>; 2]> {
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
    let Idle { init, control, orders } = Idle::new(image)?;
    // One that is gone already has said why.
    let _ = send(&orders, &order, &[]);
    let refused = read_report(&orders)?;
    let reports = match refused {
        Some(_) => [refused, None],
        None => [read_report(&control)?, read_report(&control)?],
    };
    drop((control, orders));
    init.collect_blocking();
    Ok(reports)
}

/// The next report, or nothing if there is none to come.
fn read_report(mut socket: &std::os::unix::net::UnixStream) -> io::Result<Option<Report>> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut report = [0; REPORT_LENGTH];
    Ok(socket.read_exact(&mut report).ok().and_then(|()| Report::decode(&report)))
}

/// How many inits wait.
const WAITING: usize = 2;

/// How many pieces the live stream holds for its reader.
const LIVE_CHUNKS: usize = 64;
