//! The clock that code looks at while it computes.
//!
//! Guarantees: it ticks while a call runs, and rests a moment after the last one ended. It ends when the last engine is gone.
//! Does not: tick exactly. How long a call computed is measured, see `metered`.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use wasmtime::{Engine, EngineWeak};

/// A thread that ticks for all pools.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

struct Shared {
    engines: Mutex<Vec<EngineWeak>>,
    running: AtomicUsize,
    rests: AtomicBool,
    ended: AtomicBool,
}

/// As long as there is one, the clock ticks.
pub(crate) struct Ticking(Arc<Shared>);

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start(tick: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            engines: Mutex::default(),
            running: AtomicUsize::new(0),
            rests: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let ticking = Arc::clone(&shared);
        let handle = thread::Builder::new().name("skill-ticker".to_owned()).spawn(move || ticking.tick(tick))?;
        Ok(Self { thread: handle.thread().clone(), shared })
    }

    /// Ticks for another engine, as long as it is there.
    pub(crate) fn tend(&self, engine: &Engine) {
        let mut engines = self.shared.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.retain(|engine| engine.upgrade().is_some());
        engines.push(engine.weak());
    }

    /// Ticks as long as what it gives back is there.
    pub(crate) fn ticking(&self) -> Ticking {
        // INVARIANT: one of the two sees what the other wrote, so the ticker never rests while a call runs.
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        if self.shared.rests.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Ticking(Arc::clone(&self.shared))
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn tick(&self, tick: Duration) {
        let mut last_busy = Instant::now();
        while !self.ended.load(Ordering::SeqCst) {
            if self.running.load(Ordering::SeqCst) > 0 {
                last_busy = Instant::now();
                for engine in self.engines.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    if let Some(engine) = engine.upgrade() {
                        engine.increment_epoch();
                    }
                }
            } else if last_busy.elapsed() > LINGER {
                self.rests.store(true, Ordering::SeqCst);
                if self.running.load(Ordering::SeqCst) == 0 && !self.ended.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.rests.store(false, Ordering::SeqCst);
                last_busy = Instant::now();
            }
            thread::sleep(tick);
        }
    }
}

/// Waking the ticker costs a call some microseconds, so it does not rest between calls that follow each other.
const LINGER: Duration = Duration::from_millis(250);
