//! When an expression matches next.

use jiff::{
    SignedDuration, Timestamp as Instant,
    civil::{Date, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};
use palyra_types::Timestamp;

use super::{CronExpression, Days};
use crate::zone::Zone;

impl CronExpression {
    /// The first time after this one at which it matches in a time zone. Nothing when that is beyond the year 9999.
    #[must_use]
    pub fn next_after(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let rules = zone.rules();
        let after = Instant::from_millisecond(after.unix_millis()).ok()?;
        let local = rules.to_datetime(after);
        let mut day = local.date();
        // INVARIANT: instants never go back while local times go on, so the first local time whose instant is later is the answer, and no local
        // time before this one has a later instant.
        loop {
            let earliest = if day == local.date() { Some(local) } else { None };
            if let Some(found) = self.first_of_day(day, earliest, after, rules) {
                return Some(Timestamp::from_unix_millis(found.as_millisecond()));
            }
            day = self.next_day(day)?;
        }
    }

    /// The first instant of a day after another.
    fn first_of_day(&self, day: Date, earliest: Option<DateTime>, after: Instant, rules: &TimeZone) -> Option<Instant> {
        if !self.has_day(day) {
            return None;
        }
        for hour in self.hours.iter() {
            for minute in self.minutes.iter() {
                let time = day.at(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0);
                // A minute that has begun is over as far as this is concerned.
                if earliest.is_some_and(|earliest| time < earliest) {
                    continue;
                }
                if let Some(instant) = instant_of(time, rules).filter(|&instant| instant > after) {
                    return Some(instant);
                }
            }
        }
        None
    }

    fn has_day(&self, day: Date) -> bool {
        let fits = |number: i8, set: super::Set| u8::try_from(number).is_ok_and(|number| set.has(number));
        let of_month = fits(day.day(), self.days);
        let of_week = fits(day.weekday().to_sunday_zero_offset(), self.weekdays);
        fits(day.month(), self.months)
            && match self.days_are {
                Days::Either => of_month || of_week,
                Days::Both => of_month && of_week,
            }
    }

    /// The next day of a month that is meant.
    fn next_day(&self, day: Date) -> Option<Date> {
        let is_meant = |day: Date| u8::try_from(day.month()).is_ok_and(|month| self.months.has(month));
        let mut next = day.tomorrow().ok()?;
        while !is_meant(next) {
            next = next.last_of_month().tomorrow().ok()?;
        }
        Some(next)
    }
}

/// The instant that a local time counts as.
fn instant_of(time: DateTime, rules: &TimeZone) -> Option<Instant> {
    let ambiguous = rules.to_ambiguous_timestamp(time);
    match ambiguous.offset() {
        // Shown once, or twice; then the first is meant.
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
        // Skipped. With the offset from before the gap it lies behind its end, which is the last change of offset until then.
        AmbiguousOffset::Gap { before, .. } => {
            let behind = before.to_timestamp(time).ok()?.checked_add(SignedDuration::from_secs(1)).ok()?;
            rules.preceding(behind).next().map(|change| change.timestamp())
        }
    }
}
