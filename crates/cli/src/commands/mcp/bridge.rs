//! Hands messages on between a client that speaks MCP over standard input and output and the daemon's `/mcp`.
//!
//! Guarantees: a request has exactly one answer, unless its client took it back: what the daemon says, or why it says nothing; a session that
//! the daemon has forgotten is begun anew, once, and the message sent again, which had done nothing; whatever the daemon tells a session
//! reaches its client.
//! Does not: read what is asked, or answer in the place of the daemon.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_client::{Bearer, Client, ClientError, Endpoint, McpAnswer, McpHead};
use palyra_daemon::Serving;
use palyra_types::{StateHome, WorkspaceName};
use serde_json::{Map, Value, json};
use tokio::{
    sync::mpsc::{Receiver, Sender},
    task::AbortHandle,
};

use crate::{exit::Exit, failure::Failure};

/// A line that a client wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// Where the daemon is.
pub(super) enum Route {
    /// There.
    To(Endpoint),
    /// Wherever the daemon of this state directory tells that it is.
    Of(StateHome),
}

/// A client and the daemon.
#[derive(Clone)]
pub(super) struct Bridge(Arc<Inner>);

struct Inner {
    route: Route,
    bearer: Bearer,
    workspace: Option<WorkspaceName>,
    out: Sender<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The daemon, once it was met and took the token for an agent's.
    daemon: Option<Client>,
    /// What began the session, for when it has to begin again.
    opening: Option<Value>,
    session: Option<Session>,
    under_way: HashMap<String, AbortHandle>,
    listening: Option<AbortHandle>,
}

#[derive(Clone, PartialEq)]
struct Session {
    id: String,
    version: String,
}

impl Bridge {
    pub(super) fn new(route: Route, bearer: Bearer, workspace: Option<WorkspaceName>, out: Sender<String>) -> Self {
        Self(Arc::new(Inner { route, bearer, workspace, out, state: Mutex::default() }))
    }

