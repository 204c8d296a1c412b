//! The device's side of a pairing.
//!
//! Guarantees: the steps come in order, because each gives the value that the next one takes; nothing is kept before the daemon has proved
//! that it knows the code, on this connection; what it grants is for this device's key and names the authority that it has proved to have.

use palyra_types::Sha256Digest;

use super::{
    channel::Channel,
    code::Code,
    failure::{PairingError, VERSION},
    label::Label,
    message::{Granted, Hello, Message},
    transcript::{Exchange, Proofs, Transcript},
};
use crate::{certificate::Peer, csr::DeviceKeyRequest, pem};

/// What a device says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceHello {
    /// Its request for a certificate.
    pub request: DeviceKeyRequest,
    /// What it calls itself.
    pub name: Label,
    /// What it runs on.
    pub os: Label,
}

/// A device that has said hello.
#[must_use]
pub struct DeviceSide {
    code: Code,
    hello: DeviceHello,
    channel: Channel,
    exchange: Exchange,
    pake: Vec<u8>,
}

impl DeviceSide {
    /// Begins, and gives what to send.
    pub fn begin(code: Code, hello: DeviceHello, channel: Channel) -> (Self, Message) {
        let (exchange, pake) = Exchange::of_device(&code);
        let message = Message::Hello(Hello {
            v: VERSION,
            method: code.method(),
            pake: pake.clone(),
            csr: hello.request.der().to_vec(),
            name: hello.name.clone(),
            os: hello.os.clone(),
        });
        (Self { code, hello, channel, exchange, pake }, message)
    }

    /// Takes the daemon's part of the exchange, and gives the device's proof.
    ///
    /// # Errors
    /// When it is another message, or no part of an exchange.
    pub fn on_challenge(self, message: Message) -> Result<(AwaitingProof, Message), PairingError> {
        let Message::Challenge { pake } = message else {
            return Err(PairingError::instead_of("challenge", message));
        };
        let shared = self.exchange.finish(&pake)?;
        let transcript = Transcript {
            method: self.code.method(),
            device_pake: &self.pake,
            daemon_pake: &pake,
            request: &self.hello.request,
            name: &self.hello.name,
            os: &self.hello.os,
            channel: &self.channel,
        };
        let proofs = transcript.proofs(&shared)?;
        let message = Message::Proof { mac: proofs.of_device() };
        Ok((AwaitingProof { proofs, key: self.hello.request.key(), authority: self.channel.ca }, message))
    }
}

impl std::fmt::Debug for DeviceSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceSide")
    }
}

/// A device that has shown its proof and awaits the daemon's.
#[must_use]
pub struct AwaitingProof {
    proofs: Proofs,
    key: Sha256Digest,
    authority: Sha256Digest,
}

impl AwaitingProof {
    /// Takes the daemon's proof.
    ///
    /// # Errors
    /// When it does not hold: whoever is there does not know the code, or is not at the other end of this connection.
    pub fn on_proof(self, message: Message) -> Result<Proved, PairingError> {
        let Message::Proof { mac } = message else {
            return Err(PairingError::instead_of("proof", message));
        };
        if !self.proofs.is_of_daemon(&mac) {
            return Err(PairingError::WrongProof);
        }
        Ok(Proved { key: self.key, authority: self.authority })
    }
}

impl std::fmt::Debug for AwaitingProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AwaitingProof")
    }
}

/// A device whose daemon has proved itself. It awaits what the operator says.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Proved {
    key: Sha256Digest,
    authority: Sha256Digest,
}

impl Proved {
    /// Names the device's key, for the operator to compare with what the daemon shows.
    #[must_use]
    pub const fn key(&self) -> Sha256Digest {
        self.key
    }

    /// Names the daemon's authority.
    #[must_use]
    pub const fn authority(&self) -> Sha256Digest {
        self.authority
    }

    /// Takes what the daemon grants. The device answers `kept` once it is written down.
    ///
    /// # Errors
    /// When it is refused, for another key, or lacks the authority that was proved.
    pub fn on_granted(&self, message: Message) -> Result<Granted, PairingError> {
        let Message::Granted(granted) = message else {
            return Err(PairingError::instead_of("granted", message));
        };
        let certificate = pem::certificate(&granted.certificate).and_then(|der| Peer::of(&der).ok());
        if certificate.is_none_or(|peer| peer.key != self.key) {
            return Err(PairingError::ForeignCertificate);
        }
        let authorities = pem::certificates(&granted.authorities).unwrap_or_default();
        if !authorities.iter().any(|authority| Sha256Digest::of(authority) == self.authority) {
            return Err(PairingError::ForeignAuthorities);
        }
        Ok(granted)
    }
}
