//! Keeps what a device holds of its daemon fresh: its certificate, and the authorities that it trusts.
//!
//! Guarantees: the key stays the same and never leaves the device; what is kept is replaced whole, or stays as it was. Where the daemon is
//! said to be in there is neither used nor changed: the connection in use knows better.
//! Does not: change what comes of a command. Whoever could not renew hears so in one line, and the next command tries again.

use std::{path::Path, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use palyra_api::device::{Renewal, Renewed};
use palyra_client::Client;
use palyra_identity::{Address, DeviceIdentity, Peer, SERVER_NAME, client_config, request_for};
use palyra_types::{Clock, Sha256Digest, Timestamp, clock::SystemClock};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsConnector,
    rustls::pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use crate::terminal::Terminal;

/// What this device keeps of a daemon, and where that daemon serves.
pub(crate) struct Held<'a> {
    /// The file.
    pub(crate) file: &'a Path,
    /// The address that the connection in use goes to. The file may name another one.
    pub(crate) address: &'a Address,
}

impl Held<'_> {
    /// Renews it, if it is time. To be called once a command is done.
    pub(crate) async fn renew_if_due(&self, client: &Client, clock: &dyn Clock, terminal: &Terminal) {
        // A daemon that told nothing was not reached.
        let Some(told) = client.authorities_told() else { return };
        if let Err(cause) = try_to_renew(client, told, self, clock).await {
            terminal.talk(format!("warning: the certificate of this device was not renewed: {cause}"));
        }
    }
}

async fn try_to_renew(client: &Client, told: Sha256Digest, held: &Held<'_>, clock: &dyn Clock) -> Result<(), String> {
    // Read again: another command may have renewed it meanwhile.
    let identity = DeviceIdentity::read(held.file).map_err(|error| error.to_string())?;
    let due = match Due::of(&identity, told, clock.now()).ok_or("what this device keeps cannot be read")? {
        Due::Now => true,
        Due::Later => false,
        Due::WithTheDaemon { issuer } => {
            let daemons = daemons_issuer(&identity, held.address).await;
            daemons.ok_or("the daemon's own certificate cannot be looked at")? != issuer
        }
    };
    if !due {
        return Ok(());
    }
    let request = request_for(&identity.key).map_err(|error| error.to_string())?;
    let renewal = Renewal { csr: BASE64_URL_SAFE_NO_PAD.encode(request.der()) };
    let client = client.clone().with_patience(PATIENCE);
    let Renewed { certificate, authorities, .. } = client.renew(&renewal).await.map_err(|error| error.to_string())?;
    let renewed = DeviceIdentity { certificate, authorities, ..identity };
    renewed.write(held.file).map_err(|error| error.to_string())
}

/// When to renew.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    /// The certificate is about to run out, or the daemon trusts other authorities than this device knows.
    Now,
    /// The authority is being replaced. What is trusted stays the same when the next one takes over; the daemon's own certificate tells.
    WithTheDaemon {
        /// The authority that the device's certificate comes from.
        issuer: String,
    },
    /// There is nothing to be had.
    Later,
}

impl Due {
    fn of(identity: &DeviceIdentity, told: Sha256Digest, now: Timestamp) -> Option<Self> {
        let authorities = certificates(&identity.authorities)?;
        if identity.renewal_is_due(now).ok()? || Sha256Digest::of_fields(authorities.iter().map(AsRef::as_ref)) != told
        {
            return Some(Self::Now);
        }
        let own = Peer::of(certificates(&identity.certificate)?.first()?).ok()?;
        match authorities.as_slice() {
            [newest, _, ..] if Peer::of(newest).ok()?.name != own.issuer => {
                Some(Self::WithTheDaemon { issuer: own.issuer })
            }
            _ => Some(Self::Later),
        }
    }
}

/// The authority that the daemon's own certificate comes from, if it can be seen in time.
async fn daemons_issuer(identity: &DeviceIdentity, address: &Address) -> Option<String> {
    let tls = client_config(identity, Arc::new(SystemClock::new())).ok()?;
    let name = ServerName::try_from(SERVER_NAME).ok()?;
    let look = async {
        let stream = TcpStream::connect(address.to_string()).await.ok()?;
        let stream = TlsConnector::from(tls).connect(name, stream).await.ok()?;
        Some(Peer::of(stream.get_ref().1.peer_certificates()?.first()?).ok()?.issuer)
    };
    timeout(PATIENCE, look).await.ok()?
}

/// The certificates of a text.
pub(crate) fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
}

/// Whoever waits for the end of a command does not wait long for this.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use palyra_identity::Authority;
    use palyra_types::{clock::ManualClock, entropy::SystemEntropy};

    use super::*;
    use crate::paired::tests::identity;

    const A_DAY: u32 = 24 * 60 * 60 * 1_000;

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let clock = ManualClock::at(Timestamp::from_unix_millis(1_800_000_000_000));
        let authority = Authority::create(&clock, &SystemEntropy).unwrap();
        let identity = identity(&authority, &clock);
        let due = || Due::of(&identity, authority.bundle_fingerprint(), clock.now());
        assert_eq!(due(), Some(Due::Later));
        clock.advance(39 * A_DAY);
        assert_eq!(due(), Some(Due::Later));
        clock.advance(A_DAY);
        assert_eq!(due(), Some(Due::Now));
    }

    #[test]
    fn a_device_follows_each_step_of_a_rotation() {
        let clock = ManualClock::at(Timestamp::from_unix_millis(1_800_000_000_000));
        let before = Authority::create(&clock, &SystemEntropy).unwrap();
        let announced = before.announce(&clock, &SystemEntropy).unwrap();
        let switched = announced.switch().unwrap();
        let finished = switched.finish().unwrap();
        let due = |identity: &DeviceIdentity, told: &Authority| {
            Due::of(identity, told.bundle_fingerprint(), clock.now()).unwrap()
        };
        let with_the_daemon = || Due::WithTheDaemon { issuer: before.name().to_owned() };

        let unaware = identity(&before, &clock);
        assert_eq!(due(&unaware, &announced), Due::Now);
        let follows = DeviceIdentity { authorities: announced.bundle_pem(), ..unaware };
        assert_eq!(due(&follows, &announced), with_the_daemon());
        assert_eq!(due(&follows, &switched), with_the_daemon(), "what is trusted has not changed");
        assert_eq!(due(&follows, &before), Due::Now, "the rotation was abandoned");
        let switched_too = identity(&switched, &clock);
        assert_eq!(due(&switched_too, &switched), Due::Later);
        assert_eq!(due(&switched_too, &finished), Due::Now);
    }
}
