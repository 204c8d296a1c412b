//! `skill.toml`: what a skill is, what its tools are, and what it asks for.
//!
//! Guarantees: a [`Manifest`] is complete and consistent. Its publisher is the first part of its id, its tools have names of their own and
//! schemas that compile and refer to nothing outside, and every text that people see shows all of its characters. Keys that are not known are refused.
//! Does not: compare it with the program. [`crate::package`] does.

mod form;
mod text;

use std::collections::BTreeSet;

use palyra_types::{JsonError, NameError, ToolCapability, ToolName, visible::visible};
use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::form::BuildRecipe;
pub(crate) use self::form::Names;
use crate::{
    capability::{Capabilities, CapabilityError, FileAccess},
    id::{PackageId, PackageIdError, PublisherName},
    limits::{LimitsError, SkillLimits},
    schema::SchemaError,
};

/// What a skill says about itself. As JSON it is what interfaces show; the schemas of its tools are part of it, wherever they were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What it is called.
    pub id: PackageId,
    /// Its version.
    pub version: Version,
    /// Who publishes it.
    pub publisher: PublisherName,
    /// Under which license, in the words of SPDX.
    pub license: String,
    /// What it does, in a sentence.
    pub summary: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where there is more about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// The file of its program.
    pub entry: String,
    /// The file that lists what it is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sbom: Option<String>,
    /// What it can do.
    pub tools: Vec<SkillTool>,
    /// What it asks for.
    pub capabilities: Capabilities,
    /// How much a call may use.
    pub limits: SkillLimits,
}

/// One tool of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillTool {
    /// Its name in the skill.
    pub name: String,
    /// What it does, in a sentence.
    pub summary: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of what it takes.
    pub input: Value,
    /// The JSON Schema of what it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

impl Manifest {
    /// Reads the text of a `skill.toml`. `file` finds the schemas that are files of the package.
    ///
    /// # Errors
    /// When it is no such text, or does not hold together.
    pub fn parse<'a>(text: &str, file: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Self, ManifestError> {
        form::read(text)?.manifest(file)
    }

    /// What one of its tools is called beside every other tool: `skill.acme.text-diff.diff`.
    ///
    /// # Errors
    /// When that is no name, which no tool of a manifest that was read gives cause for.
    pub fn tool_name(&self, tool: &SkillTool) -> Result<ToolName, NameError> {
        self.id.tool_name(&tool.name)
    }

    /// One of its tools, by its name in the skill.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&SkillTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// What its tools need from the machine, in the words that policies use.
    #[must_use]
    pub fn tool_capabilities(&self) -> BTreeSet<ToolCapability> {
        self.capabilities.tool_capabilities()
    }
}

impl Capabilities {
    /// What is asked for, in the words that policies use.
    #[must_use]
    pub fn tool_capabilities(&self) -> BTreeSet<ToolCapability> {
        let mut needed = BTreeSet::new();
        if !self.http.is_empty() {
            needed.insert(ToolCapability::Network);
        }
        if !self.secrets.is_empty() {
            needed.insert(ToolCapability::SecretsUse);
        }
        if self.kv.is_some() {
            needed.insert(ToolCapability::StateWrite);
        }
        for access in self.files.values() {
            needed.insert(ToolCapability::FilesystemRead);
            if *access == FileAccess::Write {
                needed.insert(ToolCapability::FilesystemWrite);
            }
        }
        needed
    }
}

