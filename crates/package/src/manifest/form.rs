//! The form of `skill.toml`, and how it becomes a [`Manifest`].
//!
//! Guarantees: every key is known; what is missing has a default that is written here.

use std::collections::BTreeSet;

use palyra_types::{
    json::{Json, Limits},
    word::nearest,
};
use semver::Version;
use serde::Deserialize;
use serde_json::Value;
use toml::{Table, Value as Toml};

use super::{
    DEFAULT_ENTRY, MOST_BYTES, MOST_JSON_BYTES, MOST_TOOLS, Manifest, ManifestError, SkillTool,
    text::{is_block, is_homepage, is_license, is_line, is_tool},
};
use crate::{
    archive::is_plain_name,
    capability::Capabilities,
    id::{PackageId, PublisherName},
    limits::SkillLimits,
    schema,
};

/// How an author builds the program. It means nothing to whoever installs the package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildRecipe {
    /// What is run, in the directory of the skill.
    pub command: Vec<String>,
    /// The program that it makes, from that directory.
    pub output: String,
}

impl BuildRecipe {
    /// Reads how the program is built from the text of a `skill.toml`.
    ///
    /// # Errors
    /// When it is no such text, or does not say it in full.
    pub fn parse(text: &str) -> Result<Option<Self>, ManifestError> {
        Ok(read(text)?.build)
    }
}

/// The names of files that a manifest refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    pub entry: String,
    pub sbom: Option<String>,
    pub schemas: BTreeSet<String>,
}

impl Names {
    /// Reads them from the text of a `skill.toml`.
    pub fn of(text: &str) -> Result<Self, ManifestError> {
        Ok(read(text)?.names())
    }
}

/// Reads the form.
pub fn read(text: &str) -> Result<Form, ManifestError> {
    if text.len() > MOST_BYTES {
        return Err(ManifestError::TooLarge { bytes: text.len() });
    }
    let refused = |error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.bytes().filter(|&byte| byte == b'\n').count();
        ManifestError::Toml { line, message: error.message().to_owned() }
    };
    let table: Table = toml::from_str(text).map_err(refused)?;
    known_keys(&table)?;
    let form: Form = toml::from_str(text).map_err(refused)?;
    form.build.as_ref().map_or(Ok(()), check_build)?;
    Ok(form)
}

/// `skill.toml` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    id: String,
    version: String,
    publisher: String,
    license: String,
    summary: String,
    description: Option<String>,
    homepage: Option<String>,
    entry: Option<String>,
    sbom: Option<String>,
    #[serde(default)]
    tool: Vec<ToolForm>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default)]
    limits: SkillLimits,
    pub build: Option<BuildRecipe>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolForm {
    name: String,
    summary: String,
    description: Option<String>,
    input: Toml,
    output: Option<Toml>,
}

impl Form {
    /// The files that it refers to.
    pub fn names(&self) -> Names {
        let schemas = self.tool.iter().flat_map(|tool| [Some(&tool.input), tool.output.as_ref()]);
        let schemas = schemas.flatten().filter_map(Toml::as_str).map(str::to_owned).collect();
        let entry = self.entry.clone().unwrap_or_else(|| DEFAULT_ENTRY.to_owned());
        Names { entry, sbom: self.sbom.clone(), schemas }
    }

