//! The configuration in force, with everything in it opened and worked out.
//!
//! Guarantees: whoever reads it sees one configuration, never parts of two; what a call was judged by stays open until it is over.

use std::{collections::HashMap, sync::Arc};

use palyra_policy::PolicyEvaluationConfig;
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
}

impl Settings {
    /// Opens and works out what a configuration says.
    pub(crate) fn new(config: GateConfig, state_directory: &AbsolutePath) -> Result<Self, OpenError> {
        let evaluation = Arc::new(config.evaluation(state_directory)?);
        let mut workspaces = HashMap::new();
        for section in &config.workspace {
            let workspace = Workspace::open(section.name.clone(), &section.path, state_directory)?;
            workspaces.insert(section.name.clone(), Arc::new(workspace));
        }
        let programs = SearchPath::new(config.sandbox.search_path.clone());
        Ok(Self { config: Arc::new(config), evaluation, workspaces, programs })
    }
}
