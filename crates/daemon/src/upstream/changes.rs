//! What servers say of their tools otherwise than it is pinned, and when that is put on record.
//!
//! Guarantees: there is one record a minute of each server at most, however often it says something else; what changes in between stands in
//! the next one, as it is by then; of a server no more is held than what its last record says.
//! Does not: withhold tools. What is not as it was pinned is not offered, whether that is on record or not.

use std::{collections::BTreeMap, time::Duration};

use palyra_types::Sha256Digest;
use palyra_upstream::ServerName;
use tokio::time::Instant;

/// What a server says otherwise than it is pinned, by its names of tools.
pub(super) type Changed = BTreeMap<String, Change>;

/// How a tool has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The digest of what is pinned.
    pub(super) pinned: Option<Sha256Digest>,
    /// The digest of what the server says.
    pub(super) says: Sha256Digest,
}

/// What was put on record last, of each server.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<ServerName, Recorded>);

#[derive(Debug)]
struct Recorded {
    at: Instant,
    changed: Changed,
}

impl Changes {
    /// What is to be put on record now, and when something is next, if nothing else happens until then.
    pub(super) fn due(
        &mut self,
        changed: BTreeMap<ServerName, Changed>,
        now: Instant,
    ) -> (Vec<(ServerName, Changed)>, Option<Instant>) {
        // What is as it was pinned again is news when it changes once more.
        for (server, last) in &mut self.0 {
            let still = changed.get(server);
            last.changed.retain(|tool, _| still.is_some_and(|still| still.contains_key(tool)));
        }
        let (mut due, mut next) = (Vec::new(), None::<Instant>);
        for (server, changed) in changed {
            let last = self.0.get(&server);
            if last.is_some_and(|last| last.changed == changed) {
                continue;
            }
            match last.map(|last| last.at + BETWEEN_RECORDS).filter(|at| *at > now) {
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {
                    self.0.insert(server.clone(), Recorded { at: now, changed: changed.clone() });
                    due.push((server, changed));
                }
            }
        }
        (due, next)
    }

    /// Forgets servers that are not there any more.
    pub(super) fn keep(&mut self, is_there: impl Fn(&ServerName) -> bool) {
        self.0.retain(|server, _| is_there(server));
    }
}

const BETWEEN_RECORDS: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> ServerName {
        ServerName::parse("gh").unwrap()
    }

    fn changed(tools: &[(&str, u32)]) -> Changed {
        let pinned = Some(Sha256Digest::of(b"pinned"));
        let change = |says: u32| Change { pinned, says: Sha256Digest::of(&says.to_be_bytes()) };
        tools.iter().map(|(tool, says)| ((*tool).to_owned(), change(*says))).collect()
    }

    fn of_server(tools: &[(&str, u32)]) -> BTreeMap<ServerName, Changed> {
        [(server(), changed(tools))].into()
    }

    #[test]
    fn a_server_that_changes_all_the_time_is_on_record_once_a_minute() {
        let (mut changes, begin) = (Changes::default(), Instant::now());
        let mut records = Vec::new();
        for tenth in 0..1_300 {
            let now = begin + Duration::from_millis(100) * tenth;
            let (due, next) = changes.due(of_server(&[("a", tenth), ("b", tenth)]), now);
            assert_eq!(next.is_some(), due.is_empty());
            records.extend(due.into_iter().map(|(_, changed)| (tenth, changed)));
        }
        let told = |tenth| (tenth, changed(&[("a", tenth), ("b", tenth)]));
        assert_eq!(records, [told(0), told(600), told(1_200)]);
    }

    #[test]
    fn what_changes_within_the_minute_stands_in_the_next_record() {
        let (mut changes, begin) = (Changes::default(), Instant::now());
        assert_eq!(changes.due(of_server(&[("a", 1)]), begin), (vec![(server(), changed(&[("a", 1)]))], None));
        let next = Some(begin + BETWEEN_RECORDS);
        let soon = begin + Duration::from_secs(1);
        assert_eq!(changes.due(of_server(&[("a", 1)]), soon), (Vec::new(), None));
        assert_eq!(changes.due(of_server(&[("a", 1), ("b", 2)]), soon), (Vec::new(), next));
        let due = changes.due(of_server(&[("a", 1), ("b", 2)]), begin + BETWEEN_RECORDS);
        assert_eq!(due, (vec![(server(), changed(&[("a", 1), ("b", 2)]))], None));
    }

    #[test]
    fn what_changes_back_and_again_is_news_and_a_server_that_is_gone_is_forgotten() {
        let (mut changes, begin) = (Changes::default(), Instant::now());
        changes.due(of_server(&[("a", 1)]), begin);
        assert_eq!(changes.due(BTreeMap::new(), begin), (Vec::new(), None));
        assert_eq!(changes.due(of_server(&[("a", 1)]), begin).1, Some(begin + BETWEEN_RECORDS));
        changes.keep(|_| false);
        assert_eq!(changes.due(of_server(&[("a", 1)]), begin).0.len(), 1);
    }
}
