//! A connection on which the daemon reads every request and every answer, instead of carrying bytes.
//!
//! Where an interceptor asked for the host, TLS ends here, with a certificate of the run's own authority, and begins again towards the
//! host, whose certificate is verified. Otherwise the connection is a plain one of a run that has an interceptor, which judges its
//! requests.
//!
//! Guarantees: every request is read in one way, names the host of the connection, is judged, and is written anew; so nothing reaches the
//! host that was not. A request that is refused half way never arrives whole. An answer that cannot be looked through is not passed on.
//! What is allowed is passed on piece by piece. Connections to the host serve this client only. Every refused request is noted; the
//! connection is, once it reached the host.
//! Refuses: CONNECT, other protocols, other hosts, encoded answers, more than the limits of the run.

mod reading;
mod upstream;

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hyper::{
    Method, Request, Response, StatusCode, Uri, Version,
    body::{Body as _, Incoming},
    client::conn::http1::SendRequest,
    header::{self, HeaderValue},
    http::{request, response},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{sync::mpsc, time::timeout};
use tokio_rustls::TlsAcceptor;

use self::reading::{check, encoding};
use super::{
    body::{Body, Filtered, Lost, Pump, boxed, collect, drain, whole},
    door::{Admitted, ConnectionOutcome},
    heads::{self, host_header, pass_back, strip_hop},
    intercept::{BodyFilter, Interception, Unchanged},
    ledger::{Entry, Traffic, idle},
    lobby::Seat,
    opening::Client,
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
    relay::Stream,
    rewound::Rewound,
    run::{Passage, Run},
};

/// How a connection is read.
#[derive(Clone)]
pub(crate) enum Reader {
    /// TLS ends here. Requests and answers are judged and rewritten.
    Inside(Arc<Interception>),
    /// It is plain. Requests are judged.
    Plain(Arc<Interception>),
}

impl Reader {
    const fn default_port(&self) -> u16 {
        match self {
            Self::Inside(_) => 443,
            Self::Plain(_) => 80,
        }
    }

    const fn scheme(&self) -> &'static str {
        match self {
            Self::Inside(_) => "https",
            Self::Plain(_) => "http",
        }
    }
}

/// An allowed connection that is read, and its client, whose first words were judged.
pub(crate) struct Conversation {
    pub client: Client,
    pub passage: Passage,
    pub entry: Entry,
    pub reader: Reader,
}

impl Conversation {
    /// Answers the client until it has gone, is silent for too long, or is allowed no more.
    pub(crate) async fn hold(self, run: &Arc<Run>, seat: &Arc<Seat>) {
        let Self { client: Client { stream, early, .. }, passage, entry, reader } = self;
        let Passage { admitted, mut live, place } = passage;
        let (exchanges, begun) = mpsc::unbounded_channel();
        let heard = Arc::<Traffic>::default();
        let front = Arc::new(Front {
            run: Arc::clone(run),
            seat: Arc::clone(seat),
            to: admitted,
            reader,
            exchanges,
            upstream: Mutex::new(None),
            entry: Mutex::new(entry),
            heard: Arc::clone(&heard),
            was_asked: AtomicBool::new(false),
        });
        let _ = stream.set_nodelay(true);
        let client = Rewound::new(early, stream, heard);
        seat.sit(true);
        // A moment longer than a host has for its answer, so that its client is told.
        let patience = run.limits.idle.saturating_add(run.limits.handshake);
        let outcome = tokio::select! {
            biased;
            () = live.revoked(&front.to) => Some(ConnectionOutcome::Revoked),
            outcome = front.greet(client, begun) => outcome,
            () = front.idle(patience) => Some(ConnectionOutcome::Failed),
            () = seat.pushed_out() => front.silence(),
        };
        seat.rise();
        if let Some(outcome) = outcome {
            front.entry().ends(outcome);
        }
        drop(place);
    }
}

/// One client's side of a conversation.
struct Front {
    run: Arc<Run>,
    seat: Arc<Seat>,
    to: Admitted,
    reader: Reader,
    /// What has to go on besides the answers to the client.
    exchanges: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    /// A connection to the host that waits for another request.
    upstream: Mutex<Option<SendRequest<Body>>>,
    entry: Mutex<Entry>,
    /// What was heard from the client and said to it.
    heard: Arc<Traffic>,
    was_asked: AtomicBool,
}

type Exchanges = mpsc::UnboundedReceiver<BoxFuture<'static, ()>>;

