//! The daemon's life: starts, serves, reloads, drains, stops.
//!
//! Guarantees: nothing is served before what an earlier daemon left is in order; a configuration, a policy or a state directory that is not in
//! order, and a port that is taken, keep it from starting; when it stops, calls that run get some time, and everything that began is attested.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io::{IsTerminal, stderr},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use palyra_access::{AccessRegistry, DeviceState, FileStore, OpenError as OpenRegistryError, State, StoreError};
use palyra_gate::{
    Connector, Forbidden, Gate, OpenError, Parts, PresencePin, Refusal, Registry, Reports, ServiceOperation,
};
use palyra_journal::{
    CheckpointSink, FileSink, JournalStore, Pace, Publisher, ReadError, SinkError, SqliteJournal, Trouble, WebhookSink,
    state::CallState,
};
use palyra_notebook::TranscriptError;
use palyra_policy::{Engine, LoadError};
use palyra_provider::Unusable;
use palyra_schedule::ScheduleError;
use palyra_types::{Clock, Entropy, Timestamp, entropy::NoEntropy};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use serde_json::json;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use crate::{
    app::{App, InForce, Knowledge, OpenGate},
    attempts::{self, Attempts},
    certifier::{AuthorityFiles, Certifier, CertifierError},
    compat::upstream::ProvidersNow,
    config::{Config, environment},
    console::Console,
    contact::{Told, serving},
    edge::{Listener, Names, RequestIds},
    extract::{PACKAGES_AT_ONCE, UPLOADS_AT_ONCE},
    figures::Figures,
    governing,
    hub::Hub,
    installation::{Files, Installation, InstallationError},
    keeping::{Keeping, KeepingError},
    keys::KeysUnderWay,
    listen::{Bound, Stop, places_within},
    mcp::{self, Mcp},
    pairings::Pairings,
    places::Places,
    policies,
    renewals::Renewals,
    routes,
    runs::OwnRuns,
    scheduling::{self, schedule::Schedule, scheduler},
    skills,
    standing::Standing,
    streams::Readers,
    transcripts::{self, Transcripts},
    upstream::Upstreams,
    vault::{VaultOpener, VaultWord},
    world::World,
};

/// A daemon that serves.
pub struct Daemon {
    app: Arc<App>,
    journal: Arc<SqliteJournal>,
    open_gate: OpenGate,
    stop: watch::Sender<Stop>,
    listeners: Vec<JoinHandle<()>>,
    signals: Signals,
    drain: Duration,
    told: Option<Told>,
    /// Whether it was started at a terminal.
    at_terminal: bool,
}

