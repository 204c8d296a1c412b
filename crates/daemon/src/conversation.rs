//! One connection: requests and their answers, one after the other.
//!
//! Guarantees: a connection that does not say what it wants in time is closed, at its beginning and between two requests; whoever is known
//! keeps their place until their answer has left; whoever hangs up before they are answered withdraws what they asked for, whatever they have
//! sent behind it. To stop sending is to hang up. Refuses to keep much that is sent before it is asked for: that is taken for hanging up, too.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    rt::{Read, ReadBufCursor, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::Watcher,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::ServiceExt;

use crate::{edge::Listener, origin::Origin, places::Place};

/// Answers requests until the connection ends.
pub async fn converse<S>(
    stream: S,
    (kind, origin): (Listener, Arc<Origin>),
    router: Router,
    (place, watcher): (Place, Watcher),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = Arc::new(Exchange::new(place));
    let stream = Watched { stream: TokioIo::new(stream), ahead: VecDeque::new(), exchange: Arc::clone(&exchange) };
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let under_way = UnderWay::begin(&exchange);
        let mut request: Request = request.map(|body| Body::new(Kept { body, _while: Unheard(Arc::clone(&exchange)) }));
        request.extensions_mut().insert(kind);
        request.extensions_mut().insert(Arc::clone(&origin));
        request.extensions_mut().insert(Arc::clone(&exchange.place));
        let answer = router.clone().oneshot(request);
        async move { answer.await.map(|answer| answer.map(|body| Kept { body, _while: under_way })) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_headers(MOST_HEADERS)
        .serve_connection(stream, service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// What is going on on a connection.
struct Exchange {
    place: Arc<Place>,
    /// Whether a request is being answered.
    is_under_way: AtomicBool,
    /// Whether it was read as far as anybody wants to.
    is_heard: AtomicBool,
}

impl Exchange {
    fn new(place: Place) -> Self {
        Self { place: Arc::new(place), is_under_way: AtomicBool::new(false), is_heard: AtomicBool::new(false) }
    }

    /// Whether there is nothing to do but to wait for the answer.
    fn is_waiting(&self) -> bool {
        self.is_under_way.load(Ordering::Relaxed) && self.is_heard.load(Ordering::Relaxed)
    }
}

/// A body, and what is known as long as somebody has it.
pub(crate) struct Kept<B, K> {
    body: B,
    _while: K,
}

impl<B, K> Kept<B, K> {
    /// This body, and what is kept as long as somebody has it.
    pub(crate) const fn new(body: B, kept: K) -> Self {
        Self { body, _while: kept }
    }
}

impl<B: HttpBody + Unpin, K: Unpin> HttpBody for Kept<B, K> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request whose body somebody may still want to read.
struct Unheard(Arc<Exchange>);

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.is_heard.store(true, Ordering::Relaxed);
    }
}

/// A request that is being answered: from its head to the end of the answer's body.
struct UnderWay(Arc<Exchange>);

impl UnderWay {
    fn begin(exchange: &Arc<Exchange>) -> Self {
        exchange.is_heard.store(false, Ordering::Relaxed);
        exchange.is_under_way.store(true, Ordering::Relaxed);
        Self(Arc::clone(exchange))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.is_under_way.store(false, Ordering::Relaxed);
    }
}

/// A stream, and what is seen of the conversation on it.
struct Watched<S> {
    stream: TokioIo<S>,
    /// What was sent and nobody has asked for yet.
    ahead: VecDeque<u8>,
    exchange: Arc<Exchange>,
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Looks whether whoever waits for an answer is still there.
    // SECURITY: hyper finds the end of what is sent by reading, and does not read while it has bytes that it needs later. Whoever sends some
    // behind a request and hangs up would have their call run on with nobody there.
    fn look_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let mut space = [0; 1_024];
        loop {
            let mut bytes = ReadBuf::new(&mut space);
            match Pin::new(self.stream.inner_mut()).poll_read(context, &mut bytes) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(())) if bytes.filled().is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(Ok(())) => self.ahead.extend(bytes.filled()),
            }
            if self.ahead.len() > MOST_AHEAD {
                return Err(io::Error::other("too much was sent behind a request"));
            }
            // They may be wanted by now.
            context.waker().wake_by_ref();
        }
    }
}

impl<S: AsyncRead + Unpin> Read for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ahead = this.ahead.as_slices().0;
        let Some(ahead) = ahead.get(..ahead.len().min(buffer.remaining())).filter(|ahead| !ahead.is_empty()) else {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        };
        buffer.put_slice(ahead);
        let taken = ahead.len();
        this.ahead.drain(..taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    /// Asked for whenever everything was written that there is: when an answer has left, and while there is none yet.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        if !this.exchange.is_under_way.load(Ordering::Relaxed) {
            this.exchange.place.rest();
        } else if this.exchange.is_waiting() {
            this.look_ahead(context)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, bytes)
    }
}

/// How long it may take until the head of a request is there, from the beginning of a connection or the end of the answer before.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(5);

const MOST_HEADERS: usize = 64;

/// How many bytes may be sent behind a request that is not answered yet, more or less.
const MOST_AHEAD: usize = 16 << 10;
