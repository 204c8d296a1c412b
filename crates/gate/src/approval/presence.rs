//! The PIN that shows that a person is there when an approval is answered.
//!
//! Guarantees: only an Argon2id hash of the PIN is kept; a few wrong guesses in a row lock it for a while, whoever makes them; an unlocked
//! session of answering ends by itself and with the daemon.
//! Does not: protect against who can read the daemon's memory or replace its files. It stops a credential that is used without its owner.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use palyra_types::Clock;

/// A PIN, as its hash.
pub struct PresencePin {
    hash: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Until when each session of answering is unlocked, by the clock that counts from the machine's start.
    unlocked: HashMap<String, u64>,
    wrong_in_a_row: u32,
    locked_until: u64,
}

impl PresencePin {
    /// Hashes a new PIN. What is returned is to be kept in a file that only the owner can read.
    ///
    /// # Errors
    /// When the PIN is too short, or cannot be hashed.
    pub fn hash(pin: &str) -> Result<String, PresenceError> {
        if pin.chars().count() < SHORTEST {
            return Err(PresenceError::TooShort);
        }
        let hash = Argon2::default().hash_password(pin.as_bytes()).map_err(|_| PresenceError::Unusable)?;
        Ok(hash.to_string())
    }

    /// A PIN from its hash.
    ///
    /// # Errors
    /// When it is not the hash of a PIN.
    pub fn new(hash: &str) -> Result<Self, PresenceError> {
        PasswordHash::new(hash.trim()).map_err(|_| PresenceError::Unusable)?;
        Ok(Self { hash: hash.trim().to_owned(), state: Mutex::default() })
    }

    /// Whether this is the PIN. Takes some tens of milliseconds, on purpose.
    ///
    /// # Errors
    /// When the PIN is wrong, or was wrong too often.
    pub fn check(&self, pin: &str, clock: &dyn Clock) -> Result<(), PresenceError> {
        let now = clock.boot().millis;
        {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if now < state.locked_until {
                return Err(PresenceError::Locked { for_ms: state.locked_until - now });
            }
        }
        let hash = PasswordHash::new(&self.hash).map_err(|_| PresenceError::Unusable)?;
        let right = Argon2::default().verify_password(pin.as_bytes(), &hash).is_ok();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now < state.locked_until {
            // Guesses made at the same time do not get around the limit.
            return Err(PresenceError::Locked { for_ms: state.locked_until - now });
        }
        if right {
            state.wrong_in_a_row = 0;
            return Ok(());
        }
        state.wrong_in_a_row += 1;
        let left = GUESSES.saturating_sub(state.wrong_in_a_row);
        if left == 0 {
            state.wrong_in_a_row = 0;
            state.locked_until = now.saturating_add(millis(LOCKED_FOR));
        }
        Err(PresenceError::Wrong { left })
    }

    /// Unlocks a session of answering for a while. To be called once it is on record who knew the PIN.
    pub fn unlock(&self, session: &str, clock: &dyn Clock) {
        let now = clock.boot().millis;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unlocked.retain(|_, until| *until > now);
        state.unlocked.insert(session.to_owned(), now.saturating_add(millis(UNLOCKED_FOR)));
    }

    /// Whether a session of answering is unlocked.
    #[must_use]
    pub fn is_unlocked(&self, session: &str, clock: &dyn Clock) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unlocked.get(session).is_some_and(|&until| clock.boot().millis < until)
    }

    /// Ends a session of answering.
    pub fn lock(&self, session: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).unlocked.remove(session);
    }
}

impl std::fmt::Debug for PresencePin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: a PIN is short enough to be guessed from its hash, so the hash does not belong in logs.
        f.write_str("PresencePin")
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why there is no presence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresenceError {
    /// A PIN with too few characters.
    #[error("a PIN has at least {SHORTEST} characters")]
    TooShort,
    /// Not the PIN.
    #[error("the PIN is wrong; {}", match .left { 0 => "it is locked now".to_owned(), 1 => "one guess is left".to_owned(), left => format!("{left} guesses are left") })]
    Wrong {
        /// How many guesses are left before it is locked.
        left: u32,
    },
    /// Wrong too often.
    #[error("the PIN was wrong too often; wait {} s", .for_ms.div_ceil(1_000))]
    Locked {
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// The hash that is kept is none.
    #[error("the PIN that is kept cannot be used")]
    Unusable,
}

/// Fewer are guessed too easily, even five at a time.
const SHORTEST: usize = 6;

/// Wrong guesses in a row before it is locked.
const GUESSES: u32 = 5;

const LOCKED_FOR: Duration = Duration::from_secs(15 * 60);

const UNLOCKED_FOR: Duration = Duration::from_secs(30 * 60);

#[cfg(test)]
mod tests {
    use palyra_types::{Timestamp, clock::ManualClock};

    use super::*;

    fn pin() -> (PresencePin, ManualClock) {
        let pin = PresencePin::new(&PresencePin::hash("482913").unwrap()).unwrap();
        (pin, ManualClock::at(Timestamp::from_unix_millis(0)))
    }

    #[test]
    fn the_right_pin_unlocks_one_session_for_a_while() {
        let (pin, clock) = pin();
        assert_eq!(pin.check("482913", &clock), Ok(()));
        assert!(!pin.is_unlocked("tui", &clock));
        pin.unlock("tui", &clock);
        assert!(pin.is_unlocked("tui", &clock));
        assert!(!pin.is_unlocked("console", &clock));
        clock.advance(30 * 60 * 1000);
        assert!(!pin.is_unlocked("tui", &clock));
    }

    #[test]
    fn five_wrong_guesses_lock_it_even_for_the_right_pin() {
        let (pin, clock) = pin();
        for left in [4, 3, 2, 1, 0] {
            assert_eq!(pin.check("000000", &clock), Err(PresenceError::Wrong { left }));
        }
        assert_eq!(pin.check("482913", &clock), Err(PresenceError::Locked { for_ms: 900_000 }));
        clock.set_wall(Timestamp::from_unix_millis(i64::MAX / 2));
        assert!(matches!(pin.check("482913", &clock), Err(PresenceError::Locked { .. })));
        clock.advance(900_000);
        assert_eq!(pin.check("482913", &clock), Ok(()));
    }

    #[test]
    fn a_pin_does_not_show_its_hash_in_debug_output() {
        assert_eq!(format!("{:?}", pin().0), "PresencePin");
    }

    #[test]
    fn a_short_pin_and_a_broken_hash_are_refused() {
        assert_eq!(PresencePin::hash("12345"), Err(PresenceError::TooShort));
        assert!(matches!(PresencePin::new("plain"), Err(PresenceError::Unusable)));
    }
}
