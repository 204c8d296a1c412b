//! `config.toml`, all of it.
//!
//! Guarantees: an unknown section or key is an error that names the nearest known one; what is left out is the careful choice; a variable
//! `PALYRA_SECTION__KEY` overrides one key. Does not: open what it names. The gate and the journal do.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::Path,
    time::Duration,
};

use palyra_access::DEFAULT_PRINCIPAL_RATE_LIMIT_PER_MINUTE;
use palyra_gate::{
    GateConfig,
    config::{
        ApprovalsConfig, BudgetConfig, CallsConfig, EgressSection, PolicySection, Presence, PresetChoice,
        ToolCallConfig, WorkspaceSection,
    },
    skills::WasmPluginRunnerPolicy,
};
use palyra_identity::Address;
use palyra_journal::{Keeping, Retention, Rotation};
use palyra_policy::{LoadError, SourceFile, directory::read_policies, directory::read_text};
use palyra_provider::{ProviderSection, SectionError};
use palyra_types::{AbsolutePath, HostName, StateHome, WorkspaceName, visible::visible, word::nearest, word::words};
use palyra_upstream::ServerSection;
use palyra_vault::BackendKind;
use serde::{Deserialize, Serialize};

use crate::{
    compat::naming::{self, AgentSection},
    transcripts::TranscriptsSection,
};

/// Everything that is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the daemon listens.
    pub listen: ListenSection,
    /// What policy is told besides the policies themselves.
    pub policy: PolicySection,
    /// Where calls may work.
    pub workspace: Vec<WorkspaceSection>,
    /// How calls run.
    pub sandbox: ToolCallConfig,
    /// What calls may reach.
    pub egress: EgressSection,
    /// How people are asked.
    pub approvals: ApprovalsConfig,
    /// What a run may use.
    pub budget: BudgetConfig,
    /// How much may be under way at once.
    pub calls: CallsConfig,
    /// What skills may have at the most.
    pub skills: WasmPluginRunnerPolicy,
    /// How long and how much the journal keeps.
    pub journal: JournalSection,
    /// How fast programs may go.
    pub access: AccessSection,
    /// Who holds the key of the vault.
    pub vault: VaultSection,
    /// The servers of models that clients of other products reach through the daemon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provider: Vec<ProviderSection>,
    /// The agents whose loop the daemon runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agent: Vec<AgentSection>,
    /// What is kept of what is said with them.
    pub transcripts: TranscriptsSection,
    /// The MCP servers behind the gateway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<ServerSection>,
    /// How clients of the MCP server are waited with.
    pub mcp_gateway: McpGatewaySection,
    /// What the daemon says about itself.
    pub log: LogSection,
}

impl Config {
    /// Reads the configuration of a state directory. A file that is not there is an empty one.
    ///
    /// # Errors
    /// When it cannot be read or says something that makes no sense.
    pub fn read(home: &StateHome, variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let path = home.config();
        let text = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            _ => read_text(&path).map_err(|finding| ConfigError::Unreadable(finding.problem.to_string()))?,
        };
        Self::parse(&text, variables)
    }

    /// Reads a configuration and what overrides it.
    ///
    /// # Errors
    /// When it says something that makes no sense.
    pub fn parse(text: &str, variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let mut table: toml::Table = toml::from_str(text).map_err(|error| ConfigError::Invalid(error.to_string()))?;
        for (name, value) in variables {
            override_key(&mut table, &name, &value)?;
        }
        known_sections(&table)?;
        // Read from the text where nothing overrides it, because errors then show the line.
        let overridden = toml::from_str::<toml::Table>(text).ok().as_ref() != Some(&table);
        let config: Self = if overridden {
            table.try_into().map_err(|error: toml::de::Error| ConfigError::Invalid(error.to_string()))?
        } else {
            toml::from_str(text).map_err(|error| ConfigError::Invalid(error.to_string()))?
        };
        config.listen.check()?;
        config.vault.check(&config.workspace)?;
        palyra_provider::config::check(&config.provider)?;
        naming::check(&config.agent, &config.provider, &config.workspace)?;
        config.transcripts.check()?;
        palyra_upstream::check(&config.mcp)?;
        Ok(config)
    }

    /// Whether whoever answers has to show that they are there.
    #[must_use]
    pub fn wants_pin(&self) -> bool {
        self.approvals.presence == Presence::Pin
    }

    /// The part that the gate is told.
    #[must_use]
    pub fn gate(&self) -> GateConfig {
        GateConfig {
            policy: self.policy.clone(),
            workspace: self.workspace.clone(),
            sandbox: self.sandbox.clone(),
            egress: self.egress.clone(),
            approvals: self.approvals.clone(),
            budget: self.budget,
            calls: self.calls,
            skills: self.skills.clone(),
        }
    }

    /// The policies that this configuration puts in force: the preset's, and those of the state directory.
    ///
    /// # Errors
    /// With every file that cannot be used.
    pub fn policies(&self, directory: &Path) -> Result<Vec<SourceFile>, LoadError> {
        let mut sources: Vec<SourceFile> = match self.policy.preset {
            PresetChoice::Preset(preset) => vec![preset.source()],
            PresetChoice::None => Vec::new(),
        };
        if std::fs::symlink_metadata(directory).is_ok() {
            sources.extend(read_policies(directory)?);
        }
        Ok(sources)
    }
}

