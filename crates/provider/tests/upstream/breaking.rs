//! A provider that fails too often is left alone, and found again.

use std::{sync::Arc, time::Duration};

use palyra_provider::{BreakerState, ProviderError, Settings};
use palyra_types::Timestamp;

use crate::{
    lab::{START, ask, deserted, provider_with, settings, stream, text},
    scripted::{Act, Scripted},
};

fn brittle() -> Settings {
    Settings { retries: 0, breaker_failures: 2, ..settings() }
}

fn until(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(START + seconds * 1_000)
}

fn busy() -> Act {
    Act::reply("503 x", &[], "busy")
}

#[tokio::test]
async fn it_is_left_alone_after_failures_and_one_answer_brings_it_back() {
    let server = Scripted::start([busy(), busy(), Act::ok("back")]).await;
    let (provider, clock) = provider_with(&server.url(), brittle());
    for _ in 0..2 {
        assert!(matches!(ask(&provider).await, Err(ProviderError::Unavailable { .. })));
    }
    assert_eq!(provider.breaker(), BreakerState::Open { until: until(30) });
    assert_eq!(ask(&provider).await.unwrap_err(), ProviderError::BreakerOpen { until: until(30) });
    clock.advance(29_000);
    assert_eq!(ask(&provider).await.unwrap_err(), ProviderError::BreakerOpen { until: until(30) });
    assert_eq!(server.asked(), 2);
    clock.advance(1_000);
    assert_eq!((provider.breaker(), text(&provider).await.as_str()), (BreakerState::HalfOpen, "back"));
    assert_eq!((provider.breaker(), server.asked()), (BreakerState::Closed, 3));
}

#[tokio::test]
async fn one_request_at_a_time_finds_out_and_a_failure_begins_anew() {
    let slowly = Act::raw("").pause(100).say("HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n");
    let server = Scripted::start([busy(), busy(), slowly]).await;
    let (provider, clock) = provider_with(&server.url(), brittle());
    for _ in 0..2 {
        assert!(ask(&provider).await.is_err());
    }
    clock.advance(30_000);
    let provider = Arc::new(provider);
    let probing = tokio::spawn({
        let provider = provider.clone();
        async move { ask(&provider).await.unwrap_err() }
    });
    while server.asked() < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(ask(&provider).await.unwrap_err(), ProviderError::BreakerOpen { until: until(31) });
    assert!(matches!(probing.await.unwrap(), ProviderError::Unavailable { .. }));
    assert_eq!(ask(&provider).await.unwrap_err(), ProviderError::BreakerOpen { until: until(60) });
    assert_eq!(server.asked(), 3);
}

#[tokio::test]
async fn a_request_that_is_given_up_keeps_nobody_out() {
    let server = Scripted::start([busy(), busy(), Act::silence(), Act::ok("back")]).await;
    let (provider, clock) = provider_with(&server.url(), brittle());
    for _ in 0..2 {
        assert!(ask(&provider).await.is_err());
    }
    clock.advance(30_000);
    assert!(tokio::time::timeout(Duration::from_millis(50), ask(&provider)).await.is_err());
    assert_eq!(text(&provider).await, "back");
}

#[tokio::test]
async fn refusals_of_requests_count_for_nothing() {
    for status in ["400 x", "401 x", "404 x", "429 x", "408 x"] {
        let server = Scripted::start([Act::reply(status, &[], "no")]).await;
        let (provider, _clock) = provider_with(&server.url(), brittle());
        for _ in 0..4 {
            if let Ok(answer) = ask(&provider).await {
                answer.body.whole().await.unwrap();
            }
        }
        assert_eq!((provider.breaker(), server.asked()), (BreakerState::Closed, 4), "{status}");
    }
}

#[tokio::test]
async fn whatever_speaks_against_a_provider_counts() {
    let half = Act::head("200 x", &["content-length: 10"]).say("12345");
    for act in [
        busy(),
        Act::reply("529 x", &[], "overloaded"),
        Act::silence(),
        Act::hang_up(),
        Act::raw("garbage\r\n\r\n").close(),
        half.clone().close(),
        half.hang(),
    ] {
        let server = Scripted::start([act.clone()]).await;
        let (provider, _clock) = provider_with(&server.url(), brittle());
        for _ in 0..2 {
            if let Ok(answer) = ask(&provider).await {
                let _ = answer.body.whole().await;
            }
        }
        assert_eq!(provider.breaker(), BreakerState::Open { until: until(30) }, "{act:?}");
    }
    let (provider, _clock) = provider_with(&deserted(), brittle());
    for _ in 0..2 {
        assert!(ask(&provider).await.is_err());
    }
    assert_eq!(provider.breaker(), BreakerState::Open { until: until(30) });
}

#[tokio::test]
async fn a_whole_answer_forgives_failures_before_it() {
    let server = Scripted::start([busy(), Act::ok("a"), busy(), Act::ok("b")]).await;
    let (provider, _clock) = provider_with(&server.url(), brittle());
    for _ in 0..2 {
        assert!(ask(&provider).await.is_err());
        text(&provider).await;
    }
    assert_eq!(provider.breaker(), BreakerState::Closed);
}

/// Whoever reads a stream stops where it says that it is done, before its body has ended.
#[tokio::test]
async fn a_stream_that_says_that_it_is_done_forgives_failures_before_it() {
    let script = (0..8).map(|index| if index % 2 == 0 { busy() } else { Act::stream().chunk("") });
    let server = Scripted::start(script).await;
    let (provider, _clock) = provider_with(&server.url(), brittle());
    for _ in 0..4 {
        assert!(ask(&provider).await.is_err());
        stream(&provider).await.unwrap();
    }
    assert_eq!((provider.breaker(), server.asked()), (BreakerState::Closed, 8));
}

/// A stream that breaks off behind its end was whole all the same.
#[tokio::test]
async fn what_comes_behind_the_end_of_a_stream_speaks_against_nobody() {
    let server = Scripted::start([Act::stream().close()]).await;
    let (provider, _clock) = provider_with(&server.url(), brittle());
    for _ in 0..4 {
        stream(&provider).await.unwrap();
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    assert_eq!(provider.breaker(), BreakerState::Closed);
}

#[tokio::test]
async fn attempts_end_when_the_provider_is_left_alone() {
    let server = Scripted::start([busy()]).await;
    let (provider, _clock) = provider_with(&server.url(), Settings { retries: 5, ..brittle() });
    let error = ask(&provider).await.unwrap_err();
    assert!(matches!(error, ProviderError::Unavailable { .. }), "{error}");
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_meanwhile_counts_for_nothing() {
    let server = Scripted::start([Act::ok("a"), Act::hang_up(), Act::ok("b"), Act::hang_up()]).await;
    let (provider, _clock) = provider_with(&server.url(), Settings { retries: 1, breaker_failures: 1, ..settings() });
    assert_eq!((text(&provider).await, text(&provider).await), ("a".to_owned(), "b".to_owned()));
    assert_eq!(provider.breaker(), BreakerState::Closed);
    assert!(ask(&provider).await.is_err());
    assert_eq!(provider.breaker(), BreakerState::Open { until: until(30) });
}
