//! A registry as text: versioned JSON that carries the digest of its content.
//!
//! ```text
//! {"version":1,"sha256":"<of the bytes of registry>","registry":{…}}
//! ```
//!
//! Guarantees: what was written reads back the same; a document that was cut, altered or written by a later version is refused whole.
//! Does not: protect against somebody who computes the digest anew. The file's permissions do.

use std::fmt::Display;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::Sha256Digest;

/// Writes a registry.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn encode<I: Display>(registry: &impl Serialize) -> Result<Vec<u8>, DocumentError<I>> {
    let registry = serde_json::to_string(registry).map_err(|error| DocumentError::Form(error.to_string()))?;
    let digest = Sha256Digest::of(registry.as_bytes());
    Ok(format!("{{\"version\":{VERSION},\"sha256\":\"{digest}\",\"registry\":{registry}}}\n").into_bytes())
}

/// Reads a registry.
///
/// # Errors
/// When it is not JSON, of another version, altered, or not of its form.
pub fn decode<T: DeserializeOwned, I: Display>(document: &[u8]) -> Result<T, DocumentError<I>> {
    let head: Head = serde_json::from_slice(document).map_err(|error| refused(&error))?;
    if head.version != VERSION {
        return Err(DocumentError::Version(head.version));
    }
    let envelope: Envelope<'_> = serde_json::from_slice(document).map_err(|error| refused(&error))?;
    if Sha256Digest::of(envelope.registry.get().as_bytes()) != envelope.sha256 {
        return Err(DocumentError::Altered);
    }
    serde_json::from_str(envelope.registry.get()).map_err(|error| refused(&error))
}

/// Why a registry is refused. What contradicts itself is said in the words of whoever reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError<I: Display> {
    /// Cut off, or something else altogether.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// Written by a program of another time.
    #[error("it is of version {0}, and only version {VERSION} is understood")]
    Version(u64),
    /// A field that is not known, missing, or not what it should be.
    #[error("it is not of the form of version {VERSION}: {0}")]
    Form(String),
    /// The digest is not that of the content.
    #[error("its content was altered after it was written")]
    Altered,
    /// It holds what cannot be.
    #[error("it contradicts itself: {0}")]
    Inconsistent(I),
}

impl<I: Display> DocumentError<I> {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "restore the file from a backup; it was cut off or overwritten",
            Self::Version(_) => "start the version of Palyra that wrote it, or restore the file from a backup",
            Self::Form(_) => {
                "start the version of Palyra that wrote it, or restore the file from a backup; it is not to be edited"
            }
            Self::Altered => "restore the file from a backup; it is not to be edited, only changed through the daemon",
            Self::Inconsistent(_) => "restore the file from a backup, and report this if nobody edited it",
        }
    }
}

fn refused<I: Display>(error: &serde_json::Error) -> DocumentError<I> {
    match error.classify() {
        serde_json::error::Category::Data => DocumentError::Form(error.to_string()),
        _ => DocumentError::NotJson(error.to_string()),
    }
}

/// Enough to know whether the rest can be understood.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(rename = "version")]
    _version: u64,
    sha256: Sha256Digest,
    #[serde(borrow)]
    registry: &'a RawValue,
}

/// The version that is written and read.
const VERSION: u64 = 1;
