//! Who asks for a change.

use std::collections::BTreeSet;

use palyra_types::{Principal, TokenId, WorkspaceRole};

use crate::{
    error::MissingScope,
    holder::{Credential, Holder},
    member::Membership,
    role,
    scope::Scope,
};

/// Whoever asks for a change, with what they hold.
///
/// A claim, not a proof: the state bounds the role by what it knows of the member itself, so a role that was lost meanwhile does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Who, with the roles that count.
    pub principal: Principal,
    /// What their token may be used for, if they act by one.
    pub scopes: Option<BTreeSet<Scope>>,
    /// The token they use, if it is one. What it makes is bound by it.
    pub token: Option<TokenId>,
    /// The workspaces that their credential may be used in. What they belong to themselves bounds them as well.
    pub membership: Membership,
}

impl Actor {
    /// Somebody who acts by a device or at the console: nothing but their role bounds them.
    #[must_use]
    pub const fn in_person(principal: Principal) -> Self {
        Self { principal, scopes: None, token: None, membership: Membership::All }
    }

    /// The highest role they hold.
    #[must_use]
    pub fn role(&self) -> Option<WorkspaceRole> {
        role::highest(self.principal.roles().iter().copied())
    }

    /// Whether they may use a scope.
    ///
    /// # Errors
    /// When they act by a token without it.
    pub fn needs(&self, scope: Scope) -> Result<(), MissingScope> {
        match &self.scopes {
            Some(scopes) if !scopes.contains(&scope) => Err(MissingScope { scope }),
            _ => Ok(()),
        }
    }

    /// Whether they act by a token, and not in person. Either sign of one is enough.
    pub(crate) const fn uses_token(&self) -> bool {
        self.scopes.is_some() || self.token.is_some()
    }
}

impl From<&Holder> for Actor {
    fn from(holder: &Holder) -> Self {
        Self {
            principal: holder.principal.clone(),
            scopes: holder.scopes.as_deref().cloned(),
            token: match &holder.credential {
                Credential::Token(id) => Some(id.clone()),
                Credential::Device(_) => None,
            },
            membership: holder.membership.clone(),
        }
    }
}
