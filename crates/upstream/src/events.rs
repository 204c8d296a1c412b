//! Events of a server, as a stream whose memory is bounded.
//!
//! Guarantees: whatever a server sends between two ends of events, no more is held of it than a message may have, in bytes and in values.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::{Stream, StreamExt, stream::BoxStream};
use hyper::body::Bytes;
use sse_stream::{Error as SseError, Sse, SseStream};

use crate::weight::Weight;

/// The events in a body.
pub(crate) fn events<S, E>(body: S, most_bytes: usize) -> BoxStream<'static, Result<Sse, SseError>>
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    E: Error + Send + Sync + 'static,
{
    let bounded = Bounded { body, most_bytes, event: 0, line: 0, weight: Weight::default(), is_over: false };
    SseStream::from_bytes_stream(bounded).boxed()
}

struct Bounded<S> {
    body: S,
    most_bytes: usize,
    /// How much of an event was read.
    event: usize,
    /// How much of a line was read.
    line: usize,
    weight: Weight,
    is_over: bool,
}

impl<S> Bounded<S> {
    fn weigh(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        for line in piece.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_whole = line.ends_with(b"\n") || line.ends_with(b"\r");
            let text = line.len() - usize::from(is_whole);
            self.line += text;
            self.event += text;
            self.weight.feed(line);
            if self.event > self.most_bytes || self.weight.is_too_much() {
                return Err(TooLarge(self.most_bytes));
            }
            // What ends with CR LF has an empty line between them, which ends no event; counting anew there is as good a bound.
            if is_whole && std::mem::take(&mut self.line) == 0 && line == b"\n" {
                (self.event, self.weight) = (0, Weight::default());
            }
        }
        Ok(())
    }
}

impl<S, E> Stream for Bounded<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Error + Send + Sync + 'static,
{
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = ready!(Pin::new(&mut self.body).poll_next(context));
        let told = next.map(|piece| match piece {
            Ok(piece) => self.weigh(&piece).map(|()| piece).map_err(BodyError::from),
            Err(error) => Err(BodyError::Source(Box::new(error))),
        });
        self.is_over = matches!(told, None | Some(Err(_)));
        Poll::Ready(told)
    }
}

/// Why a body cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error(transparent)]
    Source(Box<dyn Error + Send + Sync>),
}

/// An event that is not read to its end.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("an event is larger than {0} bytes, or has too many values")]
pub(crate) struct TooLarge(usize);

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(pieces: Vec<&'static str>, most: usize) -> Vec<Result<Option<String>, String>> {
        let body =
            futures_util::stream::iter(pieces.into_iter().map(|text| Ok::<_, std::io::Error>(Bytes::from(text))));
        events(body, most).map(|one| one.map(|event| event.data).map_err(|error| error.to_string())).collect().await
    }

    #[tokio::test]
    async fn events_are_read_whatever_pieces_they_come_in() {
        let told = read(vec!["data: a\n", "\nda", "ta: b\r\n\r\n", ": nothing\n\n"], 100).await;
        assert_eq!(told.into_iter().flatten().flatten().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[tokio::test]
    async fn an_event_without_an_end_is_given_up() {
        let told = read(vec!["data: aaaaaaaaaa\n"; 20], 100).await;
        assert!(told.last().unwrap().as_ref().unwrap_err().contains("larger than 100 bytes"));
        let told = read(vec!["data: aaaaaaaaaa\n\n"; 20], 100).await;
        assert!(told.iter().all(Result::is_ok) && told.len() == 20);
    }

    #[tokio::test]
    async fn an_event_that_would_take_too_much_memory_is_given_up() {
        let told = read(vec!["data: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,\n"; 40_000], 16 << 20).await;
        assert!(told.last().unwrap().is_err());
    }
}
