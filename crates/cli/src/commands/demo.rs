//! `palyra demo`: a scripted agent against the running daemon. Every step is a real call, with a real receipt or refusal.
//!
//! The agent speaks as agents do: over the local listener, with the agents' credential. What it is asked about is answered at the terminal,
//! or by this command as the person that this device stands for, and it says so.

use std::path::Path;

use clap::Args;
use palyra_api::{
    ErrorDetail,
    call::{Call, NewCall},
    policy::CallExplanation,
    run::{Limits, NewRun},
};
use palyra_client::{Client, ClientError, Which};
use palyra_journal::{Trust, verify};
use palyra_types::{ToolName, WorkspaceName};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    Outcome,
    at::At,
    connection::{Connection, advised_for_agents},
    exit::Exit,
    failure::Failure,
    follow::{Answering, Follow, Followed},
    keyboard, outcome, report,
    terminal::{BAD, BOLD, DIM, GOOD, Terminal, WAIT, shown},
};

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// The workspace that the agent works in. Without it, the first that is configured.
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceName>,
    /// Answer for the person: approve what asks.
    #[arg(long)]
    yes: bool,
}

#[derive(Serialize)]
struct Report {
    allowed: Box<Call>,
    asked: Box<Call>,
    denied: Denied,
    budget: Box<ErrorDetail>,
    verified: u64,
}

#[derive(Serialize)]
struct Denied {
    error: Box<ErrorDetail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<CallExplanation>,
}

pub(crate) fn run(args: &DemoArgs, at: &At, terminal: &Terminal) -> Outcome {
    const WHAT: &str = "the demo";
    at.unnamed(WHAT)?;
    let connection = Connection::find(at, terminal)?;
    let journal = connection.here(WHAT)?.journal();
    let steps = connection.run(async |daemon| {
        let (person, agent) = (daemon.clone(), connection.agent().await?);
        let demo = Demo { person, agent, terminal, yes: args.yes };
        let workspace = demo.workspace(args.workspace.as_ref()).await?;
        let allowed = demo.allowed(&workspace).await?;
        let asked = demo.asked(&workspace).await?;
        let denied = demo.denied(&workspace, &journal).await?;
        let budget = demo.budget(&workspace).await?;
        Ok((demo, (allowed, asked, denied, budget)))
    });
    let (demo, (allowed, asked, denied, budget)) = steps.map_err(advised_for_agents)?;
    demo.title("5  The receipt of step 2, and the journal that holds it.");
    if let Some(receipt) = &asked.receipt {
        demo.show(|| outcome::receipt(receipt, terminal));
    }
    // From the files themselves: the daemon is not asked.
    let report = verify(&journal, &Trust::default(), &mut |_, _| {}).map_err(|bad| {
        let help = "`palyra journal verify` says more";
        Failure::new(Exit::Unverified, "unverified", "the journal is not what was written", bad.to_string(), help)
    })?;
    if terminal.json {
        terminal.document("demo", Report { allowed, asked, denied, budget, verified: report.records });
        return Ok(Exit::Ok);
    }
    let verified = terminal.paint(GOOD, "✔ verified");
    terminal
        .out(format!("  {verified} {} records, each linked to the one before, the last one signed", report.records));
    terminal.out("");
    terminal.out("Look around:");
    if let Some(receipt) = &asked.receipt {
        terminal.out(format!("  palyra journal prove {}   the proof that step 2 is in the journal", receipt.seq));
    }
    terminal.out(format!("  palyra journal show {}   everything about that call", asked.id));
    terminal.out("  palyra why   the last refusal or failure, and what would change it");
    terminal.out("  palyra approvals watch   answer what asks, as it asks");
    terminal.out("  palyra open   the same in a browser");
    Ok(Exit::Ok)
}

struct Demo<'a> {
    person: Client,
    agent: Client,
    terminal: &'a Terminal,
    yes: bool,
}

