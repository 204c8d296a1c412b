//! What the tests of the egress share: a run with its sockets on loopback, a doorkeeper with rules, a resolver with a
//! table, and hosts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

pub mod hosts;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use palyra_sandbox::egress::{
    ConnectionOutcome, ConnectionRecord, Connector, Doorkeeper, EgressLimits, EgressRefusalKind, EgressServer,
    EgressSockets, EgressSummary, Forbidden, Glance, HostRules, Interception, Interceptor, Resolve, Ruling,
    RunAuthority, SyntheticRange,
    fetch::{Authorities, Trust},
};
use palyra_types::HostName;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    sync::watch,
};
use tokio_rustls::client::TlsStream;

/// A run whose network is the lab's.
pub struct Lab {
    server: Option<EgressServer>,
    pub keeper: Arc<Keeper>,
    pub resolver: Arc<Table>,
    pub proxy: SocketAddr,
    pub dns: SocketAddr,
    /// Whom programs of the run trust.
    pub authority: Arc<RunAuthority>,
}

/// What a lab is made of.
pub struct Setup {
    rules: String,
    names: Vec<(String, Vec<IpAddr>)>,
    pub limits: EgressLimits,
    patience: Duration,
    forbidden: Vec<SocketAddr>,
    direct: Vec<SocketAddr>,
    interceptor: Option<Arc<dyn Interceptor>>,
    trusted: Vec<CertificateDer<'static>>,
    room: usize,
}

impl Setup {
    /// Without any rule.
    pub fn new() -> Self {
        let synthetic = SyntheticRange::new(Ipv4Addr::new(127, 18, 0, 0), 16).unwrap();
        Self {
            rules: String::new(),
            names: Vec::new(),
            limits: EgressLimits { synthetic, ..EgressLimits::default() },
            patience: Duration::from_secs(5),
            forbidden: Vec::new(),
            direct: Vec::new(),
            interceptor: None,
            trusted: Vec::new(),
            room: usize::MAX,
        }
    }

    /// Where all runs together have room for so many clients.
    pub fn room(mut self, clients: usize) -> Self {
        self.room = clients;
        self
    }

    /// With one more rule, in the words of the configuration.
    pub fn rule(mut self, rule: &str) -> Self {
        self.rules.push_str(&format!("[[host]]\n{}\n", rule.replace("; ", "\n")));
        self
    }

    /// With an address of a name.
    pub fn name(mut self, name: &str, addresses: &[&str]) -> Self {
        self.names.push((name.to_owned(), addresses.iter().map(|text| text.parse().unwrap()).collect()));
        self
    }

    /// With a host on loopback that may be reached in any way.
    pub fn open(self, name: &str, at: SocketAddr) -> Self {
        let rule = format!("host = '{name}'; ports = [{}]; tls = 'any'; allow_private = true", at.port());
        self.rule(&rule).name(name, &[&at.ip().to_string()])
    }

    /// With a host on loopback whose connections have to name it.
    pub fn strict(self, name: &str, at: SocketAddr) -> Self {
        let rule = format!("host = '{name}'; ports = [{}]; allow_private = true", at.port());
        self.rule(&rule).name(name, &[&at.ip().to_string()])
    }

    pub fn forbid(mut self, listener: SocketAddr) -> Self {
        self.forbidden.push(listener);
        self
    }

    /// With a listener for clients that know of no proxy.
    pub fn direct(mut self, at: SocketAddr) -> Self {
        self.direct.push(at);
        self
    }

    pub fn limits(mut self, change: impl FnOnce(&mut EgressLimits)) -> Self {
        change(&mut self.limits);
        self
    }

