//! A journal that fails or dawdles where a test tells it to, in front of the real one.

#![allow(clippy::missing_panics_doc, reason = "a laboratory that cannot be set up ends the test")]

use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use palyra_journal::{
    Announced, Bundle, Committed, ConsistencyProof, Erased, Event, ExportError, Extent, InclusionProof, JournalKey,
    JournalStore, Maintained, ProofError, ReadError, Selection, SqliteJournal, StoredRecord, Transaction, Trouble,
    state::{ApprovalRow, ApprovalState, CallRow, CallState, GrantRow, KeyRow, PostureRow, RunRow, VaultRow},
    store::{ApprovalQuery, CommitError, Heading, Later},
};
use palyra_types::{
    IdempotencyKey, Sha256Digest, Timestamp, ToolName,
    id::{ApprovalId, CallId, NodeId, RunId, SessionId},
};
use tokio::sync::{Notify, broadcast};

/// What goes wrong. Nothing does, until it is told to.
#[derive(Default)]
pub struct Faults {
    commits: Mutex<Option<CommitFault>>,
    lies: Mutex<Option<Which>>,
    reads: Mutex<Option<ReadFault>>,
    hold: Mutex<Option<(Which, Arc<Hold>)>>,
}

type CommitFault = Box<dyn FnMut(&Transaction) -> Option<Trouble> + Send>;
type ReadFault = Box<dyn FnMut(&'static str) -> bool + Send>;
type Which = Box<dyn Fn(&Transaction) -> bool + Send>;

/// A commit that is kept back.
#[derive(Default)]
pub struct Hold {
    reached: Notify,
    go: Notify,
}

impl Hold {
    /// Waits until the commit is there.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.go.notify_one();
    }
}

impl Faults {
    /// Commits fail where this says so. It may do other things on the way.
    pub fn fail_commits(&self, fault: impl FnMut(&Transaction) -> Option<Trouble> + Send + 'static) {
        *lock(&self.commits) = Some(Box::new(fault));
    }

    /// The next commit of this kind is written, and reported as one that could not be.
    pub fn lie_about_commit(&self, which: impl Fn(&Transaction) -> bool + Send + 'static) {
        *lock(&self.lies) = Some(Box::new(which));
    }

    /// Reads fail where this says so, by the name of the method.
    pub fn fail_reads(&self, fault: impl FnMut(&'static str) -> bool + Send + 'static) {
        *lock(&self.reads) = Some(Box::new(fault));
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        *lock(&self.commits) = None;
        *lock(&self.reads) = None;
    }

    /// Keeps the next commit of this kind back.
    pub fn hold(&self, which: impl Fn(&Transaction) -> bool + Send + 'static) -> Arc<Hold> {
        let hold = Arc::new(Hold::default());
        *lock(&self.hold) = Some((Box::new(which), Arc::clone(&hold)));
        hold
    }
}

/// The real journal, behind the faults.
pub(crate) struct FaultyStore {
    pub(crate) journal: Arc<SqliteJournal>,
    pub(crate) faults: Arc<Faults>,
}

impl FaultyStore {
    fn read<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        read: impl FnOnce(&'a SqliteJournal) -> Later<'a, Result<T, ReadError>>,
    ) -> Later<'a, Result<T, ReadError>> {
        let fails = lock(&self.faults.reads).as_mut().is_some_and(|fault| fault(what));
        if fails {
            return Box::pin(std::future::ready(Err(ReadError("a fault".to_owned()))));
        }
        read(&self.journal)
    }
}

impl JournalStore for FaultyStore {
    fn announce(&self) -> Announced {
        self.journal.announce()
    }

    fn node(&self) -> NodeId {
        self.journal.node()
    }

    fn key(&self) -> &JournalKey {
        self.journal.key()
    }

