//! Why a provider gave no answer.
//!
//! Guarantees: no message holds a key, or a part of what was asked or answered.

use std::{fmt, time::Duration};

use http::StatusCode;
use hyper::body::Bytes;
use palyra_types::{Timestamp, word::words};

/// Why a provider gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Nobody listens there, or there is no such host.
    #[error("the provider cannot be reached: {reason}")]
    Connect {
        /// What the system says.
        reason: String,
    },
    /// Somebody listens who cannot show a certificate that is trusted. Nothing was sent.
    #[error("the provider shows no certificate that is trusted: {reason}")]
    Tls {
        /// What was wrong.
        reason: String,
    },
    /// It took too long.
    #[error("the provider took more than {} s for {what}", .within.as_secs_f64())]
    TimedOut {
        /// What was waited for.
        what: Phase,
        /// How long.
        within: Duration,
    },
    /// The connection ended too early.
    #[error("the connection to the provider broke off before {during} had come")]
    BrokenOff {
        /// What was still to come.
        during: Phase,
    },
    /// The answer is larger than what is held in memory.
    #[error("the answer of the provider is larger than {limit} bytes")]
    TooLarge {
        /// How large it may be.
        limit: usize,
    },
    /// The answer is compressed although that was ruled out.
    #[error("the provider compressed its answer although it was asked not to")]
    Compressed,
    /// The provider wants the request elsewhere. The key does not go there.
    #[error("the provider answered {status}, and redirections are not followed")]
    Redirected {
        /// The status.
        status: StatusCode,
    },
    /// The provider failed too often of late and is left alone.
    #[error("the provider failed too often and is left alone until {until}")]
    BreakerOpen {
        /// When it is tried again.
        until: Timestamp,
    },
    /// Whoever answers does not speak HTTP as it should.
    #[error("the provider answers what cannot be read: {reason}")]
    BadAnswer {
        /// What was wrong.
        reason: &'static str,
    },
    /// The provider is overloaded or failed, however often it was asked.
    #[error("the provider answered {status}")]
    Unavailable {
        /// The status: 408, 429, or one from 500 on but 501 and 505.
        status: StatusCode,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
        /// What it said about it.
        said: Said,
    },
    /// The key that the provider is asked with cannot be had.
    #[error("the key of the provider cannot be had")]
    NoKey,
}

impl ProviderError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "check that the server runs, and `base_url` of its `[[provider]]`",
            Self::Tls { .. } => {
                "check `base_url`; if the server has an authority of its own, let the daemon trust that"
            }
            Self::TimedOut { what: Phase::Connecting, .. } => {
                "check `base_url` and the network, or raise `connect_seconds`"
            }
            Self::TimedOut { what: Phase::Head, .. } => "try a smaller request or a stream, or raise `answer_seconds`",
            Self::TimedOut { what: Phase::Body, .. } => "try again, or raise `idle_seconds`",
            Self::BrokenOff { .. } => "try again; if it goes on, look into the log of the provider",
            Self::TooLarge { .. } => "ask for less or for a stream, or raise `max_answer_bytes`",
            Self::Compressed => "turn compression off at the server, or at the proxy before it",
            Self::Redirected { .. } => "set `base_url` to where the server really is, often `https` and `/v1`",
            Self::BreakerOpen { .. } => "wait until then, or name a `fallback`",
            Self::BadAnswer { .. } => {
                "check that `base_url` leads to a server of models, with the right port and `http` or `https`"
            }
            Self::Unavailable { .. } => "try again later, look at the limits of the account, or name a `fallback`",
            Self::NoKey => "put the key into the vault under the name that `key` of the `[[provider]]` says",
        }
    }

    /// Whether the same request may be sent to the same provider once more: nothing of an answer has come, and it may go better.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::TimedOut { what: Phase::Connecting, .. }
                | Self::BrokenOff { during: Phase::Connecting | Phase::Head }
                | Self::Unavailable { .. }
        )
    }

    /// Whether it speaks against the provider. A provider that refuses, or that was set up wrongly, is there.
    pub(crate) fn counts(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Tls { .. }
            | Self::TimedOut { .. }
            | Self::BrokenOff { .. }
            | Self::BadAnswer { .. } => true,
            Self::Unavailable { status, .. } => status.is_server_error(),
            Self::TooLarge { .. }
            | Self::Compressed
            | Self::Redirected { .. }
            | Self::BreakerOpen { .. }
            | Self::NoKey => false,
        }
    }

    /// How long the provider wants to be left alone, if it said so.
    pub(crate) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

words! {
    /// A part of an exchange.
    pub enum Phase ("phase") {
        /// Reaching the provider, and checking its certificate.
        Connecting = "the connection",
        /// Until the head of the answer.
        Head = "the head of the answer",
        /// The next piece of the answer, or its end.
        Body = "the rest of the answer",
    }
}

/// What a provider said when it refused, at most 64 KiB of it. It is for whoever asked, not for logs: only its length is printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Said(pub Bytes);

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Said({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_to_nothing_is_sent_again() {
        let unavailable =
            ProviderError::Unavailable { status: StatusCode::BAD_GATEWAY, retry_after: None, said: Said::default() };
        let within = Duration::from_secs(1);
        for (error, again) in [
            (ProviderError::Connect { reason: String::new() }, true),
            (unavailable, true),
            (ProviderError::BrokenOff { during: Phase::Head }, true),
            (ProviderError::BrokenOff { during: Phase::Body }, false),
            (ProviderError::TimedOut { what: Phase::Connecting, within }, true),
            (ProviderError::TimedOut { what: Phase::Head, within }, false),
            (ProviderError::Tls { reason: String::new() }, false),
            (ProviderError::Compressed, false),
            (ProviderError::BreakerOpen { until: Timestamp::from_unix_millis(0) }, false),
        ] {
            assert_eq!(error.is_retryable(), again, "{error}");
        }
    }

    #[test]
    fn what_a_provider_said_is_not_printed() {
        let error = ProviderError::Unavailable {
            status: StatusCode::TOO_MANY_REQUESTS,
            retry_after: Some(Duration::from_secs(3)),
            said: Said(Bytes::from_static(b"the account of ada")),
        };
        assert_eq!(error.to_string(), "the provider answered 429 Too Many Requests");
        assert!(format!("{error:?}").ends_with("said: Said(18 bytes) }"), "{error:?}");
    }

    #[test]
    fn a_timeout_tells_what_was_waited_for() {
        let error = ProviderError::TimedOut { what: Phase::Body, within: Duration::from_millis(1500) };
        assert_eq!(error.to_string(), "the provider took more than 1.5 s for the rest of the answer");
    }
}
