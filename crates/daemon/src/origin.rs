//! Where a connection comes from, and whether it may go on.
//!
//! Guarantees: once the credential that a connection was last known by is revoked, or the authority that its certificate comes from is trusted
//! no more, the connection is closed in less than a second, whatever is under way on it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use palyra_identity::Peer;

use crate::{app::App, caller::Shown};

/// Where a connection comes from.
pub struct Origin {
    /// The address at its other end.
    pub address: SocketAddr,
    /// What its certificate says, if it has one.
    pub peer: Option<Arc<Peer>>,
    /// The credential that was shown last.
    shown: Mutex<Option<Shown>>,
}

impl Origin {
    /// A connection from this address, with this certificate.
    #[must_use]
    pub const fn new(address: SocketAddr, peer: Option<Arc<Peer>>) -> Self {
        Self { address, peer, shown: Mutex::new(None) }
    }

    /// Remembers the credential that a request came with.
    pub fn known_by(&self, shown: &Shown) {
        let mut known = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() != Some(shown) {
            *known = Some(shown.clone());
        }
    }

    /// Waits until the connection may not go on.
    pub async fn disowned(&self, app: &App) {
        let (mut registry, mut authorities) = (app.access.changes(), app.certifier.changes());
        loop {
            if !self.may_go_on(app) {
                // Whoever revokes what they use themselves is still told that it worked.
                return tokio::time::sleep(LAST_WORD).await;
            }
            tokio::select! {
                changed = registry.changed() => if changed.is_err() { return std::future::pending().await },
                changed = authorities.changed() => if changed.is_err() { return std::future::pending().await },
            }
        }
    }

    fn may_go_on(&self, app: &App) -> bool {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let trusted = self.peer.as_ref().is_none_or(|peer| app.certifier.now().trusts(&peer.issuer));
        trusted
            && match shown {
                // SECURITY: leaving the console ends its streams, and its connection is no credential of its own.
                Some(Shown::Console { device, .. }) => Shown::Device(device).counts(app),
                Some(shown) => shown.counts(app),
                None => true,
            }
    }
}

/// How long an answer that is under way may take to leave.
const LAST_WORD: Duration = Duration::from_millis(200);
