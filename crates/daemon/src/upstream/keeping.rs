//! What is kept of MCP servers in the state directory: those that were added by command, and what is pinned of all of them.
//!
//! Guarantees: a change is on the disk before it is in force. What cannot be read is not replaced by nothing: then nothing is offered, and it
//! is said why.

use std::path::Path;

use palyra_upstream::{KeptFile, Pins, ServerName, ServerSection, check};
use serde::{Deserialize, Serialize};

/// The two documents.
pub(super) struct Keeping {
    servers: KeptFile,
    pins: KeptFile,
    /// The servers that were added, or why they cannot be read.
    pub(super) added: Result<Vec<ServerSection>, String>,
    /// What is pinned, or why it cannot be read.
    pub(super) pinned: Result<Pins, String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    mcp: Vec<ServerSection>,
}

impl Keeping {
    /// Reads what is kept in a state directory.
    pub(super) fn read(home: &Path) -> Self {
        let (servers, pins) = (KeptFile::new(home, "mcp.json"), KeptFile::new(home, "mcp_pins.json"));
        let added = match servers.read() {
            Ok(None) => Ok(Vec::new()),
            Ok(Some(document)) => read(&document).map_err(|why| format!("{}: {why}", servers.path().display())),
            Err(error) => Err(error.to_string()),
        };
        let pinned = match pins.read() {
            Ok(None) => Ok(Pins::default()),
            Ok(Some(document)) => Pins::parse(&document).map_err(|error| format!("{}: {error}", pins.path().display())),
            Err(error) => Err(error.to_string()),
        };
        Self { servers, pins, added, pinned }
    }

    /// Why nothing can be offered, if that is so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.pinned.as_ref().err().or(self.added.as_ref().err()).cloned()
    }

    /// Keeps other servers than before.
    pub(super) fn keep_added(&mut self, sections: Vec<ServerSection>) -> Result<(), String> {
        self.added.as_ref().map_err(Clone::clone)?;
        check(&sections).map_err(|error| error.to_string())?;
        let document =
            serde_json::to_vec_pretty(&Document { mcp: sections.clone() }).map_err(|error| error.to_string())?;
        self.servers.replace(&document).map_err(|error| error.to_string())?;
        self.added = Ok(sections);
        Ok(())
    }

    /// Keeps other pins than before.
    pub(super) fn keep_pins(&mut self, pins: Pins) -> Result<(), String> {
        self.pinned.as_ref().map_err(Clone::clone)?;
        let document = pins.document().map_err(|error| error.to_string())?;
        self.pins.replace(&document).map_err(|error| error.to_string())?;
        self.pinned = Ok(pins);
        Ok(())
    }

    /// Whether a server was added by command.
    pub(super) fn has_added(&self, name: &ServerName) -> bool {
        self.added.as_ref().is_ok_and(|added| added.iter().any(|one| one.name == *name))
    }
}

fn read(document: &[u8]) -> Result<Vec<ServerSection>, String> {
    let Document { mcp } = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    check(&mcp).map_err(|error| error.to_string())?;
    Ok(mcp)
}
