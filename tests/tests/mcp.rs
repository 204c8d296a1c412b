//! The MCP server that the daemon is, tried with the real clients and on the wire.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends"
)]

use std::time::Duration;

use palyra_api::{approval::ApprovalQuery, call::NewCall, member::SetFlag, run::NewRun, token::RevokeToken};
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, approve, asked, no, refused, tool},
    facade::Answered,
    gateway::{Driver, Gateway, header},
    token::token,
    until,
};
use serde_json::{Value, json};

const CLIENTS: [Driver; 4] = [
    Driver::of("mcp_python.py", "legacy"),
    Driver::of("mcp_python.py", "2026-07-28"),
    Driver::of("client", "2026-07-28"),
    Driver::of("sdk", "legacy"),
];

/// A call that a person is asked about.
fn echo(word: &str) -> Value {
    json!({ "do": "call", "tool": "process_run", "args": { "command": ["echo", word] }, "progress": true })
}

fn text(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// The result that a request is answered with, at once or at the end of a stream.
fn result(answered: &Answered) -> Value {
    let is_whole = answered.body.starts_with('{');
    let message = if is_whole { answered.json() } else { answered.events().pop().unwrap() };
    message["result"].clone()
}

async fn questions(gateway: &Gateway) -> usize {
    gateway.lab.owner().approvals(&ApprovalQuery::default()).await.unwrap().approvals.len()
}

// ---- The real clients -----------------------------------------------------------------------------------------------

/// What every client sees, whichever protocol it speaks and however it comes.
async fn a_client_uses_the_tools(driver: Driver) {
    let gateway = Gateway::start("").await;
    std::fs::write(gateway.lab.workspace().join("note.txt"), "remember the milk").unwrap();
    let owner = gateway.lab.owner();
    let steps = json!([
        { "do": "version" },
        { "do": "list" },
        { "do": "call", "tool": "fs_read", "args": { "path": "note.txt" } },
        echo("hello"),
        echo("no"),
        { "do": "call", "tool": "fs_reed" },
        { "do": "call", "tool": "fs_read", "args": { "way": 1 } },
        { "do": "call", "tool": "memory_put", "args": { "text": "x", "id": "01ARZ3NDEKTSV4RRFFQ69G5FAV" } },
    ]);
    let (seen, ()) = tokio::join!(gateway.drive(driver, &steps), async {
        let question = asked(&owner, 1).await.remove(0);
        assert_eq!((question.tool.as_str(), question.principal.as_str()), ("process.run", "agent:coder"));
        // A client whose question is answered at once is told nothing meanwhile.
        tokio::time::sleep(Duration::from_secs(1)).await;
        approve(&owner, &question).await.unwrap();
        until(|| async { questions(&gateway).await == 0 }).await;
        let question = asked(&owner, 1).await.remove(0);
        owner.deny(question.id, &no(&question, Some("not now"))).await.unwrap();
    });
    let expected = if driver.mode == "legacy" { "2025-11-25" } else { "2026-07-28" };
    // One of them does not tell where it starts a command.
    assert!(seen[0] == expected || (driver.starts && seen[0].is_null()), "{driver:?} {}", seen[0]);
    let tools = seen[1].as_object().unwrap();
    assert_eq!(
        (&tools["fs_read"]["readOnlyHint"], &tools["process_run"]["readOnlyHint"]),
        (&json!(true), &json!(false))
    );
    assert!(!tools.contains_key("net_connect"), "{tools:?}");
    let read = &seen[2]["result"];
    assert_eq!(read["isError"], false, "{read}");
    assert!(read["structuredContent"]["output"].to_string().contains("remember the milk"), "{read}");
    assert!(read["_meta"]["palyra/receipt"]["seq"].is_u64(), "{read}");
    let ran = &seen[3]["result"];
    assert_eq!((&text(ran)["stdout"], &text(ran)["exit_code"]), (&json!("hello\n"), &json!(0)), "{ran}");
    let told = seen[3]["progress"].as_array().unwrap();
    assert!(told.iter().any(|told| told.as_str().unwrap().starts_with("a person is asked: http://")), "{told:?}");
    let refused = &seen[4]["result"];
    let error = &text(refused)["error"];
    assert_eq!(
        (&refused["isError"], &error["code"], &error["retry"]),
        (&json!(true), &json!("denied_by_person"), &json!(false))
    );
    assert!(error["message"].as_str().unwrap().contains("not now"), "{error}");
    assert_eq!((&seen[5]["code"], &seen[5]["data"]["code"]), (&json!(-32602), &json!("unknown_tool")), "{}", seen[5]);
    assert!(seen[5]["message"].as_str().unwrap().contains("`fs_read`"), "{}", seen[5]);
    let wrong = &seen[6]["result"];
    assert_eq!((&wrong["isError"], &text(wrong)["error"]["code"]), (&json!(true), &json!("bad_arguments")));
    let failed = &seen[7]["result"];
    let error = &text(failed)["error"];
    assert_eq!(
        (&failed["isError"], &error["code"], &error["retry"]),
        (&json!(true), &json!("failed"), &json!(false)),
        "{failed}"
    );
    assert!(error["message"].as_str().unwrap().starts_with("there is no entry"), "{failed}");
    assert_eq!(&failed["_meta"]["palyra/error"], error);
    assert!(failed["_meta"]["palyra/receipt"]["seq"].is_u64(), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_for_python_uses_the_tools_in_both_protocols() {
    a_client_uses_the_tools(CLIENTS[0]).await;
    a_client_uses_the_tools(CLIENTS[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_for_javascript_use_the_tools_in_both_protocols() {
    a_client_uses_the_tools(CLIENTS[2]).await;
    a_client_uses_the_tools(CLIENTS[3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_start_a_command_use_the_same_tools_in_the_same_way() {
    for driver in CLIENTS {
        a_client_uses_the_tools(driver.starting()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_gives_up_takes_its_question_back() {
    let gateway = Gateway::start("").await;
    for driver in CLIENTS.into_iter().chain(CLIENTS.map(Driver::starting)) {
        let step =
            json!([{ "do": "cancel", "tool": "process_run", "args": { "command": ["touch", "x"] }, "seconds": 2 }]);
        let (seen, ()) = tokio::join!(gateway.drive(driver, &step), async {
            asked(&gateway.lab.owner(), 1).await;
            until(|| async { questions(&gateway).await == 0 }).await;
        });
        assert_ne!(seen[0], "it was over", "{driver:?}");
    }
    assert!(!gateway.lab.workspace().join("x").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_hear_that_the_tools_are_not_the_same_any_more() {
    for driver in [CLIENTS[0], CLIENTS[1], CLIENTS[3], CLIENTS[0].starting(), CLIENTS[1].starting()] {
        let gateway = Gateway::start("").await;
        let step = json!([{ "do": "hear_of_change", "seconds": 20 }]);
        let policy = "@id(\"no-reading\")\nforbid (principal, action, resource == Palyra::Tool::\"fs.read\");\n";
        let hearing = gateway.drive(driver, &step);
        tokio::pin!(hearing);
        // When exactly it listens nobody knows, so the policy comes and goes until it has heard.
        let seen = loop {
            tokio::select! {
                seen = &mut hearing => break seen,
                () = tokio::time::sleep(Duration::from_millis(500)) => {
                    let file = gateway.lab.home().join("policies/no-reading.cedar");
                    if file.exists() { std::fs::remove_file(&file).unwrap() } else { std::fs::write(&file, policy).unwrap() }
                    gateway.lab.owner().reload().await.unwrap();
                }
            }
        };
        assert_eq!(seen[0], true, "{driver:?}");
    }
}

// ---- Longer than a client waits -------------------------------------------------------------------------------------

const HASTY: &str = "[mcp_gateway]\nwait_seconds = 1";

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_newer_protocol_come_back_by_themselves_and_nobody_is_asked_twice() {
    for driver in [CLIENTS[1], CLIENTS[2], CLIENTS[1].eliciting(), CLIENTS[2].eliciting(), CLIENTS[1].starting()] {
        let gateway = Gateway::start(HASTY).await;
        let owner = gateway.lab.owner();
        let steps = json!([echo("late")]);
        let (seen, ()) = tokio::join!(gateway.drive(driver, &steps), async {
            asked(&owner, 1).await;
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            let questions = owner.approvals(&ApprovalQuery::default()).await.unwrap().approvals;
            assert_eq!(questions.len(), 1, "{driver:?}");
            approve(&owner, &questions[0]).await.unwrap();
        });
        assert_eq!(text(&seen[0]["result"])["stdout"], "late\n", "{driver:?} {seen}");
        let urls = seen[0]["urls"].as_array().unwrap();
        assert_eq!(!urls.is_empty(), driver.elicits, "{driver:?} {urls:?}");
        assert!(urls.iter().all(|url| url.as_str().unwrap().starts_with(&format!("http://{}/#", gateway.lab.local()))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_older_protocol_are_told_to_ask_again_and_go_on_with_the_same_call() {
    let gateway = Gateway::start(HASTY).await;
    let owner = gateway.lab.owner();
    let steps = json!([echo("late"), echo("late"), echo("late")]);
    let (seen, ()) = tokio::join!(gateway.drive(CLIENTS[0], &steps), async {
        asked(&owner, 1).await;
        tokio::time::sleep(Duration::from_millis(2_600)).await;
        let questions = owner.approvals(&ApprovalQuery::default()).await.unwrap().approvals;
        assert_eq!(questions.len(), 1);
        approve(&owner, &questions[0]).await.unwrap();
    });
    for waiting in [&seen[0]["result"], &seen[1]["result"]] {
        assert_eq!(
            (&waiting["isError"], &waiting["_meta"]["palyra/waiting"]),
            (&json!(true), &json!(true)),
            "{waiting}"
        );
        assert!(waiting["content"][0]["text"].as_str().unwrap().contains("Call again with the same arguments"));
    }
    assert_eq!(text(&seen[2]["result"])["stdout"], "late\n", "{seen}");
    let call = |index: usize| seen[index]["result"]["_meta"]["palyra/call"].clone();
    assert_eq!((call(0), call(1)), (call(2), call(2)));
    // One that can lead its user is led to the question.
    let steps = json!([echo("later")]);
    let seen = gateway.drive(CLIENTS[3].eliciting(), &steps).await;
    let led = &seen[0]["data"]["elicitations"][0];
    assert_eq!((&seen[0]["code"], &led["mode"]), (&json!(-32042), &json!("url")), "{seen}");
    assert!(led["url"].as_str().unwrap().ends_with(led["elicitationId"].as_str().unwrap()), "{led}");
}

/// The same words in another workspace are another call.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_in_another_workspace_is_asked_about_on_its_own() {
    let other = tempfile::tempdir().unwrap();
    let config = format!("{HASTY}\n[[workspace]]\nname = \"other\"\npath = \"{}\"\n", other.path().display());
    let gateway = Gateway::start(&config).await;
    let params = json!({ "name": "process_run", "arguments": { "command": ["touch", "marker"] } });
    for (at, asked_then) in [("lab", 1), ("other", 2), ("lab", 2)] {
        let path = format!("/mcp?workspace={at}");
        gateway.stateless_at(&path, "tools/call", &params, &json!({})).await;
        assert_eq!(questions(&gateway).await, asked_then, "{at}");
    }
}

/// Whatever a client says about what its user did, only a person that Palyra knows answers.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_client_sends_approves_anything() {
    let gateway = Gateway::start(HASTY).await;
    let call = |extra: Value| {
        let mut params = json!({ "name": "process_run", "arguments": { "command": ["touch", "marker"] } });
        params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        params
    };
    let able = json!({ "elicitation": { "url": {} } });
    let first =
        gateway.stateless("tools/call", &call(json!({})), &able).await.events().pop().unwrap()["result"].clone();
    assert_eq!(first["resultType"], "input_required", "{first}");
    assert_eq!(first["inputRequests"]["approval"]["params"]["mode"], "url");
    let accept = json!({ "approval": { "action": "accept", "content": { "approved": true } } });
    let state = first["requestState"].clone();
    let again = call(json!({ "requestState": state, "inputResponses": accept }));
    let next = gateway.stateless("tools/call", &again, &able).await.events().pop().unwrap()["result"].clone();
    assert_eq!(next["resultType"], "input_required", "{next}");
    assert_ne!(next["requestState"], state);
    // A state is used up, and is good for these arguments, this credential and this alone.
    let stale = gateway.stateless("tools/call", &again, &able).await.json();
    assert_eq!((&stale["error"]["code"], &stale["error"]["data"]["code"]), (&json!(-32602), &json!("unknown_state")));
    let mut other = call(json!({ "requestState": next["requestState"] }));
    other["arguments"] = json!({ "command": ["touch", "other"] });
    assert_eq!(gateway.stateless("tools/call", &other, &able).await.json()["error"]["data"]["code"], "unknown_state");
    let stranger = Gateway {
        token: gateway.lab.owner().mint_token(&token("agent:other", &["mcp.call"])).await.unwrap().secret,
        lab: gateway.lab,
    };
    let stolen = call(json!({ "requestState": next["requestState"] }));
    assert_eq!(stranger.stateless("tools/call", &stolen, &able).await.json()["error"]["data"]["code"], "unknown_state");
    assert_eq!(questions(&stranger).await, 1);
    assert!(!stranger.lab.workspace().join("marker").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_declines_takes_the_question_back() {
    let gateway = Gateway::start(HASTY).await;
    let mut params = json!({ "name": "process_run", "arguments": { "command": ["true"] } });
    let able = json!({ "elicitation": { "url": {} } });
    let first = gateway.stateless("tools/call", &params, &able).await.events().pop().unwrap()["result"].clone();
    params["requestState"] = first["requestState"].clone();
    params["inputResponses"] = json!({ "approval": { "action": "decline" } });
    let last = gateway.stateless("tools/call", &params, &able).await.json();
    assert_eq!(text(&last["result"])["error"]["code"], "cancelled", "{last}");
    assert_eq!(questions(&gateway).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_knows_tasks_comes_back_for_what_its_call_came_to() {
    let gateway = Gateway::start(HASTY).await;
    let owner = gateway.lab.owner();
    let able = json!({ "elicitation": { "url": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let call = |word: &str| json!({ "name": "process_run", "arguments": { "command": ["echo", word] } });
    let begin = async |word: &str| {
        let answered = gateway.stateless("tools/call", &call(word), &able).await;
        answered.events().pop().unwrap()["result"].clone()
    };
    let task = begin("hello").await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let about = json!({ "taskId": task["taskId"] });
    let look = async |about: &Value| gateway.stateless("tasks/get", about, &able).await.json()["result"].clone();
    let waiting = look(&about).await;
    assert_eq!(waiting["status"], "input_required", "{waiting}");
    assert_eq!(waiting["inputRequests"]["approval"]["params"]["mode"], "url");
    // Whatever its client says about its user, the task waits.
    let accept = json!({ "taskId": task["taskId"], "inputResponses": { "approval": { "action": "accept" } } });
    assert_eq!(gateway.stateless("tasks/update", &accept, &able).await.status, 200);
    assert_eq!(look(&about).await["status"], "input_required");
    let question = asked(&owner, 1).await.remove(0);
    approve(&owner, &question).await.unwrap();
    until(|| async { look(&about).await["status"] == "completed" }).await;
    assert_eq!(text(&look(&about).await["result"])["stdout"], "hello\n");
    // Another is taken back.
    let task = begin("never").await;
    let about = json!({ "taskId": task["taskId"] });
    assert_eq!(gateway.stateless("tasks/cancel", &about, &able).await.status, 200);
    until(|| async { look(&about).await["status"] == "cancelled" }).await;
    // And is nobody else's, and nothing for who does not know tasks.
    let ignorant = gateway.stateless("tasks/get", &about, &json!({})).await;
    assert_eq!((ignorant.status, &ignorant.json()["error"]["code"]), (400, &json!(-32021)));
    let other = owner.mint_token(&token("agent:coder", &["mcp.call"])).await.unwrap().secret;
    let stranger = Gateway { token: other, lab: gateway.lab };
    let none = stranger.stateless("tasks/get", &about, &able).await.json();
    assert_eq!(none["error"]["code"], -32602, "{none}");
}

// ---- What may be used -----------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_used_up_its_budget_is_told_when_it_goes_on_and_an_opened_run_stays_used_up() {
    let plan = DaemonPlan::default().config("[budget]\ncalls = 2\nrenew_seconds = 600\n").own_clock();
    let gateway = Gateway::start_with(plan).await;
    std::fs::write(gateway.lab.workspace().join("note.txt"), "x").unwrap();
    let (agent, session) = (gateway.lab.agent(), gateway.session(&json!({})).await);
    let opened = agent.open_run(&NewRun::default()).await.unwrap();
    let params = json!({ "name": "fs_read", "arguments": { "path": "note.txt" } });
    let stateless = async || result(&gateway.stateless("tools/call", &params, &json!({})).await);
    let within = async || result(&gateway.within(&session, "tools/call", &params).await);
    let by_run = async || {
        let read = NewCall { run: Some(opened.id), ..tool("fs.read", json!({ "path": "note.txt" })) };
        agent.propose(&read, None).await.map(|_| ()).map_err(refused)
    };
    let of = async |result: &Value| {
        let call = serde_json::from_value(result["_meta"]["palyra/call"].clone()).unwrap();
        gateway.lab.owner().call(call).await.unwrap()
    };
    let first = (stateless().await, within().await);
    for result in [&first.0, &first.1, &stateless().await, &within().await] {
        assert_eq!(result["isError"], false, "{result}");
    }
    assert_eq!((by_run().await, by_run().await), (Ok(()), Ok(())));
    for spent in [stateless().await, within().await] {
        let error = &text(&spent)["error"];
        assert_eq!((&error["code"], &error["retry"]), (&json!("budget_exceeded"), &json!(true)), "{spent}");
        let help = error["help"].as_str().unwrap();
        let seconds = help.strip_prefix("wait ").and_then(|help| help.split(' ').next()).unwrap();
        assert!((1..=600).contains(&seconds.parse::<u32>().unwrap()), "{help}");
    }
    assert_eq!(by_run().await, Err((403, "budget_exceeded".to_owned())));
    gateway.lab.set_ahead(Duration::from_secs(601));
    for _ in 0..2 {
        for (before, now) in [(&first.0, stateless().await), (&first.1, within().await)] {
            let (before, now) = (of(before).await, of(&now).await);
            assert!(before.session == now.session && before.run != now.run, "{before:?} {now:?}");
        }
    }
    for spent in [stateless().await, within().await] {
        assert_eq!(text(&spent)["error"]["code"], "budget_exceeded", "the next run has the same budget");
    }
    assert_eq!(by_run().await, Err((403, "budget_exceeded".to_owned())), "it was opened, and is used up");
}

// ---- Who is let in, and to what -------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_its_credentials_and_nobody_elses() {
    let gateway = Gateway::start("").await;
    let session = gateway.session(&json!({})).await;
    assert_eq!(gateway.within(&session, "ping", &json!({})).await.json()["result"], json!({}));
    let owner = gateway.lab.owner();
    let other = owner.mint_token(&token("agent:coder", &["mcp.call"])).await.unwrap();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let named = [("mcp-session-id", session.as_str())];
    for (method, body) in [("POST", ping.as_str()), ("GET", ""), ("DELETE", "")] {
        let answered = gateway.ask((method, &other.secret), &named, body).await;
        assert_eq!((answered.status, &answered.json()["error"]["code"]), (404, &json!(-32001)), "{method}");
    }
    // Its own ends it.
    assert_eq!(gateway.ask(("DELETE", &gateway.token), &named, "").await.status, 204);
    assert_eq!(gateway.within(&session, "ping", &json!({})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_revoked_ends_what_is_open_and_what_waits() {
    let gateway = Gateway::start("").await;
    let owner = gateway.lab.owner();
    for driver in [CLIENTS[0], CLIENTS[2], CLIENTS[0].starting(), CLIENTS[1].starting()] {
        let minted = owner.mint_token(&token("agent:brief", &["mcp.call"])).await.unwrap();
        let steps = json!([echo("x"), { "do": "call", "tool": "daemon_status" }]);
        let (seen, ()) = tokio::join!(gateway.drive_as(&minted.secret, driver, &steps), async {
            asked(&owner, 1).await;
            owner.revoke_token(&minted.token.id, &RevokeToken::default()).await.unwrap();
            until(|| async { questions(&gateway).await == 0 }).await;
        });
        let told = seen[1].to_string();
        assert!(seen[0].get("result").is_none_or(|result| result["isError"] == true), "{driver:?} {seen}");
        assert!(seen[1].get("result").is_none(), "{driver:?} {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_let_in_learns_why_in_words_that_clients_know() {
    let gateway = Gateway::start("").await;
    let owner = gateway.lab.owner();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let unknown = gateway.ask(("POST", "plr_a_nonsense"), &[], &list).await;
    assert_eq!((unknown.status, header(&unknown, "www-authenticate").as_deref()), (401, Some("bearer")));
    assert_eq!(
        (&unknown.json()["jsonrpc"], &unknown.json()["error"]["data"]["code"]),
        (&json!("2.0"), &json!("unauthenticated"))
    );
    let narrow = owner.mint_token(&token("agent:narrow", &["calls.read"])).await.unwrap();
    let refused = gateway.ask(("POST", &narrow.secret), &[], &list).await;
    let wanted = "bearer error=\"insufficient_scope\", scope=\"mcp.call\"";
    assert_eq!((refused.status, header(&refused, "www-authenticate").as_deref()), (403, Some(wanted)));
    owner.revoke_token(&narrow.token.id, &RevokeToken::default()).await.unwrap();
    let gone = gateway.ask(("POST", &narrow.secret), &[], &list).await;
    assert_eq!(
        (gone.status, header(&gone, "www-authenticate").as_deref()),
        (401, Some("bearer error=\"invalid_token\""))
    );
    for (host, headers) in [("evil.example.com", vec![]), ("", vec![("origin", "http://evil.example.com")])] {
        let host = if host.is_empty() { gateway.lab.local().to_string() } else { host.to_owned() };
        let answered = gateway.ask_at((&host, "/mcp"), ("POST", &gateway.token), &headers, &list).await;
        assert!(answered.status == 400 || answered.status == 403, "{answered:?}");
        assert_eq!(answered.json()["jsonrpc"], "2.0");
    }
    // What a token may do over MCP it may not do while the gateway is off.
    owner.set_flag("mcp_gateway", &SetFlag { on: false }).await.unwrap();
    let off = gateway.ask(("POST", &gateway.token), &[], &list).await;
    let data = &off.json()["error"]["data"];
    assert_eq!((off.status, &data["code"]), (403, &json!("feature_off")));
    assert!(data["help"].as_str().unwrap().contains("`palyra access flags set mcp_gateway on`"), "{data}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_of_either_protocol_has_the_status_that_clients_expect() {
    let gateway = Gateway::start("").await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let post = async |headers: &[(&str, &str)], body: &str| gateway.ask(("POST", &gateway.token), headers, body).await;
    let code = |answered: &Answered| answered.json()["error"]["code"].as_i64().unwrap();
    for (headers, body, status, error) in [
        (vec![("accept", "application/json")], list.as_str(), 406, -32600),
        (vec![("content-type", "text/plain")], list.as_str(), 415, -32600),
        (vec![], "{", 400, -32700),
        (vec![], "[]", 400, -32600),
        (vec![], r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, 400, -32700),
        (vec![], r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, 400, -32600),
        (vec![], list.as_str(), 400, -32600),
        (vec![("mcp-session-id", "nonsense")], list.as_str(), 404, -32001),
        (vec![("mcp-protocol-version", "1999-01-01")], list.as_str(), 400, -32022),
        (vec![("mcp-protocol-version", "2026-07-28")], list.as_str(), 400, -32602),
    ] {
        let answered = post(&headers, body).await;
        assert_eq!((answered.status, code(&answered)), (status, error), "{headers:?} {body}");
    }
    let large = post(&[], &format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20))).await;
    assert_eq!(large.status, 413);
    let session = gateway.session(&json!({})).await;
    let wrong = post(&[("mcp-session-id", &session), ("mcp-protocol-version", "1999-01-01")], &list).await;
    assert_eq!((wrong.status, code(&wrong)), (400, -32022));
    let none = gateway.within(&session, "resources/list", &json!({})).await;
    assert_eq!((none.status, code(&none)), (200, -32601));
    let none = gateway.stateless("resources/list", &json!({}), &json!({})).await;
    assert_eq!((none.status, code(&none)), (404, -32601));
    let cursor = gateway.within(&session, "tools/list", &json!({ "cursor": "?" })).await;
    assert_eq!(code(&cursor), -32602);
    let get = gateway.ask(("GET", &gateway.token), &[("mcp-protocol-version", "2026-07-28")], "").await;
    assert_eq!((get.status, header(&get, "allow").as_deref()), (405, Some("post")));
    assert_eq!(gateway.ask(("GET", &gateway.token), &[("accept", "application/json")], "").await.status, 406);
    assert_eq!(gateway.ask(("GET", &gateway.token), &[], "").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policy_never_lets_a_caller_use_is_not_offered_and_not_run() {
    let policy = "@id(\"no-reading\")\nforbid (principal, action, resource == Palyra::Tool::\"fs.read\");\n";
    let gateway = Gateway::start_with(DaemonPlan::default().policies("no-reading.cedar", policy)).await;
    std::fs::write(gateway.lab.workspace().join("x"), "x").unwrap();
    let listed = gateway.stateless("tools/list", &json!({}), &json!({})).await.json()["result"].clone();
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.contains(&"fs_list") && !names.contains(&"fs_read"), "{names:?}");
    assert_eq!(
        (&listed["resultType"], &listed["cacheScope"], &listed["ttlMs"]),
        (&json!("complete"), &json!("private"), &json!(0))
    );
    let call = json!({ "name": "fs_read", "arguments": { "path": "x" } });
    let refused = gateway.stateless("tools/call", &call, &json!({})).await.json()["result"].clone();
    assert_eq!((&refused["isError"], &text(&refused)["error"]["code"]), (&json!(true), &json!("denied_by_policy")));
    // It is on record like any call, by the channel that it came by.
    let id = refused["_meta"]["palyra/call"].as_str().unwrap().parse().unwrap();
    let call = gateway.lab.owner().call(id).await.unwrap();
    assert_eq!(call.proposed.unwrap().channel.as_deref(), Some("mcp"));
}

// ---- `palyra mcp serve` ---------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_command_serves_agents_alone_and_says_so_where_no_daemon_is() {
    use std::io::Write;
    let mut gateway = Gateway::start("").await;
    let serve = |gateway: &Gateway, token: &str| {
        let mut command = gateway.lab.palyra();
        command.args(["mcp", "serve"]).env("PALYRA_TOKEN", token);
        command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let person = gateway.lab.owner().identity().await.unwrap().principal;
    let person = person.split('@').next().unwrap().to_owned();
    let own = gateway.lab.owner().mint_token(&token(&person, &["mcp.call"])).await.unwrap();
    let output = serve(&gateway, &own.secret).wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("only agents are served here"));
    gateway.lab.stop();
    let mut child = serve(&gateway, &gateway.token);
    let initialize = json!({ "jsonrpc": "2.0", "id": "a", "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } } });
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{initialize}\nno json").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!((&said[0]["id"], &said[0]["error"]["data"]["code"]), (&json!("a"), &json!("unreachable")));
    assert_eq!(said[1]["error"]["code"], -32700);
    assert!(output.status.success());
}

// ---- `palyra mcp connect` -------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_fresh_installation_is_connected_once_the_gateway_is_switched_on_with_it() {
    let lab = DaemonLab::new();
    let home = tempfile::tempdir().unwrap();
    let connect = |more: &[&str]| {
        let mut command = lab.palyra();
        command.args(["mcp", "connect", "claude", "--write"]).args(more).env("HOME", home.path());
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let is_on = async || {
        let flags = lab.owner().flags().await.unwrap().flags;
        flags.iter().any(|flag| flag.name == "mcp_gateway" && flag.on)
    };
    let (file, token) = (home.path().join(".claude.json"), lab.home().join("clients/claude-code.token"));
    let (code, err) = connect(&[]);
    assert_eq!(code, 1, "{err}");
    for part in ["the MCP gateway is off", "--enable", "`palyra access flags set mcp_gateway on`"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert_eq!((is_on().await, file.exists(), token.exists()), (false, false, false), "nothing was done");
    let (code, err) = connect(&["--enable"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!((is_on().await, file.exists(), token.exists()), (true, true, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_connected_by_what_is_written_for_it() {
    use std::os::unix::fs::MetadataExt;
    let gateway = Gateway::start("").await;
    let home = tempfile::tempdir().unwrap();
    let connect = |args: &[&str]| {
        let mut command = gateway.lab.palyra();
        command.args(["mcp", "connect"]).args(args).env("HOME", home.path());
        let output = command.output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    // Printed, and nothing written for the client.
    let (code, out, err) = connect(&["claude"]);
    assert_eq!(code, 0, "{err}");
    let printed: Value = serde_json::from_str(&out).unwrap();
    assert!(!home.path().join(".claude.json").exists());
    let token_file = gateway.lab.home().join("clients/claude-code.token");
    assert_eq!(std::fs::metadata(&token_file).unwrap().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&token_file).unwrap();
    // Written, beside what is there; the same token serves.
    std::fs::write(home.path().join(".claude.json"), "{ \"theme\": \"dark\" }").unwrap();
    assert_eq!(connect(&["claude", "--write"]).0, 0);
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(home.path().join(".claude.json")).unwrap()).unwrap();
    assert_eq!((&written["theme"], &written["mcpServers"]), (&json!("dark"), &printed["mcpServers"]));
    assert_eq!(std::fs::read_to_string(&token_file).unwrap(), secret);
    // What was written works as it stands.
    let entry = &written["mcpServers"]["palyra"];
    let mut command = std::process::Command::new(entry["command"].as_str().unwrap());
    command.args(entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap())).env_clear();
    command.env("PALYRA_HOME", entry["env"]["PALYRA_HOME"].as_str().unwrap());
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} } } });
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, format!("{list}\n").as_bytes()).unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let listed: Value = serde_json::from_str(&line).unwrap();
    assert!(listed["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{line}");
    drop(input);
    assert!(child.wait().unwrap().success());
    // Somebody else's entry is left alone.
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    let theirs = "[mcp_servers.palyra]\nurl = \"http://127.0.0.1:1/\"\n";
    std::fs::write(home.path().join(".codex/config.toml"), theirs).unwrap();
    let (code, _, err) = connect(&["codex", "--write"]);
    assert!(code == 1 && err.contains("--replace"), "{code} {err}");
    assert_eq!(std::fs::read_to_string(home.path().join(".codex/config.toml")).unwrap(), theirs);
    assert_eq!(connect(&["codex", "--write", "--replace"]).0, 0);
    let codex: Value = std::fs::read_to_string(home.path().join(".codex/config.toml"))
        .unwrap()
        .parse::<toml::Table>()
        .map(|table| serde_json::to_value(table).unwrap())
        .unwrap();
    assert_eq!(codex["mcp_servers"]["palyra"]["args"][1], "serve");
}
