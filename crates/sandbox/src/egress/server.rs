//! The egress of one run: its sockets, served until the run is over.
//!
//! Guarantees: whoever drops or finishes the server closes its listeners and every connection, so that nothing keeps
//! the run's network namespace; no flood of clients takes more than the limits say. Does not: open sockets inside; they
//! are handed over.

use std::{
    io,
    net::{TcpListener, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{net::TcpStream, sync::watch, task::JoinSet, time::timeout};

use super::{
    connect::Connector,
    direct, dns,
    door::{Doorkeeper, Via},
    http,
    intercept::Interception,
    ledger::{EgressSummary, Entry},
    lobby::Seat,
    opening::reset,
    refusal::EgressRefusalKind as Kind,
    run::{EgressLimits, Run},
    socks,
};

/// The sockets of a run's network namespace.
#[derive(Debug)]
pub struct EgressSockets {
    /// Where names are asked for.
    pub dns: UdpSocket,
    /// Where the proxy listens.
    pub proxy: TcpListener,
    /// Where clients arrive that know of no proxy, one for each port.
    pub direct: Vec<TcpListener>,
}

/// The egress of one run.
#[must_use]
pub struct EgressServer {
    run: Arc<Run>,
    doors: JoinSet<()>,
    over: watch::Sender<bool>,
}

impl EgressServer {
    /// Serves the sockets of a run, in tasks of the current runtime. Somebody may look into its connections.
    ///
    /// # Errors
    /// When the runtime cannot take the sockets.
    pub fn start(
        sockets: EgressSockets,
        keeper: Arc<dyn Doorkeeper>,
        net: Arc<Connector>,
        limits: EgressLimits,
        interception: Option<Interception>,
    ) -> io::Result<Self> {
        let proxy = sockets.proxy.local_addr()?;
        sockets.dns.set_nonblocking(true)?;
        let names = tokio::net::UdpSocket::from_std(sockets.dns)?;
        let all = std::iter::once((sockets.proxy, Entrance::Proxy))
            .chain(sockets.direct.into_iter().map(|one| (one, Entrance::Direct)));
        let listeners = all.map(|(listener, entrance)| {
            listener.set_nonblocking(true)?;
            Ok((tokio::net::TcpListener::from_std(listener)?, entrance))
        });
        let listeners = listeners.collect::<io::Result<Vec<_>>>()?;

        let run = Arc::new(Run::new(keeper, net, limits, proxy, interception));
        let (over, is_over) = watch::channel(false);
        let accepted = Arc::new(AtomicU64::new(0));
        let mut doors = JoinSet::new();
        let mut ends = is_over.clone();
        let desk = dns::serve(Arc::clone(&run), names);
        doors.spawn(async move {
            tokio::select! {
                () = desk => {}
                _ = ends.wait_for(|&over| over) => {}
            }
        });
        for (listener, entrance) in listeners {
            let door = Door { run: Arc::clone(&run), listener, entrance, accepted: Arc::clone(&accepted) };
            doors.spawn(door.keep(is_over.clone()));
        }
        Ok(Self { run, doors, over })
    }

    /// Closes everything and tells what it came to.
    pub async fn finish(mut self) -> EgressSummary {
        let _ = self.over.send(true);
        while self.doors.join_next().await.is_some() {}
        self.run.ledger.summary()
    }
}

/// One listener and the clients that came through it.
struct Door {
    run: Arc<Run>,
    listener: tokio::net::TcpListener,
    entrance: Entrance,
    /// Counts the clients of all doors.
    accepted: Arc<AtomicU64>,
}

#[derive(Clone, Copy)]
enum Entrance {
    Proxy,
    Direct,
}

impl Door {
    async fn keep(self, mut over: watch::Receiver<bool>) {
        let mut clients = JoinSet::new();
        tokio::select! {
            () = self.welcome(&mut clients) => {}
            _ = over.wait_for(|&over| over) => {}
        }
        // Nobody new comes in while the others are sent away.
        drop(self);
        clients.shutdown().await;
    }

    async fn welcome(&self, clients: &mut JoinSet<()>) {
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = clients.join_next() => continue,
            };
            let Ok((stream, _)) = stream else {
                // The daemon has no descriptor left, or the client was gone already.
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            if self.accepted.fetch_add(1, Ordering::Relaxed) >= self.run.limits.total {
                reset(&stream);
                let detail = format!("the run has had {} clients", self.run.limits.total);
                Entry::new(&self.run.ledger, self.entrance.via()).refused_as(Kind::TooManyConnections, &detail);
                // A program that goes on all the same is not worth more of the daemon's time.
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            // Others wait in the kernel's queue meanwhile.
            let Some(room) = self.run.lobby.socket().await else { return };
            let Some(of_all) = self.run.net.room().await else { return };
            let served = self.serve(stream);
            clients.spawn(async move {
                served.await;
                drop((room, of_all));
            });
        }
    }

    fn serve(&self, stream: TcpStream) -> BoxFuture<'static, ()> {
        let run = Arc::clone(&self.run);
        match self.entrance {
            Entrance::Proxy => Box::pin(serve_proxy(run, stream)),
            Entrance::Direct => Box::pin(direct::serve(run, stream)),
        }
    }
}

impl Entrance {
    const fn via(self) -> Via {
        match self {
            Self::Proxy => Via::Http,
            Self::Direct => Via::Direct,
        }
    }
}

/// Serves a client of the proxy in the protocol that its first byte tells.
async fn serve_proxy(run: Arc<Run>, stream: TcpStream) {
    let seat = Arc::new(Seat::new(&run.lobby));
    seat.sit(false);
    let mut first = [0];
    let read = tokio::select! {
        read = timeout(run.limits.handshake, stream.peek(&mut first)) => read.ok(),
        () = seat.pushed_out() => None,
    };
    match (read, first) {
        (None, _) => {
            let detail = "the client did not say in time what it wants";
            Entry::new(&run.ledger, Via::Http).refused_as(Kind::TooSlow, detail);
        }
        (Some(Ok(0) | Err(_)), _) => {}
        (Some(Ok(_)), [4 | 5]) => socks::serve(run, stream, seat).await,
        (Some(Ok(_)), _) => http::serve(run, stream, seat).await,
    }
}

/// How long a door stays shut when it makes no sense to open it at once.
const PAUSE: Duration = Duration::from_millis(20);
