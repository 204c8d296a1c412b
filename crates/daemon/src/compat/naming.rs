//! Which model a name means: one that is passed through to a provider, or an agent whose loop the daemon runs.

use std::sync::Arc;

use palyra_gate::config::WorkspaceSection;
use palyra_provider::{ModelName, ProviderSection};
use palyra_types::{WorkspaceName, visible::visible, word::nearest};
use serde::{Deserialize, Serialize};

use crate::{app::App, config::ConfigError, failure::Failure};

/// `[[agent]]`: an agent model, which clients call `palyra/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSection {
    /// Its name.
    pub name: String,
    /// The model behind it, by the name that `[[provider]]` gives it.
    pub model: String,
    /// What it is told before anything else.
    #[serde(default)]
    pub instructions: String,
    /// The tools that it is offered: names, or their beginnings with `*` behind them.
    #[serde(default = "all_tools")]
    pub tools: Vec<String>,
    /// The workspace that it works in; without one, the only one there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceName>,
    /// How often the model is asked for one answer.
    #[serde(default = "max_turns")]
    pub max_turns: u32,
    /// How many calls it may want for one answer.
    #[serde(default = "max_calls")]
    pub max_calls: u32,
    /// How long it may take, waiting for people included.
    #[serde(default = "max_seconds")]
    pub max_seconds: u32,
    /// How much of what a call says the model is told, in bytes.
    #[serde(default = "max_output_bytes")]
    pub max_output_bytes: usize,
}

fn all_tools() -> Vec<String> {
    vec!["*".to_owned()]
}

const fn max_turns() -> u32 {
    32
}

const fn max_calls() -> u32 {
    128
}

const fn max_seconds() -> u32 {
    3_600
}

const fn max_output_bytes() -> usize {
    64 << 10
}

/// Checks agents as they are configured, beside the providers and the workspaces that they name.
///
/// # Errors
/// When a name is none or stands twice, or an agent names a model or a workspace that there is not.
pub fn check(
    agents: &[AgentSection],
    providers: &[ProviderSection],
    workspaces: &[WorkspaceSection],
) -> Result<(), ConfigError> {
    for (index, agent) in agents.iter().enumerate() {
        let is_name = !agent.name.is_empty()
            && agent.name.len() <= 64
            && agent.name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        let is_twice = agents.iter().take(index).any(|other| other.name == agent.name);
        if !is_name || is_twice || agent.model.is_empty() || agent.max_turns == 0 || agent.max_calls == 0 {
            return Err(ConfigError::Agent(agent.name.clone()));
        }
        check_model(agent, providers)?;
        if let Some(name) = &agent.workspace
            && workspaces.iter().all(|one| one.name != *name)
        {
            return Err(ConfigError::AgentWorkspace { agent: agent.name.clone(), workspace: name.clone() });
        }
    }
    Ok(())
}

/// Whether a provider has the model of an agent, or would be asked for whatever it is called.
fn check_model(agent: &AgentSection, providers: &[ProviderSection]) -> Result<(), ConfigError> {
    let model = agent.model.as_str();
    let is_listed = providers.iter().any(|one| one.models.contains_key(model));
    let is_reached = model.split_once('/').is_some_and(|(name, model)| {
        let mut named = providers.iter().filter(|one| one.name.as_str() == name);
        named.any(|one| one.pass_through || one.models.contains_key(model))
    });
    if is_listed || is_reached {
        return Ok(());
    }
    let known: Vec<&str> = providers.iter().flat_map(|one| one.models.keys()).map(ModelName::as_str).collect();
    let near = nearest(model, &known).map(str::to_owned);
    Err(ConfigError::AgentModel { agent: agent.name.clone(), model: model.to_owned(), near })
}

/// What a name means.
pub enum Meant {
    /// An agent.
    Agent(Arc<AgentSection>),
    /// A model of a provider.
    Model(String),
}

impl Meant {
    /// What a client means by a name.
    ///
    /// # Errors
    /// When there is no such model.
    pub fn by(app: &App, name: &str) -> Result<Self, Failure> {
        let config = app.config_now();
        if let Some(agent) = name.strip_prefix(AGENTS) {
            let found = config.agent.iter().find(|one| one.name == agent);
            return found.map(|one| Self::Agent(Arc::new(one.clone()))).ok_or_else(|| unknown(app, name));
        }
        match app.providers.now().resolve(name) {
            Ok(_) => Ok(Self::Model(name.to_owned())),
            Err(_) => Err(unknown(app, name)),
        }
    }
}

/// The names of all models, agents first.
#[must_use]
pub fn all(app: &App) -> Vec<(String, String)> {
    let config = app.config_now();
    let agents = config.agent.iter().map(|one| (format!("{AGENTS}{}", one.name), "palyra".to_owned()));
    let models = app.providers.now().models().into_iter().map(|(name, provider)| (name, provider.to_string()));
    agents.chain(models).collect()
}

fn unknown(app: &App, name: &str) -> Failure {
    let known: Vec<String> = all(app).into_iter().map(|(name, _)| name).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = nearest(name, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let name: String = name.chars().take(100).collect();
    Failure::new(
        "model_not_found",
        format!("there is no model `{}`{near}", visible(&name)),
        "`GET /v1/models` lists them; [[provider]] and [[agent]] in config.toml say what there is",
    )
}

/// What the names of agents begin with.
const AGENTS: &str = "palyra/";
