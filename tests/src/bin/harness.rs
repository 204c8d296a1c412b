//! A daemon without a network, to be killed: conducts many calls and answers many questions at once, and says on standard output what was
//! acknowledged to whom. `harness STATE WORKSPACE`
//!
//! Every call appends its own id to a file of the workspace, so that the file tells what really ran.

#![allow(clippy::unwrap_used, reason = "it is there to be killed")]

use std::{io::Write, path::PathBuf};

use palyra_gate::{Answer, Completed, DecisionScope, Gate, Refusal, ToolProposal};
use palyra_journal::state::Waiting;
use palyra_tests::{Setup, owner};
use palyra_types::{
    Channel, Clock, JsonObject, Principal, Timestamp, ToolName, WorkspaceName,
    clock::SystemClock,
    entropy::SystemEntropy,
    id::{CallId, RunId, SessionId},
    json::Limits,
};
use serde_json::json;

/// Calls whose file is `allowed.log` or `written.log` run at once; those whose file is `asked.log` ask.
const POLICIES: &str = r#"
@id("files") permit (principal, action in [Palyra::Action::"fs.read", Palyra::Action::"fs.write"], resource);
@id("allowed") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context has process && context.process has arg2 && context.process.arg2 == "allowed.log" };
@id("written") permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"fs.write");
@id("asked") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context.approved };
"#;

const CALLERS: u64 = 12;

fn main() -> std::process::ExitCode {
    // The laboratory's compiler of skills.
    if std::env::args().skip(1).eq([palyra_gate::skills::COMPILE_ARGUMENT]) {
        return palyra_gate::skills::child_main(std::io::stdin(), std::io::stdout());
    }
    serve();
    std::process::ExitCode::SUCCESS
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn serve() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (state, workspace) = (arguments.next().unwrap(), arguments.next().unwrap());
    let setup = Setup {
        journal: &state.join("journal"),
        state: &state,
        workspace: &workspace,
        config: "[budget]\ncalls = 1000000\n[policy]\nallow_sensitive_tools = true",
        policies: Some(POLICIES),
        pin: None,
        clock: None,
        faults: None,
    };
    let gate = setup.open().await.gate;
    let recovered = gate.recover().await.unwrap();
    say(&format!("recovered {} {} {}", recovered.interrupted, recovered.withdrawn, recovered.resumed));
    let agent = Principal::parse("agent:claude").unwrap();
    let session = SessionId::generate(now(), &SystemEntropy).unwrap();
    let run = gate.open_run(session, &agent, None).await.unwrap();
    for caller in 0..CALLERS {
        tokio::spawn(call_for_ever(gate.clone(), (session, run), agent.clone(), caller));
    }
    answer_for_ever(gate).await;
}

async fn call_for_ever(gate: Gate, (session, run): (SessionId, RunId), agent: Principal, caller: u64) {
    for number in caller.. {
        let call = CallId::generate(now(), &SystemEntropy).unwrap();
        let line = format!("{call}\n");
        let run_by = |file: &str| ("process.run", json!({ "command": ["tee", "-a", file], "stdin": line }));
        let (tool, args) = match number % 4 {
            0 => run_by("allowed.log"),
            1 => run_by("asked.log"),
            // The daemon does these itself, so that many come to their end between two kills.
            _ => ("fs.write", json!({ "path": "written.log", "content": line, "mode": "append" })),
        };
        let proposal = ToolProposal {
            call,
            run,
            session,
            principal: agent.clone(),
            on_behalf_of: None,
            channel: Some(Channel::parse("api").unwrap()),
            device: None,
            token: None,
            member_of: None,
            workspace: Some(WorkspaceName::parse("lab").unwrap()),
            tool: ToolName::parse(tool).unwrap(),
            args: JsonObject::try_from_value(args, Limits::default()).unwrap(),
            waiting: Waiting::Attached,
            key: None,
            within: None,
            elsewhere: None,
        };
        // Some wait for their call, some leave it to itself.
        let outcome = if caller.is_multiple_of(3) {
            match gate.submit(proposal).await {
                Ok(accepted) => {
                    say(&format!("accepted {call}"));
                    match accepted.outcome.await {
                        Ok(outcome) => outcome,
                        Err(_) => return,
                    }
                }
                Err(refusal) => Err(refusal),
            }
        } else {
            gate.run(proposal).await
        };
        acknowledge(call, &outcome);
    }
}

fn acknowledge(call: CallId, outcome: &Result<Completed, Refusal>) {
    match outcome {
        Ok(done) => say(&format!("ran {call} {} {}", done.receipt.seq, done.receipt.hash)),
        Err(refusal) => say(&format!("refused {call} {}", refusal.code())),
    }
}

async fn answer_for_ever(gate: Gate) {
    loop {
        for prompt in gate.pending_approvals(None, 64).await.unwrap() {
            let gate = gate.clone();
            tokio::spawn(async move {
                let answer = Answer::Approve(DecisionScope::Once);
                if gate.answer(prompt.id, &answer, &owner()).await.is_ok() {
                    say(&format!("approved {}", prompt.id));
                }
            });
        }
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
}

/// One line, whole or not at all: a pipe takes that much at once.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

fn now() -> Timestamp {
    SystemClock::new().now()
}
