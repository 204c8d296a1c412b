//! What becomes of what a skill asks for: what can be granted, what still fits after an update, and what people are told.
//!
//! Guarantees: no function here gives more than was asked for, and [`Grants::kept_for`] never gives more than was granted before.

use palyra_types::visible::{is_hidden, visible};

use crate::capability::{Capabilities, FileAccess, FileGrant, Grants, KvQuota};

/// Everything that was asked for and can be granted without choosing, and what has to be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Everything that needs no choice.
    pub grants: Grants,
    /// What somebody has to choose something for.
    pub unchosen: Vec<Unchosen>,
}

/// Something that was asked for by a name, behind which somebody has to put something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unchosen {
    /// A secret.
    Secret {
        /// The name that the skill calls it by.
        name: String,
        /// What it is for.
        purpose: String,
    },
    /// A directory.
    Directory {
        /// The name that the skill calls it by.
        name: String,
        /// How it would be used.
        access: FileAccess,
    },
}

impl Grants {
    /// Everything that was asked for, as far as there is nothing to choose. Which secret and which directory is meant is for people to say.
    #[must_use]
    pub fn all_of(asked: &Capabilities) -> Offer {
        let grants = Self {
            log: asked.log,
            clock: asked.clock,
            random: asked.random,
            kv: asked.kv,
            http: asked.http.clone(),
            ..Self::default()
        };
        let secrets = asked.secrets.iter();
        let secrets = secrets.map(|(name, purpose)| Unchosen::Secret { name: name.clone(), purpose: purpose.clone() });
        let files = asked.files.iter();
        let files = files.map(|(name, &access)| Unchosen::Directory { name: name.clone(), access });
        Offer { grants, unchosen: secrets.chain(files).collect() }
    }

    /// Whether nothing here is more than there.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let quota = match (self.kv, other.kv) {
            (None, _) => true,
            (Some(own), Some(other)) => own.bytes <= other.bytes && own.entries <= other.entries,
            (Some(_), None) => false,
        };
        quota
            && self.log <= other.log
            && self.clock <= other.clock
            && self.random <= other.random
            && self.http.is_subset(&other.http)
            && self.secrets.iter().all(|(name, secret)| other.secrets.get(name) == Some(secret))
            && self.files.iter().all(|(name, grant)| {
                other.files.get(name).is_some_and(|other| other.path == grant.path && grant.access <= other.access)
            })
    }

    /// Whether everything here was asked for.
    ///
    /// # Errors
    /// When something was not, or a directory is none.
    pub fn check_within(&self, asked: &Capabilities) -> Result<(), GrantError> {
        let not_asked = |what: &str| Err(GrantError::NotAsked(what.to_owned()));
        for (granted, wanted, what) in
            [(self.log, asked.log, "log"), (self.clock, asked.clock, "clock"), (self.random, asked.random, "random")]
        {
            if granted && !wanted {
                return not_asked(what);
            }
        }
        match (self.kv, asked.kv) {
            (Some(_), None) => return not_asked("kv"),
            (Some(granted), Some(wanted)) if smaller(granted, wanted) != granted => {
                return Err(GrantError::MoreRoom { bytes: wanted.bytes, entries: wanted.entries });
            }
            _ => {}
        }
        if let Some(host) = self.http.difference(&asked.http).next() {
            return not_asked(&format!("http to {host}"));
        }
        if let Some(name) = self.secrets.keys().find(|name| !asked.secrets.contains_key(*name)) {
            return not_asked(&format!("secret {name}"));
        }
        for (name, FileGrant { path, access }) in &self.files {
            match asked.files.get(name) {
                None => return not_asked(&format!("directory {name}")),
                Some(wanted) if access > wanted => return Err(GrantError::MoreAccess { name: name.clone() }),
                Some(_) if !is_directory(path) => return Err(GrantError::Path(path.clone())),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// What of these grants still fits after an update: what is granted here and asked for there.
    #[must_use]
    pub fn kept_for(&self, asked: &Capabilities) -> Self {
        let secrets = self.secrets.iter().filter(|(name, _)| asked.secrets.contains_key(*name));
        let files = self.files.iter().filter_map(|(name, grant)| {
            let access = grant.access.min(*asked.files.get(name)?);
            Some((name.clone(), FileGrant { path: grant.path.clone(), access }))
        });
        Self {
            log: self.log && asked.log,
            clock: self.clock && asked.clock,
            random: self.random && asked.random,
            kv: self.kv.zip(asked.kv).map(|(granted, wanted)| smaller(granted, wanted)),
            http: self.http.intersection(&asked.http).cloned().collect(),
            secrets: secrets.map(|(name, secret)| (name.clone(), secret.clone())).collect(),
            files: files.collect(),
        }
    }

    /// What is granted, in sentences for people.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = plain_words(self.log, self.clock, self.random);
        words.extend(self.kv.map(kv_words));
        words.extend(self.http.iter().map(|host| format!("fetches from {host}")));
        words.extend(self.secrets.iter().map(|(name, secret)| format!("uses the secret {secret} as `{name}`")));
        words.extend(self.files.iter().map(|(name, FileGrant { path, access })| {
            let place = if path == "." { "the workspace".to_owned() } else { format!("`{}`", visible(path)) };
            format!("{} files in {place} as `{name}`", access_words(*access))
        }));
        words
    }
}

impl Capabilities {
    /// What is asked for, in sentences for people.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = plain_words(self.log, self.clock, self.random);
        words.extend(self.kv.map(kv_words));
        words.extend(self.http.iter().map(|host| format!("fetches from {host}")));
        words.extend(self.secrets.iter().map(|(name, purpose)| secret_words(name, purpose)));
        words.extend(self.files.iter().map(|(name, access)| directory_words(name, *access)));
        words.extend(self.inert.iter().map(|package| inert_words(package)));
        words
    }
}

