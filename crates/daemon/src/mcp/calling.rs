//! `tools/call`: proposes a call and waits for it with its client.
//!
//! Guarantees: a client that cancels, hangs up or ends its session withdraws what waits and stops what runs; one that is patient sees that
//! something goes on. When a person is asked for longer than clients wait, the call lives on, and the client is told how to go on with it, in
//! its protocol's own way. Nothing that a client sends answers a question; it can only take back what it asked for.
//! Does not: give up on a call that runs. Its own limits end it.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use palyra_api::call::NewCall;
use palyra_journal::state::ApprovalState;
use palyra_types::{
    Sha256Digest, ToolName, WorkspaceName,
    entropy::NoEntropy,
    id::{ApprovalId, CallId},
};
use rmcp::model::ErrorCode;
use serde_json::{Map, Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{
    listing,
    message::{self, Request, RpcError},
    outcome,
    pending::{self, PendingCall, Whose},
    sessions::{Session, UnderWay},
    tasks,
    wire::Wire,
};
use crate::{
    app::App,
    caller::Caller,
    compat::telling::{data, events},
    failure::Failure,
    proposing::{Asked, Begun},
    question, reply,
    story::Ran,
};

/// Answers a request for a call: at once if it is over soon, else as a stream.
pub async fn call(
    app: &Arc<App>,
    caller: &Caller,
    request: Request,
    (wire, workspace): (Wire, Option<WorkspaceName>),
) -> Response {
    let id = request.id.clone();
    let mut attempt = match Attempt::begin(app, caller, &request, (wire.clone(), workspace)).await {
        Ok(attempt) => attempt,
        Err(answer) => return answer.response(&id, &wire),
    };
    if let Ok(answer) = tokio::time::timeout(SOON, attempt.wait(None)).await {
        return answer.response(&id, &wire);
    }
    let (sender, response) = events();
    tokio::spawn(async move {
        // Dropped when its client is gone, which withdraws the call.
        let answer = tokio::select! {
            () = sender.closed() => return,
            answer = attempt.wait(Some(&sender)) => answer,
        };
        if let Some(message) = answer.message(&id, &wire) {
            let _ = sender.send(data(&message)).await;
        }
    });
    response
}

/// What a request for a call is answered with.
enum Answer {
    Result(Map<String, Value>),
    Error(RpcError),
    /// Its client wants none any more.
    Nothing,
}

impl Answer {
    fn message(&self, id: &Value, wire: &Wire) -> Option<Value> {
        match self {
            Self::Result(result) => Some(message::result(id, wire.finished(result.clone()))),
            Self::Error(error) => Some(error.message(Some(id))),
            Self::Nothing => None,
        }
    }

    fn response(&self, id: &Value, wire: &Wire) -> Response {
        let status = match self {
            Self::Error(error) => wire.status(error),
            Self::Result(_) | Self::Nothing => StatusCode::OK,
        };
        match self.message(id, wire) {
            Some(message) => reply::json(status, &message),
            None => StatusCode::ACCEPTED.into_response(),
        }
    }
}

/// A request for a call that is being waited for.
struct Attempt {
    app: Arc<App>,
    caller: Caller,
    wire: Wire,
    call: Arc<PendingCall>,
    /// What the client knows progress by.
    progress: Option<Value>,
    told: u32,
    under_way: Option<UnderWay>,
    until: Instant,
    /// Whether the call ends with this request.
    attached: bool,
    /// Whether somebody else goes on with it.
    left: bool,
}

impl Attempt {
    /// Goes on with the call that is meant, or proposes a new one.
    async fn begin(
        app: &Arc<App>,
        caller: &Caller,
        request: &Request,
        (wire, workspace): (Wire, Option<WorkspaceName>),
    ) -> Result<Self, Answer> {
        let under_way = wire.session().map(|session| session.begin(&request.id));
        let wanted = Wanted::read(app, request, workspace.as_ref()).map_err(Answer::Error)?;
        let session = wire.session().map(|session| session.id.clone());
        let whose = Whose { shown: caller.shown.clone(), session };
        let known = match (request.text("requestState"), wanted.what) {
            (Some(handle), Some(what)) => {
                let call = app.mcp.pending.by_handle(handle, &whose, what).ok_or_else(|| Answer::Error(stale()))?;
                if has_declined(request) {
                    app.gate.cancel(call.call, &caller.petitioner()).ok();
                }
                Some(call)
            }
            (Some(_), None) => return Err(Answer::Error(stale())),
            (None, Some(what)) => app.mcp.pending.same(&whose, what),
            (None, None) => None,
        };
        let attached = known.is_none();
        let patience = Duration::from_secs(app.config_now().mcp_gateway.wait_seconds.get().into());
        let call = match known {
            Some(call) => call,
            None => propose(app, caller, wanted, (&wire, whose, workspace)).await?,
        };
        Ok(Self {
            app: Arc::clone(app),
            caller: caller.clone(),
            wire,
            call,
            progress: request.meta("progressToken").cloned(),
            told: 0,
            under_way,
            until: Instant::now() + patience,
            attached,
            left: false,
        })
    }

    /// Waits for what comes of it, as long as its client does.
    async fn wait(&mut self, out: Option<&mpsc::Sender<Bytes>>) -> Answer {
        let mut outcome = self.call.outcome.clone();
        let (mut next, mut is_ending) = (Instant::now(), false);
        loop {
            if out.is_some() && Instant::now() >= next {
                next += BREATH;
                self.breathe(out).await;
            }
            let until = if self.until > Instant::now() { self.until.min(next) } else { next };
            let until = if out.is_some() { until } else { self.until };
            let finished = async { outcome.wait_for(Option::is_some).await.ok().and_then(|over| over.clone()) };
            tokio::select! {
                biased;
                over = finished => {
                    let unknown = || Err(Failure::internal("nobody knows what came of the call"));
                    return self.over(over.unwrap_or_else(unknown)).await;
                }
                end = ended(self.under_way.as_ref()), if !is_ending => match end {
                    End::Cancelled => {
                        self.withdraw();
                        return Answer::Nothing;
                    }
                    // Whoever still listens hears what became of the call.
                    End::SessionOver if self.attached => {
                        is_ending = true;
                        // Calls of a credential that was taken away are stopped in the name of whoever took it.
                        if self.caller.shown.counts(&self.app) {
                            let _ = self.app.gate.cancel(self.call.call, &self.caller.petitioner());
                        }
                    }
                    End::SessionOver => return Answer::Nothing,
                },
                () = tokio::time::sleep_until(until) => {}
            }
            if Instant::now() >= self.until
                && let Some(approval) = self.question().await
            {
                return self.later(approval);
            }
        }
    }

    /// The question that the call waits for the answer to.
    async fn question(&self) -> Option<ApprovalId> {
        question(&self.app, self.call.call).await
    }

    /// Shows that something goes on.
    async fn breathe(&mut self, out: Option<&mpsc::Sender<Bytes>>) {
        let Some(out) = out else { return };
        let piece = match &self.progress {
            None => Bytes::from_static(b": waiting\n\n"),
            Some(token) => {
                self.told += 1;
                let message = match self.question().await {
                    Some(approval) => format!("a person is asked: {}", question::place(self.app.local, approval)),
                    None => format!("`{}` runs", self.call.tool),
                };
                let params = json!({ "progressToken": token, "progress": self.told, "message": message });
                data(&message::notification("notifications/progress", params))
            }
        };
        // Whoever is gone is noticed where this is polled.
        let _ = out.send(piece).await;
    }

    async fn over(&mut self, outcome: Result<Arc<Ran>, Failure>) -> Answer {
        (self.attached, self.left) = (false, true);
        self.app.mcp.pending.forget(self.call.call);
        let session = self.wire.session().map(Arc::as_ref);
        Answer::Result(told(&self.app, (&self.caller, session), &outcome, &self.call.tool).await)
    }

    /// Lets the call live on, and says how to go on with it.
    fn later(&mut self, approval: ApprovalId) -> Answer {
        let failed = |error: NoEntropy| Answer::Error(RpcError::new(ErrorCode::INTERNAL_ERROR, error.to_string()));
        if self.wire.abilities().tasks && matches!(self.wire, Wire::Stateless(_)) {
            return match tasks::begin(&self.app, &self.call) {
                Ok(task) => {
                    (self.attached, self.left) = (false, true);
                    Answer::Result(task)
                }
                Err(error) => failed(error),
            };
        }
        let handle = match self.app.mcp.pending.keep(&self.call, self.app.entropy.as_ref()) {
            Ok(handle) => handle,
            Err(error) => return failed(error),
        };
        (self.attached, self.left) = (false, true);
        let (text, leading) = leading(&self.app, &self.call, approval);
        let can_lead = self.wire.abilities().urls;
        match &self.wire {
            Wire::Stateless(_) => {
                let mut result = Map::from_iter([
                    ("resultType".to_owned(), json!("input_required")),
                    ("requestState".to_owned(), json!(handle)),
                ]);
                if can_lead {
                    let asked = json!({ "approval": { "method": "elicitation/create", "params": leading } });
                    result.insert("inputRequests".to_owned(), asked);
                }
                Answer::Result(result)
            }
            Wire::Session(session) if can_lead => {
                let (notices, mut outcome) = (session.notices.clone(), self.call.outcome.clone());
                tokio::spawn(async move {
                    let _ = outcome.wait_for(Option::is_some).await;
                    let told = json!({ "elicitationId": approval });
                    let _ = notices.send(message::notification("notifications/elicitation/complete", told));
                });
                let mut leading = leading;
                if let Some(leading) = leading.as_object_mut() {
                    leading.insert("elicitationId".to_owned(), json!(approval));
                }
                Answer::Error(RpcError::new(URL_ELICITATION, text).with(json!({ "elicitations": [leading] })))
            }
            Wire::Session(_) => {
                let again = "Call again with the same arguments to wait for the answer: that goes on with this call and asks nobody twice.";
                Answer::Result(outcome::later(self.call.call, &format!("{text} {again}")))
            }
        }
    }

    fn withdraw(&mut self) {
        (self.attached, self.left) = (false, true);
        self.app.mcp.pending.forget(self.call.call);
        let _ = self.app.gate.cancel(self.call.call, &self.caller.petitioner());
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.attached {
            self.withdraw();
        } else if !self.left {
            self.call.leave();
        }
    }
}

/// What a request asks for.
struct Wanted {
    tool: ToolName,
    args: Map<String, Value>,
    what: Option<Sha256Digest>,
    /// The name that is nearest, where there is no such tool.
    near: Option<String>,
}

impl Wanted {
    fn read(app: &App, request: &Request, workspace: Option<&WorkspaceName>) -> Result<Self, RpcError> {
        let name = request.text("name").ok_or_else(|| RpcError::invalid_params("a call names its tool"))?;
        let args = match request.params.get("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(args)) => args.clone(),
            Some(_) => return Err(RpcError::invalid_params("the arguments of a call are a JSON object")),
        };
        let (tool, near) = match listing::meant(app, name) {
            Some(tool) => (tool, None),
            None => {
                let near = listing::nearest(app, name);
                // What can be a name is proposed, so that it is on record.
                let tool = ToolName::parse(name).map_err(|_| outcome::unknown(name, near.as_deref(), None))?;
                (tool, near)
            }
        };
        let what = pending::what(&tool, &args, workspace);
        Ok(Self { tool, args, what, near })
    }
}

/// Proposes a new call.
async fn propose(
    app: &Arc<App>,
    caller: &Caller,
    wanted: Wanted,
    (wire, whose, workspace): (&Wire, Whose, Option<WorkspaceName>),
) -> Result<Arc<PendingCall>, Answer> {
    let Wanted { tool, args, what, near } = wanted;
    let name = tool.clone();
    let session = wire.session().map(Arc::as_ref);
    let refused = |failure: Failure| match failure.detail.code.as_str() {
        "unknown_tool" => Answer::Error(outcome::unknown(name.as_str(), near.as_deref(), failure.detail.call)),
        _ => Answer::Result(outcome::told(&Err(failure), &name)),
    };
    let run = match session {
        Some(session) => Some(session.run(app, caller).await.map_err(refused)?),
        None => None,
    };
    let new = NewCall { workspace, run, wait: false, ..NewCall::new(tool.clone(), args) };
    let nothing = (&HeaderMap::new(), Sha256Digest::of(b""));
    let proposing = match Asked::read(app, caller, new, nothing).await.map_err(refused)? {
        Asked::New(proposing) => proposing,
        Asked::Known(_) => return Err(refused(Failure::internal("a call without a key was known before"))),
    };
    // It is not this request's yet; whoever hangs up meanwhile takes it back all the same.
    let mut gone = Gone { app, caller, call: Some(proposing.proposal.call) };
    let begun = proposing.begin(app).await;
    gone.call = None;
    let Begun { call, outcome } = match begun {
        Err(failure) if failure.detail.code == USED_UP => {
            return Err(Answer::Result(told(app, (caller, session), &Err(failure), &name).await));
        }
        begun => begun.map_err(refused)?,
    };
    let what = what.unwrap_or_else(|| Sha256Digest::of(call.to_string().as_bytes()));
    Ok(Arc::new(PendingCall::new(call, (tool, what), whose, outcome)))
}

/// What a client is told of a call that is over.
pub(super) async fn told(
    app: &App,
    (caller, session): (&Caller, Option<&Session>),
    outcome: &Result<Arc<Ran>, Failure>,
    tool: &ToolName,
) -> Map<String, Value> {
    match outcome {
        Err(failure) if failure.detail.code == USED_UP => {
            let left = match session {
                Some(session) => session.left(app).await,
                None => app.own_runs.left(&caller.principal, &app.gate).await,
            };
            outcome::used_up(failure, left)
        }
        outcome => outcome::told(outcome, tool),
    }
}

/// Takes a call back when it is dropped.
struct Gone<'a> {
    app: &'a App,
    caller: &'a Caller,
    call: Option<CallId>,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            let _ = self.app.gate.cancel(call, &self.caller.petitioner());
        }
    }
}

