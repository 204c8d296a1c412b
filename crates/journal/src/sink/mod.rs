//! Sends signed checkpoints to where whoever changes the journal cannot change them, too.
//!
//! The signing key sits beside the data, so a journal can be cut off or written again by whoever holds both. A checkpoint that is kept
//! elsewhere shows it.
//!
//! Guarantees: the newest checkpoint is published after so many records or so much time, whichever is first, and at the end; each sink has a
//! thread of its own, and of the checkpoints that a slow one missed only the newest is sent; what fails is tried again, and can be seen.
//! Does not: hold up anybody. A journal works as well when no sink does.

mod file;
mod webhook;

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use palyra_types::{Clock, Timestamp};
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep_until, timeout},
};

pub use self::{
    file::{FileSink, saved_checkpoints},
    webhook::WebhookSink,
};
use crate::store::{Event, JournalStore, Later};

/// Where checkpoints are sent.
pub trait CheckpointSink: Send {
    /// What to call it, without anything secret.
    fn name(&self) -> String;

    /// Sends a signed checkpoint. Answers when it is kept there.
    fn publish<'a>(&'a mut self, note: &'a str) -> Later<'a, Result<(), SinkError>>;
}

/// How often checkpoints are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// After this much time, if there are new records.
    pub every: Duration,
    /// After this many records, however soon.
    pub records: u64,
    /// How long to wait after a failure; doubled after each further one, up to a minute.
    pub retry: Duration,
}

impl Default for Pace {
    /// After a minute or 1 000 records.
    fn default() -> Self {
        Self { every: Duration::from_secs(60), records: 1_000, retry: Duration::from_secs(1) }
    }
}

/// How a sink is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkStatus {
    /// What it is called.
    pub sink: String,
    /// The checkpoint that it has.
    pub published: Option<String>,
    /// Since when it does not work, how often that was, and why.
    pub failing: Option<Failing>,
}

/// A sink that does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Since when.
    pub since: Timestamp,
    /// How many attempts failed in a row.
    pub attempts: u64,
    /// The last reason.
    pub error: String,
}

