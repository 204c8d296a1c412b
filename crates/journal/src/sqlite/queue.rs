//! Where transactions wait for the one thread that writes.
//!
//! Guarantees: what is put in comes out once, in order; a batch wakes the writer once, not once for each of its transactions; when the writer
//! is gone, however it went, nothing waits any more and nothing can be put in; when nobody is left who could put something in, the writer is
//! told to end.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{answers::Asker, ready::Ready, writer::Writer};
use crate::trouble::Trouble;

/// Something for the writer to do.
pub(super) enum Job {
    /// Commit a transaction.
    Commit(Waiting),
    /// Do something with the connection between two batches.
    Maintain(Box<dyn FnOnce(&mut Writer) + Send>),
    /// Finish what waits and end.
    Close,
}

/// A transaction, and who waits for it.
pub(super) type Waiting = (Ready, Asker);

/// Where jobs are put in.
#[derive(Clone)]
pub(super) struct Inlet(Arc<Entrance>);

/// The end of the queue that all inlets share.
struct Entrance(Arc<Queue>);

/// Where the writer takes them out.
pub(super) struct Outlet(Arc<Queue>);

/// What the writer does next: a batch, and something else after it.
pub(super) struct Next {
    pub(super) batch: Vec<Waiting>,
    pub(super) then: Option<Job>,
}

struct Queue {
    state: Mutex<State>,
    woken: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// How many of them are not commits.
    others: usize,
    /// How many jobs wake the writer; `None` while it is awake.
    wanted: Option<usize>,
    is_closed: bool,
}

/// A queue, by its two ends.
pub(super) fn queue() -> (Inlet, Outlet) {
    let state = State { jobs: VecDeque::new(), others: 0, wanted: None, is_closed: false };
    let queue = Arc::new(Queue { state: Mutex::new(state), woken: Condvar::new() });
    (Inlet(Arc::new(Entrance(Arc::clone(&queue)))), Outlet(queue))
}

impl Inlet {
    /// Puts a job in.
    pub(super) fn put(&self, job: Job) -> Result<(), Trouble> {
        self.0.0.put(job)
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let _ = self.0.put(Job::Close);
    }
}

impl Outlet {
    /// Waits for a job, at most so long if there is a limit.
    pub(super) fn wait(&self, limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = self.0.lock();
        while !state.has(1) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return;
            }
            state = self.0.sleep(state, 1, left);
        }
    }

    /// Waits until this many jobs are there, but only while more of them come, and not beyond this time.
    pub(super) fn linger(&self, wanted: usize, until: Instant) {
        let mut state = self.0.lock();
        while !state.has(wanted) {
            let (before, left) = (state.jobs.len(), until.saturating_duration_since(Instant::now()));
            if left == Duration::ZERO {
                return;
            }
            state = self.0.sleep(state, wanted, Some(left.min(LINGER)));
            if state.jobs.len() == before {
                return;
            }
        }
    }

    /// Waits until this many jobs are there, but not beyond this time.
    pub(super) fn await_until(&self, wanted: usize, until: Instant) {
        let mut state = self.0.lock();
        while !state.has(wanted) {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            state = self.0.sleep(state, wanted, Some(left));
        }
    }

    /// How many jobs wait.
    pub(super) fn len(&self) -> usize {
        self.0.lock().jobs.len()
    }

    /// Takes the commits that wait, at most so many, up to anything else, and that.
    pub(super) fn take(&self, most: usize) -> Next {
        let mut state = self.0.lock();
        let mut next = Next { batch: Vec::with_capacity(state.jobs.len().min(most)), then: None };
        while next.then.is_none() && next.batch.len() < most {
            match state.jobs.pop_front() {
                Some(Job::Commit(waiting)) => next.batch.push(waiting),
                Some(other) => {
                    state.others -= 1;
                    next.then = Some(other);
                }
                None => break,
            }
        }
        next
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        // Whoever waits for one of these hears that nobody will answer.
        let left = std::mem::take(&mut state.jobs);
        drop(state);
        drop(left);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, job: Job) -> Result<(), Trouble> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Trouble::Closed);
        }
        state.others += usize::from(!matches!(job, Job::Commit(_)));
        state.jobs.push_back(job);
        let wakes = state.wanted.is_some_and(|wanted| state.has(wanted));
        if wakes {
            state.wanted = None;
        }
        drop(state);
        if wakes {
            self.woken.notify_one();
            // It may have been put behind this thread, and what comes next here can wait for the sync.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sleeps until this many jobs are there, for so long if there is a limit, or for no reason.
    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        wanted: usize,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.wanted = Some(wanted);
        let mut state = match limit {
            Some(limit) => self.woken.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            None => self.woken.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.wanted = None;
        state
    }
}

