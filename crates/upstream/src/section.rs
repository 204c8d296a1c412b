//! `[[mcp]]`: what is configured of a server.
//!
//! Guarantees: a section names a program or an address and nothing that is of the other; what is left out is the careful choice; an unknown
//! key is an error. Does not: find programs or read secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use http::HeaderName;
use palyra_types::{
    EgressEnforcementMode, HostName, SecretRef, Sha256Digest, WorkspaceName,
    visible::{is_hidden, visible},
    web_origin::port_number,
    written_as_text,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{name::ServerName, server_url::ServerUrl};

/// `[[mcp]]`: one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ServerSection {
    /// What it is called.
    pub name: ServerName,
    /// How it is reached.
    pub reach: Reach,
    /// Which of its tools count; all if none are named.
    pub tools: Vec<ToolPattern>,
    /// How long a call may take.
    pub call_seconds: u32,
    /// How long it may take until it can be called.
    pub start_seconds: u32,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// By its standard input and output: the daemon starts it in an enclosure.
    Program(Program),
    /// By Streamable HTTP: somebody else runs it.
    Address(Address),
}

/// A server that the daemon starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The workspace that it sees.
    pub workspace: Option<WorkspaceName>,
    /// Its variables.
    pub env: BTreeMap<String, String>,
    /// The variables that hold placeholders of secrets.
    pub secrets: BTreeMap<String, SecretRef>,
    /// The hosts that it may reach.
    pub hosts: Vec<HostAndPort>,
    /// How its network is held.
    pub egress: EgressEnforcementMode,
}

/// A server that somebody else runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where it is.
    pub url: ServerUrl,
    /// The secret that is sent as a bearer token.
    pub bearer: Option<SecretRef>,
    /// Secrets that are sent in headers of these names.
    pub headers: BTreeMap<HeaderText, SecretRef>,
}

impl ServerSection {
    /// How long a call may take.
    #[must_use]
    pub fn call(&self) -> Duration {
        Duration::from_secs(self.call_seconds.into())
    }

    /// How long it may take until it can be called.
    #[must_use]
    pub fn start(&self) -> Duration {
        Duration::from_secs(self.start_seconds.into())
    }

    /// Whether a tool counts.
    #[must_use]
    pub fn counts(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|pattern| pattern.fits(tool))
    }

    /// The program or the address, in a line.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.reach {
            Reach::Program(program) => program.command.join(" "),
            Reach::Address(address) => address.url.to_string(),
        }
    }

    /// The digest of what is started, and in which workspace, or of the address that is connected to. Another is another server, whatever it is
    /// called.
    #[must_use]
    pub fn reach_digest(&self) -> Sha256Digest {
        let reach = match &self.reach {
            Reach::Program(Program { command, workspace, .. }) => json!({ "command": command, "workspace": workspace }),
            Reach::Address(address) => json!({ "url": address.url.to_string() }),
        };
        Sha256Digest::of(reach.to_string().as_bytes())
    }

    /// Whether there is nothing that speaks of secrets in it.
    #[must_use]
    pub fn uses_secrets(&self) -> bool {
        match &self.reach {
            Reach::Program(program) => !program.secrets.is_empty(),
            Reach::Address(address) => address.bearer.is_some() || !address.headers.is_empty(),
        }
    }
}

/// Checks all servers that are configured together.
///
/// # Errors
/// When two have one name, or there are too many.
pub fn check(sections: &[ServerSection]) -> Result<(), SectionError> {
    let mut names = BTreeSet::new();
    match sections.iter().find(|one| !names.insert(&one.name)) {
        Some(twice) => Err(SectionError::Twice(twice.name.clone())),
        None if sections.len() > MOST_SERVERS => Err(SectionError::TooMany(sections.len())),
        None => Ok(()),
    }
}

/// A section, as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: ServerName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<ServerUrl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plain_http: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<WorkspaceName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<HostAndPort>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    egress: Option<EgressEnforcementMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bearer: Option<SecretRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolPattern>,
    #[serde(default = "call_seconds")]
    call_seconds: u32,
    #[serde(default = "start_seconds")]
    start_seconds: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<String, SecretRef>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<HeaderText, SecretRef>,
}

impl TryFrom<Written> for ServerSection {
    type Error = SectionError;

