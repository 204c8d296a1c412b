//! Providers with short times, and a clock that tests move.

use std::{sync::Arc, time::Duration};

use palyra_provider::{
    Answer, Ask, Backoff, BaseUrl, Endpoint, Key, Keys, Provider, ProviderError, ProviderSection, Providers, Request,
    Settings, Trust, World,
};
use palyra_types::{SecretRef, Timestamp, clock::ManualClock, entropy::SeededEntropy};
use serde::Deserialize;

/// What no message may hold.
pub(crate) const SECRET: &str = "sk-do-not-print-me";

/// 2026-03-02T09:30:00Z.
pub(crate) const START: i64 = 1_772_443_800_000;

pub(crate) const CHAT: Ask = Ask { endpoint: Endpoint::ChatCompletions, streams: false };

pub(crate) fn settings() -> Settings {
    let millis = Duration::from_millis;
    Settings {
        connect: millis(200),
        answer: millis(300),
        idle: millis(200),
        retries: 2,
        backoff: Backoff { first: millis(2), longest: millis(5), longest_asked: millis(1_500), total: millis(2_000) },
        breaker_failures: 100,
        breaker_open: Duration::from_secs(30),
        max_answer_bytes: 1_000,
    }
}

pub(crate) fn world() -> (World, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(START)));
    (World { clock: clock.clone(), entropy: Arc::new(SeededEntropy::new(1)) }, clock)
}

pub(crate) fn provider(url: &str) -> Provider {
    provider_with(url, settings()).0
}

pub(crate) fn provider_with(url: &str, settings: Settings) -> (Provider, Arc<ManualClock>) {
    let (world, clock) = world();
    let trust = Trust::of_nobody().unwrap();
    (Provider::new(&BaseUrl::parse(url).unwrap(), settings, &trust, world).unwrap(), clock)
}

pub(crate) async fn ask(provider: &Provider) -> Result<Answer, ProviderError> {
    let key = Key::parse(SECRET).unwrap();
    let body = "{\"model\":\"m\"}".into();
    let request = Request { endpoint: Endpoint::ChatCompletions, body, key: Some(&key), streams: false };
    provider.send(request).await
}

/// The text of an answer that has to come.
pub(crate) async fn text(provider: &Provider) -> String {
    whole(ask(provider).await.unwrap()).await
}

pub(crate) async fn whole(answer: Answer) -> String {
    String::from_utf8(answer.body.whole().await.unwrap().to_vec()).unwrap()
}

/// Reads a stream as far as it says that it is done, and no further.
pub(crate) async fn stream(provider: &Provider) -> Result<(), ProviderError> {
    let mut body = ask(provider).await?.body;
    assert_eq!(body.next().await.unwrap()?, "data: [DONE]\n\n");
    body.settle();
    assert!(body.next().await.is_none());
    Ok(())
}

/// An address where nobody listens: it was somebody's a moment ago.
pub(crate) fn deserted() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/v1", listener.local_addr().unwrap())
}

/// Providers of a configuration.
pub(crate) fn providers(text: &str, settings: Settings) -> Providers {
    #[derive(Deserialize)]
    struct File {
        provider: Vec<ProviderSection>,
    }
    let sections = toml::from_str::<File>(text).unwrap().provider;
    Providers::with_settings(&sections, &Trust::of_nobody().unwrap(), &world().0, |_| settings).unwrap()
}

/// Has one key.
pub(crate) struct Keyring;

impl Keys for Keyring {
    async fn key(&self, secret: &SecretRef) -> Option<Key> {
        (secret.name() == "openai").then(|| Key::parse(SECRET).unwrap())
    }
}