impl State {
    /// Whether this many jobs are there, or one that is no commit and therefore comes next.
    fn has(&self, wanted: usize) -> bool {
        self.jobs.len() >= wanted || self.others > 0
    }
}

/// How long it takes until no more come. Short against a sync.
const LINGER: Duration = Duration::from_micros(60);

#[cfg(test)]
mod tests {
    use super::{
        super::answers::{Question, question},
        *,
    };
    use crate::store::CommitError;

    fn commit() -> (Job, Question) {
        let (asker, question) = question();
        (Job::Commit((Ready { records: Vec::new(), changes: Vec::new() }, asker)), question)
    }

    fn put(inlet: &Inlet, count: usize) {
        (0..count).for_each(|_| inlet.put(commit().0).unwrap());
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn commits_come_out_up_to_anything_else_and_at_most_so_many() {
        let (inlet, outlet) = queue();
        put(&inlet, 5);
        inlet.put(Job::Close).unwrap();
        put(&inlet, 2);
        let taken = [3, 9, 9, 9].map(|most| {
            let Next { batch, then } = outlet.take(most);
            (batch.len(), matches!(then, Some(Job::Close)))
        });
        assert_eq!(taken, [(3, false), (2, true), (2, false), (0, false)]);
    }

    #[test]
    fn whoever_sleeps_wakes_when_enough_is_there_or_something_else() {
        for (first, then, wanted) in [(2, 1, 3), (0, 1, 1)] {
            let (inlet, outlet) = queue();
            put(&inlet, first);
            let sleeper = std::thread::spawn(move || {
                while outlet.len() < wanted {
                    drop(outlet.0.sleep(outlet.0.lock(), wanted, None));
                }
                outlet.len()
            });
            std::thread::sleep(Duration::from_millis(20));
            put(&inlet, then);
            assert_eq!(sleeper.join().unwrap(), wanted);
        }
        let (inlet, outlet) = queue();
        inlet.put(Job::Close).unwrap();
        let begun = Instant::now();
        outlet.linger(1_000, begun + LONG);
        outlet.wait(Some(LONG));
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn nobody_lingers_longer_than_others_come() {
        let (inlet, outlet) = queue();
        put(&inlet, 3);
        let begun = Instant::now();
        outlet.linger(1_000, begun + LONG);
        assert!(begun.elapsed() < LONG / 2);
        // Nor beyond the time that was given, however many come.
        let inlets = std::thread::spawn(move || (0..).take_while(|_| inlet.put(commit().0).is_ok()).count());
        outlet.linger(usize::MAX, Instant::now() + Duration::from_millis(50));
        assert!(begun.elapsed() < LONG);
        drop(outlet);
        inlets.join().unwrap();
    }

    #[test]
    fn when_the_writer_is_gone_nothing_waits_and_nothing_goes_in() {
        let (inlet, outlet) = queue();
        let (job, question) = commit();
        inlet.put(job).unwrap();
        drop(outlet);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(question.answer()), Err(CommitError::Unwritable(Trouble::Closed)));
        assert_eq!(inlet.put(commit().0), Err(Trouble::Closed));
    }

    #[test]
    fn when_nobody_can_put_anything_in_the_writer_is_told_to_end() {
        let (inlet, outlet) = queue();
        let other = inlet.clone();
        put(&inlet, 1);
        drop(inlet);
        put(&other, 1);
        drop(other);
        outlet.wait(None);
        let Next { batch, then } = outlet.take(9);
        assert!(batch.len() == 2 && matches!(then, Some(Job::Close)));
    }
}
