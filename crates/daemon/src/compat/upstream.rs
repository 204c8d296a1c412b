//! Requests to providers: recorded before they leave, with keys from the vault, and what came of them recorded afterwards.
//!
//! Guarantees: nothing is sent that is not on record; whoever asks never sees the key of a provider, nor learns from a status of the
//! provider that would be taken for one about their own credential; whatever a provider sends that makes no sense ends in an error that
//! says so; what is recorded as gone well was answered whole.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::StatusCode;
use hyper::body::Bytes;
use palyra_gate::{
    Gate,
    models::{ModelAnswer, ModelRequest},
};
use palyra_provider::{
    Answered, Ask, Endpoint, Key, Keys, ModelName, Phase, ProviderError, ProviderSection, Providers, RouteError,
    Unusable, World,
    sse::{SseDecoder, SseEvent},
};
use palyra_types::{
    Clock, Entropy, SecretRef, Sha256Digest,
    id::{CallId, RunId},
};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::{
    chunk::{Chunk, Figures},
    key::{SentKey, without},
    turn::Usage,
};
use crate::{app::App, caller::Caller, failure::Failure};

/// The providers that are configured now.
pub struct ProvidersNow(Mutex<Arc<Providers>>);

impl ProvidersNow {
    /// The providers of these sections.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn of(
        sections: &[ProviderSection],
        clock: &Arc<dyn Clock>,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, Unusable> {
        Ok(Self(Mutex::new(Arc::new(made(sections, clock, entropy)?))))
    }

    /// Takes others in their place. Requests that are under way go on.
    ///
    /// # Errors
    /// When one of them cannot be used; then nothing changes.
    pub fn replace(
        &self,
        sections: &[ProviderSection],
        clock: &Arc<dyn Clock>,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<(), Unusable> {
        let providers = Arc::new(made(sections, clock, entropy)?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = providers;
        Ok(())
    }

    /// The providers there are now.
    #[must_use]
    pub fn now(&self) -> Arc<Providers> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn made(
    sections: &[ProviderSection],
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Providers, Unusable> {
    let world = World { clock: Arc::clone(clock), entropy: Arc::clone(entropy) };
    Providers::new(sections, None, &world)
}

/// Gives keys out of the vault, and remembers the last one: whoever answers was asked with it, or with none.
struct FromVault<'a> {
    gate: &'a Gate,
    sent: Mutex<Option<SentKey>>,
}

impl Keys for FromVault<'_> {
    async fn key(&self, secret: &SecretRef) -> Option<Key> {
        let text = self.gate.provider_key(secret)?;
        let key = Key::parse(&text).ok()?;
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(SentKey::of(&text));
        Some(key)
    }
}

/// Who has a model asked.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The client.
    pub caller: &'a Caller,
    /// The agent whose loop asks for the client, and the run that its calls belong to.
    pub agent: Option<(&'a str, RunId)>,
}

/// A request that left, until what came of it is recorded. It counts as abandoned unless somebody says that its answer was whole, or what
/// went wrong.
pub struct Sent {
    gate: Gate,
    begun: Instant,
    told: Option<ModelAnswer>,
    key: Option<SentKey>,
    is_whole: bool,
}

impl Sent {
    /// Takes in what was read of the answer.
    pub fn read(&mut self, bytes: usize) {
        if let Some(told) = &mut self.told {
            told.bytes = told.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }

    /// Takes in what it took.
    pub const fn took(&mut self, usage: Usage) {
        if let Some(told) = &mut self.told {
            told.input_tokens = usage.input;
            told.output_tokens = usage.output;
        }
    }

    /// Takes in what went wrong.
    pub fn failed(&mut self, why: &str) {
        if let Some(told) = &mut self.told {
            told.failed = Some(why.to_owned());
        }
    }

    /// Takes in that the whole answer came.
    pub const fn whole(&mut self) {
        self.is_whole = true;
    }

    /// What the provider says without the key that it was asked with, if it holds that.
    #[must_use]
    pub fn without_key(&self, said: &str) -> Option<String> {
        self.key.as_ref()?.out_of_json(said)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        if !self.is_whole && told.failed.is_none() {
            told.failed = Some("abandoned".to_owned());
        }
        told.took_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let gate = self.gate.clone();
        // Nobody waits for it. If it cannot be written, the journal is in trouble, and nothing is asked any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = gate.model_answered(&told).await {
                    tracing::warn!(%error, "what came of a request to a model could not be recorded");
                }
            });
        }
    }
}

