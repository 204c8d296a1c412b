//! Devices: adding, activating, renewing, revoking.
//!
//! Adding and revoking need somebody who may. Activating needs whoever added it to be somebody who still may. The steps after that
//! (renewing, following) continue what was allowed then, so nobody is asked again.

use std::collections::BTreeSet;

use palyra_types::{DeviceId, PrincipalKind, Sha256Digest, Timestamp, WorkspaceRole};

use super::{
    Invitee, MOST_DEVICES, State,
    authority::{is_same, no_agent, reaches},
    bare,
};
use crate::{
    actor::Actor,
    change::{DeviceActivated, DeviceAdded, DeviceFollows, DeviceRenewed, DeviceRevoked, DevicesForgotten},
    device::{DeviceRecord, DeviceRevocation, DeviceState, NewDevice},
    error::Refusal,
    feature::FeatureFlag,
    label,
    member::Membership,
    moment,
    revocation::Revocation,
    scope::Scope,
};

impl State {
    /// Adds a device that waits to be activated.
    ///
    /// # Errors
    /// When whoever asks uses a token or may not pair it, the device or its key is known, or its user is neither a member nor invited.
    pub fn add_device(&mut self, by: &Actor, new: NewDevice, at: Timestamp) -> Result<DeviceAdded, Refusal> {
        let role = self.authorise(by, Scope::DevicesManage)?;
        self.require(FeatureFlag::DevicePairing)?;
        // SECURITY: a device has no scopes and no end of its own, so that a token would come to be more than it is.
        if by.uses_token() {
            return Err(Refusal::InPerson);
        }
        check_texts(&new)?;
        self.is_news(&new)?;
        if !is_same(&new.principal, &by.principal) {
            // A device is bound to no workspaces but those of whoever answers for it, as they are and as they will be.
            self.gives(by, &Membership::All)?;
        }
        match (new.principal.kind(), new.role) {
            (PrincipalKind::User, Some(most)) => self.may_pair_user((by, role), most, &new, at)?,
            (PrincipalKind::User, None) => return Err(Refusal::NoDeviceRole),
            (kind, Some(_)) => return Err(Refusal::RoleOfNoUser(kind)),
            (_, None) => {}
        }
        Ok(self.insert_device(new, by, at))
    }

    /// Lets a device work. If its user is invited, this makes them a member.
    ///
    /// # Errors
    /// When it does not wait for this, whoever paired it could not do so any more, or its user cannot become a member any more.
    pub fn activate_device(&mut self, id: &DeviceId, at: Timestamp) -> Result<DeviceActivated, Refusal> {
        let device = self.awaiting(id)?;
        self.require(FeatureFlag::DevicePairing)?;
        self.may_still_pair(device)?;
        let principal = device.principal.clone();
        let stranger = principal.kind() == PrincipalKind::User && !self.members.contains_key(principal.id());
        let joined = match stranger {
            true => Some(self.join(&Invitee::User(principal.id().clone()), at)?),
            false => None,
        };
        self.change_device(id, |device| device.state = DeviceState::Active)?;
        Ok(DeviceActivated { id: id.clone(), principal, joined })
    }

    /// Forgets a device that never came to work.
    ///
    /// # Errors
    /// When it does not wait to be activated.
    pub fn forget_device(&mut self, id: &DeviceId) -> Result<DevicesForgotten, Refusal> {
        self.awaiting(id)?;
        self.devices.remove(id);
        Ok(DevicesForgotten { devices: vec![id.clone()] })
    }

    /// Forgets every device that never came to work. For the start, when nobody is left who pairs.
    pub fn forget_awaiting(&mut self) -> DevicesForgotten {
        let waits = |device: &DeviceRecord| device.state == DeviceState::Awaiting;
        let waiting = self.devices.values().filter(|device| waits(device)).map(|device| device.id.clone());
        let devices = waiting.collect();
        self.devices.retain(|_, device| !waits(device));
        DevicesForgotten { devices }
    }

