//! Transactions with everything done that the one thread that writes does not have to do.
//!
//! Guarantees: made by whoever commits, on its own thread; what is left is to give each record its number, its link and its hash.

use palyra_types::Timestamp;

use crate::{
    body::Body,
    record::{Draft, NewRecord, RecordKind, Subject},
    state::Change,
    store::Transaction,
};

/// A transaction that is ready to be written.
pub(super) struct Ready {
    pub(super) records: Vec<ReadyRecord>,
    pub(super) changes: Vec<Change>,
}

/// A record that lacks its place in the chain only.
pub(super) struct ReadyRecord {
    pub(super) kind: RecordKind,
    pub(super) subject: Subject,
    pub(super) time: Timestamp,
    pub(super) draft: Draft,
    pub(super) body: Body,
}

impl From<Transaction> for Ready {
    fn from(transaction: Transaction) -> Self {
        let Transaction { records, changes } = transaction;
        Self { records: records.into_iter().map(ReadyRecord::from).collect(), changes }
    }
}

impl From<NewRecord> for ReadyRecord {
    fn from(new: NewRecord) -> Self {
        let draft = Draft::of(&new);
        let NewRecord { kind, subject, time, body } = new;
        Self { kind, subject, time, draft, body }
    }
}
