//! An address that checkpoints are posted to.
//!
//! Guarantees: certificates are checked; no redirection is followed; an answer that does not come is not waited for; the address, which may
//! hold a token, is in no message.

use std::time::Duration;

use http_body_util::Full;
use hyper::{Request, Uri, body::Bytes, header};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use super::{CheckpointSink, SinkError};
use crate::store::Later;

/// Posts checkpoints to an address.
#[derive(Debug)]
pub struct WebhookSink {
    address: Uri,
    timeout: Duration,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl WebhookSink {
    /// A sink that posts to this http or https address, and waits so long for an answer.
    ///
    /// # Errors
    /// When the address is none, or the machine has no certificates to check others with.
    pub fn new(address: &str, timeout: Duration) -> Result<Self, SinkError> {
        let uri: Uri = address.parse().map_err(|_| SinkError::Address)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(SinkError::Address);
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let trusted = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| SinkError::Unreachable(error.to_string()))?
            .with_native_roots()?
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(trusted).https_or_http().enable_http1().build();
        // A connection that idles for minutes is better made anew.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { address: uri, timeout, client })
    }

    async fn post(&self, note: &str) -> Result<(), SinkError> {
        let request = Request::post(self.address.clone())
            .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
            .header(header::USER_AGENT, concat!("palyra/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(note.to_owned())))
            .map_err(|error| SinkError::Unreachable(error.to_string()))?;
        let answer = tokio::time::timeout(self.timeout, self.client.request(request)).await;
        let answer = answer.map_err(|_| SinkError::Slow)?.map_err(|error| unreachable(&error))?;
        if answer.status().is_success() { Ok(()) } else { Err(SinkError::Refused(answer.status().as_u16())) }
    }
}

impl CheckpointSink for WebhookSink {
    fn name(&self) -> String {
        // SECURITY: path and query may hold a token.
        let scheme = self.address.scheme_str().unwrap_or_default();
        let port = self.address.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://{}{port}", self.address.host().unwrap_or_default())
    }

    fn publish<'a>(&'a mut self, note: &'a str) -> Later<'a, Result<(), SinkError>> {
        Box::pin(self.post(note))
    }
}

/// The innermost reason is the one that says something.
fn unreachable(error: &dyn std::error::Error) -> SinkError {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    SinkError::Unreachable(innermost.to_string())
}
