//! What cannot be is found, each for its own reason.

use super::*;
use crate::{
    api_token::{Extent, TokenRevocation},
    device::DeviceState,
    state::consistency::Records,
    token::TokenKind,
};
use WorkspaceRole::{Admin, Operator, Owner};

/// A team with a device and two tokens, and an invitation.
fn whole() -> State {
    let mut state = with_device(team(), "user:ada@owner", "laptop", "user:bea", Some(Admin));
    let ada = actor("user:ada@owner");
    state.mint(&ada, token("agent:claude", [Scope::CallsCreate]), fresh("one"), at(0)).unwrap();
    let own = NewToken { role: Some(Owner), ..token("user:ada", [Scope::JournalRead]) };
    state.mint(&ada, own, fresh("own"), at(0)).unwrap();
    state.invite(&ada, invitation("dan", Operator), at(0)).unwrap();
    assert_eq!(state.check(), Ok(()));
    state
}

#[track_caller]
fn broken(spoil: impl FnOnce(&mut State)) -> Inconsistency {
    let mut state = whole();
    spoil(&mut state);
    state.check().unwrap_err()
}

fn spoilt_token(spoil: impl FnOnce(&mut ApiTokenRecord)) -> &'static str {
    match broken(|state| spoil(state.tokens.get_mut(&token_id("one")).unwrap())) {
        Inconsistency::Token { id, what } if id == token_id("one") => what,
        other => panic!("{other}"),
    }
}

fn spoilt_device(spoil: impl FnOnce(&mut DeviceRecord)) -> &'static str {
    match broken(|state| spoil(state.devices.get_mut(&device_id("laptop")).unwrap())) {
        Inconsistency::Device { id, what } if id == device_id("laptop") => what,
        other => panic!("{other}"),
    }
}

#[test]
fn a_registry_has_an_owner_who_belongs_everywhere() {
    let ada = user("ada");
    assert_eq!(broken(|state| state.members.get_mut(&ada).unwrap().role = Admin), Inconsistency::NoOwner);
    assert_eq!(
        broken(|state| state.members.get_mut(&ada).unwrap().workspaces = only(["web"])),
        Inconsistency::LimitedOwner(ada.clone())
    );
}

#[test]
fn a_feature_is_not_on_without_what_it_needs() {
    let spoil = |state: &mut State| {
        state.features.insert(FeatureFlag::Rbac, Switch::Off);
    };
    assert_eq!(broken(spoil), Inconsistency::Feature { feature: FeatureFlag::TeamMode, needs: FeatureFlag::Rbac });
}

#[test]
fn an_invitation_is_for_one_who_is_no_member() {
    let id = object_id("inv-dan");
    let invited = Inconsistency::Invitation(id.clone());
    assert_eq!(broken(|state| state.invitations.get_mut(&id).unwrap().user = user("cid")), invited);
    let again = |state: &mut State| {
        let second = InvitationRecord { id: object_id("inv-x"), ..state.invitations[&id].clone() };
        state.invitations.insert(second.id.clone(), second);
    };
    assert_eq!(broken(again), Inconsistency::Invitation(object_id("inv-x")));
    let limited = |state: &mut State| {
        let invitation = state.invitations.get_mut(&id).unwrap();
        (invitation.role, invitation.workspaces) = (Owner, only(["web"]));
    };
    assert_eq!(broken(limited), invited);
}

#[test]
fn a_device_belongs_to_a_member_and_its_parts_go_together() {
    assert_eq!(
        spoilt_device(|device| device.principal = principal("user:dan")),
        "belongs to nobody who is a member",
        "an invitation is enough only for one that waits"
    );
    assert_eq!(spoilt_device(|device| device.principal = principal("user:eve")), "belongs to nobody who is a member");
    assert_eq!(spoilt_device(|device| device.role = None), "has a role that does not go with whom it stands for");
    assert_eq!(spoilt_device(|device| device.principal = principal("user:bea@admin")), "holds a role of its own");
    assert_eq!(spoilt_device(|device| device.state = DeviceState::Revoked), "is neither revoked nor not");
    assert_eq!(spoilt_device(|device| device.name = String::new()), "has a name that no device has");
}

