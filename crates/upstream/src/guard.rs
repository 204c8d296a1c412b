//! What stands between a server and the client of the protocol: only what somebody has a use for gets through, and not too much of it.
//!
//! Guarantees: progress, log lines and answers that nobody waits for end here; a server that sends more of what nobody asked for than is
//! sensible is given up, however it is connected.

use std::collections::BTreeSet;

use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification},
    transport::Transport,
};

use crate::{
    bucket::Bucket,
    fate::{Fate, Trouble},
};

/// A guarded transport.
pub(crate) struct Guarded<T> {
    inner: T,
    fate: Fate,
    unasked: Bucket,
    asked: BTreeSet<String>,
}

impl<T> Guarded<T> {
    pub(crate) fn new(inner: T, fate: Fate) -> Self {
        Self { inner, fate, unasked: Bucket::default(), asked: BTreeSet::new() }
    }

    /// Whether somebody waits for a message, or it is one of those that are acted on.
    fn judge(&mut self, message: &ServerJsonRpcMessage) -> Passage {
        match message {
            JsonRpcMessage::Response(response) => match self.asked.remove(&text(&response.id)) {
                true => Passage::Wanted,
                false => Passage::Unwanted,
            },
            // An error without an id is about something that could not be read; nobody can be told, but the start of a connection.
            JsonRpcMessage::Error(error) => match error.id.as_ref().map(|id| self.asked.remove(&text(id))) {
                Some(true) => Passage::Wanted,
                Some(false) => Passage::Unwanted,
                None => Passage::Counted,
            },
            JsonRpcMessage::Request(_) => Passage::Counted,
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ServerNotification::ToolListChangedNotification(_)
                | ServerNotification::CancelledNotification(_)
                | ServerNotification::SubscriptionsAcknowledgedNotification(_) => Passage::Counted,
                _ => Passage::Unwanted,
            },
        }
    }
}

enum Passage {
    /// An answer to what was asked.
    Wanted,
    /// Let through, and counted.
    Counted,
    /// Counted and left out.
    Unwanted,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = T::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message {
            self.asked.insert(text(&request.id));
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let fate = self.fate.clone();
        loop {
            let message = tokio::select! {
                biased;
                _ = fate.ended() => None,
                message = self.inner.receive() => message,
            };
            let Some(message) = message else {
                fate.over(Trouble::Closed);
                return None;
            };
            match self.judge(&message) {
                Passage::Wanted => return Some(message),
                Passage::Counted if self.unasked.takes() => return Some(message),
                Passage::Unwanted if self.unasked.takes() => {}
                Passage::Counted | Passage::Unwanted => {
                    fate.over(Trouble::Flood);
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.fate.over(Trouble::Closed);
        self.inner.close().await
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.fate.over(Trouble::Closed);
    }
}

/// An id. Some servers answer to a number with its digits as a text.
fn text(id: &RequestId) -> String {
    id.to_string()
}
