//! What the facade costs a client of a model that is passed through: a whole answer, and the first event of a stream, by way of the daemon and
//! straight from the same server of models, in turns in one run. Beside them what one sync costs here, because nothing is sent that is not
//! durably on record. A missed target ends the program with an error.

#![allow(clippy::expect_used, reason = "a measurement that cannot be set up ends")]

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use palyra_benches::{
    daemon::{Daemon, DaemonPlan},
    judge, median, millis,
    place::directory,
    processor, time,
};
use palyra_tests::torrent::Torrent;

const ROUNDS: usize = 2_000;

fn main() -> std::process::ExitCode {
    let torrent = Torrent::start();
    let provider =
        format!("[[provider]]\nname = \"lab\"\nbase_url = \"{}\"\nmodels = {{ gpt = \"m\" }}\n", torrent.url());
    let daemon = Daemon::start_with(&DaemonPlan { config: &provider, ..DaemonPlan::default() });
    daemon.switch_on("compat_api");
    let token = daemon.tokens_for(&["compat.chat.create"], 1).remove(0);
    let home = directory();
    let mut log = File::create(home.path().join("log")).expect("a file");
    let (mut direct, mut passed) =
        (Conversation::with(torrent.address(), ""), Conversation::with(daemon.local(), &token));
    for _ in 0..ROUNDS / 10 {
        let _ = (direct.whole(), passed.whole(), direct.first_event(), passed.first_event());
    }
    let mut parts: [Vec<Duration>; 5] = Default::default();
    let [direct_whole, whole, direct_first, first, sync] = &mut parts;
    let busy = processor::time_of_process(daemon.pid());
    for _ in 0..ROUNDS {
        direct_whole.push(direct.whole());
        whole.push(passed.whole());
        direct_first.push(direct.first_event());
        first.push(passed.first_event());
        sync.push(time(|| {
            log.write_all(&[7; 4_096]).expect("it writes");
            log.sync_data().expect("it syncs");
        }));
    }
    let busy = processor::time_of_process(daemon.pid()).saturating_sub(busy);
    let [direct_whole, whole, direct_first, first, sync] = parts.map(median);
    let (added, added_first) = (whole.saturating_sub(direct_whole), first.saturating_sub(direct_first));
    println!("a whole answer, straight from the server       {:>8.3} ms", millis(direct_whole));
    println!(
        "a whole answer, passed through                 {:>8.3} ms   added {:.3} ms",
        millis(whole),
        millis(added)
    );
    println!("first event, straight from the server          {:>8.3} ms", millis(direct_first));
    println!(
        "first event, passed through                    {:>8.3} ms   added {:.3} ms",
        millis(first),
        millis(added_first)
    );
    println!("one sync of 4 KiB                              {:>8.3} ms", millis(sync));
    let requests = u32::try_from(ROUNDS * 2).unwrap_or(u32::MAX);
    println!("the daemon on a processor, for each request    {:>8.3} ms", millis(busy / requests));
    judge(&[
        ("passing a whole answer through adds at most 1 ms (p50)", added <= Duration::from_millis(1)),
        (
            "passing the first event of a stream through adds at most 1 ms (p50)",
            added_first <= Duration::from_millis(1),
        ),
    ])
}

/// A connection on which a chat is asked for again and again.
struct Conversation {
    stream: TcpStream,
    whole: Vec<u8>,
    streamed: Vec<u8>,
    read: Vec<u8>,
}

impl Conversation {
    fn with(to: SocketAddr, token: &str) -> Self {
        let stream = TcpStream::connect(to).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let request = |streams: bool| {
            let body = format!(
                r#"{{"model":"gpt","stream":{streams},"lab_events":5,"lab_bytes":20,"messages":[{{"role":"user","content":"hi"}}]}}"#
            );
            let length = body.len();
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .into_bytes()
        };
        Self { stream, whole: request(false), streamed: request(true), read: Vec::new() }
    }

    /// How long a whole answer takes.
    fn whole(&mut self) -> Duration {
        let request = self.whole.clone();
        self.ask(&request, b"\"completion_tokens\":1}}\n\n")
    }

    /// How long it takes until the first event of a stream is there, the rest of which is read as well.
    fn first_event(&mut self) -> Duration {
        let request = self.streamed.clone();
        let took = self.ask(&request, b"\"content\":\"0:");
        self.until(b"\r\n0\r\n\r\n");
        took
    }

    fn ask(&mut self, request: &[u8], end: &[u8]) -> Duration {
        self.read.clear();
        let begun = Instant::now();
        self.stream.write_all(request).expect("the server takes it");
        self.until(end);
        let took = begun.elapsed();
        assert!(self.read.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&self.read));
        took
    }

    fn until(&mut self, end: &[u8]) {
        while !self.read.windows(end.len()).any(|window| window == end) {
            let mut piece = [0; 16 << 10];
            let count = self.stream.read(&mut piece).expect("the server answers");
            assert!(count > 0, "the server hung up: {}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(piece.get(..count).unwrap_or_default());
        }
    }
}
