//! `palyra paths`: what is where in the state directory. Needs no daemon.

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    Outcome,
    at::At,
    connection::home,
    exit::Exit,
    terminal::{DIM, Terminal},
};

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    path: PathBuf,
    holds: &'static str,
    exists: bool,
}

/// What lies in the state directory, and what it is for.
const ENTRIES: &[(&str, &str, &str)] = &[
    ("state", "", "everything of this installation"),
    ("config", "config.toml", "what is configured"),
    ("policies", "policies", "your own rules, *.cedar"),
    ("journal", "journal", "what happened, signed"),
    ("journal key", "journal/verify.key", "the key to verify the journal with; keep a copy elsewhere"),
    ("registry", "access_registry.json", "who is let in: members, devices and tokens"),
    ("authority", "identity/authority.json", "what certifies the daemon and its devices; show it to nobody"),
    ("device", "identity/device.json", "who this command is to the daemon; show it to nobody"),
    ("agent token", "identity/agent.token", "the credential of agents"),
    ("clients", "clients", "the credentials of MCP clients; show them to nobody"),
    ("hooks", "hooks", "the credentials of hooks; show them to nobody"),
    ("vault", "vault", "secrets, sealed"),
    ("vault key", "identity/vault", "what opens the vault, unless a keyring holds it; back it up apart from the vault"),
    ("transcripts", "transcripts", "what was said with agent models"),
    ("skills", "skills", "the skills that are installed, and what they keep"),
    ("mcp servers", "mcp.json", "the MCP servers that were added by command"),
    ("mcp pins", "mcp_pins.json", "what is pinned of the tools of MCP servers"),
    ("keeping", "keeping", "what agents remember, and the files that they keep"),
    ("schedule", "schedule", "calls that are proposed later"),
    ("signing key", "publisher.key", "what you sign your own skills with; show it to nobody"),
    ("public key", "publisher.pub", "what others verify your skills with; give it to them"),
    ("paired", "paired", "who this device is to other daemons; show it to nobody"),
];

pub(crate) fn run(at: &At, terminal: &Terminal) -> Outcome {
    at.unnamed("what is where in the state directory")?;
    let home = home()?;
    let entries: Vec<Entry> = ENTRIES
        .iter()
        .map(|&(name, below, holds)| {
            let path = if below.is_empty() { home.path().to_owned() } else { home.path().join(below) };
            let exists = path.exists();
            Entry { name, path, holds, exists }
        })
        .collect();
    if terminal.json {
        terminal.document("paths", &entries);
        return Ok(Exit::Ok);
    }
    for Entry { name, path, holds, exists } in &entries {
        let missing = if *exists { "" } else { " (not there yet)" };
        terminal.out(format!("{name:<12}  {}{missing}", palyra_types::visible::visible(&path.to_string_lossy())));
        terminal.out(terminal.paint(DIM, &format!("              {holds}")));
    }
    Ok(Exit::Ok)
}
