//! Starts plans: in tier B under limits, in tier C inside an enclosure.
//!
//! Guarantees: each plan is checked every time, and runs as it says or not at all; the layers in an outcome are those that the
//! kernel accepted. Refuses: what a tier cannot enforce, such as strict egress without an enclosure; a plan never runs in a weaker tier.
//! Does not: isolate in tier B. [`TIER_B_DOES_NOT`] is the sentence for it.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use palyra_types::sandbox::EgressEnforcementMode;
use rustix::{io::Errno, net::SendFlags};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
};
use zeroize::Zeroizing;

use crate::{
    egress::{
        Connector, Doorkeeper, EgressLimits, EgressServer, Forbidden, HostRule, HostRules, Interception, Interceptor,
        Observer, RunAuthority, SystemResolver, fetch::Trust,
    },
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    executable::{Executable, ProgramFiles},
    guard::{self, Checked, Opened},
    image::Image,
    init::Init,
    inits::Inits,
    outcome::{Ended, Layer, Outcome},
    plan::{Containment, EgressHost, Limits, ProcessPlan},
    private::{self, PrivateFile, PrivateVariable, Sealed},
    protocol::{self, Inside, MAX_ORDER, Named, Order, Unchanged},
    running::{Aftermath, RunningProcess, Stopper, off_the_runtime},
    stamp::status_of,
    stream::{OutputChunk, Stream},
    supervision::{Enclosed, Supervision, Walls},
    tier_c::{
        TierC,
        enclosure::Sockets,
        profile::{Identity, Profile},
        stock::Place,
    },
    walls::Found,
    wiring::{Streams, Wired},
};

/// The executor's name in attestations of tier B.
pub const TIER_B_EXECUTOR: &str = "sandbox_tier_b_rlimits";

/// What tier B does not do, for attestations and for people.
pub const TIER_B_DOES_NOT: &str = "no file system or network isolation: the process may read, write and connect to whatever the \
                                   daemon's own user may, except for the content of the hidden directories where Landlock hides \
                                   it; memory is limited for each process, not for the tree; declared hosts are checked, not enforced";

/// What tier C does not do when the network is the machine's.
pub const TIER_C_DOES_NOT: &str = "the network is the machine's: the process may connect to whatever the daemon's own user may; \
                                   declared hosts are checked, not enforced";

/// Runs plans.
#[derive(Debug)]
pub struct SandboxProcessRunner {
    image: Arc<Image>,
    inits: Arc<Inits>,
    allowed_egress_hosts: HostRules,
    layers: Vec<Layer>,
    tier_c: Result<Arc<TierC>, Error>,
    net: Arc<Connector>,
}

/// What belongs to one run and not to the plan.
#[derive(Default)]
pub struct RunInput {
    /// What its standard streams lead to.
    pub streams: Streams,
    /// What is left of the run's budget. It counts where it is shorter than the plan's wall clock.
    pub deadline: Option<Duration>,
    /// What the files of the program must be.
    pub program: ProgramFiles,
    /// The working directory, from whoever opened it when the plan was made. Without it, it is opened beneath the workspace's path.
    pub directory: Option<OwnedFd>,
    /// The workspace, from whoever opened it. Without it, it is opened by its path.
    pub workspace: Option<OwnedFd>,
    /// The program, from whoever opened it by the plan's path when the plan was made. Without it, it is opened.
    pub executable: Option<Executable>,
    /// Whose call it is. An enclosure that was started ahead of need serves nobody else's.
    pub principal: String,
    /// Who decides about its connections, with strict egress. Without anybody there are none.
    pub door: Option<Door>,
    /// Who looks into its connections. The plan has to be one for strict egress, in an enclosure that intercepts.
    pub interceptor: Option<InterceptedBy>,
    /// Variables besides the plan's. They count where the plan has others of their names.
    pub private_variables: Vec<PrivateVariable>,
    /// Files that are in [`SECRET_FILES`](crate::SECRET_FILES) of its enclosure, and nowhere else.
    pub private_files: Vec<PrivateFile>,
}

impl std::fmt::Debug for RunInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: what it holds does not belong in logs.
        f.debug_struct("RunInput").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// Who looks into the connections of a run.
