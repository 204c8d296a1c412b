//! How much is under way at once.
//!
//! Guarantees: no more than the configured number of calls run, and of those no more than a share for one principal; the others wait for
//! their turn, first come, first served. Reading proposals takes turns too, so that a flood of them holds up nobody's threads. Whoever has
//! too many calls under way, not counting those that a person is or was asked about, is turned away before anything of the next is read or written.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use palyra_types::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::CallsConfig;

/// Who has how much under way.
pub(crate) struct Admission {
    running: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    shares: Mutex<Shares>,
}

/// What every principal has under way, and may have.
struct Shares {
    config: CallsConfig,
    of: HashMap<String, Share>,
}

/// What one principal has under way.
struct Share {
    /// Calls that wait for no person.
    under_way: usize,
    /// Everything that keeps this entry.
    users: usize,
    running: Arc<Semaphore>,
    reading: Arc<Semaphore>,
}

impl Admission {
    pub(crate) fn new(config: CallsConfig) -> Arc<Self> {
        Arc::new(Self {
            running: Arc::new(Semaphore::new(size(config.most_running))),
            reading: Arc::new(Semaphore::new(READING)),
            shares: Mutex::new(Shares { config, of: HashMap::new() }),
        })
    }

    /// Other bounds hold from now on. What runs goes on; a narrower bound holds once enough of it is over, and behind those that wait for
    /// their turn already.
    ///
    /// Must be called within a tokio runtime.
    pub(crate) fn resize(&self, config: CallsConfig) {
        let mut shares = self.shares();
        let known = std::mem::replace(&mut shares.config, config);
        adjust(&self.running, size(known.most_running), size(config.most_running));
        for share in shares.of.values() {
            adjust(&share.running, size(known.most_running_of_one), size(config.most_running_of_one));
        }
    }

    /// Lets a call of this principal in, unless it has too many under way; then says how many may be.
    pub(crate) fn enter(self: &Arc<Self>, principal: &Principal) -> Result<Place, usize> {
        let kept = self.keep(principal);
        let mut shares = self.shares();
        let most = size(shares.config.most_under_way_of_one);
        let entered = shares.of.get_mut(&kept.name).is_some_and(|share| {
            let fits = share.under_way < most;
            share.under_way += usize::from(fits);
            fits
        });
        drop(shares);
        if entered { Ok(Place { kept }) } else { Err(most) }
    }

    /// A turn to run, if there is one at once.
    pub(crate) fn turn_now(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let kept = self.keep(principal);
        let own = Arc::clone(&kept.running).try_acquire_owned().ok()?;
        let shared = Arc::clone(&self.running).try_acquire_owned().ok()?;
        Some(Turn { _taken: Some(Taken { _own: own, _shared: shared, _kept: kept }) })
    }

    /// Waits for a turn to run.
    pub(crate) async fn turn(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let kept = self.keep(principal);
        // The principal's own first: whoever waits for that takes no turn from the others meanwhile.
        let own = Arc::clone(&kept.running).acquire_owned().await.ok()?;
        let shared = Arc::clone(&self.running).acquire_owned().await.ok()?;
        Some(Turn { _taken: Some(Taken { _own: own, _shared: shared, _kept: kept }) })
    }

    /// Waits for a turn to read a proposal.
    pub(crate) async fn reading(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let kept = self.keep(principal);
        let own = Arc::clone(&kept.reading).acquire_owned().await.ok()?;
        let shared = Arc::clone(&self.reading).acquire_owned().await.ok()?;
        Some(Turn { _taken: Some(Taken { _own: own, _shared: shared, _kept: kept }) })
    }

    fn keep(self: &Arc<Self>, principal: &Principal) -> Kept {
        let name = principal.to_string();
        let mut shares = self.shares();
        let most_running = size(shares.config.most_running_of_one);
        let share = shares.of.entry(name.clone()).or_insert_with(|| Share {
            under_way: 0,
            users: 0,
            running: Arc::new(Semaphore::new(most_running)),
            reading: Arc::new(Semaphore::new(READING_OF_ONE)),
        });
        share.users += 1;
        let (running, reading) = (Arc::clone(&share.running), Arc::clone(&share.reading));
        Kept { running, reading, admission: Arc::clone(self), name }
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way, until it is dropped.
pub(crate) struct Place {
    kept: Kept,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(share) = self.kept.admission.shares().of.get_mut(&self.kept.name) {
            share.under_way = share.under_way.saturating_sub(1);
        }
    }
}

/// A turn to run or to read, until it is dropped.
pub(crate) struct Turn {
    _taken: Option<Taken>,
}

struct Taken {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
    _kept: Kept,
}

impl Turn {
    /// A turn for what belongs to a call that has one already. Waiting for another, the two could wait for each other.
    pub(crate) const fn within_another() -> Self {
        Self { _taken: None }
    }
}

/// Keeps what is known about a principal as long as it has anything under way, and no longer.
struct Kept {
    admission: Arc<Admission>,
    name: String,
    running: Arc<Semaphore>,
    reading: Arc<Semaphore>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut shares = self.admission.shares();
        if let Some(share) = shares.of.get_mut(&self.name) {
            share.users = share.users.saturating_sub(1);
            if share.users == 0 {
                shares.of.remove(&self.name);
            }
        }
    }
}

