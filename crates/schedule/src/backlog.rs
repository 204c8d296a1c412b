//! What became due since somebody last looked.
//!
//! Guarantees: the last ten times are exact however long nobody looked, and finding them takes a bounded number of steps.

use palyra_types::Timestamp;

use crate::when::When;

/// The times between the first that was not handled and now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// How many there are, counted up to a thousand.
    pub(crate) count: u64,
    /// The last ten of them, oldest first.
    pub(crate) latest: Vec<Timestamp>,
}

impl Backlog {
    /// Finds them. `first` is the first time that was not handled, and counts if it is not later than now.
    pub(crate) fn find(when: &When, made: Timestamp, first: Timestamp, now: Timestamp) -> Self {
        let mut times = from(when, made, first, now, MOST_COUNTED);
        let count = u64::try_from(times.len()).unwrap_or(u64::MAX);
        if times.len() < MOST_COUNTED {
            let latest = times.split_off(times.len().saturating_sub(MOST_LATEST));
            return Self { count, latest };
        }
        // There are more. Look back from now, twice as far each time, until there are enough.
        let mut back = SHORTEST_BACK;
        loop {
            let begin = now.unix_millis().saturating_sub(back).max(first.unix_millis());
            let behind = Timestamp::from_unix_millis(begin);
            let mut times =
                when.next_after(behind, made).map_or_else(Vec::new, |first| from(when, made, first, now, usize::MAX));
            if times.len() >= MOST_LATEST || begin == first.unix_millis() {
                let latest = times.split_off(times.len().saturating_sub(MOST_LATEST));
                return Self { count, latest };
            }
            back = back.saturating_mul(2);
        }
    }
}

/// The times from one on until now, not more than so many.
fn from(when: &When, made: Timestamp, first: Timestamp, now: Timestamp, most: usize) -> Vec<Timestamp> {
    let times = std::iter::successors(Some(first), |&time| when.next_after(time, made));
    times.take_while(|&time| time <= now).take(most).collect()
}

/// The most that are done of what was missed.
pub(crate) const MOST_LATEST: usize = 10;
const MOST_COUNTED: usize = 1000;
/// Ten of the shortest distance.
const SHORTEST_BACK: i64 = 600_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{cron::CronExpression, when::Every, zone::Zone};

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn cron(text: &str) -> When {
        When::Cron { expression: CronExpression::parse(text).unwrap(), zone: Zone::parse("Europe/Prague").unwrap() }
    }

    #[test]
    fn what_is_not_due_yet_is_no_backlog() {
        let first = at("2026-01-01T00:00:00Z");
        let before = at("2025-12-31T23:59:59.999Z");
        assert_eq!(Backlog::find(&cron("@daily"), first, first, before), Backlog { count: 0, latest: vec![] });
        assert_eq!(Backlog::find(&When::At(first), first, first, first), Backlog { count: 1, latest: vec![first] });
        assert_eq!(Backlog::find(&When::At(first), first, first, at("2027-01-01T00:00:00Z")).count, 1);
    }

    #[test]
    fn a_year_of_minutes_is_found_in_no_time() {
        let (first, now) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:30Z"));
        let backlog = Backlog::find(&cron("* * * * *"), first, first, now);
        assert_eq!((backlog.count, backlog.latest.len()), (1000, 10));
        assert_eq!(backlog.latest.first(), Some(&at("2026-12-31T23:51:00Z")));
        assert_eq!(backlog.latest.last(), Some(&at("2027-01-01T00:00:00Z")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_latest_are_the_last_of_all(
            when in prop_oneof![
                prop::sample::select(vec!["*/7 * * * *", "* 9 * * *", "@daily", "0 3 * * SUN", "0,1,2 4 1 * *"]).prop_map(cron),
                (60..500_000_u32).prop_map(|seconds| When::Every(Every::seconds(seconds).unwrap())),
            ],
            hours in 0..3_000_i64,
        ) {
            let made = at("2026-02-01T00:00:30Z");
            let first = when.next_after(made, made).unwrap();
            let now = Timestamp::from_unix_millis(made.unix_millis() + hours * 3_600_000);
            let all = from(&when, made, first, now, usize::MAX);
            let backlog = Backlog::find(&when, made, first, now);
            prop_assert_eq!(backlog.count, all.len().min(1000) as u64);
            prop_assert_eq!(&backlog.latest[..], &all[all.len().saturating_sub(10)..]);
        }
    }
}
