//! What is told about the connections of a run.
//!
//! Guarantees: each connection is noted exactly once, whatever ends it: its [`Entry`] notes it when it is dropped. One
//! that was made is always noted and counted, also if it was refused for what the client said on it or never answered.
//! What reached nobody is noted up to a limit and then only counted, so that a program in a loop fills no journal. A
//! client that went away before it named anything leaves no note.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use palyra_types::host::HostName;
use serde::Serialize;

use super::{
    door::{ConnectionOutcome, ConnectionRecord, Doorkeeper, Via},
    refusal::{EgressRefusal, EgressRefusalKind, shown},
};

/// What the connections of a run came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EgressSummary {
    /// How many connections were made, those included that were refused once they were.
    pub connections: u64,
    /// How many were refused, names that were asked for in vain included.
    pub refused: u64,
    /// Bytes that went out.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
    /// The first refusals that differ.
    pub refusals: Vec<RefusedTarget>,
}

/// Something that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedTarget {
    /// What the client named.
    pub named: String,
    /// The port; 0 if the client did not come to name one.
    pub port: u16,
    /// How it came.
    pub via: Via,
    /// Why.
    pub refusal: EgressRefusal,
}

/// The connections of a run that have ended.
pub(crate) struct Ledger {
    keeper: Arc<dyn Doorkeeper>,
    most_notes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    summary: EgressSummary,
    /// Notes about what reached nobody.
    notes: u64,
}

impl Ledger {
    pub(crate) fn new(keeper: Arc<dyn Doorkeeper>, most_notes: u64) -> Self {
        Self { keeper, most_notes, state: Mutex::default() }
    }

    pub(crate) fn summary(&self) -> EgressSummary {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).summary.clone()
    }

    fn take(&self, record: ConnectionRecord, was_made: bool) {
        if self.counts(&record, was_made) {
            self.keeper.note(record);
        }
    }

    /// Counts a record and tells whether it is noted.
    fn counts(&self, record: &ConnectionRecord, was_made: bool) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { summary, notes } = &mut *state;
        summary.sent = summary.sent.saturating_add(record.sent);
        summary.received = summary.received.saturating_add(record.received);
        if let ConnectionOutcome::Refused(refusal) = &record.outcome {
            summary.refused += 1;
            summary.remember(record, refusal);
        } else if !was_made && record.named.is_empty() {
            return false;
        }
        // SECURITY: what may have carried something out leaves a trace, however much was refused before.
        if was_made {
            summary.connections += 1;
            return true;
        }
        *notes += 1;
        *notes <= self.most_notes
    }
}

impl EgressSummary {
    fn remember(&mut self, ConnectionRecord { named, port, via, .. }: &ConnectionRecord, refusal: &EgressRefusal) {
        let is_same =
            |one: &RefusedTarget| one.named == *named && one.port == *port && one.refusal.kind == refusal.kind;
        if self.refusals.len() < MOST_DISTINCT && !self.refusals.iter().any(is_same) {
            self.refusals.push(RefusedTarget {
                named: named.clone(),
                port: *port,
                via: *via,
                refusal: refusal.clone(),
            });
        }
    }
}

/// A connection from the first word of its client to its end.
pub(crate) struct Entry {
    ledger: Arc<Ledger>,
    host: Option<HostName>,
    named: String,
    port: u16,
    via: Via,
    began: Instant,
    traffic: Arc<Traffic>,
    /// Where it leads, once somebody took it. From then on it counts as made.
    pub address: Option<SocketAddr>,
    outcome: ConnectionOutcome,
    was_made: bool,
}

