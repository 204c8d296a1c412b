//! What a device asks the authority for: a certificate for a key that it has.
//!
//! Guarantees: a [`DeviceKeyRequest`] holds a P-256 or Ed25519 key in its one encoding, and was signed with that key. One key has one digest:
//! a key that was revoked does not come back in another spelling.
//! Does not: read anything else that the request says. Names and extensions in it are nobody's business.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use palyra_types::Sha256Digest;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ED25519, Oid},
    prelude::FromDer,
    x509::X509Version,
};
use zeroize::Zeroizing;

/// A request for a certificate (PKCS #10) whose maker has the key.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceKeyRequest {
    der: Vec<u8>,
    spki: Vec<u8>,
    key: Sha256Digest,
}

impl DeviceKeyRequest {
    /// Reads a request and checks that whoever made it has the key.
    ///
    /// # Errors
    /// When it is too long, not a request, for another kind of key, or not signed with its key.
    pub fn parse(der: &[u8]) -> Result<Self, RequestError> {
        if der.len() > LONGEST {
            return Err(RequestError::TooLong { length: der.len() });
        }
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestError::Trailing);
        }
        let info = &request.certification_request_info;
        if info.version != X509Version::V1 {
            return Err(RequestError::Malformed);
        }
        let spki = info.subject_pki.raw;
        let (kind, point) = KeyKind::of(spki).ok_or(RequestError::OtherKey)?;
        if request.signature_algorithm.algorithm != kind.signature_oid() {
            return Err(RequestError::OtherSignature);
        }
        let signature = &request.signature_value.data;
        // What is not signed has one spelling as well: the parser reads more than DER.
        if envelope(info.raw, kind, signature) != der {
            return Err(RequestError::Malformed);
        }
        UnparsedPublicKey::new(kind.verification(), point)
            .verify(info.raw, signature)
            .map_err(|_| RequestError::NotSigned)?;
        Ok(Self { der: der.to_vec(), spki: spki.to_vec(), key: Sha256Digest::of(spki) })
    }

    /// The request as it is sent.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Names the key: the digest of its SubjectPublicKeyInfo.
    #[must_use]
    pub const fn key(&self) -> Sha256Digest {
        self.key
    }

    /// The key as certificates hold it.
    pub(crate) fn spki(&self) -> &[u8] {
        &self.spki
    }
}

impl std::fmt::Debug for DeviceKeyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceKeyRequest({:?})", self.key)
    }
}

/// Makes a key for this device, as PEM, and a request for a certificate for it. The key stays here; the request is sent.
///
/// # Errors
/// When the cryptographic library makes none.
pub fn new_device_key() -> Result<(Zeroizing<String>, DeviceKeyRequest), RequestError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|_| RequestError::NoKey)?;
    Ok((Zeroizing::new(key.serialize_pem()), request_with(&key)?))
}

/// A request for a new certificate for a key that this device has, in PEM.
///
/// # Errors
/// When the text is no such key.
pub fn request_for(key_pem: &str) -> Result<DeviceKeyRequest, RequestError> {
    request_with(&KeyPair::from_pem(key_pem).map_err(|_| RequestError::NoKey)?)
}

fn request_with(key: &KeyPair) -> Result<DeviceKeyRequest, RequestError> {
    let mut params = CertificateParams::default();
    // The authority names the device; what is asked for here would be ignored.
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(key).map_err(|_| RequestError::NoKey)?;
    DeviceKeyRequest::parse(request.der())
}

/// The kinds of key that a device may have.
#[derive(Clone, Copy)]
enum KeyKind {
    P256,
    Ed25519,
}

impl KeyKind {
    /// The kind of a SubjectPublicKeyInfo, and the bare key in it.
    // SECURITY: compared byte for byte with the one DER encoding. A compressed point or a longer spelling of a length would give a key that
    // is known, perhaps revoked, a second digest.
    fn of(spki: &[u8]) -> Option<(Self, &[u8])> {
        if let Some(point) = spki.strip_prefix(P256_PREFIX)
            && point.len() == 65
            && point.first() == Some(&4)
        {
            return Some((Self::P256, point));
        }
        let point = spki.strip_prefix(ED25519_PREFIX)?;
        (point.len() == 32).then_some((Self::Ed25519, point))
    }

    const fn signature_oid(self) -> Oid<'static> {
        match self {
            Self::P256 => OID_SIG_ECDSA_WITH_SHA256,
            Self::Ed25519 => OID_SIG_ED25519,
        }
    }

    /// The same as DER, without parameters.
    const fn signature_algorithm(self) -> &'static [u8] {
        match self {
            Self::P256 => &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
            Self::Ed25519 => &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70],
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1,
            Self::Ed25519 => &ED25519,
        }
    }
}

