//! Founding: whoever may write the registry's own file is an owner.
//!
//! Guarantees: they always get in again, whatever became of them and whatever is switched off, because they could write the same into the
//! file by hand; what they get is in order and on record like everything else. Does not: know who that is. Whoever calls this does.

use std::collections::BTreeMap;

use palyra_types::{Principal, PrincipalId, PrincipalKind, Timestamp, WorkspaceRole};

use super::{State, devices};
use crate::{
    actor::Actor,
    change::DeviceAdded,
    device::{DeviceState, NewDevice},
    error::Refusal,
    member::{MemberRecord, Membership},
    moment,
};

impl State {
    /// The state that everything begins with: one member, who owns it.
    #[must_use]
    pub fn found(owner: PrincipalId, at: Timestamp) -> Self {
        Self {
            features: BTreeMap::new(),
            members: BTreeMap::from([(owner.clone(), founder(owner, at))]),
            invitations: BTreeMap::new(),
            devices: BTreeMap::new(),
            tokens: BTreeMap::new(),
        }
    }

    /// Lets the founder in by a new device, and makes them an owner if they are none any more.
    ///
    /// # Errors
    /// When the device or its key is known, or stands for no user.
    pub fn readmit(&mut self, new: NewDevice, at: Timestamp) -> Result<DeviceAdded, Refusal> {
        devices::check_texts(&new)?;
        self.is_news(&new)?;
        if new.principal.kind() != PrincipalKind::User {
            return Err(Refusal::RoleOfNoUser(new.principal.kind()));
        }
        let user = new.principal.id().clone();
        if let Some(invitation) = self.invitation_of(&user).map(|invitation| invitation.id.clone()) {
            self.drop_invitations(&[invitation]);
        }
        let member = self.members.entry(user.clone()).or_insert_with(|| founder(user, at));
        (member.role, member.workspaces) = (WorkspaceRole::Owner, Membership::All);
        let new = NewDevice { role: Some(WorkspaceRole::Owner), invitation: None, ..new };
        let by = Actor::in_person(new.principal.clone());
        let (id, added) = (new.id.clone(), self.insert_device(new, &by, at));
        self.change_device(&id, |device| device.state = DeviceState::Active)?;
        Ok(added)
    }
}

fn founder(user: PrincipalId, at: Timestamp) -> MemberRecord {
    MemberRecord {
        by: Principal::new(PrincipalKind::User, user.clone()).to_string(),
        user,
        role: WorkspaceRole::Owner,
        workspaces: Membership::All,
        joined: moment::tellable(at),
    }
}
