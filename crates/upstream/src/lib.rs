//! MCP servers behind the gateway: what is configured of them, how they are spoken with, and what is pinned of their tools.
//!
//! Guarantees: whatever a server sends, memory and time stay bounded, and what is not understood is an error that says so; a tool counts only
//! while its server says exactly what a person has pinned.
//! Does not: decide, ask, start programs or hold secrets. The daemon hands over pipes and credentials, and has the gate judge every call.
//!
//! | you look for | read |
//! |---|---|
//! | what is configured | [`section`], [`server_url`] |
//! | names of servers and tools | [`name`] |
//! | what is pinned, and how tools stand | [`pins`], [`definition`], [`diff`] |
//! | where that is kept | [`kept`] |
//! | a conversation with a server | [`client`] |
//! | over pipes | `lines` |
//! | over HTTP | [`http`], `events`, `connect` |
//! | what bounds a server | `guard`, `weight`, `bucket`, `pace` |
//! | what it says, without secrets | `hiding` |

mod bucket;
pub mod client;
mod connect;
pub mod definition;
pub mod diff;
mod events;
mod fate;
mod guard;
mod hiding;
pub mod http;
pub mod kept;
mod lines;
pub mod name;
mod pace;
pub mod pins;
pub mod section;
pub mod server_url;
mod weight;

pub use client::{About, Answer, Client, ClientError};
pub use definition::Definition;
pub use diff::DiffLine;
pub use fate::Trouble;
pub use http::{Credentials, HttpLink, NoCredential};
pub use kept::{KeptError, KeptFile};
pub use name::{NameRefusal, ServerName, ServerNameError};
pub use pins::{Pins, PinsError, Standing, ToolState};
pub use rmcp::model::{JsonObject as Arguments, Tool};
pub use section::{Address, HostAndPort, Program, Reach, SectionError, ServerSection, ToolPattern, check};
pub use server_url::ServerUrl;
