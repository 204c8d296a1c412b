//! What can be changed, and a change that was checked.

use palyra_package::{CapabilityDiff, Grants, Package, PackageId, PublisherKey, PublisherName};
use palyra_types::{Principal, Sha256Digest, Timestamp, words};
use semver::Version;
use serde::{Deserialize, Serialize};

use super::snapshot::SkillSnapshot;

/// A change of what is installed.
#[derive(Debug, Clone)]
pub enum SkillChange {
    /// Installs a skill, or replaces it by another version.
    Install {
        /// The package.
        package: Box<Package>,
        /// The bytes that the package was read from.
        archive: Vec<u8>,
        /// Its signature.
        signature: Option<String>,
        /// What it is granted. Nothing given here keeps what it was granted before, as far as it still asks for that.
        grants: Option<Grants>,
        /// What is allowed beside the usual.
        options: InstallOptions,
        /// Who does it.
        by: Principal,
    },
    /// Grants something else from now on.
    SetGrants {
        /// Which skill.
        id: PackageId,
        /// All that it may use.
        grants: Grants,
        /// Who does it.
        by: Principal,
    },
    /// Keeps a skill from running.
    Quarantine {
        /// Which skill.
        id: PackageId,
        /// Why.
        reason: String,
        /// Who does it.
        by: Principal,
    },
    /// Lets a skill run again.
    Release {
        /// Which skill.
        id: PackageId,
        /// Who does it.
        by: Principal,
    },
    /// Takes a skill away. The highest version of it stays known.
    Remove {
        /// Which skill.
        id: PackageId,
        /// Who does it.
        by: Principal,
    },
    /// Lets a key speak for a publisher.
    Trust {
        /// Which publisher.
        publisher: PublisherName,
        /// Which key.
        key: PublisherKey,
        /// Who does it.
        by: Principal,
    },
    /// Strikes a key off. Every skill that it signed is quarantined.
    Distrust {
        /// Which publisher.
        publisher: PublisherName,
        /// Which key.
        key: PublisherKey,
        /// Who does it.
        by: Principal,
    },
}

/// What is allowed when a skill is installed, beside the usual. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallOptions {
    /// The key to take for a publisher of whom none is known. A signature says which key made it, but not the key itself, so it has to be given.
    pub trust_on_first_use: Option<PublisherKey>,
    /// A version below one that was seen.
    pub allow_downgrade: bool,
    /// Without a signature, and replaced at will. Such a skill is of no publisher.
    pub development: bool,
}

/// A change that was checked. It is carried out by [`super::SkillStore::commit`], or by dropping it is not.
#[must_use]
#[derive(Debug)]
pub struct Prepared {
    pub(super) base: u64,
    pub(super) next: SkillSnapshot,
    pub(super) package: Option<PackageFiles>,
    pub(super) description: ChangeDescription,
}

impl Prepared {
    /// What the change does, for the journal and for whoever asked for it.
    #[must_use]
    pub const fn describe(&self) -> &ChangeDescription {
        &self.description
    }

    /// What would be installed after it.
    #[must_use]
    pub const fn outcome(&self) -> &SkillSnapshot {
        &self.next
    }
}

/// The files that a change brings.
#[derive(Debug)]
pub(super) struct PackageFiles {
    pub digest: Sha256Digest,
    pub archive: Vec<u8>,
    pub signature: Option<String>,
}

words! {
    /// What a change does.
    pub enum ChangeKind ("kind of change") {
        /// A skill that was not there is.
        Install = "install",
        /// Another package of a skill is there.
        Update = "update",
        /// A skill may use something else.
        SetGrants = "set_grants",
        /// A skill must not run.
        Quarantine = "quarantine",
        /// A skill may run again.
        Release = "release",
        /// A skill is gone.
        Remove = "remove",
        /// A key speaks for a publisher.
        Trust = "trust",
        /// A key no longer does.
        Distrust = "distrust",
    }
}

/// What a change does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDescription {
    /// What kind of change it is.
    pub kind: ChangeKind,
    /// In a sentence.
    pub summary: String,
    /// Who does it.
    pub by: Principal,
    /// When.
    pub at: Timestamp,
    /// Which skills it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<PackageId>,
    /// Which publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<PublisherName>,
    /// Which key: the one that signed, or that the change is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PublisherKey>,
    /// Whether the key is trusted from now on because it came first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_use: bool,
    /// The version that is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The version that was installed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Version>,
    /// The digest of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Sha256Digest>,
    /// The digest of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<Sha256Digest>,
    /// Whether it is under development.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub development: bool,
    /// What another version asks for, beside what the one before did.
    #[serde(default, skip_serializing_if = "CapabilityDiff::is_empty")]
    pub asked: CapabilityDiff,
    /// All that it may use afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Grants>,
    /// Why, if somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ChangeDescription {
    pub(super) fn new(kind: ChangeKind, summary: String, by: Principal, at: Timestamp) -> Self {
        Self {
            kind,
            summary,
            by,
            at,
            skills: Vec::new(),
            publisher: None,
            key: None,
            first_use: false,
            version: None,
            replaced: None,
            package: None,
            component: None,
            development: false,
            asked: CapabilityDiff::default(),
            grants: None,
            reason: None,
        }
    }
}
