//! The two listeners: TLS for the command line, plain HTTP on loopback for everybody on this machine.
//!
//! Guarantees: a port that is taken is an error, never another port; a connection that does not say what it wants in time is closed; there is
//! room for so many connections and no more; when the daemon stops, requests under way are answered first.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::edge::Listener;

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

    /// Serves until it is told to stop, and then until what is under way is answered or `patience` is over.
    pub fn serve(self, router: Router, stop: watch::Receiver<Stop>) -> JoinHandle<()> {
        tokio::spawn(self.accept(router, stop))
    }

    async fn accept(self, router: Router, mut stop: watch::Receiver<Stop>) {
        let Self { listener, kind, tls } = self;
        let (graceful, room) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
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
            // One too many is closed at once; whoever is connected goes on.
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
            let (router, watcher, tls) = (router.clone(), graceful.watcher(), tls.clone());
            tokio::spawn(async move {
                let _place = place;
                let _ = stream.set_nodelay(true);
                match tls {
                    None => converse(stream, kind, router, watcher).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = tokio::time::timeout(HEADERS_WITHIN, tls.accept(stream)).await {
                            converse(stream, kind, router, watcher).await;
                        }
                    }
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

async fn converse<S>(stream: S, kind: Listener, router: Router, watcher: hyper_util::server::graceful::Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(kind);
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended");
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

const HEADERS_WITHIN: Duration = Duration::from_secs(10);

const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Connections at once, on each listener.
const MOST_CONNECTIONS: usize = 4_096;

const MOST_HEADERS: usize = 64;