    fn commit(&self, transaction: Transaction) -> Later<'_, Result<Committed, CommitError>> {
        if let Some(trouble) = lock(&self.faults.commits).as_mut().and_then(|fault| fault(&transaction)) {
            return Box::pin(std::future::ready(Err(CommitError::Unwritable(trouble))));
        }
        let lie = lock(&self.faults.lies).take_if(|which| which(&transaction)).is_some();
        let held = lock(&self.faults.hold).take_if(|(which, _)| which(&transaction));
        Box::pin(async move {
            if let Some((_, hold)) = held {
                hold.reached.notify_one();
                hold.go.notified().await;
            }
            let committed = self.journal.commit(transaction).await;
            if lie { Err(CommitError::Unwritable(Trouble::Disk("a fault".to_owned()))) } else { committed }
        })
    }

    fn trouble(&self) -> Option<Trouble> {
        self.journal.trouble()
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<Vec<Event>>> {
        self.journal.subscribe()
    }

    fn records(&self, from: u64, most: usize) -> Later<'_, Result<Vec<StoredRecord>, ReadError>> {
        self.read("records", |journal| journal.records(from, most))
    }

    fn records_within(&self, from: u64, most: usize, bytes: usize) -> Later<'_, Result<Vec<StoredRecord>, ReadError>> {
        self.read("records_within", |journal| journal.records_within(from, most, bytes))
    }

    fn subjects(&self, from: u64, most: usize) -> Later<'_, Result<Vec<Heading>, ReadError>> {
        self.read("subjects", |journal| journal.subjects(from, most))
    }

    fn checkpoint(&self) -> Later<'_, Result<String, ReadError>> {
        self.read("checkpoint", JournalStore::checkpoint)
    }

    fn latest(&self) -> Later<'_, Result<Timestamp, ReadError>> {
        self.read("latest", JournalStore::latest)
    }

    fn call(&self, id: CallId) -> Later<'_, Result<Option<CallRow>, ReadError>> {
        self.read("call", |journal| journal.call(id))
    }

    fn call_by_key(
        &self,
        principal: String,
        key: IdempotencyKey,
        now: Timestamp,
    ) -> Later<'_, Result<Option<KeyRow>, ReadError>> {
        self.read("call_by_key", |journal| journal.call_by_key(principal, key, now))
    }

    fn calls_in(&self, state: CallState) -> Later<'_, Result<Vec<CallRow>, ReadError>> {
        self.read("calls_in", |journal| journal.calls_in(state))
    }

    fn approval(&self, id: ApprovalId) -> Later<'_, Result<Option<ApprovalRow>, ReadError>> {
        self.read("approval", |journal| journal.approval(id))
    }

    fn approval_state(&self, id: ApprovalId) -> Later<'_, Result<Option<ApprovalState>, ReadError>> {
        self.read("approval_state", |journal| journal.approval_state(id))
    }

    fn approval_of(&self, call: CallId) -> Later<'_, Result<Option<ApprovalRow>, ReadError>> {
        self.read("approval_of", |journal| journal.approval_of(call))
    }

    fn approvals_in(&self, query: ApprovalQuery) -> Later<'_, Result<Vec<ApprovalRow>, ReadError>> {
        self.read("approvals_in", |journal| journal.approvals_in(query))
    }

    fn pending_with(&self, digest: Sha256Digest) -> Later<'_, Result<Vec<ApprovalRow>, ReadError>> {
        self.read("pending_with", |journal| journal.pending_with(digest))
    }

    fn grants_for(
        &self,
        session: SessionId,
        principal: String,
        tool: ToolName,
    ) -> Later<'_, Result<Vec<GrantRow>, ReadError>> {
        self.read("grants_for", |journal| journal.grants_for(session, principal, tool))
    }

    fn grants(&self) -> Later<'_, Result<Vec<GrantRow>, ReadError>> {
        self.read("grants", JournalStore::grants)
    }

    fn run(&self, id: RunId) -> Later<'_, Result<Option<RunRow>, ReadError>> {
        self.read("run", |journal| journal.run(id))
    }

    fn postures(&self, tool: ToolName) -> Later<'_, Result<Vec<PostureRow>, ReadError>> {
        self.read("postures", |journal| journal.postures(tool))
    }

    fn postures_all(&self) -> Later<'_, Result<Vec<PostureRow>, ReadError>> {
        self.read("postures_all", JournalStore::postures_all)
    }

    fn vault(&self) -> Later<'_, Result<Option<VaultRow>, ReadError>> {
        self.read("vault", JournalStore::vault)
    }

    fn pending_count(&self) -> Later<'_, Result<u64, ReadError>> {
        self.read("pending_count", JournalStore::pending_count)
    }

    fn size(&self) -> Later<'_, Result<u64, ReadError>> {
        self.read("size", JournalStore::size)
    }

    fn erase(&self, selection: Selection, reason: String) -> Later<'_, Result<Erased, Trouble>> {
        self.journal.erase(selection, reason)
    }

    fn maintain(&self, now: Timestamp) -> Later<'_, Result<Maintained, Trouble>> {
        self.journal.maintain(now)
    }

    fn inclusion(&self, seq: u64, size: u64) -> Later<'_, Result<InclusionProof, ProofError>> {
        self.journal.inclusion(seq, size)
    }

    fn consistency(&self, from: u64, to: u64) -> Later<'_, Result<ConsistencyProof, ProofError>> {
        self.journal.consistency(from, to)
    }

    fn export(&self, extent: Extent, out: Box<dyn Write + Send>) -> Later<'_, Result<Bundle, ExportError>> {
        self.journal.export(extent, out)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
