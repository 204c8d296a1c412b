//! Proposes a call on behalf of a caller: finds its run, its workspace and its idempotency key, and hands it to the gate.
//!
//! Guarantees: a key that was used before runs nothing, whatever became of the call it was used for; an agent never names a directory.

use std::sync::Arc;

use axum::http::HeaderMap;
use palyra_api::call::{Call, CallState, NewCall};
use palyra_gate::{Accepted, CallKey, Completed, Refusal, ToolProposal};
use palyra_journal::state::Waiting;
use palyra_types::{
    IdempotencyKey, JsonObject, Principal, Sha256Digest, WorkspaceName,
    id::{CallId, RunId, SessionId},
    json::Limits,
};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    app::App,
    caller::Caller,
    failure::Failure,
    hub::Wanted,
    keys::KeyInUse,
    story::{self, Ran},
};

/// A call that is about to be proposed.
pub struct Proposing<'a> {
    app: &'a App,
    /// What the gate is told.
    pub proposal: ToolProposal,
    /// Holds the key until the call is durable or over.
    holding: Option<KeyInUse<'a>>,
}

/// What a request for a call turns out to be.
pub enum Asked<'a> {
    /// A new call.
    New(Box<Proposing<'a>>),
    /// A call that there is already.
    Known(CallId),
}

impl<'a> Asked<'a> {
    /// Reads a request for a call.
    ///
    /// # Errors
    /// When it makes no sense, or its key was used for something else.
    pub async fn read(
        app: &'a App,
        caller: &Caller,
        new: NewCall,
        (headers, body): (&HeaderMap, Sha256Digest),
    ) -> Result<Self, Failure> {
        if *app.stopping.borrow() {
            return Err(Refusal::Stopping { goes_on: false }.into());
        }
        let key = key(headers, body)?;
        let holding = match &key {
            None => None,
            Some(key) => {
                let holding = app.keys.take(caller.principal.to_string(), key.key.to_string()).await;
                if let Some(call) = used_before(app, &caller.principal, key).await? {
                    return Ok(Self::Known(call));
                }
                Some(holding)
            }
        };
        let (session, run) = run_of(app, caller, new.run).await?;
        let workspace = workspace_of(app, caller, &new)?;
        let args = JsonObject::try_from_value(Value::Object(new.args), Limits::default())
            .map_err(|error| Failure::new("bad_arguments", error.to_string(), "send arguments that fit the schema"))?;
        let call = CallId::generate(app.clock.now(), app.entropy.as_ref())
            .map_err(|error| Failure::internal(error.to_string()))?;
        let proposal = ToolProposal {
            call,
            run,
            session,
            principal: caller.principal.clone(),
            on_behalf_of: None,
            channel: Some(caller.channel.clone()),
            device: caller.device().cloned(),
            token: caller.token().cloned(),
            member_of: caller.member_of.clone(),
            workspace,
            tool: new.tool,
            args,
            waiting: if new.wait { Waiting::Attached } else { Waiting::Accepted },
            key,
            within: None,
            elsewhere: None,
        };
        Ok(Self::New(Box::new(Proposing { app, proposal, holding })))
    }
}

