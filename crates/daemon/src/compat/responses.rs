//! Responses of agent models: tells a client what the loop does, as items and semantic events.
//!
//! Guarantees: events are numbered without a gap; governed calls are told as `mcp_call` items of the server `palyra`, questions as
//! `mcp_approval_request`; `store` says whether the response is kept by then, not whether that was meant.

use std::{collections::BTreeMap, sync::Arc};

use axum::{body::Bytes, http::StatusCode, response::Response};
use palyra_types::id::SessionId;
use serde_json::{Map, Value, json};

use super::{
    chat::{self, asked},
    failing,
    looping::{Done, Ended, Happening, Why},
    naming::AgentSection,
    standing::Standing,
    stored,
    telling::{self, Telling, named},
    turn::{Usage, WantedCall},
    wanted::Wanted,
};
use crate::{app::App, failure::Failure, reply};

/// Answers with an agent.
///
/// # Errors
/// When the request makes no sense, or nothing can be begun.
pub async fn answer(
    app: &Arc<App>,
    caller: &Standing,
    agent: Arc<AgentSection>,
    body: Map<String, Value>,
) -> Result<Response, Failure> {
    let wanted = Wanted::read(body)?;
    let (mut messages, mut session) = (Vec::new(), None);
    if let Some(instructions) = &wanted.instructions {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    // What a response was told for itself is not carried on; what was said is.
    let untold = messages.len() + usize::from(!agent.instructions.is_empty());
    if let Some(previous) = &wanted.previous {
        let past = stored::past(app, caller.caller(), previous).await?;
        messages.extend(past.messages);
        session = Some(past.session);
    }
    messages.extend(wanted.said);
    let model = format!("palyra/{}", agent.name);
    let begun = chat::begin(app, caller, agent, (wanted.of_client, messages), (wanted.settings, session)).await?;
    let telling = ResponseTelling {
        id: format!("resp_{}", begun.run),
        created: app.clock.now().unix_millis() / 1_000,
        model,
        previous: wanted.previous,
        instructions: wanted.instructions,
        metadata: wanted.metadata,
        tools: wanted.tools,
        local: app.local.to_string(),
        stores: wanted.stores && app.config_now().transcripts.enabled,
        keeping: Keeping { app: Arc::clone(app), session: begun.session, whose: caller.caller().principal.to_string() },
        sent: wanted.items,
        untold,
        sequence: 0,
        items: Vec::new(),
        message: None,
        calls: BTreeMap::new(),
        questions: BTreeMap::new(),
    };
    if wanted.streams {
        return Ok(telling::stream(begun, telling));
    }
    Ok(reply::json(StatusCode::OK, &telling::whole(begun, telling).await?))
}

struct ResponseTelling {
    id: String,
    created: i64,
    model: String,
    previous: Option<String>,
    instructions: Option<String>,
    metadata: Value,
    tools: Vec<Value>,
    local: String,
    /// Whether it is to be kept, and in the end whether it is.
    stores: bool,
    keeping: Keeping,
    /// What the client sent.
    sent: Vec<Value>,
    /// How many messages at the beginning are not carried on.
    untold: usize,
    sequence: u64,
    items: Vec<Value>,
    /// Where the message stands that is being said, and its text.
    message: Option<(usize, String)>,
    /// Where calls stand, by the model's ids.
    calls: BTreeMap<String, usize>,
    /// Where questions stand, by the ids of their calls.
    questions: BTreeMap<String, usize>,
}

/// Where a response is kept, and for whom.
struct Keeping {
    app: Arc<App>,
    session: SessionId,
    whose: String,
}

impl ResponseTelling {
    fn event(&mut self, kind: &str, mut more: Value) -> Bytes {
        if let Some(more) = more.as_object_mut() {
            more.insert("type".to_owned(), json!(kind));
            more.insert("sequence_number".to_owned(), json!(self.sequence));
        }
        self.sequence += 1;
        named(kind, &more)
    }

    fn response(&self, status: &str, ended: Option<&Ended>, error: Option<&Failure>) -> Value {
        let limit = ended.and_then(|ended| match &ended.why {
            Why::Limit(why) => Some(json!({ "reason": "max_output_tokens", "palyra": why })),
            Why::Filtered => Some(json!({ "reason": "content_filter" })),
            Why::Stop | Why::Client(_) => None,
        });
        let error = error.map(|failure| {
            // SECURITY: after the usual word some clients ask again by themselves, and what was done already would be done once more.
            let code = if failure.repeats { "invalid_prompt" } else { "server_error" };
            json!({ "code": code, "message": failing::message(&failure.detail) })
        });
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "background": false,
            "error": error, "incomplete_details": limit, "instructions": self.instructions, "metadata": self.metadata,
            "model": self.model, "output": self.items, "parallel_tool_calls": true,
            "previous_response_id": self.previous, "store": self.stores, "temperature": 1.0, "top_p": 1.0, "text": { "format": { "type": "text" } },
            "tool_choice": "auto", "tools": self.tools, "truncation": "disabled",
            "usage": ended.map(|ended| usage(ended.usage)),
        })
    }

    fn add(&mut self, item: Value) -> (usize, Bytes) {
        let index = self.items.len();
        self.items.push(item.clone());
        (index, self.event("response.output_item.added", json!({ "output_index": index, "item": item })))
    }

    fn done(&mut self, index: usize) -> Bytes {
        let item = self.items.get(index).cloned().unwrap_or_default();
        self.event("response.output_item.done", json!({ "output_index": index, "item": item }))
    }

    fn set(&mut self, index: usize, pairs: &[(&str, Value)]) {
        if let Some(item) = self.items.get_mut(index).and_then(Value::as_object_mut) {
            for (name, value) in pairs {
                item.insert((*name).to_owned(), value.clone());
            }
        }
    }

    fn item_id(&self, index: usize) -> Value {
        self.items.get(index).and_then(|item| item.get("id")).cloned().unwrap_or_default()
    }

    fn say(&mut self, text: &str) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let index = match &mut self.message {
            Some((index, said)) => {
                said.push_str(text);
                *index
            }
            None => {
                let id = format!("msg_{}_{}", self.id, self.items.len());
                let item = json!({
                    "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [],
                });
                let (index, added) = self.add(item);
                pieces.push(added);
                let part = json!({ "type": "output_text", "text": "", "annotations": [] });
                pieces.push(self.event(
                    "response.content_part.added",
                    json!({
                        "item_id": id, "output_index": index, "content_index": 0, "part": part,
                    }),
                ));
                self.message = Some((index, text.to_owned()));
                index
            }
        };
        let id = self.item_id(index);
        pieces.push(self.event(
            "response.output_text.delta",
            json!({
                "item_id": id, "output_index": index, "content_index": 0, "delta": text, "logprobs": [],
            }),
        ));
        pieces
    }

    /// Ends the message that is being said, if one is.
    fn close_message(&mut self) -> Vec<Bytes> {
        let Some((index, text)) = self.message.take() else { return Vec::new() };
        let id = self.item_id(index);
        let part = json!({ "type": "output_text", "text": text, "annotations": [] });
        let place = |more: Value| {
            let mut place = json!({ "item_id": id, "output_index": index, "content_index": 0 });
            if let (Some(place), Value::Object(more)) = (place.as_object_mut(), more) {
                place.extend(more);
            }
            place
        };
        let said = self.event("response.output_text.done", place(json!({ "text": text, "logprobs": [] })));
        let ended = self.event("response.content_part.done", place(json!({ "part": part })));
        self.set(index, &[("status", json!("completed")), ("content", json!([part]))]);
        vec![said, ended, self.done(index)]
    }

    fn proposed(&mut self, id: &str, tool: &str, arguments: &str) -> Vec<Bytes> {
        let mut pieces = self.close_message();
        let item_id = format!("mcp_{}_{}", self.id, self.items.len());
        let item = json!({
            "id": item_id, "type": "mcp_call", "status": "in_progress", "server_label": SERVER, "name": tool,
            "arguments": "", "output": null, "error": null, "approval_request_id": null,
        });
        let (index, added) = self.add(item);
        pieces.push(added);
        self.calls.insert(id.to_owned(), index);
        let place = json!({ "item_id": item_id, "output_index": index });
        pieces.push(self.event("response.mcp_call.in_progress", place));
        let whole = json!({ "item_id": item_id, "output_index": index, "arguments": arguments });
        pieces.push(self.event("response.mcp_call_arguments.done", whole));
        self.set(index, &[("arguments", json!(arguments))]);
        pieces
    }

    fn over(&mut self, done: &Done) -> Vec<Bytes> {
        // One that was never proposed has no item: the model alone is told.
        let Some(index) = self.calls.get(&done.id).copied() else { return Vec::new() };
        let failed = done.code.is_some();
        let (output, error) = match failed {
            true => (Value::Null, json!({ "type": "mcp_tool_execution_error", "content": [text(&done.told)] })),
            false => (json!(done.told), Value::Null),
        };
        let status = if failed { "failed" } else { "completed" };
        let palyra = chat::call(done);
        self.set(index, &[("status", json!(status)), ("output", output), ("error", error), ("palyra", palyra)]);
        if let Some(question) = done.call.and_then(|call| self.questions.get(&call.to_string()).copied()) {
            let id = self.item_id(question);
            self.set(index, &[("approval_request_id", id)]);
        }
        let place = json!({ "item_id": self.item_id(index), "output_index": index });
        let kind = if failed { "response.mcp_call.failed" } else { "response.mcp_call.completed" };
        vec![self.event(kind, place), self.done(index)]
    }

    fn wanted(&mut self, call: &WantedCall) -> Vec<Bytes> {
        let item_id = format!("fc_{}_{}", self.id, self.items.len());
        let item = json!({
            "id": item_id, "type": "function_call", "status": "in_progress", "call_id": call.id,
            "name": call.function, "arguments": "",
        });
        let (index, added) = self.add(item);
        let place = |key: &str| json!({ "item_id": item_id, "output_index": index, key: call.arguments });
        let delta = self.event("response.function_call_arguments.delta", place("delta"));
        let whole = self.event("response.function_call_arguments.done", place("arguments"));
        self.set(index, &[("arguments", json!(call.arguments)), ("status", json!("completed"))]);
        vec![added, delta, whole, self.done(index)]
    }
}

