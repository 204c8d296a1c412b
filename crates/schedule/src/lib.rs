//! What is to be done later: when it is due, and that it is handed out once.
//!
//! | you look for | read |
//! |---|---|
//! | cron expressions, and when they match next | [`cron`] |
//! | time zones | [`zone`] |
//! | all the ways to say when | [`when`] |
//! | what is done when a time was missed | [`Missed`] |
//! | jobs, and who they act for | [`job`] |
//! | creating jobs, and handing out what is due | [`store`] |
//! | why a job was refused | [`ScheduleError`] |
//!
//! Guarantees: a firing is written down before it is handed out, so it is handed out once, whatever crashes and however the clock is set; a job
//! whose run is not over is not fired again; what a job acts with is kept whole, so that whoever runs it can check that it still counts.
//! Does not: run anything, or decide whether it may run. Methods block.

pub mod cron;
pub mod id;
pub mod job;
pub mod store;
pub mod when;
pub mod zone;

mod backlog;
mod database;
mod error;

pub use cron::{CronError, CronExpression, Field};
pub use error::ScheduleError;
pub use id::{FiringId, JobId};
pub use job::{Firing, Job, Missed, NewJob, Outcome, Owner};
pub use store::{Opened, ScheduleStore};
pub use when::{Every, When, WhenError};
pub use zone::{UnknownZone, Zone};
