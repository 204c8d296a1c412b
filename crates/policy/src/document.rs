//! A request as people write it, in TOML or JSON: for `policy explain`, `simulate`, test files and corpora.
//!
//! Parsed once into a [`CallRequest`] and a [`PolicyRequestContext`]. What is left out takes the value that a newcomer would expect:
//! the tool's name from the resource, its capabilities from the table of built-in tools, its posture from its capabilities.

use std::collections::{BTreeMap, BTreeSet};

use palyra_types::{
    AbsolutePath, Action, Channel, DeviceId, EgressEnforcementMode, HostName, Posture, Principal, Process, Resource,
    SandboxTier, SecretRef, SkillId, Timestamp, TokenId, ToolCapability, ToolMetadata, ToolName, WorkspaceName,
    WorkspaceRole,
    host::HostError,
    id::{RunId, SessionId},
    path::PathError,
    principal::PrincipalError,
};
use serde::{Deserialize, Serialize};

use crate::request::{CallRequest, PolicyRequest, PolicyRequestContext, Touch};

/// A request as people write it. Every field can be left to a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestDocument {
    /// Who asks, such as `agent:claude` or `user:ada@owner`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// What they want to do, such as `tool.execute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// What they want to do it with, such as `tool:process.run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The program, absolute, and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// Where the program really is, if its path is a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<AbsolutePath>,
    /// The working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<AbsolutePath>,
    /// Paths that the call reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<AbsolutePath>>,
    /// Paths that the call writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<Vec<AbsolutePath>>,
    /// Hosts that the call connects to: `example.org` or `example.org:8443`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Secrets that the call uses without seeing them, such as `global/github`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<Vec<SecretRef>>,
    /// Secrets that the call is given the value of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reveals: Option<Vec<SecretRef>>,
    /// The skill that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executes: Option<Vec<SkillId>>,
    /// What the call does with objects of the daemon, each as `action kind:id`, such as `memory.put memory:agent:claude`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<Vec<String>>,
    /// Whether the configuration of an MCP server names exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<bool>,
    /// Secrets that a binding lets the call's tool send somewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<BTreeSet<SecretRef>>,
    /// The configured workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceName>,
    /// The posture of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posture: Option<Posture>,
    /// The tier of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<SandboxTier>,
    /// The egress mode of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressEnforcementMode>,
    /// Whether another program would do it, which Palyra neither runs nor contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<bool>,
    /// What the tool needs from the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BTreeSet<ToolCapability>>,
    /// The tool that the request is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<ToolName>,
    /// The skill that the request is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill_id: Option<SkillId>,
    /// The surface that received it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// The device it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<DeviceId>,
    /// The session it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The run it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The token it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    /// The user an agent or a service acts for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The workspaces that the principal is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_of: Option<BTreeSet<WorkspaceName>>,
    /// The role that would be given, changed or taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<WorkspaceRole>,
    /// The port of a `net.connect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// When; else the clock of the test file or of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Timestamp>,
}

macro_rules! fill {
    ($this:ident, $defaults:ident, [$($field:ident),+ $(,)?]) => {
        Self { $($field: $this.$field.or_else(|| $defaults.$field.clone()),)+ }
    };
}

impl RequestDocument {
    /// This document, with what it leaves out taken from another.
    #[must_use]
    pub fn or(self, defaults: &Self) -> Self {
        fill!(
            self,
            defaults,
            [
                principal,
                action,
                resource,
                run,
                leads_to,
                cwd,
                reads,
                writes,
                hosts,
                uses,
                reveals,
                executes,
                objects,
                configured,
                bound,
                workspace,
                posture,
                tier,
                egress,
                elsewhere,
                capabilities,
                tool_name,
                skill_id,
                channel,
                device_id,
                session_id,
                run_id,
                token_id,
                on_behalf_of,
                member_of,
                role,
                port,
                now,
            ]
        )
    }

