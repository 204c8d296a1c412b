//! Who a device is: the certificate authority, device certificates, mutual TLS and pairing.
//!
//! Guarantees: a connection is either refused or belongs to a key that this installation's authority has vouched for; a device's key never
//! leaves the device; a pairing gives nothing to whoever does not know its code, and a code bears three guesses, two minutes and one use.
//! Does not: say what a device may do, keep the list of devices, or move bytes. The first two are the daemon's, the last is its callers'.
//!
//! | you look for | read |
//! |---|---|
//! | the authority, and how it is replaced | [`authority`] |
//! | what a device asks for | [`csr`] |
//! | what the authority gives | [`certificate`], [`validity`] |
//! | TLS on both sides | [`tls`] |
//! | how a device comes to be known | [`pairing`] |
//! | what a device keeps | [`keeping`] |
//! | files that only their owner reads | [`private_file`] |
//! | where a daemon listens | [`address`] |

pub mod address;
pub mod authority;
pub mod certificate;
pub mod csr;
mod document;
pub mod keeping;
#[cfg(test)]
mod lab;
pub mod pairing;
mod pem;
pub mod private_file;
pub mod tls;
pub mod validity;

pub use address::Address;
pub use authority::{Authority, AuthorityError, Phase, grouped};
pub use certificate::{
    CertificateError, DEVICE_VALID_FOR, DeviceCertificate, Peer, SERVER_VALID_FOR, ServerCertificate, issue_device,
    issue_server,
};
pub use csr::{DeviceKeyRequest, RequestError, new_device_key, request_for};
pub use document::DocumentError;
pub use keeping::{DeviceIdentity, KeepingError, KeptFile};
pub use tls::{
    ALPN, PAIRING_ALPN, SERVER_NAME, TlsError, client_config, pairing_client_config, pairing_server_config,
    server_config,
};
pub use validity::{Validity, renewal_is_due};
