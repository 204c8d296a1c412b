//! A server of models for many streams at once: a thread of its own that sends numbered events, as many and as long as the request says.
//!
//! A request says `lab_events`, how many; `lab_bytes`, how long each is; `lab_waits`, whether all but the first event waits until
//! [`Torrent::release`]. Without `stream` it answers at once and whole. It is light on purpose: nothing is kept of a request, and an event is made by putting
//! its number between two texts. The events are numbered from 0 in their content, as `NUMBER:`.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a laboratory that cannot be set up ends the test"
)]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
    sync::watch,
};

/// A server of models for many streams.
pub struct Torrent {
    at: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

struct Shared {
    /// How many requests are being answered.
    open: AtomicUsize,
    released: watch::Sender<bool>,
}

impl Torrent {
    /// Starts one, on a thread of its own.
    #[must_use]
    pub fn start() -> Self {
        let (told, address) = std::sync::mpsc::channel();
        let shared = Arc::new(Shared { open: AtomicUsize::new(0), released: watch::channel(false).0 });
        let (stop, mut stopped) = watch::channel(false);
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
                // They come all at once.
                let listener = socket.listen(4_096).unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                loop {
                    let accepted = tokio::select! {
                        accepted = listener.accept() => accepted,
                        _ = stopped.wait_for(|stopped| *stopped) => return,
                    };
                    let Ok((stream, _)) = accepted else { continue };
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(converse(stream, Arc::clone(&serving)));
                }
            });
        });
        Self { at: address.recv().unwrap(), shared, stop }
    }

    /// Where its API begins.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.at)
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.at
    }

    /// How many requests are being answered.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Lets streams go on that wait, or has those that come wait again.
    pub fn release(&self, released: bool) {
        self.shared.released.send_replace(released);
    }
}

impl Drop for Torrent {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = request(&mut stream).await {
        shared.open.fetch_add(1, Ordering::SeqCst);
        let sent = answer(stream.get_mut(), &asked, &shared).await;
        shared.open.fetch_sub(1, Ordering::SeqCst);
        if sent.is_err() {
            return;
        }
    }
}

async fn answer(stream: &mut TcpStream, asked: &Value, shared: &Shared) -> std::io::Result<()> {
    if asked["stream"] != json!(true) {
        return stream.write_all(WHOLE.as_bytes()).await;
    }
    let number = |name: &str| usize::try_from(asked[name].as_u64().unwrap_or(1)).unwrap_or(1);
    let (events, padding) = (number("lab_events"), "x".repeat(number("lab_bytes")));
    stream.write_all(HEAD.as_bytes()).await?;
    for event in 0..events {
        let data = format!("{BEFORE}{event}:{padding}{BEHIND}");
        stream.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes()).await?;
        if event == 0 && asked["lab_waits"] == json!(true) {
            let _ = shared.released.subscribe().wait_for(|released| *released).await;
        }
        // Everybody in turn, however much room there is.
        tokio::task::yield_now().await;
    }
    stream.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").await
}

/// Reads one request, unless there is none.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    serde_json::from_slice(&body).ok()
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

const BEFORE: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"";

const BEHIND: &str = "\"},\"finish_reason\":null}]}\n\n";

const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 209\r\n\r\n{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n";
