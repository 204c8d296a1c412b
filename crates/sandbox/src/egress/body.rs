//! Bodies of HTTP messages on their way through a filter.
//!
//! Guarantees: the other side gets what comes out of the filter and nothing else, each piece as soon as it comes out; a body that is
//! refused, or breaks off, never arrives as a whole one. Trailers are dropped.
//! Does not: know what is looked for. The filter does.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use tokio::{sync::mpsc, time::timeout};

use super::{
    intercept::BodyFilter,
    refusal::{EgressRefusal, EgressRefusalKind as Kind},
};

/// Any body.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is there already.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    boxed(Full::new(bytes.into()))
}

/// The same body, as any body.
pub(crate) fn boxed<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(io::Error::other).boxed_unsync()
}

/// Why a body did not get through.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It is refused.
    Refused(EgressRefusal),
    /// It broke off.
    Broken,
}

impl From<EgressRefusal> for Lost {
    fn from(refusal: EgressRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Collects what comes out of a filter, up to so many bytes of what goes in and of what comes out.
pub(crate) async fn collect(from: &mut Incoming, filter: &mut dyn BodyFilter, most: usize) -> Result<Vec<u8>, Lost> {
    let (mut taken, mut out) = (0_usize, Vec::new());
    while let Some(frame) = from.frame().await {
        let Ok(piece) = frame.map_err(|_| Lost::Broken)?.into_data() else { continue };
        taken = taken.saturating_add(piece.len());
        if taken > most {
            return Err(too_long(most).into());
        }
        filter.push(&piece, &mut out)?;
        if out.len() > most {
            return Err(too_long(most).into());
        }
    }
    filter.finish(&mut out)?;
    if out.len() > most {
        return Err(too_long(most).into());
    }
    Ok(out)
}

fn too_long(most: usize) -> EgressRefusal {
    EgressRefusal::new(Kind::CannotBeRead, format!("the body has more than the {most} bytes that are looked through"))
}

/// Reads what is left of a body that nobody wants, for a moment: whoever sends it reads no answer before.
pub(crate) async fn drain(mut from: Incoming) {
    let read = async {
        let mut taken = 0_usize;
        while let Some(Ok(frame)) = from.frame().await {
            taken = taken.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            if taken > MOST_DRAINED {
                break;
            }
        }
    };
    let _ = timeout(MOMENT, read).await;
}

/// Carries the body of a request from a client through a filter.
pub(crate) struct Pump {
    from: Incoming,
    filter: Box<dyn BodyFilter>,
    to: mpsc::Sender<Piece>,
}

enum Piece {
    Data(Bytes),
    End,
    Broken,
}

impl Pump {
    /// Where the body comes from, and what it is for whoever passes it on.
    pub(crate) fn new(from: Incoming, filter: Box<dyn BodyFilter>) -> (Self, Piped) {
        let (to, pieces) = mpsc::channel(1);
        let length = from.size_hint().exact();
        (Self { from, filter, to }, Piped { pieces, length, is_over: false })
    }

    /// Carries all of it. Tells of a refusal before the other side sees the body break off.
    pub(crate) async fn run(mut self, refused: impl FnOnce(EgressRefusal)) {
        match self.carry().await {
            Ok(()) => return,
            Err(Lost::Broken) => {}
            Err(Lost::Refused(refusal)) => refused(refusal),
        }
        let _ = self.to.send(Piece::Broken).await;
        drain(self.from).await;
    }

    async fn carry(&mut self) -> Result<(), Lost> {
        loop {
            let mut out = Vec::new();
            let frame = self.from.frame().await.transpose().map_err(|_| Lost::Broken)?;
            let piece = frame.and_then(|frame| frame.into_data().ok());
            if let Some(piece) = &piece {
                self.filter.push(piece, &mut out)?;
            }
            // SECURITY: a host knows that it has all of a body as soon as it has as many bytes as were announced. So the last of them go
            // only when the filter has had its last word.
            let is_last = piece.is_none() || self.from.is_end_stream();
            if is_last {
                self.filter.finish(&mut out)?;
            }
            if !out.is_empty() {
                self.to.send(Piece::Data(out.into())).await.map_err(|_| Lost::Broken)?;
            }
            if is_last {
                return self.to.send(Piece::End).await.map_err(|_| Lost::Broken);
            }
        }
    }
}

/// A body that a [`Pump`] carries.
pub(crate) struct Piped {
    pieces: mpsc::Receiver<Piece>,
    length: Option<u64>,
    is_over: bool,
}

impl hyper::body::Body for Piped {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(context));
        Poll::Ready(match piece {
            Some(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Piece::End) => {
                self.is_over = true;
                None
            }
            // SECURITY: a pump that is gone without a word did not come to the end. The host must not take what it has for everything.
            Some(Piece::Broken) | None => Some(Err(io::ErrorKind::ConnectionAborted.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.length == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The body of an answer, through a filter. Tells when it is over, and how.
pub(crate) struct Filtered<F: FnOnce(Option<Lost>)> {
    from: Incoming,
    filter: Box<dyn BodyFilter>,
    over: Option<F>,
}

impl<F: FnOnce(Option<Lost>)> Filtered<F> {
    pub(crate) fn new(from: Incoming, filter: Box<dyn BodyFilter>, over: F) -> Self {
        Self { from, filter, over: Some(over) }
    }

    fn ends(&mut self, lost: Option<Lost>) {
        if let Some(over) = self.over.take() {
            over(lost);
        }
    }

    fn next(&mut self, piece: Option<&[u8]>) -> Result<Vec<u8>, EgressRefusal> {
        let mut out = Vec::new();
        match piece {
            Some(piece) => self.filter.push(piece, &mut out)?,
            None => self.filter.finish(&mut out)?,
        }
        Ok(out)
    }
}

impl<F: FnOnce(Option<Lost>) + Unpin> hyper::body::Body for Filtered<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let broken = || Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        while this.over.is_some() {
            let frame = ready!(Pin::new(&mut this.from).poll_frame(context));
            let (is_last, piece) = match frame {
                None => (true, None),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => (false, Some(data)),
                    Err(_) => continue,
                },
                Some(Err(_)) => {
                    this.ends(Some(Lost::Broken));
                    return broken();
                }
            };
            let out = match this.next(piece.as_deref()) {
                Ok(out) => out,
                Err(refusal) => {
                    this.ends(Some(Lost::Refused(refusal)));
                    return broken();
                }
            };
            if is_last {
                this.ends(None);
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
        Poll::Ready(None)
    }
}

impl<F: FnOnce(Option<Lost>)> Drop for Filtered<F> {
    fn drop(&mut self) {
        self.ends(None);
    }
}

/// How long, and how many bytes, are read of what nobody wants.
const MOMENT: Duration = Duration::from_millis(500);
const MOST_DRAINED: usize = 1 << 20;
