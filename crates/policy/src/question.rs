//! What an answer depends on, so that a question that was answered before need not be put to Cedar again.
//!
//! Guarantees: the context that Cedar sees is made of the facts here and of nothing else, so two questions with equal facts have equal
//! answers. A question is only known again if everything that the policies in question can look at is part of it: about a tool, and
//! neither about the time, nor what exactly is run, nor for whom.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{PoisonError, RwLock},
};

use palyra_types::{
    Action, Channel, DeviceId, EgressEnforcementMode, Posture, Principal, Resource, SandboxTier, SkillId, TokenId,
    ToolCapability, ToolName, WorkspaceName, WorkspaceRole,
};

use crate::{
    decision::{Cause, Verdict},
    demand::{ContextKey, Demands},
    facts::Facts,
};

/// What one attribute of a context says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Fact {
    /// The request has none.
    Absent,
    /// Something that is asked about once and rarely twice.
    Fleeting,
    Flag(bool),
    Number(i64),
    Text(String),
    Workspace(WorkspaceName),
    Capabilities(BTreeSet<ToolCapability>),
    Posture(Posture),
    Tier(SandboxTier),
    Egress(EgressEnforcementMode),
    Role(WorkspaceRole),
}

/// Everything that the answer to a request depends on, as far as some policies look.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// With its roles.
    principal: Principal,
    /// The workspaces it is in.
    member_of: Option<BTreeSet<WorkspaceName>>,
    action: Action,
    /// Its groups come from its name.
    tool: ToolName,
    facts: Vec<Fact>,
}

impl Question {
    /// The question that a request is to policies with these demands, if it could be known again.
    pub(crate) fn of(facts: &Facts<'_>, demands: Demands) -> Option<Self> {
        let Resource::Tool(tool) = &facts.request.resource else { return None };
        let said: Vec<Fact> = demands.keys().map(|key| fact_of(key, facts)).collect();
        if said.contains(&Fact::Fleeting) {
            return None;
        }
        let (principal, action) = (facts.request.principal.clone(), facts.request.action);
        let member_of = facts.context.member_of.clone();
        Some(Self { principal, member_of, action, tool: tool.clone(), facts: said })
    }
}

/// What a request says about one attribute.
pub(crate) fn fact_of(key: ContextKey, facts: &Facts<'_>) -> Fact {
    let context = facts.context;
    let text = |text: Option<&str>| text.map_or(Fact::Absent, |text| Fact::Text(text.to_owned()));
    match key {
        // Both answers are part of one.
        ContextKey::Approved => Fact::Absent,
        ContextKey::OnBehalfOf | ContextKey::Process | ContextKey::Now => Fact::Fleeting,
        ContextKey::DeviceId => text(context.device_id.as_ref().map(DeviceId::as_str)),
        ContextKey::Channel => text(context.channel.as_ref().map(Channel::as_str)),
        ContextKey::SessionId => context.session_id.map_or(Fact::Absent, |id| Fact::Text(id.to_string())),
        ContextKey::RunId => context.run_id.map_or(Fact::Absent, |id| Fact::Text(id.to_string())),
        ContextKey::TokenId => text(context.token_id.as_ref().map(TokenId::as_str)),
        ContextKey::ToolName => text(context.tool_name.as_ref().map(ToolName::as_str)),
        ContextKey::SkillId => text(context.skill_id.as_ref().map(SkillId::as_str)),
        ContextKey::Capabilities => Fact::Capabilities(context.capabilities.clone()),
        ContextKey::Workspace => context.workspace.clone().map_or(Fact::Absent, Fact::Workspace),
        ContextKey::Port => context.port.map_or(Fact::Absent, |port| Fact::Number(port.into())),
        ContextKey::Posture => Fact::Posture(context.posture),
        ContextKey::Tier => context.tier.map_or(Fact::Absent, Fact::Tier),
        ContextKey::Egress => context.egress.map_or(Fact::Absent, Fact::Egress),
        ContextKey::Elsewhere => Fact::Flag(context.elsewhere),
        ContextKey::AllowSensitiveTools => Fact::Flag(facts.allow_sensitive_tools()),
        ContextKey::SensitiveAction => Fact::Flag(facts.sensitive_action()),
        ContextKey::Allowlisted => Fact::Flag(facts.allowlisted()),
        ContextKey::PrincipalAuthorized => Fact::Flag(facts.principal_authorized()),
        ContextKey::ChannelAuthorized => Fact::Flag(facts.channel_authorized()),
        ContextKey::Role => context.role.map_or(Fact::Absent, Fact::Role),
        ContextKey::Member => Fact::Flag(facts.member()),
        ContextKey::Configured => Fact::Flag(facts.configured()),
        ContextKey::Bound => Fact::Flag(facts.bound()),
        ContextKey::InScope => Fact::Flag(facts.in_scope()),
        ContextKey::RunsPalyra => Fact::Flag(facts.runs_palyra()),
        ContextKey::TouchesState => Fact::Flag(facts.touches_state()),
    }
}

/// Answers that some policies gave, so many at most.
pub(crate) struct Answers<A, const MOST: usize>(RwLock<HashMap<Question, A>>);

/// What they decided.
pub(crate) type Decided = Answers<(Verdict, Cause), 256>;

/// Whether they leave open that something is let. It is asked about every tool there is, for whoever lists them.
pub(crate) type LeftOpen = Answers<bool, 1024>;

impl<A, const MOST: usize> Default for Answers<A, MOST> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<A: Clone, const MOST: usize> Answers<A, MOST> {
    /// The answer to a question that was asked before.
    pub(crate) fn to(&self, question: &Question) -> Option<A> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(question).cloned()
    }

    /// Keeps an answer. When there are many, all are forgotten: whoever makes up names gains nothing by it.
    pub(crate) fn keep(&self, question: Question, answer: A) {
        let mut answers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(question, answer);
    }
}

#[cfg(test)]
impl<A, const MOST: usize> Answers<A, MOST> {
    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
