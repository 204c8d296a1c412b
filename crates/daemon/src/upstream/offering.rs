//! A tool of an MCP server, as the gate knows it.
//!
//! Guarantees: what a person approves names the server, how it is reached and the digest of the pinned definition; a call whose tool is not
//! what was approved any more does not run. What a server calls a hint decides nothing. Values of secrets that requests are sent with do not
//! come back in answers.
//! Does not: decide. Such a tool asks by default, because its server runs as a program or is somewhere else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use palyra_gate::{
    Asker, Deputy, HostPort, IntendError, Performed, Performing, Service, ServiceIntent, ServiceOrder, ServiceTerms,
    ServiceTool, Tool as GateTool, ToolDefinition,
};
use palyra_types::{
    HostName, JsonError, JsonObject, SandboxTier, Sha256Digest, ToolCapability, ToolMetadata, ToolName, WorkspaceName,
    visible::visible,
};
use palyra_upstream::{Definition, Program, Reach, ServerName, ServerSection};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Upstreams, link::Unreached, sent::secrets, server::Up};

/// A tool that is offered.
#[derive(Clone)]
pub(super) struct Offered {
    /// Its server.
    pub(super) server: ServerName,
    /// The pinned definition.
    pub(super) definition: Definition,
}

/// What a server does for calls.
pub(super) struct McpService {
    name: String,
    section: ServerSection,
    /// What calls of all its tools are about.
    about: BTreeMap<String, String>,
    upstreams: Weak<Upstreams>,
}

impl McpService {
    pub(super) fn new(section: ServerSection, upstreams: Weak<Upstreams>) -> Self {
        let about = about(&section);
        Self { name: format!("mcp.{}", section.name), section, about, upstreams }
    }

    /// What a call is about: everything that a change of would make it another call.
    fn about(&self, offered: &Offered) -> BTreeMap<String, String> {
        let mut about = self.about.clone();
        about.insert("tool".to_owned(), offered.definition.name().to_owned());
        about.insert("pin".to_owned(), offered.definition.digest().to_string());
        about
    }

    async fn call(&self, order: &ServiceOrder) -> Result<Performed, Unreached> {
        let gone = || Unreached::new("the server is not configured any more", "look at `palyra mcp list`");
        let upstreams = self.upstreams.upgrade().ok_or_else(gone)?;
        let deadline = Instant::now() + self.section.call();
        let up = upstreams.up(&self.section, left(deadline)).await?;
        // SECURITY: between the approval and now the server may have been started again, with another tool of the same name.
        let pin = order.work.about.get("pin").and_then(|pin| Sha256Digest::parse(pin).ok());
        let changed = || {
            let help = "`palyra mcp show` shows what has changed; a person pins it with `palyra mcp pin`";
            Unreached::new("the tool is not what was approved any more", help)
        };
        let is_same = pin.is_some_and(|pin| upstreams.is_as_pinned(&self.section, &order.work.operation, pin));
        if !is_same {
            return Err(changed());
        }
        let arguments = order.proposal.args.value().as_object().cloned().unwrap_or_default();
        let called = up.client().call(&order.work.operation, arguments, left(deadline)).await;
        let sent = up.sent();
        match called {
            Ok(mut answer) => {
                sent.hide_in(&mut answer.value);
                let failed = answer.failed.map(|why| sent.hide(&why));
                Ok(performed(&up, answer.value, failed))
            }
            Err(error) => Err(Unreached::new(error.to_string(), error.advice()).without(&sent)),
        }
    }
}

impl Service for McpService {
    fn name(&self) -> &str {
        &self.name
    }

    fn workspace(&self) -> Option<&WorkspaceName> {
        match &self.section.reach {
            Reach::Program(program) => program.workspace.as_ref(),
            Reach::Address(_) => None,
        }
    }

    fn intend(&self, operation: &str, _: &JsonObject, _: Asker<'_>) -> Result<ServiceIntent, IntendError> {
        let gone = || IntendError::Service {
            message: format!("`{operation}` of the MCP server `{}` is not pinned any more", self.section.name),
            help: "look at `palyra mcp list`",
        };
        let upstreams = self.upstreams.upgrade().ok_or_else(gone)?;
        let offered = upstreams.offered_tool(&self.section.name, operation).ok_or_else(gone)?;
        let wall = self.section.call() + GRACE;
        let mut terms =
            ServiceTerms { wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX), ..ServiceTerms::default() };
        if let Reach::Program(Program { egress, .. }) = &self.section.reach {
            terms.tier = Some(SandboxTier::C);
            terms.egress = Some(*egress);
        }
        let deputy = Some(deputy(&self.section.reach));
        Ok(ServiceIntent { touches: Vec::new(), about: self.about(&offered), terms, deputy })
    }

    fn perform(self: Arc<Self>, order: ServiceOrder) -> Performing {
        Box::pin(async move {
            let executor = match &self.section.reach {
                Reach::Program(_) => "mcp",
                Reach::Address(_) => "mcp_http",
            };
            self.call(&order).await.unwrap_or_else(|Unreached { why, help, .. }| Performed {
                value: json!({ "content": [{ "type": "text", "text": format!("{why}; {help}") }], "isError": true }),
                failed: Some(why),
                executor,
                layers: Vec::new(),
            })
        })
    }
}

fn performed(up: &Up, value: Value, failed: Option<String>) -> Performed {
    Performed { value, failed, executor: up.executor, layers: up.layers.clone() }
}

