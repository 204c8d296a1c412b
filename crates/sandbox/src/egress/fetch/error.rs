//! Why something could not be fetched.

use palyra_types::{host::HostName, word::words};

use super::url::{FetchUrl, UrlError};
use crate::egress::ledger::RefusedTarget;

/// Why something could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A redirect to something that cannot be fetched.
    #[error("`{from}` redirects to nothing that can be fetched: {cause}")]
    BadUrl {
        /// Who redirects.
        from: Box<FetchUrl>,
        /// What is wrong with it.
        cause: UrlError,
    },
    /// A connection was not let through, or not made.
    #[error("it could not connect to `{}` port {}: {}", .0.named, .0.port, .0.refusal)]
    Refused(Box<RefusedTarget>),
    /// The connection was allowed, and then no more.
    #[error("the connection to `{0}` is allowed no more")]
    Revoked(HostName),
    /// The host could not show that it is the host.
    #[error("`{host}` cannot be trusted to be `{host}`: {cause}")]
    Tls {
        /// The host.
        host: HostName,
        /// Why not, in words.
        cause: String,
    },
    /// More redirects than are followed.
    #[error("it was redirected more than {0} times")]
    TooManyRedirects(usize),
    /// From an encrypted connection to one in the open.
    #[error("`{from}` redirects to `{to}`, which is not encrypted")]
    Downgrade {
        /// Who redirects.
        from: Box<FetchUrl>,
        /// Where to.
        to: Box<FetchUrl>,
    },
    /// It took longer than it may.
    #[error("`{host}` did not {late} in time")]
    Timeout {
        /// The host that was waited for.
        host: HostName,
        /// What it did not do.
        late: Late,
    },
    /// The head of the response is longer than is read.
    #[error("the response of `{host}` has a head of more than {limit} bytes")]
    HeadersTooLarge {
        /// The host.
        host: HostName,
        /// How long it may be.
        limit: usize,
    },
    /// What came is no response, or not all of one.
    #[error("`{host}` {what}")]
    Protocol {
        /// The host.
        host: HostName,
        /// What it did.
        what: &'static str,
    },
}

words! {
    /// What a host did not do in time.
    pub enum Late ("delay") {
        /// Take the connection and show who it is.
        Connection = "take the connection",
        /// Answer as a whole, redirects included.
        Answer = "answer",
    }
}

words! {
    /// The kinds of error.
    pub enum FetchErrorKind ("fetch error") {
        /// A redirect to something that cannot be fetched.
        BadUrl = "bad_url",
        /// A connection was not let through, or not made.
        Refused = "refused",
        /// The connection was allowed, and then no more.
        Revoked = "revoked",
        /// The host could not show that it is the host.
        Tls = "tls",
        /// More redirects than are followed.
        TooManyRedirects = "too_many_redirects",
        /// From an encrypted connection to one in the open.
        Downgrade = "downgrade",
        /// It took longer than it may.
        Timeout = "timeout",
        /// The head of the response is longer than is read.
        HeadersTooLarge = "headers_too_large",
        /// What came is no response, or not all of one.
        Protocol = "protocol",
    }
}

impl FetchError {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> FetchErrorKind {
        match self {
            Self::BadUrl { .. } => FetchErrorKind::BadUrl,
            Self::Refused(_) => FetchErrorKind::Refused,
            Self::Revoked(_) => FetchErrorKind::Revoked,
            Self::Tls { .. } => FetchErrorKind::Tls,
            Self::TooManyRedirects(_) => FetchErrorKind::TooManyRedirects,
            Self::Downgrade { .. } => FetchErrorKind::Downgrade,
            Self::Timeout { .. } => FetchErrorKind::Timeout,
            Self::HeadersTooLarge { .. } => FetchErrorKind::HeadersTooLarge,
            Self::Protocol { .. } => FetchErrorKind::Protocol,
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::BadUrl { .. } | Self::TooManyRedirects(_) => {
                "fetch without following redirects to see where they lead"
            }
            Self::Refused(target) => target.refusal.advice(),
            Self::Revoked(_) => "ask for something else, or ask who changed the policy",
            Self::Tls { .. } => {
                "check the name; a private authority is added with `trust` under [egress] in the configuration"
            }
            Self::Downgrade { .. } => "fetch the address it redirects to yourself, if it may be read by others",
            Self::Timeout { .. } => "try again, or allow more time",
            Self::HeadersTooLarge { .. } => "fetch something else of the host",
            Self::Protocol { .. } => "check that the host speaks HTTP on this port, and try again",
        }
    }
}
