//! The wire format of the Chat Completions API.

use serde_json::{Map, Value, json};

use super::{CREATED, answer::Told};

/// A completion in one piece.
pub(super) fn whole(told: &Told, asked: &Value) -> Value {
    let mut message = json!({ "role": "assistant", "content": told.text, "refusal": null, "annotations": [] });
    if !told.calls.is_empty() {
        let calls = told.calls.iter().enumerate().map(|(index, call)| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": told.call_id(index), "type": "function", "function": function })
        });
        message["tool_calls"] = calls.collect();
    }
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(told) });
    let mut body = frame(told, asked, "chat.completion");
    body.insert("choices".to_owned(), json!([choice]));
    body.insert("usage".to_owned(), usage(told));
    Value::Object(body)
}

/// A completion as events.
pub(super) fn events(told: &Told, asked: &Value) -> Vec<Vec<u8>> {
    let counts = asked.pointer("/stream_options/include_usage") == Some(&Value::Bool(true));
    let chunk = |choices: Value, used: Value| {
        let mut body = frame(told, asked, "chat.completion.chunk");
        body.insert("choices".to_owned(), choices);
        if counts {
            body.insert("usage".to_owned(), used);
        }
        event(&Value::Object(body))
    };
    let choice = |delta: Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]), Value::Null)
    };
    let mut events: Vec<Vec<u8>> = deltas(told).into_iter().map(|delta| choice(delta, Value::Null)).collect();
    if let Some(message) = &told.fails {
        let error = json!({ "message": message, "type": "server_error", "param": null, "code": "server_error" });
        events.push(event(&json!({ "error": error })));
        return events;
    }
    events.push(choice(json!({}), json!(finish(told))));
    if counts {
        events.push(chunk(json!([]), usage(told)));
    }
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}

/// What each event adds: the role, then the text, then the calls, each beginning with its id and name.
fn deltas(told: &Told) -> Vec<Value> {
    let content = if told.text.is_some() { json!("") } else { Value::Null };
    let mut deltas = vec![json!({ "role": "assistant", "content": content, "refusal": null })];
    let text = told.text.as_deref().unwrap_or_default();
    deltas.extend(told.split(text).into_iter().map(|piece| json!({ "content": piece })));
    let mut calls: Vec<(usize, Value)> = Vec::new();
    for (index, call) in told.calls.iter().enumerate() {
        let function = json!({ "name": call.name, "arguments": "" });
        let begins = json!({ "index": index, "id": told.call_id(index), "type": "function", "function": function });
        calls.push((0, begins));
        let goes_on = |piece| json!({ "index": index, "function": { "arguments": piece } });
        calls.extend(
            told.split(&call.arguments).into_iter().map(goes_on).enumerate().map(|(turn, one)| (turn + 1, one)),
        );
    }
    if told.interleaved {
        calls.sort_by_key(|(turn, _)| *turn);
    }
    deltas.extend(calls.into_iter().map(|(_, call)| json!({ "tool_calls": [call] })));
    deltas
}

const fn finish(told: &Told) -> &'static str {
    match (told.cut_short, told.calls.is_empty()) {
        (true, _) => "length",
        (false, true) => "stop",
        (false, false) => "tool_calls",
    }
}

fn usage(told: &Told) -> Value {
    let (input, output) = told.usage;
    json!({
        "prompt_tokens": input,
        "completion_tokens": output,
        "total_tokens": input + output,
        "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

fn frame(told: &Told, asked: &Value, object: &str) -> Map<String, Value> {
    let frame = json!({
        "id": format!("chatcmpl-{}", told.number),
        "object": object,
        "created": CREATED,
        "model": asked.get("model"),
        "service_tier": "default",
        "system_fingerprint": "fp_lab",
    });
    frame.as_object().cloned().unwrap_or_default()
}

fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}
