//! Streamable HTTP: how a server is spoken with that somebody else runs.
//!
//! Guarantees: requests go to the configured address and nowhere else, so a redirect is an error; credentials are asked for when they are
//! sent, and held no longer; of an answer no more is read than a message may have. A refusal says its status and the beginning of its text,
//! without the secrets that the request was sent with. Streams that end are begun again after pauses that grow.
//! Does not: log in anywhere.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::{client::legacy::Client as Pool, rt::TokioExecutor};
use palyra_types::visible::visible;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
        StreamableHttpError, StreamableHttpPostResponse,
    },
};
use sse_stream::Sse;

use crate::{
    connect::Connector,
    events::events,
    fate::{Fate, Trouble},
    hiding::{Hiding, cut},
    pace::Pace,
    server_url::ServerUrl,
    weight::{MOST_MESSAGE_BYTES, MOST_VALUES, Weight},
};

/// The way to a server.
#[derive(Clone)]
pub struct HttpLink {
    url: ServerUrl,
    pool: Pool<Connector, Full<Bytes>>,
    credentials: Arc<dyn Credentials>,
    fate: Fate,
    /// Of all clones, as every stream that begins again is begun by one.
    pace: Arc<Pace>,
}

/// Gives what a request is sent with.
pub trait Credentials: Send + Sync {
    /// The headers that hold secrets, as of now.
    ///
    /// # Errors
    /// When one of them cannot be had.
    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, NoCredential>;

    /// What the server says, with asterisks where it holds the value of one of these secrets.
    fn hide(&self, text: &str) -> String;
}

/// A secret that a request needs cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCredential(pub String);

impl HttpLink {
    /// The way to an address. Only whose certificates are trusted is spoken with.
    #[must_use]
    pub fn new(url: ServerUrl, trust: rustls::ClientConfig, credentials: Arc<dyn Credentials>) -> Self {
        let connector = Connector::new(trust, url.is_encrypted());
        let pool =
            Pool::builder(TokioExecutor::new()).pool_max_idle_per_host(4).http1_max_headers(100).build(connector);
        Self { url, pool, credentials, fate: Fate::default(), pace: Arc::default() }
    }

    /// What takes the secrets of requests out of answers.
    pub(crate) fn hiding(&self) -> Hiding {
        Hiding::of(Arc::clone(&self.credentials))
    }

    pub(crate) fn transport(mut self, fate: &Fate) -> StreamableHttpClientTransport<Self> {
        self.fate = fate.clone();
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .max_sse_event_size(MOST_MESSAGE_BYTES)
            .reinit_on_expired_session(false);
        StreamableHttpClientTransport::with_client(self, config)
    }

    async fn send(&self, method: Method, body: Bytes, extra: HeaderMap) -> Result<Response<Incoming>, HttpTrouble> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.uri().clone();
        let headers = request.headers_mut();
        *headers = extra;
        for (name, mut value) in self.credentials.headers()? {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let sent = self.pool.request(request).await;
        let response = sent.map_err(|error| HttpTrouble::Unreachable(chain(&error)))?;
        if response.status().is_redirection() {
            return Err(HttpTrouble::Redirected(response.status().as_u16()));
        }
        Ok(response)
    }

    /// An answer of a kind that nobody reads.
    fn unexpected(&self, headers: &HeaderMap) -> StreamableHttpError<HttpTrouble> {
        let kind = said_kind(headers).map(|kind| visible(&self.credentials.hide(kind)));
        StreamableHttpError::UnexpectedContentType(kind)
    }

