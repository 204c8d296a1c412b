//! Which policies and which configuration a command works with.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_policy::{
    PolicyEvaluationConfig, Preset, Snapshot, SourceFile,
    directory::{read_policies, read_text},
    suite::merge,
};
use palyra_types::{AbsolutePath, StateHome, WorkspaceName};
use serde::Deserialize;

use crate::{exit::Exit, failure::Failure, terminal::Terminal};

/// The name of the workspace that the working directory stands for.
pub(crate) const HERE: &str = "workspace";

/// The flags that choose a policy set.
#[derive(Args, Clone, Default)]
pub(crate) struct Selection {
    /// Start from a preset: observe, cautious or workspace.
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<Preset>,
    /// Add policies from a .cedar file or a directory of them. Can be given again.
    #[arg(long, value_name = "PATH")]
    pub(crate) policies: Vec<PathBuf>,
    /// Take [policy] and [[workspace]] from this configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// A policy set, its configuration, and where both come from in words.
pub(crate) struct Selected {
    pub(crate) sources: Vec<SourceFile>,
    pub(crate) set: Snapshot,
    pub(crate) config: PolicyEvaluationConfig,
    pub(crate) origin: String,
}

impl Selection {
    /// Whether the user chose anything.
    pub(crate) const fn is_empty(&self) -> bool {
        self.preset.is_none() && self.policies.is_empty() && self.config.is_none()
    }

    /// Loads what was chosen; with nothing chosen, what is installed; with nothing installed, the default preset.
    pub(crate) fn load(&self, terminal: &Terminal) -> Result<Selected, Failure> {
        let installed = StateHome::find(|name| env::var_os(name)).ok().filter(|home| home.policies().is_dir());
        let selected = match installed {
            Some(home) if self.is_empty() => {
                let config = Some(home.config()).filter(|config| config.exists());
                let selection = Self { policies: vec![home.policies()], config, preset: None };
                selection.resolve(Some(&home))
            }
            home => self.resolve(home.as_ref()),
        }?;
        if self.is_empty() {
            terminal.talk(format!("using {}", selected.origin));
        }
        Ok(selected)
    }

    fn resolve(&self, home: Option<&StateHome>) -> Result<Selected, Failure> {
        let file = self.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        // A configuration names the preset its policies were made from; without policies the preset itself is meant.
        let preset = self.preset.or_else(|| self.policies.is_empty().then(|| file.preset().unwrap_or(Preset::DEFAULT)));
        let mut sources: Vec<SourceFile> = preset.map(Preset::source).into_iter().collect();
        for path in &self.policies {
            sources.extend(read_policies(path)?);
        }
        let mut config = file.evaluation(preset.unwrap_or(Preset::DEFAULT))?;
        if config.state_directory.is_none() {
            config.state_directory = home.and_then(|home| AbsolutePath::parse(home.path().to_str()?).ok());
        }
        let names = preset.iter().map(|preset| format!("preset {preset}"));
        let paths = self.policies.iter().map(|path| path.display().to_string());
        let origin = names.chain(paths).collect::<Vec<_>>().join(" and ");
        Ok(Selected { set: Snapshot::load(&sources)?, sources, config, origin })
    }
}

/// The parts of `config.toml` that policies need. Other sections belong to the daemon.
#[derive(Deserialize, Default)]
struct ConfigFile {
    #[serde(default)]
    policy: toml::Table,
    #[serde(default)]
    workspace: Vec<WorkspaceEntry>,
    #[serde(skip)]
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkspaceEntry {
    name: WorkspaceName,
    path: AbsolutePath,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = read_text(path)?;
        let name = path.display().to_string();
        let file: Self = toml::from_str(&text).map_err(|error| refused(&name, &error.to_string()))?;
        Ok(Self { name, ..file })
    }

    fn preset(&self) -> Option<Preset> {
        self.policy.get("preset")?.as_str().and_then(|name| Preset::parse(name).ok())
    }

    fn evaluation(mut self, fallback: Preset) -> Result<PolicyEvaluationConfig, Failure> {
        let preset = match self.policy.remove("preset") {
            None => fallback,
            Some(value) => match value.as_str().map(Preset::parse) {
                Some(Ok(preset)) => preset,
                Some(Err(error)) => return Err(refused(&self.name, &error.to_string())),
                None => return Err(refused(&self.name, "`preset` is a name in quotes")),
            },
        };
        let mut config = merge(Some(preset), self.policy).map_err(|error| refused(&self.name, &error.to_string()))?;
        config.workspaces.extend(self.workspace.into_iter().map(|entry| (entry.name, entry.path)));
        Ok(config)
    }
}

fn refused(name: &str, cause: &str) -> Failure {
    let help = "see the keys of [policy] in policies/presets/presets.toml";
    Failure::new(Exit::Failure, "config_invalid", format!("{name} cannot be used"), cause, help)
}

/// The directory that a relative or missing path means.
pub(crate) fn absolute(path: Option<&Path>) -> Result<AbsolutePath, Failure> {
    let refused = |cause: String| {
        Failure::new(Exit::Usage, "path_invalid", "the path cannot be used", cause, "give an absolute path")
    };
    let given = path.unwrap_or(Path::new("."));
    let path = fs::canonicalize(given).map_err(|error| refused(format!("{}: {error}", given.display())))?;
    let text = path.to_str().ok_or_else(|| refused(format!("{} is not UTF-8", path.display())))?;
    AbsolutePath::parse(text).map_err(|error| refused(error.to_string()))
}
