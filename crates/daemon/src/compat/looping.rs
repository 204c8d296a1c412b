//! The loop of an agent model: asks the model, has what it wants decided and done, tells it what came of that, until it is done.
//!
//! Guarantees: each call goes through the gate with the credential that asked, in a run of its own whose budget holds; a refusal is told to
//! the model as final, with its reason; the loop ends at its limits, whatever the model wants, and says so, and as soon as whoever asked would
//! not be let in any more; whoever stops listening withdraws what waits and stops what runs. A failure says whether calls were made before it.
//! Nothing is run, or handed back, of a turn that was cut off: what is there of it may be less than was meant. Calls of functions that the
//! client brought along are handed back and never run here.
//! Does not: know how clients are told. [`chat`](super::chat) and [`responses`](super::responses) do.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use axum::http::HeaderMap;
use palyra_api::{
    approval::Approval,
    call::{Call, NewCall, Output},
};
use palyra_journal::RecordKind;
use palyra_notebook::RunOf;
use palyra_types::{
    Sha256Digest, ToolName, WorkspaceName,
    id::{ApprovalId, CallId, RunId, SessionId},
};
use serde_json::{Map, Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use super::{
    naming::AgentSection,
    offering::Offered,
    standing::Standing,
    turn::{LONGEST_ARGUMENTS, Turn, Usage, WantedCall},
    upstream,
};
use crate::{
    app::App,
    failure::Failure,
    hub::{Follower, Frame, Wanted},
    proposing::Asked,
    question,
};

/// What happens while the loop runs, for whoever tells a client.
#[derive(Debug, Clone)]
pub enum Happening {
    /// The model says something.
    Text(String),
    /// A call is proposed.
    Proposed {
        /// The model's id of it.
        id: String,
        /// The tool.
        tool: ToolName,
        /// Its arguments, as the model spelt them.
        arguments: String,
    },
    /// A person is asked.
    Asked(Box<Approval>),
    /// A question was answered, ran out or was withdrawn.
    Resolved {
        /// Which.
        approval: ApprovalId,
        /// What came of it.
        state: String,
    },
    /// A call is over.
    Over(Box<Done>),
}

/// A call that is over, as the model is told.
#[derive(Debug, Clone)]
pub struct Done {
    /// The model's id of it.
    pub id: String,
    /// The call, if it came that far.
    pub call: Option<CallId>,
    /// What the model is told.
    pub told: String,
    /// Whether that is why it did not run, or failed.
    pub is_error: bool,
    /// The word for why it did not run.
    pub code: Option<String>,
    /// The number of its receipt in the journal.
    pub receipt: Option<u64>,
}

/// How the loop ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Why.
    pub why: Why,
    /// What all turns took.
    pub usage: Usage,
    /// What was said to the model, from the beginning, for whoever goes on with it.
    pub messages: Vec<Value>,
}

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The model is done.
    Stop,
    /// The model, or the loop, may say and do no more.
    Limit(String),
    /// The model wants functions of the client.
    Client(Vec<WantedCall>),
    /// The provider held the answer back.
    Filtered,
}

/// A loop that is about to begin.
pub struct AgentLoop {
    /// The daemon.
    pub app: Arc<App>,
    /// Who asks.
    pub standing: Standing,
    /// The agent.
    pub agent: Arc<AgentSection>,
    /// What it is offered.
    pub offered: Offered,
    /// Functions that the client brought along.
    pub of_client: Vec<Value>,
    /// What the provider is asked, besides messages and tools.
    pub settings: Map<String, Value>,
    /// The conversation until now.
    pub messages: Vec<Value>,
    /// The conversation that calls belong to.
    pub session: SessionId,
    /// The task, whose budget they use.
    pub run: RunId,
}

impl AgentLoop {
    /// Runs to the end, and tells what happens meanwhile.
    ///
    /// # Errors
    /// When the provider fails, or the daemon.
    pub async fn conduct(mut self, out: mpsc::Sender<Happening>) -> Result<Ended, Failure> {
        let (standing, run) = (self.standing.clone(), self.run);
        let mut calls = 0;
        let ended = tokio::select! {
            biased;
            refusal = standing.over() => Err(refusal),
            ended = self.go_on(&mut calls, &out) => ended,
        };
        // SECURITY: clients ask again by themselves after most failures, and every call would be made once more.
        ended.map_err(|failure| if calls == 0 { failure } else { failure.having_done(&already(Some(run))) })
    }

