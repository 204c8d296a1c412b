//! Pins: which definition of each tool a person has seen and let count, and how what a server says now compares to it.
//!
//! Guarantees: a tool counts only while its server says exactly what was pinned, and is the server that it was pinned of: another program or
//! address under its name has nothing pinned, and neither has any where it is not known which it was pinned of; the pinned definition is kept beside its digest, so that a
//! difference can be shown; a document that was changed by anybody else than by pinning does not read.
//! Does not: ask anybody, or write files.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use palyra_types::{Sha256Digest, Timestamp, ToolName, word::words};
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};

use crate::{
    definition::Definition,
    diff::DiffLine,
    name::{NameRefusal, ServerName, offered},
    section::ServerSection,
};

/// What is pinned, of all servers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pins(BTreeMap<ServerName, BTreeMap<String, Pin>>);

/// What is pinned of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Its digest.
    pub digest: Sha256Digest,
    /// The definition that was seen.
    pub definition: Definition,
    /// The digest of the program or the address that said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Sha256Digest>,
    /// When it was pinned.
    pub at: Timestamp,
    /// By whom.
    pub by: String,
}

impl Pins {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is none, or a definition in it is not the one that its digest is of.
    pub fn parse(document: &[u8]) -> Result<Self, PinsError> {
        let Document { version, servers } = serde_json::from_slice(document).map_err(|_| PinsError::Unreadable)?;
        if version != VERSION {
            return Err(PinsError::Version(version));
        }
        let is_true = |(name, pin): (&String, &Pin)| {
            pin.definition.digest() == pin.digest && pin.definition.name() == name.as_str()
        };
        match servers.values().flatten().all(is_true) {
            true => Ok(Self(servers)),
            false => Err(PinsError::Meddled),
        }
    }

    /// The document.
    ///
    /// # Errors
    /// When it cannot be spelt.
    pub fn document(&self) -> Result<Vec<u8>, PinsError> {
        let document = Document { version: VERSION, servers: self.0.clone() };
        serde_json::to_vec_pretty(&document).map_err(|_| PinsError::Unreadable)
    }

    /// The same, with this definition pinned. What was pinned of another server of its name is forgotten.
    pub fn pin(&mut self, section: &ServerSection, definition: Definition, (at, by): (Timestamp, &str)) {
        let reach = Some(section.reach_digest());
        let pins = self.0.entry(section.name.clone()).or_default();
        pins.retain(|_, pin| pin.reach == reach);
        let pin = Pin { digest: definition.digest(), definition, reach, at, by: by.to_owned() };
        pins.insert(pin.definition.name().to_owned(), pin);
    }

    /// The same, without a tool.
    pub fn unpin(&mut self, server: &ServerName, tool: &str) {
        if let Some(pins) = self.0.get_mut(server) {
            pins.remove(tool);
        }
    }

    /// The same, without a server.
    pub fn forget(&mut self, server: &ServerName) {
        self.0.remove(server);
    }

    /// How the tools of a server stand: those that it lists, or, before it was asked, those that are pinned.
    #[must_use]
    pub fn standings(&self, section: &ServerSection, listed: Option<&[Arc<Tool>]>) -> Vec<Standing> {
        let reach = Some(section.reach_digest());
        let pins: BTreeMap<&str, &Pin> = self
            .0
            .get(&section.name)
            .into_iter()
            .flatten()
            // SECURITY: a pin is what a person thought of that server, and says nothing of another that took its name.
            .filter(|(_, pin)| pin.reach == reach)
            .map(|(tool, pin)| (tool.as_str(), pin))
            .collect();
        let mut standings: Vec<Standing> = match listed {
            Some(listed) => {
                let names: Vec<&str> = listed.iter().map(|tool| tool.name.as_ref()).collect();
                let names = offered(&section.name, &names);
                let pin = |tool: &Tool| pins.get(tool.name.as_ref()).copied();
                listed.iter().zip(names).map(|(tool, name)| Standing::of(section, tool, name, pin(tool))).collect()
            }
            None => Vec::new(),
        };
        let known: BTreeSet<String> = standings.iter().map(|one| one.tool.clone()).collect();
        let others = pins.into_iter().filter(|(tool, _)| !known.contains(*tool));
        standings.extend(others.map(|(tool, pin)| {
            let name = offered(&section.name, &[tool]).pop().unwrap_or(Err(NameRefusal::Shape(tool.to_owned())));
            let name = if section.counts(tool) { name } else { Err(NameRefusal::LeftOut) };
            let state = if listed.is_some() { ToolState::Gone } else { ToolState::Pinned };
            Standing { tool: tool.to_owned(), name, state, now: None, pin: Some(pin.clone()) }
        }));
        standings.sort_by(|a, b| a.tool.cmp(&b.tool));
        standings
    }
}

