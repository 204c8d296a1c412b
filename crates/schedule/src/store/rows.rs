//! The rows of the schedule.

use palyra_types::Timestamp;
use rusqlite::{OptionalExtension, Row, ToSql, Transaction, params};

use crate::{
    error::ScheduleError,
    id::{FiringId, JobId},
    job::{Firing, Job, NewJob},
};

/// The jobs that a condition names.
pub(super) fn jobs(
    transaction: &Transaction<'_>,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<Job>, ScheduleError> {
    let sql =
        format!("SELECT job.*, firing.id AS running FROM job LEFT JOIN firing ON firing.job = job.id {condition}");
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query(values)?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(job(row)?);
    }
    Ok(jobs)
}

/// The firings whose runs are not over, as far as their jobs can be read.
pub(super) fn firings(transaction: &Transaction<'_>) -> Result<Vec<Firing>, ScheduleError> {
    let sql = "SELECT job.*, firing.id AS running, firing.due AS due, firing.fired AS fired
               FROM firing JOIN job ON job.id = firing.job ORDER BY firing.fired, firing.id";
    let mut statement = transaction.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut firings = Vec::new();
    while let Some(row) = rows.next()? {
        let time = |name: &str| row.get(name).map(Timestamp::from_unix_millis);
        if let Ok(job) = job(row)
            && let Some(id) = job.running
        {
            firings.push(Firing { id, due: time("due")?, fired: time("fired")?, job });
        }
    }
    Ok(firings)
}

/// Forgets all firings but these: those of jobs that cannot be read any more.
pub(super) fn keep_firings(transaction: &Transaction<'_>, kept: &[Firing]) -> Result<(), ScheduleError> {
    let kept: Vec<_> = kept.iter().map(|firing| firing.id).collect();
    let sql = "DELETE FROM firing WHERE id NOT IN (SELECT value FROM json_each(?1))";
    transaction.execute(sql, [serde_json::json!(kept).to_string()])?;
    Ok(())
}

/// Writes a new job.
pub(super) fn insert(transaction: &Transaction<'_>, job: &Job) -> rusqlite::Result<()> {
    let what =
        serde_json::to_string(&job.what).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let sql =
        "INSERT INTO job (id, principal, name, what, enabled, created, next_due) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    transaction.execute(
        sql,
        params![
            job.id.to_string(),
            job.what.owner.principal,
            job.what.name,
            what,
            job.enabled,
            job.created.unix_millis(),
            job.next_due.map(Timestamp::unix_millis)
        ],
    )?;
    Ok(())
}

/// Moves a job on from a time to the next. Says whether it still stood there.
pub(super) fn advance(
    transaction: &Transaction<'_>,
    job: &Job,
    from: Timestamp,
    next: Option<Timestamp>,
    missed: u64,
) -> Result<bool, ScheduleError> {
    let sql = "UPDATE job SET next_due = ?3, missed_times = missed_times + ?4 WHERE id = ?1 AND next_due = ?2";
    let missed = i64::try_from(missed).unwrap_or(i64::MAX);
    let next = next.map(Timestamp::unix_millis);
    Ok(transaction.prepare_cached(sql)?.execute(params![job.id.to_string(), from.unix_millis(), next, missed])? == 1)
}

/// Writes down that a job is handed out.
pub(super) fn begin(
    transaction: &Transaction<'_>,
    id: FiringId,
    job: JobId,
    due: Timestamp,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let sql = "INSERT INTO firing (id, job, due, fired) VALUES (?1, ?2, ?3, ?4)";
    let (job, now) = (job.to_string(), now.unix_millis());
    transaction.prepare_cached(sql)?.execute(params![id.to_string(), job, due.unix_millis(), now])?;
    transaction.prepare_cached("UPDATE job SET last_fired = ?2 WHERE id = ?1")?.execute(params![job, now])?;
    Ok(())
}

/// Writes down what came of a run, and says of which job, if it was going on.
pub(super) fn end(
    transaction: &Transaction<'_>,
    firing: FiringId,
    outcome: &str,
    is_failure: bool,
) -> Result<Option<String>, ScheduleError> {
    let job: Option<String> = transaction
        .prepare_cached("DELETE FROM firing WHERE id = ?1 RETURNING job")?
        .query_row([firing.to_string()], |row| row.get(0))
        .optional()?;
    if let Some(job) = &job {
        let sql =
            "UPDATE job SET last_outcome = ?2, failures = CASE WHEN ?3 THEN failures + 1 ELSE 0 END WHERE id = ?1";
        transaction.prepare_cached(sql)?.execute(params![job, outcome, is_failure])?;
    }
    Ok(job)
}

/// Pauses jobs that are due and cannot be read, so that the others go on. Says so in their outcome.
pub(super) fn retire_unreadable(transaction: &Transaction<'_>, now: Timestamp) -> Result<(), ScheduleError> {
    let sql = "SELECT id, what FROM job WHERE enabled AND next_due <= ?1";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query([now.unix_millis()])?;
    let mut unreadable = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, what): (String, String) = (row.get(0)?, row.get(1)?);
        if let Err(error) = serde_json::from_str::<NewJob>(&what) {
            unreadable.push((id, format!("the job cannot be read: {error}")));
        }
    }
    for (id, why) in unreadable {
        transaction.execute("UPDATE job SET enabled = 0, paused = ?2, last_outcome = ?2 WHERE id = ?1", [id, why])?;
    }
    Ok(())
}

fn job(row: &Row<'_>) -> Result<Job, ScheduleError> {
    let time = |name: &str| row.get::<_, Option<i64>>(name).map(|time| time.map(Timestamp::from_unix_millis));
    let count = |name: &str| row.get::<_, i64>(name).map(i64::unsigned_abs);
    let id: String = row.get("id")?;
    let damaged = |why: &dyn std::fmt::Display| ScheduleError::Damaged(format!("job {id}: {why}"));
    let running: Option<String> = row.get("running")?;
    Ok(Job {
        id: JobId::parse(&id).map_err(|error| damaged(&error))?,
        what: serde_json::from_str(&row.get::<_, String>("what")?).map_err(|error| damaged(&error))?,
        enabled: row.get("enabled")?,
        paused: row.get("paused")?,
        created: Timestamp::from_unix_millis(row.get("created")?),
        last_fired: time("last_fired")?,
        next_due: time("next_due")?,
        running: running.map(|id| FiringId::parse(&id)).transpose().map_err(|error| damaged(&error))?,
        last_outcome: row.get("last_outcome")?,
        failures: count("failures")?,
        missed_times: count("missed_times")?,
    })
}
