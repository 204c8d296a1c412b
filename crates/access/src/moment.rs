//! Points in time that can be written down and read again: the years up to 9999.
//!
//! Guarantees: no arithmetic overflows; a clock that was set absurdly writes no document that cannot be read.

use std::time::Duration;

use palyra_types::Timestamp;

/// So much later.
pub(crate) fn after(at: Timestamp, duration: Duration) -> Timestamp {
    let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    tellable(Timestamp::from_unix_millis(at.unix_millis().saturating_add(millis)))
}

/// How long from one point to a later one; nothing if it is not later.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    let millis = to.unix_millis().saturating_sub(from.unix_millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// The nearest point that can be written down.
pub(crate) fn tellable(at: Timestamp) -> Timestamp {
    Timestamp::from_unix_millis(at.unix_millis().clamp(FIRST, LAST))
}

/// The beginning of 1970.
const FIRST: i64 = 0;

/// The beginning of 9999.
const LAST: i64 = 253_370_764_800_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_that_is_told_reads_back() {
        for millis in [i64::MIN, -1, 0, 1_700_000_000_123, LAST, i64::MAX] {
            let told = tellable(Timestamp::from_unix_millis(millis));
            assert_eq!(Timestamp::parse(&told.to_string()), Ok(told));
        }
        assert_eq!(Timestamp::from_unix_millis(LAST).to_string(), "9999-01-01T00:00:00.000Z");
    }

    #[test]
    fn later_is_never_earlier() {
        let at = Timestamp::from_unix_millis(1_000);
        assert_eq!(after(at, Duration::from_secs(1)), Timestamp::from_unix_millis(2_000));
        assert_eq!(after(at, Duration::MAX), Timestamp::from_unix_millis(LAST));
        assert_eq!(between(at, Timestamp::from_unix_millis(3_000)), Duration::from_secs(2));
        assert_eq!(between(at, Timestamp::from_unix_millis(0)), Duration::ZERO);
    }
}
