//! How fast programs may go: pace by GCRA, and how much may be under way at once.
//!
//! Guarantees: a token's family has one pace and one set of slots, and so has the device of a program; a principal has one pace over all of
//! them, for the life of the process. Neither rotating nor minting nor pairing nor any other change of the registry resets them. A request
//! that is refused takes nothing from any of them.
//! Does not: survive a restart, and does not bind the devices of people.
//!
//! A pace of `n` a minute lets one request through every `60/n` seconds, and a sixth of `n` at once after a pause (at least 10, but
//! never more than `n`): see [`burst`].

use std::{
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock as GovernorClock, Reference},
    middleware::StateInformationMiddleware,
    nanos::Nanos,
    state::StateStore,
};
use palyra_types::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What bounds the requests of one token, or of a program's device: the pace and the slots of its line, and its principal's pace.
#[derive(Debug)]
pub struct Meter {
    family: Arc<Family>,
    principal: Arc<Pace>,
}

impl Meter {
    pub(crate) const fn new(family: Arc<Family>, principal: Arc<Pace>) -> Self {
        Self { family, principal }
    }

    /// Lets a request in, until the pass is dropped.
    ///
    /// # Errors
    /// When the family or the principal goes too fast, or the family has too much under way. Nothing is taken then.
    pub fn enter(&self) -> Result<Pass, Limited> {
        let slot = Arc::clone(&self.family.slots).try_acquire_owned().map_err(|_| Limited {
            limit: self.family.concurrent,
            retry_after: SLOT_AGAIN,
            what: Bound::Concurrency,
        })?;
        // INVARIANT: a family belongs to one principal, so whoever holds the principal's turn is alone with both paces.
        let turn = self.principal.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let family = &self.family.pace;
        family.ask(Ask::Look).map_err(|retry_after| family.limited(retry_after, Bound::Family))?;
        let principal = &self.principal;
        let left = principal.ask(Ask::Take).map_err(|retry_after| principal.limited(retry_after, Bound::Principal))?;
        let remaining = family.ask(Ask::Take).map_err(|retry_after| family.limited(retry_after, Bound::Family))?;
        drop(turn);
        Ok(Pass {
            limit: family.per_minute.get(),
            remaining: remaining.min(left),
            reset_seconds: family.whole_in(),
            _slot: slot,
        })
    }
}

/// A request that was let in. Whoever drops it leaves.
#[derive(Debug)]
#[must_use = "a request has left when its pass is dropped"]
pub struct Pass {
    /// How many requests a minute the token's family, or the device, may make.
    pub limit: u32,
    /// How many more could be made at once now.
    pub remaining: u32,
    /// After how many seconds of rest as many as ever can be made at once.
    pub reset_seconds: u64,
    _slot: OwnedSemaphorePermit,
}

/// A request that was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct Limited {
    /// The limit: requests a minute, or requests at once.
    pub limit: u32,
    /// When it is worth trying again.
    pub retry_after: Duration,
    /// Which limit it is.
    pub what: Bound,
}

/// The limits that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The pace of a token's family, or of a device.
    Family,
    /// The pace of a principal, over all of its tokens and devices.
    Principal,
    /// What a token's family, or a device, has under way at once.
    Concurrency,
}

impl Limited {
    fn told(&self) -> String {
        match self.what {
            Bound::Family => format!("this credential makes more than {} requests a minute", self.limit),
            Bound::Principal => format!("the principal makes more than {} requests a minute", self.limit),
            Bound::Concurrency => format!("this credential has {} requests under way, which is the limit", self.limit),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self.what {
            Bound::Family | Bound::Principal => {
                format!("wait {} s before the next request", self.retry_seconds())
            }
            Bound::Concurrency => "wait for some of them first".to_owned(),
        }
    }

    /// When it is worth trying again, in whole seconds and at least one.
    #[must_use]
    pub fn retry_seconds(&self) -> u64 {
        let millis = u64::try_from(self.retry_after.as_millis()).unwrap_or(u64::MAX);
        millis.div_ceil(1_000).max(1)
    }
}

/// What all tokens of a family share, or what a device has for itself.
#[derive(Debug)]
pub(crate) struct Family {
    pace: Pace,
    concurrent: u32,
    slots: Arc<Semaphore>,
}

impl Family {
    pub(crate) fn new(per_minute: u32, concurrent: u32, clock: &Arc<dyn Clock>) -> Self {
        let slots = usize::try_from(concurrent).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let per_minute = NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN);
        Self { pace: Pace::new(per_minute, clock), concurrent, slots: Arc::new(Semaphore::new(slots)) }
    }
}

