//! `palyra why` and `palyra explain CALL`: why a call was decided as it was, and what would change that.

use clap::Args;
use palyra_api::{
    call::{Call, CallQuery, CallSelection},
    policy::CallExplanation,
};
use palyra_client::Client;
use palyra_types::{id::CallId, visible::visible};

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    failure::Failure,
    outcome, report,
    terminal::{DIM, Terminal, WAIT, shown},
};

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// The call: its id, or the beginning or the end of the id of one that is under way or was refused lately.
    call: String,
}

/// Explains the call that was refused last.
pub(crate) fn why(at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        let refused = list(daemon, CallSelection::Refused, 1).await?;
        let Some(call) = refused.first() else {
            if terminal.json {
                terminal.document("why", serde_json::Value::Null);
            } else {
                terminal.out("no call was refused lately");
            }
            return Ok(Exit::Ok);
        };
        let by_policy = call.refusal.as_ref().is_some_and(|refusal| refusal.code == "denied_by_policy");
        if by_policy {
            let explanation = daemon.explanation(call.id).await?;
            show(&explanation, terminal);
        } else if terminal.json {
            terminal.document("call", call);
        } else {
            outcome::call(call, terminal);
        }
        Ok(Exit::Ok)
    })
}

/// Explains one call.
pub(crate) fn explain(args: &ExplainArgs, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        let id = find(daemon, &args.call).await?;
        let explanation = daemon.explanation(id).await?;
        show(&explanation, terminal);
        Ok(Exit::Ok)
    })
}

fn show(explanation: &CallExplanation, terminal: &Terminal) {
    if terminal.json {
        terminal.document("call.explanation", explanation);
        return;
    }
    terminal.out(format!("call {}", explanation.call));
    terminal.out_rows(terminal.paint(DIM, &shown(&explanation.what)));
    terminal.out_rows(format!("{}  then: {}", terminal.verdict_word(&explanation.decided), shown(&explanation.reason)));
    if !explanation.same_policies {
        let verdict = visible(&explanation.verdict);
        terminal.out(terminal.paint(WAIT, &format!("! the policies have changed since; now it would be: {verdict}")));
    }
    for part in &explanation.parts {
        report::explanation(part, terminal);
    }
}

/// The call that is meant: by its whole id, or by the beginning or the end of the id of one that is listed.
pub(crate) async fn find(client: &Client, text: &str) -> Result<CallId, Failure> {
    let text = text.trim().to_ascii_uppercase();
    if let Ok(id) = CallId::parse(&text) {
        return Ok(id);
    }
    let refused = |cause: String| {
        let help = "give the whole id; `palyra journal tail` shows them";
        Failure::new(Exit::Failure, "unknown_call", "no such call", cause, help)
    };
    if text.len() < 4 {
        return Err(refused(format!("`{text}` is too short; give at least 4 characters")));
    }
    let mut found = Vec::new();
    for which in [CallSelection::Refused, CallSelection::Waiting, CallSelection::Started] {
        for call in list(client, which, 1000).await? {
            let id = call.id.to_string();
            if (id.starts_with(&text) || id.ends_with(&text)) && !found.contains(&call.id) {
                found.push(call.id);
            }
        }
    }
    match found.as_slice() {
        [id] => Ok(*id),
        [] => Err(refused(format!("no call that is under way or was refused lately begins or ends with `{text}`"))),
        many => Err(refused(format!("{} calls have an id that begins or ends with `{text}`", many.len()))),
    }
}

async fn list(client: &Client, which: CallSelection, limit: u32) -> Result<Vec<Call>, Failure> {
    Ok(client.calls(&CallQuery { which: Some(which), limit: Some(limit) }).await?.calls)
}
