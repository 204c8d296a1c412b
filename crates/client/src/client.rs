//! Asks a daemon: how a request is made, sent and its answer read. What can be asked is in `routes.rs`.

use std::{
    fmt,
    future::Future,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{self, HeaderValue},
};
use palyra_api::{ErrorBody, device::AUTHORITIES};
use palyra_types::{IdempotencyKey, Sha256Digest};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time;

use crate::{
    bearer::Bearer,
    connection::{Connections, InUse},
    endpoint::Endpoint,
    error::ClientError,
    stream::EventStream,
    transport::{CertificateError, DeviceKeys, Transport},
};

/// How long connecting and a short request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of an answer is read.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A client of one daemon. Clones share a connection. It is used within one runtime.
#[derive(Clone)]
pub struct Client {
    pub(crate) connections: Arc<Connections>,
    bearer: Option<Bearer>,
    patience: Duration,
    authorities: Arc<Mutex<Option<Sha256Digest>>>,
}

impl Client {
    /// A client of the daemon whose local listener is there.
    #[must_use]
    pub fn local(endpoint: Endpoint) -> Self {
        Self::over(Transport::Local(endpoint))
    }

    /// A client of the daemon whose control listener is at `host:port`, as the device that has these keys.
    ///
    /// # Errors
    /// When the keys cannot be used.
    pub fn control(address: &str, keys: DeviceKeys<'_>) -> Result<Self, CertificateError> {
        Transport::control(address, keys).map(Self::over)
    }

    /// The digest of the authorities that the daemon trusts, as its last answer told it. Only told over TLS.
    #[must_use]
    pub fn authorities_told(&self) -> Option<Sha256Digest> {
        *self.authorities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(transport: Transport) -> Self {
        let connections = Arc::new(Connections::new(transport));
        Self { connections, bearer: None, patience: PATIENCE, authorities: Arc::default() }
    }

    /// The same client, with a credential.
    #[must_use]
    pub fn with_bearer(self, bearer: Bearer) -> Self {
        Self { bearer: Some(bearer), ..self }
    }

    /// The same client, with another patience.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where it asks.
    #[must_use]
    pub fn address(&self) -> String {
        self.connections.transport.to_string()
    }

    /// Asks, and reads a whole answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, request: Ask<'_>) -> Result<T, ClientError> {
        let (status, body) = self.exchange(request).await?;
        if status.is_success() { read(&body) } else { Err(refusal(status, &body)) }
    }

    /// Asks for something that is answered with no more than that it was done.
    pub(crate) async fn tell(&self, request: Ask<'_>) -> Result<(), ClientError> {
        let (status, body) = self.exchange(request).await?;
        if status.is_success() { Ok(()) } else { Err(refusal(status, &body)) }
    }

    /// Asks, and reads a whole answer, whatever its status is.
    pub(crate) async fn exchange(&self, request: Ask<'_>) -> Result<(StatusCode, Bytes), ClientError> {
        let wait = request.wait;
        let exchange = async {
            let (response, connection) = self.send(request).await?;
            self.finish(response, connection).await
        };
        match wait {
            Wait::Short => self.within(exchange).await,
            Wait::Long => exchange.await,
        }
    }

    /// Asks for a stream of events, and takes a whole answer as well.
    pub(crate) async fn listen_or_read<T: DeserializeOwned>(
        &self,
        request: Ask<'_>,
    ) -> Result<Result<EventStream, T>, ClientError> {
        let (response, connection) = self.send(request).await?;
        if response.status().is_success() && is_of(&response, "text/event-stream") {
            return Ok(Ok(EventStream::new(response.into_body(), Arc::clone(&self.connections), None)));
        }
        let (status, body) = self.finish(response, connection).await?;
        if status.is_success() { read(&body).map(Err) } else { Err(refusal(status, &body)) }
    }

    /// Asks for a stream of events. Silence for longer than the patience that is given ends it.
    pub(crate) async fn listen(&self, request: Ask<'_>, patience: Duration) -> Result<EventStream, ClientError> {
        let response = self.open(request, "text/event-stream").await?;
        Ok(EventStream::new(response.into_body(), Arc::clone(&self.connections), Some(patience)))
    }