/// What somebody outside can ask for.
struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Daemon {
    /// Starts a daemon on a state directory. It serves when this returns. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When something is not in order.
    pub async fn start(installation: &Installation, world: World) -> Result<Self, StartError> {
        let World { clock, entropy, resolver } = world;
        let descriptors = harden();
        // Heard before anybody can know that it serves.
        let signals = Signals {
            reload: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        let config = installation.config().clone();
        let drain = config.listen.drain();
        let (control, local) = bind(&config).await.map_err(|error| match serving(installation.home()) {
            Some(pid) => StartError::Running(pid),
            None => error,
        })?;
        let access = open_registry(installation, &config, (&clock, &entropy)).await?;
        // It is the only daemon here, so what is installed is its to read.
        let skills = skills::begin(installation.home(), &config.skills, (&clock, &entropy));
        let certifier = Arc::new(certifier(installation, &config, (&clock, &entropy))?);
        let standing = Standing { access: access.clone(), certifier: Arc::clone(&certifier) };
        let directory = installation.journal();
        let journal = Arc::new(SqliteJournal::open_keeping(
            &directory,
            config.journal.keeping(),
            Arc::clone(&clock),
            Arc::clone(&entropy),
        )?);
        let store: Arc<dyn JournalStore> = Arc::<SqliteJournal>::clone(&journal);
        let engine = Arc::new(Engine::new(&config.policies(&installation.home().policies())?)?);
        let listeners = Forbidden(vec![config.listen.control, config.listen.local]);
        // SECURITY: what runs inside must not take the descriptors that people and agents need to reach the daemon.
        let room = descriptors.map_or(usize::MAX, |most| usize::try_from(most / 4).unwrap_or(usize::MAX));
        let net = Arc::new(Connector::new(resolver, listeners).with_room(room));
        let word = VaultWord::default();
        let open_gate = OpenGate::default();
        let keeping = Keeping::open(installation.home(), &clock, &entropy)?;
        let (schedule, unfinished) = Schedule::open(installation.home(), open_gate.clone(), (&clock, &entropy))?;
        let schedule = Arc::new(schedule);
        let mut services = keeping.operations();
        services.extend(scheduling::tools::operations(Arc::clone(&schedule), access.clone(), open_gate.clone()));
        let (vault, gate) = (word.clone(), open_gate.clone());
        let deciding = Made { engine, store: &store, standing, vault, gate, services };
        let gate = open(installation, &config, deciding, (&clock, &entropy, net)).await?;
        open_gate.set(Some(gate.clone()));
        let recovered = gate.recover().await?;
        let policy_set = gate.engine().snapshot().digest();
        let version = env!("CARGO_PKG_VERSION");
        let (interrupted, withdrawn, resumed) = (recovered.interrupted, recovered.withdrawn, recovered.resumed);
        let told = json!({ "version": version, "policy_set": policy_set, "pid": std::process::id(),
            "recovered": { "interrupted": interrupted, "withdrawn": withdrawn, "resumed": resumed },
            "access": let_in(&access, clock.now()) });
        gate.daemon_started(&told).await?;
        tracing::info!(version, %policy_set, interrupted, withdrawn, resumed, "what was left is in order");
        let made_of = (Arc::clone(&clock), Arc::clone(&entropy));
        let vault = Arc::new(VaultOpener::new(installation.home(), config.vault.clone(), made_of, word));
        vault.begin(&gate).await;
        skills::open(&gate, skills).await;
        let figures = Figures::new();
        let kept = installation.home().path().join(transcripts::DIRECTORY);
        let home = installation.home().path();
        let upstreams = Upstreams::begin(gate.clone(), access.clone(), home, config.mcp.clone());
        let app = Arc::new(App {
            upstreams,
            vault,
            hub: Hub::open(Arc::clone(&store)).await?,
            publisher: publisher(&config, &store, &directory, &clock)?,
            journal: directory,
            home: installation.home().clone(),
            access,
            certifier,
            pairings: Pairings::default(),
            renewals: Renewals::default(),
            attempts: Attempts::default(),
            reachable: config.listen.reachable(),
            console: Console::new(Arc::clone(&clock), Arc::clone(&entropy)),
            transcripts: Transcripts::open(&kept, &clock, figures.unkept.clone())?,
            figures,
            own_runs: OwnRuns::default(),
            keys: KeysUnderWay::default(),
            request_ids: RequestIds::new(entropy.as_ref())?,
            control_names: Names::of(Listener::Control, config.listen.control, &config.listen.names),
            local_names: Names::of(Listener::Local, config.listen.local, &[]),
            local: config.listen.local,
            policies: Mutex::new(InForce { since: clock.now(), refused: None }),
            reloading: tokio::sync::Mutex::default(),
            mcp: Mcp::default(),
            providers: ProvidersNow::of(&config.provider, &clock, &entropy)?,
            keeping,
            schedule,
            uploads: Arc::new(Semaphore::new(UPLOADS_AT_ONCE)),
            packages: Arc::new(Semaphore::new(PACKAGES_AT_ONCE)),
            readers: Readers::default(),
            stopping: watch::channel(false).0,
            config: Mutex::new(Arc::new(config)),
            store,
            gate,
            clock,
            entropy,
        });
        // What an earlier daemon was killed over: credentials that were taken away, and what was begun with them.
        governing::look_again(&app).await;
        let router = routes::router(Arc::clone(&app));
        let (stop, stopping) = watch::channel(Stop::No);
        let places = || Places::new(places_within(descriptors));
        let served = |router| (Arc::clone(&app), router);
        let control = control.serve(served(router.clone()), places(), stopping.clone());
        let listeners = vec![control, local.serve(served(router), places(), stopping)];
        tokio::spawn(maintain(Arc::clone(&app)));
        tokio::spawn(attempts::record(Arc::clone(&app)));
        tokio::spawn(scheduler::run(Arc::clone(&app), unfinished));
        tokio::spawn(mcp::look_after(Arc::clone(&app)));
        let told = Told::tell(&app.home, installation.control(), installation.local());
        let told = told.inspect_err(|error| {
            tracing::warn!(%error, "commands look for this daemon where the configuration says");
        });
        let at_terminal = stderr().is_terminal();
        Ok(Self { app, journal, open_gate, stop, listeners, signals, drain, told: told.ok(), at_terminal })
    }

    /// What handlers see of it.
    #[must_use]
    pub const fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until somebody asks it to stop, reloads when it is asked to, and stops in good order.
    pub async fn run(mut self) {
        loop {
            let Signals { reload, terminate, interrupt } = &mut self.signals;
            tokio::select! {
                _ = reload.recv() => {
                    // The same signal says that the terminal is gone that it was started at, and then it goes as well.
                    if self.at_terminal && !stderr().is_terminal() {
                        break;
                    }
                    // Told where everybody looks; what was in force stays if it is refused.
                    let _ = policies::reload(&self.app, "signal").await;
                }
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        tracing::info!("stopping; once more ends what runs at once");
        self.stop().await;
    }

    /// Stops: takes nothing new, lets what runs go on for a while or until it is told again, ends it, and closes the journal.
    pub async fn stop(self) {
        let Self { app, journal, open_gate, stop, listeners, mut signals, drain, told, .. } = self;
        app.stopping.send_replace(true);
        tokio::select! {
            () = nothing_runs(&app) => {}
            () = tokio::time::sleep(drain) => {}
            _ = signals.terminate.recv() => {}
            _ = signals.interrupt.recv() => {}
        }
        let left = app.gate.stop(STOP_WITHIN).await;
        app.upstreams.stop();
        stop.send_replace(Stop::Gently);
        let _ = tokio::time::timeout(ANSWER_WITHIN, futures_util::future::join_all(listeners)).await;
        stop.send_replace(Stop::AtOnce);
        if let Err(error) = app.access.flush_use().await {
            tracing::warn!(%error, "when credentials were used last could not be kept");
        }
        app.transcripts.settle().await;
        if let Err(error) = app.gate.daemon_stopped(&json!({ "left": left })).await {
            tracing::warn!(%error, "the end of the daemon could not be recorded");
        }
        tracing::info!(left, "stopped");
        open_gate.set(None);
        drop((app, journal, told));
    }
}

/// Waits until no call runs.
async fn nothing_runs(app: &App) {
    while app.store.calls_in(CallState::Started).await.is_ok_and(|calls| !calls.is_empty()) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Seals, drops and erases what is due, every now and then.
async fn maintain(app: Arc<App>) {
    let mut stopping = app.stopping.subscribe();
    loop {
        tokio::select! {
            () = tokio::time::sleep(MAINTAIN_EVERY) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        if let Err(trouble) = app.store.maintain(app.clock.now()).await {
            tracing::warn!(%trouble, "the journal could not be maintained");
        }
        app.transcripts.maintain(app.config_now().transcripts, &app.gate).await;
        if let Err(error) = app.certifier.renew().await {
            tracing::warn!(%error, "the daemon's certificate could not be made anew");
        }
        if let Err(error) = app.access.flush_use().await {
            tracing::warn!(%error, "when credentials were used last could not be kept");
        }
    }
}

/// Keeps the memory of the daemon, which holds credentials and values of secrets, from others of the same user and out of cores, and makes
/// room for many connections. Returns how many descriptors there may be.
fn harden() -> Option<u64> {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other programs of this user could read the daemon's memory");
    }
    // One byte and not none, which would still hand a core to a program of root where the machine is set up so. What runs inside is held to
    // that for good, by its own limits.
    let maximum = getrlimit(Resource::Core).maximum;
    let core = Rlimit { current: Some(maximum.map_or(1, |most| most.min(1))), maximum };
    if let Err(error) = setrlimit(Resource::Core, core) {
        tracing::warn!(%error, "a core of the daemon could hold values of secrets");
    }
    let files = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum }) {
        Ok(()) => files.maximum,
        Err(_) => files.current,
    }
}

/// Takes both ports before anything else, so that two daemons never work on one state.
async fn bind(config: &Config) -> Result<(Bound, Bound), StartError> {
    let taken =
        |address: SocketAddr| move |error: std::io::Error| StartError::Port { address, error: error.to_string() };
    let (control, local) = (config.listen.control, config.listen.local);
    let bound = Bound::take(Listener::Control, control).await.map_err(taken(control))?;
    Ok((bound, Bound::take(Listener::Local, local).await.map_err(taken(local))?))
}

/// Opens who is let in, and forgets devices whose pairing an earlier daemon did not finish.
async fn open_registry(
    installation: &Installation,
    config: &Config,
    (clock, entropy): (&Arc<dyn Clock>, &Arc<dyn Entropy>),
) -> Result<AccessRegistry, StartError> {
    let store = FileStore::open(&installation.files().registry).map_err(|error| {
        match (error, serving(installation.home())) {
            (StoreError::Held(_), Some(pid)) => StartError::Running(pid),
            (error, _) => OpenRegistryError::from(error).into(),
        }
    })?;
    let registry = AccessRegistry::open(Arc::new(store), Arc::clone(clock), Arc::clone(entropy))?;
    let registry = registry.with_principal_per_minute(config.access.principal_per_minute);
    let forget = |state: &mut State, _| Ok::<_, Infallible>(state.forget_awaiting());
    if let Ok(pending) = registry.prepare(forget).await
        && !pending.outcome().devices.is_empty()
    {
        pending.commit().await.map_err(OpenRegistryError::from)?;
    }
    Ok(registry)
}

/// Who is let in, as the beginning of a daemon has it on record: what was founded without one, too, or changed while there was none.
fn let_in(access: &AccessRegistry, now: Timestamp) -> serde_json::Value {
    let snapshot = access.snapshot();
    let state = snapshot.state();
    let members = state.members().map(|one| json!({ "user": one.user, "role": one.role }));
    let devices = state.devices().filter(|one| one.state == DeviceState::Active);
    let devices = devices.map(|one| json!({ "id": one.id, "for": one.principal.to_string(), "role": one.role }));
    let tokens = state.tokens().filter(|one| one.over_at() > now);
    let tokens = tokens.map(|one| json!({ "id": one.id, "for": one.principal.to_string(), "role": one.role }));
    json!({
        "revision": snapshot.revision(),
        "members": members.collect::<Vec<_>>(),
        "devices": devices.collect::<Vec<_>>(),
        "tokens": tokens.collect::<Vec<_>>(),
    })
}

fn certifier(
    installation: &Installation,
    config: &Config,
    (clock, entropy): (&Arc<dyn Clock>, &Arc<dyn Entropy>),
) -> Result<Certifier, StartError> {
    let Files { authority, bundle, .. } = installation.files();
    let (files, names) = (AuthorityFiles { authority, bundle }, config.listen.certified_names());
    Ok(Certifier::new(installation.authority().clone(), files, names, (Arc::clone(clock), Arc::clone(entropy)))?)
}

/// What a gate is made of, besides what is configured.
struct Made<'a> {
    engine: Arc<Engine>,
    store: &'a Arc<dyn JournalStore>,
    standing: Standing,
    vault: VaultWord,
    /// The gate itself, once it is open.
    gate: OpenGate,
    services: Vec<ServiceOperation>,
}

async fn open(
    installation: &Installation,
    config: &Config,
    Made { engine, store, standing, vault, gate, services }: Made<'_>,
    (clock, entropy, net): (&Arc<dyn Clock>, &Arc<dyn Entropy>, Arc<Connector>),
) -> Result<Gate, StartError> {
    let registry = Registry::builtin(services).map_err(|error| StartError::Build(error.to_string()))?;
    let (store_of_reports, started) = (Arc::clone(store), clock.now());
    let reports: Arc<dyn Reports> = Arc::new(Knowledge { gate, store: store_of_reports, started, vault });
    let presence = installation.presence()?;
    let presence = presence.map(|hash| PresencePin::new(&hash)).transpose();
    Ok(Gate::open(Parts {
        engine,
        store: Arc::clone(store),
        config: config.gate(),
        registry,
        state_directory: installation.directory()?,
        environment: environment().collect::<BTreeMap<_, _>>(),
        reports,
        credentials: Arc::new(standing),
        presence: presence.map_err(|error| StartError::Presence(error.to_string()))?,
        clock: Arc::clone(clock),
        entropy: Arc::clone(entropy),
        net,
    })
    .await?)
}

fn publisher(
    config: &Config,
    store: &Arc<dyn JournalStore>,
    journal: &std::path::Path,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Publisher>, StartError> {
    let mut sinks: Vec<Box<dyn CheckpointSink>> = Vec::new();
    if let Some(path) = &config.journal.checkpoint_file {
        sinks.push(Box::new(FileSink::new(std::path::Path::new(path.as_str()), journal)?));
    }
    if let Some(address) = &config.journal.checkpoint_url {
        sinks.push(Box::new(WebhookSink::new(address, SINK_PATIENCE)?));
    }
    if sinks.is_empty() {
        return Ok(None);
    }
    let started = Publisher::start(store, sinks, Pace::default(), clock);
    started.map(Some).map_err(|error| StartError::Build(error.to_string()))
}

/// Why a daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory is not in order.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// Who is let in cannot be told.
    #[error(transparent)]
    Registry(#[from] OpenRegistryError),
    /// Nothing can be certified.
    #[error(transparent)]
    Certifier(#[from] CertifierError),
    /// Another one does its work.
    #[error("a daemon of this state directory runs already, as process {0}")]
    Running(u32),
    /// A port cannot be had.
    #[error("the port at {address} cannot be had: {error}")]
    Port {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: String,
    },
    /// The journal is not in order.
    #[error(transparent)]
    Journal(#[from] Trouble),
    /// The journal cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The policies are not in order.
    #[error("the policies cannot be used: {}", first(.0))]
    Policies(#[from] LoadError),
    /// What was said with agent models cannot be read or kept.
    #[error(transparent)]
    Transcripts(#[from] TranscriptError),
    /// A server of models cannot be used.
    #[error(transparent)]
    Providers(#[from] Unusable),
    /// What agents keep cannot be opened.
    #[error(transparent)]
    Keeping(#[from] KeepingError),
    /// Schedules cannot be opened.
    #[error("the schedules cannot be opened: {0}")]
    Schedule(#[from] ScheduleError),
    /// The gate does not open.
    #[error(transparent)]
    Gate(#[from] OpenError),
    /// What an earlier daemon left cannot be put in order.
    #[error("what an earlier daemon left cannot be put in order: {0}")]
    Recovery(#[from] Refusal),
    /// A place for checkpoints cannot be used.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The PIN that is kept cannot be used.
    #[error("{0}")]
    Presence(String),
    /// No randomness.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    /// Signals cannot be heard.
    #[error(transparent)]
    Signals(#[from] std::io::Error),
    /// A broken build, or a system without threads.
    #[error("{0}")]
    Build(String),
}

impl StartError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Installation(error) => error.advice(),
            Self::Registry(error) => error.advice(),
            Self::Certifier(error) => error.advice(),
            Self::Running(pid) => format!("use it (`palyra status`), or stop it first: kill {pid}"),
            Self::Port { address, .. } => format!(
                "another daemon may be running (`palyra status`), or another program has {address}; choose other ports \
                 under [listen] in config.toml, which `palyra init` makes"
            ),
            Self::Journal(trouble) => trouble.advice().to_owned(),
            Self::Unreadable(_) => "run `palyra journal verify`".to_owned(),
            Self::Policies(_) => "run `palyra policy check`".to_owned(),
            Self::Transcripts(error) => error.advice().to_owned(),
            Self::Providers(error) => error.advice().to_owned(),
            Self::Keeping(error) => error.advice().to_owned(),
            Self::Schedule(error) => error.advice().to_owned(),
            Self::Gate(error) => error.advice().to_owned(),
            Self::Recovery(refusal) => refusal.advice(),
            Self::Sink(_) => "look at [journal] in config.toml".to_owned(),
            Self::Presence(_) => "remove `identity/presence` from the state directory and set the PIN anew".to_owned(),
            Self::NoEntropy(_) | Self::Signals(_) | Self::Build(_) => "report this".to_owned(),
        }
    }
}

fn first(error: &LoadError) -> String {
    let first = error.findings.first();
    first.map_or_else(|| error.to_string(), |first| format!("{}: {}", first.location, first.problem))
}

/// How long calls that are stopped have to end and be attested.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How long answers may take to get to whoever waits for them.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

const SINK_PATIENCE: Duration = Duration::from_secs(10);
