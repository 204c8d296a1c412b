//! The installation's certificate authority, and how it is replaced while everybody stays connected.
//!
//! Guarantees: an authority that was kept is read back whole or not at all, and no step of a replacement can be left out. Every step gives
//! a new value; nothing changes until the caller keeps that value.
//! Does not: write files. The document that it gives holds private keys: it belongs in a file that only its owner can read.
//!
//! A replacement has two steps and an end, so that at every moment each side trusts what the other one shows:
//!
//! | phase | certificates come from | trusted |
//! |---|---|---|
//! | `steady` | the current authority | the current one |
//! | `announced` | the current authority | the next one and the current one |
//! | `switched` | the new authority | the new one and the one before |

use std::{sync::Arc, time::Duration};

use palyra_types::{Clock, Entropy, Sha256Digest, entropy::NoEntropy, word::words};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    certificate::{Peer, is_authority, random_serial},
    document::{self, DocumentError},
    pem,
    validity::Validity,
};

/// The authority of one installation.
#[derive(Clone)]
pub struct Authority {
    current: Arc<Signer>,
    rotation: Rotation,
}

/// Where a replacement stands.
#[derive(Clone)]
enum Rotation {
    Steady,
    Announced { next: Arc<Signer> },
    Switched { previous: CertificateDer<'static> },
}

/// A certificate that signs, and its key.
struct Signer {
    certificate: CertificateDer<'static>,
    key_pem: Zeroizing<String>,
    /// What the certificate says about itself.
    about: Peer,
}

words! {
    /// Where the replacement of an authority stands.
    pub enum Phase ("phase of an authority") {
        /// There is one authority.
        Steady = "steady",
        /// The next one exists and is trusted; certificates still come from the current one.
        Announced = "announced",
        /// Certificates come from the new one; the one before is still trusted.
        Switched = "switched",
    }
}

words! {
    /// A step of a replacement.
    pub enum Step ("step of a rotation") {
        /// Make the next authority and trust it.
        Announce = "announce",
        /// Let certificates come from the next authority.
        Switch = "switch",
        /// Trust the authority before no more.
        Finish = "finish",
        /// Forget the next authority.
        Abandon = "abandon",
    }
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// When there is no randomness, or no certificate can be made.
    pub fn create(clock: &dyn Clock, entropy: &dyn Entropy) -> Result<Self, AuthorityError> {
        Ok(Self { current: Arc::new(Signer::create(clock, entropy)?), rotation: Rotation::Steady })
    }

    /// Reads an authority that was kept.
    ///
    /// # Errors
    /// When the document is not one of an authority, whole and consistent. A new authority is never made in its place.
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        let document: Document = document::read(text.as_bytes(), VERSION)?;
        let current = Signer::read(document.current)?;
        let rotation = match (document.phase, document.next, document.previous) {
            (Phase::Steady, None, None) => Rotation::Steady,
            (Phase::Announced, Some(next), None) => Rotation::Announced { next: Arc::new(Signer::read(next)?) },
            (Phase::Switched, None, Some(previous)) => {
                Rotation::Switched { previous: read_authority(&previous.certificate)?.0 }
            }
            (phase, _, _) => return Err(AuthorityError::Inconsistent(phase)),
        };
        Ok(Self { current: Arc::new(current), rotation })
    }

    /// The document to keep. It holds private keys.
    ///
    /// # Errors
    /// When it cannot be written as text.
    pub fn to_document(&self) -> Result<Zeroizing<String>, AuthorityError> {
        let (next, previous) = match &self.rotation {
            Rotation::Steady => (None, None),
            Rotation::Announced { next } => (Some(next.written()), None),
            Rotation::Switched { previous } => {
                (None, Some(WrittenCertificate { certificate: pem::of_certificate(previous) }))
            }
        };
        let document =
            WrittenDocument { v: VERSION, phase: self.phase(), current: self.current.written(), next, previous };
        let mut text = document::write(&document)?;
        let text = String::from_utf8(std::mem::take(&mut *text)).map_err(|_| DocumentError::Unwritable)?;
        Ok(Zeroizing::new(text))
    }