/// One pace.
pub(crate) struct Pace {
    per_minute: NonZeroU32,
    limiter: RateLimiter<Ask, Arrival, BootClock, StateInformationMiddleware>,
    arrival: Arc<AtomicU64>,
    start: Nanos,
    turn: Mutex<()>,
}

impl Pace {
    pub(crate) fn new(per_minute: NonZeroU32, clock: &Arc<dyn Clock>) -> Self {
        let clock = BootClock(Arc::clone(clock));
        let quota = Quota::per_minute(per_minute).allow_burst(burst(per_minute));
        let arrival = Arc::<AtomicU64>::default();
        let start = clock.now();
        let limiter = RateLimiter::new(quota, Arrival(Arc::clone(&arrival)), clock);
        Self { per_minute, limiter, arrival, start, turn: Mutex::new(()) }
    }

    /// How many more could go at once, or how long to wait.
    fn ask(&self, ask: Ask) -> Result<u32, Duration> {
        match self.limiter.check_key(&ask) {
            Ok(left) => Ok(left.remaining_burst_capacity()),
            Err(until) => Err(until.wait_time_from(self.limiter.clock().now())),
        }
    }

    fn limited(&self, retry_after: Duration, what: Bound) -> Limited {
        Limited { limit: self.per_minute.get(), retry_after, what }
    }

    /// After how many seconds of rest the whole burst is there again.
    fn whole_in(&self) -> u64 {
        let now = self.limiter.clock().now().duration_since(self.start);
        let whole = Nanos::from(self.arrival.load(Ordering::Acquire));
        whole.saturating_sub(now).as_u64().div_ceil(1_000_000_000)
    }
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pace({} a minute)", self.per_minute)
    }
}

/// Whether a request is made, or it is only asked whether it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ask {
    Look,
    Take,
}

/// When the next request is expected: all that GCRA keeps. Zero before the first.
struct Arrival(Arc<AtomicU64>);

impl StateStore for Arrival {
    type Key = Ask;

    fn measure_and_replace<T, F, E>(&self, ask: &Ask, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut found = self.0.load(Ordering::Acquire);
        loop {
            let (answer, next) = decide(Some(found).filter(|&found| found != 0).map(Nanos::from))?;
            if *ask == Ask::Look {
                return Ok(answer);
            }
            match self.0.compare_exchange_weak(found, next.into(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(answer),
                Err(other) => found = other,
            }
        }
    }
}

/// The clock that counts from the machine's start: setting the wall clock neither frees nor blocks anybody.
struct BootClock(Arc<dyn Clock>);

impl GovernorClock for BootClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        // Leaves room for what is added to it.
        Nanos::from(self.0.boot().millis.saturating_mul(1_000_000).min(u64::MAX / 4))
    }
}

/// How many requests go at once after a pause: a sixth of a minute's, at least 10, never more than a minute's.
#[must_use]
pub fn burst(per_minute: NonZeroU32) -> NonZeroU32 {
    let burst = (per_minute.get() / 6).max(10).min(per_minute.get());
    NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN)
}

/// How many requests a minute a principal may make, over all of its tokens and devices, if nobody says otherwise.
pub const DEFAULT_PRINCIPAL_RATE_LIMIT_PER_MINUTE: NonZeroU32 = NonZeroU32::new(3_000).unwrap();

/// Nobody knows when a slot is free; a second is long for a request and short for whoever waits.
const SLOT_AGAIN: Duration = Duration::from_secs(1);
