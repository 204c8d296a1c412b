//! A package: the one way from bytes that came from somewhere to a skill that can be installed.
//!
//! Guarantees: a [`Package`] was read whole. Its archive is spelt in the one way, its manifest holds together, its program is valid, is called in
//! a way that is known, and imports nothing that the manifest does not ask for; there is no file in it that has no meaning.
//! Does not: look at signatures or grants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use palyra_types::{
    Sha256Digest,
    json::{Json, Limits},
    visible::visible,
};

use crate::{
    archive::{self, ArchiveError},
    golden::{GoldenCase, GoldenError},
    imports::{self, ImportsError, Missing, Required},
    manifest::{BuildRecipe, Manifest, ManifestError, Names},
};

/// A skill as it is handed around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// What it says about itself.
    pub manifest: Arc<Manifest>,
    /// Its program: a component, or a core module.
    pub component: Arc<[u8]>,
    /// What its program is and needs.
    pub required: Required,
    /// The digest of the archive.
    pub digest: Sha256Digest,
    /// The digest of the program.
    pub component_digest: Sha256Digest,
    /// How an agent uses it, in prose.
    pub skill_md: Option<String>,
    /// Its golden cases by the name of their file.
    pub golden: BTreeMap<String, GoldenCase>,
}

impl Package {
    /// Reads an archive.
    ///
    /// # Errors
    /// When it is refused; see [`PackageError`].
    pub fn read(archive: &[u8]) -> Result<Self, PackageError> {
        let mut files = archive::unpack(archive)?;
        let text = manifest_text(&files)?;
        let names = Names::of(text)?;
        let manifest = Manifest::parse(text, |name| files.get(name).map(Vec::as_slice))?;
        if let Some(name) = files.keys().find(|name| !belongs(name, &names)) {
            return Err(PackageError::Unexpected(name.clone()));
        }
        if let Some(name) = &manifest.sbom {
            let sbom = files.get(name).ok_or_else(|| PackageError::Absent { field: "sbom", name: name.clone() })?;
            Json::parse(sbom, SBOM).map_err(|error| PackageError::Sbom(error.to_string()))?;
        }
        let skill_md = files.get(SKILL_MD).map(|bytes| prose(bytes)).transpose()?;
        let golden = golden_cases(&files, &manifest)?;
        let component = files
            .remove(&manifest.entry)
            .ok_or_else(|| PackageError::Absent { field: "entry", name: manifest.entry.clone() })?;
        let required = imports::required(&component)?;
        let missing = required.missing_from(&manifest.capabilities);
        if !missing.is_empty() {
            return Err(PackageError::AsksForLess(missing));
        }
        Ok(Self {
            manifest: Arc::new(manifest),
            component_digest: Sha256Digest::of(&component),
            component: component.into(),
            required,
            digest: Sha256Digest::of(archive),
            skill_md,
            golden,
        })
    }

    /// Makes the archive of an author's directory. Of `files`, by their path from there, it takes what [`Sources::wants`].
    ///
    /// # Errors
    /// When what comes out would be refused by [`Self::read`].
    pub fn build(files: BTreeMap<String, Vec<u8>>) -> Result<Built, PackageError> {
        let sources = Sources::of(manifest_text(&files)?)?;
        let mut packed = BTreeMap::new();
        for (path, content) in files {
            if path == sources.program() {
                packed.insert(sources.names.entry.clone(), content);
            } else if path != sources.names.entry && sources.wants(&path) {
                packed.insert(path, content);
            }
        }
        let archive = archive::pack(&packed)?;
        let package = Self::read(&archive)?;
        imports::check_code(&package.component)?;
        Ok(Built { archive, package })
    }

    /// The name of its file: `text-diff-1.2.0.skill`.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}-{}.skill", self.manifest.id.name(), self.manifest.version)
    }
}

/// What came of an author's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The archive.
    pub archive: Vec<u8>,
    /// The same, read back.
    pub package: Package,
}

/// Which files of an author's directory become part of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    names: Names,
    build: Option<BuildRecipe>,
}

impl Sources {
    /// Reads which, from the text of a `skill.toml`.
    ///
    /// # Errors
    /// When it is no such text.
    pub fn of(skill_toml: &str) -> Result<Self, ManifestError> {
        Ok(Self { names: Names::of(skill_toml)?, build: BuildRecipe::parse(skill_toml)? })
    }

    /// How the program is built, if the author says so.
    #[must_use]
    pub const fn recipe(&self) -> Option<&BuildRecipe> {
        self.build.as_ref()
    }

    /// Where the program is, from the author's directory.
    #[must_use]
    pub fn program(&self) -> &str {
        self.build.as_ref().map_or(&self.names.entry, |build| &build.output)
    }

    /// Whether a file, by its path from the author's directory, becomes part of the package.
    #[must_use]
    pub fn wants(&self, path: &str) -> bool {
        path == self.program() || (path != self.names.entry && belongs(path, &self.names))
    }
}

/// Reads bytes as a package, and as everything that a package is made of. For whoever tries to break it: whatever comes in, this comes back.
pub fn intake(bytes: &[u8]) {
    let _ = Package::read(bytes);
    let _ = imports::required(bytes);
    let _ = imports::check_code(bytes);
    let _ = GoldenCase::parse(bytes);
    let _ = crate::schema::parse(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Manifest::parse(text, |_| None);
        let _ = Sources::of(text);
        let _ = crate::signature::PublisherKey::parse(text);
        let _ = crate::signature::signer_of(text);
    }
}

