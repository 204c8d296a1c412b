//! What is made of servers that fail and misbehave.

use std::time::{Duration, Instant};

use http::StatusCode;
use palyra_provider::{Phase, ProviderError, Settings};

use crate::{
    lab::{SECRET, ask, deserted, provider, provider_with, settings, text},
    scripted::{Act, Scripted},
};

/// The error of a server that follows a script, and how often it was asked.
async fn failure(script: impl IntoIterator<Item = Act>) -> (ProviderError, usize) {
    let server = Scripted::start(script).await;
    let error = match ask(&provider(&server.url())).await {
        Ok(answer) => answer.body.whole().await.unwrap_err(),
        Err(error) => error,
    };
    (error, server.asked())
}

#[tokio::test]
async fn nobody_there_is_told_after_some_attempts() {
    let provider = provider(&deserted());
    let error = ask(&provider).await.unwrap_err();
    assert!(matches!(&error, ProviderError::Connect { reason } if reason.contains("refused")), "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_and_not_asked_again() {
    let begun = Instant::now();
    let within = settings().answer;
    assert_eq!(failure([Act::silence()]).await, (ProviderError::TimedOut { what: Phase::Head, within }, 1));
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_server_that_stops_midway_is_given_up() {
    let within = settings().idle;
    let timed_out = ProviderError::TimedOut { what: Phase::Body, within };
    let half = Act::head("200 OK", &["content-length: 10"]).say("12345").hang();
    assert_eq!(failure([half]).await, (timed_out.clone(), 1));
    let streamed = Act::head("200 OK", &["transfer-encoding: chunked"]).chunk("12345").hang();
    assert_eq!(failure([streamed]).await, (timed_out, 1));
}

#[tokio::test]
async fn a_slow_stream_that_goes_on_is_not_given_up() {
    let slow = (0..6).fold(Act::head("200 OK", &["content-length: 6"]), |act, _| act.pause(60).say("x"));
    let server = Scripted::start([slow]).await;
    assert_eq!(text(&provider(&server.url())).await, "xxxxxx");
}

#[tokio::test]
async fn a_connection_that_ends_midway_is_an_error_and_not_a_short_answer() {
    let broken = ProviderError::BrokenOff { during: Phase::Body };
    let half = Act::head("200 OK", &["content-length: 10"]).say("12345").close();
    assert_eq!(failure([half]).await, (broken.clone(), 1));
    let streamed = Act::head("200 OK", &["transfer-encoding: chunked"]).chunk("12345").close();
    assert_eq!(failure([streamed.clone()]).await, (broken, 1));

    let server = Scripted::start([streamed]).await;
    let mut body = ask(&provider(&server.url())).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "12345");
    assert!(body.next().await.unwrap().is_err());
    assert!(body.next().await.is_none());
}

#[tokio::test]
async fn pieces_that_are_cut_wrongly_are_refused() {
    let bad = Act::head("200 OK", &["transfer-encoding: chunked"]).say("zz\r\nwhat\r\n").close();
    let (error, _) = failure([bad]).await;
    assert!(matches!(error, ProviderError::BadAnswer { .. }), "{error}");
}

#[tokio::test]
async fn what_is_not_http_is_refused_and_not_asked_again() {
    for garbage in ["SSH-2.0-OpenSSH_9.6\r\n\r\n", "\0\u{1}\u{2}garbage\r\n\r\n", "HTTP/1.1 abc\r\n\r\n"] {
        let (error, asked) = failure([Act::raw(garbage).close()]).await;
        assert!(matches!(error, ProviderError::BadAnswer { .. }), "{error}");
        assert_eq!(asked, 1);
    }
}

#[tokio::test]
async fn a_head_without_end_is_given_up() {
    let endless = Act::raw(&format!("HTTP/1.1 200 OK\r\nx: {}\r\n", "a".repeat(1 << 20)));
    let (error, _) = failure([endless.hang()]).await;
    assert!(matches!(error, ProviderError::BadAnswer { .. }), "{error}");
}

#[tokio::test]
async fn a_redirection_is_not_followed() {
    let target = Scripted::start([Act::ok("{}")]).await;
    let location = format!("location: {}", target.url());
    for (text, status) in
        [("301 Moved Permanently", StatusCode::MOVED_PERMANENTLY), ("307 x", StatusCode::TEMPORARY_REDIRECT)]
    {
        let moved = Act::reply(text, &[&location], "");
        assert_eq!(failure([moved]).await, (ProviderError::Redirected { status }, 1));
    }
    assert_eq!(target.accepted(), 0);
}

#[tokio::test]
async fn a_compressed_answer_is_refused() {
    let packed = Act::reply("200 OK", &["content-encoding: gzip"], "xxxx");
    assert_eq!(failure([packed]).await, (ProviderError::Compressed, 1));
    let plain = Scripted::start([Act::reply("200 OK", &["content-encoding: identity"], "xxxx")]).await;
    assert_eq!(text(&provider(&plain.url())).await, "xxxx");
}

#[tokio::test]
async fn an_answer_is_held_up_to_the_limit() {
    let limit = settings().max_answer_bytes;
    let (fits, exceeds) = ("x".repeat(limit), "x".repeat(limit + 1));
    assert_eq!(failure([Act::ok(&exceeds)]).await.0, ProviderError::TooLarge { limit });
    let streamed = Act::head("200 OK", &["transfer-encoding: chunked"]).chunk(&fits).pause(10).chunk("x").chunk("");
    assert_eq!(failure([streamed]).await.0, ProviderError::TooLarge { limit });
    // What is announced is believed before it comes.
    let huge = Act::head("200 OK", &["content-length: 99999999999"]).hang();
    assert_eq!(failure([huge]).await.0, ProviderError::TooLarge { limit });

    let server = Scripted::start([Act::ok(&fits)]).await;
    assert_eq!(text(&provider(&server.url())).await, fits);
    let body = ask(&provider(&server.url())).await.unwrap().body;
    assert_eq!(body.collect(10).await, Err(ProviderError::TooLarge { limit: 10 }));
}

#[tokio::test]
async fn an_overloaded_server_is_given_the_time_that_it_asks_for() {
    let busy = Act::reply("429 Too Many Requests", &["retry-after: 1"], "{\"error\":\"slow down\"}");
    let server = Scripted::start([busy, Act::ok("done")]).await;
    let begun = Instant::now();
    let answer = ask(&provider(&server.url())).await.unwrap();
    assert_eq!((answer.attempts, answer.body.whole().await.unwrap()), (2, "done".into()));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!((server.accepted(), server.seen(0).body), (1, server.seen(1).body));
}

#[tokio::test]
async fn a_server_that_asks_for_too_much_patience_is_not_asked_again() {
    let busy = Act::reply("429 Too Many Requests", &["retry-after: 60"], "{\"error\":\"quota\"}");
    let (error, asked) = failure([busy]).await;
    let ProviderError::Unavailable { status, retry_after, said } = error else { panic!("{error}") };
    assert_eq!((status, retry_after, asked), (StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(60)), 1));
    assert_eq!(said.0, "{\"error\":\"quota\"}");
}

