//! Calls that are proposed later: schedules, and what makes them fire.
//!
//! | you look for | read |
//! |---|---|
//! | the tools `cron.*` | [`tools`] |
//! | what can be done with schedules, and its records | [`schedule`] |
//! | what wakes when something is due | [`scheduler`] |
//! | one firing, from being due to its outcome | [`firing`] |
//! | who a schedule acts for | [`owner`] |
//! | what schedules are called | [`name`] |
//!
//! Guarantees: a schedule is worth no more than the credential that created it is at that moment; what it proposes is a call like any other, by the
//! channel `cron`, in a run of its own, decided and asked about when it is due. Each firing is on record before its call is proposed, and is
//! proposed once, whatever crashes: the call has the id of the firing.
//! Does not: know time zones or keep jobs. `palyra-schedule` does.

pub mod firing;
pub mod name;
pub mod owner;
pub mod schedule;
pub mod scheduler;
pub mod tools;
