//! Why a vault cannot be opened, and why something cannot be done with one.

use std::{io, path::PathBuf};

use palyra_types::{SecretRef, Timestamp};

use crate::{
    backend::{BackendError, BackendKind},
    binding::BindingError,
    value::ValueError,
};

/// Why a vault cannot be opened. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Who holds the key does not give it.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Another backend is configured than the one that holds the key.
    #[error("the key of the vault is held by `{recorded}`, and the configuration says `{configured}`")]
    OtherBackend {
        /// Who holds it.
        recorded: BackendKind,
        /// What is configured.
        configured: BackendKind,
    },
    /// The backend has no key for this vault.
    #[error("`{0}` holds no key for this vault")]
    KeyMissing(BackendKind),
    /// The key is another one.
    #[error("the key in `{0}` is not the one that this vault was sealed with")]
    WrongKey(BackendKind),
    /// There is no file, and there should be one.
    #[error("`{}` is missing; the journal knows the vault at generation {known}", .path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
        /// What the journal knows.
        known: u64,
    },
    /// An old copy.
    #[error("`{}` is an old copy: it is at generation {found}, and the journal knows generation {known}", .path.display())]
    RolledBack {
        /// The file.
        path: PathBuf,
        /// Where the file is.
        found: u64,
        /// What the journal knows.
        known: u64,
    },
    /// Another vault, or another past of this one.
    #[error("`{}` is not what the journal knows as generation {known} of the vault", .path.display())]
    Forked {
        /// The file.
        path: PathBuf,
        /// What the journal knows.
        known: u64,
    },
    /// The journal never heard of this vault.
    #[error("`{}` holds a vault at generation {found} that the journal does not know", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Where the file is.
        found: u64,
    },
    /// Bytes that are not what was written.
    #[error("`{}` is damaged at byte {at}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it is sound no more.
        at: usize,
    },
    /// Something that this vault's key did not seal.
    #[error("`{}` holds something at byte {at} that the key of the vault did not seal", .path.display())]
    NotGenuine {
        /// The file.
        path: PathBuf,
        /// Where it is.
        at: usize,
    },
    /// Others could read or change the file.
    #[error("`{}` is not its owner's alone", .0.display())]
    OpenToOthers(PathBuf),
    /// A link, a directory, a pipe.
    #[error("`{}` is no regular file", .0.display())]
    NotRegular(PathBuf),
    /// The file system did not do it.
    #[error("`{}`: {source}", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No randomness.
    #[error("the operating system gives no randomness")]
    NoEntropy,
}

impl OpenError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Backend(error) => error.advice(),
            Self::OtherBackend { .. } => {
                "set `backend` under [vault] back; to change it, `palyra vault export`, remove the vault's file, `palyra vault adopt`, and `palyra vault import`"
            }
            Self::KeyMissing(_) | Self::WrongKey(_) => {
                "bring the key back that belongs to this vault; without it nothing opens it"
            }
            Self::Missing { .. } | Self::RolledBack { .. } | Self::Forked { .. } | Self::Unknown { .. } => {
                "bring the newest file back; if this is the one that is meant, an owner says so with `palyra vault adopt`"
            }
            Self::Damaged { .. } | Self::NotGenuine { .. } => {
                "bring a sound copy of this file back, or remove it, `palyra vault adopt`, and `palyra vault import` a backup"
            }
            Self::OpenToOthers(_) => "make it yours alone: `chmod 600` the file, `chmod 700` its directory",
            Self::NotRegular(_) => "put the vault's own file in its place",
            Self::Io { .. } => "look at the disk and at the rights of the file",
            Self::NoEntropy => "try again",
        }
    }
}

/// Why something cannot be done with a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// No such secret.
    #[error("there is no secret `{0}`")]
    NoSecret(SecretRef),
    /// No such version.
    #[error("the secret `{secret}` has no version {version}")]
    NoVersion {
        /// The secret.
        secret: SecretRef,
        /// The version.
        version: u32,
    },
    /// No such binding.
    #[error("there is no binding {0}")]
    NoBinding(u64),
    /// The same binding is there already.
    #[error("binding {0} says the same already")]
    Bound(u64),
    /// The value is not valid any more.
    #[error("the secret `{secret}` expired at {at}")]
    Expired {
        /// The secret.
        secret: SecretRef,
        /// When.
        at: Timestamp,
    },
    /// An end that is over already.
    #[error("the secret would have expired at {0}")]
    Past(Timestamp),
    /// A note that nobody reads.
    #[error("the note has {length} bytes; the limit is {LONGEST_NOTE}")]
    LongNote {
        /// How many there are.
        length: usize,
    },
    /// As many as are kept.
    #[error("the vault holds {most} {what} already")]
    Full {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// No such value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// No such binding can be meant.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// What is in the file is not what was written there.
    #[error("the value of `{0}` in the vault's file was changed")]
    Changed(SecretRef),
    /// Somebody else changed or replaced the file.
    #[error("the vault's file was changed by somebody else")]
    Meddled,
    /// Another change is under way.
    #[error("another change of the vault is under way")]
    Busy,
    /// Who holds the key does not take another one.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The file system did not do it.
    #[error("the vault's file cannot be written or read: {0}")]
    Io(#[from] io::Error),
    /// No randomness.
    #[error("the operating system gives no randomness")]
    NoEntropy,
}

impl VaultError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NoSecret(_) | Self::NoVersion { .. } => "`palyra vault list` tells which there are",
            Self::NoBinding(_) | Self::Bound(_) => "`palyra vault show` tells which there are",
            Self::Expired { .. } => "put a new value: `palyra vault put`",
            Self::Past(_) => "give a time that is still to come",
            Self::LongNote { .. } => "say it in a line",
            Self::Full { .. } => "remove what nobody needs",
            Self::Value(error) => error.advice(),
            Self::Binding(error) => error.advice(),
            Self::Changed(_) | Self::Meddled => {
                "restart the daemon, which checks the whole file, and bring a sound copy back if it says so"
            }
            Self::Busy => "try again",
            Self::Backend(error) => error.advice(),
            Self::Io(_) => "look at the disk: the vault is as it was",
            Self::NoEntropy => "try again",
        }
    }
}

/// How many bytes a note has at most.
pub const LONGEST_NOTE: usize = 512;
