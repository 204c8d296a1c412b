//! A thousand clients that stream at once through the facade: nothing is lost, memory is steady, and whoever reads slowly holds up nobody else.
//!
//! The daemon is a process of its own, and so in effect is the server of models: a thread with a runtime of its own that does next to nothing.
//! Figures are printed; `cargo nextest run -p palyra-tests -E 'test(/^compat_load::/)' --no-capture` shows them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a test that cannot go on ends, and it tells what it measured"
)]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use palyra_api::{member::SetFlag, token::NewToken};
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan},
    token::token,
    torrent::Torrent,
    until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
};

const CLIENTS: usize = 1_000;
const EVENTS: usize = 150;
const OTHERS: usize = 200;
const SLOW: usize = 50;

struct Hall {
    lab: DaemonLab,
    torrent: Torrent,
    tokens: Vec<String>,
}

impl Hall {
    async fn open() -> Self {
        let torrent = Torrent::start();
        let provider =
            format!("[[provider]]\nname = \"lab\"\nbase_url = \"{}\"\nmodels = {{ gpt = \"m\" }}", torrent.url());
        let lab = DaemonPlan::default().config(&provider).start();
        let owner = lab.owner();
        owner.set_flag("compat_api", &SetFlag { on: true }).await.unwrap();
        let mut tokens = Vec::new();
        for number in 0..4 {
            let new = NewToken {
                per_minute: Some(100_000),
                concurrent: Some(1_000),
                ..token(&format!("agent:load-{number}"), &["compat.chat.create"])
            };
            tokens.push(owner.mint_token(&new).await.unwrap().secret);
        }
        Self { lab, torrent, tokens }
    }

    fn request(&self, client: usize, body: &str) -> String {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.lab.local(),
            self.tokens[client % self.tokens.len()],
            body.len()
        )
    }

    /// How long the slowest hundredth of a wave took, in the quietest of three: what else the machine does only adds.
    async fn best_of_three(&self) -> Duration {
        let mut best = Duration::MAX;
        for _ in 0..3 {
            best = best.min(percentile(&mut self.wave(OTHERS).await.0, 99));
        }
        best
    }

    /// So many clients, all of whose streams are open before any goes on. Says how long each took from then on, and the most memory the
    /// daemon held meanwhile, in kB.
    async fn wave(&self, clients: usize) -> (Vec<Duration>, u64) {
        self.torrent.release(false);
        let already = self.torrent.open();
        let watch = Memory::watch(self.lab.pid());
        let body = format!(
            r#"{{"model":"gpt","stream":true,"messages":[],"lab_events":{EVENTS},"lab_bytes":40,"lab_waits":true}}"#
        );
        let mut reading = JoinSet::new();
        for client in 0..clients {
            reading.spawn(read_all(self.lab.local(), self.request(client, &body)));
        }
        let all_open = async {
            while self.torrent.open() < already + clients {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(40), all_open).await.expect("all streams are open in time");
        let begun = Instant::now();
        self.torrent.release(true);
        let mut times = Vec::new();
        while let Some(ended) = reading.join_next().await {
            times.push(ended.unwrap().saturating_duration_since(begun));
        }
        (times, watch.most())
    }
}

/// Reads a stream to its end, checks that its events are all there and in order, and says when it was over.
async fn read_all(at: SocketAddr, request: String) -> Instant {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let (mut next, mut from) = (0_usize, 0_usize);
    loop {
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_buf(&mut bytes)).await;
        assert!(read.expect("something to read in time").unwrap() > 0, "it broke off at {next}");
        let text = std::str::from_utf8(&bytes).unwrap();
        while let Some(at) = text[from..].find(MARK) {
            let begins = from + at + MARK.len();
            let Some(length) = text[begins..].find(':') else { break };
            assert_eq!(text[begins..begins + length].parse::<usize>().unwrap(), next, "an event is missing");
            next += 1;
            from = begins + length;
        }
        if text[from..].contains("data: [DONE]") {
            assert_eq!(next, EVENTS);
            return Instant::now();
        }
        bytes.drain(..from);
        from = 0;
    }
}

const MARK: &str = "\"content\":\"";

/// Asks for a lot, and reads a byte of it each second, until it is dropped.
fn read_slowly(at: SocketAddr, request: String) -> JoinHandle<()> {
    tokio::spawn(async move {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stream = socket.connect(at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).await.is_ok_and(|read| read > 0) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// How much memory a process holds at the most.
struct Memory {
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Memory {
    fn watch(pid: u32) -> Self {
        let (most, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (noting, ending) = (Arc::clone(&most), Arc::clone(&over));
        std::thread::spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                noting.fetch_max(resident(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self { most, over }
    }

    fn most(&self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.most.load(Ordering::Relaxed)
    }
}

fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The time of the processor that a process has used, in ticks of ten milliseconds.
fn processor_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    behind_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_stream_at_once_and_lose_nothing() {
    let hall = Hall::open().await;
    // What is made once, such as connections that are kept and what the allocator does not give back, is made before anything is compared.
    hall.wave(CLIENTS).await;
    let before = resident(hall.lab.pid());
    let (mut first, first_most) = hall.wave(CLIENTS).await;
    let between = resident(hall.lab.pid());
    let (mut second, second_most) = hall.wave(CLIENTS).await;
    let after = resident(hall.lab.pid());
    for (name, times, most) in [("first", &mut first, first_most), ("second", &mut second, second_most)] {
        let (half, nearly_all) = (percentile(times, 50), percentile(times, 99));
        println!(
            "{name} wave: {CLIENTS} streams of {EVENTS} events, p50 {half:.2?}, p99 {nearly_all:.2?}, at most {most} kB"
        );
    }
    println!("memory: before {before} kB, between {between} kB, after {after} kB");
    println!("peak of the second wave against the first: {:.2}", second_most as f64 / first_most as f64);
    assert_eq!((first.len(), second.len()), (CLIENTS, CLIENTS));
    assert!(second_most * 10 <= first_most * 11, "{first_most} kB, then {second_most} kB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_a_byte_a_second_hold_up_nobody_else() {
    let hall = Hall::open().await;
    hall.wave(OTHERS).await;
    let alone = hall.best_of_three().await;
    let body = r#"{"model":"gpt","stream":true,"messages":[],"lab_events":4000,"lab_bytes":4096}"#;
    let before = resident(hall.lab.pid());
    let slow: Vec<_> = (0..SLOW).map(|client| read_slowly(hall.lab.local(), hall.request(client, body))).collect();
    until(|| async { hall.torrent.open() == SLOW }).await;
    // Until their buffers are full, and everything waits for them.
    let (ticks, pid) = (AtomicU64::new(0), hall.lab.pid());
    until(|| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = processor_ticks(pid);
        now.saturating_sub(ticks.swap(now, Ordering::SeqCst)) <= 1
    })
    .await;
    let held = resident(hall.lab.pid()).saturating_sub(before);
    let beside = hall.best_of_three().await;
    assert_eq!(hall.torrent.open(), SLOW, "those that read slowly are still being answered");
    println!("p99 of {OTHERS} streams: alone {alone:.2?}, beside {SLOW} that read a byte a second {beside:.2?}");
    println!("held for those that read slowly: {held} kB");
    assert!(beside <= alone * 2 + Duration::from_millis(500), "alone {alone:.2?}, beside {beside:.2?}");
    assert!(held < 100_000, "{held} kB are held for {SLOW} that read slowly");
    for reading in slow {
        reading.abort();
    }
    until(|| async { hall.torrent.open() == 0 }).await;
}
