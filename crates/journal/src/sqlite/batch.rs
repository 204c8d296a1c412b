//! A batch in the making: transactions that share one database transaction and one sync.
//!
//! The writer applies what is there while those who were in the last batch prepare what they commit next, and takes that along.
//!
//! Guarantees: whoever commits alone waits for nobody; a batch waits for others only as long as they come, and never for long.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use super::{
    answers::Asker,
    queue::{Job, Next, Outlet},
    ready::Ready,
};

/// A batch in the making.
pub(super) struct Batch<'a> {
    /// What was taken, some at a time.
    chunks: Vec<Vec<Ready>>,
    askers: Vec<Asker>,
    /// What comes after the batch, and ends it.
    then: Option<Job>,
    more: Option<More<'a>>,
}

/// Where more comes from.
#[derive(Clone, Copy)]
struct More<'a> {
    jobs: &'a Outlet,
    /// How many are enough.
    enough: usize,
    /// When to wait no longer.
    until: Instant,
    /// How many are about to commit.
    coming: &'a AtomicUsize,
    /// Until when they are waited for.
    patience: Instant,
}

impl<'a> Batch<'a> {
    /// A batch of this alone.
    pub(super) fn of(ready: Ready) -> Self {
        Self { chunks: vec![vec![ready]], askers: Vec::new(), then: None, more: None }
    }

    /// A batch of what waits, and of what comes while that is applied, until it is this much. Those who are about to come are waited for
    /// until a time.
    pub(super) fn begin(jobs: &'a Outlet, enough: usize, (coming, patience): (&'a AtomicUsize, Instant)) -> Self {
        let until = Instant::now() + LONGEST_WAIT;
        let more = More { jobs, enough: enough.min(LARGEST), until, coming, patience };
        let mut batch = Self { chunks: Vec::new(), askers: Vec::new(), then: None, more: Some(more) };
        batch.take(jobs);
        batch
    }

    /// What was taken at once; `None` after the last.
    pub(super) fn chunk(&self, position: usize) -> Option<&[Ready]> {
        self.chunks.get(position).map(Vec::as_slice)
    }

    /// All that was taken.
    pub(super) fn all(&self) -> impl Iterator<Item = &Ready> {
        self.chunks.iter().flatten()
    }

    /// Waits a little for more. Says whether some came.
    pub(super) fn gather(&mut self) -> bool {
        let Some(more) = self.more.filter(|_| self.then.is_none()) else { return false };
        let wanted = more.enough.saturating_sub(self.askers.len());
        if wanted > 0 {
            more.jobs.linger(wanted.min(CHUNK), more.until);
            if self.take(more.jobs) {
                return true;
            }
        }
        let coming = more.coming.load(Ordering::Relaxed).min(LARGEST.saturating_sub(self.askers.len()));
        if coming == 0 || self.then.is_some() || Instant::now() >= more.patience {
            return false;
        }
        more.jobs.await_until(coming.min(CHUNK), more.patience);
        self.take(more.jobs)
    }

    /// How many wait for this batch.
    pub(super) fn len(&self) -> usize {
        self.askers.len()
    }

    /// Who waits for what, and what comes after the batch.
    pub(super) fn end(self) -> (impl Iterator<Item = (Asker, Ready)>, Option<Job>) {
        (self.askers.into_iter().zip(self.chunks.into_iter().flatten()), self.then)
    }

    fn take(&mut self, jobs: &Outlet) -> bool {
        let Next { batch, then } = jobs.take(LARGEST.saturating_sub(self.askers.len()));
        self.then = then;
        if batch.is_empty() {
            return false;
        }
        let (ready, askers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        self.chunks.push(ready);
        self.askers.extend(askers);
        true
    }
}

/// A batch is no larger than this, so that nobody waits for thousands of others.
const LARGEST: usize = 1_024;

/// How long a batch waits for others, all in all.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// How many transactions are worth waking up for while a batch is in the making.
const CHUNK: usize = 32;

#[cfg(test)]
mod tests {
    use super::{
        super::{
            answers::question,
            queue::{Inlet, queue},
        },
        *,
    };

    static NONE: AtomicUsize = AtomicUsize::new(0);

    /// Nobody is about to come.
    fn nobody() -> (&'static AtomicUsize, Instant) {
        (&NONE, Instant::now() + LONG)
    }

    const LONG: Duration = Duration::from_secs(20);

    fn put(inlet: &Inlet, count: usize) {
        for _ in 0..count {
            inlet.put(Job::Commit((Ready { records: Vec::new(), changes: Vec::new() }, question().0))).unwrap();
        }
    }

    #[test]
    fn whoever_commits_alone_waits_for_nobody() {
        let (inlet, outlet) = queue();
        put(&inlet, 1);
        let mut batch = Batch::begin(&outlet, 1, nobody());
        assert_eq!((batch.gather(), batch.len()), (false, 1));
        // What comes while it is applied is for the next one.
        put(&inlet, 1);
        assert_eq!((batch.gather(), batch.len(), outlet.len()), (false, 1, 1));
    }

    #[test]
    fn a_batch_takes_along_what_comes_while_it_is_applied() {
        let (inlet, outlet) = queue();
        put(&inlet, 2);
        let mut batch = Batch::begin(&outlet, 4, nobody());
        put(&inlet, 1);
        assert_eq!((batch.gather(), batch.len()), (true, 3));
        put(&inlet, 5);
        // It takes what is there, and then it is enough.
        assert_eq!((batch.gather(), batch.len()), (true, 8));
        assert!(!batch.gather());
        assert_eq!(
            [0, 1, 2, 3].map(|position| batch.chunk(position).map(<[_]>::len)),
            [Some(2), Some(1), Some(5), None]
        );
    }

    #[test]
    fn a_batch_ends_where_nobody_comes_or_something_else_does() {
        let (inlet, outlet) = queue();
        put(&inlet, 1);
        let mut batch = Batch::begin(&outlet, 1_000, nobody());
        assert!(!batch.gather());
        put(&inlet, 1);
        inlet.put(Job::Close).unwrap();
        put(&inlet, 1);
        assert_eq!((batch.gather(), batch.gather(), batch.len()), (true, false, 2));
        assert!(matches!(batch.end().1, Some(Job::Close)));
        assert_eq!(outlet.len(), 1);
    }

    #[test]
    fn a_batch_waits_for_those_who_are_about_to_come_and_not_for_ever() {
        let (inlet, outlet) = queue();
        put(&inlet, 1);
        let coming = AtomicUsize::new(1);
        let mut batch = Batch::begin(&outlet, 1, (&coming, Instant::now() + LONG));
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            put(&inlet, 1);
            inlet
        });
        assert_eq!((batch.gather(), batch.len()), (true, 2));
        let inlet = late.join().unwrap();
        coming.store(0, Ordering::Relaxed);
        assert!(!batch.gather());
        // One who never comes is not waited for beyond the time that was given.
        coming.store(1, Ordering::Relaxed);
        put(&inlet, 1);
        let begun = Instant::now();
        let mut batch = Batch::begin(&outlet, 1, (&coming, begun + Duration::from_millis(40)));
        assert!(!batch.gather());
        assert!(begun.elapsed() >= Duration::from_millis(40) && begun.elapsed() < LONG);
    }

    #[test]
    fn a_batch_is_no_larger_than_the_largest() {
        let (inlet, outlet) = queue();
        put(&inlet, LARGEST + 5);
        let mut batch = Batch::begin(&outlet, usize::MAX, nobody());
        assert_eq!((batch.gather(), batch.len(), outlet.len()), (false, LARGEST, 5));
    }
}
