//! The run that a credential has for calls that name none: one for each principal, for the life of the daemon.

use std::collections::HashMap;

use palyra_gate::{Gate, Refusal};
use palyra_types::{
    Principal,
    id::{RunId, SessionId},
};
use tokio::sync::Mutex;

/// The runs that were opened this way.
#[derive(Default)]
pub struct OwnRuns {
    runs: Mutex<HashMap<String, (SessionId, RunId)>>,
}

impl OwnRuns {
    /// The run of a principal, opened if there is none.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn of(&self, principal: &Principal, gate: &Gate) -> Result<(SessionId, RunId), Refusal> {
        let mut runs = self.runs.lock().await;
        if let Some(run) = runs.get(&principal.to_string()) {
            return Ok(*run);
        }
        let session = new_session(gate)?;
        let run = gate.open_run(session, principal, None).await?;
        runs.insert(principal.to_string(), (session, run));
        Ok((session, run))
    }
}

/// A new conversation.
///
/// # Errors
/// When there is no randomness.
pub fn new_session(gate: &Gate) -> Result<SessionId, Refusal> {
    SessionId::generate(gate.clock().now(), gate.entropy().as_ref())
        .map_err(|error| Refusal::Internal(error.to_string()))
}