#[test]
fn no_two_devices_share_a_key_and_no_two_tokens_a_digest() {
    let twin = |state: &mut State| {
        let twin = DeviceRecord { id: device_id("twin"), ..state.devices[&device_id("laptop")].clone() };
        state.devices.insert(twin.id.clone(), twin);
    };
    assert_eq!(broken(twin), Inconsistency::SharedKey(device_id("laptop"), device_id("twin")));
    let same = |state: &mut State| state.tokens.get_mut(&token_id("own")).unwrap().digest = fresh("one").digest;
    assert_eq!(broken(same), Inconsistency::SharedDigest(token_id("one"), token_id("own")));
    let family = |state: &mut State| {
        let own = state.tokens.get_mut(&token_id("own")).unwrap();
        (own.family, own.rotated_from_token_id) = (token_id("one"), Some(token_id("one")));
    };
    assert_eq!(broken(family), Inconsistency::SharedFamily(token_id("one")));
}

#[test]
fn the_parts_of_a_token_go_together() {
    let stands = "stands for somebody whom its minter cannot answer for";
    assert_eq!(spoilt_token(|token| token.kind = TokenKind::User), "is not of the kind of whom it stands for");
    assert_eq!(spoilt_token(|token| token.minted_by = principal("agent:x")), stands);
    assert_eq!(spoilt_token(|token| token.minted_by = principal("user:ada@owner")), "holds a role of its own");
    let posing = |token: &mut ApiTokenRecord| (token.kind, token.principal) = (TokenKind::User, principal("user:bea"));
    assert_eq!(spoilt_token(posing), stands);
    assert_eq!(
        spoilt_token(|token| token.role = Some(Operator)),
        "has a role that does not go with whom it stands for"
    );
    assert_eq!(spoilt_token(|token| token.scopes = scopes([])), "has scopes that it cannot have");
    assert_eq!(spoilt_token(|token| token.scopes = scopes([Scope::PolicyWrite])), "has scopes that it cannot have");
    assert_eq!(spoilt_token(|token| token.created = at(9_999)), "expires before it begins");
    assert_eq!(spoilt_token(|token| token.superseded_at = Some(at(9_999))), "is taken over from after it expires");
    assert_eq!(spoilt_token(|token| token.per_minute = 0), "has a pace that no token has");
    assert_eq!(spoilt_token(|token| token.concurrent = 1_001), "has more at once than any token has");
    let orphan = "is neither the first of its family nor took over from another";
    assert_eq!(spoilt_token(|token| token.family = token_id("x")), orphan);
    assert_eq!(spoilt_token(|token| token.name = "a\nb".to_owned()), "has a name that no token has");
}

#[test]
fn records_of_one_name_are_found_when_they_are_read() {
    let records = |state: &State| Records {
        features: state.features.clone(),
        members: state.members().cloned().collect(),
        invitations: state.invitations().cloned().collect(),
        devices: state.devices().cloned().collect(),
        tokens: state.tokens().cloned().collect(),
    };
    let whole = whole();
    assert_eq!(State::of(records(&whole)), Ok(whole.clone()));
    let mut twice = records(&whole);
    twice.members.push(twice.members[0].clone());
    assert_eq!(State::of(twice), Err(Inconsistency::TwoMembers(user("ada"))));
    let mut twice = records(&whole);
    twice.invitations.push(twice.invitations[0].clone());
    assert_eq!(State::of(twice), Err(Inconsistency::TwoInvitations(object_id("inv-dan"))));
    let mut twice = records(&whole);
    twice.devices.push(twice.devices[0].clone());
    assert_eq!(State::of(twice), Err(Inconsistency::TwoDevices(device_id("laptop"))));
    let mut twice = records(&whole);
    twice.tokens.push(twice.tokens[0].clone());
    assert_eq!(State::of(twice), Err(Inconsistency::TwoTokens(token_id("one"))));
}

#[test]
fn a_token_whose_minter_is_gone_is_no_contradiction_once_it_is_revoked() {
    let mut state = whole();
    let (ada, bea) = (actor("user:ada@owner"), actor("user:bea@admin"));
    state.mint(&bea, token("agent:x", [Scope::CallsRead]), fresh("beas"), at(0)).unwrap();
    done(&mut state, |state| state.remove_member(&ada, &user("bea"), at(1)));
    let again = TokenRevocation { id: token_id("beas"), extent: Extent::One, why: String::new() };
    assert_eq!(
        refused(&state, |state| state.revoke_token(&ada, again, at(2))),
        Refusal::TokenRevoked(token_id("beas"))
    );
}
