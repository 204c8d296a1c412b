//! The host's side of a conversation: connections to it, one at a time, that serve one client.
//!
//! Guarantees: a connection leads to an address that was judged, and to a host that has shown who it is; a request that may have begun to
//! arrive is never sent twice; whatever is waited for ends when nothing passes for too long. Interim responses are swallowed.

use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{sync::Notify, time::timeout};

use super::{Front, Reader, Trouble};
use crate::egress::{
    body::Body,
    connect::Connected,
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
    relay::{Counted, Stream},
};

impl Front {
    /// Sends a request to the host, by the connection that is there or by another one.
    pub(super) async fn send(self: &Arc<Self>, mut request: Request<Body>) -> Result<Response<Incoming>, Trouble> {
        let flooded = Arc::new(Notify::new());
        let (interim, flood) = (AtomicUsize::new(0), Arc::clone(&flooded));
        hyper::ext::on_informational(&mut request, move |_| {
            if interim.fetch_add(1, Ordering::Relaxed) >= MOST_INTERIM {
                flood.notify_one();
            }
        });
        loop {
            let (mut sender, is_used) = match self.waiting().await {
                Some(sender) => (sender, true),
                None => (self.reach().await?, false),
            };
            let sent = tokio::select! {
                sent = sender.try_send_request(request) => sent,
                () = flooded.notified() => return Err(self.failed("sent more interim responses than are read")),
                () = self.idle(self.run.limits.idle) => {
                    let detail = format!("`{}` did not answer in time", self.to.host());
                    return Err(Trouble::Failed(EgressRefusal::new(Kind::TooSlow, detail)));
                }
            };
            match sent {
                Ok(response) => {
                    *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
                    return Ok(response);
                }
                Err(mut unsent) => {
                    // A host may close a connection that waits at any time. What it has not begun to get can go by another one.
                    match unsent.take_message().filter(|_| is_used) {
                        Some(message) => request = message,
                        None => return Err(self.failed(in_words(unsent.error()))),
                    }
                }
            }
        }
    }

    /// A connection to the host that waits for another request.
    async fn waiting(&self) -> Option<SendRequest<Body>> {
        let mut sender = self.upstream.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        sender.ready().await.ok().map(|()| sender)
    }

    /// Another connection to the host, which has shown that it is the host.
    async fn reach(self: &Arc<Self>) -> Result<SendRequest<Body>, Trouble> {
        let host = self.to.host();
        let Connected { stream, address } = self.run.net.connect(&self.to).await?;
        let traffic = {
            let mut entry = self.entry();
            entry.meant(host, self.to.port());
            entry.address = Some(address);
            Arc::clone(entry.traffic())
        };
        let counted = Counted::new(stream, traffic);
        let stream: Box<dyn Stream> = match &self.reader {
            Reader::Plain(_) => Box::new(counted),
            Reader::Inside(by) => match timeout(self.run.limits.handshake, by.trust.verify(host, counted)).await {
                Ok(Ok(stream)) => Box::new(stream),
                Ok(Err(cause)) => {
                    let detail = format!("`{host}` cannot be trusted to be `{host}`: {cause}");
                    return Err(EgressRefusal::new(Kind::Untrusted, detail).into());
                }
                Err(_) => {
                    let detail = format!("`{host}` did not show in time who it is");
                    return Err(EgressRefusal::new(Kind::TooSlow, detail).into());
                }
            },
        };
        {
            let mut entry = self.entry();
            if !entry.is_made() {
                entry.made();
            }
        }
        let mut builder = Builder::new();
        builder.max_header_size(MOST_HEAD).max_headers(MOST_HEADERS);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| self.failed(in_words(&error)))?;
        self.goes_on(async move {
            // What becomes of it shows in what is read from it.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

fn in_words(error: &hyper::Error) -> &'static str {
    match error {
        _ if error.is_parse_too_large() => "answered with a head that is longer than is read",
        _ if error.is_parse() => "answered with something that is no HTTP/1.1",
        _ => "hung up before it had answered",
    }
}

/// How many bytes the head of an answer has at most, and how many headers.
const MOST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 256;

/// How many interim responses may come before the answer.
const MOST_INTERIM: usize = 16;