    /// The text of a refusal.
    async fn refusal(response: Response<Incoming>) -> (StatusCode, Bytes) {
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_REFUSAL).collect().await;
        (status, body.map(http_body_util::Collected::to_bytes).unwrap_or_default())
    }

    async fn message(&self, response: Response<Incoming>) -> Result<Bytes, HttpTrouble> {
        let body = Limited::new(response.into_body(), MOST_MESSAGE_BYTES).collect().await;
        let body = body.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => {
                self.fate.over(Trouble::LongMessage(MOST_MESSAGE_BYTES));
                HttpTrouble::Unreadable(format!("it is longer than {MOST_MESSAGE_BYTES} bytes"))
            }
            false => HttpTrouble::Unreadable(error.to_string()),
        })?;
        let body = body.to_bytes();
        if Weight::of(&body).is_too_much() {
            self.fate.over(Trouble::WideMessage(MOST_VALUES));
            return Err(HttpTrouble::Unreadable(format!("it has more than {MOST_VALUES} values")));
        }
        Ok(body)
    }

    async fn post(
        &self,
        message: &ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        others: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<HttpTrouble>> {
        let body = Bytes::from(serde_json::to_vec(message)?);
        let mut headers = with_session(others, session.as_deref())?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let response = self.send(Method::POST, body, headers).await.map_err(StreamableHttpError::Client)?;
        let status = response.status();
        let wants_answer = matches!(message, JsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            self.fate.over(Trouble::Failed("the server has forgotten the session".to_owned()));
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            let (status, text) = Self::refusal(response).await;
            return match legacy(message, session.is_some(), status, &text) {
                Some(answer) => Ok(answer),
                None => {
                    Err(StreamableHttpError::Client(HttpTrouble::refused(status, &text, self.credentials.as_ref())))
                }
            };
        }
        if !wants_answer {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let given = response.headers().get(SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        match kind(response.headers()) {
            Some(kind) if kind == EVENTS => {
                Ok(StreamableHttpPostResponse::Sse(events(response.into_body().into_data_stream(), most), given))
            }
            Some(kind) if kind == JSON => {
                let body = self.message(response).await.map_err(StreamableHttpError::Client)?;
                let message: ServerJsonRpcMessage = serde_json::from_slice(&body)?;
                Ok(StreamableHttpPostResponse::Json(message, given))
            }
            _ => Err(self.unexpected(response.headers())),
        }
    }

    async fn stream(
        &self,
        session: Option<Arc<str>>,
        last: Option<String>,
        others: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<HttpTrouble>> {
        let mut headers = with_session(others, session.as_deref())?;
        headers.insert(header::ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(last) = last {
            headers.insert(HeaderName::from_static("last-event-id"), text(&last)?);
        }
        // SECURITY: a server that ends every stream at once would have it begun in a loop.
        self.pace.turn().await;
        let response = self.send(Method::GET, Bytes::new(), headers).await.map_err(StreamableHttpError::Client)?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            StatusCode::NOT_FOUND if session.is_some() => Err(StreamableHttpError::SessionExpired),
            status if !status.is_success() => {
                let (status, text) = Self::refusal(response).await;
                Err(StreamableHttpError::Client(HttpTrouble::refused(status, &text, self.credentials.as_ref())))
            }
            _ => match kind(response.headers()) {
                Some(kind) if kind == EVENTS => Ok(events(response.into_body().into_data_stream(), most)),
                _ => Err(self.unexpected(response.headers())),
            },
        }
    }
}

impl StreamableHttpClient for HttpLink {
    type Error = HttpTrouble;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<HttpTrouble>> {
        self.post(&message, session, headers, MOST_MESSAGE_BYTES).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<HttpTrouble>> {
        self.post(&message, session, headers, most).await
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<HttpTrouble>> {
        let headers = with_session(headers, Some(&session))?;
        let sending = self.send(Method::DELETE, Bytes::new(), headers);
        match tokio::time::timeout(GOODBYE_WITHIN, sending).await {
            // Not every server lets sessions be ended; then it ends them itself.
            Ok(Ok(_)) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(StreamableHttpError::Client(error)),
        }
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<HttpTrouble>> {
        self.stream(session, last, headers, MOST_MESSAGE_BYTES).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<HttpTrouble>> {
        self.stream(session, last, headers, most).await
    }
}

/// A server of yesterday refuses the question that begins a conversation of today, some of them without saying which question. Whoever asked
/// must learn that it was this one, so that it goes on as yesterday.
fn legacy(
    message: &ClientJsonRpcMessage,
    has_session: bool,
    status: StatusCode,
    text: &[u8],
) -> Option<StreamableHttpPostResponse> {
    let JsonRpcMessage::Request(request) = message else { return None };
    let is_about_access = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let is_discovery = matches!(request.request, ClientRequest::DiscoverRequest(_));
    if has_session || !is_discovery || !status.is_client_error() || is_about_access {
        return None;
    }
    let error = match serde_json::from_slice(text) {
        Ok(ServerJsonRpcMessage::Error(error)) => error.error,
        _ => ErrorData::invalid_request(format!("HTTP {status}"), None),
    };
    Some(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, Some(request.id.clone())), None))
}

fn with_session(
    others: HashMap<HeaderName, HeaderValue>,
    session: Option<&str>,
) -> Result<HeaderMap, StreamableHttpError<HttpTrouble>> {
    let mut headers: HeaderMap = others.into_iter().collect();
    if let Some(session) = session {
        headers.insert(HeaderName::from_static(SESSION), text(session)?);
    }
    Ok(headers)
}

fn text(text: &str) -> Result<HeaderValue, StreamableHttpError<HttpTrouble>> {
    let unusable =
        |_| StreamableHttpError::Client(HttpTrouble::Unreadable("its session has an unusable name".to_owned()));
    HeaderValue::from_str(text).map_err(unusable)
}

fn kind(headers: &HeaderMap) -> Option<String> {
    said_kind(headers).map(str::to_ascii_lowercase)
}

fn said_kind(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut source = error.source();
    let mut last = error.to_string();
    while let Some(cause) = source {
        last = cause.to_string();
        source = cause.source();
    }
    last
}

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpTrouble {
    /// A secret cannot be had.
    #[error(transparent)]
    Credential(#[from] NoCredential),
    /// Nobody answers.
    #[error("nobody answers there: {}", visible(.0))]
    Unreachable(String),
    /// The server sends elsewhere.
    #[error("the server answered {0} and sends requests elsewhere, where they are not sent")]
    Redirected(u16),
    /// The server says no.
    #[error("the server answered {status}: {said}")]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of its text.
        said: String,
    },
    /// What came cannot be read.
    #[error("what the server answers cannot be read: {}", visible(.0))]
    Unreadable(String),
}

impl HttpTrouble {
    fn refused(status: StatusCode, text: &[u8], credentials: &dyn Credentials) -> Self {
        // SECURITY: secrets are found while they are whole, so before the text is cut.
        let said = cut(&credentials.hide(&String::from_utf8_lossy(text)), MOST_SAID);
        Self::Refused { status: status.as_u16(), said: visible(said.trim()) }
    }
}

const JSON: &str = "application/json";

const EVENTS: &str = "text/event-stream";

const SESSION: &str = "mcp-session-id";

const MOST_REFUSAL: usize = 64 << 10;

const MOST_SAID: usize = 300;

const GOODBYE_WITHIN: Duration = Duration::from_secs(2);
