//! That the model says what its script says, byte for byte where clients are particular.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{Answer, Call, Endpoint, ModelServer};

#[tokio::test]
async fn a_streamed_completion_adds_up_to_the_whole_one() {
    let server = ModelServer::start().await;
    let answer = || Answer::text("Grüße, world").in_pieces(4).with_usage(3, 5);
    server.will(answer()).will(answer());
    let whole = ask(&server, "/v1/chat/completions", &json!({ "model": "m" })).await.json();
    assert_eq!(whole["choices"][0]["message"]["content"], "Grüße, world");
    assert_eq!(whole["usage"]["total_tokens"], 8);
    let asked = json!({ "model": "m", "stream": true, "stream_options": { "include_usage": true } });
    let chunks = ask(&server, "/v1/chat/completions", &asked).await.events();
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Grüße, world");
    let content = chunks.iter().filter(|chunk| chunk["choices"][0]["delta"]["content"].is_string()).count();
    assert_eq!(content, 1 + 4, "an empty one with the role, and four pieces");
    let [.., finish, usage, done] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(finish["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
    assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
    assert_eq!(done, "[DONE]");
}

#[tokio::test]
async fn calls_in_parallel_are_told_apart_by_their_index() {
    let server = ModelServer::start().await;
    let calls = [Call::new("first", &json!({ "path": "/a" })), Call::new("second", &json!({ "path": "/bb" }))];
    for answer in [Answer::tools(calls.clone()), Answer::tools(calls.clone()).interleaved()] {
        server.will(answer.in_pieces(5));
        let asked = json!({ "model": "m", "stream": true });
        let chunks = ask(&server, "/v1/chat/completions", &asked).await.events();
        let deltas = chunks.iter().filter_map(|chunk| chunk.pointer("/choices/0/delta/tool_calls/0"));
        let deltas: Vec<&Value> = deltas.collect();
        for (index, call) in calls.iter().enumerate() {
            let own: Vec<&&Value> = deltas.iter().filter(|delta| delta["index"] == json!(index)).collect();
            let arguments: String = own.iter().filter_map(|delta| delta["function"]["arguments"].as_str()).collect();
            assert_eq!((own[0]["function"]["name"].as_str(), arguments), (Some(&*call.name), call.arguments.clone()));
        }
        assert_ne!(deltas[0]["id"], deltas.iter().find(|delta| delta["index"] == 1).unwrap()["id"]);
    }
}

#[tokio::test]
async fn the_events_of_a_response_are_numbered_and_in_the_order_of_the_api() {
    let server = ModelServer::start().await;
    let answer = || Answer::tool("look", &json!({})).saying("wait").in_pieces(1);
    server.will(answer()).will(answer());
    let events = ask(&server, "/v1/responses", &json!({ "model": "m", "stream": true })).await.events();
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        types,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers: Vec<Option<u64>> = events.iter().map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..13).map(Some).collect::<Vec<_>>());
    let places: Vec<Option<u64>> = events.iter().map(|event| event["output_index"].as_u64()).collect();
    assert_eq!(places[2..12], [[Some(0); 6].as_slice(), [Some(1); 4].as_slice()].concat());
    let whole = ask(&server, "/v1/responses", &json!({ "model": "m" })).await.json();
    let last = &events.last().unwrap()["response"]["output"];
    assert_eq!(last[1]["name"], whole["output"][1]["name"]);
    assert_eq!(last[0]["content"], whole["output"][0]["content"]);
    assert_ne!(last[1]["call_id"], whole["output"][1]["call_id"], "a call has an id of its own");
}

#[tokio::test]
async fn an_answer_for_ever_calls_a_new_tool_each_time_once_the_queue_is_empty() {
    let server = ModelServer::start().await;
    server.always(Answer::tool("again", &json!({}))).will(Answer::text("first"));
    let mut ids = Vec::new();
    for _ in 0..3 {
        let whole = ask(&server, "/v1/chat/completions", &json!({ "model": "m" })).await.json();
        ids.push(whole["choices"][0]["message"]["tool_calls"][0]["id"].clone());
    }
    assert_eq!(ids, [json!(null), json!("call_2_0"), json!("call_3_0")]);
}

#[tokio::test]
async fn a_request_that_nothing_was_scripted_for_is_an_error_that_says_so() {
    let server = ModelServer::start().await;
    let reply = ask(&server, "/v1/responses", &json!({ "model": "m" })).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (500, &json!("script_is_over")));
    let reply = ask(&server, "/v1/completions", &json!({})).await;
    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn an_error_has_its_status_its_body_and_its_headers() {
    let server = ModelServer::start().await;
    server.will(Answer::too_many(2));
    let reply = ask(&server, "/v1/chat/completions", &json!({ "model": "m", "stream": true })).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("2")));
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
}

