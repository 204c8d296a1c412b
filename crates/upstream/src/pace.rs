//! How often a stream of events may begin again.
//!
//! Guarantees: the first begins at once, and each other after a pause that doubles from a second to five minutes; the pauses begin anew when
//! a stream has lasted for a minute. What a server says about when to come back makes it later, but never sooner.
//! Does not: begin streams. Whoever stops waiting takes nobody's turn.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// When the streams of one server begin.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Option<Begun>>);

/// The last stream that began.
#[derive(Debug, Clone, Copy)]
struct Begun {
    at: Instant,
    /// How long the next one waits from then on.
    pause: Duration,
}

impl Pace {
    /// Waits until a stream may begin.
    pub(crate) async fn turn(&self) {
        let asked = Instant::now();
        while let Some(then) = self.take(asked, Instant::now()) {
            sleep_until(then).await;
        }
    }

    /// Takes the turn of whoever asked for it then, or tells how long it has to wait.
    fn take(&self, asked: Instant, now: Instant) -> Option<Instant> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = match *last {
            Some(begun) if asked.saturating_duration_since(begun.at) <= LONG_ENOUGH => {
                let then = begun.at + begun.pause;
                if now < then {
                    return Some(then);
                }
                (begun.pause * 2).min(LONGEST_PAUSE)
            }
            Some(_) | None => FIRST_PAUSE,
        };
        *last = Some(Begun { at: now, pause });
        None
    }
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long a stream has to last for the next one to count as the first.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_end_at_once_begin_less_and_less_often() {
        let (pace, mut now) = (Pace::default(), Instant::now());
        assert_eq!(pace.take(now, now), None);
        let mut pauses = Vec::new();
        for _ in 0..11 {
            let then = pace.take(now, now).unwrap();
            pauses.push((then - now).as_secs());
            assert_eq!(pace.take(now, then), None);
            now = then;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        // One that lasts is followed at once, and the pauses begin anew.
        let later = now + LONG_ENOUGH + FIRST_PAUSE;
        assert_eq!(pace.take(later, later), None);
        assert_eq!(pace.take(later, later), Some(later + FIRST_PAUSE));
    }
}
