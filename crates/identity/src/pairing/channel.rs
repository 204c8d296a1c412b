//! What the proofs of a pairing say about the TLS connection that they are made on.
//!
//! Guarantees: both ends of one connection get the same [`Channel`]; the ends of two connections do not, whoever relays between them.

use palyra_types::Sha256Digest;
use rustls::{ClientConnection, ProtocolVersion, ServerConnection, pki_types::CertificateDer};

use crate::{
    certificate::{Peer, ServerCertificate},
    tls::PAIRING_ALPN,
};

/// One TLS connection, as both of its ends see it.
#[derive(Clone, PartialEq, Eq)]
pub struct Channel {
    /// Names the authority behind the daemon's certificate: the digest of its certificate.
    pub ca: Sha256Digest,
    /// Names the daemon's key: the digest of its SubjectPublicKeyInfo.
    pub daemon_key: Sha256Digest,
    /// What only the two ends of this very connection know.
    pub exporter: [u8; 32],
}

impl Channel {
    /// The daemon's end, which shows this certificate.
    ///
    /// # Errors
    /// When the connection is not established, or not one for pairing.
    pub fn of_daemon(connection: &ServerConnection, certificate: &ServerCertificate) -> Result<Self, ChannelError> {
        check(connection.is_handshaking(), connection.protocol_version(), connection.alpn_protocol())?;
        let exporter = connection.export_keying_material([0; 32], EXPORTER_LABEL, None);
        Ok(Self {
            ca: certificate.authority,
            daemon_key: certificate.spki,
            exporter: exporter.map_err(|_| ChannelError::NotEstablished)?,
        })
    }

    /// The device's end, of a connection made with [`pairing_client_config`](crate::tls::pairing_client_config).
    ///
    /// # Errors
    /// When the connection is not established, or not one for pairing.
    pub fn of_device(connection: &ClientConnection) -> Result<Self, ChannelError> {
        check(connection.is_handshaking(), connection.protocol_version(), connection.alpn_protocol())?;
        let Some([leaf, authority]) = connection.peer_certificates() else {
            return Err(ChannelError::NoAuthority);
        };
        let exporter = connection.export_keying_material([0; 32], EXPORTER_LABEL, None);
        Ok(Self {
            ca: Sha256Digest::of(authority),
            daemon_key: key_of(leaf)?,
            exporter: exporter.map_err(|_| ChannelError::NotEstablished)?,
        })
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({:?})", self.ca)
    }
}

// SECURITY: only where TLS 1.3 was spoken does the exporter name the connection; before, two connections can be made to share one.
fn check(handshaking: bool, version: Option<ProtocolVersion>, protocol: Option<&[u8]>) -> Result<(), ChannelError> {
    match (handshaking, version, protocol) {
        (true, _, _) | (_, None, _) => Err(ChannelError::NotEstablished),
        (false, Some(ProtocolVersion::TLSv1_3), Some(PAIRING_ALPN)) => Ok(()),
        _ => Err(ChannelError::NotForPairing),
    }
}

fn key_of(leaf: &CertificateDer<'_>) -> Result<Sha256Digest, ChannelError> {
    Ok(Peer::of(leaf).map_err(|_| ChannelError::NoAuthority)?.key)
}

/// Why no pairing can be done on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// Too early, or already over.
    #[error("the connection is not established")]
    NotEstablished,
    /// Another protocol, or an older TLS.
    #[error("the connection is not one for pairing")]
    NotForPairing,
    /// The daemon shows no authority behind its certificate.
    #[error("the daemon shows no authority")]
    NoAuthority,
}

impl ChannelError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "check the address of the daemon, and use the same version of the program on both sides"
    }
}

/// What the exporter is asked for.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-palyra-pairing-1";
