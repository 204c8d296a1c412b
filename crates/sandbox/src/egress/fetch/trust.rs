//! Who is trusted to say which server is which.
//!
//! Guarantees: the machine's own authorities, as its certificate bundle or `SSL_CERT_FILE` has them, and those that
//! were added; nobody else. They are read when they are first needed. No session is resumed, so no server can tell by
//! one that two calls come from the same daemon.

use std::{io, sync::Arc};

use palyra_types::host::HostName;
use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OnceCell,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::egress::refusal::shown;

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

/// The machine's authorities and some more. Whoever has a copy of it shares what was read.
#[derive(Debug, Clone)]
pub struct Trust(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    added: Authorities,
    config: OnceCell<Result<Arc<ClientConfig>, NoTrust>>,
}

impl Trust {
    /// The machine's authorities and these.
    #[must_use]
    pub fn new(added: Authorities) -> Self {
        Self(Arc::new(Inner { added, config: OnceCell::new() }))
    }

    /// Encrypts a connection to a host, which has to show that it is the host. Otherwise says why not, in words.
    pub(crate) async fn verify<S>(&self, host: &HostName, stream: S) -> Result<TlsStream<S>, String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config().await.map_err(|none| none.to_string())?;
        let name = match host.address() {
            Some(address) => ServerName::IpAddress(address.into()),
            None => ServerName::try_from(host.as_str().to_owned()).map_err(|error| error.to_string())?,
        };
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| in_words(&error))
    }

    async fn config(&self) -> Result<Arc<ClientConfig>, NoTrust> {
        let read = || async {
            let added = self.0.added.clone();
            // It reads files.
            tokio::task::spawn_blocking(move || build(&added)).await.unwrap_or(Err(NoTrust))
        };
        self.0.config.get_or_init(read).await.clone()
    }
}

/// There is nobody to trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine trusts no certificate authority")]
struct NoTrust;

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

/// Why a host could not be verified.
fn in_words(error: &io::Error) -> String {
    let known = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let words = match known {
        Some(rustls::Error::InvalidCertificate(cause)) => match cause {
            // An authority of the same name may be trusted that did not sign it.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "no trusted authority signed its certificate"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            CertificateError::Revoked => "its certificate was revoked",
            _ => return shown(&error.to_string()),
        },
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS on this port",
        Some(_) => return shown(&error.to_string()),
        None => "it hung up",
    };
    words.to_owned()
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