    /// Goes on until it ends, and counts the calls.
    async fn go_on(&mut self, calls: &mut u32, out: &mpsc::Sender<Happening>) -> Result<Ended, Failure> {
        let over_at = Instant::now() + Duration::from_secs(self.agent.max_seconds.into());
        self.keep(&self.messages).await;
        let mut usage = Usage::default();
        let mut refused = HashMap::<Sha256Digest, u32>::new();
        for _ in 0..self.agent.max_turns {
            let Ok(turn) = timeout_at(over_at, self.turn(out)).await else { return Ok(self.too_long(usage)) };
            let Turn { text, calls: wanted, finish, usage: took, .. } = turn?;
            usage = usage.and(took);
            if let Some(why) = cut_off(finish.as_deref()) {
                self.say(vec![said(&text, &[])]).await;
                return Ok(self.ended(why, usage));
            }
            let (own, of_client): (Vec<_>, Vec<_>) =
                wanted.into_iter().partition(|call| !self.is_of_client(&call.function));
            // What the client is to do comes first: the model asks again for the rest once it knows what came of that.
            let told = if of_client.is_empty() { &own } else { &of_client };
            self.say(vec![said(&text, told)]).await;
            if of_client.iter().any(|call| call.is_too_long) {
                let what = format!("the arguments of a function of yours are longer than {LONGEST_ARGUMENTS} bytes");
                return Err(upstream::malformed(&what));
            }
            if !of_client.is_empty() {
                return Ok(self.ended(Why::Client(of_client), usage));
            }
            if own.is_empty() {
                return Ok(self.ended(Why::Stop, usage));
            }
            let wanted = calls.saturating_add(u32::try_from(own.len()).unwrap_or(u32::MAX));
            if wanted > self.agent.max_calls {
                let why = format!("it wanted more than {} calls", self.agent.max_calls);
                self.say(own.iter().map(|call| unanswered(call, &why)).collect()).await;
                return Ok(self.ended(Why::Limit(why), usage));
            }
            *calls = wanted;
            let Ok(done) = timeout_at(over_at, self.all(&own, out)).await else {
                let why = "the time of the agent is over";
                self.say(own.iter().map(|call| unanswered(call, why)).collect()).await;
                return Ok(self.too_long(usage));
            };
            self.say(own.iter().zip(&done).map(|(call, done)| answered(call, &done.told)).collect()).await;
            // A choice that was forced has been made. A model that is forced to it again can never end.
            let choice = self.settings.remove("tool_choice").and_then(unforced);
            self.settings.extend(choice.map(|choice| ("tool_choice".to_owned(), choice)));
            for (call, _) in own.iter().zip(&done).filter(|(_, done)| done.is_error) {
                let key = Sha256Digest::of(format!("{}\0{}", call.function, call.arguments).as_bytes());
                *refused.entry(key).or_default() += 1;
            }
            if let Some(most) = refused.values().max().filter(|count| **count >= MOST_REPEATS) {
                let why = format!("it asked {most} times for the same thing that was refused or failed");
                return Ok(self.ended(Why::Limit(why), usage));
            }
            if done.iter().any(|done| done.code.as_deref() == Some("budget_exceeded")) {
                return Ok(self.ended(Why::Limit("the budget of its run is used up".to_owned()), usage));
            }
        }
        let why = format!("it took {} turns", self.agent.max_turns);
        Ok(self.ended(Why::Limit(why), usage))
    }

    /// Adds to the conversation, and keeps it.
    async fn say(&mut self, messages: Vec<Value>) {
        self.keep(&messages).await;
        self.messages.extend(messages);
    }

    /// Keeps what was said, if anything is kept.
    async fn keep(&self, messages: &[Value]) {
        if self.app.config_now().transcripts.enabled {
            let (session, run, principal) = (self.session, self.run, self.standing.caller().principal.to_string());
            let of = RunOf { session, run, principal, model: format!("palyra/{}", self.agent.name) };
            self.app.transcripts.say(&of, messages).await;
        }
    }

    fn too_long(&mut self, usage: Usage) -> Ended {
        self.ended(Why::Limit(format!("its {} seconds are over", self.agent.max_seconds)), usage)
    }

