//! The two ways to a daemon: plain HTTP on loopback, and TLS that trusts one certificate.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{endpoint::Endpoint, error::ClientError};

/// A way to a daemon.
#[derive(Clone)]
pub(crate) enum Transport {
    /// Plain HTTP on loopback.
    Local(Endpoint),
    /// TLS to whoever has the key of one certificate.
    Control { address: SocketAddr, tls: TlsConnector },
}

impl Transport {
    /// TLS to a daemon that has this certificate, in PEM, for the name `localhost`.
    // SECURITY: it is the only trust anchor. Nobody else can finish the handshake, so nothing is sent to anybody else, whoever sits on
    // the port and whatever authorities the system trusts.
    pub(crate) fn control(address: SocketAddr, certificate: &str) -> Result<Self, CertificateError> {
        let refused = |error: &dyn fmt::Display| CertificateError(error.to_string());
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| refused(&error))?;
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate).map_err(|error| refused(&error))?;
        let config = ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Ok(Self::Control { address, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Connects. Over TLS, the daemon has shown its certificate by then.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Wire>, ClientError> {
        let stream = TcpStream::connect(self.socket()).await.map_err(|error| ClientError::Unreachable {
            address: self.to_string(),
            message: error.kind().to_string(),
        })?;
        // Latency only: a request is small and wants to leave at once.
        let _ = stream.set_nodelay(true);
        match self {
            Self::Local(_) => Ok(Box::new(stream)),
            Self::Control { tls, .. } => {
                let stranger = |message: String| ClientError::Stranger { address: self.to_string(), message };
                let name = ServerName::try_from(SERVER_NAME).map_err(|error| stranger(error.to_string()))?;
                let stream = tls.connect(name, stream).await.map_err(|error| match error.kind() {
                    kind if is_end(kind) => {
                        ClientError::Closed { address: self.to_string(), message: error.to_string() }
                    }
                    _ => stranger(error.to_string()),
                })?;
                Ok(Box::new(stream))
            }
        }
    }

    /// What stands in `Host`.
    pub(crate) fn host(&self) -> String {
        self.socket().to_string()
    }

    const fn socket(&self) -> SocketAddr {
        match self {
            Self::Local(endpoint) => endpoint.address(),
            Self::Control { address, .. } => *address,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(endpoint) => endpoint.fmt(f),
            Self::Control { address, .. } => write!(f, "https://{address}"),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether the other side ended the connection. What it said and should not have said comes as `InvalidData`.
const fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// What bytes go over.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Why a certificate cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the daemon's certificate cannot be used: {0}")]
pub struct CertificateError(String);

/// The name in the certificate of every daemon.
const SERVER_NAME: &str = "localhost";