/// `[listen]`: where the daemon listens. Ports are fixed, because clients remember them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenSection {
    /// TLS, for the `palyra` command.
    pub control: SocketAddr,
    /// Plain HTTP on loopback, for agents and the console.
    pub local: SocketAddr,
    /// The names and addresses by which devices reach the control listener, besides those it is bound to. The first is told when pairing.
    pub names: Vec<HostName>,
    /// How long calls that run may go on when the daemon is told to stop.
    pub drain_seconds: u32,
}

impl Default for ListenSection {
    fn default() -> Self {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            control: SocketAddr::new(loopback, 7718),
            local: SocketAddr::new(loopback, 7717),
            names: Vec::new(),
            drain_seconds: 10,
        }
    }
}

impl ListenSection {
    /// How long calls that run may go on when the daemon is told to stop.
    #[must_use]
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.into())
    }

    /// Where devices reach the control listener, if that can be said: by the first name, or the address it is bound to.
    #[must_use]
    pub fn reachable(&self) -> Option<Address> {
        let bound = || HostName::parse(&self.control.ip().to_string()).ok();
        let host = match self.names.first() {
            Some(name) => Some(name.clone()),
            None if self.control.ip().is_unspecified() => None,
            None => bound(),
        };
        Address::new(host?, self.control.port()).ok()
    }

    /// Every name and address that the daemon's certificate is for.
    #[must_use]
    pub fn certified_names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        if !self.control.ip().is_unspecified() {
            names.push(self.control.ip().to_string());
        }
        names.extend(self.names.iter().map(ToString::to_string));
        names.sort();
        names.dedup();
        names
    }

    fn check(&self) -> Result<(), ConfigError> {
        if !self.local.ip().is_loopback() {
            return Err(ConfigError::LocalNotLoopback(self.local));
        }
        if self.local.port() == 0 || self.control.port() == 0 || self.local == self.control {
            return Err(ConfigError::Ports);
        }
        Ok(())
    }
}

/// `[journal]`: how long and how much the journal keeps, and where its checkpoints go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JournalSection {
    /// What records say is erased after this many days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bodies_for_days: Option<u32>,
    /// Older records are sealed in segments of this size.
    pub segment_bytes: u64,
    /// The oldest segments are dropped once all of it is larger than this.
    pub keep_bytes: u64,
    /// A file that signed checkpoints are added to. Best on another disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_file: Option<AbsolutePath>,
    /// An address that signed checkpoints are sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_url: Option<String>,
}

impl Default for JournalSection {
    fn default() -> Self {
        let Rotation { segment_bytes, keep_bytes } = Rotation::default();
        Self { bodies_for_days: None, segment_bytes, keep_bytes, checkpoint_file: None, checkpoint_url: None }
    }
}

impl JournalSection {
    /// As the journal is told.
    #[must_use]
    pub const fn keeping(&self) -> Keeping {
        Keeping {
            rotation: Rotation { segment_bytes: self.segment_bytes, keep_bytes: self.keep_bytes },
            retention: Retention { bodies_for: self.bodies_for_days },
        }
    }
}

