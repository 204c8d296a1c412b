//! Those who were not let in: counted as they come, and on record in portions.
//!
//! Guarantees: every refused attempt is counted in some record; whoever tries without end fills neither memory nor the journal, because
//! records come at a bounded pace and name a bounded number of addresses.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use palyra_journal::RecordKind;
use palyra_types::Timestamp;
use serde::Serialize;
use tokio::sync::Notify;

use crate::{app::App, edge::Listener};

/// Somebody who was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Where.
    pub listener: Listener,
    /// From where, if that is known.
    pub from: Option<IpAddr>,
    /// Why not.
    pub code: String,
}

/// Attempts that are not on record yet.
#[derive(Default)]
pub struct Attempts {
    counted: Mutex<Counted>,
    /// Told when there is something to record.
    some: Notify,
}

#[derive(Default)]
struct Counted {
    /// By listener, reason and address; those beyond the bound under no address.
    counts: BTreeMap<(&'static str, String, Option<IpAddr>), u64>,
}

/// What a record says.
#[derive(Serialize)]
struct Told<'a> {
    since: Timestamp,
    attempts: Vec<ToldAttempt<'a>>,
}

#[derive(Serialize)]
struct ToldAttempt<'a> {
    listener: &'a str,
    code: &'a str,
    from: Option<IpAddr>,
    count: u64,
}

impl Attempts {
    /// Counts one.
    pub fn note(&self, attempt: Attempt) {
        let Attempt { listener, from, code } = attempt;
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let first = counted.counts.is_empty();
        let key = (listener.as_str(), code, from);
        let full = counted.counts.len() >= MOST_ADDRESSES;
        let key = if full && !counted.counts.contains_key(&key) { (key.0, key.1, None) } else { key };
        *counted.counts.entry(key).or_default() += 1;
        drop(counted);
        if first {
            self.some.notify_one();
        }
    }

    fn take(&self) -> BTreeMap<(&'static str, String, Option<IpAddr>), u64> {
        std::mem::take(&mut self.counted.lock().unwrap_or_else(PoisonError::into_inner).counts)
    }
}

/// Puts attempts on record, until the daemon stops.
pub async fn record(app: Arc<App>) {
    let mut stopping = app.stopping.subscribe();
    loop {
        let stops = tokio::select! {
            () = app.attempts.some.notified() => false,
            stops = stopping.wait_for(|stopping| *stopping) => stops.is_ok(),
        };
        let since = app.clock.now();
        if stops {
            return tell(&app, since).await;
        }
        // Those that come meanwhile go into the same record.
        let _ = tokio::time::timeout(RECORD_EVERY, stopping.wait_for(|stopping| *stopping)).await;
        tell(&app, since).await;
    }
}

async fn tell(app: &App, since: Timestamp) {
    let counts = app.attempts.take();
    if counts.is_empty() {
        return;
    }
    let attempts = counts.iter();
    let attempts = attempts.map(|((listener, code, from), &count)| ToldAttempt { listener, code, from: *from, count });
    let told = Told { since, attempts: attempts.collect() };
    let total: u64 = counts.values().sum();
    tracing::warn!(total, "somebody was not let in");
    if let Err(error) = app.gate.record_access(RecordKind::AccessRefused, &told).await {
        tracing::warn!(%error, total, "refused attempts could not be recorded");
    }
}

/// How many different ones are told apart in one record.
const MOST_ADDRESSES: usize = 64;

/// How long attempts are gathered for one record.
const RECORD_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn attempt(last: u8, code: &str) -> Attempt {
        let from = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        Attempt { listener: Listener::Local, from, code: code.to_owned() }
    }

    #[test]
    fn whoever_tries_without_end_fills_no_memory_and_every_attempt_counts() {
        let attempts = Attempts::default();
        for last in 0..=255 {
            for _ in 0..10 {
                attempts.note(attempt(last, "unauthenticated"));
            }
        }
        let counts = attempts.take();
        assert_eq!(counts.values().sum::<u64>(), 2_560);
        assert_eq!(counts.len(), MOST_ADDRESSES + 1);
        assert!(attempts.take().is_empty());
    }

    #[test]
    fn reasons_and_addresses_are_told_apart() {
        let attempts = Attempts::default();
        for (last, code) in [(1, "revoked"), (1, "expired"), (2, "revoked"), (1, "revoked")] {
            attempts.note(attempt(last, code));
        }
        assert_eq!(attempts.take().into_values().collect::<Vec<_>>(), [1, 2, 1]);
    }
}
