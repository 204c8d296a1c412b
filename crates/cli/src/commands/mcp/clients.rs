//! The clients there are, and where each is told of its MCP servers.
//!
//! Guarantees: a file is replaced whole, and keeps everything in it that is not the one entry, as it was spelt; an entry that was not made here is not
//! replaced unnoticed; a file that cannot be read as what it is stays as it is.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use palyra_types::word::words;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

words! {
    /// A program that uses tools over MCP.
    pub(crate) enum ClientKind ("client") {
        /// Claude Code.
        Claude = "claude",
        /// Codex.
        Codex = "codex",
        /// Cursor.
        Cursor = "cursor",
    }
}

impl ClientKind {
    /// The agent that it is, unless it is called otherwise.
    pub(super) const fn agent(self) -> &'static str {
        match self {
            Self::Claude => "agent:claude-code",
            Self::Codex => "agent:codex",
            Self::Cursor => "agent:cursor",
        }
    }

    /// The file that tells it of servers: for whoever's home directory this is, or for one project.
    pub(super) fn file(self, home: &Path, project: Option<&Path>) -> Option<PathBuf> {
        Some(match (self, project) {
            (Self::Claude, None) => home.join(".claude.json"),
            (Self::Claude, Some(project)) => project.join(".mcp.json"),
            (Self::Codex, None) => home.join(".codex/config.toml"),
            (Self::Codex, Some(project)) => project.join(".codex/config.toml"),
            (Self::Cursor, None) => home.join(".cursor/mcp.json"),
            (Self::Cursor, Some(project)) => project.join(".cursor/mcp.json"),
        })
    }

    /// What is said in it, alone.
    pub(super) fn snippet(self, entry: &Entry) -> String {
        match self {
            Self::Codex => entry.toml(),
            Self::Claude | Self::Cursor => {
                let servers = json!({ "mcpServers": { NAME: entry.json(self) } });
                serde_json::to_string_pretty(&servers).unwrap_or_default()
            }
        }
    }

    /// A file with the entry in it.
    pub(super) fn merged(self, text: &str, entry: &Entry, may_replace: bool) -> Result<String, EntryError> {
        match self {
            Self::Codex => merged_toml(text, entry, may_replace),
            Self::Claude | Self::Cursor => merged_json(text, &entry.json(self), may_replace),
        }
    }
}

/// How a client starts the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// This program.
    pub(super) command: String,
    /// And what it is to do.
    pub(super) args: Vec<String>,
    /// Where the state directory is, if that is not where it is looked for.
    pub(super) home: Option<String>,
}

impl Entry {
    fn json(&self, client: ClientKind) -> Value {
        let mut entry = json!({ "args": self.args, "command": self.command });
        if let Some(entry) = entry.as_object_mut() {
            if client == ClientKind::Claude {
                entry.insert("type".to_owned(), json!("stdio"));
            }
            if let Some(home) = &self.home {
                entry.insert("env".to_owned(), json!({ "PALYRA_HOME": home }));
            }
        }
        entry
    }

    fn toml(&self) -> String {
        // JSON's texts and lists of them are TOML's as well.
        let mut text =
            format!("[mcp_servers.{NAME}]\ncommand = {}\nargs = {}\n", json!(self.command), json!(self.args));
        if let Some(home) = &self.home {
            text.push_str(&format!("env = {{ PALYRA_HOME = {} }}\n", json!(home)));
        }
        // A person may take longer than the client waits unless told.
        text.push_str("tool_timeout_sec = 120\n");
        text
    }
}

/// Whether an entry was made here: it starts `palyra mcp serve`.
fn is_ours(args: Option<&Value>) -> bool {
    let args = args.and_then(Value::as_array);
    args.is_some_and(|args| args.iter().take(2).eq([&json!("mcp"), &json!("serve")]))
}

fn merged_json(text: &str, entry: &Value, may_replace: bool) -> Result<String, EntryError> {
    let raw = |value: &Value| {
        RawValue::from_string(indented(value)).map_err(|error| EntryError::Unreadable(error.to_string()))
    };
    let read =
        |text: &str| serde_json::from_str::<Ordered>(text).map_err(|error| EntryError::Unreadable(error.to_string()));
    let mut all = if text.trim().is_empty() { Ordered::default() } else { read(text)? };
    let mut servers = match all.get("mcpServers") {
        Some(servers) => read(servers.get())?,
        None => Ordered::default(),
    };
    if let Some(known) = servers.get(NAME) {
        let known: Value = serde_json::from_str(known.get()).unwrap_or_default();
        if !may_replace && !is_ours(known.get("args")) {
            return Err(EntryError::Foreign);
        }
    }
    servers.set(NAME, raw(entry)?);
    let servers =
        RawValue::from_string(servers.spelt("  ")).map_err(|error| EntryError::Unreadable(error.to_string()))?;
    all.set("mcpServers", servers);
    Ok(format!("{}\n", all.spelt("")))
}

/// A value as it stands two levels deep.
fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default().replace('\n', "\n    ")
}

