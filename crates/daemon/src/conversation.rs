//! One connection: requests and their answers, one after the other.
//!
//! Guarantees: a connection that does not say what it wants in time is closed, at its beginning and between two requests; whoever is known
//! keeps their place until their answer has left.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
};
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
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use crate::{edge::Listener, places::Place};

/// Answers requests until the connection ends.
pub async fn converse<S>(stream: S, kind: Listener, router: Router, (place, watcher): (Place, Watcher))
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = Arc::new(Exchange { place: Arc::new(place), is_under_way: AtomicBool::new(false) });
    let stream = Watched { stream: TokioIo::new(stream), exchange: Arc::clone(&exchange) };
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let under_way = UnderWay::begin(&exchange);
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(kind);
        request.extensions_mut().insert(Arc::clone(&exchange.place));
        let answer = router.clone().oneshot(request);
        async move { answer.await.map(|answer| answer.map(|body| Answer { body, _under_way: under_way })) }
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
}

/// A request that is being answered: from its head to the end of the answer's body.
struct UnderWay(Arc<Exchange>);

impl UnderWay {
    fn begin(exchange: &Arc<Exchange>) -> Self {
        exchange.is_under_way.store(true, Ordering::Relaxed);
        Self(Arc::clone(exchange))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.is_under_way.store(false, Ordering::Relaxed);
    }
}

/// The body of an answer.
struct Answer {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

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

/// A stream, and what is seen of the conversation on it.
struct Watched<S> {
    stream: TokioIo<S>,
    exchange: Arc<Exchange>,
}

impl<S: AsyncRead + Unpin> Read for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> Write for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    /// Flushed when everything was written, which is when an answer has left.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if flushed.is_ready() && !this.exchange.is_under_way.load(Ordering::Relaxed) {
            this.exchange.place.rest();
        }
        flushed
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