#[derive(Clone)]
pub struct InterceptedBy {
    /// Judges and rewrites what passes.
    pub interceptor: Arc<dyn Interceptor>,
    /// Who is trusted to say which host is which.
    pub trust: Trust,
}

impl std::fmt::Debug for InterceptedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InterceptedBy")
    }
}

/// Who decides about the connections of a run.
#[derive(Clone)]
pub struct Door(pub Arc<dyn Doorkeeper>);

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Door")
    }
}

impl SandboxProcessRunner {
    /// A runner of tier B that lets plans declare these hosts. It rehearses once, to know what this machine enforces.
    ///
    /// # Errors
    /// When no process can be supervised here.
    pub fn new(allowed_egress_hosts: impl IntoIterator<Item = HostRule>) -> Result<Self, Error> {
        let unavailable =
            |error: io::Error| Error::new(Kind::Unavailable, format!("no supervisor can be started: {error}"));
        let image = Arc::new(Image::new().map_err(unavailable)?);
        let (inits, layers) = Inits::new(Arc::clone(&image))?;
        let allowed_egress_hosts = HostRules::new(allowed_egress_hosts.into_iter().collect());
        let tier_c = Err(Error::new(Kind::Unavailable, "tier c is not set up"));
        let net = Arc::new(Connector::new(Arc::new(SystemResolver::default()), Forbidden(Vec::new())));
        Ok(Self { image, inits: Arc::new(inits), allowed_egress_hosts, layers, tier_c, net })
    }

    /// The same runner, whose enclosures reach the world this way.
    #[must_use]
    pub fn with_connector(self, net: Arc<Connector>) -> Self {
        Self { net, ..self }
    }

    /// The same runner, with tier C as far as this machine has what it takes.
    #[must_use]
    pub fn with_tier_c(self, options: &crate::tier_c::TierCOptions) -> Self {
        let tier_c = TierC::new(options, Arc::clone(&self.image)).map(Arc::new);
        Self { tier_c, ..self }
    }

    /// The same runner, which lets plans declare other hosts. What is prepared and known of this machine is shared.
    #[must_use]
    pub fn with_hosts(&self, allowed_egress_hosts: impl IntoIterator<Item = HostRule>) -> Self {
        Self {
            image: Arc::clone(&self.image),
            inits: Arc::clone(&self.inits),
            allowed_egress_hosts: HostRules::new(allowed_egress_hosts.into_iter().collect()),
            layers: self.layers.clone(),
            tier_c: self.tier_c.clone(),
            net: Arc::clone(&self.net),
        }
    }

    /// The layers that tier B has on this machine, with something to hide.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Tier C, or why it is not to be had.
    ///
    /// # Errors
    /// When it is not to be had.
    pub const fn tier_c(&self) -> Result<&Arc<TierC>, &Error> {
        self.tier_c.as_ref()
    }

    /// Whether a plan would be started, as far as can be told without doing so. Starting it checks everything again. Whoever has opened the
    /// program already gives it along.
    ///
    /// # Errors
    /// When the plan would be refused.
    pub fn check(&self, plan: &ProcessPlan, executable: Option<&Executable>) -> Result<(), Error> {
        let opened = Opened { executable: executable.cloned(), directory: None };
        let checked = guard::check(plan, &self.allowed_egress_hosts, opened)?;
        self.check_enclosure(plan, &checked)
    }

