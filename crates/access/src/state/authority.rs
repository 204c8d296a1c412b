//! Which role counts, and for what it suffices.
//!
//! Guarantees: a role counts only as far as the member has it now, whatever a credential or a caller says; below owner only while the
//! features that give it a meaning are on.

use palyra_types::{Principal, PrincipalId, PrincipalKind, WorkspaceRole};

use super::State;
use crate::{actor::Actor, error::Refusal, feature::FeatureFlag, member::Membership, role, scope::Scope};

impl State {
    /// The role that counts for a member where `bound` is the most that may: the lower of it and the role they have now.
    ///
    /// None for somebody who is no member, for members below owner while `team_mode` is off, and for roles below owner while `rbac` is.
    #[must_use]
    pub fn effective_role(&self, user: &PrincipalId, bound: WorkspaceRole) -> Option<WorkspaceRole> {
        let member = self.members.get(user).filter(|_| self.belongs(user))?;
        let role = role::lower(member.role, bound);
        (role == WorkspaceRole::Owner || self.is_on(FeatureFlag::Rbac)).then_some(role)
    }

    /// Whether somebody is a member that counts: while `team_mode` is off, only owners do.
    #[must_use]
    pub fn belongs(&self, user: &PrincipalId) -> bool {
        let counts = |role| role == WorkspaceRole::Owner || self.is_on(FeatureFlag::TeamMode);
        self.members.get(user).is_some_and(|member| counts(member.role))
    }

    /// The role that counts for whoever asks, whatever they claim.
    #[must_use]
    pub fn standing(&self, by: &Actor) -> Option<WorkspaceRole> {
        match by.principal.kind() {
            PrincipalKind::User => self.effective_role(by.principal.id(), by.role()?),
            PrincipalKind::Agent | PrincipalKind::Service => None,
        }
    }

    /// The role of whoever asks, if they may ask for this at all.
    pub(super) fn authorise(&self, by: &Actor, scope: Scope) -> Result<WorkspaceRole, Refusal> {
        no_agent(by)?;
        by.needs(scope)?;
        self.standing(by).ok_or(Refusal::NoRole)
    }

    /// Whether whoever asks belongs to all the workspaces that they give away or concern, and their credential reaches them.
    pub(super) fn gives(&self, by: &Actor, workspaces: &Membership) -> Result<(), Refusal> {
        let own = self.members.get(by.principal.id()).map(|member| &member.workspaces);
        if own.is_some_and(|own| workspaces.is_within(&own.and(&by.membership))) {
            Ok(())
        } else {
            Err(Refusal::OutsideWorkspaces)
        }
    }

    /// Whether whoever asks may change what is a member's, as far as workspaces go: their own, or that of somebody who belongs to no
    /// workspaces beyond theirs. What belongs to nobody is in no workspace.
    // SECURITY: an admin of one workspace who promotes somebody of all of them has somebody to widen their own.
    pub(super) fn covers(&self, by: &Actor, user: Option<&PrincipalId>) -> Result<(), Refusal> {
        match user {
            Some(user) if is_user(&by.principal, user) => Ok(()),
            Some(user) => self.workspaces_of(user).map_or(Ok(()), |workspaces| self.gives(by, workspaces)),
            None => Ok(()),
        }
    }

    /// The workspaces that somebody belongs to, or is to belong to.
    fn workspaces_of(&self, user: &PrincipalId) -> Option<&Membership> {
        let member = self.members.get(user).map(|member| &member.workspaces);
        member.or_else(|| self.invitation_of(user).map(|invitation| &invitation.workspaces))
    }

    /// Refuses what belongs to a feature that is off.
    pub(super) fn require(&self, feature: FeatureFlag) -> Result<(), Refusal> {
        if self.is_on(feature) { Ok(()) } else { Err(Refusal::FeatureOff(feature)) }
    }
}

/// Refuses agents, whatever they ask for.
pub(super) fn no_agent(by: &Actor) -> Result<(), Refusal> {
    match by.principal.kind() {
        PrincipalKind::Agent => Err(Refusal::Agent),
        PrincipalKind::User | PrincipalKind::Service => Ok(()),
    }
}

/// Refuses what needs a higher role than there is.
pub(super) fn reaches(role: WorkspaceRole, needed: WorkspaceRole) -> Result<(), Refusal> {
    if role::is_within(needed, role) { Ok(()) } else { Err(Refusal::Above { needed }) }
}

/// Refuses to give a role by a token.
// SECURITY: whoever was given a role has no scopes and no end, so that a token would come to be more than it is.
pub(super) fn gives_roles(by: &Actor) -> Result<(), Refusal> {
    if by.uses_token() { Err(Refusal::RoleInPerson) } else { Ok(()) }
}

/// Whether a principal is this user.
pub(super) fn is_user(principal: &Principal, user: &PrincipalId) -> bool {
    principal.kind() == PrincipalKind::User && principal.id() == user
}

/// Whether two principals are the same, whatever roles they hold.
pub(super) fn is_same(one: &Principal, other: &Principal) -> bool {
    one.kind() == other.kind() && one.id() == other.id()
}
