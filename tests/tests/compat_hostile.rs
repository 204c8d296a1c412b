//! Providers and clients that misbehave towards the facade: clear errors, nothing hangs, nothing leaks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::time::{Duration, Instant};

use palyra_api::{
    journal::{Record, RecordQuery},
    token::NewToken,
};
use palyra_tests::{
    facade::{Answered, Facade},
    model_server::{Answer, Call, EVENTS_HEAD},
    token::token,
    until,
    vault::value,
};
use palyra_types::SecretRef;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn chat(model: &str, streams: bool) -> Value {
    json!({ "model": model, "stream": streams, "messages": [{ "role": "user", "content": "go on" }] })
}

/// What a client was told that went wrong: the status, and the code.
fn failure(answered: &Answered) -> (u16, String) {
    let told = match answered.status {
        200 => answered.events().pop().expect("an event"),
        _ => answered.json(),
    };
    assert!(told["error"]["message"].is_string(), "{answered:?}");
    (answered.status, told["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// Memory that the daemon holds, in kB.
fn resident(facade: &Facade) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", facade.lab.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The most memory that the daemon has held yet, in kB.
fn peak(facade: &Facade) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", facade.lab.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// An answer with a status, and a body that says that it is JSON.
fn answer(status: u16, body: &str) -> Answer {
    let head =
        format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    Answer::raw(format!("{head}{body}").as_bytes())
}

/// What came of each request to a model, in a word, and nothing where it went well.
async fn ends(facade: &Facade, wanted: usize) -> Vec<Option<String>> {
    let owner = facade.lab.owner();
    let answered = || async {
        let page = owner.records(&RecordQuery { from: None, limit: Some(1_000) }).await.unwrap();
        page.records.into_iter().filter(|record| record.kind == "model.answered").collect::<Vec<_>>()
    };
    until(|| async { answered().await.len() >= wanted }).await;
    let failed = |record: &Record| Some(record.body.as_ref()?.get("failed")?.as_str()?.to_owned());
    answered().await.iter().map(failed).collect()
}

// ---- Providers ------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_of_a_provider_ends_in_an_error_and_is_not_kept_in_memory() {
    let facade = Facade::start("").await;
    let line = || Answer::drip(&format!("{EVENTS_HEAD}data: "), &vec![b'a'; 1 << 20], 100);
    let heads = || Answer::drip("HTTP/1.1 200 OK\r\n", b"x-more: and more, and more, and more\r\n", 1_000_000);
    let before = resident(&facade);
    for model in ["gpt", "palyra/coder"] {
        facade.model.will(line()).will(heads());
        let answered = facade.post("/v1/chat/completions", &chat(model, true)).await;
        let (status, code) = failure(&answered);
        assert_eq!((code.as_str(), answered.body.contains("longer than")), ("bad_answer", true), "{model} {status}");
        let answered = facade.post("/v1/chat/completions", &chat(model, false)).await;
        // Too much, or for too long, whichever it is first.
        assert!([502, 504].contains(&failure(&answered).0), "{model}: {answered:?}");
    }
    let grown = resident(&facade).saturating_sub(before);
    assert!(grown < 120_000, "{grown} kB more than before");
}

/// A list of zeros was a tree of many times its length, and an id was held once for every event behind it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_takes_about_as_much_memory_as_its_length_whatever_it_is_made_of() {
    let facade = Facade::start("").await;
    let before = peak(&facade);
    let zeros = "0,".repeat(7 << 19);
    facade.model.will(answer(200, &format!("{{\"usage\":[{zeros}{zeros}{zeros}0]}}")));
    assert_eq!(facade.post("/v1/chat/completions", &chat("gpt", false)).await.status, 200);
    let events = format!("{EVENTS_HEAD}data: {{\"choices\":[{zeros}0],\"usage\":[{zeros}0]}}\n\ndata: [DONE]\n\n");
    facade.model.will(Answer::raw(events.as_bytes())).will(Answer::raw(events.as_bytes()));
    let answered = facade.post("/v1/chat/completions", &chat("gpt", true)).await;
    assert!(answered.body.ends_with("data: [DONE]\n\n"), "{}", answered.body.len());
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    assert_eq!(failure(&answered), (502, "bad_answer".to_owned()));
    let (id, many) = ("x".repeat(1 << 20), "data: {}\n\n".repeat(2_000));
    facade.model.will(Answer::raw(format!("{EVENTS_HEAD}id: {id}\n{many}data: [DONE]\n\n").as_bytes()));
    let answered = facade.post("/v1/chat/completions", &chat("gpt", true)).await;
    assert_eq!(answered.body.matches("data: {}\n\n").count(), 2_000);
    let grown = peak(&facade).saturating_sub(before);
    assert!(grown < 250_000, "{grown} kB more than before");
}

/// A body can end as it should in the middle of what it says.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_responses_that_is_cut_off_is_an_error() {
    let facade = Facade::start("").await;
    let event = |kind: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\"}}\n\n");
    let (begun, failed) = (event("response.created"), event("response.failed"));
    let body = json!({ "model": "gpt", "stream": true, "input": "go on" });
    let ask = async |events: &str| {
        facade.model.will(Answer::raw(format!("{EVENTS_HEAD}{events}").as_bytes()));
        facade.post("/v1/responses", &body).await
    };
    for cut in [begun.clone(), format!("{begun}data: {{\"type\":\"response.comp"), String::new()] {
        assert_eq!(failure(&ask(&cut).await), (200, "bad_answer".to_owned()), "{cut}");
    }
    for whole in [event("response.completed"), event("response.incomplete"), failed.clone(), event("error")] {
        let told = format!("{begun}{whole}");
        assert_eq!(ask(&told).await.body, told);
    }
    assert_eq!(ask(&format!("{failed}{begun}")).await.body, failed);
    let ends = ends(&facade, 8).await;
    let (bad, theirs) = (Some("bad_answer".to_owned()), Some("provider_failed".to_owned()));
    let expected = [bad.clone(), bad.clone(), bad, None, None, theirs.clone(), theirs.clone(), theirs];
    assert_eq!(ends, expected);
}