    fn check_enclosure(&self, plan: &ProcessPlan, checked: &Checked) -> Result<(), Error> {
        match &plan.containment {
            Containment::None => Ok(()),
            Containment::Enclosure(enclosure) => {
                self.tier_c.as_ref().map_err(Clone::clone)?.check(plan, enclosure, &checked.executable)
            }
        }
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
        check_input(plan, &input)?;
        let opened = Opened { executable: input.executable, directory: input.directory };
        let checked = guard::check(plan, &self.allowed_egress_hosts, opened)?;
        self.check_enclosure(plan, &checked)?;
        let Checked { executable, directory, hidden, real } = checked;
        let (executable, unchanged) = confirm(executable, input.program).await?;
        let files: Arc<[PrivateFile]> = input.private_files.into();
        let source = self.source(plan, input.workspace, input.principal, !files.is_empty())?;
        let inside = match &source {
            Source::Tree(_) => None,
            Source::Enclosure(..) => Some(inside(&executable, &directory, &real)?),
        };
        let wall = Duration::from_millis(plan.limits.wall_ms);
        let shorter = input.deadline.filter(|&deadline| deadline < wall);
        let walls = match &source {
            Source::Tree(inits) => inits.walls().find(&hidden),
            Source::Enclosure(..) => Found::Nothing,
        };
        let order = Sealed(Order {
            args: executable.arguments(plan.argv0.as_deref().unwrap_or(plan.program.as_str()), &plan.args),
            hidden: hidden_as_bytes(&hidden),
            unchanged,
            inside,
            has_walls: matches!(walls, Found::Rules(_)),
            has_stdin: input.streams.have_input(),
            tells_holding: input.streams.are_connected(),
            env: private::environment(plan, &input.private_variables)?,
            ..order(plan, shorter.unwrap_or(wall))
        });
        check_size(&order)?;
        let (live, output) = mpsc::channel(LIVE_CHUNKS);
        let Wired { is_connected, streams, ends, stdin } =
            Wired::with(input.streams, plan.limits.output_bytes, live).map_err(failed)?;
        let given = Given { directory, ends, program: executable.into_binary(), stdin, walls, files };
        let mut launched = source.launch(&order, &given).await?;
        let (net, interceptor) = (Arc::clone(&self.net), input.interceptor);
        let limits = if is_connected { EgressLimits::for_long() } else { EgressLimits::default() };
        let egress = input.door.map(|door| Egress { door, net, interceptor, limits });
        let server = launched.serve(egress.as_ref())?;
        Ok(Prepared {
            source,
            launched,
            egress,
            server,
            declared: (plan.egress.mode == EgressEnforcementMode::Preflight)
                .then(|| (plan.egress.hosts.clone(), Arc::clone(&self.net))),
            order,
            given,
            is_connected,
            streams,
            output,
            limits: plan.limits,
            outside: self.outside(plan),
            wall: shorter.unwrap_or(wall),
            out_of_time: if shorter.is_some() { Ended::Deadline } else { Ended::WallClock },
        })
    }

    /// The paths that a plan gives to its program and that its enclosure does not hold.
    fn outside(&self, plan: &ProcessPlan) -> Vec<String> {
        match (&plan.containment, &self.tier_c) {
            (Containment::Enclosure(enclosure), Ok(tier_c)) => tier_c.outside(plan, enclosure),
            _ => Vec::new(),
        }
    }

    /// Where the process for a plan comes from.
    fn source(
        &self,
        plan: &ProcessPlan,
        workspace: Option<OwnedFd>,
        principal: String,
        has_secret_files: bool,
    ) -> Result<Source, Error> {
        if plan.containment.is_none() {
            return Ok(Source::Tree(Arc::clone(&self.inits)));
        }
        let tier_c = Arc::clone(self.tier_c.as_ref().map_err(Clone::clone)?);
        let workspace = match workspace {
            Some(workspace) => workspace,
            None => guard::open_workspace(plan)?,
        };
        let status = status_of(&workspace).map_err(|errno| failed(errno.into()))?;
        let identity = Identity::of(&status);
        let broken = || Error::new(Kind::SpawnFailed, "the plan has no enclosure");
        let profile = Profile::of(plan, &principal, identity).ok_or_else(broken)?;
        let profile = Profile { has_secret_files, ..profile };
        Ok(Source::Enclosure(tier_c, Arc::new(Place { profile, workspace })))
    }
}

/// The executor's name in attestations of a plan.
#[must_use]
pub const fn executor_of(plan: &ProcessPlan) -> &'static str {
    match plan.containment {
        Containment::None => TIER_B_EXECUTOR,
        Containment::Enclosure(_) => crate::tier_c::LINUX_BUBBLEWRAP,
    }
}

