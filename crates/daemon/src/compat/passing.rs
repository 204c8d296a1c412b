//! Models that are passed through: the request goes to a provider as it came, and the answer comes back as it is.
//!
//! Guarantees: what is passed on is JSON, or events of JSON, whole or with an error that says where it broke off; nothing of a stream is
//! held back for a later part of it, nor for another reader.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use palyra_provider::{Ask, Endpoint, sse};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::sync::mpsc;

use super::{
    failing, telling,
    turn::Usage,
    upstream::{self, DONE, Events},
};
use crate::{app::App, caller::Caller, failure::Failure};

/// Passes a request through.
///
/// # Errors
/// When nobody answers, or with what the provider says against it.
pub async fn pass(
    app: &Arc<App>,
    caller: &Caller,
    (model, endpoint): (&str, Endpoint),
    body: Map<String, Value>,
) -> Result<Response, Failure> {
    let streams = endpoint != Endpoint::Embeddings && body.get("stream") == Some(&json!(true));
    let (answered, mut sent) = upstream::send(app, caller, (model, Ask { endpoint, streams }), body).await?;
    let answered = upstream::accepted(app, answered, &mut sent).await?;
    let request_id = answered.answer.request_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok());
    let mut response = if streams {
        if !upstream::is_events(answered.answer.content_type.as_deref()) {
            sent.failed("bad_answer");
            return Err(upstream::malformed("it is no stream of events"));
        }
        let (sender, response) = telling::events();
        tokio::spawn(relay(Events::of(answered, sent), endpoint, sender));
        response
    } else {
        let whole = answered.answer.body.whole().await.map_err(|error| {
            let failure = upstream::broken(&error);
            sent.failed(&failure.detail.code);
            failure
        })?;
        sent.read(whole.len());
        let read: Value = serde_json::from_slice(&whole).map_err(|error| {
            sent.failed("bad_answer");
            upstream::malformed(&format!("it is no JSON ({error})"))
        })?;
        if let Some(usage) = read.get("usage") {
            sent.took(Usage::of(usage));
        }
        let mut response = (StatusCode::OK, whole).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    };
    if let Some(id) = request_id {
        response.headers_mut().insert("x-upstream-request-id", id);
    }
    Ok(response)
}

/// Passes events on as they come, until the end, an error, or nobody reads any more.
async fn relay(mut events: Events, endpoint: Endpoint, sender: mpsc::Sender<Bytes>) {
    let broke_off = tokio::select! {
        broke_off = forward(&mut events, endpoint, &sender) => broke_off,
        () = sender.closed() => {
            events.failed("client_gone");
            return;
        }
    };
    if let Some(failure) = broke_off {
        let shape = failing::shape(failure.status, &failure.detail);
        let _ = sender.send(telling::data(&shape)).await;
    }
}

async fn forward(events: &mut Events, endpoint: Endpoint, sender: &mpsc::Sender<Bytes>) -> Option<Failure> {
    loop {
        let event = match events.event().await {
            Ok(Some(event)) => event,
            // A stream of responses ends with its last event, one of a chat with a word.
            Ok(None) if endpoint == Endpoint::Responses => return None,
            Ok(None) => {
                events.failed("bad_answer");
                return Some(upstream::malformed("it ends before it is done"));
            }
            Err(failure) => return Some(failure),
        };
        let is_done = event.data.trim() == DONE;
        if !is_done {
            if serde_json::from_str::<&RawValue>(&event.data).is_err() {
                events.failed("bad_answer");
                return Some(upstream::malformed("an event is no JSON"));
            }
            // Only what may tell it is read.
            if event.data.contains("\"usage\"")
                && let Ok(chunk) = serde_json::from_str(&event.data)
            {
                events.note(&chunk);
            }
        }
        if sender.send(sse::event_bytes(event.event.as_deref(), &event.data)).await.is_err() || is_done {
            return None;
        }
    }
}
