//! Whether a daemon has no use any more for what this device was to it before.

use std::time::Duration;

use palyra_client::{Client, ClientError, DeviceKeys};
use palyra_identity::{Address, DeviceIdentity};
use palyra_types::Sha256Digest;

use crate::{
    paired::{DaemonName, Paired, PairedDaemon},
    renewal::certificates,
};

/// What is kept of the daemon at this address that has this authority, and is refused by it: its name here.
// SECURITY: only a daemon that has proved to have the authority is listened to, so nobody else has this device forget what it is.
pub(super) async fn find(paired: &Paired, address: &Address, authority: Sha256Digest) -> Option<DaemonName> {
    for name in paired.names().ok()? {
        let Ok(daemon) = paired.read(&name) else { continue };
        let is_of = |pem: &str| certificates(pem).is_some_and(|all| all.iter().any(|one| is(one, authority)));
        if daemon.identity.address == *address && is_of(&daemon.identity.authorities) && is_refused(&daemon).await {
            return Some(name);
        }
    }
    None
}

fn is(certificate: &[u8], authority: Sha256Digest) -> bool {
    Sha256Digest::of(certificate) == authority
}

/// Whether the daemon says that it lets this identity in no more. One that says nothing may still do.
async fn is_refused(daemon: &PairedDaemon) -> bool {
    let DeviceIdentity { address, authorities, certificate, key, .. } = &daemon.identity;
    let Ok(client) = Client::control(&address.to_string(), DeviceKeys { authorities, certificate, key }) else {
        return false;
    };
    match client.with_patience(PATIENCE).identity().await {
        Err(ClientError::Refused { error, .. }) => FOR_GOOD.contains(&error.code.as_str()),
        Err(ClientError::NotTaken { .. }) => true,
        _ => false,
    }
}

/// What is told to a device that never comes back.
const FOR_GOOD: &[&str] = &["revoked", "unknown_device", "expired"];

/// Somebody waits to say yes.
const PATIENCE: Duration = Duration::from_secs(5);
