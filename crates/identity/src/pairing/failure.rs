//! Why one side of a pairing does not go on.

use palyra_types::visible::visible;

use super::{
    message::{Message, RefusalCode, Refused},
    open::PairingRefusal,
};
use crate::csr::RequestError;

/// Why one side of a pairing does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairingError {
    /// The other side speaks another version.
    #[error("the other side speaks version {0} of pairing; this program speaks {VERSION}")]
    OtherVersion(u64),
    /// Another message than comes next.
    #[error("`{expected}` was to come next, not `{got}`")]
    Unexpected {
        /// What was to come.
        expected: &'static str,
        /// What came.
        got: &'static str,
    },
    /// The device says it has the code by another way than the one that was taken for it.
    #[error("the device has chosen another method than the code is for")]
    OtherMethod,
    /// The request for a certificate.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The other side's part of the key exchange is none.
    #[error("the other side's part of the key exchange cannot be read")]
    BadExchange,
    /// The other side's proof does not hold.
    #[error("the code is wrong, or somebody is between the device and the daemon")]
    WrongProof,
    /// What the daemon grants is for another key.
    #[error("the daemon's certificate for this device is for another key")]
    ForeignCertificate,
    /// What the daemon grants does not name the authority that was proved.
    #[error("the daemon's authorities lack the one that it has proved to have")]
    ForeignAuthorities,
    /// The other side has ended it.
    #[error("refused as `{}`: {}", .0.code, visible(&.0.message))]
    Refused(Refused),
    /// The pairing that is open does not let it go on.
    #[error(transparent)]
    Closed(#[from] PairingRefusal),
    /// The cryptographic library failed.
    #[error("the proofs of a pairing cannot be made")]
    Internal,
}

impl PairingError {
    /// What to tell the other side.
    #[must_use]
    pub const fn code(&self) -> RefusalCode {
        match self {
            Self::OtherVersion(_)
            | Self::Unexpected { .. }
            | Self::OtherMethod
            | Self::Request(_)
            | Self::BadExchange
            | Self::ForeignCertificate
            | Self::ForeignAuthorities => RefusalCode::BadMessage,
            Self::WrongProof => RefusalCode::WrongCode,
            Self::Refused(refused) => refused.code,
            Self::Closed(refusal) => refusal.code(),
            Self::Internal => RefusalCode::Internal,
        }
    }

    /// The message that tells it to the other side.
    #[must_use]
    pub fn to_message(&self) -> Message {
        Message::refused(self.code(), self.to_string())
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Request(error) => error.advice(),
            Self::Closed(refusal) => refusal.advice(),
            other => other.code().advice(),
        }
    }

    /// The error of a message that is not the one that comes next. A refusal may always come.
    pub(super) fn instead_of(expected: &'static str, message: Message) -> Self {
        match message {
            Message::Refused(refused) => Self::Refused(refused),
            other => Self::Unexpected { expected, got: other.kind() },
        }
    }
}

/// The version of the protocol.
pub(super) const VERSION: u64 = 1;
