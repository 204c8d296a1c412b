//! The registry from outside: what it keeps, what it finds, what it refuses, and that it loses nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and some kill a process that they started"
)]

mod changes;
mod documents;
mod files;
mod kills;
mod lab;
mod limits;
mod lookups;
mod scan;
mod sequences;
mod steps;