    /// Asks for something large, and writes it down as it comes. Returns how many bytes came.
    pub(crate) async fn copy(&self, request: Ask<'_>, to: &mut dyn Write) -> Result<u64, ClientError> {
        let response = self.open(request, "application/").await?;
        let mut body = response.into_body();
        let mut count = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.connections.lost(&error))?;
            if let Some(data) = frame.data_ref() {
                to.write_all(data).map_err(|error| ClientError::Output(error.to_string()))?;
                count += u64::try_from(data.len()).unwrap_or(u64::MAX);
            }
        }
        to.flush().map_err(|error| ClientError::Output(error.to_string()))?;
        Ok(count)
    }

    /// The head of an answer that is of the expected kind.
    async fn open(&self, request: Ask<'_>, kind: &str) -> Result<Response<Incoming>, ClientError> {
        let wait = request.wait;
        let head = self.send(request);
        let (response, connection) = match wait {
            Wait::Short => self.within(head).await?,
            Wait::Long => head.await?,
        };
        let status = response.status();
        if !status.is_success() {
            let (status, body) = self.within(self.finish(response, connection)).await?;
            return Err(refusal(status, &body));
        }
        if is_of(&response, kind) {
            return Ok(response);
        }
        Err(ClientError::Protocol(format!("it answered {status} with something else than {kind}")))
    }

    pub(crate) async fn send(&self, request: Ask<'_>) -> Result<(Response<Incoming>, InUse), ClientError> {
        let request = self.build(request).map_err(|error| ClientError::Protocol(error.to_string()))?;
        let answered = self.connections.send(request, self.patience).await?;
        let told = answered.0.headers().get(AUTHORITIES).and_then(|told| told.to_str().ok());
        if let Some(told) = told.and_then(|told| Sha256Digest::parse(told).ok()) {
            *self.authorities.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        }
        Ok(answered)
    }

    fn build(&self, ask: Ask<'_>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.path)
            .header(header::HOST, self.connections.transport.host())
            .header(header::ACCEPT, ask.accept);
        if let Some(bearer) = self.bearer.as_ref().and_then(Bearer::header) {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        if let Some(key) = ask.key {
            request = request.header("idempotency-key", HeaderValue::from_str(key.as_str())?);
        }
        for (name, value) in ask.headers {
            request = request.header(name, HeaderValue::from_str(&value)?);
        }
        if ask.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(ask.body.unwrap_or_default()))
    }

    /// Reads an answer to its end and keeps the connection.
    pub(crate) async fn finish(
        &self,
        response: Response<Incoming>,
        connection: InUse,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let status = response.status();
        let body = response.into_body();
        if body.size_hint().lower() > u64::try_from(MAX_ANSWER).unwrap_or(u64::MAX) {
            return Err(ClientError::Protocol(format!("its answer is larger than {MAX_ANSWER} bytes")));
        }
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| {
            match error.downcast_ref::<hyper::Error>() {
                Some(error) => self.connections.lost(error),
                None => ClientError::Protocol(format!("its answer is larger than {MAX_ANSWER} bytes")),
            }
        })?;
        self.connections.keep(connection);
        Ok((status, body.to_bytes()))
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        let slow = |_| ClientError::Slow { address: self.address(), patience: self.patience };
        time::timeout(self.patience, work).await.map_err(slow)?
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.connections.transport)
    }
}

/// A request.
pub(crate) struct Ask<'a> {
    method: Method,
    path: String,
    accept: &'static str,
    body: Option<Bytes>,
    key: Option<&'a IdempotencyKey>,
    headers: Vec<(&'static str, String)>,
    wait: Wait,
}

/// How long an answer may take.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// As long as the client's patience.
    Short,
    /// As long as it takes.
    Long,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            accept: "application/json",
            body: None,
            key: None,
            headers: Vec::new(),
            wait: Wait::Short,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Protocol(error.to_string()))?;
        Ok(Self { body: Some(body.into()), ..self })
    }

    /// The same with a JSON body that was spelt already.
    pub(crate) fn bytes(self, body: Bytes) -> Self {
        Self { body: Some(body), ..self }
    }

    pub(crate) fn key(self, key: Option<&'a IdempotencyKey>) -> Self {
        Self { key, ..self }
    }

    /// The same with further headers.
    pub(crate) fn headers(self, headers: Vec<(&'static str, String)>) -> Self {
        Self { headers, ..self }
    }

    pub(crate) fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    pub(crate) fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }
}

/// Whether an answer is of a kind, such as `text/event-stream`.
pub(crate) fn is_of(response: &Response<Incoming>, kind: &str) -> bool {
    let given = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    given.is_some_and(|given| given.starts_with(kind))
}

/// An answer as the wire types say.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| ClientError::Protocol(error.to_string()))
}

/// What an answer that is no success means.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => ClientError::refused(status.as_u16(), body),
        Err(_) => ClientError::Protocol(format!("it answered {status}")),
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