    /// The document of a request that was made, so that it can be put to other policies later.
    #[must_use]
    pub fn record(call: &CallRequest, context: &PolicyRequestContext) -> Self {
        let written = |principal: &Principal| match principal.roles().first() {
            Some(role) => format!("{principal}@{role}"),
            None => principal.to_string(),
        };
        let (mut reads, mut writes, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut uses, mut reveals, mut executes, mut objects) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for touch in &call.touches {
            match touch {
                Touch::Read(path) => reads.push(path.clone()),
                Touch::Write(path) => writes.push(path.clone()),
                Touch::Connect(host, port) if host.as_str().contains(':') => hosts.push(format!("[{host}]:{port}")),
                Touch::Connect(host, port) => hosts.push(format!("{host}:{port}")),
                Touch::Use(secret) => uses.push(secret.clone()),
                Touch::Reveal(secret) => reveals.push(secret.clone()),
                Touch::Execute(skill) => executes.push(skill.clone()),
                Touch::Object { action, resource } => objects.push(format!("{action} {resource}")),
            }
        }
        let command = |process: &Process| {
            std::iter::once(process.program.to_string()).chain(process.args.iter().cloned()).collect()
        };
        Self {
            principal: Some(written(&call.request.principal)),
            action: Some(call.request.action),
            resource: Some(call.request.resource.clone()),
            run: context.process.as_ref().map(command),
            leads_to: context.process.as_ref().and_then(|process| process.leads_to.clone()),
            cwd: context.process.as_ref().and_then(|process| process.cwd.clone()),
            reads: (!reads.is_empty()).then_some(reads),
            writes: (!writes.is_empty()).then_some(writes),
            hosts: (!hosts.is_empty()).then_some(hosts),
            uses: (!uses.is_empty()).then_some(uses),
            reveals: (!reveals.is_empty()).then_some(reveals),
            executes: (!executes.is_empty()).then_some(executes),
            objects: (!objects.is_empty()).then_some(objects),
            configured: context.configured.then_some(true),
            bound: (!context.bound_secrets.is_empty()).then(|| context.bound_secrets.clone()),
            workspace: context.workspace.clone(),
            posture: Some(context.posture),
            tier: context.tier,
            egress: context.egress,
            elsewhere: context.elsewhere.then_some(true),
            capabilities: Some(context.capabilities.clone()),
            tool_name: context.tool_name.clone(),
            skill_id: context.skill_id.clone(),
            channel: context.channel.clone(),
            device_id: context.device_id.clone(),
            session_id: context.session_id,
            run_id: context.run_id,
            token_id: context.token_id.clone(),
            on_behalf_of: context.on_behalf_of.as_ref().map(written),
            member_of: context.member_of.clone(),
            role: context.role,
            port: context.port,
            now: Some(context.now),
        }
    }

    /// Reads the document: the call and its context.
    ///
    /// # Errors
    /// When something required is missing or something given makes no sense.
    pub fn read(
        &self,
        now: Timestamp,
        tools: &BTreeMap<ToolName, ToolMetadata>,
    ) -> Result<(CallRequest, PolicyRequestContext), DocumentError> {
        let principal = self.principal.as_deref().ok_or(DocumentError::Missing("principal"))?;
        // A command is run by `process.run`, and a tool is there to be executed.
        let run = self.run.as_ref().and_then(|_| ToolName::parse("process.run").ok()).map(Resource::Tool);
        let resource = self.resource.clone().or(run).ok_or(DocumentError::Missing("resource"))?;
        let execute = matches!(resource, Resource::Tool(_)).then_some(Action::ToolExecute);
        let request = PolicyRequest {
            principal: Principal::parse(principal)?,
            action: self.action.or(execute).ok_or(DocumentError::Missing("action"))?,
            resource,
        };
        let tool_name = match (&self.tool_name, &request.resource) {
            (None, Resource::Tool(tool)) => Some(tool.clone()),
            (named, _) => named.clone(),
        };
        let known = tool_name.as_ref().and_then(|name| tools.get(name));
        let capabilities =
            self.capabilities.clone().or_else(|| known.map(|tool| tool.capabilities.clone())).unwrap_or_default();
        let asks = capabilities.iter().any(|capability| capability.is_sensitive());
        let default_posture = if asks { Posture::AskEachTime } else { Posture::AlwaysAllow };
        let context = PolicyRequestContext {
            now: self.now.unwrap_or(now),
            device_id: self.device_id.clone(),
            channel: self.channel.clone(),
            session_id: self.session_id,
            run_id: self.run_id,
            token_id: self.token_id.clone(),
            on_behalf_of: self.on_behalf_of.as_deref().map(Principal::parse).transpose()?,
            tool_name,
            skill_id: match (&self.skill_id, &request.resource) {
                (None, Resource::Skill(skill)) => Some(skill.clone()),
                (named, _) => named.clone(),
            },
            capabilities,
            workspace: self.workspace.clone(),
            process: self.process()?,
            member_of: self.member_of.clone(),
            role: self.role,
            port: self.port,
            configured: self.configured.unwrap_or_default(),
            bound_secrets: self.bound.clone().unwrap_or_default(),
            posture: self.posture.unwrap_or(default_posture),
            tier: self.tier,
            egress: self.egress,
            elsewhere: self.elsewhere.unwrap_or_default(),
        };
        Ok((CallRequest { request, touches: self.touches()? }, context))
    }

