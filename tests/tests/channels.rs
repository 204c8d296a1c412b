//! By which channel a request comes in, and what policy makes of that.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use palyra_api::{
    authorize::{Authorize, Decision},
    token::{NewToken, RotateToken},
};
use palyra_client::ClientError;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, over, refused, tool},
    facade::Facade,
    gateway::Gateway,
    model_server::Answer,
    services::{fired, scheduled},
    token::token,
};
use palyra_types::{Channel, ToolName, WorkspaceName};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn only(channels: &str) -> DaemonLab {
    DaemonPlan::default().config(&format!("[policy]\ntool_execute_channel_allowlist = [{channels}]\n")).start()
}

fn look() -> palyra_api::call::NewCall {
    tool("fs.list", json!({ "path": "." }))
}

fn looking(lab: &DaemonLab) -> Authorize {
    let path = lab.workspace().to_str().unwrap();
    Authorize {
        tool: ToolName::parse("fs.list").unwrap(),
        args: Map::from_iter([("path".to_owned(), json!(path))]),
        cwd: None,
        workspace: WorkspaceName::parse("lab").ok(),
        conversation: None,
        on_ask: None,
    }
}

/// Why a call was refused.
fn why(error: ClientError) -> String {
    match error {
        ClientError::Refused { error, .. } => {
            assert_eq!(error.code, "denied_by_policy");
            error.message
        }
        other => panic!("{other}"),
    }
}

