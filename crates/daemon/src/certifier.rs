//! The authority at work: certifies the daemon and its devices, and is replaced step by step while everything goes on.
//!
//! Guarantees: what is on disk is what is in force, or the step is refused; a new connection is met with the certificate and the trust that
//! are in force when it comes; the daemon's own certificate lives in memory only, and is made anew before it runs out.

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use axum::http::HeaderValue;
use palyra_access::State;
use palyra_identity::{
    Authority, AuthorityError, CertificateError, DeviceCertificate, DeviceKeyRequest, Peer, ServerCertificate,
    TlsError, issue_device, issue_server, pairing_server_config,
    private_file::{self, PrivateFileError},
    server_config,
};
use palyra_types::{Clock, DeviceId, Entropy, Sha256Digest};
use rustls::ServerConfig;
use tokio::sync::{Mutex, MutexGuard, watch};

/// The authority at work.
pub struct Certifier {
    files: AuthorityFiles,
    names: Vec<String>,
    certified: ArcSwap<Certified>,
    changing: Mutex<()>,
    changes: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

/// Where an authority is kept.
#[derive(Debug, Clone)]
pub struct AuthorityFiles {
    /// With its keys, for the daemon alone.
    pub authority: PathBuf,
    /// What others trust: certificates alone.
    pub bundle: PathBuf,
}

/// What is in force.
pub struct Certified {
    /// The authority.
    pub authority: Authority,
    /// The daemon's own certificate.
    pub server: ServerCertificate,
    /// How devices are met.
    pub tls: Arc<ServerConfig>,
    /// How whoever wants to be paired is met.
    pub pairing: Arc<ServerConfig>,
    /// The digest of all authorities that are trusted, as it is told with every answer.
    pub told: HeaderValue,
    /// The names of the authorities that are trusted.
    trusted: Vec<String>,
    /// The digests of their certificates.
    fingerprints: Vec<Sha256Digest>,
}

impl Certified {
    /// Whether certificates of the authority with this name hold.
    #[must_use]
    pub fn trusts(&self, issuer: &str) -> bool {
        self.trusted.iter().any(|name| name == issuer)
    }

    /// Whether the authority whose certificate has this digest is trusted.
    #[must_use]
    pub fn is_trusted(&self, authority: &Sha256Digest) -> bool {
        self.fingerprints.contains(authority)
    }

    fn new(
        authority: Authority,
        names: &[String],
        (clock, entropy): (&Arc<dyn Clock>, &Arc<dyn Entropy>),
    ) -> Result<Self, CertifierError> {
        let server = issue_server(&authority, names, clock.as_ref(), entropy.as_ref())?;
        let trusted = authority.trusted().iter().map(|one| Peer::of(one).map(|peer| peer.name)).collect();
        Ok(Self {
            tls: server_config(&authority, &server, Arc::clone(clock))?,
            pairing: pairing_server_config(&server, Arc::clone(clock))?,
            told: HeaderValue::from_str(&authority.bundle_fingerprint().to_string())
                .map_err(|_| CertificateError::Making)?,
            trusted: Result::<Vec<_>, _>::from_iter::<Vec<_>>(trusted)?,
            fingerprints: authority.trusted().iter().map(|one| Sha256Digest::of(one)).collect(),
            authority,
            server,
        })
    }
}

impl Certifier {
    /// Puts an authority to work, for a daemon with these names.
    ///
    /// # Errors
    /// When it cannot certify, or what others trust cannot be written.
    pub fn new(
        authority: Authority,
        files: AuthorityFiles,
        names: Vec<String>,
        (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>),
    ) -> Result<Self, CertifierError> {
        let certified = Certified::new(authority, &names, (&clock, &entropy))?;
        private_file::write(&files.bundle, certified.authority.bundle_pem().as_bytes())?;
        let (certified, changes) = (ArcSwap::from_pointee(certified), watch::channel(0).0);
        Ok(Self { files, names, certified, changing: Mutex::default(), changes, clock, entropy })
    }

    /// What is in force.
    #[must_use]
    pub fn now(&self) -> Arc<Certified> {
        self.certified.load_full()
    }

    /// Whether the authority that last certified a device is still trusted.
    #[must_use]
    pub fn certifies(&self, registered: &State, device: &DeviceId) -> bool {
        registered.device(device).is_some_and(|device| self.now().is_trusted(&device.authority))
    }

    /// Counts changes of what is trusted.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Makes a certificate for a device.
    ///
    /// # Errors
    /// When there is none to be had.
    pub fn certify(&self, request: &DeviceKeyRequest, id: &DeviceId) -> Result<DeviceCertificate, CertificateError> {
        issue_device(&self.now().authority, request, id, self.clock.as_ref(), self.entropy.as_ref())
    }

    /// The turn to replace the authority. Nobody else does as long as it is held, so what was looked at holds when the step is taken.
    pub async fn turn(&self) -> Turn<'_> {
        Turn { _changing: self.changing.lock().await, certifier: self }
    }

    /// Makes the daemon's own certificate anew if it is time.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn renew(&self) -> Result<(), CertifierError> {
        let _changing = self.changing.lock().await;
        let now = self.now();
        if now.server.validity.renewal_is_due(self.clock.now()) {
            let again = Certified::new(now.authority.clone(), &self.names, (&self.clock, &self.entropy))?;
            self.certified.store(Arc::new(again));
        }
        Ok(())
    }
}

/// The turn to replace the authority.
pub struct Turn<'a> {
    certifier: &'a Certifier,
    _changing: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    /// The authority as it would be after a step of its rotation.
    ///
    /// # Errors
    /// When it is not the time for this step.
    pub fn after(
        &self,
        step: impl FnOnce(&Authority, &dyn Clock, &dyn Entropy) -> Result<Authority, AuthorityError>,
    ) -> Result<Authority, AuthorityError> {
        let Certifier { certified, clock, entropy, .. } = self.certifier;
        step(&certified.load().authority, clock.as_ref(), entropy.as_ref())
    }

    /// Puts an authority in the place of the one there is. It is on disk before it is in force.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn put(self, next: Authority) -> Result<Arc<Certified>, CertifierError> {
        let Certifier { files, names, certified, changes, clock, entropy, .. } = self.certifier;
        let next = Arc::new(Certified::new(next, names, (clock, entropy))?);
        private_file::write(&files.authority, next.authority.to_document()?.as_bytes())?;
        private_file::write(&files.bundle, next.authority.bundle_pem().as_bytes())?;
        certified.store(Arc::clone(&next));
        changes.send_modify(|count| *count += 1);
        Ok(next)
    }
}

/// Why nothing can be certified.
#[derive(Debug, thiserror::Error)]
pub enum CertifierError {
    /// The authority cannot be used, or it is not the time for this step.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A certificate cannot be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// TLS cannot be set up with it.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It cannot be kept.
    #[error(transparent)]
    File(#[from] PrivateFileError),
}

impl CertifierError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Authority(error) => error.advice().to_owned(),
            Self::Certificate(error) => error.advice().to_owned(),
            Self::Tls(error) => error.advice().to_owned(),
            Self::File(error) => error.advice().to_owned(),
        }
    }
}