/// How a tool stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The server's name for it.
    pub tool: String,
    /// What it is called here, or why it cannot be offered whatever is pinned.
    pub name: Result<ToolName, NameRefusal>,
    /// How it compares to what is pinned.
    pub state: ToolState,
    /// What the server says now.
    pub now: Option<Definition>,
    /// What is pinned.
    pub pin: Option<Pin>,
}

words! {
    /// How what a server says of a tool compares to what is pinned.
    pub enum ToolState ("state of a tool") {
        /// Nothing was ever pinned of it.
        New = "new",
        /// It is as it was pinned.
        Pinned = "pinned",
        /// The server says something else than what was pinned.
        Changed = "changed",
        /// It is pinned, and the server has no such tool any more.
        Gone = "gone",
    }
}

impl Standing {
    fn of(section: &ServerSection, said: &Tool, name: Result<ToolName, NameRefusal>, pin: Option<&Pin>) -> Self {
        let tool = said.name.to_string();
        let name = if section.counts(&tool) { name } else { Err(NameRefusal::LeftOut) };
        let (now, name) = match Definition::of(said) {
            Ok(definition) => (Some(definition), name),
            Err(error) => (None, name.and(Err(NameRefusal::Definition(error.to_string())))),
        };
        let state = match (pin, &now) {
            (None, _) => ToolState::New,
            (Some(pin), Some(now)) if pin.digest == now.digest() => ToolState::Pinned,
            (Some(_), _) => ToolState::Changed,
        };
        Self { tool, name, state, now, pin: pin.cloned() }
    }

    /// What is offered of it: its name here and the pinned definition.
    #[must_use]
    pub fn offer(&self) -> Option<(&ToolName, &Definition)> {
        match (&self.name, self.state, &self.pin) {
            (Ok(name), ToolState::Pinned, Some(pin)) => Some((name, &pin.definition)),
            _ => None,
        }
    }

