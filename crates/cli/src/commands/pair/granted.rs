//! Whether what a daemon grants is what it should be.

use std::{sync::Arc, time::Duration};

use palyra_identity::pairing::Granted;
use palyra_types::{Sha256Digest, Timestamp};
use tokio_rustls::rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};

/// Whether the certificate comes from the authority that the proofs were about, and holds now. That it is for this device's key was checked
/// when it came.
// SECURITY: the daemon has proved that it has this authority. A certificate of another one would make this device known to somebody else.
pub(super) fn is_signed_by(granted: &Granted, authority: Sha256Digest, now: Timestamp) -> bool {
    verify(granted, authority, now).is_some()
}

fn verify(granted: &Granted, authority: Sha256Digest, now: Timestamp) -> Option<()> {
    let certificates = |pem: &str| -> Option<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
    };
    let mut roots = RootCertStore::empty();
    let proved = certificates(&granted.authorities)?.into_iter().find(|one| Sha256Digest::of(one) == authority)?;
    roots.add(proved).ok()?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_millis(u64::try_from(now.unix_millis()).ok()?));
    let certificate = certificates(&granted.certificate)?.into_iter().next()?;
    verifier.verify_client_cert(&certificate, &[], now).ok().map(|_| ())
}

#[cfg(test)]
mod tests {
    use palyra_identity::{Authority, issue_device, new_device_key};
    use palyra_types::{Clock, DeviceId, clock::ManualClock, entropy::SystemEntropy};

    use super::*;

    #[test]
    fn only_a_certificate_of_the_authority_that_was_proved_is_taken() {
        let clock = ManualClock::at(Timestamp::from_unix_millis(1_800_000_000_000));
        let [proved, other] = [(); 2].map(|()| Authority::create(&clock, &SystemEntropy).unwrap());
        let device = DeviceId::parse("laptop").unwrap();
        let granted = |by: &Authority| Granted {
            device_id: device.clone(),
            certificate: issue_device(by, &new_device_key().unwrap().1, &device, &clock, &SystemEntropy).unwrap().pem,
            authorities: proved.bundle_pem() + &other.bundle_pem(),
            principal: "user:ada".into(),
            role: Some("owner".into()),
        };
        let good = granted(&proved);
        assert!(is_signed_by(&good, proved.fingerprint(), clock.now()));
        assert!(!is_signed_by(&granted(&other), proved.fingerprint(), clock.now()));
        assert!(!is_signed_by(&good, Sha256Digest::of(b"another"), clock.now()));
        let later = Timestamp::from_unix_millis(1_800_000_000_000 + 61 * 24 * 60 * 60 * 1_000);
        assert!(!is_signed_by(&good, proved.fingerprint(), later), "it has run out");
    }
}
