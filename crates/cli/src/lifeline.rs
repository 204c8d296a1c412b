//! The way to a daemon that may go away while it is followed, and come back, perhaps elsewhere.
//!
//! Guarantees: that it is away is said once, however long it takes, and that it is back once; only what may get better is waited for.

use std::time::Duration;

use palyra_client::{Client, EventStream};
use tokio::{signal::unix::Signal, time::sleep};

use crate::{at::At, connection::Connection, exit::Exit, failure::Failure, terminal::Terminal};

/// A client of the daemon that is there.
pub(crate) struct Lifeline<'a> {
    client: Client,
    is_away: bool,
    at: &'a At,
    terminal: &'a Terminal,
}

impl<'a> Lifeline<'a> {
    pub(crate) const fn new(client: Client, at: &'a At, terminal: &'a Terminal) -> Self {
        Self { client, is_away: false, at, terminal }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Follows the events behind this record.
    pub(crate) async fn events(&mut self, last: Option<u64>) -> Result<EventStream, Failure> {
        let stream = self.client.events(last).await?;
        if std::mem::take(&mut self.is_away) {
            self.terminal.talk("the daemon is back");
        }
        Ok(stream)
    }

    /// What an end of the events is.
    pub(crate) fn lost() -> Failure {
        Failure::new(Exit::Unreachable, "lost", "lost", "the daemon went away", "start it: `palyra up`")
    }

    /// Waits a moment before the daemon is looked for again. Says whether the person has enough.
    pub(crate) async fn wait(&mut self, failure: Failure, interrupt: &mut Signal) -> Result<bool, Failure> {
        if failure.exit != Exit::Unreachable {
            return Err(failure);
        }
        if !self.is_away {
            self.terminal.talk(format!("{}; trying again until it is back", failure.cause));
            self.is_away = true;
        }
        let interrupted = tokio::select! {
            () = sleep(AGAIN) => false,
            _ = interrupt.recv() => true,
        };
        if let Ok(found) = Connection::find(self.at, self.terminal).and_then(|connection| connection.daemon()) {
            self.client = found;
        }
        Ok(interrupted)
    }
}

/// How long to wait before a lost daemon is looked for again.
const AGAIN: Duration = Duration::from_secs(1);
