//! The configuration in force, with everything in it opened and worked out.
//!
//! Guarantees: whoever reads it sees one configuration, never parts of two; what a call was judged by stays open until it is over.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError},
};

use palyra_policy::PolicyEvaluationConfig;
use palyra_sandbox::SandboxProcessRunner;
use palyra_types::{AbsolutePath, WorkspaceName};

use crate::{
    config::GateConfig,
    gate::{Gate, OpenError},
    tool::SearchPath,
    workspace::Workspace,
};

/// What the configuration says, with everything in it opened and worked out.
pub(crate) struct Settings {
    pub(crate) config: Arc<GateConfig>,
    pub(crate) evaluation: Arc<PolicyEvaluationConfig>,
    pub(crate) workspaces: HashMap<WorkspaceName, Arc<Workspace>>,
    pub(crate) programs: SearchPath,
    /// Lets calls declare the hosts that are configured.
    pub(crate) runner: Arc<SandboxProcessRunner>,
    /// What is passed on of the daemon's own environment.
    pub(crate) environment: BTreeMap<String, String>,
}

/// What settings are made of, besides the configuration.
pub(crate) struct Ground {
    /// Palyra's own directory.
    pub(crate) state_directory: AbsolutePath,
    /// The daemon's own environment.
    pub(crate) environment: BTreeMap<String, String>,
}

impl Gate {
    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<GateConfig> {
        Arc::clone(&self.inner.settings.load().config)
    }

    /// What policy is told besides the policies themselves.
    #[must_use]
    pub fn evaluation(&self) -> Arc<PolicyEvaluationConfig> {
        Arc::clone(&self.inner.settings.load().evaluation)
    }

    /// Another configuration comes into force: all of it, or nothing when it cannot be used. Calls that run go on as they were started;
    /// calls that wait are decided anew, and those that are denied now, or whose workspace is gone, are withdrawn.
    ///
    /// Runs that are open keep their budget, and questions that are asked their deadlines. A lower bound on running calls holds once
    /// enough of them are over. What the gate was opened with stays until a restart: the journal, the tools, the state directory and the
    /// PIN; `presence` under `[approvals]` changes, but needs a PIN that was there from the start. The policies are the engine's: whoever
    /// changes `preset` loads them, too.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When a workspace cannot be used.
    pub fn reconfigure(&self, config: GateConfig) -> Result<(), OpenError> {
        let inner = &self.inner;
        let changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = inner.settings.load().next(config, &inner.ground)?;
        let calls = settings.config.calls;
        inner.settings.store(Arc::new(settings));
        inner.admission.resize(calls);
        // Only now: whoever was judged by what held before hears of it before anything is started.
        inner.policies.send_modify(|count| *count += 1);
        drop(changing);
        Ok(())
    }
}

impl Settings {
    /// Opens and works out what a configuration says, for the first time.
    pub(crate) fn first(config: GateConfig, ground: &Ground) -> Result<Self, OpenError> {
        let runner = SandboxProcessRunner::new(config.egress.allowed())?;
        Self::new(config, ground, runner, &HashMap::new())
    }

    /// Opens and works out what another configuration says.
    fn next(&self, config: GateConfig, ground: &Ground) -> Result<Self, OpenError> {
        let runner = self.runner.with_hosts(config.egress.allowed());
        Self::new(config, ground, runner, &self.workspaces)
    }

    fn new(
        config: GateConfig,
        ground: &Ground,
        runner: SandboxProcessRunner,
        known: &HashMap<WorkspaceName, Arc<Workspace>>,
    ) -> Result<Self, OpenError> {
        let evaluation = config.evaluation(&ground.state_directory)?;
        let mut workspaces = HashMap::new();
        for section in &config.workspace {
            let workspace = Workspace::open(section.name.clone(), &section.path, &ground.state_directory)?;
            workspaces.insert(section.name.clone(), kept(workspace, known.get(&section.name)));
        }
        let programs = SearchPath::new(config.sandbox.search_path.clone());
        let passed = |(name, _): &(&String, &String)| config.sandbox.pass_environment.contains(*name);
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        let environment = ground.environment.iter().filter(passed).map(pair).collect();
        let (evaluation, runner) = (Arc::new(evaluation), Arc::new(runner));
        Ok(Self { config: Arc::new(config), evaluation, workspaces, programs, runner, environment })
    }
}

/// The workspace as it was opened before, if it is the same directory: calls that write there wait for each other.
fn kept(opened: Workspace, known: Option<&Arc<Workspace>>) -> Arc<Workspace> {
    known.filter(|known| known.is_same_as(&opened)).map_or_else(|| Arc::new(opened), Arc::clone)
}
