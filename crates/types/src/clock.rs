//! Time as a parameter: a [`Clock`] is passed in, so that tests own it.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, in milliseconds since the Unix epoch, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// Reads an RFC 3339 date and time, such as `2026-03-02T09:30:00Z`.
    ///
    /// # Errors
    /// When the text is not such a date.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        jiff::Timestamp::from_str(text)
            .map(|time| Self(time.as_millisecond()))
            .map_err(|_| TimestampError { text: text.to_owned() })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{} ms since 1970", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a date was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an RFC 3339 date and time such as 2026-03-02T09:30:00Z", crate::visible::visible(.text))]
pub struct TimestampError {
    /// The text as given.
    pub text: String,
}

/// How long the machine has been up, sleep included, and which start of it is meant.
///
/// Unlike the wall clock nobody can set it, but it says nothing across a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootTime {
    /// Names one start of the machine.
    pub boot: u128,
    /// Milliseconds since then.
    pub millis: u64,
}

/// Something that knows what time it is.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// The time since the machine started.
    fn boot(&self) -> BootTime;
}

/// The machine's own clock. The one place that reads it.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    boot: u128,
}

impl SystemClock {
    /// The machine's clock. Where the kernel does not name its starts, each clock counts as a start of its own, so what must end with a
    /// restart of the machine ends with a restart of the program.
    #[must_use]
    pub fn new() -> Self {
        let named = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let boot = named.and_then(|id| u128::from_str_radix(&id.trim().replace('-', ""), 16).ok());
        let unnamed = || {
            let mut bytes = [0; 16];
            let _ = getrandom::fill(&mut bytes);
            u128::from_le_bytes(bytes)
        };
        Self { boot: boot.unwrap_or_else(unnamed) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else is given")]
        let now = SystemTime::now();
        let millis = match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
        };
        Timestamp(millis)
    }

    fn boot(&self) -> BootTime {
        BootTime { boot: self.boot, millis: since_start() }
    }
}

/// Milliseconds since the machine started, sleep included.
#[cfg(unix)]
fn since_start() -> u64 {
    // Elsewhere the monotonic clock is the one that goes on while the machine sleeps.
    #[cfg(target_os = "linux")]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let since = rustix::time::clock_gettime(CLOCK);
    let seconds = u64::try_from(since.tv_sec).unwrap_or_default();
    let millis = u64::try_from(since.tv_nsec / 1_000_000).unwrap_or_default();
    seconds.saturating_mul(1000).saturating_add(millis)
}

/// Milliseconds since this was asked first. Each program counts as a start of its own there.
#[cfg(not(unix))]
fn since_start() -> u64 {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let since = FIRST.get_or_init(std::time::Instant::now).elapsed();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A clock that moves when it is told to, for tests. Its wall clock can be set either way; its boot clock only runs on.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    boot: AtomicU64,
    since: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at this time, an hour after the machine started.
    #[must_use]
    pub const fn at(time: Timestamp) -> Self {
        Self { wall: AtomicI64::new(time.0), boot: AtomicU64::new(1), since: AtomicU64::new(3_600_000) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, millis: u32) {
        self.wall.fetch_add(i64::from(millis), Ordering::SeqCst);
        self.since.fetch_add(u64::from(millis), Ordering::SeqCst);
    }

    /// Sets the wall clock, forwards or backwards; no time passes.
    pub fn set_wall(&self, time: Timestamp) {
        self.wall.store(time.0, Ordering::SeqCst);
    }

    /// Restarts the machine.
    pub fn reboot(&self) {
        self.boot.fetch_add(1, Ordering::SeqCst);
        self.since.store(1_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall.load(Ordering::SeqCst))
    }

    fn boot(&self) -> BootTime {
        BootTime { boot: self.boot.load(Ordering::SeqCst).into(), millis: self.since.load(Ordering::SeqCst) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_survives_a_round_trip_through_text() {
        let time = Timestamp::parse("2026-03-02T09:30:00.250Z").unwrap();
        assert_eq!(time.to_string(), "2026-03-02T09:30:00.250Z");
        assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
        assert!(Timestamp::parse("yesterday").is_err());
    }

    #[test]
    fn two_clocks_of_one_machine_agree_about_its_start() {
        let (one, other) = (SystemClock::new(), SystemClock::new());
        assert_eq!(one.boot().boot, other.boot().boot);
        assert!(other.boot().millis >= one.boot().millis);
    }

    #[test]
    fn setting_the_wall_clock_does_not_move_the_boot_clock() {
        let clock = ManualClock::at(Timestamp(1_000_000));
        let before = clock.boot();
        clock.set_wall(Timestamp(5));
        assert_eq!((clock.now(), clock.boot()), (Timestamp(5), before));
    }
}