impl Front {
    /// Serves the client, by TLS where that ends here. Tells how it ended, if not as it seems from what was noted.
    async fn greet(self: &Arc<Self>, client: Rewound, begun: Exchanges) -> Option<ConnectionOutcome> {
        let Reader::Inside(interception) = &self.reader else { return self.serve(client, begun).await };
        let Ok(config) = interception.authority.shows(self.to.host()) else { return Some(ConnectionOutcome::Failed) };
        match timeout(self.run.limits.handshake, TlsAcceptor::from(config).accept(client)).await {
            Ok(Ok(stream)) => self.serve(stream, begun).await,
            Ok(Err(_)) => Some(ConnectionOutcome::Failed),
            Err(_) => self.silence(),
        }
    }

    async fn serve(self: &Arc<Self>, stream: impl Stream + 'static, mut begun: Exchanges) -> Option<ConnectionOutcome> {
        let front = Arc::clone(self);
        let service = service_fn(move |request| {
            let front = Arc::clone(&front);
            async move { Ok::<_, Infallible>(front.answer(request).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.run.limits.handshake);
        builder.max_header_size(self.run.limits.header_bytes).auto_date_header(false);
        let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
        // The exchanges with the host run here and not in tasks of their own, so that they end with their client.
        let mut under_way = FuturesUnordered::new();
        let ended = loop {
            tokio::select! {
                ended = &mut connection => break ended,
                Some(exchange) = begun.recv() => under_way.push(exchange),
                Some(()) = under_way.next() => {}
            }
        };
        match ended {
            Ok(()) => None,
            Err(error) if error.is_parse() => {
                self.note(EgressRefusal::new(Kind::BadRequest, "the request is no HTTP/1.1 that can be read"));
                None
            }
            Err(error) if error.is_timeout() => self.silence(),
            Err(_) => Some(ConnectionOutcome::Failed),
        }
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        self.seat.rise();
        self.was_asked.store(true, Ordering::Relaxed);
        if let Err(refusal) = self.run.count() {
            self.note(refusal.clone());
            let mut response = self.refuse(&refusal);
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        match self.exchange(request).await {
            Ok(response) => response,
            Err(Trouble::Refused(refusal)) => {
                self.note(refusal.clone());
                self.refuse(&refusal)
            }
            Err(Trouble::Noted(refusal)) => self.refuse(&refusal),
            Err(Trouble::Failed(refusal)) => {
                self.entry().ends(ConnectionOutcome::Failed);
                self.refuse(&refusal)
            }
        }
    }

    async fn exchange(self: &Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Trouble> {
        let (mut head, mut body) = request.into_parts();
        let mut filter = match self.judge(&mut head) {
            Ok(filter) => filter,
            Err(refusal) => {
                self.goes_on(drain(body));
                return Err(refusal.into());
            }
        };
        let refused = Arc::new(Mutex::new(None));
        let has_length = head.headers.contains_key(header::CONTENT_LENGTH);
        let (body, length) = if filter.changes_length() {
            let collected = collect(&mut body, &mut *filter, self.run.limits.collected_bytes).await;
            let collected = match collected {
                Ok(collected) => collected,
                Err(lost) => {
                    self.goes_on(drain(body));
                    return Err(match lost {
                        Lost::Refused(refusal) => refusal.into(),
                        Lost::Broken => self.failed("was not asked: the request broke off"),
                    });
                }
            };
            let length = collected.len();
            (whole(collected), u64::try_from(length).ok())
        } else {
            let length = body.size_hint().exact();
            let (pump, piped) = Pump::new(body, filter);
            let (front, refused) = (Arc::clone(self), Arc::clone(&refused));
            self.goes_on(pump.run(move |refusal| {
                front.note(refusal.clone());
                *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
            }));
            (boxed(piped), length)
        };
        self.frame(&mut head, length.filter(|&length| length > 0 || has_length), length.is_none());
        let method = head.method.clone();
        let sent = self.send(Request::from_parts(head, body)).await;
        if let Some(refusal) = refused.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(Trouble::Noted(refusal));
        }
        let (head, body) = sent?.into_parts();
        self.pass_back(&method, head, body)
    }

    /// Has the head of a request judged, once it can mean one thing only.
    fn judge(&self, head: &mut request::Parts) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        let (host, port) = (self.to.host(), self.to.port());
        check(head, &self.to, &self.reader)?;
        strip_hop(&mut head.headers);
        head.headers.remove(header::EXPECT);
        head.uri = head.uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
        head.version = Version::HTTP_11;
        head.extensions.clear();
        match &self.reader {
            Reader::Inside(by) => {
                head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
                by.interceptor.request(host, port, head)
            }
            Reader::Plain(by) => by.interceptor.elsewhere(host, port, head),
        }
    }

    /// Says in the head of a request what is not for the interceptor to say.
    fn frame(&self, head: &mut request::Parts, length: Option<u64>, is_chunked: bool) {
        let headers = &mut head.headers;
        strip_hop(headers);
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::EXPECT);
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        } else if is_chunked {
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        headers.insert(header::HOST, host_header(self.to.host(), self.to.port(), self.reader.default_port()));
        if matches!(self.reader, Reader::Inside(_)) {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        head.uri = head.uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
        head.version = Version::HTTP_11;
        head.extensions.clear();
    }

    /// The answer as the client gets it.
    fn pass_back(
        self: &Arc<Self>,
        asked: &Method,
        mut head: response::Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Trouble> {
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.failed("switched to a protocol that nobody asked for"));
        }
        let has_body = asked != Method::HEAD && !matches!(head.status.as_u16(), 204 | 304);
        let unreadable = encoding(&head).filter(|_| has_body);
        pass_back(&mut head);
        let filter: Box<dyn BodyFilter> = match &self.reader {
            Reader::Plain(_) => Box::new(Unchanged),
            Reader::Inside(by) => {
                if let Some(encoding) = unreadable {
                    let detail = format!("`{}` encoded its answer as `{encoding}` unasked", self.to.host());
                    return Err(EgressRefusal::new(Kind::CannotBeRead, detail).into());
                }
                by.interceptor.response(self.to.host(), self.to.port(), &mut head)?
            }
        };
        strip_hop(&mut head.headers);
        head.extensions.clear();
        if filter.changes_length() {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let front = Arc::clone(self);
        let over = move |lost: Option<Lost>| {
            match lost {
                Some(Lost::Refused(refusal)) => front.note(refusal),
                Some(Lost::Broken) => front.entry().ends(ConnectionOutcome::Failed),
                None => {}
            }
            // Nothing long is sent any more, so the client is waited for again.
            front.seat.sit(true);
        };
        let body = Filtered::new(body, filter, over);
        Ok(Response::from_parts(head, if has_body { boxed(body) } else { whole(Vec::new()) }))
    }

    fn refuse(&self, refusal: &EgressRefusal) -> Response<Body> {
        self.seat.sit(true);
        heads::refused(refusal).map(boxed)
    }

    /// Notes a refused request. Until the host was reached, the connection itself stands for the first one.
    fn note(&self, refusal: EgressRefusal) {
        let mut entry = self.entry();
        let another = Entry::new(&self.run.ledger, entry.via());
        let mut noted = if entry.is_made() { another } else { std::mem::replace(&mut *entry, another) };
        drop(entry);
        noted.meant(self.to.host(), self.to.port());
        noted.refused(refusal);
    }

    /// A client that never asked for anything was too slow; one that did has only stopped asking.
    fn silence(&self) -> Option<ConnectionOutcome> {
        if self.was_asked.load(Ordering::Relaxed) {
            return None;
        }
        let detail = "the client did not say in time what it wants";
        Some(ConnectionOutcome::Refused(EgressRefusal::new(Kind::TooSlow, detail)))
    }

    fn failed(&self, what: &str) -> Trouble {
        Trouble::Failed(EgressRefusal::new(Kind::Unreachable, format!("`{}` {what}", self.to.host())))
    }

    /// Waits until nothing has passed on either side for about this long.
    async fn idle(&self, limit: std::time::Duration) {
        idle(|| (self.heard.passed(), self.entry().traffic().passed()), limit).await;
    }

    fn goes_on(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Nobody takes it where the client is gone, and then there is nothing to go on with.
        let _ = self.exchanges.send(Box::pin(work));
    }

    fn entry(&self) -> MutexGuard<'_, Entry> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a request has no answer of the host.
enum Trouble {
    /// It is refused.
    Refused(EgressRefusal),
    /// It is refused, and that was noted.
    Noted(EgressRefusal),
    /// The host was reached, and then something broke.
    Failed(EgressRefusal),
}

impl From<EgressRefusal> for Trouble {
    fn from(refusal: EgressRefusal) -> Self {
        Self::Refused(refusal)
    }
}
