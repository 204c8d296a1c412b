//! Tells the gate how those who proposed or approved something stand now.
//!
//! Guarantees: somebody counts for the role and the workspaces that their credential has in the registry as it is, and for nothing once it
//! was taken away from them, or the authority that certified their device is trusted no more. A credential that ran out by itself was not
//! taken away: what was accepted from it goes on.

use std::sync::Arc;

use palyra_access::{AccessRegistry, Credential, Snapshot};
use palyra_gate::{Credentials, Petitioner};
use palyra_types::{PrincipalKind, WorkspaceRole};

use crate::certifier::Certifier;

/// Who is let in, as the gate asks about it.
pub struct Standing {
    /// Who is let in.
    pub access: AccessRegistry,
    /// Certifies devices.
    pub certifier: Arc<Certifier>,
}

impl Credentials for Standing {
    fn as_they_stand(&self, who: &Petitioner) -> Option<Petitioner> {
        let snapshot = self.access.snapshot();
        let credential = match (&who.token, &who.device) {
            (Some(token), _) => Credential::Token(token.clone()),
            (None, Some(device)) if self.certifier.certifies(snapshot.state(), device) => {
                Credential::Device(device.clone())
            }
            (None, Some(_)) => return None,
            (None, None) => return by_name(&snapshot, who),
        };
        let holder = snapshot.standing(&credential)?;
        let same = (holder.principal.kind(), holder.principal.id()) == (who.principal.kind(), who.principal.id());
        same.then(|| Petitioner {
            principal: holder.principal.clone(),
            member_of: holder.membership.bound(),
            ..who.clone()
        })
    }
}

/// Somebody of whom only the name is known. A user counts as long as they are a member with a role.
fn by_name(snapshot: &Snapshot, who: &Petitioner) -> Option<Petitioner> {
    if who.principal.kind() != PrincipalKind::User {
        return Some(who.clone());
    }
    let state = snapshot.state();
    let role = state.effective_role(who.principal.id(), WorkspaceRole::Owner)?;
    let member = state.member(who.principal.id())?;
    let principal = who.principal.clone().with_roles([role]).ok()?;
    Some(Petitioner { principal, member_of: member.workspaces.bound(), ..who.clone() })
}
