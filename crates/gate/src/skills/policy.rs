//! `[skills]`: what skills may have at the most, whatever they ask for and whatever was granted.
//!
//! Guarantees: what is not listed here is out of reach of every skill, also of those that were granted it before. Cedar decides about what is left.

use std::collections::BTreeSet;

use palyra_package::{Grants, SkillLimits};
use palyra_skills::store::InstalledSkill;
use serde::{Deserialize, Serialize};

/// What skills may have at the most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WasmPluginRunnerPolicy {
    /// Whether skills run at all.
    pub enabled: bool,
    /// Whether packages that nobody signed can be installed and run, for whoever works on them.
    pub development: bool,
    /// Whether whoever installs a skill of an unknown publisher may say that its key counts from then on.
    pub trust_on_first_use: bool,
    /// What can be granted.
    pub capabilities: BTreeSet<SkillCapability>,
    /// How much one call may use at the most. A skill may ask for less.
    pub limits: SkillLimits,
    /// How many bytes of what a call asked of the host are recorded, so that it can be run again; 0 for none.
    pub record_bytes: u64,
    /// How many calls of skills run at the same time. Counts from the next start.
    pub concurrent_calls: u32,
    /// How much memory all calls of skills have together. Counts from the next start.
    pub all_memory_bytes: u64,
}

palyra_types::words! {
    /// Something that a skill can be granted.
    pub enum SkillCapability ("capability of skills") {
        /// Lines in the log of its call.
        Log = "log",
        /// The time.
        Clock = "clock",
        /// Randomness.
        Random = "random",
        /// Something for its later calls.
        Kv = "kv",
        /// Hosts.
        Http = "http",
        /// Secrets that it does not see.
        Secrets = "secrets",
        /// Directories of the workspace.
        Files = "files",
    }
}

impl Default for WasmPluginRunnerPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            development: false,
            trust_on_first_use: false,
            capabilities: SkillCapability::ALL.iter().copied().collect(),
            limits: SkillLimits {
                fuel: 100_000_000_000,
                cpu_ms: 60_000,
                wall_ms: 120_000,
                memory_bytes: 512 << 20,
                table_entries: 100_000,
                output_bytes: 8 << 20,
                host_calls: 100_000,
                host_bytes: 64 << 20,
                log_bytes: 256 << 10,
                ..SkillLimits::default()
            },
            record_bytes: 1 << 20,
            concurrent_calls: 128,
            all_memory_bytes: 4 << 30,
        }
    }
}

impl WasmPluginRunnerPolicy {
    /// What of these grants counts.
    #[must_use]
    pub fn restrict(&self, grants: &Grants) -> Grants {
        let may = |capability| self.capabilities.contains(&capability);
        Grants {
            log: grants.log && may(SkillCapability::Log),
            clock: grants.clock && may(SkillCapability::Clock),
            random: grants.random && may(SkillCapability::Random),
            kv: grants.kv.filter(|_| may(SkillCapability::Kv)),
            http: if may(SkillCapability::Http) { grants.http.clone() } else { BTreeSet::new() },
            secrets: if may(SkillCapability::Secrets) { grants.secrets.clone() } else { Default::default() },
            files: if may(SkillCapability::Files) { grants.files.clone() } else { Default::default() },
        }
    }
}

impl WasmPluginRunnerPolicy {
    /// Whether it lets a skill do less than another does.
    pub(crate) fn lets_less(&self, before: &Self, skill: &InstalledSkill) -> bool {
        let limits = skill.manifest.limits.within(before.limits);
        before.enabled && !self.enabled
            || skill.development && before.development && !self.development
            || !before.restrict(&skill.grants).is_within(&self.restrict(&skill.grants))
            || limits.within(self.limits) != limits
    }
}

#[cfg(test)]
mod tests {
    use palyra_package::{Destination, KvQuota};

    use super::*;

    #[test]
    fn what_is_not_listed_is_out_of_reach_whatever_was_granted() {
        let granted = Grants {
            clock: true,
            kv: Some(KvQuota { bytes: 1, entries: 1 }),
            http: [Destination::parse("example.org:443").unwrap()].into(),
            ..Grants::default()
        };
        assert_eq!(WasmPluginRunnerPolicy::default().restrict(&granted), granted);
        let none = WasmPluginRunnerPolicy { capabilities: BTreeSet::new(), ..WasmPluginRunnerPolicy::default() };
        assert_eq!(none.restrict(&granted), Grants::default());
        let clock = WasmPluginRunnerPolicy {
            capabilities: [SkillCapability::Clock].into(),
            ..WasmPluginRunnerPolicy::default()
        };
        assert_eq!(clock.restrict(&granted), Grants { clock: true, ..Grants::default() });
    }
}
