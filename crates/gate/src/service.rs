//! Work that a part of the daemon does on behalf of a call: memory, schedules, artifacts, a tool of an MCP server.
//!
//! Guarantees: a service is asked what a call would do before anything is decided, and performs it only for a permit that was issued for
//! exactly that; what it says is bounded by what the plan reserves, and it is told when the call is to stop.
//! Does not: decide, ask or record anything. A service that is asked what a call would do changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, PoisonError},
    time::Duration,
};

use palyra_policy::Touch;
use palyra_sandbox::StopCause;
use palyra_types::{
    Channel, DeviceId, EgressEnforcementMode, JsonError, JsonObject, Principal, SandboxTier, SecretRef, TokenId,
    ToolMetadata, WorkspaceName, id::SessionId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    attest::Ending,
    execute::{Executed, asked_to_stop, stopped},
    gate::Gate,
    output::Output,
    permit::CallFacts,
    proposal::ToolProposal,
    tool::{HostPort, IntendError, Intent, Place, Tool, ToolDefinition, Work},
};

/// A part of the daemon that does something for calls.
pub trait Service: Send + Sync {
    /// Its name, as it stands in receipts and in what a person approves.
    fn name(&self) -> &str;

    /// What an operation with these arguments would do. Changes nothing. Policy has not decided by then, so what is refused here must tell
    /// nothing about what is somebody else's.
    ///
    /// # Errors
    /// When the arguments mean nothing that could be done.
    fn intend(&self, operation: &str, args: &JsonObject, asker: Asker<'_>) -> Result<ServiceIntent, IntendError>;

    /// The workspace that it works in wherever it is called, if it has one of its own.
    fn workspace(&self) -> Option<&WorkspaceName> {
        None
    }

    /// Whether that takes no time to speak of. What does is asked where nobody else waits.
    fn glances(&self, _operation: &str) -> bool {
        true
    }

    /// Does it.
    fn perform(self: Arc<Self>, order: ServiceOrder) -> Performing;
}

/// What a service does, while it does it.
pub type Performing = Pin<Box<dyn Future<Output = Performed> + Send>>;

/// Who asks for something, and where.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// Who.
    pub principal: &'a Principal,
    /// The device that they ask from.
    pub device: Option<&'a DeviceId>,
    /// The API token that they ask with.
    pub token: Option<&'a TokenId>,
    /// The workspaces that they are bound to; none means that they are bound to none in particular.
    pub member_of: Option<&'a BTreeSet<WorkspaceName>>,
    /// The surface that they came in by.
    pub channel: Option<&'a Channel>,
    /// In which conversation.
    pub session: SessionId,
    /// In which workspace.
    pub workspace: Option<&'a WorkspaceName>,
}

/// What an operation of a service would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceIntent {
    /// What policy is asked about, besides the tool itself.
    pub touches: Vec<Touch>,
    /// What it is about that the arguments do not say, such as the scope that is meant if none is named. A person approves this, too.
    pub about: BTreeMap<String, String>,
    /// How it is held.
    pub terms: ServiceTerms,
    /// Who does it, if it is not the daemon.
    pub deputy: Option<Deputy>,
}

/// Who does the work of a service for the daemon, and what they could do with it. A person approves this, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Deputy {
    /// A program that the daemon starts and contains. How its network is held stands in the terms.
    Program {
        /// What is started.
        program: String,
        /// The workspace that it works in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<WorkspaceName>,
        /// The hosts that it may connect to.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hosts: Vec<HostPort>,
        /// The secrets that it may use.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        secrets: BTreeSet<SecretRef>,
    },
    /// A server that somebody else runs.
    Server {
        /// Where it is.
        place: HostPort,
        /// Whether that is this machine.
        is_local: bool,
        /// Whether what is sent there is encrypted.
        is_encrypted: bool,
        /// The secrets that it is sent.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        secrets: BTreeSet<SecretRef>,
    },
}

