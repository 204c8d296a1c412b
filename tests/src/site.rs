//! A site for programs to reach: HTTPS on loopback, under names of its own, with a directory of files.
//!
//! What is below `/private/` is for whoever sends the key. `/echo` answers with what it was sent, `/echo/base64`, `/echo/hex` and `/echo/url`
//! with the same encoded, `/packed` with a body that says it is compressed, `/endless` without end.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::disallowed_methods,
    reason = "a laboratory that cannot be set up ends the test, and it makes a repository"
)]

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::{Engine, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
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

/// A site that serves files.
pub struct Site {
    at: SocketAddr,
    certificate: String,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

/// What a site has, and what it was sent.
struct State {
    files: PathBuf,
    /// What opens what is private, as a bearer or as a password.
    key: String,
    requests: AtomicUsize,
    received: Mutex<Vec<Received>>,
}

/// A request that a site has had.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// Its first line.
    pub line: String,
    /// Its headers, as they came.
    pub headers: Vec<String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Received {
    /// The value of a header, if it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = self.headers.iter().filter_map(|line| line.split_once(':'));
        named.into_iter().find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// All of it as text.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\n{}\n\n{}", self.line, self.headers.join("\n"), String::from_utf8_lossy(&self.body))
    }
}

impl Site {
    /// Serves a directory under these names, with a certificate that its own authority issued.
    pub async fn start(names: &[&str], files: &Path) -> Self {
        Self::start_with_key(names, files, "nobody knows").await
    }

    /// The same, with a key that opens what is private.
    pub async fn start_with_key(names: &[&str], files: &Path, opens: &str) -> Self {
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "lab authority");
        let certificate = authority.self_signed(&authority_key).unwrap();
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let own = rcgen::CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
        let own = own.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let state = Arc::new(State {
            files: files.to_owned(),
            key: opens.to_owned(),
            requests: AtomicUsize::new(0),
            received: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                // Head and body are two writes, of which the second would wait for the other side otherwise.
                let _ = stream.set_nodelay(true);
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, &state).await;
                    }
                });
            }
        });
        Self { at, certificate: certificate.pem(), state, serving }
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.at.port()
    }

    /// The certificate of its authority.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// How many requests it has had.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// What it was sent, in order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    /// The configuration that leads calls to it under these names, and trusts it. The certificate of its authority goes into `directory`.
    #[must_use]
    pub fn configuration(&self, names: &[&str], directory: &Path) -> String {
        let authority = directory.join("authority.pem");
        fs::write(&authority, self.certificate()).unwrap();
        let hosts = names.iter().map(|name| {
            format!("[[egress.host]]\nhost = \"{name}\"\nports = [{}]\nallow_private = true\n", self.port())
        });
        format!("[egress]\ntrust = [\"{}\"]\n{}", authority.display(), hosts.collect::<String>())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Makes a repository of git in a directory, at this place, with a file `readme`, as a server that knows nothing of git can serve it.
pub fn make_repository(files: &Path, place: &str, readme: &str) {
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=lab", "-c", "user.email=lab@lab.test", "-c", "init.defaultBranch=main"]);
        assert!(command.args(arguments).current_dir(files).output().unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "source"]);
    fs::write(files.join("source/readme"), readme).unwrap();
    git(&["-C", "source", "add", "readme"]);
    git(&["-C", "source", "commit", "-m", "first"]);
    git(&["clone", "--bare", "source", place]);
    git(&["-C", place, "update-server-info"]);
}

/// Answers requests, one after the other.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, state: &State) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        state.requests.fetch_add(1, Ordering::Relaxed);
        state.received.lock().unwrap().push(request.clone());
        let path = request.line.split(' ').nth(1).unwrap_or("/").to_owned();
        let path = path.split('?').next().unwrap_or("/");
        if path == "/endless" {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            while stream.write_all(b"5\r\ntick\n\r\n").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            return;
        }
        let (status, extra, body) = state.answer(path, &request);
        let answer = format!("HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\n\r\n", body.len());
        let sent = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.write_all(&body).await?;
            stream.flush().await
        };
        if sent.await.is_err() {
            return;
        }
    }
}

impl State {
    fn answer(&self, path: &str, request: &Received) -> (&'static str, String, Vec<u8>) {
        let sent = request.text();
        let plain = |body: String| ("200 OK", String::new(), body.into_bytes());
        match path {
            "/echo" => {
                let told = request.header("authorization").unwrap_or("nothing");
                ("200 OK", format!("X-Echo: {told}\r\n"), sent.into_bytes())
            }
            "/echo/base64" => plain(BASE64_STANDARD.encode(&sent)),
            "/echo/hex" => plain(sent.bytes().map(|byte| format!("{byte:02x}")).collect()),
            "/echo/url" => {
                let spelt = |byte: u8| match byte.is_ascii_alphanumeric() {
                    true => char::from(byte).to_string(),
                    false => format!("%{byte:02X}"),
                };
                plain(sent.bytes().map(spelt).collect())
            }
            "/packed" => ("200 OK", "Content-Encoding: gzip\r\n".to_owned(), b"as if it were".to_vec()),
            _ if path.starts_with("/private/") && !self.is_let_in(request) => {
                ("401 Unauthorized", "WWW-Authenticate: Basic realm=\"lab\"\r\n".to_owned(), b"who are you?".to_vec())
            }
            _ => match fs::read(self.files.join(path.trim_start_matches('/'))) {
                Ok(body) => ("200 OK", String::new(), body),
                Err(_) => ("404 Not Found", String::new(), b"there is none".to_vec()),
            },
        }
    }

    fn is_let_in(&self, request: &Received) -> bool {
        let Some((scheme, rest)) = request.header("authorization").and_then(|value| value.split_once(' ')) else {
            return request.header("x-api-key") == Some(self.key.as_str());
        };
        match scheme {
            "Bearer" => rest == self.key,
            "Basic" => {
                BASE64_STANDARD.decode(rest).is_ok_and(|login| login.ends_with(format!(":{}", self.key).as_bytes()))
            }
            _ => false,
        }
    }
}

/// Reads one request, unless there is none.
async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Received> {
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        if !matches!(stream.read_until(b'\n', &mut line).await, Ok(1..)) {
            return None;
        }
        if line == b"\r\n" {
            break;
        }
        lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
    let mut lines = lines.into_iter();
    let mut request = Received { line: lines.next()?, headers: lines.collect(), body: Vec::new() };
    if request.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.ok()?;
            let length = usize::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; length + 2];
            stream.read_exact(&mut chunk).await.ok()?;
            if length == 0 {
                break;
            }
            request.body.extend_from_slice(&chunk[..length]);
        }
    } else if let Some(length) = request.header("content-length").and_then(|length| length.parse().ok()) {
        request.body = vec![0; length];
        stream.read_exact(&mut request.body).await.ok()?;
    }
    Some(request)
}
