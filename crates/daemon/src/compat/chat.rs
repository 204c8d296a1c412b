//! Chat completions of agent models: reads what a client asks, and tells it what the loop does.
//!
//! Guarantees: what the client's SDK parses is what its provider would send: integer indices, one finish reason, usage in the last chunk,
//! `[DONE]`. What Palyra adds stands under `palyra`, beside the choices, where SDKs pass it over. Tools of the client are handed back as it
//! declared them.

use std::sync::Arc;

use axum::{body::Bytes, http::StatusCode, response::Response};
use palyra_api::approval::Approval;
use palyra_types::id::SessionId;
use serde_json::{Map, Value, json};

use super::{
    failing,
    looping::{AgentLoop, Done, Ended, Happening, Why},
    naming::AgentSection,
    offering::Offered,
    standing::Standing,
    telling::{self, Telling, data},
    turn::{Usage, WantedCall},
};
use crate::{app::App, failure::Failure, question, reply};

/// Answers a chat with an agent.
///
/// # Errors
/// When the request makes no sense, or nothing can be begun.
pub async fn answer(
    app: &Arc<App>,
    caller: &Standing,
    agent: Arc<AgentSection>,
    mut body: Map<String, Value>,
) -> Result<Response, Failure> {
    let streams = flag(&mut body, "stream")?;
    let options = body.remove("stream_options").unwrap_or_default();
    let wants_usage = options.get("include_usage").and_then(Value::as_bool).unwrap_or(false);
    if body.remove("n").is_some_and(|n| n != json!(1)) {
        return Err(Failure::bad_request("an agent gives one answer; leave `n` out"));
    }
    if body.contains_key("functions") || body.contains_key("function_call") {
        return Err(Failure::bad_request("`functions` is not understood; use `tools`"));
    }
    let Some(Value::Array(messages)) = body.remove("messages") else {
        return Err(Failure::bad_request("`messages` is missing, or no list"));
    };
    let of_client = client_tools(body.remove("tools"))?;
    let model = format!("palyra/{}", agent.name);
    let begun = begin(app, caller, agent, (of_client, messages), (body, None)).await?;
    let now = app.clock.now().unix_millis();
    let telling = ChatTelling {
        id: format!("chatcmpl-{}", begun.run),
        created: now / 1_000,
        model,
        wants_usage,
        run: begun.run.to_string(),
        local: app.local.to_string(),
        text: String::new(),
        calls: Vec::new(),
    };
    if streams {
        return Ok(telling::stream(begun, telling));
    }
    Ok(reply::json(StatusCode::OK, &telling::whole(begun, telling).await?))
}

/// Opens a run for an agent, in a session or in the caller's own, and offers it its tools.
///
/// # Errors
/// When a tool of the client has the name of one of Palyra's, or no run can be opened.
pub async fn begin(
    app: &Arc<App>,
    standing: &Standing,
    agent: Arc<AgentSection>,
    (of_client, said): (Vec<Value>, Vec<Value>),
    (mut settings, session): (Map<String, Value>, Option<SessionId>),
) -> Result<AgentLoop, Failure> {
    if said.is_empty() {
        return Err(Failure::bad_request("nothing was said to the agent"));
    }
    for ours in ["model", "store", "metadata", "service_tier", "user", "safety_identifier", "prompt_cache_key"] {
        settings.remove(ours);
    }
    let caller = standing.caller();
    let offered = Offered::to(app, caller, &agent.tools, &of_client)?;
    let session = match session {
        Some(session) => session,
        None => app.own_runs.of(&caller.principal, &app.gate).await?.0,
    };
    let run = app.own_runs.open(session, &caller.principal, None, &app.gate).await?;
    let mut messages = Vec::with_capacity(said.len().saturating_add(1));
    if !agent.instructions.is_empty() {
        messages.push(json!({ "role": "system", "content": agent.instructions }));
    }
    messages.extend(said);
    let (app, standing) = (Arc::clone(app), standing.clone());
    Ok(AgentLoop { app, standing, agent, offered, of_client, settings, messages, session, run })
}

/// A switch that is off if it is not there.
///
/// # Errors
/// When it is neither.
pub fn flag(body: &mut Map<String, Value>, name: &str) -> Result<bool, Failure> {
    match body.remove(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(_) => Err(Failure::bad_request(format!("`{name}` is neither true nor false"))),
    }
}

/// Functions that a client brings along.
fn client_tools(tools: Option<Value>) -> Result<Vec<Value>, Failure> {
    let tools = match tools {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(Failure::bad_request("`tools` is no list")),
    };
    let is_function = |tool: &Value| {
        tool.get("type").and_then(Value::as_str) == Some("function")
            && tool.get("function").and_then(|function| function.get("name")).is_some_and(Value::is_string)
    };
    match tools.iter().all(is_function) && tools.len() <= MOST_TOOLS {
        true => Ok(tools),
        false => {
            Err(Failure::bad_request(format!("`tools` of an agent are at most {MOST_TOOLS} functions with a name")))
        }
    }
}

