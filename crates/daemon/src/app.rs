//! What every handler is handed: the gate, and what the daemon knows about itself.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use palyra_access::AccessRegistry;
use palyra_gate::{Gate, Report, Reports};
use palyra_identity::Address;
use palyra_journal::{JournalStore, Publisher};
use palyra_types::{Clock, DeviceId, Entropy, StateHome, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::{
    attempts::Attempts,
    certifier::Certifier,
    compat::upstream::ProvidersNow,
    config::Config,
    console::Console,
    edge::{Names, RequestIds},
    figures::Figures,
    hub::Hub,
    keeping::Keeping,
    keys::KeysUnderWay,
    mcp::Mcp,
    pairings::Pairings,
    renewals::Renewals,
    routes,
    runs::OwnRuns,
    scheduling::schedule::Schedule,
    streams::Readers,
    transcripts::Transcripts,
    upstream::Upstreams,
    vault::{VaultOpener, VaultWord},
};

/// The daemon, as handlers see it.
pub struct App {
    /// Everything that is decided, asked, run and attested.
    pub gate: Gate,
    /// What keeps the journal.
    pub store: Arc<dyn JournalStore>,
    /// Where the journal is.
    pub journal: PathBuf,
    /// The state directory.
    pub home: StateHome,
    /// What is configured now.
    pub config: Mutex<Arc<Config>>,
    /// Who is let in.
    pub access: AccessRegistry,
    /// Opens the vault.
    pub vault: Arc<VaultOpener>,
    /// Certifies devices and the daemon.
    pub certifier: Arc<Certifier>,
    /// The pairing that is open.
    pub pairings: Pairings,
    /// How often devices had their certificates renewed.
    pub renewals: Renewals,
    /// Those who were not let in.
    pub attempts: Attempts,
    /// Where devices reach the control listener, if that can be said.
    pub reachable: Option<Address>,
    /// The console's links and sessions.
    pub console: Console,
    /// Tells what is journalled.
    pub hub: Arc<Hub>,
    /// Figures for Prometheus.
    pub figures: Figures,
    /// The run of each credential, for calls that name none.
    pub own_runs: OwnRuns,
    /// Idempotency keys of calls that are being proposed.
    pub keys: KeysUnderWay,
    /// What checkpoints are sent to.
    pub publisher: Option<Publisher>,
    /// Gives out ids of requests.
    pub request_ids: RequestIds,
    /// The names of the control listener.
    pub control_names: Names,
    /// The names of the local listener.
    pub local_names: Names,
    /// Where the local listener is.
    pub local: SocketAddr,
    /// Since when the policies are in force, and why others are not.
    pub policies: Mutex<InForce>,
    /// Held while configuration and policies are read again.
    pub reloading: tokio::sync::Mutex<()>,
    /// What the MCP server keeps.
    pub mcp: Mcp,
    /// The servers of models that are configured now.
    pub providers: ProvidersNow,
    /// What is said with agent models.
    pub transcripts: Transcripts,
    /// The MCP servers behind the gateway.
    pub upstreams: Arc<Upstreams>,
    /// What agents keep.
    pub keeping: Keeping,
    /// Calls that are proposed later.
    pub schedule: Arc<Schedule>,
    /// The turns of packages to be sent here.
    pub uploads: Arc<Semaphore>,
    /// The turns of packages to be read.
    pub packages: Arc<Semaphore>,
    /// Who follows how many streams.
    pub readers: Readers,
    /// Whether the daemon is about to stop.
    pub stopping: watch::Sender<bool>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

impl App {
    /// What is configured now.
    #[must_use]
    pub fn config_now(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the authority that last certified a device is still trusted.
    #[must_use]
    pub fn certifies(&self, device: &DeviceId) -> bool {
        self.certifier.certifies(self.access.snapshot().state(), device)
    }
}

/// The policies that are in force.
#[derive(Debug, Clone)]
pub struct InForce {
    /// Since when.
    pub since: Timestamp,
    /// Why what is on disk is not, if the last reload was refused.
    pub refused: Option<String>,
}

/// What the tools `tool.list` and `daemon.status` tell.
pub struct Knowledge {
    /// The gate that the tools are of.
    pub gate: OpenGate,
    /// What keeps the journal.
    pub store: Arc<dyn JournalStore>,
    /// Since when the daemon is up.
    pub started: Timestamp,
    /// How the vault is.
    pub vault: VaultWord,
}

impl Reports for Knowledge {
    fn report(&self, about: Report) -> Value {
        let gate = self.gate.now();
        match about {
            Report::Tools => json!({ "tools": gate.as_ref().map(routes::all_tools).unwrap_or_default() }),
            Report::Status => {
                let trouble = self.store.trouble().map(|trouble| trouble.to_string());
                let version = env!("CARGO_PKG_VERSION");
                let (started, well, vault) = (self.started, trouble.is_none(), self.vault.now());
                let skills = if gate.is_some_and(|gate| gate.skills().is_ok()) { "open" } else { "closed" };
                json!({
                    "version": version, "started": started, "well": well, "trouble": trouble, "vault": vault, "skills": skills,
                })
            }
        }
    }
}

/// The gate, for what it is handed itself when it is opened. Empty before that, and after the daemon has stopped.
#[derive(Clone, Default)]
pub struct OpenGate(Arc<Mutex<Option<Gate>>>);

impl OpenGate {
    /// The gate.
    #[must_use]
    pub fn now(&self) -> Option<Gate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the gate, or none in its place: as long as it has one, neither goes away.
    pub fn set(&self, gate: Option<Gate>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = gate;
    }
}
