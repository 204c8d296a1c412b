//! One provider: sends requests, again where that is safe, and not at all while the provider is left alone.
//!
//! Guarantees: no header is sent but those named here; no redirection is followed, so a key goes nowhere else; what is passed on as an
//! answer is one, and is not compressed; connections are kept and used again.

use std::{fmt, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri,
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, RETRY_AFTER, USER_AGENT,
    },
};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use palyra_types::{Clock, Entropy, word::words};
use tokio::time::{sleep, timeout};

use crate::{
    answer::{Answer, AnswerBody},
    base_url::{BaseUrl, BaseUrlError},
    breaker::{Breaker, BreakerState},
    config::Settings,
    connect::Connector,
    diagnosis::before_head,
    error::{Phase, ProviderError, Said},
    key::Key,
    retry::retry_after,
    trust::Trust,
};

/// Where time and randomness come from.
#[derive(Clone)]
pub struct World {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

words! {
    /// What is asked of a provider.
    pub enum Endpoint ("endpoint") {
        /// The next message of a conversation.
        ChatCompletions = "chat/completions",
        /// The next message of a conversation, in the newer form.
        Responses = "responses",
        /// Vectors for texts.
        Embeddings = "embeddings",
        /// Which models there are. It has no body.
        Models = "models",
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// What is asked for.
    pub endpoint: Endpoint,
    /// The JSON that says it.
    pub body: Bytes,
    /// What the provider lets in.
    pub key: Option<&'a Key>,
    /// Whether the answer is wanted as a stream of events.
    pub streams: bool,
}

/// One provider.
pub struct Provider {
    base_url: BaseUrl,
    addresses: Addresses,
    settings: Settings,
    world: World,
    client: Client<Connector, Full<Bytes>>,
    breaker: Arc<Breaker>,
}

impl Provider {
    /// A provider at this address. Nothing is sent yet.
    ///
    /// # Errors
    /// When nothing can be appended to the address.
    pub fn new(base_url: &BaseUrl, settings: Settings, trust: &Trust, world: World) -> Result<Self, BaseUrlError> {
        let connector = Connector::new(trust, base_url.is_encrypted(), settings.connect);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(connector);
        let breaker = Breaker::new(settings.breaker_failures, settings.breaker_open, world.clock.clone());
        Ok(Self {
            base_url: base_url.clone(),
            addresses: Addresses::new(base_url)?,
            settings,
            world,
            client,
            breaker: Arc::new(breaker),
        })
    }

    /// Sends a request, again where that is safe, and gives what comes back.
    ///
    /// # Errors
    /// When there is no answer, or every answer said that the provider is overloaded or failed.
    pub async fn send(&self, request: Request<'_>) -> Result<Answer, ProviderError> {
        self.send_counting(request).await.1
    }

    /// Where it is.
    #[must_use]
    pub const fn base_url(&self) -> &BaseUrl {
        &self.base_url
    }

    /// Whether it is asked at all.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.breaker.state()
    }

    /// As [`Self::send`], and tells how often the request was sent.
    pub(crate) async fn send_counting(&self, request: Request<'_>) -> (u32, Result<Answer, ProviderError>) {
        let headers = headers(&request);
        let mut waited = Duration::ZERO;
        let mut attempt = 0;
        let mut last = None;
        loop {
            let pass = match self.breaker.admit() {
                Ok(pass) => pass,
                // What failed says more than that it failed too often.
                Err(until) => return (attempt, Err(last.unwrap_or(ProviderError::BreakerOpen { until }))),
            };
            attempt += 1;
            let failure = match self.attempt(&request, headers.clone()).await {
                Ok(answer) => {
                    if answer.status.is_server_error() {
                        pass.failed()
                    } else {
                        pass.alive()
                    }
                    return (attempt, Ok(Answer { attempts: attempt, ..answer }));
                }
                Err(failure) => failure,
            };
            let again = failure.is_retryable() && attempt <= self.settings.retries;
            // The provider may have closed a kept connection while the request was on its way. That says nothing about it, and needs no wait.
            if again && attempt == 1 && matches!(failure, ProviderError::BrokenOff { .. }) {
                drop(pass);
                last = Some(failure);
                continue;
            }
            if failure.counts() {
                pass.failed()
            } else {
                pass.alive()
            }
            let backoff = self.settings.backoff;
            let wait = backoff.wait(attempt, failure.retry_after(), waited, &*self.world.entropy);
            match wait {
                Some(wait) if again && self.breaker.state() == BreakerState::Closed => {
                    sleep(wait).await;
                    waited += wait;
                    last = Some(failure);
                }
                _ => return (attempt, Err(failure)),
            }
        }
    }

    /// Sends a request once.
    async fn attempt(&self, request: &Request<'_>, headers: HeaderMap) -> Result<Answer, ProviderError> {
        let body = Full::new(request.body.clone());
        let mut sent = http::Request::new(body);
        *sent.method_mut() = if request.endpoint == Endpoint::Models { Method::GET } else { Method::POST };
        *sent.uri_mut() = self.addresses.of(request.endpoint).clone();
        *sent.headers_mut() = headers;
        let within = self.settings.answer;
        let answer = timeout(within, self.client.request(sent))
            .await
            .map_err(|_| ProviderError::TimedOut { what: Phase::Head, within })?
            .map_err(|error| before_head(&error))?;
        self.read(answer).await
    }

    /// Tells an answer from what is none.
    async fn read(&self, answer: http::Response<Incoming>) -> Result<Answer, ProviderError> {
        let (head, body) = answer.into_parts();
        let (status, headers) = (head.status, head.headers);
        if status.is_redirection() {
            return Err(ProviderError::Redirected { status });
        }
        if status.is_informational() {
            return Err(ProviderError::BadAnswer { reason: "it changes the protocol, which nobody asked for" });
        }
        let is_plain =
            |encoding: &HeaderValue| encoding.is_empty() || encoding.as_bytes().eq_ignore_ascii_case(b"identity");
        if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
            return Err(ProviderError::Compressed);
        }
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| retry_after(value, &*self.world.clock));
        // That a failure is told to its end forgives nothing.
        let breaker = (!status.is_server_error()).then(|| self.breaker.clone());
        let body = AnswerBody::new(body, self.settings.idle, self.settings.max_answer_bytes, breaker);
        if may_go_better(status) {
            // Reading it to its end also keeps the connection.
            let said = timeout(SAID_WITHIN, body.collect(MOST_SAID)).await;
            let said = said.ok().and_then(Result::ok).map(Said).unwrap_or_default();
            return Err(ProviderError::Unavailable { status, retry_after, said });
        }
        let content_type = short_text(&headers, &CONTENT_TYPE);
        let request_id = short_text(&headers, &REQUEST_ID);
        Ok(Answer { status, content_type, retry_after, request_id, attempts: 1, body })
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("base_url", &self.base_url.as_str()).finish_non_exhaustive()
    }
}

