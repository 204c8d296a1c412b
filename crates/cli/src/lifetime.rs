//! How long something holds, as people type it: `30m`, `12h`, `30d`.

use std::{fmt, str::FromStr};

use palyra_types::visible::visible;

/// A length of time in whole minutes, hours or days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    seconds: u64,
}

impl Lifetime {
    /// An hour.
    pub(crate) const AN_HOUR: Self = Self { seconds: AN_HOUR };

    /// In seconds.
    pub(crate) const fn seconds(self) -> u64 {
        self.seconds
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (each, unit) = match self.seconds {
            seconds if seconds.is_multiple_of(A_DAY) => (A_DAY, "day"),
            seconds if seconds.is_multiple_of(AN_HOUR) => (AN_HOUR, "hour"),
            _ => (A_MINUTE, "minute"),
        };
        let count = self.seconds / each;
        write!(f, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

impl FromStr for Lifetime {
    type Err = LifetimeError;
    fn from_str(text: &str) -> Result<Self, LifetimeError> {
        let refused = || LifetimeError(text.to_owned());
        let unit = text.chars().last().ok_or_else(refused)?;
        let number = text.strip_suffix(unit).ok_or_else(refused)?;
        let each = match unit {
            'm' => A_MINUTE,
            'h' => AN_HOUR,
            'd' => A_DAY,
            _ => return Err(refused()),
        };
        // No sign and no space, which `parse` would take.
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused());
        }
        let number: u64 = number.parse().map_err(|_| refused())?;
        Ok(Self { seconds: number.checked_mul(each).ok_or_else(refused)? })
    }
}

/// Not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no length of time; write minutes, hours or days, such as 30m, 12h or 30d", visible(.0))]
pub(crate) struct LifetimeError(String);

const A_MINUTE: u64 = 60;
const AN_HOUR: u64 = 60 * A_MINUTE;
const A_DAY: u64 = 24 * AN_HOUR;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_hours_and_days_are_read_and_nothing_else() {
        let seconds = |text: &str| text.parse().map(Lifetime::seconds).ok();
        assert_eq!(seconds("30m"), Some(1_800));
        assert_eq!(seconds("12h"), Some(43_200));
        assert_eq!(seconds("30d"), Some(2_592_000));
        assert_eq!(seconds("0m"), Some(0));
        let words = |text: &str| text.parse::<Lifetime>().unwrap().to_string();
        assert_eq!(
            [words("400d"), words("24h"), words("90m"), words("60m")],
            ["400 days", "1 day", "90 minutes", "1 hour"]
        );
        for text in ["", "30", "m", "-1d", "+1d", " 1d", "1 d", "1.5h", "1w", "1D", "99999999999999999d", "1dé", "é"]
        {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
