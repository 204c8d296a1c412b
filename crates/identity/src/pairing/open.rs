//! One open pairing: its codes, its guesses, its time, and how it ends.
//!
//! Guarantees: a guess is counted before anything is answered, so that hanging up does not save it; there are three of them, whoever makes
//! them; one device can prove itself, and nobody after it; no device is confirmed whose key was not shown to the operator; time runs out
//! whatever is done to the wall clock.
//! Does not: wait. Whoever asks passes the clock.

use std::{fmt, time::Duration};

use palyra_types::{Clock, Entropy, Sha256Digest, Timestamp, entropy::NoEntropy, word::words};

use super::{
    code::{Code, Method, PairingCode},
    daemon::ProvedDevice,
    label::Label,
    message::RefusalCode,
};

/// One open pairing.
pub struct Pairing {
    code: PairingCode,
    until: Until,
    guesses_left: u32,
    /// Guesses that were handed out and did not come back.
    under_way: u32,
    stage: Stage,
}

enum Stage {
    Waiting,
    Proved { device: ProvedDevice, observed: String },
    Confirmed,
    Over(End),
}

/// What a pairing is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingState {
    /// A device may try.
    Waiting {
        /// So many times.
        guesses_left: u32,
    },
    /// A device knows the code. The operator decides.
    Proved {
        /// Where it connected from.
        observed: String,
        /// What it calls itself. Claimed, not checked.
        name: Label,
        /// What it says it runs on. Claimed, not checked.
        os: Label,
        /// Names its key, to be compared with what the device shows.
        key: Sha256Digest,
    },
    /// The operator has said yes.
    Confirmed,
    /// Nothing comes of it any more.
    Over {
        /// Why.
        why: End,
    },
}

words! {
    /// How a pairing ends without a device.
    pub enum End ("end of a pairing") {
        /// No guesses are left.
        UsedUp = "used_up",
        /// No device proved itself in time.
        TooLate = "too_late",
        /// The operator did not answer in time.
        NotConfirmed = "not_confirmed",
        /// The operator said no.
        Denied = "denied",
        /// The device hung up before it was confirmed.
        Gone = "gone",
    }
}

/// One guess, which is used up already. It gives the code to check it against, and is given back with what came of it.
#[must_use]
pub struct Guess {
    code: PairingCode,
}

impl Guess {
    /// The code that a device which has chosen this method must know.
    #[must_use]
    pub fn code(&self, method: Method) -> Code {
        self.code.of(method)
    }
}

