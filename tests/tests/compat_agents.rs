//! Agents whose providers, clients or credentials do not hold: nothing is done twice, nothing that was cut off is done, and each ends in time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::time::Duration;

use palyra_api::{approval::ApprovalQuery, journal::RecordQuery, member::SetFlag};
use palyra_tests::{
    daemon::{DaemonPlan, asked, no},
    facade::{Answered, Facade},
    model_server::{Answer, Call, EVENTS_HEAD},
    until,
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

fn chat(model: &str, streams: bool) -> Value {
    json!({ "model": model, "stream": streams, "messages": [{ "role": "user", "content": "go on" }] })
}

fn looks() -> Answer {
    Answer::tool("fs_list", &json!({ "path": "." }))
}

fn overloaded() -> Answer {
    Answer::error(503, "server_error", "busy", "busy")
}

/// What is left of a stream, as text.
async fn rest(stream: &mut tokio::net::TcpStream) -> String {
    let mut read = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut read)).await.unwrap().unwrap();
    String::from_utf8_lossy(&read).into_owned()
}

// ---- Nothing is done twice ------------------------------------------------------------------------------------------

/// Clients ask again by themselves, and the calls that were made would be made up to three times.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_after_calls_were_made_is_not_asked_again() {
    let facade = Facade::start("").await;
    let failures = [overloaded(), Answer::too_many(1), Answer::malformed_json(), Answer::hang()];
    for path in ["/v1/chat/completions", "/v1/responses"] {
        for failure in &failures {
            facade.model.will(looks()).will(failure.clone());
            let body = json!({ "model": "palyra/coder", "input": "go on", "messages": chat("", false)["messages"] });
            let answered = facade.post(path, &body).await;
            assert_eq!(answered.status, 424, "{path}: {answered:?}");
            assert!(answered.head.contains("x-should-retry: false"), "{}", answered.head);
            assert!(!answered.head.contains("retry-after"), "{}", answered.head);
            let message = answered.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("made already") && message.contains("palyra runs show "), "{message}");
        }
    }
    // Before any call was made it is worth asking again.
    facade.model.will(overloaded());
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    assert_eq!(answered.status, 502);
    assert!(answered.head.contains("x-should-retry: true"), "{}", answered.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_clients_make_no_call_of_an_agent_twice() {
    let facade = Facade::start("").await;
    for driver in ["openai_python.py", "openai_node.mjs", "ai_sdk.mjs"] {
        facade.model.will(looks()).will(overloaded()).always(Answer::text("again"));
        let seen = facade.drive(driver, "errors-424", "palyra/coder").await;
        let expected = (&json!(424), &json!("provider_unavailable"), &json!(1));
        assert_eq!((&seen["status"], &seen["code"], &seen["attempts"]), expected, "{driver}: {seen}");
    }
    assert_eq!(facade.model.requests().iter().filter(|request| request.method == "POST").count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_fails_after_calls_were_made_says_so() {
    let facade = Facade::start("").await;
    facade.model.will(looks()).will(overloaded());
    let told = facade.post("/v1/chat/completions", &chat("palyra/coder", true)).await.events().pop().unwrap();
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("made already"), "{told}");
    facade.model.will(looks()).will(overloaded()).will(overloaded());
    let body = json!({ "model": "palyra/coder", "stream": true, "input": "go on" });
    let told = facade.post("/v1/responses", &body).await.events().pop().unwrap();
    let error = &told["response"]["error"];
    assert_eq!((&told["type"], &error["code"]), (&json!("response.failed"), &json!("invalid_prompt")));
    assert!(error["message"].as_str().unwrap().contains("made already"), "{told}");
    let told = facade.post("/v1/responses", &body).await.events().pop().unwrap();
    assert_eq!(told["response"]["error"]["code"], "server_error");
}

// ---- Nothing is done of what was cut off ----------------------------------------------------------------------------

fn first_choice(answered: &Answered) -> Value {
    answered.json()["choices"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_turn_that_was_cut_off_are_neither_run_nor_handed_back() {
    let facade = Facade::start("").await;
    let weather = json!({ "type": "function", "function": { "name": "weather", "parameters": { "type": "object" } } });
    let mut asking = chat("palyra/coder", false);
    asking["tools"] = json!([weather]);
    let writes = || Call::new("fs_write", &json!({ "path": "a", "content": "half of w" }));
    let asks = || Call::with_text("weather", "{\"city\":\"Br");
    let filtered = |call: Call| {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        let delta = json!({ "tool_calls": [{ "index": 0, "id": "a", "type": "function", "function": function }] });
        Answer::events(&[json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": "content_filter" }] })])
    };
    let cases = [
        (Answer::tools([writes()]).cut_short(), "length"),
        (Answer::tools([asks()]).cut_short(), "length"),
        (filtered(writes()), "content_filter"),
        (filtered(asks()), "content_filter"),
    ];
    for (answer, reason) in cases {
        facade.model.will(answer);
        let choice = first_choice(&facade.post("/v1/chat/completions", &asking).await);
        assert_eq!((&choice["finish_reason"], &choice["message"]["tool_calls"]), (&json!(reason), &Value::Null));
    }
    facade.model.will(Answer::tools([asks()]).cut_short());
    let tools = json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }]);
    let body = json!({ "model": "palyra/coder", "input": "go on", "tools": tools });
    let response = facade.post("/v1/responses", &body).await.json();
    assert_eq!((&response["status"], &response["output"]), (&json!("incomplete"), &json!([])));
    // What is longer than anybody takes is not told as if it were whole.
    facade.model.will(Answer::huge_tool("weather", 2 << 20));
    let answered = facade.post("/v1/chat/completions", &asking).await;
    assert_eq!((answered.status, &answered.json()["error"]["code"]), (502, &json!("bad_answer")));
    assert_eq!(std::fs::read_dir(facade.lab.workspace()).unwrap().count(), 0);
}

/// A model that is forced to a call each time could never end.
#[tokio::test(flavor = "multi_thread")]
async fn a_choice_of_tools_is_forced_until_a_call_was_made() {
    let facade = Facade::start("").await;
    let named = json!({ "type": "function", "function": { "name": "fs_list" } });
    for (choice, left) in [(json!("required"), Value::Null), (named, Value::Null), (json!("auto"), json!("auto"))] {
        let before = facade.model.requests().len();
        facade.model.will(looks()).will(Answer::text("that is all"));
        let mut body = chat("palyra/coder", false);
        body["tool_choice"] = choice.clone();
        let answered = facade.post("/v1/chat/completions", &body).await;
        assert_eq!(first_choice(&answered)["finish_reason"], "stop", "{answered:?}");
        let asked: Vec<Value> =
            facade.model.requests()[before..].iter().map(|one| one.json()["tool_choice"].clone()).collect();
        assert_eq!(asked, [choice, left]);
    }
}

// ---- Each ends in time ----------------------------------------------------------------------------------------------

/// A client that does not read must not hold up the loop, which would then have no end.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_client_stalls_ends_at_its_limit() {
    let facade = Facade::start("[[agent]]\nname = \"hasty\"\nmodel = \"gpt\"\nmax_seconds = 3").await;
    // Much in each event, so that whoever does not read has enough long before that.
    let text = "x".repeat(4 << 10);
    let piece = json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] });
    facade.model.will(Answer::drip(EVENTS_HEAD, format!("data: {piece}\n\n").as_bytes(), 1_000_000));
    let mut stalled = facade.begin("/v1/chat/completions", &chat("palyra/hasty", true)).await;
    until(|| async { facade.model.left() == 1 }).await;
    let owner = facade.lab.owner();
    until(|| async {
        let page = owner.records(&RecordQuery::default()).await.unwrap();
        page.records.iter().any(|record| record.kind == "model.answered")
    })
    .await;
    // Whoever reads after all is told how it ended.
    let told = rest(&mut stalled).await;
    assert!(told.contains("its 3 seconds are over") && told.contains("data: [DONE]"), "{} bytes", told.len());
}

