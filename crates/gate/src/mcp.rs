//! MCP servers, as they are on record, and what requests to those that somebody else runs are sent with.
//!
//! Guarantees: what is recorded names servers, tools, digests and secrets, and no values.
//! Does not: speak with servers, or decide what is pinned.

use palyra_journal::RecordKind;
use serde::Serialize;

use crate::{gate::Gate, refusal::Refusal};

impl Gate {
    /// Records something about MCP servers.
    ///
    /// # Errors
    /// When it cannot be recorded, or is about something else.
    pub async fn record_mcp(&self, kind: RecordKind, body: &impl Serialize) -> Result<(), Refusal> {
        if !kind.is_about_mcp() {
            return Err(Refusal::Internal(format!("a record of kind {kind} is not about MCP servers")));
        }
        self.inner.tell(kind, body).await
    }

    /// Records that secrets are about to be sent to an MCP server.
    ///
    /// # Errors
    /// When it cannot be recorded. Nothing is sent then.
    pub async fn mcp_secrets_used(&self, body: &impl Serialize) -> Result<(), Refusal> {
        self.inner.tell(RecordKind::VaultUsed, body).await
    }
}
