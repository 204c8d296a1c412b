//! Requests that the daemon itself makes on behalf of a call, by the same rules as those of a program behind strict
//! egress.
//!
//! ```text
//! url ─► Admitted::ask ─► Connector::connect ─► TLS, verified ─► request ─► response
//!  ▲                                                                     │
//!  └───────────────────── redirect: from the beginning ◄─────────────────┘
//! ```
//!
//! | you look for | read |
//! |---|---|
//! | what can be fetched | [`FetchUrl`] |
//! | what may be sent along | [`FetchHeaders`] |
//! | where a redirect leads, and what goes there | `redirect` |
//! | one connection, one request, one response | `hop` |
//! | who is trusted | [`Authorities`], [`Trust`] |
//!
//! Guarantees: no connection but through the doorkeeper and the connector, for each hop anew; a certificate is verified
//! for the host that was ruled on; nothing goes from an encrypted connection to one in the open; what is meant for one
//! origin does not reach another; what is read is bounded in bytes and time; what is allowed no more is closed; each
//! hop is noted once, also when the future is dropped.
//! Does not: keep connections, cookies or sessions, decode anything, or use an [`Interceptor`](super::Interceptor).

mod error;
mod headers;
mod hop;
mod redirect;
mod trust;
mod url;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::body::Bytes;
use palyra_types::word::words;

pub use self::{
    error::{FetchError, FetchErrorKind, Late},
    headers::{FetchHeaders, HeaderError},
    trust::{Authorities, AuthorityError, Trust},
    url::{FetchUrl, Scheme, UrlError},
};
use self::{
    hop::{Answer, Hop},
    redirect::Step,
};
use super::{connect::Connector, door::Doorkeeper, intercept::Interceptor};

/// Makes requests.
#[derive(Debug)]
pub struct Fetcher {
    net: Arc<Connector>,
    trust: Trust,
}

impl Fetcher {
    /// A fetcher that goes out by this connector and trusts the machine's authorities and these.
    #[must_use]
    pub fn new(net: Arc<Connector>, authorities: Authorities) -> Self {
        Self { net, trust: Trust::new(authorities) }
    }

    /// Who it trusts to say which host is which.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust.clone()
    }

    /// Makes a request, and those that it is redirected to. The time that the doorkeeper takes does not count: a person
    /// may be asked. Every request and every answer passes the interceptor, if there is one.
    ///
    /// # Errors
    /// When a connection or a request is refused, the host cannot be trusted, or there is no response within the limits.
    pub async fn fetch(
        &self,
        keeper: &dyn Doorkeeper,
        request: FetchRequest,
        interceptor: Option<&dyn Interceptor>,
    ) -> Result<FetchResponse, FetchError> {
        let FetchRequest { method, url, headers, bound, body, redirects: follow, limits } = request;
        let mut step = Step { method, url, headers, body: Bytes::from(body) };
        let mut left = limits.total;
        let mut redirects = Vec::new();
        loop {
            let hop = Hop::ask(keeper, &step.url).await?;
            let begun = Instant::now();
            let following = (follow == Redirects::Follow).then_some(&bound);
            let terms = hop::Terms { following, interceptor, limits: FetchLimits { total: left, ..limits } };
            let answer = hop.exchange(self, &step, terms).await?;
            left = left.saturating_sub(begun.elapsed());
            match answer {
                Answer::Response(head, body) => {
                    let hop::Head { status, headers } = head;
                    let (body, truncated) = (body.bytes, body.is_truncated);
                    return Ok(FetchResponse { status, url: step.url, redirects, headers, body, truncated });
                }
                Answer::Redirect(_) if redirects.len() == MOST_REDIRECTS => {
                    return Err(FetchError::TooManyRedirects(MOST_REDIRECTS));
                }
                Answer::Redirect(next) => {
                    step = *next;
                    redirects.push(step.url.clone());
                }
            }
        }
    }
}

/// What is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// How.
    pub method: FetchMethod,
    /// What.
    pub url: FetchUrl,
    /// What is sent along.
    pub headers: FetchHeaders,
    /// Which of these are meant for the first origin and no other, in lower case. Authorization and Cookie always are.
    pub bound: Vec<String>,
    /// What is sent.
    pub body: Vec<u8>,
    /// What is done about redirects.
    pub redirects: Redirects,
    /// How much it may take.
    pub limits: FetchLimits,
}

words! {
    /// How something is fetched.
    pub enum FetchMethod ("method") {
        /// Reads.
        Get = "GET",
        /// Reads the head alone.
        Head = "HEAD",
        /// Hands something over.
        Post = "POST",
        /// Puts something there.
        Put = "PUT",
        /// Changes something.
        Patch = "PATCH",
        /// Deletes something.
        Delete = "DELETE",
        /// Asks what can be done.
        Options = "OPTIONS",
    }
}

impl FetchMethod {
    /// Whether such a request can have a body that all servers read alike.
    #[must_use]
    pub const fn takes_body(self) -> bool {
        !matches!(self, Self::Get | Self::Head)
    }
}

/// What is done about redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// They are followed.
    Follow,
    /// They are the response.
    Return,
}

/// How much a fetch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// How many bytes of the body are read.
    pub body_bytes: u64,
    /// How long all of it may take.
    pub total: Duration,
    /// How long a connection may take until it is made and the host is verified.
    pub connect: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { body_bytes: 1 << 20, total: Duration::from_secs(30), connect: Duration::from_secs(10) }
    }
}

/// What was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// The status.
    pub status: u16,
    /// Where it came from in the end.
    pub url: FetchUrl,
    /// Where it was redirected to, in order. The last one is `url`.
    pub redirects: Vec<FetchUrl>,
    /// The headers as they came; names are in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body as it came, as far as it was read.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
}

impl FetchResponse {
    /// The values of a header.
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    /// How the body is encoded, if it is although nobody asked for that.
    #[must_use]
    pub fn encoding(&self) -> Option<String> {
        let values: Vec<_> = self.header("content-encoding").map(String::from_utf8_lossy).collect();
        let encoding = values.join(", ");
        let is_plain = encoding.split(',').all(|one| one.trim().is_empty() || one.trim() == "identity");
        (!is_plain).then_some(encoding)
    }
}

/// How many redirects are followed.
pub const MOST_REDIRECTS: usize = 5;

#[cfg(test)]
mod tests;
