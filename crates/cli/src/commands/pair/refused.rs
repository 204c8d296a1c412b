//! Whether a daemon has no use any more for what this device was to it before.

use std::time::Duration;

use palyra_client::{Client, ClientError, DeviceKeys};
use palyra_identity::{Address, DeviceIdentity};
use palyra_types::Sha256Digest;

use crate::{
    paired::{DaemonName, Paired, PairedDaemon},
    renewal::certificates,
};

/// What is kept of the daemon at this address, and is of no use there any more: its name here. With a name, that one or none.
// SECURITY: this device forgets what it is to a daemon only if that daemon itself says so, over TLS that trusts its authority alone; or if
// whoever has just proved to know the code that a person typed for this very address has an authority that the kept one does not trust.
pub(super) async fn find(
    paired: &Paired,
    named: Option<&DaemonName>,
    address: &Address,
    authority: Sha256Digest,
) -> Option<DaemonName> {
    let names = match named {
        Some(name) => vec![name.clone()],
        None => paired.names().ok()?,
    };
    for name in names {
        let Ok(daemon) = paired.read(&name) else { continue };
        if daemon.identity.address != *address {
            continue;
        }
        let trusts = |pem: &str| certificates(pem).is_some_and(|all| all.iter().any(|one| is(one, authority)));
        match standing(&daemon).await {
            Standing::Refused => return Some(name),
            Standing::Untrusting if !trusts(&daemon.identity.authorities) => return Some(name),
            Standing::Untrusting | Standing::Unknown => {}
        }
    }
    None
}

/// Whether what is kept under a name may be of no use any more at this address, so that pairing again makes sense.
pub(super) async fn may_be_replaced(daemon: &PairedDaemon, address: &Address) -> bool {
    daemon.identity.address == *address && standing(daemon).await != Standing::Unknown
}

fn is(certificate: &[u8], authority: Sha256Digest) -> bool {
    Sha256Digest::of(certificate) == authority
}

/// How a kept identity stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its daemon says that it is let in no more.
    Refused,
    /// It does not trust whoever is there.
    Untrusting,
    /// It is let in, or nobody says that it is not.
    Unknown,
}

async fn standing(daemon: &PairedDaemon) -> Standing {
    let DeviceIdentity { address, authorities, certificate, key, .. } = &daemon.identity;
    let Ok(client) = Client::control(&address.to_string(), DeviceKeys { authorities, certificate, key }) else {
        return Standing::Unknown;
    };
    match client.with_patience(PATIENCE).identity().await {
        Err(ClientError::Refused { error, .. }) if FOR_GOOD.contains(&error.code.as_str()) => Standing::Refused,
        Err(ClientError::NotTaken { .. }) => Standing::Refused,
        Err(ClientError::Stranger { .. }) => Standing::Untrusting,
        _ => Standing::Unknown,
    }
}

/// What is told to a device that never comes back.
const FOR_GOOD: &[&str] = &["revoked", "unknown_device", "expired"];

/// Somebody waits to say yes.
const PATIENCE: Duration = Duration::from_secs(5);
