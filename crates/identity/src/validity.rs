//! From when until when a certificate holds.
//!
//! Guarantees: whole seconds, as certificates have them, between 1970 and the end of the year 9999, whatever the clock says.

use std::time::Duration;

use palyra_types::Timestamp;
use rcgen::{CertificateParams, date_time_ymd};

/// A span of time. Both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub from: Timestamp,
    /// The last moment.
    pub until: Timestamp,
}

impl Validity {
    /// This long, from a while before a moment: clocks do not agree to the second.
    #[must_use]
    pub(crate) fn starting(before: Duration, now: Timestamp, length: Duration) -> Self {
        let from = whole_seconds(now.unix_millis().saturating_sub(millis(before)));
        Self { from, until: whole_seconds(from.unix_millis().saturating_add(millis(length))) }
    }

    /// The same span, ending no later than this.
    #[must_use]
    pub(crate) fn no_later_than(self, end: Timestamp) -> Self {
        Self { from: self.from, until: self.until.min(end) }
    }

    /// From what X.509 says, in seconds.
    pub(crate) fn of_seconds(from: i64, until: i64) -> Self {
        let time = |seconds: i64| whole_seconds(seconds.saturating_mul(1_000));
        Self { from: time(from), until: time(until) }
    }

    /// Writes the span into a certificate.
    pub(crate) fn put_into(self, params: &mut CertificateParams) {
        let since_1970 = |time: Timestamp| Duration::from_millis(u64::try_from(time.unix_millis()).unwrap_or_default());
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(self.from);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(self.until);
    }

    /// Whether it is time for a new certificate.
    #[must_use]
    pub fn renewal_is_due(self, now: Timestamp) -> bool {
        renewal_is_due(self.from, self.until, now)
    }
}

/// Whether it is time for a new certificate: a third of its life is left, or less.
#[must_use]
pub fn renewal_is_due(from: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    let [from, until, now] = [from, until, now].map(|time| i128::from(time.unix_millis()));
    (until - now) * 3 <= until - from
}

// INVARIANT: what comes out is between the two ends of what a certificate can say, so that adding it to 1970 cannot overflow.
fn whole_seconds(unix_millis: i64) -> Timestamp {
    let clamped = unix_millis.clamp(0, LATEST);
    Timestamp::from_unix_millis(clamped - clamped % 1_000)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Almost the end of the year 9999.
const LATEST: i64 = 253_402_128_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    #[test]
    fn a_span_starts_before_now_and_has_whole_seconds() {
        let span = Validity::starting(Duration::from_secs(60), at(1_770_000_000_999), Duration::from_secs(3_600));
        assert_eq!(span, Validity { from: at(1_769_999_940_000), until: at(1_770_003_540_000) });
    }

    #[test]
    fn no_clock_makes_a_span_that_cannot_be_written() {
        for now in [i64::MIN, -1, 0, i64::MAX] {
            let span = Validity::starting(Duration::MAX, at(now), Duration::MAX);
            let mut params = CertificateParams::default();
            span.put_into(&mut params);
            assert!(span.from <= span.until && span.until <= at(LATEST), "{now}");
        }
    }

    #[test]
    fn renewal_is_due_when_a_third_is_left_and_not_before() {
        let span = Validity { from: at(0), until: at(90_000) };
        assert!(!span.renewal_is_due(at(59_999)));
        assert!(span.renewal_is_due(at(60_000)));
        assert!(span.renewal_is_due(at(1_000_000)));
        assert!(renewal_is_due(at(i64::MIN), at(i64::MAX), at(i64::MAX)));
    }
}