/// The address of each endpoint, made once.
struct Addresses {
    chat: Uri,
    responses: Uri,
    embeddings: Uri,
    models: Uri,
}

impl Addresses {
    fn new(base: &BaseUrl) -> Result<Self, BaseUrlError> {
        let below = |endpoint: Endpoint| base.below(endpoint.as_str());
        Ok(Self {
            chat: below(Endpoint::ChatCompletions)?,
            responses: below(Endpoint::Responses)?,
            embeddings: below(Endpoint::Embeddings)?,
            models: below(Endpoint::Models)?,
        })
    }

    const fn of(&self, endpoint: Endpoint) -> &Uri {
        match endpoint {
            Endpoint::ChatCompletions => &self.chat,
            Endpoint::Responses => &self.responses,
            Endpoint::Embeddings => &self.embeddings,
            Endpoint::Models => &self.models,
        }
    }
}

/// All headers that are sent, besides the host and the length.
fn headers(request: &Request<'_>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(5);
    if request.endpoint != Endpoint::Models {
        headers.insert(CONTENT_TYPE, JSON);
    }
    headers.insert(ACCEPT, if request.streams { EVENTS } else { JSON });
    // What is compressed would have to be unpacked here, with all that it may unpack to.
    headers.insert(ACCEPT_ENCODING, IDENTITY);
    headers.insert(USER_AGENT, AGENT);
    if let Some(bearer) = request.key.and_then(Key::header) {
        headers.insert(AUTHORIZATION, bearer);
    }
    headers
}

/// A header that is visible ASCII and short, which is all that is passed on.
fn short_text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    (1..=LONGEST_TEXT).contains(&text.len()).then(|| text.to_owned())
}

/// Whether it may go better the next time. Servers behind proxies fail with statuses of the proxies' own, such as 520 to 524 and 529. One
/// that cannot do what is asked, or does not speak this HTTP, will not learn it meanwhile.
fn may_go_better(status: StatusCode) -> bool {
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => false,
        status => status.is_server_error(),
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("palyra/", env!("CARGO_PKG_VERSION")));
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LONGEST_TEXT: usize = 256;

/// What is read of a refusal that is not passed on as an answer, and for how long.
const MOST_SAID: usize = 64 << 10;
const SAID_WITHIN: Duration = Duration::from_secs(2);

/// How many connections are kept, and for how long.
const MOST_IDLE: usize = 32;
const KEEP_IDLE: Duration = Duration::from_secs(60);
