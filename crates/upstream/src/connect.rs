//! Connections to servers that somebody else runs.
//!
//! Guarantees: a connection is there within its time, certificate and all; an https address is never reached without TLS.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

/// Makes connections, each within a time.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<HttpConnector>,
}

impl Connector {
    /// Makes connections over TLS to those whose certificates are trusted, or over plain TCP.
    pub(crate) fn new(trust: rustls::ClientConfig, encrypted: bool) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        let tls = HttpsConnectorBuilder::new().with_tls_config(trust);
        let tls = if encrypted { tls.https_only() } else { tls.https_or_http() };
        Self { inner: tls.enable_http1().wrap_connector(tcp) }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.inner.call(to);
        Box::pin(async move { timeout(WITHIN, connecting).await.map_err(|_| Slow)? })
    }
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no connection within {} seconds", WITHIN.as_secs())]
struct Slow;

type BoxError = Box<dyn Error + Send + Sync>;

/// Finds out that the other side is gone while an answer is waited for.
const KEEPALIVE: Duration = Duration::from_secs(30);

const WITHIN: Duration = Duration::from_secs(10);