    /// Revokes a device. Its key never comes back.
    ///
    /// # Errors
    /// When it is revoked already, belongs to somebody above whoever asks or beyond their workspaces, or is the last by which an owner gets
    /// in.
    pub fn revoke_device(
        &mut self,
        by: &Actor,
        revocation: DeviceRevocation,
        at: Timestamp,
    ) -> Result<DeviceRevoked, Refusal> {
        no_agent(by)?;
        by.needs(Scope::DevicesManage)?;
        let DeviceRevocation { id, why, even_the_last, cut_off } = revocation;
        label::check_note("reason", &why, label::LONGEST_REASON)?;
        let device = self.devices.get(&id).ok_or_else(|| Refusal::NoDevice(id.clone()))?;
        // SECURITY: a device that was paired with less than its person has does not put out those that were paired with more.
        let (standing, own) = (self.standing(by), is_same(&device.principal, &by.principal));
        let role = || standing.ok_or(Refusal::NoRole);
        match (own, device.role) {
            (true, None) => {}
            (true, Some(needed)) => reaches(role()?, needed)?,
            (false, _) => {
                let role = role()?;
                self.owner_of(device).map_or(Ok(()), |needed| reaches(role, needed))?;
                self.covers(by, device.answered_by().as_ref())?;
            }
        }
        let is_last = self.is_last_way_in(device, &cut_off, at);
        if even_the_last && is_last {
            reaches(role()?, WorkspaceRole::Owner)?;
        }
        if device.state == DeviceState::Revoked {
            return Err(Refusal::DeviceRevoked(id));
        }
        if !even_the_last && is_last {
            return Err(Refusal::LastDevice(id));
        }
        let (principal, key) = (device.principal.clone(), device.key);
        let revoked = Revocation { at, by: bare(&by.principal).to_string(), why: why.clone() };
        self.change_device(&id, |device| {
            device.state = DeviceState::Revoked;
            device.revoked = Some(revoked);
        })?;
        Ok(DeviceRevoked { id, principal, key, why })
    }

    /// Has out again a device that was let in and never heard so. Nobody is asked: nobody holds its key.
    ///
    /// # Errors
    /// When it is not active.
    pub fn disown_device(&mut self, id: &DeviceId, why: &str, at: Timestamp) -> Result<DeviceRevoked, Refusal> {
        let device = self.active(id)?;
        let (principal, key) = (device.principal.clone(), device.key);
        let revoked = Revocation { at, by: device.paired_by.clone(), why: why.to_owned() };
        self.change_device(id, |device| {
            device.state = DeviceState::Revoked;
            device.revoked = Some(revoked);
        })?;
        Ok(DeviceRevoked { id: id.clone(), principal, key, why: why.to_owned() })
    }

    /// Notes that a device has a new certificate for its key.
    ///
    /// # Errors
    /// When it is not active.
    pub fn renew_device(
        &mut self,
        id: &DeviceId,
        authority: Sha256Digest,
        until: Timestamp,
    ) -> Result<DeviceRenewed, Refusal> {
        self.active(id)?;
        let certificate_until = moment::tellable(until);
        self.change_device(id, |device| {
            device.authority = authority;
            device.certificate_until = certificate_until;
        })?;
        Ok(DeviceRenewed { id: id.clone(), authority, certificate_until })
    }

    /// Notes that a device trusts an authority.
    ///
    /// # Errors
    /// When it is not active.
    pub fn follow(&mut self, id: &DeviceId, authority: Sha256Digest) -> Result<DeviceFollows, Refusal> {
        self.active(id)?;
        self.change_device(id, |device| device.follows = Some(authority))?;
        Ok(DeviceFollows { id: id.clone(), authority })
    }

    /// Whether neither the device nor its key was ever here, and there is a place for it.
    pub(super) fn is_news(&self, new: &NewDevice) -> Result<(), Refusal> {
        if self.devices.contains_key(&new.id) {
            return Err(Refusal::DeviceKnown(new.id.clone()));
        }
        if let Some(known) = self.devices.values().find(|device| device.key == new.key) {
            // SECURITY: a key that was revoked is in somebody else's hands for all anybody knows.
            return Err(Refusal::KeyKnown(known.id.clone()));
        }
        if self.devices.len() >= MOST_DEVICES {
            return Err(Refusal::Full { what: "devices", most: MOST_DEVICES });
        }
        Ok(())
    }

    /// Keeps a device that waits to be activated.
    pub(super) fn insert_device(&mut self, new: NewDevice, by: &Actor, at: Timestamp) -> DeviceAdded {
        let device = record(new, by, at);
        let added = DeviceAdded {
            id: device.id.clone(),
            name: device.name.clone(),
            principal: device.principal.clone(),
            role: device.role,
            key: device.key,
            certificate_until: device.certificate_until,
        };
        self.devices.insert(device.id.clone(), device);
        added
    }

