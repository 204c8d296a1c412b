//! Whose certificates are trusted.
//!
//! Guarantees: what the machine trusts is read once, however many providers there are, and only where one of them needs it.

use std::fmt;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::config::ProviderSection;

/// Whose certificates are trusted.
#[derive(Clone)]
pub struct Trust(ClientConfig);

impl Trust {
    /// The authorities that the machine trusts, and those whose certificates are in this PEM text.
    ///
    /// # Errors
    /// When the text holds no certificate of an authority, or nobody is trusted in the end.
    pub fn of_machine(extra: Option<&str>) -> Result<Self, TrustError> {
        let mut trusted = RootCertStore::empty();
        if let Some(text) = extra {
            add(&mut trusted, text)?;
        }
        // One that cannot be read among the machine's many is no reason to trust none.
        trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if trusted.is_empty() { Err(TrustError::Nobody) } else { Self::build(trusted) }
    }

    /// Nobody: enough for providers that are reached over plain http.
    ///
    /// # Errors
    /// When TLS cannot be set up at all.
    pub fn of_nobody() -> Result<Self, TrustError> {
        Self::build(RootCertStore::empty())
    }

    /// What these providers need: the authorities of the machine and those in this PEM text if one is reached over https, else nobody.
    ///
    /// # Errors
    /// As [`Self::of_machine`].
    pub fn needed_by(sections: &[ProviderSection], extra: Option<&str>) -> Result<Self, TrustError> {
        match sections.iter().any(|section| section.base_url.is_encrypted()) {
            true => Self::of_machine(extra),
            false => Self::of_nobody(),
        }
    }

    /// As TLS is told.
    #[must_use]
    pub fn config(&self) -> ClientConfig {
        self.0.clone()
    }

    fn build(trusted: RootCertStore) -> Result<Self, TrustError> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|_| TrustError::Unsupported)?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Ok(Self(config))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

/// Why nobody can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The text is not PEM.
    #[error("the certificates of further authorities are not PEM")]
    NotPem,
    /// The text holds no certificate.
    #[error("there is no certificate among those of further authorities")]
    Empty,
    /// A certificate that no authority can have.
    #[error("a certificate among those of further authorities cannot be one of an authority")]
    NotAnAuthority,
    /// The machine trusts no authority.
    #[error("the machine trusts no certificate authority")]
    Nobody,
    /// No version of TLS can be spoken.
    #[error("TLS cannot be set up")]
    Unsupported,
}

impl TrustError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotPem | Self::Empty | Self::NotAnAuthority => {
                "give the certificate of the authority itself, from `-----BEGIN CERTIFICATE-----` on"
            }
            Self::Nobody => "install the certificate authorities of your system, often a package `ca-certificates`",
            Self::Unsupported => "report it, with your system and its version",
        }
    }
}

fn add(trusted: &mut RootCertStore, text: &str) -> Result<(), TrustError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let certificates = certificates.map_err(|_| TrustError::NotPem)?;
    if certificates.is_empty() {
        return Err(TrustError::Empty);
    }
    certificates
        .into_iter()
        .try_for_each(|certificate| trusted.add(certificate).map_err(|_| TrustError::NotAnAuthority))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused() {
        let refused = |text: &str| Trust::of_machine(Some(text)).unwrap_err();
        assert_eq!(refused(""), TrustError::Empty);
        assert_eq!(refused("-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"), TrustError::NotPem);
        let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(refused(hollow), TrustError::NotAnAuthority);
    }
}
