//! The typed client of the daemon that CLI, TUI and tests share.
//!
//! Guarantees: a short request ends, with an answer or an error, within the time it was given; an answer is what the wire types say or it
//! is an error; a credential goes to a daemon of the given authority, or to a loopback address, and to nobody else.
//! Does not: repeat what may have been received, or reconnect a stream. Who reads a stream knows where it was.
//!
//! | you look for | read |
//! |---|---|
//! | how to reach a daemon | [`Client`], [`Endpoint`], [`DeviceKeys`], [`Bearer`] |
//! | one method for each route | `routes.rs`; `vault.rs` for those of the vault, [`skills`] for those of skills, `mcp.rs` for those of MCP servers, `keeping.rs` for what agents keep and schedule |
//! | events as they happen | [`EventStream`], [`Told`] |
//! | the MCP server, message by message | [`McpHead`], [`McpAnswer`] |
//! | why there is no answer | [`ClientError`] |

mod bearer;
mod client;
mod connection;
mod endpoint;
mod error;
mod gateway;
mod keeping;
mod mcp;
mod query;
mod routes;
pub mod skills;
mod sse;
mod stream;
mod told;
mod transport;
mod vault;

pub use bearer::{Bearer, BearerError};
pub use client::Client;
pub use endpoint::{Endpoint, EndpointError};
pub use error::ClientError;
pub use gateway::{McpAnswer, McpHead};
pub use palyra_types::IdempotencyKey;
pub use routes::Proposed;
pub use stream::EventStream;
pub use told::{Told, Which};
pub use transport::{CertificateError, DeviceKeys};
