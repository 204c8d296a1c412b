//! Why the store refuses.

use std::{io, path::PathBuf};

use palyra_package::{GrantError, PackageId, PublisherName, SignatureError};
use palyra_types::{Sha256Digest, visible::visible};
use semver::Version;

use super::document::DocumentError;

/// Why the store could not be opened, or a change is refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another program keeps it.
    #[error("{} is in use by another program", .0.display())]
    Held(PathBuf),
    /// A link, a directory or something else.
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// Somebody else's.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// Others can read or write it.
    #[error("{} is open to other users", .0.display())]
    OpenToOthers(PathBuf),
    /// More than is ever kept.
    #[error("{} takes more than {most} bytes", .path.display())]
    TooLarge {
        /// What.
        path: PathBuf,
        /// How much it may take.
        most: usize,
    },
    /// The operating system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The new registry is there, but may be gone after a power cut. What is in force is still the old one.
    #[error("{} was replaced, but it is not certain that it stays: {source}", .path.display())]
    Unsure {
        /// What was replaced.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The registry cannot be read.
    #[error("{}: {source}", .path.display())]
    Registry {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: DocumentError,
    },
    /// There are packages and no registry.
    #[error("{} is gone, though there are packages", .0.display())]
    RegistryGone(PathBuf),
    /// The registry cannot be written.
    #[error("the registry cannot be written: {0}")]
    Unwritable(DocumentError),
    /// Another change came in between.
    #[error("another change came in between")]
    Overtaken,
    /// There is no such skill.
    #[error("the skill {0} is not installed")]
    NotInstalled(PackageId),
    /// The bytes are not those of the package.
    #[error("the bytes are not those of the package")]
    OtherArchive,
    /// Nobody signed it.
    #[error("the package of {0} is not signed")]
    Unsigned(PackageId),
    /// The signature is refused.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Nobody is known to be that publisher.
    #[error("no key is known for the publisher {publisher}; the package is signed with key {key_id}")]
    UnknownPublisher {
        /// Which.
        publisher: PublisherName,
        /// The key that signed.
        key_id: String,
    },
    /// The key is not one of the publisher's.
    #[error("key {key_id} does not speak for the publisher {publisher}")]
    OtherKey {
        /// Which.
        publisher: PublisherName,
        /// The key that signed.
        key_id: String,
    },
    /// The key was struck off.
    #[error("key {key_id} no longer speaks for the publisher {publisher}")]
    Distrusted {
        /// Which.
        publisher: PublisherName,
        /// The key that signed.
        key_id: String,
    },
    /// The key is not trusted in the first place.
    #[error("key {key_id} is not trusted for the publisher {publisher}")]
    NotTrusted {
        /// Which.
        publisher: PublisherName,
        /// The key.
        key_id: String,
    },
    /// An older version than one that was there.
    #[error("version {version} of {id} is older than {seen}, which was installed before")]
    Rollback {
        /// Which skill.
        id: PackageId,
        /// The version of the package.
        version: Version,
        /// The highest that was there.
        seen: Version,
    },
    /// The same version with another content.
    #[error("version {version} of {id} was installed before with another content")]
    SameVersion {
        /// Which skill.
        id: PackageId,
        /// The version.
        version: Version,
    },
    /// A skill under development in the place of one that is not, or the reverse.
    #[error("{id} is installed {}, and cannot be replaced by one that is not", if *.development { "for development" } else { "from its publisher" })]
    OtherDomain {
        /// Which skill.
        id: PackageId,
        /// Whether what is installed is under development.
        development: bool,
    },
    /// Something is granted that is not asked for.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// No reason.
    #[error("`{}` is no reason, on one visible line of at most {MOST_REASON_BYTES} bytes", visible(.0))]
    Reason(String),
    /// It may not run already.
    #[error("{0} is in quarantine already")]
    Quarantined(PackageId),
    /// It may run.
    #[error("{0} is not in quarantine")]
    NotQuarantined(PackageId),
    /// Its key was struck off, so it stays where it is.
    #[error("the key that {0} is signed with is no longer trusted")]
    ReleaseOfDistrusted(PackageId),
    /// No room for another.
    #[error("{id}: too many skills are installed; the limit is {most}")]
    TooManySkills {
        /// Which skill.
        id: PackageId,
        /// How many may be.
        most: usize,
    },
    /// The file of a package was altered.
    #[error("the package of {id} on the disk is not the one that was installed ({digest})")]
    PackageAltered {
        /// Which skill.
        id: PackageId,
        /// What it should be.
        digest: Sha256Digest,
    },
}

impl StoreError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Held(_) => "stop the other daemon first".to_owned(),
            Self::NotRegular(path) => format!("put a regular file there, or move {} away", path.display()),
            Self::Foreign(path) => format!("start the daemon as the user that {} belongs to", path.display()),
            Self::OpenToOthers(path) => {
                format!("if nobody else has changed it: `chmod go= {}`", path.display())
            }
            Self::TooLarge { .. } | Self::TooManySkills { .. } => "remove skills that nobody uses".to_owned(),
            Self::Io { path, .. } | Self::Unsure { path, .. } => {
                format!("check the disk, and that the daemon's user owns {}", path.display())
            }
            Self::Registry { source, .. } => source.advice().to_owned(),
            Self::RegistryGone(_) => {
                "restore the file from a backup, or remove the packages beside it to begin anew".to_owned()
            }
            Self::Unwritable(_) => "report this; nothing was changed".to_owned(),
            Self::Overtaken => "look at what is installed now, and try again".to_owned(),
            Self::NotInstalled(_) => "see `palyra skills list` for what is installed".to_owned(),
            Self::OtherArchive => "read the package again".to_owned(),
            Self::Unsigned(_) => {
                "sign it with `palyra skills sign`, or install it with `--dev` while you work on it".to_owned()
            }
            Self::Signature(error) => error.advice().to_owned(),
            Self::UnknownPublisher { publisher, .. } => {
                format!("get the key of {publisher} from where you trust it, and pin it with `palyra skills trust`")
            }
            Self::OtherKey { publisher, .. } | Self::Distrusted { publisher, .. } => {
                format!(
                    "ask {publisher} which key is right, and `palyra skills trust` another one only if you heard of it from them; \
                     if the skill is yours, sign it with the key that speaks for {publisher}"
                )
            }
            Self::NotTrusted { .. } => "see `palyra skills publishers` for the keys that are trusted".to_owned(),
            Self::Rollback { .. } => {
                "install a newer version, or give `--allow-downgrade` if the older one is meant".to_owned()
            }
            Self::SameVersion { .. } => {
                "if the skill is yours, raise `version` in skill.toml, pack and sign it again; else ask the publisher"
                    .to_owned()
            }
            Self::OtherDomain { id, .. } => format!("remove it first: `palyra skills remove {id}`"),
            Self::Grant(error) => error.advice().to_owned(),
            Self::Reason(_) => "say in a sentence why".to_owned(),
            Self::Quarantined(_) | Self::NotQuarantined(_) => "there is nothing to do".to_owned(),
            Self::ReleaseOfDistrusted(_) => {
                "pin the key again if it is right after all, or remove the skill".to_owned()
            }
            Self::PackageAltered { id, .. } => format!("install {id} again, and find out who changed the file"),
        }
    }
}

/// The longest reason.
pub(super) const MOST_REASON_BYTES: usize = 1000;
