//! Every route, asked for by every kind of caller: who is let in, who is not, and why not.
//!
//! The table below is written by hand and says what must come out; it is no copy of the one in the daemon. A route that is served and has no
//! row here fails the test, and so does a row without a route.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use palyra_api::{
    device::{NewPairing, RevokeDevice},
    member::SetFlag,
    token::{NewToken, RevokeToken},
};
use palyra_identity::DeviceIdentity;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan},
    paired::pair,
    token::token,
};
use palyra_types::{WorkspaceRole, clock::SystemClock};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

/// Who asks. The letters of a row stand in this order.
const CALLERS: [&str; 9] = [
    "a device of an owner",
    "a device with the role of an admin",
    "a device with the role of an operator",
    "a device of an agent",
    "an agent's token",
    "an owner's token with every scope",
    "an owner's token with the scope calls.read alone",
    "a service's token with every scope it can have",
    "a session of the console",
];

/// `P` the request reaches its handler, `D` policy says no, `S` the token lacks the scope, `W` the credential is of the wrong kind,
/// `O` nobody needs a credential.
const TABLE: &[(&str, &str, &str)] = &[
    ("GET", "/healthz", "OOOOOOOOO"),
    ("GET", "/readyz", "OOOOOOOOO"),
    ("GET", "/openapi.json", "OOOOOOOOO"),
    ("GET", "/metrics", "PPPDSPSPP"),
    ("GET", "/api/v1/identity", "PPPPPPPPP"),
    ("POST", "/api/v1/calls", "PPPPPPSPP"),
    ("GET", "/api/v1/calls", "PPPDSPSPP"),
    ("GET", "/api/v1/calls/{id}", "PPPPPPPPP"),
    ("DELETE", "/api/v1/calls/{id}", "PPPPPPSPP"),
    ("GET", "/api/v1/calls/{id}/explanation", "PPPPPPPPP"),
    ("POST", "/api/v1/calls/{id}/replay", "PPPPPPPPP"),
    ("POST", "/api/v1/authorize", "PPPPPPSPP"),
    ("GET", "/api/v1/authorizations", "PPPDSPSPP"),
    ("GET", "/api/v1/authorizations/{seq}/explanation", "PPPDSPSPP"),
    ("POST", "/hooks/claude-code", "PPPPPPSPP"),
    ("POST", "/api/v1/runs", "PPPPPPSPP"),
    ("GET", "/api/v1/runs/{id}", "PPPPPPPPP"),
    ("GET", "/api/v1/runs/{id}/stream", "PPPPPPPPP"),
    ("GET", "/api/v1/runs/{id}/transcript", "PPPPPPPPP"),
    ("GET", "/api/v1/sessions", "PPPPPPPPP"),
    ("GET", "/api/v1/sessions/{id}", "PPPPPPPPP"),
    ("DELETE", "/api/v1/sessions/{id}/transcript", "PPDDSPSSP"),
    ("GET", "/api/v1/approvals", "PPPDSPSPP"),
    ("GET", "/api/v1/approvals/{id}", "PPPDSPSPP"),
    ("POST", "/api/v1/approvals/{id}/approve", "PPPDSPSSP"),
    ("POST", "/api/v1/approvals/{id}/deny", "PPPDSPSSP"),
    ("POST", "/api/v1/approvals/unlock", "PPPDSPSSP"),
    ("GET", "/api/v1/grants", "PPPDSPSPP"),
    ("DELETE", "/api/v1/grants/{id}", "PPPDSPSSP"),
    ("GET", "/api/v1/tools", "PPPPPPPPP"),
    ("GET", "/api/v1/workspaces", "PPPPPPPPP"),
    ("GET", "/api/v1/postures", "PPPDSPSPP"),
    ("PUT", "/api/v1/postures", "PPDDSPSSP"),
    ("DELETE", "/api/v1/postures", "PPDDSPSSP"),
    ("GET", "/api/v1/policy", "PPPDSPSPP"),
    ("POST", "/api/v1/policy/reload", "PPDDSPSSP"),
    ("POST", "/api/v1/policy/replay", "PPPDSPSPP"),
    ("GET", "/api/v1/journal/head", "PPPDSPSPP"),
    ("GET", "/api/v1/journal/records", "PPPDSPSPP"),
    ("GET", "/api/v1/journal/records/{seq}", "PPPDSPSPP"),
    ("GET", "/api/v1/journal/proofs/{seq}", "PPPDSPSPP"),
    ("POST", "/api/v1/journal/verify", "PPPDSPSPP"),
    ("GET", "/api/v1/journal/export", "PPPDSPSPP"),
    ("GET", "/api/v1/events", "PPPDSPSPP"),
    ("GET", "/api/v1/devices", "PPPDSPSPP"),
    ("DELETE", "/api/v1/devices/{id}", "PPDDSPSSP"),
    ("POST", "/api/v1/devices/pairings", "PPDDSPSSP"),
    ("GET", "/api/v1/devices/pairings/{id}", "PPDDSPSSP"),
    ("DELETE", "/api/v1/devices/pairings/{id}", "PPDDSPSSP"),
    ("POST", "/api/v1/devices/pairings/{id}/confirm", "PPDDSPSSP"),
    ("POST", "/api/v1/devices/certificate", "PPPPWWWWW"),
    ("GET", "/api/v1/authority", "PPPDSPSPP"),
    ("POST", "/api/v1/authority/rotation", "PPDDSPSSP"),
    ("GET", "/api/v1/tokens", "PPPDSPSPP"),
    ("GET", "/api/v1/scopes", "PPPDDPPPP"),
    ("POST", "/api/v1/tokens", "PPDDSPSSP"),
    ("POST", "/api/v1/tokens/{id}/rotate", "PPDDSPSSP"),
    ("DELETE", "/api/v1/tokens/{id}", "PPDDSPSSP"),
    ("GET", "/api/v1/members", "PPPDSPSPP"),
    ("PUT", "/api/v1/members/{user}", "PPDDSPSSP"),
    ("DELETE", "/api/v1/members/{user}", "PPDDSPSSP"),
    ("POST", "/api/v1/invitations", "PPDDSPSSP"),
    ("DELETE", "/api/v1/invitations/{id}", "PPDDSPSSP"),
    ("GET", "/api/v1/roles", "PPPDSPSPP"),
    ("GET", "/api/v1/flags", "PPPDSPSPP"),
    ("PUT", "/api/v1/flags/{name}", "PPDDSPSSP"),
    ("GET", "/api/v1/memory", "PPPPSPSPP"),
    ("DELETE", "/api/v1/memory", "PPDDSPSSP"),
    ("GET", "/api/v1/memory/scopes", "PPDDSPSDP"),
    ("DELETE", "/api/v1/memory/{id}", "PPDDSPSSP"),
    ("GET", "/api/v1/artifacts", "PPPPSPSPP"),
    ("GET", "/api/v1/artifacts/{id}", "PPPPSPSPP"),
    ("DELETE", "/api/v1/artifacts/{id}", "PPDDSPSSP"),
    ("GET", "/api/v1/cron", "PPPPSPSPP"),
    ("POST", "/api/v1/cron/{id}/pause", "PPDDSPSSP"),
    ("POST", "/api/v1/cron/{id}/resume", "PPDDSPSSP"),
    ("DELETE", "/api/v1/cron/{id}", "PPDDSPSSP"),
    ("GET", "/v1/models", "PPPPSPSPP"),
    ("GET", "/v1/models/{id}", "PPPPSPSPP"),
    ("POST", "/v1/chat/completions", "PPPPSPSPP"),
    ("POST", "/v1/responses", "PPPPSPSPP"),
    ("GET", "/v1/responses/{id}", "PPPPSPSPP"),
    ("DELETE", "/v1/responses/{id}", "PPPPSPSPP"),
    ("GET", "/v1/responses/{id}/input_items", "PPPPSPSPP"),
    ("POST", "/v1/embeddings", "PPPPSPSPP"),
    ("POST", "/mcp", "WWWWSPSPW"),
    ("GET", "/mcp", "WWWWSPSPW"),
    ("DELETE", "/mcp", "WWWWSPSPW"),
    ("GET", "/api/v1/vault", "PPPDSPSPP"),
    ("GET", "/api/v1/vault/secrets", "PPPDSPSPP"),
    ("GET", "/api/v1/vault/secrets/{scope}/{name}", "PPPDSPSPP"),
    ("PUT", "/api/v1/vault/secrets/{scope}/{name}", "PPDDSPSSP"),
    ("DELETE", "/api/v1/vault/secrets/{scope}/{name}", "PPDDSPSSP"),
    ("POST", "/api/v1/vault/bindings", "PPDDSPSSP"),
    ("DELETE", "/api/v1/vault/bindings/{id}", "PPDDSPSSP"),
    ("POST", "/api/v1/vault/rotate", "PPDDSPSSP"),
    ("POST", "/api/v1/vault/unlock", "PPDDSPSSP"),
    ("POST", "/api/v1/vault/adopt", "PPDDSPSSP"),
    ("POST", "/api/v1/vault/export", "PPDDSPSSP"),
    ("POST", "/api/v1/vault/import", "PPDDSPSSP"),
    ("GET", "/api/v1/skills", "PPPPPPPPP"),
    ("POST", "/api/v1/skills", "PPDDSPSSP"),
    ("POST", "/api/v1/skills/inspect", "PPDDSPSSP"),
    ("GET", "/api/v1/skills/{publisher}/{name}", "PPPPPPPPP"),
    ("DELETE", "/api/v1/skills/{publisher}/{name}", "PPDDSPSSP"),
    ("PUT", "/api/v1/skills/{publisher}/{name}/grants", "PPDDSPSSP"),
    ("POST", "/api/v1/skills/{publisher}/{name}/quarantine", "PPDDSPSSP"),
    ("DELETE", "/api/v1/skills/{publisher}/{name}/quarantine", "PPDDSPSSP"),
    ("GET", "/api/v1/publishers", "PPPPSPSPP"),
    ("PUT", "/api/v1/publishers/{publisher}/keys", "PPDDSPSSP"),
    ("DELETE", "/api/v1/publishers/{publisher}/keys/{key_id}", "PPDDSPSSP"),
    ("GET", "/api/v1/mcp", "PPPDSPSPP"),
    ("GET", "/api/v1/mcp/{name}", "PPPDSPSPP"),
    ("PUT", "/api/v1/mcp/{name}", "PPDDSPSSP"),
    ("DELETE", "/api/v1/mcp/{name}", "PPDDSPSSP"),
    ("POST", "/api/v1/mcp/{name}/pins", "PPDDSPSSP"),
    ("POST", "/api/v1/console/links", "PPPDWWWWW"),
    ("POST", "/api/v1/console/session", "OOOOOOOOO"),
    ("DELETE", "/api/v1/console/session", "WWWWWWWWP"),
];

