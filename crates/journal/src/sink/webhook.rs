//! An address that checkpoints are posted to.
//!
//! Guarantees: nothing is sent to an https address before its certificate was checked, and never without TLS; no redirection is followed; an
//! answer that does not come is not waited for; the address, which may hold a token, is in no message.

use std::time::Duration;

use http_body_util::Full;
use hyper::{Request, Uri, body::Bytes, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
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
    /// A sink that posts to this http or https address, and waits so long for an answer. It trusts the certificate authorities that the
    /// machine trusts.
    ///
    /// # Errors
    /// When the address is none, or the machine trusts no authority and the address needs one.
    pub fn new(address: &str, timeout: Duration) -> Result<Self, SinkError> {
        Self::build(address, timeout, Vec::new())
    }

    /// A sink that posts to this https address, and waits so long for an answer. Beside the certificate authorities that the machine trusts
    /// it trusts those whose certificates are in this PEM text.
    ///
    /// # Errors
    /// When the address is none of https, or the text holds no certificate of an authority.
    pub fn trusting(address: &str, timeout: Duration, authorities: &str) -> Result<Self, SinkError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authorities.as_bytes()).collect();
        let certificates = certificates.map_err(|_| SinkError::Authority("it is not PEM"))?;
        if certificates.is_empty() {
            return Err(SinkError::Authority("there is no certificate in it"));
        }
        Self::build(address, timeout, certificates)
    }

    fn build(address: &str, timeout: Duration, extra: Vec<CertificateDer<'_>>) -> Result<Self, SinkError> {
        let uri: Uri = address.parse().map_err(|_| SinkError::Address)?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if extra.is_empty() => false,
            Some("http") => return Err(SinkError::Authority("an http address shows no certificate")),
            _ => return Err(SinkError::Address),
        };
        if uri.host().is_none_or(str::is_empty) {
            return Err(SinkError::Address);
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let tls = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| SinkError::Unreachable(error.to_string()))?
            .with_root_certificates(if is_https { authorities(extra)? } else { RootCertStore::empty() })
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let connector = if is_https { connector.https_only() } else { connector.https_or_http() };
        // A connection that idles for minutes is better made anew.
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector.enable_http1().build());
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

/// The authorities that the machine trusts, and these.
fn authorities(extra: Vec<CertificateDer<'_>>) -> Result<RootCertStore, SinkError> {
    let mut trusted = RootCertStore::empty();
    for certificate in extra {
        trusted
            .add(certificate)
            .map_err(|_| SinkError::Authority("a certificate in it cannot be one of an authority"))?;
    }
    // One that cannot be read among the machine's many is no reason to trust none.
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if trusted.is_empty() { Err(SinkError::Authority("the machine trusts none")) } else { Ok(trusted) }
}

/// The innermost reason is the one that says something.
fn unreachable(error: &dyn std::error::Error) -> SinkError {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    SinkError::Unreachable(innermost.to_string())
}
