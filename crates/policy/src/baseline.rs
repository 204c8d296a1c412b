//! What ships with Palyra: the baseline, the presets, and what the built-in tools can do. All of it is data under `policies/`.

use std::{collections::BTreeMap, sync::Arc};

use palyra_types::{ToolCapability, ToolMetadata, ToolName, word::words};
use serde::Deserialize;

use crate::{
    request::PolicyEvaluationConfig,
    source::{Layer, SourceFile},
};

/// The baseline policies: in force always, below every operator policy.
pub const DEFAULT_POLICY_SRC: &str = include_str!("../../../policies/baseline.cedar");

words! {
    /// A set of operator policies to start from.
    pub enum Preset ("preset") {
        /// Agents read inside the workspace, nothing else.
        Observe = "observe",
        /// Reads run; writes, processes and network ask.
        Cautious = "cautious",
        /// Reads, writes and contained processes in the workspace run; the rest asks.
        Workspace = "workspace",
    }
}

impl Preset {
    /// The preset of someone who has not chosen one.
    pub const DEFAULT: Self = Self::Cautious;

    /// What it does, in a sentence.
    #[must_use]
    pub fn summary(self) -> String {
        manifest()
            .ok()
            .and_then(|mut presets| presets.remove(self.as_str()))
            .map(|entry| entry.summary)
            .unwrap_or_default()
    }

    /// The policies of the preset.
    #[must_use]
    pub fn source(self) -> SourceFile {
        SourceFile::operator(format!("preset:{self}"), self.text())
    }

    /// The Cedar text of the preset.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Observe => include_str!("../../../policies/presets/observe.cedar"),
            Self::Cautious => include_str!("../../../policies/presets/cautious.cedar"),
            Self::Workspace => include_str!("../../../policies/presets/workspace.cedar"),
        }
    }

    /// The configuration that the preset is meant for, `allow_sensitive_tools` included.
    ///
    /// # Errors
    /// When the built-in manifest is broken, which is a broken build.
    pub fn config(self) -> Result<PolicyEvaluationConfig, DataError> {
        manifest()?.remove(self.as_str()).map(|entry| entry.config).ok_or(DataError::NoSuchPreset(self))
    }
}

/// The baseline as a source file.
pub(crate) fn baseline() -> SourceFile {
    SourceFile::new(Arc::from("built-in:baseline.cedar"), Arc::from(DEFAULT_POLICY_SRC), Layer::Baseline)
}

/// What is known about the built-in tools, by name.
///
/// # Errors
/// When the built-in table is broken, which is a broken build.
pub fn builtin_tools() -> Result<BTreeMap<ToolName, ToolMetadata>, DataError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        summary: String,
        capabilities: Vec<ToolCapability>,
    }
    let rows: BTreeMap<ToolName, Row> = toml::from_str(include_str!("../../../policies/tools.toml"))
        .map_err(|error| DataError::Broken { file: "tools.toml", message: error.to_string() })?;
    Ok(rows
        .into_iter()
        .map(|(name, Row { summary, capabilities })| {
            (name.clone(), ToolMetadata { name, summary, capabilities: capabilities.into_iter().collect() })
        })
        .collect())
}

/// Why built-in data cannot be used. It is part of the program, so this is a broken build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// A file does not parse.
    #[error("the built-in `{file}` is broken: {message}")]
    Broken {
        /// Which file.
        file: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// The manifest does not list a preset.
    #[error("the built-in `presets.toml` does not list `{0}`")]
    NoSuchPreset(Preset),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestEntry {
    summary: String,
    config: PolicyEvaluationConfig,
}

fn manifest() -> Result<BTreeMap<String, ManifestEntry>, DataError> {
    toml::from_str(include_str!("../../../policies/presets/presets.toml"))
        .map_err(|error| DataError::Broken { file: "presets.toml", message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_states_whether_sensitive_tools_are_on() {
        let states: Vec<_> = Preset::ALL
            .iter()
            .map(|preset| (preset.as_str(), preset.config().unwrap().allow_sensitive_tools))
            .collect();
        assert_eq!(states, [("observe", false), ("cautious", true), ("workspace", true)]);
        assert!(Preset::ALL.iter().all(|preset| !preset.summary().is_empty()));
    }

    #[test]
    fn the_built_in_tools_say_what_they_can_do() {
        let tools = builtin_tools().unwrap();
        assert!(tools[&ToolName::parse("process.run").unwrap()].capabilities.contains(&ToolCapability::ProcessExec));
    }
}
