//! Time as a parameter: a [`Clock`] is passed in, so that tests own it.

use std::{
    fmt,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, in milliseconds since the Unix epoch, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// Reads an RFC 3339 date and time, such as `2026-03-02T09:30:00Z`.
    ///
    /// # Errors
    /// When the text is not such a date.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        jiff::Timestamp::from_str(text)
            .map(|time| Self(time.as_millisecond()))
            .map_err(|_| TimestampError { text: text.to_owned() })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{} ms since 1970", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a date was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an RFC 3339 date and time such as 2026-03-02T09:30:00Z", crate::visible::visible(.text))]
pub struct TimestampError {
    /// The text as given.
    pub text: String,
}

/// Something that knows what time it is.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock. The one place that reads it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else is given")]
        let now = SystemTime::now();
        let millis = match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
        };
        Timestamp(millis)
    }
}

/// A clock that stands still, for tests and for policy test files.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_survives_a_round_trip_through_text() {
        let time = Timestamp::parse("2026-03-02T09:30:00.250Z").unwrap();
        assert_eq!(time.to_string(), "2026-03-02T09:30:00.250Z");
        assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
        assert!(Timestamp::parse("yesterday").is_err());
    }
}
