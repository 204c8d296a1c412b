//! The name service inside: tells allowed names by synthetic addresses, and nothing else.
//!
//! Guarantees: no query goes anywhere, so no name leaks, allowed or not. A name that is refused does not exist, and is
//! noted once.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_types::host::HostName;
use tokio::net::UdpSocket;

use super::{
    authority::not_a_host,
    door::{Glance, Via},
    ledger::Entry,
    message::{Answer, Incoming, Query, Wanted},
    refusal::{EgressRefusal, EgressRefusalKind as Kind, shown},
    run::Run,
};

/// Answers until it is dropped.
pub(crate) async fn serve(run: Arc<Run>, socket: UdpSocket) {
    let mut desk = Desk { run, noted: HashSet::new() };
    let mut buffer = [0; LONGEST + 1];
    let mut pace = Pace { since: Instant::now(), answered: 0 };
    loop {
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let answer = buffer.get(..length).filter(|query| query.len() <= LONGEST).and_then(|query| desk.answer(query));
        if let Some(answer) = answer {
            // Whoever asked asks again if it does not arrive.
            let _ = socket.send_to(&answer, client).await;
        }
        pace.keep().await;
    }
}

/// Holds back a program that does nothing but ask, so that the daemon does not do nothing but answer.
struct Pace {
    since: Instant,
    answered: u32,
}

impl Pace {
    async fn keep(&mut self) {
        self.answered += 1;
        if self.answered < BURST {
            return;
        }
        tokio::time::sleep(BURST_TIME.saturating_sub(self.since.elapsed())).await;
        *self = Self { since: Instant::now(), answered: 0 };
    }
}

struct Desk {
    run: Arc<Run>,
    /// The names that were refused, as far as they are noted at all.
    noted: HashSet<String>,
}

impl Desk {
    fn answer(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        match Incoming::read(bytes) {
            Incoming::Query(query) => Some(query.answered(self.look_up(&query))),
            Incoming::Wrong(answer) => Some(answer),
            Incoming::Noise => None,
        }
    }

    fn look_up(&mut self, query: &Query<'_>) -> Answer {
        let host = match &query.name {
            Ok(host) => host,
            Err(text) => {
                self.refuse(text, None, not_a_host(text));
                return Answer::NoSuchName;
            }
        };
        match (self.run.keeper.glance(host), query.wanted) {
            (Glance::Refused(refusal), _) => {
                self.refuse(host.as_str(), Some(host), refusal);
                Answer::NoSuchName
            }
            (Glance::MayPass, Wanted::Other) => Answer::Empty,
            (Glance::MayPass, Wanted::Address) => self.run.names.address_of(host).map_or_else(
                || {
                    let detail = format!("`{host}` is one name too many for a run");
                    self.refuse(host.as_str(), Some(host), EgressRefusal::new(Kind::TooManyConnections, detail));
                    Answer::Failure
                },
                Answer::Address,
            ),
        }
    }

    fn refuse(&mut self, named: &str, host: Option<&HostName>, refusal: EgressRefusal) {
        let most = usize::try_from(self.run.limits.notes).unwrap_or(usize::MAX);
        let known = shown(named);
        if self.noted.contains(&known) {
            return;
        }
        if self.noted.len() <= most {
            self.noted.insert(known);
        }
        let mut entry = Entry::new(&self.run.ledger, Via::Dns).named(named, PORT);
        if let Some(host) = host {
            entry.meant(host, PORT);
        }
        entry.refused(refusal);
    }
}

const PORT: u16 = 53;

/// So many questions are answered in [`BURST_TIME`]; others wait in the kernel's queue.
const BURST: u32 = 400;
const BURST_TIME: Duration = Duration::from_millis(100);

/// Longer than any question with its options.
const LONGEST: usize = 4096;