impl Proposing<'_> {
    /// Runs it to its end, for a caller that waits.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn run(self) -> Result<Call, Failure> {
        let Self { app, proposal, holding } = self;
        let (call, asked) = (proposal.call, Asking::of(&proposal));
        let recorded = holding.is_some().then(|| recorded(app, call));
        let run = app.gate.run_here(proposal);
        tokio::pin!(run);
        // The key is held until the journal has it; whoever repeats the request then waits for the call, not for the key.
        let outcome = match recorded {
            None => run.await,
            Some(recorded) => tokio::select! {
                outcome = &mut run => outcome,
                () = recorded => {
                    drop(holding);
                    run.await
                }
            },
        };
        app.figures.ended(story::outcome_word(&outcome));
        over(app, &asked, outcome).await
    }

    /// The same for a caller that has other things to do meanwhile, and gives no key.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn run_apart(self) -> Result<Call, Failure> {
        let Self { app, proposal, holding: _holding } = self;
        let asked = Asking::of(&proposal);
        let outcome = app.gate.run(proposal).await;
        app.figures.ended(story::outcome_word(&outcome));
        over(app, &asked, outcome).await
    }

    /// Has it accepted, so that it goes on without its caller.
    ///
    /// # Errors
    /// When it is refused at once.
    pub async fn submit(self, shared: &Arc<App>) -> Result<Call, Failure> {
        let Self { app, proposal, holding: _holding } = self;
        let (call, asked) = (proposal.call, Asking::of(&proposal));
        match app.gate.submit(proposal).await {
            Ok(Accepted { outcome, .. }) => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move {
                    if let Ok(outcome) = outcome.await {
                        shared.figures.ended(story::outcome_word(&outcome));
                    }
                });
                known(app, call).await
            }
            Err(refusal) => {
                app.figures.ended(refusal.code());
                over(app, &asked, Err(refusal)).await
            }
        }
    }

    /// Has it accepted, for a caller that waits all the same, as long as it can. Such a caller gives no key.
    ///
    /// # Errors
    /// When it is refused at once.
    pub async fn begin(self, shared: &Arc<App>) -> Result<Begun, Failure> {
        let Self { app, proposal, holding: _holding } = self;
        let call = proposal.call;
        let Accepted { outcome, .. } = app.gate.submit(proposal).await.map_err(|refusal| {
            app.figures.ended(refusal.code());
            Failure::refused(&refusal, call)
        })?;
        let (told, over_once) = watch::channel(None);
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            // Without a word from the gate nobody knows, and whoever waits is told so when this is dropped.
            if let Ok(outcome) = outcome.await {
                shared.figures.ended(story::outcome_word(&outcome));
                let outcome = outcome.map(|completed| Arc::new(Ran::of(completed)));
                told.send_replace(Some(outcome.map_err(|refusal| Failure::refused(&refusal, call))));
            }
        });
        Ok(Begun { call, outcome: over_once })
    }
}

/// A call that goes on without its caller, and what will have come of it.
pub struct Begun {
    /// The call.
    pub call: CallId,
    /// What came of it, once it is over.
    pub outcome: watch::Receiver<Option<Result<Arc<Ran>, Failure>>>,
}

/// Who asked for which call, by which key.
pub struct Asking {
    call: CallId,
    principal: Principal,
    key: Option<CallKey>,
}

impl Asking {
    /// Of a proposal.
    #[must_use]
    pub fn of(proposal: &ToolProposal) -> Self {
        Self { call: proposal.call, principal: proposal.principal.clone(), key: proposal.key.clone() }
    }
}

/// What a caller is told about a call that is over.
///
/// # Errors
/// When it was refused.
pub async fn over(app: &App, asked: &Asking, outcome: Result<Completed, Refusal>) -> Result<Call, Failure> {
    match (outcome, &asked.key) {
        (Ok(completed), _) => {
            let call = story::completed(app.store.as_ref(), asked.call, &completed).await?;
            call.ok_or_else(|| no_such_call(asked.call))
        }
        // Another call has its key, and stands for it if it is the same.
        (Err(Refusal::KeyTaken(first)), Some(key)) => {
            used_before(app, &asked.principal, key).await?;
            again(app, first, true).await
        }
        (Err(refusal), _) => Err(Failure::refused(&refusal, asked.call)),
    }
}

