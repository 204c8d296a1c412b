//! What a client of responses asks, in the words of chat completions, which every provider speaks.
//!
//! Guarantees: what agents do not do is refused, not passed over. SECURITY: an `mcp_approval_response` is refused: whoever holds an agent's
//! credential must not answer for a person.

use palyra_types::visible::visible;
use serde_json::{Map, Value, json};

use super::chat::{MOST_TOOLS, flag};
use crate::failure::Failure;

/// What a client wants.
pub struct Wanted {
    /// Whether it is to be told as a stream.
    pub streams: bool,
    /// Whether it is to be kept, so that it can be continued.
    pub stores: bool,
    /// The response that this goes on from.
    pub previous: Option<String>,
    /// What the agent is told for this one answer.
    pub instructions: Option<String>,
    /// What was sent, as items.
    pub items: Vec<Value>,
    /// The same as messages of a chat.
    pub said: Vec<Value>,
    /// Functions of the client, as chats spell them.
    pub of_client: Vec<Value>,
    /// The same as the client spelt them.
    pub tools: Vec<Value>,
    /// What the provider is asked besides.
    pub settings: Map<String, Value>,
    /// What the client notes about it.
    pub metadata: Value,
}

impl Wanted {
    /// Reads a request.
    ///
    /// # Errors
    /// When it makes no sense, or asks for what agents do not do.
    pub fn read(mut body: Map<String, Value>) -> Result<Self, Failure> {
        let streams = flag(&mut body, "stream")?;
        let stores = body.get("store").is_none_or(Value::is_null) || flag(&mut body, "store")?;
        if flag(&mut body, "background")? {
            return Err(Failure::bad_request("an agent answers while its client waits; leave `background` out"));
        }
        for (unknown, instead) in [
            ("conversation", "continue by `previous_response_id`, or send the whole conversation as `input`"),
            ("prompt", "send what it says as `instructions` and `input`"),
        ] {
            if body.remove(unknown).is_some_and(|value| !value.is_null()) {
                return Err(Failure::new("bad_request", format!("agents know no `{unknown}`"), instead));
            }
        }
        let previous = text(&mut body, "previous_response_id")?;
        let instructions = text(&mut body, "instructions")?;
        let items = match body.remove("input") {
            Some(Value::String(text)) => vec![json!({ "type": "message", "role": "user", "content": text })],
            Some(Value::Array(items)) => items,
            None | Some(Value::Null) if previous.is_some() => Vec::new(),
            _ => return Err(Failure::bad_request("`input` is missing, or neither a text nor a list")),
        };
        let said = messages(&items)?;
        let tools = match body.remove("tools") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(tools)) if tools.len() <= MOST_TOOLS => tools,
            Some(_) => return Err(Failure::bad_request(format!("`tools` is no list of at most {MOST_TOOLS}"))),
        };
        let of_client = tools.iter().map(function).collect::<Result<_, _>>()?;
        let metadata = metadata(body.remove("metadata"))?;
        let settings = settings(body)?;
        Ok(Self { streams, stores, previous, instructions, items, said, of_client, tools, settings, metadata })
    }
}

fn text(body: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Failure> {
    match body.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Failure::bad_request(format!("`{name}` is no text"))),
    }
}

/// What a client notes about a response, for itself.
fn metadata(metadata: Option<Value>) -> Result<Value, Failure> {
    match metadata {
        None | Some(Value::Null) => Ok(json!({})),
        Some(Value::Object(notes)) if notes.len() <= MOST_NOTES && notes.values().all(Value::is_string) => {
            Ok(Value::Object(notes))
        }
        Some(_) => Err(Failure::bad_request(format!("`metadata` is no object of at most {MOST_NOTES} texts"))),
    }
}

