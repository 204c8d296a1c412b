//! What is said with agent models: kept while it is said, read by those who may, forgotten when its time is over.
//!
//! Guarantees: what looks like a credential is masked before it is kept; whoever reads sees all that was said before they asked; how much
//! waits to be written is bounded, and no thread that serves requests waits for the disk. What cannot be kept holds up no call, because the
//! journal is what attests: it is logged, counted for Prometheus, and told with the transcript that lacks it.
//! Does not: say who may read. `routes/sessions.rs` does.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use palyra_gate::{Gate, models::TranscriptForgotten};
use palyra_journal::mask::masked;
use palyra_notebook::{
    DueRuns, Line, NewMessage, NewResponse, Response, Role, RunOf, StoreError, TranscriptError, TranscriptStore,
};
use palyra_types::{
    Clock, ObjectId, Timestamp,
    id::{RunId, SessionId},
    visible::visible,
};
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::{config::ConfigError, failure::Failure};

/// `[transcripts]`: whether what is said with agent models is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranscriptsSection {
    /// Whether anything new is kept.
    pub enabled: bool,
    /// How long after the last word of a run, in days.
    pub keep_days: u32,
    /// How much in all, in bytes. Of whoever holds most, the runs in which nothing was said for longest go first.
    pub keep_bytes: u64,
}

impl Default for TranscriptsSection {
    fn default() -> Self {
        Self { enabled: true, keep_days: 30, keep_bytes: 1 << 30 }
    }
}

impl TranscriptsSection {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// When nothing could be kept for any time.
    pub const fn check(&self) -> Result<(), ConfigError> {
        if self.keep_days == 0 || self.keep_bytes == 0 { Err(ConfigError::Transcripts) } else { Ok(()) }
    }
}

/// Everything that was said, and what is about to be kept of it.
pub struct Transcripts {
    store: Arc<TranscriptStore>,
    queue: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    lost: Arc<Lost>,
}

impl Transcripts {
    /// Opens what was kept in a directory before, and starts the thread that writes. It ends with this.
    ///
    /// # Errors
    /// When the store cannot be opened, or there is no thread.
    pub fn open(directory: &Path, clock: &Arc<dyn Clock>, lost: Counter) -> Result<Self, TranscriptError> {
        let store = Arc::new(TranscriptStore::open(directory, Arc::clone(clock))?);
        let (queue, queued) = mpsc::channel(MOST_QUEUED);
        let lost = Arc::new(Lost { runs: Mutex::default(), all: lost });
        let (writing, losing) = (Arc::clone(&store), Arc::clone(&lost));
        let thread = std::thread::Builder::new().name("transcripts".to_owned());
        let started = thread.spawn(move || write(&writing, queued, &losing));
        started.map_err(|source| StoreError::File { path: directory.to_owned(), source })?;
        Ok(Self { store, queue, room: Arc::new(Semaphore::new(MOST_WAITING)), lost })
    }

    /// Takes in messages of a run, as chats spell them. Waits for room if much waits to be written already, but not for long.
    pub async fn say(&self, of: &RunOf, messages: &[Value]) {
        if messages.is_empty() {
            return;
        }
        let weight = messages.iter().map(weight).sum::<usize>() / 1_024 + 1;
        let permits = u32::try_from(weight.min(MOST_WAITING)).unwrap_or(u32::MAX);
        let said = async {
            let room = Arc::clone(&self.room).acquire_many_owned(permits).await.ok()?;
            self.queue.send(Queued::Said { of: of.clone(), messages: messages.to_vec(), room }).await.ok()
        };
        if tokio::time::timeout(PATIENCE, said).await.ok().flatten().is_none() {
            tracing::warn!(run = %of.run, messages = messages.len(), "what was said could not be kept: too much waits to be written");
            self.lost.note(of.run, messages.len());
        }
    }

    /// Waits until everything is written that was said before, for a while.
    pub async fn settle(&self) {
        let (told, written) = oneshot::channel();
        let settled = async {
            if self.queue.send(Queued::Settle(told)).await.is_ok() {
                let _ = written.await;
            }
        };
        if tokio::time::timeout(PATIENCE, settled).await.is_err() {
            tracing::warn!("what was said is not written yet");
        }
    }

    /// How many messages of a run were not kept since the daemon started.
    #[must_use]
    pub fn lost(&self, run: RunId) -> u64 {
        self.lost.runs.lock().unwrap_or_else(PoisonError::into_inner).get(&run).copied().unwrap_or_default()
    }

