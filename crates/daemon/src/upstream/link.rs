//! How one MCP server is reached: started in an enclosure, or connected to.
//!
//! Guarantees: a program runs only by the gate, and an address is connected to only if policy lets it; a secret leaves only in a request to the
//! address that it is configured for, and that it is used is on record before; what a server says of why it cannot be spoken with holds no secret
//! that it was sent.
//! Does not: try again. `server.rs` does.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, header};
use palyra_gate::{Gate, HostPort, Refusal, ServerAddress, ServerHandle, ServerPlan};
use palyra_provider::Trust;
use palyra_types::SecretRef;
use palyra_upstream::{
    Address, Client, Credentials, HostAndPort, HttpLink, NoCredential, Program, Reach, ServerName, ServerSection,
};
use serde_json::json;
use zeroize::Zeroizing;

use super::{
    sent::{Leases, Sent, secrets},
    server::shown,
};

/// A server that can be spoken with.
pub(super) struct Linked {
    /// The conversation.
    pub(super) client: Client,
    /// What stops the program, if it is one that the daemon started.
    pub(super) program: Option<ServerHandle>,
    /// Who does what is called, for receipts.
    pub(super) executor: &'static str,
    /// What holds it, for receipts.
    pub(super) layers: Vec<String>,
}

/// Why a server cannot be spoken with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreached {
    pub(super) why: String,
    pub(super) help: String,
    pub(super) stderr: Option<String>,
}

impl Unreached {
    pub(super) fn new(why: impl Into<String>, help: impl Into<String>) -> Self {
        Self { why: why.into(), help: help.into(), stderr: None }
    }

    /// The same, without secrets that the server was sent.
    pub(super) fn without(self, sent: &Sent) -> Self {
        let Self { why, help, stderr } = self;
        Self { why: sent.hide(&why), help: sent.hide(&help), stderr: stderr.map(|text| sent.hide(&text)) }
    }
}

/// Reaches a server. Secrets are leased where it is remembered what was sent.
pub(super) async fn reach(gate: &Gate, section: &ServerSection, leases: &Arc<Leases>) -> Result<Linked, Unreached> {
    match &section.reach {
        Reach::Program(program) => start(gate, (&section.name, program), section.start()).await,
        Reach::Address(address) => connect(gate, (&section.name, address), leases, section.start()).await,
    }
}

async fn start(gate: &Gate, (name, program): (&ServerName, &Program), within: Duration) -> Result<Linked, Unreached> {
    let host = |one: &HostAndPort| HostPort { host: one.host.clone(), port: one.port };
    let plan = ServerPlan {
        name: name.object().map_err(|error| Unreached::new(error.to_string(), error.advice()))?,
        command: program.command.clone(),
        workspace: program.workspace.clone(),
        env: program.env.clone(),
        secrets: program.secrets.clone(),
        hosts: program.hosts.iter().map(host).collect(),
        egress: program.egress,
    };
    let running = gate.start_server(plan).await;
    let running = running.map_err(|refusal| Unreached::new(refusal.to_string(), refusal.advice()))?;
    let (executor, layers) = (running.executor(), running.layers().to_vec());
    let palyra_gate::RunningServer { input, output, handle: mut program } = running;
    match Client::over_pipes((output, input), within).await {
        Ok(client) => Ok(Linked { client, program: Some(program), executor, layers }),
        Err(error) => {
            program.stop();
            let end = tokio::time::timeout(ENDED_WITHIN, program.ended()).await.ok();
            let stderr = end.and_then(|end| shown(&end.stderr));
            Err(Unreached { why: error.to_string(), help: error.advice().to_owned(), stderr })
        }
    }
}

