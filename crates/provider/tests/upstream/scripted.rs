//! A server that answers each request with the next act of a script. The last act is repeated.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What the server does about one request.
#[derive(Debug, Clone)]
pub(crate) struct Act(Vec<Move>);

#[derive(Debug, Clone)]
enum Move {
    Say(Vec<u8>),
    Pause(Duration),
    Hang,
    Close,
}

impl Act {
    /// A whole answer.
    pub(crate) fn reply(status: &str, headers: &[&str], body: &str) -> Self {
        let length = format!("content-length: {}", body.len());
        Self::head(status, &[headers, &[&length]].concat()).say(body)
    }

    /// `200 OK` with JSON.
    pub(crate) fn ok(body: &str) -> Self {
        Self::reply("200 OK", &["content-type: application/json"], body)
    }

    /// A stream of one event that says that it is done, and whatever comes behind that.
    pub(crate) fn stream() -> Self {
        Self::head("200 OK", &["content-type: text/event-stream", "transfer-encoding: chunked"])
            .chunk("data: [DONE]\n\n")
            .pause(20)
    }

    /// The head of an answer alone.
    pub(crate) fn head(status: &str, headers: &[&str]) -> Self {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        Self::raw(&format!("HTTP/1.1 {status}\r\n{lines}\r\n"))
    }

    /// These bytes and nothing else.
    pub(crate) fn raw(text: &str) -> Self {
        Self(vec![Move::Say(text.as_bytes().to_vec())])
    }

    /// Nothing at all, for longer than anybody waits.
    pub(crate) fn silence() -> Self {
        Self(vec![Move::Hang])
    }

    /// The connection ends without a word.
    pub(crate) fn hang_up() -> Self {
        Self(vec![Move::Close])
    }

    pub(crate) fn say(self, text: &str) -> Self {
        self.then(Move::Say(text.as_bytes().to_vec()))
    }

    /// A piece in chunked encoding. The empty one is the last.
    pub(crate) fn chunk(self, text: &str) -> Self {
        self.say(&format!("{:x}\r\n{text}\r\n", text.len()))
    }

    pub(crate) fn pause(self, millis: u64) -> Self {
        self.then(Move::Pause(Duration::from_millis(millis)))
    }

    pub(crate) fn hang(self) -> Self {
        self.then(Move::Hang)
    }

    pub(crate) fn close(self) -> Self {
        self.then(Move::Close)
    }

    fn then(mut self, next: Move) -> Self {
        self.0.push(next);
        self
    }
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `POST /v1/models HTTP/1.1`.
    pub(crate) line: String,
    /// In lower case, sorted.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

#[derive(Default)]
struct Record {
    accepted: usize,
    seen: Vec<Seen>,
}

/// The server. It ends when it is dropped.
pub(crate) struct Scripted {
    address: SocketAddr,
    record: Arc<Mutex<Record>>,
    serving: JoinHandle<()>,
}

impl Scripted {
    pub(crate) async fn start(script: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let record = Arc::new(Mutex::new(Record::default()));
        let script: Arc<[Act]> = script.into_iter().collect();
        let serving = tokio::spawn(serve(listener, script, record.clone()));
        Self { address, record, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How many connections it took.
    pub(crate) fn accepted(&self) -> usize {
        self.record.lock().unwrap().accepted
    }

    /// How many requests came.
    pub(crate) fn asked(&self) -> usize {
        self.record.lock().unwrap().seen.len()
    }

    pub(crate) fn seen(&self, index: usize) -> Seen {
        self.record.lock().unwrap().seen[index].clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, script: Arc<[Act]>, record: Arc<Mutex<Record>>) {
    while let Ok((stream, _)) = listener.accept().await {
        // What is said in two moves must not wait for the other side to acknowledge the first.
        stream.set_nodelay(true).unwrap();
        record.lock().unwrap().accepted += 1;
        tokio::spawn(converse(stream, script.clone(), record.clone()));
    }
}

async fn converse(mut stream: TcpStream, script: Arc<[Act]>, record: Arc<Mutex<Record>>) {
    while let Some(seen) = read_request(&mut stream).await {
        let act = {
            let mut record = record.lock().unwrap();
            record.seen.push(seen);
            script[(record.seen.len() - 1).min(script.len() - 1)].clone()
        };
        if !perform(act, &mut stream).await {
            return;
        }
    }
}

/// Whether the connection goes on.
async fn perform(act: Act, stream: &mut (impl AsyncWrite + Unpin)) -> bool {
    for step in act.0 {
        match step {
            Move::Say(bytes) => {
                if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                    return false;
                }
            }
            Move::Pause(time) => tokio::time::sleep(time).await,
            Move::Hang => tokio::time::sleep(Duration::from_secs(60)).await,
            Move::Close => return false,
        }
    }
    true
}

/// Reads one request, or finds that there is none.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().lines();
    let line = lines.next().unwrap().to_owned();
    let mut headers: Vec<String> = lines.map(str::to_owned).collect();
    headers.sort();
    let length =
        headers.iter().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Seen { line, headers, body: String::from_utf8(body).unwrap() })
}
