//! Who is trusted to say which server is which.
//!
//! Guarantees: the machine's own authorities, as its certificate bundle or `SSL_CERT_FILE` has them, and those that
//! were added; nobody else. They are read when they are first needed. No session is resumed, so no server can tell by
//! one that two calls come from the same daemon.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::sync::OnceCell;

/// Certificate authorities besides the machine's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Adds those that stand in a PEM file.
    ///
    /// # Errors
    /// When there is none in it, or one cannot be used.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<(), AuthorityError> {
        let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|_| AuthorityError::NotPem)?;
        if found.is_empty() {
            return Err(AuthorityError::Empty);
        }
        let mut store = RootCertStore::empty();
        for one in &found {
            store.add(one.clone()).map_err(|_| AuthorityError::Unusable)?;
        }
        self.0.extend(found);
        Ok(())
    }
}

/// Why a file adds no authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// It is no PEM.
    #[error("it is no PEM file")]
    NotPem,
    /// No certificate in it.
    #[error("it holds no certificate")]
    Empty,
    /// A certificate that cannot stand for an authority.
    #[error("it holds a certificate that cannot be read")]
    Unusable,
}

/// The settings of TLS, once they are needed.
#[derive(Debug)]
pub(super) struct Trust {
    added: Authorities,
    config: OnceCell<Result<Arc<ClientConfig>, NoTrust>>,
}

impl Trust {
    pub(super) fn new(added: Authorities) -> Self {
        Self { added, config: OnceCell::new() }
    }

    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, NoTrust> {
        let read = || async {
            let added = self.added.clone();
            // It reads files.
            tokio::task::spawn_blocking(move || build(&added)).await.unwrap_or(Err(NoTrust))
        };
        self.config.get_or_init(read).await.clone()
    }
}

/// There is nobody to trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine trusts no certificate authority")]
pub(super) struct NoTrust;

fn build(added: &Authorities) -> Result<Arc<ClientConfig>, NoTrust> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(added.0.iter().cloned());
    if roots.is_empty() {
        return Err(NoTrust);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.map_err(|_| NoTrust)?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_no_certificate_adds_nobody() {
        let mut authorities = Authorities::default();
        assert_eq!(authorities.add_pem(b"hello"), Err(AuthorityError::Empty));
        let broken = b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        assert_eq!(authorities.add_pem(broken), Err(AuthorityError::NotPem));
        let empty = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(authorities.add_pem(empty), Err(AuthorityError::Unusable));
        assert_eq!(authorities, Authorities::default());
    }

    #[test]
    fn a_bundle_adds_all_of_its_authorities() {
        let of = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem();
        let mut authorities = Authorities::default();
        authorities.add_pem(format!("# two\n{}{}", of("a.example"), of("b.example")).as_bytes()).unwrap();
        assert_eq!(authorities.0.len(), 2);
    }
}
