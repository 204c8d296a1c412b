//! What comes back from a provider.
//!
//! Guarantees: between two pieces no more time passes than was given, and a body that is collected is there within [`PATIENCE`] times that,
//! so that nobody is held by drops; a body that ends early is an error, not a short body; pieces are passed on as they were read, without
//! being copied; what stands behind the end of a stream is read only as long as it takes to keep a connection.

use std::{fmt, sync::Arc, time::Duration};

use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use tokio::{runtime::Handle, time::timeout};

use crate::{
    breaker::Breaker,
    diagnosis::in_body,
    error::{Phase, ProviderError},
};

/// What comes back from a provider.
#[derive(Debug)]
pub struct Answer {
    /// The status. Refusals such as 400 and 401 are answers, too.
    pub status: StatusCode,
    /// What the body is, such as `application/json` or `text/event-stream`.
    pub content_type: Option<String>,
    /// How long the provider wants to be left alone.
    pub retry_after: Option<Duration>,
    /// What the provider calls this request, for asking its operator about it.
    pub request_id: Option<String>,
    /// How often the request was sent.
    pub attempts: u32,
    /// What it says.
    pub body: AnswerBody,
}

/// What an answer says, piece by piece.
pub struct AnswerBody {
    body: Option<Incoming>,
    idle: Duration,
    limit: usize,
    breaker: Option<Arc<Breaker>>,
}

impl AnswerBody {
    /// A body that is waited for so long between two pieces, and held in memory up to this size. The breaker, if any, is told how it ends.
    pub(crate) const fn new(body: Incoming, idle: Duration, limit: usize, breaker: Option<Arc<Breaker>>) -> Self {
        Self { body: Some(body), idle, limit, breaker }
    }

    /// The next piece, or none when it was the last one. After an error there is nothing more. May be dropped while it waits without
    /// losing anything.
    pub async fn next(&mut self) -> Option<Result<Bytes, ProviderError>> {
        loop {
            let body = self.body.as_mut()?;
            let failure = match timeout(self.idle, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        if body.is_end_stream() {
                            self.end();
                        }
                        return Some(Ok(piece));
                    }
                    // Trailers say nothing that anybody asked for.
                    Err(_) => continue,
                },
                Ok(None) => {
                    self.end();
                    return None;
                }
                Ok(Some(Err(error))) => in_body(&error),
                Err(_) => ProviderError::TimedOut { what: Phase::Body, within: self.idle },
            };
            self.body = None;
            if let Some(breaker) = &self.breaker {
                breaker.failed();
            }
            return Some(Err(failure));
        }
    }

    /// How long something whole may take to come, however small the pieces are that it comes in.
    #[must_use]
    pub const fn patience(&self) -> Duration {
        self.idle.saturating_mul(PATIENCE)
    }

    /// All of it, if it has no more bytes than that.
    ///
    /// # Errors
    /// When it has more, or does not come whole and in time.
    pub async fn collect(self, limit: usize) -> Result<Bytes, ProviderError> {
        let (within, breaker) = (self.patience(), self.breaker.clone());
        match timeout(within, self.gather(limit)).await {
            Ok(gathered) => gathered,
            Err(_) => {
                if let Some(breaker) = breaker {
                    breaker.failed();
                }
                Err(ProviderError::TimedOut { what: Phase::Body, within })
            }
        }
    }

    async fn gather(mut self, limit: usize) -> Result<Bytes, ProviderError> {
        let expected = self.body.as_ref().map_or(0, |body| body.size_hint().lower());
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        if expected > limit {
            return Err(ProviderError::TooLarge { limit });
        }
        let Some(first) = self.next().await.transpose()? else { return Ok(Bytes::new()) };
        if first.len() > limit {
            return Err(ProviderError::TooLarge { limit });
        }
        let Some(second) = self.next().await.transpose()? else { return Ok(first) };
        // What a provider announces is no reason to set aside more than it has begun to send.
        let mut whole = Vec::with_capacity(expected.min(LARGEST_ROOM).max(first.len().saturating_add(second.len())));
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(piece) = next {
            if whole.len().saturating_add(piece.len()) > limit {
                return Err(ProviderError::TooLarge { limit });
            }
            whole.extend_from_slice(&piece);
            next = self.next().await.transpose()?;
        }
        Ok(whole.into())
    }

    /// All of it, if it has no more bytes than `max_answer_bytes` of its provider.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub async fn whole(self) -> Result<Bytes, ProviderError> {
        let limit = self.limit;
        self.collect(limit).await
    }

    /// Takes the answer for whole, because what it says is over, such as a stream behind `[DONE]`. There are no more pieces then. What is
    /// left of the body is read on the side, so that the connection is kept for the next request, and not for long.
    pub fn settle(&mut self) {
        let Some(rest) = self.body.take() else { return };
        self.end();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(LINGER, read_out(rest)));
        }
    }

    fn end(&mut self) {
        self.body = None;
        if let Some(breaker) = &self.breaker {
            breaker.answered();
        }
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").field("ended", &self.body.is_none()).finish_non_exhaustive()
    }
}

/// Reads to the end what nobody wants any more, unless it is much.
async fn read_out(mut body: Incoming) {
    let mut left = MOST_LEFT;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(fewer) => left = fewer,
            None => return,
        }
    }
}

/// How many times as long as between two pieces something whole may take.
pub const PATIENCE: u32 = 5;

/// The most that is set aside before it is needed.
const LARGEST_ROOM: usize = 1 << 20;

/// What is read behind the end of a stream, in bytes, and for how long.
const MOST_LEFT: usize = 64 << 10;
const LINGER: Duration = Duration::from_secs(1);
