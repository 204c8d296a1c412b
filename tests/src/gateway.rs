//! The MCP server that the daemon is, as tests reach it: requests as they stand on the wire, and the real clients.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a laboratory that cannot be set up ends the test"
)]

use std::{path::PathBuf, process::Stdio, time::Duration};

use palyra_api::member::SetFlag;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    daemon::{DaemonLab, DaemonPlan, program},
    facade::{Answered, read, target},
    token::token,
};

/// A daemon whose gateway is on.
pub struct Gateway {
    /// The daemon.
    pub lab: DaemonLab,
    /// A token of an agent that may call tools over MCP.
    pub token: String,
}

/// A real client, and the way that it takes.
#[derive(Debug, Clone, Copy)]
pub struct Driver {
    /// `mcp_python.py`, or a package for JavaScript: `sdk` or `client`.
    pub client: &'static str,
    /// `legacy`, `auto` or a version.
    pub mode: &'static str,
    /// Whether it starts `palyra mcp serve`.
    pub starts: bool,
    /// Whether it can lead its user to a URL.
    pub elicits: bool,
}

impl Driver {
    /// A client that goes straight to the daemon.
    #[must_use]
    pub const fn of(client: &'static str, mode: &'static str) -> Self {
        Self { client, mode, starts: false, elicits: false }
    }

    /// The same client, which starts `palyra mcp serve`.
    #[must_use]
    pub const fn starting(self) -> Self {
        Self { starts: true, ..self }
    }

    /// The same client, which can lead its user to a URL.
    #[must_use]
    pub const fn eliciting(self) -> Self {
        Self { elicits: true, ..self }
    }
}

impl Gateway {
    /// Starts a daemon whose gateway is on.
    pub async fn start(config: &str) -> Self {
        Self::start_with(DaemonPlan::default().config(config)).await
    }

    /// The same, by another plan.
    pub async fn start_with(plan: DaemonPlan) -> Self {
        let lab = plan.start();
        let owner = lab.owner();
        owner.set_flag("mcp_gateway", &SetFlag { on: true }).await.unwrap();
        let minted = owner.mint_token(&token("agent:coder", &["mcp.call"])).await.unwrap();
        Self { lab, token: minted.secret }
    }

    /// Where the server is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.lab.local())
    }

    /// A request as it stands on the wire.
    pub async fn ask(&self, (method, bearer): (&str, &str), headers: &[(&str, &str)], body: &str) -> Answered {
        self.ask_at((&self.lab.local().to_string(), "/mcp"), (method, bearer), headers, body).await
    }

    /// The same, for this host and path.
    pub async fn ask_at(
        &self,
        (host, path): (&str, &str),
        (method, bearer): (&str, &str),
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {bearer}\r\n");
        let usual = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let usual = usual.iter().filter(|(name, _)| headers.iter().all(|(given, _)| given != name));
        for (name, value) in headers.iter().chain(usual).filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()));
        let mut stream = TcpStream::connect(self.lab.local()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // Whoever is told that it is too much, before it is all said, need not be listened to.
        let _ = stream.write_all(body.as_bytes()).await;
        let mut bytes = Vec::new();
        let reading = stream.read_to_end(&mut bytes);
        let _ = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("an answer in time");
        read(&bytes)
    }

    /// A message of the older protocol, with what its head says besides.
    pub async fn post(&self, headers: &[(&str, &str)], message: &Value) -> Answered {
        self.ask(("POST", &self.token), headers, &message.to_string()).await
    }

    /// A request of 2026-07-28, whose client can do this.
    pub async fn stateless(&self, method: &str, params: &Value, capabilities: &Value) -> Answered {
        self.stateless_at("/mcp", method, params, capabilities).await
    }

    /// The same, at this path.
    pub async fn stateless_at(&self, path: &str, method: &str, params: &Value, capabilities: &Value) -> Answered {
        let mut params = params.clone();
        params.as_object_mut().unwrap().insert(
            "_meta".to_owned(),
            json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": capabilities }),
        );
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        let name = params.get("name").or_else(|| params.get("taskId"));
        let name = name.and_then(Value::as_str).unwrap_or_default().to_owned();
        headers.push(("mcp-name", &name));
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let host = self.lab.local().to_string();
        self.ask_at((&host, path), ("POST", &self.token), &headers, &message.to_string()).await
    }

    /// Begins a session, and returns its id.
    pub async fn session(&self, capabilities: &Value) -> String {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "lab", "version": "1" } });
        let answered =
            self.post(&[], &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })).await;
        assert_eq!(answered.status, 200, "{answered:?}");
        header(&answered, "mcp-session-id").expect("a session")
    }

    /// A request in a session.
    pub async fn within(&self, session: &str, method: &str, params: &Value) -> Answered {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.post(&[("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")], &message).await
    }

    /// Has a real client do these steps, and returns what it saw.
    pub async fn drive(&self, driver: Driver, steps: &Value) -> Value {
        self.drive_as(&self.token, driver, steps).await
    }

    /// The same, with another token.
    pub async fn drive_as(&self, token: &str, driver: Driver, steps: &Value) -> Value {
        let output = self.begin(token, driver, steps).wait_with_output();
        let output = tokio::time::timeout(Duration::from_secs(90), output).await.expect("in time").unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{driver:?} {steps}: {err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{driver:?} {steps}: {error}: {out}{err}"))
    }

    /// Has a real client begin.
    #[must_use]
    pub fn begin(&self, token: &str, driver: Driver, steps: &Value) -> Child {
        let (target, scripts) = (target(), PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sdk"));
        let is_python = driver.client == "mcp_python.py";
        let (program_of_it, script) = match is_python {
            true => (target.join("sdk-venv/bin/python"), driver.client),
            false => (target.join("sdk-packages/node_modules/.bin/node"), "mcp_node.mjs"),
        };
        let mut command = Command::new(program_of_it);
        command.arg(scripts.join(script)).arg(steps.to_string()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("PALYRA_SDK", target.join("sdk-packages"));
        command.env("PALYRA_URL", "").env("PALYRA_MODEL", "").env("PALYRA_TOKEN", token);
        command.env("PALYRA_PACKAGE", driver.client).env("PALYRA_MODE", driver.mode);
        if driver.elicits {
            command.env("PALYRA_ELICITS", "1");
        }
        if driver.starts {
            let serve = json!([program("palyra"), "mcp", "serve"]);
            command.env("PALYRA_MCP", serve.to_string()).env("PALYRA_MCP_ENV", "PALYRA_HOME,PALYRA_TOKEN");
            command.env("PALYRA_HOME", self.lab.home());
        } else {
            command.env("PALYRA_MCP", self.url());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    }
}

/// The value of a header, if it is there.
#[must_use]
pub fn header(answered: &Answered, name: &str) -> Option<String> {
    let line = answered.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.map(|value| value.trim().to_owned())
}
