//! One hop of a fetch: one ruling, one connection, one request, one response.
//!
//! Guarantees: noted exactly once, whatever ends it, by being dropped; bytes are counted as they pass; whatever is
//! waited for ends when the time is up or the connection is allowed no more; what a host sends is bounded as a whole,
//! whatever it calls it. Nothing runs in a task of its own, so dropping the future closes the connection.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode, Uri, Version,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{self, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use palyra_types::host::HostName;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    FetchLimits, Fetcher,
    error::{FetchError, Late},
    redirect::Step,
    url::{FetchUrl, Scheme},
};
use crate::egress::{
    connect::Connected,
    door::{Admitted, ConnectionOutcome, ConnectionRecord, Doorkeeper, Via},
    intercept::{BodyFilter, Interceptor},
    ledger::{RefusedTarget, Traffic},
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
    relay::{Counted, Stream},
    rules::Opening,
};

/// A hop that was let through.
pub(super) struct Hop<'a> {
    note: Note<'a>,
    admitted: Admitted,
    changes: watch::Receiver<u64>,
}

/// What holds for a hop.
pub(super) struct Terms<'a> {
    /// Redirects are followed if there are headers that stay behind, which may be none.
    pub(super) following: Option<&'a Vec<String>>,
    /// Looks into what is sent and what comes.
    pub(super) interceptor: Option<&'a dyn Interceptor>,
    pub(super) limits: FetchLimits,
}

/// What a hop came to.
pub(super) enum Answer {
    /// Another one.
    Redirect(Box<Step>),
    /// The response.
    Response(Head, Body),
}

/// The head of a response.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
}

/// As much of a body as may be read.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) is_truncated: bool,
}

impl<'a> Hop<'a> {
    /// Asks for a hop. Nothing was resolved or connected to before.
    pub(super) async fn ask(keeper: &'a dyn Doorkeeper, url: &FetchUrl) -> Result<Self, FetchError> {
        let mut note = Note::new(keeper, url);
        // INVARIANT: changes are watched from before the ruling on, so none falls between the two.
        let mut changes = keeper.changes();
        changes.mark_unchanged();
        let admitted = match Admitted::ask(keeper, url.host().clone(), url.port()).await {
            Ok(admitted) => admitted,
            Err(refusal) => return Err(note.refused(refusal)),
        };
        if url.scheme() == Scheme::Http && admitted.terms().tls.on(url.port()) == Opening::Tls {
            let detail =
                format!("port {} of `{}` is reached by TLS, and this is a plain request", url.port(), url.host());
            return Err(note.refused(EgressRefusal::new(Kind::NoTls, detail)));
        }
        Ok(Self { note, admitted, changes })
    }

    /// Connects, sends the request and reads the response.
    pub(super) async fn exchange(self, fetcher: &Fetcher, step: &Step, terms: Terms<'_>) -> Result<Answer, FetchError> {
        let limits = terms.limits;
        let Self { mut note, admitted, mut changes } = self;
        let (keeper, host) = (note.keeper, step.url.host());
        let work = async {
            let connecting = connect(fetcher, &admitted, &mut note, step.url.scheme());
            let stream = in_time(limits.connect, connecting, || timeout_of(host, Late::Connection)).await?;
            converse(stream, step, &terms).await
        };
        let ended = tokio::select! {
            biased;
            () = revoked(keeper, &mut changes, &admitted) => Err(FetchError::Revoked(host.clone())),
            ended = in_time(limits.total, work, || timeout_of(host, Late::Answer)) => ended,
        };
        match &ended {
            Ok(_) => note.outcome = ConnectionOutcome::Closed,
            Err(FetchError::Revoked(_)) => note.outcome = ConnectionOutcome::Revoked,
            Err(FetchError::Refused(target)) => note.outcome = ConnectionOutcome::Refused(target.refusal.clone()),
            // Where a redirect leads is nothing that this connection could help.
            Err(FetchError::BadUrl { .. } | FetchError::Downgrade { .. }) => note.outcome = ConnectionOutcome::Closed,
            Err(_) => note.outcome = ConnectionOutcome::Failed,
        }
        ended
    }
}

fn timeout_of(host: &HostName, late: Late) -> FetchError {
    FetchError::Timeout { host: host.clone(), late }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, FetchError>>,
    late: impl FnOnce() -> FetchError,
) -> Result<T, FetchError> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

/// Waits until the connection is allowed no more.
async fn revoked(keeper: &dyn Doorkeeper, changes: &mut watch::Receiver<u64>, admitted: &Admitted) {
    while changes.changed().await.is_ok() {
        if !keeper.still(admitted.host(), admitted.port()) {
            return;
        }
    }
    // Nobody is left who could change anything.
    std::future::pending().await
}

async fn connect(
    fetcher: &Fetcher,
    admitted: &Admitted,
    note: &mut Note<'_>,
    scheme: Scheme,
) -> Result<Box<dyn Stream>, FetchError> {
    let host = admitted.host();
    let connected = fetcher.net.connect(admitted).await;
    let Connected { stream, address } = connected.map_err(|refusal| note.target(refusal))?;
    note.made(address);
    let counted = Counted::new(stream, Arc::clone(&note.traffic));
    if scheme == Scheme::Http {
        return Ok(Box::new(counted));
    }
    match fetcher.trust.verify(host, counted).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(cause) => Err(FetchError::Tls { host: host.clone(), cause }),
    }
}

