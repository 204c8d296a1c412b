//! The facade that clients of other products speak, tried with the real clients, a real daemon and a scripted model.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::time::Duration;

use palyra_api::{member::SetFlag, token::NewToken};
use palyra_tests::{
    daemon::{approve, asked, no},
    facade::Facade,
    model_server::{Answer, Call},
    token::token,
    until,
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

fn weather() -> Answer {
    Answer::tools([Call::new("weather", &json!({"city": "Brno"})), Call::new("weather", &json!({"city": "Linz"}))])
        .in_pieces(4)
}

fn chat(model: &str, streams: bool) -> Value {
    json!({ "model": model, "stream": streams, "messages": [{ "role": "user", "content": "go on" }] })
}

// ---- Models that are passed through, and the real clients -----------------------------------------------------------

async fn a_client_speaks_with_a_model(driver: &str) {
    let facade = Facade::start("").await;
    let drive = |case: &'static str| facade.drive(driver, case, "gpt");
    assert_eq!(drive("models").await, json!({ "models": ["palyra/coder", "gpt"] }));
    facade.model.will(Answer::text("hello"));
    let seen = drive("chat").await;
    assert_eq!((&seen["text"], &seen["finish"]), (&json!("hello"), &json!("stop")));
    assert!(seen["request_id"].is_string(), "{seen}");
    facade.model.will(Answer::text("hello there").in_pieces(5));
    let seen = drive("stream").await;
    assert_eq!((&seen["text"], &seen["finish"]), (&json!("hello there"), &json!(["stop"])));
    assert!(seen["usage"]["prompt_tokens"].is_u64(), "{seen}");
    for case in ["tools", "tools-stream", "responses-tools", "responses-tools-stream"] {
        facade.model.will(weather()).will(Answer::text("it is sunny"));
        let seen = drive(case).await;
        assert_eq!((&seen["text"], seen["calls"].as_array().unwrap().len()), (&json!("it is sunny"), 2), "{case}");
    }
    facade.model.will(Answer::text("hello"));
    assert_eq!(drive("responses").await["text"], "hello");
    facade.model.will(Answer::text("hello again"));
    let seen = drive("responses-stream").await;
    assert_eq!((&seen["text"], &seen["deltas"]), (&json!("hello again"), &json!("hello again")));
    assert_eq!(drive("embeddings").await["vectors"].as_array().unwrap().len(), 2);
    // The provider is asked by its own name for the model, and with nothing of the client's credential.
    for request in facade.model.requests().iter().filter(|request| request.header("content-type").is_some()) {
        assert_eq!(request.json()["model"], "test-model");
        assert_eq!(request.header("authorization"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_for_python_speaks_with_a_model_that_is_passed_through() {
    a_client_speaks_with_a_model("openai_python.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_for_node_speaks_with_a_model_that_is_passed_through() {
    a_client_speaks_with_a_model("openai_node.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ai_sdk_speaks_with_a_model_and_with_an_agent() {
    let facade = Facade::start("").await;
    for model in ["gpt", "palyra/coder"] {
        facade.model.will(Answer::text("hello"));
        assert_eq!(facade.drive("ai_sdk.mjs", "text", model).await["text"], "hello");
        facade.model.will(Answer::text("hello there").in_pieces(5));
        assert_eq!(facade.drive("ai_sdk.mjs", "stream", model).await["text"], "hello there");
        for case in ["tools", "tools-stream"] {
            facade.model.will(weather()).will(Answer::text("it is sunny"));
            let seen = facade.drive("ai_sdk.mjs", case, model).await;
            assert_eq!((&seen["text"], &seen["steps"]), (&json!("it is sunny"), &json!(2)), "{model} {case}");
        }
    }
}

/// The functions that a client brings along come back as it declared them, in whichever shape it speaks.
#[tokio::test(flavor = "multi_thread")]
async fn clients_bring_their_own_functions_along_to_an_agent() {
    let facade = Facade::start("").await;
    for driver in ["openai_python.py", "openai_node.mjs"] {
        for case in ["tools", "tools-stream", "responses-tools", "responses-tools-stream"] {
            facade.model.will(weather()).will(Answer::text("it is sunny"));
            let seen = facade.drive(driver, case, "palyra/coder").await;
            let calls = seen["calls"].as_array().unwrap();
            assert_eq!((&seen["text"], calls.len()), (&json!("it is sunny"), 2), "{driver} {case}");
            assert_eq!(calls[0], json!(["weather", json!({ "city": "Brno" }).to_string()]));
        }
    }
    let told = facade.model.requests().last().unwrap().json();
    assert_eq!(told["messages"][0], json!({ "role": "system", "content": "Work carefully." }));
    let names: Vec<&str> =
        told["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"weather") && names.contains(&"fs_read") && names.contains(&"process_run"), "{names:?}");
    assert!(!names.contains(&"net_connect"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_what_clients_know_and_refusals_are_not_asked_again() {
    let facade = Facade::start("").await;
    for driver in ["openai_python.py", "openai_node.mjs"] {
        let seen = facade.drive(driver, "errors-404", "no-such-model").await;
        let expected = (&json!(404), &json!("model_not_found"), &json!(1));
        assert_eq!((&seen["status"], &seen["code"], &seen["attempts"]), expected);
        facade.model.will(Answer::error(400, "invalid_request_error", "invalid_value", "bad role"));
        let seen = facade.drive(driver, "errors-400", "gpt").await;
        assert_eq!((&seen["status"], &seen["attempts"]), (&json!(400), &json!(1)));
        for answer in [
            Answer::text("a long story").then_error("it broke"),
            Answer::text("a long story").in_pieces(8).then_disconnect(),
            Answer::malformed_json(),
        ] {
            facade.model.will(answer);
            assert!(facade.drive(driver, "errors-stream", "gpt").await["error"].is_string());
        }
    }
    let models = ("GET", "/v1/models");
    let stranger = facade.ask_as("plr_a_nonsense", models, None).await;
    assert_eq!((stranger.status, &stranger.json()["error"]["type"]), (401, &json!("authentication_error")));
    assert!(stranger.head.contains("x-should-retry: false") && stranger.head.contains("x-request-id: "));
    let owner = facade.lab.owner();
    let narrow = owner.mint_token(&token("agent:narrow", &["compat.models.read"])).await.unwrap().secret;
    let listed = facade.ask_as(&narrow, models, None).await;
    assert!(listed.status == 200 && listed.head.contains("ratelimit-remaining: "), "{}", listed.head);
    let refused = facade.ask_as(&narrow, ("POST", "/v1/chat/completions"), Some(&chat("gpt", false))).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (403, &json!("missing_scope")));
    assert!(refused.head.contains("x-should-retry: false"), "{}", refused.head);
    owner.set_flag("compat_api", &SetFlag { on: false }).await.unwrap();
    assert_eq!(facade.ask("GET", "/v1/models", None).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_ask_again_when_a_provider_is_overloaded_and_are_told_their_limits() {
    let facade = Facade::start("").await;
    for driver in ["openai_python.py", "openai_node.mjs"] {
        for model in ["gpt", "palyra/coder"] {
            let failures = [
                Answer::too_many(1),
                Answer::error(500, "server_error", "oops", "oops"),
                Answer::error(503, "server_error", "busy", "busy"),
            ];
            for failure in failures {
                facade.model.will(failure.clone()).will(failure).will(Answer::text("at last"));
                let seen = facade.drive(driver, "errors-429", model).await;
                assert_eq!((&seen["text"], &seen["attempts"]), (&json!("at last"), &json!(3)), "{driver} {model}");
            }
        }
    }
    facade.model.will(Answer::too_many(7));
    let told = facade.post("/v1/chat/completions", &chat("gpt", false)).await;
    assert_eq!((told.status, &told.json()["error"]["code"]), (429, &json!("provider_limited")));
    assert!(told.head.contains("retry-after: 7\r\n") && told.head.contains("x-should-retry: true"), "{}", told.head);
    // A token's own pace.
    let slow = NewToken { per_minute: Some(10), ..token("agent:slow", &["compat.models.read"]) };
    let slow = facade.lab.owner().mint_token(&slow).await.unwrap().secret;
    let first = facade.ask_as(&slow, ("GET", "/v1/models"), None).await;
    for header in [
        "x-ratelimit-limit-requests: 10",
        "x-ratelimit-remaining-requests: 9",
        "x-ratelimit-reset-requests: ",
        "ratelimit-limit: 10",
        "x-request-id: ",
    ] {
        assert!(first.head.contains(header), "{header}: {}", first.head);
    }
    let mut last = first;
    for _ in 0..20 {
        last = facade.ask_as(&slow, ("GET", "/v1/models"), None).await;
    }
    assert_eq!((last.status, &last.json()["error"]["type"]), (429, &json!("rate_limit_error")));
    for header in ["x-ratelimit-remaining-requests: 0", "retry-after: ", "x-should-retry: true", "x-request-id: "] {
        assert!(last.head.contains(header), "{header}: {}", last.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_told_in_the_last_chunk_to_whoever_asked_for_it() {
    let facade = Facade::start("").await;
    for driver in ["openai_python.py", "openai_node.mjs"] {
        facade.model.will(Answer::text("hello there"));
        let seen = facade.drive(driver, "stream-without-usage", "palyra/coder").await;
        assert!(seen["chunks"].as_u64().unwrap() > 2 && seen["usage"] == json!([]), "{seen}");
    }
    facade.model.will(Answer::text("hello there").with_usage(11, 7));
    let mut body = chat("palyra/coder", true);
    body["stream_options"] = json!({ "include_usage": true });
    let events = facade.post("/v1/chat/completions", &body).await.events();
    let (last, others) = events.split_last().unwrap();
    let usage = json!({ "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 });
    assert_eq!((&last["usage"], &last["choices"]), (&usage, &json!([])));
    assert!(others.iter().all(|event| event["usage"].is_null()), "{others:?}");
}

// ---- Agents ---------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_its_calls_decided_asked_about_and_done() {
    let facade = Facade::start("").await;
    std::fs::write(facade.lab.workspace().join("note.txt"), "remember the milk").unwrap();
    facade
        .model
        .will(Answer::tool("fs_read", &json!({ "path": "note.txt" })))
        .will(Answer::tool("process_run", &json!({ "command": ["echo", "bought"] })))
        .will(Answer::text("all done"));
    let owner = facade.lab.owner();
    let body = chat("palyra/coder", true);
    let (answered, ()) = tokio::join!(facade.post("/v1/chat/completions", &body), async {
        let question = asked(&owner, 1).await.remove(0);
        assert_eq!((question.tool.as_str(), question.principal.as_str()), ("process.run", "agent:coder"));
        approve(&owner, &question).await.unwrap();
    });
    assert_eq!(answered.status, 200);
    assert!(answered.body.ends_with("data: [DONE]\n\n"), "{}", answered.body);
    let events = answered.events();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["palyra"]["type"].as_str()).collect();
    let expected =
        ["tool.proposed", "tool.over", "tool.proposed", "approval.requested", "approval.resolved", "tool.over"];
    assert_eq!(kinds, expected, "{}", answered.body);
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "all done");
    let finishes: Vec<_> = events.iter().filter_map(|event| event["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(finishes, ["stop"]);
    // The model was told what came of each call.
    let requests = facade.model.requests();
    let told = |request: usize| {
        let messages = requests[request].json()["messages"].clone();
        let last = messages.as_array().unwrap().last().unwrap().clone();
        serde_json::from_str::<Value>(last["content"].as_str().unwrap()).unwrap()
    };
    assert!(told(1)["output"].to_string().contains("remember the milk"), "{}", told(1));
    assert_eq!((&told(2)["exit_code"], &told(2)["stdout"]), (&json!(0), &json!("bought\n")));
    // Who has nobody to answer is told where somebody can.
    let question = events.iter().find(|event| event["palyra"]["type"] == "approval.requested").unwrap();
    let question = &question["palyra"]["approval"];
    let place = format!("http://{}/#{}", facade.lab.local(), question["id"].as_str().unwrap());
    assert_eq!(question["url"], json!(place));
    // And each has a receipt.
    let over = events.iter().filter(|event| event["palyra"]["type"] == "tool.over");
    for event in over {
        assert!(event["palyra"]["call"]["receipt"].is_u64(), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_to_the_model_as_final() {
    let facade = Facade::start("").await;
    facade
        .model
        .will(Answer::tool("process_run", &json!({ "command": ["rm", "-rf", "."] })))
        .will(Answer::text("then not"));
    let owner = facade.lab.owner();
    let body = json!({ "model": "palyra/coder", "input": "clean up" });
    let (answered, ()) = tokio::join!(facade.post("/v1/responses", &body), async {
        let question = asked(&owner, 1).await.remove(0);
        owner.deny(question.id, &no(&question, Some("not on a Friday"))).await.unwrap();
    });
    let response = answered.json();
    assert_eq!((&response["status"], &response["object"]), (&json!("completed"), &json!("response")));
    let items = response["output"].as_array().unwrap();
    let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["mcp_call", "mcp_approval_request", "message"], "{response}");
    assert_eq!((&items[0]["status"], &items[0]["name"]), (&json!("failed"), &json!("process.run")));
    let told = facade.model.requests()[1].json();
    let told = told["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["error"]["code"], &told["error"]["retry"]), (&json!("denied_by_person"), &json!(false)));
    assert!(told["error"]["message"].as_str().unwrap().contains("not on a Friday"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_shows_that_it_lives_while_a_person_is_asked() {
    let facade = Facade::start("").await;
    for (path, said) in [("/v1/chat/completions", "messages"), ("/v1/responses", "input")] {
        facade.model.will(Answer::tool("process_run", &json!({ "command": ["true"] }))).will(Answer::text("done"));
        let body = json!({ "model": "palyra/coder", "stream": true, said: [{ "role": "user", "content": "go on" }] });
        let mut stream = facade.begin(path, &body).await;
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(": waiting\n\n") {
            let more = tokio::time::timeout(Duration::from_secs(15), stream.read_buf(&mut read)).await;
            assert!(more.expect("a sign of life in time").unwrap() > 0, "{path}");
        }
        let owner = facade.lab.owner();
        approve(&owner, &asked(&owner, 1).await.remove(0)).await.unwrap();
        stream.read_to_end(&mut read).await.unwrap();
        let text = String::from_utf8_lossy(&read).into_owned();
        assert!(text.contains("[DONE]") || text.contains("response.completed"), "{path}: {text}");
    }
}

/// Whoever holds the agent's credential must not be able to say yes in the place of a person.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_an_agent_cannot_answer_for_a_person() {
    let facade = Facade::start("").await;
    let yes = json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true });
    let answered = facade.post("/v1/responses", &json!({ "model": "palyra/coder", "input": [yes] })).await;
    assert_eq!((answered.status, &answered.json()["error"]["code"]), (403, &json!("not_for_agents")));
    assert!(facade.model.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_withdraws_what_its_agent_asked_for() {
    let facade = Facade::start("").await;
    facade.model.will(Answer::tool("process_run", &json!({ "command": ["touch", "marker"] })));
    let owner = facade.lab.owner();
    {
        let body = chat("palyra/coder", true);
        let asking = facade.post("/v1/chat/completions", &body);
        tokio::select! {
            answered = asking => panic!("{answered:?}"),
            questions = asked(&owner, 1) => assert_eq!(questions.len(), 1),
        }
    }
    until(|| async {
        owner.approvals(&palyra_api::approval::ApprovalQuery::default()).await.unwrap().approvals.is_empty()
    })
    .await;
    assert!(!facade.lab.workspace().join("marker").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_ends_at_its_limits_whatever_its_model_wants() {
    let facade = Facade::start("").await;
    let last = |answered: &palyra_tests::facade::Answered| answered.json()["choices"][0].clone();
    // The same thing over and over, which is refused each time.
    facade.model.always(Answer::tool("no_such_tool", &json!({})));
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    assert_eq!(last(&answered)["finish_reason"], "length");
    let limited = answered.json()["palyra"]["limited"].as_str().unwrap().to_owned();
    assert!(limited.contains("3 times"), "{limited}");
    // Something that works, without end.
    facade.model.always(Answer::tool("fs_list", &json!({ "path": "." })));
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    let limited = answered.json()["palyra"]["limited"].as_str().unwrap().to_owned();
    assert!(limited.contains("6 turns"), "{limited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_make_no_sense_run_nothing_and_are_told_to_the_model() {
    let facade = Facade::start("").await;
    facade
        .model
        .will(Answer::huge_tool("fs_write", 10 << 20))
        .will(Answer::tools([Call::with_text("fs_write", r#"{"path":"a","path":"b","content":"x"}"#)]))
        .will(Answer::tools([Call::with_text("fs_write", "{not json")]))
        .will(Answer::text("I give up"));
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    assert_eq!(answered.json()["choices"][0]["message"]["content"], "I give up", "{}", answered.body);
    for (request, why) in [(1, "longer than"), (2, "stands twice"), (3, "cannot be read")] {
        let told = facade.model.requests()[request].json();
        let told = told["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(told.contains("bad_arguments") && told.contains(why), "{told}");
    }
    assert_eq!(std::fs::read_dir(facade.lab.workspace()).unwrap().count(), 0);
}

// ---- Providers that misbehave ---------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_provider_does_the_client_hears_why_and_nothing_hangs() {
    let facade = Facade::start("").await;
    let bad = || {
        [
            Answer::malformed_json(),
            Answer::invalid_utf8(),
            Answer::raw(b"\x00\x01 garbage that is no HTTP\r\n\r\n"),
            Answer::text("a long story").in_pieces(4).then_disconnect(),
            Answer::text("a long story").in_pieces(4).then_hang(),
            Answer::hang(),
        ]
    };
    for model in ["gpt", "palyra/coder"] {
        for streams in [false, true] {
            for (index, answer) in bad().into_iter().enumerate() {
                facade.model.will(answer);
                let begun = std::time::Instant::now();
                let answered = facade.post("/v1/chat/completions", &chat(model, streams)).await;
                assert!(begun.elapsed() < Duration::from_secs(20), "{model} {streams} {index}");
                let told = match answered.status {
                    200 => answered.events().pop().unwrap(),
                    status => {
                        assert!(status == 502 || status == 504, "{model} {streams} {index}: {answered:?}");
                        answered.json()
                    }
                };
                let error = &told["error"];
                assert!(error["message"].is_string() && error["code"].is_string(), "{model} {streams} {index}: {told}");
                assert!(!answered.body.contains("[DONE]"), "{model} {streams} {index}");
            }
        }
    }
    // It serves others as before.
    facade.model.will(Answer::text("hello"));
    let answered = facade.post("/v1/chat/completions", &chat("gpt", false)).await;
    assert_eq!(answered.json()["choices"][0]["message"]["content"], "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_models_is_on_record_before_it_leaves() {
    let facade = Facade::start("").await;
    facade.model.will(Answer::text("hello").with_usage(11, 7));
    facade.post("/v1/chat/completions", &chat("gpt", false)).await;
    let owner = facade.lab.owner();
    let records = || async {
        let page = owner.records(&palyra_api::journal::RecordQuery::default()).await.unwrap();
        page.records.into_iter().filter(|record| record.kind.starts_with("model.")).collect::<Vec<_>>()
    };
    until(|| async { records().await.len() == 2 }).await;
    let records = records().await;
    assert_eq!((records[0].kind.as_str(), records[1].kind.as_str()), ("model.requested", "model.answered"));
    let body = |index: usize| serde_json::to_value(&records[index]).unwrap().to_string();
    assert!(body(0).contains("agent:coder") && body(0).contains("compat") && !body(0).contains("go on"), "{}", body(0));
    assert!(body(1).contains("test-model") && !body(1).contains("hello"), "{}", body(1));
    assert!(!body(0).contains("\"run\"") && !body(0).contains("\"agent\""), "{}", body(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_says_which_request_to_a_model_led_to_which_call() {
    let facade = Facade::start("").await;
    facade.model.will(Answer::tool("fs_list", &json!({ "path": "." }))).will(Answer::text("done"));
    facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    let owner = facade.lab.owner();
    let page = owner.records(&palyra_api::journal::RecordQuery::default()).await.unwrap();
    let asked: Vec<Value> =
        page.records.iter().filter(|one| one.kind == "model.requested").filter_map(|one| one.body.clone()).collect();
    let proposed = page.records.iter().find(|one| one.kind == "tool.proposed").unwrap();
    let header: Value = serde_json::from_str(&proposed.record).unwrap();
    let expected = (json!("coder"), header["run"].clone());
    assert!(expected.1.is_string(), "{header}");
    for request in &asked {
        assert_eq!((request["agent"].clone(), request["run"].clone()), expected, "{request}");
    }
    assert_eq!(asked.len(), 2);
}
