//! A model on loopback that answers as a test says, in the wire formats of the Chat Completions, Responses, Embeddings and Models APIs.
//!
//! Answers are queued, and each request takes the next one; `stream` in the request decides whether it comes whole or in events. All that was
//! asked is kept. A request that no answer was left for is answered with an error that names the gap, so a test cannot pass by it.
//! Misbehaviour is part of the script: what is malformed, what hangs, what breaks off. A model that names a tool there is not is
//! [`Answer::tool`] with such a name; one that never ends to call tools is [`ModelServer::always`].
//!
//! It knows nobody: whoever asks is answered, and what they showed is in [`Request::headers`].

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a laboratory that cannot be set up ends the test, and only objects that were made here are indexed"
)]

mod answer;
mod chat;
mod embeddings;
mod http;
mod responses;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

pub use self::answer::{Answer, Call, EVENTS_HEAD};
use self::{
    answer::{Shape, Told},
    http::Reply,
};

/// A model server.
pub struct ModelServer {
    at: SocketAddr,
    script: Arc<Script>,
    serving: JoinHandle<()>,
}

/// What a script is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /v1/chat/completions` and `POST /v1/responses`, which share one script.
    Generate,
    /// `POST /v1/embeddings`. Without a script it answers each input with a vector of its own.
    Embeddings,
    /// `GET /v1/models`. Without a script it lists the models it was told to have.
    Models,
}

/// A request that a model server has had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its path, with what follows a question mark.
    pub path: String,
    /// Its headers, as they came.
    pub headers: Vec<(String, String)>,
    /// Its body, as it came.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header, if it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Its body, or null if that is no JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    fn streams(&self) -> bool {
        self.json().get("stream").and_then(Value::as_bool).unwrap_or_default()
    }
}