    /// Asks the store something, on a thread that may wait for the disk.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&TranscriptStore) -> Result<T, TranscriptError> + Send + 'static,
    ) -> Result<T, Failure> {
        let store = Arc::clone(&self.store);
        let asked = tokio::task::spawn_blocking(move || question(&store)).await;
        asked.map_err(|error| Failure::internal(error.to_string()))?.map_err(Into::into)
    }

    /// Keeps a finished response, so that a later request can go on with it.
    ///
    /// # Errors
    /// When it is too long, or the store cannot be written.
    pub async fn keep_response(
        &self,
        (id, session, principal): (ObjectId, SessionId, String),
        mut conversation: Value,
    ) -> Result<(), Failure> {
        self.ask(move |store| {
            mask(&mut conversation);
            let (principal, conversation) = (principal.as_str(), &conversation);
            store.put_response(&NewResponse { id: &id, session, principal, conversation }).map(drop)
        })
        .await
    }

    /// A response of a principal. Whether somebody else has one of this name is not told.
    ///
    /// # Errors
    /// When there is none of theirs, or the store cannot be read.
    pub async fn response(&self, id: &str, principal: &str) -> Result<Response, Failure> {
        let missing = || {
            let id: String = id.chars().take(LONGEST_LABEL).collect();
            Failure::new(
                "unknown_response",
                format!("there is no response `{}` of yours here", visible(&id)),
                "send the whole conversation as `input`; responses of agents alone are kept, and not for ever",
            )
        };
        let parsed = ObjectId::parse(id).map_err(|_| missing())?;
        let found = self.ask(move |store| store.response(&parsed)).await?;
        found.filter(|response| response.principal == principal).ok_or_else(missing)
    }

    /// Forgets what is older or more than may be kept, once that is on record.
    pub async fn maintain(&self, section: TranscriptsSection, gate: &Gate) {
        let age = i64::from(section.keep_days).saturating_mul(DAY_MS);
        let before = Timestamp::from_unix_millis(gate.clock().now().unix_millis().saturating_sub(age));
        let most = section.keep_bytes;
        let done = async {
            tell_due(gate, self.ask(move |store| store.due_before(before)).await?, "keep_days").await?;
            self.ask(move |store| store.forget_before(before)).await?;
            tell_due(gate, self.ask(move |store| store.due_beyond(most)).await?, "keep_bytes").await?;
            self.ask(move |store| store.forget_beyond(most)).await
        };
        if let Err(failure) = done.await {
            tracing::warn!(error = failure.detail.message, "transcripts could not be maintained");
        }
    }
}

/// Records what is about to be forgotten because of a setting.
async fn tell_due(gate: &Gate, due: Vec<DueRuns>, setting: &str) -> Result<(), Failure> {
    for DueRuns { session, principal, runs } in due {
        gate.transcript_forgotten(&TranscriptForgotten { session, principal, runs, by: setting.to_owned() }).await?;
    }
    Ok(())
}

impl From<TranscriptError> for Failure {
    fn from(error: TranscriptError) -> Self {
        let code = match error {
            TranscriptError::TooLong(_) | TranscriptError::Full(_) => "too_large",
            _ => "transcripts_unusable",
        };
        Self::new(code, error.to_string(), error.advice())
    }
}

/// What the thread that writes is handed.
enum Queued {
    Said { of: RunOf, messages: Vec<Value>, room: OwnedSemaphorePermit },
    Settle(oneshot::Sender<()>),
}

/// Writes what comes, as much at once as has come meanwhile, until nobody can say anything any more.
fn write(store: &TranscriptStore, mut queue: mpsc::Receiver<Queued>, lost: &Lost) {
    while let Some(first) = queue.blocking_recv() {
        let (mut lines, mut rooms, mut settled) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(queued) = next {
            match queued {
                Queued::Said { of, messages, room } => {
                    lines.extend(messages.iter().map(|message| Line { of: of.clone(), new: read(message) }));
                    rooms.push(room);
                }
                Queued::Settle(told) => settled.push(told),
            }
            next = if lines.len() < MOST_AT_ONCE { queue.try_recv().ok() } else { None };
        }
        match store.append_all(&lines) {
            Ok(refused) => {
                for (index, error) in refused {
                    let Some(Line { of, .. }) = lines.get(index) else { continue };
                    tracing::warn!(run = %of.run, %error, "what was said could not be kept");
                    lost.note(of.run, 1);
                }
            }
            Err(error) => {
                tracing::warn!(%error, messages = lines.len(), "what was said could not be kept");
                lines.iter().for_each(|line| lost.note(line.of.run, 1));
            }
        }
        drop(rooms);
        for told in settled {
            // Whoever asked may be gone.
            let _ = told.send(());
        }
    }
}

/// A message of a chat as it is kept. Whatever it is, it is kept as something.
fn read(message: &Value) -> NewMessage {
    let text = |name: &str| message.get(name).and_then(Value::as_str);
    let label = |name: &str| {
        let label: String = visible(text(name)?).chars().take(LONGEST_LABEL).collect();
        (!label.is_empty()).then_some(label)
    };
    let (role, is_known) = match text("role") {
        Some("system" | "developer") => (Role::System, true),
        Some("assistant") => (Role::Assistant, true),
        Some("tool") => (Role::Tool, true),
        other => (Role::User, other == Some("user")),
    };
    let said = message.get("content").cloned().unwrap_or_default();
    let mut content = match message.get("tool_calls") {
        _ if !is_known => message.clone(),
        Some(calls) => json!({ "text": said, "calls": calls }),
        None => said,
    };
    mask(&mut content);
    NewMessage { role, name: label("name"), call_id: label("tool_call_id"), content }
}

