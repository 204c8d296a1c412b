//! Jobs, and handing out what is due.
//!
//! Guarantees: a firing is written down, with the job's next time, before it is handed out, so a crash never repeats it; what was not over when
//! the program ended is told at the next opening, and goes on being its job's run until somebody says what came of it; a job has one run at a
//! time; the next time of a job only ever moves on, so a clock that is set back fires nothing twice.
//! Does not: run anything. A clock that was once far ahead leaves jobs waiting for that time; make them anew then.

mod rows;

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use palyra_types::{Entropy, Timestamp};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};

use crate::{
    backlog::Backlog,
    database,
    error::ScheduleError,
    id::{FiringId, JobId},
    job::{Firing, Job, Missed, NewJob, Outcome, bounded},
};

/// Most jobs of one principal.
pub const MOST_JOBS_OF_ONE: usize = 100;
/// Most jobs in all.
pub const MOST_JOBS: usize = 1000;
/// How late something may be and still be on time, in milliseconds: a minute.
pub const ON_TIME_MILLIS: i64 = 60_000;

/// Every job, in `schedule.sqlite`.
pub struct ScheduleStore {
    connection: Mutex<Connection>,
    entropy: Arc<dyn Entropy>,
}

/// The schedule, and what was not over when it was last closed.
#[derive(Debug)]
pub struct Opened {
    /// The schedule.
    pub store: ScheduleStore,
    /// Firings that were handed out and never finished. They are not handed out again, and their jobs do not fire before
    /// [`ScheduleStore::finished`] was told what came of them.
    pub unfinished: Vec<Firing>,
}

impl ScheduleStore {
    /// Opens the schedule in a directory; both are made if they are not there.
    ///
    /// # Errors
    /// When it cannot be opened, is something else, or another program has it open.
    pub fn open(directory: &Path, entropy: Arc<dyn Entropy>) -> Result<Opened, ScheduleError> {
        let connection = Mutex::new(database::open(directory)?);
        let store = Self { connection, entropy };
        let unfinished = store.write(|transaction| {
            let unfinished = rows::firings(transaction)?;
            rows::keep_firings(transaction, &unfinished)?;
            Ok(unfinished)
        })?;
        Ok(Opened { store, unfinished })
    }

    /// Makes a job.
    ///
    /// # Errors
    /// When it breaks a limit, its owner has one of this name, it is never due, or the file cannot be written.
    pub fn create(&self, new: &NewJob, now: Timestamp) -> Result<Job, ScheduleError> {
        new.check()?;
        let next_due = new.when.next_after(now, now).ok_or(ScheduleError::NeverDue)?;
        let job = Job {
            id: JobId::generate(now, self.entropy.as_ref())?,
            what: new.clone(),
            enabled: true,
            paused: None,
            created: now,
            last_fired: None,
            next_due: Some(next_due),
            running: None,
            last_outcome: None,
            failures: 0,
            missed_times: 0,
        };
        self.write(|transaction| {
            let principal = &new.owner.principal;
            let count = |sql: &str, principal: &str| {
                transaction
                    .query_row(sql, [principal], |row| row.get::<_, i64>(0))
                    .map(|count| usize::try_from(count).unwrap_or(usize::MAX))
            };
            if count("SELECT count(*) FROM job WHERE principal = ?1", principal)? >= MOST_JOBS_OF_ONE {
                return Err(ScheduleError::TooManyOfOne);
            }
            if count("SELECT count(*) FROM job WHERE ?1 IS NOT NULL", principal)? >= MOST_JOBS {
                return Err(ScheduleError::TooMany);
            }
            rows::insert(transaction, &job).map_err(|error| match error.sqlite_error_code() {
                Some(ErrorCode::ConstraintViolation) => ScheduleError::Taken(new.name.clone()),
                _ => error.into(),
            })
        })?;
        Ok(job)
    }