    fn try_from(written: Written) -> Result<Self, SectionError> {
        let name = written.name.clone();
        for (key, value, most) in
            [("call_seconds", written.call_seconds, 3_600), ("start_seconds", written.start_seconds, 600)]
        {
            if !(1..=most).contains(&value) {
                return Err(SectionError::OutOfRange { server: name, key, most });
            }
        }
        let (tools, call_seconds, start_seconds) = (written.tools.clone(), written.call_seconds, written.start_seconds);
        let reach = match (written.command.is_empty(), written.url.clone()) {
            (false, None) => Reach::Program(written.program()?),
            (true, Some(url)) => Reach::Address(written.address(url)?),
            (true, None) | (false, Some(_)) => return Err(SectionError::OneOf(name)),
        };
        Ok(Self { name, reach, tools, call_seconds, start_seconds })
    }
}

impl Written {
    fn program(self) -> Result<Program, SectionError> {
        let others = [
            ("bearer", self.bearer.is_some()),
            ("headers", !self.headers.is_empty()),
            ("plain_http", self.plain_http.is_some()),
        ];
        self.refuse("command", &others)?;
        let broken = |what: &'static str| SectionError::Text { server: self.name.clone(), what };
        if self.command.len() > MOST_ARGUMENTS || self.command.iter().map(String::len).sum::<usize>() > MOST_BYTES {
            return Err(broken("command"));
        }
        if self.command.first().is_none_or(String::is_empty) || self.command.iter().any(|one| one.contains('\0')) {
            return Err(broken("command"));
        }
        let names = self.env.keys().chain(self.secrets.keys());
        let is_name = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !names.clone().all(is_name) || self.env.values().any(|value| value.contains('\0')) {
            return Err(broken("env"));
        }
        if let Some(twice) = self.env.keys().find(|name| self.secrets.contains_key(*name)) {
            return Err(SectionError::VariableTwice { server: self.name, variable: twice.clone() });
        }
        Ok(Program {
            command: self.command,
            workspace: self.workspace,
            env: self.env,
            secrets: self.secrets,
            hosts: self.hosts,
            egress: self.egress.unwrap_or(EgressEnforcementMode::Strict),
        })
    }

    fn address(self, url: ServerUrl) -> Result<Address, SectionError> {
        let others = [
            ("workspace", self.workspace.is_some()),
            ("env", !self.env.is_empty()),
            ("secrets", !self.secrets.is_empty()),
            ("hosts", !self.hosts.is_empty()),
            ("egress", self.egress.is_some()),
        ];
        self.refuse("url", &others)?;
        if !url.is_encrypted() && !url.is_local() && self.plain_http != Some(true) {
            return Err(SectionError::PlainHttp(self.name));
        }
        if self.bearer.is_some() && self.headers.contains_key("authorization") {
            return Err(SectionError::VariableTwice { server: self.name, variable: "authorization".to_owned() });
        }
        Ok(Address { url, bearer: self.bearer, headers: self.headers })
    }

    fn refuse(&self, with: &'static str, others: &[(&'static str, bool)]) -> Result<(), SectionError> {
        match others.iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => Err(SectionError::NotWith { server: self.name.clone(), key, with }),
            None => Ok(()),
        }
    }
}

impl From<ServerSection> for Written {
    fn from(section: ServerSection) -> Self {
        let ServerSection { name, reach, tools, call_seconds, start_seconds } = section;
        let blank = Self {
            name,
            command: Vec::new(),
            url: None,
            plain_http: None,
            workspace: None,
            hosts: Vec::new(),
            egress: None,
            bearer: None,
            tools,
            call_seconds,
            start_seconds,
            env: BTreeMap::new(),
            secrets: BTreeMap::new(),
            headers: BTreeMap::new(),
        };
        match reach {
            Reach::Program(Program { command, workspace, env, secrets, hosts, egress }) => {
                Self { command, workspace, env, secrets, hosts, egress: Some(egress), ..blank }
            }
            Reach::Address(Address { url, bearer, headers }) => {
                let plain_http = (!url.is_encrypted() && !url.is_local()).then_some(true);
                Self { url: Some(url), plain_http, bearer, headers, ..blank }
            }
        }
    }
}

/// Which tools count: a name, in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPattern(Box<str>);