#[tokio::test]
async fn what_may_go_better_is_sent_again_and_the_rest_is_not() {
    for status in ["408 x", "429 x", "500 x", "502 x", "503 x", "504 x", "520 x", "524 x", "529 x"] {
        let server = Scripted::start([Act::reply(status, &[], "no"), Act::ok("yes")]).await;
        assert_eq!((text(&provider(&server.url())).await.as_str(), server.asked()), ("yes", 2), "{status}");
        let (error, asked) = failure([Act::reply(status, &[], "no")]).await;
        assert!(matches!(error, ProviderError::Unavailable { .. }), "{error}");
        assert_eq!(asked, 3, "{status}");
    }
    for status in ["501 x", "505 x"] {
        let server = Scripted::start([Act::reply(status, &[], "no")]).await;
        assert_eq!((text(&provider(&server.url())).await.as_str(), server.asked()), ("no", 1), "{status}");
    }
}

#[tokio::test]
async fn a_refusal_that_never_ends_holds_nobody_up() {
    let busy = Act::head("503 x", &["content-length: 10"]).say("12345").hang();
    let settings = Settings { retries: 0, ..settings() };
    let server = Scripted::start([busy]).await;
    let begun = Instant::now();
    let error = ask(&provider_with(&server.url(), settings).0).await.unwrap_err();
    assert!(matches!(&error, ProviderError::Unavailable { said, .. } if said.0.is_empty()), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_replaced() {
    // The first is closed while nobody uses it; the second only when the next request is on its way.
    let script = [Act::ok("a").close(), Act::ok("b"), Act::hang_up(), Act::ok("c")];
    let server = Scripted::start(script).await;
    let provider = provider(&server.url());
    for expected in ["a", "b", "c"] {
        assert_eq!(text(&provider).await, expected);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((server.asked(), server.accepted()), (4, 3));
}

#[tokio::test]
async fn a_server_that_always_hangs_up_is_given_up() {
    let broken = ProviderError::BrokenOff { during: Phase::Head };
    assert_eq!(failure([Act::hang_up()]).await, (broken, 3));
}

#[tokio::test]
async fn no_error_shows_the_key_or_what_was_said() {
    let scripts = [
        Act::silence(),
        Act::hang_up(),
        Act::raw("garbage sk-do-not-print-me\r\n\r\n").close(),
        Act::reply("307 x", &["location: http://127.0.0.1/?sk-do-not-print-me"], ""),
        Act::reply("200 x", &["content-encoding: sk-do-not-print-me"], ""),
        Act::reply("503 x", &[], SECRET),
        Act::reply("429 sk-do-not-print-me", &["retry-after: sk-do-not-print-me"], SECRET),
        Act::head("200 x", &["content-length: 99"]).say(SECRET).close(),
        Act::head("200 x", &["content-length: 99"]).say(SECRET).hang(),
        Act::head("200 x", &["transfer-encoding: chunked"]).say("sk-do-not-print-me\r\n").close(),
        Act::ok(&SECRET.repeat(100)),
    ];
    for script in scripts {
        let (error, _) = failure([script]).await;
        let printed = format!("{error} {error:?} {error:#?} {}", error.advice());
        assert!(!printed.contains("sk-"), "{printed}");
    }
    let absent = ask(&provider(&deserted())).await.unwrap_err();
    assert!(!format!("{absent} {absent:?}").contains("sk-"));
}
