//! What came of a call, as MCP clients are told.
//!
//! Guarantees: what a tool of an MCP server said is handed on as it came; a call that was refused or failed is an error that says why, what to do
//! and whether trying again is of any use; every result names its call and its receipt.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use palyra_api::call::Output;
use palyra_types::{ToolName, id::CallId, visible::visible};
use serde_json::{Map, Value, json};

use super::message::RpcError;
use crate::{failure::Failure, story::Ran};

/// The result of a call that is over.
#[must_use]
pub fn told(outcome: &Result<Arc<Ran>, Failure>, tool: &ToolName) -> Map<String, Value> {
    match outcome {
        Ok(call) => ran(call, tool.as_str().starts_with("mcp.")),
        Err(failure) => refused(failure),
    }
}

/// The same of a refusal by a run that has used up its budget. Its client opened it with nothing and can open no other, so it is told when that
/// happens by itself.
#[must_use]
pub fn used_up(failure: &Failure, left: Option<Duration>) -> Map<String, Value> {
    let when = match left.map(|left| left.as_secs().saturating_add(1)) {
        Some(seconds) => format!("wait {seconds} seconds and call again"),
        None => "call again".to_owned(),
    };
    let help = format!("{when}: calls go on in a new run then; people raise the limits under [budget] in config.toml");
    let error = json!({ "code": failure.detail.code, "message": failure.detail.message, "help": help, "retry": true });
    about_call(erroneous(&error), failure.detail.call)
}

/// The result of a call that goes on without its client.
#[must_use]
pub fn later(call: CallId, text: &str) -> Map<String, Value> {
    let mut result = said(text.to_owned(), None, true);
    result.insert("_meta".to_owned(), json!({ CALL: call, "palyra/waiting": true }));
    result
}

/// The error that a request is answered with, if it names no tool. Everything else about a call is told to the model, in a result.
#[must_use]
pub fn unknown(name: &str, near: Option<&str>, call: Option<CallId>) -> RpcError {
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let message = format!("there is no tool `{}`{near}", visible(name));
    RpcError::invalid_params(message).with(json!({ "code": "unknown_tool", "call": call, "retry": false }))
}

fn ran(call: &Ran, is_upstream: bool) -> Map<String, Value> {
    let (output, detail) = (call.output.as_ref(), call.detail.as_deref());
    let mut result = match output {
        Some(Output::Value { value: Value::Object(of_server) })
            if is_upstream && of_server.get("content").is_some_and(Value::is_array) =>
        {
            without_ours(of_server)
        }
        output => match failed(output, detail) {
            Some(error) => erroneous(&error),
            None => own(output, call.ending.as_str(), detail),
        },
    };
    let meta = result.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(CALL.to_owned(), json!(call.call));
        meta.insert(RECEIPT.to_owned(), json!({ "seq": call.seq, "hash": call.hash }));
    }
    result
}

/// What a server said, without what only the gateway and the protocol say about a result.
fn without_ours(of_server: &Map<String, Value>) -> Map<String, Value> {
    let mut said = of_server.clone();
    if let Some(meta) = said.remove("_meta").as_ref().and_then(Value::as_object) {
        let is_theirs = |name: &String| OURS.iter().all(|ours| !name.starts_with(ours));
        let theirs = meta.iter().filter(|(name, _)| is_theirs(name)).map(|(name, value)| (name.clone(), value.clone()));
        said.insert("_meta".to_owned(), Value::Object(theirs.collect()));
    }
    said
}

/// What a service says that was let do something and could not, in the shape of a refusal. The same would fail again.
fn failed(output: Option<&Output>, detail: Option<&str>) -> Option<Value> {
    let (Some(Output::Value { value: Value::Object(told) }), Some(_)) = (output, detail) else { return None };
    let error = told.get("error").filter(|_| told.len() == 1)?;
    let message = error.get("message")?.as_str()?;
    Some(json!({ "code": "failed", "message": message, "help": error.get("help"), "retry": false }))
}

/// What a tool of our own came to.
fn own(output: Option<&Output>, ending: &str, detail: Option<&str>) -> Map<String, Value> {
    let mut told = Map::from_iter([("ending".to_owned(), json!(ending))]);
    let mut is_error = ending != "completed";
    if let Some(detail) = detail {
        told.insert("detail".to_owned(), json!(detail));
    }
    match output {
        Some(Output::Process { exit_code, signal, stdout, stderr }) => {
            is_error |= *exit_code != Some(0);
            told.insert("exit_code".to_owned(), json!(exit_code));
            if signal.is_some() {
                told.insert("signal".to_owned(), json!(signal));
            }
            for (name, stream) in [("stdout", stdout), ("stderr", stderr)] {
                told.insert(name.to_owned(), json!(stream.data));
                if stream.encoding != "utf-8" {
                    told.insert(format!("{name}_encoding"), json!(stream.encoding));
                }
                if stream.truncated {
                    told.insert(format!("{name}_bytes"), json!(stream.total));
                }
            }
        }
        Some(Output::Value { value }) => {
            is_error |= detail.is_some();
            told.insert("output".to_owned(), value.clone());
        }
        Some(Output::Nothing) | None => {}
    }
    let told = Value::Object(told);
    said(told.to_string(), Some(told), is_error)
}