    /// The manifest that it stands for.
    pub fn manifest<'a>(self, file: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Manifest, ManifestError> {
        let id = PackageId::parse(&self.id).map_err(|source| ManifestError::Id { field: "id", source })?;
        let publisher =
            PublisherName::parse(&self.publisher).map_err(|source| ManifestError::Id { field: "publisher", source })?;
        if publisher != id.publisher() {
            return Err(ManifestError::Publisher { publisher, expected: id.publisher() });
        }
        let version = version(&self.version)?;
        if !is_license(&self.license) {
            return Err(ManifestError::License(self.license));
        }
        if let Some(homepage) = self.homepage.as_ref().filter(|homepage| !is_homepage(homepage)) {
            return Err(ManifestError::Homepage(homepage.clone()));
        }
        texts("", &self.summary, self.description.as_deref())?;
        let Names { entry, sbom, .. } = self.names();
        file_name("entry", &entry)?;
        sbom.as_deref().map_or(Ok(()), |name| file_name("sbom", name))?;
        self.capabilities.check()?;
        self.limits.check()?;
        let tools = tools(self.tool, &id, file)?;
        let manifest = Manifest {
            id,
            version,
            publisher,
            license: self.license,
            summary: self.summary,
            description: self.description,
            homepage: self.homepage,
            entry,
            sbom,
            tools,
            capabilities: self.capabilities,
            limits: self.limits,
        };
        fits(&manifest)?;
        Ok(manifest)
    }
}

fn version(text: &str) -> Result<Version, ManifestError> {
    let refused = |reason: String| ManifestError::Version { version: text.to_owned(), reason };
    if text.len() > MOST_VERSION_BYTES {
        return Err(refused(format!("it is longer than {MOST_VERSION_BYTES} bytes")));
    }
    let version = Version::parse(text).map_err(|error| refused(error.to_string()))?;
    // SECURITY: two versions that differ only there are the same version, so that one could be put in the place of the other.
    if !version.build.is_empty() {
        return Err(refused("it has something behind a `+`, which no version is told apart by".to_owned()));
    }
    Ok(version)
}

fn tools<'a>(
    forms: Vec<ToolForm>,
    id: &PackageId,
    file: impl Fn(&str) -> Option<&'a [u8]>,
) -> Result<Vec<SkillTool>, ManifestError> {
    if forms.is_empty() {
        return Err(ManifestError::NoTool);
    }
    if forms.len() > MOST_TOOLS {
        return Err(ManifestError::TooManyTools { count: forms.len() });
    }
    let mut names = BTreeSet::new();
    let mut tools = Vec::with_capacity(forms.len());
    for form in forms {
        if !is_tool(&form.name) {
            return Err(ManifestError::ToolName(form.name));
        }
        if !names.insert(form.name.clone()) {
            return Err(ManifestError::DuplicateTool(form.name));
        }
        id.tool_name(&form.name).map_err(|source| ManifestError::WholeToolName { tool: form.name.clone(), source })?;
        texts(&format!("tool.{}.", form.name), &form.summary, form.description.as_deref())?;
        let input = resolve(&form.name, "input", form.input, &file)?;
        let output = form.output.map(|output| resolve(&form.name, "output", output, &file)).transpose()?;
        tools.push(SkillTool { name: form.name, summary: form.summary, description: form.description, input, output });
    }
    Ok(tools)
}

/// The schema that is written in its place, or that is in the file which is named there.
fn resolve<'a>(
    tool: &str,
    which: &'static str,
    given: Toml,
    file: &impl Fn(&str) -> Option<&'a [u8]>,
) -> Result<Value, ManifestError> {
    let refused = |source| ManifestError::Schema { tool: tool.to_owned(), which, source };
    match given {
        Toml::String(name) => {
            file_name(&format!("tool.{tool}.{which}"), &name)?;
            let bytes = file(&name).ok_or_else(|| ManifestError::NoSchemaFile { tool: tool.to_owned(), file: name })?;
            schema::parse(bytes).map_err(refused)
        }
        Toml::Table(_) => schema::of(json(given)).map_err(refused),
        _ => Err(refused(schema::SchemaError::NoObject)),
    }
}

/// The same value as JSON. Dates, which JSON does not have, become `null` and so no schema.
fn json(value: Toml) -> Value {
    match value {
        Toml::String(text) => text.into(),
        Toml::Integer(number) => number.into(),
        Toml::Float(number) => number.into(),
        Toml::Boolean(truth) => truth.into(),
        Toml::Datetime(_) => Value::Null,
        Toml::Array(items) => items.into_iter().map(json).collect(),
        Toml::Table(members) => members.into_iter().map(|(key, member)| (key, json(member))).collect(),
    }
}

