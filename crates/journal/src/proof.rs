//! Proofs that a foreign verifier can check: that a record is in a checkpoint, and that one checkpoint goes on from another (RFC 6962).
//!
//! Guarantees: a proof is a small document of hashes; what checks needs nothing but a signed checkpoint, or two.
//! Does not: check signatures. [`Checkpoint::open`] does.

use palyra_types::Sha256Digest;
use serde::{Deserialize, Serialize};
use tlog_tiles::{Hash, HashReader, check_record, check_tree, prove_record, prove_tree};

use crate::{checkpoint::Checkpoint, store::ReadError};

/// That a record is in the tree of some size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InclusionProof {
    /// The record.
    pub seq: u64,
    /// The size of the tree.
    pub size: u64,
    /// The hash of the record.
    pub leaf: Sha256Digest,
    /// The hashes beside the way from the leaf to the root, lowest first.
    pub path: Vec<Sha256Digest>,
}

impl InclusionProof {
    /// Proves that a record is in the tree of this size.
    pub(crate) fn of(
        seq: u64,
        size: u64,
        leaf: Sha256Digest,
        hashes: &impl HashReader,
    ) -> Result<Self, tlog_tiles::Error> {
        // In a tree of one record, the leaf is the root.
        let path = if size == 1 { Vec::new() } else { digests(&prove_record(size, seq, hashes)?) };
        Ok(Self { seq, size, leaf, path })
    }

    /// Checks that the record is in this checkpoint.
    ///
    /// # Errors
    /// When the proof does not show that.
    pub fn check(&self, checkpoint: &Checkpoint) -> Result<(), ProofError> {
        if self.size != checkpoint.size || self.seq >= self.size {
            return Err(ProofError::Refuted);
        }
        check_record(&hashes(&self.path), self.size, hash(checkpoint.root), self.seq, hash(self.leaf))
            .map_err(|_| ProofError::Refuted)
    }
}

/// That a tree goes on from a smaller one: nothing in it was changed or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsistencyProof {
    /// The size of the smaller tree.
    pub from: u64,
    /// The size of the larger tree.
    pub to: u64,
    /// The hashes that both roots can be computed from.
    pub path: Vec<Sha256Digest>,
}

impl ConsistencyProof {
    /// Proves that the tree of size `to` goes on from that of size `from`.
    pub(crate) fn of(from: u64, to: u64, hashes: &impl HashReader) -> Result<Self, tlog_tiles::Error> {
        // Everything goes on from nothing and from itself.
        let path = if from == 0 || from == to { Vec::new() } else { digests(&prove_tree(to, from, hashes)?) };
        Ok(Self { from, to, path })
    }

    /// Checks that `newer` goes on from `older`.
    ///
    /// # Errors
    /// When the proof does not show that.
    pub fn check(&self, older: &Checkpoint, newer: &Checkpoint) -> Result<(), ProofError> {
        if (self.from, self.to) != (older.size, newer.size) || self.from > self.to {
            return Err(ProofError::Refuted);
        }
        let shown = if self.from == 0 || self.from == self.to {
            let empty_is_empty = self.from != 0 || older.root.as_bytes() == &tlog_tiles::EMPTY_HASH.0;
            let same_is_same = self.from != self.to || older.root == newer.root;
            self.path.is_empty() && empty_is_empty && same_is_same
        } else {
            check_tree(&hashes(&self.path), self.to, hash(newer.root), self.from, hash(older.root)).is_ok()
        };
        if shown { Ok(()) } else { Err(ProofError::Refuted) }
    }
}

/// Why there is no proof, or why it proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The journal is not that long, or the sizes are the wrong way round.
    #[error("the journal has {size} records, and a proof about more was asked for")]
    Beyond {
        /// How many records there are.
        size: u64,
    },
    /// The records that the proof needs were dropped.
    #[error("the records that the proof needs were dropped; those from {first} on are kept")]
    Dropped {
        /// The first record that is kept.
        first: u64,
    },
    /// The proof does not show what it should.
    #[error("the proof does not show that")]
    Refuted,
    /// The journal cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl ProofError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Beyond { .. } => "ask about records that exist",
            Self::Dropped { .. } => "ask about records that are kept, or compare with an exported bundle",
            Self::Refuted => "ask for the proof again; if it fails again, the journal was changed",
            Self::Read(_) => "check the disk, and run `palyra journal verify`",
        }
    }
}

fn digests(hashes: &[Hash]) -> Vec<Sha256Digest> {
    hashes.iter().map(|hash| Sha256Digest::from_bytes(hash.0)).collect()
}

fn hashes(digests: &[Sha256Digest]) -> Vec<Hash> {
    digests.iter().map(|&digest| hash(digest)).collect()
}

const fn hash(digest: Sha256Digest) -> Hash {
    Hash(*digest.as_bytes())
}