impl Pairing {
    /// Opens a pairing, with new codes.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn open(clock: &dyn Clock, entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        Ok(Self {
            code: PairingCode::generate(entropy)?,
            until: Until::after(clock, OPEN_FOR),
            guesses_left: GUESSES,
            under_way: 0,
            stage: Stage::Waiting,
        })
    }

    /// The codes, to be shown to the operator and to nobody else.
    #[must_use]
    pub const fn code(&self) -> &PairingCode {
        &self.code
    }

    /// Until when what comes next must have come: first the proof of a device, then the word of the operator.
    #[must_use]
    pub const fn until(&self) -> Timestamp {
        self.until.wall
    }

    /// How many guesses are left.
    #[must_use]
    pub const fn guesses_left(&self) -> u32 {
        self.guesses_left
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self, clock: &dyn Clock) -> PairingState {
        if let Some(why) = self.end(clock) {
            return PairingState::Over { why };
        }
        match &self.stage {
            Stage::Waiting => PairingState::Waiting { guesses_left: self.guesses_left },
            Stage::Proved { device, observed } => PairingState::Proved {
                observed: observed.clone(),
                name: device.name().clone(),
                os: device.os().clone(),
                key: device.key(),
            },
            Stage::Confirmed => PairingState::Confirmed,
            Stage::Over(why) => PairingState::Over { why: *why },
        }
    }

    /// Counts a guess. To be called before anything is answered to whoever makes it.
    ///
    /// # Errors
    /// When nobody may try any more.
    pub fn begin_attempt(&mut self, clock: &dyn Clock) -> Result<Guess, PairingRefusal> {
        self.waits(clock)?;
        self.guesses_left = self.guesses_left.checked_sub(1).ok_or(PairingRefusal::Over(End::UsedUp))?;
        self.under_way = self.under_way.saturating_add(1);
        Ok(Guess { code: self.code.clone() })
    }

    /// Takes back a guess that was wrong, or whose maker hung up. It stays used; the last one ends the pairing.
    pub fn failed(&mut self, guess: Guess) {
        if !self.is_of_this(&guess) {
            return;
        }
        self.under_way = self.under_way.saturating_sub(1);
        if self.guesses_left == 0 && self.under_way == 0 && matches!(self.stage, Stage::Waiting) {
            self.stage = Stage::Over(End::UsedUp);
        }
    }

    /// Takes a device that has proved that it knows the code. From now on the operator has time to confirm it.
    ///
    /// # Errors
    /// When another device was faster, the time is over, or the guess is of another pairing.
    pub fn proved(
        &mut self,
        guess: Guess,
        device: ProvedDevice,
        observed: String,
        clock: &dyn Clock,
    ) -> Result<(), PairingRefusal> {
        if !self.is_of_this(&guess) {
            return Err(PairingRefusal::OtherPairing);
        }
        self.waits(clock)?;
        self.under_way = self.under_way.saturating_sub(1);
        self.until = Until::after(clock, CONFIRM_WITHIN);
        self.stage = Stage::Proved { device, observed };
        Ok(())
    }

    /// The operator says yes to the device with this key, and to no other. Gives the device, once.
    ///
    /// # Errors
    /// When no device waits for it, or one with another key does.
    pub fn confirm(&mut self, shown: &Sha256Digest, clock: &dyn Clock) -> Result<ProvedDevice, ConfirmError> {
        if let Some(why) = self.end(clock) {
            return Err(ConfirmError::Over(why));
        }
        match std::mem::replace(&mut self.stage, Stage::Confirmed) {
            Stage::Proved { device, .. } if device.key() == *shown => Ok(device),
            other => {
                let error = match &other {
                    Stage::Proved { device, .. } => ConfirmError::OtherKey { shown: *shown, waits: device.key() },
                    Stage::Confirmed => ConfirmError::Already,
                    Stage::Waiting => ConfirmError::NoDevice,
                    Stage::Over(why) => ConfirmError::Over(*why),
                };
                self.stage = other;
                Err(error)
            }
        }
    }

    /// The operator says no, or takes a yes back before anything came of it. A pairing that is over stays as it is.
    pub fn deny(&mut self) {
        if matches!(self.stage, Stage::Waiting | Stage::Proved { .. } | Stage::Confirmed) {
            self.stage = Stage::Over(End::Denied);
        }
    }

    /// The device that proved itself hung up before it was confirmed. Its code is used: nobody else can take its place.
    pub fn gone(&mut self) {
        if matches!(self.stage, Stage::Proved { .. }) {
            self.stage = Stage::Over(End::Gone);
        }
    }

    fn waits(&self, clock: &dyn Clock) -> Result<(), PairingRefusal> {
        match self.state(clock) {
            PairingState::Waiting { .. } => Ok(()),
            PairingState::Proved { .. } | PairingState::Confirmed => Err(PairingRefusal::Busy),
            PairingState::Over { why } => Err(PairingRefusal::Over(why)),
        }
    }

    fn end(&self, clock: &dyn Clock) -> Option<End> {
        match self.stage {
            Stage::Over(why) => Some(why),
            Stage::Waiting if self.until.has_passed(clock) => Some(End::TooLate),
            Stage::Proved { .. } if self.until.has_passed(clock) => Some(End::NotConfirmed),
            _ => None,
        }
    }

    fn is_of_this(&self, guess: &Guess) -> bool {
        guess.code.digest() == self.code.digest()
    }
}

impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SECURITY: it holds codes.
        write!(f, "Pairing(until {})", self.until.wall)
    }
}

impl fmt::Debug for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guess")
    }
}

/// When something is over, by both clocks: setting the wall clock back prolongs nothing. A restart of the machine ends it.
#[derive(Clone, Copy)]
struct Until {
    wall: Timestamp,
    boot: u128,
    boot_millis: u64,
}

impl Until {
    fn after(clock: &dyn Clock, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let wall = clock.now().unix_millis().saturating_add(i64::try_from(millis).unwrap_or(i64::MAX));
        let boot = clock.boot();
        Self {
            wall: Timestamp::from_unix_millis(wall),
            boot: boot.boot,
            boot_millis: boot.millis.saturating_add(millis),
        }
    }

    fn has_passed(self, clock: &dyn Clock) -> bool {
        let boot = clock.boot();
        clock.now() >= self.wall || boot.boot != self.boot || boot.millis >= self.boot_millis
    }
}

/// Why a pairing takes no guess and no device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PairingRefusal {
    /// A device has proved itself already.
    #[error("another device has proved that it knows the code")]
    Busy,
    /// The guess was made in another pairing.
    #[error("the guess was made in another pairing")]
    OtherPairing,
    /// Nothing comes of it any more.
    #[error("the pairing is over: {}", told(*.0))]
    Over(End),
}

impl PairingRefusal {
    /// What to tell the device.
    #[must_use]
    pub const fn code(&self) -> RefusalCode {
        match self {
            Self::Busy => RefusalCode::Busy,
            Self::OtherPairing => RefusalCode::NoPairing,
            Self::Over(why) => why.code(),
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        self.code().advice()
    }
}

impl End {
    /// What to tell the device.
    #[must_use]
    pub const fn code(self) -> RefusalCode {
        match self {
            Self::UsedUp => RefusalCode::UsedUp,
            Self::TooLate => RefusalCode::TooLate,
            Self::NotConfirmed => RefusalCode::NotConfirmed,
            Self::Denied => RefusalCode::Denied,
            Self::Gone => RefusalCode::NoPairing,
        }
    }
}

/// Why the operator's word was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmError {
    /// No device has proved itself yet.
    #[error("no device has proved that it knows the code")]
    NoDevice,
    /// Another device waits.
    #[error("the device that waits has the key {}, not {}", crate::grouped(.waits), crate::grouped(.shown))]
    OtherKey {
        /// What the operator was shown.
        shown: Sha256Digest,
        /// The key of the device that waits.
        waits: Sha256Digest,
    },
    /// It was said before.
    #[error("the device is confirmed already")]
    Already,
    /// Nothing comes of it any more.
    #[error("the pairing is over: {}", told(*.0))]
    Over(End),
}

impl ConfirmError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NoDevice => "start pairing on the device first",
            Self::OtherKey { .. } => {
                "compare the key again with what the device shows; if it differs there too, deny it"
            }
            Self::Already => "nothing; the device is being let in",
            Self::Over(_) => "open a new pairing",
        }
    }
}

const fn told(why: End) -> &'static str {
    match why {
        End::UsedUp => "the code was wrong too often",
        End::TooLate => "no device proved itself in time",
        End::NotConfirmed => "the operator did not answer in time",
        End::Denied => "the operator said no",
        End::Gone => "the device hung up",
    }
}

/// How long a device has to prove itself.
pub const OPEN_FOR: Duration = Duration::from_secs(120);

/// How long the operator has to confirm it, from then.
pub const CONFIRM_WITHIN: Duration = Duration::from_secs(120);

/// How often a code may be tried.
pub const GUESSES: u32 = 3;

#[cfg(test)]
mod tests;
