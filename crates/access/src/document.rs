//! The registry's state as text: versioned JSON that carries the digest of its content.
//!
//! ```text
//! {"version":1,"sha256":"<of the bytes of registry>","registry":{"revision":…,"features":…,"members":…,…}}
//! ```
//!
//! Guarantees: what was written reads back the same; a document that was cut, altered or written by a later version is refused whole.
//! Does not: protect against somebody who computes the digest anew. The file's permissions do.

use std::collections::BTreeMap;

use palyra_types::Sha256Digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    api_token::ApiTokenRecord,
    device::DeviceRecord,
    feature::{FeatureFlag, Switch},
    member::{InvitationRecord, MemberRecord},
    state::{
        State,
        consistency::{Inconsistency, Records},
    },
};

/// Writes a state at a revision.
///
/// # Errors
/// When it cannot be written as JSON, which no state gives cause for.
pub fn encode(state: &State, revision: u64) -> Result<Vec<u8>, DocumentError> {
    let content = Written {
        revision,
        features: state.said_of_features(),
        members: state.members().collect(),
        invitations: state.invitations().collect(),
        devices: state.devices().collect(),
        tokens: state.tokens().collect(),
    };
    let registry = serde_json::to_string(&content).map_err(|error| DocumentError::Form(error.to_string()))?;
    let digest = Sha256Digest::of(registry.as_bytes());
    Ok(format!("{{\"version\":{VERSION},\"sha256\":\"{digest}\",\"registry\":{registry}}}\n").into_bytes())
}

/// Reads a state and its revision.
///
/// # Errors
/// When it is not JSON, of another version, altered, has a field that is not known, or holds what cannot be.
pub fn decode(document: &[u8]) -> Result<(State, u64), DocumentError> {
    let head: Head = serde_json::from_slice(document).map_err(|error| refused(&error))?;
    if head.version != VERSION {
        return Err(DocumentError::Version(head.version));
    }
    let envelope: Envelope<'_> = serde_json::from_slice(document).map_err(|error| refused(&error))?;
    if Sha256Digest::of(envelope.registry.get().as_bytes()) != envelope.sha256 {
        return Err(DocumentError::Altered);
    }
    let read: Read = serde_json::from_str(envelope.registry.get()).map_err(|error| refused(&error))?;
    let records = Records {
        features: read.features,
        members: read.members,
        invitations: read.invitations,
        devices: read.devices,
        tokens: read.tokens,
    };
    Ok((State::of(records)?, read.revision))
}

fn refused(error: &serde_json::Error) -> DocumentError {
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

#[derive(Serialize)]
struct Written<'a> {
    revision: u64,
    features: &'a BTreeMap<FeatureFlag, Switch>,
    members: Vec<&'a MemberRecord>,
    invitations: Vec<&'a InvitationRecord>,
    devices: Vec<&'a DeviceRecord>,
    tokens: Vec<&'a ApiTokenRecord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    revision: u64,
    features: BTreeMap<FeatureFlag, Switch>,
    members: Vec<MemberRecord>,
    invitations: Vec<InvitationRecord>,
    devices: Vec<DeviceRecord>,
    tokens: Vec<ApiTokenRecord>,
}

/// Why a document is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
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
    Inconsistent(#[from] Inconsistency),
}

impl DocumentError {
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

/// The version that is written and read.
const VERSION: u64 = 1;
