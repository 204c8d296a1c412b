//! The authority of one enclosure: whoever is inside trusts it, and nobody else does.
//!
//! Guarantees: its key is made for the enclosure, exists in the daemon's memory only and goes with it; it signs for hosts, never for
//! another authority. Its subject is always the same, so programs that look for authorities by the hash of the subject find it at
//! [`SUBJECT_HASH`].
//! Does not: say which hosts. Whoever terminates a connection asks for the host of that connection.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use palyra_types::host::HostName;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::NoServerSessionStorage,
};

/// Signs for the hosts that a run is shown by somebody who looks into its connections.
pub struct RunAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
    /// What a host is shown with, once it was needed.
    hosts: Mutex<BTreeMap<HostName, Arc<ServerConfig>>>,
}

impl RunAuthority {
    /// Another one.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> Result<Self, NoAuthority> {
        let mut params = lasting();
        params.distinguished_name = named(SUBJECT);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, key()?)?;
        Ok(Self { pem: issuer.pem(), issuer, hosts: Mutex::default() })
    }

    /// Its certificate, which is no secret.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// How a host is shown to a client: by TLS 1.2 or 1.3 and HTTP/1.1. Nothing of a session is resumed.
    pub(crate) fn shows(&self, host: &HostName) -> Result<Arc<ServerConfig>, NoAuthority> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(host) {
            return Ok(Arc::clone(known));
        }
        let config = Arc::new(self.make(host)?);
        if hosts.len() >= MOST_HOSTS {
            hosts.clear();
        }
        hosts.insert(host.clone(), Arc::clone(&config));
        Ok(config)
    }

    fn make(&self, host: &HostName) -> Result<ServerConfig, NoAuthority> {
        let mut params = lasting();
        params.distinguished_name = named(SHOWN);
        params.subject_alt_names = vec![match host.address() {
            Some(address) => SanType::IpAddress(address),
            None => SanType::DnsName(host.as_str().try_into()?),
        }];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = key()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|_| NoAuthority)?.with_no_client_auth();
        let chain = vec![certificate.der().clone()];
        let mut config = builder.with_single_cert(chain, key).map_err(|_| NoAuthority)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl fmt::Debug for RunAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunAuthority")
    }
}

/// No certificate could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no certificate can be made")]
pub struct NoAuthority;

impl From<rcgen::Error> for NoAuthority {
    fn from(_: rcgen::Error) -> Self {
        Self
    }
}

fn key() -> Result<KeyPair, NoAuthority> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// The key is gone with the enclosure, so the dates bound nothing, and no clock is asked.
fn lasting() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    params
}

/// The name of every such authority.
pub const SUBJECT: &str = "Palyra run authority";

/// The hash of that name, by which OpenSSL looks for it in a directory of certificates.
pub const SUBJECT_HASH: &str = "3ce85aee";

/// The name in certificates of hosts. Which host it is stands elsewhere in them, as programs read it today.
const SHOWN: &str = "Palyra";

/// For how many hosts certificates are kept.
const MOST_HOSTS: usize = 256;

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what OpenSSL computes is compared with what is written here")]
    fn openssl_finds_it_by_the_hash_of_its_name() {
        use std::io::Write;
        let authority = RunAuthority::new().unwrap();
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-subject_hash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut openssl = command.spawn().unwrap();
        openssl.stdin.take().unwrap().write_all(authority.certificate_pem().as_bytes()).unwrap();
        let said = openssl.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), SUBJECT_HASH);
    }

    #[test]
    fn a_host_is_shown_by_one_certificate_and_two_authorities_share_nothing() {
        let [one, other] = [RunAuthority::new().unwrap(), RunAuthority::new().unwrap()];
        assert_ne!(one.certificate_pem(), other.certificate_pem());
        let host = HostName::parse("example.org").unwrap();
        let [first, again] = [one.shows(&host).unwrap(), one.shows(&host).unwrap()];
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(first.alpn_protocols, [b"http/1.1".to_vec()]);
        for address in ["192.0.2.7", "2001:db8::7"] {
            one.shows(&HostName::parse(address).unwrap()).unwrap();
        }
    }

    #[test]
    fn certificates_are_not_kept_without_end() {
        let authority = RunAuthority::new().unwrap();
        for number in 0..=MOST_HOSTS {
            authority.shows(&HostName::parse(&format!("host{number}.example")).unwrap()).unwrap();
        }
        assert_eq!(authority.hosts.lock().unwrap().len(), 1);
    }
}
