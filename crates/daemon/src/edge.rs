//! What every request passes through, whatever its route.
//!
//! Guarantees: a request for another host, or one that a browser sends for another origin, is refused before anybody looks at it, so that
//! neither DNS rebinding nor a page on another port gets anything, and the connection goes on or is said to be closed; every answer has an
//! id, and every error the one shape. There is no CORS header anywhere, so no browser shows an answer to another origin.

use std::{
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use hyper::body::Body as _;
use palyra_api::{ErrorBody, ErrorDetail, device::AUTHORITIES};
use palyra_types::{Entropy, HostName, entropy::NoEntropy};
use tokio::time::timeout;

use crate::{
    app::App,
    compat::failing,
    extract::{BACKUP_BODY, FACADE_BODY, LONGEST_BODY, PACKAGE_BODY, too_large},
    failure::{Failure, Repeats},
    mcp,
};

/// Which listener a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// TLS.
    Control,
    /// Plain HTTP on loopback.
    Local,
}

impl Listener {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Local => "local",
        }
    }
}

/// The names that a listener answers to.
pub struct Names {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// The port at which any address will do, if the listener is on all of them. A page that has a name of its own lead here is known by
    /// that name, and an address is none.
    any_address: Option<u16>,
}

impl Names {
    /// The names of a listener at this address, and those that are configured.
    #[must_use]
    pub fn of(listener: Listener, address: SocketAddr, more: &[HostName]) -> Self {
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        // Devices know a daemon by its authority, and call every one by the same name.
        hosts.push(format!("{}:{port}", palyra_identity::SERVER_NAME));
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            hosts.extend([format!("127.0.0.1:{port}"), format!("[::1]:{port}")]);
        }
        hosts.extend(more.iter().map(|name| match name.as_str() {
            name if name.contains(':') => format!("[{name}]:{port}"),
            name => format!("{name}:{port}"),
        }));
        let scheme = match listener {
            Listener::Control => "https",
            Listener::Local => "http",
        };
        let origins = hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
        Self { hosts, origins, any_address: address.ip().is_unspecified().then_some(port) }
    }

    fn knows(&self, host: &str) -> bool {
        let is_address = || host.parse::<SocketAddr>().is_ok_and(|address| Some(address.port()) == self.any_address);
        self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) || is_address()
    }

    /// Whether a request is for this listener, and from nowhere else.
    fn admit(&self, request: &Request) -> Result<(), Failure> {
        let headers = request.headers();
        let known = |host: &str| self.knows(host);
        // A request may name its host twice, in its header and in its address; both have to be this one.
        let addressed = request.uri().authority().is_none_or(|host| known(host.as_str()));
        if !(addressed && only(headers, &header::HOST).is_some_and(known)) {
            return Err(Failure::new(
                "bad_host",
                "the request is for another host",
                "use the address that the daemon tells at its start, as it stands there",
            ));
        }
        let foreign = headers.contains_key(header::ORIGIN)
            && !only(headers, &header::ORIGIN)
                .is_some_and(|origin| self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)));
        // Browsers say where a request comes from even where they send no origin. Another port is the same site.
        let elsewhere = headers
            .get("sec-fetch-site")
            .is_some_and(|site| site != "same-origin" && site != "none" && !is_visit(request));
        if foreign || elsewhere {
            return Err(Failure::new(
                "foreign_origin",
                "the request comes from a page of another origin",
                "open the console by its own link: `palyra open`",
            ));
        }
        Ok(())
    }
}

/// Whether somebody follows a link to the page itself, which holds nothing and is the same for everybody.
fn is_visit(request: &Request) -> bool {
    let navigates = request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    let whole_page = request.headers().get("sec-fetch-dest").is_some_and(|dest| dest == "document");
    request.method() == Method::GET && request.uri().path() == "/" && navigates && whole_page
}

/// The value of a header that stands once.
fn only<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (value, more) = (values.next()?, values.next());
    if more.is_some() { None } else { value.to_str().ok() }
}

/// Gives out ids of requests: unlike those of any other start of the daemon, and without a system call each.
pub struct RequestIds {
    start: u64,
    next: AtomicU64,
}

