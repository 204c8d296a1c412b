//! A process that runs: its output as it comes, a way to stop it, and its outcome.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    outcome::{Captured, Ended, Outcome, StopCause, Usage},
    stream::OutputChunk,
};

/// A running process. Dropping it ends the whole tree.
#[derive(Debug)]
#[must_use = "dropping it ends the process"]
pub struct RunningProcess {
    pub(crate) output: mpsc::Receiver<OutputChunk>,
    pub(crate) outcome: oneshot::Receiver<Outcome>,
    pub(crate) stop: Stopper,
}

impl RunningProcess {
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
