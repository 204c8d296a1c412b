//! The vault: names to secrets, sealed at rest, leased to one call, never printed.
//!
//! | you look for | read |
//! |---|---|
//! | a secret's value, and what is known of it | [`Vault`], [`Lease`], [`SecretDescription`] |
//! | how the vault is changed | [`VaultChange`], [`Staged`] |
//! | how it is opened, and what is refused | [`Vault::open`], [`OpenError`] |
//! | who holds the key | [`BlobBackend`](backend::BlobBackend) |
//! | where a secret may go | [`Binding`], [`Position`] |
//! | how it gets there unseen | [`inject`], [`Placeholder`], [`Redactor`] |
//! | backups | [`backup`] |
//! | the file, byte by byte | `log.rs` |
//!
//! Guarantees: each version of a secret is sealed under a key of its own, which is sealed under the vault's key, about its name, scope, version
//! and the generation of the vault; the journal knows the digest of the whole file, so that nothing in it can be swapped, renamed or rolled
//! back unnoticed. A value is in memory only while somebody uses it, and wiped afterwards.
//! Does not: decide who may have what, or record it. The gate does.

pub mod backend;
pub mod backup;
mod binding;
mod contents;
mod error;
mod escape;
mod files;
pub mod inject;
mod log;
mod needles;
mod open;
mod placeholder;
mod redact;
mod seal;
mod stage;
mod value;
mod vault;

pub use backend::{BackendKind, BlobBackend};
pub use binding::{Binding, BindingError, BindingTerms, PathPrefix, Position};
pub use contents::{SecretDescription, VersionInfo};
pub use error::{LONGEST_NOTE, OpenError, VaultError};
pub use log::Head;
pub use open::{Belief, Opened, recorded_backend};
pub use placeholder::Placeholder;
pub use redact::{RedactingStream, Redactor, SHORTEST};
pub use stage::{Added, NewSecret, Staged, VaultChange};
pub use value::{LONGEST_VALUE, SecretValue, ValueError};
pub use vault::{Ground, Lease, Vault};