impl ToolPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When no tool could fit it.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let is_good = !text.is_empty() && text.len() <= 128 && !text.chars().any(|c| is_hidden(c) || c == ' ');
        if is_good { Ok(Self(text.into())) } else { Err(PatternError(text.to_owned())) }
    }

    /// Whether a tool fits it.
    #[must_use]
    pub fn fits(&self, tool: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = tool.strip_prefix(first) else { return false };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        true
    }
}

/// A host and its port, such as `api.github.com:443`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostAndPort {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
}

impl HostAndPort {
    /// Reads a host and a port.
    ///
    /// # Errors
    /// When it is not both.
    pub fn parse(text: &str) -> Result<Self, HostAndPortError> {
        let wrong = || HostAndPortError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(wrong());
        }
        Ok(Self { host: HostName::parse(host).map_err(|_| wrong())?, port: port_number(port).ok_or_else(wrong)? })
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.address() {
            Some(address) if address.is_ipv6() => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The name of a header that a secret is sent in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeaderText(Box<str>);

impl HeaderText {
    /// Reads a name of a header, in lowercase.
    ///
    /// # Errors
    /// When it is none, or one that the protocol or the connection has a use for.
    pub fn parse(text: &str) -> Result<Self, HeaderTextError> {
        let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| HeaderTextError(text.to_owned()))?;
        let is_reserved = RESERVED.contains(&name.as_str()) || name.as_str().starts_with("mcp-");
        if is_reserved { Err(HeaderTextError(text.to_owned())) } else { Ok(Self(name.as_str().into())) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for HeaderText {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

written_as_text! {
    ToolPattern, PatternError;
    HostAndPort, HostAndPortError;
    HeaderText, HeaderTextError;
}

/// Why a pattern was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` fits no tool", visible(.0))]
pub struct PatternError(String);

/// Why a host and a port were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a host and a port, such as `api.github.com:443`", visible(.0))]
pub struct HostAndPortError(String);

/// Why a header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no secret can be sent in a header `{}`", visible(.0))]
pub struct HeaderTextError(String);

/// Why a section makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// Neither a program nor an address, or both.
    #[error("the MCP server `{0}` needs `command` or `url`, and not both")]
    OneOf(ServerName),
    /// A key that is of the other kind of server.
    #[error("the MCP server `{server}` has `{key}`, which does not go with `{with}`")]
    NotWith {
        /// The server.
        server: ServerName,
        /// The key.
        key: &'static str,
        /// What it does not go with.
        with: &'static str,
    },
    /// A number that makes no sense.
    #[error("`{key}` of the MCP server `{server}` is not between 1 and {most}")]
    OutOfRange {
        /// The server.
        server: ServerName,
        /// The key.
        key: &'static str,
        /// The most it can be.
        most: u32,
    },
    /// A text that no program can be given.
    #[error("`{what}` of the MCP server `{server}` is empty, too long, or holds what no program can be given")]
    Text {
        /// The server.
        server: ServerName,
        /// Which text.
        what: &'static str,
    },
    /// A variable or a header that is given twice.
    #[error("the MCP server `{server}` is given `{}` twice", visible(.variable))]
    VariableTwice {
        /// The server.
        server: ServerName,
        /// The variable.
        variable: String,
    },
    /// Calls would cross the network for anybody to read.
    #[error("the MCP server `{0}` would be spoken with over plain http")]
    PlainHttp(ServerName),
    /// A second server of the same name.
    #[error("there are two MCP servers called `{0}`")]
    Twice(ServerName),
    /// More servers than are looked after.
    #[error("there are {0} MCP servers; the limit is {MOST_SERVERS}")]
    TooMany(usize),
}

impl SectionError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::OneOf(_) => {
                "say how it is started, such as `command = [\"npx\", \"server\"]`, or where it is, as `url`"
            }
            Self::NotWith { .. } => {
                "a server that is started has `workspace`, `env`, `secrets`, `hosts` and `egress`; one with a `url` has `bearer` and `headers`"
            }
            Self::OutOfRange { .. } => "leave it out for the usual choice",
            Self::Text { .. } => "give the program first, then each argument; variables have letters, digits and `_`",
            Self::VariableTwice { .. } => "give it once",
            Self::PlainHttp(_) => "use https, or set `plain_http = true` if the network is yours alone",
            Self::Twice(_) => "call one of them otherwise",
            Self::TooMany(_) => "remove some of them",
        }
    }
}

const fn call_seconds() -> u32 {
    60
}

const fn start_seconds() -> u32 {
    30
}

const RESERVED: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
    "upgrade",
    "te",
];

