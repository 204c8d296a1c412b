//! Adding, activating, renewing, revoking devices.

use super::*;
use crate::{
    change::{DeviceActivated, DeviceAdded, DeviceFollows, DeviceRenewed, DeviceRevoked, DevicesForgotten, Joined},
    device::{DeviceRecord, DeviceState, Reported},
    label::LabelError,
};
use WorkspaceRole::{Admin, Operator, Owner};

#[test]
fn a_device_waits_until_it_is_activated() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    let reported = Some(Reported { name: "ada-laptop".to_owned(), os: "linux".to_owned() });
    let observed = Some("192.0.2.7:4411".to_owned());
    let new = NewDevice {
        observed: observed.clone(),
        reported: reported.clone(),
        ..device("laptop", "user:ada", Some(Owner))
    };
    let key = new.key;
    let added = done(&mut state, |state| state.add_device(&ada, new, at(0)));
    let expected = DeviceAdded {
        id: device_id("laptop"),
        name: "laptop".to_owned(),
        principal: principal("user:ada"),
        role: Some(Owner),
        key,
        certificate_until: at(86_400),
    };
    assert_eq!(added, expected);
    let record = DeviceRecord {
        id: device_id("laptop"),
        name: "laptop".to_owned(),
        principal: principal("user:ada"),
        role: Some(Owner),
        key,
        state: DeviceState::Awaiting,
        observed,
        reported,
        paired: at(0),
        paired_by: "user:ada".to_owned(),
        authority: Sha256Digest::of(b"authority"),
        certificate_until: at(86_400),
        follows: Some(Sha256Digest::of(b"authority")),
        last_seen: None,
        revoked: None,
    };
    assert_eq!(state.device(&device_id("laptop")), Some(&record));
    let activated = done(&mut state, |state| state.activate_device(&device_id("laptop"), at(1)));
    assert_eq!(activated, DeviceActivated { id: device_id("laptop"), principal: principal("user:ada"), joined: None });
    assert_eq!(state.device(&device_id("laptop")), Some(&DeviceRecord { state: DeviceState::Active, ..record }));
    assert_eq!(
        refused(&state, |state| state.activate_device(&device_id("laptop"), at(1))),
        Refusal::NotAwaiting(device_id("laptop"))
    );
    assert_eq!(
        refused(&state, |state| state.activate_device(&device_id("x"), at(1))),
        Refusal::NoDevice(device_id("x"))
    );
}

#[test]
fn a_device_that_never_came_to_work_is_forgotten_and_its_key_is_free_again() {
    let mut state = with_device(alone(), "user:ada@owner", "laptop", "user:ada", Some(Owner));
    let ada = actor("user:ada@owner");
    let forgotten = |id: &str| DevicesForgotten { devices: vec![device_id(id)] };
    state.add_device(&ada, device("phone", "user:ada", Some(Owner)), at(0)).unwrap();
    assert_eq!(done(&mut state, |state| state.forget_device(&device_id("phone"))), forgotten("phone"));
    state.add_device(&ada, device("phone", "user:ada", Some(Owner)), at(0)).unwrap();
    assert_eq!(state.forget_awaiting(), forgotten("phone"));
    assert_eq!(state.forget_awaiting(), DevicesForgotten { devices: vec![] });
    assert_eq!(
        refused(&state, |state| state.forget_device(&device_id("laptop"))),
        Refusal::NotAwaiting(device_id("laptop"))
    );
}

#[test]
fn two_devices_never_share_a_key_not_even_with_one_that_is_revoked() {
    let mut state = with_device(alone(), "user:ada@owner", "laptop", "user:ada", Some(Owner));
    let ada = actor("user:ada@owner");
    let same_key = || NewDevice { id: device_id("other"), ..device("laptop", "agent:claude", None) };
    let known = Refusal::KeyKnown(device_id("laptop"));
    assert_eq!(refused(&state, |state| state.add_device(&ada, same_key(), at(0))), known);
    let anyway = DeviceRevocation { even_the_last: true, ..revocation("laptop") };
    done(&mut state, |state| state.revoke_device(&ada, anyway, at(1)));
    assert_eq!(refused(&state, |state| state.add_device(&ada, same_key(), at(2))), known);
    let same_id = NewDevice { key: Sha256Digest::of(b"another"), ..device("laptop", "agent:claude", None) };
    assert_eq!(
        refused(&state, |state| state.add_device(&ada, same_id, at(2))),
        Refusal::DeviceKnown(device_id("laptop"))
    );
}

