//! MCP servers behind the gateway: what is configured of them, how they are, and what is pinned of their tools.
//!
//! Guarantees: texts of servers that are shown to people (`why`, `stderr`, `definition`, `diff`) have what is hidden made visible.
//! Does not: hold a value of a secret. Servers name secrets.

use std::collections::BTreeMap;

use palyra_types::{EgressEnforcementMode, SecretRef, Sha256Digest, Timestamp, ToolName, WorkspaceName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The servers there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpServers {
    /// Whether tools of servers are offered and can be called at all.
    pub enabled: bool,
    /// Why nothing of any server is offered, and what to do about it, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// In the order of their names.
    pub servers: Vec<McpServer>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpServer {
    /// What it is called.
    #[schema(value_type = schema::McpName)]
    pub name: String,
    /// Where it was configured: `config` for config.toml, `command` for `palyra mcp add`.
    pub configured: String,
    /// Whether tools of servers are offered and can be called at all.
    pub enabled: bool,
    /// How it is configured.
    pub server: McpSettings,
    /// How it is.
    pub state: McpState,
    /// Why it cannot be spoken with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The last that it wrote to standard error before it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// What it calls itself, and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_itself: Option<String>,
    /// The version of the protocol that is spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What holds it, if the daemon started it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Its tools, and those that are pinned and gone.
    pub tools: Vec<McpTool>,
}

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpState {
    /// It is being started or connected to.
    Starting,
    /// It can be called.
    Connected,
    /// It cannot be spoken with, and is tried again after a while, or when it is called.
    Waiting,
}

/// How a server is configured: a program that the daemon starts, or an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpSettings {
    /// The program and its arguments, for a server that the daemon starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub command: Vec<String>,
    /// Where it is, for a server that somebody else runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether it may be spoken with over plain http beyond this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// The workspace that its program sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub workspace: Option<WorkspaceName>,
    /// The hosts that its program may reach, each with its port: `api.github.com:443`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub hosts: Vec<String>,
    /// How the network of its program is held; `strict` if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub egress: Option<EgressEnforcementMode>,
    /// The secret that is sent to its address as a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::SecretText>)]
    pub bearer: Option<SecretRef>,
    /// Which of its tools count, with `*` for any text; all if none are named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub tools: Vec<String>,
    /// How long a call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3600)]
    pub call_seconds: Option<u32>,
    /// How long it may take until it can be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 600)]
    pub start_seconds: Option<u32>,
    /// Variables of its program.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables of its program that hold placeholders of secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, schema::SecretText>)]
    pub secrets: BTreeMap<String, SecretRef>,
    /// Secrets that are sent to its address in headers of these names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, schema::SecretText>)]
    pub headers: BTreeMap<String, SecretRef>,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpTool {
    /// What the server calls it, as it came.
    pub tool: String,
    /// What it is called here, such as `mcp.github.delete`, if it can be offered at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub name: Option<ToolName>,
    /// Why it cannot be offered, whatever is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How what the server says of it compares to what is pinned: `new`, `pinned`, `changed` or `gone`.
    pub state: String,
    /// Whether it can be called now.
    pub offered: bool,
    /// The digest of what the server says of it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Digest>)]
    pub digest: Option<Sha256Digest>,
    /// What is pinned of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<McpPin>,
    /// What the server says of it now, line by line. Not told in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub definition: Vec<String>,
    /// What is different from what is pinned: lines that begin with `-`, `+` or a space. Not told in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<String>,
}

/// What is pinned of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpPin {
    /// The digest of the definition.
    #[schema(value_type = schema::Digest)]
    pub digest: Sha256Digest,
    /// When it was pinned.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// By whom.
    #[schema(value_type = schema::PrincipalText)]
    pub by: String,
}

/// Which definitions are to count from now on: those that somebody has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinMcpTools {
    /// The digest of what was seen, for each tool by the server's name for it. One that is not current any more is refused, and nothing is
    /// pinned then.
    #[schema(value_type = BTreeMap<String, schema::Digest>)]
    pub tools: BTreeMap<String, Sha256Digest>,
}
