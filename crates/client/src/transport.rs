//! The two ways to a daemon: plain HTTP on loopback, and mutual TLS that trusts one authority.
//!
//! Guarantees: over TLS nothing is sent before the daemon has shown a certificate of the authority that is trusted, and every answer comes
//! from it.

use std::{fmt, io, sync::Arc};

use palyra_types::visible::visible;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
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
    /// Mutual TLS.
    Control { address: String, port: u16, tls: TlsConnector },
}

/// What a device knows the daemon by, and is known by: all of it as PEM.
#[derive(Clone, Copy)]
pub struct DeviceKeys<'a> {
    /// The authorities that the daemon's certificate may come from.
    pub authorities: &'a str,
    /// The device's certificate.
    pub certificate: &'a str,
    /// Its key.
    pub key: &'a str,
}

impl fmt::Debug for DeviceKeys<'_> {
    // SECURITY: whoever has the key is let in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceKeys")
    }
}

impl Transport {
    /// Mutual TLS to a daemon at `host:port`.
    // SECURITY: the authorities are the only trust anchors. Nobody else can finish the handshake, so nothing is sent to anybody else, whoever
    // sits on the port and whatever authorities the system trusts.
    pub(crate) fn control(address: &str, keys: DeviceKeys<'_>) -> Result<Self, CertificateError> {
        let refused = |error: &dyn fmt::Display| CertificateError(error.to_string());
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port = port.ok_or_else(|| refused(&format!("`{}` is no address", visible(address))))?;
        let chain = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let mut trusted = RootCertStore::empty();
        for authority in chain(keys.authorities).map_err(|error| refused(&error))? {
            trusted.add(authority).map_err(|error| refused(&error))?;
        }
        if trusted.is_empty() {
            return Err(refused(&"there is no authority to trust"));
        }
        let key = PrivateKeyDer::from_pem_slice(keys.key.as_bytes()).map_err(|error| refused(&error))?;
        let certificate = chain(keys.certificate).map_err(|error| refused(&error))?;
        let mut config = ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?
            .with_root_certificates(trusted)
            .with_client_auth_cert(certificate, key)
            .map_err(|error| refused(&error))?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self::Control { address: address.to_owned(), port, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Connects. Over TLS, the daemon has shown its certificate by then.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Wire>, ClientError> {
        let connected = match self {
            Self::Local(endpoint) => TcpStream::connect(endpoint.address()).await,
            Self::Control { address, .. } => TcpStream::connect(address).await,
        };
        let stream = connected.map_err(|error| ClientError::Unreachable {
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

    /// What stands in `Host`. Over TLS the authority tells daemons apart, and all of them answer to one name.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Local(endpoint) => endpoint.address().to_string(),
            Self::Control { port, .. } => format!("{SERVER_NAME}:{port}"),
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

/// Why keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the keys for the daemon cannot be used: {0}")]
pub struct CertificateError(String);

/// The name in the certificate of every daemon.
const SERVER_NAME: &str = "localhost";
