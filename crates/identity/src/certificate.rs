//! Certificates that come from the authority: the daemon's own, and those of devices.
//!
//! Guarantees: a daemon's certificate cannot be used by a client and a device's not by a server; neither outlives the authority; of a
//! device's request only the public key gets into its certificate.
//! Does not: decide who gets one.

use std::time::Duration;

use palyra_types::{Clock, DeviceId, Entropy, HostName, Sha256Digest, Timestamp, entropy::NoEntropy, visible::visible};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SerialNumber, SubjectPublicKeyInfo,
};
use zeroize::Zeroizing;

use crate::{
    authority::{Authority, AuthorityError},
    csr::DeviceKeyRequest,
    pem,
    tls::SERVER_NAME,
    validity::Validity,
};

/// The daemon's certificate and its key.
#[derive(Clone)]
pub struct ServerCertificate {
    /// The certificate and that of its authority, as PEM.
    pub chain: String,
    /// The key, as PEM.
    pub key: Zeroizing<String>,
    /// From when until when it holds.
    pub validity: Validity,
    /// Names the daemon's key: the digest of its SubjectPublicKeyInfo.
    pub spki: Sha256Digest,
    /// Names the authority: the digest of its certificate, which is the second of the chain.
    pub authority: Sha256Digest,
}

/// Makes a key for the daemon, and a certificate for these names and addresses, and for [`SERVER_NAME`].
///
/// # Errors
/// When a name is none, the authority is over, or nothing can be made.
pub fn issue_server(
    authority: &Authority,
    names: &[String],
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Result<ServerCertificate, CertificateError> {
    let making = |_: rcgen::Error| CertificateError::Making;
    let validity = validity(authority, AN_HOUR, SERVER_VALID_FOR, clock)?;
    let mut params = CertificateParams::new(alternative_names(names)?).map_err(making)?;
    params.distinguished_name = common_name("Palyra daemon");
    leaf(&mut params, ExtendedKeyUsagePurpose::ServerAuth);
    validity.put_into(&mut params);
    params.serial_number = Some(random_serial(entropy)?);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(making)?;
    let certificate = params.signed_by(&key, &authority.issuer()?).map_err(making)?;
    Ok(ServerCertificate {
        chain: pem::of_certificate(certificate.der()) + &pem::of_certificate(authority.issuing()),
        key: Zeroizing::new(key.serialize_pem()),
        validity,
        spki: Sha256Digest::of(&key.subject_public_key_info()),
        authority: authority.fingerprint(),
    })
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: it holds a private key.
        write!(f, "ServerCertificate({:?}, until {})", self.spki, self.validity.until)
    }
}

/// A device's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCertificate {
    /// The certificate, as PEM.
    pub pem: String,
    /// Names the device's key: the digest of its SubjectPublicKeyInfo.
    pub key: Sha256Digest,
    /// From when until when it holds.
    pub validity: Validity,
    /// Its serial number, as hexadecimal digits.
    pub serial: String,
    /// Names the authority that it comes from: the digest of its certificate.
    pub authority: Sha256Digest,
}

/// Makes a certificate for a device.
///
/// # Errors
/// When the authority is over, or nothing can be made.
pub fn issue_device(
    authority: &Authority,
    request: &DeviceKeyRequest,
    id: &DeviceId,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Result<DeviceCertificate, CertificateError> {
    let making = |_: rcgen::Error| CertificateError::Making;
    let validity = validity(authority, AN_HOUR, DEVICE_VALID_FOR, clock)?;
    let serial = random_serial(entropy)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(id.as_str());
    leaf(&mut params, ExtendedKeyUsagePurpose::ClientAuth);
    validity.put_into(&mut params);
    params.serial_number = Some(serial.clone());
    let key = SubjectPublicKeyInfo::from_der(request.spki()).map_err(making)?;
    let certificate = params.signed_by(&key, &authority.issuer()?).map_err(making)?;
    Ok(DeviceCertificate {
        pem: pem::of_certificate(certificate.der()),
        key: request.key(),
        validity,
        serial: serial.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        authority: authority.fingerprint(),
    })
}

/// What is kept of the certificate that the other side of a connection has shown, and TLS has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Names its key: the digest of its SubjectPublicKeyInfo.
    pub key: Sha256Digest,
    /// Who it says it is for: the device's id.
    pub name: String,
    /// The name of the authority that it comes from; see [`Authority::name`].
    pub issuer: String,
    /// From when until when it holds.
    pub validity: Validity,
}

