//! When a request is sent again.
//!
//! Guarantees: waits grow, differ by chance so that those who failed together do not come back together, and are bounded one by one and
//! in sum; a provider that asks for more patience than there is, is not asked again.

use std::time::Duration;

use http::HeaderValue;
use jiff::fmt::rfc2822::DateTimeParser;
use palyra_types::{Clock, Entropy};

/// How long to wait before a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait at the most. Each further one is twice as long.
    pub first: Duration,
    /// The longest wait of our own choosing.
    pub longest: Duration,
    /// The longest wait that a provider may ask for.
    pub longest_asked: Duration,
    /// All waits of one request together.
    pub total: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            longest: Duration::from_secs(5),
            longest_asked: Duration::from_secs(20),
            total: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// How long to wait after this failed attempt, counted from one, having waited so long before. None when it is not worth it.
    pub(crate) fn wait(
        &self,
        attempt: u32,
        asked: Option<Duration>,
        waited: Duration,
        entropy: &dyn Entropy,
    ) -> Option<Duration> {
        let wait = match asked {
            Some(asked) if asked > self.longest_asked => return None,
            Some(asked) => asked.max(self.own(1, entropy)),
            None => self.own(attempt, entropy),
        };
        (waited.saturating_add(wait) <= self.total).then_some(wait)
    }

    /// Between half and all of the wait that is due.
    fn own(&self, attempt: u32, entropy: &dyn Entropy) -> Duration {
        let doublings = attempt.saturating_sub(1).min(20);
        let due = self.first.saturating_mul(1 << doublings).min(self.longest);
        let mut chance = [0; 4];
        // Without chance the wait is whole, which is as good for a single client.
        let share = match entropy.fill(&mut chance) {
            Ok(()) => f64::from(u32::from_le_bytes(chance)) / f64::from(u32::MAX),
            Err(_) => 1.0,
        };
        due.mul_f64(0.5 + share / 2.0)
    }
}

/// Reads `Retry-After`: seconds, or a date. What is neither says nothing, and a date that is past says no wait.
pub(crate) fn retry_after(value: &HeaderValue, clock: &dyn Clock) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are a very long time.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    let left = date.as_millisecond().saturating_sub(clock.now().unix_millis());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use palyra_types::{
        Timestamp,
        clock::ManualClock,
        entropy::{NoEntropy, SeededEntropy},
    };

    use super::*;

    struct Nothing;

    impl Entropy for Nothing {
        fn fill(&self, _: &mut [u8]) -> Result<(), NoEntropy> {
            Err(NoEntropy)
        }
    }

    fn wait(attempt: u32, asked: Option<u64>, waited: u64) -> Option<Duration> {
        let (asked, waited) = (asked.map(Duration::from_secs), Duration::from_secs(waited));
        Backoff::default().wait(attempt, asked, waited, &Nothing)
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits = (1..=7).map(|attempt| wait(attempt, None, 0).unwrap().as_millis());
        assert_eq!(waits.collect::<Vec<_>>(), [250, 500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(wait(u32::MAX, None, 0), Some(Duration::from_secs(5)));
    }

    #[test]
    fn chance_takes_up_to_half_of_a_wait() {
        let entropy = SeededEntropy::new(7);
        let waits: Vec<_> =
            (0..200).map(|_| Backoff::default().wait(3, None, Duration::ZERO, &entropy).unwrap()).collect();
        assert!(waits.iter().all(|wait| (500..=1000).contains(&wait.as_millis())));
        assert!(waits.iter().max().unwrap().as_millis() - waits.iter().min().unwrap().as_millis() > 300);
    }

    #[test]
    fn a_provider_is_given_the_time_that_it_asks_for_or_not_asked_again() {
        assert_eq!(wait(1, Some(20), 0), Some(Duration::from_secs(20)));
        assert_eq!(wait(1, Some(21), 0), None);
        assert_eq!(wait(1, Some(0), 0), Some(Duration::from_millis(250)));
    }

    #[test]
    fn all_waits_together_are_bounded() {
        assert_eq!(wait(1, Some(20), 10), Some(Duration::from_secs(20)));
        assert_eq!(wait(1, Some(20), 11), None);
        assert_eq!(wait(1, None, 30), None);
    }

    #[test]
    fn a_wait_is_told_in_seconds_or_as_a_date() {
        let clock = ManualClock::at(Timestamp::parse("2026-03-02T09:30:00Z").unwrap());
        let read = |text: &'static str| retry_after(&HeaderValue::from_static(text), &clock);
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Mon, 02 Mar 2026 09:30:12 GMT"), Some(Duration::from_secs(12)));
        assert_eq!(read("Mon, 02 Mar 2026 09:29:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
        for text in ["", "soon", "-1", "1.5"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
