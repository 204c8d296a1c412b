//! The journal: its head, its records and proofs about them.

use palyra_types::{Sha256Digest, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{schema, strict};

/// The signed head of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Head {
    /// How many records there are.
    pub size: u64,
    /// The signed checkpoint.
    pub checkpoint: String,
    /// The key that it is signed with. Keep it elsewhere, to notice an exchanged journal.
    pub key: String,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// Its number.
    pub seq: u64,
    /// When it happened.
    #[schema(value_type = schema::Time)]
    pub time: Timestamp,
    /// What it is about.
    pub kind: String,
    /// The header, as the hash is of it.
    pub record: String,
    /// The hash of the header.
    #[schema(value_type = schema::Digest)]
    pub hash: Sha256Digest,
    /// What it says; absent once it was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub body: Option<Value>,
}

/// Some records, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Records {
    /// How many there are in all.
    pub size: u64,
    /// Those that were asked for.
    pub records: Vec<Record>,
}

/// Which records are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RecordQuery {
    /// From this one on. Without it, the last ones.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::seq")]
    #[param(maximum = 9_007_199_254_740_991_u64)]
    pub from: Option<u64>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Which records are exported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// The first; without it the first that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::seq")]
    #[param(maximum = 9_007_199_254_740_991_u64)]
    pub first: Option<u64>,
    /// The last; without it the last there is.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::seq")]
    #[param(maximum = 9_007_199_254_740_991_u64)]
    pub last: Option<u64>,
}

/// The proof that a record is in the journal whose head is signed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// The record.
    pub record: Record,
    /// What the body was salted with, in hexadecimal: the header's `body` is SHA-256 of the salt and the body as it is kept. Absent once it was
    /// erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    /// The signed checkpoint that the proof leads to.
    pub checkpoint: String,
    /// The key that it is signed with.
    pub key: String,
    /// The hashes that lead from the record to the checkpoint's root, as RFC 6962 says.
    #[schema(value_type = Vec<schema::Digest>)]
    pub hashes: Vec<Sha256Digest>,
}

/// What verification of the journal found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    /// Whether everything is what was written.
    pub ok: bool,
    /// Whose journal it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The first record that is kept.
    pub first: u64,
    /// How many records were checked.
    pub records: u64,
    /// How many of their bodies were erased.
    pub erased: u64,
    /// The first bad record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_record: Option<u64>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}
