//! What can be done with schedules, each with its record in the journal.
//!
//! Guarantees: what lets something fire is on record before it is in force, but for a new schedule, which is deleted again if it cannot be
//! recorded; what keeps something from firing is in force before it is on record. The database is worked with on threads that may block.

use std::sync::Arc;

use palyra_api::cron as told;
use palyra_gate::Refusal;
use palyra_journal::{RecordKind, Subject, mask::masked};
use palyra_schedule::{
    Firing, Job, JobId, NewJob, Opened, Outcome, ScheduleError, ScheduleStore, When, job::MOST_JSON_BYTES,
    store::MOST_JOBS_OF_ONE,
};
use palyra_types::{Clock, Entropy, StateHome, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::{name::ScheduleName, owner::Held};
use crate::app::OpenGate;

/// Every schedule.
pub struct Schedule {
    store: Arc<ScheduleStore>,
    gate: OpenGate,
    clock: Arc<dyn Clock>,
    /// Told whenever something may be due earlier than it was.
    pub(crate) changed: Notify,
}

impl Schedule {
    /// Opens the schedules in a state directory, and tells which firings an earlier daemon did not finish. Blocks.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn open(
        home: &StateHome,
        gate: OpenGate,
        (clock, entropy): (&Arc<dyn Clock>, &Arc<dyn Entropy>),
    ) -> Result<(Self, Vec<Firing>), ScheduleError> {
        let Opened { store, unfinished } = ScheduleStore::open(&home.path().join(DIRECTORY), Arc::clone(entropy))?;
        let schedule = Self { store: Arc::new(store), gate, clock: Arc::clone(clock), changed: Notify::new() };
        Ok((schedule, unfinished))
    }

    /// Whether a principal could have another schedule now: of this name, at these times, with such arguments. Blocks, and changes nothing.
    ///
    /// # Errors
    /// When it has one of this name, or enough of them, when this one would never be due or says too much, or when nothing can be read.
    pub(crate) fn could_be(
        &self,
        name: &ScheduleName,
        (when, args): (&When, &Map<String, Value>),
    ) -> Result<(), ScheduleError> {
        let now = self.clock.now();
        let length = serde_json::to_string(args).map_or(usize::MAX, |text| text.len());
        if length > MOST_JSON_BYTES {
            return Err(ScheduleError::TooLong { what: "arguments", length });
        }
        when.next_after(now, now).ok_or(ScheduleError::NeverDue)?;
        let own = self.store.list(Some(&name.owner))?;
        if own.iter().any(|job| job.what.name == name.name) {
            return Err(ScheduleError::Taken(name.name.clone()));
        }
        if own.len() >= MOST_JOBS_OF_ONE {
            return Err(ScheduleError::TooManyOfOne);
        }
        Ok(())
    }

    /// The schedule of a name, if there is one. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn find(&self, name: &ScheduleName) -> Result<Option<Job>, ScheduleError> {
        self.store.find(&name.owner, &name.name)
    }

    /// Makes a schedule, on behalf of a call.
    ///
    /// # Errors
    /// When it breaks a limit, there is one of this name, or it can be neither kept nor recorded.
    pub async fn create(&self, new: NewJob, subject: Subject, by: &str) -> Result<Job, SchedulingError> {
        let now = self.clock.now();
        let job = self.with(move |store| store.create(&new, now)).await?;
        if let Err(error) = self.record(RecordKind::CronCreated, subject, &Told::of(&job, by, None)).await {
            self.with(move |store| store.delete(job.id)).await?;
            return Err(error);
        }
        self.changed.notify_one();
        Ok(job)
    }

    /// Lets a schedule fire no more until it is resumed.
    ///
    /// # Errors
    /// When it cannot be kept. When it cannot be recorded, it is paused all the same.
    pub async fn pause(&self, job: &Job, subject: Subject, (by, why): (&str, &str)) -> Result<Job, SchedulingError> {
        let (id, kept) = (job.id, format!("{why}, by {by}"));
        self.with(move |store| store.pause(id, &kept)).await?;
        self.record(RecordKind::CronPaused, subject, &Told::of(job, by, Some(why))).await?;
        self.known(id).await
    }

    /// Lets a schedule fire again. What it missed is dealt with as it says.
    ///
    /// # Errors
    /// When it can be neither recorded nor kept.
    pub async fn resume(&self, job: &Job, subject: Subject, by: &str) -> Result<Job, SchedulingError> {
        self.record(RecordKind::CronResumed, subject, &Told::of(job, by, None)).await?;
        let id = job.id;
        self.with(move |store| store.resume(id)).await?;
        self.changed.notify_one();
        self.known(id).await
    }

    /// Deletes a schedule. A call of it that is under way goes on.
    ///
    /// # Errors
    /// When it cannot be deleted. When it cannot be recorded, it is gone all the same.
    pub async fn delete(&self, job: &Job, subject: Subject, by: &str) -> Result<(), SchedulingError> {
        let id = job.id;
        if !self.with(move |store| store.delete(id)).await? {
            return Err(ScheduleError::Unknown(id).into());
        }
        self.record(RecordKind::CronDeleted, subject, &Told::of(job, by, None)).await
    }

    /// The schedules of a principal, or all of them.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn list(&self, principal: Option<String>) -> Result<Vec<Job>, SchedulingError> {
        self.with(move |store| store.list(principal.as_deref())).await
    }

    /// The schedule of a name.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn named(&self, name: &ScheduleName) -> Result<Job, SchedulingError> {
        let (owner, job) = (name.owner.clone(), name.name.clone());
        let found = self.with(move |store| store.find(&owner, &job)).await?;
        found.ok_or_else(|| SchedulingError::Unnamed(name.to_string()))
    }

    /// The schedule of an id.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn known(&self, id: JobId) -> Result<Job, SchedulingError> {
        self.with(move |store| store.get(id)?.ok_or(ScheduleError::Unknown(id))).await
    }

    /// What is due, handed out once.
    ///
    /// # Errors
    /// When it cannot be written down. Then nothing was handed out.
    pub(crate) async fn due(&self) -> Result<Vec<Firing>, SchedulingError> {
        let now = self.clock.now();
        self.with(move |store| store.due(now)).await
    }

    /// When something will be due.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(crate) async fn next_wake(&self) -> Result<Option<Timestamp>, SchedulingError> {
        let now = self.clock.now();
        self.with(move |store| store.next_wake(now)).await
    }

    /// Says what came of a firing, so that its schedule can fire again.
    ///
    /// # Errors
    /// When it cannot be kept. The next daemon finds out by itself then.
    pub(crate) async fn finished(&self, firing: &Firing, outcome: Outcome) -> Result<(), SchedulingError> {
        let (id, now) = (firing.id, self.clock.now());
        let finished = self.with(move |store| store.finished(id, &outcome, now)).await;
        self.changed.notify_one();
        finished.map(drop)
    }

    /// Records something about schedules.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub(crate) async fn record(
        &self,
        kind: RecordKind,
        subject: Subject,
        body: &impl Serialize,
    ) -> Result<(), SchedulingError> {
        let gate = self.gate.now().ok_or(SchedulingError::Stopped)?;
        Ok(gate.record_keeping(kind, subject, body).await?)
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ScheduleStore) -> Result<T, ScheduleError> + Send + 'static,
    ) -> Result<T, SchedulingError> {
        let store = Arc::clone(&self.store);
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(|error| SchedulingError::Crashed(error.to_string()))?.map_err(SchedulingError::from)
    }
}