#[tokio::test]
async fn what_is_malformed_is_malformed_whole_and_streamed() {
    let server = ModelServer::start().await;
    for path in ["/v1/chat/completions", "/v1/responses"] {
        server.will(Answer::malformed_json()).will(Answer::malformed_json()).will(Answer::invalid_utf8());
        server.will(Answer::invalid_utf8()).will(Answer::malformed_events());
        let (whole, streamed) = (json!({ "model": "m" }), json!({ "model": "m", "stream": true }));
        let half = ask(&server, path, &whole).await;
        assert_eq!((half.status, serde_json::from_slice::<Value>(&half.body).is_err()), (200, true));
        let events = ask(&server, path, &streamed).await.events();
        assert_eq!(events.iter().filter(|event| event.as_str().is_some_and(|text| text != "[DONE]")).count(), 1);
        for asked in [&whole, &streamed] {
            let broken = ask(&server, path, asked).await.body;
            assert!(std::str::from_utf8(&broken).is_err());
        }
        let garbage = ask(&server, path, &whole).await;
        assert_eq!(garbage.header("content-type"), Some("text/event-stream; charset=utf-8"));
    }
    assert_eq!(server.unused(), 0);
}

#[tokio::test]
async fn what_breaks_off_has_begun_and_has_no_end() {
    let server = ModelServer::start().await;
    for stream in [true, false] {
        let asked = json!({ "model": "m", "stream": stream });
        server.will(Answer::text("a long story").then_disconnect());
        let said = String::from_utf8(exchange(&server, "/v1/chat/completions", &asked).await).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.contains("chatcmpl-"), "{said}");
        assert!(!said.contains("[DONE]") && !said.ends_with("0\r\n\r\n") && !said.ends_with('}'), "{said}");
    }
    server.will(Answer::text("never").then_error("it broke"));
    let events = ask(&server, "/v1/chat/completions", &json!({ "stream": true })).await.events();
    assert_eq!(events.last().unwrap()["error"]["message"], "it broke");
}

#[tokio::test]
async fn what_hangs_is_silent_until_somebody_leaves() {
    let server = ModelServer::start().await;
    for (answer, begins) in [(Answer::hang(), false), (Answer::text("a long story").then_hang(), true)] {
        let before = server.left();
        server.will(answer);
        let mut stream = send(&server, "/v1/chat/completions", &json!({ "stream": true })).await;
        let mut said = Vec::new();
        let waited = timeout(Duration::from_millis(200), stream.read_to_end(&mut said)).await;
        assert_eq!((waited.is_err(), said.is_empty()), (true, !begins));
        assert_eq!(server.left(), before);
        drop(stream);
        timeout(Duration::from_secs(10), async {
            while server.left() == before {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn huge_arguments_arrive_in_full() {
    let server = ModelServer::start().await;
    server.will(Answer::huge_tool("write", 10 << 20));
    let chunks = ask(&server, "/v1/chat/completions", &json!({ "stream": true })).await.events();
    let pieces =
        chunks.iter().filter_map(|chunk| chunk.pointer("/choices/0/delta/tool_calls/0/function/arguments")?.as_str());
    let arguments: Value = serde_json::from_str(&pieces.collect::<String>()).unwrap();
    assert_eq!(arguments["text"].as_str().unwrap().len(), 10 << 20);
}

#[tokio::test]
async fn vectors_come_as_numbers_or_packed_and_one_for_each_input() {
    let server = ModelServer::start().await;
    server.will_at(Endpoint::Embeddings, Answer::vectors(vec![vec![1.5, -2.0]]));
    let packed = ask(&server, "/v1/embeddings", &json!({ "input": "a", "encoding_format": "base64" })).await.json();
    let bytes = BASE64_STANDARD.decode(packed["data"][0]["embedding"].as_str().unwrap()).unwrap();
    assert_eq!(bytes, [1.5_f32.to_le_bytes(), (-2.0_f32).to_le_bytes()].concat());
    let made_up = ask(&server, "/v1/embeddings", &json!({ "input": ["a", "bb"] })).await.json();
    assert_eq!(made_up["data"][1]["embedding"], json!([2.0, 98.0, 0.5]));
    let tokens = ask(&server, "/v1/embeddings", &json!({ "input": [1, 2] })).await.json();
    assert_eq!(tokens["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn requests_are_kept_as_they_came() {
    let server = ModelServer::start().await;
    server.will(Answer::text("hi"));
    ask(&server, "/v1/chat/completions", &json!({ "model": "m", "extra": [1] })).await;
    let [request] = &server.requests()[..] else { panic!("one request") };
    assert_eq!((&*request.method, &*request.path), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("AUTHORIZATION"), Some("Bearer sk-test"));
    assert_eq!(request.json(), json!({ "model": "m", "extra": [1] }));
}

/// What came back.
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The data of all events; what is no JSON is text.
    fn events(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
    }
}

async fn ask(server: &ModelServer, path: &str, body: &Value) -> Reply {
    let said = exchange(server, path, body).await;
    let end = said.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(said[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = &said[end + 4..];
    let mut body = Vec::new();
    if head.contains("chunked") {
        loop {
            let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            body.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 2 + size + 2..];
            if size == 0 {
                break;
            }
        }
    } else {
        body.extend_from_slice(rest);
    }
    Reply { status, head, body }
}

async fn exchange(server: &ModelServer, path: &str, body: &Value) -> Vec<u8> {
    let mut stream = send(server, path, body).await;
    let mut said = Vec::new();
    timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await.unwrap().unwrap();
    said
}

async fn send(server: &ModelServer, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: lab\r\nAuthorization: Bearer sk-test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}
