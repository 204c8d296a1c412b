//! Why there is no answer.

use std::time::Duration;

use palyra_api::{ErrorBody, ErrorDetail};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no daemon answers at {address}: {message}")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system says.
        message: String,
    },
    /// Somebody listens who cannot show the certificate that is trusted. Nothing was sent.
    #[error("whoever listens at {address} shows a certificate that this device does not trust: {message}")]
    Stranger {
        /// Where.
        address: String,
        /// What was wrong.
        message: String,
    },
    /// Somebody listens and closed the connection before it was known who they are, as a daemon does that has too many. Nothing was sent.
    #[error("the connection to {address} was closed before the daemon showed its certificate: {message}")]
    Closed {
        /// Where.
        address: String,
        /// What the system says.
        message: String,
    },
    /// The daemon does not take the certificate of this device. Nothing was done.
    #[error("the daemon at {address} does not take the certificate of this device: {message}")]
    NotTaken {
        /// Where.
        address: String,
        /// What it objects to.
        message: String,
    },
    /// Somebody listens and does not answer in time.
    #[error("the daemon at {address} did not answer within {patience:?}")]
    Slow {
        /// Where.
        address: String,
        /// How long it was given.
        patience: Duration,
    },
    /// The connection ended before the answer did. What was asked for may have been done.
    #[error("the connection to {address} was lost: {message}")]
    Lost {
        /// Where.
        address: String,
        /// What the system says.
        message: String,
    },
    /// The daemon refused, and says why.
    #[error("{}", .error.message)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the daemon says.
        error: Box<ErrorDetail>,
    },
    /// Whoever answered does not speak this protocol.
    #[error("that is not a Palyra daemon: {0}")]
    Protocol(String),
    /// What was read cannot be written where it should go.
    #[error("what the daemon sent cannot be written: {0}")]
    Output(String),
}

impl ClientError {
    /// A refusal.
    #[must_use]
    pub fn refused(status: u16, body: ErrorBody) -> Self {
        Self::Refused { status, error: Box::new(body.error) }
    }

    /// Whether no daemon could be asked at all.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Stranger { .. } | Self::Closed { .. } | Self::Slow { .. })
    }
}
