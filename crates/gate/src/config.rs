//! What the operator configures about calls: the sections `[policy]`, `[[workspace]]`, `[sandbox]`, `[[egress.host]]`, `[approvals]`,
//! `[budget]` and `[calls]` of `config.toml`.
//!
//! Guarantees: an unknown key is an error; what is left out is the careful choice. Does not: read files.

use std::{collections::BTreeSet, num::NonZeroU32, path::PathBuf, time::Duration};

use palyra_journal::state::{Charge, PendingLimits};
use palyra_policy::{Allowlist, DataError, PolicyEvaluationConfig, Preset, PrincipalName};
use palyra_sandbox::{
    Interpreters, Limits, UnixSockets,
    egress::HostRules,
    tier_c::{TierCOptions, linux::LinuxOptions, stock::WarmOptions},
};
use palyra_types::{
    AbsolutePath, Action, Channel, EgressEnforcementMode, ObjectId, SandboxTier, SkillId, ToolName, WorkspaceName,
};
use serde::{Deserialize, Serialize};

use crate::skills::WasmPluginRunnerPolicy;

/// Everything that is configured about calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateConfig {
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
}

impl GateConfig {
    /// What the policy engine is told, with the preset's own choices where nothing else is said.
    ///
    /// # Errors
    /// When the preset's data is broken, which is a broken build.
    pub fn evaluation(&self, state_directory: &AbsolutePath) -> Result<PolicyEvaluationConfig, DataError> {
        let section = &self.policy;
        let mut config = match section.preset {
            PresetChoice::Preset(preset) => preset.config()?,
            // Its policies are left out, not the lists that policies of one's own can test.
            PresetChoice::None => Preset::Cautious.config()?,
        };
        let PolicyEvaluationConfig { allow_sensitive_tools, allowlisted_tools, allowlisted_skills, .. } = &mut config;
        set(allow_sensitive_tools, section.allow_sensitive_tools.as_ref());
        set(allowlisted_tools, section.allowlisted_tools.as_ref());
        set(allowlisted_skills, section.allowlisted_skills.as_ref());
        set(&mut config.allowlisted_mcp, section.allowlisted_mcp.as_ref());
        set(&mut config.tool_execute_channel_allowlist, section.tool_execute_channel_allowlist.as_ref());
        set(&mut config.tool_execute_principal_allowlist, section.tool_execute_principal_allowlist.as_ref());
        config.sensitive_actions.extend(&section.sensitive_actions);
        config.quarantined_skills.extend(section.quarantined_skills.iter().cloned());
        config.palyra_programs.extend(section.palyra_programs.iter().cloned());
        config.workspaces = self.workspace.iter().map(|one| (one.name.clone(), one.path.clone())).collect();
        config.state_directory = Some(state_directory.clone());
        Ok(config)
    }
}

/// `[policy]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySection {
    /// The preset in force beside the operator's own files, or `"none"`.
    pub preset: PresetChoice,
    /// Whether tools with a sensitive capability can be used at all; else as the preset says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_sensitive_tools: Option<bool>,
    /// Tools that the baseline lets run; else as the preset says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowlisted_tools: Option<Allowlist<ToolName>>,
    /// Skills that the baseline lets run; else as the preset says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowlisted_skills: Option<Allowlist<SkillId>>,
    /// MCP servers whose tools the baseline lets run; else as the preset says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowlisted_mcp: Option<Allowlist<ObjectId>>,
    /// Skills that must not run until a person has looked at them.
    pub quarantined_skills: BTreeSet<SkillId>,
    /// Principals that may use tools; else as the preset says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_execute_principal_allowlist: Option<Allowlist<PrincipalName>>,
    /// Where Palyra's own programs are, besides anything called `palyra` or `palyrad`.
    pub palyra_programs: BTreeSet<AbsolutePath>,
    /// Surfaces that tools may be used from; else as the preset says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_execute_channel_allowlist: Option<Allowlist<Channel>>,
    /// Actions that always ask, in addition to the built-in ones.
    pub sensitive_actions: BTreeSet<Action>,
}

/// Which preset is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PresetChoice {
    /// This one.
    Preset(Preset),
    /// None: the operator's own files say everything.
    None,
}

impl Default for PresetChoice {
    fn default() -> Self {
        Self::Preset(Preset::Cautious)
    }
}

impl Serialize for PresetChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Preset(preset) => preset.serialize(serializer),
            Self::None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for PresetChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        if word == "none" {
            return Ok(Self::None);
        }
        Preset::parse(&word).map(Self::Preset).map_err(serde::de::Error::custom)
    }
}

/// `[[workspace]]`: a directory that calls may work in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceSection {
    /// What calls name it by.
    pub name: WorkspaceName,
    /// Where it is.
    pub path: AbsolutePath,
}