    /// A job.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, id: JobId) -> Result<Option<Job>, ScheduleError> {
        self.write(|transaction| Ok(rows::jobs(transaction, "WHERE job.id = ?1", &[&id.to_string()])?.pop()))
    }

    /// The job of a name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find(&self, principal: &str, name: &str) -> Result<Option<Job>, ScheduleError> {
        self.write(|transaction| {
            Ok(rows::jobs(transaction, "WHERE principal = ?1 AND name = ?2", &[&principal, &name])?.pop())
        })
    }

    /// The jobs of a principal, or all of them, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self, principal: Option<&str>) -> Result<Vec<Job>, ScheduleError> {
        self.write(|transaction| {
            rows::jobs(transaction, "WHERE ?1 IS NULL OR principal = ?1 ORDER BY job.id", &[&principal])
        })
    }

    /// Lets a job fire no more until it is resumed, and keeps why. A run that is going on goes on.
    ///
    /// # Errors
    /// When there is no such job, or the file cannot be written.
    pub fn pause(&self, id: JobId, why: &str) -> Result<(), ScheduleError> {
        self.enable(id, Some(why))
    }

    /// Lets a job fire again. The times that passed were missed.
    ///
    /// # Errors
    /// When there is no such job, or the file cannot be written.
    pub fn resume(&self, id: JobId) -> Result<(), ScheduleError> {
        self.enable(id, None)
    }

    /// Deletes a job, and what it acts with leaves the file. Says whether there was one. A run that is going on goes on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn delete(&self, id: JobId) -> Result<bool, ScheduleError> {
        let gone =
            self.write(|transaction| Ok(transaction.execute("DELETE FROM job WHERE id = ?1", [id.to_string()])?))?;
        if gone > 0 {
            database::give_back(&self.lock())?;
        }
        Ok(gone > 0)
    }

    /// What is due, handed out once. A job whose run is not over is not among it.
    ///
    /// # Errors
    /// When the file cannot be written. Then nothing was handed out.
    pub fn due(&self, now: Timestamp) -> Result<Vec<Firing>, ScheduleError> {
        self.write(|transaction| {
            rows::retire_unreadable(transaction, now)?;
            let sql = "WHERE enabled AND next_due <= ?1 ORDER BY next_due, job.id";
            let mut firings = Vec::new();
            for job in rows::jobs(transaction, sql, &[&now.unix_millis()])? {
                firings.extend(self.fire(transaction, job, now)?);
            }
            Ok(firings)
        })
    }

    /// Says that a run is over. Tells whether it was known; it is not if the job was deleted meanwhile.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finished(&self, firing: FiringId, outcome: &Outcome, now: Timestamp) -> Result<bool, ScheduleError> {
        let (text, is_failure) = outcome.kept();
        self.write(|transaction| {
            let Some(id) = rows::end(transaction, firing, &text, is_failure)? else { return Ok(false) };
            // What became due while it ran was missed, however soon after it ends somebody looks.
            if let Some(job) = rows::jobs(transaction, "WHERE job.id = ?1", &[&id])?.pop() {
                skip_missed(transaction, &job, now)?;
            }
            Ok(true)
        })
    }

    /// When to look for what is due: now, if something is; nothing, if nothing ever will be before something changes. A job that runs counts once
    /// its run is over.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next_wake(&self, now: Timestamp) -> Result<Option<Timestamp>, ScheduleError> {
        let sql = "SELECT min(next_due) FROM job WHERE enabled AND id NOT IN (SELECT job FROM firing)";
        let due: Option<i64> = self.write(|transaction| Ok(transaction.query_row(sql, [], |row| row.get(0))?))?;
        Ok(due.map(|due| Timestamp::from_unix_millis(due).max(now)))
    }

    /// Decides what a job that is due does now, and writes it down.
    fn fire(&self, transaction: &Transaction<'_>, job: Job, now: Timestamp) -> Result<Option<Firing>, ScheduleError> {
        let Some(first) = job.next_due else { return Ok(None) };
        if job.running.is_some() {
            skip_missed(transaction, &job, now)?;
            return Ok(None);
        }
        let backlog = Backlog::find(&job.what.when, job.created, first, now);
        let later = || job.what.when.next_after(now, job.created);
        let last = backlog.latest.last().copied();
        let is_on_time = |due: Timestamp| now.unix_millis().saturating_sub(due.unix_millis()) <= ON_TIME_MILLIS;
        let (due, next, passed) = match job.what.missed {
            Missed::Skip => (last.filter(|&due| is_on_time(due)), later(), backlog.count),
            Missed::Once => (last, later(), backlog.count),
            Missed::All => {
                let mut latest = backlog.latest.iter().copied();
                let passed =
                    backlog.count.saturating_sub(latest.len().saturating_sub(1).try_into().unwrap_or(u64::MAX));
                let due = latest.next();
                (due, latest.next().or_else(later), passed)
            }
        };
        let missed = passed.saturating_sub(u64::from(due.is_some()));
        if !rows::advance(transaction, &job, first, next, missed)? {
            return Ok(None);
        }
        let Some(due) = due else { return Ok(None) };
        let id = FiringId::generate(now, self.entropy.as_ref())?;
        rows::begin(transaction, id, job.id, due, now)?;
        let missed_times = job.missed_times.saturating_add(missed);
        let job = Job { last_fired: Some(now), next_due: next, running: Some(id), missed_times, ..job };
        Ok(Some(Firing { id, due, fired: now, job }))
    }

    /// Lets a job fire, or not any more and why.
    fn enable(&self, id: JobId, paused: Option<&str>) -> Result<(), ScheduleError> {
        self.write(|transaction| {
            let sql = "UPDATE job SET enabled = ?2, paused = ?3 WHERE id = ?1";
            match transaction.execute(sql, params![id.to_string(), paused.is_none(), paused.map(bounded)])? {
                0 => Err(ScheduleError::Unknown(id)),
                _ => Ok(()),
            }
        })
    }

    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, ScheduleError>) -> Result<T, ScheduleError> {
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic cut off was rolled back when it was dropped.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ScheduleStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScheduleStore").finish_non_exhaustive()
    }
}

/// Moves a job that makes up for nothing on to its next time.
fn skip_missed(transaction: &Transaction<'_>, job: &Job, now: Timestamp) -> Result<(), ScheduleError> {
    let Some(first) = job.next_due.filter(|&first| job.what.missed == Missed::Skip && first <= now) else {
        return Ok(());
    };
    let missed = Backlog::find(&job.what.when, job.created, first, now).count;
    rows::advance(transaction, job, first, job.what.when.next_after(now, job.created), missed).map(drop)
}

#[cfg(test)]
mod tests;
