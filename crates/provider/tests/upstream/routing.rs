//! Who is asked when a provider cannot be used.

use hyper::body::Bytes;
use palyra_provider::{Answered, ModelName, ProviderError, Providers, RouteError, Settings};

use crate::{
    lab::{CHAT, Keyring, SECRET, deserted, providers, settings, whole},
    scripted::{Act, Scripted},
};

fn two(one: &str, two: &str) -> String {
    format!(
        "[[provider]]\nname = \"one\"\nbase_url = \"{one}\"\nkey = \"global/openai\"\nmodels = {{ fast = \"fast-1\" }}\n\
         fallback = [\"two\"]\n\
         [[provider]]\nname = \"two\"\nbase_url = \"{two}\"\nmodels = {{ fast = \"fast-2\" }}\nfallback = [\"one\"]\n"
    )
}

async fn send(providers: &Providers) -> Result<Answered, RouteError> {
    providers.send("fast", CHAT, body, &Keyring).await
}

fn body(model: &ModelName) -> Bytes {
    format!("{{\"model\":\"{model}\"}}").into()
}

#[tokio::test]
async fn a_provider_that_fails_three_times_is_followed_by_the_next() {
    let (first, second) = (
        Scripted::start([Act::reply("503 x", &[], "busy")]).await,
        Scripted::start([Act::ok("from the second")]).await,
    );
    let providers = providers(&two(&first.url(), &second.url()), settings());
    let answered = send(&providers).await.unwrap();
    assert_eq!((answered.provider.as_str(), answered.model.as_str(), answered.attempts), ("two", "fast-2", 4));
    assert_eq!(answered.failures.len(), 1);
    assert_eq!(
        answered.failures[0].to_string(),
        "`one` (model `fast-1`, asked 3 times): the provider answered 503 Service Unavailable"
    );
    assert_eq!(whole(answered.answer).await, "from the second");
    assert_eq!((first.asked(), second.asked()), (3, 1));
    assert_eq!(
        (first.seen(2).body.as_str(), second.seen(0).body.as_str()),
        ("{\"model\":\"fast-1\"}", "{\"model\":\"fast-2\"}")
    );
    // SECURITY: the key of one provider is not for the other.
    assert!(first.seen(0).headers.contains(&format!("authorization: Bearer {SECRET}")));
    assert!(!second.seen(0).headers.iter().any(|header| header.contains(SECRET)));
}

#[tokio::test]
async fn a_provider_that_answers_is_followed_by_nobody() {
    let (first, second) = (
        Scripted::start([Act::reply("401 Unauthorized", &[], "who are you")]).await,
        Scripted::start([Act::ok("from the second")]).await,
    );
    let answered = send(&providers(&two(&first.url(), &second.url()), settings())).await.unwrap();
    assert_eq!((answered.provider.as_str(), answered.answer.status.as_u16(), answered.attempts), ("one", 401, 1));
    assert_eq!(second.accepted(), 0);
}

#[tokio::test]
async fn nobody_there_and_being_left_alone_lead_to_the_next() {
    let second = Scripted::start([Act::ok("from the second")]).await;
    let settings = Settings { breaker_failures: 3, ..settings() };
    let providers = providers(&two(&deserted(), &second.url()), settings);
    let answered = send(&providers).await.unwrap();
    assert!(matches!(answered.failures[0].error, ProviderError::Connect { .. }));
    assert_eq!(answered.attempts, 4);
    whole(answered.answer).await;
    let answered = send(&providers).await.unwrap();
    assert!(matches!(answered.failures[0].error, ProviderError::BreakerOpen { .. }));
    assert_eq!((answered.attempts, answered.failures[0].attempts), (1, 0));
}

#[tokio::test]
async fn when_nobody_answers_all_are_told() {
    let (first, second) = (
        Scripted::start([Act::reply("500 x", &[], SECRET)]).await,
        Scripted::start([Act::reply("429 x", &["retry-after: 60"], "later")]).await,
    );
    let error = send(&providers(&two(&first.url(), &second.url()), settings())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no provider answers for the model `fast`: \
         `one` (model `fast-1`, asked 3 times): the provider answered 500 Internal Server Error; \
         `two` (model `fast-2`, asked once): the provider answered 429 Too Many Requests"
    );
    assert!(!format!("{error:?}").contains(SECRET));
    let RouteError::AllFailed(all) = error else { panic!("{error}") };
    assert_eq!((all.failures().count(), all.last.provider.as_str()), (2, "two"));
    assert!(matches!(&all.last.error, ProviderError::Unavailable { said, .. } if said.0 == "later"));
}

#[tokio::test]
async fn a_provider_whose_key_cannot_be_had_is_not_asked() {
    let (first, second) = (Scripted::start([Act::ok("no")]).await, Scripted::start([Act::ok("yes")]).await);
    let text = two(&first.url(), &second.url()).replace("global/openai", "global/lost");
    let answered = send(&providers(&text, settings())).await.unwrap();
    assert_eq!((answered.provider.as_str(), &answered.failures[0].error), ("two", &ProviderError::NoKey));
    assert_eq!(first.accepted(), 0);
}

#[tokio::test]
async fn an_unknown_model_is_asked_of_nobody() {
    let server = Scripted::start([Act::ok("no")]).await;
    let providers = providers(&two(&server.url(), &server.url()), settings());
    let error = providers.send("fsat", CHAT, body, &Keyring).await.unwrap_err();
    assert_eq!(error.to_string(), "no provider has a model `fsat`; did you mean `fast`?");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_request_can_be_sent_from_another_task() {
    let server = Scripted::start([Act::ok("yes")]).await;
    let providers = providers(&two(&server.url(), &server.url()), settings());
    let answered = tokio::spawn(async move { send(&providers).await.unwrap() }).await.unwrap();
    assert_eq!(whole(answered.answer).await, "yes");
}
