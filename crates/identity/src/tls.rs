//! TLS on both sides: mutual for devices that are known, and one-sided for those that are about to be.
//!
//! Guarantees: who connects has shown a certificate for clients that a trusted authority signed and that holds now, by the clock that was
//! given; every connection does so anew, because none is resumed; whoever connects trusts the installation's authorities and nobody else.
//! Does not: know which devices were revoked. That is asked for each request, by the key of the connection.

use std::{fmt, sync::Arc, time::Duration};

use palyra_types::Clock;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    time_provider::TimeProvider,
    version::{TLS12, TLS13},
};

use crate::{
    authority::Authority,
    certificate::{ServerCertificate, is_authority},
    keeping::DeviceIdentity,
    pem,
};

/// The daemon's side for devices that are known: only who shows a certificate of a trusted authority gets in.
///
/// # Errors
/// When the certificate or the authority cannot be used.
pub fn server_config(
    authority: &Authority,
    certificate: &ServerCertificate,
    clock: Arc<dyn Clock>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider();
    let trusted = roots(authority.trusted())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted, Arc::clone(&provider))
        .build()
        .map_err(|error| TlsError::Unusable(error.to_string()))?;
    let config = ServerConfig::builder_with_details(provider, Arc::new(Time(clock)))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain(certificate)?, key(&certificate.key)?)?;
    Ok(Arc::new(without_resumption(config, ALPN)))
}

/// The daemon's side for a device that is about to be paired: it has no certificate yet.
///
/// # Errors
/// When the certificate cannot be used.
// SECURITY: TLS 1.3 only. The proofs of a pairing cover the exporter of the connection, which names a connection without doubt only there.
pub fn pairing_server_config(
    certificate: &ServerCertificate,
    clock: Arc<dyn Clock>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let config = ServerConfig::builder_with_details(provider(), Arc::new(Time(clock)))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain(certificate)?, key(&certificate.key)?)?;
    Ok(Arc::new(without_resumption(config, PAIRING_ALPN)))
}

/// The device's side: trusts the authorities of its daemon and nobody else, and shows its certificate. The name to connect to is always
/// [`SERVER_NAME`].
///
/// # Errors
/// When the certificates or the key cannot be used.
pub fn client_config(identity: &DeviceIdentity, clock: Arc<dyn Clock>) -> Result<Arc<ClientConfig>, TlsError> {
    let trusted = pem::certificates(&identity.authorities).ok_or(TlsError::NoCertificate)?;
    let own = pem::certificates(&identity.certificate).ok_or(TlsError::NoCertificate)?;
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(Time(clock)))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_root_certificates(roots(trusted)?)
        .with_client_auth_cert(own, key(&identity.key)?)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The device's side of a pairing, when it does not know the daemon yet.
///
/// # Errors
/// When TLS cannot be set up.
pub fn pairing_client_config(clock: Arc<dyn Clock>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let mut config = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(Time(clock)))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyDaemon { provider }))
        .with_no_client_auth();
    config.alpn_protocols = vec![PAIRING_ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Accepts any daemon whose certificate is signed by the authority that stands behind it in the chain.
// SECURITY: anybody can make such a chain, so it authenticates nobody. What does is the key exchange with the code (`pairing`): its proofs
// cover the digest of this authority, the daemon's key and the exporter of this very connection. Whoever sits in the middle has another
// key, another exporter, and no code. Nothing secret is sent before the proofs have held.
#[derive(Debug)]
struct AnyDaemon {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyDaemon {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let [authority] = intermediates else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        if !is_authority(authority) {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The clock that was given, as TLS asks for it.
struct Time(Arc<dyn Clock>);

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let millis = u64::try_from(self.0.now().unix_millis()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_millis(millis)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

// SECURITY: a resumed session would skip the certificate, and with it whether it still holds. There is nothing to resume: no ticket is
// sent, none is read, and nothing is stored.
fn without_resumption(mut config: ServerConfig, protocol: &[u8]) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate)?;
    }
    Ok(Arc::new(roots))
}

fn chain(certificate: &ServerCertificate) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pem::certificates(&certificate.chain).ok_or(TlsError::NoCertificate)
}

fn key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| TlsError::NoKey)
}

/// Why there is no TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// No certificate where one must be.
    #[error("a certificate cannot be read")]
    NoCertificate,
    /// No key where one must be.
    #[error("a private key cannot be read")]
    NoKey,
    /// TLS does not take them.
    #[error("a certificate or a key cannot be used: {0}")]
    Unusable(String),
}

impl TlsError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "on a device, pair it again; on a daemon, restore its authority from a backup"
    }
}

impl From<Error> for TlsError {
    fn from(error: Error) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// The name in the certificate of every daemon. What tells daemons apart is their authority.
pub const SERVER_NAME: &str = "localhost";

/// What is spoken with devices that are known.
pub const ALPN: &[u8] = b"http/1.1";

/// What is spoken with a device that is about to be paired.
pub const PAIRING_ALPN: &[u8] = b"palyra-pair/1";

#[cfg(test)]
mod tests;
