//! What is proved: everything that was said and the connection it was said on, under a key that only who knows the code has.
//!
//! SECURITY: whoever sits in the middle and relays every message changes nothing that was said, but has two connections, and so two
//! exporters; whoever swaps the request, the name or the authority changes what was said. Either way the transcripts differ and no proof
//! holds. A proof that does not hold tells nothing about the code: without the exponents, which never leave the two ends, every code is as
//! likely as before for whatever was seen.

use aws_lc_rs::{
    hkdf::{HKDF_SHA256, KeyType, Salt},
    hmac,
};
use palyra_types::Sha256Digest;
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

use super::{
    channel::Channel,
    code::{Code, Method},
    failure::PairingError,
    label::Label,
};
use crate::csr::DeviceKeyRequest;

/// What was said, and where.
pub(super) struct Transcript<'a> {
    pub(super) method: Method,
    /// The device's part of the key exchange.
    pub(super) device_pake: &'a [u8],
    /// The daemon's part of it.
    pub(super) daemon_pake: &'a [u8],
    pub(super) request: &'a DeviceKeyRequest,
    pub(super) name: &'a Label,
    pub(super) os: &'a Label,
    pub(super) channel: &'a Channel,
}

impl Transcript<'_> {
    /// Names all of it.
    pub(super) fn digest(&self) -> Sha256Digest {
        Sha256Digest::of_fields([
            PROTOCOL,
            self.method.as_str().as_bytes(),
            self.device_pake,
            self.daemon_pake,
            self.request.der(),
            self.request.key().as_bytes(),
            self.channel.ca.as_bytes(),
            self.channel.daemon_key.as_bytes(),
            &self.channel.exporter,
            self.name.as_str().as_bytes(),
            self.os.as_str().as_bytes(),
        ])
    }

    /// The two proofs, from the key that the exchange gave.
    pub(super) fn proofs(&self, shared: &[u8]) -> Result<Proofs, PairingError> {
        Proofs::derive(shared, &self.digest())
    }
}

/// What each side must show the other.
pub(super) struct Proofs {
    transcript: Sha256Digest,
    device: hmac::Key,
    daemon: hmac::Key,
}

impl Proofs {
    fn derive(shared: &[u8], transcript: &Sha256Digest) -> Result<Self, PairingError> {
        let extracted = Salt::new(HKDF_SHA256, transcript.as_bytes()).extract(shared);
        let key = |label: &[u8]| -> Result<hmac::Key, PairingError> {
            let mut bytes = Zeroizing::new([0; 32]);
            let info = [label];
            let expanded = extracted.expand(&info, ProofKey).and_then(|key| key.fill(bytes.as_mut_slice()));
            expanded.map_err(|_| PairingError::Internal)?;
            Ok(hmac::Key::new(hmac::HMAC_SHA256, bytes.as_slice()))
        };
        Ok(Self { transcript: *transcript, device: key(DEVICE_LABEL)?, daemon: key(DAEMON_LABEL)? })
    }

    /// What the device shows.
    pub(super) fn of_device(&self) -> Vec<u8> {
        hmac::sign(&self.device, self.transcript.as_bytes()).as_ref().to_vec()
    }

    /// What the daemon shows.
    pub(super) fn of_daemon(&self) -> Vec<u8> {
        hmac::sign(&self.daemon, self.transcript.as_bytes()).as_ref().to_vec()
    }

    /// Whether this is what the device shows. Takes as long whatever it is.
    pub(super) fn is_of_device(&self, mac: &[u8]) -> bool {
        hmac::verify(&self.device, self.transcript.as_bytes(), mac).is_ok()
    }

    /// Whether this is what the daemon shows. Takes as long whatever it is.
    pub(super) fn is_of_daemon(&self, mac: &[u8]) -> bool {
        hmac::verify(&self.daemon, self.transcript.as_bytes(), mac).is_ok()
    }
}

/// One side's part of the key exchange, before the other's is known.
pub(super) struct Exchange(Spake2<Ed25519Group>);

impl Exchange {
    // The randomness of the two below is the operating system's: the library takes another only by the traits of a crate that it does not
    // hand on.

    /// The device's part, and what it sends.
    pub(super) fn of_device(code: &Code) -> (Self, Vec<u8>) {
        let (device, daemon) = identities();
        let (state, pake) = Spake2::start_a(&Password::new(code.password().as_slice()), &device, &daemon);
        (Self(state), pake)
    }

    /// The daemon's part, and what it sends.
    pub(super) fn of_daemon(code: &Code) -> (Self, Vec<u8>) {
        let (device, daemon) = identities();
        let (state, pake) = Spake2::start_b(&Password::new(code.password().as_slice()), &device, &daemon);
        (Self(state), pake)
    }

