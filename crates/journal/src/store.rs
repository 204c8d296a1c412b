//! The seam: what the gate needs from whatever keeps the journal.
//!
//! Guarantees of every implementation: a transaction happens whole or not at all, and is durable when [`JournalStore::commit`] answers;
//! everything that can change goes through it, so nothing changes without its record; what is read of a record is what was written, held to
//! its hash and to the commitment of its body, or an error that names it. Several daemons may share one store: each has its own
//! chain and key, state is common to all, and a commit of one wakes the subscribers of all.

use std::{
    future::Future,
    io::Write,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use palyra_types::{
    IdempotencyKey, Sha256Digest, Timestamp, ToolName,
    id::{ApprovalId, CallId, NodeId, RunId, SessionId},
};
use tokio::sync::broadcast;

use crate::{
    export::{Bundle, ExportError, Extent},
    keep::{Erased, Maintained, Selection},
    key::JournalKey,
    proof::{ConsistencyProof, InclusionProof, ProofError},
    record::{NewRecord, RecordKind, StoredRecord, Subject},
    state::{
        ApprovalRow, ApprovalState, CallRow, CallState, Change, Conflict, GrantRow, KeyRow, PostureRow, RunRow,
        VaultRow,
    },
    trouble::Trouble,
};

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The number of a record, what it is about, and what it belongs to.
pub type Heading = (u64, RecordKind, Subject);

/// What keeps the journal, and the state that goes with it.
pub trait JournalStore: Send + Sync {
    /// Which chain this daemon writes.
    fn node(&self) -> NodeId;

    /// The key that signs this daemon's chain.
    fn key(&self) -> &JournalKey;

    /// Commits a transaction: all its records and changes, or nothing. Answers when it is durable.
    fn commit(&self, transaction: Transaction) -> Later<'_, Result<Committed, CommitError>>;

    /// Says that somebody is about to commit something, until what is returned is dropped. It binds nobody. Whoever writes may wait a
    /// little for it, and sync once for many.
    fn announce(&self) -> Announced {
        Announced::default()
    }

    /// Whether records can be written now, as far as is known.
    fn trouble(&self) -> Option<Trouble>;

    /// Tells of every commit from now on, by this daemon or another that shares the store. Whoever falls behind reads again.
    fn subscribe(&self) -> broadcast::Receiver<Arc<Vec<Event>>>;

    /// Records of this daemon's chain, from this number on. For a few: they are read while the caller's thread waits.
    fn records(&self, from: u64, most: usize) -> Later<'_, Result<Vec<StoredRecord>, ReadError>>;

    /// Records of this daemon's chain, from this number on, up to the one with which their bodies are longer than so many bytes. At least
    /// one, if there is one. However long it takes, nobody else waits for it.
    fn records_within(&self, from: u64, most: usize, bytes: usize) -> Later<'_, Result<Vec<StoredRecord>, ReadError>>;

    /// The numbers of records of this daemon's chain from this one on, and what they are about. What they say is not read. However long it
    /// takes, nobody else waits for it.
    fn subjects(&self, from: u64, most: usize) -> Later<'_, Result<Vec<Heading>, ReadError>>;

    /// How many records this daemon's chain has, those that were dropped included.
    fn size(&self) -> Later<'_, Result<u64, ReadError>>;

    /// Erases what records of this daemon's chain say, and tells of it in a record. The chain stays whole.
    fn erase(&self, selection: Selection, reason: String) -> Later<'_, Result<Erased, Trouble>>;

    /// Erases what is too old, seals and drops what is too much, and forgets keys whose time is over. To be called every now and then.
    fn maintain(&self, now: Timestamp) -> Later<'_, Result<Maintained, Trouble>>;

    /// Proves that a record of this daemon's chain is in its tree of this size.
    fn inclusion(&self, seq: u64, size: u64) -> Later<'_, Result<InclusionProof, ProofError>>;

    /// Proves that the tree of this daemon's chain at size `to` goes on from that at size `from`.
    fn consistency(&self, from: u64, to: u64) -> Later<'_, Result<ConsistencyProof, ProofError>>;

    /// Writes a bundle of records of this daemon's chain, which anybody can verify.
    fn export(&self, extent: Extent, out: Box<dyn Write + Send>) -> Later<'_, Result<Bundle, ExportError>>;

    /// The latest signed checkpoint of this daemon's chain.
    fn checkpoint(&self) -> Later<'_, Result<String, ReadError>>;

    /// The latest time of any record of this daemon's chain, whatever was done to the clock since.
    fn latest(&self) -> Later<'_, Result<Timestamp, ReadError>>;

    /// One call.
    fn call(&self, id: CallId) -> Later<'_, Result<Option<CallRow>, ReadError>>;

    /// The call that took this key of a principal, if it did so within [`KEY_LIFE`](crate::state::KEY_LIFE) before now.
    fn call_by_key(
        &self,
        principal: String,
        key: IdempotencyKey,
        now: Timestamp,
    ) -> Later<'_, Result<Option<KeyRow>, ReadError>>;

    /// The calls in this state, oldest first.
    fn calls_in(&self, state: CallState) -> Later<'_, Result<Vec<CallRow>, ReadError>>;

    /// One question.
    fn approval(&self, id: ApprovalId) -> Later<'_, Result<Option<ApprovalRow>, ReadError>>;

    /// The state of one question.
    fn approval_state(&self, id: ApprovalId) -> Later<'_, Result<Option<ApprovalState>, ReadError>>;

    /// The question about a call, if it was asked.
    fn approval_of(&self, call: CallId) -> Later<'_, Result<Option<ApprovalRow>, ReadError>>;

    /// Questions in this state, oldest first, after this one.
    fn approvals_in(&self, query: ApprovalQuery) -> Later<'_, Result<Vec<ApprovalRow>, ReadError>>;

    /// How many questions are pending.
    fn pending_count(&self) -> Later<'_, Result<u64, ReadError>>;

    /// The pending questions about exactly this action.
    fn pending_with(&self, digest: Sha256Digest) -> Later<'_, Result<Vec<ApprovalRow>, ReadError>>;

    /// The standing approvals that may cover a call, oldest first. Ended ones are not among them.
    fn grants_for(
        &self,
        session: SessionId,
        principal: String,
        tool: ToolName,
    ) -> Later<'_, Result<Vec<GrantRow>, ReadError>>;

    /// Every standing approval that was not ended.
    fn grants(&self) -> Later<'_, Result<Vec<GrantRow>, ReadError>>;

    /// One run.
    fn run(&self, id: RunId) -> Later<'_, Result<Option<RunRow>, ReadError>>;

    /// The postures that are set for a tool, in every layer.
    fn postures(&self, tool: ToolName) -> Later<'_, Result<Vec<PostureRow>, ReadError>>;

    /// Every posture that is set, by tool.
    fn postures_all(&self) -> Later<'_, Result<Vec<PostureRow>, ReadError>>;

    /// How far the vault is, if there is one.
    fn vault(&self) -> Later<'_, Result<Option<VaultRow>, ReadError>>;
}

/// What happens together: records of what happened, and the changes they tell of.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The records, in order.
    pub records: Vec<NewRecord>,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// A transaction that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The number of its first record.
    pub first_seq: u64,
    /// The hashes of its records.
    pub hashes: Vec<Sha256Digest>,
}

