//! The certificate of the control listener: made at the first start, made anew before it runs out.
//!
//! Clients read it from the state directory and trust it alone, so that nobody else on the port is handed a credential.

use std::{fs, io, net::SocketAddr, path::Path, time::Duration};

use palyra_types::{Clock, Timestamp};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, date_time_ymd};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::installation::write_new;

/// Keeps a certificate and its key in these files: makes them if they are missing, and makes them anew before they run out.
///
/// # Errors
/// When they cannot be made or written.
pub fn keep(certificate: &Path, key: &Path, control: SocketAddr, clock: &dyn Clock) -> Result<(), CertificateError> {
    match fs::read_to_string(certificate) {
        Ok(text) if key.exists() && valid_for(&text, clock.now()) > RENEW_BEFORE => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(CertificateError::Disk(error.to_string())),
    }
    let disk = |error: io::Error| CertificateError::Disk(error.to_string());
    let (certificate_text, key_text) = make(control, clock.now())?;
    for (path, text) in [(key, key_text.as_str()), (certificate, certificate_text.as_str())] {
        // The old one, if there is one, has served its time.
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(disk(error));
        }
        write_new(path, text.as_bytes()).map_err(disk)?;
    }
    Ok(())
}

/// Until when a certificate of ours is valid, as its first line says.
#[must_use]
pub fn valid_until(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text.lines().next()?.strip_prefix(UNTIL)?).ok()
}

/// What a TLS listener needs.
///
/// # Errors
/// When the files are not a certificate and its key.
pub fn server_config(certificate: &str, key: &str) -> Result<ServerConfig, CertificateError> {
    let unusable = |error: &dyn std::fmt::Display| CertificateError::Unusable(error.to_string());
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unusable(&error))?;
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn make(control: SocketAddr, now: Timestamp) -> Result<(String, String), CertificateError> {
    let unusable = |error: rcgen::Error| CertificateError::Unusable(error.to_string());
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), control.ip().to_string()];
    let mut params = CertificateParams::new(names).map_err(unusable)?;
    let until = Timestamp::from_unix_millis(now.unix_millis().saturating_add(millis(VALID_FOR)));
    let (year, month, day) = date(Timestamp::from_unix_millis(now.unix_millis().saturating_sub(millis(A_DAY))));
    params.not_before = date_time_ymd(year, month, day);
    let (year, month, day) = date(until);
    params.not_after = date_time_ymd(year, month, day);
    params.distinguished_name.push(rcgen::DnType::CommonName, "Palyra control listener");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(unusable)?;
    let certificate = params.self_signed(&key).map_err(unusable)?;
    Ok((format!("{UNTIL}{until}\n{}", certificate.pem()), key.serialize_pem()))
}

/// The day of a time, in UTC.
fn date(time: Timestamp) -> (i32, u8, u8) {
    let text = time.to_string();
    let mut parts = text.split(['-', 'T']).map(|digits| digits.parse::<i32>().unwrap_or(1));
    let year = parts.next().unwrap_or(1970);
    let mut small = || u8::try_from(parts.next().unwrap_or(1)).unwrap_or(1);
    (year, small(), small())
}

fn valid_for(text: &str, now: Timestamp) -> Duration {
    let until = valid_until(text).map_or(0, Timestamp::unix_millis);
    Duration::from_millis(u64::try_from(until.saturating_sub(now.unix_millis())).unwrap_or_default())
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The files cannot be written or read.
    #[error("the certificate of the control listener cannot be kept: {0}")]
    Disk(String),
    /// It is none, or cannot be made.
    #[error("the certificate of the control listener cannot be used: {0}")]
    Unusable(String),
}

impl CertificateError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Disk(_) => "check who owns `identity` in the state directory, and that its disk has space",
            Self::Unusable(_) => "remove control.pem and control.key from `identity`; the next start makes new ones",
        }
    }
}

/// The first line of a certificate's file. Whoever reads PEM passes over it.
const UNTIL: &str = "Valid until ";

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

const VALID_FOR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

const RENEW_BEFORE: Duration = Duration::from_secs(60 * 24 * 60 * 60);
