//! The founder's way back in.

use super::*;
use crate::{device::DeviceState, feature::Switch};
use WorkspaceRole::{Operator, Owner};

/// bea owns as well, and ada is an operator since.
fn handed_over() -> State {
    let mut state = team();
    let (ada, bea) = (actor("user:ada@owner"), actor("user:bea@owner"));
    done(&mut state, |state| state.set_role(&ada, &user("bea"), Owner));
    done(&mut state, |state| state.set_role(&bea, &user("ada"), Operator));
    state
}

#[test]
fn the_founder_gets_in_again_whatever_is_switched_off() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    for feature in [FeatureFlag::DevicePairing, FeatureFlag::Rbac, FeatureFlag::ApiTokens] {
        done(&mut state, |state| state.set_feature(&ada, feature, Switch::Off));
    }
    let new = device("again", "user:ada", Some(Owner));
    assert_eq!(
        refused(&state, |state| state.add_device(&ada, new.clone(), at(1))),
        Refusal::FeatureOff(FeatureFlag::DevicePairing)
    );
    let added = done(&mut state, |state| state.readmit(new, at(1)));
    assert_eq!((added.id, added.role), (device_id("again"), Some(Owner)));
    assert_eq!(state.device(&device_id("again")).unwrap().state, DeviceState::Active);
}

#[test]
fn a_founder_who_was_demoted_is_an_owner_again() {
    let mut state = handed_over();
    assert_eq!(state.member(&user("ada")).unwrap().role, Operator);
    done(&mut state, |state| state.readmit(device("again", "user:ada", None), at(1)));
    let ada = state.member(&user("ada")).unwrap();
    assert_eq!((ada.role, &ada.workspaces), (Owner, &Membership::All));
    assert_eq!(state.device(&device_id("again")).unwrap().role, Some(Owner));
}

#[test]
fn a_founder_who_was_removed_is_a_member_again_and_their_old_devices_stay_out() {
    let mut state = handed_over();
    let bea = actor("user:bea@owner");
    done(&mut state, |state| state.add_device(&bea, device("old", "user:ada", Some(Operator)), at(1)));
    done(&mut state, |state| state.activate_device(&device_id("old"), at(1)));
    done(&mut state, |state| state.remove_member(&bea, &user("ada"), at(2)));
    done(&mut state, |state| state.invite(&bea, invitation("ada", Operator), at(3)));
    done(&mut state, |state| state.readmit(device("again", "user:ada", None), at(4)));
    assert_eq!(state.member(&user("ada")).unwrap().role, Owner);
    assert_eq!(state.invitations().count(), 0, "nobody is a member and invited");
    assert_eq!(state.device(&device_id("old")).unwrap().state, DeviceState::Revoked);
    let key = Sha256Digest::of(b"old");
    assert_eq!(
        refused(&state, |state| state.readmit(NewDevice { key, ..device("x", "user:ada", None) }, at(5))),
        Refusal::KeyKnown(device_id("old"))
    );
}
