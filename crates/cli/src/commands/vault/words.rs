//! What is known of secrets, in words.

use palyra_api::vault::{Secret, VaultState, VaultStatus};
use palyra_types::{Clock, Timestamp, clock::SystemClock, visible::visible};

use crate::{
    table::moment,
    terminal::{BAD, DIM, GOOD, Terminal, WAIT, shown},
};

/// How the vault is, for people.
pub(super) fn tell(status: &VaultStatus, terminal: &Terminal) {
    let (glyph, style, word) = match status.state {
        VaultState::Open => ("✔", GOOD, "open"),
        VaultState::Locked => ("!", WAIT, "locked"),
        VaultState::Closed => ("✖", BAD, "closed"),
    };
    let held = status.backend.as_deref().map(|backend| format!("; `{}` holds its key", visible(backend)));
    let held = held.unwrap_or_default();
    terminal.out(format!("{} the vault is {word}{held}", terminal.paint(style, glyph)));
    if let (Some(secrets), Some(key), Some(generation)) = (status.secrets, status.key, status.generation) {
        let noun = if secrets == 1 { "secret" } else { "secrets" };
        let line = format!("  {secrets} {noun} · key number {key} · generation {generation}");
        terminal.out(terminal.paint(DIM, &line));
    }
    if let Some(message) = &status.message {
        terminal.out_rows(format!("  {}", shown(message)));
    }
    if let Some(help) = &status.help {
        terminal.out_rows(format!("  {}", shown(help)));
    }
}

/// How old a version is, and whether that is too old.
pub(super) fn age(secret: &Secret) -> String {
    let age = ago(secret.created);
    if secret.is_due { format!("{age}, due") } else { age }
}

/// When a secret may be used no more.
pub(super) fn end(secret: &Secret) -> String {
    match secret.expires_at {
        None => "never".to_owned(),
        Some(at) if secret.has_expired => format!("expired {}", moment(at)),
        Some(at) => moment(at),
    }
}

fn ago(created: Timestamp) -> String {
    let seconds = (SystemClock::new().now().unix_millis() - created.unix_millis()).max(0) / 1_000;
    match (seconds / 86_400, seconds / 3_600, seconds / 60) {
        (days, ..) if days > 0 => format!("{days}d"),
        (_, hours, _) if hours > 0 => format!("{hours}h"),
        (.., minutes) => format!("{minutes}m"),
    }
}
