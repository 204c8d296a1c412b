//! What the gateway costs over a server of the Model Context Protocol that is called directly, in one run: the same call, straight from the
//! server and by `tools/call` of either protocol, decided, durable and attested, in turns over one conversation each. The servers are a
//! published one, which the daemon speaks with over the pipes of an enclosure, and one at an address that does next to nothing. Beside them
//! what the protocol costs over the API itself, and one sync, because nothing runs that is not durably on record, before and after.
//!
//! The daemon is a process of its own, which `make bench` builds first. A missed target ends the program with an error.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a measurement that cannot be made ends, and it starts what it measures"
)]

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use palyra_api::mcp::{McpServer, McpSettings, McpState, PinMcpTools};
use palyra_benches::{
    daemon::{Daemon, DaemonPlan},
    judge, median, millis,
    place::directory,
    processor, time,
    wire::Wire,
};
use serde_json::{Value, json};

const ROUNDS: usize = 2_000;
const BEFORE: usize = 200;

fn main() -> std::process::ExitCode {
    let (packages, bare) = (packages(), serve_bare());
    let daemon = daemon(&packages, bare);
    let token = daemon.tokens_for(&["calls.create", "calls.read", "mcp.call"], 1).remove(0);
    let session = session(&daemon, &token);
    let (published, bare_tool) = ("mcp_everything_echo", "mcp_bare_echo");
    let by = Through { daemon: &daemon, token: &token, session: &session };
    let mut ways = [
        Way::Pipes(Box::new(Pipes::to(&packages))),
        by.stateless(published),
        by.in_session(published),
        Way::wire(bare, &request(bare, "/", &[], &call("echo", None))),
        by.stateless(bare_tool),
        by.in_session(bare_tool),
        by.natively(),
        by.stateless("daemon_status"),
    ];
    let busy = processor::time_of_process(daemon.pid());
    let (times, sync) = measure(&mut ways);
    let busy = processor::time_of_process(daemon.pid()).saturating_sub(busy);
    let asked = u32::try_from((ROUNDS + BEFORE) * 6).unwrap();
    let [pipes, pipes_stateless, pipes_session, http, http_stateless, http_session, native, status] = times;
    let row = |what: &str, took: Duration, floor: Duration| {
        let over = millis(took.saturating_sub(floor));
        println!("{what:<52} {:>8.3} ms   {over:.3} ms more", millis(took));
        over
    };
    println!("{:<52} {:>8.3} ms", "a published server, over pipes", millis(pipes));
    let over_pipes = [
        row("  behind the gateway, 2026-07-28", pipes_stateless, pipes),
        row("  behind the gateway, 2025-11-25", pipes_session, pipes),
    ];
    println!("{:<52} {:>8.3} ms", "a bare server, over HTTP", millis(http));
    let over_http = [
        row("  behind the gateway, 2026-07-28", http_stateless, http),
        row("  behind the gateway, 2025-11-25", http_session, http),
    ];
    println!("{:<52} {:>8.3} ms", "daemon.status by POST /api/v1/calls", millis(native));
    row("  by tools/call, 2026-07-28", status, native);
    println!("{:<52} {:>8.3} ms", "one sync of 4 KiB", millis(sync));
    println!("{:<52} {:>8.3} ms", "the daemon on a processor, for each call", millis(busy / asked));
    judge(&[
        ("a server over pipes costs ≤ 1 ms more behind the gateway (p50)", over_pipes.iter().all(|over| *over <= 1.0)),
        ("a server over HTTP costs ≤ 1 ms more behind the gateway (p50)", over_http.iter().all(|over| *over <= 1.0)),
    ])
}

/// Takes each way in turn, and says how long each takes, and a sync.
fn measure<const N: usize>(ways: &mut [Way; N]) -> ([Duration; N], Duration) {
    let home = directory();
    let mut log = File::create(home.path().join("log")).unwrap();
    let (mut times, mut syncs) = ([const { Vec::new() }; N], Vec::new());
    for round in 0..ROUNDS + BEFORE {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let took = time(|| way.ask());
            if round >= BEFORE {
                times.push(took);
            }
        }
        syncs.push(time(|| {
            log.write_all(&[7; 4_096]).unwrap();
            log.sync_data().unwrap();
        }));
    }
    (times.map(median), median(syncs))
}

/// A daemon with both servers behind it, whose tools run unasked.
fn daemon(packages: &Path, bare: SocketAddr) -> Daemon {
    let config = format!("[sandbox]\nread_only = [\"{}\"]\n", packages.display());
    let policies = "@id(\"measured\") @why(\"it is measured\") permit (principal, action, resource);";
    let daemon = Daemon::start_with(&DaemonPlan { preset: "cautious", config: &config, policies });
    daemon.switch_on("mcp_gateway");
    let command = vec!["node".to_owned(), program(packages), "stdio".to_owned()];
    put_behind(
        &daemon,
        "everything",
        &McpSettings { command, start_seconds: Some(60), tools: vec!["echo".to_owned()], ..McpSettings::default() },
    );
    put_behind(&daemon, "bare", &McpSettings { url: Some(format!("http://{bare}/")), ..McpSettings::default() });
    daemon
}

