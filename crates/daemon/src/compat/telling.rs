//! Tells a client what an agent's loop does, as a stream or in one piece.
//!
//! Guarantees: a client that hangs up, or whose credential is taken away, ends the loop, and with it what waits and what runs; a comment
//! every 10 seconds shows that a stream lives while a person is asked; a slow reader holds up nobody but itself.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::stream;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, interval_at},
};

use super::looping::{AgentLoop, Ended, Happening};
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
    let work = agent.conduct(out);
    tokio::pin!(work);
    telling.begin();
    let ended = loop {
        tokio::select! {
            biased;
            Some(happening) = happenings.recv() => drop(telling.happened(&happening)),
            ended = &mut work => break ended?,
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
            _ = tell(agent, &mut telling, &sender) => {}
            () = sender.closed() => {}
        }
    });
    body
}

async fn tell(agent: AgentLoop, telling: &mut impl Telling, sender: &mpsc::Sender<Bytes>) -> Option<()> {
    let (out, mut happenings) = mpsc::channel(BACKLOG);
    let work = agent.conduct(out);
    tokio::pin!(work);
    send(sender, telling.begin()).await?;
    let mut alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    let ended = loop {
        tokio::select! {
            biased;
            Some(happening) = happenings.recv() => {
                send(sender, telling.happened(&happening)).await?;
                alive.reset();
            }
            ended = &mut work => break ended,
            _ = alive.tick() => send(sender, vec![Bytes::from_static(b": waiting\n\n")]).await?,
        }
    };
    while let Ok(happening) = happenings.try_recv() {
        send(sender, telling.happened(&happening)).await?;
    }
    if let Ok(ended) = &ended {
        send(sender, telling.closing(ended)).await?;
        telling.keep(ended).await;
    }
    send(sender, telling.end(ended.as_ref())).await
}

async fn send(sender: &mpsc::Sender<Bytes>, pieces: Vec<Bytes>) -> Option<()> {
    for piece in pieces {
        sender.send(piece).await.ok()?;
    }
    Some(())
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
