//! Responses of agents that are kept: for going on with, for looking at, for deleting.
//!
//! Guarantees: a response is for the principal that it was made for, and nobody else learns whether there is one; what was sent with it is
//! told in the shape that clients expect. Does not: know responses of models that are passed through. Those are their provider's.

use palyra_types::{ObjectId, id::SessionId};
use serde_json::{Map, Value, json};

use crate::{app::App, caller::Caller, failure::Failure};

/// What a response goes on from.
pub struct Past {
    /// What was said until then, as messages of a chat.
    pub messages: Vec<Value>,
    /// The session that it was said in.
    pub session: SessionId,
}

/// What a response left for those that go on from it.
///
/// # Errors
/// When there is none of this name of theirs.
pub async fn past(app: &App, caller: &Caller, id: &str) -> Result<Past, Failure> {
    let mut response = app.transcripts.response(id, &caller.principal.to_string()).await?;
    let messages = list(response.conversation.get_mut("messages"));
    Ok(Past { messages, session: response.session })
}

/// A response, as its client was told.
///
/// # Errors
/// When there is none of this name of theirs.
pub async fn response(app: &App, caller: &Caller, id: &str) -> Result<Value, Failure> {
    let mut response = app.transcripts.response(id, &caller.principal.to_string()).await?;
    Ok(response.conversation.get_mut("response").map(Value::take).unwrap_or_default())
}

/// Deletes a response. What was said stays in the transcript of its session.
///
/// # Errors
/// When there is none of this name of theirs.
pub async fn delete(app: &App, caller: &Caller, id: &str) -> Result<Value, Failure> {
    let response = app.transcripts.response(id, &caller.principal.to_string()).await?;
    let deleted = response.id.clone();
    app.transcripts.ask(move |store| store.delete_response(&deleted)).await?;
    Ok(json!({ "id": response.id, "object": "response", "deleted": true }))
}

/// Keeps a response: as it was told, what was sent with it, and what was said until then.
///
/// # Errors
/// When it is too long, or cannot be written.
pub async fn keep(
    app: &App,
    (session, whose): (SessionId, &str),
    response: &Value,
    (sent, messages): (&[Value], &[Value]),
) -> Result<(), Failure> {
    let id = response.get("id").and_then(Value::as_str).unwrap_or_default();
    let id = ObjectId::parse(id).map_err(|error| Failure::internal(error.to_string()))?;
    let items: Vec<Value> = sent.iter().enumerate().map(|(index, item)| item_of(&id, index, item)).collect();
    let conversation = json!({ "response": response, "sent": items, "messages": messages });
    app.transcripts.keep_response((id, session, whose.to_owned()), conversation).await
}

/// Which of the items are wanted that were sent with a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Behind the item of this id.
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
    /// Whether the first comes first.
    pub ascends: bool,
}

/// What was sent with a response.
///
/// # Errors
/// When there is none of this name of theirs.
pub async fn sent(app: &App, caller: &Caller, (id, slice): (&str, Slice)) -> Result<Value, Failure> {
    let mut response = app.transcripts.response(id, &caller.principal.to_string()).await?;
    Ok(sliced(list(response.conversation.get_mut("sent")), &slice))
}

fn sliced(mut items: Vec<Value>, slice: &Slice) -> Value {
    if !slice.ascends {
        items.reverse();
    }
    if let Some(after) = &slice.after {
        let at = items.iter().position(|item| item.get("id").and_then(Value::as_str) == Some(after));
        items.drain(..at.map_or(0, |at| at + 1));
    }
    let has_more = items.len() > slice.limit;
    items.truncate(slice.limit);
    let id = |item: Option<&Value>| item.and_then(|item| item.get("id")).cloned().unwrap_or_default();
    let (first, last) = (id(items.first()), id(items.last()));
    json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more })
}

/// An item that was sent, as it is told: with an id, and its content in parts.
fn item_of(response: &ObjectId, index: usize, item: &Value) -> Value {
    let mut item: Map<String, Value> = item.as_object().cloned().unwrap_or_default();
    item.entry("type").or_insert_with(|| json!("message"));
    item.entry("id").or_insert_with(|| json!(format!("item_{response}_{index}")));
    if let Some(Value::String(text)) = item.get("content") {
        let kind = if item.get("role") == Some(&json!("assistant")) { "output_text" } else { "input_text" };
        let mut part = json!({ "type": kind, "text": text });
        if let Some(part) = part.as_object_mut().filter(|_| kind == "output_text") {
            part.insert("annotations".to_owned(), json!([]));
        }
        item.insert("content".to_owned(), json!([part]));
    }
    item.entry("status").or_insert_with(|| json!("completed"));
    Value::Object(item)
}

fn list(value: Option<&mut Value>) -> Vec<Value> {
    match value.map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_told_with_ids_and_in_parts() {
        let id = ObjectId::parse("resp_1").unwrap();
        let told = item_of(&id, 0, &json!({ "role": "user", "content": "hi" }));
        let expected = json!({
            "id": "item_resp_1_0", "type": "message", "role": "user", "status": "completed",
            "content": [{ "type": "input_text", "text": "hi" }],
        });
        assert_eq!(told, expected);
        let call = json!({ "id": "fc_1", "type": "function_call_output", "call_id": "c", "output": "x", "status": "completed" });
        assert_eq!(item_of(&id, 1, &call), call);
    }

    #[test]
    fn items_are_told_in_pages_from_either_end() {
        let items: Vec<Value> = (0..4).map(|id| json!({ "id": id.to_string() })).collect();
        let page = |after: Option<&str>, limit, ascends| {
            let page = sliced(items.clone(), &Slice { after: after.map(str::to_owned), limit, ascends });
            let ids: Vec<&str> =
                page["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
            (ids.join(""), page["has_more"].as_bool().unwrap(), page["last_id"].clone())
        };
        assert_eq!(page(None, 3, false), ("321".to_owned(), true, json!("1")));
        assert_eq!(page(Some("1"), 3, false), ("0".to_owned(), false, json!("0")));
        assert_eq!(page(Some("1"), 9, true), ("23".to_owned(), false, json!("3")));
        assert_eq!(page(Some("3"), 9, true), (String::new(), false, Value::Null));
    }
}