/// What an agent waits for is withdrawn, and what a provider still says goes to nobody.
#[tokio::test(flavor = "multi_thread")]
async fn agents_and_streams_end_when_the_facade_is_switched_off() {
    let facade = Facade::start("").await;
    let owner = facade.lab.owner();
    let (mut agent, mut model) = both(&facade).await;
    owner.set_flag("compat_api", &SetFlag { on: false }).await.unwrap();
    for stream in [&mut agent, &mut model] {
        let told = rest(stream).await;
        assert!(told.contains("feature_off") && !told.contains("[DONE]"), "{told}");
    }
    nothing_goes_on(&facade).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_streams_end_with_the_token_that_asked_for_them() {
    let facade = Facade::start_with(DaemonPlan::default().own_clock(), "").await;
    let (mut agent, mut model) = both(&facade).await;
    facade.lab.set_ahead(Duration::from_secs(3_601));
    for stream in [&mut agent, &mut model] {
        let told = rest(stream).await;
        assert!(told.contains("\"expired\"") && !told.contains("[DONE]"), "{told}");
    }
    nothing_goes_on(&facade).await;
}

/// An agent that waits for a person, and a stream without an end.
async fn both(facade: &Facade) -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    facade.model.will(Answer::tool("process_run", &json!({ "command": ["touch", "marker"] })));
    let agent = facade.begin("/v1/chat/completions", &chat("palyra/coder", true)).await;
    asked(&facade.lab.owner(), 1).await;
    let piece = json!({ "choices": [{ "index": 0, "delta": { "content": "x" }, "finish_reason": null }] });
    let endless = Answer::drip(EVENTS_HEAD, format!("data: {piece}\n\n").as_bytes(), 1_000_000);
    facade.model.will(endless.slowly(Duration::from_millis(50)));
    let mut model = facade.begin("/v1/chat/completions", &chat("gpt", true)).await;
    let mut read = [0; 1_024];
    while !String::from_utf8_lossy(&read).contains("\"x\"") {
        assert!(model.read(&mut read).await.unwrap() > 0);
    }
    (agent, model)
}

async fn nothing_goes_on(facade: &Facade) {
    let owner = facade.lab.owner();
    until(|| async { owner.approvals(&ApprovalQuery::default()).await.unwrap().approvals.is_empty() }).await;
    until(|| async { facade.model.left() == 1 }).await;
    assert_eq!(facade.model.requests().len(), 2);
    assert!(!facade.lab.workspace().join("marker").exists());
}

// ---- Everything is told ---------------------------------------------------------------------------------------------

/// The answer is the last that happens before the call is over, and was lost when that came first.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_question_is_told_before_the_end_of_its_call() {
    let facade = Facade::start("").await;
    let owner = facade.lab.owner();
    for _ in 0..10 {
        facade.model.will(Answer::tool("process_run", &json!({ "command": ["true"] }))).will(Answer::text("then not"));
        let body = chat("palyra/coder", true);
        let (answered, ()) = tokio::join!(facade.post("/v1/chat/completions", &body), async {
            let question = asked(&owner, 1).await.remove(0);
            owner.deny(question.id, &no(&question, None)).await.unwrap();
        });
        let events = answered.events();
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["palyra"]["type"].as_str()).collect();
        assert_eq!(
            kinds,
            ["tool.proposed", "approval.requested", "approval.resolved", "tool.over"],
            "{}",
            answered.body
        );
    }
}