/// By what somebody is known.
enum Credential {
    Nothing,
    Bearer(String),
    Device(Box<DeviceIdentity>),
}

struct Hall {
    lab: DaemonLab,
    callers: Vec<Credential>,
    /// Those who are not let in anywhere: nobody, somebody made up, and what counted once.
    strangers: Vec<(&'static str, Credential)>,
}

impl Hall {
    async fn open() -> Self {
        let lab = DaemonPlan::default().own_clock().start();
        let owner = lab.owner();
        owner.set_flag("team_mode", &SetFlag { on: true }).await.unwrap();
        owner.set_flag("mcp_gateway", &SetFlag { on: true }).await.unwrap();
        owner.set_flag("compat_api", &SetFlag { on: true }).await.unwrap();
        let device = async |role: Option<WorkspaceRole>, principal: Option<&str>| {
            let new = NewPairing { role, principal: principal.map(str::to_owned), name: None };
            Credential::Device(Box::new(pair(&lab, &new).await))
        };
        let (admin, operator) =
            (device(Some(WorkspaceRole::Admin), None).await, device(Some(WorkspaceRole::Operator), None).await);
        let robot = device(None, Some("agent:robot")).await;
        let revoked = pair(&lab, &NewPairing::default()).await;
        owner.revoke_device(&revoked.device, &RevokeDevice::default()).await.unwrap();
        let known = owner.scopes().await.unwrap().scopes;
        let suits = |kind: &str| -> Vec<String> {
            known.iter().filter(|one| one.suits.iter().any(|suits| suits == kind)).map(|one| one.name.clone()).collect()
        };
        let mint = async |principal: &str, scopes: Vec<String>, lifetime_seconds: u64| {
            let new = NewToken { scopes, lifetime_seconds, per_minute: Some(100_000), ..token(principal, &[]) };
            owner.mint_token(&new).await.unwrap()
        };
        let whole = mint("user:owner", suits("user"), 86_400).await.secret;
        let bare = mint("user:owner", vec!["calls.read".to_owned()], 86_400).await.secret;
        let service = mint("service:watch", suits("service"), 86_400).await.secret;
        let over = mint("user:owner", suits("user"), 60).await.secret;
        let gone = mint("user:owner", suits("user"), 86_400).await;
        owner.revoke_token(&gone.token.id, &RevokeToken::default()).await.unwrap();
        lab.set_ahead(Duration::from_secs(61));
        let bearer = |text: String| Credential::Bearer(text);
        let owners = Credential::Device(Box::new(lab.device()));
        let callers = vec![
            owners,
            admin,
            operator,
            robot,
            bearer(lab.agent_token()),
            bearer(whole.clone()),
            bearer(bare),
            bearer(service),
            // A session may be left on the way, and is opened anew for each request.
            bearer(String::new()),
        ];
        let strangers = vec![
            ("nobody", Credential::Nothing),
            ("somebody made up", bearer(whole.replace("plr_user_", "plr_agent_"))),
            ("nonsense", bearer("plr_nonsense".to_owned())),
            ("a token that has expired", bearer(over)),
            ("a token that was revoked", bearer(gone.secret)),
            ("a device that was revoked", Credential::Device(Box::new(revoked))),
        ];
        Self { lab, callers, strangers }
    }

