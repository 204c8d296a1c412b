//! The journal in one SQLite database: a directory with the database, its keys and its lock.
//!
//! Guarantees: what [`JournalStore`](crate::store::JournalStore) promises; one process at a time; a database that is not the one that was
//! signed last does not open, and neither does a journal that has vanished.

mod answers;
mod apply;
pub(crate) mod archive;
mod batch;
mod erase;
mod files;
mod founding;
mod head;
mod keeper;
mod open;
mod queue;
mod reader;
mod ready;
mod rows;
mod scanner;
mod schema;
mod seal;
pub(crate) mod tiles;
mod writer;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use palyra_types::{
    Clock, Entropy, IdempotencyKey, Sha256Digest, Timestamp, ToolName,
    id::{ApprovalId, CallId, NodeId, RunId, SessionId},
};
use rusqlite::{Connection, params};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{broadcast, oneshot};

use self::{
    answers::question,
    files::diagnosed,
    founding::Founding,
    keeper::{Errand, Keeper, Load},
    open::Open,
    queue::{Inlet, Job, queue},
    reader::{Portion, Reader, Scan},
    scanner::Scanner,
    tiles::Tiles,
    writer::{Parts, SharedTrouble, Writer},
};
use crate::{
    export::{Bundle, ExportError, Extent, export},
    keep::{Erased, Keeping, Maintained, Selection},
    key::JournalKey,
    proof::{ConsistencyProof, InclusionProof, ProofError},
    record::StoredRecord,
    state::{ApprovalRow, ApprovalState, CallRow, CallState, GrantRow, KeyRow, PostureRow, RunRow, VaultRow},
    store::{
        Announced, ApprovalQuery, CommitError, Committed, Event, Heading, JournalStore, Later, ReadError, Transaction,
    },
    trouble::Trouble,
};

/// The database in a journal's directory.
pub const DATABASE_FILE: &str = "journal.db";

/// The directory of sealed segments in a journal's directory.
pub const SEGMENTS_DIRECTORY: &str = "segments";

const LOCK_FILE: &str = "lock";

/// A journal in a directory of its own.
pub struct SqliteJournal {
    directory: PathBuf,
    node: NodeId,
    key: JournalKey,
    jobs: Inlet,
    errands: mpsc::Sender<Errand>,
    load: Arc<Load>,
    events: broadcast::Sender<Arc<Vec<Event>>>,
    trouble: SharedTrouble,
    /// How many are about to commit something.
    coming: Arc<AtomicUsize>,
    /// For what is read at once.
    reader: Mutex<Reader>,
    /// For what may take long.
    scanner: Scanner,
    /// The keeper, which needs the writer to the end, and then the writer.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held as long as the journal is open.
    _lock: File,
}

