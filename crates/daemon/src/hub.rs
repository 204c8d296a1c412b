//! Tells what is journalled to whoever follows: from any record on, in order, nothing left out and nothing twice.
//!
//! A [`Follower`] knows which record it wants next and fetches it: from a cache of what was told last, or from the journal. Being woken says
//! only that there is more, so a slow reader misses nothing and holds up nobody; it reads the journal when it comes back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use axum::body::Bytes;
use palyra_api::Event;
use palyra_gate::Within;
use palyra_journal::{JournalStore, ReadError, RecordKind, StoredRecord, Subject};
use palyra_types::id::{CallId, RunId};
use serde_json::value::RawValue;
use tokio::sync::{broadcast::error::RecvError, watch};

/// Where followers get what they tell.
pub struct Hub {
    store: Arc<dyn JournalStore>,
    size: watch::Receiver<u64>,
    cache: Mutex<Cache>,
}

/// A record as an event.
#[derive(Debug)]
pub struct Frame {
    /// The number of the record.
    pub seq: u64,
    /// What it is about.
    pub kind: RecordKind,
    /// What it belongs to.
    pub subject: Subject,
    /// The running call that wants it, for a proposal of the daemon's own.
    pub within: Option<CallId>,
    /// The event as a message of an event stream.
    pub message: Bytes,
}

#[derive(Default)]
struct Cache {
    frames: VecDeque<Arc<Frame>>,
    bytes: usize,
}

impl Hub {
    /// Follows this journal, of which there are `size` records by now. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn open(store: Arc<dyn JournalStore>) -> Result<Arc<Self>, ReadError> {
        // Subscribed before it is counted, so that nothing falls between the two.
        let mut commits = store.subscribe();
        let (told, size) = watch::channel(store.size().await?);
        let (node, journal) = (store.node(), Arc::clone(&store));
        tokio::spawn(async move {
            loop {
                let seen = match commits.recv().await {
                    Ok(events) => events.iter().filter(|event| event.node == node).map(|event| event.seq + 1).max(),
                    Err(RecvError::Lagged(_)) => journal.size().await.ok(),
                    Err(RecvError::Closed) => return,
                };
                let Some(seen) = seen else { continue };
                told.send_if_modified(|size| {
                    let more = seen > *size;
                    *size = seen.max(*size);
                    more
                });
            }
        });
        Ok(Arc::new(Self { store, size, cache: Mutex::default() }))
    }

    /// How many records there are.
    #[must_use]
    pub fn size(&self) -> u64 {
        *self.size.borrow()
    }

    /// Follows from this record on, all of them or those that belong to something.
    #[must_use]
    pub fn follow(self: &Arc<Self>, next: u64, wanted: Wanted) -> Follower {
        Follower { hub: Arc::clone(self), size: self.size.clone(), next, wanted, ready: VecDeque::new() }
    }

    /// The first record from this one on that is wanted, or where to look next. Reads headers only.
    async fn find(&self, from: u64, wanted: Wanted) -> Result<Found, ReadError> {
        let subjects = self.store.subjects(from, LOOKED_AT).await?;
        match subjects.iter().find(|(_, _, subject)| wanted.has(*subject)) {
            Some((seq, ..)) => Ok(Found::At(*seq)),
            None => Ok(Found::NotBefore(subjects.last().map(|(seq, ..)| seq + 1))),
        }
    }

    /// Some records from this one on.
    async fn frames(&self, from: u64) -> Result<Vec<Arc<Frame>>, ReadError> {
        if let Some(frames) = self.cached(from) {
            return Ok(frames);
        }
        let records = self.store.records_within(from, PAGE, PAGE_BYTES).await?;
        let frames: Vec<_> = records.iter().map(|record| Arc::new(Frame::of(record))).collect();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        // Only what is newest is wanted by many.
        if frames.last().is_some_and(|last| last.seq + 1 == *self.size.borrow()) {
            cache.add(&frames);
        }
        Ok(frames)
    }

    fn cached(&self, from: u64) -> Option<Vec<Arc<Frame>>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let first = cache.frames.front()?.seq;
        let skipped = usize::try_from(from.checked_sub(first)?).ok()?;
        let frames: Vec<_> = cache.frames.iter().skip(skipped).take(PAGE).cloned().collect();
        (!frames.is_empty()).then_some(frames)
    }
}

impl Cache {
    /// Adds what is behind the last one. What does not join is a new beginning.
    fn add(&mut self, frames: &[Arc<Frame>]) {
        for frame in frames {
            match self.frames.back().map(|last| last.seq + 1) {
                Some(next) if frame.seq < next => continue,
                Some(next) if frame.seq > next => *self = Self::default(),
                _ => {}
            }
            self.bytes += frame.message.len();
            self.frames.push_back(Arc::clone(frame));
        }
        while self.bytes > CACHE_BYTES || self.frames.len() > CACHE_FRAMES {
            let Some(oldest) = self.frames.pop_front() else { return };
            self.bytes -= oldest.message.len();
        }
    }
}

