//! The console's sessions: a link that works once becomes a bearer that the page keeps.
//!
//! Guarantees: a link works once and for five minutes; a session ends after twelve hours, at sign-out, with the device that opened it and with
//! the daemon; only digests are kept. Cookies play no part: they would be sent to every server on this host, whatever its port.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use palyra_access::{CredentialKind, TokenText};
use palyra_types::{Clock, Entropy, Sha256Digest, Timestamp, entropy::NoEntropy};
use tokio::sync::watch;
use zeroize::Zeroizing;

/// The links and sessions there are.
pub struct Console {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    state: Mutex<State>,
    /// Counts sign-outs, for whoever follows something in the name of a session.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    links: HashMap<Sha256Digest, Issue>,
    sessions: HashMap<Sha256Digest, Issue>,
}

/// Until when something works, and the key of the device that opened it.
#[derive(Clone, Copy)]
struct Issue {
    until: Until,
    device: Sha256Digest,
}

/// When something is over, by both clocks: setting the wall clock back prolongs nothing.
#[derive(Clone, Copy)]
struct Until {
    wall: Timestamp,
    boot_millis: u64,
}

/// Something secret, and until when it works.
pub struct Issued {
    /// What was issued.
    pub secret: Zeroizing<String>,
    /// Until when it works.
    pub until: Timestamp,
}

impl Console {
    /// No links and no sessions.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy, state: Mutex::default(), ended: watch::channel(0).0 }
    }

    /// Makes a link's code, for the device that has this key.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn link(&self, device: Sha256Digest) -> Result<Issued, NoEntropy> {
        self.issue((CredentialKind::Link, LINK_FOR), device, |state| &mut state.links)
    }

    /// Exchanges a code for a session. A code works once.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn sign_in(&self, code: &str) -> Result<Option<Issued>, NoEntropy> {
        let link = self.state().links.remove(&Sha256Digest::of(code.as_bytes()));
        let Some(Issue { device, .. }) = link.filter(|link| !self.is_over(link.until)) else { return Ok(None) };
        self.issue((CredentialKind::Console, SESSION_FOR), device, |state| &mut state.sessions).map(Some)
    }

    /// The key of the device that opened a session, if the session holds.
    #[must_use]
    pub fn opened_by(&self, session: &Sha256Digest) -> Option<Sha256Digest> {
        let found = self.state().sessions.get(session).copied();
        found.filter(|issue| !self.is_over(issue.until)).map(|issue| issue.device)
    }

    /// Until when a session holds.
    #[must_use]
    pub fn until(&self, session: &Sha256Digest) -> Option<Timestamp> {
        self.state().sessions.get(session).map(|issue| issue.until.wall)
    }

    /// Whether a session of this digest holds.
    #[must_use]
    pub fn holds(&self, session: &Sha256Digest) -> bool {
        self.opened_by(session).is_some()
    }

    /// Ends a session.
    pub fn sign_out(&self, session: &Sha256Digest) {
        self.state().sessions.remove(session);
        self.ended.send_modify(|count| *count += 1);
    }

    /// Counts sign-outs, for whoever follows something in the name of a session.
    #[must_use]
    pub fn sign_outs(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    fn issue(
        &self,
        (kind, duration): (CredentialKind, Duration),
        device: Sha256Digest,
        place: impl FnOnce(&mut State) -> &mut HashMap<Sha256Digest, Issue>,
    ) -> Result<Issued, NoEntropy> {
        let (secret, digest) = TokenText::generate(kind, self.entropy.as_ref())?;
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let wall = self.clock.now().unix_millis().saturating_add(i64::try_from(millis).unwrap_or(i64::MAX));
        let until = Until {
            wall: Timestamp::from_unix_millis(wall),
            boot_millis: self.clock.boot().millis.saturating_add(millis),
        };
        let mut state = self.state();
        let kept = place(&mut state);
        kept.retain(|_, issue| !self.is_over(issue.until));
        // SECURITY: whoever opens many loses their own, and nobody else's.
        let of_it = kept.iter().filter(|(_, issue)| issue.device == device);
        if of_it.clone().count() >= MOST {
            let oldest = of_it.min_by_key(|(_, issue)| issue.until.boot_millis).map(|(digest, _)| *digest);
            oldest.map(|oldest| kept.remove(&oldest));
        }
        kept.insert(digest, Issue { until, device });
        Ok(Issued { secret, until: until.wall })
    }

    fn is_over(&self, until: Until) -> bool {
        self.clock.now() >= until.wall || self.clock.boot().millis >= until.boot_millis
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LINK_FOR: Duration = Duration::from_secs(5 * 60);

const SESSION_FOR: Duration = Duration::from_secs(12 * 60 * 60);

/// How many links, and how many sessions, are kept of one device; the oldest go first.
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use palyra_types::{clock::ManualClock, entropy::SystemEntropy};

    use super::*;

    const DEVICE: Sha256Digest = Sha256Digest::from_bytes([7; 32]);

    fn digest(issued: &Issued) -> Sha256Digest {
        Sha256Digest::of(issued.secret.as_bytes())
    }

    fn console() -> (Console, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(0)));
        (Console::new(Arc::<ManualClock>::clone(&clock), Arc::new(SystemEntropy)), clock)
    }

    #[test]
    fn a_link_works_once() {
        let (console, _) = console();
        let link = console.link(DEVICE).unwrap();
        let session = console.sign_in(&link.secret).unwrap().unwrap();
        assert_eq!(console.opened_by(&digest(&session)), Some(DEVICE));
        assert!(console.sign_in(&link.secret).unwrap().is_none());
        assert!(console.sign_in("plr_guess").unwrap().is_none());
    }

    #[test]
    fn a_link_is_over_after_five_minutes_whatever_is_done_to_the_clock() {
        let (console, clock) = console();
        let link = console.link(DEVICE).unwrap();
        clock.advance(5 * 60 * 1_000);
        clock.set_wall(Timestamp::from_unix_millis(0));
        assert!(console.sign_in(&link.secret).unwrap().is_none());
    }

    #[test]
    fn a_session_ends_by_itself_and_at_sign_out() {
        let (console, clock) = console();
        let open = || console.sign_in(&console.link(DEVICE).unwrap().secret).unwrap().unwrap();
        let (first, second) = (digest(&open()), digest(&open()));
        console.sign_out(&first);
        assert_eq!((console.holds(&first), console.holds(&second)), (false, true));
        clock.advance(12 * 60 * 60 * 1_000);
        assert!(!console.holds(&second));
    }

    #[test]
    fn a_session_is_no_link_and_a_link_no_session() {
        let (console, _) = console();
        let link = console.link(DEVICE).unwrap();
        assert!(!console.holds(&digest(&link)));
        let session = console.sign_in(&link.secret).unwrap().unwrap();
        assert!(console.sign_in(&session.secret).unwrap().is_none());
    }

    #[test]
    fn only_so_many_links_are_kept() {
        let (console, clock) = console();
        let first = console.link(DEVICE).unwrap();
        for _ in 0..MOST {
            clock.advance(1);
            console.link(DEVICE).unwrap();
        }
        assert!(console.sign_in(&first.secret).unwrap().is_none());
    }
}
