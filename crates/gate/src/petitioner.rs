//! Whoever wants something that is no call: who they are, and what policy is told about where they come from.
//!
//! Guarantees: made of parsed parts only. Holding one permits nothing.

use std::collections::BTreeSet;

use palyra_types::{Channel, DeviceId, Principal, TokenId, WorkspaceName};

/// Whoever wants something that is no call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Petitioner {
    /// Who.
    pub principal: Principal,
    /// The surface they came in by.
    pub channel: Option<Channel>,
    /// The device they came from.
    pub device: Option<DeviceId>,
    /// The API token they showed.
    pub token: Option<TokenId>,
    /// The workspaces they are bound to; none means that they are bound to none in particular.
    pub member_of: Option<BTreeSet<WorkspaceName>>,
}

impl From<Principal> for Petitioner {
    /// Somebody of whom no more is known than who they are.
    fn from(principal: Principal) -> Self {
        Self { principal, channel: None, device: None, token: None, member_of: None }
    }
}
