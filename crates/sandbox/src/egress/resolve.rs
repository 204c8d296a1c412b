//! From a name to addresses.
//!
//! Does not: judge the addresses, or whether the name may be asked for. [`super::Connector`] asks only for names that
//! were allowed.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use palyra_types::host::HostName;
use tokio::{sync::Semaphore, time::timeout};

/// Finds the addresses of a host.
pub trait Resolve: Send + Sync {
    /// The addresses of a name, best first.
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// What the machine itself resolves with.
///
/// The system's call cannot be broken off, so each keeps its place among those that run at once until it returns, even
/// when nobody waits for it any more: names that are slow to resolve do not take up the runtime's threads for blocking
/// work.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    patience: Duration,
    places: Arc<Semaphore>,
}

impl SystemResolver {
    /// Gives up on a name after this long.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self { patience, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new(Duration::from_secs(8))
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let name = host.as_str().to_owned();
        let look_up = async {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
            let call = move || {
                let found = (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|one| one.ip()).collect());
                drop(place);
                found
            };
            tokio::task::spawn_blocking(call).await.map_err(io::Error::other)?
        };
        Box::pin(async { timeout(self.patience, look_up).await.map_err(|_| io::ErrorKind::TimedOut)? })
    }
}

/// How many calls of the system run at once.
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_knows_itself() {
        let found = SystemResolver::default().resolve(&HostName::parse("localhost").unwrap()).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