/// What an update asks for that was not asked for before, and the reverse.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CapabilityDiff {
    /// What is new, in sentences. Nothing of it is granted by itself.
    pub added: Vec<String>,
    /// What is gone, in sentences.
    pub removed: Vec<String>,
}

impl CapabilityDiff {
    /// Compares what two versions ask for.
    #[must_use]
    pub fn between(old: &Capabilities, new: &Capabilities) -> Self {
        Self { added: beyond(new, old), removed: beyond(old, new) }
    }

    /// Whether both ask for the same.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// What `one` asks for and `other` does not, in sentences.
fn beyond(one: &Capabilities, other: &Capabilities) -> Vec<String> {
    let mut words = plain_words(one.log && !other.log, one.clock && !other.clock, one.random && !other.random);
    if let Some(quota) = one.kv {
        match other.kv {
            Some(most) if smaller(quota, most) == quota => {}
            _ => words.push(kv_words(quota)),
        }
    }
    words.extend(one.http.difference(&other.http).map(|host| format!("fetches from {host}")));
    let secrets = one.secrets.iter().filter(|(name, purpose)| other.secrets.get(*name) != Some(purpose));
    words.extend(secrets.map(|(name, purpose)| secret_words(name, purpose)));
    let files = one.files.iter().filter(|(name, access)| other.files.get(*name) < Some(access));
    words.extend(files.map(|(name, access)| directory_words(name, *access)));
    words.extend(one.inert.difference(&other.inert).map(|package| inert_words(package)));
    words
}

fn plain_words(log: bool, clock: bool, random: bool) -> Vec<String> {
    let all = [(log, "writes into the log of its calls"), (clock, "knows the time"), (random, "has randomness")];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, words)| words.to_owned()).collect()
}

fn kv_words(KvQuota { bytes, entries }: KvQuota) -> String {
    format!("keeps up to {bytes} bytes in {entries} entries for later, in each workspace")
}

fn secret_words(name: &str, purpose: &str) -> String {
    format!("uses a secret as `{name}`: {}", visible(purpose))
}

fn directory_words(name: &str, access: FileAccess) -> String {
    format!("{} files in a directory of the workspace as `{name}`", access_words(access))
}

fn inert_words(package: &str) -> String {
    format!("imports {package}, which leads nowhere")
}

const fn access_words(access: FileAccess) -> &'static str {
    match access {
        FileAccess::Read => "reads",
        FileAccess::Write => "reads and writes",
    }
}

fn smaller(one: KvQuota, other: KvQuota) -> KvQuota {
    KvQuota { bytes: one.bytes.min(other.bytes), entries: one.entries.min(other.entries) }
}

/// Whether a path is a plain one below the workspace, or the workspace itself.
fn is_directory(path: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(|c| is_hidden(c) || c == '\\');
    path == "." || (path.len() <= MOST_PATH_BYTES && path.split('/').all(plain))
}

const MOST_PATH_BYTES: usize = 1024;

/// Why something cannot be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The skill does not ask for it.
    #[error("the skill does not ask for {}", visible(.0))]
    NotAsked(String),
    /// More room than it asks for.
    #[error("the skill asks for no more than {bytes} bytes in {entries} entries")]
    MoreRoom {
        /// The bytes that it asks for.
        bytes: u64,
        /// The entries that it asks for.
        entries: u64,
    },
    /// More than it asks for.
    #[error("the skill asks only to read the directory `{}`", visible(.name))]
    MoreAccess {
        /// The name that it calls it by.
        name: String,
    },
    /// No directory of a workspace.
    #[error("`{}` is no plain path below the workspace", visible(.0))]
    Path(String),
}

impl GrantError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotAsked(_) | Self::MoreRoom { .. } | Self::MoreAccess { .. } => "grant what it asks for, or less",
            Self::Path(_) => "write a path like `docs/notes`, or `.` for the workspace itself",
        }
    }
}

#[cfg(test)]
mod tests;
