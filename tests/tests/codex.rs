//! Codex, the real program, end to end: its model is scripted, and whatever it does it does through Palyra.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::{path::PathBuf, process::Stdio, time::Duration};

use palyra_tests::{
    daemon::{approve, asked, program},
    facade::{Facade, target},
    model_server::{Answer, Call},
    token::token,
};
use serde_json::{Value, json};
use tokio::process::Command;

/// How Codex comes to the tools.
#[derive(Debug, Clone, Copy)]
enum Way {
    Http,
    Command,
}

/// Has Codex do something, with this base of its model's API, and returns its events.
async fn codex(facade: &Facade, base: &str, (way, token): (Way, &str)) -> Vec<Value> {
    let (target, home) = (target(), tempfile::tempdir().unwrap());
    let mut command = Command::new(target.join("sdk-packages/node_modules/.bin/node"));
    command
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sdk/codex.mjs"))
        .arg("say hello on this machine")
        .env_clear();
    command.env("PATH", "/usr/bin:/bin").env("PALYRA_SDK", target.join("sdk-packages"));
    command.env("PALYRA_URL", base).env("PALYRA_TOKEN", token).env("PALYRA_MODEL", "gpt");
    command.env("PALYRA_CODEX_HOME", home.path()).env("PALYRA_WORKSPACE", facade.lab.workspace());
    match way {
        Way::Http => command.env("PALYRA_MCP", format!("http://{}/mcp", facade.lab.local())),
        Way::Command => {
            let serve = json!([program("palyra"), "mcp", "serve"]).to_string();
            command
                .env("PALYRA_MCP", serve)
                .env("PALYRA_MCP_ENV", "PALYRA_HOME,PALYRA_TOKEN")
                .env("PALYRA_HOME", facade.lab.home())
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await.expect("in time").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{way:?}: {out}{err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Proposes, waits, is approved, runs, and receives what came out.
async fn codex_works_under_governance(way: Way, through_the_facade: bool) {
    let facade = Facade::start("").await;
    let owner = facade.lab.owner();
    owner.set_flag("mcp_gateway", &palyra_api::member::SetFlag { on: true }).await.unwrap();
    let scopes = ["mcp.call", "compat.responses.create", "compat.models.read"];
    let minted = owner.mint_token(&token("agent:codex", &scopes)).await.unwrap();
    let call = Call::new("process_run", &json!({ "command": ["echo", "hello"] })).within("mcp__palyra");
    facade.model.will(Answer::tools([call])).will(Answer::text("I said hello"));
    let base = match through_the_facade {
        true => format!("http://{}/v1", facade.lab.local()),
        false => facade.model.url(),
    };
    let (events, ()) = tokio::join!(codex(&facade, &base, (way, &minted.secret)), async {
        let question = asked(&owner, 1).await.remove(0);
        assert_eq!((question.tool.as_str(), question.principal.as_str()), ("process.run", "agent:codex"));
        let waiting = owner.call(question.call).await.unwrap();
        assert_eq!(waiting.proposed.unwrap().channel.as_deref(), Some("mcp"));
        approve(&owner, &question).await.unwrap();
    });
    let said = events.iter().find_map(|event| Some(event["item"].get("text")?.as_str()?.to_owned()));
    assert_eq!(said.as_deref(), Some("I said hello"), "{events:?}");
    // What the model was told next holds what came out of the program.
    let requests = facade.model.requests();
    let asked: Vec<_> = requests.iter().filter(|request| request.method == "POST").collect();
    assert_eq!(asked.len(), 2, "{way:?}");
    let told = asked[1].json()["input"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["type"] == "function_call_output")
        .cloned();
    let told = told.expect("an output").to_string();
    assert!(told.contains("hello") && told.contains("exit_code"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_has_its_calls_decided_asked_about_and_done_over_http() {
    codex_works_under_governance(Way::Http, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_has_its_calls_decided_asked_about_and_done_by_a_command_that_it_starts() {
    codex_works_under_governance(Way::Command, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_reaches_its_model_and_its_tools_through_palyra_alone() {
    codex_works_under_governance(Way::Http, true).await;
}