/// Why a `skill.toml` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Too large.
    #[error("it takes {bytes} bytes; the limit is {MOST_BYTES}")]
    TooLarge {
        /// How many it takes.
        bytes: usize,
    },
    /// Not TOML, or a value that has no place there.
    #[error("line {line}: {}", visible(.message))]
    Toml {
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// A key that nobody knows.
    #[error("`{}` is not known{}", visible(.key), near(.nearest.as_deref()))]
    UnknownKey {
        /// The key, with the tables that it is in.
        key: String,
        /// What was meant, perhaps.
        nearest: Option<String>,
    },
    /// The id or the publisher is none.
    #[error("`{field}`: {source}")]
    Id {
        /// Which.
        field: &'static str,
        /// Why.
        source: PackageIdError,
    },
    /// No version.
    #[error("`version`: `{}` is no semantic version: {}", visible(.version), visible(.reason))]
    Version {
        /// As given.
        version: String,
        /// Why.
        reason: String,
    },
    /// Two publishers.
    #[error("`publisher` is `{publisher}`, and the id says `{expected}`")]
    Publisher {
        /// As given.
        publisher: PublisherName,
        /// The first part of the id.
        expected: PublisherName,
    },
    /// A text that is empty, too long, or hides something.
    #[error("`{field}` is not {expected}")]
    Text {
        /// Which.
        field: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// The license is none.
    #[error("`license`: `{}` is no SPDX expression", visible(.0))]
    License(String),
    /// No address.
    #[error("`homepage`: `{}` is no address of a page", visible(.0))]
    Homepage(String),
    /// The name of a file is none.
    #[error("`{field}`: `{}` is no name of a file in the package", visible(.name))]
    FileName {
        /// Which.
        field: String,
        /// As given.
        name: String,
    },
    /// Nothing that it can do.
    #[error("it has no tool")]
    NoTool,
    /// Too many.
    #[error("it has {count} tools; the limit is {MOST_TOOLS}")]
    TooManyTools {
        /// How many.
        count: usize,
    },
    /// A tool cannot be called that.
    #[error("`{}` is no name of a tool", visible(.0))]
    ToolName(String),
    /// Two tools of one name.
    #[error("there are two tools called `{0}`")]
    DuplicateTool(String),
    /// The whole name of a tool is too long.
    #[error("the tool `{tool}`: {source}")]
    WholeToolName {
        /// Which.
        tool: String,
        /// Why.
        source: NameError,
    },
    /// The file of a schema is not there.
    #[error("the tool `{tool}`: there is no file `{}` in the package", visible(.file))]
    NoSchemaFile {
        /// Which.
        tool: String,
        /// The file.
        file: String,
    },
    /// A schema is none.
    #[error("the tool `{tool}`, `{which}`: {source}")]
    Schema {
        /// Which tool.
        tool: String,
        /// `input` or `output`.
        which: &'static str,
        /// Why.
        source: SchemaError,
    },
    /// What it asks for makes no sense.
    #[error("`capabilities`: {0}")]
    Capability(#[from] CapabilityError),
    /// A limit makes no sense.
    #[error("`limits`: {0}")]
    Limits(#[from] LimitsError),
    /// Schemas and texts together are too much.
    #[error("with its schemas it takes more than {MOST_JSON_BYTES} bytes: {0}")]
    TooMuch(JsonError),
    /// How it is built makes no sense.
    #[error("`build`: {0}")]
    Build(&'static str),
}

impl ManifestError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::TooLarge { .. } | Self::TooMuch(_) => {
                "keep schemas small, and put long texts into SKILL.md".to_owned()
            }
            Self::Toml { line, .. } => format!("correct line {line} of skill.toml"),
            Self::UnknownKey { nearest: Some(near), .. } => format!("write `{near}`"),
            Self::UnknownKey { .. } => "take it out of skill.toml".to_owned(),
            Self::Id { source, .. } => source.advice().to_owned(),
            Self::Version { .. } => "write a version like `1.2.0`, without anything behind a `+`".to_owned(),
            Self::Publisher { expected, .. } => format!("write `publisher = \"{expected}\"`, or change the id"),
            Self::Text { field, expected } => format!("make `{field}` {expected}"),
            Self::License(_) => "write a license like `Apache-2.0` or `MIT OR Apache-2.0`".to_owned(),
            Self::Homepage(_) => "write an address like `https://example.org/skill`".to_owned(),
            Self::FileName { .. } => "name a file like `schemas/input.json`, with letters, digits and . _ -".to_owned(),
            Self::NoTool => "add a [[tool]] with a name, a summary and an input".to_owned(),
            Self::TooManyTools { .. } => "split it into several skills".to_owned(),
            Self::ToolName(_) => {
                "name a tool with lower-case letters, digits, _ and -, beginning with a letter or a digit".to_owned()
            }
            Self::DuplicateTool(_) => "give each tool a name of its own".to_owned(),
            Self::WholeToolName { .. } => "give the tool, or the skill, a shorter name".to_owned(),
            Self::NoSchemaFile { file, .. } => format!("add `{}` to the package, below `schemas/`", visible(file)),
            Self::Schema { source, .. } => source.advice().to_owned(),
            Self::Capability(error) => error.advice().to_owned(),
            Self::Limits(error) => error.advice().to_owned(),
            Self::Build(_) => {
                "write `command = [\"cargo\", \"build\"]` and `output = \"target/skill.wasm\"`".to_owned()
            }
        }
    }
}

fn near(nearest: Option<&str>) -> String {
    nearest.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// The largest `skill.toml`: 256 KiB.
pub const MOST_BYTES: usize = 256 << 10;
/// The most tools of one skill.
pub const MOST_TOOLS: usize = 64;
/// The largest manifest as JSON, schemas included: 1 MiB.
pub const MOST_JSON_BYTES: usize = 1 << 20;
/// The file of the program, if the manifest does not name it.
pub const DEFAULT_ENTRY: &str = "skill.wasm";

#[cfg(test)]
mod tests;
