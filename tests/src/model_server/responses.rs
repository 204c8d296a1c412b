//! The wire format of the Responses API.

use serde_json::{Value, json};

use super::{
    CREATED,
    answer::{Call, Told},
};

/// A response in one piece.
pub(super) fn whole(told: &Told, asked: &Value) -> Value {
    response(told, asked, if told.cut_short { "incomplete" } else { "completed" })
}

/// A response as events.
pub(super) fn events(told: &Told, asked: &Value) -> Vec<Vec<u8>> {
    let mut events = Events::default();
    events.push("response.created", json!({ "response": response(told, asked, "in_progress") }));
    events.push("response.in_progress", json!({ "response": response(told, asked, "in_progress") }));
    if let Some(text) = &told.text {
        write_text(&mut events, told, text);
    }
    for (index, call) in told.calls.iter().enumerate() {
        write_call(&mut events, told, index, call);
    }
    let (last, status) = match (&told.fails, told.cut_short) {
        (Some(_), _) => ("response.failed", "failed"),
        (None, true) => ("response.incomplete", "incomplete"),
        (None, false) => ("response.completed", "completed"),
    };
    events.push(last, json!({ "response": response(told, asked, status) }));
    events.0
}

fn write_text(events: &mut Events, told: &Told, text: &str) {
    let (id, place) = (message_id(told), json!({ "output_index": 0 }));
    let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    let inner = json!({ "item_id": id, "output_index": 0, "content_index": 0 });
    let with = |place: &Value, name: &str, value: Value| {
        let mut fields = place.clone();
        fields[name] = value;
        fields
    };
    let begun = json!({ "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [] });
    events.push("response.output_item.added", with(&place, "item", begun));
    events.push("response.content_part.added", with(&inner, "part", part("")));
    let inner_logged = with(&inner, "logprobs", json!([]));
    for piece in told.split(text) {
        events.push("response.output_text.delta", with(&inner_logged, "delta", json!(piece)));
    }
    events.push("response.output_text.done", with(&inner_logged, "text", json!(text)));
    events.push("response.content_part.done", with(&inner, "part", part(text)));
    events.push("response.output_item.done", with(&place, "item", message(told, text)));
}

fn write_call(events: &mut Events, told: &Told, index: usize, call: &Call) {
    let place = index + usize::from(told.text.is_some());
    let id = function_id(told, index);
    let mut begun = function_call(told, index, call);
    begun["status"] = json!("in_progress");
    begun["arguments"] = json!("");
    events.push("response.output_item.added", json!({ "output_index": place, "item": begun }));
    for piece in told.split(&call.arguments) {
        let delta = json!({ "item_id": id, "output_index": place, "delta": piece });
        events.push("response.function_call_arguments.delta", delta);
    }
    let done = json!({ "item_id": id, "output_index": place, "name": call.name, "arguments": call.arguments });
    events.push("response.function_call_arguments.done", done);
    let item = function_call(told, index, call);
    events.push("response.output_item.done", json!({ "output_index": place, "item": item }));
}

/// Events so far. Each has the number of those before it.
#[derive(Default)]
struct Events(Vec<Vec<u8>>);

impl Events {
    fn push(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = json!(kind);
        fields["sequence_number"] = json!(self.0.len());
        self.0.push(format!("event: {kind}\ndata: {fields}\n\n").into_bytes());
    }
}

fn response(told: &Told, asked: &Value, status: &str) -> Value {
    let or = |name: &str, otherwise: Value| asked.get(name).cloned().unwrap_or(otherwise);
    let over = status == "completed" || status == "incomplete";
    let error = told.fails.as_ref().filter(|_| status == "failed");
    json!({
        "id": format!("resp_{}", told.number),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": false,
        "error": error.map(|message| json!({ "code": "server_error", "message": message })),
        "incomplete_details": (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" })),
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"),
        "max_tool_calls": null,
        "metadata": or("metadata", json!({})),
        "model": asked.get("model"),
        "output": if over { output(told) } else { json!([]) },
        "parallel_tool_calls": or("parallel_tool_calls", json!(true)),
        "previous_response_id": asked.get("previous_response_id"),
        "prompt_cache_key": asked.get("prompt_cache_key"),
        "reasoning": or("reasoning", json!({ "effort": null, "summary": null })),
        "service_tier": "default",
        "store": or("store", json!(true)),
        "temperature": or("temperature", json!(1.0)),
        "text": or("text", json!({ "format": { "type": "text" } })),
        "tool_choice": or("tool_choice", json!("auto")),
        "tools": or("tools", json!([])),
        "top_p": or("top_p", json!(1.0)),
        "truncation": or("truncation", json!("disabled")),
        "usage": over.then(|| usage(told)),
        "user": asked.get("user"),
    })
}

fn output(told: &Told) -> Value {
    let text = told.text.iter().map(|text| message(told, text));
    text.chain(told.calls.iter().enumerate().map(|(index, call)| function_call(told, index, call))).collect()
}

fn message(told: &Told, text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }]);
    json!({ "id": message_id(told), "type": "message", "status": "completed", "role": "assistant", "content": content })
}

fn function_call(told: &Told, index: usize, call: &Call) -> Value {
    let mut item = json!({
        "id": function_id(told, index),
        "type": "function_call",
        "status": "completed",
        "name": call.name,
        "call_id": told.call_id(index),
        "arguments": call.arguments,
    });
    if let Some(namespace) = &call.namespace {
        item["namespace"] = json!(namespace);
    }
    item
}

fn usage(told: &Told) -> Value {
    let (input, output) = told.usage;
    json!({
        "input_tokens": input,
        "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + output,
    })
}

fn message_id(told: &Told) -> String {
    format!("msg_{}", told.number)
}

fn function_id(told: &Told, index: usize) -> String {
    format!("fc_{}_{index}", told.number)
}
