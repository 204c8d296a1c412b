//! Leaves a provider alone that failed too often, and finds out when it is back.
//!
//! Guarantees: after so many failures in a row nothing is sent for a while; then one request at a time is let through, and the first that
//! is answered ends it. A request that is given up midway does not keep others out. Only whole answers forgive failures, so a provider
//! that begins every answer and ends none is left alone, too.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use palyra_types::{Clock, Timestamp};

/// Leaves a provider alone that failed too often.
pub(crate) struct Breaker {
    most_failures: u32,
    open_for: Duration,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

/// Whether a provider is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// It is asked.
    Closed,
    /// It is left alone.
    Open {
        /// When it is tried again.
        until: Timestamp,
    },
    /// The next request finds out whether it is back, or one is doing so.
    HalfOpen,
}

impl Breaker {
    /// Lets everything through until so many failures have come in a row, and then nothing for so long.
    pub(crate) const fn new(most_failures: u32, open_for: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { most_failures, open_for, clock, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    /// Lets a request through, or says until when there is no point in asking.
    pub(crate) fn admit(&self) -> Result<Pass<'_>, Timestamp> {
        let now = self.clock.boot().millis;
        let mut state = self.lock();
        let probes = match *state {
            State::Closed { .. } => false,
            State::Open { until } if now < until => return Err(self.wall(now, until)),
            State::Probing { .. } => return Err(self.wall(now, now.saturating_add(PROBE_PATIENCE))),
            State::Open { .. } | State::HalfOpen => true,
        };
        if probes {
            *state = State::Probing {};
        }
        Ok(Pass { breaker: self, probes })
    }

    /// Whether a request would be let through now.
    pub(crate) fn state(&self) -> BreakerState {
        let now = self.clock.boot().millis;
        match *self.lock() {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { until } if now < until => BreakerState::Open { until: self.wall(now, until) },
            State::Open { .. } | State::HalfOpen | State::Probing { .. } => BreakerState::HalfOpen,
        }
    }

    /// A whole answer came, which forgives failures before it.
    pub(crate) fn answered(&self) {
        if let State::Closed { failures } = &mut *self.lock() {
            *failures = 0;
        }
    }

    /// A request that had been let through failed later on.
    pub(crate) fn failed(&self) {
        let mut state = self.lock();
        if let State::Closed { failures } = &mut *state {
            *failures = failures.saturating_add(1);
            if *failures >= self.most_failures {
                *state = self.opened();
            }
        }
    }

    fn opened(&self) -> State {
        let open_for = u64::try_from(self.open_for.as_millis()).unwrap_or(u64::MAX);
        State::Open { until: self.clock.boot().millis.saturating_add(open_for) }
    }

    /// When the machine will have been up for so long. People read the wall clock; waiting follows the one that nobody sets.
    fn wall(&self, now: u64, until: u64) -> Timestamp {
        let left = i64::try_from(until.saturating_sub(now)).unwrap_or(i64::MAX);
        Timestamp::from_unix_millis(self.clock.now().unix_millis().saturating_add(left))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that was let through. Dropped without a word, it says nothing about the provider.
#[must_use = "the breaker wants to know how it went"]
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
    probes: bool,
}

impl Pass<'_> {
    /// The provider is there.
    pub(crate) fn alive(mut self) {
        if std::mem::take(&mut self.probes) {
            *self.breaker.lock() = State::Closed { failures: 0 };
        }
    }

    /// The provider failed.
    pub(crate) fn failed(mut self) {
        if std::mem::take(&mut self.probes) {
            let opened = self.breaker.opened();
            *self.breaker.lock() = opened;
        } else {
            self.breaker.failed();
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.probes {
            *self.breaker.lock() = State::HalfOpen;
        }
    }
}

/// Times are milliseconds since the machine started.
enum State {
    Closed { failures: u32 },
    Open { until: u64 },
    HalfOpen,
    Probing {},
}

/// While one request finds out, others are told to come back after this many milliseconds.
const PROBE_PATIENCE: u64 = 1_000;

#[cfg(test)]
mod tests {
    use palyra_types::clock::ManualClock;

    use super::*;

    fn breaker() -> (Breaker, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_000_000)));
        (Breaker::new(2, Duration::from_secs(30), clock.clone()), clock)
    }

    fn fail(breaker: &Breaker) {
        breaker.admit().ok().unwrap().failed();
    }

    fn refused(breaker: &Breaker) -> i64 {
        breaker.admit().err().unwrap().unix_millis()
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_says_until_when() {
        let (breaker, clock) = breaker();
        fail(&breaker);
        breaker.answered();
        fail(&breaker);
        assert_eq!(breaker.state(), BreakerState::Closed);
        fail(&breaker);
        assert_eq!(refused(&breaker), 1_030_000);
        clock.advance(29_999);
        assert_eq!(refused(&breaker), 1_030_000);
        assert_eq!(breaker.state(), BreakerState::Open { until: Timestamp::from_unix_millis(1_030_000) });
    }

    #[test]
    fn setting_the_wall_clock_ends_nothing() {
        let (breaker, clock) = breaker();
        (0..2).for_each(|_| fail(&breaker));
        clock.set_wall(Timestamp::from_unix_millis(9_000_000));
        assert_eq!(refused(&breaker), 9_030_000);
    }

    #[test]
    fn one_request_at_a_time_finds_out_and_an_answer_ends_it() {
        let (breaker, clock) = breaker();
        (0..2).for_each(|_| fail(&breaker));
        clock.advance(30_000);
        let probe = breaker.admit().ok().unwrap();
        assert_eq!((refused(&breaker), breaker.state()), (1_031_000, BreakerState::HalfOpen));
        probe.alive();
        assert_eq!(breaker.state(), BreakerState::Closed);
        fail(&breaker);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn one_failure_on_the_way_back_opens_it_again() {
        let (breaker, clock) = breaker();
        (0..2).for_each(|_| fail(&breaker));
        clock.advance(30_000);
        fail(&breaker);
        assert_eq!(refused(&breaker), 1_060_000);
    }

    #[test]
    fn a_request_that_is_given_up_lets_the_next_one_find_out() {
        let (breaker, clock) = breaker();
        (0..2).for_each(|_| fail(&breaker));
        clock.advance(30_000);
        drop(breaker.admit().ok().unwrap());
        let next = breaker.admit().ok().unwrap();
        next.alive();
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn what_was_let_through_before_changes_nothing_afterwards() {
        let (breaker, _clock) = breaker();
        let (early, late) = (breaker.admit().ok().unwrap(), breaker.admit().ok().unwrap());
        (0..2).for_each(|_| fail(&breaker));
        early.alive();
        breaker.answered();
        late.failed();
        assert_eq!(refused(&breaker), 1_030_000);
    }
}
