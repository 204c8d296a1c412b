//! How many servers run at once, and stopping all of them.
//!
//! Guarantees: a server has a place from before it is looked for until its end is on record; there are never more than configured. Once the gate is
//! stopping, no server starts, and each that runs is told to end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use palyra_sandbox::{StopCause, Stopper};

use crate::{gate::Inner, refusal::Refusal};

/// The places of servers.
#[derive(Default)]
pub(crate) struct ServerPlaces(Mutex<Places>);

#[derive(Default)]
struct Places {
    next: u64,
    /// What each is stopped by, once it runs.
    taken: BTreeMap<u64, Option<Stopper>>,
}

impl ServerPlaces {
    /// Tells all to end, because the daemon does. Says how many there are.
    pub(crate) fn stop_all(&self) -> usize {
        let places = self.lock();
        places.taken.values().flatten().for_each(|stopper| stopper.stop(StopCause::Shutdown));
        places.taken.len()
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one server, until this is dropped.
pub(super) struct ServerPlace {
    inner: Arc<Inner>,
    number: u64,
}

impl ServerPlace {
    /// Takes one.
    pub(super) fn take(inner: &Arc<Inner>) -> Result<Self, Refusal> {
        let limit = usize::from(inner.settings.load().config.sandbox.servers.most);
        let mut places = inner.servers.lock();
        if places.taken.len() >= limit {
            return Err(Refusal::TooManyServers { limit });
        }
        let number = places.next;
        places.next += 1;
        places.taken.insert(number, None);
        drop(places);
        let place = Self { inner: Arc::clone(inner), number };
        // Asked only now: whoever stops the gate meets everybody who has a place.
        if inner.is_stopping() { Err(Refusal::Stopping { goes_on: false }) } else { Ok(place) }
    }

    /// What it is stopped by from now on.
    pub(super) fn runs(&self, stopper: &Stopper) {
        self.inner.servers.lock().taken.insert(self.number, Some(stopper.clone()));
        if self.inner.is_stopping() {
            stopper.stop(StopCause::Shutdown);
        }
    }
}

impl Drop for ServerPlace {
    fn drop(&mut self) {
        self.inner.servers.lock().taken.remove(&self.number);
        self.inner.left.notify_waiters();
    }
}
