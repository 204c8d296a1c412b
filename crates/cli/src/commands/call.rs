//! `palyra call`: proposes a call and prints what came of it, whole.

use clap::Args;
use palyra_api::call::{Call, NewCall};
use palyra_client::{Client, IdempotencyKey, Which};
use palyra_types::{ToolName, WorkspaceName, id::RunId, visible::visible};
use serde_json::{Map, Value};

use crate::{
    Outcome,
    at::At,
    connection::{Connection, advised_for_agents},
    exit::Exit,
    failure::Failure,
    follow::{Answering, Follow, Followed, YesFlag},
    outcome,
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct CallArgs {
    /// The tool, such as fs.list. `palyra tools` lists them.
    tool: ToolName,
    /// Its arguments, as a JSON object.
    #[arg(long, value_name = "JSON", conflicts_with = "fields")]
    args: Option<String>,
    /// One argument: `key=text`, or `key:=JSON` for anything that is no text. Can be given again.
    #[arg(long = "arg", value_name = "KEY=VALUE")]
    fields: Vec<String>,
    /// The configured workspace to work in.
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceName>,
    /// The run it belongs to.
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// Do not wait: the call goes on without its caller, through restarts.
    #[arg(long, conflicts_with = "yes")]
    accept: bool,
    #[command(flatten)]
    yes: YesFlag,
    /// Propose it with the agents' credential, over the listener that agents use.
    #[arg(long)]
    as_agent: bool,
    /// Makes a call that is proposed again with the same key the same call.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
}

pub(crate) fn run(args: &CallArgs, at: &At, terminal: &Terminal) -> Outcome {
    let call = NewCall {
        workspace: args.workspace.clone(),
        run: args.run,
        wait: !args.accept,
        ..NewCall::new(args.tool.clone(), args.arguments()?)
    };
    let connection = Connection::find(at, terminal)?;
    let key = args.idempotency_key.as_ref();
    let outcome = connection.run(async |daemon| {
        let proposer = if args.as_agent { connection.agent().await? } else { daemon.clone() };
        if args.accept {
            let accepted = proposer.propose(&call, key).await?;
            tell(&accepted, terminal);
            return Ok(outcome::exit(&accepted));
        }
        match follow(&proposer, daemon, (&call, key), args.yes.answering(), terminal).await? {
            Came::Over(call) => Ok(outcome::exit(&call)),
            Came::Withdrawn => Ok(Exit::Interrupted),
        }
    });
    let outcome = outcome.map_err(|failure| args.advised(failure));
    if args.as_agent { outcome.map_err(advised_for_agents) } else { outcome }
}

/// What a call came to that was followed to its end.
pub(crate) enum Came {
    /// It is over, and was told.
    Over(Box<Call>),
    /// The person at the terminal withdrew it.
    Withdrawn,
}

/// Proposes a call, follows it to its end with the questions about it, and prints what came of it, whole.
pub(crate) async fn follow(
    proposer: &Client,
    person: &Client,
    call: (&NewCall, Option<&IdempotencyKey>),
    answering: Answering,
    terminal: &Terminal,
) -> Result<Came, Failure> {
    let follow = Follow::propose(proposer, person, call, answering, terminal).await?;
    // What it printed is in what it came to.
    match follow.finish(&mut |_: Which, _, _: &[u8]| Ok(())).await? {
        Followed::Over(call) => {
            tell(&call, terminal);
            Ok(Came::Over(call))
        }
        Followed::Refused(error) => Err(Failure::refused(&error)),
        Followed::Interrupted | Followed::Unread => {
            terminal.talk("withdrawn");
            Ok(Came::Withdrawn)
        }
    }
}

fn tell(call: &Call, terminal: &Terminal) {
    if terminal.json {
        terminal.document("call", call);
    } else {
        outcome::call(call, terminal);
    }
}

impl CallArgs {
    /// A failure with what helps about an argument that looks like JSON and was given as text.
    fn advised(&self, failure: Failure) -> Failure {
        let looks_like_json = |field: &&String| {
            let (name, value) = field.split_once('=').unwrap_or_default();
            let read = serde_json::from_str::<Value>(value);
            !name.ends_with(':') && read.is_ok_and(|value| !value.is_string())
        };
        match self.fields.iter().find(looks_like_json).and_then(|field| field.split_once('=')) {
            Some((name, value)) => {
                let help = format!("that was given as text; as JSON: --arg '{}:={}'", visible(name), visible(value));
                failure.advised("bad_arguments", &help)
            }
            None => failure.advised("bad_arguments", "`palyra tools --json` shows the input schema of each tool"),
        }
    }

    fn arguments(&self) -> Result<Map<String, Value>, Failure> {
        let help = "for example --arg path=src, --arg depth:=2, or --args '{\"path\": \"src\"}'";
        let refused =
            |cause: String| Failure::new(Exit::Usage, "arguments_invalid", "the arguments cannot be read", cause, help);
        if let Some(text) = &self.args {
            return match serde_json::from_str(text) {
                Ok(Value::Object(fields)) => Ok(fields),
                Ok(_) => Err(refused("--args is no JSON object".to_owned())),
                Err(error) => Err(refused(format!("--args: {error}"))),
            };
        }
        let mut fields = Map::new();
        for field in &self.fields {
            let (name, value) = field.split_once('=').ok_or_else(|| refused(format!("`{field}` has no `=`")))?;
            let (name, value) = match name.strip_suffix(':') {
                Some(name) => {
                    let value = serde_json::from_str(value).map_err(|error| refused(format!("`{name}`: {error}")))?;
                    (name, value)
                }
                None => (name, Value::String(value.to_owned())),
            };
            if fields.insert(name.to_owned(), value).is_some() {
                return Err(refused(format!("`{name}` is given twice")));
            }
        }
        Ok(fields)
    }
}
