//! Strict egress: what the daemon does with the sockets that a run's network namespace was given instead of a network.
//!
//! ```text
//!              inside the namespace         │  in the daemon
//! program ──► UDP 127.0.0.1:53 ─────────────┼─► dns ──► a synthetic address, or no such name
//!         ──► TCP 127.0.0.1:3128 ───────────┼─► http, socks ─┐
//!         ──► TCP 198.18.0.0/15:80, :443 ───┼─► direct ──────┴─► ruling ─► connector ─► opening ─► relay
//! ```
//!
//! | you look for | read |
//! |---|---|
//! | what is configured | [`HostRule`], [`HostRules`] |
//! | who decides, and what is told afterwards | [`Doorkeeper`], [`ConnectionRecord`] |
//! | why something was refused | [`EgressRefusal`] |
//! | the way out | [`Connector`], [`Resolve`], [`is_public`] |
//! | the whole for one run | [`EgressServer`] |
//! | who may look into connections, and change what passes | [`Interceptor`], `conversation.rs` |
//! | whom programs trust then | [`RunAuthority`] |
//! | what is seen where nothing is held | `observe.rs` |
//! | requests of the daemon itself, by the same rules | [`fetch`] |
//!
//! Guarantees: nothing leaves but to a host that was ruled on, at an address that was judged, opened as its rule
//! demands. Names are resolved only after the ruling. What is allowed no more is closed. Each connection is noted once.
//! Refuses: names that programs read differently, addresses that are not public, the daemon's own listeners.
//! Does not: look into TLS, but for the hosts that an interceptor asks for. A host that serves several names behind one
//! certificate can be asked for another of them inside the encryption (domain fronting). Without an interceptor, only the
//! first request of a plain connection that does not come through the proxy is looked at; and whatever passes under a rule
//! with `tls = "any"` is looked at by nobody, unless it is a plain request to the proxy.

mod address;
mod authority;
mod body;
mod connect;
mod conversation;
mod direct;
mod dns;
mod door;
pub mod fetch;
mod greeting;
mod heads;
mod hello;
mod http;
mod intercept;
mod ledger;
mod lobby;
mod message;
mod names;
mod observe;
mod opening;
mod refusal;
mod relay;
mod request;
mod resolve;
mod rewound;
mod rules;
mod run;
mod run_authority;
mod server;
mod socks;
mod tunnel;

pub use address::{NotPublic, is_public};
pub use connect::{Connected, Connector, Dial, Forbidden, SystemDial};
pub use door::{Admitted, ConnectionOutcome, ConnectionRecord, Doorkeeper, Glance, Ruling, Terms, Via};
pub use intercept::{BodyFilter, Interception, Interceptor, Unchanged};
pub use ledger::{EgressSummary, RefusedTarget};
pub use names::{SyntheticRange, SyntheticRangeError};
pub(crate) use observe::Observer;
pub use refusal::{EgressRefusal, EgressRefusalKind};
pub use resolve::{Resolve, SystemResolver, Turn};
pub use rules::{HostPattern, HostPatternError, HostRule, HostRuleError, HostRules, PrivateAddresses, TlsDemand};
pub use run::EgressLimits;
pub use run_authority::{NoAuthority, RunAuthority, SUBJECT_HASH};
pub use server::{EgressServer, EgressSockets};