impl ModelServer {
    /// Starts one that has the model `test-model` and no script.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let script = Arc::new(Script { models: Mutex::new(vec!["test-model".to_owned()]), ..Script::default() });
        let shared = Arc::clone(&script);
        let serving = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                // Every event is a write, of which the second would wait for the other side otherwise.
                let _ = stream.set_nodelay(true);
                let script = Arc::clone(&shared);
                tokio::spawn(async move { http::serve(stream, &script).await });
            }
        });
        Self { at, script, serving }
    }

    /// Where its API begins, as a client is told it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.at)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.at.port()
    }

    /// Has these models, and no others.
    pub fn has_models(&self, names: &[&str]) -> &Self {
        *self.script.models.lock().unwrap() = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Answers a later request of a chat or for a response with this.
    pub fn will(&self, answer: Answer) -> &Self {
        self.will_at(Endpoint::Generate, answer)
    }

    /// Answers a later request at an endpoint with this.
    pub fn will_at(&self, endpoint: Endpoint, answer: Answer) -> &Self {
        self.script.queue(endpoint).lock().unwrap().push_back(answer);
        self
    }

    /// Answers every chat and every response with this once the queue is empty. What is counted in it goes on counting.
    pub fn always(&self, answer: Answer) -> &Self {
        *self.script.always.lock().unwrap() = Some(answer);
        self
    }

    /// The requests that came in whole, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.script.requests.lock().unwrap().clone()
    }

    /// How many answers nobody has asked for yet.
    #[must_use]
    pub fn unused(&self) -> usize {
        let queues = [Endpoint::Generate, Endpoint::Embeddings, Endpoint::Models];
        queues.into_iter().map(|endpoint| self.script.queue(endpoint).lock().unwrap().len()).sum()
    }

    /// How often somebody hung up before an answer was over.
    #[must_use]
    pub fn left(&self) -> usize {
        self.script.left.load(Ordering::SeqCst)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What a model server is to say, and what it was told.
#[derive(Default)]
struct Script {
    models: Mutex<Vec<String>>,
    generate: Mutex<VecDeque<Answer>>,
    embeddings: Mutex<VecDeque<Answer>>,
    listing: Mutex<VecDeque<Answer>>,
    always: Mutex<Option<Answer>>,
    requests: Mutex<Vec<Request>>,
    answered: AtomicUsize,
    left: AtomicUsize,
}

impl Script {
    const fn queue(&self, endpoint: Endpoint) -> &Mutex<VecDeque<Answer>> {
        match endpoint {
            Endpoint::Generate => &self.generate,
            Endpoint::Embeddings => &self.embeddings,
            Endpoint::Models => &self.listing,
        }
    }

    /// Notes a request, and says how it is answered.
    fn reply(&self, request: Request) -> Reply {
        self.requests.lock().unwrap().push(request.clone());
        let path = request.path.split('?').next().unwrap_or_default();
        let endpoint = match (request.method.as_str(), path) {
            ("POST", "/v1/chat/completions" | "/v1/responses") => Endpoint::Generate,
            ("POST", "/v1/embeddings") => Endpoint::Embeddings,
            ("GET", _) if path == "/v1/models" || path.starts_with("/v1/models/") => Endpoint::Models,
            _ => return missing(&format!("unknown request URL: {} {path}", request.method)),
        };
        let number = self.answered.fetch_add(1, Ordering::SeqCst) + 1;
        let next = self.queue(endpoint).lock().unwrap().pop_front();
        let next = next.or_else(|| match endpoint {
            Endpoint::Generate => self.always.lock().unwrap().clone(),
            Endpoint::Embeddings | Endpoint::Models => None,
        });
        let answer = match (next, endpoint) {
            (Some(answer), _) => answer,
            (None, Endpoint::Generate) => Answer::error(500, "server_error", "script_is_over", "the script is over")
                .header("x-should-retry", "false"),
            (None, Endpoint::Embeddings) => Answer::vectors(embeddings::made_up(&request.json())),
            (None, Endpoint::Models) => return self.list(path),
        };
        render(answer, &request, path, number)
    }

    fn list(&self, path: &str) -> Reply {
        let model = |name: &String| json!({ "id": name, "object": "model", "created": CREATED, "owned_by": "lab" });
        let models = self.models.lock().unwrap();
        match path.strip_prefix("/v1/models/") {
            None => Reply::json(&json!({ "object": "list", "data": models.iter().map(model).collect::<Vec<_>>() })),
            Some(wanted) => match models.iter().find(|name| name.replace('/', "%2F") == wanted || *name == wanted) {
                Some(name) => Reply::json(&model(name)),
                None => missing(&format!("The model '{wanted}' does not exist")),
            },
        }
    }
}

/// Puts an answer into the format that was asked for.
fn render(answer: Answer, request: &Request, path: &str, number: usize) -> Reply {
    let asked = request.json();
    let streams = request.streams();
    let mut reply = match &answer.shape {
        Shape::Raw(bytes) => return Reply::raw(bytes.clone()),
        Shape::Silent => return Reply::silent(),
        Shape::Drip { beginning, piece, times } => {
            return Reply::drip(beginning.clone(), piece.clone(), *times).paced(answer.pause);
        }
        Shape::Error { status, body } => Reply::json(body).with_status(*status),
        Shape::Vectors(vectors) => Reply::json(&embeddings::list(vectors, &asked)),
        Shape::MalformedEvents => {
            Reply::events([b"event\r: {}\n:\ndata\ndata: [\n\n\0data {\"choices\": 1}\n\n".to_vec()])
        }
        Shape::Told(told) => {
            let told = Told { number, ..told.clone() };
            match (path, streams) {
                ("/v1/responses", true) => Reply::events(responses::events(&told, &asked)),
                ("/v1/responses", false) => Reply::json(&responses::whole(&told, &asked)),
                (_, true) => Reply::events(chat::events(&told, &asked)),
                (_, false) => Reply::json(&chat::whole(&told, &asked)),
            }
        }
    };
    reply.header("x-request-id", &format!("req_{number}"));
    for (name, value) in &answer.headers {
        reply.header(name, value);
    }
    reply.spoil(answer.flaw);
    reply.paced(answer.pause).ending(answer.ending)
}

fn missing(message: &str) -> Reply {
    let error =
        json!({ "message": message, "type": "invalid_request_error", "param": null, "code": "model_not_found" });
    Reply::json(&json!({ "error": error })).with_status(404)
}

/// When everything was made, in seconds since 1970.
const CREATED: u64 = 1_750_000_000;

#[cfg(test)]
mod tests;
