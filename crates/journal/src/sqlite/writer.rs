//! The one thread that writes: takes what waits, writes it as one batch, syncs once, and tells everybody.
//!
//! Guarantees: a caller hears `Ok` only after the sync that made its transaction durable; a transaction that conflicts, or that SQLite does
//! not take, does not touch the others of its batch; after any failure nothing is kept in memory that is not on disk, and the next attempt
//! starts from what the disk holds.

use std::{
    path::PathBuf,
    sync::{
        Arc, RwLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use palyra_types::{Clock, Entropy, Sha256Digest, Timestamp, id::NodeId};
use rusqlite::Connection;
use serde_json::json;
use tokio::sync::broadcast;

use super::{
    answers::Untold,
    apply::{Hitch, number},
    batch::{Batch, LONGEST_WAIT},
    files::{Identity, diagnosed},
    keeper::{Errand, Load},
    open::{Existing, Open, Written},
    queue::{Job, Outlet},
    ready::{Ready, ReadyRecord},
    schema::work_log_in,
};
use crate::{
    body::Body,
    key::JournalKey,
    record::{NewRecord, RecordKind, Subject},
    store::{CommitError, Event},
    trouble::Trouble,
};

/// What is known about the disk, for everybody to read.
pub(super) type SharedTrouble = Arc<RwLock<Option<Trouble>>>;

pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) node: NodeId,
    pub(super) key: JournalKey,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) events: broadcast::Sender<Arc<Vec<Event>>>,
    pub(super) trouble: SharedTrouble,
    keeper: Sender<Errand>,
    load: Arc<Load>,
    /// How many bytes the live records may take before the keeper is told.
    segment_bytes: u64,
    /// The connection and the end of the chain in it. `None` after a failure, until it was opened again.
    open: Option<Open>,
    /// The file that was opened first. No other is taken for it.
    database: Identity,
    /// What is known to be durable: at least this many records, the last of which has this hash.
    durable: (u64, Sha256Digest),
    outage: Option<Outage>,
    /// How many commit at the same time, as the last batch showed.
    crowd: usize,
    /// How many are about to.
    coming: Arc<AtomicUsize>,
    /// Until when the next batch waits for them.
    patience: Instant,
    /// The bytes in the write-ahead log, about, since the keeper was told of it.
    logged: u64,
    /// Those of the last batch who do not know yet what came of it.
    untold: Untold,
}

/// A time in which nothing could be written.
struct Outage {
    since: Timestamp,
    trouble: Trouble,
    refused: u64,
}

impl Writer {
    /// A writer for a journal that is open.
    pub(super) fn new(parts: Parts, open: Open) -> Self {
        let Parts { path, node, key, clock, entropy, events, trouble, keeper, load, coming, segment_bytes } = parts;
        let durable = (open.head.tree.size(), open.head.last);
        let database = open.database();
        let (open, outage, crowd) = (Some(open), None, 1);
        Self {
            path,
            node,
            key,
            clock,
            entropy,
            events,
            trouble,
            keeper,
            load,
            segment_bytes,
            open,
            database,
            durable,
            outage,
            crowd,
            coming,
            patience: Instant::now(),
            logged: 0,
            untold: Untold::default(),
        }
    }

    /// Writes the first record of a chain.
    pub(super) fn begin(&mut self) -> Result<(), Trouble> {
        let body = json!({ "origin": self.key.public().name(), "key": self.key.public().text() });
        let record = self.record(RecordKind::JournalCreated, &body)?;
        self.write(&mut Batch::of(Ready { records: vec![record], changes: Vec::new() }))?;
        Ok(())
    }

    /// Works until it is told to end.
    pub(super) fn run(mut self, jobs: &Outlet) {
        loop {
            if !self.untold.is_empty() {
                // The one who was told tells the others meanwhile, and they come back.
                jobs.linger(1, Instant::now() + LONGEST_WAIT);
                self.untold.tell();
            }
            // While nothing can be written, it is tried again and again, whether anybody asks or not.
            jobs.wait(self.outage.as_ref().map(|_| RETRY));
            let coming = Arc::clone(&self.coming);
            match self.commit(Batch::begin(jobs, self.crowd, (&coming, self.patience)), jobs) {
                Some(Job::Maintain(work)) => {
                    self.untold.tell();
                    work(&mut self);
                }
                Some(Job::Close) => break,
                Some(Job::Commit(_)) | None => {}
            }
        }
        self.untold.tell();
    }