/// Sends the request and reads the response.
async fn converse(stream: Box<dyn Stream>, step: &Step, terms: &Terms<'_>) -> Result<Answer, FetchError> {
    let &Terms { following, interceptor, limits: FetchLimits { body_bytes: most, .. } } = terms;
    let (host, port) = (step.url.host(), step.url.port());
    let protocol = |what| FetchError::Protocol { host: host.clone(), what };
    let broken = |error: &hyper::Error| match error {
        _ if error.is_parse_too_large() => FetchError::HeadersTooLarge { host: host.clone(), limit: MOST_HEAD },
        _ if error.is_parse() => protocol("answered with something that is no HTTP/1.1"),
        _ => protocol("hung up before it had answered"),
    };
    let (too_much, mut tripped) = mpsc::channel(1);
    let stream = Bounded { stream, left: most_of_all(most), too_much: too_much.clone() };
    let mut builder = http1::Builder::new();
    builder.max_header_size(MOST_HEAD).max_buf_size(MOST_HEAD + READ_AHEAD).max_headers(MOST_HEADERS);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let talk = async {
        let request = outgoing(step).ok_or_else(|| protocol("cannot be asked like this"))?;
        let mut request = match interceptor {
            Some(interceptor) => intercepted(interceptor, step, request).map_err(|refusal| refused(step, refusal))?,
            None => request,
        };
        let interim = AtomicUsize::new(0);
        hyper::ext::on_informational(&mut request, move |_| {
            if interim.fetch_add(1, Ordering::Relaxed) >= MOST_INTERIM {
                let _ = too_much.try_send("sent more interim responses than are read");
            }
        });
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(protocol("switched to a protocol that nobody asked for"));
        }
        let (mut parts, body) = response.into_parts();
        let looks = interceptor.filter(|one| step.url.scheme() == Scheme::Https && one.intercepts(host, port));
        let mut filter = match looks {
            Some(interceptor) => {
                let judged = readable(&parts.headers, host).and_then(|()| interceptor.response(host, port, &mut parts));
                Some(judged.map_err(|refusal| refused(step, refusal))?)
            }
            None => None,
        };
        let status = parts.status.as_u16();
        if let Some(bound) = following
            && let Some(next) = step.next(status, &parts.headers, bound)?
        {
            return Ok(Answer::Redirect(Box::new(next)));
        }
        let head = Head { status, headers: pairs(&parts.headers) };
        let read = read(body, most).await.map_err(|_| protocol("broke off its response"))?;
        let body = match &mut filter {
            Some(filter) => filtered(filter.as_mut(), read).map_err(|refusal| refused(step, refusal))?,
            None => read,
        };
        Ok(Answer::Response(head, body))
    };
    // What becomes of the connection shows in what is read from it.
    let drive = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        Some(what) = tripped.recv() => Err(protocol(what)),
        answer = talk => answer,
        answer = drive => answer,
    }
}

/// A request that has passed the interceptor.
fn intercepted(
    interceptor: &dyn Interceptor,
    step: &Step,
    request: Request<Full<Bytes>>,
) -> Result<Request<Full<Bytes>>, EgressRefusal> {
    let (host, port) = (step.url.host(), step.url.port());
    let (mut head, _) = request.into_parts();
    let mut filter = match step.url.scheme() == Scheme::Https && interceptor.intercepts(host, port) {
        true => interceptor.request(host, port, &mut head)?,
        // Nothing takes the place of anything on the way to somebody else.
        false => interceptor.elsewhere(host, port, &head)?,
    };
    let mut body = Vec::with_capacity(step.body.len());
    filter.push(&step.body, &mut body)?;
    filter.finish(&mut body)?;
    Ok(Request::from_parts(head, Full::new(Bytes::from(body))))
}

/// Whether a body can be looked through.
fn readable(headers: &HeaderMap, host: &HostName) -> Result<(), EgressRefusal> {
    let plain = |one: &[u8]| matches!(one.trim_ascii().to_ascii_lowercase().as_slice(), b"" | b"identity" | b"chunked");
    let is_plain = |value: &HeaderValue| value.as_bytes().split(|byte| *byte == b',').all(plain);
    let of = |name| headers.get_all(name).iter();
    match of(header::CONTENT_ENCODING).chain(of(header::TRANSFER_ENCODING)).all(is_plain) {
        true => Ok(()),
        false => {
            let detail = format!("`{host}` answers with an encoded body, which cannot be looked through");
            Err(EgressRefusal::new(Kind::CannotBeRead, detail))
        }
    }
}

/// A body that has passed the interceptor.
fn filtered(filter: &mut dyn BodyFilter, body: Body) -> Result<Body, EgressRefusal> {
    let mut bytes = Vec::with_capacity(body.bytes.len());
    filter.push(&body.bytes, &mut bytes)?;
    // What is kept back of a body that was cut off may be the beginning of something that must not be told.
    if !body.is_truncated {
        filter.finish(&mut bytes)?;
    }
    Ok(Body { bytes, ..body })
}