/// Clients of OpenAI's API act on the code and the name of a parameter.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_says_against_a_request_keeps_the_words_that_clients_act_on() {
    let facade = Facade::start("").await;
    let told = async |status: u16, code: Value, param: Value| {
        let error = json!({ "error": { "message": "no", "type": "x", "code": code, "param": param } });
        facade.model.will(answer(status, &error.to_string()));
        let answered = facade.post("/v1/chat/completions", &chat("gpt", false)).await;
        let error = answered.json()["error"].clone();
        assert!(answered.head.contains("x-should-retry: false"), "{answered:?}");
        (answered.status, error["code"].clone(), error["param"].clone())
    };
    for (status, code, param) in [
        (400, "context_length_exceeded", "messages"),
        (400, "previous_response_not_found", "previous_response_id"),
        (404, "model_not_found", "model"),
        (422, "invalid_value", "messages[0].role"),
    ] {
        assert_eq!(told(status, json!(code), json!(param)).await, (status, json!(code), json!(param)));
    }
    let odd = [json!(null), json!(400), json!(""), json!("two words"), json!("a\u{202e}b"), json!("x".repeat(200))];
    for odd in odd {
        assert_eq!(told(400, odd.clone(), odd.clone()).await, (400, json!("bad_request"), json!(null)), "{odd}");
    }
    assert_eq!(told(404, json!(null), json!("model")).await, (404, json!("model_not_found"), json!("model")));
    // Of other refusals the message alone is told.
    assert_eq!(told(409, json!("x"), json!("y")).await, (400, json!("bad_request"), json!(null)));
}