/// Sends a request to the provider of a model, or to those that stand in for it.
///
/// # Errors
/// When it cannot be recorded, or nobody answers.
pub async fn send(
    app: &App,
    Asker { caller, agent }: Asker<'_>,
    (model, ask): (&str, Ask),
    mut body: Map<String, Value>,
) -> Result<(Answered, Sent), Failure> {
    body.remove("model");
    // Of what may be a long conversation, one form is enough to wait with.
    let text = Value::Object(body).to_string();
    let id = CallId::generate(app.clock.now(), app.entropy.as_ref())
        .map_err(|error| Failure::internal(error.to_string()))?
        .to_string();
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let request = ModelRequest {
        id: id.clone(),
        principal: caller.principal.to_string(),
        channel: Some(caller.channel.to_string()),
        token: caller.token().map(ToString::to_string),
        agent: agent.map(|(name, _)| name.to_owned()),
        run: agent.map(|(_, run)| run),
        endpoint: ask.endpoint.to_string(),
        model: model.to_owned(),
        bytes,
        sha256: Sha256Digest::of(text.as_bytes()),
    };
    app.gate.model_requested(&request).await?;
    let told = ModelAnswer {
        id,
        provider: None,
        upstream_model: None,
        status: None,
        attempts: 0,
        bytes: 0,
        input_tokens: 0,
        output_tokens: 0,
        took_ms: 0,
        failed: None,
    };
    let mut sent = Sent { gate: app.gate.clone(), begun: Instant::now(), told: Some(told), key: None, is_whole: false };
    let make_body = |model: &ModelName| with_model(&text, model);
    let keys = FromVault { gate: &app.gate, sent: Mutex::default() };
    let answered = app.providers.now().send(model, ask, make_body, &keys).await;
    sent.key = keys.sent.into_inner().unwrap_or_else(PoisonError::into_inner);
    match answered {
        Ok(answered) => {
            if let Some(told) = &mut sent.told {
                told.provider = Some(answered.provider.to_string());
                told.upstream_model = Some(answered.model.to_string());
                told.status = Some(answered.answer.status.as_u16());
                told.attempts = answered.attempts;
            }
            Ok((answered, sent))
        }
        Err(error) => {
            let failure = unanswered(&error);
            sent.failed(&failure.detail.code);
            Err(failure)
        }
    }
}

/// The body of a request with the name that a provider has for the model, without spelling all of it anew.
fn with_model(rest: &str, model: &ModelName) -> Bytes {
    let name = json!(model.as_str());
    let members = rest.strip_prefix('{').unwrap_or(rest);
    let comma = if members == "}" { "" } else { "," };
    Bytes::from(format!("{{\"model\":{name}{comma}{members}"))
}

/// Why nobody answers.
fn unanswered(error: &RouteError) -> Failure {
    let (code, last) = match error {
        RouteError::Unknown(_) => ("model_not_found", None),
        RouteError::AllFailed(all) => match &all.last.error {
            ProviderError::Unavailable { status, retry_after, .. } if *status == StatusCode::TOO_MANY_REQUESTS => {
                ("provider_limited", Some(*retry_after))
            }
            ProviderError::TimedOut { .. } => ("provider_timed_out", None),
            _ => ("provider_unavailable", None),
        },
    };
    let failure = Failure::new(code, error.to_string(), error.advice());
    match last.flatten() {
        Some(after) => failure.retry_after(after, 0),
        None => failure,
    }
}

