//! Tells a client what an agent's loop does, as a stream or in one piece.
//!
//! Guarantees: a client that hangs up, or whose credential is taken away, ends the loop, and with it what waits and what runs; a comment
//! every 10 seconds shows that a stream lives while a person is asked; a slow reader holds up nobody but itself: the loop runs on a task of its
//! own, ends in time, and what is to be kept is kept whether or not it was read.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::stream;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle},
    time::{Instant, interval_at},
};

use super::looping::{AgentLoop, Ended, Happening, already};
use crate::failure::Failure;

/// How something is told to a kind of client.
pub trait Telling: Send + 'static {
    /// What is told before anything happens.
    fn begin(&mut self) -> Vec<Bytes>;

    /// What is told about something that happened.
    fn happened(&mut self, happening: &Happening) -> Vec<Bytes>;

    /// What is told once the loop has ended well, before the end is.
    fn closing(&mut self, _: &Ended) -> Vec<Bytes> {
        Vec::new()
    }

    /// Keeps what is to be kept of it. What is told afterwards may say whether that could be done.
    fn keep(&mut self, _: &Ended) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// What is told at the end, if it is a stream.
    fn end(&mut self, ended: Result<&Ended, &Failure>) -> Vec<Bytes>;

    /// All of it in one piece.
    fn whole(&mut self, ended: &Ended) -> Value;
}

/// Runs a loop to its end and tells it in one piece.
///
/// # Errors
/// When the provider fails, or the daemon.
pub async fn whole(agent: AgentLoop, mut telling: impl Telling) -> Result<Value, Failure> {
    let (out, mut happenings) = mpsc::channel(BACKLOG);
    let mut work = Working::begin(agent, out);
    telling.begin();
    let ended = loop {
        tokio::select! {
            biased;
            Some(happening) = happenings.recv() => drop(telling.happened(&happening)),
            ended = work.ended() => break ended?,
        }
    };
    while let Ok(happening) = happenings.try_recv() {
        telling.happened(&happening);
    }
    telling.closing(&ended);
    telling.keep(&ended).await;
    Ok(telling.whole(&ended))
}

/// Runs a loop and tells it as a stream.
pub fn stream(agent: AgentLoop, mut telling: impl Telling) -> Response {
    let (sender, body) = events();
    tokio::spawn(async move {
        tokio::select! {
            () = tell(agent, &mut telling, &sender) => {}
            () = sender.closed() => {}
        }
    });
    body
}

async fn tell(agent: AgentLoop, telling: &mut impl Telling, sender: &mpsc::Sender<Bytes>) {
    let (out, mut happenings) = mpsc::channel(BACKLOG);
    let mut work = Working::begin(agent, out);
    // What is told and was not taken yet. Nothing more is asked for meanwhile, so there is never much of it.
    let mut ready: VecDeque<Bytes> = telling.begin().into();
    let mut alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    let ended = loop {
        tokio::select! {
            biased;
            place = sender.reserve(), if !ready.is_empty() => {
                let (Ok(place), Some(piece)) = (place, ready.pop_front()) else { return };
                place.send(piece);
                alive.reset();
            }
            Some(happening) = happenings.recv(), if ready.is_empty() => ready.extend(telling.happened(&happening)),
            // A reader that stalls does not keep what is over from being known.
            ended = work.ended() => break ended,
            _ = alive.tick(), if ready.is_empty() => ready.push_back(Bytes::from_static(b": waiting\n\n")),
        }
    };
    while let Ok(happening) = happenings.try_recv() {
        ready.extend(telling.happened(&happening));
    }
    if let Ok(ended) = &ended {
        ready.extend(telling.closing(ended));
        telling.keep(ended).await;
    }
    ready.extend(telling.end(ended.as_ref()));
    for piece in ready {
        if sender.send(piece).await.is_err() {
            return;
        }
    }
}

/// A loop on a task of its own, so that nobody who reads slowly holds it up. It ends with this.
struct Working(JoinHandle<Result<Ended, Failure>>);

impl Working {
    fn begin(agent: AgentLoop, out: mpsc::Sender<Happening>) -> Self {
        Self(tokio::spawn(agent.conduct(out)))
    }

    /// What it ended with. Asked once.
    async fn ended(&mut self) -> Result<Ended, Failure> {
        // Nobody knows how far one came that broke off.
        let broke_off = |error: JoinError| Failure::internal(error.to_string()).having_done(&already(None));
        (&mut self.0).await.map_err(broke_off)?
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A response of events, and where they are put.
#[must_use]
pub fn events() -> (mpsc::Sender<Bytes>, Response) {
    let (sender, receiver) = mpsc::channel::<Bytes>(BACKLOG);
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((Ok::<_, Infallible>(piece), receiver))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies in between pass it on as it comes.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    (sender, response)
}

/// An event without a name.
#[must_use]
pub fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// An event with a name.
#[must_use]
pub fn named(name: &str, value: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

/// How many pieces a reader may fall behind before whoever writes waits.
const BACKLOG: usize = 32;

const KEEP_ALIVE: Duration = Duration::from_secs(10);
