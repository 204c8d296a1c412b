//! Enclosures that wait: started ahead of need for places that are in use, and used once.
//!
//! Guarantees: one serves a call only if it was made for exactly the same profile, which names the principal and the workspace's own
//! directory; it is looked at once more when it is taken; it serves one call and is gone. There are never more of them than configured, and
//! none stays longer than configured without a call.
//! Does not: hold back a call that finds none. That one waits for a new one.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{enclosure::Enclosure, profile::Profile};

/// Where calls of one kind run: what their enclosures are made of.
#[derive(Debug)]
pub struct Place {
    /// What they are made of.
    pub profile: Profile,
    /// The workspace, open.
    pub workspace: OwnedFd,
}

/// How many wait, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmOptions {
    /// How many wait for each place in use; none for zero.
    pub each: usize,
    /// How many wait in all.
    pub most: usize,
    /// How long they wait without a call.
    pub idle: Duration,
}

/// The enclosures that wait.
#[derive(Debug)]
pub struct Stock {
    options: WarmOptions,
    shelves: Mutex<Vec<Shelf>>,
}

/// Those of one place. The place that was used last has the last shelf.
#[derive(Debug)]
struct Shelf {
    place: Arc<Place>,
    waiting: VecDeque<Enclosure>,
    /// How many are being started.
    coming: usize,
    used: Instant,
}

impl Stock {
    /// None yet.
    #[must_use]
    pub const fn new(options: WarmOptions) -> Self {
        Self { options, shelves: Mutex::new(Vec::new()) }
    }

    /// One that waits for this place, if there is one that is still there.
    pub fn take(&self, place: &Place) -> Option<Enclosure> {
        let mut shelves = self.shelves();
        let at = shelves.iter().position(|shelf| shelf.place.profile == place.profile)?;
        let mut shelf = shelves.remove(at);
        shelf.used = Instant::now();
        let found =
            std::iter::from_fn(|| shelf.waiting.pop_front()).find_map(|mut one| one.idle.is_alive().then_some(one));
        shelves.push(shelf);
        found
    }

    /// Whether one more is to be started for this place. Who is told so starts it and brings it, or says that it failed.
    pub fn reserve(&self, place: &Arc<Place>) -> bool {
        let WarmOptions { each, most, .. } = self.options;
        let mut shelves = self.shelves();
        if each == 0 {
            return false;
        }
        let at = match shelves.iter().position(|shelf| shelf.place.profile == place.profile) {
            Some(at) => at,
            None => {
                let place = Arc::clone(place);
                shelves.push(Shelf { place, waiting: VecDeque::new(), coming: 0, used: Instant::now() });
                shelves.len() - 1
            }
        };
        let wanted = shelves.get(at).is_some_and(|shelf| shelf.waiting.len() + shelf.coming < each);
        let all: usize = shelves.iter().map(|shelf| shelf.waiting.len() + shelf.coming).sum();
        // A place that has not been used for longer gives one of its own up.
        let room = all < most || make_room(&mut shelves, at);
        match shelves.get_mut(at).filter(|_| wanted && room) {
            Some(shelf) => {
                shelf.coming += 1;
                true
            }
            None => false,
        }
    }

    /// Brings one that was reserved, or says that it failed.
    pub fn bring(&self, place: &Place, started: Option<Enclosure>) {
        let mut shelves = self.shelves();
        // The place may have been cleared meanwhile; what was started for it is not kept then.
        let Some(shelf) = shelves.iter_mut().find(|shelf| shelf.place.profile == place.profile) else { return };
        if shelf.coming > 0 {
            shelf.coming -= 1;
            shelf.waiting.extend(started);
        }
    }

    /// Ends all that wait.
    pub fn clear(&self) {
        self.shelves().clear();
    }

    /// Ends those that have waited too long. Returns when to look again, if there are others.
    pub fn end_idle(&self) -> Option<Duration> {
        let mut shelves = self.shelves();
        let idle = self.options.idle;
        shelves.retain(|shelf| shelf.used.elapsed() < idle || shelf.coming > 0);
        shelves.iter().map(|shelf| idle.saturating_sub(shelf.used.elapsed())).min()
    }

    /// How many wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shelves().iter().map(|shelf| shelf.waiting.len()).sum()
    }

    fn shelves(&self) -> MutexGuard<'_, Vec<Shelf>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends one that waits for another place.
fn make_room(shelves: &mut [Shelf], but: usize) -> bool {
    let other = shelves.iter_mut().enumerate().find(|(at, shelf)| *at != but && !shelf.waiting.is_empty());
    other.is_some_and(|(_, shelf)| shelf.waiting.pop_front().is_some())
}