#[test]
fn nobody_pairs_above_their_own_role_nor_a_way_in_for_somebody_above_them() {
    let state = team();
    let pair = |by: &str, of: &str, role| {
        let (by, new) = (actor(by), device("d", of, role));
        move |state: &mut State| state.add_device(&by, new, at(0))
    };
    for (by, of, role) in [
        ("user:ada@owner", "user:bea", Some(Admin)),
        ("user:bea@admin", "user:cid", Some(Admin)),
        ("user:cid@operator", "user:cid", Some(Operator)),
        ("user:ada@operator", "user:ada", Some(Operator)),
        ("user:cid@operator", "agent:claude", None),
        ("user:cid@operator", "service:web", None),
    ] {
        assert!(pair(by, of, role)(&mut state.clone()).is_ok(), "{by} {of}");
    }
    assert_eq!(refused(&state, pair("user:cid@operator", "user:cid", Some(Admin))), Refusal::Above { needed: Admin });
    assert_eq!(refused(&state, pair("user:bea@admin", "user:ada", Some(Operator))), Refusal::Above { needed: Owner });
    assert_eq!(refused(&state, pair("user:dan@owner", "agent:claude", None)), Refusal::NoRole);
    assert_eq!(refused(&state, pair("agent:claude", "agent:claude", None)), Refusal::Agent);
    assert_eq!(refused(&state, pair("user:ada@owner", "user:ada", None)), Refusal::NoDeviceRole);
    let kind = PrincipalKind::Agent;
    assert_eq!(refused(&state, pair("user:ada@owner", "agent:claude", Some(Operator))), Refusal::RoleOfNoUser(kind));
    assert_eq!(refused(&state, pair("user:ada@owner", "user:dan", Some(Operator))), Refusal::NoMember(user("dan")));
}

#[test]
fn an_invited_user_becomes_a_member_when_their_device_is_activated() {
    let mut state = team();
    let bea = actor("user:bea@admin");
    state.invite(&bea, invitation("dan", Operator), at(0)).unwrap();
    let id = object_id("inv-dan");
    let new = |name: &str| NewDevice {
        invitation: Some(id.clone()),
        ..device("phone", &format!("user:{name}"), Some(Operator))
    };
    assert_eq!(
        refused(&state, |state| state.add_device(&bea, new("eve"), at(0))),
        Refusal::NoInvitation("inv-dan".to_owned()),
        "somebody else's invitation"
    );
    assert_eq!(refused(&state, |state| state.add_device(&bea, new("cid"), at(0))), Refusal::AlreadyMember(user("cid")));
    assert_eq!(
        refused(&state, |state| state.add_device(&bea, new("dan"), at(60))),
        Refusal::InvitationOver(user("dan"))
    );
    done(&mut state, |state| state.add_device(&bea, new("dan"), at(1)));
    assert_eq!(state.member(&user("dan")), None);
    assert_eq!(
        refused(&state, |state| state.activate_device(&device_id("phone"), at(60))),
        Refusal::InvitationOver(user("dan"))
    );
    let withdrawn = state.clone().withdraw_invitation(&bea, &id).unwrap();
    assert_eq!(withdrawn.devices, [device_id("phone")], "a device waits for nothing once the invitation is gone");
    let activated = done(&mut state, |state| state.activate_device(&device_id("phone"), at(59)));
    let joined = Joined { invitation: id, user: user("dan"), role: Operator, workspaces: Membership::All };
    assert_eq!(activated.joined, Some(joined));
    assert_eq!(state.member(&user("dan")).unwrap().role, Operator);
}

#[test]
fn nobody_pairs_for_an_invitation_above_them() {
    let mut state = team();
    state.invite(&actor("user:ada@owner"), invitation("dan", Admin), at(0)).unwrap();
    let new = NewDevice { invitation: Some(object_id("inv-dan")), ..device("phone", "user:dan", Some(Operator)) };
    assert_eq!(
        refused(&state, |state| state.add_device(&actor("user:cid@operator"), new, at(0))),
        Refusal::Above { needed: Admin }
    );
}

