//! Defences that are switched off, to show that an attack succeeds without them. Debug builds only: a release has neither this file nor what
//! travels to the init for it.
//!
//! `PALYRA_WEAKEN` in the daemon's environment lists them, separated by commas. A word that is none of them switches nothing off.
//! Guarantees: what is not listed holds as ever.

use palyra_types::host::HostName;

use crate::{blueprint::weakness, outcome::Layer, protocol::probe};

/// What is switched off in the daemon itself, besides what [`weakness`] names.
pub mod egress {
    /// The strict reading of hosts.
    pub const HOST_PARSER: u64 = 1 << 32;
    /// The list of hosts: whoever names a port of any of them is let through.
    pub const HOST_RULES: u64 = 1 << 33;
    /// The judging of addresses.
    pub const PRIVATE_ADDRESSES: u64 = 1 << 34;
    /// The looking at what a connection begins with.
    pub const OPENING: u64 = 1 << 35;
    /// The daemon's own listeners being out of reach.
    pub const OWN_LISTENERS: u64 = 1 << 36;
}

/// What is switched off, as bits.
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

/// What temporary files may take at least, where limits are off.
pub fn more_room() -> u64 {
    if is_off(weakness::LIMITS) { 1 << 30 } else { 0 }
}

/// A host as a careless program reads it: what stands before an `@` or behind a NUL does not count, nor does a dot at the end or a zone, and
/// numbers are addresses in whatever way they are spelt.
pub fn read_carelessly(text: &str) -> Option<HostName> {
    if !is_off(egress::HOST_PARSER) {
        return None;
    }
    let text = text.rsplit('@').next()?.split("%00").next()?.split('\0').next()?;
    let text = match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(address) => format!("[{}]", address.split('%').next()?),
        None => text.trim_end_matches('.').to_owned(),
    };
    let spelt = address_of_numbers(&text).map_or(text, |address| address.to_string());
    HostName::parse(&spelt).ok()
}

/// An address as the C library has always read it: one to four numbers, octal and hexadecimal ones too, the last of which fills the rest.
fn address_of_numbers(text: &str) -> Option<std::net::Ipv4Addr> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    };
    let numbers: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (&last, before) = numbers.split_last().filter(|(_, before)| before.len() < 4)?;
    let high = before.iter().zip([24_u32, 16, 8]).fold(0, |high, (&number, place)| high | (number << place));
    Some((high | last).into())
}

/// Each defence by its name, and the checks that look at it.
const DEFENCES: [(&str, u64, u64); 14] = [
    ("seccomp", weakness::SECCOMP, OF_FILTERS),
    ("landlock", weakness::LANDLOCK, probe::LANDLOCK),
    // Landlock holds this file, too, unless it is off as well.
    ("user", weakness::USER, probe::NOT_ROOT | probe::CORE_PATTERN),
    ("close_range", weakness::CLOSE_RANGE, 0),
    ("network", weakness::NETWORK, probe::NETWORK),
    ("mounts", weakness::MOUNTS, 0),
    ("capabilities", weakness::CAPABILITIES, probe::STATUS),
    ("limits", weakness::LIMITS, 0),
    ("init", weakness::INIT, 0),
    ("host_parser", egress::HOST_PARSER, 0),
    ("host_rules", egress::HOST_RULES, 0),
    ("private_addresses", egress::PRIVATE_ADDRESSES, 0),
    ("opening", egress::OPENING, 0),
    ("own_listeners", egress::OWN_LISTENERS, 0),
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