    /// With another time-out for names and connections.
    pub fn waiting(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub fn intercepted_by(mut self, interceptor: Arc<dyn Interceptor>) -> Self {
        self.interceptor = Some(interceptor);
        self
    }

    /// Where the interceptor's hosts are trusted that show this certificate.
    pub fn trusting(mut self, certificate: CertificateDer<'static>) -> Self {
        self.trusted.push(certificate);
        self
    }

    pub fn start(self) -> Lab {
        let keeper = Arc::new(Keeper::new(&self.rules));
        let resolver = Arc::new(Table { names: Mutex::new(self.names.into_iter().collect()), asked: Mutex::default() });
        let resolve: Arc<dyn Resolve> = Arc::<Table>::clone(&resolver);
        let connector = Connector::new(resolve, Forbidden(self.forbidden)).waiting(self.patience).with_room(self.room);
        let authority = Arc::new(RunAuthority::new().unwrap());
        let mut authorities = Authorities::default();
        for certificate in &self.trusted {
            authorities.add_pem(pem(certificate).as_bytes()).unwrap();
        }
        let interception = self.interceptor.map(|interceptor| Interception {
            interceptor,
            trust: Trust::new(authorities),
            authority: Arc::clone(&authority),
        });
        let sockets = EgressSockets {
            dns: std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
            proxy: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
            direct: self.direct.iter().map(|at| std::net::TcpListener::bind(at).unwrap()).collect(),
        };
        let (dns, proxy) = (sockets.dns.local_addr().unwrap(), sockets.proxy.local_addr().unwrap());
        let door: Arc<dyn Doorkeeper> = Arc::<Keeper>::clone(&keeper);
        let server = EgressServer::start(sockets, door, Arc::new(connector), self.limits, interception).unwrap();
        Lab { server: Some(server), keeper, resolver, proxy, dns, authority }
    }
}

impl Lab {
    pub async fn finish(&mut self) -> EgressSummary {
        self.server.take().unwrap().finish().await
    }

    pub fn drop_server(&mut self) {
        self.server = None;
    }

    /// A connection to the proxy.
    pub async fn client(&self) -> TcpStream {
        TcpStream::connect(self.proxy).await.unwrap()
    }

    /// Says something to the proxy and reads one response, or whatever comes until the proxy closes.
    pub async fn say(&self, words: &[u8]) -> String {
        let mut client = self.client().await;
        let _ = client.write_all(words).await;
        let mut answer = read_head(&mut client).await.into_bytes();
        let length = header(&String::from_utf8_lossy(&answer), "content-length").and_then(|text| text.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        let _ = client.read_exact(&mut body).await;
        answer.extend(body);
        String::from_utf8(answer).unwrap()
    }

    /// Asks for a tunnel: the client's end of it, or the status and the kind of refusal.
    pub async fn tunnel(&self, authority: &str) -> Result<TcpStream, (u16, String)> {
        let mut client = self.client().await;
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await;
        match status_of(&head) {
            200 => Ok(client),
            status => Err((status, header(&head, "x-palyra-refused").unwrap_or_default())),
        }
    }

    /// Speaks TLS with whoever answers for a host, whom programs of the run trust.
    pub async fn inside(&self, name: &str, port: u16) -> TlsStream<TcpStream> {
        let stream = self.tunnel(&format!("{name}:{port}")).await.unwrap();
        hosts::greet(stream, name, Some(self.trusted())).await.unwrap()
    }

    /// The certificate of the run's authority.
    pub fn trusted(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.authority.certificate_pem().as_bytes()).unwrap()
    }

    /// Asks for a connection by SOCKS5 with the bytes of an address: the client's end of it, or the code.
    pub async fn socks(&self, address: &[u8], port: u16) -> Result<TcpStream, u8> {
        let mut client = self.client().await;
        client.write_all(&[5, 1, 0]).await.unwrap();
        let mut method = [0; 2];
        client.read_exact(&mut method).await.unwrap();
        assert_eq!(method, [5, 0]);
        client.write_all(&[&[5, 1, 0][..], address, &port.to_be_bytes()].concat()).await.unwrap();
        let mut reply = [0; 10];
        client.read_exact(&mut reply).await.unwrap();
        if reply[1] == 0 { Ok(client) } else { Err(reply[1]) }
    }

    pub async fn socks_to(&self, name: &str, port: u16) -> Result<TcpStream, u8> {
        self.socks(&[&[3, u8::try_from(name.len()).unwrap()][..], name.as_bytes()].concat(), port).await
    }

    /// Asks the name service: the code and the addresses.
    pub async fn look_up(&self, name: &str, kind: u16) -> (u8, Vec<Ipv4Addr>) {
        let answer = self.ask(&query(name, kind)).await.expect("an answer");
        let count = usize::from(u16::from_be_bytes([answer[6], answer[7]]));
        let mut addresses = Vec::new();
        let mut rest = &answer[query(name, kind).len()..];
        for _ in 0..count {
            let octets: [u8; 4] = rest[12..16].try_into().unwrap();
            addresses.push(octets.into());
            rest = &rest[16..];
        }
        (answer[3] & 15, addresses)
    }

