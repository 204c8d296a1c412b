//! `kill -9` at any moment of whatever changes who is let in: tokens that are minted, rotated and revoked, devices that are paired, a state
//! directory that is founded. What was acknowledged is kept, what was not is there whole or not at all, and nothing half-made lets anybody in.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

#[path = "../access_kills/foundings.rs"]
mod foundings;
#[path = "../access_kills/pairings.rs"]
mod pairings;
#[path = "../access_kills/tokens.rs"]
mod tokens;
