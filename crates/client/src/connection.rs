//! One HTTP/1.1 connection at a time, kept for the next request.
//!
//! Guarantees: a request that may have been received is not sent a second time.

use std::{
    error::Error,
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::time;

use crate::{error::ClientError, transport::Transport};

/// The connections of a client.
pub(crate) struct Connections {
    pub(crate) transport: Transport,
    idle: Mutex<Option<Idle>>,
}

/// A connection that nothing is under way on, and since when.
struct Idle {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

/// A connection on which a request was answered.
pub(crate) struct InUse(SendRequest<Full<Bytes>>);

impl Connections {
    pub(crate) const fn new(transport: Transport) -> Self {
        Self { transport, idle: Mutex::new(None) }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<(Response<Incoming>, InUse), ClientError> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        // One that was idle for long may be about to be closed by the daemon, while a request is on its way.
        let kept = kept.filter(|kept| kept.since.elapsed() < MOST_IDLE).map(|kept| kept.sender);
        if let Some(mut kept) = kept.filter(|kept| !kept.is_closed())
            && kept.ready().await.is_ok()
        {
            match kept.try_send_request(request).await {
                Ok(response) => return Ok((response, InUse(kept))),
                // The daemon closed the connection meanwhile; nothing of the request has left.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(self.lost(error.error())),
                },
            }
        }
        let slow = |_| ClientError::Slow { address: self.transport.to_string(), patience };
        let mut sender = time::timeout(patience, self.open()).await.map_err(slow)??;
        let response = sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        Ok((response, InUse(sender)))
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn keep(&self, InUse(sender): InUse) {
        let idle = Idle { sender, since: Instant::now() };
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(idle);
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let wire = self.transport.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(|error| self.lost(&error))?;
        // What goes wrong on it is told to whoever waits for an answer.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// What a broken exchange means.
    pub(crate) fn lost(&self, error: &hyper::Error) -> ClientError {
        if error.is_parse() {
            return ClientError::Protocol(error.to_string());
        }
        if let Some(alert) = alert(error) {
            return ClientError::NotTaken { address: self.transport.to_string(), message: alert };
        }
        ClientError::Lost { address: self.transport.to_string(), message: error.to_string() }
    }
}

/// What the other side of a TLS connection objected to, if that is why it ended. With TLS 1.3 a device hears only with the first answer that its
/// certificate is not taken.
fn alert(error: &hyper::Error) -> Option<String> {
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match told.and_then(|told| told.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::AlertReceived(alert)) => return Some(format!("{alert:?}")),
            _ => source = cause.source(),
        }
    }
    None
}

/// How long a connection is used again after its last answer. The daemon closes idle ones after a few seconds.
const MOST_IDLE: Duration = Duration::from_secs(2);
