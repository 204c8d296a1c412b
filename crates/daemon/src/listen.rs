//! The two listeners: TLS for the command line, plain HTTP on loopback for everybody on this machine.
//!
//! Guarantees: a port that is taken is an error, never another port; each listener has places of its own, so that who fills one keeps nobody
//! from the other, and both together leave half of the descriptors to the daemon's work; when the daemon stops, requests under way are
//! answered first.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    conversation::{HEADERS_WITHIN, converse},
    edge::Listener,
    places::{Place, Places},
};

/// A port that is ours.
pub struct Bound {
    listener: TcpListener,
    kind: Listener,
    tls: Option<TlsAcceptor>,
}

impl Bound {
    /// Takes a port.
    ///
    /// # Errors
    /// When it is taken, or cannot be had.
    pub async fn local(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: take(address).await?, kind: Listener::Local, tls: None })
    }

    /// Takes a port for TLS.
    ///
    /// # Errors
    /// When it is taken, or cannot be had.
    pub async fn control(address: SocketAddr, tls: rustls::ServerConfig) -> io::Result<Self> {
        let tls = Some(TlsAcceptor::from(Arc::new(tls)));
        Ok(Self { listener: take(address).await?, kind: Listener::Control, tls })
    }

    /// Serves until it is told to stop, and then until what is under way is answered or it is told to end.
    pub fn serve(self, router: Router, places: Arc<Places>, stop: watch::Receiver<Stop>) -> JoinHandle<()> {
        tokio::spawn(self.accept(router, places, stop))
    }

    async fn accept(self, router: Router, places: Arc<Places>, mut stop: watch::Receiver<Stop>) {
        let Self { listener, kind, tls } = self;
        let graceful = GracefulShutdown::new();
        let door = Door { kind, tls, router };
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop != Stop::No) => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: those in use come back.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            // Nobody goes for one too many if all wait for answers; it is closed at once.
            let Some((place, lost)) = places.enter() else { continue };
            let serving = door.clone().serve(stream, (place, graceful.watcher()));
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    _ = lost => tracing::debug!("a connection was closed to make room"),
                    () = serving => {}
                }
            });
        }
        drop(listener);
        tokio::select! {
            () = graceful.shutdown() => {}
            _ = stop.wait_for(|stop| *stop == Stop::AtOnce) => {}
        }
    }
}

/// Whether a listener goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It does.
    No,
    /// It takes nothing new, and answers what is under way.
    Gently,
    /// It ends.
    AtOnce,
}

/// How many places each of the two listeners has, with so many descriptors for all the daemon does.
#[must_use]
pub fn places_within(descriptors: Option<u64>) -> usize {
    let quarter = descriptors.and_then(|most| usize::try_from(most / 4).ok()).unwrap_or(MOST_PLACES);
    quarter.clamp(FEWEST_PLACES, MOST_PLACES)
}

/// What a connection is let in by.
#[derive(Clone)]
struct Door {
    kind: Listener,
    tls: Option<TlsAcceptor>,
    router: Router,
}

impl Door {
    async fn serve(self, stream: TcpStream, (place, watcher): (Place, Watcher)) {
        let Self { kind, tls, router } = self;
        let _ = stream.set_nodelay(true);
        match tls {
            None => converse(stream, kind, router, (place, watcher)).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = tokio::time::timeout(HEADERS_WITHIN, tls.accept(stream)).await {
                    converse(stream, kind, router, (place, watcher)).await;
                }
            }
        }
    }
}

/// Takes a port. A daemon that was killed while it started a process leaves its ports with that process until it has become another program,
/// which is a matter of moments.
async fn take(address: SocketAddr) -> io::Result<TcpListener> {
    for _ in 0..TAKE_ATTEMPTS {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(TAKE_AGAIN).await,
            bound => return bound,
        }
    }
    TcpListener::bind(address).await
}

const TAKE_ATTEMPTS: u32 = 50;

const TAKE_AGAIN: Duration = Duration::from_millis(10);

const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const MOST_PLACES: usize = 4_096;

const FEWEST_PLACES: usize = 16;