    /// What comes of a request: its status, and the code if it failed.
    async fn ask(&self, credential: &Credential, method: &str, path: &str) -> (u16, String) {
        let (path, body) = filled(method, path);
        let authorization = match credential {
            Credential::Bearer(text) if text.is_empty() => {
                format!("Authorization: Bearer {}\r\n", self.lab.console().await)
            }
            Credential::Bearer(text) => format!("Authorization: Bearer {text}\r\n"),
            Credential::Nothing | Credential::Device(_) => String::new(),
        };
        let request = |host: &str| {
            let length = body.len();
            format!(
                "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
        };
        match credential {
            Credential::Device(device) => {
                let config = palyra_identity::client_config(device, Arc::new(SystemClock::new())).unwrap();
                let stream = TcpStream::connect(self.lab.control()).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                let mut stream = TlsConnector::from(config).connect(name, stream).await.unwrap();
                answer(&mut stream, &request(&self.lab.control().to_string())).await
            }
            _ => {
                let mut stream = TcpStream::connect(self.lab.local()).await.unwrap();
                answer(&mut stream, &request(&self.lab.local().to_string())).await
            }
        }
    }
}

/// Something to ask about, and something to say.
fn filled(method: &str, path: &str) -> (String, &'static str) {
    let path = path
        .replace("/approvals/{id}", "/approvals/01J9ZC1KQ8Z3V5T6W7X8Y9ZABC")
        .replace("/grants/{id}", "/grants/01J9ZC1KQ8Z3V5T6W7X8Y9ZABC")
        .replace("/calls/{id}", "/calls/01J9ZC1KQ8Z3V5T6W7X8Y9ZABC")
        .replace("/sessions/{id}", "/sessions/01J9ZC1KQ8Z3V5T6W7X8Y9ZABC")
        .replace("/runs/{id}", "/runs/01J9ZC1KQ8Z3V5T6W7X8Y9ZABC")
        .replace("/bindings/{id}", "/bindings/0")
        .replace("{scope}", "workspace%3Alab")
        .replace("{publisher}", "acme")
        .replace("{key_id}", "0000000000000000")
        .replace("{id}", "nothing")
        .replace("{seq}", "0")
        .replace("{user}", "nobody")
        .replace("{name}", "nothing");
    match (method, path.as_str()) {
        ("PUT", "/api/v1/postures") => {
            (path, r#"{"layer":"global","key":"","tool":"fs.read","posture":"ask_each_time"}"#)
        }
        ("DELETE", "/api/v1/postures") => (path + "?layer=global&key=&tool=fs.read", ""),
        ("POST", "/api/v1/vault/bindings") => (path, r#"{"secret":"global/nothing","host":"example.org"}"#),
        ("PUT", "/api/v1/members/nobody") => (path, r#"{"role":"operator"}"#),
        ("POST", "/api/v1/console/session") => (path, r#"{"code":"plr_guess"}"#),
        ("POST", _) => (path, "{}"),
        _ => (path, ""),
    }
}

/// The head of an answer, and as much of its body as says why it failed.
async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut text = String::new();
    let mut space = [0; 8_192];
    let status = loop {
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut space)).await;
        let count = read.expect("an answer").unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(&space[..count]));
        let status: u16 = text.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default();
        let whole = text.split_once("\r\n\r\n").is_some_and(|(_, body)| status < 400 || body.ends_with("}}"));
        if whole || count == 0 {
            break status;
        }
    };
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    // JSON-RPC has a number there, and the word in its data.
    let code = [&body["error"]["data"]["code"], &body["error"]["code"]].into_iter().find_map(Value::as_str);
    (status, code.unwrap_or_default().to_owned())
}

/// The letter for what came of a request.
fn letter(status: u16, code: &str) -> char {
    match (status, code) {
        (401, _) => '4',
        (_, "denied_by_policy") => 'D',
        (_, "missing_scope") => 'S',
        (_, "wrong_credential") => 'W',
        (200..=299 | 400..=499, _) => 'P',
        _ => '!',
    }
}

#[test]
fn every_route_that_is_served_has_a_row_and_every_row_a_route() {
    let description = serde_json::to_value(palyra_daemon::routes::description()).unwrap();
    let mut served = BTreeSet::from([("GET".to_owned(), "/openapi.json".to_owned())]);
    for (path, methods) in description["paths"].as_object().unwrap() {
        let methods =
            methods.as_object().unwrap().keys().filter(|key| !["parameters", "servers"].contains(&key.as_str()));
        served.extend(methods.map(|method| (method.to_ascii_uppercase(), path.clone())));
    }
    let rows: BTreeSet<_> = TABLE.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(rows, served);
    assert_eq!(rows.len(), TABLE.len(), "a route has two rows");
    let ruled: BTreeSet<_> =
        palyra_daemon::rules::all().map(|rule| (rule.method.to_string(), rule.path.to_owned())).collect();
    assert_eq!(ruled, served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_caller_gets_from_every_route_what_the_table_says() {
    let hall = Hall::open().await;
    let mut wrong = Vec::new();
    for (method, path, row) in TABLE {
        assert_eq!(row.len(), CALLERS.len(), "{method} {path}");
        for ((credential, caller), expected) in hall.callers.iter().zip(CALLERS).zip(row.chars()) {
            let (status, code) = hall.ask(credential, method, path).await;
            let found = letter(status, &code);
            let fits = if expected == 'O' { found == 'P' || status == 401 } else { found == expected };
            if !fits {
                wrong.push(format!("{caller} {method} {path}: {status} {code}, and the table says {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_known_gets_nothing_from_any_route_but_those_that_are_open() {
    let hall = Hall::open().await;
    let mut wrong = Vec::new();
    for (method, path, row) in TABLE {
        for (who, credential) in &hall.strangers {
            let (status, code) = hall.ask(credential, method, path).await;
            // What is exchanged for a session is a code, and this is none.
            let open = row.starts_with('O') && *path != "/api/v1/console/session";
            if (status == 401) == open || status >= 500 {
                wrong.push(format!("{who} {method} {path}: {status} {code}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
