//! What a lookup must find, worked out the slow way: by looking through all records, by the rules as they are told to people.

use std::collections::BTreeSet;

use palyra_access::{
    Actor, ApiTokenRecord, DeviceRecord, DeviceRefusal, DeviceState, FeatureFlag, Holder, MemberRecord, Membership,
    Scope, State, TokenRefusal, TokenText, role,
};
use palyra_types::{DeviceId, Principal, PrincipalId, PrincipalKind, Sha256Digest, Timestamp, WorkspaceRole};

/// What matters of a holder.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub principal: Principal,
    pub membership: Membership,
    pub scopes: Option<BTreeSet<Scope>>,
    pub expires: Timestamp,
}

impl From<&Holder> for Found {
    fn from(holder: &Holder) -> Self {
        Self {
            principal: holder.principal.clone(),
            membership: holder.membership.clone(),
            scopes: holder.scopes.as_deref().cloned(),
            expires: holder.expires,
        }
    }
}

/// Looks a token up among all.
pub fn token(state: &State, text: &str, at: Timestamp) -> Result<Found, TokenRefusal> {
    TokenText::check(text)?;
    if !state.is_on(FeatureFlag::ApiTokens) {
        return Err(TokenRefusal::Off);
    }
    let digest = Sha256Digest::of(text.as_bytes());
    let token = state.tokens().find(|token| token.digest == digest).ok_or(TokenRefusal::Unknown)?;
    if let Some(revoked) = &token.revoked {
        return Err(TokenRefusal::Revoked { at: revoked.at });
    }
    match token.superseded_at {
        Some(since) if since <= at => return Err(TokenRefusal::Superseded { at: since }),
        _ => {}
    }
    if token.expires <= at {
        return Err(TokenRefusal::Expired { at: token.expires });
    }
    let minter = state.member(token.minted_by.id()).ok_or(TokenRefusal::MinterGone)?;
    if minter.role != WorkspaceRole::Owner && !state.is_on(FeatureFlag::TeamMode) {
        return Err(TokenRefusal::MinterGone);
    }
    let role = token.role.and_then(|most| counting(state, &minter.user, most));
    Ok(Found {
        principal: token.principal.clone().with_roles(role).unwrap(),
        membership: both(&token.workspaces, &minter.workspaces),
        scopes: Some(token.scopes.iter().copied().filter(|&scope| counts(state, token, scope)).collect()),
        expires: token.expires,
    })
}

/// Looks a device up among all.
pub fn device(state: &State, key: &Sha256Digest, at: Timestamp) -> Result<Found, DeviceRefusal> {
    let device: &DeviceRecord = state.devices().find(|device| device.key == *key).ok_or(DeviceRefusal::Unknown)?;
    match (device.state, &device.revoked) {
        (DeviceState::Awaiting, _) => return Err(DeviceRefusal::Awaiting),
        (DeviceState::Revoked, revoked) => return Err(DeviceRefusal::Revoked { at: revoked.as_ref().unwrap().at }),
        (DeviceState::Active, _) => {}
    }
    let member = state.member(device.principal.id()).filter(|_| device.principal.kind() == PrincipalKind::User);
    let minder = match device.principal.kind() {
        PrincipalKind::User => member,
        _ => device.paired_by.strip_prefix("user:").and_then(|by| state.members().find(|one| one.user.as_str() == by)),
    };
    let counts = |member: &MemberRecord| member.role == WorkspaceRole::Owner || state.is_on(FeatureFlag::TeamMode);
    if !minder.is_some_and(counts) {
        return Err(DeviceRefusal::Off(FeatureFlag::TeamMode));
    }
    if device.certificate_until <= at {
        return Err(DeviceRefusal::Expired { at: device.certificate_until });
    }
    let role = member.and_then(|member| counting(state, &member.user, device.role.unwrap()));
    Ok(Found {
        principal: device.principal.clone().with_roles(role).unwrap(),
        membership: minder.unwrap().workspaces.clone(),
        scopes: None,
        expires: device.certificate_until,
    })
}

/// The role that counts: the lower one, and nothing below owner where roles or members mean nothing.
pub fn counting(state: &State, user: &PrincipalId, most: WorkspaceRole) -> Option<WorkspaceRole> {
    let member = state.member(user)?;
    let role = if role::rank(member.role) < role::rank(most) { member.role } else { most };
    let member_counts = member.role == WorkspaceRole::Owner || state.is_on(FeatureFlag::TeamMode);
    let role_counts = role == WorkspaceRole::Owner || state.is_on(FeatureFlag::Rbac);
    (member_counts && role_counts).then_some(role)
}

fn counts(state: &State, token: &ApiTokenRecord, scope: Scope) -> bool {
    let most = match token.principal.kind() {
        PrincipalKind::User => token.role,
        _ => Some(WorkspaceRole::Owner),
    };
    let role = most.and_then(|most| counting(state, token.minted_by.id(), most));
    let reached = match scope.needs() {
        None => true,
        Some(needed) => role.is_some_and(|role| role::rank(role) >= role::rank(needed)),
    };
    reached && scope.feature().is_none_or(|feature| state.is_on(feature))
}

/// Whether somebody belongs to all of these workspaces, and what they use reaches them.
pub fn covers(state: &State, by: &Actor, workspaces: &Membership) -> bool {
    let Some(member) = state.member(by.principal.id()) else { return false };
    [&member.workspaces, &by.membership].into_iter().all(|bound| match (bound, workspaces) {
        (Membership::All, _) => true,
        (Membership::Only(_), Membership::All) => false,
        (Membership::Only(bound), Membership::Only(names)) => names.iter().all(|name| bound.contains(name)),
    })
}

/// Whether some device that is not cut off lets an owner in as one.
pub fn owner_gets_in(state: &State, cut_off: &BTreeSet<DeviceId>, at: Timestamp) -> bool {
    state.devices().filter(|one| !cut_off.contains(&one.id)).any(|one| {
        let found = device(state, &one.key, at);
        found.is_ok_and(|found| found.principal.roles().contains(&WorkspaceRole::Owner))
    })
}

/// Whether a token is one of these, or was minted with one that is.
pub fn descends(state: &State, token: &ApiTokenRecord, from: &dyn Fn(&ApiTokenRecord) -> bool) -> bool {
    let with = token.minted_with.as_ref().and_then(|with| state.token(with));
    from(token) || with.is_some_and(|with| descends(state, with, from))
}

fn both(one: &Membership, other: &Membership) -> Membership {
    match (one, other) {
        (Membership::All, rest) | (rest, Membership::All) => rest.clone(),
        (Membership::Only(one), Membership::Only(other)) => Membership::Only(one & other),
    }
}