    fn ended(&mut self, why: Why, usage: Usage) -> Ended {
        Ended { why, usage, messages: std::mem::take(&mut self.messages) }
    }

    fn is_of_client(&self, function: &str) -> bool {
        let name = |tool: &Value| tool.get("function")?.get("name")?.as_str().map(str::to_owned);
        self.of_client.iter().any(|tool| name(tool).as_deref() == Some(function))
    }

    /// Asks the model once.
    async fn turn(&self, out: &mpsc::Sender<Happening>) -> Result<Turn, Failure> {
        let caller = self.standing.now()?;
        let mut body = self.settings.clone();
        body.insert("messages".to_owned(), Value::Array(self.messages.clone()));
        let tools: Vec<Value> = self.offered.definitions().iter().chain(&self.of_client).cloned().collect();
        if tools.is_empty() {
            body.remove("tool_choice");
        } else {
            body.insert("tools".to_owned(), Value::Array(tools));
        }
        body.insert("stream".to_owned(), json!(true));
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        let mut turn = Turn::default();
        let asker = upstream::Asker { caller: &caller, agent: Some((&self.agent.name, self.run)) };
        let mut events = upstream::chat(&self.app, asker, &self.agent.model, body).await?;
        while let Some(chunk) = events.next().await? {
            let text = turn.push(chunk).map_err(|error| events.refuse(&error.to_string()))?;
            if !text.is_empty() {
                tell(out, Happening::Text(text)).await?;
            }
        }
        turn.said_something().map_err(|error| events.refuse(&error.to_string()))?;
        if turn.text.is_empty() && !turn.refusal.is_empty() {
            tell(out, Happening::Text(turn.refusal.clone())).await?;
        }
        let mut taken = HashSet::new();
        for (index, call) in turn.calls.iter_mut().enumerate() {
            // Some providers leave ids out, or give two calls the same.
            if call.id.is_empty() || !taken.insert(call.id.clone()) {
                call.id = format!("call_{index}_{}", self.messages.len());
            }
        }
        Ok(turn)
    }

    /// Has all calls of a turn decided and done, at the same time, and tells of them and of questions meanwhile.
    async fn all(&self, calls: &[WantedCall], out: &mpsc::Sender<Happening>) -> Vec<Done> {
        // From before anything is asked, so that no question is missed.
        let records = self.app.hub.follow(self.app.hub.size(), Wanted::Run(self.run));
        let (over, ended) = mpsc::channel(calls.len().max(1));
        let work = async move {
            let over = over;
            futures_util::future::join_all(calls.iter().map(|call| self.one(call, out, &over))).await
        };
        let (done, ()) = tokio::join!(work, self.tell_story(Story { records, is_heard: true, out }, ended));
        done
    }

    /// Tells about questions as they are asked and answered, and about calls once they are over, in the order of the journal, until all are
    /// over and everything was told.
    async fn tell_story(&self, mut story: Story<'_>, mut ended: mpsc::Receiver<OverAt>) {
        loop {
            tokio::select! {
                biased;
                over = ended.recv() => {
                    let Some(OverAt { size, done }) = over else { return };
                    story.catch_up(self, size).await;
                    // Whoever is gone is noticed where this is polled.
                    let _ = tell(story.out, Happening::Over(Box::new(done))).await;
                }
                more = story.records.more(), if story.is_heard => {
                    story.is_heard &= more;
                    story.tell_at_hand(self).await;
                }
            }
        }
    }

    /// What a record says about a question, if it does.
    async fn question(&self, frame: &Frame) -> Option<Happening> {
        let approval = frame.subject.approval?;
        if !matches!(frame.kind, RecordKind::ApprovalRequested | RecordKind::ApprovalResolved) {
            return None;
        }
        let (prompt, answer) = self.app.gate.approval(approval).await.ok()??;
        match (frame.kind, answer) {
            (RecordKind::ApprovalResolved, answer) => {
                Some(Happening::Resolved { approval, state: answer?.state.to_string() })
            }
            (_, answer) => {
                let told = question::told(&prompt, answer.as_ref(), self.app.clock.as_ref());
                Some(Happening::Asked(Box::new(told)))
            }
        }
    }