/// What the tier of a plan does not enforce, if there is anything.
#[must_use]
pub const fn not_enforced_by(plan: &ProcessPlan) -> Option<&'static str> {
    match (&plan.containment, plan.egress.mode) {
        (Containment::None, _) => Some(TIER_B_DOES_NOT),
        (Containment::Enclosure(_), EgressEnforcementMode::Strict) => None,
        (Containment::Enclosure(_), EgressEnforcementMode::None | EgressEnforcementMode::Preflight) => {
            Some(TIER_C_DOES_NOT)
        }
    }
}

/// Where processes come from.
enum Source {
    /// From the inits that wait, without an enclosure.
    Tree(Arc<Inits>),
    /// From the enclosures of this place.
    Enclosure(Arc<TierC>, Arc<Place>),
}

impl Source {
    /// A process with this order: one that waits, or else a new one.
    async fn launch(&self, order: &Order, given: &Given) -> Result<Launched, Error> {
        match self {
            Self::Tree(inits) => inits.launch(order, &given.fds()).map_err(failed),
            Self::Enclosure(tier_c, place) => {
                let [stdout, stderr] = &given.ends;
                let mut fds = vec![stdout.as_fd(), stderr.as_fd()];
                fds.extend(given.stdin.as_ref().map(AsFd::as_fd));
                tier_c.launch(place, order, &fds, &given.files).await
            }
        }
    }

    /// Sees to it that enough wait.
    fn refill(&self, walls: Found) {
        match self {
            Self::Tree(inits) => inits.refill(walls),
            Self::Enclosure(tier_c, place) => tier_c.refill(place),
        }
    }
}

/// A plan of which everything is ready: a process waits for the word to become the program. Dropping this ends it, and leaves nothing.
#[must_use = "nothing runs before it is started"]
pub struct Prepared {
    source: Source,
    launched: Launched,
    egress: Option<Egress>,
    /// What serves its network, in which there is nobody yet.
    server: Option<EgressServer>,
    /// The hosts that were declared where nothing is enforced, and how to find them.
    declared: Option<(Vec<EgressHost>, Arc<Connector>)>,
    order: Sealed,
    given: Given,
    /// Whether somebody speaks with it.
    is_connected: bool,
    streams: [Stream; 2],
    output: mpsc::Receiver<OutputChunk>,
    limits: Limits,
    /// The paths that the program is given and that its enclosure does not hold.
    outside: Vec<String>,
    wall: Duration,
    out_of_time: Ended,
}

/// Who decides about connections, the way out, and who looks into them.
struct Egress {
    door: Door,
    net: Arc<Connector>,
    interceptor: Option<InterceptedBy>,
    limits: EgressLimits,
}

/// What goes along with an order.
struct Given {
    directory: OwnedFd,
    /// The ends into which the process writes.
    ends: [OwnedFd; 2],
    program: Arc<OwnedFd>,
    walls: Found,
    stdin: Option<OwnedFd>,
    /// The secrets that are files.
    files: Arc<[PrivateFile]>,
}

