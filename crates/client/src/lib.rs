//! The typed client of the daemon that CLI, TUI and tests share.
//!
//! Guarantees: a request ends, with an answer or an error, within the time it was given; an answer is what the wire types say or it is
//! an error. Does not: retry, or keep connections.

mod client;
mod endpoint;

pub use client::{Client, ClientError};
pub use endpoint::{Endpoint, EndpointError};