fn refused(step: &Step, refusal: EgressRefusal) -> FetchError {
    let (named, port) = (step.url.host().to_string(), step.url.port());
    FetchError::Refused(Box::new(RefusedTarget { named, port, via: Via::Fetch, refusal }))
}

/// How much is received for a body of so many bytes. Each of them may come in a chunk of its own, which takes six.
fn most_of_all(body: u64) -> usize {
    usize::try_from(body).unwrap_or(usize::MAX).saturating_mul(6).saturating_add(MOST_HEAD + READ_AHEAD + SLACK)
}

/// A stream that ends a conversation in which too much is received.
struct Bounded {
    stream: Box<dyn Stream>,
    left: usize,
    too_much: mpsc::Sender<&'static str>,
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        match self.left.checked_sub(buffer.filled().len().saturating_sub(before)) {
            Some(left) => self.left = left,
            None => {
                let _ = self.too_much.try_send("sent more than its response may take");
                buffer.set_filled(before);
                // Whoever waits for this is ended from outside: an error would be taken for the host's hanging up.
                return Poll::Pending;
            }
        }
        polled
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn outgoing(step: &Step) -> Option<Request<Full<Bytes>>> {
    let mut headers = step.headers.map();
    headers.insert(header::HOST, HeaderValue::try_from(step.url.authority()).ok()?);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    let mut request = Request::new(Full::new(step.body.clone()));
    *request.method_mut() = step.method.as_str().parse().ok()?;
    *request.uri_mut() = step.url.target().parse::<Uri>().ok()?;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Some(request)
}

fn pairs(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

/// Reads a body up to so many bytes. What exceeds them is never kept.
async fn read(mut body: Incoming, most: u64) -> Result<Body, hyper::Error> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let room = most - bytes.len();
        match data.get(..room) {
            Some(fitting) if data.len() > room => {
                bytes.extend_from_slice(fitting);
                return Ok(Body { bytes, is_truncated: true });
            }
            _ => bytes.extend_from_slice(&data),
        }
    }
    Ok(Body { bytes, is_truncated: false })
}

/// Notes a hop when it is dropped.
struct Note<'a> {
    keeper: &'a dyn Doorkeeper,
    url: FetchUrl,
    began: Instant,
    traffic: Arc<Traffic>,
    address: Option<SocketAddr>,
    outcome: ConnectionOutcome,
}

impl<'a> Note<'a> {
    fn new(keeper: &'a dyn Doorkeeper, url: &FetchUrl) -> Self {
        Self {
            keeper,
            url: url.clone(),
            began: Instant::now(),
            traffic: Arc::default(),
            address: None,
            outcome: ConnectionOutcome::Failed,
        }
    }

    /// The connection is made. Unless something else is said later, it ends in order, or with the call.
    fn made(&mut self, address: SocketAddr) {
        self.address = Some(address);
        self.outcome = ConnectionOutcome::Closed;
    }

    /// The hop is refused, and over.
    fn refused(&mut self, refusal: EgressRefusal) -> FetchError {
        self.outcome = ConnectionOutcome::Refused(refusal.clone());
        self.target(refusal)
    }

    fn target(&self, refusal: EgressRefusal) -> FetchError {
        let (named, port) = (self.url.host().to_string(), self.url.port());
        FetchError::Refused(Box::new(RefusedTarget { named, port, via: Via::Fetch, refusal }))
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        let (sent, received) = self.traffic.passed();
        self.keeper.note(ConnectionRecord {
            host: Some(self.url.host().clone()),
            named: self.url.host().to_string(),
            port: self.url.port(),
            via: Via::Fetch,
            address: self.address,
            outcome: std::mem::replace(&mut self.outcome, ConnectionOutcome::Failed),
            sent,
            received,
            duration: self.began.elapsed(),
        });
    }
}

/// How many bytes the head of a response has at most.
const MOST_HEAD: usize = 64 << 10;

/// How many headers it has at most.
const MOST_HEADERS: usize = 256;

/// How much of a body is read together with its head.
const READ_AHEAD: usize = 64 << 10;

/// How many interim responses may come before the response.
const MOST_INTERIM: usize = 16;

/// How much may be received besides the response and its framing: interim responses, and what is read ahead.
const SLACK: usize = 256 << 10;

const AGENT: &str = concat!("palyra/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_in_any_way_cannot_be_looked_through() {
        let read = |name: &'static str, value: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::HeaderName::from_static(name), HeaderValue::from_static(value))]);
            readable(&headers, &HostName::parse("a.org").unwrap())
        };
        for value in ["gzip", "gzip, chunked", "identity, br"] {
            for name in ["content-encoding", "transfer-encoding"] {
                assert_eq!(read(name, value).unwrap_err().kind, Kind::CannotBeRead, "{name}: {value}");
            }
        }
        assert!(read("transfer-encoding", "chunked").is_ok() && read("content-encoding", "Identity").is_ok());
    }
}