/// Waits until something is recorded about a call.
fn recorded(app: &App, call: CallId) -> impl Future<Output = ()> + use<> {
    let mut records = app.hub.follow(app.hub.size(), Wanted::Call(call));
    async move {
        match records.next().await {
            Ok(Some(_)) => {}
            // Nothing will be heard any more; the call itself says what comes of it.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

/// What is answered to whoever proposes a call again: what came of it, waiting for that if they want to.
///
/// # Errors
/// When it was refused.
pub async fn again(app: &App, id: CallId, wait: bool) -> Result<Call, Failure> {
    let mut changes = app.hub.follow(app.hub.size(), Wanted::Call(id));
    loop {
        let call = known(app, id).await?;
        if call.state == CallState::Ended || !wait {
            return story::again(call);
        }
        // Whatever is recorded about it next may be its end.
        if changes.next().await?.is_none() {
            return Err(Refusal::Stopping { goes_on: true }.into());
        }
    }
}

/// A call that must be there.
///
/// # Errors
/// When it is not, or the journal cannot be read.
pub async fn known(app: &App, call: CallId) -> Result<Call, Failure> {
    story::of(app.store.as_ref(), call).await?.ok_or_else(|| no_such_call(call))
}

fn no_such_call(call: CallId) -> Failure {
    Failure::not_found(format!("there is no call {call}"))
}

async fn run_of(app: &App, caller: &Caller, run: Option<RunId>) -> Result<(SessionId, RunId), Failure> {
    match run {
        None => Ok(app.own_runs.of(&caller.principal, &app.gate).await?),
        Some(run) => {
            let row = app.store.run(run).await?.ok_or(Refusal::UnknownRun(run))?;
            // Whose run it is, the gate asks.
            Ok((row.session, run))
        }
    }
}

fn workspace_of(app: &App, caller: &Caller, new: &NewCall) -> Result<Option<WorkspaceName>, Failure> {
    match (&new.workspace, &new.directory) {
        (Some(_), Some(_)) => Err(Failure::bad_request("a call names a workspace or a directory, not both")),
        // SECURITY: the name of a directory that a person works in can be computed, and is theirs alone. Whoever names a workspace names
        // one that is configured.
        (Some(name), None) if app.gate.config().workspace.iter().all(|one| one.name != *name) => {
            Err(Refusal::UnknownWorkspace(name.clone()).into())
        }
        (Some(name), None) => Ok(Some(name.clone())),
        (None, Some(_)) if caller.is_agent() => Err(Failure::new(
            "not_for_agents",
            "an agent does not name a directory",
            "name a configured workspace: `GET /api/v1/workspaces` lists them",
        )),
        // SECURITY: nor does a program that holds a token, or whoever is bound to some workspaces.
        (None, Some(_)) if caller.token().is_some() || caller.member_of.is_some() => Err(Failure::new(
            "wrong_credential",
            "a directory is named by a person on a device who is bound to no workspaces",
            "name a configured workspace: `GET /api/v1/workspaces` lists them",
        )),
        (None, Some(directory)) => {
            let adopted = app.gate.adopt_directory(directory);
            let name = adopted.map_err(|error| Failure::new("unknown_workspace", error.to_string(), error.advice()))?;
            Ok(Some(name))
        }
        // Where there is only one, it is meant.
        (None, None) => Ok(match app.gate.config().workspace.as_slice() {
            [only] => Some(only.name.clone()),
            _ => None,
        }),
    }
}

fn key(headers: &HeaderMap, body: Sha256Digest) -> Result<Option<CallKey>, Failure> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refused = |error: String| Failure::bad_request(format!("the Idempotency-Key makes no sense: {error}"));
    if values.next().is_some() {
        return Err(refused("there are two".to_owned()));
    }
    let text = value.to_str().map_err(|error| refused(error.to_string()))?;
    let key = IdempotencyKey::parse(text).map_err(|error| refused(error.to_string()))?;
    Ok(Some(CallKey { key, body }))
}

/// The call that a key was used for, if it was.
async fn used_before(app: &App, principal: &Principal, key: &CallKey) -> Result<Option<CallId>, Failure> {
    match app.store.call_by_key(principal.to_string(), key.key.clone(), app.clock.now()).await? {
        None => Ok(None),
        Some(row) if row.body == key.body => Ok(Some(row.call)),
        Some(row) => Err(Failure::new(
            "key_reused",
            "the Idempotency-Key was used for another request",
            "give every request a key of its own",
        )
        .about(row.call)),
    }
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
