//! Checkpoints reach their sinks, and a sink that does not work holds up nobody.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use palyra_journal::{
    Checkpoint, CheckpointSink, FileSink, JournalStore, Pace, Publisher, SinkError, SqliteJournal, Trust, WebhookSink,
    sink::saved_checkpoints, verify,
};
use palyra_types::Clock;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivatePkcs8KeyDer};

use crate::lab::{Lab, commit, record, wait};

/// What the server does with a request.
const KEEPS: u8 = 0;
const FAILS: u8 = 1;
const IS_SLOW: u8 = 2;

/// What the first message of TLS starts with, and no request does.
const TLS: u8 = 0x16;

/// A server that keeps what it is sent, when it feels like it.
struct Server {
    address: SocketAddr,
    mood: Arc<AtomicU8>,
    kept: Arc<Mutex<Vec<String>>>,
    /// All that came, whatever it was.
    came: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    fn start() -> Self {
        Self::speaking(None)
    }

    /// A server that speaks TLS if it has a certificate.
    fn speaking(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { address, mood: Arc::default(), kept: Arc::default(), came: Arc::default() };
        let (mood, kept, came) = (Arc::clone(&server.mood), Arc::clone(&server.kept), Arc::clone(&server.came));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = Tapped { stream: stream.unwrap(), came: Arc::clone(&came) };
                let (mood, kept, tls) = (mood.load(Ordering::SeqCst), Arc::clone(&kept), tls.clone());
                std::thread::spawn(move || match tls {
                    None => serve(&mut { stream }, mood, &kept),
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        serve(&mut StreamOwned::new(connection, stream), mood, &kept);
                    }
                });
            }
        });
        server
    }

    fn sink(&self) -> Box<dyn CheckpointSink> {
        let address = format!("http://{}/hook?token=hush", self.address);
        Box::new(WebhookSink::new(&address, Duration::from_millis(300)).unwrap())
    }

    /// A sink that trusts this authority.
    fn tls_sink(&self, authority: &str) -> Box<dyn CheckpointSink> {
        let address = format!("https://localhost:{}/hook?token=hush", self.address.port());
        Box::new(WebhookSink::trusting(&address, Duration::from_secs(5), authority).unwrap())
    }

    fn is(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    fn kept(&self) -> Vec<String> {
        self.kept.lock().unwrap().clone()
    }
}

/// A stream that remembers all that came.
struct Tapped {
    stream: TcpStream,
    came: Arc<Mutex<Vec<u8>>>,
}

impl Read for Tapped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.came.lock().unwrap().extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

impl Write for Tapped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn serve(stream: &mut (impl Read + Write), mood: u8, kept: &Mutex<Vec<String>>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    let body = loop {
        let read = stream.read(&mut buffer).unwrap_or(0);
        bytes.extend_from_slice(&buffer[..read]);
        if bytes.first() == Some(&TLS) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
            return;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0_usize) {
                assert!(head.starts_with("POST /hook?token=hush HTTP/1.1"), "{head}");
                break body.to_owned();
            }
        }
        if read == 0 {
            return;
        }
    };
    match mood {
        FAILS => drop(stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")),
        IS_SLOW => std::thread::sleep(Duration::from_secs(2)),
        _ => {
            kept.lock().unwrap().push(body);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    }
}

/// A certificate authority of the test's own.
struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    fn named(name: &str) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// What a server of this name, whose certificate ends in this year, shows.
    fn server(&self, name: &str, until: i32) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let config = ServerConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = config.unwrap().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.unwrap())
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "it took too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const SOON: Pace = Pace { every: Duration::from_millis(50), records: 1_000, retry: Duration::from_millis(30) };

fn publish(lab: &Lab, journal: &Arc<SqliteJournal>, sinks: Vec<Box<dyn CheckpointSink>>, pace: Pace) -> Publisher {
    let (journal, clock): (Arc<dyn JournalStore>, Arc<dyn Clock>) = (journal.clone(), lab.clock.clone());
    Publisher::start(&journal, sinks, pace, &clock).unwrap()
}

#[test]
fn a_webhook_that_fails_in_any_way_gets_the_newest_checkpoint_once_it_works() {
    let (lab, server) = (Lab::new(), Server::start());
    let journal = Arc::new(lab.open());
    let publisher = publish(&lab, &journal, vec![server.sink()], SOON);
    let newest = || wait(journal.checkpoint()).unwrap();
    let has_newest = || server.kept().last() == Some(&newest());
    until("the first checkpoint is there", has_newest);
    for (mood, error) in [(FAILS, "it answered 503"), (IS_SLOW, "it did not answer in time")] {
        server.is(mood);
        let before = server.kept().len();
        for n in 0..20 {
            // Nobody waits for the sink.
            let start = Instant::now();
            commit(&journal, vec![record(&lab, n)]);
            assert!(start.elapsed() < Duration::from_secs(1));
        }
        until("it is seen to fail", || {
            publisher.status()[0].failing.as_ref().is_some_and(|failing| failing.attempts > 1)
        });
        let status = publisher.status().remove(0);
        assert_eq!(status.failing.unwrap().error, error);
        assert_eq!(status.sink, format!("http://{}", server.address));
        server.is(KEEPS);
        until("it works again", has_newest);
        until("it is seen to work", || publisher.status()[0].failing.is_none());
        // Of the twenty checkpoints that it missed, it got the last, and at most one that was on its way.
        assert!(server.kept().len() <= before + 2, "{}", server.kept().len() - before);
    }
    for note in server.kept() {
        Checkpoint::open(&note, &lab.key()).unwrap();
    }
}

