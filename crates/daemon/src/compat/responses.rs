//! Responses of agent models: reads what a client asks, and tells it what the loop does, as items and semantic events.
//!
//! Guarantees: events are numbered without a gap; governed calls are told as `mcp_call` items of the server `palyra`, questions as
//! `mcp_approval_request`. SECURITY: an `mcp_approval_response` is refused: whoever holds an agent's credential must not answer for a person.

use std::{collections::BTreeMap, sync::Arc};

use axum::{body::Bytes, http::StatusCode, response::Response};
use palyra_types::visible::visible;
use serde_json::{Map, Value, json};

use super::{
    chat::{self, MOST_TOOLS, asked, flag},
    failing,
    looping::{Done, Ended, Happening, Why},
    naming::AgentSection,
    telling::{self, Telling, named},
    turn::{Usage, WantedCall},
};
use crate::{app::App, caller::Caller, failure::Failure, reply};

/// Answers with an agent.
///
/// # Errors
/// When the request makes no sense, or nothing can be begun.
pub async fn answer(
    app: &Arc<App>,
    caller: &Caller,
    agent: Arc<AgentSection>,
    body: Map<String, Value>,
) -> Result<Response, Failure> {
    let Wanted { streams, instructions, said, of_client, settings, told_tools } = Wanted::read(body)?;
    let mut messages = Vec::new();
    if let Some(instructions) = &instructions {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    messages.extend(said);
    let model = format!("palyra/{}", agent.name);
    let begun = chat::begin(app, caller, agent, (of_client, messages), settings).await?;
    let telling = ResponseTelling {
        id: format!("resp_{}", begun.run),
        created: app.clock.now().unix_millis() / 1_000,
        model,
        instructions,
        tools: told_tools,
        local: app.local.to_string(),
        sequence: 0,
        items: Vec::new(),
        message: None,
        calls: BTreeMap::new(),
        questions: BTreeMap::new(),
    };
    if streams {
        return Ok(telling::stream(begun, telling, |_| std::future::ready(())));
    }
    let (whole, _) = telling::whole(begun, telling).await?;
    Ok(reply::json(StatusCode::OK, &whole))
}

/// What a client wants, in the words of chat completions, which every provider speaks.
struct Wanted {
    streams: bool,
    instructions: Option<String>,
    said: Vec<Value>,
    of_client: Vec<Value>,
    settings: Map<String, Value>,
    told_tools: Vec<Value>,
}

impl Wanted {
    fn read(mut body: Map<String, Value>) -> Result<Self, Failure> {
        let streams = flag(&mut body, "stream")?;
        if flag(&mut body, "background")? {
            return Err(Failure::bad_request("an agent answers while its client waits; leave `background` out"));
        }
        for kept in ["previous_response_id", "conversation"] {
            if body.remove(kept).is_some_and(|value| !value.is_null()) {
                let message = format!("`{kept}` is not kept for agents; send the whole conversation as `input`");
                return Err(Failure::bad_request(message));
            }
        }
        let instructions = match body.remove("instructions") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => return Err(Failure::bad_request("`instructions` is no text")),
        };
        let said = match body.remove("input") {
            Some(Value::String(text)) => vec![json!({ "role": "user", "content": text })],
            Some(Value::Array(items)) => messages(items)?,
            _ => return Err(Failure::bad_request("`input` is missing, or neither a text nor a list")),
        };
        let told_tools = match body.remove("tools") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(tools)) if tools.len() <= MOST_TOOLS => tools,
            Some(_) => return Err(Failure::bad_request(format!("`tools` is no list of at most {MOST_TOOLS}"))),
        };
        let of_client = told_tools.iter().map(function).collect::<Result<_, _>>()?;
        let mut settings = Map::new();
        for (theirs, ours) in [
            ("temperature", "temperature"),
            ("top_p", "top_p"),
            ("max_output_tokens", "max_tokens"),
            ("parallel_tool_calls", "parallel_tool_calls"),
        ] {
            if let Some(value) = body.remove(theirs).filter(|value| !value.is_null()) {
                settings.insert(ours.to_owned(), value);
            }
        }
        match body.remove("tool_choice") {
            Some(choice @ Value::String(_)) => drop(settings.insert("tool_choice".to_owned(), choice)),
            Some(Value::Object(choice)) if choice.get("type") == Some(&json!("function")) => {
                let name = choice.get("name").cloned().unwrap_or_default();
                let choice = json!({ "type": "function", "function": { "name": name } });
                settings.insert("tool_choice".to_owned(), choice);
            }
            _ => {}
        }
        Ok(Self { streams, instructions, said, of_client, settings, told_tools })
    }
}

/// A function of the client, as chats spell it.
fn function(tool: &Value) -> Result<Value, Failure> {
    let name = tool.get("name").and_then(Value::as_str);
    match (tool.get("type").and_then(Value::as_str), name) {
        (Some("function"), Some(name)) => {
            let mut function = json!({ "name": name });
            if let Some(function) = function.as_object_mut() {
                for key in ["description", "parameters", "strict"] {
                    if let Some(value) = tool.get(key).filter(|value| !value.is_null()) {
                        function.insert(key.to_owned(), value.clone());
                    }
                }
            }
            Ok(json!({ "type": "function", "function": function }))
        }
        (kind, _) => {
            let kind = visible(kind.unwrap_or("nothing"));
            Err(Failure::bad_request(format!("a tool of an agent's client is a function with a name, not `{kind}`")))
        }
    }
}

