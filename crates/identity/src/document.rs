//! JSON documents that hold secrets, and say which version they have.
//!
//! Guarantees: a document of another version is told from one that is broken; an error never shows what stands in a document; nothing of it
//! stays in a buffer that is given back.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

/// Reads a document of this version. It says so in `v`.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8], version: u64) -> Result<T, DocumentError> {
    let unreadable =
        |error: serde_json::Error| DocumentError::Unreadable { line: error.line(), column: error.column() };
    // A document of another version may have other fields, so this one is looked at first, and alone.
    let Version { v } = serde_json::from_slice(text).map_err(unreadable)?;
    if v != version {
        return Err(DocumentError::OtherVersion { found: v, known: version });
    }
    serde_json::from_slice(text).map_err(unreadable)
}

/// Writes a document.
pub(crate) fn write(document: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, DocumentError> {
    // Roomy, so that the buffer does not grow and leave copies of keys behind.
    let mut text = Zeroizing::new(Vec::with_capacity(ROOM));
    serde_json::to_writer_pretty(&mut *text, document).map_err(|_| DocumentError::Unwritable)?;
    text.push(b'\n');
    Ok(text)
}

#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// Why a document was not read or written. What stands in it is not shown: it may be a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON, or not with the fields that it must have.
    #[error("cannot be read at line {line}, column {column}")]
    Unreadable {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// Written by another version of the program.
    #[error("has version {found}; this program knows {known}")]
    OtherVersion {
        /// The version that it has.
        found: u64,
        /// The one that is known.
        known: u64,
    },
    /// Not to be written as JSON.
    #[error("cannot be written")]
    Unwritable,
}

/// More than a document usually has.
const ROOM: usize = 16 * 1024;
