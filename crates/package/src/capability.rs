//! What a skill asks for, what it is granted, and the difference between the two.
//!
//! Guarantees: nothing is granted that was not asked for; what is granted says everything a call can reach, so that it can be part of what
//! a person approves. The default of either is nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use palyra_types::{
    HostName, SecretRef,
    host::HostError,
    visible::{is_hidden, visible},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What a skill asks for: `[capabilities]` of its manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capabilities {
    /// To write lines into the log of its call.
    pub log: bool,
    /// To know the time.
    pub clock: bool,
    /// To have randomness that cannot be guessed.
    pub random: bool,
    /// To keep something for its later calls in the same workspace, and how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvQuota>,
    /// To fetch from these hosts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub http: BTreeSet<Destination>,
    /// To use secrets without seeing them: the name it calls each by, and what for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// To use directories of the workspace: the name it calls each by, and how.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, FileAccess>,
    /// Packages of WASI that its program imports without needing them, such as `wasi:filesystem`. They are there and lead nowhere.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub inert: BTreeSet<String>,
}

/// What a skill may use. Of what it asked for, what a person granted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Whether it may write lines into the log of its call.
    pub log: bool,
    /// Whether it may know the time.
    pub clock: bool,
    /// Whether it may have randomness.
    pub random: bool,
    /// How much it may keep for later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvQuota>,
    /// The hosts that it may fetch from.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub http: BTreeSet<Destination>,
    /// The secrets behind the names that it calls them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretRef>,
    /// The directories behind the names that it calls them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, FileGrant>,
}

impl Capabilities {
    /// Whether what is asked for can be: names that can be used, quotas that hold something, and nothing inert that is not.
    ///
    /// # Errors
    /// When something cannot be.
    pub fn check(&self) -> Result<(), CapabilityError> {
        if self.kv.is_some_and(|quota| quota.bytes == 0 || quota.entries == 0) {
            return Err(CapabilityError::EmptyQuota);
        }
        for (name, purpose) in &self.secrets {
            check_slot(name)?;
            if purpose.trim().is_empty() || purpose.len() > MOST_PURPOSE_BYTES || purpose.chars().any(is_hidden) {
                return Err(CapabilityError::Purpose(name.clone()));
            }
        }
        self.files.keys().try_for_each(|name| check_slot(name))?;
        match self.inert.iter().find(|package| !INERT.contains(&package.as_str())) {
            Some(package) => Err(CapabilityError::Inert(package.clone())),
            None => Ok(()),
        }
    }
}

/// The name that a skill calls a secret or a directory by.
fn check_slot(name: &str) -> Result<(), CapabilityError> {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if first && rest && name.len() <= MOST_SLOT_BYTES { Ok(()) } else { Err(CapabilityError::Slot(name.to_owned())) }
}

/// How much a skill may keep for its later calls in one workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvQuota {
    /// Bytes of keys and values together.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

palyra_types::words! {
    /// How a directory may be used, from little to much.
    pub enum FileAccess ("access to files") {
        /// Its files may be read.
        Read = "read",
        /// Its files may be read, made, replaced and removed.
        Write = "write",
    }
}

/// A directory that a skill may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileGrant {
    /// The directory, from the root of the call's workspace. `.` is the workspace itself.
    pub path: String,
    /// How it may be used.
    pub access: FileAccess,
}

/// A host and a port. Written `example.org:443`, or `[2001:db8::7]:443`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
}

impl Destination {
    /// Reads a host and a port.
    ///
    /// # Errors
    /// When either is missing or none.
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let malformed = || DestinationError::Malformed(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(malformed());
        }
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_plain).ok_or_else(malformed)?;
        Ok(Self { host: HostName::parse(host)?, port })
    }
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.as_str().contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Why something is no host with a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Not a host and a port.
    #[error("`{}` is not a host and a port", visible(.0))]
    Malformed(String),
    /// The host is none.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Why what a skill asks for cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// Nothing would fit.
    #[error("`kv` has a quota of zero")]
    EmptyQuota,
    /// No name for a secret or a directory.
    #[error("`{}` is no name for a secret or a directory", visible(.0))]
    Slot(String),
    /// It does not say what a secret is for.
    #[error(
        "the secret `{0}` is not said to be for anything, on one visible line of at most {MOST_PURPOSE_BYTES} bytes"
    )]
    Purpose(String),
    /// Not something that can be inert.
    #[error("`{}` cannot be inert", visible(.0))]
    Inert(String),
}

impl CapabilityError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::EmptyQuota => "write `kv = { bytes = 1048576, entries = 1000 }`, or leave it out",
            Self::Slot(_) => "use at most 64 letters, digits, _ and -, beginning with a letter or _",
            Self::Purpose(_) => "say in a sentence what the secret is for",
            Self::Inert(_) => "only `wasi:filesystem`, `wasi:sockets` and `wasi:http` can be inert",
        }
    }
}

/// The packages of WASI that can be there and lead nowhere.
pub const INERT: &[&str] = &["wasi:filesystem", "wasi:sockets", "wasi:http"];
const MOST_SLOT_BYTES: usize = 64;
const MOST_PURPOSE_BYTES: usize = 300;
