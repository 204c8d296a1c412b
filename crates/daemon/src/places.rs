//! The places of a listener: who has one, and who loses it when there are none left.
//!
//! Guarantees: there are so many places and no more. Whoever has shown no credential keeps nobody out: when a place is needed, the one of them
//! that came first goes, and if there is none, whoever is known and has been idle longest. Whoever is known and waits for an answer, or is
//! still being told it, stays. Agents have at most half of the places for requests under way; the rest is left to people.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;

use crate::failure::Failure;

/// The places of one listener.
pub struct Places {
    most: usize,
    kept: Mutex<Kept>,
}

impl Places {
    /// So many places.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, kept: Mutex::default() })
    }

    /// A place for a connection, and what tells when it is lost. None when all are taken by those who stay.
    pub fn enter(self: &Arc<Self>) -> Option<(Place, Lost)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.holders.len() >= self.most && !kept.make_room() {
            return None;
        }
        let (holds, lost) = oneshot::channel();
        let seat = kept.seat(Standing::Stranger, holds);
        drop(kept);
        Some((Place { places: Arc::clone(self), seat: Mutex::new(seat) }, lost))
    }
}

/// Resolves when the place was given to somebody else.
pub type Lost = oneshot::Receiver<Infallible>;

/// The place of one connection. Whoever drops it leaves.
pub struct Place {
    places: Arc<Places>,
    seat: Mutex<Seat>,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// A person.
    Person,
    /// An agent.
    Agent,
}

impl Place {
    /// Keeps the place for whoever showed a credential, until they are answered. Never returns if it was lost before: the connection is being
    /// closed, and nothing has begun on it.
    ///
    /// # Errors
    /// When agents have as many requests under way as they may.
    pub async fn hold(&self, asker: Asker) -> Result<(), Failure> {
        if self.stand(Standing::Busy(asker))? {
            return Ok(());
        }
        std::future::pending().await
    }

    /// Whoever was known was answered.
    pub fn rest(&self) {
        let busy = matches!(self.seat.lock().unwrap_or_else(PoisonError::into_inner).0, Standing::Busy(_));
        if busy {
            // Resting takes no place of anybody's share.
            let _ = self.stand(Standing::Idle);
        }
    }

    /// Changes where this stands. Says whether it still has its place.
    fn stand(&self, standing: Standing) -> Result<bool, Failure> {
        let mut seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = self.places.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let agents = kept.agents - usize::from(seat.0 == BUSY_AGENT);
        if standing == BUSY_AGENT && agents >= self.places.most.div_ceil(2) {
            let message = format!("{agents} requests of agents are under way here, which is the limit");
            return Err(Failure::new("too_many_requests", message, "wait for some of them first"));
        }
        let Some(holds) = kept.remove(*seat) else { return Ok(false) };
        *seat = kept.seat(standing, holds);
        Ok(true)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let seat = *self.seat.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.places.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(seat);
    }
}

/// What the holder of a place is to the daemon. Those who go first come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Has shown no credential.
    Stranger,
    /// Is known, and asks for nothing.
    Idle,
    /// Is known, and waits for an answer.
    Busy(Asker),
}

const BUSY_AGENT: Standing = Standing::Busy(Asker::Agent);

/// Where somebody stands, and since when compared with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seat(Standing, u64);

#[derive(Default)]
struct Kept {
    next: u64,
    /// How many agents wait for an answer.
    agents: usize,
    /// Dropping what holds a place tells its holder that it is lost.
    holders: BTreeMap<Seat, oneshot::Sender<Infallible>>,
}

impl Kept {
    fn seat(&mut self, standing: Standing, holds: oneshot::Sender<Infallible>) -> Seat {
        let seat = Seat(standing, self.next);
        self.next += 1;
        self.agents += usize::from(standing == BUSY_AGENT);
        self.holders.insert(seat, holds);
        seat
    }

    fn remove(&mut self, seat: Seat) -> Option<oneshot::Sender<Infallible>> {
        let removed = self.holders.remove(&seat)?;
        self.agents -= usize::from(seat.0 == BUSY_AGENT);
        Some(removed)
    }

    /// Takes the place of whoever goes first. Says whether somebody did.
    fn make_room(&mut self) -> bool {
        match self.holders.first_entry() {
            Some(first) if !matches!(first.key().0, Standing::Busy(_)) => {
                first.remove();
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
mod tests {
    use super::*;

    fn is_lost(lost: &mut Lost) -> bool {
        lost.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[tokio::test]
    async fn strangers_go_first_then_the_idle_and_nobody_who_is_waiting() {
        let places = Places::new(3);
        let (busy, mut busy_lost) = places.enter().unwrap();
        let (idle, mut idle_lost) = places.enter().unwrap();
        let (_stranger, mut stranger_lost) = places.enter().unwrap();
        busy.hold(Asker::Person).await.unwrap();
        idle.hold(Asker::Agent).await.unwrap();
        idle.rest();
        let (second, mut second_lost) = places.enter().unwrap();
        assert!(is_lost(&mut stranger_lost) && !is_lost(&mut idle_lost));
        second.hold(Asker::Person).await.unwrap();
        let (third, _third_lost) = places.enter().unwrap();
        assert!(is_lost(&mut idle_lost));
        third.hold(Asker::Person).await.unwrap();
        assert!(places.enter().is_none());
        assert!(!is_lost(&mut busy_lost) && !is_lost(&mut second_lost));
        drop(second);
        assert!(places.enter().is_some());
    }

    #[tokio::test]
    async fn whoever_lost_a_place_begins_nothing_any_more() {
        let places = Places::new(1);
        let (first, _lost) = places.enter().unwrap();
        let (_second, _) = places.enter().unwrap();
        let held = tokio::time::timeout(std::time::Duration::from_millis(10), first.hold(Asker::Person)).await;
        assert!(held.is_err());
    }

    #[tokio::test]
    async fn agents_have_half_of_the_places_for_what_is_under_way() {
        let places = Places::new(4);
        let entered: Vec<_> = (0..4).map(|_| places.enter().unwrap()).collect();
        let [(one, _), (two, _), (three, _), (four, _)] = entered.as_slice() else { unreachable!() };
        one.hold(Asker::Agent).await.unwrap();
        two.hold(Asker::Agent).await.unwrap();
        assert_eq!(three.hold(Asker::Agent).await.unwrap_err().detail.code, "too_many_requests");
        four.hold(Asker::Person).await.unwrap();
        one.rest();
        three.hold(Asker::Agent).await.unwrap();
    }
}