impl Deputy {
    /// Where what they are given may go.
    #[must_use]
    pub fn places(&self) -> &[HostPort] {
        match self {
            Self::Program { hosts, .. } => hosts,
            Self::Server { place, .. } => std::slice::from_ref(place),
        }
    }

    /// The secrets that they may use.
    #[must_use]
    pub const fn secrets(&self) -> &BTreeSet<SecretRef> {
        match self {
            Self::Program { secrets, .. } | Self::Server { secrets, .. } => secrets,
        }
    }
}

/// How the work of a service is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTerms {
    /// What contains it, if that is more than the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<SandboxTier>,
    /// How its network is held, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressEnforcementMode>,
    /// How long it may take, in milliseconds.
    pub wall_ms: u64,
    /// How much of what it says is told, in bytes.
    pub output_bytes: u64,
}

impl Default for ServiceTerms {
    fn default() -> Self {
        Self { tier: None, egress: None, wall_ms: 30_000, output_bytes: 1 << 20 }
    }
}

/// What a service is to do. Its JSON goes into the digest that a person approves; the arguments stand beside it there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceWork {
    /// The service.
    pub service: String,
    /// What it is to do.
    pub operation: String,
    /// What it is about that the arguments do not say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
    /// How it is held, for its plan.
    #[serde(skip)]
    pub(crate) terms: ServiceTerms,
    /// Who does it, if it is not the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deputy: Option<Deputy>,
}

/// An order to a service.
pub struct ServiceOrder {
    /// What it is to do.
    pub work: ServiceWork,
    /// The call: who wants it, from where, with which arguments.
    pub proposal: Arc<ToolProposal>,
    /// How long it may take.
    pub wall: Duration,
    /// How much of what it says is told, in bytes.
    pub output_bytes: u64,
    /// Tells when to stop.
    pub stop: StopSignal,
}

/// Tells when a call is to stop.
#[derive(Clone)]
pub struct StopSignal(watch::Receiver<Option<StopCause>>);

impl StopSignal {
    /// Waits until the call is to stop.
    pub async fn asked(&mut self) {
        let _ = asked_to_stop(&mut self.0).await;
    }

    /// Whether it is to stop.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// What a service did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Performed {
    /// What it says.
    pub value: Value,
    /// Why it could not do what it was asked to, if it could not.
    pub failed: Option<String>,
    /// Who did it, for the receipt.
    pub executor: &'static str,
    /// What held it, for the receipt.
    pub layers: Vec<String>,
}

impl Performed {
    /// Something that the daemon itself did.
    #[must_use]
    pub const fn by_the_daemon(value: Value) -> Self {
        Self { value, failed: None, executor: "daemon", layers: Vec::new() }
    }

    /// Something that the daemon could not do, and what to do about it.
    #[must_use]
    pub fn failed(message: impl Into<String>, help: &str) -> Self {
        let message = message.into();
        let value = serde_json::json!({ "error": { "message": message, "help": help } });
        Self { value, failed: Some(message), executor: "daemon", layers: Vec::new() }
    }
}

/// A tool that is an operation of a service.
pub struct ServiceTool {
    definition: ToolDefinition,
    operation: String,
    service: Arc<dyn Service>,
}

impl ServiceTool {
    /// A tool that has a service do this.
    #[must_use]
    pub fn new(definition: ToolDefinition, operation: &str, service: Arc<dyn Service>) -> Self {
        Self { definition, operation: operation.to_owned(), service }
    }
}

/// An operation of a service that ships with Palyra. What it is and needs stands in the table of built-in tools, by its name.
pub struct ServiceOperation {
    /// The name of the tool, and of the operation.
    pub tool: &'static str,
    /// What it does, at length, for whoever calls it.
    pub description: &'static str,
    /// The JSON Schema of its arguments.
    pub schema: Value,
    /// The service.
    pub service: Arc<dyn Service>,
}