    /// What is different from what was pinned.
    #[must_use]
    pub fn diff(&self) -> Vec<DiffLine> {
        match (&self.pin, &self.now, self.state) {
            (Some(pin), Some(now), ToolState::Changed) => pin.definition.diff(now),
            _ => Vec::new(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    servers: BTreeMap<ServerName, BTreeMap<String, Pin>>,
}

/// Why pins cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PinsError {
    /// No document.
    #[error("what is kept of pinned tools cannot be read")]
    Unreadable,
    /// A document of another time.
    #[error("what is kept of pinned tools has version {0}, which is not known here")]
    Version(u32),
    /// A document that was changed by hand.
    #[error("what is kept of pinned tools was changed: a definition is not the one that was pinned")]
    Meddled,
}

const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const AT: Timestamp = Timestamp::from_unix_millis(1_700_000_000_000);

    fn tools(said: &[(&str, &str)]) -> Vec<Arc<Tool>> {
        let tool = |(name, description): &(&str, &str)| {
            let said = json!({ "name": name, "description": description, "inputSchema": { "type": "object" } });
            Arc::new(serde_json::from_value(said).unwrap())
        };
        said.iter().map(tool).collect()
    }

    fn section(tools: Value) -> ServerSection {
        serde_json::from_value(json!({ "name": "gh", "command": ["x"], "tools": tools })).unwrap()
    }

    fn pinned(said: &[(&str, &str)]) -> Pins {
        let mut pins = Pins::default();
        for tool in tools(said) {
            pins.pin(&section(json!([])), Definition::of(&tool).unwrap(), (AT, "user:ada"));
        }
        pins
    }

    fn states(pins: &Pins, listed: Option<&[(&str, &str)]>) -> Vec<(String, ToolState, bool)> {
        let listed = listed.map(tools);
        let standings = pins.standings(&section(json!([])), listed.as_deref());
        standings.into_iter().map(|one| (one.tool.clone(), one.state, one.offer().is_some())).collect()
    }

    #[test]
    fn nothing_is_offered_that_nobody_pinned() {
        assert_eq!(states(&Pins::default(), Some(&[("read", "Reads.")])), [("read".to_owned(), ToolState::New, false)]);
    }

    #[test]
    fn what_was_pinned_is_offered_until_it_changes_or_goes() {
        let pins = pinned(&[("read", "Reads."), ("send", "Sends."), ("stop", "Stops.")]);
        let now = [("read", "Reads."), ("send", "Sends to mallory."), ("more", "More.")];
        assert_eq!(
            states(&pins, Some(&now)),
            [
                ("more".to_owned(), ToolState::New, false),
                ("read".to_owned(), ToolState::Pinned, true),
                ("send".to_owned(), ToolState::Changed, false),
                ("stop".to_owned(), ToolState::Gone, false),
            ]
        );
        assert_eq!(states(&pins, None).iter().filter(|(_, _, offered)| *offered).count(), 3);
    }

    #[test]
    fn what_was_pinned_of_one_server_is_not_pinned_of_another_that_took_its_name() {
        let pins = pinned(&[("read", "Reads.")]);
        let listed = tools(&[("read", "Reads.")]);
        let pinned_of = |pins: &Pins, section: Value| {
            let section = serde_json::from_value(section).unwrap();
            let of = |listed| pins.standings(&section, listed).iter().filter(|one| one.offer().is_some()).count();
            (of(Some(listed.as_slice())), of(None))
        };
        assert_eq!(pinned_of(&pins, json!({ "name": "gh", "command": ["x"], "call_seconds": 9 })), (1, 1));
        for other in [
            json!({ "name": "gh", "command": ["y"] }),
            json!({ "name": "gh", "command": ["x", "--all"] }),
            json!({ "name": "gh", "command": ["x"], "workspace": "shop" }),
            json!({ "name": "gh", "url": "https://gh.example.org/mcp" }),
        ] {
            assert_eq!(pinned_of(&pins, other.clone()), (0, 0), "{other}");
            // Once it is pinned, nothing is left of the one before.
            let section: ServerSection = serde_json::from_value(other.clone()).unwrap();
            let mut pins = pins.clone();
            pins.pin(&section, Definition::of(&tools(&[("more", "More.")])[0]).unwrap(), (AT, "user:ada"));
            assert_eq!(pinned_of(&pins, json!({ "name": "gh", "command": ["x"] })), (0, 0), "{other}");
        }
    }

    #[test]
    fn pins_of_a_time_that_knew_no_servers_read_and_count_for_none() {
        let document = String::from_utf8(pinned(&[("read", "Reads.")]).document().unwrap()).unwrap();
        let mut document: Value = serde_json::from_str(&document).unwrap();
        document["servers"]["gh"]["read"].as_object_mut().unwrap().remove("reach").unwrap();
        let pins = Pins::parse(document.to_string().as_bytes()).unwrap();
        assert_eq!(states(&pins, Some(&[("read", "Reads.")])), [("read".to_owned(), ToolState::New, false)]);
    }

    #[test]
    fn what_has_no_good_name_or_is_left_out_is_never_offered() {
        let pins = pinned(&[("read", "Reads."), ("Read", "Reads."), ("a b", "B."), ("write", "Writes.")]);
        let now = tools(&[("read", "Reads."), ("Read", "Reads."), ("a b", "B."), ("write", "Writes.")]);
        assert!(states(&pins, Some(&[("read", "Reads."), ("Read", "Reads."), ("a b", "B.")])).iter().all(|one| !one.2));
        let standings = pins.standings(&section(json!(["wri*"])), Some(&now));
        let offered: Vec<&str> =
            standings.iter().filter(|one| one.offer().is_some()).map(|one| one.tool.as_str()).collect();
        assert_eq!(offered, ["write"]);
    }

    #[test]
    fn pins_read_back_and_one_that_was_changed_by_hand_does_not() {
        let pins = pinned(&[("read", "Reads."), ("send", "Sends.")]);
        let document = pins.document().unwrap();
        assert_eq!(Pins::parse(&document), Ok(pins));
        let text = String::from_utf8(document).unwrap();
        assert_eq!(Pins::parse(text.replace("Sends.", "Sends to mallory.").as_bytes()), Err(PinsError::Meddled));
        assert_eq!(
            Pins::parse(text.replace("\"version\": 1", "\"version\": 2").as_bytes()),
            Err(PinsError::Version(2))
        );
        assert_eq!(Pins::parse(b"{}"), Err(PinsError::Unreadable));
    }

    #[test]
    fn a_difference_is_told_only_where_there_is_one() {
        let pins = pinned(&[("read", "Reads.")]);
        let of = |description: &str| {
            let listed = tools(&[("read", description)]);
            pins.standings(&section(json!([])), Some(&listed)).remove(0).diff().len()
        };
        assert_eq!(of("Reads."), 0);
        assert!(of("Writes.") > 0);
    }
}