    fn process(&self) -> Result<Option<Process>, DocumentError> {
        match self.run.as_deref() {
            None if self.cwd.is_some() || self.leads_to.is_some() => Err(DocumentError::CwdWithoutRun),
            None => Ok(None),
            Some([]) => Err(DocumentError::EmptyRun),
            Some([program, args @ ..]) => Ok(Some(Process {
                program: AbsolutePath::parse(program).map_err(DocumentError::Program)?,
                leads_to: self.leads_to.clone(),
                args: args.to_vec(),
                cwd: self.cwd.clone(),
            })),
        }
    }

    fn touches(&self) -> Result<Vec<Touch>, DocumentError> {
        let reads = self.reads.iter().flatten().map(|path| Ok(Touch::Read(path.clone())));
        let writes = self.writes.iter().flatten().map(|path| Ok(Touch::Write(path.clone())));
        let hosts = self.hosts.iter().flatten().map(|host| connect(host));
        let uses = self.uses.iter().flatten().map(|secret| Ok(Touch::Use(secret.clone())));
        let reveals = self.reveals.iter().flatten().map(|secret| Ok(Touch::Reveal(secret.clone())));
        let executes = self.executes.iter().flatten().map(|skill| Ok(Touch::Execute(skill.clone())));
        let objects = self.objects.iter().flatten().map(|text| object(text));
        reads.chain(writes).chain(hosts).chain(uses).chain(reveals).chain(executes).chain(objects).collect()
    }
}

/// Reads `action kind:id`.
fn object(text: &str) -> Result<Touch, DocumentError> {
    let (action, resource) = text.split_once(' ').ok_or_else(|| DocumentError::Object(text.to_owned()))?;
    let action = Action::parse(action).map_err(|_| DocumentError::Object(text.to_owned()))?;
    let resource = Resource::parse(resource).map_err(|_| DocumentError::Object(text.to_owned()))?;
    Ok(Touch::Object { action, resource })
}

/// Reads `host` or `host:port`; port 443 if none is given. An IPv6 address with a port stands in brackets.
fn connect(text: &str) -> Result<Touch, DocumentError> {
    let split = text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let (host, port) = match split {
        Some((host, port)) => (host, port.parse().map_err(|_| DocumentError::Port(text.to_owned()))?),
        None => (text, 443),
    };
    Ok(Touch::Connect(HostName::parse(host)?, port))
}

