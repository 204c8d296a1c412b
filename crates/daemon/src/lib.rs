//! `palyrad`: serves the gate over HTTP, on two listeners.
//!
//! Guarantees: a request reaches a handler only from this machine's own pages and programs, with a credential that is known; what its holder
//! may do, policy says; nothing is served before what an earlier daemon left is in order. Does not: decide, run or record anything itself.
//!
//! | you look for | read |
//! |---|---|
//! | start, reload, drain, stop | [`daemon`], [`world`] |
//! | the state directory and who is let in from the beginning | [`installation`], [`founding`] |
//! | `config.toml` | [`config`] |
//! | listeners, their places and connections | [`listen`], [`places`], [`conversation`] |
//! | what every request passes through | [`edge`], [`extract`], [`failure`] |
//! | who may ask for which route, and who is asking | [`rules`], [`authorise`], [`caller`], [`origin`], [`attempts`], [`standing`] |
//! | what they may see | [`oversight`] |
//! | changing who is let in; pairing; certificates, and another authority | [`governing`], [`pairings`] and `pairing_conversation.rs`, [`certifier`], `rotation.rs` |
//! | the routes, one file for each noun | [`routes`] |
//! | how a call is proposed, and a key counts once | [`proposing`], [`keys`], [`runs`] |
//! | what is told about calls and questions | [`story`], [`question`], [`explanation`] |
//! | event streams | [`hub`], [`streams`] |
//! | reloads and replays of policies | [`policies`] |
//! | who holds the key of the vault, and when it is opened | [`vault`] |
//! | when skills are opened, how they are told, and their compiler | [`skills`] |
//! | models, chats and responses for clients of other products | [`compat`] |
//! | what is kept of what was said with agent models | [`transcripts`] |
//! | what other programs ask before they do something themselves | [`hooks`] |
//! | MCP servers behind the gateway | [`upstream`] |
//! | what agents keep: notes and files | [`keeping`] |
//! | calls that are proposed later | [`scheduling`] |
//! | the MCP server that clients of models use | [`mcp`] |
//! | the console's sessions | [`console`] |
//! | health and figures | [`readiness`], [`sandbox`], [`figures`], [`log`] |

pub mod app;
pub mod attempts;
pub mod authorise;
pub mod caller;
pub mod certifier;
pub mod compat;
pub mod config;
pub mod console;
pub mod contact;
pub mod conversation;
pub mod daemon;
pub mod edge;
pub mod explanation;
pub mod extract;
pub mod failure;
pub mod figures;
pub mod founding;
pub mod governing;
pub mod hooks;
pub mod hub;
pub mod installation;
pub mod keeping;
pub mod keys;
pub mod listen;
pub mod log;
pub mod mcp;
pub mod origin;
pub mod oversight;
mod pairing_conversation;
pub mod pairings;
pub mod places;
pub mod policies;
pub mod proposing;
pub mod question;
pub mod readiness;
pub mod renewals;
mod reply;
mod rotation;
pub mod routes;
pub mod rules;
pub mod runs;
pub mod sandbox;
pub mod scheduling;
pub mod skills;
pub mod standing;
mod start;
pub mod story;
pub mod streams;
pub mod transcripts;
pub mod upstream;
pub mod vault;
pub mod world;

pub use config::{Config, environment};
pub use contact::{Contact, Serving};
pub use daemon::{Daemon, StartError};
pub use installation::{Installation, InstallationError};
pub use palyra_gate::skills::{SkillFailure, rehearsal};
pub use skills::compiler_child;
pub use start::{ServeError, ports_are_free, serve, serve_with};
pub use world::World;