/// A request as DER: what is signed, the algorithm, and the signature as a string of whole bytes.
fn envelope(signed: &[u8], kind: KeyKind, signature: &[u8]) -> Vec<u8> {
    let bits = element(BIT_STRING, &[&[0], signature]);
    element(SEQUENCE, &[signed, kind.signature_algorithm(), &bits])
}

/// One element of DER. Its length is written as short as it can be.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let digits: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut der = vec![tag];
    match (digits.as_slice(), u8::try_from(digits.len())) {
        ([], _) => der.push(0),
        ([short @ ..=0x7f], _) => der.push(*short),
        (long, count) => {
            der.push(0x80 | count.unwrap_or_default());
            der.extend_from_slice(long);
        }
    }
    der.extend_from_slice(&content);
    der
}

/// Why a request for a certificate was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// More than 4 KiB.
    #[error("the request for a certificate has {length} bytes; the limit is {LONGEST}")]
    TooLong {
        /// How many it has.
        length: usize,
    },
    /// Not PKCS #10, or not as DER writes it.
    #[error("the request for a certificate is not PKCS #10")]
    Malformed,
    /// Something follows it.
    #[error("the request for a certificate is followed by something else")]
    Trailing,
    /// Neither P-256 nor Ed25519, or not in its one encoding.
    #[error("the request is for a key that is neither P-256 nor Ed25519")]
    OtherKey,
    /// Signed by another algorithm than its key has.
    #[error("the request is signed by an algorithm that does not belong to its key")]
    OtherSignature,
    /// The signature does not hold.
    #[error("the request is not signed with its key")]
    NotSigned,
    /// No key to make a request for.
    #[error("there is no usable key of a device")]
    NoKey,
}

impl RequestError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NoKey => "pair this device again; that makes a new key",
            Self::OtherKey => "make a P-256 or an Ed25519 key, with an uncompressed point",
            _ => "make the request anew, with `palyra` on the device",
        }
    }
}

/// A request for one of these keys has about 200 bytes; there is room for what other programs put in.
const LONGEST: usize = 4 * 1024;

const SEQUENCE: u8 = 0x30;

const BIT_STRING: u8 = 0x03;

