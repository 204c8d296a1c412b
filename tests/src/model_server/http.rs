//! HTTP/1.1 as far as a test needs it, and as far from right as a test wants it.

use std::{io, sync::atomic::Ordering, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    time::sleep,
};

use super::{
    Request, Script,
    answer::{BROKEN_PLACE, Ending, Flaw},
};

/// What is sent.
pub(super) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    pause: Duration,
    ending: Ending,
}

enum Body {
    /// With its length in the head.
    Whole(Vec<u8>),
    /// In chunks.
    Events(Vec<Vec<u8>>),
    /// Without a head.
    Raw(Vec<u8>),
    /// Without a head, and the second over and over behind the first.
    Drip(Vec<u8>, Vec<u8>, usize),
    /// Nothing at all.
    Silent,
}

impl Reply {
    pub(super) fn json(body: &Value) -> Self {
        let mut reply = Self::of(Body::Whole(body.to_string().into_bytes()));
        reply.header("content-type", "application/json");
        reply
    }

    pub(super) fn events(events: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut reply = Self::of(Body::Events(events.into_iter().collect()));
        reply.header("content-type", "text/event-stream; charset=utf-8");
        reply
    }

    pub(super) const fn raw(bytes: Vec<u8>) -> Self {
        Self::of(Body::Raw(bytes))
    }

    pub(super) const fn drip(beginning: Vec<u8>, piece: Vec<u8>, times: usize) -> Self {
        Self::of(Body::Drip(beginning, piece, times))
    }

    pub(super) const fn silent() -> Self {
        Self::of(Body::Silent)
    }

    pub(super) const fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(super) fn header(&mut self, name: &str, value: &str) {
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    pub(super) const fn paced(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    pub(super) const fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Puts what is wrong into the bytes. Of events, the last but one breaks off.
    pub(super) fn spoil(&mut self, flaw: Flaw) {
        match (flaw, &mut self.body) {
            (Flaw::HalfJson, Body::Whole(body)) => body.truncate(body.len() / 2),
            (Flaw::HalfJson, Body::Events(events)) => {
                if let Some(event) = events.iter_mut().rev().nth(1) {
                    event.truncate(event.len() / 2);
                    event.extend_from_slice(b"\n\n");
                }
            }
            (Flaw::InvalidUtf8, Body::Whole(body)) => break_utf8(body),
            (Flaw::InvalidUtf8, Body::Events(events)) => events.iter_mut().for_each(break_utf8),
            _ => {}
        }
    }

    const fn of(body: Body) -> Self {
        Self { status: 200, headers: Vec::new(), body, pause: Duration::ZERO, ending: Ending::Whole }
    }

    fn head(&self, framing: &str) -> Vec<u8> {
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("HTTP/1.1 {} {}\r\n{headers}{framing}\r\n\r\n", self.status, reason(self.status)).into_bytes()
    }

    /// Sends it. Returns whether another request may follow.
    async fn send(self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<bool> {
        sleep(self.pause).await;
        let whole = self.ending == Ending::Whole;
        match &self.body {
            Body::Silent => return hang(stream).await,
            Body::Raw(bytes) => {
                put(stream, bytes).await?;
                stream.shutdown().await?;
                return Ok(false);
            }
            Body::Drip(beginning, piece, times) => {
                put(stream, beginning).await?;
                for _ in 0..*times {
                    sleep(self.pause).await;
                    put(stream, piece).await?;
                }
                stream.shutdown().await?;
                return Ok(false);
            }
            Body::Whole(body) => {
                put(stream, &self.head(&format!("content-length: {}", body.len()))).await?;
                let sent = if whole { body.len() } else { body.len() / 2 };
                put(stream, body.get(..sent).unwrap_or_default()).await?;
            }
            Body::Events(events) => {
                put(stream, &self.head("transfer-encoding: chunked")).await?;
                let sent = if whole { events.len() } else { events.len().div_ceil(2) };
                for event in events.iter().take(sent) {
                    sleep(self.pause).await;
                    let size = format!("{:x}\r\n", event.len());
                    put(stream, &[size.as_bytes(), event, b"\r\n"].concat()).await?;
                }
                if whole {
                    put(stream, b"0\r\n\r\n").await?;
                }
            }
        }
        match self.ending {
            Ending::Whole => Ok(true),
            Ending::Hang => hang(stream).await,
            Ending::Disconnect => Ok(false),
        }
    }
}

/// Answers requests, one after the other.
pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, script: &Script) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let is_last = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        match script.reply(request).send(&mut stream).await {
            Ok(true) if !is_last => {}
            Ok(_) => return,
            Err(_) => {
                script.left.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

async fn put(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Waits until the other side hangs up, which is never the right end.
async fn hang(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<bool> {
    while stream.read(&mut [0; 64]).await? > 0 {}
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Reads one request, unless there is none.
async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Request> {
    let first = line(stream).await?;
    let mut words = first.split(' ');
    let mut request =
        Request { method: words.next()?.to_owned(), path: words.next()?.to_owned(), ..Request::default() };
    loop {
        let header = line(stream).await?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':')?;
        request.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    if request.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        loop {
            let size = usize::from_str_radix(&line(stream).await?, 16).ok()?;
            let mut chunk = vec![0; size];
            stream.read_exact(&mut chunk).await.ok()?;
            line(stream).await?;
            if size == 0 {
                break;
            }
            request.body.append(&mut chunk);
        }
    } else if let Some(length) = request.header("content-length") {
        request.body = vec![0; length.parse().ok()?];
        stream.read_exact(&mut request.body).await.ok()?;
    }
    Some(request)
}

/// A line without its end, unless the other side has hung up.
async fn line(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    match stream.read_until(b'\n', &mut line).await {
        Ok(1..) => Some(String::from_utf8_lossy(&line).trim_end().to_owned()),
        Ok(0) | Err(_) => None,
    }
}

fn break_utf8(bytes: &mut Vec<u8>) {
    let found = bytes.windows(BROKEN_PLACE.len()).position(|window| window == BROKEN_PLACE.as_bytes());
    if let Some(at) = found {
        bytes.splice(at..at + BROKEN_PLACE.len(), [0xff, 0xfe, 0xc0, 0x80]);
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
