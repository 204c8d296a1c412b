//! Wakes calls that wait for an answer, wherever it was given.
//!
//! Guarantees: a call that waits is woken by every record about its question, from this daemon or another that shares the store, and when
//! records may have been missed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use palyra_journal::Event;
use palyra_types::id::ApprovalId;
use tokio::sync::{Notify, broadcast};

/// The calls that wait, by their questions.
#[derive(Default)]
pub(crate) struct Waiters {
    waiting: Arc<Mutex<HashMap<ApprovalId, Arc<Notify>>>>,
}

impl Waiters {
    /// Listens to the journal, once for all calls that wait.
    pub(crate) fn listen(&self, mut events: broadcast::Receiver<Arc<Vec<Event>>>) {
        let waiting = Arc::clone(&self.waiting);
        tokio::spawn(async move {
            loop {
                match events.recv().await {
                    Ok(events) => wake(&waiting, &events),
                    Err(broadcast::error::RecvError::Lagged(_)) => wake_all(&waiting),
                    Err(broadcast::error::RecvError::Closed) => return wake_all(&waiting),
                }
            }
        });
    }

    /// Waits for news about a question. What happens from now on is not missed.
    pub(crate) fn wait_for(&self, id: ApprovalId) -> Waiter {
        let notify = Arc::new(Notify::new());
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&notify));
        Waiter { waiting: Arc::clone(&self.waiting), id, notify }
    }
}

/// One call that waits. Dropping it ends the waiting.
pub(crate) struct Waiter {
    waiting: Arc<Mutex<HashMap<ApprovalId, Arc<Notify>>>>,
    id: ApprovalId,
    notify: Arc<Notify>,
}

impl Waiter {
    /// Returns when there may be news, at once if there were some since the last time.
    pub(crate) async fn news(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

fn wake(waiting: &Mutex<HashMap<ApprovalId, Arc<Notify>>>, events: &[Event]) {
    let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.is_empty() {
        return;
    }
    for id in events.iter().filter_map(|event| event.subject.approval) {
        if let Some(notify) = waiting.get(&id) {
            notify.notify_one();
        }
    }
}

fn wake_all(waiting: &Mutex<HashMap<ApprovalId, Arc<Notify>>>) {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(|notify| notify.notify_one());
}