/// What stands before the point of a P-256 key: two sequences, the two object identifiers, and the head of a bit string.
const P256_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The same for an Ed25519 key.
const ED25519_PREFIX: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lab::unhex;

    #[test]
    fn a_request_of_each_kind_of_key_is_read_and_names_its_key() {
        let (key, request) = new_device_key().unwrap();
        assert_eq!(DeviceKeyRequest::parse(request.der()), Ok(request.clone()));
        assert_eq!(request_for(&key).unwrap().key(), request.key(), "a renewal is for the same key");
        let spki_of = |pem: &str| {
            Sha256Digest::of(&rcgen::PublicKeyData::subject_public_key_info(&KeyPair::from_pem(pem).unwrap()))
        };
        assert_eq!(request.key(), spki_of(&key));
        let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
        assert_eq!(request_for(&ed25519).unwrap().key(), spki_of(&ed25519));
        for foreign in [OPENSSL_P256, OPENSSL_ED25519] {
            assert!(DeviceKeyRequest::parse(&unhex(foreign)).is_ok());
        }
    }

    #[test]
    fn every_refusal_says_why() {
        let refused = |der: &[u8]| DeviceKeyRequest::parse(der).unwrap_err();
        let good = unhex(OPENSSL_P256);
        assert_eq!(refused(&[0; 4_097]), RequestError::TooLong { length: 4_097 });
        assert_eq!(refused(b""), RequestError::Malformed);
        assert_eq!(refused(&[&good[..], &[0]].concat()), RequestError::Trailing);
        assert_eq!(refused(&unhex(OPENSSL_P384)), RequestError::OtherKey);
        assert_eq!(refused(&unhex(OPENSSL_COMPRESSED)), RequestError::OtherKey);
        assert_eq!(refused(&unhex(OPENSSL_SHA384)), RequestError::OtherSignature);
        let mut version = good.clone();
        let at = version.windows(3).position(|bytes| bytes == [2, 1, 0]).unwrap();
        version[at + 2] = 2;
        assert_eq!(refused(&version), RequestError::Malformed);
        let mut renamed = good;
        let at = renamed.windows(4).position(|bytes| bytes == b"evil").unwrap();
        renamed[at] = b'E';
        assert_eq!(refused(&renamed), RequestError::NotSigned);
    }

    #[test]
    fn what_is_no_key_of_a_device_makes_no_request() {
        let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        assert_eq!(request_for(&p384), Err(RequestError::OtherKey));
        assert_eq!(request_for("no key"), Err(RequestError::NoKey));
    }

    #[test]
    fn a_request_with_any_one_byte_changed_is_refused() {
        for request in [OPENSSL_P256, OPENSSL_ED25519] {
            let good = unhex(request);
            for position in 0..good.len() {
                for change in [0x01, 0x20, 0x80, 0xff] {
                    let mut changed = good.clone();
                    changed[position] ^= change;
                    assert!(DeviceKeyRequest::parse(&changed).is_err(), "byte {position} with {change:02x}");
                }
            }
            for length in 0..good.len() {
                assert!(DeviceKeyRequest::parse(&good[..length]).is_err(), "cut to {length}");
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(DeviceKeyRequest::parse(&bytes).is_err());
        }

        #[test]
        fn a_request_with_a_piece_replaced_is_refused(
            at in any::<prop::sample::Index>(),
            piece in proptest::collection::vec(any::<u8>(), 0..24),
            gone in 0_usize..24,
        ) {
            let good = unhex(OPENSSL_P256);
            let at = at.index(good.len());
            let end = (at + gone).min(good.len());
            prop_assume!(good[at..end] != piece[..]);
            let changed = [&good[..at], &piece[..], &good[end..]].concat();
            prop_assert!(DeviceKeyRequest::parse(&changed).is_err());
        }
    }

    /// Made with OpenSSL, with a name and an extension that nobody asked for.
    const OPENSSL_P256: &str = "\
        308201013081a8020100301f310d300b06035504030c046576696c310e300c060355040a0c054f746865723059301306072a8648ce3d0201\
        06082a8648ce3d03010703420004796b4d97e31eea4bf3d28a4f74b75ac35a7540523b282dae12aac87ae99775ddec72130abd7521e0ea62\
        df6ec6360a8c6da42717f85ae43a65d3a327f114141da027302506092a864886f70d01090e3118301630140603551d11040d300b82096c6f\
        63616c686f7374300a06082a8648ce3d0403020348003045022034685d12f87bf41c5f2b59592889672b5521046940d1de8488d4873f05c6\
        3386022100fbed14c6596332615f2211c2d20fe3ccfa2b359e284c1af9eb93fc244c4875eb";

    const OPENSSL_ED25519: &str = "\
        30818b303f020100300c310a300806035504030c0178302a300506032b6570032100f3c50e49488cdee3999f585aef59fdc259e8563914fd\
        d5c805c87030fcc67acda000300506032b6570034100321ea84386f6e5274cfe77dc2b0abd94d0c1cb6ca68fd54e8b83621a344a58ea7404\
        d7cacf638ac70319cac69b4f85a65ee3c5299e67624e5feddbc89c15a306";

    const OPENSSL_P384: &str = "\
        3082010530818b020100300c310a300806035504030c01783076301006072a8648ce3d020106052b8104002203620004073a2a7f9f486d23\
        fad716357c67831bbc98822bfe3b2f15352acbe52861aed8013f78cf3af8b771d60f20578b6ea9991a7a31b17ec9dfa57cf7cc95b0732eef\
        9c142e67f0e4b098b120f741116be5944d02e40151fae0c08a3c1fe91fad68f1a000300a06082a8648ce3d0403020369003066023100de7d\
        7e3fb1488b5e7770d88769c3793a4ec93f1f4d218975f37c665dd22e2cdb139ed3f0d0ca1110d3346f0be51ebde00231009b14d0baab1cdb\
        fa3d8693c50db66962185dc039d1a6d66dfc6b8b37fded7718b2d26db272b57bca99aec8ab896a59dd";

    /// The key of the first one again, with its point in the other encoding.
    const OPENSSL_COMPRESSED: &str = "\
        3081a5304e020100300c310a300806035504030c01783039301306072a8648ce3d020106082a8648ce3d03010703220003796b4d97e31eea\
        4bf3d28a4f74b75ac35a7540523b282dae12aac87ae99775dda000300a06082a8648ce3d040302034700304402207df2d480411fa6d6d028\
        d9e03a357c0beb324521b20430656c248f2ca5d0c6a902202144d0299883bd074af016c59227245c683860c5ed064d3512f7c16626a2f32c";

    const OPENSSL_SHA384: &str = "\
        3081c6306e020100300c310a300806035504030c01783059301306072a8648ce3d020106082a8648ce3d03010703420004796b4d97e31eea\
        4bf3d28a4f74b75ac35a7540523b282dae12aac87ae99775ddec72130abd7521e0ea62df6ec6360a8c6da42717f85ae43a65d3a327f11414\
        1da000300a06082a8648ce3d0403030348003045022100f180a37fb0d0ecaf4739aae39ad69d86cac15a70616dad23a1fe79dbcf9f5f0f02\
        203261d827671eeed556583f2ca0e1076934653d567983f17dc8ddaad8be81003e";
}
