//! What is kept of MCP servers in the state directory: those that were added by command, and what is pinned of all of them.
//!
//! Guarantees: a change is on the disk before it is in force. What cannot be read is not replaced by nothing: then nothing is offered, and it
//! is said why. How tools stand to what is pinned is worked out once, and anew whenever either is another.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use palyra_upstream::{KeptFile, Pins, ServerName, ServerSection, Standing, check};
use serde::{Deserialize, Serialize};

use super::server::Listed;

/// The two documents.
pub(super) struct Keeping {
    servers: KeptFile,
    pins: KeptFile,
    /// The servers that were added, or why they cannot be read.
    pub(super) added: Result<Vec<ServerSection>, String>,
    /// What is pinned, or why it cannot be read.
    pub(super) pinned: Result<Pins, String>,
    known: BTreeMap<ServerName, Known>,
}

/// How the tools of a server stand, and what else than pins that was worked out from.
struct Known {
    section: ServerSection,
    listed: Option<Listed>,
    standings: Arc<[Standing]>,
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
        Self { servers, pins, added, pinned, known: BTreeMap::new() }
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
        self.known.clear();
        Ok(())
    }

    /// How the tools that a server lists stand. Every call asks this.
    pub(super) fn standings(&mut self, section: &ServerSection, listed: Option<Listed>) -> Arc<[Standing]> {
        let is_said = |known: &Known| match (&known.listed, &listed) {
            (Some(known), Some(listed)) => Arc::ptr_eq(known, listed),
            (known, listed) => known.is_none() && listed.is_none(),
        };
        let known = self.known.get(&section.name).filter(|known| known.section == *section && is_said(known));
        if let Some(known) = known {
            return Arc::clone(&known.standings);
        }
        let none = Pins::default();
        let standings: Arc<[Standing]> =
            self.pinned.as_ref().unwrap_or(&none).standings(section, listed.as_deref()).into();
        let known = Known { section: section.clone(), listed, standings: Arc::clone(&standings) };
        self.known.insert(section.name.clone(), known);
        standings
    }

    /// Forgets how tools stand, but of these servers.
    pub(super) fn keep_standings(&mut self, of: impl Fn(&ServerName) -> bool) {
        self.known.retain(|name, _| of(name));
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

#[cfg(test)]
mod tests {
    use palyra_types::Timestamp;
    use palyra_upstream::{Definition, Tool, ToolState};
    use serde_json::{Value, json};

    use super::*;

    fn listed(description: &str) -> Listed {
        let said = json!({ "name": "echo", "description": description, "inputSchema": { "type": "object" } });
        Arc::from([Arc::new(serde_json::from_value::<Tool>(said).unwrap())])
    }

    fn section(tools: Value) -> ServerSection {
        serde_json::from_value(json!({ "name": "tea", "command": ["x"], "tools": tools })).unwrap()
    }

    #[test]
    fn how_tools_stand_is_worked_out_anew_when_something_else_is_said_pinned_or_configured() {
        let home = tempfile::tempdir().unwrap();
        let mut keeping = Keeping::read(home.path());
        let (all, others) = (section(json!([])), section(json!(["other"])));
        let (first, second) = (listed("Says it."), listed("Says more."));
        let states = |keeping: &mut Keeping, section: &ServerSection, listed: Option<&Listed>| {
            let standings = keeping.standings(section, listed.cloned());
            let again = keeping.standings(section, listed.cloned());
            assert!(Arc::ptr_eq(&standings, &again), "it was worked out twice");
            standings.iter().map(|one| (one.state, one.name.is_ok())).collect::<Vec<_>>()
        };
        assert_eq!(states(&mut keeping, &all, None), []);
        assert_eq!(states(&mut keeping, &all, Some(&first)), [(ToolState::New, true)]);
        let mut pins = Pins::default();
        pins.pin(&all, Definition::of(&first[0]).unwrap(), (Timestamp::from_unix_millis(0), "user:ada"));
        keeping.keep_pins(pins).unwrap();
        assert_eq!(states(&mut keeping, &all, Some(&first)), [(ToolState::Pinned, true)]);
        assert_eq!(states(&mut keeping, &all, Some(&second)), [(ToolState::Changed, true)]);
        assert_eq!(states(&mut keeping, &others, Some(&second)), [(ToolState::Changed, false)]);
        assert_eq!(states(&mut keeping, &all, None), [(ToolState::Pinned, true)]);
        keeping.keep_pins(Pins::default()).unwrap();
        assert_eq!(states(&mut keeping, &all, None), []);
    }
}
