//! The proxy for HTTP/1.1: tunnels by CONNECT, and plain requests with the whole address in them.
//!
//! Guarantees: every request on a kept connection is decided about anew and has a connection of its own to its host;
//! the Host header that the host sees is the one that was decided about; what concerns only the hop to the proxy goes
//! no further; a body arrives, and the host is told in one way how long it is. Where a client says so in two ways, its
//! chunks count and its Content-Length is dropped, as HTTP demands.
//! Where somebody looks into the run's connections, each plain request passes them, head and body.
//! Refuses: requests for the proxy itself, tunnels to port 80, other schemes, user information, encodings of a body
//! other than chunks.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hyper::{
    Method, Request, Response, StatusCode, Uri, Version,
    body::{Body as _, Bytes, Incoming},
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use palyra_types::host::HostName;
use tokio::{net::TcpStream, sync::mpsc};

use super::{
    authority,
    body::{Body, Pump, boxed, drain, whole},
    connect::Connected,
    door::{ConnectionOutcome, Via},
    heads::{self, host_header, is_chunked, pass_back, strip_hop},
    ledger::{Entry, Stop},
    lobby::Seat,
    opening::Client,
    refusal::{EgressRefusal, EgressRefusalKind as Kind, shown},
    relay::Counted,
    rules::Opening,
    run::{Passage, Run, Upstream},
    tunnel::{Reached, Tunnel},
};

/// Serves one client of the proxy.
pub(crate) async fn serve(run: Arc<Run>, stream: TcpStream, seat: Arc<Seat>) {
    let (exchanges, mut begun) = mpsc::unbounded_channel();
    let front = Arc::new(Front {
        run: Arc::clone(&run),
        seat: Arc::clone(&seat),
        exchanges,
        tunnel: Mutex::new(None),
        was_asked: AtomicBool::new(false),
    });
    let served = Arc::clone(&front);
    let service = service_fn(move |request| {
        let front = Arc::clone(&served);
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(run.limits.handshake);
    builder.max_header_size(run.limits.header_bytes).auto_date_header(false);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // The exchanges with hosts run here and not in tasks of their own, so that they end with their client.
    let mut under_way = FuturesUnordered::new();
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            Some(exchange) = begun.recv() => under_way.push(exchange),
            Some(()) = under_way.next() => {}
            () = seat.pushed_out() => {
                return front.note_silence();
            }
        }
    };
    // Whoever waits for an upgrade that does not come waits for as long as the connection is kept; and exchanges that
    // nobody drives any more would keep their places.
    drop((connection, under_way, begun));
    let tunnel = front.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(tunnel) = tunnel {
        return tunnel.carry(&run, &seat).await;
    }
    match ended {
        Err(error) if error.is_parse() => {
            Entry::new(&run.ledger, Via::Http).refused_as(Kind::BadRequest, "the request is no HTTP/1.1");
        }
        Err(error) if error.is_timeout() => front.note_silence(),
        _ => {}
    }
}

/// One client's side of the proxy.
struct Front {
    run: Arc<Run>,
    seat: Arc<Seat>,
    exchanges: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    /// The tunnel that the connection becomes once the last response is out.
    tunnel: Mutex<Option<PendingTunnel>>,
    was_asked: AtomicBool,
}

struct PendingTunnel {
    upgrade: OnUpgrade,
    passage: Passage,
    upstream: Upstream,
    entry: Entry,
}

impl Front {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.seat.rise();
        self.was_asked.store(true, Ordering::Relaxed);
        let via = if request.method() == Method::CONNECT { Via::Connect } else { Via::Http };
        // Nothing but the authority: paths and queries hold secrets.
        let named = request.uri().authority().map_or("", |authority| authority.as_str());
        let entry = Entry::new(&self.run.ledger, via).named(authority::without_user(named), 0);
        if let Err(refusal) = self.run.count() {
            let mut response = self.stop(entry, refusal.into());
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        let target = match target_of(&request) {
            Ok(target) => target,
            Err(refusal) => return self.stop(entry, refusal.into()),
        };
        match via {
            Via::Connect => self.tunnel(request, target, entry).await,
            _ => self.exchange(request, target, entry).await,
        }
    }

