//! The two listeners: mutual TLS for paired devices, plain HTTP on loopback for programs and pages on this machine.
//!
//! Guarantees: a port that is taken is an error, never another port; each listener has places of its own, so that who fills one keeps nobody
//! from the other, and both together leave half of the descriptors to the daemon's work; when the daemon stops, requests under way are
//! answered first.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use palyra_identity::{Peer, tls::PAIRING_ALPN};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use crate::{
    app::App,
    attempts::Attempt,
    conversation::{HEADERS_WITHIN, converse},
    edge::Listener,
    origin::Origin,
    pairing_conversation,
    places::{Place, Places},
};

/// A port that is ours.
pub struct Bound {
    listener: TcpListener,
    kind: Listener,
}

impl Bound {
    /// Takes a port.
    ///
    /// # Errors
    /// When it is taken, or cannot be had.
    pub async fn take(kind: Listener, address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: take(address).await?, kind })
    }

    /// Serves until it is told to stop, and then until what is under way is answered or it is told to end.
    pub fn serve(
        self,
        (app, router): (Arc<App>, Router),
        places: Arc<Places>,
        stop: watch::Receiver<Stop>,
    ) -> JoinHandle<()> {
        let door = Door { kind: self.kind, app, router };
        tokio::spawn(accept(self.listener, door, places, stop))
    }
}

async fn accept(listener: TcpListener, door: Door, places: Arc<Places>, mut stop: watch::Receiver<Stop>) {
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop != Stop::No) => break,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: those in use come back.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        // Nobody goes for one too many if all wait for answers; it is closed at once.
        let Some((place, lost)) = places.enter() else { continue };
        let serving = door.clone().serve((stream, from), (place, graceful.watcher()));
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
    app: Arc<App>,
    router: Router,
}

impl Door {
    async fn serve(self, (stream, from): (TcpStream, SocketAddr), (place, watcher): (Place, Watcher)) {
        let _ = stream.set_nodelay(true);
        match self.kind {
            Listener::Local => self.converse(stream, Origin::new(from, None), (place, watcher)).await,
            Listener::Control => {
                match tokio::time::timeout(HEADERS_WITHIN, shake_hands(&self.app, (stream, from))).await {
                    Ok(Some(Met::Device(stream, peer))) => {
                        self.converse(*stream, Origin::new(from, Some(peer)), (place, watcher)).await;
                    }
                    // SECURITY: on a task of its own, in a number that is bounded on its own: strangers who need a place must not break off what a
                    // device and its operator have begun.
                    Ok(Some(Met::Candidate(stream))) => {
                        if let Some(kept) = self.app.pairings.place() {
                            tokio::spawn(async move {
                                pairing_conversation::converse(self.app, *stream, from).await;
                                drop(kept);
                            });
                        }
                    }
                    Ok(None) | Err(_) => {}
                }
            }
        }
    }

    async fn converse<S>(self, stream: S, origin: Origin, (place, watcher): (Place, Watcher))
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let origin = Arc::new(origin);
        let Self { kind, app, router } = self;
        tokio::select! {
            () = converse(stream, (kind, Arc::clone(&origin)), router, (place, watcher)) => {}
            () = origin.disowned(&app) => tracing::debug!(from = %origin.address, "a connection was closed, its credential does not count any more"),
        }
    }
}

/// Who is at the other end of a TLS connection.
enum Met {
    /// A device that has a certificate.
    Device(Box<TlsStream<TcpStream>>, Arc<Peer>),
    /// Somebody who wants to be paired.
    Candidate(Box<TlsStream<TcpStream>>),
}

/// Meets whoever connects: a device by its certificate, and whoever asks for a pairing without one. Those two never meet the same rules: who
/// asks for a pairing reaches no route.
async fn shake_hands(app: &App, (stream, from): (TcpStream, SocketAddr)) -> Option<Met> {
    let certified = app.certifier.now();
    let refused = |error: &io::Error| refused(app, from, error);
    let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await;
    let hello = hello.inspect_err(refused).ok()?;
    let pairs = hello.client_hello().alpn().is_some_and(|mut names| names.any(|name| name == PAIRING_ALPN));
    if pairs {
        let stream = hello.into_stream(Arc::clone(&certified.pairing)).await;
        return Some(Met::Candidate(Box::new(stream.inspect_err(refused).ok()?)));
    }
    let stream = hello.into_stream(Arc::clone(&certified.tls)).await.inspect_err(refused).ok()?;
    let peer = Peer::of(stream.get_ref().1.peer_certificates()?.first()?).ok()?;
    Some(Met::Device(Box::new(stream), Arc::new(peer)))
}

/// Tells of a TLS connection that did not come about, and counts it if that was because of who is at its other end.
fn refused(app: &App, from: SocketAddr, error: &io::Error) {
    tracing::debug!(%from, %error, "a TLS connection did not come about");
    let code = match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::NoCertificatesPresented) => "no_certificate",
        Some(rustls::Error::InvalidCertificate(_)) => "bad_certificate",
        _ => return,
    };
    app.attempts.note(Attempt { listener: Listener::Control, from: Some(from.ip()), code: code.to_owned() });
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
