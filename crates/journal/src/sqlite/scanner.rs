//! The thread that reads whatever may take long: many records, with or without what they say.
//!
//! Guarantees: on a connection and a thread of its own, so that neither those who ask for state nor those who drive the caller wait for it;
//! one scan after the other; a scan that nobody waits for any more ends at its next row.

use std::{
    path::Path,
    sync::mpsc::{self, Receiver, Sender},
    thread::JoinHandle,
};

use tokio::sync::oneshot;

use super::{
    reader::{Reader, Scan},
    rows::Unreadable,
    thread,
};
use crate::{
    store::{Later, ReadError},
    trouble::Trouble,
};

/// The thread that scans, as long as this is there.
pub(super) struct Scanner {
    /// `None` once it is to end.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

type Request = Box<dyn FnOnce(&mut Reader) + Send>;

impl Scanner {
    /// Starts the thread for the database at this path.
    pub(super) fn start(database: &Path) -> Result<Self, Trouble> {
        let mut reader = Reader::at(database)?;
        let (requests, asked): (_, Receiver<Request>) = mpsc::channel();
        let work = move || asked.iter().for_each(|request| request(&mut reader));
        Ok(Self { requests: Some(requests), thread: Some(thread("palyra-scanner", work)?) })
    }

    /// Has a scan done.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        scan: impl FnOnce(Scan<'_>) -> Result<T, Unreadable> + Send + 'static,
    ) -> Later<'_, Result<T, ReadError>> {
        let (reply, answer) = oneshot::channel();
        let request: Request = Box::new(move |reader| {
            let is_wanted = || !reply.is_closed();
            if is_wanted() {
                let connection = reader.connection().map_err(ReadError::from);
                let read = connection.and_then(|connection| Ok(scan(Scan { connection, is_wanted: &is_wanted })?));
                let _ = reply.send(read);
            }
        });
        let sent = self.requests.as_ref().is_some_and(|requests| requests.send(request).is_ok());
        Box::pin(async move {
            let answer = if sent { answer.await.ok() } else { None };
            answer.unwrap_or_else(|| Err(Trouble::Closed.into()))
        })
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.requests = None;
        // Whoever asked borrows the journal, so nobody waits now, and what is under way ends at its next row.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