const MOST_ARGUMENTS: usize = 256;

const MOST_BYTES: usize = 64 << 10;

/// The most servers that are looked after.
pub const MOST_SERVERS: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<ServerSection, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_reads_back_as_it_was_written() {
        let program = json!({
            "name": "github", "command": ["gh-mcp", "--stdio"], "workspace": "shop", "env": { "LANG": "C" },
            "secrets": { "TOKEN": "global/github" }, "hosts": ["api.github.com:443", "[::1]:9"], "egress": "strict",
            "tools": ["read_*"], "call_seconds": 9, "start_seconds": 8,
        });
        let address = json!({
            "name": "docs", "url": "https://a.example/mcp", "bearer": "global/docs", "headers": { "x-key": "global/key" },
            "call_seconds": 60, "start_seconds": 30,
        });
        for written in [program, address] {
            assert_eq!(serde_json::to_value(read(written.clone()).unwrap()).unwrap(), written);
        }
    }

    #[test]
    fn a_section_is_held_strictly_unless_it_says_otherwise() {
        let section = read(json!({ "name": "a", "command": ["x"] })).unwrap();
        let Reach::Program(program) = &section.reach else { panic!("no program") };
        assert_eq!((program.egress, program.hosts.len()), (EgressEnforcementMode::Strict, 0));
        assert_eq!((section.call_seconds, section.start_seconds), (60, 30));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (with, wrong) in [
            (json!({}), "needs `command` or `url`"),
            (json!({ "command": ["x"], "url": "https://a.example" }), "needs `command` or `url`"),
            (json!({ "command": ["x"], "bearer": "global/a" }), "`bearer`, which does not go with `command`"),
            (json!({ "url": "https://a.example", "env": { "A": "b" } }), "`env`, which does not go with `url`"),
            (json!({ "url": "http://a.example" }), "plain http"),
            (json!({ "command": [""] }), "`command`"),
            (json!({ "command": ["a\0"] }), "`command`"),
            (json!({ "command": ["x"], "env": { "A=B": "c" } }), "`env`"),
            (json!({ "command": ["x"], "env": { "A": "c" }, "secrets": { "A": "global/a" } }), "`A` twice"),
            (json!({ "command": ["x"], "call_seconds": 0 }), "`call_seconds`"),
            (json!({ "command": ["x"], "start_seconds": 601 }), "`start_seconds`"),
            (json!({ "command": ["x"], "hosts": ["a.example"] }), "not a host and a port"),
            (json!({ "command": ["x"], "tools": [""] }), "fits no tool"),
            (json!({ "command": ["x"], "comand": 1 }), "unknown field `comand`"),
            (
                json!({ "url": "https://a.example", "headers": { "Mcp-Session-Id": "global/a" } }),
                "no secret can be sent",
            ),
            (json!({ "url": "https://a.example", "headers": { "host": "global/a" } }), "no secret can be sent"),
        ] {
            let mut written = json!({ "name": "a" });
            written.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
            let error = read(written.clone()).unwrap_err();
            assert!(error.contains(wrong), "{written}: {error}");
        }
        assert!(read(json!({ "name": "a", "url": "http://a.example", "plain_http": true })).is_ok());
        assert!(read(json!({ "name": "a", "url": "http://localhost:9" })).is_ok());
    }

    #[test]
    fn a_name_stands_once() {
        let one = read(json!({ "name": "a", "command": ["x"] })).unwrap();
        assert_eq!(check(std::slice::from_ref(&one)), Ok(()));
        assert_eq!(check(&[one.clone(), one.clone()]), Err(SectionError::Twice(one.name)));
    }

    #[test]
    fn a_pattern_fits_what_it_says() {
        for (pattern, tool, fits) in [
            ("read", "read", true),
            ("read", "reader", false),
            ("read_*", "read_file", true),
            ("*", "anything", true),
            ("*_file", "read_file", true),
            ("*_file", "read_files", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(ToolPattern::parse(pattern).unwrap().fits(tool), fits, "{pattern} {tool}");
        }
    }
}
