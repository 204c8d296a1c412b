//! From a name to addresses.
//!
//! Does not: judge the addresses, or whether the name may be asked for. [`super::Connector`] asks only for names that were allowed.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures_util::future::BoxFuture;
use palyra_types::host::HostName;

/// Finds the addresses of a host.
pub trait Resolve: Send + Sync {
    /// The addresses of a name, best first.
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// What the machine itself resolves with.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver {
    patience: Duration,
}

impl SystemResolver {
    /// Gives up on a name after this long.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new(Duration::from_secs(8))
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::time::timeout(self.patience, tokio::net::lookup_host((host.as_str(), 0))).await;
            Ok(found.map_err(|_| io::ErrorKind::TimedOut)??.map(|address: SocketAddr| address.ip()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_knows_itself() {
        let found = SystemResolver::default().resolve(&HostName::parse("localhost").unwrap()).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