    /// Commits a batch, begins to answer those who wait for it, and returns what comes next.
    fn commit(&mut self, mut batch: Batch<'_>, jobs: &Outlet) -> Option<Job> {
        if batch.len() == 0 && self.outage.is_none() {
            return batch.end().1;
        }
        let begun = Instant::now();
        let written = self.write(&mut batch);
        let now = Instant::now();
        // At most half the time is spent on writing, as long as many commit: what is written together is written sooner.
        self.patience = now + now.duration_since(begun).min(LONGEST_PATIENCE);
        // Those who were in this batch may come back together, as may those who came meanwhile.
        self.crowd = batch.len().max(jobs.len());
        let refused = batch.len();
        let (waiting, then) = batch.end();
        let answers: Vec<_> = match written {
            Ok((outcomes, news)) => {
                // Subscribers hear first: whoever committed and asks them finds that they know.
                if !news.events.is_empty() {
                    let _ = self.events.send(Arc::new(news.events));
                }
                self.weigh(news.bytes);
                waiting.zip(outcomes).map(|((asker, spent), outcome)| (asker, spent, outcome)).collect()
            }
            Err(trouble) => {
                let trouble = diagnosed(trouble, &self.path);
                self.note(&trouble, refused);
                let refusal = || Err(CommitError::Unwritable(trouble.clone()));
                waiting.map(|(asker, spent)| (asker, spent, refusal())).collect()
            }
        };
        self.untold = Untold::begin(answers);
        then
    }

    /// Writes a batch in one database transaction. On error nothing of it counts, and the connection is given up.
    fn write(&mut self, batch: &mut Batch<'_>) -> Result<Written, Trouble> {
        self.reopen()?;
        let recovered = self.recovery_record()?;
        let written = match &mut self.open {
            Some(open) => open.write(self.node, &self.key, batch, recovered.as_ref()),
            None => Err(Trouble::Closed),
        };
        match written {
            Ok(written) => {
                self.remember();
                if self.outage.take().is_some() {
                    self.share(None);
                }
                Ok(written)
            }
            Err(trouble) => {
                // What the failed batch left in memory, or half on disk, is forgotten; the next attempt reads what is there.
                self.open = None;
                Err(trouble)
            }
        }
    }

    fn reopen(&mut self) -> Result<(), Trouble> {
        if self.open.is_some() {
            return Ok(());
        }
        // SECURITY: beside another database the log that is left would be worked into it, and pass for a whole journal.
        self.database.check(&self.path)?;
        let open = Open::at(&self.path, self.key.public(), Existing::Required)?;
        let (size, last) = self.durable;
        if let Some(seq) = size.checked_sub(1) {
            let sql = "SELECT hash FROM records WHERE seq = ?1";
            let found: Result<Vec<u8>, _> = open.connection.query_row(sql, [number(seq)], |row| row.get(0));
            if !matches!(found, Ok(hash) if hash == last.as_bytes()) {
                return Err(Trouble::Replaced(format!("record {seq} is not the one that was acknowledged")));
            }
        }
        if !open.start_log_anew()? {
            return Err(Trouble::Disk("the write-ahead log cannot be started anew while somebody reads it".to_owned()));
        }
        self.open = Some(open);
        Ok(())
    }

    fn recovery_record(&self) -> Result<Option<ReadyRecord>, Trouble> {
        let Some(outage) = &self.outage else { return Ok(None) };
        let body = json!({
            "since": outage.since,
            "trouble": outage.trouble.to_string(),
            "refused": outage.refused,
            // Written, and not known to be when it was refused.
            "found": self.open.as_ref().map_or(0, |open| open.head.tree.size().saturating_sub(self.durable.0)),
        });
        self.record(RecordKind::JournalRecovered, &body).map(Some)
    }

    /// A record of the journal about itself.
    fn record(&self, kind: RecordKind, body: &serde_json::Value) -> Result<ReadyRecord, Trouble> {
        let body = Body::of(body, self.entropy.as_ref()).map_err(|error| Trouble::Disk(error.to_string()))?;
        Ok(NewRecord { kind, subject: Subject::default(), time: self.clock.now(), body }.into())
    }

