//! Room for the connections of a run: who waits for the first bytes of a client, and who has a place.
//!
//! Guarantees: a client that says nothing keeps nobody out. Whoever needs room that there is none of gets that of the
//! connection that has been waiting for its client the longest, unless that is for a moment only.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    refusal::{EgressRefusal, EgressRefusalKind},
    run::EgressLimits,
};

/// The connections of a run and the room that they take.
pub(crate) struct Lobby {
    /// Those that wait for their client, in the order in which they began to.
    waiting: Mutex<BTreeMap<u64, Waiting>>,
    next: AtomicU64,
    /// Sockets that may be open at all.
    sockets: Arc<Semaphore>,
    /// Connections that may be made or decided about.
    places: Arc<Semaphore>,
    /// Connections that may wait for a place.
    queue: Semaphore,
    patience: Duration,
}

struct Waiting {
    since: Instant,
    has_place: bool,
    push: Arc<Notify>,
}

impl Lobby {
    pub(crate) fn new(limits: &EgressLimits) -> Self {
        let sockets = limits.concurrent.saturating_add(limits.queued).saturating_add(limits.half_open);
        let room = |count: usize| Semaphore::new(count.min(Semaphore::MAX_PERMITS));
        Self {
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
            sockets: Arc::new(room(sockets)),
            places: Arc::new(room(limits.concurrent)),
            queue: room(limits.queued),
            patience: limits.handshake,
        }
    }

    /// Waits for room for one more socket.
    pub(crate) async fn socket(&self) -> Option<OwnedSemaphorePermit> {
        self.make_room(&self.sockets, Whose::Anybody).await
    }

    /// A place for one more connection.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, EgressRefusal> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let too_many = |detail| EgressRefusal::new(EgressRefusalKind::TooManyConnections, detail);
        let Ok(_queued) = self.queue.try_acquire() else {
            return Err(too_many("too many connections wait for a place"));
        };
        let place = timeout(self.patience, self.make_room(&self.places, Whose::OfOneWithAPlace)).await;
        place.ok().flatten().ok_or_else(|| too_many("no connection ended in time"))
    }

    async fn make_room(&self, room: &Arc<Semaphore>, whose: Whose) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
                return Some(permit);
            }
            let next_look = self.push_out_the_oldest(whose);
            if let Ok(permit) = timeout(next_look, Arc::clone(room).acquire_owned()).await {
                return permit.ok();
            }
        }
    }

    /// Pushes out the connection that has waited the longest, if that was for more than a moment. Tells when to look
    /// again.
    fn push_out_the_oldest(&self, whose: Whose) -> Duration {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = waiting.iter().find(|(_, one)| whose == Whose::Anybody || one.has_place);
        let Some((id, age)) = oldest.map(|(&id, one)| (id, one.since.elapsed())) else { return GRACE };
        if age < GRACE {
            return GRACE - age;
        }
        if let Some(pushed) = waiting.remove(&id) {
            pushed.push.notify_one();
        }
        GRACE
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Anybody,
    OfOneWithAPlace,
}

/// A connection's seat: taken while it waits for its client.
pub(crate) struct Seat {
    lobby: Arc<Lobby>,
    id: Mutex<Option<u64>>,
    push: Arc<Notify>,
}

impl Seat {
    pub(crate) fn new(lobby: &Arc<Lobby>) -> Self {
        Self { lobby: Arc::clone(lobby), id: Mutex::new(None), push: Arc::default() }
    }

    /// Begins to wait for the client.
    pub(crate) fn sit(&self, has_place: bool) {
        self.rise();
        let id = self.lobby.next.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting { since: Instant::now(), has_place, push: Arc::clone(&self.push) };
        self.lobby.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, waiting);
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    /// Waits no more.
    pub(crate) fn rise(&self) {
        if let Some(id) = self.id.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.lobby.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }

    /// Waits until somebody else needs the room.
    pub(crate) async fn pushed_out(&self) {
        self.push.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.rise();
    }
}

/// How long a client may take for its next bytes without anybody minding.
const GRACE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn lobby(concurrent: usize, queued: usize) -> Arc<Lobby> {
        let handshake = Duration::from_secs(2);
        Arc::new(Lobby::new(&EgressLimits { concurrent, queued, half_open: 1, handshake, ..EgressLimits::default() }))
    }

    #[tokio::test]
    async fn whoever_waits_the_longest_makes_room() {
        let lobby = lobby(2, 1);
        let places = [lobby.place().await.unwrap(), lobby.place().await.unwrap()];
        let (first, second) = (Seat::new(&lobby), Seat::new(&lobby));
        first.sit(true);
        second.sit(true);
        let [held_by_first, _held_by_second] = places;
        let leaves = async {
            first.pushed_out().await;
            drop(held_by_first);
        };
        let (place, ()) = tokio::join!(lobby.place(), leaves);
        assert!(place.is_ok());
        assert!(timeout(Duration::from_millis(10), second.pushed_out()).await.is_err());
    }

    #[tokio::test]
    async fn a_connection_that_does_not_wait_for_its_client_is_left_alone() {
        let lobby = lobby(1, 1);
        let seat = Seat::new(&lobby);
        let _place = lobby.place().await.unwrap();
        seat.sit(true);
        seat.rise();
        let kind = |refused: Result<_, EgressRefusal>| {
            refused.map(|_: OwnedSemaphorePermit| ()).map_err(|refusal| refusal.kind)
        };
        let (one, other) = tokio::join!(lobby.place(), lobby.place());
        assert_eq!(kind(one), Err(EgressRefusalKind::TooManyConnections));
        assert_eq!(kind(other), Err(EgressRefusalKind::TooManyConnections));
        assert!(timeout(Duration::from_millis(10), seat.pushed_out()).await.is_err());
    }
}
