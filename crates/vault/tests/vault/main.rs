//! The vault from outside: what it keeps, what it refuses, and what a crash leaves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on ends"
)]

mod changes;
mod crashes;
mod place;
mod tampering;
