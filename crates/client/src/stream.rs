//! Events as they happen.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, Incoming};
use palyra_api::Event;
use tokio::time;

use crate::{
    connection::Connections,
    error::ClientError,
    sse::{Message, Parser},
};

/// How large one message of a stream may be. What a call printed is in one message, in base 64.
const MAX_MESSAGE: usize = 128 * 1024 * 1024;

/// A stream of events. Dropping it hangs up, which withdraws a call that it was proposed with.
pub struct EventStream {
    body: Incoming,
    connections: Arc<Connections>,
    patience: Option<Duration>,
    parser: Parser,
    come: VecDeque<(Message, Option<String>)>,
    last_id: Option<u64>,
}

impl EventStream {
    pub(crate) fn new(body: Incoming, connections: Arc<Connections>, patience: Option<Duration>) -> Self {
        let (parser, come) = (Parser::new(MAX_MESSAGE), VecDeque::new());
        Self { body, connections, patience, parser, come, last_id: None }
    }

    /// The next event, or nothing once the stream is over. Nothing is lost if this is given up while it waits.
    ///
    /// # Errors
    /// When the connection is lost or silent for too long, or what comes is no event.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some((message, id)) = self.come.pop_front() {
                let event: Event =
                    serde_json::from_str(&message.data).map_err(|error| ClientError::Protocol(error.to_string()))?;
                if !message.event.is_empty() && message.event != event.kind {
                    return Err(ClientError::Protocol(format!(
                        "a message of type `{}` holds an event of type `{}`",
                        message.event, event.kind
                    )));
                }
                self.last_id = id.and_then(|id| id.parse().ok()).or(self.last_id);
                return Ok(Some(event));
            }
            let Some(frame) = self.frame().await? else { return Ok(None) };
            if let Some(data) = frame.data_ref() {
                self.come.extend(self.parser.push(data).map_err(|error| ClientError::Protocol(error.to_string()))?);
            }
        }
    }

    /// The number of the record behind the last event that had one: where a reader that was cut off goes on.
    #[must_use]
    pub const fn last_id(&self) -> Option<u64> {
        self.last_id
    }

    /// How long the daemon wants a reader that was cut off to wait.
    #[must_use]
    pub const fn retry(&self) -> Option<Duration> {
        self.parser.retry()
    }

    async fn frame(&mut self) -> Result<Option<Frame<Bytes>>, ClientError> {
        let frame = match self.patience {
            None => self.body.frame().await,
            Some(patience) => time::timeout(patience, self.body.frame())
                .await
                .map_err(|_| ClientError::Slow { address: self.connections.transport.to_string(), patience })?,
        };
        frame.transpose().map_err(|error| self.connections.lost(&error))
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("last_id", &self.last_id).finish_non_exhaustive()
    }
}