    /// Sends something to the name service and waits for an answer, for a moment.
    pub async fn ask(&self, message: &[u8]) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(message, self.dns).await.unwrap();
        let mut answer = vec![0; 4096];
        let read = tokio::time::timeout(Duration::from_millis(500), socket.recv(&mut answer)).await.ok()?.unwrap();
        answer.truncate(read);
        Some(answer)
    }

    /// Waits until so many connections were noted, and tells them.
    pub async fn records(&self, count: usize) -> Vec<ConnectionRecord> {
        let began = Instant::now();
        loop {
            let records = self.keeper.records.lock().unwrap().clone();
            if records.len() >= count {
                assert_eq!(records.len(), count, "{records:#?}");
                return records;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{count} records do not come: {records:#?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The kinds of the refusals that were noted, once there are so many records.
    pub async fn refusals(&self, count: usize) -> Vec<EgressRefusalKind> {
        let kind = |record: ConnectionRecord| match record.outcome {
            ConnectionOutcome::Refused(refusal) => refusal.kind,
            other => panic!("{} {other:?}", record.named),
        };
        self.records(count).await.into_iter().map(kind).collect()
    }
}

/// A doorkeeper that goes by rules, which can be changed.
pub struct Keeper {
    rules: Mutex<HostRules>,
    changes: watch::Sender<u64>,
    pub records: Mutex<Vec<ConnectionRecord>>,
    pub decided: Mutex<Vec<String>>,
    /// While this is set, nothing is decided.
    pub thinks: AtomicBool,
}

impl Keeper {
    pub fn new(rules: &str) -> Self {
        Self {
            rules: Mutex::new(read_rules(rules)),
            changes: watch::channel(0).0,
            records: Mutex::default(),
            decided: Mutex::default(),
            thinks: AtomicBool::new(false),
        }
    }

    pub fn revoke_everything(&self) {
        *self.rules.lock().unwrap() = HostRules::default();
        self.changes.send_modify(|version| *version += 1);
    }

    pub fn change_nothing(&self) {
        self.changes.send_modify(|version| *version += 1);
    }
}

impl Doorkeeper for Keeper {
    fn glance(&self, host: &HostName) -> Glance {
        self.rules.lock().unwrap().glance(host)
    }

    fn decide<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            while self.thinks.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.decided.lock().unwrap().push(format!("{host}:{port}"));
            self.rules.lock().unwrap().rule(host, port)
        })
    }

    fn still(&self, host: &HostName, port: u16) -> bool {
        self.rules.lock().unwrap().find(host, port).is_some()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn note(&self, record: ConnectionRecord) {
        self.records.lock().unwrap().push(record);
    }
}

fn read_rules(text: &str) -> HostRules {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        host: HostRules,
    }
    toml::from_str::<File>(text).unwrap().host
}

/// A resolver that knows a table and remembers what it was asked.
pub struct Table {
    pub names: Mutex<HashMap<String, Vec<IpAddr>>>,
    pub asked: Mutex<Vec<String>>,
}

impl Table {
    /// One that knows one name.
    pub fn of(name: &str, address: IpAddr) -> Self {
        Self { names: Mutex::new([(name.to_owned(), vec![address])].into()), asked: Mutex::default() }
    }
}

impl Resolve for Table {
    fn resolve<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(host.to_string());
            self.names.lock().unwrap().get(host.as_str()).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }
}

pub fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// A certificate as text.
pub fn pem(certificate: &CertificateDer<'_>) -> String {
    use std::fmt::Write as _;
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "-----BEGIN CERTIFICATE-----".to_owned();
    for (number, three) in certificate.chunks(3).enumerate() {
        if number % 16 == 0 {
            text.push('\n');
        }
        let bits = three.iter().fold(0_usize, |bits, &byte| bits << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * place) & 63]);
            text.push(if place > three.len() { '=' } else { digit });
        }
    }
    let _ = writeln!(text, "\n-----END CERTIFICATE-----");
    text
}

/// Reads until the other side closes or resets.
pub async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await.expect("an end");
    bytes
}

/// Reads a head, byte by byte, so that nothing behind it is taken.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tokio::time::timeout(Duration::from_secs(10), stream.read_u8()).await.expect("a head") {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

pub fn status_of(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

pub fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

/// Whether the other side has closed or reset within a time.
pub async fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    tokio::time::timeout(time, async { while matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {} }).await.is_ok()
}