/// Whether a file has a meaning in a package.
fn belongs(name: &str, names: &Names) -> bool {
    let json_in = |directory: &str| {
        let inside = name.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
        inside.is_some_and(|rest| !rest.contains('/') && rest.ends_with(".json"))
    };
    let is_license = name.starts_with("LICENSE") && !name.contains('/');
    name == names.entry
        || names.sbom.as_deref() == Some(name)
        || matches!(name, MANIFEST | SKILL_MD | "README.md")
        || is_license
        || json_in("schemas")
        || json_in("tests")
}

fn manifest_text(files: &BTreeMap<String, Vec<u8>>) -> Result<&str, PackageError> {
    let bytes = files.get(MANIFEST).ok_or(PackageError::NoManifest)?;
    std::str::from_utf8(bytes).map_err(|_| PackageError::NotText(MANIFEST))
}

fn prose(bytes: &[u8]) -> Result<String, PackageError> {
    if bytes.len() > MOST_PROSE_BYTES {
        return Err(PackageError::ProseTooLong { bytes: bytes.len() });
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| PackageError::NotText(SKILL_MD))
}

fn golden_cases(
    files: &BTreeMap<String, Vec<u8>>,
    manifest: &Manifest,
) -> Result<BTreeMap<String, GoldenCase>, PackageError> {
    let tools: BTreeSet<&str> = manifest.tools.iter().map(|tool| tool.name.as_str()).collect();
    let mut cases = BTreeMap::new();
    for (name, content) in files.iter().filter(|(name, _)| name.starts_with("tests/")) {
        let case = GoldenCase::parse(content).map_err(|source| PackageError::Golden { name: name.clone(), source })?;
        if !tools.contains(case.tool.as_str()) {
            return Err(PackageError::GoldenTool { name: name.clone(), tool: case.tool });
        }
        cases.insert(name.clone(), case);
    }
    Ok(cases)
}

/// Why a package is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackageError {
    /// The archive is none.
    #[error("the archive: {0}")]
    Archive(#[from] ArchiveError),
    /// There is no manifest.
    #[error("there is no skill.toml in it")]
    NoManifest,
    /// Not text.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// The manifest is refused.
    #[error("skill.toml: {0}")]
    Manifest(#[from] ManifestError),
    /// A file that has no meaning.
    #[error("`{0}` has no place in a package")]
    Unexpected(String),
    /// A file that the manifest names is not there.
    #[error("there is no file `{}` in it, which `{field}` names", visible(.name))]
    Absent {
        /// What names it.
        field: &'static str,
        /// Its name.
        name: String,
    },
    /// The list of what it is made of is no JSON.
    #[error("the list of what it is made of is no JSON: {0}")]
    Sbom(String),
    /// Too long.
    #[error("SKILL.md takes {bytes} bytes; the limit is {MOST_PROSE_BYTES}")]
    ProseTooLong {
        /// How many.
        bytes: usize,
    },
    /// A golden case is none.
    #[error("`{name}`: {source}")]
    Golden {
        /// Its file.
        name: String,
        /// Why.
        source: GoldenError,
    },
    /// A golden case of a tool that is not there.
    #[error("`{name}` is about the tool `{}`, which the skill does not have", visible(.tool))]
    GoldenTool {
        /// Its file.
        name: String,
        /// The tool.
        tool: String,
    },
    /// The program is refused.
    #[error("the program: {0}")]
    Program(#[from] ImportsError),
    /// The manifest asks for less than the program imports.
    #[error("the manifest asks for less than its program imports: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    AsksForLess(Vec<Missing>),
}

impl PackageError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Archive(error) => error.advice().to_owned(),
            Self::NoManifest => "a package has a skill.toml at its root; `palyra skills new` makes one".to_owned(),
            Self::NotText(_) => "save it as UTF-8".to_owned(),
            Self::Manifest(error) => error.advice(),
            Self::Unexpected(_) => {
                "leave it out: a package holds skill.toml, the program, SKILL.md, README.md, LICENSE, schemas/*.json, tests/*.json and the list of what it is made of".to_owned()
            }
            Self::Absent { .. } => "build it first, or correct the name in skill.toml".to_owned(),
            Self::Sbom(_) => "write it as CycloneDX or SPDX in JSON".to_owned(),
            Self::ProseTooLong { .. } => "make SKILL.md shorter".to_owned(),
            Self::Golden { source, .. } => source.advice().to_owned(),
            Self::GoldenTool { .. } => "correct the name of the tool".to_owned(),
            Self::Program(error) => error.advice().to_owned(),
            Self::AsksForLess(missing) => {
                let lines: Vec<String> = missing.iter().map(|missing| format!("`{}`", missing.need.line())).collect();
                format!("add to [capabilities] in skill.toml: {}", lines.join(", "))
            }
        }
    }
}

/// The file of the manifest.
pub const MANIFEST: &str = "skill.toml";
/// The file that tells agents how to use it.
pub const SKILL_MD: &str = "SKILL.md";
const MOST_PROSE_BYTES: usize = 256 << 10;
const SBOM: Limits = Limits { bytes: 16 << 20, depth: 64, values: usize::MAX };

#[cfg(test)]
mod tests;
