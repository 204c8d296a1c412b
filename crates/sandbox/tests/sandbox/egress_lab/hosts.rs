//! Hosts on loopback.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustls::{
    ClientConfig, NamedGroup, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

/// A host that counts its connections and the bytes that come.
pub struct Host {
    pub at: SocketAddr,
    connections: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
    task: JoinHandle<()>,
    certificate: Option<CertificateDer<'static>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Host {
    /// Sends back what it gets, and ends when the client has ended.
    pub async fn echo() -> Self {
        Self::echo_at("127.0.0.1:0").await
    }

    pub async fn echo_at(at: &str) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        Self::serving(listener, |mut stream, bytes| async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                bytes.fetch_add(read, Ordering::Relaxed);
                if stream.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
            let _ = stream.shutdown().await;
        })
    }

    /// Answers every request with its head, and closes.
    pub async fn http() -> Self {
        Self::http_at("127.0.0.1:0").await.unwrap()
    }

    pub async fn http_at(at: &str) -> Option<Self> {
        let listener = TcpListener::bind(at).await.ok()?;
        Some(Self::serving(listener, |mut stream, bytes| async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                head.push(byte);
            }
            bytes.fetch_add(head.len(), Ordering::Relaxed);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Palyra-Refused: not_listed\r\n\r\n",
                head.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.write_all(&head).await;
        }))
    }

    /// Speaks TLS under a name and sends back what it gets.
    pub async fn tls(name: &str) -> Self {
        let (config, certificate) = server_config(name);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut host = Self::serving(listener, move |stream, bytes| {
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = vec![0; 1 << 14];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    bytes.fetch_add(read, Ordering::Relaxed);
                    if stream.write_all(&buffer[..read]).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                let _ = stream.shutdown().await;
            }
        });
        host.certificate = Some(certificate);
        host
    }

    /// Speaks TLS under a name, and does something with each client.
    pub async fn tls_serving<F, S>(name: &str, serve: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(tokio_rustls::server::TlsStream<TcpStream>) -> F + Send + Sync + 'static,
    {
        let (config, certificate) = server_config(name);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let serve = Arc::new(serve);
        let mut host = Self::serving(listener, move |stream, _| {
            let (acceptor, serve) = (TlsAcceptor::from(Arc::clone(&config)), Arc::clone(&serve));
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream).await;
                }
            }
        });
        host.certificate = Some(certificate);
        host
    }

    fn serving<F, S>(listener: TcpListener, serve: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(TcpStream, Arc<AtomicUsize>) -> F + Send + 'static,
    {
        let at = listener.local_addr().unwrap();
        let (connections, bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counter, counted) = (Arc::clone(&connections), Arc::clone(&bytes));
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, Arc::clone(&counted)));
            }
        });
        Self { at, connections, bytes, task, certificate: None }
    }

    pub const fn port(&self) -> u16 {
        self.at.port()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Bytes that came, beyond those of a TLS handshake.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone().unwrap()
    }

    /// [`Host::greet`], with other ciphers and groups.
    pub async fn greet_by(
        &self,
        provider: CryptoProvider,
        through: TcpStream,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        greet_by(provider, through, name, self.certificate.clone()).await
    }

    /// Speaks TLS through a connection to this host.
    pub async fn greet(&self, through: TcpStream, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        greet(through, name, self.certificate.clone()).await
    }
}

/// Speaks TLS through a connection, trusting one certificate.
pub async fn greet(
    through: TcpStream,
    name: &str,
    trusted: Option<CertificateDer<'static>>,
) -> std::io::Result<TlsStream<TcpStream>> {
    greet_by(aws_lc_rs::default_provider(), through, name, trusted).await
}

async fn greet_by(
    provider: CryptoProvider,
    through: TcpStream,
    name: &str,
    trusted: Option<CertificateDer<'static>>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    trusted.into_iter().for_each(|certificate| roots.add(certificate).unwrap());
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let config =
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), through).await
}

pub fn server_config(name: &str) -> (Arc<ServerConfig>, CertificateDer<'static>) {
    let certified = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let certificate = certified.cert.der().clone();
    let mut provider = aws_lc_rs::default_provider();
    // So that a client can guess wrong.
    provider.kx_groups.retain(|group| group.name() != NamedGroup::secp384r1);
    let builder = ServerConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    (Arc::new(builder.with_single_cert(vec![certificate.clone()], key).unwrap()), certificate)
}