impl SqliteJournal {
    /// Opens the journal of a directory, and makes it if there is none. It keeps as much as is usual.
    ///
    /// # Errors
    /// When the directory cannot be used, another process uses it, or what it holds is not what was signed last, or no more than its key.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Result<Self, Trouble> {
        Self::open_keeping(directory, Keeping::default(), clock, entropy)
    }

    /// Opens the journal of a directory, and makes it if there is none. It keeps as much as it is told.
    ///
    /// # Errors
    /// When the directory cannot be used, another process uses it, or what it holds is not what was signed last, or no more than its key.
    pub fn open_keeping(
        directory: &Path,
        keeping: Keeping,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, Trouble> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(disk)?;
        let lock = lock(directory)?;
        let path = directory.join(DATABASE_FILE);
        let founding = Founding::at(directory, clock.as_ref(), entropy.as_ref())?;
        let (node, existing) = (founding.node()?, founding.expects(directory)?);
        let open = Open::at(&path, founding.key().public(), existing)
            .map_err(|trouble| founding.explain(diagnosed(trouble, directory)))?;
        founding.begin(directory, open.is_new())?;
        // Whoever verifies the journal just now is not in the way; the log is started anew later then.
        open.start_log_anew().map_err(|trouble| diagnosed(trouble, &path))?;
        let (is_new, database) = (open.is_new(), open.database());
        let (reader, scanner) = (Mutex::new(Reader::at(&path)?), Scanner::start(&path)?);
        let (events, _) = broadcast::channel(BACKLOG);
        let (trouble, load) = (Arc::new(RwLock::new(None)), Arc::new(Load::default()));
        let ((jobs, outlet), (errands, requests)) = (queue(), mpsc::channel());
        let coming = Arc::<AtomicUsize>::default();
        let parts = Parts {
            path,
            node,
            key: founding.key().clone(),
            clock,
            entropy,
            events: events.clone(),
            trouble: Arc::clone(&trouble),
            keeper: errands.clone(),
            load: Arc::clone(&load),
            coming: Arc::clone(&coming),
            segment_bytes: keeping.rotation.segment_bytes,
        };
        let mut writer = Writer::new(parts, open);
        if is_new {
            writer.begin().map_err(|trouble| diagnosed(trouble, &directory.join(DATABASE_FILE)))?;
        }
        let key = founding.complete(directory)?;
        let keeper = Keeper {
            directory: directory.to_owned(),
            key: key.clone(),
            keeping,
            jobs: jobs.clone(),
            load: Arc::clone(&load),
            aged: 0,
            log_to_empty: true,
            counted: false,
            database,
        };
        let threads = Mutex::new(vec![
            thread("palyra-journal", move || writer.run(&outlet))?,
            thread("palyra-keeper", move || keeper.run(&requests))?,
        ]);
        let directory = directory.to_owned();
        Ok(Self {
            directory,
            node,
            key,
            jobs,
            errands,
            load,
            events,
            trouble,
            coming,
            reader,
            scanner,
            threads,
            _lock: lock,
        })
    }

    /// Where the journal is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn read<T, E>(&self, read: impl FnOnce(&Connection) -> Result<T, E>) -> Later<'_, Result<T, ReadError>>
    where
        T: Send + 'static,
        E: Into<ReadError>,
    {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = reader.connection().map_err(ReadError::from);
        let answer = connection.and_then(|connection| read(connection).map_err(E::into));
        Box::pin(std::future::ready(answer))
    }

    fn errand<T: Send + 'static>(
        &self,
        errand: Errand,
        answer: oneshot::Receiver<Result<T, Trouble>>,
    ) -> Later<'_, Result<T, Trouble>> {
        let sent = self.errands.send(errand);
        Box::pin(async move {
            sent.map_err(|_| Trouble::Closed)?;
            answer.await.map_err(|_| Trouble::Closed)?
        })
    }

    fn prove<T>(&self, prove: impl FnOnce(&Tiles<'_>) -> Result<T, ProofError>) -> Later<'_, Result<T, ProofError>>
    where
        T: Send + 'static,
    {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // One moment of the journal, whatever is written meanwhile.
        let moment = reader.connection().and_then(|connection| Ok(connection.unchecked_transaction()?));
        let moment = moment.map_err(|error| ReadError::from(error).into());
        let answer = moment.and_then(|moment| prove(&Tiles(&moment)));
        Box::pin(std::future::ready(answer))
    }
}

/// Does something in a thread of its own, which the answer comes from.
fn in_background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = io::Result<T>> + Send {
    let (reply, answer) = oneshot::channel();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _ = reply.send(work());
    });
    async move {
        started?;
        answer.await.map_err(io::Error::other)
    }
}

impl JournalStore for SqliteJournal {
    fn node(&self) -> NodeId {
        self.node
    }

    fn key(&self) -> &JournalKey {
        &self.key
    }

