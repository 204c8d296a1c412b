//! Runs over HTTP: who opened which conversation, how many runs they may open, and the run that a credential has for calls that name none.
//!
//! Guarantees: a conversation belongs to whoever opened it, so nobody proposes anything under somebody else's postures and approvals; runs are
//! opened at a bounded pace, because each has a budget of its own. A run that nobody opened is followed by another in the same session once it
//! is as old as is configured, and not before, whatever it has used: its budget bounds what is done in that time.
//! Does not: renew what somebody opened. That ends with its budget.

use std::{collections::HashMap, time::Duration};

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
    own: HashMap<String, Standing>,
    sessions: HashMap<SessionId, String>,
    /// The runs of conversations that other programs have.
    conversations: HashMap<(String, Sha256Digest), Standing>,
    /// When the minute began that is counted, and how many runs each principal has opened in it.
    minute: i64,
    opened: HashMap<String, u32>,
}

/// A run that nobody opened: calls belong to it that name none.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// The conversation, which all that follow belong to.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    since: Timestamp,
}

impl Standing {
    /// Opens one.
    ///
    /// # Errors
    /// When it cannot be opened.
    async fn open(session: SessionId, principal: &Principal, gate: &Gate) -> Result<Self, Refusal> {
        let since = gate.clock().now();
        let run = gate.open_run(session, principal, None).await?;
        Ok(Self { session, run, since })
    }

    /// How long it is until another follows it, if it still counts.
    #[must_use]
    pub fn left(&self, gate: &Gate) -> Option<Duration> {
        left(gate.config().budget.lasts(), self.since, gate.clock().now())
    }
}

/// How much is left of what lasts so long. A clock that was set back ends it: nobody waits longer than it lasts.
fn left(lasts: Duration, since: Timestamp, now: Timestamp) -> Option<Duration> {
    let age = u64::try_from(now.unix_millis().saturating_sub(since.unix_millis())).ok().map(Duration::from_millis)?;
    lasts.checked_sub(age).filter(|left| !left.is_zero())
}

impl OwnRuns {
    /// The run of a principal for calls that name none, opened if there is none, or the last is over.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn of(&self, principal: &Principal, gate: &Gate) -> Result<(SessionId, RunId), Failure> {
        let mut opened = self.0.lock().await;
        let known = opened.own.get(&principal.to_string()).copied();
        if let Some(standing) = known.filter(|standing| standing.left(gate).is_some()) {
            return Ok((standing.session, standing.run));
        }
        let session = known.map_or_else(|| new_session(gate), |known| Ok(known.session))?;
        let standing = Standing::open(session, principal, gate).await?;
        opened.keep(session, principal);
        opened.own.insert(principal.to_string(), standing);
        Ok((session, standing.run))
    }

    /// How long it is until calls of a principal that name no run have another, if they have one.
    pub async fn left(&self, principal: &Principal, gate: &Gate) -> Option<Duration> {
        self.0.lock().await.own.get(&principal.to_string())?.left(gate)
    }

    /// The run of a principal for a conversation that another program has with them, opened if there is none, or the last is over. All of them
    /// belong to the principal's own session, so that an approval can stand for several.
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
        if let Some(standing) = opened.conversations.get(&key).filter(|standing| standing.left(gate).is_some()) {
            return Ok((session, standing.run));
        }
        opened.count(principal, gate.clock().now())?;
        let standing = Standing::open(session, principal, gate).await?;
        let oldest = || opened.conversations.iter().min_by_key(|(_, one)| one.run).map(|(key, _)| key.clone());
        if opened.conversations.len() >= MOST_SESSIONS
            && let Some(oldest) = oldest()
        {
            opened.conversations.remove(&oldest);
        }
        opened.conversations.insert(key, standing);
        Ok((session, standing.run))
    }

    /// The run of a conversation that is kept elsewhere, to follow the last one.
    ///
    /// # Errors
    /// When it cannot be opened, or too many were.
    pub async fn follow(
        &self,
        last: Option<Standing>,
        principal: &Principal,
        gate: &Gate,
    ) -> Result<Standing, Failure> {
        let session = last.map_or_else(|| new_session(gate), |last| Ok(last.session))?;
        self.0.lock().await.count(principal, gate.clock().now())?;
        let standing = Standing::open(session, principal, gate).await?;
        self.0.lock().await.keep(session, principal);
        Ok(standing)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_nobody_opened_lasts_as_long_as_is_configured_and_no_longer_if_the_clock_is_set_back() {
        let (hour, since) = (Duration::from_secs(3_600), Timestamp::from_unix_millis(1_700_000_000_000));
        let after = |millis: i64| left(hour, since, Timestamp::from_unix_millis(since.unix_millis() + millis));
        assert_eq!(after(0), Some(hour));
        assert_eq!(after(3_599_999), Some(Duration::from_millis(1)));
        assert_eq!((after(3_600_000), after(i64::MAX - since.unix_millis())), (None, None));
        assert_eq!(after(-1), None);
    }
}
