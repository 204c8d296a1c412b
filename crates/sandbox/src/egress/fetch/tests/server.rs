//! A server that answers each connection as it is told.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// What is answered to one request.
#[derive(Clone)]
pub(super) enum Answer {
    /// This, and then it hangs up.
    Raw(&'static str),
    Text(String),
    /// This, and then the letter x for ever.
    Endless(&'static str),
    /// This again and again.
    Again(String),
    /// This, and then nothing.
    Begun(&'static str),
    Silent,
}

impl Answer {
    /// A response. The length is added unless the headers say it.
    pub(super) fn text(status: &str, headers: &str, body: &str) -> Self {
        let needs_length =
            !headers.contains("content-length") && !status.starts_with("204") && !status.starts_with("304");
        let length = if needs_length { format!("content-length: {}\r\n", body.len()) } else { String::new() };
        Self::Text(format!("HTTP/1.1 {status}\r\n{headers}{length}\r\n{body}"))
    }
}

pub(super) struct Server {
    pub(super) port: u16,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    left: AtomicUsize,
    asked: Mutex<Vec<String>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    pub(super) async fn plain(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::start(answers.into_iter().collect(), None).await
    }

    /// A server with a certificate of its own for this name, and that certificate.
    pub(super) async fn encrypted(name: &str, answers: impl IntoIterator<Item = Answer>) -> (Self, String) {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        (Self::start(answers.into_iter().collect(), Some(acceptor)).await, own.cert.pem())
    }

    async fn start(answers: Vec<Answer>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Seen>::default();
        let told = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            let mut answers = answers.into_iter();
            while let Ok((stream, _)) = listener.accept().await {
                told.connections.fetch_add(1, Ordering::SeqCst);
                match &tls {
                    None => serve(stream, &mut answers, &told).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream, &mut answers, &told).await;
                        }
                    }
                }
            }
        });
        Self { port, seen, serving }
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The requests that came in whole, in order.
    pub(super) fn asked(&self) -> Vec<String> {
        self.seen.asked.lock().unwrap().clone()
    }

    pub(super) async fn was_asked(&self, times: usize) {
        until(|| self.seen.asked.lock().unwrap().len() >= times).await;
    }

    /// Waits until a client that was given nothing more went away.
    pub(super) async fn was_left(&self) {
        until(|| self.seen.left.load(Ordering::SeqCst) > 0).await;
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answers: &mut impl Iterator<Item = Answer>,
    seen: &Seen,
) {
    let Some(request) = read_request(&mut stream).await else { return };
    seen.asked.lock().unwrap().push(request);
    match answers.next().unwrap_or(Answer::Raw("")) {
        Answer::Raw(text) => drop(stream.write_all(text.as_bytes()).await),
        Answer::Text(text) => drop(stream.write_all(text.as_bytes()).await),
        Answer::Endless(begin) => {
            let _ = stream.write_all(begin.as_bytes()).await;
            while stream.write_all(&[b'x'; 16 << 10]).await.is_ok() {}
        }
        Answer::Again(text) => while stream.write_all(text.as_bytes()).await.is_ok() {},
        Answer::Begun(begin) => {
            let _ = stream.write_all(begin.as_bytes()).await;
            wait_for_end(&mut stream, seen).await;
        }
        Answer::Silent => wait_for_end(&mut stream, seen).await,
    }
    let _ = stream.shutdown().await;
}

async fn wait_for_end(stream: &mut (impl AsyncRead + Unpin), seen: &Seen) {
    let _ = stream.read(&mut [0; 64]).await;
    seen.left.fetch_add(1, Ordering::SeqCst);
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&piece[..count]),
        }
    }
}

async fn until(holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not happen in five seconds")
}
