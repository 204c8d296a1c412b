//! Tokens to ask a daemon for: good for an hour, and held to nothing that a test does not name.
//!
//! What a test wants otherwise it says beside them: `NewToken { per_minute: Some(10), ..token("agent:slow", &["calls.read"]) }`.

use palyra_api::token::NewToken;

/// A token of somebody, with these scopes.
#[must_use]
pub fn token(principal: &str, scopes: &[&str]) -> NewToken {
    NewToken {
        name: "lab".to_owned(),
        principal: principal.to_owned(),
        scopes: scopes.iter().map(ToString::to_string).collect(),
        channel: None,
        lifetime_seconds: 3_600,
        role: None,
        workspaces: None,
        per_minute: None,
        concurrent: None,
    }
}

/// A token of an agent that reads calls, for a test that cares about nothing but its name.
#[must_use]
pub fn token_named(name: &str) -> NewToken {
    NewToken { name: name.to_owned(), ..token("agent:lab", &["calls.read"]) }
}