/// Masks what looks like a credential in every text, and in the names of what stands where.
fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(std::mem::take(text)),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(fields) => {
            let each = std::mem::take(fields);
            fields.extend(each.into_iter().map(|(name, mut value)| {
                mask(&mut value);
                (masked(name), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// About how many bytes a value takes.
fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inside.saturating_add(LEAST_WEIGHT)
}

/// What was said and is not kept.
struct Lost {
    runs: Mutex<BTreeMap<RunId, u64>>,
    all: Counter,
}

impl Lost {
    fn note(&self, run: RunId, messages: usize) {
        let messages = u64::try_from(messages).unwrap_or(u64::MAX);
        self.all.inc_by(messages);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= MOST_TOLD && !runs.contains_key(&run) {
            // The oldest, since ids sort by their time.
            runs.pop_first();
        }
        *runs.entry(run).or_default() += messages;
    }
}

/// Where transcripts are, in the state directory.
pub const DIRECTORY: &str = "transcripts";

/// How many portions may wait to be written.
const MOST_QUEUED: usize = 1_024;

/// How much may wait to be written, in kB.
const MOST_WAITING: usize = 64 << 10;

/// How many messages are written at once, more or less.
const MOST_AT_ONCE: usize = 512;

/// How long whoever says something waits for room.
const PATIENCE: Duration = Duration::from_secs(5);

/// Of how many runs is remembered what they lack.
const MOST_TOLD: usize = 10_000;

const LONGEST_LABEL: usize = 200;

/// What a value takes at the least.
const LEAST_WEIGHT: usize = 32;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

#[cfg(test)]
mod tests {
    use palyra_types::{clock::ManualClock, id::SessionId};

    use super::*;

    fn run_of() -> RunOf {
        let time = Timestamp::from_unix_millis(1);
        let (session, run) = (SessionId::from_parts(time, 1), RunId::from_parts(time, 2));
        RunOf { session, run, principal: "agent:coder".to_owned(), model: "palyra/coder".to_owned() }
    }

    #[test]
    fn a_message_is_kept_with_its_role_and_without_what_looks_like_a_credential() {
        let call = json!([{ "id": "c1", "function": { "name": "fs_read", "arguments": "{}" } }]);
        let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
        let said = read(&json!({ "role": "assistant", "content": format!("use {token}"), "tool_calls": call }));
        assert_eq!(said.role, Role::Assistant);
        assert_eq!(said.content["calls"], call);
        let text = said.content["text"].as_str().unwrap();
        assert!(text.starts_with("use [masked ") && !text.contains(token), "{text}");
        let told = read(&json!({ "role": "tool", "tool_call_id": "c\n1", "content": "done" }));
        let expected =
            NewMessage { role: Role::Tool, name: None, call_id: Some("c<U+000A>1".to_owned()), content: json!("done") };
        assert_eq!(told, expected);
        // What no chat has is kept as it came.
        assert_eq!(read(&json!({ "role": "nobody", "x": 1 })).content, json!({ "role": "nobody", "x": 1 }));
    }

    #[tokio::test]
    async fn what_was_said_is_there_for_whoever_asks_afterwards_and_what_is_lost_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_700_000_000_000)));
        let counter = Counter::default();
        let transcripts = Transcripts::open(directory.path(), &clock, counter.clone()).unwrap();
        let of = run_of();
        transcripts.say(&of, &[json!({ "role": "user", "content": "hi" })]).await;
        transcripts.settle().await;
        let run = of.run;
        let kept = transcripts.ask(move |store| store.list(run, None, 9)).await.unwrap();
        assert_eq!(kept.items.iter().map(|one| &one.content).collect::<Vec<_>>(), [&json!("hi")]);
        assert_eq!((transcripts.lost(run), counter.get()), (0, 0));
        let theirs = RunOf { principal: "agent:eve".to_owned(), ..of };
        transcripts.say(&theirs, &[json!({ "role": "user", "content": "not hers" })]).await;
        transcripts.settle().await;
        assert_eq!((transcripts.lost(run), counter.get()), (1, 1));
    }

    #[tokio::test]
    async fn a_response_is_for_whoever_made_it() {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_unix_millis(1_700_000_000_000)));
        let transcripts = Transcripts::open(directory.path(), &clock, Counter::default()).unwrap();
        let id = ObjectId::parse("resp_1").unwrap();
        let key = (id, run_of().session, "agent:coder".to_owned());
        transcripts.keep_response(key, json!({ "messages": [] })).await.unwrap();
        assert_eq!(transcripts.response("resp_1", "agent:coder").await.unwrap().conversation["messages"], json!([]));
        for (id, whose) in [("resp_1", "agent:eve"), ("resp_2", "agent:coder"), ("not an id", "agent:coder")] {
            let failure = transcripts.response(id, whose).await.unwrap_err();
            assert_eq!((failure.status.as_u16(), failure.detail.code.as_str()), (404, "unknown_response"), "{id}");
        }
    }
}