struct ChatTelling {
    id: String,
    created: i64,
    model: String,
    wants_usage: bool,
    run: String,
    local: String,
    /// What was said, for whoever is told in one piece.
    text: String,
    /// The calls that are over.
    calls: Vec<Value>,
}

impl ChatTelling {
    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
        })
    }

    /// A chunk that says nothing but what Palyra adds.
    fn beside(&self, palyra: Value) -> Bytes {
        let mut chunk = self.chunk(&json!({}), None);
        if let Some(chunk) = chunk.as_object_mut() {
            chunk.insert("palyra".to_owned(), palyra);
        }
        data(&chunk)
    }
}

impl Telling for ChatTelling {
    fn begin(&mut self) -> Vec<Bytes> {
        vec![data(&self.chunk(&json!({ "role": "assistant", "content": "" }), None))]
    }

    fn happened(&mut self, happening: &Happening) -> Vec<Bytes> {
        match happening {
            Happening::Text(text) => {
                self.text.push_str(text);
                vec![data(&self.chunk(&json!({ "content": text }), None))]
            }
            Happening::Proposed { id, tool, arguments } => {
                vec![self.beside(json!({ "type": "tool.proposed", "id": id, "tool": tool, "arguments": arguments }))]
            }
            Happening::Asked(approval) => {
                vec![self.beside(json!({ "type": "approval.requested", "approval": asked(approval, &self.local) }))]
            }
            Happening::Resolved { approval, state } => {
                vec![self.beside(json!({ "type": "approval.resolved", "approval": approval, "state": state }))]
            }
            Happening::Over(done) => {
                let told = call(done);
                self.calls.push(told.clone());
                vec![self.beside(json!({ "type": "tool.over", "call": told }))]
            }
        }
    }

    fn end(&mut self, ended: Result<&Ended, &Failure>) -> Vec<Bytes> {
        let ended = match ended {
            Ok(ended) => ended,
            Err(failure) => return vec![data(&failing::shape(failure.status, &failure.detail))],
        };
        let mut pieces = Vec::new();
        if let Why::Client(calls) = &ended.why {
            let told: Vec<Value> = calls.iter().enumerate().map(|(index, call)| wanted(call, Some(index))).collect();
            pieces.push(data(&self.chunk(&json!({ "tool_calls": told }), None)));
        }
        let mut last = self.chunk(&json!({}), Some(finish(&ended.why)));
        if let (Some(last), Some(why)) = (last.as_object_mut(), limit(&ended.why)) {
            last.insert("palyra".to_owned(), json!({ "type": "run.limited", "why": why }));
        }
        pieces.push(data(&last));
        if self.wants_usage {
            pieces.push(data(&json!({
                "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
                "choices": [], "usage": usage(ended.usage),
            })));
        }
        pieces.push(Bytes::from_static(b"data: [DONE]\n\n"));
        pieces
    }

    fn whole(&mut self, ended: &Ended) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text, "refusal": null, "annotations": [] });
        if let (Some(message), Why::Client(calls)) = (message.as_object_mut(), &ended.why) {
            message.insert("tool_calls".to_owned(), calls.iter().map(|call| wanted(call, None)).collect());
            if self.text.is_empty() {
                message.insert("content".to_owned(), Value::Null);
            }
        }
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(&ended.why) }],
            "usage": usage(ended.usage),
            "palyra": { "run": self.run, "calls": self.calls, "limited": limit(&ended.why) },
        })
    }
}

/// A question, as a client is told that has nobody to answer it: what is asked, and where a person answers.
#[must_use]
pub fn asked(approval: &Approval, local: &str) -> Value {
    json!({
        "id": approval.id, "call": approval.call, "tool": approval.tool, "summary": approval.summary,
        "risk": approval.risk, "reason": approval.reason, "answer_by": approval.answer_by,
        "url": question::place(local, approval.id),
    })
}

/// A call that is over, as a client is told.
#[must_use]
pub fn call(done: &Done) -> Value {
    json!({
        "id": done.id, "call": done.call, "refused": done.code, "is_error": done.is_error, "receipt": done.receipt,
    })
}

fn wanted(call: &WantedCall, index: Option<usize>) -> Value {
    let mut told = json!({
        "id": call.id, "type": "function", "function": { "name": call.function, "arguments": call.arguments },
    });
    if let (Some(told), Some(index)) = (told.as_object_mut(), index) {
        told.insert("index".to_owned(), json!(index));
    }
    told
}

const fn finish(why: &Why) -> &'static str {
    match why {
        Why::Stop => "stop",
        Why::Limit(_) => "length",
        Why::Client(_) => "tool_calls",
        Why::Filtered => "content_filter",
    }
}

const fn limit(why: &Why) -> Option<&String> {
    match why {
        Why::Limit(why) => Some(why),
        Why::Stop | Why::Client(_) | Why::Filtered => None,
    }
}

fn usage(usage: Usage) -> Value {
    json!({ "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total() })
}

/// How many functions a client may bring along.
pub const MOST_TOOLS: usize = 128;
