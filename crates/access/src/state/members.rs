//! Members: inviting, joining, changing, removing.

use palyra_types::{DeviceId, ObjectId, Principal, PrincipalId, PrincipalKind, Timestamp, WorkspaceRole};

use super::{
    MOST_INVITATIONS, MOST_MEMBERS, State,
    authority::{gives_roles, is_same, reaches},
    bare,
};
use crate::{
    actor::Actor,
    change::{Invited, Joined, MemberRemoved, RoleSet, Withdrawn, WorkspacesSet},
    device::{DeviceRecord, DeviceState},
    error::Refusal,
    feature::FeatureFlag,
    member::{InvitationRecord, LONGEST_INVITATION, MemberRecord, Membership, NewInvitation, SHORTEST_INVITATION},
    moment,
    revocation::Revocation,
    role,
    scope::Scope,
};

/// Who joins: whoever an invitation is for, or whoever has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invitee {
    /// By the invitation.
    Invitation(ObjectId),
    /// By their name.
    User(PrincipalId),
}

impl State {
    /// Invites somebody. Invitations that are over make room.
    ///
    /// # Errors
    /// When whoever asks uses a token or may not give that role or those workspaces, `team_mode` is off, or the user is a member or
    /// invited already. Somebody whose invitation is over is invited again by nobody who could not have withdrawn it for its workspaces.
    pub fn invite(&mut self, by: &Actor, new: NewInvitation, at: Timestamp) -> Result<Invited, Refusal> {
        let role = self.authorise(by, Scope::MembersManage)?;
        self.require(FeatureFlag::TeamMode)?;
        gives_roles(by)?;
        reaches(role, new.role)?;
        everywhere_if_owner(new.role, &new.workspaces)?;
        self.gives(by, &new.workspaces)?;
        if !(SHORTEST_INVITATION..=LONGEST_INVITATION).contains(&new.lifetime) {
            return Err(Refusal::InvitationLifetime(new.lifetime));
        }
        if self.members.contains_key(&new.user) {
            return Err(Refusal::AlreadyMember(new.user));
        }
        if self.invitations.contains_key(&new.id) {
            return Err(Refusal::InvitationKnown(new.id));
        }
        let (over, open): (Vec<_>, Vec<_>) = self.invitations.values().partition(|invitation| invitation.until <= at);
        if open.iter().any(|invitation| invitation.user == new.user) {
            return Err(Refusal::AlreadyInvited(new.user));
        }
        if let Some(before) = over.iter().find(|invitation| invitation.user == new.user) {
            self.gives(by, &before.workspaces)?;
        }
        if open.len() >= MOST_INVITATIONS {
            return Err(Refusal::Full { what: "invitations", most: MOST_INVITATIONS });
        }
        let over: Vec<_> = over.into_iter().map(|invitation| invitation.id.clone()).collect();
        self.drop_invitations(&over);
        let until = moment::after(at, new.lifetime);
        let NewInvitation { id, user, role, workspaces, .. } = new;
        let invited = Invited { id, user, role, workspaces, until };
        let record = InvitationRecord {
            id: invited.id.clone(),
            user: invited.user.clone(),
            role,
            workspaces: invited.workspaces.clone(),
            by: by.principal.to_string(),
            made: at,
            until,
        };
        self.invitations.insert(record.id.clone(), record);
        Ok(invited)
    }

    /// Takes an invitation back, and forgets devices that waited for it.
    ///
    /// # Errors
    /// When there is none, or it offers more than the role or the workspaces of whoever asks.
    pub fn withdraw_invitation(&mut self, by: &Actor, id: &ObjectId) -> Result<Withdrawn, Refusal> {
        let role = self.authorise(by, Scope::MembersManage)?;
        let invitation = self.invitations.get(id).ok_or_else(|| Refusal::NoInvitation(id.to_string()))?;
        reaches(role, invitation.role)?;
        self.gives(by, &invitation.workspaces)?;
        let user = invitation.user.clone();
        let devices = self.drop_invitations(std::slice::from_ref(id));
        Ok(Withdrawn { id: id.clone(), user, devices })
    }

