//! Runs skills: compiled code in, an answer or the reason why there is none out.
//!
//! Guarantees: each call runs in a store of its own. It begins where it is asked for, for one slice at the most and with no other beside it; what is
//! not over then goes on on threads of the engine's own, at a lower priority than the daemon's. A future that is dropped stops its skill
//! within a tick. Whatever a skill does is an error of its call alone.
//! Does not: compile. [`compile`](crate::compile) does, elsewhere and before.

use std::{
    future::{Future, poll_fn},
    io,
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use palyra_package::{Grants, Metering, SkillLimits};
use palyra_types::visible::visible;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
};

pub use crate::loading::LoadedSkill;
use crate::{
    artifact::AuthenticArtifact,
    configuration,
    host::SkillHost,
    limiter::SharedMemory,
    outcome::{SkillFailure, SkillRun},
    pools::Pools,
    recording::{Recorder, Recording, Replay},
    running::{self, Given},
    state::{Answers, Live},
    task::Task,
    ticker::Ticker,
};

/// How an engine is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Threads that skills run on.
    pub threads: usize,
    /// Calls that run at the same time in one trust domain, at least 4. A call of a skill with several memories counts as several.
    pub concurrent_calls: u32,
    /// How often code that computes is looked at. At most 10 ms.
    pub tick: Duration,
    /// The largest memory of any skill, whatever its limits say. At most 4 GiB.
    pub most_memory_bytes: u64,
    /// The memory of all calls together.
    pub all_memory_bytes: u64,
    /// The largest table of any skill, whatever its limits say.
    pub most_table_entries: u32,
    /// Pools, each for a trust domain and a way of metering, that are kept.
    pub most_pools: usize,
}

impl Default for EngineOptions {
    /// As many threads as there are cores, 128 calls for each domain, 2 ms, 1 GiB for one and 4 GiB for all, 100 000 entries, 32 pools.
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism().map_or(1, NonZero::get),
            concurrent_calls: 128,
            tick: Duration::from_millis(2),
            most_memory_bytes: 1 << 30,
            all_memory_bytes: 4 << 30,
            most_table_entries: 100_000,
            most_pools: 32,
        }
    }
}

/// Why a skill cannot be made ready.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There are no threads to be had.
    #[error("there are no threads for skills: {0}")]
    Threads(#[from] io::Error),
    /// There is no room for a pool.
    #[error("there is no room for skills to run in: {}", visible(.detail))]
    NoPool {
        /// Why.
        detail: String,
    },
    /// All pools are in use.
    #[error("skills of more than {limit} trust domains are in use at once")]
    TooManyDomains {
        /// How many can be.
        limit: usize,
    },
    /// Wasmtime does not take the artifact.
    #[error("the compiled skill does not load: {}", visible(.detail))]
    Unloadable {
        /// Why.
        detail: String,
    },
    /// It is made of too much.
    #[error("the skill is made of more than a skill may be: {}", visible(.detail))]
    TooManyInstances {
        /// Of what.
        detail: String,
    },
    /// It imports what no skill can have.
    #[error("the skill imports something that there is not: {}", visible(.detail))]
    UnknownImport {
        /// What.
        detail: String,
    },
    /// It exports no world.
    #[error("the skill exports neither `run` of a known world nor `wasi:cli/run`")]
    NoEntry,
}

impl EngineError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Threads(_) => "raise the limit of threads",
            Self::NoPool { .. } => {
                "raise the limit of addresses (`ulimit -v`), or lower the number of concurrent calls"
            }
            Self::TooManyDomains { .. } => "wait until skills of other publishers are done",
            Self::Unloadable { .. } => "install the skill again, which compiles it",
            Self::TooManyInstances { .. } => "build the skill of fewer modules",
            Self::UnknownImport { .. } | Self::NoEntry => "build the skill for the world `palyra:skill`",
        }
    }
}

/// Runs skills. A clone is the same engine.
#[derive(Clone)]
pub struct SkillEngine {
    inner: Arc<Inner>,
}