async fn connect(
    gate: &Gate,
    (name, address): (&ServerName, &Address),
    leases: &Arc<Leases>,
    within: Duration,
) -> Result<Linked, Unreached> {
    let refused = |refusal: Refusal| Unreached::new(refusal.to_string(), refusal.advice());
    gate.may_connect_to(&place(name, address)?).await.map_err(refused)?;
    let is_encrypted = address.url.is_encrypted();
    // What the machine trusts is read from files.
    let trust = move || if is_encrypted { Trust::of_machine(None) } else { Trust::of_nobody() };
    let trust = tokio::task::spawn_blocking(trust).await;
    let trust = match trust {
        Ok(Ok(trust)) => trust,
        Ok(Err(error)) => return Err(Unreached::new(error.to_string(), error.advice())),
        Err(error) => return Err(Unreached::new(error.to_string(), "report this")),
    };
    let sent = secrets(address);
    if !sent.is_empty() {
        let body = json!({ "by": format!("service:mcp.{name}"), "secrets": sent, "host": address.url.host(),
            "port": address.url.port(), "how": "header" });
        gate.mcp_secrets_used(&body).await.map_err(refused)?;
    }
    let credentials = FromVault { leases: Arc::clone(leases), address: address.clone() };
    let link = HttpLink::new(address.url.clone(), trust.config(), Arc::new(credentials));
    match Client::over_http(link, within).await {
        Ok(client) => Ok(Linked { client, program: None, executor: HTTP_EXECUTOR, layers: Vec::new() }),
        Err(error) => Err(Unreached::new(error.to_string(), error.advice())),
    }
}

/// Waits until policy does not let a server be spoken with any more. A program is ended by the gate.
pub(super) async fn forbidden(gate: &Gate, section: &ServerSection) -> Unreached {
    let Reach::Address(address) = &section.reach else { return std::future::pending().await };
    let place = match place(&section.name, address) {
        Ok(place) => place,
        Err(unreached) => return unreached,
    };
    let refusal = gate.forbidden_to_connect_to(&place).await;
    Unreached::new(format!("policy changed: {refusal}"), refusal.advice())
}

/// What policy is asked about a server that somebody else runs.
fn place(name: &ServerName, address: &Address) -> Result<ServerAddress, Unreached> {
    Ok(ServerAddress {
        name: name.object().map_err(|error| Unreached::new(error.to_string(), error.advice()))?,
        place: HostPort { host: address.url.host().clone(), port: address.url.port() },
        secrets: secrets(address).into_iter().collect(),
    })
}

/// Takes secrets out of the vault for as long as it takes to send them.
struct FromVault {
    leases: Arc<Leases>,
    address: Address,
}

impl FromVault {
    fn value(&self, secret: &SecretRef) -> Result<Zeroizing<String>, NoCredential> {
        let missing = || NoCredential(format!("the secret {secret} cannot be had; see `palyra vault list`"));
        self.leases.take(secret).ok_or_else(missing)
    }
}

impl Credentials for FromVault {
    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, NoCredential> {
        let mut headers = Vec::new();
        if let Some(bearer) = &self.address.bearer {
            let value = Zeroizing::new(format!("Bearer {}", self.value(bearer)?.trim()));
            headers.push((header::AUTHORIZATION, header_value(&value, bearer)?));
        }
        for (name, secret) in &self.address.headers {
            let known = HeaderName::from_bytes(name.as_str().as_bytes());
            let name = known.map_err(|error| NoCredential(error.to_string()))?;
            headers.push((name, header_value(self.value(secret)?.trim(), secret)?));
        }
        Ok(headers)
    }

    fn hide(&self, text: &str) -> String {
        self.leases.sent().hide(text)
    }
}

fn header_value(text: &str, secret: &SecretRef) -> Result<HeaderValue, NoCredential> {
    // What is wrong with it would quote it.
    HeaderValue::from_str(text).map_err(|_| NoCredential(format!("the secret {secret} cannot be sent in a header")))
}

/// Who does what is called at an address, for receipts.
const HTTP_EXECUTOR: &str = "mcp_http";

const ENDED_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_server_cannot_be_spoken_with_holds_no_secret() {
        let unreached = Unreached {
            why: "401: Bearer hunter22".to_owned(),
            help: "not hunter22".to_owned(),
            stderr: Some("hunter22".to_owned()),
        };
        let hidden = Unreached {
            why: "401: Bearer ********".to_owned(),
            help: "not ********".to_owned(),
            stderr: Some("********".to_owned()),
        };
        assert_eq!(unreached.without(&Sent::these(&["hunter22"])), hidden);
    }
}