#[test]
fn without_device_pairing_no_device_is_added_and_those_there_are_go_on() {
    let mut state = with_device(alone(), "user:ada@owner", "laptop", "user:ada", Some(Owner));
    let ada = actor("user:ada@owner");
    state.set_feature(&ada, FeatureFlag::DevicePairing, Switch::Off).unwrap();
    assert_eq!(
        refused(&state, |state| state.add_device(&ada, device("phone", "user:ada", Some(Owner)), at(0))),
        Refusal::FeatureOff(FeatureFlag::DevicePairing)
    );
    done(&mut state, |state| state.renew_device(&device_id("laptop"), Sha256Digest::of(b"authority"), at(5)));
}

#[test]
fn the_texts_of_a_device_are_short_and_visible() {
    let state = alone();
    let ada = actor("user:ada@owner");
    let add = |new: NewDevice| {
        let ada = ada.clone();
        move |state: &mut State| state.add_device(&ada, new, at(0))
    };
    let plain = || device("d", "user:ada", Some(Owner));
    let nameless = NewDevice { name: String::new(), ..plain() };
    assert_eq!(refused(&state, add(nameless)), Refusal::Label(LabelError::Empty { what: "name of the device" }));
    let tricky = Reported { name: "a\u{202e}b".to_owned(), os: "linux".to_owned() };
    assert!(matches!(refused(&state, add(NewDevice { reported: Some(tricky), ..plain() })), Refusal::Label(_)));
    let observed = Some("1\n2".to_owned());
    assert!(matches!(refused(&state, add(NewDevice { observed, ..plain() })), Refusal::Label(_)));
}

#[test]
fn anybody_revokes_their_own_device_and_nobody_that_of_somebody_above_them() {
    let state = with_device(team(), "user:ada@owner", "adas", "user:ada", Some(Owner));
    let state = with_device(state, "user:ada@owner", "beas", "user:bea", Some(Admin));
    let state = with_device(state, "user:bea@admin", "cids", "user:cid", Some(Operator));
    let state = with_device(state, "user:bea@admin", "robot", "agent:claude", None);
    let state = with_device(state, "user:bea@admin", "web", "service:web", None);
    let revoke = |by: &str, id: &str| {
        let (by, revocation) = (actor(by), revocation(id));
        move |state: &mut State| state.revoke_device(&by, revocation, at(1))
    };
    for (by, id) in [
        ("user:bea@admin", "beas"),
        ("user:cid@operator", "cids"),
        ("user:bea@admin", "cids"),
        ("user:ada@owner", "robot"),
        ("service:web", "web"),
    ] {
        assert!(revoke(by, id)(&mut state.clone()).is_ok(), "{by} {id}");
    }
    assert_eq!(refused(&state, revoke("user:bea@admin", "adas")), Refusal::Above { needed: Owner });
    assert_eq!(
        refused(&state, revoke("user:bea@operator", "beas")),
        Refusal::Above { needed: Admin },
        "by a lesser device"
    );
    assert_eq!(refused(&state, revoke("user:bea", "beas")), Refusal::NoRole);
    assert_eq!(refused(&state, revoke("user:cid@operator", "beas")), Refusal::Above { needed: Admin });
    assert_eq!(refused(&state, revoke("user:cid@operator", "robot")), Refusal::Above { needed: Admin });
    assert_eq!(refused(&state, revoke("user:cid", "robot")), Refusal::NoRole);
    assert_eq!(refused(&state, revoke("service:web", "robot")), Refusal::NoRole);
    assert_eq!(refused(&state, revoke("agent:claude", "robot")), Refusal::Agent, "not even its own");
    assert_eq!(refused(&state, revoke("user:ada@owner", "x")), Refusal::NoDevice(device_id("x")));
    let mut state = state;
    let revoked = done(&mut state, revoke("user:bea@admin", "beas"));
    let key = Sha256Digest::of(b"beas");
    let (id, principal) = (device_id("beas"), principal("user:bea"));
    assert_eq!(revoked, DeviceRevoked { id: id.clone(), principal, key, why: "lost".to_owned() });
    assert_eq!(refused(&state, revoke("user:bea@admin", "beas")), Refusal::DeviceRevoked(id));
}

