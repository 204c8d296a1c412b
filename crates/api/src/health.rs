//! What `/healthz` answers.

use serde::{Deserialize, Serialize};

/// A daemon that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok` while it answers.
    pub status: String,
    /// Its version.
    pub version: String,
}
