//! MCP servers, in the words of the wire.

use std::sync::Arc;

use palyra_api::mcp::{McpPin, McpServer, McpServers, McpSettings, McpState, McpTool};
use palyra_types::visible::visible;
use palyra_upstream::{ServerName, ServerSection, Standing};
use serde_json::Value;

use super::{
    Now, Upstreams,
    server::{Origin, Server, State},
    unknown,
};
use crate::failure::Failure;

impl Upstreams {
    /// All servers, without what they say of their tools.
    #[must_use]
    pub fn list(&self) -> McpServers {
        let enabled = self.is_enabled();
        let mut now = self.now();
        let servers = now.servers.clone();
        let servers = servers.values().map(|server| told(&mut now, server, (enabled, Detail::Short))).collect();
        McpServers { enabled, trouble: now.keeping.trouble(), servers }
    }

    /// A server, with what it says of its tools.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn show(&self, name: &ServerName) -> Result<McpServer, Failure> {
        let enabled = self.is_enabled();
        let mut now = self.now();
        let server = now.servers.get(name).cloned().ok_or_else(|| unknown(name))?;
        Ok(told(&mut now, &server, (enabled, Detail::Whole)))
    }
}

/// Reads how a server is configured.
///
/// # Errors
/// When it makes no sense.
pub fn section(name: &ServerName, settings: &McpSettings) -> Result<ServerSection, Failure> {
    let internal = |error: serde_json::Error| Failure::internal(error.to_string());
    let mut said = serde_json::to_value(settings).map_err(internal)?;
    if let Value::Object(members) = &mut said {
        members.insert("name".to_owned(), name.as_str().into());
    }
    serde_json::from_value(said).map_err(|error| {
        let help = "name a program as `command`, or an address as `url`; docs/mcp-servers.md shows what goes with each";
        Failure::new("bad_mcp_server", visible(&error.to_string()), help)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Short,
    Whole,
}

fn told(now: &mut Now, server: &Arc<Server>, (enabled, detail): (bool, Detail)) -> McpServer {
    let standings = now.standings(server);
    let is_offered = |one: &Standing| one.name.as_ref().is_ok_and(|name| now.offered.contains_key(name));
    let tools = standings.iter().map(|one| tool(one, is_offered(one), detail)).collect();
    let state = server.state();
    let (mut why, mut help, mut stderr) = (None, None, None);
    if let State::Down(unreached) = &state {
        (why, help, stderr) = (Some(unreached.why.clone()), Some(unreached.help.clone()), unreached.stderr.clone());
    }
    let up = match &state {
        State::Up(up) => Some(up),
        State::Starting | State::Down(_) => None,
    };
    let about = up.map(|up| up.about());
    let name = about.and_then(|about| about.name.clone());
    let version = about.and_then(|about| about.version.clone());
    McpServer {
        name: server.section.name.to_string(),
        configured: match server.origin {
            Origin::Config => "config",
            Origin::Command => "command",
        }
        .to_owned(),
        enabled,
        server: settings(&server.section),
        state: match state {
            State::Starting => McpState::Starting,
            State::Up(_) => McpState::Connected,
            State::Down(_) => McpState::Waiting,
        },
        why,
        help,
        stderr,
        calls_itself: name.map(|name| version.map_or(name.clone(), |version| format!("{name} {version}"))),
        protocol: about.map(|about| about.protocol.clone()),
        layers: up.map(|up| up.layers.clone()).unwrap_or_default(),
        tools,
    }
}

fn tool(standing: &Standing, offered: bool, detail: Detail) -> McpTool {
    let is_whole = detail == Detail::Whole;
    let (name, refused) = match &standing.name {
        Ok(name) => (Some(name.clone()), None),
        Err(refusal) => (None, Some(refusal.to_string())),
    };
    let definition = standing.now.as_ref().filter(|_| is_whole).map(|one| one.shown()).unwrap_or_default();
    let diff = if is_whole { standing.diff() } else { Vec::new() };
    McpTool {
        tool: standing.tool.clone(),
        name,
        refused,
        state: standing.state.to_string(),
        offered,
        digest: standing.now.as_ref().map(|one| one.digest()),
        pinned: standing.pin.as_ref().map(|pin| McpPin { digest: pin.digest, at: pin.at, by: pin.by.clone() }),
        definition,
        diff: diff.iter().map(ToString::to_string).collect(),
    }
}

/// How a server is configured, as it was written.
fn settings(section: &ServerSection) -> McpSettings {
    let mut written = serde_json::to_value(section).unwrap_or_default();
    if let Value::Object(members) = &mut written {
        members.remove("name");
    }
    // Both have the same keys, which a test keeps so.
    serde_json::from_value(written).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_configured_is_told_as_it_was_said() {
        let name = ServerName::parse("gh").unwrap();
        for said in [
            json!({ "command": ["gh-mcp", "--stdio"], "workspace": "shop", "env": { "LANG": "C" }, "egress": "strict",
                "secrets": { "TOKEN": "global/github" }, "hosts": ["api.github.com:443"], "tools": ["read_*"],
                "call_seconds": 9, "start_seconds": 8 }),
            json!({ "url": "http://10.0.0.1/mcp", "plain_http": true, "bearer": "global/docs",
                "headers": { "x-key": "global/key" }, "call_seconds": 60, "start_seconds": 30 }),
        ] {
            let read: McpSettings = serde_json::from_value(said.clone()).unwrap();
            assert_eq!(serde_json::to_value(settings(&section(&name, &read).unwrap())).unwrap(), said);
        }
    }

    #[test]
    fn what_makes_no_sense_is_told_with_what_to_do() {
        let failure = section(&ServerName::parse("gh").unwrap(), &McpSettings::default()).unwrap_err();
        assert_eq!((failure.detail.code.as_str(), failure.status.as_u16()), ("bad_mcp_server", 422));
        assert!(failure.detail.message.contains("needs `command` or `url`"), "{}", failure.detail.message);
    }
}