impl Peer {
    /// Reads a certificate. Nothing is verified.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(certificate: &[u8]) -> Result<Self, CertificateError> {
        let (_, x509) =
            x509_parser::parse_x509_certificate(certificate).map_err(|_| CertificateError::NoCertificate)?;
        let name = |name: &x509_parser::x509::X509Name<'_>| {
            name.iter_common_name().next().and_then(|attribute| attribute.as_str().ok()).unwrap_or_default().to_owned()
        };
        Ok(Self {
            key: Sha256Digest::of(x509.tbs_certificate.subject_pki.raw),
            name: name(&x509.tbs_certificate.subject),
            issuer: name(&x509.tbs_certificate.issuer),
            validity: Validity::of_seconds(
                x509.tbs_certificate.validity.not_before.timestamp(),
                x509.tbs_certificate.validity.not_after.timestamp(),
            ),
        })
    }
}

/// Whether a certificate is one of an authority.
pub(crate) fn is_authority(certificate: &[u8]) -> bool {
    x509_parser::parse_x509_certificate(certificate).is_ok_and(|(_, x509)| x509.tbs_certificate.is_ca())
}

/// A serial number that nobody can foresee and no other certificate has: 126 random bits in 16 bytes.
pub(crate) fn random_serial(entropy: &dyn Entropy) -> Result<SerialNumber, NoEntropy> {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes)?;
    if let Some(first) = bytes.first_mut() {
        // DER takes a leading one as a sign and writes no leading zeros, so these two bits keep it positive and its length fixed.
        *first = *first & 0x7f | 0x40;
    }
    Ok(SerialNumber::from_slice(&bytes))
}

/// What no certificate but an authority's lacks.
fn leaf(params: &mut CertificateParams, purpose: ExtendedKeyUsagePurpose) {
    params.is_ca = rcgen::IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// The names in their one spelling, each once, and the one that every daemon has.
fn alternative_names(names: &[String]) -> Result<Vec<String>, CertificateError> {
    let mut all = vec![SERVER_NAME.to_owned()];
    for name in names {
        let host = HostName::parse(name).map_err(|_| CertificateError::Name(name.clone()))?;
        if all.iter().all(|known| known != host.as_str()) {
            all.push(host.as_str().to_owned());
        }
    }
    Ok(all)
}

/// When an authority is over, so are the certificates that come from it: programs differ on whether they look.
fn validity(
    authority: &Authority,
    before: Duration,
    length: Duration,
    clock: &dyn Clock,
) -> Result<Validity, CertificateError> {
    let (now, end) = (clock.now(), authority.validity().until);
    if now >= end {
        return Err(CertificateError::AuthorityIsOver(end));
    }
    Ok(Validity::starting(before, now, length).no_later_than(end))
}

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Neither a name nor an address.
    #[error("`{}` is neither a host name nor an address", visible(.0))]
    Name(String),
    /// The authority does not hold any more.
    #[error("the authority is over since {0}")]
    AuthorityIsOver(Timestamp),
    /// Not a certificate.
    #[error("this is no certificate")]
    NoCertificate,
    /// The cryptographic library made none.
    #[error("no certificate can be made")]
    Making,
    /// The authority cannot sign.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// No randomness.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

impl CertificateError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Name(_) => "give host names or addresses, such as `palyra.lan` or `192.0.2.7`, without a port",
            Self::AuthorityIsOver(_) => "check the clock; if it is right, rotate the authority",
            Self::NoCertificate => "give one certificate, as DER",
            Self::Making | Self::NoEntropy(_) => "try again; if it persists, the machine gives no randomness",
            Self::Authority(error) => error.advice(),
        }
    }
}