/// Why a written request could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// A required field is missing.
    #[error("the request has no `{0}`")]
    Missing(&'static str),
    /// `cwd` or `leads_to` without `run`.
    #[error("the request says where or what it runs, but runs nothing")]
    CwdWithoutRun,
    /// `run` is empty.
    #[error("`run` is empty; it lists the program and its arguments")]
    EmptyRun,
    /// The program is not an absolute path.
    #[error("the program of `run` must be resolved: {0}")]
    Program(PathError),
    /// An action on an object that is none.
    #[error("`{}` is not an action and an object", palyra_types::visible::visible(.0))]
    Object(String),
    /// A port that is none.
    #[error("`{}` does not end in a port number", palyra_types::visible::visible(.0))]
    Port(String),
    /// The principal cannot be read.
    #[error(transparent)]
    Principal(#[from] PrincipalError),
    /// A host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl DocumentError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Missing("principal") => "say who asks, such as `agent:claude`",
            Self::Missing("action") => "say what they want to do, such as `tool.execute`",
            Self::Missing(_) => "say what it is about, such as `tool:process.run`",
            Self::CwdWithoutRun | Self::EmptyRun => "write it like run = [\"/usr/bin/cargo\", \"test\"]",
            Self::Program(_) => "give the absolute path of the program; `command -v NAME` tells it",
            Self::Object(_) => "write it like `memory.put memory:agent:claude`",
            Self::Port(_) => "write hosts like `example.org` or `example.org:8443`",
            Self::Principal(_) => "write it like `agent:claude` or `user:ada@owner`",
            Self::Host(error) => error.advice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::builtin_tools;

    fn read(text: &str) -> Result<(CallRequest, PolicyRequestContext), DocumentError> {
        let document: RequestDocument = toml::from_str(text).unwrap();
        document.read(Timestamp::from_unix_millis(0), &builtin_tools().unwrap())
    }

    #[test]
    fn what_is_left_out_takes_the_value_a_newcomer_would_expect() {
        let (call, context) = read("principal = 'agent:claude'\nrun = ['/usr/bin/cargo']").unwrap();
        assert_eq!(call.request.action, Action::ToolExecute);
        assert_eq!(call.request.resource.to_string(), "tool:process.run");
        assert_eq!(context.tool_name.unwrap().as_str(), "process.run");
        assert_eq!(context.capabilities, BTreeSet::from([ToolCapability::ProcessExec]));
        assert_eq!(context.posture, Posture::AskEachTime);
    }

    #[test]
    fn hosts_are_read_with_and_without_a_port() {
        let port = |text: &str| match connect(text) {
            Ok(Touch::Connect(host, port)) => format!("{host} {port}"),
            other => format!("{other:?}"),
        };
        assert_eq!(port("example.org"), "example.org 443");
        assert_eq!(port("example.org:8443"), "example.org 8443");
        assert_eq!(port("2001:db8::7"), "2001:db8::7 443");
        assert_eq!(port("[2001:db8::7]:8443"), "2001:db8::7 8443");
        assert!(connect("example.org:http").is_err());
    }

    #[test]
    fn a_call_with_secrets_reads_back_as_it_was_recorded() {
        let (call, context) = read(
            "principal = 'agent:claude'\nresource = 'tool:http.fetch'\nhosts = ['example.org']\n\
             uses = ['workspace:shop/key', 'global/github']\nreveals = ['agent:claude/npm']\nbound = ['global/github']",
        )
        .unwrap();
        let secret = |text: &str| SecretRef::parse(text).unwrap();
        assert_eq!(
            call.touches.get(1..),
            Some(
                &[
                    Touch::Use(secret("workspace:shop/key")),
                    Touch::Use(secret("global/github")),
                    Touch::Reveal(secret("agent:claude/npm")),
                ][..]
            )
        );
        assert_eq!(context.bound_secrets, BTreeSet::from([secret("global/github")]));
        let written = serde_json::to_string(&RequestDocument::record(&call, &context)).unwrap();
        let again: RequestDocument = serde_json::from_str(&written).unwrap();
        assert_eq!(again.read(Timestamp::from_unix_millis(7), &builtin_tools().unwrap()), Ok((call, context)));
    }

    #[test]
    fn a_request_that_was_recorded_before_there_were_secrets_uses_none() {
        let recorded = r#"{"principal":"agent:claude","action":"tool.execute","resource":"tool:http.fetch",
            "hosts":["example.org:443"],"posture":"ask_each_time","egress":"strict","capabilities":["network"],
            "tool_name":"http.fetch","run_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","now":"2026-03-02T09:30:00Z"}"#;
        let document: RequestDocument = serde_json::from_str(recorded).unwrap();
        let (call, context) = document.read(Timestamp::from_unix_millis(0), &builtin_tools().unwrap()).unwrap();
        assert_eq!(call.touches, [Touch::Connect(HostName::parse("example.org").unwrap(), 443)]);
        assert_eq!(context.bound_secrets, BTreeSet::new());
    }

    #[test]
    fn a_secret_without_a_scope_is_no_part_of_a_request() {
        for field in ["uses", "reveals", "bound"] {
            let document: Result<RequestDocument, _> = toml::from_str(&format!("{field} = ['github']"));
            assert!(document.unwrap_err().to_string().contains("has no scope"), "{field}");
        }
    }

    #[test]
    fn an_incomplete_request_says_what_is_missing() {
        assert_eq!(read("action = 'tool.execute'"), Err(DocumentError::Missing("principal")));
        assert_eq!(read("principal = 'agent:claude'"), Err(DocumentError::Missing("resource")));
        assert_eq!(
            read("principal = 'agent:claude'\nresource = 'host:example.org'"),
            Err(DocumentError::Missing("action"))
        );
        let relative =
            read("principal = 'agent:a'\naction = 'tool.execute'\nresource = 'tool:process.run'\nrun = ['cargo']");
        assert!(matches!(relative, Err(DocumentError::Program(PathError::Relative(_)))));
    }
}