/// A stream is read as far as it says that it is done, which is before its body ends.
#[tokio::test(flavor = "multi_thread")]
async fn failures_with_whole_streams_in_between_do_not_add_up() {
    let facade = Facade::start("").await;
    let config = facade.lab.home().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("breaker_failures = 100", "breaker_failures = 2")).unwrap();
    facade.lab.owner().reload().await.unwrap();
    for model in ["gpt", "palyra/coder", "gpt", "palyra/coder"] {
        facade.model.will(Answer::error(500, "server_error", "oops", "oops")).will(Answer::text("all done"));
        let answered = facade.post("/v1/chat/completions", &chat(model, false)).await;
        assert_eq!(failure(&answered).0, 502, "{answered:?}");
        let answered = facade.post("/v1/chat/completions", &chat(model, true)).await;
        assert!(answered.body.ends_with("data: [DONE]\n\n"), "{model}: {answered:?}");
    }
    assert_eq!(facade.model.unused(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_answer_nobody_waited_for_is_not_recorded_as_gone_well() {
    let facade = Facade::start("").await;
    let refused = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [{ "index": 7 }] } }] });
    facade.model.will(Answer::text("hello")).will(Answer::events(&[refused])).will(Answer::hang());
    facade.post("/v1/chat/completions", &chat("palyra/coder", true)).await;
    facade.post("/v1/chat/completions", &chat("palyra/coder", true)).await;
    let unheard = facade.begin("/v1/chat/completions", &chat("palyra/coder", true)).await;
    until(|| async { facade.model.requests().len() == 3 }).await;
    drop(unheard);
    let told = Answer::text("a long story").in_pieces(4).then_hang();
    let ends_before = ends(&facade, 3).await;
    facade.model.will(told);
    let mut stream = facade.begin("/v1/chat/completions", &chat("palyra/coder", true)).await;
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("\"content\":\"a l") {
        assert!(stream.read_buf(&mut read).await.unwrap() > 0, "{}", String::from_utf8_lossy(&read));
    }
    drop(stream);
    let word = |word: &str| Some(word.to_owned());
    assert_eq!(ends_before, [None, word("bad_answer"), word("abandoned")]);
    assert_eq!(ends(&facade, 4).await[3], word("abandoned"));
}

