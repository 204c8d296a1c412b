//! Whoever wants something that is no call: who they are, and whether policy lets them.
//!
//! Guarantees: a petitioner is made of parsed parts only, and holding one permits nothing; whatever is not allowed outright is refused, because
//! nobody is asked about what is no call.

use std::collections::BTreeSet;

use palyra_policy::{PolicyRequest, PolicyRequestContext, Verdict};
use palyra_types::{
    Action, Channel, DeviceId, ObjectId, ObjectKind, Principal, Resource, TokenId, WorkspaceName, WorkspaceRole,
};

use crate::{
    gate::{Gate, Inner, internal},
    refusal::Refusal,
    service::Asker,
    settings::InForce,
};

/// Whoever wants something that is no call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Petitioner {
    /// Who.
    pub principal: Principal,
    /// The surface they came in by.
    pub channel: Option<Channel>,
    /// The device they came from.
    pub device: Option<DeviceId>,
    /// The API token they showed.
    pub token: Option<TokenId>,
    /// The workspaces they are bound to; none means that they are bound to none in particular.
    pub member_of: Option<BTreeSet<WorkspaceName>>,
}

impl From<Principal> for Petitioner {
    /// Somebody of whom no more is known than who they are.
    fn from(principal: Principal) -> Self {
        Self { principal, channel: None, device: None, token: None, member_of: None }
    }
}

impl From<Asker<'_>> for Petitioner {
    fn from(asker: Asker<'_>) -> Self {
        Self {
            principal: asker.principal.clone(),
            channel: asker.channel.cloned(),
            device: asker.device.cloned(),
            token: asker.token.cloned(),
            member_of: asker.member_of.cloned(),
        }
    }
}

impl Gate {
    /// Whether policy lets somebody do something that is no call. Where it would ask, it does not.
    ///
    /// # Errors
    /// When it does not.
    pub fn may(&self, by: &Petitioner, action: Action, resource: Resource) -> Result<(), Refusal> {
        self.inner.may(by, action, resource, None)
    }

    /// The same for something that gives, changes or takes away a role: the highest of them.
    ///
    /// # Errors
    /// When it does not.
    pub fn may_about_role(
        &self,
        by: &Petitioner,
        action: Action,
        resource: Resource,
        role: Option<WorkspaceRole>,
    ) -> Result<(), Refusal> {
        self.inner.may(by, action, resource, role)
    }
}

impl Inner {
    /// Whether policy lets somebody do something that is no call.
    pub(crate) fn may(
        &self,
        by: &Petitioner,
        action: Action,
        resource: Resource,
        role: Option<WorkspaceRole>,
    ) -> Result<(), Refusal> {
        self.may_there(by, action, resource, Where { workspace: None, role })
    }

    /// The same, about a workspace.
    pub(crate) fn may_there(
        &self,
        by: &Petitioner,
        action: Action,
        resource: Resource,
        Where { workspace, role }: Where,
    ) -> Result<(), Refusal> {
        let request = PolicyRequest { principal: by.principal.clone(), action, resource };
        let context = PolicyRequestContext {
            channel: by.channel.clone(),
            device_id: by.device.clone(),
            token_id: by.token.clone(),
            workspace,
            member_of: by.member_of.clone(),
            role,
            ..PolicyRequestContext::at(self.clock.now())
        };
        let InForce { settings, policies, .. } = self.in_force();
        let decision = policies.decide(&request, &context, &settings.evaluation);
        match decision.verdict {
            Verdict::Allow => Ok(()),
            Verdict::Ask | Verdict::Deny => Err(Refusal::NotPermitted(decision.reason())),
        }
    }

    /// Whether policy lets somebody answer what is asked about this, and so stop it.
    pub(crate) fn may_answer_about(
        &self,
        by: &Petitioner,
        id: &str,
        workspace: Option<WorkspaceName>,
    ) -> Result<(), Refusal> {
        let resource = Resource::Object(ObjectKind::Approval, ObjectId::parse(id).map_err(internal)?);
        self.may_there(by, Action::ApprovalAnswer, resource, Where { workspace, role: None })
    }
}

/// What something that is no call is about, besides its resource.
pub(crate) struct Where {
    /// The workspace that it concerns.
    pub(crate) workspace: Option<WorkspaceName>,
    /// The highest role that would be given, changed or taken away.
    pub(crate) role: Option<WorkspaceRole>,
}
