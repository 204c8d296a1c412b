//! Providers against a server that follows a script, and misbehaves where the script says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

mod breaking;
mod exchange;
mod failing;
mod lab;
mod routing;
mod scripted;
mod tls;
