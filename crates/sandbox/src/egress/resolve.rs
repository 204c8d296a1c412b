//! From a name to addresses.
//!
//! Guarantees: a run has so many names looked up at once and no more, however long that takes, so that no program keeps
//! the others or the daemon itself from finding theirs.
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
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Finds the addresses of a host.
pub trait Resolve: Send + Sync {
    /// The addresses of a name, best first.
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;

    /// [`Resolve::resolve`] for a run. Whoever goes on looking when nobody waits any more keeps the turn meanwhile.
    fn resolve_in_turn<'a>(&'a self, host: &'a HostName, turn: Turn) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = self.resolve(host).await;
            drop(turn);
            found
        })
    }
}

/// How many names a run may have looked up at once.
#[derive(Debug, Clone)]
pub(crate) struct Share(Arc<Semaphore>);

impl Share {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS))))
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        Arc::clone(&self.0).acquire_owned().await.ok().map(Turn)
    }
}

/// One of the names that a run may have looked up at once. Ends when it is dropped.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "held until the name was looked up")] OwnedSemaphorePermit);

/// What the machine itself resolves with.
///
/// The system's call cannot be broken off, so each keeps its place among those that run at once until it returns, even
/// when nobody waits for it any more: names that are slow to resolve do not take up the runtime's threads for blocking
/// work. Runs have places of their own, so that the daemon finds its names whatever programs ask for.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    patience: Duration,
    own_places: Arc<Semaphore>,
    places_of_runs: Arc<Semaphore>,
    call: fn(&str) -> io::Result<Vec<IpAddr>>,
}

impl SystemResolver {
    /// Gives up on a name after this long.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            own_places: Arc::new(Semaphore::new(OWN_AT_ONCE)),
            places_of_runs: Arc::new(Semaphore::new(RUNS_AT_ONCE)),
            call: |name| Ok((name, 0).to_socket_addrs()?.map(|one| one.ip()).collect()),
        }
    }

    fn look_up(
        &self,
        host: &HostName,
        places: &Arc<Semaphore>,
        turn: Option<Turn>,
    ) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let (name, places, patience, call) = (host.as_str().to_owned(), Arc::clone(places), self.patience, self.call);
        let look_up = async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let call = move || {
                let found = call(&name);
                drop((place, turn));
                found
            };
            tokio::task::spawn_blocking(call).await.map_err(io::Error::other)?
        };
        Box::pin(async move { timeout(patience, look_up).await.map_err(|_| io::ErrorKind::TimedOut)? })
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new(Duration::from_secs(8))
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.look_up(host, &self.own_places, None)
    }

    fn resolve_in_turn<'a>(&'a self, host: &'a HostName, turn: Turn) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.look_up(host, &self.places_of_runs, Some(turn))
    }
}

/// How many calls of the system the daemon itself has running at once.
const OWN_AT_ONCE: usize = 16;

/// How many all runs together have.
const RUNS_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::parse(name).unwrap()
    }

    /// A resolver whose calls take as long as that of a name service that is down, if the name says so.
    fn slow_for_some() -> SystemResolver {
        let call = |name: &str| {
            if name.starts_with("slow") {
                thread::sleep(Duration::from_millis(600));
            }
            Ok(vec![IpAddr::from([192, 0, 2, 7])])
        };
        SystemResolver { call, ..SystemResolver::new(Duration::from_millis(50)) }
    }

    #[tokio::test]
    async fn a_turn_lasts_until_the_call_returns_though_nobody_waits() {
        let (resolver, share) = (slow_for_some(), Share::new(2));
        let began = Instant::now();
        for name in ["slow-1.example", "slow-2.example"] {
            let refused = resolver.resolve_in_turn(&host(name), share.turn().await.unwrap()).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        }
        assert!(timeout(Duration::from_millis(100), share.turn()).await.is_err());
        share.turn().await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn however_much_programs_ask_for_the_daemon_finds_its_names() {
        let (resolver, share) = (slow_for_some(), Share::new(RUNS_AT_ONCE));
        for number in 0..RUNS_AT_ONCE {
            let (resolver, turn) = (resolver.clone(), share.turn().await.unwrap());
            tokio::spawn(async move { resolver.resolve_in_turn(&host(&format!("slow-{number}.example")), turn).await });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(resolver.resolve(&host("quick.example")).await.is_ok());
    }

    #[tokio::test]
    async fn the_system_knows_itself() {
        let found = SystemResolver::default().resolve(&host("localhost")).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