impl Committed {
    /// The number and the hash of its last record.
    #[must_use]
    pub fn last(&self) -> Option<(u64, Sha256Digest)> {
        let last = u64::try_from(self.hashes.len()).ok()?.checked_sub(1)?;
        Some((self.first_seq + last, *self.hashes.last()?))
    }
}

/// A record that became durable, told to subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Whose chain it is in.
    pub node: NodeId,
    /// Its number there.
    pub seq: u64,
    /// What it is about.
    pub kind: RecordKind,
    /// What it belongs to.
    pub subject: Subject,
}

/// Which questions are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalQuery {
    /// In which state.
    pub state: ApprovalState,
    /// After this one, in the order they were asked.
    pub after: Option<ApprovalId>,
    /// At most this many.
    pub most: usize,
}

/// Why a transaction did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Something was not as the transaction expected.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The journal cannot be written.
    #[error(transparent)]
    Unwritable(#[from] Trouble),
}

/// The store could not be read. Whoever needed to know must refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal cannot be read: {0}")]
pub struct ReadError(pub String);

/// Somebody who is about to commit something, until this is dropped.
#[derive(Debug, Default)]
#[must_use = "who is dropped is not waited for"]
pub struct Announced(Option<Arc<AtomicUsize>>);

impl Announced {
    /// One more of those that are counted here.
    pub(crate) fn among(coming: &Arc<AtomicUsize>) -> Self {
        coming.fetch_add(1, Ordering::Relaxed);
        Self(Some(Arc::clone(coming)))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(coming) = &self.0 {
            coming.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