/// `[access]`: how fast programs may go, whatever their tokens say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSection {
    /// How many requests a minute all tokens of one principal may make together.
    pub principal_per_minute: NonZeroU32,
}

impl Default for AccessSection {
    fn default() -> Self {
        Self { principal_per_minute: DEFAULT_PRINCIPAL_RATE_LIMIT_PER_MINUTE }
    }
}

/// `[mcp_gateway]`: how clients of the MCP server are waited with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpGatewaySection {
    /// How long a request for a call waits for a person. Clients give up after a minute.
    pub wait_seconds: NonZeroU32,
    /// How long a session is kept that nobody uses.
    pub idle_seconds: NonZeroU32,
}

impl Default for McpGatewaySection {
    fn default() -> Self {
        const fn seconds(count: u32) -> NonZeroU32 {
            match NonZeroU32::new(count) {
                Some(count) => count,
                None => NonZeroU32::MIN,
            }
        }
        Self { wait_seconds: seconds(50), idle_seconds: seconds(3_600) }
    }
}

/// `[vault]`: who holds the key of the vault, and how much of the past is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VaultSection {
    /// Who holds the key.
    pub backend: BackendChoice,
    /// Where keys are that are kept in files, sealed or not. Apart from the vault's own file, so that a copy of one is not a copy of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_directory: Option<AbsolutePath>,
    /// A file with the passphrase, for machines where nobody is there to type it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase_file: Option<AbsolutePath>,
    /// How many earlier versions of each secret are kept.
    pub keep_versions: u8,
}

impl Default for VaultSection {
    fn default() -> Self {
        Self { backend: BackendChoice::Auto, key_directory: None, passphrase_file: None, keep_versions: 1 }
    }
}

impl VaultSection {
    fn check(&self, workspaces: &[WorkspaceSection]) -> Result<(), ConfigError> {
        if self.keep_versions > MOST_VERSIONS {
            return Err(ConfigError::KeepVersions(self.keep_versions));
        }
        // SECURITY: what lies in a workspace is read by whatever works there.
        let places = self.key_directory.iter().chain(&self.passphrase_file);
        let mut exposed = places.filter(|place| workspaces.iter().any(|one| place.is_within(&one.path)));
        if let Some(place) = exposed.next() {
            return Err(ConfigError::KeyInWorkspace(place.clone()));
        }
        match self.backend {
            BackendChoice::Auto | BackendChoice::Passphrase => Ok(()),
            other if self.passphrase_file.is_some() => Err(ConfigError::NoPassphrase(other)),
            _ => Ok(()),
        }
    }
}

words! {
    /// Who is to hold the key of the vault.
    pub enum BackendChoice ("vault backend") {
        /// Whoever holds it already; for a new vault the keyring of the system if one answers, else a file.
        Auto = "auto",
        /// A file that only its owner reads.
        KeyFile = "key_file",
        /// A passphrase that a person knows.
        Passphrase = "passphrase",
        /// The Secret Service of a Linux desktop.
        SecretService = "secret_service",
        /// The Keychain of macOS.
        Keychain = "keychain",
        /// The credentials of a Windows user.
        Dpapi = "dpapi",
    }
}

impl BackendChoice {
    /// The backend that is named, if one is.
    #[must_use]
    pub const fn named(self) -> Option<BackendKind> {
        match self {
            Self::Auto => None,
            Self::KeyFile => Some(BackendKind::KeyFile),
            Self::Passphrase => Some(BackendKind::Passphrase),
            Self::SecretService => Some(BackendKind::SecretService),
            Self::Keychain => Some(BackendKind::Keychain),
            Self::Dpapi => Some(BackendKind::Dpapi),
        }
    }
}

/// `[log]`: what the daemon says about itself on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// `text` or `json`.
    pub format: LogFormat,
    /// How much: `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,palyra_daemon=debug`.
    pub level: String,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