/// What a provider sent that makes no sense.
#[must_use]
pub fn malformed(what: &str) -> Failure {
    Failure::new(
        "bad_answer",
        format!("the provider's answer makes no sense: {what}"),
        "look at the provider's own log",
    )
}

/// Why an answer was not read to its end.
#[must_use]
pub fn broken(error: &ProviderError) -> Failure {
    let code = match error {
        ProviderError::TimedOut { .. } => "provider_timed_out",
        _ => "provider_unavailable",
    };
    Failure::new(code, error.to_string(), error.advice())
}

/// A refusal of a provider, if its answer is one. What it says about a credential is about the daemon's, and is told as such; what it says
/// about the request is told by the provider's own words, which clients act on.
///
/// # Errors
/// With the refusal.
pub async fn accepted(answered: Answered, sent: &mut Sent) -> Result<Answered, Failure> {
    let status = answered.answer.status;
    if status.is_success() {
        return Ok(answered);
    }
    let provider = answered.provider.to_string();
    let said = answered.answer.body.collect(LONGEST_ERROR).await.unwrap_or_default();
    let said: Option<Value> = serde_json::from_slice(&said).ok();
    let error = said.as_ref().and_then(|said| said.get("error"));
    let message = error.and_then(|error| error.as_str().or_else(|| error.get("message")?.as_str()));
    // SECURITY: some providers repeat the key that they refuse, and the client of the daemon is not to learn it.
    let message = without(message.unwrap_or("it says no more"), sent.key.as_ref());
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    let message = format!("`{provider}` answered {}: {}", status.as_u16(), palyra_types::visible::visible(&message));
    let about_the_request = [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY];
    let word = |name: &str| {
        let told = error.filter(|_| about_the_request.contains(&status))?.get(name)?.as_str()?;
        passable(told, sent.key.as_ref())
    };
    let (their_code, param) = (word("code"), word("param"));
    let (code, help) = match status.as_u16() {
        401 | 403 => ("provider_refused", "look at the provider's `key` in the vault and in [[provider]]"),
        404 if their_code.as_deref().is_none_or(|code| code == "model_not_found") => {
            ("model_not_found", "look at `models` under [[provider]]")
        }
        413 => ("too_large", "send less"),
        429 => ("provider_limited", "wait, or configure a fallback"),
        400..=499 => ("bad_request", "send what the provider understands"),
        _ => ("provider_unavailable", "look at the provider's own log"),
    };
    sent.failed(code);
    let mut failure = Failure::new(code, message, help);
    if about_the_request.contains(&status) {
        failure.status = status;
        failure.detail.code = their_code.unwrap_or(failure.detail.code);
        failure.detail.param = param;
    }
    Err(failure)
}

/// A word of a provider, if it is short, visible, and neither the key nor anything like one.
fn passable(word: &str, key: Option<&SentKey>) -> Option<String> {
    let is_word = (1..=LONGEST_WORD).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_graphic());
    (is_word && without(word, key) == word).then(|| word.to_owned())
}

/// The events of a streamed answer.
pub struct Events {
    answer: palyra_provider::AnswerBody,
    decoder: SseDecoder,
    ready: VecDeque<SseEvent>,
    sent: Sent,
    is_done: bool,
}

impl Events {
    /// Of an answer.
    #[must_use]
    pub fn of(answered: Answered, sent: Sent) -> Self {
        let answer = answered.answer.body;
        Self { answer, decoder: SseDecoder::default(), ready: VecDeque::new(), sent, is_done: false }
    }