impl Demo<'_> {
    async fn workspace(&self, given: Option<&WorkspaceName>) -> Result<WorkspaceName, Failure> {
        if let Some(name) = given {
            return Ok(name.clone());
        }
        let first = self.agent.workspaces().await?.workspaces.into_iter().next();
        first.map(|workspace| workspace.name).ok_or_else(|| {
            let help =
                "add a [[workspace]] with a name and a path to config.toml (see `palyra paths`), then `palyra reload`";
            let cause = "no workspace is configured, and an agent works in none but those";
            Failure::new(Exit::Failure, "no_workspace", "the agent has nowhere to work", cause, help)
        })
    }

    async fn allowed(&self, workspace: &WorkspaceName) -> Result<Box<Call>, Failure> {
        self.title("1  An agent lists the workspace. Reading runs.");
        let call = NewCall { workspace: Some(workspace.clone()), ..new_call("fs.list", json!({ "path": "." }))? };
        self.proposes(&call);
        match self.agent.propose(&call, None).await {
            Ok(call) => {
                self.decided(&call);
                self.show(|| self.terminal.out(format!("  {}", self.terminal.paint(GOOD, "✔ it ran"))));
                Ok(Box::new(call))
            }
            Err(error) => Err(self.unexpected(error.into())),
        }
    }

    async fn asked(&self, workspace: &WorkspaceName) -> Result<Box<Call>, Failure> {
        self.title("2  It wants to run a program. A person is asked.");
        let args = json!({ "command": ["uname", "-a"] });
        let call = NewCall { workspace: Some(workspace.clone()), ..new_call("process.run", args)? };
        self.proposes(&call);
        let nobody = self.terminal.json || !keyboard::is_there();
        let answering = if self.yes || nobody { Answering::Yes } else { Answering::Person };
        if answering == Answering::Yes {
            self.terminal.talk("  nobody is asked here: this command approves as you");
        }
        let follow = Follow::propose(&self.agent, &self.person, (&call, None), answering, self.terminal).await?;
        match follow.finish(&mut |_: Which, _, _: &[u8]| Ok(())).await? {
            Followed::Over(call) => {
                self.decided(&call);
                self.show(|| outcome::output(call.output.as_ref(), self.terminal));
                Ok(call)
            }
            Followed::Refused(error) => Err(self.unexpected(Failure::refused(&error))),
            Followed::Interrupted | Followed::Unread => Err(Failure::new(
                Exit::Interrupted,
                "interrupted",
                "the demo was interrupted",
                "the call was withdrawn",
                "start it again: `palyra demo`",
            )),
        }
    }

    async fn denied(&self, workspace: &WorkspaceName, journal: &Path) -> Result<Denied, Failure> {
        self.title("3  It tries to read Palyra's own state. A hard forbid; no rule can lift it.");
        let args = json!({ "command": ["ls", journal.to_string_lossy()] });
        let call = NewCall { workspace: Some(workspace.clone()), ..new_call("process.run", args)? };
        self.proposes(&call);
        let error = self.refusal(&call).await?;
        self.refused(&error);
        let explanation = match error.call {
            Some(call) => Some(self.person.explanation(call).await?),
            None => None,
        };
        for part in explanation.iter().flat_map(|explanation| &explanation.parts) {
            self.show(|| report::explanation(part, self.terminal));
        }
        Ok(Denied { error, explanation })
    }

    async fn budget(&self, workspace: &WorkspaceName) -> Result<Box<ErrorDetail>, Failure> {
        self.title("4  A run with a budget of one call. The second is refused.");
        let limits = Limits { calls: Some(1), ..Limits::default() };
        let run = self.agent.open_run(&NewRun { session: None, limits: Some(limits) }).await?;
        let list = new_call("fs.list", json!({ "path": "." }))?;
        let call = NewCall { workspace: Some(workspace.clone()), run: Some(run.id), ..list };
        self.proposes(&call);
        self.agent.propose(&call, None).await.map_err(|error| self.unexpected(error.into()))?;
        self.show(|| self.terminal.out(format!("  {}", self.terminal.paint(GOOD, "✔ it ran"))));
        self.proposes(&call);
        let error = self.refusal(&call).await?;
        self.refused(&error);
        Ok(error)
    }

    /// Proposes a call that has to be refused.
    async fn refusal(&self, call: &NewCall) -> Result<Box<ErrorDetail>, Failure> {
        match self.agent.propose(call, None).await {
            Err(ClientError::Refused { error, .. }) => Ok(error),
            Err(error) => Err(error.into()),
            Ok(call) => Err(Failure::new(
                Exit::Failure,
                "not_refused",
                "a call ran that should have been refused",
                format!("call {}", call.id),
                "`palyra policy check` and `palyra explain` say which rule let it run",
            )),
        }
    }

    fn title(&self, text: &str) {
        self.show(|| {
            self.terminal.out("");
            self.terminal.out(self.terminal.paint(BOLD, text));
        });
    }

    fn proposes(&self, call: &NewCall) {
        let args = palyra_types::visible::visible(&Value::Object(call.args.clone()).to_string());
        self.show(|| self.terminal.out(self.terminal.paint(DIM, &format!("  agent proposes {} {args}", call.tool))));
    }

    fn decided(&self, call: &Call) {
        if let Some(decided) = &call.decided {
            let verdict = self.terminal.verdict_word(&decided.verdict);
            let reason = shown(&decided.reason);
            self.show(|| self.terminal.out(format!("  {verdict}  {reason}")));
        }
    }

    fn refused(&self, error: &ErrorDetail) {
        let text = shown(&error.message);
        self.show(|| self.terminal.out(format!("  {}  {text}", self.terminal.paint(BAD, "✖ refused"))));
    }

    /// A step that came out otherwise than the demo tells, which the policies of this installation may well want.
    fn unexpected(&self, failure: Failure) -> Failure {
        if failure.exit == Exit::Denied {
            let note = "! your policies decide this otherwise than the presets do";
            self.terminal.talk(self.terminal.paint_err(WAIT, note));
        }
        failure
    }

    fn show(&self, print: impl FnOnce()) {
        if !self.terminal.json {
            print();
        }
    }
}

fn new_call(tool: &str, args: Value) -> Result<NewCall, Failure> {
    let broken = |cause: String| Failure::new(Exit::Failure, "broken_build", "the demo cannot be given", cause, "");
    let tool = ToolName::parse(tool).map_err(|error| broken(error.to_string()))?;
    let args: Map<String, Value> = serde_json::from_value(args).map_err(|error| broken(error.to_string()))?;
    Ok(NewCall::new(tool, args))
}