/// `[sandbox]`: the ways a program may run, strongest first, and what bounds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolCallConfig {
    /// The candidates, strongest first. The first that policy allows is taken, else the first that asks.
    pub plans: Vec<Candidate>,
    /// The bounds of every process.
    pub limits: Limits,
    /// Directories that programs are looked for in.
    pub search_path: Vec<AbsolutePath>,
    /// Variables that are passed on from the daemon's own environment.
    pub pass_environment: BTreeSet<String>,
    /// Whether tier B, which cannot contain them, runs programs that run code they are handed.
    pub tier_b_interpreters: Interpreters,
    /// Directories that programs of tier C can read and execute, besides the system's own programs and the workspace.
    pub read_only: Vec<AbsolutePath>,
    /// How many bytes the temporary files of a program of tier C may take.
    pub temporary_bytes: u64,
    /// Whether programs of tier C may use Unix sockets. One that lies in the workspace may lead to somebody outside.
    pub unix_sockets: UnixSockets,
    /// Whether tier C runs nothing unless a cgroup bounds it.
    pub require_cgroup: bool,
    /// Bubblewrap's file; looked for if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bubblewrap: Option<AbsolutePath>,
    /// The first of the users that programs of tier C run as, where the daemon is root's. Nobody else may have these.
    pub first_user: u32,
    /// How many enclosures of tier C wait for calls, and how long.
    pub warm: WarmSection,
    /// What bounds servers that the daemon starts.
    pub servers: ServersSection,
}

/// `[sandbox.warm]`: enclosures that are started ahead of need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmSection {
    /// For each workspace and principal in use; 0 for none.
    pub each: u8,
    /// In all.
    pub most: u8,
    /// How long they wait without a call.
    pub idle_seconds: u32,
}

impl Default for WarmSection {
    fn default() -> Self {
        Self { each: 2, most: 8, idle_seconds: 120 }
    }
}

/// `[sandbox.servers]`: programs of tier C that the daemon speaks with for as long as they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServersSection {
    /// How many run at once.
    pub most: u16,
    /// Processor time of each of their processes, in seconds; 0 for no bound.
    pub cpu_seconds: u64,
    /// How much is kept of the last that they write to standard error, in bytes.
    pub stderr_bytes: u64,
}

impl Default for ServersSection {
    fn default() -> Self {
        Self { most: 16, cpu_seconds: 0, stderr_bytes: 64 << 10 }
    }
}

impl ToolCallConfig {
    /// What the sandbox is told about tier C. What it makes goes into this directory.
    #[must_use]
    pub fn tier_c(&self, directory: PathBuf, trust: &[AbsolutePath]) -> TierCOptions {
        let WarmSection { each, most, idle_seconds } = self.warm;
        TierCOptions {
            linux: LinuxOptions {
                bubblewrap: self.bubblewrap.as_ref().map(|path| PathBuf::from(path.as_str())),
                directory,
                first_user: self.first_user,
                require_cgroup: self.require_cgroup,
                trust: trust.iter().map(|path| PathBuf::from(path.as_str())).collect(),
                read_only: self.read_only.iter().map(|path| PathBuf::from(path.as_str())).collect(),
            },
            warm: WarmOptions { each: each.into(), most: most.into(), idle: Duration::from_secs(idle_seconds.into()) },
        }
    }
}

impl Default for ToolCallConfig {
    fn default() -> Self {
        let path = |text| AbsolutePath::parse(text).ok();
        Self {
            plans: vec![
                Candidate { tier: SandboxTier::C, egress: EgressEnforcementMode::Strict },
                Candidate { tier: SandboxTier::B, egress: EgressEnforcementMode::Preflight },
            ],
            limits: Limits::default(),
            search_path: ["/usr/local/bin", "/usr/bin", "/bin"].into_iter().filter_map(path).collect(),
            pass_environment: ["LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"].map(str::to_owned).into(),
            tier_b_interpreters: Interpreters::Refuse,
            read_only: ["/opt"].into_iter().filter_map(path).collect(),
            temporary_bytes: 1 << 30,
            unix_sockets: UnixSockets::Refuse,
            require_cgroup: false,
            bubblewrap: None,
            first_user: 1_900_000_000,
            warm: WarmSection::default(),
            servers: ServersSection::default(),
        }
    }
}

/// One way to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// What contains it.
    pub tier: SandboxTier,
    /// How its network is held.
    pub egress: EgressEnforcementMode,
}

/// `[egress]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressSection {
    /// `[[egress.host]]`: the hosts that calls may reach, each with its ports and terms.
    pub host: HostRules,
    /// Files with certificates of authorities that programs in tier C and `http.fetch` trust, besides those that the machine trusts.
    pub trust: Vec<AbsolutePath>,
}