/// Items of a conversation as messages of a chat.
fn messages(items: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let mut messages = Vec::new();
    for item in items {
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind {
            "message" => {
                let role = match text("role").as_str() {
                    "developer" => "system".to_owned(),
                    role @ ("system" | "user" | "assistant") => role.to_owned(),
                    other => return Err(Failure::bad_request(format!("nobody is called `{}`", visible(other)))),
                };
                let content = content(item.get("content"))?;
                messages.push(json!({ "role": role, "content": content }));
            }
            "function_call" | "mcp_call" => {
                let id = if kind == "mcp_call" { text("id") } else { text("call_id") };
                let function = json!({ "name": function_of(&text("name")), "arguments": text("arguments") });
                let call = json!({ "id": id, "type": "function", "function": function });
                messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
                if kind == "mcp_call" {
                    let output = item.get("output").or_else(|| item.get("error")).and_then(Value::as_str);
                    let output = output.unwrap_or_default();
                    messages.push(json!({ "role": "tool", "tool_call_id": id, "content": output }));
                }
            }
            "function_call_output" => {
                let output = match item.get("output") {
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                    None => String::new(),
                };
                messages.push(json!({ "role": "tool", "tool_call_id": text("call_id"), "content": output }));
            }
            // What was asked is answered elsewhere, and what a model thought is its provider's own.
            "mcp_approval_request" | "mcp_list_tools" | "reasoning" => {}
            "mcp_approval_response" => {
                return Err(Failure::new(
                    "not_for_agents",
                    "a person answers, not the client of an agent",
                    "answer in the console, or with `palyra approvals`; the agent goes on by itself then",
                ));
            }
            other => {
                return Err(Failure::bad_request(format!(
                    "an item of the kind `{}` is not understood",
                    visible(other)
                )));
            }
        }
    }
    Ok(messages)
}

/// A tool of ours by the name that the model knows it by; any other as it stands.
fn function_of(name: &str) -> String {
    palyra_types::ToolName::parse(name).map_or_else(|_| name.to_owned(), |tool| super::offering::function_name(&tool))
}

fn content(content: Option<&Value>) -> Result<Value, Failure> {
    let parts = match content {
        Some(Value::String(text)) => return Ok(json!(text)),
        Some(Value::Array(parts)) => parts,
        _ => return Err(Failure::bad_request("a message has no content")),
    };
    let part = |part: &Value| {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "input_text" | "output_text" | "text" => {
                Ok(json!({ "type": "text", "text": part.get("text").cloned().unwrap_or_default() }))
            }
            "refusal" => Ok(json!({ "type": "text", "text": part.get("refusal").cloned().unwrap_or_default() })),
            "input_image" => Ok(json!({ "type": "image_url", "image_url": {
                "url": part.get("image_url").cloned().unwrap_or_default(),
                "detail": part.get("detail").cloned().unwrap_or_else(|| json!("auto")),
            } })),
            other => Err(Failure::bad_request(format!("content of the kind `{}` is not understood", visible(other)))),
        }
    };
    parts.iter().map(part).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

struct ResponseTelling {
    id: String,
    created: i64,
    model: String,
    instructions: Option<String>,
    tools: Vec<Value>,
    local: String,
    sequence: u64,
    items: Vec<Value>,
    /// Where the message stands that is being said, and its text.
    message: Option<(usize, String)>,
    /// Where calls stand, by the model's ids.
    calls: BTreeMap<String, usize>,
    /// Where questions stand, by the ids of their calls.
    questions: BTreeMap<String, usize>,
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
        let error = error.map(|failure| json!({ "code": "server_error", "message": failure.detail.message }));
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "background": false,
            "error": error, "incomplete_details": limit, "instructions": self.instructions, "metadata": {},
            "model": self.model, "output": self.items, "parallel_tool_calls": true, "previous_response_id": null,
            "store": false, "temperature": 1.0, "top_p": 1.0, "text": { "format": { "type": "text" } },
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
        let (output, error) = if failed { (Value::Null, json!(done.told)) } else { (json!(done.told), Value::Null) };
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

    fn end(&mut self, ended: Result<&Ended, &Failure>) -> Vec<Bytes> {
        let mut pieces = self.close_message();
        match ended {
            Ok(ended) => {
                if let Why::Client(calls) = &ended.why {
                    pieces.extend(calls.iter().flat_map(|call| self.wanted(call)).collect::<Vec<_>>());
                }
                let status = status(&ended.why);
                let response = self.response(status, Some(ended), None);
                pieces.push(self.event(&format!("response.{status}"), json!({ "response": response })));
            }
            Err(failure) => {
                let response = self.response("failed", None, Some(failure));
                let shape = failing::shape(failure.status, &failure.detail);
                let error = shape.get("error").cloned().unwrap_or_default();
                pieces.push(self.event(
                    "error",
                    json!({
                        "code": error.get("code"), "message": error.get("message"), "param": null,
                    }),
                ));
                pieces.push(self.event("response.failed", json!({ "response": response })));
            }
        }
        pieces
    }

    fn whole(&mut self, ended: &Ended) -> Value {
        self.close_message();
        if let Why::Client(calls) = &ended.why {
            calls.iter().for_each(|call| drop(self.wanted(call)));
        }
        self.response(status(&ended.why), Some(ended), None)
    }
}

const fn status(why: &Why) -> &'static str {
    match why {
        Why::Stop | Why::Client(_) => "completed",
        Why::Limit(_) | Why::Filtered => "incomplete",
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": usage.output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.total(),
    })
}

/// What our tools are told as: those of this server.
const SERVER: &str = "palyra";