fn texts(within: &str, summary: &str, description: Option<&str>) -> Result<(), ManifestError> {
    if !is_line(summary, MOST_SUMMARY_BYTES) {
        let expected = "one visible line of at most 300 bytes";
        return Err(ManifestError::Text { field: format!("{within}summary"), expected });
    }
    match description {
        Some(text) if !is_block(text, MOST_DESCRIPTION_BYTES) => Err(ManifestError::Text {
            field: format!("{within}description"),
            expected: "visible text of at most 8192 bytes",
        }),
        _ => Ok(()),
    }
}

fn file_name(field: &str, name: &str) -> Result<(), ManifestError> {
    if is_plain_name(name) {
        Ok(())
    } else {
        Err(ManifestError::FileName { field: field.to_owned(), name: name.to_owned() })
    }
}

fn check_build(build: &BuildRecipe) -> Result<(), ManifestError> {
    if build.command.is_empty() {
        return Err(ManifestError::Build("the command is empty"));
    }
    let leaves = build.output.split('/').any(|part| matches!(part, "" | "." | ".."));
    if leaves { Err(ManifestError::Build("the output is no path below the directory of the skill")) } else { Ok(()) }
}

/// A manifest is kept and shown as JSON, so it has to fit as that.
fn fits(manifest: &Manifest) -> Result<(), ManifestError> {
    let limits = Limits { bytes: MOST_JSON_BYTES, depth: 48, values: usize::MAX };
    let value = serde_json::to_value(manifest).unwrap_or_default();
    Json::try_from_value(value, limits).map(|_| ()).map_err(ManifestError::TooMuch)
}

/// Refuses a key that is not known, and says which was meant.
fn known_keys(table: &Table) -> Result<(), ManifestError> {
    known("", table, TOP)?;
    for (name, keys) in [("capabilities", CAPABILITIES), ("limits", LIMITS), ("build", BUILD)] {
        if let Some(Toml::Table(inner)) = table.get(name) {
            known(&format!("{name}."), inner, keys)?;
        }
    }
    if let Some(Toml::Table(kv)) = table.get("capabilities").and_then(|capabilities| capabilities.get("kv")) {
        known("capabilities.kv.", kv, KV)?;
    }
    let tools = table.get("tool").and_then(Toml::as_array).map(Vec::as_slice).unwrap_or_default();
    tools.iter().filter_map(Toml::as_table).try_for_each(|tool| known("tool.", tool, TOOL))
}

fn known(within: &str, table: &Table, keys: &[&str]) -> Result<(), ManifestError> {
    match table.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(ManifestError::UnknownKey {
            key: format!("{within}{key}"),
            nearest: nearest(key, keys).map(|near| format!("{within}{near}")),
        }),
    }
}

const TOP: &[&str] = &[
    "id",
    "version",
    "publisher",
    "license",
    "summary",
    "description",
    "homepage",
    "entry",
    "sbom",
    "tool",
    "capabilities",
    "limits",
    "build",
];
const TOOL: &[&str] = &["name", "summary", "description", "input", "output"];
const CAPABILITIES: &[&str] = &["log", "clock", "random", "kv", "http", "secrets", "files", "inert"];
const KV: &[&str] = &["bytes", "entries"];
const LIMITS: &[&str] = &[
    "metering",
    "fuel",
    "cpu_ms",
    "wall_ms",
    "memory_bytes",
    "table_entries",
    "output_bytes",
    "host_calls",
    "host_bytes",
    "log_bytes",
];
const BUILD: &[&str] = &["command", "output"];

const MOST_SUMMARY_BYTES: usize = 300;
const MOST_DESCRIPTION_BYTES: usize = 8192;
const MOST_VERSION_BYTES: usize = 64;