    /// Finds out whether the token is an agent's, if a daemon is there to ask.
    pub(super) async fn introduce(&self) -> Result<(), Failure> {
        match self.daemon().await {
            Err(Trouble::NotAnAgent(who)) => {
                let help = "`palyra mcp connect` mints a token for an agent";
                let cause = format!("the token stands for {who}");
                Err(Failure::new(Exit::Usage, "not_an_agent", "only agents are served here", cause, help))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Hands on what comes, until nothing comes any more. What is under way then is taken back.
    pub(super) async fn hand_on(&self, mut lines: Receiver<Line>) {
        while let Some(line) = lines.recv().await {
            match line {
                Line::TooLong => self.say(&failed(None, -32_600, "the message is too long", json!({}))).await,
                Line::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => {}
                Line::Whole(line) => match serde_json::from_slice::<Value>(&line) {
                    Ok(Value::Object(message)) => self.take(message).await,
                    Ok(_) => self.say(&failed(None, -32_600, "a message is a JSON object", json!({}))).await,
                    Err(error) => self.say(&failed(None, -32_700, &error.to_string(), json!({}))).await,
                },
            }
        }
        let under_way: Vec<AbortHandle> = self.state(|state| {
            let listening = state.listening.take();
            state.under_way.drain().map(|(_, one)| one).chain(listening).collect()
        });
        under_way.iter().for_each(AbortHandle::abort);
        if let (Some(session), Ok(daemon)) = (self.state(|state| state.session.take()), self.daemon().await) {
            let head = self.head(None, Some(&session));
            let _ = tokio::time::timeout(LAST_WORD, daemon.mcp_end(&head)).await;
        }
    }

    /// Takes one message.
    async fn take(&self, message: Map<String, Value>) {
        let (id, method) =
            (message.get("id").cloned(), message.get("method").and_then(Value::as_str).unwrap_or_default());
        let is_opening = method == "initialize" && version_of(&message).is_none();
        if method == "notifications/cancelled" {
            return self.take_back(message).await;
        }
        // What a session begins with goes in order; whatever else is asked goes at the same time.
        let in_order = is_opening || method.starts_with("notifications/");
        let begins = method == "notifications/initialized";
        let message = Value::Object(message);
        if in_order {
            self.exchange(message, id).await;
            if begins {
                self.listen();
            }
            return;
        }
        let (this, key) = (self.clone(), id.as_ref().map(ToString::to_string));
        let known = key.clone();
        let task = tokio::spawn(async move {
            this.exchange(message, id).await;
            if let Some(known) = known {
                this.state(|state| state.under_way.remove(&known));
            }
        });
        if let Some(key) = key.filter(|_| !task.is_finished()) {
            self.state(|state| state.under_way.insert(key, task.abort_handle()));
        }
    }

    /// Takes a request back that its client does not want any more: tells the session, if there is one, and hangs up, which is how the newer
    /// protocol does it.
    async fn take_back(&self, message: Map<String, Value>) {
        let id = message.get("params").and_then(|params| params.get("requestId")).map(ToString::to_string);
        if self.state(|state| state.session.is_some()) {
            self.exchange(Value::Object(message), None).await;
        }
        if let Some(task) = id.and_then(|id| self.state(|state| state.under_way.remove(&id))) {
            task.abort();
        }
    }

    /// Sends a message and hands its answer back.
    async fn exchange(&self, message: Value, id: Option<Value>) {
        if let Err(trouble) = self.send(&message, id.as_ref(), Again::Once).await
            && id.is_some()
        {
            self.say(&trouble.told(id.as_ref())).await;
        }
    }

    async fn send(&self, message: &Value, id: Option<&Value>, again: Again) -> Result<(), Trouble> {
        let daemon = self.daemon().await?;
        let session = self.state(|state| state.session.clone());
        let is_opening = message.get("method").is_some_and(|method| method == "initialize");
        let head = self.head(Some(message), session.as_ref().filter(|_| !is_opening));
        let answered = daemon.mcp_send(&head, message.to_string().into_bytes()).await;
        let mut answer = answered.inspect_err(|_| self.state(|state| state.daemon = None))?;
        // The daemon was started anew, or nobody used the session for long. Nothing was done with the message.
        if answer.status == 404 && session.is_some() && !is_opening && version_of_value(message).is_none() {
            if let Again::Once = again {
                self.begin_again(session.as_ref()).await?;
                return Box::pin(self.send(message, id, Again::Never)).await;
            }
            return Err(Trouble::Silent);
        }
        let mut is_answered = id.is_none() || answer.status == 202;
        while let Some(text) = answer.next().await? {
            let Ok(mut told) = serde_json::from_str::<Value>(&text) else { continue };
            let is_answer = told.get("method").is_none();
            if let (true, Some(id), Some(told)) = (is_answer, id, told.as_object_mut()) {
                // An error of the daemon itself is about no request that it has read.
                told.entry("id").or_insert_with(|| id.clone());
                is_answered = true;
            }
            if is_opening && told.get("result").is_some() {
                self.opened(message, &told, answer.session.as_deref());
            }
            if id.is_some() || !is_answer {
                self.say(&told).await;
            }
        }
        if is_answered { Ok(()) } else { Err(Trouble::Silent) }
    }

    /// Remembers the session that was begun.
    fn opened(&self, message: &Value, told: &Value, session: Option<&str>) {
        let version = told.get("result").and_then(|result| result.get("protocolVersion")?.as_str());
        if let (Some(id), Some(version)) = (session, version) {
            let session = Session { id: id.to_owned(), version: version.to_owned() };
            self.state(|state| (state.session, state.opening) = (Some(session), Some(message.clone())));
        }
    }

    /// Begins the session anew, unless somebody has done so meanwhile.
    async fn begin_again(&self, lost: Option<&Session>) -> Result<(), Trouble> {
        let opening = self.state(|state| (state.session.as_ref() == lost).then(|| state.opening.clone()).flatten());
        let Some(opening) = opening else { return Ok(()) };
        let daemon = self.daemon().await?;
        let mut answer = daemon.mcp_send(&self.head(Some(&opening), None), opening.to_string().into_bytes()).await?;
        let told = answer.next().await?.and_then(|text| serde_json::from_str::<Value>(&text).ok()).unwrap_or_default();
        self.opened(&opening, &told, answer.session.as_deref());
        let session = self.state(|state| state.session.clone());
        let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let head = self.head(Some(&begun), session.as_ref());
        daemon.mcp_send(&head, begun.to_string().into_bytes()).await?;
        self.listen();
        Ok(())
    }

    /// Hands on what the session is told besides answers.
    fn listen(&self) {
        let this = self.clone();
        let task = tokio::spawn(async move {
            loop {
                let session = this.state(|state| state.session.clone());
                if let (Some(session), Ok(daemon)) = (session, this.daemon().await)
                    && let Ok(answer) = daemon.mcp_listen(&this.head(None, Some(&session))).await
                {
                    if answer.status != 200 {
                        // The next message begins it anew, and listens again.
                        return;
                    }
                    let _ = this.hear(answer).await;
                }
                tokio::time::sleep(LISTEN_AGAIN).await;
            }
        });
        if let Some(before) = self.state(|state| state.listening.replace(task.abort_handle())) {
            before.abort();
        }
    }

    async fn hear(&self, mut answer: McpAnswer) -> Result<(), ClientError> {
        while let Some(text) = answer.next().await? {
            if let Ok(told) = serde_json::from_str::<Value>(&text) {
                self.say(&told).await;
            }
        }
        Ok(())
    }

    /// The daemon, once it is known to take the token for an agent's.
    async fn daemon(&self) -> Result<Client, Trouble> {
        if let Some(daemon) = self.state(|state| state.daemon.clone()) {
            return Ok(daemon);
        }
        let endpoint = match &self.0.route {
            Route::To(endpoint) => *endpoint,
            // SECURITY: whoever else sits on the port would learn the token.
            Route::Of(home) => {
                let serving = Serving::now(home).ok_or(Trouble::NoDaemon)?;
                Endpoint::parse(&format!("http://{}", serving.local)).map_err(|_| Trouble::NoDaemon)?
            }
        };
        let daemon = Client::local(endpoint).with_bearer(self.0.bearer.clone());
        let identity = daemon.identity().await?;
        if identity.credential != "token" || !identity.principal.starts_with("agent:") {
            return Err(Trouble::NotAnAgent(identity.principal));
        }
        self.state(|state| state.daemon = Some(daemon.clone()));
        Ok(daemon)
    }

    /// What stands in the head of a message, as the protocol that it is of has it.
    fn head(&self, message: Option<&Value>, session: Option<&Session>) -> McpHead {
        let mut headers = Vec::new();
        let text = |key: &str| message.and_then(|message| message.get(key)?.as_str().map(str::to_owned));
        if let Some(version) = message.and_then(version_of_value) {
            headers.push(("mcp-protocol-version", header(version)));
            headers.extend(text("method").map(|method| ("mcp-method", header(&method))));
            let params = message.and_then(|message| message.get("params"));
            let name = params.and_then(|params| params.get("name").or_else(|| params.get("taskId"))?.as_str());
            headers.extend(name.map(|name| ("mcp-name", header(name))));
        } else if let Some(session) = session {
            headers.push(("mcp-session-id", session.id.clone()));
            headers.push(("mcp-protocol-version", session.version.clone()));
        }
        McpHead { workspace: self.0.workspace.clone(), headers }
    }

    async fn say(&self, message: &Value) {
        // Whoever reads no more hears nothing.
        let _ = self.0.out.send(message.to_string()).await;
    }

    fn state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a message may be sent once more.
#[derive(Clone, Copy)]
enum Again {
    Once,
    Never,
}

/// Why the daemon says nothing.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("no daemon runs here")]
    NoDaemon,
    #[error("the token stands for {0}, and only agents are served here")]
    NotAnAgent(String),
    #[error("the daemon gave no answer")]
    Silent,
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Trouble {
    /// As an answer.
    fn told(&self, id: Option<&Value>) -> Value {
        let (code, help) = match self {
            Self::NoDaemon => ("unreachable", "start it: `palyra up`"),
            Self::NotAnAgent(_) => ("not_an_agent", "`palyra mcp connect` mints a token for an agent"),
            Self::Silent => ("lost", "look at the daemon's log, then try again"),
            Self::Client(ClientError::Refused { error, .. }) => {
                (error.code.as_str(), error.help.as_deref().unwrap_or_default())
            }
            Self::Client(error) if error.is_absence() => ("unreachable", "start it: `palyra up`"),
            Self::Client(_) => ("lost", "look at the daemon's log, then try again"),
        };
        failed(id, -32_000, &format!("{self} ({help})"), json!({ "code": code, "help": help }))
    }
}

fn failed(id: Option<&Value>, code: i32, message: &str, data: Value) -> Value {
    let error = json!({ "code": code, "message": message, "data": data });
    match id {
        Some(id) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        None => json!({ "jsonrpc": "2.0", "error": error }),
    }
}

/// The version that a message of the newer protocol says that it is of.
fn version_of(message: &Map<String, Value>) -> Option<&str> {
    message.get("params")?.get("_meta")?.get("io.modelcontextprotocol/protocolVersion")?.as_str()
}

fn version_of_value(message: &Value) -> Option<&str> {
    message.as_object().and_then(version_of)
}

/// A value of a header; in base 64 if it could not stand there otherwise.
fn header(text: &str) -> String {
    let is_plain =
        text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && text.trim() == text && !text.starts_with("=?");
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(text)) }
}

/// How long it takes to listen again to a daemon that went away.
const LISTEN_AGAIN: Duration = Duration::from_secs(2);

/// How long the end of a session may take.
const LAST_WORD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_stand_in_a_header_stands_there_in_base_64() {
        assert_eq!(header("fs_read"), "fs_read");
        assert_eq!(header(" a"), "=?base64?IGE=?=");
        assert_eq!(header("ä\n"), "=?base64?w6QK?=");
        assert_eq!(header("=?x"), "=?base64?PT94?=");
    }
}