impl ServiceOperation {
    /// The tool that it is.
    pub(crate) fn tool(self, metadata: ToolMetadata) -> Result<ServiceTool, JsonError> {
        let definition = ToolDefinition::new(metadata, self.description, self.schema)?;
        Ok(ServiceTool::new(definition, self.tool, self.service))
    }
}

impl Tool for ServiceTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        // SECURITY: policy is asked about the workspace of the call, which anybody chooses who belongs to it, or leaves out.
        if let (Some(own), Some(bound)) = (self.service.workspace(), place.asker.member_of)
            && !bound.contains(own)
        {
            return Err(IntendError::NotTheirs(self.definition.name().clone()));
        }
        let ServiceIntent { touches, about, terms, deputy } =
            self.service.intend(&self.operation, args, place.asker)?;
        let (service, operation) = (self.service.name().to_owned(), self.operation.clone());
        Ok(Intent { touches, work: Work::Service(ServiceWork { service, operation, about, terms, deputy }) })
    }

    fn glances(&self) -> bool {
        self.service.glances(&self.operation)
    }

    fn service(&self) -> Option<Arc<dyn Service>> {
        Some(Arc::clone(&self.service))
    }

    fn own_workspace(&self) -> Option<&WorkspaceName> {
        self.service.workspace()
    }
}

impl Gate {
    /// Offers these tools of servers that the daemon speaks with, in the place of those that were offered before. Whatever waits is judged
    /// anew; a call of a tool that is gone or is not the same any more is withdrawn.
    pub fn offer(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) {
        let inner = &self.inner;
        let changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = inner.registry.load().with_upstream(tools);
        let exchanging = inner.exchanging.write().unwrap_or_else(PoisonError::into_inner);
        inner.registry.store(Arc::new(registry));
        inner.policies.send_modify(|count| *count += 1);
        drop(exchanging);
        drop(changing);
    }
}

/// Has a service do what was permitted.
pub(crate) async fn perform(
    facts: &Arc<CallFacts>,
    work: ServiceWork,
    terms: ServiceTerms,
    (service, stop): (Option<Arc<dyn Service>>, watch::Receiver<Option<StopCause>>),
) -> Executed {
    let Some(service) = service else {
        return Executed::unknown(Ending::NotStarted, "there is no such service any more");
    };
    let wall = Duration::from_millis(terms.wall_ms.min(facts.reserved.wall_ms));
    let output_bytes = terms.output_bytes.min(facts.reserved.output_bytes);
    let order = ServiceOrder {
        work,
        proposal: Arc::clone(&facts.proposal),
        wall,
        output_bytes,
        stop: StopSignal(stop.clone()),
    };
    let mut asked = stop;
    let ended = tokio::select! {
        biased;
        cause = asked_to_stop(&mut asked) => Err((Ending::Cancelled, Some(stopped(cause).to_owned()))),
        performed = tokio::time::timeout(wall, service.perform(order)) => performed.map_err(|_| {
            let is_short = facts.reserved.wall_ms < terms.wall_ms;
            (if is_short { Ending::BudgetSpent } else { Ending::TimedOut }, None)
        }),
    };
    match ended {
        Ok(Performed { value, failed, executor, layers }) => {
            let is_too_long = u64::try_from(value.to_string().len()).unwrap_or(u64::MAX) > output_bytes;
            let (detail, value) = match is_too_long {
                false => (failed, value),
                true => {
                    let message = format!("the answer is longer than {output_bytes} bytes");
                    let help = "ask for less at once";
                    (Some(message.clone()), serde_json::json!({ "error": { "message": message, "help": help } }))
                }
            };
            let output = Output::Value { value };
            Executed { executor, layers, detail, output, ..Executed::unknown(Ending::Completed, "") }
        }
        Err((ending, detail)) => Executed { detail, ..Executed::unknown(ending, "") },
    }
}
