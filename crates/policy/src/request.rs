//! What is decided: a [`PolicyRequest`], the [`PolicyRequestContext`] it is made in, and the [`PolicyEvaluationConfig`] that
//! holds the operator's switches and allowlists.
//!
//! All three are plain values made of parsed types. Building one decides nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    marker::PhantomData,
};

use palyra_types::{
    AbsolutePath, Action, Channel, DeviceId, EgressEnforcementMode, HostName, ObjectId, Posture, Principal, Process,
    Resource, SandboxTier, SecretRef, SkillId, Timestamp, TokenId, ToolCapability, ToolName, WorkspaceName,
    WorkspaceRole,
    id::{RunId, SessionId},
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Unexpected, Visitor, value::SeqAccessDeserializer},
};

/// The triple of a request: who wants to do what with which thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRequest {
    /// Who asks.
    pub principal: Principal,
    /// What they want to do.
    pub action: Action,
    /// What they want to do it with.
    pub resource: Resource,
}

/// The circumstances of a request. `approved` is not among them: the engine tries both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRequestContext {
    /// When the request is made.
    pub now: Timestamp,
    /// The device it came from.
    pub device_id: Option<DeviceId>,
    /// The surface that received it.
    pub channel: Option<Channel>,
    /// The conversation or connection it belongs to.
    pub session_id: Option<SessionId>,
    /// The task it belongs to.
    pub run_id: Option<RunId>,
    /// The API token it was made with.
    pub token_id: Option<TokenId>,
    /// The user an agent or a service acts for.
    pub on_behalf_of: Option<Principal>,
    /// The tool that the request is part of.
    pub tool_name: Option<ToolName>,
    /// The skill that the request is part of.
    pub skill_id: Option<SkillId>,
    /// What the tool needs from the machine.
    pub capabilities: BTreeSet<ToolCapability>,
    /// The configured workspace the call works in.
    pub workspace: Option<WorkspaceName>,
    /// What would be run.
    pub process: Option<Process>,
    /// The workspaces that the principal is bound to; none means that it is bound to none in particular.
    pub member_of: Option<BTreeSet<WorkspaceName>>,
    /// The role that would be given, changed or taken away: the highest of them.
    pub role: Option<WorkspaceRole>,
    /// The port of a `net.connect`.
    pub port: Option<u16>,
    /// Whether the configuration of an MCP server names exactly this.
    pub configured: bool,
    /// The secrets that a binding lets the call's tool send somewhere.
    pub bound_secrets: BTreeSet<SecretRef>,
    /// How freely the tool may be used.
    pub posture: Posture,
    /// The tier of the plan.
    pub tier: Option<SandboxTier>,
    /// The egress mode of the plan.
    pub egress: Option<EgressEnforcementMode>,
    /// Whether another program would do it, which Palyra neither runs nor contains.
    pub elsewhere: bool,
}

impl PolicyRequestContext {
    /// A context that says nothing but the time; the posture asks.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self {
            now,
            device_id: None,
            channel: None,
            session_id: None,
            run_id: None,
            token_id: None,
            on_behalf_of: None,
            tool_name: None,
            skill_id: None,
            capabilities: BTreeSet::new(),
            workspace: None,
            process: None,
            member_of: None,
            role: None,
            port: None,
            configured: false,
            bound_secrets: BTreeSet::new(),
            posture: Posture::AskEachTime,
            tier: None,
            egress: None,
            elsewhere: false,
        }
    }
}

/// Something a call touches besides its own resource. Each is decided on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touch {
    /// Reads a path.
    Read(AbsolutePath),
    /// Writes, creates or deletes a path.
    Write(AbsolutePath),
    /// Connects to a host.
    Connect(HostName, u16),
    /// Uses a secret without seeing it: the value is put in on the way to where the secret is bound.
    Use(SecretRef),
    /// Is given the value of a secret.
    Reveal(SecretRef),
    /// Runs a skill, whose tool the call is of.
    Execute(SkillId),
    /// Does something with one of the daemon's own objects, such as a memory or a schedule.
    Object {
        /// What.
        action: Action,
        /// With which.
        resource: Resource,
    },
}

/// A whole call: its own request and everything it touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The call itself, such as `tool.execute` on a tool.
    pub request: PolicyRequest,
    /// What it touches.
    pub touches: Vec<Touch>,
}

/// Who or what is on a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowlist<T> {
    /// Everyone or everything. Written `"*"`.
    Any,
    /// Only these; the empty list is nobody.
    Only(BTreeSet<T>),
}

impl<T: Ord> Allowlist<T> {
    /// Whether the list names this one.
    #[must_use]
    pub fn contains(&self, item: &T) -> bool {
        match self {
            Self::Any => true,
            Self::Only(items) => items.contains(item),
        }
    }
}

impl<T> Default for Allowlist<T> {
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl<T: Serialize> Serialize for Allowlist<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => serializer.serialize_str("*"),
            Self::Only(items) => serializer.collect_seq(items),
        }
    }
}

impl<'de, T: Deserialize<'de> + Ord> Deserialize<'de> for Allowlist<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrStar<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Ord> Visitor<'de> for ListOrStar<T> {
            type Value = Allowlist<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"*\" or a list of names")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == "*" { Ok(Allowlist::Any) } else { Err(E::invalid_value(Unexpected::Str(text), &self)) }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(items)).map(Allowlist::Only)
            }
        }
        deserializer.deserialize_any(ListOrStar(PhantomData))
    }
}

/// A principal on an allowlist: its kind and name, roles aside. Written `agent:claude`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrincipalName(String);

impl From<&Principal> for PrincipalName {
    fn from(principal: &Principal) -> Self {
        Self(principal.to_string())
    }
}

impl Serialize for PrincipalName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PrincipalName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Principal::parse(&text).map(|principal| Self::from(&principal)).map_err(de::Error::custom)
    }
}

/// The operator's switches and allowlists. The default allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyEvaluationConfig {
    /// Whether tools with a sensitive capability, and sensitive actions, can be used at all.
    pub allow_sensitive_tools: bool,
    /// Tools that the baseline lets run.
    pub allowlisted_tools: Allowlist<ToolName>,
    /// Skills that the baseline lets run.
    pub allowlisted_skills: Allowlist<SkillId>,
    /// MCP servers whose tools the baseline lets run.
    pub allowlisted_mcp: Allowlist<ObjectId>,
    /// Actions that count as sensitive in addition to the built-in ones.
    pub sensitive_actions: BTreeSet<Action>,
    /// Principals that may use tools.
    pub tool_execute_principal_allowlist: Allowlist<PrincipalName>,
    /// Surfaces that tools may be used from. A call without a channel is on no list but `"*"`.
    pub tool_execute_channel_allowlist: Allowlist<Channel>,
    /// Skills that must not run until a person has looked at them.
    pub quarantined_skills: BTreeSet<SkillId>,
    /// The configured workspaces and where they are.
    pub workspaces: BTreeMap<WorkspaceName, AbsolutePath>,
    /// Palyra's own state directory, out of reach of every governed call.
    pub state_directory: Option<AbsolutePath>,
    /// Where Palyra's own programs are, in addition to anything called `palyra` or `palyrad`.
    pub palyra_programs: BTreeSet<AbsolutePath>,
}
