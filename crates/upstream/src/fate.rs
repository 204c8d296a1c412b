//! What became of a connection: the first thing that went wrong, for whoever asks why it is over.

use std::sync::Arc;

use tokio::sync::watch;

/// What becomes of a connection. Clones are of the same connection.
#[derive(Debug, Clone)]
pub(crate) struct Fate(Arc<watch::Sender<Option<Trouble>>>);

impl Default for Fate {
    fn default() -> Self {
        Self(Arc::new(watch::channel(None).0))
    }
}

impl Fate {
    /// It is over, for this reason unless there is one already.
    pub(crate) fn over(&self, trouble: Trouble) {
        self.0.send_if_modified(|known| {
            let is_first = known.is_none();
            if is_first {
                *known = Some(trouble);
            }
            is_first
        });
    }

    /// Why it is over, if it is.
    pub(crate) fn known(&self) -> Option<Trouble> {
        self.0.borrow().clone()
    }

    /// Waits until it is over.
    pub(crate) async fn ended(&self) -> Trouble {
        let mut watched = self.0.subscribe();
        match watched.wait_for(Option::is_some).await {
            Ok(known) => known.clone().unwrap_or(Trouble::Closed),
            Err(_) => Trouble::Closed,
        }
    }
}

/// Why a connection to a server is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The server closed it.
    #[error("the server closed the connection")]
    Closed,
    /// The server cannot be reached, or broke off. What it says about that is visible already.
    #[error("the connection failed: {0}")]
    Failed(String),
    /// A message that is not read to its end.
    #[error("the server sent a message of more than {0} bytes")]
    LongMessage(usize),
    /// A message that would take too much memory.
    #[error("the server sent a message of more than {0} values")]
    WideMessage(usize),
    /// Messages that nobody asked for, too many and too fast.
    #[error("the server sent too many messages that nobody asked for")]
    Flood,
    /// It does not take what it is sent.
    #[error("the server does not read what it is sent")]
    Deaf,
    /// The daemon has no use for it any more.
    #[error("the connection was given up")]
    GivenUp,
}

impl Trouble {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Closed | Self::Deaf => "look at what the server says on its standard error, or in its log",
            Self::Failed(_) => "see whether the server runs, and whether it can be reached from here",
            Self::LongMessage(_) | Self::WideMessage(_) => "ask the server for less at once",
            Self::Flood => "ask whoever made the server",
            Self::GivenUp => "call it again",
        }
    }
}