impl Telling for ResponseTelling {
    fn begin(&mut self) -> Vec<Bytes> {
        let response = self.response("in_progress", None, None);
        let created = self.event("response.created", json!({ "response": response }));
        vec![created, self.event("response.in_progress", json!({ "response": response }))]
    }

    fn happened(&mut self, happening: &Happening) -> Vec<Bytes> {
        match happening {
            Happening::Text(text) => self.say(text),
            Happening::Proposed { id, tool, arguments } => self.proposed(id, tool.as_str(), arguments),
            Happening::Asked(approval) => {
                let item = json!({
                    "id": format!("mcpr_{}", approval.id), "type": "mcp_approval_request", "server_label": SERVER,
                    "name": approval.tool, "arguments": approval.args.to_string(),
                    "palyra": asked(approval, &self.local),
                });
                let (index, added) = self.add(item);
                self.questions.insert(approval.call.to_string(), index);
                vec![added, self.done(index)]
            }
            Happening::Resolved { .. } => Vec::new(),
            Happening::Over(done) => self.over(done),
        }
    }

    fn closing(&mut self, ended: &Ended) -> Vec<Bytes> {
        let mut pieces = self.close_message();
        if let Why::Client(calls) = &ended.why {
            pieces.extend(calls.iter().flat_map(|call| self.wanted(call)).collect::<Vec<_>>());
        }
        pieces
    }

