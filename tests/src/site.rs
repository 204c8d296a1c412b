//! A site for programs to reach: HTTPS on loopback, under names of its own, with a directory of files.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a laboratory that cannot be set up ends the test")]

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
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
    requests: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Site {
    /// Serves a directory under these names, with a certificate that its own authority issued.
    pub async fn start(names: &[&str], files: &Path) -> Self {
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
        let requests = Arc::new(AtomicUsize::new(0));
        let (counted, files) = (Arc::clone(&requests), files.to_owned());
        let serving = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (acceptor, counted, files) = (acceptor.clone(), Arc::clone(&counted), files.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, &files, &counted).await;
                    }
                });
            }
        });
        Self { at, certificate: certificate.pem(), requests, serving }
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
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers requests with files, one after the other. `/endless` goes on until somebody hangs up.
async fn serve(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, files: &Path, counted: &AtomicUsize) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = Vec::new();
            if !matches!(stream.read_until(b'\n', &mut line).await, Ok(1..)) {
                return;
            }
            if line == b"\r\n" {
                break;
            }
            head.push(String::from_utf8_lossy(&line).into_owned());
        }
        counted.fetch_add(1, Ordering::Relaxed);
        let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("/").to_owned();
        let path = path.split('?').next().unwrap_or("/");
        if path == "/endless" {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            while stream.write_all(b"5\r\ntick\n\r\n").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            return;
        }
        let file: PathBuf = files.join(path.trim_start_matches('/'));
        let (status, body) = match std::fs::read(&file) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", b"there is none".to_vec()),
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        let sent = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.write_all(&body).await?;
            stream.flush().await
        };
        if sent.await.is_err() {
            return;
        }
        let _ = stream.read(&mut []).await;
    }
}