words! {
    /// How log lines look.
    pub enum LogFormat ("log format") {
        /// For people.
        Text = "text",
        /// One JSON object for each line.
        Json = "json",
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("config.toml cannot be read: {0}")]
    Unreadable(String),
    /// It is no configuration.
    #[error("config.toml makes no sense: {0}")]
    Invalid(String),
    /// A section that does not exist.
    #[error("config.toml: unknown section `{}`{}", visible(.name), .near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    UnknownSection {
        /// Its name.
        name: String,
        /// What may be meant.
        near: Option<&'static str>,
    },
    /// A key that stands before any section.
    #[error("config.toml: the key `{}` stands under no section", visible(.0))]
    KeyOutside(String),
    /// A variable that names no key.
    #[error("the variable `{}` names no key of the configuration", visible(.0))]
    Variable(String),
    /// The local listener would be open to the network.
    #[error("`local` under [listen] is {0}, and plain HTTP is for loopback only")]
    LocalNotLoopback(SocketAddr),
    /// Ports that cannot be remembered.
    #[error("`local` and `control` under [listen] need a port each, not 0 and not the same")]
    Ports,
    /// More of the past than is kept.
    #[error("`keep_versions` under [vault] is {0}; at most {MOST_VERSIONS} are kept")]
    KeepVersions(u8),
    /// The key where agents work.
    #[error("`{0}` under [vault] lies in a workspace, where calls could read it")]
    KeyInWorkspace(AbsolutePath),
    /// An MCP server that cannot be used.
    #[error("[[mcp]]: {0}")]
    Mcp(#[from] palyra_upstream::SectionError),
    /// A server of models that cannot be used.
    #[error("[[provider]]: {0}")]
    Provider(#[from] SectionError),
    /// An agent that is none.
    #[error("[[agent]] `{}` has no good name, one that stands twice, no `model`, or a limit of zero", visible(.0))]
    Agent(String),
    /// An agent on a model that no provider has.
    #[error(
        "[[agent]] `{}`: no [[provider]] has the model `{}`{}", visible(.agent), visible(.model),
        .near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
    )]
    AgentModel {
        /// The agent.
        agent: String,
        /// The model.
        model: String,
        /// What may be meant.
        near: Option<String>,
    },
    /// An agent in a workspace that is not configured.
    #[error("[[agent]] `{}`: there is no [[workspace]] `{workspace}`", visible(.agent))]
    AgentWorkspace {
        /// The agent.
        agent: String,
        /// The workspace.
        workspace: WorkspaceName,
    },
    /// Transcripts that would be gone at once.
    #[error("`keep_days` or `keep_bytes` under [transcripts] is 0, so nothing could be kept")]
    Transcripts,
    /// A passphrase for somebody who takes none.
    #[error("`passphrase_file` under [vault] is given, and the backend `{0}` takes no passphrase")]
    NoPassphrase(BackendChoice),
}

impl ConfigError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "check who owns it and that it is a file in UTF-8",
            Self::Invalid(_) | Self::UnknownSection { .. } => "docs/configuration.md shows every section and key",
            Self::KeyOutside(_) => "write the line of its [section] above it, without `#`",
            Self::Variable(_) => "write it like PALYRA_LISTEN__LOCAL=127.0.0.1:7717",
            Self::LocalNotLoopback(_) => "set it to 127.0.0.1 with a port; the control listener may be elsewhere",
            Self::KeepVersions(_) => "set it to 0 to keep none but the newest",
            Self::KeyInWorkspace(_) => "leave `key_directory` out, or name a place outside of every workspace",
            Self::NoPassphrase(_) => "leave it out, or set `backend = \"passphrase\"`",
            Self::Provider(error) => error.advice(),
            Self::Mcp(error) => error.advice(),
            Self::Agent(_) => "give each a name of letters, digits, `.`, `_` and `-`, and a `model` of a [[provider]]",
            Self::AgentModel { .. } => {
                "name one of a provider's `models`, or PROVIDER/MODEL where the provider has `pass_through = true`"
            }
            Self::AgentWorkspace { .. } => {
                "name one that is configured, or leave `workspace` out where there is only one"
            }
            Self::Transcripts => "set `enabled = false` to keep nothing",
            Self::Ports => "for example `local = \"127.0.0.1:7717\"` and `control = \"127.0.0.1:7718\"`",
        }
    }
}