#[test]
fn the_last_way_in_for_an_owner_is_revoked_only_on_purpose() {
    let state = with_device(team(), "user:ada@owner", "laptop", "user:ada", Some(Owner));
    let mut state = with_device(state, "user:ada@owner", "kiosk", "user:ada", Some(Operator));
    let ada = actor("user:ada@owner");
    let revoke = |id: &str, even_the_last| {
        let (ada, revocation) = (ada.clone(), DeviceRevocation { even_the_last, ..revocation(id) });
        move |state: &mut State| state.revoke_device(&ada, revocation, at(1))
    };
    let last = Refusal::LastDevice(device_id("laptop"));
    assert_eq!(refused(&state, revoke("laptop", false)), last, "the kiosk does not let an owner in as one");
    assert!(revoke("kiosk", false)(&mut state.clone()).is_ok());
    assert!(revoke("laptop", true)(&mut state.clone()).is_ok(), "a lost laptop is cut off");
    let phone = with_device(state.clone(), "user:ada@owner", "phone", "user:ada", Some(Owner));
    assert!(revoke("laptop", false)(&mut phone.clone()).is_ok());
    state.add_device(&ada, device("phone", "user:ada", Some(Owner)), at(0)).unwrap();
    assert_eq!(refused(&state, revoke("laptop", false)), last, "a device that waits lets nobody in");
    done(&mut state, |state| state.set_role(&ada, &user("bea"), Owner));
    assert_eq!(refused(&state, revoke("laptop", false)), last, "bea is an owner as well, but has no device");
    let lesser = with_device(state.clone(), "user:bea@owner", "tablet", "user:bea", Some(Admin));
    assert_eq!(refused(&lesser, revoke("laptop", false)), last, "bea does not get in as an owner");
    let other = with_device(state, "user:bea@owner", "tablet", "user:bea", Some(Owner));
    assert!(revoke("laptop", false)(&mut other.clone()).is_ok(), "bea gets in");
}

#[test]
fn a_device_that_is_over_or_cut_off_is_no_way_in() {
    let state = with_device(team(), "user:ada@owner", "laptop", "user:ada", Some(Owner));
    let state = with_device(state, "user:ada@owner", "phone", "user:ada", Some(Owner));
    let revoke = |id: &str, cut_off: &[&str], when| {
        let cut_off = cut_off.iter().map(|id| device_id(id)).collect();
        let revocation = DeviceRevocation { cut_off, ..revocation(id) };
        move |state: &mut State| state.revoke_device(&actor("user:ada@owner"), revocation, when)
    };
    let last = Refusal::LastDevice(device_id("laptop"));
    assert!(revoke("laptop", &[], at(1))(&mut state.clone()).is_ok());
    assert_eq!(refused(&state, revoke("laptop", &["phone"], at(1))), last, "the phone's authority is trusted no more");
    assert!(revoke("phone", &["phone"], at(1))(&mut state.clone()).is_ok(), "and so it lets nobody in anyway");
    assert!(revoke("phone", &["phone", "laptop"], at(1))(&mut state.clone()).is_ok());
    let mut over = state;
    over.renew_device(&device_id("phone"), Sha256Digest::of(b"authority"), at(5)).unwrap();
    assert!(revoke("laptop", &[], at(4))(&mut over.clone()).is_ok());
    assert_eq!(refused(&over, revoke("laptop", &[], at(5))), last, "the phone's certificate is over");
    assert!(revoke("phone", &[], at(5))(&mut over.clone()).is_ok(), "and so it lets nobody in anyway");
}

#[test]
fn by_a_token_devices_are_paired_and_revoked_with_its_scope_only() {
    let state = with_device(team(), "user:ada@owner", "beas", "user:bea", Some(Admin));
    let missing = Refusal::Scope(crate::MissingScope { scope: Scope::DevicesManage });
    let reader = by_token("user:bea@admin", [Scope::DevicesRead]);
    assert_eq!(
        refused(&state, |state| state.revoke_device(&reader, revocation("beas"), at(1))),
        missing,
        "not even own"
    );
    assert_eq!(refused(&state, |state| state.add_device(&reader, device("d", "agent:x", None), at(1))), missing);
    let manager = by_token("user:bea@admin", [Scope::DevicesManage]);
    assert!(state.clone().revoke_device(&manager, revocation("beas"), at(1)).is_ok());
}