    async fn tunnel(&self, request: Request<Incoming>, target: Target, mut entry: Entry) -> Response<Body> {
        match self.run.pass(&mut entry, target.host, target.port).await {
            Ok((passage, upstream)) => {
                let pending = PendingTunnel { upgrade: hyper::upgrade::on(request), passage, upstream, entry };
                *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
                Response::new(whole(Bytes::new()))
            }
            Err(stop) => self.stop(entry, stop),
        }
    }

    async fn exchange(&self, request: Request<Incoming>, target: Target, mut entry: Entry) -> Response<Body> {
        let passage = match self.run.admit(&mut entry, target.host, target.port).await {
            Ok(passage) => passage,
            Err(refusal) => return self.stop(entry, refusal.into()),
        };
        let to = &passage.admitted;
        let interceptor = self.run.interception().map(|one| Arc::clone(&one.interceptor));
        let is_intercepted = interceptor.as_ref().is_some_and(|one| one.intercepts(to.host(), to.port()));
        if is_intercepted || to.terms().tls.on(to.port()) == Opening::Tls {
            let detail = format!("port {} of `{}` is for TLS, and this is a plain request", to.port(), to.host());
            return self.stop(entry, EgressRefusal::new(Kind::NoTls, detail).into());
        }
        // What was ruled on, which is a name where the client gave its synthetic address.
        let target = Target { host: to.host().clone(), port: to.port() };
        let (request, looked) = match interceptor {
            None => (target.rewrite(request).map(boxed), None),
            Some(interceptor) => {
                let (parts, body) = target.rewrite(request).into_parts();
                match interceptor.elsewhere(&target.host, target.port, &parts) {
                    Ok(filter) => {
                        let (pump, piped) = Pump::new(body, filter);
                        (Request::from_parts(parts, boxed(piped)), Some(pump))
                    }
                    Err(refusal) => {
                        let _ = self.exchanges.send(Box::pin(drain(body)));
                        return self.stop(entry, refusal.into());
                    }
                }
            }
        };
        match self.forward(request, looked, passage, entry).await {
            Ok(response) => response,
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Sends a request on and the response back. The refusal that it may end in is noted by then.
    async fn forward(
        &self,
        request: Request<Body>,
        looked: Option<Pump>,
        mut passage: Passage,
        mut entry: Entry,
    ) -> Result<Response<Body>, EgressRefusal> {
        let (to, live) = (&passage.admitted, &mut passage.live);
        let host = to.host().clone();
        let connected = tokio::select! {
            biased;
            () = live.revoked(to) => Err(Stop::Revoked),
            connected = self.run.net.connect(to) => connected.map_err(Stop::Refused),
        };
        let Connected { stream, address } = match connected {
            Ok(connected) => connected,
            Err(stop) => {
                let refusal = stop.refusal();
                entry.ends(stop.outcome());
                return Err(refusal);
            }
        };
        entry.address = Some(address);
        let broken = |kind| EgressRefusal::new(kind, format!("`{host}` did not answer"));
        let counted = Counted::new(stream, Arc::clone(entry.traffic()));
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(counted));
        let Ok((mut sender, connection)) = handshake.await else { return Err(broken(Kind::Unreachable)) };
        let (idle, traffic) = (self.run.limits.idle, Arc::clone(entry.traffic()));
        // Until there is an answer it counts as failed, whatever ends it.
        let open = Arc::new(Mutex::new(Some(entry)));
        let answered = Arc::clone(&open);
        let drive = async move {
            let outcome = tokio::select! {
                biased;
                () = passage.live.revoked(&passage.admitted) => ConnectionOutcome::Revoked,
                // A connection also ends in order when its host answered nonsense; whoever waits for the answer knows
                // better.
                ended = connection => match ended {
                    Ok(()) => return,
                    Err(_) => ConnectionOutcome::Failed,
                },
                () = traffic.idle(idle) => ConnectionOutcome::Failed,
            };
            if let Some(mut entry) = open.lock().unwrap_or_else(PoisonError::into_inner).take() {
                entry.ends(outcome);
            }
        };
        if self.exchanges.send(Box::pin(drive)).is_err() {
            return Err(broken(Kind::Unreachable));
        }
        let refused = Arc::new(Mutex::new(None));
        if let Some(pump) = looked {
            let (refused, refusing) = (Arc::clone(&refused), Arc::clone(&answered));
            let pumped = pump.run(move |refusal| {
                // Noted at once: the connection breaks next, and that is not what it ended by.
                if let Some(entry) = refusing.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    entry.refused(refusal.clone());
                }
                *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
            });
            let _ = self.exchanges.send(Box::pin(pumped));
        }
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            Err(_) => {
                let refusal = refused.lock().unwrap_or_else(PoisonError::into_inner).take();
                return Err(refusal.unwrap_or_else(|| broken(Kind::Unreachable)));
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(broken(Kind::Unreachable));
        }
        if let Some(entry) = answered.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            entry.made();
        }
        Ok(response_back(response))
    }

    fn stop(&self, mut entry: Entry, stop: Stop) -> Response<Body> {
        let refusal = stop.refusal();
        entry.ends(stop.outcome());
        drop(entry);
        self.refuse(&refusal)
    }

    fn refuse(&self, refusal: &EgressRefusal) -> Response<Body> {
        // Nothing long is sent any more, so the client is waited for again.
        self.seat.sit(false);
        heads::refused(refusal).map(boxed)
    }

    /// A client that never asked for anything was too slow; one that did has only stopped asking.
    fn note_silence(&self) {
        if !self.was_asked.load(Ordering::Relaxed) {
            let detail = "the client did not say in time what it wants";
            Entry::new(&self.run.ledger, Via::Http).refused_as(Kind::TooSlow, detail);
        }
    }
}