impl Entry {
    /// A connection of which nothing but the way is known.
    pub(crate) fn new(ledger: &Arc<Ledger>, via: Via) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            host: None,
            named: String::new(),
            port: 0,
            via,
            began: Instant::now(),
            traffic: Arc::default(),
            address: None,
            outcome: ConnectionOutcome::Failed,
            was_made: false,
        }
    }

    /// What the client named, whatever it is.
    pub(crate) fn named(mut self, named: &str, port: u16) -> Self {
        (self.named, self.port) = (shown(named), port);
        self
    }

    /// The host that the client means.
    pub(crate) fn meant(&mut self, host: &HostName, port: u16) {
        (self.host, self.named, self.port) = (Some(host.clone()), host.to_string(), port);
    }

    /// The connection carries something. Unless something else is said later, it ends in order, or with the run.
    pub(crate) fn made(&mut self) {
        self.was_made = true;
        self.outcome = ConnectionOutcome::Closed;
    }

    /// How it ends, unless something else is said later.
    pub(crate) fn ends(&mut self, outcome: ConnectionOutcome) {
        self.outcome = outcome;
    }

    /// The refusal with which it ends.
    pub(crate) fn refused(mut self, refusal: EgressRefusal) {
        self.ends(ConnectionOutcome::Refused(refusal));
    }

    /// [`Entry::refused`], for a refusal without more to say.
    pub(crate) fn refused_as(self, kind: EgressRefusalKind, detail: &str) {
        self.refused(EgressRefusal::new(kind, detail));
    }

    /// Whether it carries something.
    pub(crate) const fn is_made(&self) -> bool {
        self.was_made
    }

    /// How it came.
    pub(crate) const fn via(&self) -> Via {
        self.via
    }

    pub(crate) const fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (sent, received) = self.traffic.passed();
        let record = ConnectionRecord {
            host: self.host.take(),
            named: std::mem::take(&mut self.named),
            port: self.port,
            via: self.via,
            address: self.address,
            outcome: std::mem::replace(&mut self.outcome, ConnectionOutcome::Failed),
            sent,
            received,
            duration: self.began.elapsed(),
        };
        let was_made = self.was_made || record.address.is_some() || sent > 0;
        self.ledger.take(record, was_made);
    }
}

/// Why a connection ends before it carries anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is refused.
    Refused(EgressRefusal),
    /// It is allowed no more.
    Revoked,
    /// One of the two sides went away.
    Left,
}

impl Stop {
    /// How such a connection ended.
    pub(crate) fn outcome(self) -> ConnectionOutcome {
        match self {
            Self::Refused(refusal) => ConnectionOutcome::Refused(refusal),
            Self::Revoked => ConnectionOutcome::Revoked,
            Self::Left => ConnectionOutcome::Failed,
        }
    }

    /// What the client is told, if it is still there.
    pub(crate) fn refusal(&self) -> EgressRefusal {
        match self {
            Self::Refused(refusal) => refusal.clone(),
            Self::Revoked | Self::Left => {
                EgressRefusal::new(EgressRefusalKind::DeniedByPolicy, "the connection is allowed no more")
            }
        }
    }
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Left
    }
}

impl From<EgressRefusal> for Stop {
    fn from(refusal: EgressRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The bytes of a connection, counted while they pass.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    pub(crate) fn sends(&self, bytes: usize) {
        self.sent.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn receives(&self, bytes: usize) {
        self.received.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The bytes that went out and came in so far.
    pub(crate) fn passed(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    /// Waits until nothing has passed for about this long.
    pub(crate) async fn idle(&self, limit: Duration) {
        idle(|| self.passed(), limit).await;
    }
}

/// Waits until these counts have not changed for about this long.
pub(crate) async fn idle<C: PartialEq>(passed: impl Fn() -> C, limit: Duration) {
    let (mut before, mut still) = (passed(), 0);
    while still < LOOKS {
        tokio::time::sleep(limit / LOOKS).await;
        let now = passed();
        still = if now == before { still + 1 } else { 0 };
        before = now;
    }
}

/// How often a connection is looked at before it counts as idle.
const LOOKS: u32 = 8;

/// How many refusals a summary lists.
const MOST_DISTINCT: usize = 16;