fn refused(failure: &Failure) -> Map<String, Value> {
    let detail = &failure.detail;
    // What passes by itself is worth another try; what somebody decided is not.
    let retry = matches!(failure.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    // What a client can do is call again; it cannot ask what came of a call that it was not given.
    let help = match detail.code.as_str() {
        "stopping" if detail.call.is_some() => Some(BESIDE_WAITING),
        "stopping" => Some(AFTER_STOPPING),
        _ => detail.help.as_deref(),
    };
    let error = json!({ "code": detail.code, "message": detail.message, "help": help, "retry": retry });
    about_call(erroneous(&error), detail.call)
}

/// The same result, which names its call.
fn about_call(mut result: Map<String, Value>, call: Option<CallId>) -> Map<String, Value> {
    if let (Some(call), Some(Value::Object(meta))) = (call, result.get_mut("_meta")) {
        meta.insert(CALL.to_owned(), json!(call));
    }
    result
}

/// A result that is an error.
fn erroneous(error: &Value) -> Map<String, Value> {
    let mut result = said(json!({ "error": error }).to_string(), None, true);
    result.insert("_meta".to_owned(), json!({ ERROR: error }));
    result
}

fn said(text: String, structured: Option<Value>, is_error: bool) -> Map<String, Value> {
    let mut result = Map::from_iter([("content".to_owned(), json!([{ "type": "text", "text": text }]))]);
    if let Some(structured) = structured {
        result.insert("structuredContent".to_owned(), structured);
    }
    result.insert("isError".to_owned(), json!(is_error));
    result
}

/// The keys of what is said about a result.
const CALL: &str = "palyra/call";

const RECEIPT: &str = "palyra/receipt";

const ERROR: &str = "palyra/error";

/// The beginnings of names that only the gateway and the protocol give to what they say about a result.
const OURS: [&str; 2] = ["palyra/", "io.modelcontextprotocol/"];

/// What to do about a daemon that stops.
const AFTER_STOPPING: &str = "call again with the same arguments once the daemon is back";

/// The same, where the call waits on without its client.
const BESIDE_WAITING: &str = "call again with the same arguments once the daemon is back; this call waits on for its answer, so a person \
    may be asked about both";

#[cfg(test)]
mod tests {
    use palyra_gate::Refusal;

    use super::*;

    #[test]
    fn a_call_that_a_stopping_daemon_leaves_can_be_tried_again_in_flag_and_words() {
        let call = CallId::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
        for (goes_on, help) in [(true, BESIDE_WAITING), (false, AFTER_STOPPING)] {
            let failure = Failure::refused(&Refusal::Stopping { goes_on }, call);
            let result = refused(&failure);
            let error = &result["_meta"][ERROR];
            assert_eq!(
                (&error["code"], &error["retry"], &error["help"]),
                (&json!("stopping"), &json!(true), &json!(help))
            );
        }
    }

    #[test]
    fn a_call_that_the_budget_refused_can_be_tried_again_when_there_is_another_run() {
        let call = CallId::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
        let failure = Failure::new("budget_exceeded", "2 of 2 calls", "open a new run").about(call);
        for (left, begins) in
            [(Some(Duration::from_millis(59_500)), "wait 60 seconds and call again: "), (None, "call again: ")]
        {
            let result = used_up(&failure, left);
            let error = &result["_meta"][ERROR];
            assert_eq!((&error["code"], &error["retry"]), (&json!("budget_exceeded"), &json!(true)));
            assert!(error["help"].as_str().unwrap().starts_with(begins), "{error}");
            assert_eq!(result["_meta"][CALL], json!(call));
        }
    }

    #[test]
    fn what_a_service_could_not_do_is_told_like_a_refusal() {
        let said = |value: Value| failed(Some(&Output::Value { value }), Some("there is no such file"));
        let told = json!({ "error": { "message": "there is no such file", "help": "look which there are" } });
        let expected = json!({
            "code": "failed", "message": "there is no such file", "help": "look which there are", "retry": false
        });
        assert_eq!(said(told.clone()), Some(expected.clone()));
        assert_eq!(erroneous(&expected)["_meta"], json!({ ERROR: expected }));
        assert_eq!(failed(Some(&Output::Value { value: told }), None), None, "what went well is no failure");
        assert_eq!(said(json!({ "error": "x" })), None);
        assert_eq!(said(json!({ "error": { "message": "x" }, "rows": 1 })), None, "nothing that is said is left out");
    }
}