#[test]
fn an_https_webhook_of_an_authority_that_is_trusted_gets_checkpoints_that_nobody_can_read_on_the_way() {
    let (lab, authority) = (Lab::new(), Authority::named("ours"));
    let server = Server::speaking(Some(authority.server("localhost", 2100)));
    let journal = Arc::new(lab.open());
    let publisher = publish(&lab, &journal, vec![server.tls_sink(&authority.1)], SOON);
    let has_newest = || server.kept().last() == Some(&wait(journal.checkpoint()).unwrap());
    until("the first checkpoint is there", has_newest);
    commit(&journal, vec![record(&lab, 1)]);
    until("the next checkpoint is there", has_newest);
    let status = publisher.close().remove(0);
    assert_eq!((status.failing, status.published.as_ref()), (None, server.kept().last()));
    let came = server.came.lock().unwrap().clone();
    for readable in ["POST", "hush", lab.key().name()] {
        assert!(!String::from_utf8_lossy(&came).contains(readable), "{readable}");
    }
}

#[test]
fn an_https_webhook_that_does_not_show_a_good_certificate_gets_nothing_and_is_seen() {
    let (authority, other) = (Authority::named("ours"), Authority::named("theirs"));
    for (why, tls) in [
        ("UnknownIssuer", Some(other.server("localhost", 2100))),
        ("not valid for name", Some(authority.server("elsewhere.example", 2100))),
        ("expired", Some(authority.server("localhost", 2021))),
        // It speaks no TLS at all.
        ("corrupt message", None),
    ] {
        let lab = Lab::new();
        let journal = Arc::new(lab.open());
        let server = Server::speaking(tls);
        let publisher = publish(&lab, &journal, vec![server.tls_sink(&authority.1)], SOON);
        until("it is tried again", || {
            publisher.status()[0].failing.as_ref().is_some_and(|failing| failing.attempts > 1)
        });
        let status = publisher.close().remove(0);
        let error = status.failing.unwrap().error;
        assert!(error.starts_with("it cannot be reached: ") && !error.contains("hush"), "{why}: {error}");
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!((status.published, server.kept()), (None, Vec::new()), "{why}");
        let came = String::from_utf8_lossy(&server.came.lock().unwrap()).into_owned();
        assert!(!came.is_empty() && !came.contains("POST") && !came.contains("hush"), "{why}: {came}");
    }
}

#[test]
fn authorities_that_are_none_are_refused() {
    let authority = Authority::named("ours").1;
    let sink = |address, authorities: &str| WebhookSink::trusting(address, Duration::from_secs(1), authorities).err();
    assert!(sink("https://localhost/", &authority).is_none());
    for (address, authorities) in [
        ("https://localhost/", ""),
        ("https://localhost/", "nonsense"),
        ("https://localhost/", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("https://localhost/", "-----BEGIN CERTIFICATE-----\nAAAA"),
        // Nothing shows a certificate there, so whoever names an authority means another address.
        ("http://localhost/", authority.as_str()),
    ] {
        let refused = sink(address, authorities);
        assert!(matches!(refused, Some(SinkError::Authority(_))), "{address} {authorities}: {refused:?}");
    }
}

#[test]
fn nobody_listening_is_seen_and_tried_again() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sink = WebhookSink::new(&format!("http://{free}/"), Duration::from_millis(300)).unwrap();
    let publisher = publish(&lab, &journal, vec![Box::new(sink)], SOON);
    until("it is tried again", || publisher.status()[0].failing.as_ref().is_some_and(|failing| failing.attempts > 2));
    let failing = publisher.status().remove(0).failing.unwrap();
    assert_eq!(failing.since, lab.now());
    assert!(failing.error.starts_with("it cannot be reached: "), "{}", failing.error);
    let start = Instant::now();
    assert_eq!(publisher.close()[0].published, None);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_file_gets_a_checkpoint_after_so_many_records_and_at_the_end() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("checkpoints");
    let pace = Pace { every: Duration::from_secs(3_600), records: 10, ..Pace::default() };
    let sink = FileSink::new(&path, lab.path()).unwrap();
    let publisher = publish(&lab, &journal, vec![Box::new(sink)], pace);
    let saved = || saved_checkpoints(&fs::read_to_string(&path).unwrap_or_default());
    until("the first checkpoint is there", || saved().len() == 1);
    for n in 0..10 {
        commit(&journal, vec![record(&lab, n)]);
    }
    until("the second checkpoint is there", || saved().len() == 2);
    commit(&journal, vec![record(&lab, 11)]);
    assert_eq!(saved().len(), 2);
    let status = publisher.close();
    assert_eq!(status[0].published, Some(wait(journal.checkpoint()).unwrap()));
    let sizes: Vec<_> = saved().iter().map(|note| Checkpoint::open(note, &lab.key()).unwrap().size).collect();
    assert_eq!(sizes, [1, 11, 12]);
    let trust = Trust { key: Some(lab.key()), checkpoints: saved() };
    assert_eq!(verify(lab.path(), &trust, &mut |_, _| {}).unwrap().records, 12);
}

#[test]
fn an_address_that_is_none_is_refused_without_its_secrets() {
    for address in ["ftp://host/x", "nonsense", "https://", "/path?token=hush"] {
        let refused = WebhookSink::new(address, Duration::from_secs(1)).unwrap_err();
        assert!(matches!(refused, SinkError::Address), "{address}");
    }
    let sink = WebhookSink::new("https://user:hush@example.org:8443/hush?token=hush", Duration::from_secs(1)).unwrap();
    assert_eq!(sink.name(), "https://example.org:8443");
}