    fn note(&mut self, trouble: &Trouble, refused: usize) {
        let refused = u64::try_from(refused).unwrap_or(u64::MAX);
        let since = self.outage.as_ref().map_or_else(|| self.clock.now(), |outage| outage.since);
        let before = self.outage.as_ref().map_or(0, |outage| outage.refused);
        self.outage = Some(Outage { since, trouble: trouble.clone(), refused: before.saturating_add(refused) });
        self.share(Some(trouble.clone()));
    }

    fn share(&self, trouble: Option<Trouble>) {
        if let Ok(mut shared) = self.trouble.write() {
            *shared = trouble;
        }
    }

    /// Writes a record of the journal about itself, in one transaction with what it tells of.
    pub(super) fn keep(
        &mut self,
        kind: RecordKind,
        body: &serde_json::Value,
        work: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Trouble> {
        let record = self.record(kind, body)?;
        let (node, key) = (self.node, self.key.clone());
        let news = self.in_between(|open| open.keep(node, &key, &record, work))?;
        self.load.live.fetch_add(news.bytes, Ordering::SeqCst);
        let _ = self.events.send(Arc::new(news.events));
        Ok(())
    }

    /// Changes what no record needs to tell of, in a transaction.
    pub(super) fn tidy(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<(), Trouble> {
        let key = self.key.clone();
        self.in_between(|open| open.transaction(&key, |open| Ok(work(&open.connection)?)))
    }

    /// Works the rest of the write-ahead log into the database.
    pub(super) fn work_log_in(&mut self) -> Result<(), Trouble> {
        self.in_between(|open| Ok(work_log_in(&open.connection)?))
    }

    /// Does something with the database between two batches.
    fn in_between<T>(&mut self, work: impl FnOnce(&mut Open) -> Result<T, Hitch>) -> Result<T, Trouble> {
        // While nothing can be written, calls come first; the keeper tries again.
        if let Some(outage) = &self.outage {
            return Err(outage.trouble.clone());
        }
        let opened = self.reopen().map_err(Hitch::from);
        match opened.and_then(|()| work(self.open.as_mut().ok_or(Trouble::Closed)?)) {
            Ok(done) => {
                self.remember();
                Ok(done)
            }
            Err(Hitch::Refused(why)) => Err(Trouble::Refused(why)),
            Err(Hitch::Trouble(trouble)) => {
                let trouble = diagnosed(trouble, &self.path);
                self.open = None;
                self.note(&trouble, 0);
                Err(trouble)
            }
        }
    }

    fn remember(&mut self) {
        if let Some(open) = &self.open {
            self.durable = (open.head.tree.size(), open.head.last);
        }
    }

    /// Tells the keeper once when the live records are too many, and when the write-ahead log is long.
    fn weigh(&mut self, bytes: u64) {
        let live = self.load.live.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        if live > self.segment_bytes && !self.load.told.swap(true, Ordering::SeqCst) {
            let _ = self.keeper.send(Errand::Rotate);
        }
        self.logged = self.logged.saturating_add(bytes).saturating_add(COMMIT_BYTES);
        if self.logged > LONG_LOG && !self.load.told_of_log.swap(true, Ordering::SeqCst) {
            self.logged = 0;
            let _ = self.keeper.send(Errand::WorkLogIn);
        }
    }
}

/// What a writer is made of, beside the open database.
pub(super) struct Parts {
    pub(super) path: PathBuf,
    pub(super) node: NodeId,
    pub(super) key: JournalKey,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) events: broadcast::Sender<Arc<Vec<Event>>>,
    pub(super) trouble: SharedTrouble,
    pub(super) keeper: Sender<Errand>,
    pub(super) load: Arc<Load>,
    pub(super) coming: Arc<AtomicUsize>,
    pub(super) segment_bytes: u64,
}

/// How often writing is tried again while it does not work.
const RETRY: Duration = Duration::from_millis(500);

/// How long a batch waits for those who are about to commit, at most.
const LONGEST_PATIENCE: Duration = Duration::from_millis(2);

/// What a commit adds to the write-ahead log beside its records, about: the pages of the head, the newest records, the call, the calls that
/// are open and the run.
const COMMIT_BYTES: u64 = 5 * 8_192;

/// How long the write-ahead log gets before it is worked into the database: 4 MiB. Where it was before, a log is written to without making
/// the file longer, which halves what a sync costs.
const LONG_LOG: u64 = 4 << 20;
