//! Wire types: what Palyra's surfaces say to each other and to programs.
//!
//! Guarantees: every document carries the version of its form, and there is one shape for errors. Does not: think. What the fields
//! hold is decided elsewhere; this crate only spells it.
//!
//! | you look for | read |
//! |---|---|
//! | calls and receipts | [`call`] |
//! | questions and answers | [`approval`] |
//! | budgets | [`run`] |
//! | sessions, and what was said in them | [`session`] |
//! | event streams | [`event`] |
//! | records and proofs | [`journal`] |
//! | policies, explanations, replays | [`policy`] |
//! | tools, postures, workspaces | [`tool`] |
//! | devices, pairing, the authority | [`device`] |
//! | API tokens | [`token`] |
//! | members, roles, switches | [`member`] |
//! | secrets, and where they may go | [`vault`] |
//! | skills, their publishers, and calls of them run once more | [`skill`] |
//! | MCP servers behind the gateway | [`mcp`] |
//! | notes and files that agents keep | [`memory`] |
//! | calls that are proposed later | [`cron`] |
//! | what MCP clients ask | [`gateway`] |
//! | signing in to the console | [`console`] |
//! | what other programs ask before they do something themselves | [`authorize`] |
//! | errors | [`error`] |
//! | how all of it looks in OpenAPI, and what is refused of it | [`schema`], [`strict`] |

pub mod approval;
pub mod authorize;
pub mod call;
pub mod compat;
pub mod console;
pub mod cron;
pub mod device;
pub mod document;
pub mod error;
pub mod event;
pub mod gateway;
pub mod health;
pub mod journal;
pub mod mcp;
pub mod member;
pub mod memory;
pub mod policy;
pub mod run;
pub mod schema;
pub mod session;
pub mod skill;
pub mod strict;
pub mod token;
pub mod tool;
pub mod vault;

pub use document::Document;
pub use error::{ErrorBody, ErrorDetail};
pub use event::Event;
pub use health::Health;