/// `[approvals]`: how people are asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalsConfig {
    /// How long a question waits for an answer.
    pub answer_within_seconds: u32,
    /// How long an answer may wait for the call to start.
    pub valid_for_seconds: u32,
    /// How many questions may be pending.
    pub most_pending: u64,
    /// How many questions of one principal may be pending.
    pub most_pending_of_one: u64,
    /// How many bytes the pending questions of one principal may take together.
    pub most_pending_bytes_of_one: u64,
    /// The longest time that a standing approval can be given for.
    pub longest_timebox_minutes: u32,
    /// What whoever answers has to show, besides their credential.
    pub presence: Presence,
}

impl Default for ApprovalsConfig {
    fn default() -> Self {
        Self {
            answer_within_seconds: 600,
            valid_for_seconds: 120,
            most_pending: 10_000,
            most_pending_of_one: 5_000,
            most_pending_bytes_of_one: 128 << 20,
            longest_timebox_minutes: 480,
            presence: Presence::None,
        }
    }
}

impl ApprovalsConfig {
    /// How many questions may be pending, as the journal counts them.
    #[must_use]
    pub const fn pending(&self) -> PendingLimits {
        PendingLimits {
            most: self.most_pending,
            most_of_one: self.most_pending_of_one,
            most_bytes_of_one: self.most_pending_bytes_of_one,
        }
    }
}

palyra_types::words! {
    /// What shows that a person is present when an approval is answered.
    pub enum Presence ("kind of presence") {
        /// Nothing but the credential.
        None = "none",
        /// A PIN, once for each session of answering.
        Pin = "pin",
    }
}

/// `[budget]`: what a run may use, unless it is opened with less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Calls.
    pub calls: u64,
    /// Seconds that calls run for, all together.
    pub wall_seconds: u64,
    /// Bytes that calls print, all together.
    pub output_bytes: u64,
    /// After how many seconds a run that nobody opened is followed by another, so that this is what may be used in that time.
    pub renew_seconds: NonZeroU32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        let renew_seconds = NonZeroU32::MIN.saturating_add(3_599);
        Self { calls: 1_000, wall_seconds: 4 * 3_600, output_bytes: 256 << 20, renew_seconds }
    }
}

impl BudgetConfig {
    /// The budget as the journal counts it.
    #[must_use]
    pub const fn limits(self) -> Charge {
        Charge { calls: self.calls, wall_ms: self.wall_seconds.saturating_mul(1_000), output_bytes: self.output_bytes }
    }

    /// How long a run lasts that nobody opened.
    #[must_use]
    pub fn lasts(self) -> Duration {
        Duration::from_secs(self.renew_seconds.get().into())
    }
}

/// `[calls]`: how much may be under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallsConfig {
    /// How many calls run; further ones wait for their turn.
    pub most_running: NonZeroU32,
    /// How many of them may belong to one principal.
    pub most_running_of_one: NonZeroU32,
    /// How many calls of one principal may be under way, those that a person is or was asked about not counted; further ones are refused.
    pub most_under_way_of_one: NonZeroU32,
}

impl Default for CallsConfig {
    fn default() -> Self {
        let some = |limit| NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN);
        Self { most_running: some(64), most_running_of_one: some(32), most_under_way_of_one: some(1_000) }
    }
}

fn set<T: Clone>(value: &mut T, configured: Option<&T>) {
    if let Some(configured) = configured {
        value.clone_from(configured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_the_configuration_shows_what_holds_without_one() {
        let page = include_str!("../../../docs/configuration.md");
        let shown = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(toml::from_str::<GateConfig>(shown).unwrap(), GateConfig::default());
        let named: toml::Table = toml::from_str(shown).unwrap();
        let known = toml::Table::try_from(GateConfig::default()).unwrap();
        for (section, value) in named {
            let (shown, known) = (value.as_table().unwrap(), known.get(&section).unwrap().as_table().unwrap());
            assert!(known.keys().all(|key| shown.contains_key(key)), "[{section}] leaves out a key");
        }
    }

    #[test]
    fn a_gate_that_lets_nothing_run_is_no_configuration() {
        let refused = toml::from_str::<GateConfig>("[calls]\nmost_running = 0").unwrap_err();
        assert!(refused.to_string().contains("nonzero"), "{refused}");
    }

    #[test]
    fn every_key_that_the_guide_to_policy_names_is_known() {
        let page = include_str!("../../../docs/policy.md");
        let shown = page.split("```toml\n[policy]\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        toml::from_str::<GateConfig>(&format!("[policy]\n{shown}")).unwrap();
    }
}
