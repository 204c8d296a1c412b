//! Models that are passed through: the request goes to a provider as it came, and the answer comes back as it is.
//!
//! Guarantees: what is passed on is JSON, or events of JSON, whole or with an error that says where it broke off; nothing of a stream is
//! held back for a later part of it, nor for another reader; a stream ends when whoever asked for it would not be let in any more. The key
//! that a provider was asked with is replaced where an event or an answer repeats it.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use palyra_provider::{Ask, Endpoint, sse};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{
    chunk::Noted,
    failing,
    lenient::Trouble,
    standing::Standing,
    telling,
    upstream::{self, Asker, DONE, Events},
};
use crate::{app::App, failure::Failure};

/// Passes a request through.
///
/// # Errors
/// When nobody answers, or with what the provider says against it.
pub async fn pass(
    app: &Arc<App>,
    caller: &Standing,
    (model, endpoint): (&str, Endpoint),
    body: Map<String, Value>,
) -> Result<Response, Failure> {
    let streams = endpoint != Endpoint::Embeddings && body.get("stream") == Some(&json!(true));
    let asker = Asker { caller: caller.caller(), agent: None };
    let (answered, mut sent) = upstream::send(app, asker, (model, Ask { endpoint, streams }), body).await?;
    let answered = upstream::accepted(answered, &mut sent).await?;
    let request_id = answered.answer.request_id.as_deref().filter(|id| sent.without_key(id).is_none());
    let request_id = request_id.and_then(|id| HeaderValue::from_str(id).ok());
    let mut response = if streams {
        if !upstream::is_events(answered.answer.content_type.as_deref()) {
            sent.failed("bad_answer");
            return Err(upstream::malformed("it is no stream of events"));
        }
        let (sender, response) = telling::events();
        tokio::spawn(relay(Events::of(answered, sent), (endpoint, caller.clone()), sender));
        response
    } else {
        let whole = answered.answer.body.whole().await.map_err(|error| {
            let failure = upstream::broken(&error);
            sent.failed(&failure.detail.code);
            failure
        })?;
        sent.read(whole.len());
        let text = str::from_utf8(&whole).unwrap_or_default();
        let Some(noted) = Noted::read(text) else {
            sent.failed("bad_answer");
            return Err(upstream::malformed("it is no JSON"));
        };
        if let Some(usage) = noted.usage() {
            sent.took(usage);
        }
        sent.whole();
        let told = sent.without_key(text).map(Bytes::from);
        let mut response = (StatusCode::OK, told.unwrap_or(whole)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    };
    if let Some(id) = request_id {
        response.headers_mut().insert("x-upstream-request-id", id);
    }
    Ok(response)
}

/// Passes events on as they come, until the end, an error, nobody reads any more, or whoever asked would not be let in any more.
async fn relay(mut events: Events, (endpoint, reader): (Endpoint, Standing), sender: mpsc::Sender<Bytes>) {
    let broke_off = tokio::select! {
        broke_off = forward(&mut events, endpoint, &sender) => broke_off,
        () = sender.closed() => {
            events.failed("client_gone");
            return;
        }
        refusal = reader.over() => {
            events.failed(&refusal.detail.code);
            Some(refusal)
        }
    };
    // The provider is let go before anything waits for the reader.
    drop(events);
    if let Some(failure) = broke_off {
        let shape = failing::shape(failure.status, &failure.detail);
        let _ = sender.send(telling::data(&shape)).await;
    }
}

async fn forward(events: &mut Events, endpoint: Endpoint, sender: &mpsc::Sender<Bytes>) -> Option<Failure> {
    let mut has_failed = false;
    loop {
        let event = match events.event().await {
            Ok(Some(event)) => event,
            // What a provider says against its own answer may be the last that it says.
            Ok(None) if has_failed => return None,
            Ok(None) => return Some(events.refuse("it ends before it is done")),
            Err(failure) => return Some(failure),
        };
        let step = match event.data.trim() == DONE {
            true => Step::Last,
            false => {
                let Some(noted) = Noted::read(&event.data) else {
                    return Some(events.refuse("an event is no JSON"));
                };
                events.note(noted.usage());
                Step::of(endpoint, event.event.as_deref(), &noted)
            }
        };
        if matches!(step, Step::Trouble | Step::LastInTrouble) {
            has_failed = true;
            events.failed("provider_failed");
        }
        let is_last = matches!(step, Step::Last | Step::LastInTrouble);
        if is_last {
            events.done();
        }
        if sender.send(sse::event_bytes(event.event.as_deref(), &event.data)).await.is_err() {
            events.failed("client_gone");
            return None;
        }
        if is_last {
            return None;
        }
    }
}

/// How far an event brings a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There is more to come.
    Further,
    /// The provider fails, and may say more about it.
    Trouble,
    /// To its end.
    Last,
    /// To its end, which is none that anybody wanted.
    LastInTrouble,
}

impl Step {
    /// What an event says about that. A stream of responses ends with an event of its own, one of a chat with a word.
    fn of(endpoint: Endpoint, name: Option<&str>, noted: &Noted) -> Self {
        let kind = noted.kind.0.as_deref().or(name).filter(|_| endpoint == Endpoint::Responses);
        match kind {
            Some("response.completed" | "response.incomplete") => Self::Last,
            Some("response.failed") => Self::LastInTrouble,
            Some("error") => Self::Trouble,
            _ if noted.error != Trouble::None => Self::Trouble,
            _ => Self::Further,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_responses_ends_with_its_event_and_one_of_a_chat_does_not() {
        let step = |endpoint, name: Option<&str>, data: &str| Step::of(endpoint, name, &Noted::read(data).unwrap());
        for (kind, expected) in [
            ("response.created", Step::Further),
            ("response.output_text.delta", Step::Further),
            ("response.completed", Step::Last),
            ("response.incomplete", Step::Last),
            ("response.failed", Step::LastInTrouble),
            ("error", Step::Trouble),
        ] {
            let data = json!({ "type": kind }).to_string();
            assert_eq!(step(Endpoint::Responses, None, &data), expected, "{kind}");
            assert_eq!(step(Endpoint::Responses, Some(kind), "{}"), expected, "{kind}");
            assert_eq!(step(Endpoint::ChatCompletions, Some(kind), &data), Step::Further, "{kind}");
        }
        let told = r#"{"error":{"message":"over capacity"}}"#;
        assert_eq!(step(Endpoint::ChatCompletions, None, told), Step::Trouble);
        assert_eq!(step(Endpoint::ChatCompletions, None, r#"{"error":null}"#), Step::Further);
    }
}
