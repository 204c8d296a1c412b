//! The floor that a daemon is compared with: a bare axum route that answers with a constant, plainly and behind mutual TLS.
//!
//! It is a process of its own with as many threads as the daemon has, and is let in by the same certificates: the daemon's own authority has
//! certified it. It knows no credentials, limits, policies or log, and gives no connection a place or a time.

#![allow(clippy::disallowed_methods, reason = "it starts what is measured")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use axum::{Router, http::header, routing::get};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use palyra_identity::{ALPN, Authority, issue_server};
use palyra_types::{clock::SystemClock, entropy::SystemEntropy};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use crate::daemon::Daemon;

/// A bare route in a process of its own.
pub struct Floor {
    child: Child,
    /// Where it is reached plainly.
    pub plain: SocketAddr,
    /// Where it is reached by mutual TLS.
    pub tls: SocketAddr,
}

impl Floor {
    /// Starts one that the devices of a daemon trust and that answers with a constant. The program must begin with [`serve_if_told`].
    #[must_use]
    pub fn start(daemon: &Daemon, answer: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(AUTHORITY, daemon.state().join("identity/authority.json")).env(ANSWER, answer);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut told = BufReader::new(child.stdout.take().expect("what it tells")).lines();
        let mut address = || {
            let line = told.next().expect("a line").expect("a line");
            line.parse().expect("an address")
        };
        let (plain, tls) = (address(), address());
        Self { child, plain, tls }
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves and does not come back, if this process was started to be the floor.
pub fn serve_if_told() {
    let (Some(authority), Ok(answer)) = (std::env::var_os(AUTHORITY), std::env::var(ANSWER)) else { return };
    let authority = fs::read_to_string(authority).expect("an authority");
    let tls = tls(&Authority::parse(&authority).expect("an authority"));
    let answer: &'static str = answer.leak();
    let constant = move || async move { ([(header::CONTENT_TYPE, "application/json")], answer) };
    let router = Router::new().route("/api/v1/identity", get(constant));
    // As many threads as the daemon has.
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let plain = listener().await;
        let secret = listener().await;
        tokio::spawn(accept(plain, router.clone(), None));
        accept(secret, router, Some(TlsAcceptor::from(tls))).await;
    });
}

/// Takes a port and tells which.
async fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    listener
}

async fn accept(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(serve(stream, router.clone(), tls.clone()));
    }
}

async fn serve(stream: TcpStream, router: Router, tls: Option<TlsAcceptor>) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => converse(stream, router).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                converse(stream, router).await;
            }
        }
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let service = TowerToHyperService::new(router);
    // Whoever hangs up has what they wanted.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Mutual TLS as plain as rustls has it. No tickets, because the daemon gives none either.
fn tls(authority: &Authority) -> Arc<ServerConfig> {
    let issued = issue_server(authority, &[], &SystemClock::new(), &SystemEntropy).expect("a certificate");
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(issued.chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
    let mut trusted = RootCertStore::empty();
    for certificate in authority.trusted() {
        trusted.add(certificate).expect("an authority");
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&provider)).build();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_client_cert_verifier(verifier.expect("a verifier"))
        .with_single_cert(chain.expect("a chain"), key)
        .expect("a certificate and its key");
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Arc::new(config)
}

/// Names the file of the authority, and so says that this process is the floor.
const AUTHORITY: &str = "PALYRA_BENCH_FLOOR_AUTHORITY";

/// What the floor answers with.
const ANSWER: &str = "PALYRA_BENCH_FLOOR_ANSWER";
