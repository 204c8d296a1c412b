//! How the rules of every change hold. Who appears: ada owns, bea is an admin, cid an operator, and dan is nobody.

mod consistency;
mod devices;
mod features;
mod founding;
mod members;
mod tokens;

use std::{collections::BTreeSet, time::Duration};

use palyra_types::{
    Channel, DeviceId, ObjectId, Principal, PrincipalId, PrincipalKind, Sha256Digest, Timestamp, TokenId,
    WorkspaceName, WorkspaceRole,
};

use super::*;
use crate::{
    actor::Actor,
    api_token::{FreshToken, NewToken},
    device::{DeviceRevocation, NewDevice},
    error::Refusal,
    member::{Membership, NewInvitation},
    scope::Scope,
};

/// So many minutes after the beginning.
fn at(minutes: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + minutes * 60_000)
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

const DAY: u64 = 24 * 60;

fn user(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

/// Such as `user:ada@owner`.
fn actor(text: &str) -> Actor {
    Actor::in_person(principal(text))
}

/// The same, by a token that holds these. Nobody knows which.
fn by_token<const N: usize>(text: &str, scopes: [Scope; N]) -> Actor {
    Actor { scopes: Some(scopes.into()), ..actor(text) }
}

/// The same, by a token that there is.
fn using(state: &State, text: &str, id: &str) -> Actor {
    let token = state.token(&token_id(id)).unwrap();
    let membership = token.workspaces.clone();
    Actor { scopes: Some(token.scopes.clone()), token: Some(token.id.clone()), membership, ..actor(text) }
}

fn principal(text: &str) -> Principal {
    Principal::parse(text).unwrap()
}

fn only<const N: usize>(names: [&str; N]) -> Membership {
    Membership::Only(names.iter().map(|name| WorkspaceName::parse(name).unwrap()).collect())
}

fn device_id(id: &str) -> DeviceId {
    DeviceId::parse(id).unwrap()
}

fn token_id(id: &str) -> TokenId {
    TokenId::parse(id).unwrap()
}

fn object_id(id: &str) -> ObjectId {
    ObjectId::parse(id).unwrap()
}

fn invitation(name: &str, role: WorkspaceRole) -> NewInvitation {
    NewInvitation {
        id: object_id(&format!("inv-{name}")),
        user: user(name),
        role,
        workspaces: Membership::All,
        lifetime: minutes(60),
    }
}

fn device(id: &str, of: &str, role: Option<WorkspaceRole>) -> NewDevice {
    NewDevice {
        id: device_id(id),
        name: id.to_owned(),
        principal: principal(of),
        role,
        key: Sha256Digest::of(id.as_bytes()),
        observed: None,
        reported: None,
        authority: Sha256Digest::of(b"authority"),
        certificate_until: at(i64::from(60 * 24 * 60)),
        invitation: None,
    }
}

fn token<const N: usize>(of: &str, scopes: [Scope; N]) -> NewToken {
    NewToken {
        name: "a token".to_owned(),
        principal: principal(of),
        role: None,
        workspaces: Membership::All,
        scopes: scopes.into(),
        channel: None,
        lifetime: minutes(DAY),
        per_minute: None,
        concurrent: None,
    }
}

fn fresh(id: &str) -> FreshToken {
    FreshToken { id: token_id(id), digest: Sha256Digest::of(id.as_bytes()) }
}

/// ada alone.
fn alone() -> State {
    State::found(user("ada"), at(0))
}

/// ada, bea and cid.
fn team() -> State {
    let ada = actor("user:ada@owner");
    let mut state = alone();
    state.set_feature(&ada, FeatureFlag::TeamMode, Switch::On).unwrap();
    for (name, role) in [("bea", WorkspaceRole::Admin), ("cid", WorkspaceRole::Operator)] {
        state.invite(&ada, invitation(name, role), at(0)).unwrap();
        state.join(&Invitee::User(user(name)), at(0)).unwrap();
    }
    state
}

/// The same, but bea, the admin, is bound to the shop. cid belongs to all workspaces.
fn bound_team() -> State {
    let mut state = team();
    state.set_workspaces(&actor("user:ada@owner"), &user("bea"), only(["shop"])).unwrap();
    state
}

/// The same, with an active device of these.
fn with_device(mut state: State, by: &str, id: &str, of: &str, role: Option<WorkspaceRole>) -> State {
    state.add_device(&actor(by), device(id, of, role), at(0)).unwrap();
    state.activate_device(&device_id(id), at(0)).unwrap();
    state
}

/// Tries a change and shows that a refusal changed nothing, and that what is left is consistent.
#[track_caller]
fn refused<T: std::fmt::Debug>(state: &State, change: impl FnOnce(&mut State) -> Result<T, Refusal>) -> Refusal {
    let mut changed = state.clone();
    let refusal = change(&mut changed).unwrap_err();
    assert_eq!(changed, *state, "a refusal changes nothing");
    assert!(!refusal.to_string().is_empty() && !refusal.advice().is_empty());
    refusal
}

/// Makes a change and shows that what comes of it is consistent.
#[track_caller]
fn done<T>(state: &mut State, change: impl FnOnce(&mut State) -> Result<T, Refusal>) -> T {
    let done = change(state).unwrap();
    assert_eq!(state.check(), Ok(()));
    done
}

fn scopes<const N: usize>(scopes: [Scope; N]) -> BTreeSet<Scope> {
    scopes.into()
}

fn revocation(id: &str) -> DeviceRevocation {
    DeviceRevocation { id: device_id(id), why: "lost".to_owned(), even_the_last: false, cut_off: BTreeSet::new() }
}

#[test]
fn a_new_registry_has_one_member_who_owns_it() {
    let state = alone();
    let founder = MemberRecord {
        user: user("ada"),
        role: WorkspaceRole::Owner,
        workspaces: Membership::All,
        joined: at(0),
        by: "user:ada".to_owned(),
    };
    assert_eq!(state.members().collect::<Vec<_>>(), [&founder]);
    assert_eq!((state.devices().len(), state.tokens().len(), state.invitations().len()), (0, 0, 0));
    assert_eq!(state.check(), Ok(()));
}

#[test]
fn a_role_counts_as_far_as_the_member_has_it_now() {
    let mut state = team();
    assert_eq!(state.standing(&actor("user:bea@owner")), Some(WorkspaceRole::Admin), "claimed more than there is");
    assert_eq!(state.standing(&actor("user:bea@operator")), Some(WorkspaceRole::Operator), "through less");
    assert_eq!(state.standing(&actor("user:bea")), None);
    assert_eq!(state.standing(&actor("user:dan@owner")), None);
    assert_eq!(state.standing(&actor("service:ada")), None, "a service of the owner's name");
    state.set_role(&actor("user:ada@owner"), &user("bea"), WorkspaceRole::Operator).unwrap();
    assert_eq!(state.standing(&actor("user:bea@admin")), Some(WorkspaceRole::Operator), "demoted meanwhile");
}

#[test]
fn without_rbac_only_owners_have_a_role_and_without_team_mode_only_owners_belong() {
    let mut state = team();
    let ada = actor("user:ada@owner");
    state.set_feature(&ada, FeatureFlag::TeamMode, Switch::Off).unwrap();
    assert_eq!((state.belongs(&user("ada")), state.belongs(&user("bea"))), (true, false));
    assert_eq!(state.standing(&actor("user:bea@admin")), None);
    assert_eq!(state.standing(&actor("user:ada@operator")), Some(WorkspaceRole::Operator));
    state.set_feature(&ada, FeatureFlag::Rbac, Switch::Off).unwrap();
    assert_eq!(state.standing(&actor("user:ada@operator")), None, "a role below owner means nothing");
    assert_eq!(state.standing(&ada), Some(WorkspaceRole::Owner));
}
