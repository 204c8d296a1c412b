//! What ends a command before it is done: Ctrl-C, a polite kill, or a terminal that goes away.
//!
//! Guarantees: from [`Stop::new`] on none of them ends the program by itself; a command can tidy up first.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{exit::Exit, failure::Failure};

/// The signals that mean that somebody has enough.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Stop {
    /// Listens from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Failure, "signals", "the program cannot start", error.to_string(), "try again")
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits until somebody has enough. Nothing is lost if this is given up while it waits.
    pub(crate) async fn come(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
