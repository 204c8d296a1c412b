//! When something is over, whatever is done to the clock.
//!
//! Guarantees: a deadline passes when the wall clock says so or when that much time has gone by since the machine started, whichever is
//! first; setting the wall clock back never extends it; after a restart of the machine the wall clock counts from the latest time that was
//! ever recorded.

use std::time::Duration;

use palyra_types::{Clock, Timestamp};
use serde::{Deserialize, Serialize};

/// A moment after which something does not hold any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// By the wall clock.
    pub at: Timestamp,
    /// Which start of the machine the other clock counts from, as hexadecimal digits: a JSON number could not hold it.
    boot: BootName,
    /// By the clock that counts from there, in milliseconds.
    boot_millis: u64,
}

impl Deadline {
    /// This long from now.
    #[must_use]
    pub fn after(clock: &dyn Clock, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let wall = clock.now().unix_millis().saturating_add(i64::try_from(millis).unwrap_or(i64::MAX));
        let boot = clock.boot();
        Self {
            at: Timestamp::from_unix_millis(wall.min(LATEST)),
            boot: BootName(boot.boot),
            boot_millis: boot.millis.saturating_add(millis).min(LATEST.unsigned_abs()),
        }
    }

    /// Whether it has passed. `recorded` is the latest time that is known to have been.
    #[must_use]
    pub fn has_passed(&self, clock: &dyn Clock, recorded: Timestamp) -> bool {
        self.remaining(clock, recorded).is_zero()
    }

    /// How long until it passes, if nobody touches the clock.
    #[must_use]
    pub fn remaining(&self, clock: &dyn Clock, recorded: Timestamp) -> Duration {
        let boot = clock.boot();
        let same_boot = BootName(boot.boot) == self.boot;
        let now = if same_boot { clock.now() } else { clock.now().max(recorded) };
        let by_wall = self.at.unix_millis().saturating_sub(now.unix_millis());
        let by_wall = u64::try_from(by_wall).unwrap_or_default();
        let left = if same_boot { by_wall.min(self.boot_millis.saturating_sub(boot.millis)) } else { by_wall };
        Duration::from_millis(left)
    }

    /// Whether the machine was started anew since this deadline was set.
    #[must_use]
    pub fn is_from_another_boot(&self, clock: &dyn Clock) -> bool {
        BootName(clock.boot().boot) != self.boot
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BootName(u128);

impl Serialize for BootName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for BootName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Almost the end of the year 9999, which is as far as dates can be written in every time zone.
const LATEST: i64 = 253_402_128_000_000;

#[cfg(test)]
mod tests {
    use palyra_types::clock::ManualClock;

    use super::*;

    const START: Timestamp = Timestamp::from_unix_millis(1_770_000_000_000);

    fn minute() -> (ManualClock, Deadline) {
        let clock = ManualClock::at(START);
        let deadline = Deadline::after(&clock, Duration::from_secs(60));
        (clock, deadline)
    }

    #[test]
    fn it_passes_when_its_time_is_over_and_not_before() {
        let (clock, deadline) = minute();
        clock.advance(59_999);
        assert!(!deadline.has_passed(&clock, START));
        clock.advance(1);
        assert!(deadline.has_passed(&clock, START));
    }

    #[test]
    fn setting_the_clock_back_does_not_extend_it() {
        let (clock, deadline) = minute();
        clock.set_wall(Timestamp::from_unix_millis(START.unix_millis() - 3_600_000));
        clock.advance(59_999);
        assert!(!deadline.has_passed(&clock, START));
        clock.advance(1);
        assert!(deadline.has_passed(&clock, START));
    }

    #[test]
    fn setting_the_clock_forward_ends_it() {
        let (clock, deadline) = minute();
        clock.set_wall(Timestamp::from_unix_millis(START.unix_millis() + 60_000));
        assert!(deadline.has_passed(&clock, START));
    }

    #[test]
    fn after_a_restart_the_latest_recorded_time_counts() {
        let (clock, deadline) = minute();
        clock.reboot();
        clock.set_wall(Timestamp::from_unix_millis(START.unix_millis() - 3_600_000));
        assert!(deadline.is_from_another_boot(&clock));
        assert!(!deadline.has_passed(&clock, START));
        assert!(deadline.has_passed(&clock, Timestamp::from_unix_millis(START.unix_millis() + 60_000)));
    }

    #[test]
    fn it_survives_being_written_down() {
        let (clock, deadline) = minute();
        let text = serde_json::to_string(&deadline).unwrap();
        assert_eq!(serde_json::from_str::<Deadline>(&text).unwrap(), deadline);
        let forever = Deadline::after(&clock, Duration::MAX);
        assert_eq!(forever.at.to_string(), "9999-12-30T00:00:00.000Z");
        let text = serde_json::to_string(&forever).unwrap();
        assert_eq!(serde_json::from_str::<Deadline>(&text).unwrap(), forever);
    }
}
