//! When something is done: by a cron expression, every so often, or once.

use palyra_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{cron::CronExpression, zone::Zone};

/// When something is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum When {
    /// When an expression matches in a time zone.
    Cron {
        /// The expression.
        expression: CronExpression,
        /// The time zone.
        zone: Zone,
    },
    /// At equal distances, counted from when the job was made. Days on which clocks change do not matter.
    Every(Every),
    /// Once.
    At(Timestamp),
}

/// A distance of at least a minute and at most 366 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Every(u32);

impl When {
    /// The first time after this one. `from` is when the job was made.
    #[must_use]
    pub fn next_after(&self, after: Timestamp, from: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron { expression, zone } => expression.next_after(after, zone),
            Self::Every(every) => every.next_after(after, from),
            Self::At(time) => (*time > after).then_some(*time),
        }
    }
}

impl Every {
    /// A distance of so many seconds.
    ///
    /// # Errors
    /// When it is less than a minute or more than 366 days.
    pub const fn seconds(seconds: u32) -> Result<Self, WhenError> {
        if seconds < LEAST || seconds > MOST { Err(WhenError::Every(seconds)) } else { Ok(Self(seconds)) }
    }

    /// The distance in seconds.
    #[must_use]
    pub const fn as_seconds(self) -> u32 {
        self.0
    }

    fn next_after(self, after: Timestamp, from: Timestamp) -> Option<Timestamp> {
        let distance = i64::from(self.0).checked_mul(1000)?;
        let passed = after.unix_millis().checked_sub(from.unix_millis())?;
        // The first is one distance after the job was made.
        let count = passed.div_euclid(distance).checked_add(1)?.max(1);
        from.unix_millis().checked_add(count.checked_mul(distance)?).map(Timestamp::from_unix_millis)
    }
}

impl TryFrom<u32> for Every {
    type Error = WhenError;
    fn try_from(seconds: u32) -> Result<Self, WhenError> {
        Self::seconds(seconds)
    }
}

impl From<Every> for u32 {
    fn from(every: Every) -> Self {
        every.0
    }
}

/// Why a distance was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WhenError {
    /// Too short or too long.
    #[error("every {0} seconds is not between {LEAST} and {MOST} seconds")]
    Every(u32),
}

impl WhenError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "choose at least a minute and at most 366 days"
    }
}

const LEAST: u32 = 60;
const MOST: u32 = 366 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    #[test]
    fn a_distance_counts_from_when_the_job_was_made() {
        let every = When::Every(Every::seconds(90).unwrap());
        let next = |after: i64| every.next_after(at(after), at(1_000)).map(Timestamp::unix_millis);
        assert_eq!([next(1_000), next(0), next(-500_000)], [Some(91_000); 3]);
        assert_eq!([next(90_999), next(91_000), next(91_001)], [Some(91_000), Some(181_000), Some(181_000)]);
        assert_eq!(next(i64::MAX), None);
    }

    #[test]
    fn once_is_once() {
        let once = When::At(at(5_000));
        assert_eq!(once.next_after(at(4_999), at(0)), Some(at(5_000)));
        assert_eq!(once.next_after(at(5_000), at(0)), None);
    }

    #[test]
    fn a_distance_is_between_a_minute_and_a_year() {
        assert_eq!(Every::seconds(59), Err(WhenError::Every(59)));
        assert_eq!(Every::seconds(60).unwrap().as_seconds(), 60);
        assert!(Every::seconds(MOST + 1).is_err());
        assert!(serde_json::from_value::<When>(json!({ "every": 59 })).is_err());
    }

    #[test]
    fn all_ways_read_back_as_they_were_written() {
        for form in [
            json!({ "cron": { "expression": "0 9 * * MON-FRI", "zone": "Europe/Prague" } }),
            json!({ "every": 3600 }),
            json!({ "at": "2026-03-02T09:30:00.000Z" }),
        ] {
            let when: When = serde_json::from_value(form.clone()).unwrap();
            assert_eq!(serde_json::to_value(&when).unwrap(), form);
        }
        assert!(serde_json::from_value::<When>(json!({ "cron": { "expression": "x", "zone": "UTC" } })).is_err());
    }
}