    /// Where its replacement stands.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.rotation {
            Rotation::Steady => Phase::Steady,
            Rotation::Announced { .. } => Phase::Announced,
            Rotation::Switched { .. } => Phase::Switched,
        }
    }

    /// Makes the next authority and trusts it. Certificates still come from the current one.
    ///
    /// # Errors
    /// When a replacement is under way, or no authority can be made.
    pub fn announce(&self, clock: &dyn Clock, entropy: &dyn Entropy) -> Result<Self, AuthorityError> {
        match &self.rotation {
            Rotation::Steady => {
                let next = Arc::new(Signer::create(clock, entropy)?);
                Ok(Self { current: Arc::clone(&self.current), rotation: Rotation::Announced { next } })
            }
            _ => Err(self.out_of_order(Step::Announce)),
        }
    }

    /// Lets certificates come from the next authority. The key of the one before is gone with this.
    ///
    /// # Errors
    /// When no next authority was announced.
    pub fn switch(&self) -> Result<Self, AuthorityError> {
        match &self.rotation {
            Rotation::Announced { next } => Ok(Self {
                current: Arc::clone(next),
                rotation: Rotation::Switched { previous: self.current.certificate.clone() },
            }),
            _ => Err(self.out_of_order(Step::Switch)),
        }
    }

    /// Trusts the authority before no more. Certificates that came from it stop working.
    ///
    /// # Errors
    /// When there was no switch.
    pub fn finish(&self) -> Result<Self, AuthorityError> {
        match &self.rotation {
            Rotation::Switched { .. } => Ok(Self { current: Arc::clone(&self.current), rotation: Rotation::Steady }),
            _ => Err(self.out_of_order(Step::Finish)),
        }
    }

    /// Forgets the next authority. No certificate has come from it.
    ///
    /// # Errors
    /// When there is none, or certificates already come from it.
    pub fn abandon(&self) -> Result<Self, AuthorityError> {
        match &self.rotation {
            Rotation::Announced { .. } => Ok(Self { current: Arc::clone(&self.current), rotation: Rotation::Steady }),
            _ => Err(self.out_of_order(Step::Abandon)),
        }
    }

    /// Every certificate of an authority that is trusted, newest first.
    #[must_use]
    pub fn trusted(&self) -> Vec<CertificateDer<'static>> {
        let current = self.current.certificate.clone();
        match &self.rotation {
            Rotation::Steady => vec![current],
            Rotation::Announced { next } => vec![next.certificate.clone(), current],
            Rotation::Switched { previous } => vec![current, previous.clone()],
        }
    }

    /// What is trusted as text, newest first.
    #[must_use]
    pub fn bundle_pem(&self) -> String {
        self.trusted().iter().map(|certificate| pem::of_certificate(certificate)).collect()
    }

    /// Names everything that is trusted, in order.
    #[must_use]
    pub fn bundle_fingerprint(&self) -> Sha256Digest {
        let trusted = self.trusted();
        Sha256Digest::of_fields(trusted.iter().map(AsRef::as_ref))
    }

    /// The certificate of the authority that certificates come from.
    #[must_use]
    pub fn issuing(&self) -> &CertificateDer<'static> {
        &self.current.certificate
    }

    /// Names the authority that certificates come from: the digest of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Sha256Digest {
        Sha256Digest::of(&self.current.certificate)
    }

    /// What the certificates that come from it give as their issuer, such as `Palyra authority 1f2e3d4c`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.current.about.name
    }

    /// From when until when the authority that certificates come from holds.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.current.about.validity
    }

    /// What signs certificates.
    pub(crate) fn issuer(&self) -> Result<Issuer<'static, KeyPair>, AuthorityError> {
        let key = KeyPair::from_pem(&self.current.key_pem).map_err(|_| AuthorityError::ForeignKey)?;
        Issuer::from_ca_cert_der(&self.current.certificate, key).map_err(|_| AuthorityError::NoAuthority)
    }

    const fn out_of_order(&self, step: Step) -> AuthorityError {
        AuthorityError::OutOfOrder { step, phase: self.phase() }
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: it holds private keys.
        write!(f, "Authority({}, {})", self.phase(), grouped(&self.fingerprint()))
    }
}