fn merged_toml(text: &str, entry: &Entry, may_replace: bool) -> Result<String, EntryError> {
    let read = |text: &str| text.parse::<toml::Table>().map_err(|error| EntryError::Unreadable(error.to_string()));
    let before = read(text)?;
    let known = before.get("mcp_servers").and_then(|servers| servers.get(NAME));
    if let Some(known) = known {
        let args = known.get("args").and_then(|args| serde_json::to_value(args).ok());
        if !may_replace && !is_ours(args.as_ref()) {
            return Err(EntryError::Foreign);
        }
    }
    let mut kept = String::new();
    let (head, under) = (format!("[mcp_servers.{NAME}]"), format!("[mcp_servers.{NAME}."));
    let mut is_entry = false;
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            let line = line.trim();
            is_entry = line.starts_with(&head) || line.starts_with(&under);
        }
        if !is_entry {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    let kept = kept.trim_end();
    let merged = if kept.is_empty() { entry.toml() } else { format!("{kept}\n\n{}", entry.toml()) };
    // Whatever way it was spelt: everything else has to say what it said before.
    let without = |mut table: toml::Table| {
        if let Some(servers) = table.get_mut("mcp_servers").and_then(toml::Value::as_table_mut) {
            servers.remove(NAME);
            if servers.is_empty() {
                table.remove("mcp_servers");
            }
        }
        table
    };
    match read(&merged) {
        Ok(after) if without(after.clone()) == without(before) => Ok(merged),
        _ => Err(EntryError::Unmergeable),
    }
}

/// A JSON object in the order and the spelling that it came in.
#[derive(Default)]
struct Ordered(Vec<(String, Box<RawValue>)>);

impl Ordered {
    fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_ref())
    }

    fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    fn spelt(&self, indent: &str) -> String {
        let member = |(key, value): &(String, Box<RawValue>)| format!("{indent}  {}: {}", json!(key), value.get());
        let members: Vec<String> = self.0.iter().map(member).collect();
        format!("{{\n{}\n{indent}}}", members.join(",\n"))
    }
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut all = Ordered::default();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    all.set(&key, value);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Replaces a file whole, with the permissions that it has. One that is not there is for its owner alone.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays one, and leads to the new content.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    let mode = fs::metadata(&path).map_or(0o600, |about| about.mode() & 0o777);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let beside = directory.join(format!(".{name}.new-{}", std::process::id()));
    let written = (|| {
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Why an entry is not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EntryError {
    /// There is one that somebody else made.
    #[error("it has a server called `{NAME}` that does something else")]
    Foreign,
    /// It is not what it should be.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The entry cannot be put in without changing something else.
    #[error("its servers are spelt in a way that an entry cannot be added to")]
    Unmergeable,
}

impl EntryError {
    /// What to do about it.
    pub(super) const fn advice(&self) -> &'static str {
        match self {
            Self::Foreign => "rename that one, or replace it: add --replace",
            Self::Unreadable(_) => "repair it, or put in by hand what is printed without --write",
            Self::Unmergeable => "put in by hand what is printed without --write",
        }
    }
}

/// What the server is called in a client.
const NAME: &str = "palyra";

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let args = ["mcp", "serve", "--token-file", "/t"].map(str::to_owned).to_vec();
        Entry { command: "/bin/palyra".to_owned(), args, home: None }
    }

    #[test]
    fn what_else_stands_in_json_stays_as_it_was_spelt() {
        let text = "{\n  \"z\": 1.50,\n  \"mcpServers\": { \"b\": {\"command\": \"x\"} },\n  \"a\": [1,\n2]\n}\n";
        let merged = ClientKind::Claude.merged(text, &entry(), false).unwrap();
        let own = indented(&entry().json(ClientKind::Claude));
        let expected = format!(
            "{{\n  \"z\": 1.50,\n  \"mcpServers\": {{\n    \"b\": {{\"command\": \"x\"}},\n    \"palyra\": {own}\n  }},\n  \"a\": [1,\n2]\n}}\n"
        );
        assert_eq!(merged, expected);
        assert_eq!(ClientKind::Claude.merged(&merged, &entry(), false), Ok(merged.clone()));
        assert_eq!(ClientKind::Cursor.merged("", &entry(), false).map(|text| text.contains("mcpServers")), Ok(true));
    }

    #[test]
    fn what_else_stands_in_toml_stays_with_its_comments() {
        let text = "# mine\nmodel = \"gpt\"\n\n[mcp_servers.other]\ncommand = \"x\"   # why\n";
        let merged = ClientKind::Codex.merged(text, &entry(), false).unwrap();
        assert!(merged.starts_with(text), "{merged}");
        assert_eq!(ClientKind::Codex.merged(&merged, &entry(), false), Ok(merged.clone()));
        let more =
            merged.replace("tool_timeout_sec = 120\n", "\n[mcp_servers.palyra.env]\nX = \"1\"\n\n[last]\nx = 1\n");
        let again = ClientKind::Codex.merged(&more, &entry(), false).unwrap();
        assert!(again.contains("[last]\nx = 1\n") && !again.contains("X = "), "{again}");
    }

    #[test]
    fn an_entry_of_somebody_else_is_replaced_only_if_that_is_meant() {
        let json = r#"{ "mcpServers": { "palyra": { "command": "other" } } }"#;
        assert_eq!(ClientKind::Cursor.merged(json, &entry(), false), Err(EntryError::Foreign));
        assert!(ClientKind::Cursor.merged(json, &entry(), true).is_ok());
        let toml = "[mcp_servers.palyra]\nurl = \"http://x\"\n";
        assert_eq!(ClientKind::Codex.merged(toml, &entry(), false), Err(EntryError::Foreign));
        assert_eq!(ClientKind::Codex.merged(toml, &entry(), true), Ok(entry().toml()));
    }

    #[test]
    fn what_cannot_be_merged_stays_as_it_is() {
        assert_eq!(
            ClientKind::Codex.merged("mcp_servers = { a = { command = \"x\" } }\n", &entry(), false),
            Err(EntryError::Unmergeable)
        );
        assert!(matches!(ClientKind::Codex.merged("[", &entry(), true), Err(EntryError::Unreadable(_))));
        assert!(matches!(ClientKind::Claude.merged("[]", &entry(), true), Err(EntryError::Unreadable(_))));
    }
}