impl PendingTunnel {
    async fn carry(self, run: &Arc<Run>, seat: &Arc<Seat>) {
        let Self { upgrade, passage, upstream, entry } = self;
        // The response was not sent, or the socket is none of ours: neither leaves anything to carry.
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
        let client = Client::new(parts.io.into_inner(), parts.read_buf.to_vec());
        Tunnel { client, passage, entry }.carry(run, seat, Reached::Already(upstream)).await;
    }
}

/// Where a request goes.
struct Target {
    host: HostName,
    port: u16,
}

impl Target {
    /// The request as the host gets it.
    fn rewrite(&self, request: Request<Incoming>) -> Request<Incoming> {
        let (mut parts, body) = request.into_parts();
        strip_hop(&mut parts.headers);
        // A body of unknown length is taken for none with methods that rarely have one, unless this is said.
        if body.size_hint().exact().is_none() {
            parts.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        for name in [header::CONTENT_LENGTH, header::EXPECT, header::HOST] {
            parts.headers.remove(name);
        }
        parts.headers.insert(header::HOST, host_header(&self.host, self.port, 80));
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        parts.uri = parts.uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
        parts.version = Version::HTTP_11;
        parts.extensions.clear();
        Request::from_parts(parts, body)
    }
}

fn target_of<B>(request: &Request<B>) -> Result<Target, EgressRefusal> {
    let refused = |kind, detail: String| Err(EgressRefusal::new(kind, detail));
    let (uri, headers) = (request.uri(), request.headers());
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    let is_chunked = is_chunked(headers)?;
    let is_tunnel = request.method() == Method::CONNECT;
    let (authority, default) = match (uri.scheme_str(), uri.authority()) {
        (None, Some(authority)) if is_tunnel && uri.path_and_query().is_none() => (authority, None),
        (Some("http"), Some(authority)) if !is_tunnel => (authority, Some(80)),
        (Some(scheme), Some(_)) if !is_tunnel => {
            return refused(Kind::NotSupported, format!("the proxy takes no requests for `{}`", shown(scheme)));
        }
        _ => return refused(Kind::NotSupported, "the proxy itself serves nothing".to_owned()),
    };
    let (host, port) = authority::parse(authority.as_str(), default)?;
    if is_tunnel && (is_chunked || has_length) {
        return refused(Kind::BadRequest, "CONNECT has no body".to_owned());
    }
    if is_tunnel && port == 80 {
        return refused(Kind::NotSupported, "port 80 is reached by plain requests, not by a tunnel".to_owned());
    }
    Ok(Target { host, port })
}

fn response_back(response: Response<Incoming>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    pass_back(&mut head);
    Response::from_parts(head, boxed(body))
}

#[cfg(test)]
mod tests;
