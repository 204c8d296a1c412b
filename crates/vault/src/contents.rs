//! What is in a vault, as far as it is known without opening a value: names, versions, dates, and where secrets may go.
//!
//! Guarantees: finding a secret takes the same time among ten and among ten thousand. Does not: hold any value; those are read from the file,
//! one at a time, when somebody may have them.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    sync::Arc,
};

use palyra_types::{SecretRef, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    binding::Binding,
    log::{Head, Header},
    seal::{About, Key},
};

/// What a frame describes.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Description {
    /// A version of a secret, whose value is in the same frame.
    Version(VersionDescription),
    /// A binding.
    Binding(Binding),
}

/// A version of a secret, as its frame describes it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct VersionDescription {
    pub secret: SecretRef,
    pub version: u32,
    /// The generation in which it was put. The value is sealed for it.
    pub since: u64,
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate_after_days: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The key of the value, sealed under the vault's, in base 64.
    pub key: String,
}

impl VersionDescription {
    /// What the key of the value is sealed about.
    pub(crate) fn about_key(&self, vault: &str) -> About {
        self.about(About::kind("palyra vault data key"), vault)
    }

    /// What the value is sealed about.
    pub(crate) fn about_value(&self, vault: &str) -> About {
        self.about(About::kind("palyra vault value"), vault)
    }

    /// SECURITY: the name with its scope, the version and the generation, so that no value can pose as another's, or as a later one.
    fn about(&self, about: About, vault: &str) -> About {
        let numbers = [u64::from(self.version).to_be_bytes(), self.since.to_be_bytes()].concat();
        about.and(vault.as_bytes()).and(self.secret.to_string().as_bytes()).and(&numbers)
    }
}

/// A version of a secret, and where its value is.
#[derive(Clone)]
pub(crate) struct Version {
    pub about: Arc<VersionDescription>,
    pub at: u64,
    pub length: usize,
}

/// Everything that is known of a vault.
pub(crate) struct Contents {
    pub file: Arc<File>,
    /// How long the file is.
    pub length: u64,
    pub key: Arc<Key>,
    pub header: Header,
    pub head: Head,
    /// The versions of each secret, oldest first; never none.
    pub secrets: HashMap<SecretRef, Vec<Version>>,
    pub bindings: BTreeMap<u64, Binding>,
}

impl Contents {
    /// Takes in what a frame describes.
    pub(crate) fn add(&mut self, description: Description, (at, length): (u64, usize)) {
        match description {
            Description::Binding(binding) => {
                self.bindings.insert(binding.id, binding);
            }
            Description::Version(about) => {
                let version = Version { at, length, about: Arc::new(about) };
                self.secrets.entry(version.about.secret.clone()).or_default().push(version);
            }
        }
    }

    /// The version that counts.
    pub(crate) fn newest(&self, secret: &SecretRef) -> Option<&Version> {
        self.secrets.get(secret)?.last()
    }

    /// Every version of every secret, in one order.
    pub(crate) fn versions(&self) -> Vec<&Version> {
        let mut all: Vec<&Version> = self.secrets.values().flatten().collect();
        all.sort_by(|one, other| {
            (&one.about.secret, one.about.version).cmp(&(&other.about.secret, other.about.version))
        });
        all
    }
}

/// A secret as it is told about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretDescription {
    /// Where it belongs and what it is called.
    pub secret: SecretRef,
    /// Its versions, newest first. The first one counts.
    pub versions: Vec<VersionInfo>,
    /// When its value may be used no more.
    pub expires: Option<Timestamp>,
    /// After how many days its value should be another one.
    pub rotate_after_days: Option<u32>,
    /// What somebody wrote about it.
    pub note: Option<String>,
    /// Where it may go.
    pub bindings: Vec<Binding>,
}

/// A version of a secret as it is told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionInfo {
    /// Counts from one.
    pub number: u32,
    /// When it was put.
    pub created: Timestamp,
}

impl SecretDescription {
    pub(crate) fn of(secret: &SecretRef, versions: &[Version], bindings: &BTreeMap<u64, Binding>) -> Self {
        let newest = versions.last().map(|version| &version.about);
        let info = |version: &Version| VersionInfo { number: version.about.version, created: version.about.created };
        Self {
            secret: secret.clone(),
            versions: versions.iter().rev().map(info).collect(),
            expires: newest.and_then(|newest| newest.expires),
            rotate_after_days: newest.and_then(|newest| newest.rotate_after_days),
            note: newest.and_then(|newest| newest.note.clone()),
            bindings: bindings.values().filter(|binding| binding.terms.secret == *secret).cloned().collect(),
        }
    }

    /// Whether its value may be used no more.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether its value is older than it should be.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        let (Some(days), Some(newest)) = (self.rotate_after_days, self.versions.first()) else { return false };
        now.unix_millis() - newest.created.unix_millis() >= i64::from(days) * DAY
    }
}

const DAY: i64 = 24 * 60 * 60 * 1000;
