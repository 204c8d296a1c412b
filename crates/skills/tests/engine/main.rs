//! Real skills on the real engine. Guests are written as text where a few instructions are the point, and in Rust otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test stops at the first surprise, and builds its guests with cargo"
)]

mod artifacts;
mod compiling;
mod crowds;
mod grants;
mod guests;
mod host;
mod lab;
mod limits;
mod replays;
mod worlds;