    /// Has one call decided and done.
    async fn one(&self, wanted: &WantedCall, out: &mpsc::Sender<Happening>, over: &mpsc::Sender<OverAt>) -> Done {
        let refused = |code: &str, message: String, help: &str| Done {
            id: wanted.id.clone(),
            call: None,
            told: refusal(code, &message, help),
            is_error: true,
            code: Some(code.to_owned()),
            receipt: None,
        };
        let done = match self.offered.tool(&wanted.function) {
            None => {
                let name = palyra_types::visible::visible(&wanted.function);
                let near = palyra_types::word::nearest(&wanted.function, &self.offered.functions().collect::<Vec<_>>());
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                refused(
                    "unknown_tool",
                    format!("there is no tool `{name}`{near}"),
                    "use one of the tools that are offered",
                )
            }
            Some(tool) => {
                let proposed = Happening::Proposed {
                    id: wanted.id.clone(),
                    tool: tool.clone(),
                    arguments: wanted.arguments.clone(),
                };
                let _ = tell(out, proposed).await;
                match arguments(wanted) {
                    Err(message) => refused("bad_arguments", message, "send one JSON object that fits the schema"),
                    Ok(args) => match self.propose(tool, args).await {
                        Ok(call) => done(&wanted.id, &call, self.agent.max_output_bytes),
                        Err(failure) => {
                            let detail = &failure.detail;
                            let help = detail.help.as_deref().unwrap_or_default();
                            Done { call: detail.call, ..refused(&detail.code, detail.message.clone(), help) }
                        }
                    },
                }
            }
        };
        // All that is recorded of it by now is told before it.
        let size = self.app.store.size().await.unwrap_or_default();
        let _ = over.send(OverAt { size, done: done.clone() }).await;
        done
    }

    async fn propose(&self, tool: &ToolName, args: Map<String, Value>) -> Result<Call, Failure> {
        let workspace: Option<WorkspaceName> = self.agent.workspace.clone();
        let new = NewCall { workspace, run: Some(self.run), ..NewCall::new(tool.clone(), args) };
        let nothing = (&HeaderMap::new(), Sha256Digest::of(b""));
        let caller = self.standing.now()?;
        match Asked::read(&self.app, &caller, new, nothing).await? {
            Asked::New(proposing) => proposing.run_apart().await,
            Asked::Known(_) => Err(Failure::internal("a call without a key was known before")),
        }
    }
}

/// A call that is over, and how many records there were by then.
struct OverAt {
    size: u64,
    done: Done,
}

/// What the journal says of a turn while it lasts.
struct Story<'a> {
    records: Follower,
    /// Whether more can be heard of it.
    is_heard: bool,
    out: &'a mpsc::Sender<Happening>,
}

impl Story<'_> {
    /// Tells what is recorded by now.
    async fn tell_at_hand(&mut self, of: &AgentLoop) {
        loop {
            match self.records.at_hand().await {
                Ok(Some(frame)) => {
                    if let Some(happening) = of.question(&frame).await {
                        let _ = tell(self.out, happening).await;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "questions of an agent are not told any more");
                    self.is_heard = false;
                    return;
                }
            }
        }
    }

    /// Tells what was recorded up to this many records.
    async fn catch_up(&mut self, of: &AgentLoop, size: u64) {
        while self.is_heard && !self.records.is_past(size.saturating_sub(1)) {
            self.is_heard &= self.records.more().await;
            self.tell_at_hand(of).await;
        }
    }
}

/// Why a turn is not what the model meant to say, if its provider says so.
fn cut_off(finish: Option<&str>) -> Option<Why> {
    match finish {
        Some("length") => Some(Why::Limit("the model reached its own limit".to_owned())),
        Some("content_filter") => Some(Why::Filtered),
        _ => None,
    }
}

/// What is left of a choice of tools once one was made: whatever leaves it to the model whether it uses any.
fn unforced(mut choice: Value) -> Option<Value> {
    if matches!(choice.as_str(), Some("auto" | "none")) {
        return Some(choice);
    }
    // Which tools are allowed goes on to hold.
    *choice.get_mut("allowed_tools")?.get_mut("mode")? = json!("auto");
    Some(choice)
}

/// What a client is told about a request that made calls before it failed.
pub fn already(run: Option<RunId>) -> String {
    let made = "calls of this request were made already, and asking again would make them again";
    match run {
        Some(run) => format!("{made}: `palyra runs show {run}` tells what came of them"),
        None => made.to_owned(),
    }
}

