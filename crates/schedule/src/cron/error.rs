//! What is wrong with a cron expression, and in which field.

use palyra_types::{visible::visible, words};

words! {
    /// A field of an expression.
    pub enum Field ("field") {
        /// 0 to 59.
        Minute = "minute",
        /// 0 to 23.
        Hour = "hour",
        /// 1 to 31.
        Day = "day of the month",
        /// 1 to 12, or `JAN` to `DEC`.
        Month = "month",
        /// 0 to 7, or `SUN` to `SAT`; 0 and 7 are Sunday.
        Weekday = "day of the week",
    }
}

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Longer than any sensible one.
    #[error("the expression is {0} bytes long; the limit is 256")]
    TooLong(usize),
    /// Not five fields.
    #[error("the expression has {0} fields; expected 5")]
    Fields(usize),
    /// No such name.
    #[error("there is no `{}`; expected `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`", visible(.0))]
    Name(String),
    /// Something is wrong with a field.
    #[error("the {field} `{}`: {fault}", visible(.text))]
    Field {
        /// Which.
        field: Field,
        /// The part of it that is wrong.
        text: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// There is no such day.
    #[error("there is no such day in any of these months, so it would never be done")]
    Never,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing between two commas, or around a sign.
    #[error("something is missing")]
    Missing,
    /// Neither a number nor a name that the field knows.
    #[error("is neither a number nor a name that is known here")]
    Unknown,
    /// Not in the field's range.
    #[error("is not between {least} and {most}")]
    Outside {
        /// The least that is allowed.
        least: u8,
        /// The most that is allowed.
        most: u8,
    },
    /// From more to less.
    #[error("the range goes backwards")]
    Backwards,
    /// A step behind a single value.
    #[error("a step needs a range or `*` in front of it")]
    StepOfOne,
    /// A step of nothing, or one that is longer than the range.
    #[error("a step here is between 1 and {most}")]
    Step {
        /// The longest that makes a difference.
        most: u8,
    },
}

impl CronError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::TooLong(_) | Self::Fields(_) => {
                "write five fields: minute, hour, day of the month, month, day of the week, such as `30 9 * * MON-FRI`"
            }
            Self::Name(_) => "write one of these, or five fields such as `30 9 * * MON-FRI`",
            Self::Field { fault: Fault::Backwards, .. } => "write two ranges, such as `22-23,0-5`",
            Self::Field { fault: Fault::Step { .. }, .. } => {
                "for longer steps, name the times in this field and use the next one, such as `0 */2 * * *` for every two hours"
            }
            Self::Field { .. } => {
                "write `*`, numbers, ranges such as `1-5`, steps such as `*/15`, with commas between them"
            }
            Self::Never => "choose a day that the months have",
        }
    }
}
