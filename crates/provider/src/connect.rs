//! Connections to providers.
//!
//! Guarantees: a connection is there within the time it was given, certificate and all; an https address is never reached without TLS.

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

use crate::trust::Trust;

/// Makes connections, each within a time.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    within: Duration,
}

impl Connector {
    /// Makes connections over TLS, or over plain TCP.
    pub(crate) fn new(trust: &Trust, encrypted: bool, within: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Requests and pieces of streams are small; waiting for more to fill a packet would delay each.
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        let tls = HttpsConnectorBuilder::new().with_tls_config(trust.config());
        let tls = if encrypted { tls.https_only() } else { tls.https_or_http() };
        Self { inner: tls.enable_http1().wrap_connector(tcp), within }
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
        let (connecting, within) = (self.inner.call(to), self.within);
        // A peer that takes the connection and never shows its certificate is as slow as one that does not take it.
        Box::pin(async move { timeout(within, connecting).await.map_err(|_| ConnectSlow { within })? })
    }
}

/// There was no connection in time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no connection within {within:?}")]
pub(crate) struct ConnectSlow {
    /// How long it was given.
    pub(crate) within: Duration,
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Finds out that the other side is gone while an answer is waited for.
const KEEPALIVE: Duration = Duration::from_secs(30);
