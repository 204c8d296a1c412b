//! Defences that are switched off, to show that an attack succeeds without them. Debug builds only: a release has neither this file nor what
//! travels to the init for it.
//!
//! `PALYRA_WEAKEN` in the daemon's environment lists them, separated by commas. A word that is none of them switches nothing off.
//! Guarantees: what is not listed holds as ever.

use crate::{blueprint::weakness, outcome::Layer, protocol::probe};

/// What is switched off, as [`weakness`] bits.
pub fn weaknesses() -> u64 {
    let listed = std::env::var("PALYRA_WEAKEN").unwrap_or_default();
    let bit = |word: &str| DEFENCES.iter().find(|(name, ..)| *name == word).map_or(0, |(_, bit, _)| *bit);
    listed.split(',').fold(0, |bits, word| bits | bit(word.trim()))
}

/// Whether this is among what is switched off.
pub fn is_off(defence: u64) -> bool {
    weaknesses() & defence != 0
}

/// Whether a layer that is told of without the init holds: what is attested stays true.
pub fn holds(layer: &Layer) -> bool {
    !(matches!(layer, Layer::CallFilter { .. }) && is_off(weakness::SECCOMP))
}

/// The checks of the start-up probe that cannot pass without what is switched off.
pub fn excused() -> u64 {
    let off = weaknesses();
    DEFENCES.iter().filter(|(_, bit, _)| off & bit != 0).fold(0, |checks, (.., excused)| checks | excused)
}

/// Each defence by its name, and the checks that look at it.
const DEFENCES: [(&str, u64, u64); 5] = [
    ("seccomp", weakness::SECCOMP, OF_FILTERS),
    ("landlock", weakness::LANDLOCK, probe::LANDLOCK),
    // Landlock holds this file, too, unless it is off as well.
    ("user", weakness::USER, probe::NOT_ROOT | probe::CORE_PATTERN),
    ("close_range", weakness::CLOSE_RANGE, 0),
    ("network", weakness::NETWORK, probe::NETWORK),
];

/// The probe gets a user namespace then, in which it is nobody in particular and has every capability.
const OF_FILTERS: u64 = probe::NAMESPACES
    | probe::TRACING
    | probe::MOUNTING
    | probe::KEYS
    | probe::KERNEL_PROGRAMS
    | probe::RINGS
    | probe::NEWER_FORK
    | probe::UNIX_SOCKETS
    | probe::SET_USER
    | probe::STATUS
    | probe::NOT_ROOT;