impl Given {
    /// In the order in which the init takes them, outside of an enclosure.
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
        let Self { source, mut launched, egress, mut server, declared, order, given, streams, output, .. } = self;
        let Self { limits, outside, wall, out_of_time, is_connected, .. } = self;
        let (stop, stopped) = watch::channel(None);
        // From here on every step is one that the program waits for.
        if !launched.go() {
            // Somebody killed it while it waited. Without the word nothing can have begun, so another one may.
            launched = source.launch(&order, &given).await?;
            server = launched.serve(egress.as_ref())?;
            launched.go();
        }
        let Launched { init, control, orders, unsent, enclosed, .. } = launched;
        let [stdout, stderr] = streams;
        let Given { ends: [stdout_end, stderr_end], walls, .. } = given;
        // Whoever speaks with it hears from the kernel when the program has closed its ends, or is gone.
        let ends = if is_connected { vec![stderr_end] } else { vec![stdout_end, stderr_end] };
        let observer = declared.map(|(hosts, net)| Observer::start(init.id(), hosts, net));
        let around = Walls { enclosed, limits, outside, server, observer };
        let supervision =
            Supervision { init, control, stdout, stderr, ends, stop: stopped, wall, out_of_time, walls: around };
        let begun = supervision.begin(orders, unsent).await;
        // One that runs for long is rarely followed by another of its kind.
        let aftermath = if is_connected { Aftermath::none() } else { Aftermath::new(move || source.refill(walls)) };
        let begun = begun?;
        let layers = begun.layers();
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
        Ok(RunningProcess { output, outcome, layers, stop: Stopper(Arc::new(stop)), aftermath })
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

/// Program and working directory, as they are found in an enclosure: at the same paths, and the same ones.
fn inside(executable: &Executable, directory: &OwnedFd, real: &std::path::Path) -> Result<Inside, Error> {
    let (path, stamp) = executable.binary();
    let program = Named { path: path.as_str().as_bytes().to_vec(), device: stamp.device, inode: stamp.inode };
    let stamp = protocol::Stamp::from(&status_of(directory).map_err(|errno| failed(errno.into()))?);
    let directory = Named { path: real.as_os_str().as_bytes().to_vec(), device: stamp.device, inode: stamp.inode };
    Ok(Inside { program, directory })
}

/// An init that has its order, with what connects to it.
pub struct Launched {
    /// The process.
    pub init: Init,
    /// Where it reports, and is stopped.
    pub control: std::os::unix::net::UnixStream,
    /// Where the word to go comes from.
    pub orders: UnixStream,
    /// What did not fit into the socket yet.
    pub unsent: Zeroizing<Vec<u8>>,
    /// What is around it.
    pub enclosed: Option<Enclosed>,
    /// What leads out of its network.
    pub sockets: Option<Sockets>,
    /// Whom its programs trust, besides those that all trust.
    pub authority: Option<Arc<RunAuthority>>,
}

impl Launched {
    /// Serves the network, if there is somebody to decide about it. Otherwise it leads nowhere.
    fn serve(&mut self, egress: Option<&Egress>) -> Result<Option<EgressServer>, Error> {
        let (Some(sockets), Some(egress)) = (self.sockets.take(), egress) else { return Ok(None) };
        let Egress { door: Door(keeper), net, interceptor, limits } = egress;
        let interception = match (interceptor.clone(), self.authority.clone()) {
            (None, _) => None,
            (Some(InterceptedBy { interceptor, trust }), Some(authority)) => {
                Some(Interception { interceptor, trust, authority })
            }
            // SECURITY: without an authority nothing could be looked into, and placeholders would go out as they are.
            (Some(_), None) => return Err(Error::new(Kind::SpawnFailed, "the enclosure has no authority of its own")),
        };
        let (keeper, net) = (Arc::clone(keeper), Arc::clone(net));
        let server = EgressServer::start(sockets.into(), keeper, net, limits.clone(), interception);
        server.map(Some).map_err(failed)
    }

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

/// Paths as the init reads them.
pub fn hidden_as_bytes(hidden: &[PathBuf]) -> Vec<Vec<u8>> {
    hidden.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect()
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
        wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        cpu_seconds,
        address_space,
        processes,
        file_size,
        open_files,
        ..Order::default()
    }
}

/// Whether the tier of a plan can do what is asked of it beside the plan.
fn check_input(plan: &ProcessPlan, input: &RunInput) -> Result<(), Error> {
    let is_strict = plan.egress.mode == EgressEnforcementMode::Strict;
    let intercepts = match &plan.containment {
        Containment::None => false,
        Containment::Enclosure(enclosure) => enclosure.intercepts && is_strict,
    };
    if input.interceptor.is_some() && !intercepts {
        let what = "connections can only be looked into with strict egress, in an enclosure that intercepts";
        return Err(Error::new(Kind::Unavailable, what));
    }
    if input.streams.are_connected() && plan.containment.is_none() {
        return Err(Error::new(
            Kind::Unavailable,
            "only a program in an enclosure is spoken with, which tier b has not",
        ));
    }
    if !input.private_files.is_empty() && plan.containment.is_none() {
        return Err(Error::new(Kind::Unavailable, "secrets in files need an enclosure, which tier b has not"));
    }
    private::check_files(&input.private_files)
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

/// How many pieces the live stream holds for its reader.
const LIVE_CHUNKS: usize = 64;