    /// The key that both have if both know the code.
    pub(super) fn finish(self, other: &[u8]) -> Result<Zeroizing<Vec<u8>>, PairingError> {
        self.0.finish(other).map(Zeroizing::new).map_err(|_| PairingError::BadExchange)
    }
}

fn identities() -> (Identity, Identity) {
    (Identity::new(b"palyra device"), Identity::new(b"palyra daemon"))
}

/// The length of a key for a proof.
struct ProofKey;

impl KeyType for ProofKey {
    fn len(&self) -> usize {
        32
    }
}

const PROTOCOL: &[u8] = b"palyra pairing 1";

const DEVICE_LABEL: &[u8] = b"palyra pairing 1 proof of the device";

const DAEMON_LABEL: &[u8] = b"palyra pairing 1 proof of the daemon";

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;

    use super::*;
    use crate::{
        lab::unhex,
        pairing::code::{PairingCode, Pin},
    };

    /// A request for an Ed25519 key, made with OpenSSL.
    const REQUEST: &str = "\
        30818b303f020100300c310a300806035504030c0178302a300506032b6570032100f3c50e49488cdee3999f585aef59fdc259e8563914fd\
        d5c805c87030fcc67acda000300506032b6570034100321ea84386f6e5274cfe77dc2b0abd94d0c1cb6ca68fd54e8b83621a344a58ea7404\
        d7cacf638ac70319cac69b4f85a65ee3c5299e67624e5feddbc89c15a306";

    #[test]
    fn the_transcript_and_the_proofs_are_what_another_implementation_computes() {
        // Computed with Python's hashlib and hmac from the description in this file.
        let pake = |side: u8, byte: u8| [vec![side], vec![byte; 32]].concat();
        let channel = Channel {
            ca: Sha256Digest::from_bytes([3; 32]),
            daemon_key: Sha256Digest::from_bytes([4; 32]),
            exporter: [5; 32],
        };
        let transcript = Transcript {
            method: Method::Pin,
            device_pake: &pake(b'A', 1),
            daemon_pake: &pake(b'B', 2),
            request: &DeviceKeyRequest::parse(&unhex(REQUEST)).unwrap(),
            name: &Label::parse("Ada's laptop").unwrap(),
            os: &Label::parse("Linux 6.12").unwrap(),
            channel: &channel,
        };
        assert_eq!(transcript.digest().to_hex(), "dc6a6c579cbde10e3918b078aba9dc7db60f6365887d0d761c5eae426976a1bf");
        let proofs = transcript.proofs(&[7; 32]).unwrap();
        let device = unhex("42b5b7714e9351045663c87bb24fcef487544037f0d1cbd58da64e1c280b8092");
        let daemon = unhex("c30b4f0eb897687c02cbd0171d3e2fd2684082dfc0b51adda0c4f127e2dcddc8");
        assert_eq!((proofs.of_device(), proofs.of_daemon()), (device.clone(), daemon.clone()));
        assert!(proofs.is_of_device(&device) && proofs.is_of_daemon(&daemon));
        assert!(!proofs.is_of_device(&daemon) && !proofs.is_of_daemon(&device), "neither passes for the other");
        assert!(!proofs.is_of_device(&device[..31]) && !proofs.is_of_device(&[]));
    }

    fn exchange(one: &Code, other: &Code) -> (Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>) {
        let ((device, device_pake), (daemon, daemon_pake)) = (Exchange::of_device(one), Exchange::of_daemon(other));
        (device.finish(&daemon_pake).unwrap(), daemon.finish(&device_pake).unwrap())
    }

    #[test]
    fn two_sides_share_a_key_when_both_know_the_code_and_only_then() {
        let code = PairingCode::generate(&SystemEntropy).unwrap();
        for method in [Method::Pin, Method::Qr] {
            let (device, daemon) = exchange(&code.of(method), &code.of(method));
            assert_eq!(device, daemon);
            assert_ne!(device, exchange(&code.of(method), &code.of(method)).0, "another run, another key");
        }
        let pin = |digits| Code::Pin(Pin::parse(digits).unwrap());
        let (device, daemon) = exchange(&pin("000000"), &pin("000001"));
        assert_ne!(device, daemon);
        let (device, daemon) = exchange(&code.of(Method::Pin), &code.of(Method::Qr));
        assert_ne!(device, daemon);
    }

    #[test]
    fn what_is_no_part_of_an_exchange_is_refused() {
        let code = PairingCode::generate(&SystemEntropy).unwrap().of(Method::Pin);
        let (_, own) = Exchange::of_device(&code);
        for part in [vec![], own.clone(), vec![b'B'; 33], own[1..].to_vec(), [own, vec![0]].concat()] {
            let refused = Exchange::of_device(&code).0.finish(&part).err();
            assert_eq!(refused, Some(PairingError::BadExchange), "{part:?}");
        }
    }
}
