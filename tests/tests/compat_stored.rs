//! What is kept of conversations with agent models: transcripts for people, responses for clients that go on with them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice, reason = "a test that cannot go on ends")]

use palyra_api::{
    session::{SessionQuery, SessionRunsQuery, Transcript, TranscriptQuery},
    token::NewToken,
};
use palyra_tests::{
    daemon::{approve, asked, refused},
    facade::Facade,
    model_server::{Answer, Call},
    token::token,
};
use serde_json::{Value, json};

const FACADE: [&str; 2] = ["compat.chat.create", "compat.responses.create"];

fn asking(input: &str) -> Value {
    json!({ "model": "palyra/coder", "input": input })
}

/// What was said in the last run of the last session that somebody sees.
async fn last_transcript(by: &palyra_client::Client) -> Transcript {
    let session = by.sessions(&SessionQuery::default()).await.unwrap().sessions.remove(0);
    let found = by.session(session.id, &SessionRunsQuery::default()).await.unwrap();
    by.transcript(found.runs.last().unwrap().id, &TranscriptQuery::default()).await.unwrap()
}

// ---- Transcripts ----------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_with_an_agent_can_be_read_afterwards() {
    let mut facade = Facade::start("").await;
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    std::fs::write(facade.lab.workspace().join("note.txt"), secret).unwrap();
    facade
        .model
        .will(Answer::tool("fs_read", &json!({ "path": "note.txt" })).saying("Let me see."))
        .will(Answer::text("Done."));
    let body = json!({ "model": "palyra/coder", "messages": [{ "role": "user", "content": "read the note" }] });
    assert_eq!(facade.post("/v1/chat/completions", &body).await.status, 200);
    let owner = facade.lab.owner();
    let told = last_transcript(&owner).await;
    assert_eq!((told.principal.as_str(), told.model.as_deref(), told.lost), ("agent:coder", Some("palyra/coder"), 0));
    let said: Vec<(&str, &str)> =
        told.messages.iter().map(|one| (one.role.as_str(), one.content.as_str().unwrap_or("calls"))).collect();
    let expected = [
        ("system", "Work carefully."),
        ("user", "read the note"),
        ("assistant", "calls"),
        ("tool", said[3].1),
        ("assistant", "Done."),
    ];
    assert_eq!(said, expected);
    assert_eq!(told.messages[2].content["text"], "Let me see.");
    assert_eq!(told.messages[2].content["calls"][0]["function"]["name"], "fs_read");
    let id = told.messages[2].content["calls"][0]["id"].as_str();
    assert_eq!(told.messages[3].call_id.as_deref(), id);
    // What looks like a credential is nowhere on disk.
    assert!(said[3].1.contains("[masked"), "{}", said[3].1);
    facade.lab.stop();
    let holds = |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
    let found: Vec<_> =
        facade.lab.written().into_iter().filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect();
    assert!(found.iter().all(|path| path.ends_with("note.txt")), "{found:?}");
    facade.lab.start();
    assert_eq!(last_transcript(&facade.lab.owner()).await.messages.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn transcripts_are_for_whose_they_are_and_for_those_who_oversee() {
    let facade = Facade::start("").await;
    facade.model.always(Answer::text("hello"));
    let owner = facade.lab.owner();
    let mint =
        async |principal: &str, scopes: &[&str]| owner.mint_token(&token(principal, scopes)).await.unwrap().secret;
    let own = mint("agent:coder", &["calls.read", FACADE[1]]).await;
    let other = mint("agent:other", &["calls.read", FACADE[1]]).await;
    let narrow = mint("user:owner", &["calls.read"]).await;
    for token in [&own, &other] {
        let answered = facade.ask_as(token, ("POST", "/v1/responses"), Some(&asking("hi"))).await;
        assert_eq!(answered.status, 200, "{answered:?}");
    }
    let seen = async |token: &str| {
        let by = facade.lab.holder_of(token);
        let page = by.sessions(&SessionQuery::default()).await.unwrap();
        page.sessions.into_iter().map(|one| one.principal).collect::<Vec<_>>()
    };
    assert_eq!(seen(&own).await, ["agent:coder"]);
    assert_eq!(seen(&other).await, ["agent:other"]);
    assert_eq!(seen(&narrow).await, Vec::<String>::new());
    let all = owner.sessions(&SessionQuery { limit: Some(1), before: None }).await.unwrap();
    let rest = owner.sessions(&SessionQuery { limit: Some(1), before: all.next }).await.unwrap();
    assert_eq!(
        (all.sessions[0].principal.as_str(), rest.sessions[0].principal.as_str()),
        ("agent:other", "agent:coder")
    );
    assert_eq!(rest.next, None);
    let theirs = all.sessions[0].id;
    let run = owner.session(theirs, &SessionRunsQuery::default()).await.unwrap().runs[0].id;
    for token in [&own, &narrow] {
        let by = facade.lab.holder_of(token);
        let session = by.session(theirs, &SessionRunsQuery::default()).await.unwrap_err();
        assert_eq!(refused(session), (404, "unknown_session".to_owned()));
        let transcript = by.transcript(run, &TranscriptQuery::default()).await.unwrap_err();
        assert_eq!(refused(transcript), (404, "unknown_run".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_is_forgotten_by_those_who_configure_and_not_by_the_agent() {
    let facade = Facade::start("").await;
    facade.model.always(Answer::text("hello"));
    let response = facade.post("/v1/responses", &asking("purple-elephant-marker")).await.json();
    let owner = facade.lab.owner();
    let session = owner.sessions(&SessionQuery::default()).await.unwrap().sessions[0].id;
    let agent = facade.lab.holder_of(&facade.token);
    assert_eq!(refused(agent.forget_session(session).await.unwrap_err()).0, 403);
    assert_eq!(owner.forget_session(session).await.unwrap().runs, 1);
    assert!(owner.sessions(&SessionQuery::default()).await.unwrap().sessions.is_empty());
    assert_eq!(refused(owner.forget_session(session).await.unwrap_err()), (404, "unknown_session".to_owned()));
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(facade.ask("GET", &path, None).await.status, 404);
    let marker = b"purple-elephant-marker";
    let kept = facade
        .lab
        .written()
        .into_iter()
        .filter(|(_, bytes)| bytes.windows(marker.len()).any(|window| window == marker));
    assert_eq!(kept.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
    let page = owner.records(&palyra_api::journal::RecordQuery::default()).await.unwrap();
    assert!(page.records.iter().any(|record| record.kind == "transcript.forgotten"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_kept_where_that_is_switched_off() {
    let facade = Facade::start("[transcripts]\nkeep_days = 2").await;
    facade.model.always(Answer::text("hello"));
    let owner = facade.lab.owner();
    facade.post("/v1/responses", &asking("hi")).await;
    assert_eq!(owner.sessions(&SessionQuery::default()).await.unwrap().sessions.len(), 1);
    let config = facade.lab.home().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("keep_days = 2", "enabled = false");
    std::fs::write(&config, text).unwrap();
    owner.reload().await.unwrap();
    let response = facade.post("/v1/responses", &asking("hi")).await.json();
    assert_eq!(response["store"], false);
    let session = owner.sessions(&SessionQuery::default()).await.unwrap().sessions.remove(0);
    assert_eq!(session.runs, 1);
    let gone = facade.ask("GET", &format!("/v1/responses/{}", response["id"].as_str().unwrap()), None).await;
    assert_eq!((gone.status, &gone.json()["error"]["code"]), (404, &json!("unknown_response")));
}

#[test]
fn the_command_lists_shows_and_forgets() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let facade = runtime.block_on(async {
        let facade = Facade::start("").await;
        facade
            .model
            .will(Answer::tool("fs_list", &json!({ "path": "." })).saying("Let me see."))
            .will(Answer::text("Nothing.\u{202e}"));
        facade.post("/v1/responses", &asking("what is here?")).await;
        facade
    });
    let palyra = |words: &[&str]| {
        let output = facade.lab.palyra().args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = palyra(&["sessions", "list"]);
    assert!(listed.starts_with("SESSION") && listed.contains("agent:coder"), "{listed}");
    let session = listed.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let shown = palyra(&["sessions", "show", &session[session.len() - 6..]]);
    assert!(shown.contains("palyra/coder"), "{shown}");
    let run = shown.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let said = palyra(&["runs", "show", &run]);
    for part in
        ["system", "  what is here?", "  Let me see.\n  → fs_list {\"path\":\".\"}", "tool ", "Nothing.<U+202E>"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let document: Value = serde_json::from_str(&palyra(&["--json", "runs", "show", &run])).unwrap();
    assert_eq!(document["data"]["run"], json!(run));
    let unsure = facade.lab.palyra().args(["sessions", "forget", &session]).output().unwrap();
    assert_eq!(unsure.status.code(), Some(2), "nobody is there to ask");
    assert!(palyra(&["sessions", "list"]).contains(&session), "nothing was forgotten");
    assert!(palyra(&["sessions", "forget", &session, "--yes"]).starts_with("forgotten"));
    assert_eq!(palyra(&["sessions", "list"]), "");
}

// ---- Responses ------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn the_official_clients_look_at_continue_and_delete_what_is_kept() {
    let facade = Facade::start("").await;
    for driver in ["openai_python.py", "openai_node.mjs"] {
        facade.model.will(Answer::text("once")).will(Answer::text("and again"));
        let seen = facade.drive(driver, "responses-stored", "palyra/coder").await;
        let expected = json!({
            "same": true, "metadata": { "case": "stored" }, "store": true, "items": ["say hi"], "previous": true,
            "text": ["once", "and again"], "gone": "unknown_response",
        });
        assert_eq!(seen, expected, "{driver}");
        let told = facade.model.requests().last().unwrap().json();
        let said: Vec<&str> =
            told["messages"].as_array().unwrap().iter().map(|one| one["content"].as_str().unwrap()).collect();
        assert_eq!(said, ["Work carefully.", "say hi", "once", "and then?"], "{driver}");
    }
}

/// Every item and every event of an agent fits the client's own types, strictly read.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_does_fits_the_types_of_the_official_client() {
    let facade = Facade::start("").await;
    let owner = facade.lab.owner();
    for case in ["responses-strict", "responses-strict-stream"] {
        facade
            .model
            .will(
                Answer::tools([
                    Call::new("fs_list", &json!({ "path": "." })),
                    Call::new("fs_read", &json!({ "path": "none" })),
                ])
                .saying("See."),
            )
            .will(Answer::tool("process_run", &json!({ "command": ["true"] })))
            .will(Answer::text("done"));
        let (seen, ()) = tokio::join!(facade.drive("openai_python.py", case, "palyra/coder"), async {
            approve(&owner, &asked(&owner, 1).await.remove(0)).await.unwrap();
        });
        let kinds: Vec<&str> =
            seen["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["message", "mcp_call", "mcp_call", "mcp_call", "mcp_approval_request", "message"], "{seen}");
        assert_eq!((&seen["text"], &seen["status"]), (&json!("See.done"), &json!("completed")), "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_for_the_principal_it_was_made_for() {
    let facade = Facade::start("").await;
    facade.model.always(Answer::text("hello"));
    let owner = facade.lab.owner();
    let other = owner.mint_token(&token("agent:other", &FACADE)).await.unwrap().secret;
    // Another token of the same agent is the same agent.
    let same = owner
        .mint_token(&NewToken { name: "second".to_owned(), ..token("agent:coder", &FACADE) })
        .await
        .unwrap()
        .secret;
    let id = facade.post("/v1/responses", &asking("hi")).await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/responses/{id}");
    let mut going_on = asking("and then?");
    going_on["previous_response_id"] = json!(id);
    for (method, path, body) in [
        ("GET", path.clone(), None),
        ("GET", format!("{path}/input_items"), None),
        ("DELETE", path.clone(), None),
        ("POST", "/v1/responses".to_owned(), Some(&going_on)),
    ] {
        let answered = facade.ask_as(&other, (method, &path), body).await;
        assert_eq!(
            (answered.status, &answered.json()["error"]["code"]),
            (404, &json!("unknown_response")),
            "{method} {path}"
        );
        assert!(answered.head.contains("x-should-retry: false"));
    }
    assert_eq!(facade.ask_as(&same, ("GET", &path), None).await.json()["id"], json!(id));
    let next = facade.ask_as(&same, ("POST", "/v1/responses"), Some(&going_on)).await;
    assert_eq!(next.json()["previous_response_id"], json!(id), "{next:?}");
    let sessions = owner.sessions(&SessionQuery::default()).await.unwrap().sessions;
    assert_eq!(sessions.len(), 1, "what goes on belongs to the same session");
    assert_eq!(
        facade.ask_as(&same, ("DELETE", &path), None).await.json(),
        json!({ "id": id, "object": "response", "deleted": true })
    );
    assert_eq!(facade.ask("GET", &path, None).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_after_a_restart_with_calls_of_the_client_in_it() {
    let mut facade = Facade::start("").await;
    facade.model.will(Answer::tools([
        Call::new("weather", &json!({ "city": "Brno" })),
        Call::new("fs_list", &json!({ "path": "." })),
    ]));
    let weather = json!({ "type": "function", "name": "weather", "parameters": { "type": "object" } });
    let mut first = asking("how is it outside?");
    first["tools"] = json!([weather]);
    first["instructions"] = json!("Be brief.");
    let first = facade.post("/v1/responses", &first).await.json();
    let call = first["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap().clone();
    facade.lab.stop();
    facade.lab.start();
    facade.model.will(Answer::text("sunny"));
    let output = json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "sun" });
    let next =
        json!({ "model": "palyra/coder", "input": [output], "previous_response_id": first["id"], "stream": true });
    let events = facade.post("/v1/responses", &next).await.events();
    assert_eq!(events.last().unwrap()["response"]["status"], "completed", "{events:?}");
    let told = facade.model.requests().last().unwrap().json();
    let messages = told["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|one| one["role"].as_str().unwrap()).collect();
    // The instructions were for that one answer, and each call has its answer.
    assert_eq!(roles, ["system", "user", "assistant", "tool"], "{told}");
    assert_eq!(messages[2]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!((&messages[3]["tool_call_id"], &messages[3]["content"]), (&call["call_id"], &json!("sun")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_kept_is_not_and_what_agents_cannot_do_is_refused() {
    let facade = Facade::start("").await;
    facade.model.will(Answer::text("hello"));
    let mut body = asking("hi");
    body["store"] = json!(false);
    let response = facade.post("/v1/responses", &body).await.json();
    assert_eq!(response["store"], false);
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(facade.ask("GET", &path, None).await.status, 404);
    for (field, value) in
        [("background", json!(true)), ("conversation", json!("conv_1")), ("previous_response_id", json!("resp_none"))]
    {
        let mut body = asking("hi");
        body[field] = value;
        let answered = facade.post("/v1/responses", &body).await;
        assert!([400, 404].contains(&answered.status), "{field}: {answered:?}");
        assert!(answered.head.contains("x-should-retry: false"), "{field}");
    }
    assert_eq!(facade.model.requests().len(), 1);
}
