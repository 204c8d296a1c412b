//! What can be wrong with a journal, in plain words, and with which record first.
//!
//! Guarantees: every fault is told by its kind, not by text; the record that is named is the first that is not what was written.

use crate::record::RecordError;

/// A journal that is not what was written: the first bad record, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {seq}: {fault}")]
pub struct Failure {
    /// The first bad record.
    pub seq: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl Failure {
    pub(crate) const fn new(seq: u64, fault: Fault) -> Self {
        Self { seq, fault }
    }
}

/// What is wrong with a journal, or with a bundle of its records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no journal, or no key to verify it with.
    #[error("there is no journal here: {0}")]
    Absent(String),
    /// The key of a journal is there, and its database is not.
    #[error("the journal has vanished: its key is here, and its database is not")]
    Vanished,
    /// What should hold the record cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The head is signed by another key, or says it belongs to another journal.
    #[error("the journal is that of `{found}`, and `{expected}` was expected")]
    OtherJournal {
        /// Whose journal it says it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// The signed head is not signed by the journal's key, or was changed.
    #[error("the signed head was not signed by the journal's key")]
    Unsigned,
    /// The directory's public key is not the one that was expected.
    #[error("the journal's public key is not the one that was expected")]
    OtherKey,
    /// A checkpoint that was saved elsewhere is not signed by the journal's key.
    #[error("the saved checkpoint was not signed by the journal's key")]
    SavedUnsigned,
    /// The record is not there.
    #[error("it is missing")]
    Missing,
    /// The records end here, and were more when the checkpoint was signed.
    #[error("the records end here, and there were {signed} when the checkpoint was signed")]
    CutOff {
        /// How many records there were.
        signed: u64,
    },
    /// A record where none belongs.
    #[error("there is a record where none belongs")]
    Unexpected,
    /// The text is no record in its one spelling.
    #[error(transparent)]
    Malformed(RecordError),
    /// The record has another number.
    #[error("the record in its place says it is record {claims}")]
    Misplaced {
        /// The number in the record.
        claims: u64,
    },
    /// The hash that is kept beside the record is not its hash.
    #[error("its hash is not the one that was kept beside it")]
    WrongHash,
    /// The record does not link to the one before it.
    #[error("it does not link to the record before it")]
    Unlinked,
    /// The record after it, which later records confirm, links to another record in its place.
    #[error("the record after it links to another one in its place")]
    Replaced,
    /// The body or its salt was changed.
    #[error("its body is not the one it commits to")]
    BodyChanged,
    /// The body is gone, and no record tells of its erasure.
    #[error("its body is missing, and no record says it was erased")]
    BodyMissing,
    /// Of body and salt only one is there.
    #[error("of its body and its salt only one is there")]
    BodyTorn,
    /// A record of the journal about itself whose body says nothing that can be understood.
    #[error("it is a record about the journal itself that cannot be understood")]
    Notice,
    /// The tree that is kept beside the records is not the tree over them.
    #[error("the tree that was kept beside the records does not match them")]
    Tile,
    /// The records are not those of the checkpoint that was signed at this size.
    #[error("from here on the records are not those that the signed checkpoint of {signed} records saw")]
    OtherHistory {
        /// The size of the checkpoint.
        signed: u64,
    },
    /// What a sealed segment, or the place where records were dropped, says about itself is not so.
    #[error("the boundary of the sealed records is not the one that was signed")]
    Boundary,
    /// The file of a sealed segment is not there.
    #[error("the sealed segment that holds it is missing")]
    SegmentMissing,
    /// Records before this one were dropped, and no record tells of it.
    #[error("the records before it are gone, and no record says they were dropped")]
    Undropped,
    /// The bundle is not a bundle, or one of its lines is not.
    #[error("the bundle cannot be understood: {0}")]
    Bundle(String),
    /// The checkpoint's proof does not show that the records lead to it.
    #[error("the proof does not lead from the records to the signed checkpoint")]
    Unproven,
}

impl Fault {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Absent(_) => "name the journal's directory; it holds `journal.db` and `verify.key`",
            Self::Unreadable(_) => "check the disk (`dmesg`), and restore the journal from a backup",
            Self::OtherJournal { .. } | Self::OtherKey => {
                "check that the key and the directory belong together; if they do, the journal was exchanged"
            }
            Self::SavedUnsigned => "check that the saved checkpoint is one of this journal",
            Self::Bundle(_) => "export the records again",
            _ => {
                "the journal was changed or damaged; keep it as it is, and compare with a backup and with checkpoints saved elsewhere"
            }
        }
    }
}