#[test]
fn by_a_token_no_device_is_paired_not_even_for_an_agent() {
    let state = team();
    let pair = |by: &Actor, of: &str, role| {
        let (by, new) = (by.clone(), device("d", of, role));
        move |state: &mut State| state.add_device(&by, new, at(0))
    };
    let manager = by_token("user:ada@owner", [Scope::DevicesManage]);
    for (of, role) in [("agent:claude", None), ("service:web", None), ("user:ada", Some(Operator)), ("user:cid", None)]
    {
        assert_eq!(refused(&state, pair(&manager, of, role)), Refusal::InPerson, "{of}");
    }
    let named = Actor { token: Some(token_id("t")), ..actor("user:ada@owner") };
    assert_eq!(refused(&state, pair(&named, "agent:claude", None)), Refusal::InPerson, "either sign of it");
    assert_eq!(Refusal::InPerson.to_string(), "a device is paired by a person, not by a token");
    assert_eq!(Refusal::InPerson.advice(), "use a device or the console");
}

#[test]
fn whoever_is_bound_to_workspaces_revokes_no_device_of_somebody_beyond_them() {
    let mut state = with_device(team(), "user:ada@owner", "cids", "user:cid", Some(Operator));
    state = with_device(state, "user:cid@operator", "robot", "agent:claude", None);
    state = with_device(state, "user:bea@admin", "beas", "user:bea", Some(Admin));
    state = with_device(state, "user:bea@admin", "helper", "agent:codex", None);
    let ada = actor("user:ada@owner");
    state.invite(&ada, invitation("dan", Operator), at(0)).unwrap();
    let waiting = NewDevice { invitation: Some(object_id("inv-dan")), ..device("dans", "user:dan", Some(Operator)) };
    state.add_device(&ada, waiting, at(0)).unwrap();
    state.set_workspaces(&ada, &user("bea"), only(["shop"])).unwrap();
    let revoke = |by: Actor, id: &str| {
        let revocation = revocation(id);
        move |state: &mut State| state.revoke_device(&by, revocation, at(1))
    };
    let bea = actor("user:bea@admin");
    for id in ["cids", "robot", "dans"] {
        assert_eq!(refused(&state, revoke(bea.clone(), id)), Refusal::OutsideWorkspaces, "{id}");
    }
    let narrow = Actor { membership: only([]), ..by_token("user:bea@admin", [Scope::DevicesManage]) };
    for id in ["beas", "helper"] {
        assert!(revoke(narrow.clone(), id)(&mut state.clone()).is_ok(), "one's own: {id}");
    }
    state.set_workspaces(&ada, &user("cid"), only(["shop"])).unwrap();
    for id in ["cids", "robot"] {
        assert!(revoke(bea.clone(), id)(&mut state.clone()).is_ok(), "{id}");
        assert_eq!(refused(&state, revoke(narrow.clone(), id)), Refusal::OutsideWorkspaces, "{id}");
    }
}

#[test]
fn a_device_is_activated_only_while_devices_are_paired() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    state.add_device(&ada, device("laptop", "user:ada", Some(Owner)), at(0)).unwrap();
    state.set_feature(&ada, FeatureFlag::DevicePairing, Switch::Off).unwrap();
    let activate = |state: &mut State| state.activate_device(&device_id("laptop"), at(1));
    assert_eq!(refused(&state, activate), Refusal::FeatureOff(FeatureFlag::DevicePairing));
    state.set_feature(&ada, FeatureFlag::DevicePairing, Switch::On).unwrap();
    done(&mut state, activate);
}

