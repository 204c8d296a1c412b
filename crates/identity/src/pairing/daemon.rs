//! The daemon's side of a pairing.
//!
//! Guarantees: the daemon proves nothing before the device has; a [`ProvedDevice`] exists only where a device's proof held.

use palyra_types::Sha256Digest;

use super::{
    channel::Channel,
    code::Code,
    failure::{PairingError, VERSION},
    label::Label,
    message::{Hello, Message},
    transcript::{Exchange, Proofs, Transcript},
};
use crate::csr::DeviceKeyRequest;

/// A daemon that has answered a hello and awaits the device's proof.
#[must_use]
pub struct DaemonSide {
    proofs: Proofs,
    request: DeviceKeyRequest,
    name: Label,
    os: Label,
}

impl DaemonSide {
    /// Answers a hello. The code comes from a [`Guess`](super::Guess), which was counted before.
    ///
    /// # Errors
    /// When the hello is of another version or method, its request is refused, or it holds no part of an exchange.
    pub fn begin(code: &Code, hello: Hello, channel: &Channel) -> Result<(Self, Message), PairingError> {
        if hello.v != VERSION {
            return Err(PairingError::OtherVersion(hello.v));
        }
        if hello.method != code.method() {
            return Err(PairingError::OtherMethod);
        }
        let request = DeviceKeyRequest::parse(&hello.csr)?;
        let (exchange, pake) = Exchange::of_daemon(code);
        let shared = exchange.finish(&hello.pake)?;
        let transcript = Transcript {
            method: hello.method,
            device_pake: &hello.pake,
            daemon_pake: &pake,
            request: &request,
            name: &hello.name,
            os: &hello.os,
            channel,
        };
        let proofs = transcript.proofs(&shared)?;
        Ok((Self { proofs, request, name: hello.name, os: hello.os }, Message::Challenge { pake }))
    }

    /// Takes the device's proof, and gives the daemon's.
    ///
    /// # Errors
    /// When it does not hold, or is another message.
    // SECURITY: who proves first lets the other side check one guess. That is the device, because the daemon's guesses are counted and its
    // code stands on a screen, whereas a device that is talked into connecting to a stranger tries once.
    pub fn on_proof(self, message: Message) -> Result<(ProvedDevice, Message), PairingError> {
        let Message::Proof { mac } = message else {
            return Err(PairingError::instead_of("proof", message));
        };
        if !self.proofs.is_of_device(&mac) {
            return Err(PairingError::WrongProof);
        }
        let device = ProvedDevice { request: self.request, name: self.name, os: self.os };
        Ok((device, Message::Proof { mac: self.proofs.of_daemon() }))
    }
}

impl std::fmt::Debug for DaemonSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DaemonSide({:?})", self.request)
    }
}

/// A device that has proved that it knows the code. It is nobody yet: the operator has not confirmed it.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct ProvedDevice {
    request: DeviceKeyRequest,
    name: Label,
    os: Label,
}

impl ProvedDevice {
    /// Its request for a certificate.
    #[must_use]
    pub const fn request(&self) -> &DeviceKeyRequest {
        &self.request
    }

    /// Names its key.
    #[must_use]
    pub const fn key(&self) -> Sha256Digest {
        self.request.key()
    }

    /// What it calls itself. Claimed, not checked.
    #[must_use]
    pub const fn name(&self) -> &Label {
        &self.name
    }

    /// What it says it runs on. Claimed, not checked.
    #[must_use]
    pub const fn os(&self) -> &Label {
        &self.os
    }
}