/// A digest for people to compare: its first 16 bytes as eight groups of four digits, such as `a1b2-c3d4-…`.
#[must_use]
pub fn grouped(digest: &Sha256Digest) -> String {
    let mut text = String::with_capacity(39);
    for (position, digit) in digest.to_hex().chars().take(32).enumerate() {
        if position > 0 && position % 4 == 0 {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

impl Signer {
    fn create(clock: &dyn Clock, entropy: &dyn Entropy) -> Result<Self, AuthorityError> {
        let making = |_: rcgen::Error| AuthorityError::Making;
        // P-256, so that every client can verify it. The key comes from the randomness of the cryptographic library itself.
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(making)?;
        let name: String = Sha256Digest::of(&key.subject_public_key_info()).to_hex().chars().take(8).collect();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("{NAME} {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(random_serial(entropy)?);
        Validity::starting(A_DAY, clock.now(), VALID_FOR).put_into(&mut params);
        let certificate = params.self_signed(&key).map_err(making)?.der().clone();
        let about = Peer::of(&certificate).map_err(|_| AuthorityError::Making)?;
        Ok(Self { certificate, key_pem: Zeroizing::new(key.serialize_pem()), about })
    }

    fn read(written: SignerDocument) -> Result<Self, AuthorityError> {
        let key_pem = Zeroizing::new(written.key);
        let (certificate, about) = read_authority(&written.certificate)?;
        let key = KeyPair::from_pem(&key_pem).map_err(|_| AuthorityError::ForeignKey)?;
        if Sha256Digest::of(&key.subject_public_key_info()) != about.key {
            return Err(AuthorityError::ForeignKey);
        }
        Ok(Self { certificate, key_pem, about })
    }

    fn written(&self) -> WrittenSigner<'_> {
        WrittenSigner { certificate: pem::of_certificate(&self.certificate), key: &self.key_pem }
    }
}

fn read_authority(text: &str) -> Result<(CertificateDer<'static>, Peer), AuthorityError> {
    let certificate = pem::certificate(text).ok_or(AuthorityError::NoAuthority)?;
    let about = Peer::of(&certificate).map_err(|_| AuthorityError::NoAuthority)?;
    if !is_authority(&certificate) {
        return Err(AuthorityError::NoAuthority);
    }
    Ok((certificate, about))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "v")]
    _v: u64,
    phase: Phase,
    current: SignerDocument,
    next: Option<SignerDocument>,
    previous: Option<CertificateDocument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignerDocument {
    certificate: String,
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateDocument {
    certificate: String,
}

#[derive(Serialize)]
struct WrittenDocument<'a> {
    v: u64,
    phase: Phase,
    current: WrittenSigner<'a>,
    next: Option<WrittenSigner<'a>>,
    previous: Option<WrittenCertificate>,
}

#[derive(Serialize)]
struct WrittenSigner<'a> {
    certificate: String,
    key: &'a str,
}

#[derive(Serialize)]
struct WrittenCertificate {
    certificate: String,
}

/// Why there is no authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// Not a document of this version.
    #[error("the document of the authority {0}")]
    Document(#[from] DocumentError),
    /// The phase does not fit what else is there.
    #[error("the document of the authority says `{0}`, but what that needs is missing, or there is more")]
    Inconsistent(Phase),
    /// A certificate that is none of an authority.
    #[error("the document of the authority has a certificate that is none of an authority")]
    NoAuthority,
    /// A key that is not the certificate's.
    #[error("the document of the authority has a key that does not belong to its certificate")]
    ForeignKey,
    /// A step that does not come next.
    #[error("cannot {step}: the authority is {phase}")]
    OutOfOrder {
        /// What was asked for.
        step: Step,
        /// Where the replacement stands.
        phase: Phase,
    },
    /// The cryptographic library made no key or no certificate.
    #[error("no authority can be made")]
    Making,
    /// No randomness.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

impl AuthorityError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Document(DocumentError::OtherVersion { .. }) => {
                "use the version of the program that wrote it, or a newer one"
            }
            Self::Document(_) | Self::Inconsistent(_) | Self::NoAuthority | Self::ForeignKey => {
                "restore the document from a backup; without it every device must be paired again"
            }
            Self::OutOfOrder { phase: Phase::Steady, .. } => "announce a new authority first",
            Self::OutOfOrder { phase: Phase::Announced, .. } => {
                "switch to the announced authority, or abandon it, first"
            }
            Self::OutOfOrder { phase: Phase::Switched, .. } => "finish the rotation first",
            Self::Making | Self::NoEntropy(_) => "try again; if it persists, the machine gives no randomness",
        }
    }
}

/// What the name of every authority starts with.
const NAME: &str = "Palyra authority";

const VERSION: u64 = 1;

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Ten years.
const VALID_FOR: Duration = Duration::from_secs(3_652 * 24 * 60 * 60);

#[cfg(test)]
mod tests;
