//! The facade for clients of other products, as tests reach it: a daemon with a scripted model behind it, requests as they stand on the wire,
//! and the real clients.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::string_slice,
    reason = "a laboratory that cannot be set up ends the test"
)]

use std::{path::PathBuf, process::Stdio, time::Duration};

use palyra_api::member::SetFlag;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    daemon::{DaemonLab, DaemonPlan},
    model_server::ModelServer,
    token::token,
};

/// A daemon with a scripted model behind it.
pub struct Facade {
    /// The daemon.
    pub lab: DaemonLab,
    /// The model.
    pub model: ModelServer,
    /// A token of an agent that may use all of the facade.
    pub token: String,
}

/// What came back.
#[derive(Debug)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The head, as it stood on the wire, in small letters.
    pub head: String,
    /// The body, put together.
    pub body: String,
}

impl Answered {
    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The data of its events.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Facade {
    /// Starts a daemon with a model `gpt` behind it, an agent `coder` on it, and whatever else is configured.
    pub async fn start(config: &str) -> Self {
        Self::start_with(DaemonPlan::default(), config).await
    }

    /// The same, by another plan.
    pub async fn start_with(plan: DaemonPlan, config: &str) -> Self {
        let model = ModelServer::start().await;
        let provider = format!(
            "{config}\n[[provider]]\nname = \"lab\"\nbase_url = \"{}\"\nretries = 0\nanswer_seconds = 2\nidle_seconds = 2\nbreaker_failures = 100\n\
             models = {{ gpt = \"test-model\" }}\n[[agent]]\nname = \"coder\"\nmodel = \"gpt\"\ninstructions = \"Work carefully.\"\nmax_turns = 6\n",
            model.url()
        );
        let lab = plan.config(&provider).start();
        let owner = lab.owner();
        owner.set_flag("compat_api", &SetFlag { on: true }).await.unwrap();
        let scopes =
            ["compat.chat.create", "compat.responses.create", "compat.embeddings.create", "compat.models.read"];
        let minted = owner.mint_token(&token("agent:coder", &scopes)).await.unwrap();
        Self { lab, model, token: minted.secret }
    }

    /// Asks for something.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answered {
        self.ask_as(&self.token, (method, path), body).await
    }

    /// Asks with another credential.
    pub async fn ask_as(&self, bearer: &str, asked: (&str, &str), body: Option<&Value>) -> Answered {
        let mut stream = self.begin_as(bearer, asked, body).await;
        let mut bytes = Vec::new();
        let reading = stream.read_to_end(&mut bytes);
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("an answer in time").unwrap();
        read(&bytes)
    }

    /// Posts to the facade, and leaves it to the caller to read what comes back.
    pub async fn begin(&self, path: &str, body: &Value) -> TcpStream {
        self.begin_as(&self.token, ("POST", path), Some(body)).await
    }

    async fn begin_as(&self, bearer: &str, (method, path): (&str, &str), body: Option<&Value>) -> TcpStream {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let local = self.lab.local();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {local}\r\nauthorization: Bearer {bearer}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(local).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    }

    /// Posts to the facade.
    pub async fn post(&self, path: &str, body: &Value) -> Answered {
        self.ask("POST", path, Some(body)).await
    }

    /// Has a real client do something, and returns what it saw.
    pub async fn drive(&self, driver: &str, case: &str, model: &str) -> Value {
        drive(&format!("http://{}/v1", self.lab.local()), &self.token, (driver, case), model).await
    }
}

/// Has a real client do something, and returns what it saw.
pub async fn drive(url: &str, token: &str, (driver, case): (&str, &str), model: &str) -> Value {
    let target = target();
    let program = match driver.ends_with(".py") {
        true => target.join("sdk-venv/bin/python"),
        false => target.join("sdk-packages/node_modules/.bin/node"),
    };
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sdk");
    let mut command = tokio::process::Command::new(program);
    command.arg(scripts.join(driver)).arg(case).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("PALYRA_SDK", target.join("sdk-packages"));
    command.env("PALYRA_URL", url).env("PALYRA_TOKEN", token).env("PALYRA_MODEL", model);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await.expect("in time").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{driver} {case}: {err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{driver} {case}: {error}: {out}{err}"))
}

/// The directory that everything is built in, and packages of tests are installed in.
#[must_use]
pub fn target() -> PathBuf {
    let program = crate::daemon::program("palyrad");
    program.parent().and_then(std::path::Path::parent).unwrap().to_owned()
}

pub(crate) fn read(bytes: &[u8]) -> Answered {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = &bytes[end + 4..];
    let mut body = Vec::new();
    if head.contains("transfer-encoding: chunked") {
        while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
            let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            let Some(piece) = rest.get(line + 2..line + 2 + length) else { break };
            body.extend_from_slice(piece);
            rest = rest.get(line + 4 + length..).unwrap_or_default();
            if length == 0 {
                break;
            }
        }
    } else {
        body = rest.to_vec();
    }
    Answered { status, head, body: String::from_utf8_lossy(&body).into_owned() }
}