/// Adds a server and lets its tools count.
fn put_behind(daemon: &Daemon, name: &str, settings: &McpSettings) {
    let owner = daemon.owner();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    runtime.block_on(async {
        owner.add_mcp_server(name, settings).await.unwrap();
        let server: McpServer = loop {
            let server = owner.mcp_server(name).await.unwrap();
            if server.state == McpState::Connected {
                break server;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{server:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let fit = server.tools.iter().filter(|one| one.refused.is_none());
        let tools = fit.filter_map(|one| Some((one.tool.clone(), one.digest?))).collect();
        owner.pin_mcp_tools(name, &PinMcpTools { tools }).await.unwrap();
    });
}

/// A way to make a call, again and again.
enum Way {
    Pipes(Box<Pipes>),
    Wire(Box<Wire<TcpStream>>, Vec<u8>),
}

impl Way {
    fn wire(to: SocketAddr, request: &[u8]) -> Self {
        Self::Wire(Box::new(Wire::plain(to)), request.to_vec())
    }

    fn ask(&mut self) {
        match self {
            Self::Pipes(pipes) => pipes.ask(),
            Self::Wire(wire, request) => {
                let answer = wire.ask(request);
                let said = String::from_utf8_lossy(answer.body);
                assert!(answer.status == 200 && !said.contains("\"isError\":true"), "{said}");
            }
        }
    }
}

/// The ways that lead through the daemon.
struct Through<'a> {
    daemon: &'a Daemon,
    token: &'a str,
    session: &'a str,
}

impl Through<'_> {
    fn stateless(&self, tool: &str) -> Way {
        let named = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {} });
        self.to("/mcp", &named, &call(tool, Some(&meta)))
    }

    fn in_session(&self, tool: &str) -> Way {
        let named = [("mcp-session-id", self.session), ("mcp-protocol-version", "2025-11-25")];
        self.to("/mcp", &named, &call(tool, None))
    }

    fn natively(&self) -> Way {
        self.to("/api/v1/calls", &[], &json!({ "tool": "daemon.status" }))
    }

    fn to(&self, path: &str, named: &[(&str, &str)], body: &Value) -> Way {
        let bearer = format!("Bearer {}", self.token);
        let named: Vec<_> = named.iter().copied().chain([("authorization", bearer.as_str())]).collect();
        Way::wire(self.daemon.local(), &request(self.daemon.local(), path, &named, body))
    }
}

/// A request as it stands on the wire.
fn request(host: SocketAddr, path: &str, named: &[(&str, &str)], body: &Value) -> Vec<u8> {
    let accept = if path == "/api/v1/calls" { "application/json" } else { "application/json, text/event-stream" };
    let mut head =
        format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\naccept: {accept}\r\n");
    for (name, value) in named {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = body.to_string();
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Calls a tool that says what it is told.
fn call(tool: &str, meta: Option<&Value>) -> Value {
    let mut params = json!({ "name": tool });
    if !tool.starts_with("daemon") {
        params["arguments"] = json!({ "message": "tea" });
    }
    if let Some(meta) = meta {
        params["_meta"] = meta.clone();
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

fn opening() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": { "name": "measurement", "version": "1" } } })
}

/// Begins a session with the daemon.
fn session(daemon: &Daemon, token: &str) -> String {
    let bearer = format!("Bearer {token}");
    let named = [("authorization", bearer.as_str()), ("connection", "close")];
    let mut stream = TcpStream::connect(daemon.local()).unwrap();
    stream.write_all(&request(daemon.local(), "/mcp", &named, &opening())).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    id.unwrap_or_else(|| panic!("no session: {answer}")).to_owned()
}

/// A server that this program starts and speaks with over pipes.
struct Pipes {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    call: String,
}

impl Pipes {
    fn to(packages: &Path) -> Self {
        let mut command = Command::new("node");
        command.args([&program(packages), "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let (to, from) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
        let mut pipes = Self { server, to, from, call: format!("{}\n", call("echo", None)) };
        pipes.exchange(&format!("{}\n", opening()), 0);
        pipes.to.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").unwrap();
        pipes
    }

    fn ask(&mut self) {
        let call = self.call.clone();
        self.exchange(&call, 1);
    }

    /// Sends a request, and waits for its answer; a server says other things besides.
    fn exchange(&mut self, request: &str, id: u32) {
        self.to.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the server ended");
            let said: Value = serde_json::from_str(&line).unwrap();
            if said.get("id").is_some_and(|said| *said == id) && said.get("method").is_none() {
                assert!(said.get("result").is_some_and(|result| result.get("isError").is_none()), "{line}");
                return;
            }
        }
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Serves one tool and does as little as a server can.
fn serve_bare() -> SocketAddr {
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
                let _ = stream.set_nodelay(true);
            });
            axum::serve(listener, Router::new().route("/", post(answer))).await.unwrap();
        });
    });
    address.recv().unwrap()
}

async fn answer(body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let (Some(id), Some(method)) = (message.get("id"), message.get("method").and_then(Value::as_str)) else {
        return StatusCode::ACCEPTED.into_response();
    };
    let result = match method {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "bare", "version": "1" } }),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": message["params"]["arguments"]["message"] }] }),
        _ => {
            let error = json!({ "code": -32_601, "message": "Method not found" });
            return said(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    said(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn said(message: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], message.to_string()).into_response()
}

/// Where `scripts/setup` puts the servers that others wrote.
fn packages() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    // target/<profile>/deps/<this program>
    let packages = here.ancestors().nth(3).unwrap().join("mcp-packages/node_modules");
    assert!(packages.is_dir(), "{} is not there: make setup", packages.display());
    packages
}

fn program(packages: &Path) -> String {
    packages.join("@modelcontextprotocol/server-everything/dist/index.js").display().to_string()
}