    async fn keep(&mut self, ended: &Ended) {
        if !self.stores {
            return;
        }
        let response = self.response(status(&ended.why), Some(ended), None);
        let messages = ended.messages.get(self.untold..).unwrap_or_default();
        let Keeping { app, session, whose } = &self.keeping;
        let kept = stored::keep(app, (*session, whose), &response, (&self.sent, messages)).await;
        if let Err(failure) = kept {
            tracing::warn!(response = self.id, error = failure.detail.message, "a response could not be kept");
            self.stores = false;
        }
    }

    fn end(&mut self, ended: Result<&Ended, &Failure>) -> Vec<Bytes> {
        match ended {
            Ok(ended) => {
                let status = status(&ended.why);
                let response = self.response(status, Some(ended), None);
                vec![self.event(&format!("response.{status}"), json!({ "response": response }))]
            }
            Err(failure) => {
                let mut pieces = self.close_message();
                self.stores = false;
                let response = self.response("failed", None, Some(failure));
                let shape = failing::shape(failure.status, &failure.detail);
                let error = shape.get("error").cloned().unwrap_or_default();
                let told = json!({ "code": error.get("code"), "message": error.get("message"), "param": null });
                pieces.push(self.event("error", told));
                pieces.push(self.event("response.failed", json!({ "response": response })));
                pieces
            }
        }
    }

    fn whole(&mut self, ended: &Ended) -> Value {
        self.response(status(&ended.why), Some(ended), None)
    }
}

const fn status(why: &Why) -> &'static str {
    match why {
        Why::Stop | Why::Client(_) => "completed",
        Why::Limit(_) | Why::Filtered => "incomplete",
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input, "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
        "output_tokens": usage.output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.total(),
    })
}

/// What our tools are told as: those of this server.
const SERVER: &str = "palyra";
