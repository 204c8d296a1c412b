//! Checkpoints reach their sinks, and a sink that does not work holds up nobody.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod lab;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use lab::{Lab, commit, record, wait};
use palyra_journal::{
    Checkpoint, CheckpointSink, FileSink, JournalStore, Pace, Publisher, SinkError, SqliteJournal, Trust, WebhookSink,
    sink::saved_checkpoints, verify,
};
use palyra_types::Clock;

/// What the server does with a request.
const KEEPS: u8 = 0;
const FAILS: u8 = 1;
const IS_SLOW: u8 = 2;

/// A server that keeps what it is sent, when it feels like it.
struct Server {
    address: SocketAddr,
    mood: Arc<AtomicU8>,
    kept: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mood, kept) = (Arc::new(AtomicU8::new(KEEPS)), Arc::new(Mutex::new(Vec::new())));
        let (its_mood, its_kept) = (Arc::clone(&mood), Arc::clone(&kept));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mood, kept) = (Arc::clone(&its_mood), Arc::clone(&its_kept));
                std::thread::spawn(move || serve(&mut stream.unwrap(), mood.load(Ordering::SeqCst), &kept));
            }
        });
        Self { address, mood, kept }
    }

    fn sink(&self) -> Box<dyn CheckpointSink> {
        let address = format!("http://{}/hook?token=hush", self.address);
        Box::new(WebhookSink::new(&address, Duration::from_millis(300)).unwrap())
    }

    fn is(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    fn kept(&self) -> Vec<String> {
        self.kept.lock().unwrap().clone()
    }
}

fn serve(stream: &mut TcpStream, mood: u8, kept: &Mutex<Vec<String>>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    let body = loop {
        let read = stream.read(&mut buffer).unwrap_or(0);
        bytes.extend_from_slice(&buffer[..read]);
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
