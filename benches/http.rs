//! What the daemon costs over HTTP, in one run: calls that policy denies because agents may only look around, decided and durable, next to a
//! bare axum route that answers a JSON body with JSON, and the same asked by a program that would run it itself; how soon the daemon is ready
//! on existing state; its memory when idle; and how soon the command says its version, and decides as a hook.
//!
//! Both servers are processes of their own, asked by the same load over the same number of connections, in turns. The programs are those
//! that this profile built, which `make bench` does first. A missed target ends the program with an error.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::panic,
    reason = "a measurement that cannot be made ends, and it starts what it measures"
)]

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
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
use palyra_benches::{
    daemon::{Daemon, program},
    judge, median, middle, millis,
};
use tokio::net::TcpStream;

const CONNECTIONS: usize = 64;
const AGENTS: usize = 16;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(1_500);

fn main() -> std::process::ExitCode {
    if std::env::var_os(BARE).is_some() {
        serve_bare();
        return std::process::ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut daemon = Daemon::start();
    let idle = resident_after_a_rest(&daemon);
    let (bare, bare_address) = bare();
    let (mut floor, mut denied, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    let tokens = daemon.tokens(AGENTS);
    let bare_requests = [bare_request(bare_address)];
    let calls = requests(&daemon, &tokens, "/api/v1/calls");
    let hooks = requests(&daemon, &tokens, "/api/v1/authorize");
    for _ in 0..ROUNDS {
        floor.push(runtime.block_on(load(bare_address, &bare_requests, StatusCode::OK)));
        denied.push(runtime.block_on(load(daemon.local(), &calls, StatusCode::FORBIDDEN)));
        asked.push(runtime.block_on(load(daemon.local(), &hooks, StatusCode::OK)));
    }
    end(bare);
    let (version, hook) = started(&daemon, tokens.first().unwrap());
    let records = daemon.stop();
    let ready = ready_times(&mut daemon);
    let (floor, denied, asked) = (middle(floor), middle(denied), middle(asked));
    let (share, hook_share) = (denied / floor * 100.0, asked / floor * 100.0);
    println!("bare axum JSON route     {floor:>9.0} requests/s over {CONNECTIONS} connections");
    println!("denied calls, durable    {denied:>9.0} requests/s ({share:.1} %), {records} bytes of journal");
    println!("denied hooks, durable    {asked:>9.0} requests/s ({hook_share:.1} %)");
    println!("ready on existing state  {:>9.1} ms, median of {}", millis(median(ready.clone())), ready.len());
    println!("idle memory              {:>9.1} MB", idle as f64 / 1_024.0);
    println!("palyra --version         {:>9.1} ms", millis(version));
    println!("palyra hook claude-code  {:>9.1} ms, decided and durable", millis(hook));
    judge(&[
        ("denied calls ≥ 15 % of a bare route", share >= 15.0),
        ("ready ≤ 200 ms", median(ready) <= Duration::from_millis(200)),
        ("idle memory ≤ 40 MB", idle <= 40 * 1_024),
        ("--version ≤ 20 ms", version <= Duration::from_millis(20)),
    ])
}

/// Asks over many connections for a while, and says how many requests were answered each second.
async fn load(address: SocketAddr, requests: &[Arc<Template>], expected: StatusCode) -> f64 {
    let begun = Instant::now();
    let mut workers = Vec::new();
    for request in requests.iter().cycle().take(CONNECTIONS) {
        let request = Arc::clone(request);
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

fn bare_request(address: SocketAddr) -> Arc<Template> {
    Arc::new(Template { host: address.to_string(), path: "/", bearer: "Bearer none".to_owned() })
}

/// What agents ask for. There are some of them, because each has a pace of its own that one alone would reach.
fn requests(daemon: &Daemon, tokens: &[String], path: &'static str) -> Vec<Arc<Template>> {
    let host = daemon.local().to_string();
    let request = |token: &String| Template { host: host.clone(), path, bearer: format!("Bearer {token}") };
    tokens.iter().map(|token| Arc::new(request(token))).collect()
}

/// The memory that a daemon takes a moment after its start, in kB.
fn resident_after_a_rest(daemon: &Daemon) -> u64 {
    std::thread::sleep(Duration::from_secs(2));
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn ready_times(daemon: &mut Daemon) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..11 {
        times.push(daemon.up());
        daemon.stop();
    }
    times
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

/// How long the command takes to say its version, and to decide as a hook, in turns.
fn started(daemon: &Daemon, token: &str) -> (Duration, Duration) {
    let asked = r#"{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls -l"},"cwd":"/"}"#;
    let mut hook = Command::new(program("palyra"));
    hook.args(["hook", "claude-code"]).env("PALYRA_HOME", daemon.state()).env("PALYRA_TOKEN", token);
    hook.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut version = Command::new(program("palyra"));
    version.arg("--version").stdout(Stdio::null());
    let (mut said, mut decided) = (Vec::new(), Vec::new());
    for _ in 0..61 {
        said.push(palyra_benches::time(|| version.status().unwrap()));
        decided.push(palyra_benches::time(|| {
            let mut child = hook.spawn().unwrap();
            child.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).contains("permissionDecision"), "{output:?}");
        }));
    }
    (median(said), median(decided))
}

const BARE: &str = "PALYRA_BENCH_BARE";
