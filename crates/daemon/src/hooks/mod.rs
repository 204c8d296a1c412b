//! What other programs ask before they do something themselves, and what they are told.
//!
//! Guarantees: whoever asks is who their credential says and came in by the channel that this gives them; nothing that cannot be read is
//! allowed; an agent names no directory to work in, only configured workspaces, or a directory that lies in one.
//! Does not: decide. [`Gate::authorize`](palyra_gate::Gate::authorize) does. Nothing is opened or run for whoever asks.
//!
//! | you look for | read |
//! |---|---|
//! | what the tools of Claude Code mean | [`claude_code`] |
//! | where a pattern of files leads | `pattern` |
//! | what our own tools mean when somebody else does them | [`vocabulary`] |
//! | what was decided before, and why | [`recorded`] |

pub mod claude_code;
mod pattern;
pub mod recorded;
pub mod vocabulary;

use std::sync::Arc;

use palyra_api::authorize::{Asking, Authorization, Authorize, Decision};
use palyra_gate::{Authorized, Elsewhere, OnAsk, Refusal, ToolProposal};
use palyra_journal::state::Waiting;
use palyra_policy::Verdict;
use palyra_types::{
    AbsolutePath, JsonObject, Sha256Digest, ToolName, WorkspaceName,
    id::{CallId, RunId, SessionId},
    json::Limits,
};
use serde_json::{Map, Value};

use crate::{app::App, caller::Caller, failure::Failure};

/// What another program wants to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The tool, in the words of policy.
    pub tool: ToolName,
    /// Its arguments, as they are shown to a person.
    pub args: Map<String, Value>,
    /// What that would reach.
    pub elsewhere: Elsewhere,
    /// The configured workspace; without one, that in which the program works.
    pub workspace: Option<WorkspaceName>,
    /// What the program calls the conversation; each has a budget of its own.
    pub conversation: Option<String>,
}

/// Decides about a request that speaks our own words.
///
/// # Errors
/// When it makes no sense.
pub async fn authorize(app: &App, caller: &Caller, asked: Authorize) -> Result<Authorization, Failure> {
    let on_ask = on_ask(asked.on_ask);
    let wanted = vocabulary::wanted(asked)?;
    let proposal = proposal(app, caller, wanted).await?;
    Ok(told(app.gate.authorize(proposal, on_ask).await))
}

/// What happens where policy asks.
const fn on_ask(asking: Option<Asking>) -> OnAsk {
    match asking {
        Some(Asking::Wait) => OnAsk::Wait,
        Some(Asking::Defer) | None => OnAsk::Defer,
    }
}

/// The proposal that it is, by whoever asks.
async fn proposal(app: &App, caller: &Caller, wanted: Wanted) -> Result<ToolProposal, Failure> {
    if *app.stopping.borrow() {
        return Err(Refusal::Stopping { goes_on: false }.into());
    }
    let Wanted { tool, args, elsewhere, workspace, conversation } = wanted;
    let workspace = match workspace {
        Some(name) if app.gate.config().workspace.iter().all(|one| one.name != name) => {
            return Err(Refusal::UnknownWorkspace(name).into());
        }
        Some(name) => Some(name),
        None => {
            let directory = elsewhere.cwd.as_deref().and_then(|cwd| AbsolutePath::parse(cwd).ok());
            directory.and_then(|directory| app.gate.workspace_holding(&directory))
        }
    };
    let args = JsonObject::try_from_value(Value::Object(args), Limits::default())
        .map_err(|error| Failure::new("bad_arguments", error.to_string(), "send less, and nest it less deeply"))?;
    let (session, run) = run_of(app, caller, conversation.as_deref()).await?;
    let call = CallId::generate(app.clock.now(), app.entropy.as_ref())
        .map_err(|error| Failure::internal(error.to_string()))?;
    Ok(ToolProposal {
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
        tool,
        args,
        waiting: Waiting::Attached,
        key: None,
        within: None,
        elsewhere: Some(Arc::new(elsewhere)),
    })
}

async fn run_of(app: &App, caller: &Caller, conversation: Option<&str>) -> Result<(SessionId, RunId), Failure> {
    match conversation {
        None => app.own_runs.of(&caller.principal, &app.gate).await,
        Some(name) => {
            let name = Sha256Digest::of(name.as_bytes());
            app.own_runs.of_conversation(&caller.principal, name, &app.gate).await
        }
    }
}

/// A decision, in the words of the wire.
fn told(authorized: Authorized) -> Authorization {
    let Authorized { verdict, code, reason, policies, help, record, call, approval } = authorized;
    Authorization {
        decision: decision(verdict),
        code: code.to_owned(),
        reason,
        policy: policies.first().map(ToString::to_string),
        policies: policies.iter().map(ToString::to_string).collect(),
        help,
        record,
        call,
        approval,
    }
}

/// A verdict, in the words of the wire.
const fn decision(verdict: Verdict) -> Decision {
    match verdict {
        Verdict::Allow => Decision::Allow,
        Verdict::Ask => Decision::Ask,
        Verdict::Deny => Decision::Deny,
    }
}
