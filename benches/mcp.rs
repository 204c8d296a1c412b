//! What the Model Context Protocol costs over the API itself, in one run: the same call of `daemon.status`, decided, durable and attested, by
//! `POST /api/v1/calls` and by `tools/call` of either protocol, in turns over one connection each.
//!
//! The daemon is a process of its own, of the `dist` profile, which `make bench` builds first. A missed target ends the program with an error.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, client::conn::http1::SendRequest, header};
use hyper_util::rt::TokioIo;
use palyra_benches::{daemon::Daemon, judge, median, millis};
use serde_json::{Value, json};
use tokio::net::TcpStream;

const ROUNDS: usize = 2_000;
const BEFORE: usize = 200;

fn main() {
    let daemon = Daemon::start();
    daemon.switch_on("mcp_gateway");
    let token = daemon.tokens(1).remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let [native, stateless, session] = runtime.block_on(measure(&daemon, &token));
    let over = |times: Duration| millis(times.saturating_sub(native));
    println!("POST /api/v1/calls           {:>9.3} ms, median of {ROUNDS}", millis(native));
    println!("tools/call of 2026-07-28     {:>9.3} ms, {:.3} ms more", millis(stateless), over(stateless));
    println!("tools/call of 2025-11-25     {:>9.3} ms, {:.3} ms more", millis(session), over(session));
    judge(&[
        ("2026-07-28 costs ≤ 1 ms more", over(stateless) <= 1.0),
        ("2025-11-25 costs ≤ 1 ms more", over(session) <= 1.0),
    ]);
}

async fn measure(daemon: &Daemon, token: &str) -> [Duration; 3] {
    let mut ways = Vec::new();
    let named = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "daemon_status")];
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
    let call = |params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    ways.push(Way::new(daemon, token, ("/api/v1/calls", vec![]), json!({ "tool": "daemon.status" })).await);
    ways.push(
        Way::new(daemon, token, ("/mcp", pairs(&named)), call(json!({ "name": "daemon_status", "_meta": meta }))).await,
    );
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": { "name": "measurement", "version": "1" } } });
    let mut opening = Way::new(daemon, token, ("/mcp", vec![]), begin).await;
    let session = opening.ask().await.unwrap();
    let named = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    ways.push(Way::new(daemon, token, ("/mcp", pairs(&named)), call(json!({ "name": "daemon_status" }))).await);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS + BEFORE {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            way.ask().await;
            if round >= BEFORE {
                times.push(begun.elapsed());
            }
        }
    }
    times.map(median)
}

fn pairs(named: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    named.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// A way to make the call, over a connection of its own.
struct Way {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    bearer: String,
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Way {
    async fn new(
        daemon: &Daemon,
        token: &str,
        (path, headers): (&'static str, Vec<(&'static str, String)>),
        body: Value,
    ) -> Self {
        let stream = TcpStream::connect(daemon.local()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let (host, bearer) = (daemon.local().to_string(), format!("Bearer {token}"));
        Self { sender, host, bearer, path, headers, body: body.to_string().into() }
    }

    /// Asks, reads the answer to its end, and returns the session that it began, if it did.
    async fn ask(&mut self) -> Option<String> {
        let mut request = Request::post(self.path)
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, &self.bearer)
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::ACCEPT,
                if self.path == "/mcp" { "application/json, text/event-stream" } else { "application/json" },
            );
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(self.body.clone())).unwrap();
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let session = response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!String::from_utf8_lossy(&body).contains("\"isError\":true"), "{}", String::from_utf8_lossy(&body));
        session
    }
}
