//! The MCP server that the daemon is: `/mcp`, Streamable HTTP in two protocols.
//!
//! Guarantees: each request is let in by its own credential, whatever session it names, and a session is its credential's alone and ends with
//! it; a call goes through the gate like any call, on the channel `mcp`; nobody but a person answers a question, whatever a client sends; a
//! call that waits for a person longer than its client does lives on, and asking again for the same goes on with it.
//! Does not: keep what was streamed for clients that come back, send requests to clients, or know upstream servers. What those offer are
//! tools of the registry like all others.
//!
//! The service of the library is not used for HTTP, because it answers in plain text, knows no credential and hands a session to whoever
//! names it; its types are.
//!
//! | you look for | read |
//! |---|---|
//! | JSON-RPC | [`message`] |
//! | the two protocols, and what their headers have to say | [`wire`] |
//! | sessions of the older one | [`sessions`] |
//! | what is answered to which method | [`serving`] |
//! | tools as clients are told | [`listing`] |
//! | calls, and waiting for them | [`calling`] |
//! | calls that outlive their client's patience | [`pending`] |
//! | the same calls as tasks | [`tasks`] |
//! | what came of a call, as clients are told | [`outcome`] |
//! | notifications | [`notices`] |
//! | errors of the daemon, in their shape | [`failing`] |

pub mod calling;
pub mod failing;
pub mod listing;
pub mod message;
pub mod notices;
pub mod outcome;
pub mod pending;
pub mod serving;
pub mod sessions;
pub mod tasks;
pub mod wire;

use std::{sync::Arc, time::Duration};

use palyra_access::FeatureFlag;

use crate::{app::App, failure::Failure};

/// What the server keeps.
#[derive(Default)]
pub struct Mcp {
    /// The sessions of the older protocol.
    pub sessions: sessions::Sessions,
    /// The calls that wait for a person longer than their client does.
    pub pending: pending::PendingCalls,
}

/// Whether a path is this server's.
#[must_use]
pub fn is_ours(path: &str) -> bool {
    path == "/mcp"
}

/// Nobody is served while the gateway is off, whatever they show.
///
/// # Errors
/// When it is off.
pub fn switched_on(app: &App) -> Result<(), Failure> {
    match app.access.snapshot().state().is_on(FeatureFlag::McpGateway) {
        true => Ok(()),
        false => Err(Failure::new(
            "feature_off",
            "the MCP gateway is off",
            "an owner or admin switches it on: `palyra access flags set mcp_gateway on`",
        )),
    }
}

/// Ends sessions whose credential or time is over, and forgets what nobody came back for, until the daemon stops.
pub async fn look_after(app: Arc<App>) {
    let (mut registry, mut stopping) = (app.access.changes(), app.stopping.subscribe());
    loop {
        tokio::select! {
            changed = registry.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return app.mcp.sessions.end_all(),
        }
        app.mcp.sessions.sweep(&app);
        app.mcp.pending.sweep();
    }
}

const LOOK_AGAIN: Duration = Duration::from_secs(30);