/// Why a request is not waited for any more.
enum End {
    Cancelled,
    SessionOver,
}

async fn ended(under_way: Option<&UnderWay>) -> End {
    let Some(under_way) = under_way else { return std::future::pending().await };
    tokio::select! {
        () = under_way.cancelled() => End::Cancelled,
        () = under_way.ended() => End::SessionOver,
    }
}

/// Whether the client's user does not want what was asked for.
// SECURITY: the word of a client can take a call back, and nothing else. That it says `accept` means nothing here.
pub(super) fn has_declined(request: &Request) -> bool {
    let answered = request.params.get("inputResponses").and_then(|all| all.get("approval")?.get("action")?.as_str());
    answered == Some("decline")
}

/// The question that a call waits for the answer to.
pub(super) async fn question(app: &App, call: CallId) -> Option<ApprovalId> {
    let asked = app.store.approval_of(call).await.ok().flatten()?;
    (asked.state == ApprovalState::Pending).then_some(asked.id)
}

/// What is said about a question, and how a user is led to it.
pub(super) fn leading(app: &App, call: &PendingCall, approval: ApprovalId) -> (String, Value) {
    let url = question::place(app.local, approval);
    let text = format!(
        "A person is asked whether `{}` may do this, and has not answered yet. They decide in Palyra's console ({url}; \
         `palyra open` signs in) or with `palyra approvals watch`.",
        call.tool
    );
    let leading = json!({ "mode": "url", "message": text, "url": url });
    (text, leading)
}

fn stale() -> RpcError {
    RpcError::invalid_params(
        "this `requestState` goes on with no call: it was used, is not yours, or is about other arguments",
    )
    .with(json!({ "code": "unknown_state", "help": "make the request anew, without it", "retry": false }))
}

/// How long an answer may take that is no stream.
const SOON: Duration = Duration::from_millis(250);

/// How often a stream shows that it lives.
const BREATH: Duration = Duration::from_secs(5);

/// The code of a refusal by a run that has used up its budget.
const USED_UP: &str = "budget_exceeded";

/// The error that leads a user to a URL, of 2025-11-25.
const URL_ELICITATION: ErrorCode = ErrorCode(-32_042);