struct Inner {
    options: EngineOptions,
    pools: Pools,
    shared: Arc<Shared>,
    threads: Threads,
    /// Calls that are under way.
    under_way: AtomicUsize,
    /// The turn of a call to run where it was asked for.
    visiting: Semaphore,
}

/// What every call that runs looks at.
pub(crate) struct Shared {
    pub(crate) ticker: Ticker,
    /// Calls that compute for long take turns on these.
    pub(crate) turns: Semaphore,
    pub(crate) tick: Duration,
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) most_memory_bytes: u64,
    pub(crate) most_table_entries: u32,
}

/// One call of a skill.
pub struct SkillCall {
    /// The skill.
    pub skill: Arc<LoadedSkill>,
    /// Its id, which a command has as the name of its program.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The input, as JSON text.
    pub input: String,
    /// What it may use.
    pub grants: Arc<Grants>,
    /// How much it may use. How work is counted was settled when the skill was compiled.
    pub limits: SkillLimits,
    /// Who answers it.
    pub host: Arc<dyn SkillHost>,
    /// Whether its questions are to be written down, and how many bytes of them at the most.
    pub record: Option<u64>,
}

/// One call of a skill that is run again.
pub struct ReplayCall {
    /// The skill.
    pub skill: Arc<LoadedSkill>,
    /// Its id.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The input, as JSON text.
    pub input: String,
    /// What it might use then.
    pub grants: Arc<Grants>,
    /// How much it may use.
    pub limits: SkillLimits,
}

impl SkillEngine {
    /// An engine with its threads and its clock, and no pools yet.
    ///
    /// # Errors
    /// When there are no threads to be had.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let tick = options.tick.clamp(SHORTEST_TICK, LONGEST_TICK);
        let threads = options.threads.max(1);
        let shared = Arc::new(Shared {
            ticker: Ticker::start(tick)?,
            turns: Semaphore::new(threads.saturating_sub(1).max(1)),
            tick,
            memory: Arc::new(SharedMemory::new(options.all_memory_bytes)),
            most_memory_bytes: options.most_memory_bytes,
            most_table_entries: options.most_table_entries,
        });
        let threads = Threads::start(threads)?;
        Ok(Self {
            inner: Arc::new(Inner {
                options,
                pools: Pools::new(),
                shared,
                threads,
                under_way: AtomicUsize::new(0),
                visiting: Semaphore::new(1),
            }),
        })
    }

    /// Wasmtime's version and everything in the configuration that changes code: part of an artifact's key.
    #[must_use]
    pub fn fingerprint(metering: Metering) -> String {
        configuration::fingerprint(metering).to_owned()
    }

    /// Loads compiled code into the pool of a trust domain. Only what the artifact store has authenticated can be loaded.
    ///
    /// # Errors
    /// When the skill imports or exports something that is not known, or there is no room.
    #[expect(clippy::needless_pass_by_value, reason = "an artifact is loaded once")]
    pub fn load(&self, artifact: AuthenticArtifact, domain: &str) -> Result<Arc<LoadedSkill>, EngineError> {
        let Inner { options, pools, shared, .. } = &*self.inner;
        let pool = pools.of(domain, artifact.metering(), options, &shared.ticker)?;
        Ok(Arc::new(LoadedSkill::new(&artifact, pool)?))
    }

    /// Runs a call. Dropping the future stops the skill.
    ///
    /// What the host does that takes time runs on the runtime of whoever calls this, if there is one: a skill's thread has a small stack, a
    /// low priority and no sockets.
    pub fn call(&self, call: SkillCall) -> impl Future<Output = SkillRun> + Send + 'static + use<> {
        let SkillCall { skill, id, tool, input, grants, limits, host, record } = call;
        let waited = Arc::clone(&host);
        let runtime = Handle::try_current().unwrap_or_else(|_| self.inner.threads.handle.clone());
        let answers = Answers::Live(Live { host, recorder: record.map(Recorder::new), runtime });
        self.run(Given { skill, id, tool, input, grants, limits, answers, waited: Some(waited) })
    }

    /// Runs a call again, with the answers that were recorded and nothing else.
    pub fn replay(
        &self,
        call: ReplayCall,
        recording: Recording,
    ) -> impl Future<Output = SkillRun> + Send + 'static + use<> {
        let ReplayCall { skill, id, tool, input, grants, limits } = call;
        let answers = Answers::Recorded(Replay::new(recording));
        self.run(Given { skill, id, tool, input, grants, limits, answers, waited: None })
    }

    fn run(&self, given: Given) -> impl Future<Output = SkillRun> + Send + 'static + use<> {
        let inner = Arc::clone(&self.inner);
        async move {
            let _under_way = UnderWay::begin(&inner.under_way);
            let (skill, memory_bytes) = (Arc::clone(&given.skill), given.limits.memory_bytes);
            let metering = skill.pool.metering;
            let failed = || {
                let detail = "the engine failed while it ran".to_owned();
                running::unused(metering, SkillFailure::Trapped { detail })
            };
            let mut running = Box::pin(running::run(given, Arc::clone(&inner.shared)));
            match inner.first_slice(&skill, memory_bytes, running.as_mut()).await {
                Slice::Over(run) => return run,
                Slice::Failed => return failed(),
                Slice::GoesOn => {}
            }
            match Task::spawn(&inner.threads.handle, running).await {
                Ok(run) => run,
                Err(error) if error.is_panic() => failed(),
                Err(_) => running::unused(metering, SkillFailure::Stopped),
            }
        }
    }
}

