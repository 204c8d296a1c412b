//! A process that runs: its output as it comes, a way to stop it, and its outcome.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    outcome::{Captured, Ended, Layer, Outcome, StopCause, Usage},
    stream::OutputChunk,
};

/// A running process. Dropping it ends the whole tree.
#[derive(Debug)]
#[must_use = "dropping it ends the process"]
pub struct RunningProcess {
    pub(crate) output: mpsc::Receiver<OutputChunk>,
    pub(crate) outcome: oneshot::Receiver<Outcome>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) stop: Stopper,
    pub(crate) aftermath: Aftermath,
}

impl RunningProcess {
    /// What is left to do when the process has ended. Whoever has something to do about its end keeps this until that is done, so that the
    /// two do not get into each other's way.
    #[must_use]
    pub fn aftermath(&self) -> Aftermath {
        self.aftermath.clone()
    }

    /// The layers that are known to hold it while it runs: all of them for a program that somebody speaks with. The outcome has them in any case.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The next piece of output, or `None` when both streams have ended.
    ///
    /// A reader that falls behind by more than the channel holds misses pieces, which the outcome counts and still has. Dropping
    /// the future loses nothing.
    pub async fn next_output(&mut self) -> Option<OutputChunk> {
        self.output.recv().await
    }

    /// A way to stop the process from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Stops the process: SIGTERM for the tree, SIGKILL for what is left 200 ms later. The first cause counts.
    pub fn stop(&self, cause: StopCause) {
        self.stop.stop(cause);
    }

    /// Waits for the end of the whole tree. Dropping the future ends it.
    pub async fn outcome(mut self) -> Outcome {
        // Nobody reads the live stream any more, so nothing has to be copied into it.
        self.output.close();
        while self.output.try_recv().is_ok() {}
        // The task that watches ends only with an outcome, unless its runtime is taken away.
        (&mut self.outcome).await.unwrap_or_else(|_| Outcome {
            ended: Ended::SupervisorLost,
            stdout: Captured::default(),
            stderr: Captured::default(),
            usage: Usage::default(),
            layers: Vec::new(),
            reasons: Vec::new(),
            egress: None,
            unexpected: BTreeSet::new(),
        })
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        self.stop.stop(StopCause::CallerGone);
    }
}

/// Stops one process, from anywhere and at any time. Keeping it keeps nothing alive.
#[derive(Debug, Clone)]
pub struct Stopper(pub(crate) Arc<watch::Sender<Option<StopCause>>>);

impl Stopper {
    /// Stops the process, if it still runs. The first cause counts.
    pub fn stop(&self, cause: StopCause) {
        self.0.send_if_modified(|set| {
            let first = set.is_none();
            set.get_or_insert(cause);
            first
        });
    }
}

/// What is left to do when a process has ended: once, when nobody keeps this any more.
#[derive(Clone)]
pub struct Aftermath(Arc<Pending>);

struct Pending(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Aftermath {
    /// Nothing.
    pub(crate) fn none() -> Self {
        Self(Arc::new(Pending(Mutex::default())))
    }

    pub(crate) fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Self(Arc::new(Pending(Mutex::new(Some(Box::new(work))))))
    }

    /// Does it now, unless it is done.
    pub(crate) fn now(&self) {
        self.0.see_to_it();
    }
}

impl Pending {
    /// Off the runtime, as it takes a while. Without a runtime it is left to the next call.
    fn see_to_it(&self) {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(work), Ok(runtime)) = (work, Handle::try_current()) {
            runtime.spawn(off_the_runtime(work));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.see_to_it();
    }
}

impl fmt::Debug for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aftermath")
    }
}

/// Does something that takes a while. Belongs in a task of its own: where no thread can be started, the runtime panics, and what
/// accompanies a program must not end by that.
pub(crate) async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