/// Who does what is called: what a person is told of what they could do with it.
fn deputy(reach: &Reach) -> Deputy {
    let at = |host: &HostName, port: u16| HostPort { host: host.clone(), port };
    match reach {
        Reach::Program(Program { command, workspace, secrets, hosts, .. }) => Deputy::Program {
            program: command.first().cloned().unwrap_or_default(),
            workspace: workspace.clone(),
            hosts: hosts.iter().map(|one| at(&one.host, one.port)).collect(),
            secrets: secrets.values().cloned().collect(),
        },
        Reach::Address(address) => Deputy::Server {
            place: at(address.url.host(), address.url.port()),
            is_local: address.url.is_local(),
            is_encrypted: address.url.is_encrypted(),
            secrets: secrets(address).into_iter().collect(),
        },
    }
}

/// The tool that is offered to the gate.
pub(super) fn tool(
    name: &ToolName,
    definition: &Definition,
    service: &Arc<McpService>,
) -> Result<Arc<dyn GateTool>, JsonError> {
    let metadata = ToolMetadata {
        name: name.clone(),
        summary: summary(&service.section.name, definition),
        capabilities: capabilities(&service.section),
    };
    let told = ToolDefinition::new(metadata, definition.description(), arguments(definition))?;
    let performing: Arc<dyn Service> = Arc::<McpService>::clone(service);
    Ok(Arc::new(ServiceTool::new(told, definition.name(), performing)))
}

/// The schema that arguments are held to. Many servers name an older draft and use nothing of it that has changed since; what does not read
/// as the draft of today is refused when it is to be pinned.
pub(super) fn arguments(definition: &Definition) -> Value {
    let mut schema = (*definition.tool().input_schema).clone();
    let is_older = |dialect: &str| OLDER.contains(&dialect.trim_end_matches('#'));
    if schema.get("$schema").and_then(Value::as_str).is_some_and(is_older) {
        schema.remove("$schema");
    }
    Value::Object(schema)
}

/// What a tool of a server can do, as far as the daemon knows. What the server says about it is no ground for less.
fn capabilities(section: &ServerSection) -> BTreeSet<ToolCapability> {
    let mut capabilities = BTreeSet::new();
    match &section.reach {
        Reach::Program(program) => {
            capabilities.insert(ToolCapability::ProcessExec);
            if !program.hosts.is_empty() || program.egress != palyra_types::EgressEnforcementMode::Strict {
                capabilities.insert(ToolCapability::Network);
            }
            if program.workspace.is_some() {
                capabilities.extend([ToolCapability::FilesystemRead, ToolCapability::FilesystemWrite]);
            }
        }
        Reach::Address(_) => {
            capabilities.insert(ToolCapability::Network);
        }
    }
    if section.uses_secrets() {
        capabilities.insert(ToolCapability::SecretsUse);
    }
    capabilities
}

/// What a tool does, in a line: the beginning of what its server says.
fn summary(server: &ServerName, definition: &Definition) -> String {
    let said = definition.tool().title.as_deref().unwrap_or_else(|| definition.description());
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing about this tool");
    let short: String = line.chars().take(LONGEST_SUMMARY).collect();
    let cut = if short.len() < line.len() { "…" } else { "" };
    format!("{server}: {}{cut}", visible(&short))
}

/// How a server is configured, as far as a call is about that.
fn about(section: &ServerSection) -> BTreeMap<String, String> {
    let (what, it) = match &section.reach {
        Reach::Program(program) => ("command", Value::from(program.command.clone()).to_string()),
        Reach::Address(address) => ("url", address.url.to_string()),
    };
    // The rest of it decides what the server can do, too, and is too long to be read each time. A section is made of texts and numbers,
    // which can always be spelt.
    let digest = palyra_types::json::digest_of(section).map(|digest| digest.to_string()).unwrap_or_default();
    BTreeMap::from([(what.to_owned(), it), ("configuration".to_owned(), digest)])
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

const LONGEST_SUMMARY: usize = 120;

const OLDER: [&str; 4] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
];

/// What is left to say that the server did not answer in time.
const GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use palyra_types::SecretRef;

    use super::*;

    fn deputy_of(text: &str) -> Deputy {
        let section: ServerSection = toml::from_str(&format!("name = \"tea\"\n{text}")).unwrap();
        deputy(&section.reach)
    }

    fn secrets_of(names: &[&str]) -> BTreeSet<SecretRef> {
        names.iter().map(|name| SecretRef::parse(name).unwrap()).collect()
    }

    #[test]
    fn a_person_is_told_what_a_server_may_reach_and_use() {
        let at = |host: &str, port: u16| HostPort { host: HostName::parse(host).unwrap(), port };
        let program = Deputy::Program {
            program: "npx".to_owned(),
            workspace: WorkspaceName::parse("shop").ok(),
            hosts: vec![at("api.example.org", 443)],
            secrets: secrets_of(&["global/tea"]),
        };
        assert_eq!(
            deputy_of(
                "command = [\"npx\", \"tea\"]\nworkspace = \"shop\"\nhosts = [\"api.example.org:443\"]\n\
                 secrets = { KEY = \"global/tea\" }"
            ),
            program
        );
        let server = |host: &str, port: u16, is_local: bool, is_encrypted: bool, secrets: &[&str]| Deputy::Server {
            place: at(host, port),
            is_local,
            is_encrypted,
            secrets: secrets_of(secrets),
        };
        assert_eq!(
            deputy_of(
                "url = \"https://mcp.example.org/mcp\"\nbearer = \"global/tea\"\nheaders = { x-pot = \"global/pot\" }"
            ),
            server("mcp.example.org", 443, false, true, &["global/pot", "global/tea"])
        );
        assert_eq!(deputy_of("url = \"http://127.0.0.1:9/mcp\""), server("127.0.0.1", 9, true, false, &[]));
        let plain = "url = \"http://mcp.example.org/mcp\"\nplain_http = true";
        assert_eq!(deputy_of(plain), server("mcp.example.org", 80, false, false, &[]));
    }
}