    /// Whether a device of this user may be paired by somebody of this role: nobody makes a way in for somebody above them.
    fn may_pair_user(
        &self,
        (by, role): (&Actor, WorkspaceRole),
        most: WorkspaceRole,
        new: &NewDevice,
        at: Timestamp,
    ) -> Result<(), Refusal> {
        reaches(role, most)?;
        let user = new.principal.id();
        match (self.members.get(user), &new.invitation) {
            (Some(_), Some(_)) => Err(Refusal::AlreadyMember(user.clone())),
            (Some(_), None) if is_same(&by.principal, &new.principal) => Ok(()),
            (Some(member), None) => reaches(role, member.role),
            (None, None) => Err(Refusal::NoMember(user.clone())),
            (None, Some(id)) => {
                self.require(FeatureFlag::TeamMode)?;
                let invitation = self.invitations.get(id).filter(|invitation| invitation.user == *user);
                let invitation = invitation.ok_or_else(|| Refusal::NoInvitation(id.to_string()))?;
                if invitation.until <= at {
                    return Err(Refusal::InvitationOver(user.clone()));
                }
                reaches(role, invitation.role)
            }
        }
    }

    /// Whether whoever paired a device that waits could pair it now.
    // SECURITY: between pairing and activating, somebody can lose the role that they paired with.
    fn may_still_pair(&self, device: &DeviceRecord) -> Result<(), Refusal> {
        let pairer = device.pairer().ok_or(Refusal::NoRole)?;
        let role = self.effective_role(pairer.id(), WorkspaceRole::Owner).ok_or(Refusal::NoRole)?;
        let own = is_same(&pairer, &device.principal);
        if !own {
            self.gives(&Actor::in_person(pairer), &Membership::All)?;
        }
        device.role.map_or(Ok(()), |most| reaches(role, most))?;
        self.owner_of(device).filter(|_| !own).map_or(Ok(()), |needed| reaches(role, needed))
    }

    /// The role of whoever answers for a device, or will have once they join.
    fn owner_of(&self, device: &DeviceRecord) -> Option<WorkspaceRole> {
        let user = device.answered_by()?;
        let member = self.members.get(&user).map(|member| member.role);
        member.or_else(|| self.invitation_of(&user).map(|invitation| invitation.role))
    }

    /// Whether a device lets an owner in as one, and no other does.
    fn is_last_way_in(&self, device: &DeviceRecord, cut_off: &BTreeSet<DeviceId>, at: Timestamp) -> bool {
        let works = |device: &DeviceRecord| {
            device.state == DeviceState::Active
                && device.certificate_until > at
                && !cut_off.contains(&device.id)
                && device.role == Some(WorkspaceRole::Owner)
                && device.principal.kind() == PrincipalKind::User
                && self.members.get(device.principal.id()).is_some_and(|member| member.role == WorkspaceRole::Owner)
        };
        works(device) && !self.devices.values().any(|other| other.id != device.id && works(other))
    }

    fn awaiting(&self, id: &DeviceId) -> Result<&DeviceRecord, Refusal> {
        let device = self.devices.get(id).ok_or_else(|| Refusal::NoDevice(id.clone()))?;
        if device.state == DeviceState::Awaiting { Ok(device) } else { Err(Refusal::NotAwaiting(id.clone())) }
    }

    fn active(&self, id: &DeviceId) -> Result<&DeviceRecord, Refusal> {
        let device = self.devices.get(id).ok_or_else(|| Refusal::NoDevice(id.clone()))?;
        if device.state == DeviceState::Active { Ok(device) } else { Err(Refusal::NotActive(id.clone())) }
    }

    pub(super) fn change_device(
        &mut self,
        id: &DeviceId,
        change: impl FnOnce(&mut DeviceRecord),
    ) -> Result<(), Refusal> {
        self.devices.get_mut(id).map(change).ok_or_else(|| Refusal::NoDevice(id.clone()))
    }
}

pub(super) fn check_texts(new: &NewDevice) -> Result<(), Refusal> {
    label::check_name("name of the device", &new.name)?;
    if let Some(observed) = &new.observed {
        label::check_note("address of the device", observed, label::LONGEST_REPORT)?;
    }
    if let Some(reported) = &new.reported {
        label::check_note("name that the device reports", &reported.name, label::LONGEST_REPORT)?;
        label::check_note("system that the device reports", &reported.os, label::LONGEST_REPORT)?;
    }
    Ok(())
}

fn record(new: NewDevice, by: &Actor, at: Timestamp) -> DeviceRecord {
    DeviceRecord {
        id: new.id,
        name: new.name,
        principal: bare(&new.principal),
        role: new.role,
        key: new.key,
        state: DeviceState::Awaiting,
        observed: new.observed,
        reported: new.reported,
        paired: at,
        paired_by: bare(&by.principal).to_string(),
        authority: new.authority,
        certificate_until: moment::tellable(new.certificate_until),
        // It was given the certificate of this authority with its own.
        follows: Some(new.authority),
        last_seen: None,
        revoked: None,
    }
}