/// Which records somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those of a run.
    Run(RunId),
    /// Those of a call.
    Call(CallId),
}

impl Wanted {
    fn has(self, subject: Subject) -> bool {
        match self {
            Self::All => true,
            Self::Run(run) => subject.run == Some(run),
            Self::Call(call) => subject.call == Some(call),
        }
    }
}

/// Where something is.
enum Found {
    At(u64),
    /// Not before this record; not at all as far as there are any.
    NotBefore(Option<u64>),
}

/// Somebody who wants one record after the other.
pub struct Follower {
    hub: Arc<Hub>,
    size: watch::Receiver<u64>,
    next: u64,
    wanted: Wanted,
    ready: VecDeque<Arc<Frame>>,
}

impl Follower {
    /// The next record that is wanted, once there is one. Nothing when there will be none any more.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn next(&mut self) -> Result<Option<Arc<Frame>>, ReadError> {
        loop {
            if let Some(frame) = self.at_hand().await? {
                return Ok(Some(frame));
            }
            if !self.more().await {
                return Ok(None);
            }
        }
    }

    /// The next record that is wanted, if there is one already.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn at_hand(&mut self) -> Result<Option<Arc<Frame>>, ReadError> {
        loop {
            while let Some(frame) = self.ready.pop_front() {
                self.next = frame.seq + 1;
                if self.wanted.has(frame.subject) {
                    return Ok(Some(frame));
                }
            }
            if self.hub.size() <= self.next {
                return Ok(None);
            }
            self.fetch().await?;
        }
    }

    /// Waits until there are more records, wanted or not. Says whether there can be. Nothing is lost if this is given up while it waits.
    pub async fn more(&mut self) -> bool {
        let next = self.next;
        self.size.wait_for(|size| *size > next).await.is_ok()
    }

    /// Fetches some records. What is read and not wanted costs no more than its header.
    async fn fetch(&mut self) -> Result<(), ReadError> {
        if let Some(frames) = self.hub.cached(self.next) {
            self.ready.extend(frames);
            return Ok(());
        }
        if self.wanted != Wanted::All {
            match self.hub.find(self.next, self.wanted).await? {
                Found::At(seq) => self.next = seq,
                Found::NotBefore(Some(next)) => {
                    self.next = next;
                    return Ok(());
                }
                Found::NotBefore(None) => {
                    self.next = self.hub.size();
                    return Ok(());
                }
            }
        }
        self.ready.extend(self.hub.frames(self.next).await?);
        if self.ready.is_empty() {
            // Dropped from the journal, all of it.
            self.next = self.hub.size();
        }
        Ok(())
    }

    /// Whether everything up to this record was told.
    #[must_use]
    pub const fn is_past(&self, seq: u64) -> bool {
        self.next > seq
    }
}

impl Frame {
    fn of(stored: &StoredRecord) -> Self {
        let record = &stored.record;
        let subject = record.subject();
        let data = stored.body.as_deref().and_then(|body| RawValue::from_string(body.to_owned()).ok());
        let event = RawEvent {
            v: 1,
            seq: record.seq,
            time: record.time(),
            kind: record.kind.as_str(),
            run_id: subject.run,
            call_id: subject.call,
            data,
        };
        let data = serde_json::to_string(&event).unwrap_or_default();
        let message = format!("event: {}\nid: {}\ndata: {data}\n\n", record.kind, record.seq);
        let within = match record.kind {
            RecordKind::ToolProposed => stored.body.as_deref().and_then(within),
            _ => None,
        };
        Self { seq: record.seq, kind: record.kind, subject, within, message: message.into() }
    }
}

/// The running call that a proposal says it is wanted by. Hardly any does, so few are read for it.
fn within(body: &str) -> Option<CallId> {
    #[derive(serde::Deserialize)]
    struct Proposed {
        within: Option<Within>,
    }
    let told = body.contains("\"within\"").then(|| serde_json::from_str::<Proposed>(body).ok()).flatten()?;
    told.within.map(|within| within.call)
}

/// [`Event`], with its data as the journal spells it.
#[derive(serde::Serialize)]
struct RawEvent {
    v: u8,
    seq: u64,
    time: palyra_types::Timestamp,
    #[serde(rename = "type")]
    kind: &'static str,
    run_id: Option<RunId>,
    call_id: Option<CallId>,
    data: Option<Box<RawValue>>,
}

/// An event that has no record, as a message of an event stream.
#[must_use]
pub fn message(event: &Event) -> Bytes {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", event.kind).into()
}

/// How many records are read at once, and how many bytes of what they say.
const PAGE: usize = 64;

const PAGE_BYTES: usize = 128 << 10;

/// How many headers are looked at for what is wanted.
const LOOKED_AT: usize = 512;

/// How much of what was told last is kept.
const CACHE_BYTES: usize = 4 << 20;

const CACHE_FRAMES: usize = 4_096;