/// Gives out more turns, or takes some away as they come back. Turns are given in order, so nobody gets one meanwhile who came later.
fn adjust(turns: &Arc<Semaphore>, known: usize, wanted: usize) {
    turns.add_permits(wanted.saturating_sub(known));
    let fewer = u32::try_from(known.saturating_sub(wanted)).unwrap_or(u32::MAX);
    if fewer > 0 {
        let taken = Arc::clone(turns).acquire_many_owned(fewer);
        tokio::spawn(async move { taken.await.map(OwnedSemaphorePermit::forget) });
    }
}

fn size(limit: NonZeroU32) -> usize {
    usize::try_from(limit.get()).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS)
}

/// How many proposals are read at the same time. Reading is short, and mostly waits for the disk.
const READING: usize = 32;

/// How many of them may be one principal's.
const READING_OF_ONE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Principal {
        Principal::parse(&format!("agent:{name}")).unwrap()
    }

    fn admission() -> Arc<Admission> {
        let some = |limit| NonZeroU32::new(limit).unwrap();
        Admission::new(CallsConfig {
            most_running: some(3),
            most_running_of_one: some(2),
            most_under_way_of_one: some(2),
        })
    }

    #[tokio::test]
    async fn one_principal_never_takes_every_turn() {
        let admission = admission();
        let first = admission.turn_now(&agent("a")).unwrap();
        let _second = admission.turn_now(&agent("a")).unwrap();
        assert!(admission.turn_now(&agent("a")).is_none());
        let _other = admission.turn_now(&agent("b")).unwrap();
        assert!(admission.turn_now(&agent("b")).is_none(), "all turns are taken");
        let waits = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.turn(&agent("b")).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(first);
        assert!(waits.await.unwrap());
    }

    #[tokio::test]
    async fn whoever_has_too_many_under_way_is_turned_away_until_one_is_over() {
        let admission = admission();
        let first = admission.enter(&agent("a")).ok().unwrap();
        let _second = admission.enter(&agent("a")).ok().unwrap();
        assert_eq!(admission.enter(&agent("a")).err(), Some(2));
        assert!(admission.enter(&agent("b")).is_ok());
        drop(first);
        assert!(admission.enter(&agent("a")).is_ok());
    }

    #[tokio::test]
    async fn nothing_is_kept_about_principals_that_are_gone() {
        let admission = admission();
        for number in 0..100 {
            let agent = agent(&format!("a{number}"));
            let _place = admission.enter(&agent).ok().unwrap();
            let _turn = admission.turn(&agent).await.unwrap();
        }
        assert!(admission.shares().of.is_empty());
    }

    #[tokio::test]
    async fn other_bounds_hold_for_whoever_is_there_already() {
        let admission = admission();
        let some = |limit| NonZeroU32::new(limit).unwrap();
        let bounds = |running| CallsConfig {
            most_running: some(running),
            most_running_of_one: some(running),
            most_under_way_of_one: some(running),
        };
        let _place = admission.enter(&agent("a")).ok().unwrap();
        let mut turns = vec![admission.turn_now(&agent("a")).unwrap(), admission.turn_now(&agent("a")).unwrap()];
        admission.resize(bounds(4));
        turns.extend([admission.turn_now(&agent("a")).unwrap(), admission.turn_now(&agent("a")).unwrap()]);
        assert!(admission.turn_now(&agent("a")).is_none());
        admission.resize(bounds(1));
        assert_eq!(admission.enter(&agent("a")).err(), Some(1));
        for _ in 0..3 {
            tokio::task::yield_now().await;
            turns.pop();
            tokio::task::yield_now().await;
            assert!(admission.turn_now(&agent("a")).is_none(), "{} still run", turns.len());
        }
        turns.clear();
        let _one = admission.turn_now(&agent("a")).unwrap();
        assert!(admission.turn_now(&agent("a")).is_none());
    }
}