async fn bound(lab: &DaemonLab, channel: Option<&str>) -> palyra_api::token::MintedToken {
    let channel = channel.map(|name| Channel::parse(name).unwrap());
    let new = NewToken { channel, ..token("agent:builder", &["calls.create", "calls.read"]) };
    lab.owner().mint_token(&new).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_by_the_right_surface_runs_and_one_by_another_is_told_which_it_was() {
    let lab = only("\"hook\"");
    assert_eq!(lab.agent().authorize(&looking(&lab)).await.unwrap().decision, Decision::Allow);
    let reason = why(lab.agent().propose(&look(), None).await.unwrap_err());
    assert!(reason.contains("the channel `api` is not on `tool_execute_channel_allowlist`"), "{reason}");
    let reason = why(lab.owner().propose(&look(), None).await.unwrap_err());
    assert!(reason.contains("the channel `cli` is not"), "{reason}");
    let reason = why(lab.owner_locally().await.propose(&look(), None).await.unwrap_err());
    assert!(reason.contains("the channel `console` is not"), "{reason}");
    let lab = only("\"api\", \"console\"");
    lab.agent().propose(&look(), None).await.unwrap();
    lab.owner_locally().await.propose(&look(), None).await.unwrap();
    let told = lab.agent().authorize(&looking(&lab)).await.unwrap();
    assert_eq!(told.decision, Decision::Deny);
    assert!(told.reason.contains("the channel `hook` is not"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_channel_goes_with_its_token_to_every_surface() {
    let lab = only("\"ci\"");
    let ci = bound(&lab, Some("ci")).await;
    assert_eq!(ci.token.channel.as_ref().map(Channel::as_str), Some("ci"));
    let holder = lab.holder_of(&ci.secret);
    holder.propose(&look(), None).await.unwrap();
    assert_eq!(holder.authorize(&looking(&lab)).await.unwrap().decision, Decision::Allow);
    let plain = lab.holder_of(&bound(&lab, None).await.secret);
    assert!(why(plain.propose(&look(), None).await.unwrap_err()).contains("the channel `api` is not"));
    let other = lab.holder_of(&bound(&lab, Some("desk")).await.secret);
    assert!(why(other.propose(&look(), None).await.unwrap_err()).contains("the channel `desk` is not"));
    // Whoever takes over from it comes in by it, too, and so after a restart.
    let rotated = lab.owner().rotate_token(&ci.token.id, &RotateToken::default()).await.unwrap();
    assert_eq!(rotated.token.channel, ci.token.channel);
    let mut lab = lab;
    lab.stop();
    lab.start();
    lab.holder_of(&rotated.secret).propose(&look(), None).await.unwrap();
    let listed = lab.palyra().args(["tokens", "list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let row = listed.lines().find(|line| line.contains(rotated.token.id.as_str())).unwrap();
    assert!(row.split_whitespace().any(|word| word == "ci"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_bound_to_a_surface_and_none_leaves_its_channel() {
    let lab = DaemonLab::new();
    for surface in ["api", "cli", "compat", "console", "cron", "hook", "mcp", "CLI"] {
        let new = NewToken { channel: Channel::parse(surface).ok(), ..token("agent:builder", &["calls.create"]) };
        let error = lab.owner().mint_token(&new).await.unwrap_err();
        assert_eq!(refused(error).1, "not_allowed_so", "{surface}");
    }
    let created = |channel: &str| {
        let mut palyra = lab.palyra();
        palyra.args(["--json", "tokens", "create", "--name", "ci", "--for", "agent:ci", "--scope", "calls.create"]);
        palyra.args(["--expires", "1h", "--channel", channel]).output().unwrap()
    };
    assert!(!created("mcp").status.success());
    let made: Value = serde_json::from_slice(&created("ci/main").stdout).unwrap();
    assert!(made.to_string().contains("\"channel\":\"ci/main\""), "{made}");
    let manager = NewToken {
        channel: Channel::parse("ci").ok(),
        role: Some(palyra_types::WorkspaceRole::Owner),
        ..token("user:owner", &["tokens.manage", "calls.create"])
    };
    let manager = lab.holder_of(&lab.owner().mint_token(&manager).await.unwrap().secret);
    let plain = || NewToken { lifetime_seconds: 60, ..token("agent:builder", &["calls.create"]) };
    let desk = NewToken { channel: Channel::parse("desk").ok(), ..plain() };
    assert_eq!(refused(manager.mint_token(&desk).await.unwrap_err()).1, "not_allowed_so");
    let inherited = manager.mint_token(&plain()).await.unwrap().token.channel;
    assert_eq!(inherited, Channel::parse("ci").ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_chooses_a_channel_by_what_they_send() {
    let lab = only("\"console\"");
    let bearer = lab.agent_token();
    let plain = json!({ "tool": "fs.list", "args": { "path": "." }, "workspace": "lab" });
    let mut named = plain.clone();
    named["channel"] = json!("console");
    for (headers, body, expected) in [
        ("x-palyra-channel: console\r\nx-channel: console\r\nchannel: console\r\n", &plain, "the channel `api` is not"),
        ("referer: http://127.0.0.1/console\r\n", &plain, "the channel `api` is not"),
        ("", &named, "unknown field `channel`"),
    ] {
        let answer = posted(&lab, "/api/v1/calls", &bearer, (headers, body)).await;
        assert!(answer.contains(expected), "{headers}: {answer}");
    }
    for path in ["/api/v1/calls?channel=console", "/API/v1/calls", "/api/v1/calls/"] {
        let answer = posted(&lab, path, &bearer, ("", &plain)).await;
        assert!(!answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let listed = only("\"hook\"");
    let bearer = listed.agent_token();
    for path in ["/api/v1/calls?/hooks/", "/hooks/../api/v1/calls", "//hooks/x"] {
        let answer = posted(&listed, path, &bearer, ("", &plain)).await;
        assert!(!answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

async fn posted(lab: &DaemonLab, path: &str, bearer: &str, (headers, body): (&str, &Value)) -> String {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {bearer}\r\ncontent-type: application/json\r\n\
         {headers}content-length: {}\r\nconnection: close\r\n\r\n",
        lab.local(),
        body.len()
    );
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// What an agent is offered over MCP and by the facade, where these channels are listed and this rule is in force.
async fn offered(channels: &str, rule: &str) -> [Vec<String>; 2] {
    let config = format!("[policy]\ntool_execute_channel_allowlist = [{channels}]\n");
    let plan = || DaemonPlan::default().policies("own.cedar", rule);
    let gateway = Gateway::start_with(plan().config(&config)).await;
    let listed = gateway.stateless("tools/list", &json!({}), &json!({})).await.json()["result"]["tools"].clone();
    let facade = Facade::start_with(plan(), &config).await;
    facade.model.will(Answer::text("nothing to do"));
    let wanted = json!({ "model": "palyra/coder", "messages": [{ "role": "user", "content": "look around" }] });
    assert_eq!(facade.post("/v1/chat/completions", &wanted).await.status, 200);
    let told = facade.model.requests().last().unwrap().json();
    let names = |tools: &Value, name: &str| -> Vec<String> {
        let tools = tools.as_array().into_iter().flatten();
        tools.map(|tool| tool.pointer(name).and_then(Value::as_str).unwrap().to_owned()).collect()
    };
    [names(&listed, "/name"), names(&told["tools"], "/function/name")]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_channel_can_never_use_is_not_offered_by_it() {
    let nothing: [Vec<String>; 2] = [vec![], vec![]];
    assert_eq!(offered("\"cli\"", "").await, nothing);
    let [mcp, compat] = offered("\"mcp\"", "").await;
    assert!(mcp.iter().any(|tool| tool == "process_run") && mcp.iter().any(|tool| tool == "fs_list"), "{mcp:?}");
    assert_eq!(compat, nothing[0]);
    // A rule of one's own needs no list, and what it looks at is known of no tool before it is called.
    let rule = "@id(\"own\") @why(\"it is contained\") permit (principal, action == Palyra::Action::\"tool.execute\", \
                resource == Palyra::Tool::\"process.run\") when { context has tier && context.tier == Palyra::Tier::\"c\" };";
    let one = || vec!["process_run".to_owned()];
    assert_eq!(offered("\"cli\"", rule).await, [one(), one()]);
}

/// A schedule is no way around the channel that its token is bound to.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_bound_token_schedules_fires_on_its_channel() {
    let rule = "@id(\"quiet\") @why(\"builds write nothing down\") forbid (principal, action == Palyra::Action::\"tool.execute\", \
                resource == Palyra::Tool::\"memory.put\") when { context has channel && context.channel == \"nightly\" };";
    let lab = DaemonPlan::default().policies("quiet.cedar", rule).own_clock().start();
    let minted = bound(&lab, Some("nightly")).await;
    let builder = lab.holder_of(&minted.secret);
    assert_eq!(fails_to_schedule(&builder, "memory.put", json!({ "text": "x" })).await, "bad_arguments");
    let made = scheduled(
        &lab,
        &builder,
        json!({ "name": "look", "tool": "fs.list", "args": { "path": "." }, "every_seconds": 60 }),
    )
    .await;
    assert_eq!(made["owner"], "agent:builder");
    lab.set_ahead(std::time::Duration::from_secs(60));
    palyra_tests::until(|| async { fired(&lab).await.len() == 1 }).await;
    let call = over(&lab.owner(), fired(&lab).await[0]).await;
    assert_eq!(call.proposed.unwrap().channel.as_deref(), Some("nightly"));
}

async fn fails_to_schedule(by: &palyra_client::Client, name: &str, args: Value) -> String {
    let args = json!({ "name": "never", "tool": name, "args": args, "every_seconds": 60 });
    let call = palyra_tests::daemon::accepted(tool("cron.create", args));
    refused(by.propose(&call, None).await.unwrap_err()).1
}