/// Tells whoever listens, or says that nobody does.
async fn tell(out: &mpsc::Sender<Happening>, happening: Happening) -> Result<(), Failure> {
    out.send(happening).await.map_err(|_| Failure::internal("nobody listens any more"))
}

/// A turn as a message of the conversation.
fn said(text: &str, calls: &[WantedCall]) -> Value {
    let mut message = json!({ "role": "assistant", "content": text });
    if let Some(message) = message.as_object_mut().filter(|_| !calls.is_empty()) {
        let call = |call: &WantedCall| {
            let arguments = if call.is_too_long { "{}" } else { call.arguments.as_str() };
            json!({ "id": call.id, "type": "function", "function": { "name": call.function, "arguments": arguments } })
        };
        message.insert("tool_calls".to_owned(), calls.iter().map(call).collect());
    }
    message
}

/// What came of a call as a message of the conversation.
fn answered(call: &WantedCall, told: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": call.id, "content": told })
}

/// The same of a call that was not proposed any more. Whoever goes on with the conversation needs an answer to every call.
fn unanswered(call: &WantedCall, why: &str) -> Value {
    answered(call, &refusal("limited", why, "say what is missing"))
}

fn arguments(wanted: &WantedCall) -> Result<Map<String, Value>, String> {
    if wanted.is_too_long {
        return Err(format!("the arguments are longer than {LONGEST_ARGUMENTS} bytes"));
    }
    let text = if wanted.arguments.trim().is_empty() { "{}" } else { wanted.arguments.as_str() };
    // SECURITY: read as strictly as any call's, so that the model, a person and the executor read the same.
    let read = palyra_types::JsonObject::parse(text.as_bytes(), palyra_types::json::Limits::default());
    match read.map(|object| object.value().clone()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the arguments are no JSON object".to_owned()),
        Err(error) => Err(format!("the arguments cannot be read: {error}")),
    }
}

/// What a model is told about a call that did not run.
fn refusal(code: &str, message: &str, help: &str) -> String {
    json!({ "error": { "code": code, "message": message, "help": help, "retry": false } }).to_string()
}

/// What a model is told about a call that ran.
fn done(id: &str, call: &Call, most: usize) -> Done {
    let receipt = call.receipt.as_ref();
    let ending = receipt.map_or("unknown", |receipt| receipt.ending());
    let detail = receipt.and_then(|receipt| receipt.detail());
    let mut told = json!({ "ending": ending });
    let mut is_error = ending != "completed";
    if let Some(parts) = told.as_object_mut() {
        if let Some(detail) = detail {
            parts.insert("detail".to_owned(), json!(detail));
        }
        match &call.output {
            Some(Output::Process { exit_code, signal, stdout, stderr, .. }) => {
                is_error |= exit_code.is_none_or(|code| code != 0);
                parts.insert("exit_code".to_owned(), json!(exit_code));
                if signal.is_some() {
                    parts.insert("signal".to_owned(), json!(signal));
                }
                parts.insert("stdout".to_owned(), json!(cut(&stdout.data, most)));
                parts.insert("stderr".to_owned(), json!(cut(&stderr.data, most / 4)));
            }
            Some(Output::Value { value }) => {
                is_error |= detail.is_some();
                let text = value.to_string();
                let value = if text.len() > most { json!(cut(&text, most)) } else { value.clone() };
                parts.insert("output".to_owned(), value);
            }
            Some(Output::Nothing) | None => {}
        }
    }
    Done {
        id: id.to_owned(),
        call: Some(call.id),
        told: told.to_string(),
        is_error,
        code: None,
        receipt: receipt.map(|receipt| receipt.seq),
    }
}

/// A text that is no longer than this, with a word about what was left out.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}… ({} bytes left out)", text.get(..end).unwrap_or_default(), text.len() - end)
}

/// How often a model may ask for the same thing that was refused or failed.
const MOST_REPEATS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_tools_that_was_forced_is_left_to_the_model_once_it_was_made() {
        let allowed =
            |mode: &str| json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": ["f"] } });
        let named = json!({ "type": "function", "function": { "name": "f" } });
        for (choice, left) in [
            (json!("auto"), Some(json!("auto"))),
            (json!("none"), Some(json!("none"))),
            (json!("required"), None),
            (named, None),
            (allowed("required"), Some(allowed("auto"))),
            (json!(null), None),
        ] {
            assert_eq!(unforced(choice.clone()), left, "{choice}");
        }
    }
}