/// Each piece comes in time, and yet nothing ever comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_holds_nobody_with_comments_or_with_drops() {
    let facade = Facade::start("").await;
    let often = Duration::from_millis(300);
    let comments = || Answer::drip(EVENTS_HEAD, b": still here\n\n", 10_000).slowly(often);
    let drops = || Answer::drip(&format!("{EVENTS_HEAD}data: {{\""), b"x", 10_000).slowly(often);
    let whole = || {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10000\r\n\r\n{\"";
        Answer::drip(head, b"x", 10_000).slowly(often)
    };
    // Whichever of these each gets, it is no event.
    facade.model.will(comments()).will(comments()).will(drops()).will(drops());
    let begun = Instant::now();
    let asked = [("gpt", true), ("gpt", true), ("palyra/coder", true), ("palyra/coder", false)];
    let asking = asked.map(|(model, streams)| {
        let (facade, body) = (&facade, chat(model, streams));
        async move { facade.post("/v1/chat/completions", &body).await }
    });
    for answered in futures_util::future::join_all(asking).await {
        assert_eq!(failure(&answered).1, "provider_timed_out", "{answered:?}");
    }
    facade.model.will(whole());
    let answered = facade.post("/v1/chat/completions", &chat("gpt", false)).await;
    assert_eq!(failure(&answered), (504, "provider_timed_out".to_owned()), "{answered:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    until(|| async { facade.model.left() == 5 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_another_form_than_was_asked_for_is_an_error() {
    let facade = Facade::start("").await;
    let with = |head: &str, body: &str| Answer::raw(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").as_bytes());
    let cases = [
        with("content-type: text/html\r\ncontent-length: 13", "<h1>Hi</h1>\r\n"),
        with("content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 4", "\u{1f}\u{8b}x"),
        with("content-type: application/json\r\ncontent-length: 1000", "{}"),
        with("content-type: text/event-stream\r\ncontent-encoding: br\r\ncontent-length: 4", "data"),
        with("location: http://169.254.169.254/\r\ncontent-length: 0", "").header("x", "y"),
        Answer::raw(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
        Answer::raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
        Answer::malformed_events(),
    ];
    for model in ["gpt", "palyra/coder"] {
        for (index, answer) in cases.iter().enumerate() {
            facade.model.will(answer.clone());
            let answered = facade.post("/v1/chat/completions", &chat(model, true)).await;
            let (status, code) = failure(&answered);
            let is_told = ["bad_answer", "provider_unavailable"].contains(&code.as_str());
            assert!(is_told && [200, 502].contains(&status), "{model} {index}: {answered:?}");
            assert!(!answered.body.contains("[DONE]"), "{model} {index}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_no_model_makes_are_an_error_and_nothing_is_run_of_them() {
    let facade = Facade::start("").await;
    let piece = |index: Value| {
        let call = json!({ "index": index, "id": "a", "type": "function",
            "function": { "name": "fs_write", "arguments": "{\"path\":\"a\",\"content\":\"x\"}" } });
        json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": null }] })
    };
    let many: Vec<Value> = (0..10_000).map(|index| piece(json!(index))).collect();
    for chunks in
        [vec![piece(json!(-1))], vec![piece(json!("0"))], vec![piece(json!(5))], vec![piece(json!(0.5))], many]
    {
        facade.model.will(Answer::events(&chunks));
        let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
        assert_eq!(failure(&answered), (502, "bad_answer".to_owned()), "{answered:?}");
    }
    assert_eq!(std::fs::read_dir(facade.lab.workspace()).unwrap().count(), 0);
}

/// A provider that gives all calls one id must not have the answer to one taken for that to another.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_same_id_are_told_apart() {
    let facade = Facade::start("").await;
    std::fs::write(facade.lab.workspace().join("one.txt"), "first").unwrap();
    std::fs::write(facade.lab.workspace().join("two.txt"), "second").unwrap();
    let call = |index: u32, path: &str| {
        let arguments = json!({ "path": path }).to_string();
        json!({ "index": index, "id": "same", "type": "function", "function": { "name": "fs_read", "arguments": arguments } })
    };
    let chunk = json!({ "choices": [{ "index": 0, "finish_reason": "tool_calls",
        "delta": { "tool_calls": [call(0, "one.txt"), call(1, "two.txt")] } }] });
    facade.model.will(Answer::events(&[chunk])).will(Answer::text("read"));
    let answered = facade.post("/v1/responses", &json!({ "model": "palyra/coder", "input": "read both" })).await;
    let response = answered.json();
    let outputs: Vec<&Value> =
        response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "mcp_call").collect();
    assert!(outputs.iter().all(|item| item["status"] == "completed"), "{response}");
    assert!(outputs[0]["output"].as_str().unwrap().contains("first"), "{response}");
    assert!(outputs[1]["output"].as_str().unwrap().contains("second"), "{response}");
    let told = facade.model.requests()[1].json();
    let ids: Vec<&Value> = told["messages"].as_array().unwrap().iter().map(|one| &one["tool_call_id"]).collect();
    let ids: Vec<&Value> = ids.into_iter().filter(|id| id.is_string()).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_behind_the_end_is_not_listened_to_and_figures_that_make_no_sense_are_none() {
    let facade = Facade::start("").await;
    let say =
        |text: &str| json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": u64::MAX, "completion_tokens": u64::MAX } });
    let odd = json!({ "choices": [], "usage": { "prompt_tokens": -7, "completion_tokens": "many" } });
    let behind =
        format!("data: {}\n\ndata: {usage}\n\ndata: [DONE]\n\ndata: {}\n\ndata: [DONE]\n\n", say("all"), say("more"));
    for model in ["gpt", "palyra/coder"] {
        facade.model.will(Answer::drip(EVENTS_HEAD, behind.as_bytes(), 1));
        let answered = facade.post("/v1/chat/completions", &chat(model, true)).await;
        assert!(answered.body.contains("\"all\"") && !answered.body.contains("\"more\""), "{model}: {}", answered.body);
        assert_eq!(answered.body.matches("[DONE]").count(), 1, "{model}");
    }
    facade.model.will(Answer::events(&[say("all"), usage])).will(Answer::events(&[say("all"), odd]));
    for (expected, total) in [(json!(u64::MAX), json!(u64::MAX)), (json!(0), json!(0))] {
        let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await.json();
        assert_eq!((&answered["usage"]["prompt_tokens"], &answered["usage"]["total_tokens"]), (&expected, &total));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_as_deep_as_can_be_are_told_to_the_model_and_not_run() {
    let facade = Facade::start("").await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    facade
        .model
        .will(Answer::tools([Call::with_text("fs_read", &format!("{{\"path\":{deep}}}"))]))
        .will(Answer::text("I give up"));
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    assert_eq!(answered.json()["choices"][0]["message"]["content"], "I give up", "{}", answered.body);
    let told = facade.model.requests()[1].json();
    let told = told["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(told.contains("bad_arguments"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_goes_in_circles_ends() {
    let facade = Facade::start("").await;
    // Two things in turns, both of which are refused each time.
    let (nothing, missing) =
        (Answer::tool("no_such_tool", &json!({})), Answer::tool("fs_read", &json!({ "path": "none" })));
    for answer in [&nothing, &missing, &nothing, &missing, &nothing] {
        facade.model.will(answer.clone());
    }
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    let limited = answered.json()["palyra"]["limited"].as_str().unwrap().to_owned();
    assert!(limited.contains("3 times"), "{limited}");
    // The same with something that is done each time.
    std::fs::write(facade.lab.workspace().join("note.txt"), "round and round").unwrap();
    for _ in 0..3 {
        facade.model.will(Answer::tool("fs_list", &json!({ "path": "." })));
        facade.model.will(Answer::tool("fs_read", &json!({ "path": "note.txt" })));
    }
    let answered = facade.post("/v1/chat/completions", &chat("palyra/coder", false)).await;
    let limited = answered.json()["palyra"]["limited"].as_str().unwrap().to_owned();
    assert!(limited.contains("6 turns"), "{limited}");
    assert_eq!(facade.model.unused(), 0);
}

/// A provider repeats the key that it was asked with.
#[tokio::test(flavor = "multi_thread")]
async fn no_client_learns_the_key_of_a_provider() {
    const KEY: &str = "provider-key-that-nobody-may-see-1234";
    let mut facade = Facade::start("").await;
    let owner = facade.lab.owner();
    owner.put_secret(&SecretRef::parse("global/lab").unwrap(), &value(KEY)).await.unwrap();
    let config = facade.lab.home().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("name = \"lab\"\nbase_url", "name = \"lab\"\nkey = \"global/lab\"\nbase_url"))
        .unwrap();
    owner.reload().await.unwrap();
    let message = format!("Incorrect API key provided: Bearer {KEY}");
    for model in ["gpt", "palyra/coder"] {
        for status in [400, 401, 403, 404, 429, 500] {
            facade.model.will(Answer::error(status, "error", "error", &message).header("x-key", KEY));
            let answered = facade.post("/v1/chat/completions", &chat(model, false)).await;
            assert!(answered.status >= 400 && answered.status != 401, "{answered:?}");
            assert!(!answered.body.contains(KEY) && !answered.head.contains(KEY), "{answered:?}");
        }
    }
    for model in ["gpt", "palyra/coder"] {
        for streams in [false, true] {
            let responses = json!({ "model": model, "stream": streams, "input": "go on" });
            for (path, body) in [("/v1/chat/completions", chat(model, streams)), ("/v1/responses", responses)] {
                facade.model.will(Answer::text(&format!("I was asked with {KEY}.")).in_pieces(1));
                let answered = facade.post(path, &body).await;
                assert!(answered.status == 200 && answered.body.contains("asked with [the key]."), "{answered:?}");
                assert!(!answered.body.contains(KEY), "{answered:?}");
            }
        }
        facade.model.will(Answer::text("a story").then_error(&message));
        let answered = facade.post("/v1/chat/completions", &chat(model, true)).await;
        assert!(answered.body.contains("Incorrect API key provided"), "{answered:?}");
        assert!(!answered.body.contains(KEY), "{answered:?}");
    }
    let asked = facade.model.requests();
    let bearer = format!("Bearer {KEY}");
    assert!(asked.iter().all(|one| one.header("authorization") == Some(bearer.as_str())), "{asked:?}");
    facade.lab.stop();
    let is_there = |(path, bytes): &(std::path::PathBuf, Vec<u8>)| {
        bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()).then(|| path.clone())
    };
    let places: Vec<_> = facade.lab.written().iter().filter_map(is_there).collect();
    assert!(places.is_empty(), "{places:?}");
}

// ---- Clients --------------------------------------------------------------------------------------------------------

/// Sends bytes as they are behind a head of a chat, and says what comes back until the connection ends or nothing more comes.
async fn raw(facade: &Facade, head: &str, body: &[u8]) -> String {
    let local = facade.lab.local();
    let mut stream = TcpStream::connect(local).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {local}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n{head}\r\n\r\n",
        facade.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // It may be refused before all of it has left.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ =
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.expect("an end in time");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_makes_no_sense_is_refused_and_nobody_is_asked() {
    let facade = Facade::start("").await;
    let deep = format!("{{\"model\":\"gpt\",\"messages\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let bodies: [&[u8]; 9] = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{\"model\":\"gpt\",\"model\":\"palyra/coder\",\"messages\":[]}",
        b"{\"model\":\"gpt\",\"messages\":[\xff\xfe\"\xc0\x80\"]}",
        b"{\"model\":\"gpt\",\"messages\":[]} and more",
        b"{\"model\":\"\\ud800\",\"messages\":[]}",
        deep.as_bytes(),
    ];
    for body in bodies {
        let answer = raw(&facade, &format!("content-length: {}\r\nconnection: close", body.len()), body).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
        assert!(answer.contains("\"error\":{") && answer.contains("x-should-retry: false"), "{shown}: {answer}");
    }
    assert!(facade.model.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_measure_is_refused_at_once_and_not_kept() {
    let facade = Facade::start("").await;
    let before = resident(&facade);
    let begun = Instant::now();
    let answer = raw(&facade, "content-length: 104857600", b"{").await;
    assert!(answer.starts_with("HTTP/1.1 413") && begun.elapsed() < Duration::from_secs(5), "{answer}");
    // Without saying how long it is.
    let piece = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    let answer = raw(&facade, "transfer-encoding: chunked", piece.repeat(100).as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    // As many values as there is room for, each of which takes many times the bytes that spell it.
    for (one, model) in [("0,", "gpt"), ("{\"\":0},", "palyra/coder")] {
        let body = format!("{{\"model\":\"{model}\",\"messages\":[{}0]}}", one.repeat((16 << 20) / one.len() - 50));
        let answer = raw(&facade, &format!("content-length: {}", body.len()), body.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("262144 values"), "{answer}");
        assert!(answer.contains("x-should-retry: false"), "{answer}");
    }
    let grown = resident(&facade).saturating_sub(before);
    assert!(grown < 80_000, "{grown} kB more than before");
    assert!(facade.model.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_is_not_true_harms_nobody_else() {
    let facade = Facade::start("").await;
    let body = chat("gpt", false).to_string();
    // Longer than what comes: it never begins.
    let answer = raw(&facade, &format!("content-length: {}", body.len() + 10), body.as_bytes()).await;
    assert!(!answer.contains("200 OK"), "{answer}");
    // Shorter: what is left over is no request.
    let answer = raw(&facade, &format!("content-length: {}", body.len() - 10), body.as_bytes()).await;
    assert!(!answer.contains("200 OK"), "{answer}");
    for both in [
        "content-length: 5\r\ncontent-length: 7",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "content-length: -1",
    ] {
        let answer = raw(&facade, both, b"0\r\n\r\n").await;
        assert!(!answer.contains("200 OK"), "{both}: {answer}");
    }
    assert!(facade.model.requests().is_empty());
    // Two requests at once are answered in turn.
    facade.model.will(Answer::text("one")).will(Answer::text("two"));
    let length = body.len();
    let second = format!(
        "{body}POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}",
        facade.lab.local(),
        facade.token
    );
    let local = facade.lab.local();
    let mut stream = TcpStream::connect(local).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {local}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        facade.token
    );
    stream.write_all(format!("{head}{second}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (one, two) = (answer.find("\"one\"").unwrap(), answer.find("\"two\"").unwrap());
    assert!(one < two, "{answer}");
}

/// Every field of a request in every wrong type: an answer, or a refusal, and never a failure of the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_the_wrong_type_are_refused_or_left_to_the_provider() {
    let facade = Facade::start("").await;
    facade.model.always(Answer::text("hello"));
    let new = NewToken {
        per_minute: Some(100_000),
        ..token("agent:fast", &["compat.chat.create", "compat.responses.create"])
    };
    let fast = facade.lab.owner().mint_token(&new).await.unwrap().secret;
    let fields = [
        "model",
        "messages",
        "input",
        "stream",
        "stream_options",
        "n",
        "tools",
        "tool_choice",
        "temperature",
        "store",
        "metadata",
        "functions",
        "instructions",
        "previous_response_id",
        "conversation",
        "background",
        "prompt",
        "text",
        "reasoning",
        "max_output_tokens",
        "no_such_field",
    ];
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!("x"),
        json!([]),
        json!([[1]]),
        json!({}),
        json!({ "x": [null] }),
    ];
    for (path, said) in [("/v1/chat/completions", "messages"), ("/v1/responses", "input")] {
        for field in fields {
            for value in &values {
                let mut body = json!({ "model": "palyra/coder", said: [{ "role": "user", "content": "go on" }] });
                body[field] = value.clone();
                let answered = facade.ask_as(&fast, ("POST", path), Some(&body)).await;
                assert!(answered.status < 500, "{path} {field} {value}: {answered:?}");
                if answered.status >= 400 {
                    let told = answered.json();
                    assert!(told["error"]["message"].is_string() && told["error"]["code"].is_string(), "{told}");
                    assert!(
                        answered.head.contains("x-should-retry: false"),
                        "{path} {field} {value}: {}",
                        answered.head
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_ends_the_request_to_the_provider() {
    let facade = Facade::start("[transcripts]\nenabled = false").await;
    let answers = [Answer::hang(), Answer::text("a long story").in_pieces(8).then_hang()];
    let mut expected = 0;
    for model in ["gpt", "palyra/coder"] {
        for streams in [false, true] {
            for answer in &answers {
                facade.model.will(answer.clone());
                let asked = facade.model.requests().len();
                let body = chat(model, streams);
                let asking = facade.post("/v1/chat/completions", &body);
                tokio::select! {
                    answered = asking => panic!("{answered:?}"),
                    () = until(|| async { facade.model.requests().len() > asked }) => {}
                }
                expected += 1;
                // Before the daemon would lose its patience with the provider.
                let begun = Instant::now();
                until(|| async { facade.model.left() == expected }).await;
                assert!(begun.elapsed() < Duration::from_millis(1_500), "{model} {streams} {:?}", begun.elapsed());
            }
        }
    }
}
