//! A message of a run.

use palyra_types::{
    Timestamp,
    id::{RunId, SessionId},
    words,
};
use rusqlite::Row;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{damaged, error::TranscriptError};
use crate::{error::StoreError, label::check};

words! {
    /// Who says something.
    pub enum Role ("role") {
        /// Whoever set the conversation up.
        System = "system",
        /// The person, or the program in their place.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// A tool that was called.
        Tool = "tool",
    }
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its place in the run, from 0.
    pub seq: u64,
    /// When it was kept.
    pub time: Timestamp,
    /// Who said it.
    pub role: Role,
    /// The name of who said it, such as that of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// What was said.
    pub content: Value,
    /// Whether it was longer.
    pub cut: bool,
}

/// What is to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// Who says it.
    pub role: Role,
    /// The name of who says it.
    pub name: Option<String>,
    /// The call that it answers.
    pub call_id: Option<String>,
    /// What is said.
    pub content: Value,
}

/// Which run something is said in, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOf {
    /// The session.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// Who asked for it.
    pub principal: String,
    /// The model that was asked, as its client calls it.
    pub model: String,
}

/// A message, and the run that it is to be appended to.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The run.
    pub of: RunOf,
    /// The message.
    pub new: NewMessage,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    /// Which.
    pub run: RunId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// Who asked for it.
    pub principal: String,
    /// The model that was asked.
    pub model: String,
    /// How many messages it has.
    pub messages: u64,
    /// The bytes that count against its limit.
    pub bytes: u64,
    /// When the first message was kept.
    pub first: Timestamp,
    /// When the last was.
    pub last: Timestamp,
}

impl RunOf {
    pub(super) fn check(&self) -> Result<(), TranscriptError> {
        check("principal", &self.principal, MOST_LABEL_CHARS)?;
        Ok(check("model", &self.model, MOST_LABEL_CHARS)?)
    }
}

impl NewMessage {
    pub(super) fn check(&self) -> Result<(), TranscriptError> {
        if let Some(name) = &self.name {
            check("name", name, MOST_LABEL_CHARS)?;
        }
        if let Some(id) = &self.call_id {
            check("id of the call", id, MOST_LABEL_CHARS)?;
        }
        Ok(())
    }

    pub(super) fn message(&self, seq: u64, time: Timestamp, content: Value, cut: bool) -> Message {
        Message { seq, time, role: self.role, name: self.name.clone(), call_id: self.call_id.clone(), content, cut }
    }
}

/// Reads a row whose content is this.
pub(super) fn read(row: &Row<'_>, content: &str) -> Result<Message, StoreError> {
    Ok(Message {
        seq: row.get::<_, i64>("seq")?.unsigned_abs(),
        time: Timestamp::from_unix_millis(row.get("time")?),
        role: Role::parse(&row.get::<_, String>("role")?).map_err(damaged)?,
        name: row.get("name")?,
        call_id: row.get("call_id")?,
        content: serde_json::from_str(content).map_err(damaged)?,
        cut: row.get("cut")?,
    })
}

const MOST_LABEL_CHARS: usize = 256;
