//! What is sent, and what comes back when all goes well.

use std::time::Duration;

use http::StatusCode;
use palyra_provider::{Answer, Endpoint, Key, Request, sse::SseDecoder};

use crate::{
    lab::{SECRET, ask, provider, stream, text, whole},
    scripted::{Act, Scripted},
};

#[tokio::test]
async fn a_request_is_answered_and_only_named_headers_are_sent() {
    let answered = Act::reply("200 OK", &["content-type: application/json", "x-request-id: req_1"], "{\"a\":1}");
    let server = Scripted::start([answered]).await;
    let Answer { status, content_type, retry_after, request_id, attempts, body } =
        ask(&provider(&server.url())).await.unwrap();
    assert_eq!((status, attempts, retry_after), (StatusCode::OK, 1, None));
    assert_eq!((content_type.as_deref(), request_id.as_deref()), (Some("application/json"), Some("req_1")));
    assert_eq!(body.whole().await.unwrap(), "{\"a\":1}");

    let seen = server.seen(0);
    assert_eq!((seen.line.as_str(), seen.body.as_str()), ("POST /v1/chat/completions HTTP/1.1", "{\"model\":\"m\"}"));
    let host = server.url().replace("http://", "host: ").replace("/v1", "");
    assert_eq!(
        seen.headers,
        [
            "accept-encoding: identity",
            "accept: application/json",
            &format!("authorization: Bearer {SECRET}"),
            "content-length: 13",
            "content-type: application/json",
            &host,
            concat!("user-agent: palyra/", env!("CARGO_PKG_VERSION")),
        ]
    );
}

#[tokio::test]
async fn every_endpoint_has_its_path_and_models_are_only_read() {
    let server = Scripted::start([Act::ok("{}")]).await;
    let provider = provider(&format!("{}/", server.url()));
    for (index, (&endpoint, line)) in Endpoint::ALL
        .iter()
        .zip(["POST /v1/chat/completions", "POST /v1/responses", "POST /v1/embeddings", "GET /v1/models"])
        .enumerate()
    {
        let request = Request { endpoint, body: "".into(), key: None, streams: true };
        whole(provider.send(request).await.unwrap()).await;
        let seen = server.seen(index);
        assert_eq!(seen.line, format!("{line} HTTP/1.1"));
        assert!(seen.headers.contains(&"accept: text/event-stream".to_owned()));
        assert!(!seen.headers.iter().any(|header| header.starts_with("authorization")));
        let typed = seen.headers.iter().any(|header| header.starts_with("content-type"));
        assert_eq!(typed, endpoint != Endpoint::Models);
    }
}

#[tokio::test]
async fn a_stream_comes_piece_by_piece() {
    let streamed = Act::head("200 OK", &["content-type: text/event-stream", "transfer-encoding: chunked"])
        .chunk("data: one\n\nda")
        .pause(30)
        .chunk("ta: two\n\n")
        .pause(30)
        .chunk("data: [DONE]\n\n")
        .chunk("");
    let server = Scripted::start([streamed]).await;
    let provider = provider(&server.url());
    let key = Key::parse(SECRET).unwrap();
    let request = Request { endpoint: Endpoint::Responses, body: "{}".into(), key: Some(&key), streams: true };
    let mut answer = provider.send(request).await.unwrap();
    let (mut decoder, mut events, mut counts) = (SseDecoder::default(), Vec::new(), Vec::new());
    while let Some(piece) = answer.body.next().await {
        decoder.push(&piece.unwrap(), &mut events).unwrap();
        counts.push(events.len());
    }
    assert_eq!(counts, [1, 2, 3]);
    let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
    assert_eq!((data, decoder.is_midway()), (vec!["one", "two", "[DONE]"], false));
    assert!(answer.body.next().await.is_none());
    assert_eq!(text(&provider).await, "data: one\n\ndata: two\n\ndata: [DONE]\n\n");
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_refusal_is_passed_on_as_an_answer_at_once() {
    for status in ["400 Bad Request", "401 Unauthorized", "404 Not Found", "422 Unprocessable Content"] {
        let server = Scripted::start([Act::reply(status, &["retry-after: 5"], "no")]).await;
        let answer = ask(&provider(&server.url())).await.unwrap();
        assert!(status.starts_with(answer.status.as_str()));
        assert_eq!(answer.attempts, 1);
        assert_eq!(answer.retry_after, Some(Duration::from_secs(5)));
        assert_eq!((whole(answer).await.as_str(), server.asked()), ("no", 1));
    }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = Scripted::start([Act::ok("{}")]).await;
    let provider = provider(&server.url());
    for _ in 0..5 {
        assert_eq!(text(&provider).await, "{}");
    }
    assert_eq!((server.asked(), server.accepted()), (5, 1));
}

#[tokio::test]
async fn the_connection_of_a_stream_that_is_done_is_used_again_once_its_body_has_ended() {
    let server = Scripted::start([Act::stream().chunk("")]).await;
    let provider = provider(&server.url());
    for _ in 0..3 {
        stream(&provider).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((server.asked(), server.accepted()), (3, 1));
}

/// What stands behind the end is not read for ever, so that such a server does not hold connections.
#[tokio::test]
async fn a_stream_that_goes_on_behind_its_end_is_hung_up_on() {
    let much = "data: more\n\n".repeat(20_000);
    for act in [Act::stream().chunk(&much).chunk(""), Act::stream().hang()] {
        let server = Scripted::start([act, Act::ok("{}")]).await;
        let provider = provider(&server.url());
        stream(&provider).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(text(&provider).await, "{}");
        assert_eq!(server.accepted(), 2);
    }
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let server = Scripted::start([Act::head("200 OK", &["connection: close"]).say("all of it").close()]).await;
    assert_eq!(text(&provider(&server.url())).await, "all of it");
}