/// How long a device's certificate holds.
pub const DEVICE_VALID_FOR: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// How long a daemon's certificate holds.
pub const SERVER_VALID_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How far clocks may differ.
const AN_HOUR: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use palyra_types::entropy::{SeededEntropy, SystemEntropy};
    use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

    use super::*;
    use crate::{
        csr::new_device_key,
        lab::{DAY, Lab, START},
    };

    const HOUR: i64 = 60 * 60 * 1_000;

    fn id() -> DeviceId {
        DeviceId::parse("laptop-1").unwrap()
    }

    fn after_start(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(START.unix_millis() + millis)
    }

    fn with_x509<T>(pem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let der = pem::certificates(pem).unwrap().remove(0);
        look(&X509Certificate::from_der(&der).unwrap().1)
    }

    /// What a certificate may be used for: to authenticate servers, clients, anything else.
    fn purposes(x509: &X509Certificate<'_>) -> (bool, bool, bool) {
        let usage = x509.extended_key_usage().unwrap().unwrap().value;
        let other =
            usage.any || usage.code_signing || usage.email_protection || usage.time_stamping || usage.ocsp_signing;
        (usage.server_auth, usage.client_auth, other || !usage.other.is_empty())
    }

    #[test]
    fn a_daemons_certificate_is_for_its_names_and_for_servers_only() {
        let lab = Lab::new();
        let names = ["palyra.lan", "192.0.2.7", "2001:db8::7", "localhost", "PALYRA.lan"].map(str::to_owned);
        let issued = issue_server(&lab.authority, &names, &*lab.clock, &SystemEntropy).unwrap();
        assert_eq!(issued.validity, Validity { from: after_start(-HOUR), until: after_start(90 * DAY - HOUR) });
        assert_eq!(issued.authority, lab.authority.fingerprint());
        let chain = pem::certificates(&issued.chain).unwrap();
        assert_eq!((chain.len(), &chain[1]), (2, lab.authority.issuing()));
        assert_eq!(Peer::of(&chain[0]).unwrap().key, issued.spki);
        with_x509(&issued.chain, |x509| {
            assert_eq!(purposes(x509), (true, false, false));
            assert_eq!(x509.key_usage().unwrap().unwrap().value.flags, 1, "digitalSignature");
            assert!(!x509.is_ca());
            let told: Vec<String> =
                x509.subject_alternative_name().unwrap().unwrap().value.general_names.iter().map(shown).collect();
            assert_eq!(told, ["localhost", "palyra.lan", "192.0.2.7", "2001:db8::7"]);
        });
    }

    fn shown(name: &GeneralName<'_>) -> String {
        match name {
            GeneralName::DNSName(name) => (*name).to_owned(),
            GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
                Ok(bytes) => IpAddr::from(bytes).to_string(),
                Err(_) => IpAddr::from(<[u8; 16]>::try_from(*bytes).unwrap()).to_string(),
            },
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_name_gets_into_no_certificate() {
        let lab = Lab::new();
        for name in ["", "*.lan", "a b", "palyra.lan:7443", "a\0b", "127.1"] {
            let refused = issue_server(&lab.authority, &[name.to_owned()], &*lab.clock, &SystemEntropy).err();
            assert_eq!(refused, Some(CertificateError::Name(name.to_owned())));
        }
    }

    #[test]
    fn a_devices_certificate_holds_its_key_and_nothing_else_of_its_request() {
        let lab = Lab::new();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut asked = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        asked.distinguished_name = common_name("Palyra authority 00000000");
        asked.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        asked.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let request = DeviceKeyRequest::parse(asked.serialize_request(&key).unwrap().der()).unwrap();
        let issued = issue_device(&lab.authority, &request, &id(), &*lab.clock, &SystemEntropy).unwrap();
        let validity = Validity { from: after_start(-HOUR), until: after_start(60 * DAY - HOUR) };
        assert_eq!((issued.validity, issued.key), (validity, request.key()));
        let der = pem::certificate(&issued.pem).unwrap();
        let peer =
            Peer { key: request.key(), name: "laptop-1".to_owned(), issuer: lab.authority.name().to_owned(), validity };
        assert_eq!(Peer::of(&der), Ok(peer));
        with_x509(&issued.pem, |x509| {
            assert_eq!(purposes(x509), (false, true, false));
            assert_eq!(x509.key_usage().unwrap().unwrap().value.flags, 1, "digitalSignature");
            assert_eq!(x509.subject().to_string(), "CN=laptop-1");
            assert!(!x509.is_ca() && x509.subject_alternative_name().unwrap().is_none());
            assert_eq!(x509.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect::<String>(), issued.serial);
        });
    }

    #[test]
    fn two_certificates_for_one_key_have_different_serial_numbers() {
        let lab = Lab::new();
        let (_, request) = new_device_key().unwrap();
        let entropy = SeededEntropy::new(1);
        let serial = || issue_device(&lab.authority, &request, &id(), &*lab.clock, &entropy).unwrap().serial;
        let (one, other) = (serial(), serial());
        assert_ne!(one, other);
        assert_eq!((one.len(), other.len()), (32, 32));
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let lab = Lab::new();
        let (_, request) = new_device_key().unwrap();
        let issue = || issue_device(&lab.authority, &request, &id(), &*lab.clock, &SystemEntropy);
        let end = lab.authority.validity().until;
        lab.after(3_640);
        assert_eq!(issue().unwrap().validity.until, end);
        lab.after(3_651);
        assert_eq!(issue(), Err(CertificateError::AuthorityIsOver(end)));
        let server = issue_server(&lab.authority, &[], &*lab.clock, &SystemEntropy);
        assert_eq!(server.err(), Some(CertificateError::AuthorityIsOver(end)));
    }

    #[test]
    fn what_is_no_certificate_is_nobody() {
        assert_eq!(Peer::of(b"nobody"), Err(CertificateError::NoCertificate));
    }
}
