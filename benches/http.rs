//! What the daemon costs over HTTP, in one run: calls that policy denies because agents may only look around, decided and durable, next to a
//! bare axum route that answers a JSON body with JSON; how soon the daemon is ready on existing state; its memory when idle; and how soon
//! the command says its version.
//!
//! Both servers are processes of their own, asked by the same load over the same number of connections, in turns. The programs are taken from
//! the directory of the `dist` profile, which `make bench` builds first. A missed target ends the program with an error.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::panic,
    reason = "a measurement that cannot be made ends, and it starts what it measures"
)]

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, http::header, routing::post};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use palyra_benches::{judge, median};
use palyra_client::{Client, Endpoint};
use tokio::net::TcpStream;

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(1_500);

fn main() {
    if std::env::var_os(BARE).is_some() {
        return serve_bare();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let version = version();
    let mut daemon = Daemon::start();
    let idle = daemon.resident_after_a_rest();
    let (bare, bare_address) = bare();
    let (mut floor, mut denied) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor.push(runtime.block_on(load(bare_address, Arc::new(bare_request(bare_address)), StatusCode::OK)));
        let request = Arc::new(daemon.request());
        denied.push(runtime.block_on(load(daemon.local, request, StatusCode::FORBIDDEN)));
    }
    end(bare);
    let records = daemon.stop();
    let ready = daemon.ready_times();
    let (floor, denied) = (middle(floor), middle(denied));
    let share = denied / floor * 100.0;
    println!("bare axum JSON route     {floor:>9.0} requests/s over {CONNECTIONS} connections");
    println!("denied calls, durable    {denied:>9.0} requests/s ({share:.1} %), {records} bytes of journal");
    println!("ready on existing state  {:>9.1} ms, median of {}", millis(median(ready.clone())), ready.len());
    println!("idle memory              {:>9.1} MB", idle as f64 / 1_024.0);
    println!("palyra --version         {:>9.1} ms", millis(version));
    judge(&[
        ("denied calls ≥ 15 % of a bare route", share >= 15.0),
        ("ready ≤ 200 ms", median(ready) <= Duration::from_millis(200)),
        ("idle memory ≤ 40 MB", idle <= 40 * 1_024),
        ("--version ≤ 20 ms", version <= Duration::from_millis(20)),
    ]);
}

/// Asks over many connections for a while, and says how many requests were answered each second.
async fn load(address: SocketAddr, request: Arc<Template>, expected: StatusCode) -> f64 {
    let begun = Instant::now();
    let mut workers = Vec::new();
    for _ in 0..CONNECTIONS {
        let request = Arc::clone(&request);
        workers.push(tokio::spawn(async move {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let mut answered = 0_u64;
            while begun.elapsed() < ROUND {
                let response = sender.send_request(request.make()).await.unwrap();
                assert_eq!(response.status(), expected);
                response.into_body().collect().await.unwrap();
                answered += 1;
            }
            answered
        }));
    }
    let mut answered = 0;
    for worker in workers {
        answered += worker.await.unwrap();
    }
    answered as f64 / begun.elapsed().as_secs_f64()
}

/// A request to be sent again and again.
struct Template {
    host: String,
    path: &'static str,
    bearer: String,
}

impl Template {
    /// Every request is about something else.
    fn make(&self) -> Request<Full<Bytes>> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let body = format!(r#"{{"tool":"process.run","args":{{"command":["ls","-l","file-{number}"]}}}}"#);
        Request::post(self.path)
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, &self.bearer)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap()
    }
}

fn bare_request(address: SocketAddr) -> Template {
    Template { host: address.to_string(), path: "/", bearer: "Bearer none".to_owned() }
}

/// A daemon with a state directory of its own, on a real disk.
struct Daemon {
    home: tempfile::TempDir,
    local: SocketAddr,
    child: Option<Child>,
}

impl Daemon {
    fn start() -> Self {
        let home = tempfile::Builder::new().prefix("palyra-bench").tempdir_in(home()).unwrap();
        let (control, local) = (free(), free());
        let workspace = home.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let state = home.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let config = format!(
            "[listen]\ncontrol = \"{control}\"\nlocal = \"{local}\"\n[log]\nlevel = \"warn\"\n[policy]\npreset = \"observe\"\n[[workspace]]\nname = \"lab\"\npath = \"{}\"\n",
            workspace.display()
        );
        std::fs::write(state.join("config.toml"), config).unwrap();
        assert!(Command::new("chmod").args(["-R", "go="]).arg(&state).status().unwrap().success());
        let mut daemon = Self { home, local, child: None };
        daemon.up();
        daemon
    }

    /// Starts it, and says how long it took until it was ready.
    fn up(&mut self) -> Duration {
        let begun = Instant::now();
        let mut command = Command::new(program("palyrad"));
        self.child = Some(command.env("PALYRA_HOME", self.home.path().join("state")).spawn().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::local(Endpoint::parse(&format!("http://{}", self.local)).unwrap());
        while !runtime.block_on(client.readiness()).is_ok_and(|readiness| readiness.ready) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not get ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        begun.elapsed()
    }

    fn request(&self) -> Template {
        let token = std::fs::read_to_string(self.home.path().join("state/identity/agent.token")).unwrap();
        Template { host: self.local.to_string(), path: "/api/v1/calls", bearer: format!("Bearer {}", token.trim()) }
    }

    /// The memory it takes a moment after its start, in kB.
    fn resident_after_a_rest(&self) -> u64 {
        std::thread::sleep(Duration::from_secs(2));
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.as_ref().unwrap().id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Stops it, and says how large its journal is.
    fn stop(&mut self) -> u64 {
        let mut child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        assert!(child.wait().unwrap().success());
        std::fs::metadata(self.home.path().join("state/journal/journal.db")).unwrap().len()
    }

    fn ready_times(&mut self) -> Vec<Duration> {
        let mut times = Vec::new();
        for _ in 0..11 {
            times.push(self.up());
            self.stop();
        }
        times
    }
}

/// Serves what a route costs that reads a JSON body and answers with JSON, and nothing else.
fn serve_bare() {
    // As many threads as the daemon has.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(echo));
        axum::serve(listener, router).await.unwrap();
    });
}

async fn echo(body: Bytes) -> ([(header::HeaderName, &'static str); 1], Vec<u8>) {
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let answer = serde_json::json!({ "error": { "code": "denied", "message": value.get("tool"), "help": "none" } });
    ([(header::CONTENT_TYPE, "application/json")], serde_json::to_vec(&answer).unwrap())
}

fn bare() -> (Child, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.env(BARE, "1").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn version() -> Duration {
    let times = (0..31).map(|_| {
        palyra_benches::time(|| {
            Command::new(program("palyra")).arg("--version").stdout(Stdio::null()).status().unwrap()
        })
    });
    median(times.collect())
}

/// A program of the `dist` profile.
fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    // target/<profile>/deps/<this program>
    let path = here.ancestors().nth(3).unwrap().join("dist").join(name);
    assert!(path.is_file(), "{} is not there: make dist", path.display());
    path
}

fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from)
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

const BARE: &str = "PALYRA_BENCH_BARE";
