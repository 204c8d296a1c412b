//! Requests to providers: recorded before they leave, with keys from the vault, and what came of them recorded afterwards.
//!
//! Guarantees: nothing is sent that is not on record; whoever asks never sees the key of a provider, nor learns from a status of the
//! provider that would be taken for one about their own credential; whatever a provider sends that makes no sense ends in an error that
//! says so.

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
use palyra_journal::mask::masked;
use palyra_provider::{
    Answered, Ask, Endpoint, Key, Keys, ModelName, Phase, ProviderError, ProviderSection, Providers, RouteError,
    Unusable, World,
    sse::{SseDecoder, SseEvent},
};
use palyra_types::{Clock, Entropy, SecretRef, Sha256Digest};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::turn::Usage;
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

struct FromVault<'a>(&'a Gate);

impl Keys for FromVault<'_> {
    async fn key(&self, secret: &SecretRef) -> Option<Key> {
        Key::parse(&self.0.provider_key(secret)?).ok()
    }
}

/// A request that left, until what came of it is recorded.
pub struct Sent {
    gate: Gate,
    begun: Instant,
    told: Option<ModelAnswer>,
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
}

impl Drop for Sent {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
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
    caller: &Caller,
    (model, ask): (&str, Ask),
    mut body: Map<String, Value>,
) -> Result<(Answered, Sent), Failure> {
    body.remove("model");
    let rest = Value::Object(body);
    let text = rest.to_string();
    let id = palyra_types::id::CallId::generate(app.clock.now(), app.entropy.as_ref())
        .map_err(|error| Failure::internal(error.to_string()))?
        .to_string();
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let request = ModelRequest {
        id: id.clone(),
        principal: caller.principal.to_string(),
        channel: Some(caller.channel.to_string()),
        token: caller.token().map(ToString::to_string),
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
    let mut sent = Sent { gate: app.gate.clone(), begun: Instant::now(), told: Some(told) };
    let make_body = |model: &ModelName| with_model(&text, model);
    let answered = app.providers.now().send(model, ask, make_body, &FromVault(&app.gate)).await;
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

/// A refusal of a provider, if its answer is one. What it says about a credential is about the daemon's, and is told as such.
///
/// # Errors
/// With the refusal.
pub async fn accepted(app: &App, answered: Answered, sent: &mut Sent) -> Result<Answered, Failure> {
    let status = answered.answer.status;
    if status.is_success() {
        return Ok(answered);
    }
    let provider = answered.provider.to_string();
    let key = key_of(app, &provider);
    let said = answered.answer.body.collect(LONGEST_ERROR).await.unwrap_or_default();
    let said: Option<Value> = serde_json::from_slice(&said).ok();
    let message = said.as_ref().and_then(|said| said.get("error")).and_then(|error| match error {
        Value::String(text) => Some(text.as_str()),
        other => other.get("message").and_then(Value::as_str),
    });
    // SECURITY: some providers repeat the key that they refuse, and the client of the daemon is not to learn it.
    let message = without(message.unwrap_or("it says no more"), key.as_ref());
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    let message = format!("`{provider}` answered {}: {}", status.as_u16(), palyra_types::visible::visible(&message));
    let (code, help) = match status.as_u16() {
        401 | 403 => ("provider_refused", "look at the provider's `key` in the vault and in [[provider]]"),
        404 => ("model_not_found", "look at `models` under [[provider]]"),
        413 => ("too_large", "send less"),
        429 => ("provider_limited", "wait, or configure a fallback"),
        400..=499 => ("bad_request", "send what the provider understands"),
        _ => ("provider_unavailable", "look at the provider's own log"),
    };
    sent.failed(code);
    Err(Failure::new(code, message, help))
}

/// The key that a provider is asked with, if it wants one.
fn key_of(app: &App, provider: &str) -> Option<Zeroizing<String>> {
    let config = app.config_now();
    let section = config.provider.iter().find(|one| one.name.as_str() == provider)?;
    app.gate.provider_key(section.key.as_ref()?)
}

/// A text of a provider without the key that it was asked with, and without what looks like one.
fn without(text: &str, key: Option<&Zeroizing<String>>) -> String {
    let text = match key.map(|key| key.trim()).filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "[the key]"),
        None => text.to_owned(),
    };
    masked(text)
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
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let within = self.answer.patience();
            let piece = match timeout_at(since + within, self.answer.next()).await {
                Ok(piece) => piece,
                Err(_) => Some(Err(ProviderError::TimedOut { what: Phase::Body, within })),
            };
            match piece {
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
                        self.sent.failed("bad_answer");
                        return Err(malformed(&error.to_string()));
                    }
                }
            }
        }
    }

    /// The next chunk of a chat, or none after `[DONE]`.
    ///
    /// # Errors
    /// When the provider breaks off, takes too long, or sends what is no JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, Failure> {
        if self.is_done {
            return Ok(None);
        }
        let Some(event) = self.event().await? else {
            self.sent.failed("bad_answer");
            return Err(malformed("it ends before it is done"));
        };
        if event.data.trim() == DONE {
            self.is_done = true;
            return Ok(None);
        }
        match serde_json::from_str::<Value>(&event.data) {
            Ok(chunk) => {
                self.note(&chunk);
                Ok(Some(chunk))
            }
            Err(error) => {
                self.sent.failed("bad_answer");
                Err(malformed(&format!("an event is no JSON ({error})")))
            }
        }
    }

    /// Takes in what a chunk says that it took.
    pub fn note(&mut self, chunk: &Value) {
        let usage = chunk.get("usage").or_else(|| chunk.get("response")?.get("usage"));
        if let Some(usage) = usage.filter(|usage| usage.is_object()) {
            self.sent.took(Usage::of(usage));
        }
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
pub async fn chat(app: &App, caller: &Caller, model: &str, body: Map<String, Value>) -> Result<Events, Failure> {
    let ask = Ask { endpoint: Endpoint::ChatCompletions, streams: true };
    let (answered, mut sent) = send(app, caller, (model, ask), body).await?;
    let answered = accepted(app, answered, &mut sent).await?;
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
