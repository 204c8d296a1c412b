//! What is installed, as one value that does not change.

use std::{collections::BTreeMap, fmt, sync::Arc};

use palyra_package::{Grants, Manifest, PackageId, PublisherKey, SkillTool, TrustedPublishers};
use palyra_types::{Principal, Sha256Digest, Timestamp, ToolName};
use semver::Version;
use serde::{Deserialize, Serialize};

/// Everything that the store holds, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillSnapshot {
    pub(super) revision: u64,
    pub(super) skills: BTreeMap<PackageId, Arc<InstalledSkill>>,
    pub(super) seen: BTreeMap<PackageId, Seen>,
    pub(super) publishers: TrustedPublishers,
    /// Made from the skills: the tools and where they are in the manifest of which skill.
    tools: BTreeMap<ToolName, (PackageId, usize)>,
}

impl SkillSnapshot {
    pub(super) fn new(
        revision: u64,
        skills: BTreeMap<PackageId, Arc<InstalledSkill>>,
        seen: BTreeMap<PackageId, Seen>,
        publishers: TrustedPublishers,
    ) -> Self {
        let mut snapshot = Self { revision, skills, seen, publishers, tools: BTreeMap::new() };
        snapshot.index();
        snapshot
    }

    /// Finds the tools anew, after skills came or went.
    pub(super) fn index(&mut self) {
        let tools = self.skills.values().flat_map(|skill| {
            let numbered = skill.manifest.tools.iter().enumerate();
            // INVARIANT: the length of these names was checked when the manifest was read.
            numbered.filter_map(|(at, tool)| Some((skill.manifest.tool_name(tool).ok()?, (skill.id.clone(), at))))
        });
        self.tools = tools.collect();
    }

    /// Counts the changes.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// A skill.
    #[must_use]
    pub fn get(&self, id: &PackageId) -> Option<&Arc<InstalledSkill>> {
        self.skills.get(id)
    }

    /// A skill, by its id as text.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Arc<InstalledSkill>> {
        self.skills.get(id)
    }

    /// A tool and the skill that it belongs to.
    #[must_use]
    pub fn tool(&self, name: &ToolName) -> Option<(&Arc<InstalledSkill>, &SkillTool)> {
        let (id, at) = self.tools.get(name)?;
        let skill = self.skills.get(id)?;
        Some((skill, skill.manifest.tools.get(*at)?))
    }

    /// Every tool of every skill, in the order of their names.
    pub fn tools(&self) -> impl Iterator<Item = (&ToolName, &Arc<InstalledSkill>, &SkillTool)> {
        self.tools.iter().filter_map(|(name, (id, at))| {
            let skill = self.skills.get(id)?;
            Some((name, skill, skill.manifest.tools.get(*at)?))
        })
    }

    /// Every skill, in the order of their ids.
    pub fn skills(&self) -> impl ExactSizeIterator<Item = &Arc<InstalledSkill>> {
        self.skills.values()
    }

    /// The highest version of a skill that was ever installed from its publisher, whether or not it is there still.
    #[must_use]
    pub fn seen(&self, id: &PackageId) -> Option<&Seen> {
        self.seen.get(id)
    }

    /// The publishers that are trusted.
    #[must_use]
    pub const fn publishers(&self) -> &TrustedPublishers {
        &self.publishers
    }
}

/// A skill that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledSkill {
    /// What it is called.
    pub id: PackageId,
    /// Its version.
    pub version: Version,
    /// What it says about itself.
    pub manifest: Arc<Manifest>,
    /// The digest of its package.
    pub package: Sha256Digest,
    /// The digest of its program.
    pub component: Sha256Digest,
    /// Who signed it. Nobody did if it is under development.
    pub signed_by: Option<PublisherKey>,
    /// What it may use.
    pub grants: Arc<Grants>,
    /// That it must not run, and why.
    pub quarantine: Option<Quarantine>,
    /// Who installed this version.
    pub installed_by: Principal,
    /// When.
    pub installed_at: Timestamp,
    /// Whether it is under development: not signed, and replaced at will.
    pub development: bool,
}

impl InstalledSkill {
    /// Whose it is. Skills of one domain may share what skills of two must not.
    #[must_use]
    pub fn trust_domain(&self) -> TrustDomain {
        match &self.signed_by {
            Some(key) => TrustDomain::Publisher(key.clone()),
            None => TrustDomain::Development,
        }
    }
}

/// That a skill must not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// Why.
    pub reason: String,
    /// Who said so.
    pub by: Principal,
    /// When.
    pub at: Timestamp,
}

/// The versions of a skill that were ever installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The highest version.
    pub version: Version,
    /// The digest of its package.
    pub package: Sha256Digest,
    /// The digests of lower ones, as many as are remembered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lower: BTreeMap<Version, Sha256Digest>,
}

impl Seen {
    /// The package that a version was, if it was seen.
    #[must_use]
    pub fn package_of(&self, version: &Version) -> Option<Sha256Digest> {
        if *version == self.version { Some(self.package) } else { self.lower.get(version).copied() }
    }

    /// The same, with another version that was seen.
    #[must_use]
    pub fn with(mut self, version: Version, package: Sha256Digest) -> Self {
        if version > self.version {
            let highest = std::mem::replace(&mut self.version, version);
            self.lower.insert(highest, std::mem::replace(&mut self.package, package));
        } else if version < self.version {
            self.lower.insert(version, package);
        }
        while self.lower.len() > MOST_LOWER {
            self.lower.pop_first();
        }
        self
    }
}

/// How many versions below the highest are remembered.
const MOST_LOWER: usize = 100;

/// Whose a skill is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustDomain {
    /// The holder of a key. The whole key, because anybody can make one with the same short id.
    Publisher(PublisherKey),
    /// Whoever develops here.
    Development,
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publisher(key) => key.fmt(f),
            Self::Development => f.pad("development"),
        }
    }
}