/// Sends the checkpoints of a journal to its sinks, until it is closed or dropped.
pub struct Publisher {
    end: watch::Sender<bool>,
    statuses: Vec<Arc<Mutex<SinkStatus>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Publisher {
    /// Starts to send the checkpoints of this journal, and holds it as long.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        journal: &Arc<dyn JournalStore>,
        sinks: Vec<Box<dyn CheckpointSink>>,
        pace: Pace,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let (end, ending) = watch::channel(false);
        let mut publisher = Self { end, statuses: Vec::new(), threads: Vec::new() };
        for sink in sinks {
            let status = Arc::new(Mutex::new(SinkStatus { sink: sink.name(), published: None, failing: None }));
            publisher.statuses.push(Arc::clone(&status));
            let courier = Courier {
                events: journal.subscribe(),
                journal: Arc::clone(journal),
                sink,
                pace,
                clock: Arc::clone(clock),
                status,
                ending: ending.clone(),
                fresh: pace.records,
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = std::thread::Builder::new().name("palyra-sink".to_owned());
            publisher.threads.push(thread.spawn(move || runtime.block_on(courier.run()))?);
        }
        Ok(publisher)
    }

    /// How each sink is doing.
    #[must_use]
    pub fn status(&self) -> Vec<SinkStatus> {
        let read = |status: &Arc<Mutex<SinkStatus>>| status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.statuses.iter().map(read).collect()
    }

    /// Sends the newest checkpoint once more, if it changed, and ends. Waits for as long as one attempt takes.
    pub fn close(mut self) -> Vec<SinkStatus> {
        self.finish();
        self.status()
    }

    fn finish(&mut self) {
        let _ = self.end.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Serves one sink.
struct Courier {
    journal: Arc<dyn JournalStore>,
    sink: Box<dyn CheckpointSink>,
    pace: Pace,
    clock: Arc<dyn Clock>,
    status: Arc<Mutex<SinkStatus>>,
    events: broadcast::Receiver<Arc<Vec<Event>>>,
    ending: watch::Receiver<bool>,
    /// Records since the last checkpoint that was sent.
    fresh: u64,
}

impl Courier {
    async fn run(mut self) {
        let mut failures = 0;
        let mut pause = Duration::ZERO;
        loop {
            let is_last = self.wait(pause, failures > 0).await;
            let sent = self.send(is_last).await;
            if is_last {
                return;
            }
            failures = if sent { 0 } else { failures + 1 };
            pause = if sent { self.pace.every } else { self.pace.backoff(failures) };
        }
    }

    /// Waits until it is time to send. Says whether it is the last time.
    async fn wait(&mut self, pause: Duration, is_failing: bool) -> bool {
        let until = Instant::now() + pause;
        loop {
            if *self.ending.borrow() {
                return true;
            }
            if !is_failing && self.fresh >= self.pace.records {
                return false;
            }
            tokio::select! {
                _ = self.ending.changed() => return true,
                () = sleep_until(until) => return false,
                heard = self.events.recv() => match heard {
                    Ok(events) => self.fresh += u64::try_from(events.len()).unwrap_or(u64::MAX),
                    Err(broadcast::error::RecvError::Lagged(missed)) => self.fresh = self.fresh.saturating_add(missed),
                    Err(broadcast::error::RecvError::Closed) => return true,
                },
            }
        }
    }

    /// Sends the newest checkpoint unless the sink has it. Says whether the sink has it now.
    async fn send(&mut self, is_last: bool) -> bool {
        self.fresh = 0;
        let note = match self.journal.checkpoint().await {
            Ok(note) => note,
            Err(error) => return self.told(None, Err(SinkError::Journal(error.to_string()))),
        };
        let has_it = |status: &SinkStatus| status.published.as_deref() == Some(note.as_str());
        if has_it(&self.status.lock().unwrap_or_else(PoisonError::into_inner)) {
            return true;
        }
        let patience = if is_last { LAST_PATIENCE } else { PATIENCE };
        let sent = timeout(patience, self.sink.publish(&note)).await;
        self.told(Some(note), sent.unwrap_or(Err(SinkError::Slow)))
    }

    fn told(&self, note: Option<String>, outcome: Result<(), SinkError>) -> bool {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => {
                status.published = note;
                status.failing = None;
                true
            }
            Err(error) => {
                let before = status.failing.take();
                let since = before.as_ref().map_or_else(|| self.clock.now(), |failing| failing.since);
                let attempts = before.map_or(0, |failing| failing.attempts) + 1;
                status.failing = Some(Failing { since, attempts, error: error.to_string() });
                false
            }
        }
    }
}

impl Pace {
    fn backoff(self, failures: u32) -> Duration {
        self.retry.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_RETRY)
    }
}

/// Why a checkpoint was not kept.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The address is none, or none that can be used. It may hold a token, so it is not told.
    #[error("the address of the webhook is not one of http or https")]
    Address,
    /// There is no certificate authority to check the other side with.
    #[error("the certificate authority cannot be used: {0}")]
    Authority(&'static str),
    /// The file is in the journal's own directory.
    #[error("a checkpoint beside the journal proves nothing: `{0}` is in its directory")]
    Inside(String),
    /// The file cannot be written.
    #[error("the file cannot be written: {0}")]
    File(#[from] io::Error),
    /// The other side cannot be reached.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The other side did not want it.
    #[error("it answered {0}")]
    Refused(u16),
    /// The other side took too long.
    #[error("it did not answer in time")]
    Slow,
    /// There is no checkpoint to send.
    #[error("the checkpoint cannot be read: {0}")]
    Journal(String),
}

impl SinkError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Address => "write it as https://host/path",
            Self::Authority(_) => {
                "install the machine's authorities (`ca-certificates`), or name a PEM file of your own"
            }
            Self::Inside(_) => "name a file elsewhere, best on another machine",
            Self::File(_) => "check that the daemon may write the file, and that there is space",
            Self::Unreachable(_) | Self::Slow => "check the address and the network; it is tried again by itself",
            Self::Refused(_) => "check what the other side expects; it is tried again by itself",
            Self::Journal(_) => "run `palyra journal verify`",
        }
    }
}

/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the last attempt may take, which somebody waits for.
const LAST_PATIENCE: Duration = Duration::from_secs(3);

/// The longest time between two attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
