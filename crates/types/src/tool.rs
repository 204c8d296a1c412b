//! What a tool can do, and how freely it may be used.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{name::ToolName, word::words};

words! {
    /// What a tool needs from the machine.
    pub enum ToolCapability ("capability") {
        /// Starts processes.
        ProcessExec = "process_exec",
        /// Talks to other machines.
        Network = "network",
        /// Receives raw secrets.
        SecretsRead = "secrets_read",
        /// Writes files.
        FilesystemWrite = "filesystem_write",
        /// Reads files.
        FilesystemRead = "filesystem_read",
        /// Uses secrets by reference, without seeing them.
        SecretsUse = "secrets_use",
        /// Keeps state for later, such as memory or schedules.
        StateWrite = "state_write",
    }
}

impl ToolCapability {
    /// Whether the capability can harm the machine or leak data. Such tools ask by default and are off while
    /// `allow_sensitive_tools` is false.
    #[must_use]
    pub const fn is_sensitive(self) -> bool {
        match self {
            Self::ProcessExec | Self::Network | Self::SecretsRead | Self::FilesystemWrite => true,
            Self::FilesystemRead | Self::SecretsUse | Self::StateWrite => false,
        }
    }
}

words! {
    /// How freely a tool may be used.
    pub enum Posture ("posture") {
        /// Runs at once where policy permits.
        AlwaysAllow = "always_allow",
        /// A person is asked, unless a rule permits the call without asking.
        AskEachTime = "ask_each_time",
        /// Never runs, whatever policy says.
        Disabled = "disabled",
    }
}

/// What is known about a tool before any call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolMetadata {
    /// The tool's name.
    pub name: ToolName,
    /// What it does, in a sentence.
    pub summary: String,
    /// What it needs from the machine.
    #[serde(default)]
    pub capabilities: BTreeSet<ToolCapability>,
}

impl ToolMetadata {
    /// The posture of a tool nobody has set one for: tools with a sensitive capability ask.
    #[must_use]
    pub fn default_posture(&self) -> Posture {
        if self.capabilities.iter().any(|capability| capability.is_sensitive()) {
            Posture::AskEachTime
        } else {
            Posture::AlwaysAllow
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_with_a_sensitive_capability_asks_by_default() {
        let tool = |capabilities: &[ToolCapability]| ToolMetadata {
            name: ToolName::parse("some.tool").unwrap(),
            summary: String::new(),
            capabilities: capabilities.iter().copied().collect(),
        };
        assert_eq!(tool(&[ToolCapability::FilesystemRead]).default_posture(), Posture::AlwaysAllow);
        for &capability in ToolCapability::ALL.iter().filter(|capability| capability.is_sensitive()) {
            assert_eq!(tool(&[ToolCapability::FilesystemRead, capability]).default_posture(), Posture::AskEachTime);
        }
    }
}
