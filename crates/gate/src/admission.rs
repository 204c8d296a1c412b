//! How much is under way at once.
//!
//! Guarantees: no more than the configured number of calls run, and of those no more than a share for one principal; the others wait for
//! their turn, first come, first served. Reading proposals takes turns too, so that a flood of them holds up nobody's threads. Whoever has
//! too many calls under way, not counting those that a person is or was asked about, is turned away before anything of the next is read or written.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use palyra_types::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::CallsConfig;

/// Who has how much under way.
pub(crate) struct Admission {
    config: CallsConfig,
    running: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    shares: Mutex<HashMap<String, Share>>,
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
            config,
            running: Arc::new(Semaphore::new(size(config.most_running))),
            reading: Arc::new(Semaphore::new(READING)),
            shares: Mutex::default(),
        })
    }

    /// Lets a call of this principal in, unless it has too many under way; then says how many may be.
    pub(crate) fn enter(self: &Arc<Self>, principal: &Principal) -> Result<Place, usize> {
        let most = size(self.config.most_under_way_of_one);
        let kept = self.keep(principal);
        let entered = self.with(&kept.name, |share| {
            let fits = share.under_way < most;
            share.under_way += usize::from(fits);
            fits
        });
        if entered { Ok(Place { kept }) } else { Err(most) }
    }

    /// A turn to run, if there is one at once.
    pub(crate) fn turn_now(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let kept = self.keep(principal);
        let own = Arc::clone(&kept.running).try_acquire_owned().ok()?;
        let shared = Arc::clone(&self.running).try_acquire_owned().ok()?;
        Some(Turn { _own: own, _shared: shared, _kept: kept })
    }

    /// Waits for a turn to run.
    pub(crate) async fn turn(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let kept = self.keep(principal);
        // The principal's own first: whoever waits for that takes no turn from the others meanwhile.
        let own = Arc::clone(&kept.running).acquire_owned().await.ok()?;
        let shared = Arc::clone(&self.running).acquire_owned().await.ok()?;
        Some(Turn { _own: own, _shared: shared, _kept: kept })
    }

    /// Waits for a turn to read a proposal.
    pub(crate) async fn reading(self: &Arc<Self>, principal: &Principal) -> Option<Turn> {
        let kept = self.keep(principal);
        let own = Arc::clone(&kept.reading).acquire_owned().await.ok()?;
        let shared = Arc::clone(&self.reading).acquire_owned().await.ok()?;
        Some(Turn { _own: own, _shared: shared, _kept: kept })
    }

    fn keep(self: &Arc<Self>, principal: &Principal) -> Kept {
        let name = principal.to_string();
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(name.clone()).or_insert_with(|| Share {
            under_way: 0,
            users: 0,
            running: Arc::new(Semaphore::new(size(self.config.most_running_of_one))),
            reading: Arc::new(Semaphore::new(READING_OF_ONE)),
        });
        share.users += 1;
        let (running, reading) = (Arc::clone(&share.running), Arc::clone(&share.reading));
        Kept { running, reading, admission: Arc::clone(self), name }
    }

    fn with<T>(&self, name: &str, change: impl FnOnce(&mut Share) -> T) -> T
    where
        T: Default,
    {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.get_mut(name).map(change).unwrap_or_default()
    }
}

/// A call under way, until it is dropped.
pub(crate) struct Place {
    kept: Kept,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kept.admission.with(&self.kept.name, |share| share.under_way = share.under_way.saturating_sub(1));
    }
}

/// A turn to run or to read, until it is dropped.
pub(crate) struct Turn {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
    _kept: Kept,
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
        let mut shares = self.admission.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get_mut(&self.name) {
            share.users = share.users.saturating_sub(1);
            if share.users == 0 {
                shares.remove(&self.name);
            }
        }
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
        assert!(admission.shares.lock().unwrap().is_empty());
    }
}