fn known_sections(table: &toml::Table) -> Result<(), ConfigError> {
    match table.keys().find(|name| !SECTIONS.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) if !table.get(name).is_some_and(|value| value.is_table() || value.is_array()) => {
            Err(ConfigError::KeyOutside(name.clone()))
        }
        Some(name) => Err(ConfigError::UnknownSection { name: name.clone(), near: nearest(name, SECTIONS) }),
    }
}

/// Sets `[section] key` from `PALYRA_SECTION__KEY`. Other variables are passed over.
fn override_key(table: &mut toml::Table, name: &str, value: &str) -> Result<(), ConfigError> {
    let Some((section, key)) = name.strip_prefix("PALYRA_").and_then(|rest| rest.split_once("__")) else {
        return Ok(());
    };
    let refused = || ConfigError::Variable(name.to_owned());
    let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
    let section = table.entry(section).or_insert_with(|| toml::Table::new().into());
    // What reads as TOML is meant as such; anything else is text.
    let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| value.into());
    section.as_table_mut().ok_or_else(refused)?.insert(key, value);
    Ok(())
}

/// The variables of this process, as far as they are text.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()))
}

/// How many earlier versions of a secret can be kept.
const MOST_VERSIONS: u8 = 16;

/// The sections there are.
pub const SECTIONS: &[&str] = &[
    "listen",
    "policy",
    "workspace",
    "sandbox",
    "egress",
    "approvals",
    "budget",
    "calls",
    "skills",
    "journal",
    "access",
    "vault",
    "provider",
    "agent",
    "transcripts",
    "mcp",
    "mcp_gateway",
    "log",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, [])
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(parse(""), Ok(Config::default()));
        let known = toml::Table::try_from(Config::default()).unwrap();
        assert!(known.keys().all(|section| SECTIONS.contains(&section.as_str())));
    }

    #[test]
    fn a_misspelt_section_or_key_is_told_with_what_may_be_meant() {
        let error = parse("[lisen]\nlocal = \"127.0.0.1:1\"").unwrap_err();
        assert_eq!(error.to_string(), "config.toml: unknown section `lisen`; did you mean `listen`?");
        let error = parse("[listen]\nlocl = \"127.0.0.1:1\"").unwrap_err();
        assert!(error.to_string().contains("expected one of"), "{error}");
    }

    #[test]
    fn the_local_listener_stays_on_loopback() {
        let error = parse("[listen]\nlocal = \"0.0.0.0:7717\"").unwrap_err();
        assert!(matches!(error, ConfigError::LocalNotLoopback(_)), "{error}");
        assert_eq!(parse("[listen]\nlocal = \"127.0.0.1:0\""), Err(ConfigError::Ports));
    }

    #[test]
    fn the_vault_is_configured_strictly() {
        assert_eq!(parse("[vault]\nbackend = \"passphrase\"").unwrap().vault.backend, BackendChoice::Passphrase);
        assert_eq!(parse("[vault]\nkeep_versions = 16").unwrap().vault.keep_versions, 16);
        assert_eq!(parse("[vault]\nkeep_versions = 17"), Err(ConfigError::KeepVersions(17)));
        for wrong in ["backend = \"keyfile\"", "key_directory = \"keys\"", "keep_version = 1", "keep_versions = -1"] {
            assert!(matches!(parse(&format!("[vault]\n{wrong}")), Err(ConfigError::Invalid(_))), "{wrong}");
        }
        let shop = "[[workspace]]\nname = \"shop\"\npath = \"/srv/shop\"\n";
        let exposed = parse(&format!("{shop}[vault]\nkey_directory = \"/srv/shop/keys\"")).unwrap_err();
        assert_eq!(exposed, ConfigError::KeyInWorkspace(AbsolutePath::parse("/srv/shop/keys").unwrap()));
        let file = "passphrase_file = \"/run/words\"";
        for (backend, fits) in [("auto", true), ("passphrase", true), ("key_file", false), ("secret_service", false)] {
            assert_eq!(parse(&format!("[vault]\nbackend = \"{backend}\"\n{file}")).is_ok(), fits, "{backend}");
        }
    }

    #[test]
    fn mcp_servers_are_configured_strictly() {
        let one = "[[mcp]]\nname = \"files\"\ncommand = [\"x\"]\n";
        assert_eq!(parse(one).unwrap().mcp.len(), 1);
        assert!(matches!(parse(&format!("{one}{one}")), Err(ConfigError::Mcp(_))));
        for wrong in ["comand = 1", "url = \"https://a.example\"", "hosts = [\"a.example\"]", "call_seconds = 0"] {
            assert!(matches!(parse(&format!("{one}{wrong}")), Err(ConfigError::Invalid(_))), "{wrong}");
        }
    }

    #[test]
    fn an_agent_names_a_model_and_a_workspace_that_there_are() {
        let said = |provider: &str, agent: &str| {
            let provider = format!("[[provider]]\nname = \"lab\"\nbase_url = \"http://127.0.0.1:9/v1\"\n{provider}\n");
            let workspace = "[[workspace]]\nname = \"shop\"\npath = \"/srv/shop\"\n";
            let read = parse(&format!("{provider}{workspace}[[agent]]\nname = \"coder\"\n{agent}"));
            read.map(|config| config.agent.len()).map_err(|error| error.to_string())
        };
        let (listed, open) = ("models = { fast = \"x\" }", "models = { fast = \"x\" }\npass_through = true");
        for (provider, agent) in [
            (listed, "model = \"fast\""),
            (listed, "model = \"lab/fast\""),
            (listed, "model = \"fast\"\nworkspace = \"shop\""),
            (open, "model = \"lab/anything\""),
        ] {
            assert_eq!(said(provider, agent), Ok(1), "{agent}");
        }
        for (provider, agent, why) in [
            (listed, "model = \"fats\"", "no [[provider]] has the model `fats`; did you mean `fast`?"),
            (listed, "model = \"lab/other\"", "no [[provider]] has the model `lab/other`"),
            (open, "model = \"anything\"", "no [[provider]] has the model `anything`"),
            (open, "model = \"elsewhere/anything\"", "no [[provider]] has the model `elsewhere/anything`"),
            (listed, "model = \"fast\"\nworkspace = \"shed\"", "there is no [[workspace]] `shed`"),
        ] {
            assert_eq!(said(provider, agent), Err(format!("[[agent]] `coder`: {why}")), "{agent}");
        }
    }

    #[test]
    fn a_variable_overrides_one_key() {
        let set = |name: &str, value: &str| Config::parse("[budget]\ncalls = 1", [(name.to_owned(), value.to_owned())]);
        assert_eq!(set("PALYRA_BUDGET__CALLS", "7").unwrap().budget.calls, 7);
        assert_eq!(set("PALYRA_LISTEN__LOCAL", "127.0.0.1:9").unwrap().listen.local.port(), 9);
        assert_eq!(set("PALYRA_HOME", "/x").unwrap().budget.calls, 1);
        assert!(set("PALYRA_BUDGET__CALS", "7").is_err());
        assert!(set("PALYRA_BUGDET__CALLS", "7").is_err());
    }

    #[test]
    fn the_page_about_the_configuration_shows_what_holds_without_one() {
        let page = include_str!("../../../docs/configuration.md");
        let shown = page.split("```toml\n[listen]\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let shown = format!("[listen]\n{shown}");
        assert_eq!(parse(&shown), Ok(Config::default()));
        let known = toml::Table::try_from(Config::default()).unwrap();
        let named: toml::Table = toml::from_str(&shown).unwrap();
        for section in ["listen", "journal", "access", "vault", "transcripts", "mcp_gateway", "log"] {
            let (known, named) = (known[section].as_table().unwrap(), named[section].as_table().unwrap());
            assert!(known.keys().all(|key| named.contains_key(key)), "[{section}] leaves out a key");
        }
    }

    #[test]
    fn the_file_that_init_writes_says_what_holds_without_it() {
        let text = include_str!("config.toml");
        assert_eq!(parse(text), Ok(Config::default()));
        let uncommented: String =
            text.lines().map(|line| format!("{}\n", line.strip_prefix("#: ").unwrap_or(line))).collect();
        assert_eq!(parse(&uncommented), Ok(Config::default()));
        assert_ne!(text, uncommented);
    }
}