/// A schedule as the journal has it.
#[derive(Serialize)]
struct Told<'a> {
    schedule: &'a str,
    id: JobId,
    owner: &'a str,
    tool: &'a str,
    when: &'a When,
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn of(job: &'a Job, by: &'a str, why: Option<&'a str>) -> Self {
        let what = &job.what;
        let (owner, tool) = (what.owner.principal.as_str(), what.tool.as_str());
        Self { schedule: &what.name, id: job.id, owner, tool, when: &what.when, by, why }
    }
}

/// A schedule as it is told. Tokens in its arguments are masked, as they are in the journal.
#[must_use]
pub fn told(job: &Job) -> told::Schedule {
    let what = &job.what;
    let args = masked(Value::Object(what.args.clone()).to_string());
    let args: Map<String, Value> = serde_json::from_str(&args).unwrap_or_default();
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    told::Schedule {
        id: job.id.to_string(),
        name: what.name.clone(),
        owner: what.owner.principal.clone(),
        tool: what.tool.clone(),
        args,
        workspace: what.workspace.clone(),
        session: what.session,
        when: when(&what.when),
        missed: what.missed.to_string(),
        timeout_seconds: what.timeout_seconds,
        enabled: job.enabled,
        paused: job.paused.clone(),
        created: job.created,
        created_by_call: Held::read(&what.owner).ok().map(|held| held.call),
        last_fired: job.last_fired,
        next_due: job.next_due.filter(|_| job.enabled),
        running: job.running.map(|firing| firing.to_string()),
        last_outcome: job.last_outcome.clone(),
        failures: count(job.failures),
        missed_times: count(job.missed_times),
    }
}

/// When something is done, in words.
#[must_use]
pub fn when(when: &When) -> String {
    match when {
        When::Cron { expression, zone } => format!("{} in {zone}", expression.as_str()),
        When::Every(every) => format!("every {} seconds", every.as_seconds()),
        When::At(time) => format!("once, at {time}"),
    }
}

/// Why nothing was done about a schedule.
#[derive(Debug, thiserror::Error)]
pub enum SchedulingError {
    /// The schedules refuse it.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// It cannot be recorded.
    #[error(transparent)]
    Gate(#[from] Refusal),
    /// There is no such schedule.
    #[error("there is no schedule `{0}`")]
    Unnamed(String),
    /// The daemon stops.
    #[error("the daemon stops")]
    Stopped,
    /// It failed inside.
    #[error("it failed inside the daemon: {0}")]
    Crashed(String),
}

impl SchedulingError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Schedule(error) => error.advice().to_owned(),
            Self::Gate(refusal) => refusal.advice(),
            Self::Unnamed(_) => UNNAMED.to_owned(),
            Self::Stopped => "try again when it is up".to_owned(),
            Self::Crashed(_) => "look at the daemon's log, and report this".to_owned(),
        }
    }
}

/// What to do about a schedule that is not there.
pub(super) const UNNAMED: &str = "`cron.list` tells your own; a person sees all with `palyra cron list`";

/// Where it is in the state directory.
pub(super) const DIRECTORY: &str = "schedule";