/// What the provider is asked besides messages and tools, in the words of chats.
fn settings(mut body: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
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
        None | Some(Value::Null) => {}
        Some(choice @ Value::String(_)) => drop(settings.insert("tool_choice".to_owned(), choice)),
        Some(Value::Object(choice)) if choice.get("type") == Some(&json!("function")) => {
            let name = choice.get("name").cloned().unwrap_or_default();
            let choice = json!({ "type": "function", "function": { "name": name } });
            settings.insert("tool_choice".to_owned(), choice);
        }
        Some(_) => return Err(Failure::bad_request("`tool_choice` is neither a word nor a function")),
    }
    if let Some(effort) = body.get("reasoning").and_then(|reasoning| reasoning.get("effort")) {
        settings.insert("reasoning_effort".to_owned(), effort.clone());
    }
    let Some(format) = body.get("text").and_then(|text| text.get("format")) else { return Ok(settings) };
    let format = match format.get("type").and_then(Value::as_str) {
        Some("text") => return Ok(settings),
        Some("json_object") => json!({ "type": "json_object" }),
        Some("json_schema") => {
            let mut schema = format.as_object().cloned().unwrap_or_default();
            schema.remove("type");
            json!({ "type": "json_schema", "json_schema": schema })
        }
        _ => return Err(Failure::bad_request("`text.format` is none of text, json_object and json_schema")),
    };
    settings.insert("response_format".to_owned(), format);
    Ok(settings)
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
fn messages(items: &[Value]) -> Result<Vec<Value>, Failure> {
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
                    messages.push(json!({ "role": "tool", "tool_call_id": id, "content": outcome(item) }));
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

/// What came of a call, as its item tells.
fn outcome(item: &Value) -> String {
    let told = |name: &str| item.get(name).filter(|value| !value.is_null());
    match told("output").or_else(|| told("error")) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(error) => match error.pointer("/content/0/text").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => error.to_string(),
        },
    }
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

/// How many notes a client may make about a response.
const MOST_NOTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Wanted, Failure> {
        let Value::Object(body) = body else { unreachable!() };
        Wanted::read(body)
    }

    #[test]
    fn what_a_client_leaves_out_is_what_its_products_take_for_granted() {
        let wanted = read(json!({ "input": "hi" })).unwrap();
        assert!(wanted.stores && !wanted.streams && wanted.previous.is_none());
        assert_eq!(wanted.said, [json!({ "role": "user", "content": "hi" })]);
        let going_on = read(json!({ "previous_response_id": "resp_1", "store": false })).unwrap();
        assert_eq!((going_on.previous.as_deref(), going_on.stores, going_on.said.len()), (Some("resp_1"), false, 0));
    }

    #[test]
    fn settings_are_told_in_the_words_of_chats() {
        let schema = json!({ "type": "json_schema", "name": "city", "schema": { "type": "object" }, "strict": true });
        let wanted = read(json!({
            "input": "hi", "max_output_tokens": 9, "temperature": null, "reasoning": { "effort": "low" },
            "tool_choice": { "type": "function", "name": "f" }, "text": { "format": schema },
        }));
        let expected = json!({
            "max_tokens": 9, "reasoning_effort": "low", "tool_choice": { "type": "function", "function": { "name": "f" } },
            "response_format": { "type": "json_schema",
                "json_schema": { "name": "city", "schema": { "type": "object" }, "strict": true } },
        });
        assert_eq!(Value::Object(wanted.unwrap().settings), expected);
    }

    #[test]
    fn what_agents_do_not_do_is_refused() {
        for field in [
            json!({ "background": true }),
            json!({ "conversation": "conv_1" }),
            json!({ "prompt": { "id": "p" } }),
            json!({ "store": 1 }),
            json!({ "metadata": { "a": 1 } }),
            json!({ "tool_choice": { "type": "mcp" } }),
            json!({ "text": { "format": { "type": "grammar" } } }),
            json!({ "tools": [{ "type": "web_search" }] }),
        ] {
            let mut body = json!({ "input": "hi" });
            body.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
            assert!(read(body).is_err(), "{field}");
        }
    }

    #[test]
    fn a_call_of_ours_that_comes_back_is_a_call_and_what_came_of_it() {
        let error = json!({ "type": "mcp_tool_execution_error", "content": [{ "type": "text", "text": "no" }] });
        let call = json!({ "type": "mcp_call", "id": "m1", "name": "fs.read", "arguments": "{}", "output": null, "error": error });
        let function = json!({ "name": "fs_read", "arguments": "{}" });
        let expected = [
            json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "m1", "type": "function", "function": function }] }),
            json!({ "role": "tool", "tool_call_id": "m1", "content": "no" }),
        ];
        assert_eq!(messages(&[call]).unwrap(), expected);
    }
}
