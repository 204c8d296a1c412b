//! The thread that keeps the journal within its bounds: erases, seals, drops and prunes, while the writer goes on.
//!
//! Guarantees: whatever takes long is read here, on connections of its own; the writer is asked for small steps between two batches, each a
//! transaction with its record. A crash between any two steps leaves a journal that verifies, and the next start goes on with it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use palyra_types::Timestamp;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    DATABASE_FILE,
    files::Identity,
    queue::{Inlet, Job},
    schema::{open_for_checkpointing, open_for_reading, work_log_in},
    writer::Writer,
};
use crate::{
    keep::{Erased, Keeping, Maintained, Selection},
    key::JournalKey,
    trouble::Trouble,
};

/// Something for the keeper to do.
pub(super) enum Errand {
    /// Erase bodies.
    Erase(Selection, String, oneshot::Sender<Result<Erased, Trouble>>),
    /// Erase what is too old, and seal and drop what is too much.
    Maintain(Timestamp, oneshot::Sender<Result<Maintained, Trouble>>),
    /// The live records are more than they should be.
    Rotate,
    /// The write-ahead log is long enough to be worked into the database.
    WorkLogIn,
    /// End.
    Close,
}

/// How much there is, and whether the keeper was told. Shared with the writer, which counts.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// The bytes of live records, about.
    pub(super) live: AtomicU64,
    /// Whether the keeper was told that they are too many.
    pub(super) told: AtomicBool,
    /// Whether the keeper was told that the write-ahead log is long.
    pub(super) told_of_log: AtomicBool,
    /// Whether the journal is being closed.
    pub(super) closing: AtomicBool,
}

pub(super) struct Keeper {
    pub(super) directory: PathBuf,
    pub(super) key: JournalKey,
    pub(super) keeping: Keeping,
    pub(super) jobs: Inlet,
    pub(super) load: Arc<Load>,
    /// Every body before this record that age erases is erased.
    pub(super) aged: u64,
    /// Whether the write-ahead log may hold what was erased. True at first: who knows what a crash left there.
    pub(super) log_to_empty: bool,
    /// Whether the live records that were there at the start are counted.
    pub(super) counted: bool,
    /// The file that was opened first.
    pub(super) database: Identity,
}

impl Keeper {
    /// Works until it is told to end.
    pub(super) fn run(mut self, errands: &Receiver<Errand>) {
        // What a crash left half done. If it cannot be finished now, maintenance tries again.
        let _ = self.resume();
        loop {
            match errands.recv_timeout(RETRY) {
                Ok(Errand::Erase(selection, reason, reply)) => {
                    let _ = reply.send(self.erase(selection, &reason));
                }
                Ok(Errand::Maintain(now, reply)) => {
                    let _ = reply.send(self.maintain(now));
                }
                Ok(Errand::Rotate) => {
                    if self.rotate().is_ok() {
                        self.load.told.store(false, Ordering::SeqCst);
                    }
                }
                Ok(Errand::WorkLogIn) => {
                    if self.work_log_in().is_ok() {
                        self.load.told_of_log.store(false, Ordering::SeqCst);
                    }
                }
                // If it did not work, the writer may say so again, but not at every batch.
                Err(RecvTimeoutError::Timeout) => {
                    self.load.told.store(false, Ordering::SeqCst);
                    self.load.told_of_log.store(false, Ordering::SeqCst);
                    let _ = self.empty_log();
                }
                Ok(Errand::Close) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn maintain(&mut self, now: Timestamp) -> Result<Maintained, Trouble> {
        self.resume()?;
        let erased = self.erase_aged(now)?.bodies;
        let (sealed, dropped) = self.rotate()?;
        self.prune(now)?;
        self.forget_keys(now)?;
        Ok(Maintained { erased, sealed, dropped })
    }

    /// Goes on with what was announced and not finished.
    fn resume(&mut self) -> Result<(), Trouble> {
        self.finish_erasures()?;
        let _ = self.empty_log();
        self.remove_sealed_rows()?;
        self.clear_dropped_tiles()?;
        self.remove_strangers()?;
        if !self.counted {
            let sql = "SELECT ifnull(sum(length(record) + ifnull(length(body), 0) + 100), 0) FROM records";
            let bytes: i64 = self.reader()?.query_row(sql, [], |row| row.get(0))?;
            let bytes = bytes.unsigned_abs();
            // What was written since the start is counted twice now, which is little, and right again once it is sealed.
            self.load.live.fetch_add(bytes, Ordering::SeqCst);
            self.counted = true;
        }
        Ok(())
    }

    /// Works the write-ahead log into the database, so that it starts anew and stays short.
    fn work_log_in(&self) -> Result<(), Trouble> {
        // Most of it beside the writer, who goes on meanwhile; the little that came in that time between two batches.
        work_log_in(&self.log()?)?;
        self.ask(Writer::work_log_in)
    }

    /// A connection that works the write-ahead log into the database.
    pub(super) fn log(&self) -> Result<Connection, Trouble> {
        let path = self.directory.join(DATABASE_FILE);
        // SECURITY: another database that somebody put there must not get what is in the log.
        self.database.check(&path)?;
        Ok(open_for_checkpointing(&path)?)
    }

    /// A connection that reads what is there now.
    pub(super) fn reader(&self) -> Result<Connection, Trouble> {
        Ok(open_for_reading(&self.directory.join(DATABASE_FILE))?)
    }

    /// Asks the writer for a step between two batches, and waits for it.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Writer) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        if self.load.closing.load(Ordering::SeqCst) {
            return Err(Trouble::Closed);
        }
        let (reply, answer) = mpsc::channel();
        let job = Job::Maintain(Box::new(move |writer| {
            let _ = reply.send(step(writer));
        }));
        self.jobs.put(job)?;
        answer.recv().map_err(|_| Trouble::Closed)?
    }
}

/// How long the keeper waits before it lets itself be told again what did not work.
const RETRY: Duration = Duration::from_secs(10);
