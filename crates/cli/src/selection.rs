//! Which policies and which configuration a command works with.
//!
//! Guarantees: what is in force is never guessed. A state directory, a policy or a configuration that is there and cannot be read is an
//! error; only one that is not there at all counts as absent. What is used is said on stderr, always.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_daemon::{
    Config,
    config::{ConfigError, SECTIONS},
};
use palyra_policy::{
    PolicyEvaluationConfig, Preset, Snapshot, SourceFile,
    directory::{read_policies, read_text},
    suite::merge,
};
use palyra_types::{AbsolutePath, StateHome, WorkspaceName, home::NoHome, visible::visible, word::nearest};
use serde::Deserialize;

use crate::{exit::Exit, failure::Failure, terminal::Terminal};

/// The name of the workspace that a directory stands for when no configured workspace holds it.
pub(crate) const HERE: &str = "workspace";

/// The flags that choose a policy set.
#[derive(Args, Clone, Default)]
pub(crate) struct Selection {
    /// Use this preset instead of what is installed: observe, cautious or workspace.
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<Preset>,
    /// Use these policies instead of what is installed: a .cedar file or a directory of them. Can be given again.
    #[arg(long, value_name = "PATH")]
    pub(crate) policies: Vec<PathBuf>,
    /// Take [policy] and [[workspace]] from this file instead of the installed config.toml.
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
    /// Loads what was chosen; with nothing chosen, what is installed: the preset of the configuration and the policies beside it.
    pub(crate) fn load(&self, terminal: &Terminal) -> Result<Selected, Failure> {
        let home = match StateHome::find(|name| env::var_os(name)) {
            Ok(home) => Some(home),
            Err(NoHome::Unset) => None,
            Err(error @ NoHome::Relative(_)) => return Err(refused("the state directory", &error.to_string())),
        };
        let installed = |path: fn(&StateHome) -> PathBuf| -> Result<Option<PathBuf>, Failure> {
            let Some(path) = home.as_ref().map(path) else { return Ok(None) };
            Ok(is_there(&path)?.then_some(path))
        };
        let config_path = match &self.config {
            Some(path) => Some(path.clone()),
            None => {
                let path = installed(StateHome::config)?;
                if let (Some(home), Some(path)) = (&home, &path) {
                    // What a daemon would refuse is not sound.
                    let refused = |error: ConfigError| {
                        let what = format!("{} cannot be used", path.display());
                        Failure::new(Exit::Failure, "config_invalid", what, error.to_string(), error.advice())
                    };
                    Config::read(home, []).map_err(refused)?;
                }
                path
            }
        };
        let file = config_path.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let chosen = self.preset.is_some() || !self.policies.is_empty();
        let configured = file.preset()?;
        let preset = if chosen { self.preset } else { configured.unwrap_or(Some(Preset::DEFAULT)) };
        let policies =
            if chosen { self.policies.clone() } else { installed(StateHome::policies)?.into_iter().collect() };

        let mut sources: Vec<SourceFile> = preset.map(Preset::source).into_iter().collect();
        for path in &policies {
            sources.extend(read_policies(path)?);
        }
        let mut config = file.evaluation(preset.or(configured.flatten()).unwrap_or(Preset::DEFAULT))?;
        if config.state_directory.is_none() {
            config.state_directory = home.and_then(|home| AbsolutePath::parse(home.path().to_str()?).ok());
        }
        let names = preset.iter().map(|preset| format!("preset {preset}"));
        let paths = policies.iter().chain(&config_path).map(|path| visible(&path.to_string_lossy()));
        let origin = names.chain(paths).collect::<Vec<_>>().join(", ");
        let origin = if origin.is_empty() { "the baseline alone".to_owned() } else { origin };
        terminal.talk(format!("using {origin}"));
        Ok(Selected { set: Snapshot::load(&sources)?, sources, config, origin })
    }
}

/// Whether something is at a path. Not being allowed to look is not the same as not being there.
fn is_there(path: &Path) -> Result<bool, Failure> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::new(
            Exit::Failure,
            "unreadable",
            format!("{} cannot be read", path.display()),
            error.to_string(),
            "check who owns the state directory, or name another one with PALYRA_HOME",
        )),
    }
}

/// The parts of `config.toml` that policies need. Other sections belong to the daemon.
#[derive(Deserialize, Default)]
struct ConfigFile {
    #[serde(default)]
    policy: toml::Table,
    #[serde(default)]
    workspace: Vec<WorkspaceEntry>,
    #[serde(flatten)]
    rest: toml::Table,
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
        if let Some(unknown) = file.rest.keys().find(|key| !SECTIONS.contains(&key.as_str())) {
            let hint = nearest(unknown, SECTIONS).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(refused(&name, &format!("unknown section or key `{unknown}`{hint}")));
        }
        Ok(Self { name, ..file })
    }

    /// The preset that the file names: absent, `"none"`, or one of them.
    fn preset(&self) -> Result<Option<Option<Preset>>, Failure> {
        match self.policy.get("preset") {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some("none") => Ok(Some(None)),
                Some(name) => match Preset::parse(name) {
                    Ok(preset) => Ok(Some(Some(preset))),
                    Err(error) => Err(refused(&self.name, &format!("{error}, or none"))),
                },
                None => Err(refused(&self.name, "`preset` is a name in quotes")),
            },
        }
    }

    fn evaluation(mut self, preset: Preset) -> Result<PolicyEvaluationConfig, Failure> {
        self.policy.remove("preset");
        let mut config =
            merge(Some(preset), self.policy).map_err(|error| refused(&self.name, &format!("[policy]: {error}")))?;
        config.workspaces.extend(self.workspace.into_iter().map(|entry| (entry.name, entry.path)));
        Ok(config)
    }
}

fn refused(name: &str, cause: &str) -> Failure {
    let help = "docs/policy.md shows the configuration";
    Failure::new(Exit::Failure, "config_invalid", format!("{name} cannot be used"), cause, help)
}

/// The directory that a relative or missing path means.
pub(crate) fn absolute(path: Option<&Path>) -> Result<AbsolutePath, Failure> {
    let refused = |cause: String| {
        Failure::new(Exit::Usage, "path_invalid", "the path cannot be used", cause, "give a path that exists, in UTF-8")
    };
    let given = path.unwrap_or(Path::new("."));
    let path = fs::canonicalize(given).map_err(|error| refused(format!("{}: {error}", given.display())))?;
    let text = path.to_str().ok_or_else(|| refused(format!("{} is not UTF-8", path.display())))?;
    AbsolutePath::parse(text).map_err(|error| refused(error.to_string()))
}

/// The configured workspace that holds a directory, the innermost one; without one, the directory itself under the name [`HERE`].
pub(crate) fn workspace_of(directory: &AbsolutePath, config: &mut PolicyEvaluationConfig) -> Option<WorkspaceName> {
    let holding = config.workspaces.iter().filter(|(_, root)| directory.is_within(root));
    if let Some((name, _)) = holding.max_by_key(|(_, root)| root.as_str().len()) {
        return Some(name.clone());
    }
    let name = WorkspaceName::parse(HERE).ok()?;
    config.workspaces.insert(name.clone(), directory.clone());
    Some(name)
}