impl RequestIds {
    /// Ids that begin with something random.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let mut start = [0; 8];
        entropy.fill(&mut start)?;
        Ok(Self { start: u64::from_le_bytes(start), next: AtomicU64::new(0) })
    }

    fn next(&self) -> String {
        format!("{:016x}-{:x}", self.start, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Lets a request in, and its answer out.
pub async fn pass(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = app.request_ids.next();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let listener = request.extensions().get::<Listener>().copied().unwrap_or(Listener::Local);
    let names = match listener {
        Listener::Control => &app.control_names,
        Listener::Local => &app.local_names,
    };
    let admitted = names.admit(&request).and_then(|()| short_enough(&request));
    let mut response = match admitted {
        Ok(()) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(_) => Failure::internal("the daemon failed while it answered").into_response(),
        },
        Err(failure) => refused(request, failure).await,
    };
    if let Some(detail) = response.extensions_mut().remove::<ErrorDetail>() {
        response = told(response, detail, (&id, &path));
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", id);
    }
    if failing::is_facade(&path) {
        failing::tell_limits(headers);
    }
    if listener == Listener::Control {
        headers.insert(AUTHORITIES, app.certifier.now().told.clone());
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    let status = response.status();
    app.figures.answered(status);
    // One line for each request, whatever came of it. Paths hold ids only.
    tracing::debug!(%id, %method, path, status = status.as_u16(), took_us = begun.elapsed().as_micros(), "answered");
    if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
        tracing::error!(%id, %method, path, status = status.as_u16(), "failed");
    }
    response
}

/// A refusal of a request that nobody looked at. A short one is heard out, because the connection of one that has more to come is closed
/// without a word, and whoever asked next on it would be told nothing. Otherwise the answer says that it is closed.
async fn refused(request: Request, failure: Failure) -> Response {
    let is_sent = !request.headers().contains_key(header::EXPECT);
    let is_short = request.body().size_hint().lower() <= SHORT_BODY;
    let most = usize::try_from(SHORT_BODY).unwrap_or_default();
    let rest = async { axum::body::to_bytes(request.into_body(), most).await.is_ok() };
    let is_heard = is_sent && is_short && timeout(HEARD_WITHIN, rest).await.unwrap_or_default();
    let mut response = failure.into_response();
    if !is_heard {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Refuses at once what says itself that it is too long, so that nobody waits for it.
fn short_enough(request: &Request) -> Result<(), Failure> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let most = match request.uri().path() {
        "/api/v1/skills" | "/api/v1/skills/inspect" => PACKAGE_BODY,
        "/api/v1/vault/import" => BACKUP_BODY,
        path if failing::is_facade(path) => FACADE_BODY,
        _ => LONGEST_BODY,
    };
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) if length > most => Err(too_large(most)),
        _ => Ok(()),
    }
}

/// An error in the one shape.
fn told(response: Response, mut detail: ErrorDetail, (id, path): (&str, &str)) -> Response {
    detail.request_id = Some(id.to_owned());
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let location = detail.call.and_then(|call| HeaderValue::from_str(&format!("/api/v1/calls/{call}")).ok());
    parts.headers.extend(location.map(|location| (header::LOCATION, location)));
    // What is left of a body that nobody will read would be taken for the next request.
    if matches!(parts.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let body = if failing::is_facade(path) {
        let repeats = parts.extensions.remove::<Repeats>().is_some();
        parts.status = failing::status(parts.status, repeats);
        failing::advise(&mut parts.headers, parts.status);
        serde_json::to_vec(&failing::shape(parts.status, &detail))
    } else if mcp::is_ours(path) {
        mcp::failing::challenge(&mut parts.headers, &detail);
        serde_json::to_vec(&mcp::failing::shape(parts.status, &detail))
    } else {
        serde_json::to_vec(&ErrorBody { error: detail })
    };
    let body = body.unwrap_or_default();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// What is read of a request that is refused before anybody looks at it, and how long that may take.
const SHORT_BODY: u64 = 64 << 10;
const HEARD_WITHIN: Duration = Duration::from_secs(1);
