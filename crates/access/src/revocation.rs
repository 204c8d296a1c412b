//! That something was taken away: when, by whom, and why.

use palyra_types::Timestamp;
use serde::{Deserialize, Serialize};

/// When a credential was revoked, by whom, and why. It is never undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// When.
    pub at: Timestamp,
    /// By whom, such as `user:ada`.
    pub by: String,
    /// Why, in the words of whoever did it. May be empty.
    pub why: String,
}
