//! Counts how long a call computes, and makes those that compute for long take turns.
//!
//! Guarantees: time is counted while the call has a thread and not while it waits; a call that computes gives its thread back at every tick;
//! calls that have computed for long share all threads but one, so a short call always finds a thread soon.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
    time::Duration,
};

use tokio::sync::Semaphore;

/// What one call has computed.
pub(crate) struct Meter {
    /// Before the present slice.
    before: AtomicU64,
    slice_began: AtomicU64,
    tick: u64,
    limit: u64,
}

/// What a call that looks at its meter finds.
pub(crate) enum Reading {
    /// It has just got its thread.
    Early,
    /// It has had its thread for a tick.
    SliceOver,
    /// It has computed for as long as it may.
    LimitReached,
}

impl Meter {
    /// A meter that has counted nothing.
    pub(crate) fn new(tick: Duration, limit: Option<Duration>) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self {
            before: AtomicU64::new(0),
            slice_began: AtomicU64::new(0),
            tick: nanos(tick).max(1),
            limit: limit.map_or(u64::MAX, nanos),
        }
    }

    /// Looks at it from inside the call.
    pub(crate) fn read(&self) -> Reading {
        let slice = thread_time().saturating_sub(self.slice_began.load(Ordering::Relaxed));
        if self.before.load(Ordering::Relaxed).saturating_add(slice) >= self.limit {
            Reading::LimitReached
        } else if slice.saturating_mul(2) < self.tick {
            // A call that waited for its turn finds that the tick which ended its last slice is long over. It gets the present one.
            Reading::Early
        } else {
            Reading::SliceOver
        }
    }

    /// Whole ticks.
    pub(crate) fn ticks(&self) -> u64 {
        self.before.load(Ordering::Relaxed) / self.tick
    }

    fn is_long(&self) -> bool {
        self.ticks() >= LONG_TICKS
    }

    fn begin(&self) {
        self.slice_began.store(thread_time(), Ordering::Relaxed);
    }

    fn end(&self) {
        let slice = thread_time().saturating_sub(self.slice_began.load(Ordering::Relaxed));
        self.before.fetch_add(slice, Ordering::Relaxed);
    }
}

/// Runs a future and counts what it computes. Once that is long, it needs one of the turns for each slice.
pub(crate) async fn metered<F: Future>(meter: &Meter, turns: &Semaphore, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        // A semaphore that is never closed always gives.
        let turn = if meter.is_long() { turns.acquire().await.ok() } else { None };
        let polled = poll_fn(|context| {
            meter.begin();
            let polled = future.as_mut().poll(context);
            meter.end();
            Poll::Ready(polled)
        })
        .await;
        drop(turn);
        match polled {
            Poll::Ready(output) => return output,
            Poll::Pending => woken().await,
        }
    }
}

/// Waits for whoever has the waker of this task already.
async fn woken() {
    let mut asked = false;
    poll_fn(|_| if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Nanoseconds that this thread has computed. What other programs take from it does not count.
#[cfg(unix)]
fn thread_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
}

/// Nanoseconds since some moment: the nearest thing to the time of a thread here.
#[cfg(not(unix))]
fn thread_time() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    u64::try_from(START.get_or_init(std::time::Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A call that has computed for this many ticks is a long one.
const LONG_TICKS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_is_not_computing() {
        let meter = Meter::new(Duration::from_millis(1), None);
        metered(&meter, &Semaphore::new(1), tokio::time::sleep(Duration::from_millis(60))).await;
        assert!(meter.ticks() < 30, "{}", meter.ticks());
    }

    #[tokio::test]
    async fn computing_is_counted_and_ends_at_the_limit() {
        let meter = Meter::new(Duration::from_millis(1), Some(Duration::from_millis(20)));
        let slices = metered(&meter, &Semaphore::new(1), async {
            let mut slices = 0;
            loop {
                match meter.read() {
                    Reading::Early => {}
                    Reading::SliceOver => {
                        slices += 1;
                        tokio::task::yield_now().await;
                    }
                    Reading::LimitReached => return slices,
                }
            }
        })
        .await;
        assert!(slices > 5, "{slices}");
        assert!(meter.ticks() >= 19, "{}", meter.ticks());
    }
}
