//! Runs over HTTP: who opened which conversation, how many runs they may open, and the run that a credential has for calls that name none.
//!
//! Guarantees: a conversation belongs to whoever opened it, so nobody proposes anything under somebody else's postures and approvals; runs are
//! opened at a bounded pace, because each has a budget of its own.

use std::collections::HashMap;

use palyra_gate::{Gate, Refusal};
use palyra_journal::state::Charge;
use palyra_types::{
    Principal, Sha256Digest, Timestamp,
    id::{RunId, SessionId},
};
use tokio::sync::Mutex;

use crate::failure::Failure;

/// What was opened since the daemon started.
#[derive(Default)]
pub struct OwnRuns(Mutex<Opened>);

#[derive(Default)]
struct Opened {
    own: HashMap<String, (SessionId, RunId)>,
    sessions: HashMap<SessionId, String>,
    /// The runs of conversations that other programs have.
    conversations: HashMap<(String, Sha256Digest), RunId>,
    /// When the minute began that is counted, and how many runs each principal has opened in it.
    minute: i64,
    opened: HashMap<String, u32>,
}

impl OwnRuns {
    /// The run of a principal for calls that name none, opened if there is none.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn of(&self, principal: &Principal, gate: &Gate) -> Result<(SessionId, RunId), Failure> {
        let mut opened = self.0.lock().await;
        if let Some(run) = opened.own.get(&principal.to_string()) {
            return Ok(*run);
        }
        let session = new_session(gate)?;
        let run = gate.open_run(session, principal, None).await?;
        opened.keep(session, principal);
        opened.own.insert(principal.to_string(), (session, run));
        Ok((session, run))
    }

    /// The run of a principal for a conversation that another program has with them, opened if there is none. All of them belong to the
    /// principal's own session, so that an approval can stand for several.
    ///
    /// # Errors
    /// When it cannot be opened, or too many were.
    pub async fn of_conversation(
        &self,
        principal: &Principal,
        conversation: Sha256Digest,
        gate: &Gate,
    ) -> Result<(SessionId, RunId), Failure> {
        let (session, _) = self.of(principal, gate).await?;
        let mut opened = self.0.lock().await;
        let key = (principal.to_string(), conversation);
        if let Some(run) = opened.conversations.get(&key) {
            return Ok((session, *run));
        }
        opened.count(principal, gate.clock().now())?;
        let run = gate.open_run(session, principal, None).await?;
        if opened.conversations.len() >= MOST_SESSIONS
            && let Some(oldest) = opened.conversations.iter().min_by_key(|(_, run)| **run).map(|(key, _)| key.clone())
        {
            opened.conversations.remove(&oldest);
        }
        opened.conversations.insert(key, run);
        Ok((session, run))
    }

    /// A conversation that a principal opened.
    ///
    /// # Errors
    /// When it is not theirs, or older than this daemon.
    pub async fn session(&self, session: SessionId, principal: &Principal) -> Result<SessionId, Failure> {
        match self.0.lock().await.sessions.get(&session) {
            Some(whose) if *whose == principal.to_string() => Ok(session),
            _ => Err(Failure::new(
                "unknown_session",
                format!("there is no session {session} of yours"),
                "leave `session` out to begin a new one",
            )),
        }
    }

    /// Opens a run.
    ///
    /// # Errors
    /// When it cannot be opened, or too many were.
    pub async fn open(
        &self,
        session: SessionId,
        principal: &Principal,
        limits: Option<Charge>,
        gate: &Gate,
    ) -> Result<RunId, Failure> {
        self.0.lock().await.count(principal, gate.clock().now())?;
        let run = gate.open_run(session, principal, limits).await?;
        self.0.lock().await.keep(session, principal);
        Ok(run)
    }
}

impl Opened {
    fn keep(&mut self, session: SessionId, principal: &Principal) {
        if self.sessions.len() >= MOST_SESSIONS
            && let Some(oldest) = self.sessions.keys().min().copied()
        {
            self.sessions.remove(&oldest);
        }
        self.sessions.insert(session, principal.to_string());
    }

    fn count(&mut self, principal: &Principal, now: Timestamp) -> Result<(), Failure> {
        let minute = now.unix_millis() / 60_000;
        if minute != self.minute {
            self.minute = minute;
            self.opened.clear();
        }
        let count = self.opened.entry(principal.to_string()).or_default();
        if *count >= MOST_RUNS {
            let message = format!("{MOST_RUNS} runs were opened in this minute, which is the limit");
            return Err(Failure::new("too_many_runs", message, "use the runs that are open, or wait"));
        }
        *count += 1;
        Ok(())
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

/// How many runs one principal may open in a minute.
const MOST_RUNS: u32 = 600;

/// How many conversations are remembered; the oldest go first.
const MOST_SESSIONS: usize = 10_000;
