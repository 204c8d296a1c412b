//! Bytes as a package, and everything that a package is made of.

#![no_main]

#[path = "../../crates/skills/tests/intake/entries.rs"]
#[allow(dead_code, reason = "each target has one of the entries")]
mod entries;
#[path = "../../crates/skills/tests/probing/witness.rs"]
mod witness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::package(bytes);
});