/// A call that is under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn begin(calls: &'a AtomicUsize) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What became of a call where it was asked for.
enum Slice {
    Over(SkillRun),
    GoesOn,
    Failed,
}

impl Inner {
    /// Runs a call where it was asked for, for one slice at the most. Most calls are over by then, and waking a thread for them would take longer
    /// than they do.
    ///
    /// SECURITY: a slice is a few milliseconds of a thread that others wait for. One call at a time takes it, and none while several are under way; a
    /// skill whose calls are not over by then is not given it again for a while. One instruction can fill or copy a whole memory, and nothing interrupts
    /// that, so a skill that may have a large one is never given it.
    async fn first_slice(
        &self,
        skill: &LoadedSkill,
        memory_bytes: u64,
        mut running: Pin<&mut impl Future<Output = SkillRun>>,
    ) -> Slice {
        let is_busy = self.under_way.load(Ordering::Relaxed) > FEW;
        if is_busy || memory_bytes > SMALL_MEMORY || Handle::try_current().is_err() || !skill.briefness.is_brief() {
            return Slice::GoesOn;
        }
        let Ok(_alone) = self.visiting.try_acquire() else { return Slice::GoesOn };
        let begun = Instant::now();
        let polled = poll_fn(|context| Poll::Ready(catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)))));
        match polled.await {
            Ok(Poll::Ready(run)) => {
                if begun.elapsed() > self.shared.tick {
                    skill.briefness.was_long();
                }
                Slice::Over(run)
            }
            Ok(Poll::Pending) => {
                // Whoever waits for the host is not long.
                if begun.elapsed() > self.shared.tick / 4 {
                    skill.briefness.was_long();
                }
                Slice::GoesOn
            }
            Err(_) => Slice::Failed,
        }
    }
}

impl std::fmt::Debug for SkillEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkillEngine").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

/// The threads that skills run on.
struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Threads {
    fn start(threads: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("skill")
            .on_thread_start(yield_to_the_daemon)
            // Calls that begin come from outside. They are looked for after every slice, not after every sixty.
            .global_queue_interval(1)
            .enable_time()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // The last engine may go in the middle of a future, where waiting for threads is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of the calling thread, so that skills never starve the daemon.
fn yield_to_the_daemon() {
    // On Linux a priority belongs to a thread. Elsewhere it belongs to the whole process, which must keep its own.
    #[cfg(target_os = "linux")]
    // A thread that keeps its priority runs skills as well.
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;
/// A skill with more memory does not begin where it is asked for.
const SMALL_MEMORY: u64 = 64 << 20;
/// As long as no more calls than these are under way, they begin where they are asked for.
const FEW: usize = 2;
const SHORTEST_TICK: Duration = Duration::from_millis(1);
const LONGEST_TICK: Duration = Duration::from_millis(10);
