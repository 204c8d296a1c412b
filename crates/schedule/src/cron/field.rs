//! One field of an expression: a set of numbers.

use super::error::{CronError, Fault, Field};

/// Numbers from 0 to 59.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set(u64);

impl Set {
    /// Reads a field.
    pub(super) fn parse(field: Field, text: &str) -> Result<Self, CronError> {
        let mut bits = 0;
        for part in text.split(',') {
            let wrong = |fault| CronError::Field { field, text: part.to_owned(), fault };
            bits |= part_bits(field, part).map_err(wrong)?;
        }
        Ok(Self(bits))
    }

    /// The days of the week with Sunday as 0 only.
    pub(super) const fn with_one_sunday(self) -> Self {
        Self((self.0 | (self.0 >> 7 & 1)) & 0x7f)
    }

    pub(super) const fn has(self, number: u8) -> bool {
        number < 64 && self.0 >> number & 1 == 1
    }

    /// The numbers, least first.
    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |&number| self.has(number))
    }
}

impl Field {
    /// The least and the most of a field.
    const fn range(self) -> (u8, u8) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::Day => (1, 31),
            Self::Month => (1, 12),
            Self::Weekday => (0, 7),
        }
    }

    /// What `*` stands for. Sunday is in it once.
    const fn all(self) -> (u8, u8) {
        match self {
            Self::Weekday => (0, 6),
            other => other.range(),
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
            Self::Weekday => &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
            Self::Minute | Self::Hour | Self::Day => &[],
        }
    }
}

/// The numbers of what stands between two commas.
fn part_bits(field: Field, part: &str) -> Result<u64, Fault> {
    let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
    let (first, last) = match range.split_once('-') {
        _ if range == "*" => field.all(),
        Some((first, last)) => {
            let (first, mut last) = (value(field, first)?, value(field, last)?);
            // A week may end with Sunday.
            if field == Field::Weekday && last == 0 && first > 0 {
                last = 7;
            }
            if first > last {
                return Err(Fault::Backwards);
            }
            (first, last)
        }
        None if step.is_some() => return value(field, range).and(Err(Fault::StepOfOne)),
        None => value(field, range).map(|only| (only, only))?,
    };
    let step = step.map_or(Ok(1), |step| read_step(step, last - first))?;
    Ok((first..=last).step_by(step).fold(0, |bits, number| bits | 1 << number))
}

fn read_step(step: &str, length: u8) -> Result<usize, Fault> {
    match number(step)? {
        Some(step) if step >= 1 && step <= length.max(1) => Ok(step.into()),
        _ => Err(Fault::Step { most: length.max(1) }),
    }
}

fn value(field: Field, text: &str) -> Result<u8, Fault> {
    let (least, most) = field.range();
    let named = field.names().iter().position(|name| name.eq_ignore_ascii_case(text));
    if let Some(place) = named.and_then(|place| u8::try_from(place).ok()) {
        return Ok(place + least);
    }
    match number(text)? {
        Some(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(Fault::Outside { least, most }),
    }
}

/// The number that digits stand for; nothing if it is too large for any field.
fn number(digits: &str) -> Result<Option<u8>, Fault> {
    if digits.is_empty() {
        return Err(Fault::Missing);
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::Unknown);
    }
    Ok(digits.parse().ok())
}
