//! The one thread that writes: takes what waits, writes it as one batch, syncs once, and tells everybody.
//!
//! Guarantees: a caller hears `Ok` only after the sync that made its transaction durable; a conflict in one transaction does not touch the
//! others of its batch; after any failure nothing is kept in memory that is not on disk, and the next attempt starts from what the disk holds.

use std::{
    path::PathBuf,
    sync::{
        Arc, RwLock,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use palyra_types::{Clock, Entropy, Sha256Digest, Timestamp, id::NodeId};
use rusqlite::Connection;
use serde_json::json;
use tokio::sync::{broadcast, oneshot};

use super::{
    apply::number,
    files::{Identity, diagnosed},
    keeper::{Errand, Load},
    open::{Existing, News, Open, Written},
};
use crate::{
    body::Body,
    key::JournalKey,
    record::{NewRecord, RecordKind, Subject},
    store::{CommitError, Committed, Event, Transaction},
    trouble::Trouble,
};

/// Something for the writer to do.
pub(super) enum Job {
    /// Commit a transaction.
    Commit(Transaction, oneshot::Sender<Result<Committed, CommitError>>),
    /// Do something with the connection between two batches.
    Maintain(Box<dyn FnOnce(&mut Writer) + Send>),
    /// Finish what waits and end.
    Close(oneshot::Sender<()>),
}

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
}

/// A time in which nothing could be written.
struct Outage {
    since: Timestamp,
    trouble: Trouble,
    refused: u64,
}

type Waiting = (Transaction, oneshot::Sender<Result<Committed, CommitError>>);

impl Writer {
    /// A writer for a journal that is open.
    pub(super) fn new(parts: Parts, open: Open) -> Self {
        let Parts { path, node, key, clock, entropy, events, trouble, keeper, load, segment_bytes } = parts;
        let durable = (open.head.tree.size(), open.head.last);
        let database = open.database();
        let (open, outage) = (Some(open), None);
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
        }
    }

    /// Writes the first record of a chain.
    pub(super) fn begin(&mut self) -> Result<(), Trouble> {
        let body = json!({ "origin": self.key.public().name(), "key": self.key.public().text() });
        let record = self.record(RecordKind::JournalCreated, &body)?;
        self.write(&[Transaction { records: vec![record], changes: Vec::new() }])?;
        Ok(())
    }

    /// Works until it is told to end, or nobody is left who could tell it.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        // The sizes of the last two batches. Together they are about how many write at the same time.
        let (mut last, mut before) = (1, 1);
        loop {
            let first = match jobs.recv_timeout(RETRY) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    if self.outage.is_some() {
                        self.commit(Vec::new());
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut batch = Vec::with_capacity(last);
            let mut other = self.take(first, &mut batch);
            // Half of them prepare their next records while the other half's are synced. Fewer than half in a batch waste a sync, so a batch
            // waits a little for the rest of its half.
            let half = (last + before).div_ceil(2);
            let patience = Instant::now() + LONGEST_WAIT;
            while other.is_none() && batch.len() < LARGEST_BATCH {
                let left = patience.saturating_duration_since(Instant::now());
                let next = match jobs.try_recv() {
                    Ok(job) => Some(job),
                    Err(_) if batch.len() < half => jobs.recv_timeout(left.min(LINGER)).ok(),
                    Err(_) => None,
                };
                let Some(job) = next else { break };
                other = self.take(job, &mut batch);
            }
            (last, before) = (batch.len().max(1), last);
            self.commit(batch);
            match other {
                Some(Job::Maintain(work)) => work(&mut self),
                Some(Job::Close(done)) => {
                    let _ = done.send(());
                    return;
                }
                Some(Job::Commit(..)) | None => {}
            }
        }
    }

    /// Puts a commit into the batch; anything else ends the batch.
    #[expect(clippy::unused_self, reason = "reads as what the writer does")]
    fn take(&self, job: Job, batch: &mut Vec<Waiting>) -> Option<Job> {
        match job {
            Job::Commit(transaction, reply) => {
                batch.push((transaction, reply));
                None
            }
            other => Some(other),
        }
    }

    /// Commits a batch and answers everybody in it.
    fn commit(&mut self, batch: Vec<Waiting>) {
        if batch.is_empty() && self.outage.is_none() {
            return;
        }
        let (transactions, replies): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        match self.write(&transactions) {
            Ok((outcomes, news)) => {
                // Subscribers hear first: whoever committed and asks them finds that they know.
                if !news.events.is_empty() {
                    let _ = self.events.send(Arc::new(news.events));
                }
                for (outcome, reply) in outcomes.into_iter().zip(replies) {
                    let _ = reply.send(outcome.map_err(CommitError::from));
                }
                self.weigh(news.bytes);
            }
            Err(trouble) => {
                let trouble = diagnosed(trouble, &self.path);
                self.note(&trouble, replies.len());
                for reply in replies {
                    let _ = reply.send(Err(CommitError::Unwritable(trouble.clone())));
                }
            }
        }
    }

    /// Writes a batch in one database transaction. On error nothing of it counts, and the connection is given up.
    fn write(&mut self, transactions: &[Transaction]) -> Result<Written, Trouble> {
        self.reopen()?;
        let recovered = self.recovery_record()?;
        let written = match &mut self.open {
            Some(open) => open.write(self.node, &self.key, transactions, recovered),
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

    fn recovery_record(&self) -> Result<Option<NewRecord>, Trouble> {
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
    fn record(&self, kind: RecordKind, body: &serde_json::Value) -> Result<NewRecord, Trouble> {
        let body = Body::of(body, self.entropy.as_ref()).map_err(|error| Trouble::Disk(error.to_string()))?;
        Ok(NewRecord { kind, subject: Subject::default(), time: self.clock.now(), body })
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
        let (node, key, load) = (self.node, self.key.clone(), Arc::clone(&self.load));
        let events = self.in_between(|open| {
            open.transaction(&key, |open| {
                work(&open.connection)?;
                let mut news = News { node, events: Vec::new(), bytes: 0 };
                open.append(&record, &mut news)?;
                Ok(news)
            })
        })?;
        load.live.fetch_add(events.bytes, Ordering::SeqCst);
        let _ = self.events.send(Arc::new(events.events));
        Ok(())
    }

    /// Changes what no record needs to tell of, in a transaction.
    pub(super) fn tidy(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<(), Trouble> {
        let key = self.key.clone();
        self.in_between(|open| open.transaction(&key, |open| Ok(work(&open.connection)?)))
    }

    /// Does something with the database between two batches.
    fn in_between<T>(&mut self, work: impl FnOnce(&mut Open) -> Result<T, Trouble>) -> Result<T, Trouble> {
        // While nothing can be written, calls come first; the keeper tries again.
        if let Some(outage) = &self.outage {
            return Err(outage.trouble.clone());
        }
        let done = self.reopen().and_then(|()| work(self.open.as_mut().ok_or(Trouble::Closed)?));
        let done = done.map_err(|trouble| diagnosed(trouble, &self.path));
        match &done {
            Ok(_) => self.remember(),
            Err(trouble) => {
                self.open = None;
                self.note(trouble, 0);
            }
        }
        done
    }

    fn remember(&mut self) {
        if let Some(open) = &self.open {
            self.durable = (open.head.tree.size(), open.head.last);
        }
    }

    /// Tells the keeper once when the live records are too many.
    fn weigh(&self, bytes: u64) {
        let live = self.load.live.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        if live > self.segment_bytes && !self.load.told.swap(true, Ordering::SeqCst) {
            let _ = self.keeper.send(Errand::Rotate);
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
    pub(super) segment_bytes: u64,
}

/// How often writing is tried again while it does not work.
const RETRY: Duration = Duration::from_millis(500);

/// How long a batch waits for the next record. Short against a sync.
const LINGER: Duration = Duration::from_micros(60);

/// How long a batch waits for all of them together.
const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// A batch is no larger than this, so that nobody waits for thousands of others.
const LARGEST_BATCH: usize = 1_024;
