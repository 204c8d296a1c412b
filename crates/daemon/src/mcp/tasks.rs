//! Calls that outlive their client's patience, as tasks: the extension of 2026-07-28 for clients that come back for what a call came to.
//!
//! Guarantees: a task is its credential's alone, under an id that nobody guesses; a client can look at it and take it back, and nothing that it
//! sends answers the question that the task waits for.
//! Does not: make a task of a call that is over before its client loses patience.

use std::sync::Arc;

use palyra_types::entropy::NoEntropy;
use rmcp::model::{ErrorCode, TASKS_EXTENSION_ID};
use serde_json::{Map, Value, json};

use super::{
    calling::{self, has_declined, leading, question},
    message::{Request, RpcError},
    pending::{KEPT, PendingCall},
    wire::Abilities,
};
use crate::{app::App, caller::Caller};

/// Makes a task of a call that waits for a person.
///
/// # Errors
/// When there is no randomness.
pub fn begin(app: &App, call: &Arc<PendingCall>) -> Result<Map<String, Value>, NoEntropy> {
    let id = app.mcp.pending.keep_as_task(call, app.entropy.as_ref(), app.clock.now())?;
    let mut task = about(app, call, &id, "working");
    task.insert("resultType".to_owned(), json!("task"));
    Ok(task)
}

/// Answers a request about a task.
///
/// # Errors
/// When there is no such task of this credential, or the client does not know tasks.
pub async fn answer(
    app: &App,
    caller: &Caller,
    request: &Request,
    abilities: Abilities,
) -> Result<Map<String, Value>, RpcError> {
    if !abilities.tasks {
        let required = json!({ "extensions": { TASKS_EXTENSION_ID: {} } });
        let error =
            RpcError::new(ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY, "the client does not say that it knows tasks");
        return Err(error.with(json!({ "requiredCapabilities": required })));
    }
    let id = request.text("taskId").ok_or_else(|| RpcError::invalid_params("`taskId` is missing"))?;
    let task = app.mcp.pending.by_task(id, &caller.shown);
    let task = task.ok_or_else(|| RpcError::invalid_params("there is no such task"))?;
    match request.method.as_str() {
        "tasks/get" => return Ok(look(app, caller, (&task, id), abilities).await),
        "tasks/update" if !has_declined(request) => {}
        // SECURITY: the word of a client takes back what it asked for, and nothing else.
        _ => drop(app.gate.cancel(task.call, &caller.petitioner())),
    }
    Ok(Map::new())
}

/// A task as it is now.
async fn look(
    app: &App,
    caller: &Caller,
    (task, id): (&PendingCall, &str),
    abilities: Abilities,
) -> Map<String, Value> {
    let over = task.outcome.borrow().clone();
    if let Some(outcome) = over {
        let was_taken_back = outcome.as_ref().is_err_and(|failure| failure.detail.code == "cancelled");
        if was_taken_back {
            return about(app, task, id, "cancelled");
        }
        let mut told = about(app, task, id, "completed");
        let mut result = calling::told(app, (caller, None), &outcome, &task.tool).await;
        result.insert("resultType".to_owned(), json!("complete"));
        told.insert("result".to_owned(), Value::Object(result));
        return told;
    }
    let Some(approval) = question(app, task.call).await else { return about(app, task, id, "working") };
    let (text, leading) = leading(app, task, approval);
    let mut told = about(app, task, id, if abilities.urls { "input_required" } else { "working" });
    told.insert("statusMessage".to_owned(), json!(text));
    if abilities.urls {
        let asked = json!({ "approval": { "method": "elicitation/create", "params": leading } });
        told.insert("inputRequests".to_owned(), asked);
    }
    told
}

fn about(app: &App, task: &PendingCall, id: &str, status: &str) -> Map<String, Value> {
    let now = app.clock.now();
    let since = task.task_since().unwrap_or(now);
    Map::from_iter([
        ("taskId".to_owned(), json!(id)),
        ("status".to_owned(), json!(status)),
        ("createdAt".to_owned(), json!(since)),
        ("lastUpdatedAt".to_owned(), json!(now)),
        ("ttlMs".to_owned(), json!(KEPT.as_millis().try_into().unwrap_or(u64::MAX))),
        ("pollIntervalMs".to_owned(), json!(POLL_MS)),
        ("_meta".to_owned(), json!({ "palyra/call": task.call })),
    ])
}

/// How long a client is to wait before it looks again.
const POLL_MS: u32 = 2_000;
