//! Servers on loopback that answer every request as a test says, in the open or encrypted, and the names that lead there.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a laboratory that cannot be set up ends the test")]

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::future::BoxFuture;
use palyra_gate::{Connector, Forbidden, Resolve};
use palyra_types::HostName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// What is answered to a request.
pub enum Reply {
    /// This, and then it hangs up.
    Whole(Vec<u8>),
    /// This, and then the letter x until somebody hangs up.
    Endless(String),
    /// This, and then nothing until somebody hangs up.
    Stalled(String),
}

impl Reply {
    /// A good response.
    #[must_use]
    pub fn ok(body: &str) -> Self {
        Self::with("200 OK", "", body)
    }

    /// A response that leads elsewhere.
    #[must_use]
    pub fn to(location: &str) -> Self {
        Self::with("302 Found", &format!("location: {location}\r\n"), "")
    }

    /// A response with these headers.
    #[must_use]
    pub fn with(status: &str, headers: &str, body: &str) -> Self {
        Self::bytes(status, headers, body.as_bytes())
    }

    /// The same, with a body that need not be text.
    #[must_use]
    pub fn bytes(status: &str, headers: &str, body: &[u8]) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
        Self::Whole([head.as_bytes(), body].concat())
    }
}

/// A server.
pub struct Scripted {
    /// Its port.
    pub port: u16,
    /// The certificate that it shows; empty if it shows none.
    pub certificate: String,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    left: AtomicUsize,
}

type Script = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

impl Scripted {
    /// One that speaks in the open.
    pub async fn plain(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(Arc::new(script), None).await
    }

    /// One that speaks TLS, with a certificate of its own for these names.
    pub async fn encrypted(names: &[&str], script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let own = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let mut server = Self::start(Arc::new(script), Some(TlsAcceptor::from(Arc::new(config)))).await;
        server.certificate = own.cert.pem();
        server
    }

    async fn start(script: Script, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Seen>::default();
        let noticed = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                noticed.connections.fetch_add(1, Ordering::SeqCst);
                let (script, seen, tls) = (Arc::clone(&script), Arc::clone(&noticed), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &script, &seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &script, &seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, certificate: String::new(), seen, serving }
    }

    /// The requests that came in whole.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// How often somebody connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// How often somebody hung up on a reply without end.
    #[must_use]
    pub fn left(&self) -> usize {
        self.seen.left.load(Ordering::SeqCst)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &Script, seen: &Seen) {
    let Some(request) = read_request(&mut stream).await else { return };
    seen.requests.lock().unwrap().push(request.clone());
    match script(&request) {
        Reply::Whole(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Endless(begin) => {
            let _ = stream.write_all(begin.as_bytes()).await;
            while stream.write_all(&[b'x'; 16 << 10]).await.is_ok() {}
            seen.left.fetch_add(1, Ordering::SeqCst);
        }
        Reply::Stalled(begin) => {
            let _ = stream.write_all(begin.as_bytes()).await;
            let _ = stream.flush().await;
            let _ = stream.read(&mut [0; 64]).await;
            seen.left.fetch_add(1, Ordering::SeqCst);
        }
    }
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
        match stream.read_buf(&mut read).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// The hosts there are, and who was asked for.
#[derive(Clone, Default)]
pub struct Names {
    known: BTreeMap<String, IpAddr>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Names {
    /// With a host at an address.
    #[must_use]
    pub fn with(mut self, host: &str, address: &str) -> Self {
        self.known.insert(host.to_owned(), address.parse().unwrap());
        self
    }

    /// The hosts that were asked for, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// A way into a world in which there is nothing else.
    #[must_use]
    pub fn connector(&self) -> Connector {
        Connector::new(Arc::new(self.clone()), Forbidden::default())
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(host.to_string());
        let found = self.known.get(host.as_str()).copied();
        Box::pin(async move { Ok(vec![found.ok_or(io::ErrorKind::NotFound)?]) })
    }
}