    fn commit(&self, transaction: Transaction) -> Later<'_, Result<Committed, CommitError>> {
        let (asker, question) = question();
        let sent = self.jobs.put(Job::Commit((transaction.into(), asker)));
        Box::pin(async move {
            sent?;
            question.answer().await
        })
    }

    fn announce(&self) -> Announced {
        Announced::among(&self.coming)
    }

    fn trouble(&self) -> Option<Trouble> {
        self.trouble.read().map_or(Some(Trouble::Closed), |trouble| trouble.clone())
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<Vec<Event>>> {
        self.events.subscribe()
    }

    fn records(&self, from: u64, most: usize) -> Later<'_, Result<Vec<StoredRecord>, ReadError>> {
        let portion = Portion { from, most, bytes: usize::MAX };
        self.read(|connection| Scan { connection, is_wanted: &|| true }.records(&self.directory, portion))
    }

    fn records_within(&self, from: u64, most: usize, bytes: usize) -> Later<'_, Result<Vec<StoredRecord>, ReadError>> {
        let (directory, portion) = (self.directory.clone(), Portion { from, most, bytes });
        self.scanner.ask(move |scan| scan.records(&directory, portion))
    }

    fn subjects(&self, from: u64, most: usize) -> Later<'_, Result<Vec<Heading>, ReadError>> {
        let directory = self.directory.clone();
        self.scanner.ask(move |scan| scan.subjects(&directory, from, most))
    }

    fn size(&self) -> Later<'_, Result<u64, ReadError>> {
        // The newest records are never sealed, so the last one is here.
        self.read(|connection| rows::count(connection, "SELECT ifnull(max(seq) + 1, 0) FROM records"))
    }

    fn erase(&self, selection: Selection, reason: String) -> Later<'_, Result<Erased, Trouble>> {
        let (reply, answer) = oneshot::channel();
        self.errand(Errand::Erase(selection, reason, reply), answer)
    }

    fn maintain(&self, now: Timestamp) -> Later<'_, Result<Maintained, Trouble>> {
        let (reply, answer) = oneshot::channel();
        self.errand(Errand::Maintain(now, reply), answer)
    }

    fn inclusion(&self, seq: u64, size: u64) -> Later<'_, Result<InclusionProof, ProofError>> {
        self.prove(|tiles| tiles.inclusion(seq, size))
    }

    fn consistency(&self, from: u64, to: u64) -> Later<'_, Result<ConsistencyProof, ProofError>> {
        self.prove(|tiles| tiles.consistency(from, to))
    }

    fn export(&self, extent: Extent, mut out: Box<dyn Write + Send>) -> Later<'_, Result<Bundle, ExportError>> {
        let directory = self.directory.clone();
        let exported = in_background("palyra-journal-export", move || export(&directory, extent, &mut out));
        Box::pin(async move { exported.await.unwrap_or_else(|error| Err(ExportError::Unwritable(error))) })
    }

    fn checkpoint(&self) -> Later<'_, Result<String, ReadError>> {
        self.read(|connection| connection.query_row("SELECT note FROM head WHERE only = 0", [], |row| row.get(0)))
    }

    fn latest(&self) -> Later<'_, Result<Timestamp, ReadError>> {
        self.read(head::latest)
    }

    fn call(&self, id: CallId) -> Later<'_, Result<Option<CallRow>, ReadError>> {
        let sql = format!("{} WHERE call = ?1", rows::CALL);
        self.read(|connection| rows::one(connection, &sql, [id.to_string()], rows::call))
    }

    fn call_by_key(
        &self,
        principal: String,
        key: IdempotencyKey,
        now: Timestamp,
    ) -> Later<'_, Result<Option<KeyRow>, ReadError>> {
        let find = |connection: &Connection| rows::key(connection, &principal, &key, now);
        self.read(find)
    }

    fn calls_in(&self, state: CallState) -> Later<'_, Result<Vec<CallRow>, ReadError>> {
        // The partial index serves the two states that calls pass through; nobody lists the calls that ended.
        let sql = format!("{} WHERE state = ?1 AND state <> 'ended' ORDER BY call", rows::CALL);
        self.read(|connection| rows::all(connection, &sql, [state.as_str()], rows::call))
    }

    fn approval(&self, id: ApprovalId) -> Later<'_, Result<Option<ApprovalRow>, ReadError>> {
        let sql = format!("{} WHERE id = ?1", rows::APPROVAL);
        self.read(|connection| rows::one(connection, &sql, [id.to_string()], rows::approval))
    }

    fn approval_state(&self, id: ApprovalId) -> Later<'_, Result<Option<ApprovalState>, ReadError>> {
        let sql = "SELECT state FROM approvals WHERE id = ?1";
        self.read(|connection| rows::one(connection, sql, [id.to_string()], rows::approval_state))
    }

    fn approval_of(&self, call: CallId) -> Later<'_, Result<Option<ApprovalRow>, ReadError>> {
        let sql = format!("{} WHERE call = ?1 ORDER BY id DESC LIMIT 1", rows::APPROVAL);
        self.read(|connection| rows::one(connection, &sql, [call.to_string()], rows::approval))
    }

    fn approvals_in(&self, query: ApprovalQuery) -> Later<'_, Result<Vec<ApprovalRow>, ReadError>> {
        let sql = format!("{} WHERE state = ?1 AND id > ?2 ORDER BY id LIMIT ?3", rows::APPROVAL);
        let after = query.after.map(|id| id.to_string()).unwrap_or_default();
        let most = i64::try_from(query.most).unwrap_or(i64::MAX);
        let parameters = params![query.state.as_str(), after, most];
        self.read(|connection| rows::all(connection, &sql, parameters, rows::approval))
    }

    fn pending_count(&self) -> Later<'_, Result<u64, ReadError>> {
        self.read(|connection| rows::count(connection, "SELECT count(*) FROM approvals WHERE state = 'pending'"))
    }

    fn pending_with(&self, digest: Sha256Digest) -> Later<'_, Result<Vec<ApprovalRow>, ReadError>> {
        let sql = format!("{} WHERE digest = ?1 AND state = 'pending' ORDER BY id", rows::APPROVAL);
        self.read(|connection| rows::all(connection, &sql, [digest.as_bytes()], rows::approval))
    }

    fn grants_for(
        &self,
        session: SessionId,
        principal: String,
        tool: ToolName,
    ) -> Later<'_, Result<Vec<GrantRow>, ReadError>> {
        let sql =
            format!("{} WHERE session = ?1 AND principal = ?2 AND tool = ?3 AND ended = 0 ORDER BY id", rows::GRANT);
        let parameters = params![session.to_string(), principal, tool.as_str()];
        self.read(|connection| rows::all(connection, &sql, parameters, rows::grant))
    }

    fn grants(&self) -> Later<'_, Result<Vec<GrantRow>, ReadError>> {
        let sql = format!("{} WHERE ended = 0 ORDER BY id", rows::GRANT);
        self.read(|connection| rows::all(connection, &sql, [], rows::grant))
    }

    fn run(&self, id: RunId) -> Later<'_, Result<Option<RunRow>, ReadError>> {
        self.read(|connection| rows::run(connection, id))
    }

    fn postures(&self, tool: ToolName) -> Later<'_, Result<Vec<PostureRow>, ReadError>> {
        let sql = "SELECT tool, layer, key, posture FROM postures WHERE tool = ?1 ORDER BY layer, key";
        self.read(|connection| rows::all(connection, sql, [tool.as_str()], rows::posture))
    }

    fn postures_all(&self) -> Later<'_, Result<Vec<PostureRow>, ReadError>> {
        let sql = "SELECT tool, layer, key, posture FROM postures ORDER BY tool, layer, key";
        self.read(|connection| rows::all(connection, sql, [], rows::posture))
    }

    fn vault(&self) -> Later<'_, Result<Option<VaultRow>, ReadError>> {
        self.read(rows::vault)
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        let mut threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        self.load.closing.store(true, Ordering::SeqCst);
        let _ = self.errands.send(Errand::Close);
        if let Some(keeper) = threads.pop() {
            let _ = keeper.join();
        }
        // What was handed over is still written; then the thread ends, and with it the use of the files.
        let _ = self.jobs.put(Job::Close);
        if let Some(writer) = threads.pop() {
            let _ = writer.join();
        }
    }
}

impl std::fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqliteJournal({})", self.directory.display())
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Trouble> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(disk)
}

fn lock(directory: &Path) -> Result<File, Trouble> {
    let path = directory.join(LOCK_FILE);
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(disk)?;
    // A process that was killed while it started another one leaves the lock with the child until that has become another program.
    for _ in 0..LOCK_ATTEMPTS {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_AGAIN),
            Err(error) => return Err(disk(error.into())),
        }
    }
    Err(Trouble::InUse(directory.to_owned()))
}

fn disk(error: io::Error) -> Trouble {
    disk_kind(&error).unwrap_or_else(|| Trouble::Disk(error.to_string()))
}

fn disk_kind(error: &io::Error) -> Option<Trouble> {
    match error.kind() {
        io::ErrorKind::StorageFull => Some(Trouble::DiskFull),
        io::ErrorKind::ReadOnlyFilesystem => Some(Trouble::ReadOnly),
        _ => None,
    }
}

/// How often the lock is tried, and how long in between: a second in all.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// How many commits a subscriber may fall behind before it has to read again.
const BACKLOG: usize = 4_096;
