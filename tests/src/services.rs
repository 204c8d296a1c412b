//! Calls of tools that the daemon performs itself: what they say, and what they say once a person has approved them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a call that comes to something else ends the test"
)]

use palyra_api::{
    call::{Call, Output},
    journal::RecordQuery,
};
use palyra_client::{Client, ClientError};
use palyra_types::id::CallId;
use serde_json::{Value, json};

use crate::daemon::{DaemonLab, accepted, approve, asked, over, tool};

/// What a call of a tool says.
pub async fn says(by: &Client, name: &str, args: Value) -> Value {
    value(&by.propose(&tool(name, args), None).await.unwrap())
}

/// What a call that ran said.
#[must_use]
pub fn value(call: &Call) -> Value {
    match &call.output {
        Some(Output::Value { value }) => value.clone(),
        other => panic!("{other:?}"),
    }
}

/// Why a call could do nothing although it ran.
pub async fn fails(by: &Client, name: &str, args: Value) -> String {
    let value = says(by, name, args).await;
    value.pointer("/error/message").and_then(Value::as_str).unwrap_or_else(|| panic!("{value}")).to_owned()
}

/// The code and the words of a refusal.
pub async fn refusal(by: &Client, name: &str, args: Value) -> (String, String) {
    match by.propose(&tool(name, args), None).await {
        Err(ClientError::Refused { error, .. }) => (error.code, error.message),
        other => panic!("{other:?}"),
    }
}

/// What a call says that a person has to approve, once the owner has.
pub async fn says_once_approved(lab: &DaemonLab, by: &Client, name: &str, args: Value) -> Value {
    let call = by.propose(&accepted(tool(name, args)), None).await.unwrap();
    let question = asked(&lab.owner(), 1).await.remove(0);
    assert_eq!(question.call, call.id);
    approve(&lab.owner(), &question).await.unwrap();
    value(&over(by, call.id).await)
}

/// Schedules a call, which the owner approves, and returns the schedule.
pub async fn scheduled(lab: &DaemonLab, by: &Client, args: Value) -> Value {
    says_once_approved(lab, by, "cron.create", args).await["schedule"].take()
}

/// A note that is to be kept every minute.
#[must_use]
pub fn each_minute(name: &str) -> Value {
    json!({ "name": name, "tool": "memory.put", "args": { "text": format!("by {name}") }, "every_seconds": 60 })
}

/// The bodies of the records of a kind, oldest first.
pub async fn records(lab: &DaemonLab, kind: &str) -> Vec<Value> {
    let owner = lab.owner();
    let (mut from, mut found) = (0, Vec::new());
    loop {
        let page = owner.records(&RecordQuery { from: Some(from), limit: Some(1_000) }).await.unwrap();
        let Some(last) = page.records.last() else { return found };
        from = last.seq + 1;
        found.extend(page.records.into_iter().filter(|one| one.kind == kind).filter_map(|one| one.body));
        if from >= page.size {
            return found;
        }
    }
}

/// The calls that schedules have proposed, oldest first.
pub async fn fired(lab: &DaemonLab) -> Vec<CallId> {
    let told = records(lab, "cron.fired").await;
    told.iter().map(|body| CallId::parse(body["call"].as_str().unwrap()).unwrap()).collect()
}