    /// Makes a member of somebody who is invited. The authority is that of whoever invited them: what they lost since, they no longer offer.
    ///
    /// # Errors
    /// When there is no invitation, it is over, or `team_mode` is off.
    pub fn join(&mut self, invitee: &Invitee, at: Timestamp) -> Result<Joined, Refusal> {
        self.require(FeatureFlag::TeamMode)?;
        let found = match invitee {
            Invitee::Invitation(id) => self.invitations.get(id).ok_or_else(|| Refusal::NoInvitation(id.to_string())),
            Invitee::User(user) => self.invitation_of(user).ok_or_else(|| Refusal::NoInvitation(user.to_string())),
        };
        let invitation = found?;
        if invitation.until <= at {
            return Err(Refusal::InvitationOver(invitation.user.clone()));
        }
        if self.members.len() >= MOST_MEMBERS {
            return Err(Refusal::Full { what: "members", most: MOST_MEMBERS });
        }
        let member = MemberRecord {
            user: invitation.user.clone(),
            role: invitation.role,
            workspaces: invitation.workspaces.clone(),
            joined: at,
            by: invitation.by.clone(),
        };
        let joined = Joined {
            invitation: invitation.id.clone(),
            user: member.user.clone(),
            role: member.role,
            workspaces: member.workspaces.clone(),
        };
        self.invitations.remove(&joined.invitation);
        self.members.insert(member.user.clone(), member);
        Ok(joined)
    }

    /// Gives a member another role. Whoever becomes an owner belongs to all workspaces; what a member with less offered is withdrawn.
    ///
    /// # Errors
    /// When whoever asks stands below the role that was or the role that will be, raises it by a token, or changes somebody beyond their
    /// workspaces, or no owner would be left.
    pub fn set_role(&mut self, by: &Actor, user: &PrincipalId, to: WorkspaceRole) -> Result<RoleSet, Refusal> {
        let role = self.authorise(by, Scope::MembersManage)?;
        self.require(FeatureFlag::TeamMode)?;
        let from = self.known(user)?.role;
        reaches(role, from)?;
        reaches(role, to)?;
        self.covers(by, Some(user))?;
        if !role::is_within(to, from) {
            gives_roles(by)?;
        }
        if to != WorkspaceRole::Owner {
            self.not_the_last_owner(user)?;
        } else {
            self.gives(by, &Membership::All)?;
        }
        if let Some(member) = self.members.get_mut(user) {
            member.role = to;
            if to == WorkspaceRole::Owner {
                member.workspaces = Membership::All;
            }
        }
        let invitations = self.invitations_by(user, |invitation| !role::is_within(invitation.role, to));
        self.drop_invitations(&invitations);
        Ok(RoleSet { user: user.clone(), from, to, invitations })
    }

    /// Lets a member belong to other workspaces. What they offered beyond those is withdrawn.
    ///
    /// # Errors
    /// When whoever asks stands below the member or does not belong to the workspaces that were and those that will be, or the member is
    /// an owner. Anybody may keep fewer of their own.
    pub fn set_workspaces(&mut self, by: &Actor, user: &PrincipalId, to: Membership) -> Result<WorkspacesSet, Refusal> {
        let role = self.authorise(by, Scope::MembersManage)?;
        self.require(FeatureFlag::TeamMode)?;
        let member = self.known(user)?;
        reaches(role, member.role)?;
        everywhere_if_owner(member.role, &to)?;
        self.covers(by, Some(user))?;
        self.gives(by, &to)?;
        let member = self.members.get_mut(user).ok_or_else(|| Refusal::NoMember(user.clone()))?;
        let from = std::mem::replace(&mut member.workspaces, to.clone());
        let invitations = self.invitations_by(user, |invitation| !invitation.workspaces.is_within(&to));
        self.drop_invitations(&invitations);
        Ok(WorkspacesSet { user: user.clone(), from, to, invitations })
    }