#[test]
fn a_device_is_activated_only_while_whoever_paired_it_still_could() {
    let mut state = team();
    let (ada, bea) = (actor("user:ada@owner"), actor("user:bea@admin"));
    state.invite(&ada, invitation("dan", Admin), at(0)).unwrap();
    let dans = NewDevice { invitation: Some(object_id("inv-dan")), ..device("dans", "user:dan", Some(Operator)) };
    for new in [
        dans,
        device("beas", "user:bea", Some(Admin)),
        device("kiosk", "user:bea", Some(Operator)),
        device("cids", "user:cid", Some(Operator)),
        device("robot", "agent:claude", None),
    ] {
        state.add_device(&bea, new, at(0)).unwrap();
    }
    let activate = |id: &str| {
        let id = device_id(id);
        move |state: &mut State| state.activate_device(&id, at(1))
    };
    for id in ["dans", "beas", "kiosk", "cids", "robot"] {
        assert!(activate(id)(&mut state.clone()).is_ok(), "{id}");
    }
    let mut demoted = state.clone();
    demoted.set_role(&ada, &user("bea"), Operator).unwrap();
    assert_eq!(refused(&demoted, activate("beas")), Refusal::Above { needed: Admin });
    assert_eq!(refused(&demoted, activate("dans")), Refusal::Above { needed: Admin }, "what the invitation offers");
    for id in ["kiosk", "cids", "robot"] {
        assert!(activate(id)(&mut demoted.clone()).is_ok(), "{id}");
    }
    demoted.set_role(&ada, &user("cid"), Admin).unwrap();
    assert_eq!(refused(&demoted, activate("cids")), Refusal::Above { needed: Admin }, "cid stands above bea now");
    let mut bound = state.clone();
    bound.set_workspaces(&ada, &user("bea"), only(["shop"])).unwrap();
    for id in ["dans", "cids", "robot"] {
        assert_eq!(refused(&bound, activate(id)), Refusal::OutsideWorkspaces, "{id}");
    }
    assert!(activate("beas")(&mut bound).is_ok());
    let mut off = state.clone();
    off.set_feature(&ada, FeatureFlag::TeamMode, Switch::Off).unwrap();
    assert_eq!(refused(&off, activate("robot")), Refusal::NoRole);
    state.remove_member(&ada, &user("bea"), at(1)).unwrap();
    assert_eq!(refused(&state, activate("cids")), Refusal::NoRole);
}

#[test]
fn an_active_device_is_renewed_and_follows_a_new_authority() {
    let mut state = with_device(alone(), "user:ada@owner", "laptop", "user:ada", Some(Owner));
    let (id, next) = (device_id("laptop"), Sha256Digest::of(b"next"));
    let followed = done(&mut state, |state| state.follow(&id, next));
    assert_eq!(followed, DeviceFollows { id: id.clone(), authority: next });
    let renewed = done(&mut state, |state| state.renew_device(&id, next, at(7)));
    assert_eq!(renewed, DeviceRenewed { id: id.clone(), authority: next, certificate_until: at(7) });
    let device = state.device(&id).unwrap();
    assert_eq!((device.authority, device.follows, device.certificate_until), (next, Some(next), at(7)));
    let anyway = DeviceRevocation { even_the_last: true, ..revocation("laptop") };
    state.revoke_device(&actor("user:ada@owner"), anyway, at(1)).unwrap();
    assert_eq!(refused(&state, |state| state.renew_device(&id, next, at(9))), Refusal::NotActive(id.clone()));
    assert_eq!(refused(&state, |state| state.follow(&id, next)), Refusal::NotActive(id.clone()));
}

#[test]
fn there_are_only_so_many_devices() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    // Adding them one by one would look at all of them each time.
    for count in 0..MOST_DEVICES {
        let id = format!("d{count}");
        let record = DeviceRecord {
            id: device_id(&id),
            name: id.clone(),
            principal: principal("agent:x"),
            role: None,
            key: Sha256Digest::of(id.as_bytes()),
            state: DeviceState::Active,
            observed: None,
            reported: None,
            paired: at(0),
            paired_by: "user:ada".to_owned(),
            authority: Sha256Digest::of(b"authority"),
            certificate_until: at(0),
            follows: None,
            last_seen: None,
            revoked: None,
        };
        state.devices.insert(record.id.clone(), record);
    }
    assert_eq!(
        refused(&state, |state| state.add_device(&ada, device("more", "agent:x", None), at(0))),
        Refusal::Full { what: "devices", most: 10_000 }
    );
}
