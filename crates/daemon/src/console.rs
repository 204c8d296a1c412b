//! The console's sessions: a link that works once becomes a bearer that the page keeps.
//!
//! Guarantees: a link works once and for five minutes; a session ends after twelve hours, at sign-out and with the daemon; only digests are
//! kept. Cookies play no part: they would be sent to every server on this host, whatever its port.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use palyra_types::{Clock, Entropy, Sha256Digest, Timestamp, entropy::NoEntropy};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::credential;

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
    links: HashMap<Sha256Digest, Until>,
    sessions: HashMap<Sha256Digest, Until>,
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

    /// Makes a link's code.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn link(&self) -> Result<Issued, NoEntropy> {
        self.issue(LINK_FOR, |state| &mut state.links)
    }

    /// Exchanges a code for a session. A code works once.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn sign_in(&self, code: &str) -> Result<Option<Issued>, NoEntropy> {
        let link = self.state().links.remove(&credential::digest(code));
        if link.is_none_or(|until| self.is_over(until)) {
            return Ok(None);
        }
        self.issue(SESSION_FOR, |state| &mut state.sessions).map(Some)
    }

    /// Whether a session of this digest holds.
    #[must_use]
    pub fn holds(&self, session: &Sha256Digest) -> bool {
        let found = self.state().sessions.get(session).copied();
        found.is_some_and(|until| !self.is_over(until))
    }

    /// Ends a session.
    pub fn sign_out(&self, session: &Sha256Digest) {
        self.state().sessions.remove(session);
        self.ended.send_modify(|count| *count += 1);
    }

    /// Waits until a session is over.
    pub async fn over(&self, session: &Sha256Digest) {
        let mut ended = self.ended.subscribe();
        while self.holds(session) {
            // Whoever signs out is heard at once; time is looked at every now and then.
            let _ = tokio::time::timeout(LOOK_AGAIN, ended.changed()).await;
        }
    }

    fn issue(
        &self,
        duration: Duration,
        place: impl FnOnce(&mut State) -> &mut HashMap<Sha256Digest, Until>,
    ) -> Result<Issued, NoEntropy> {
        let secret = credential::generate(self.entropy.as_ref())?;
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let wall = self.clock.now().unix_millis().saturating_add(i64::try_from(millis).unwrap_or(i64::MAX));
        let until = Until {
            wall: Timestamp::from_unix_millis(wall),
            boot_millis: self.clock.boot().millis.saturating_add(millis),
        };
        let mut state = self.state();
        let kept = place(&mut state);
        kept.retain(|_, until| !self.is_over(*until));
        if kept.len() >= MOST
            && let Some(oldest) = kept.iter().min_by_key(|(_, until)| until.boot_millis).map(|(digest, _)| *digest)
        {
            kept.remove(&oldest);
        }
        kept.insert(credential::digest(&secret), until);
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

const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How many links, and how many sessions, are kept; the oldest go first.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use palyra_types::{clock::ManualClock, entropy::SystemEntropy};

    use super::*;

    fn console() -> (Console, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(0)));
        (Console::new(Arc::<ManualClock>::clone(&clock), Arc::new(SystemEntropy)), clock)
    }

    #[test]
    fn a_link_works_once() {
        let (console, _) = console();
        let link = console.link().unwrap();
        let session = console.sign_in(&link.secret).unwrap().unwrap();
        assert!(console.holds(&credential::digest(&session.secret)));
        assert!(console.sign_in(&link.secret).unwrap().is_none());
        assert!(console.sign_in("plr_guess").unwrap().is_none());
    }

    #[test]
    fn a_link_is_over_after_five_minutes_whatever_is_done_to_the_clock() {
        let (console, clock) = console();
        let link = console.link().unwrap();
        clock.advance(5 * 60 * 1_000);
        clock.set_wall(Timestamp::from_unix_millis(0));
        assert!(console.sign_in(&link.secret).unwrap().is_none());
    }

    #[test]
    fn a_session_ends_by_itself_and_at_sign_out() {
        let (console, clock) = console();
        let open = || console.sign_in(&console.link().unwrap().secret).unwrap().unwrap();
        let (first, second) = (credential::digest(&open().secret), credential::digest(&open().secret));
        console.sign_out(&first);
        assert_eq!((console.holds(&first), console.holds(&second)), (false, true));
        clock.advance(12 * 60 * 60 * 1_000);
        assert!(!console.holds(&second));
    }

    #[test]
    fn a_session_is_no_link_and_a_link_no_session() {
        let (console, _) = console();
        let link = console.link().unwrap();
        assert!(!console.holds(&credential::digest(&link.secret)));
        let session = console.sign_in(&link.secret).unwrap().unwrap();
        assert!(console.sign_in(&session.secret).unwrap().is_none());
    }

    #[test]
    fn only_so_many_links_are_kept() {
        let (console, clock) = console();
        let first = console.link().unwrap();
        for _ in 0..MOST {
            clock.advance(1);
            console.link().unwrap();
        }
        assert!(console.sign_in(&first.secret).unwrap().is_none());
    }
}