    /// Removes a member, and with them their devices, those that they paired for agents, every token they minted or that stands for them, and their invitations.
    ///
    /// # Errors
    /// When whoever asks stands below the member or removes somebody beyond their workspaces, or no owner would be left.
    pub fn remove_member(&mut self, by: &Actor, user: &PrincipalId, at: Timestamp) -> Result<MemberRemoved, Refusal> {
        let role = self.authorise(by, Scope::MembersManage)?;
        let member = self.known(user)?;
        reaches(role, member.role)?;
        self.covers(by, Some(user))?;
        self.not_the_last_owner(user)?;
        let role = member.role;
        let gone = Principal::new(PrincipalKind::User, user.clone());
        let revocation = Revocation { at, by: bare(&by.principal).to_string(), why: REMOVED.to_owned() };
        let mut devices = Vec::new();
        for device in self.devices.values_mut() {
            // A program's device has nobody else to answer for it than who paired it.
            let paired = device.principal.kind() != PrincipalKind::User && device.paired_by == gone.to_string();
            if device.revoked.is_none() && (paired || is_same(&device.principal, &gone)) {
                device.state = DeviceState::Revoked;
                device.revoked = Some(revocation.clone());
                devices.push(device.id.clone());
            }
        }
        let mut tokens = Vec::new();
        for token in self.tokens.values_mut() {
            let theirs = is_same(&token.principal, &gone) || is_same(&token.minted_by, &gone);
            if theirs && token.revoked.is_none() {
                token.revoked = Some(revocation.clone());
                tokens.push(token.id.clone());
            }
        }
        let invitations = self.invitations_by(user, |_| true);
        devices.extend(self.drop_invitations(&invitations));
        self.members.remove(user);
        Ok(MemberRemoved { user: user.clone(), role, devices, tokens, invitations })
    }

    /// The invitation of somebody. There is at most one.
    pub(super) fn invitation_of(&self, user: &PrincipalId) -> Option<&InvitationRecord> {
        self.invitations.values().find(|invitation| invitation.user == *user)
    }

    fn known(&self, user: &PrincipalId) -> Result<&MemberRecord, Refusal> {
        self.members.get(user).ok_or_else(|| Refusal::NoMember(user.clone()))
    }

    fn not_the_last_owner(&self, user: &PrincipalId) -> Result<(), Refusal> {
        match self.known(user)?.role {
            WorkspaceRole::Owner if self.owners() == 1 => Err(Refusal::LastOwner(user.clone())),
            _ => Ok(()),
        }
    }

    fn invitations_by(&self, user: &PrincipalId, which: impl Fn(&InvitationRecord) -> bool) -> Vec<ObjectId> {
        let by = Principal::new(PrincipalKind::User, user.clone()).to_string();
        let theirs = self.invitations.values().filter(|invitation| invitation.by == by && which(invitation));
        theirs.map(|invitation| invitation.id.clone()).collect()
    }

    /// Removes invitations, and devices of those who were invited, which never came to work.
    pub(super) fn drop_invitations(&mut self, ids: &[ObjectId]) -> Vec<DeviceId> {
        let mut forgotten = Vec::new();
        for id in ids {
            let Some(invitation) = self.invitations.remove(id) else { continue };
            let waits = |device: &DeviceRecord| {
                device.state == DeviceState::Awaiting
                    && device.principal.kind() == PrincipalKind::User
                    && *device.principal.id() == invitation.user
            };
            forgotten.extend(self.devices.values().filter(|device| waits(device)).map(|device| device.id.clone()));
            self.devices.retain(|_, device| !waits(device));
        }
        forgotten
    }
}

fn everywhere_if_owner(role: WorkspaceRole, workspaces: &Membership) -> Result<(), Refusal> {
    match (role, workspaces) {
        (WorkspaceRole::Owner, Membership::Only(_)) => Err(Refusal::OwnerEverywhere),
        _ => Ok(()),
    }
}

/// Why the credentials of a former member work no more.
const REMOVED: &str = "no member any more";
