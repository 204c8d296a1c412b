//! Who holds the key that everything in the vault is sealed under.
//!
//! A backend keeps small blobs by name, and the vault keeps exactly one of them there: its key-encryption key. The sealed secrets themselves
//! are in one file, whatever the backend. So a keyring holds 32 bytes and not thousands of entries, the file can be checked as a whole, and
//! a machine without a keyring differs in one place only.
//!
//! | backend | the key is |
//! |---|---|
//! | [`KeyFile`] | in a file that only its owner reads, apart from the sealed secrets |
//! | [`Passphrase`] | sealed under a key that Argon2id makes of a passphrase |
//! | [`Keyring`] | in the keyring of the system: Secret Service, Keychain, or the credentials that Windows protects with DPAPI |
//!
//! Guarantees: a blob that was put is there after a power cut, as far as the system's own keyring promises that. Refuses: to use one
//! backend in place of another.

mod key_file;
mod keyring;
mod passphrase;

use std::{fmt, io, path::PathBuf};

use palyra_types::{visible::visible, word::words};
use zeroize::Zeroizing;

pub use self::{key_file::KeyFile, keyring::Keyring, passphrase::Passphrase};

words! {
    /// The backends there are.
    pub enum BackendKind ("vault backend") {
        /// A file that only its owner reads.
        KeyFile = "key_file",
        /// A passphrase that a person knows.
        Passphrase = "passphrase",
        /// The Secret Service of a Linux desktop.
        SecretService = "secret_service",
        /// The Keychain of macOS.
        Keychain = "keychain",
        /// The credentials of a Windows user, which DPAPI protects.
        Dpapi = "dpapi",
    }
}

impl BackendKind {
    /// The kind of keyring that this system has, whether one is there or not.
    #[must_use]
    pub const fn of_this_system() -> Self {
        if cfg!(target_os = "macos") {
            Self::Keychain
        } else if cfg!(target_os = "windows") {
            Self::Dpapi
        } else {
            Self::SecretService
        }
    }
}

/// Keeps small secret blobs by name.
pub trait BlobBackend: Send + Sync + fmt::Debug {
    /// Which one it is.
    fn kind(&self) -> BackendKind;

    /// The blob of this name, if there is one. May ask a person, so it may take long.
    ///
    /// # Errors
    /// When the backend cannot be used. That is never the same as there being none.
    fn get(&self, name: &BlobName) -> Result<Option<Blob>, BackendError>;

    /// Keeps a blob under a name, in the place of the one that may be there.
    ///
    /// # Errors
    /// When the backend cannot be used.
    fn put(&self, name: &BlobName, blob: &Blob) -> Result<(), BackendError>;

    /// Forgets a blob. There may be none.
    ///
    /// # Errors
    /// When the backend cannot be used.
    fn delete(&self, name: &BlobName) -> Result<(), BackendError>;
}

/// A few bytes that nobody else may see.
pub type Blob = Zeroizing<Vec<u8>>;

/// What a blob is kept as: letters, digits and hyphens, so that it can be a file's name and a keyring's entry alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobName(String);

impl BlobName {
    /// The name of a vault's key: the how-manieth it is.
    #[must_use]
    pub(crate) fn of_key(vault: &str, number: u64) -> Self {
        Self(format!("palyra-vault-{vault}-{number}"))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a backend cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The kind of keyring is another system's.
    #[error("`{0}` is not to be had on this system")]
    OtherSystem(BackendKind),
    /// No keyring answers.
    #[error("the keyring does not answer: {}", visible(.0))]
    NoKeyring(String),
    /// The keyring is locked, and nobody unlocked it.
    #[error("the keyring is locked")]
    Locked,
    /// Something that is no blob of ours.
    #[error("`{}` holds no key of a vault", .0.display())]
    NotAKey(PathBuf),
    /// Others could read or change the key.
    #[error("`{}` is not its owner's alone", .0.display())]
    OpenToOthers(PathBuf),
    /// The passphrase does not open it.
    #[error("the passphrase is not the one that the vault was made with")]
    WrongPassphrase,
    /// A passphrase that protects nothing.
    #[error("the passphrase has {length} characters; it needs at least {SHORTEST_PASSPHRASE}")]
    WeakPassphrase {
        /// How many there are.
        length: usize,
    },
    /// The file system did not do it.
    #[error("`{}`: {source}", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The operating system gives no randomness, or not the memory that a passphrase takes.
    #[error("the machine has no randomness or memory to spare")]
    Exhausted,
}

impl BackendError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::OtherSystem(_) => "set `backend` under [vault] to one that this system has: `key_file` is everywhere",
            Self::NoKeyring(_) => {
                "start the desktop's keyring and the daemon in the same session; a vault that was made with a keyring is \
                 opened with it alone"
            }
            Self::Locked => "unlock the keyring, then run `palyra vault unlock`",
            Self::NotAKey(_) => "put the key file of this vault back in its place",
            Self::OpenToOthers(_) => "make it yours alone: `chmod 600` the file, `chmod 700` its directory",
            Self::WrongPassphrase => "try again: `palyra vault unlock`",
            Self::WeakPassphrase { .. } => "use several words",
            Self::Io { .. } => "look at the disk and at the rights of the file",
            Self::Exhausted => "free memory, then try again",
        }
    }

    pub(crate) fn io(path: &std::path::Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// How many characters a passphrase has at least.
pub const SHORTEST_PASSPHRASE: usize = 12;
