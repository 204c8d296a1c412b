//! The registry's state as text: versioned JSON that carries the digest of its content.
//!
//! ```text
//! {"version":1,"sha256":"<of the bytes of registry>","registry":{"revision":…,"features":…,"members":…,…}}
//! ```
//!
//! Guarantees: what was written reads back the same; a document that was cut, altered or written by a later version is refused whole.
//! Does not: protect against somebody who computes the digest anew. The file's permissions do.

use std::collections::BTreeMap;

use palyra_types::registry_document;
use serde::{Deserialize, Serialize};

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
    registry_document::encode(&content)
}

/// Reads a state and its revision.
///
/// # Errors
/// When it is not JSON, of another version, altered, has a field that is not known, or holds what cannot be.
pub fn decode(document: &[u8]) -> Result<(State, u64), DocumentError> {
    let read: Read = registry_document::decode(document)?;
    let records = Records {
        features: read.features,
        members: read.members,
        invitations: read.invitations,
        devices: read.devices,
        tokens: read.tokens,
    };
    let state = State::of(records).map_err(DocumentError::Inconsistent)?;
    Ok((state, read.revision))
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

/// Why a registry is refused.
pub type DocumentError = registry_document::DocumentError<Inconsistency>;
