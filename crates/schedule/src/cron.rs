//! Cron expressions: `30 9 * * MON-FRI` is half past nine on working days.
//!
//! Five fields: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday). Each is `*` or a list of numbers, names (`JAN`,
//! `MON`) and ranges, with `/` and a step behind `*` or a range. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` stand for the
//! obvious. If neither of the two fields of days begins with `*`, a day that fits either of them is meant; else one that fits both.
//!
//! Guarantees: each local time that matches counts once. What the clocks skip counts as the first instant after the gap; of what they show
//! twice, the first counts. An expression that never matches, such as `30 2 31 2 *`, is refused.

mod error;
mod field;
mod next;

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::error::{CronError, Fault, Field};
use self::field::Set;

/// When something is done again and again, in local time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpression {
    text: String,
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    /// Whether a day must fit one of the two fields of days, or both.
    days_are: Days,
}

/// How the two fields of days go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Days {
    Either,
    Both,
}

impl CronExpression {
    /// Reads an expression.
    ///
    /// # Errors
    /// When it is not one, or never matches.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        if text.len() > MOST_BYTES {
            return Err(CronError::TooLong(text.len()));
        }
        let spelled = if text.trim().starts_with('@') { spelled_out(text.trim())? } else { text };
        let fields: Vec<&str> = spelled.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = *fields.as_slice() else {
            return Err(CronError::Fields(fields.len()));
        };
        let days_are = if day.starts_with('*') || weekday.starts_with('*') { Days::Both } else { Days::Either };
        let expression = Self {
            text: text.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            minutes: Set::parse(Field::Minute, minute)?,
            hours: Set::parse(Field::Hour, hour)?,
            days: Set::parse(Field::Day, day)?,
            months: Set::parse(Field::Month, month)?,
            weekdays: Set::parse(Field::Weekday, weekday)?.with_one_sunday(),
            days_are,
        };
        if expression.is_possible() { Ok(expression) } else { Err(CronError::Never) }
    }

    /// The expression as it was written, with single spaces.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether some day of some month fits. Only days that the months do not have can make that impossible: every other day is each day of the
    /// week sooner or later.
    fn is_possible(&self) -> bool {
        let longest = |month: u8| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        self.days_are == Days::Either
            || self.months.iter().any(|month| self.days.iter().any(|day| day <= longest(month)))
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for CronExpression {
    type Err = CronError;
    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}

impl Serialize for CronExpression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for CronExpression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

fn spelled_out(name: &str) -> Result<&'static str, CronError> {
    Ok(match name {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        _ => return Err(CronError::Name(name.to_owned())),
    })
}

const MOST_BYTES: usize = 256;

#[cfg(test)]
mod tests;
