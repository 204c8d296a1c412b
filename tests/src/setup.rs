//! Opens a gate on given directories, as a daemon would.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a gate that cannot be set up ends the test")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use palyra_gate::{
    Connector, Credentials, Forbidden, Gate, GateConfig, Parts, Petitioner, PresencePin, Registry, Report, Reports,
    SystemResolver,
};
use palyra_journal::{JournalStore, SqliteJournal};
use palyra_policy::{Engine, Preset, SourceFile};
use palyra_types::{AbsolutePath, Clock, Entropy, clock::SystemClock, entropy::SystemEntropy};
use serde_json::{Value, json};

use crate::faults::{Faults, FaultyStore};

/// What a gate is opened with.
pub struct Setup<'a> {
    /// Where the journal is.
    pub journal: &'a Path,
    /// Where the state directory is, as far as calls are told.
    pub state: &'a Path,
    /// The workspace `lab`.
    pub workspace: &'a Path,
    /// More of the configuration.
    pub config: &'a str,
    /// Policies instead of the preset's.
    pub policies: Option<&'a str>,
    /// A PIN.
    pub pin: Option<&'a str>,
    /// The time; else the machine's.
    pub clock: Option<Arc<dyn Clock>>,
    /// What goes wrong with the journal.
    pub faults: Option<Arc<Faults>>,
}

/// A gate, and what is behind it.
pub struct Opened {
    /// The gate.
    pub gate: Gate,
    /// The journal.
    pub journal: Arc<SqliteJournal>,
    /// The policy engine.
    pub engine: Arc<Engine>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Setup<'_> {
    /// Opens it, with the machine's own way into the world.
    pub async fn open(self) -> Opened {
        self.open_towards(Arc::new(Connector::new(Arc::new(SystemResolver::default()), Forbidden::default()))).await
    }

    /// Opens it, with this way into the world.
    pub async fn open_towards(self, net: Arc<Connector>) -> Opened {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let journal = Arc::new(SqliteJournal::open(self.journal, Arc::clone(&clock), Arc::clone(&entropy)).unwrap());
        let source = match self.policies {
            Some(text) => SourceFile::operator("lab.cedar", text.to_owned()),
            None => Preset::Cautious.source(),
        };
        let engine = Arc::new(Engine::new(&[source]).unwrap());
        let config =
            format!("{}\n[[workspace]]\nname = \"lab\"\npath = \"{}\"\n", self.config, self.workspace.display());
        let config: GateConfig = toml::from_str(&config).unwrap();
        let store: Arc<dyn JournalStore> = match self.faults {
            Some(faults) => Arc::new(FaultyStore { journal: Arc::clone(&journal), faults }),
            None => Arc::<SqliteJournal>::clone(&journal),
        };
        let gate = Gate::open(Parts {
            engine: Arc::clone(&engine),
            store,
            config,
            registry: Registry::bare().unwrap(),
            state_directory: AbsolutePath::parse(self.state.to_str().unwrap()).unwrap(),
            environment: BTreeMap::new(),
            reports: Arc::new(Silent),
            credentials: Arc::new(Everybody),
            presence: self.pin.map(|pin| PresencePin::new(&PresencePin::hash(pin).unwrap()).unwrap()),
            clock: Arc::clone(&clock),
            entropy,
            net,
        });
        Opened { gate: gate.await.unwrap(), journal, engine, clock }
    }
}

/// Lets everybody count for what they were.
struct Everybody;

impl Credentials for Everybody {
    fn as_they_stand(&self, who: &Petitioner) -> Option<Petitioner> {
        Some(who.clone())
    }
}

struct Silent;

impl Reports for Silent {
    fn report(&self, about: Report) -> Value {
        json!({ "about": about.as_str() })
    }
}
