//! Who holds a credential, and with what effect now.
//!
//! Guarantees: roles, scopes and workspaces of a holder are the ones that count in the state they were looked up in, after every bound.

use std::{collections::BTreeSet, sync::Arc};

use palyra_types::{Channel, DeviceId, Principal, Timestamp, TokenId};

use crate::{
    error::MissingScope, feature::FeatureFlag, limits::Meter, member::Membership, scope::Scope, token::Malformed,
};

/// Whoever showed a credential that is good.
#[derive(Debug)]
pub struct Holder {
    /// Who, with the roles that count.
    pub principal: Principal,
    /// The workspaces that count.
    pub membership: Membership,
    /// What was shown.
    pub credential: Credential,
    /// The scopes that count, for a token; a device has no such bound.
    pub scopes: Option<Arc<BTreeSet<Scope>>>,
    /// The channel that a token is bound to, if it is bound to one.
    pub channel: Option<Channel>,
    /// The limits, for a token and for the device of a program; a person's device has none.
    pub limits: Option<Arc<Meter>>,
    /// Who answers for it, for a token.
    pub minted_by: Option<Principal>,
    /// From when on it is refused: a token's end, or that of a device's certificate.
    pub expires: Timestamp,
}

impl Holder {
    /// Whether the holder may use a scope. A device may use any; its role bounds it.
    ///
    /// # Errors
    /// When it is a token without it.
    pub fn needs(&self, scope: Scope) -> Result<(), MissingScope> {
        match &self.scopes {
            Some(scopes) if !scopes.contains(&scope) => Err(MissingScope { scope }),
            _ => Ok(()),
        }
    }
}

/// What somebody shows to be known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// The certificate of a device.
    Device(DeviceId),
    /// An API token.
    Token(TokenId),
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// No token at all.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// No token that was minted here, or one that is long over.
    #[error("the token is not known here")]
    Unknown,
    /// Its time is over.
    #[error("the token expired at {at}")]
    Expired {
        /// Since when.
        at: Timestamp,
    },
    /// Somebody revoked it.
    #[error("the token was revoked at {at}")]
    Revoked {
        /// Since when.
        at: Timestamp,
    },
    /// Another took over from it.
    #[error("another token took over from this one at {at}")]
    Superseded {
        /// Since when.
        at: Timestamp,
    },
    /// API tokens are switched off.
    #[error("API tokens are switched off")]
    Off,
    /// Nobody who belongs here answers for it.
    #[error("whoever minted the token is no longer a member that counts")]
    MinterGone,
}

impl TokenRefusal {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Malformed(malformed) => malformed.advice(),
            Self::Unknown => "check that the token is for this daemon; if it is, mint a new one",
            Self::Expired { .. } | Self::Revoked { .. } => "mint a new token",
            Self::Superseded { .. } => "use the token that it was rotated to",
            Self::Off => "ask an admin to switch the feature api_tokens on",
            Self::MinterGone => "let a member mint a new token; while the feature team_mode is off, only owners count",
        }
    }
}

/// Why a device is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeviceRefusal {
    /// No device that was paired here.
    #[error("the device is not paired here")]
    Unknown,
    /// Its pairing is not finished.
    #[error("the pairing of the device is not finished")]
    Awaiting,
    /// Somebody revoked it.
    #[error("the device was revoked at {at}")]
    Revoked {
        /// Since when.
        at: Timestamp,
    },
    /// The last certificate that was issued for it is over.
    #[error("the device's certificate expired at {at}")]
    Expired {
        /// Since when.
        at: Timestamp,
    },
    /// It belongs to a member who counts only while a feature is on.
    #[error("the device belongs to a member who counts only while the feature {0} is on")]
    Off(FeatureFlag),
}

impl DeviceRefusal {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Unknown | Self::Expired { .. } => "pair the device",
            Self::Awaiting => "finish the pairing, or pair the device again",
            Self::Revoked { .. } => "make a new key on the device and pair it again",
            Self::Off(_) => "ask an owner to switch the feature on",
        }
    }
}