    /// The next event, or none at the end.
    ///
    /// # Errors
    /// When the provider breaks off, takes too long, or sends no events.
    pub async fn event(&mut self) -> Result<Option<SseEvent>, Failure> {
        // SECURITY: comments and drops of an event are pieces, too, and a provider could hold its reader with them for ever.
        let since = Instant::now();
        loop {
            if let Some(mut event) = self.ready.pop_front() {
                // SECURITY: a provider that repeats the key does so in answers, too, and not every provider is trusted by every client.
                if let Some(key) = &self.sent.key {
                    key.out_of_event(&mut event);
                }
                return Ok(Some(event));
            }
            let within = self.answer.patience();
            let piece = match timeout_at(since + within, self.answer.next()).await {
                Ok(piece) => piece,
                Err(_) => Some(Err(ProviderError::TimedOut { what: Phase::Body, within })),
            };
            match piece {
                None if self.decoder.is_midway() => return Err(self.refuse("it ends in the middle of an event")),
                None => return Ok(None),
                Some(Err(error)) => {
                    let failure = broken(&error);
                    self.sent.failed(&failure.detail.code);
                    return Err(failure);
                }
                Some(Ok(piece)) => {
                    self.sent.read(piece.len());
                    let mut events = Vec::new();
                    let pushed = self.decoder.push(&piece, &mut events);
                    self.ready.extend(events);
                    if let Err(error) = pushed {
                        return Err(self.refuse(&error.to_string()));
                    }
                }
            }
        }
    }

    /// The next chunk of a chat, or none after `[DONE]`.
    ///
    /// # Errors
    /// When the provider breaks off, takes too long, or sends what is no JSON.
    pub async fn next(&mut self) -> Result<Option<Chunk>, Failure> {
        if self.is_done {
            return Ok(None);
        }
        let Some(event) = self.event().await? else {
            return Err(self.refuse("it ends before it is done"));
        };
        if event.data.trim() == DONE {
            self.done();
            return Ok(None);
        }
        let chunk = Chunk::read(&event.data);
        let chunk = chunk.map_err(|error| self.refuse(&format!("an event cannot be read as JSON ({error})")))?;
        self.note(chunk.usage.0.as_ref().map(Figures::usage));
        Ok(Some(chunk))
    }

    /// Takes in that the answer says that it is over. What comes behind that is not listened to.
    pub fn done(&mut self) {
        self.is_done = true;
        self.sent.whole();
        self.answer.settle();
    }

    /// Takes in what the answer says that it took, if it does.
    pub const fn note(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.sent.took(usage);
        }
    }

    /// Takes in that the answer makes no sense, and says so without the key.
    pub fn refuse(&mut self, why: &str) -> Failure {
        self.sent.failed("bad_answer");
        malformed(&without(why, self.sent.key.as_ref()))
    }

    /// Takes in what went wrong.
    pub fn failed(&mut self, why: &str) {
        self.sent.failed(why);
    }
}

/// Asks a model for one turn of a chat, as a stream.
///
/// # Errors
/// When nobody answers, or with a refusal.
pub async fn chat(app: &App, asker: Asker<'_>, model: &str, body: Map<String, Value>) -> Result<Events, Failure> {
    let ask = Ask { endpoint: Endpoint::ChatCompletions, streams: true };
    let (answered, mut sent) = send(app, asker, (model, ask), body).await?;
    let answered = accepted(answered, &mut sent).await?;
    if !is_events(answered.answer.content_type.as_deref()) {
        sent.failed("bad_answer");
        return Err(malformed("it is no stream of events"));
    }
    Ok(Events::of(answered, sent))
}

/// Whether an answer is said to be a stream of events.
#[must_use]
pub fn is_events(kind: Option<&str>) -> bool {
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/event-stream")
}

/// What ends the stream of a chat.
pub const DONE: &str = "[DONE]";

const LONGEST_ERROR: usize = 64 << 10;

const LONGEST_MESSAGE: usize = 2_000;

/// The longest word of a provider about a request that is passed on.
const LONGEST_WORD: usize = 128;
