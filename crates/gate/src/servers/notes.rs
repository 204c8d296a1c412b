//! What the journal is told of the connections of a server that runs for long.
//!
//! Guarantees: each connection is told of, or counted in what is told of its host together; however many a server makes, it fills no more than a
//! bounded number of records a minute.
//! Does not: hold up connections. What was counted is told with the first connection of another minute, or when the server ends.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use palyra_journal::RecordKind;
use palyra_sandbox::egress::{ConnectionOutcome, ConnectionRecord};
use palyra_types::Timestamp;
use serde::Serialize;

use crate::account::Account;

/// What was told in a minute, and what was only counted.
#[derive(Default)]
pub(super) struct Notes(Mutex<Minute>);

#[derive(Default)]
struct Minute {
    began: i64,
    told: u32,
    together: BTreeMap<(String, u16), Together>,
}

/// Connections to one host that are told of in one record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Together {
    /// The host; empty for those that there are too many of.
    named: String,
    port: u16,
    connections: u64,
    refused: u64,
    sent: u64,
    received: u64,
}

impl Notes {
    /// Tells of a connection, or counts it.
    pub(super) fn note(&self, record: &ConnectionRecord, now: Timestamp, account: &Account) {
        let (before, is_told) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(record, now);
        tell(before, account);
        if is_told {
            account.tell(RecordKind::EgressConnection, record);
        }
    }

    /// Tells what was only counted so far.
    pub(super) fn close(&self, account: &Account) {
        let minute = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        tell(minute.together.into_values().collect(), account);
    }
}

fn tell(all: Vec<Together>, account: &Account) {
    for together in all {
        account.tell(RecordKind::EgressConnection, &together);
    }
}

impl Minute {
    /// What is to be told of the minute before, if this is another, and whether the connection is told of by itself.
    fn take(&mut self, record: &ConnectionRecord, now: Timestamp) -> (Vec<Together>, bool) {
        let minute = now.unix_millis().div_euclid(60_000);
        let before = match minute == self.began {
            true => Self::default(),
            false => std::mem::replace(self, Self { began: minute, ..Self::default() }),
        };
        let before = before.together.into_values().collect();
        if self.told < MOST_A_MINUTE {
            self.told += 1;
            return (before, true);
        }
        let place = (record.named.clone(), record.port);
        let is_known = self.together.len() < MOST_PLACES || self.together.contains_key(&place);
        let (named, port) = if is_known { place } else { (String::new(), 0) };
        let together = self.together.entry((named.clone(), port)).or_default();
        (together.named, together.port) = (named, port);
        together.connections += 1;
        together.refused += u64::from(matches!(record.outcome, ConnectionOutcome::Refused(_)));
        together.sent = together.sent.saturating_add(record.sent);
        together.received = together.received.saturating_add(record.received);
        (before, false)
    }
}

/// How many connections of a minute are told of one by one.
const MOST_A_MINUTE: u32 = 60;

/// How many hosts are told of each by itself, of those that are told of together.
const MOST_PLACES: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use palyra_sandbox::egress::Via;

    use super::*;

    fn to(named: &str) -> ConnectionRecord {
        ConnectionRecord {
            host: None,
            named: named.to_owned(),
            port: 443,
            via: Via::Connect,
            address: None,
            outcome: ConnectionOutcome::Closed,
            sent: 2,
            received: 3,
            duration: Duration::ZERO,
        }
    }

    const BEGIN: Timestamp = Timestamp::from_unix_millis(1_700_000_000_000);

    #[test]
    fn many_connections_to_one_host_are_one_record_a_minute_and_none_is_lost() {
        let mut minute = Minute::default();
        let told = (0..1_000).filter(|_| minute.take(&to("a.example"), BEGIN).1).count();
        assert_eq!(told, 60);
        let later = Timestamp::from_unix_millis(BEGIN.unix_millis() + 60_000);
        let (before, is_told) = minute.take(&to("a.example"), later);
        let together = Together {
            named: "a.example".to_owned(),
            port: 443,
            connections: 940,
            refused: 0,
            sent: 1_880,
            received: 2_820,
        };
        assert_eq!((before, is_told), (vec![together], true));
    }

    #[test]
    fn a_server_that_names_host_after_host_fills_a_bounded_number_of_records() {
        let mut minute = Minute::default();
        for host in 0..10_000 {
            minute.take(&to(&format!("h{host}.example")), BEGIN);
        }
        assert_eq!(minute.together.len(), MOST_PLACES + 1);
        let counted: u64 = minute.together.values().map(|one| one.connections).sum();
        assert_eq!(counted, 10_000 - u64::from(MOST_A_MINUTE));
    }
}
