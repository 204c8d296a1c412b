//! Inviting, joining, changing, removing.

use super::*;
use crate::change::{Invited, Joined, MemberRemoved, RoleSet, Withdrawn, WorkspacesSet};
use WorkspaceRole::{Admin, Operator, Owner};

#[test]
fn somebody_who_is_invited_joins_with_the_role_and_the_workspaces_that_were_offered() {
    let mut state = team();
    let bea = actor("user:bea@admin");
    let new = NewInvitation { workspaces: only(["web"]), ..invitation("dan", Operator) };
    let invited = done(&mut state, |state| state.invite(&bea, new, at(0)));
    let (id, dan) = (object_id("inv-dan"), user("dan"));
    let expected =
        Invited { id: id.clone(), user: dan.clone(), role: Operator, workspaces: only(["web"]), until: at(60) };
    assert_eq!(invited, expected);
    let joined = done(&mut state, |state| state.join(&Invitee::Invitation(id.clone()), at(59)));
    let expected = Joined { invitation: id, user: dan.clone(), role: Operator, workspaces: only(["web"]) };
    assert_eq!(joined, expected);
    let member = MemberRecord {
        user: dan.clone(),
        role: Operator,
        workspaces: only(["web"]),
        joined: at(59),
        by: "user:bea".to_owned(),
    };
    assert_eq!(state.member(&dan), Some(&member));
    assert_eq!(state.invitations().len(), 0, "an invitation works once");
}

#[test]
fn nobody_invites_above_their_own_role_and_nobody_without_one_invites() {
    let state = team();
    let invite = |by: &str, role| {
        let by = actor(by);
        move |state: &mut State| state.invite(&by, invitation("dan", role), at(0))
    };
    for (by, role) in [("user:ada@owner", Owner), ("user:bea@admin", Admin), ("user:cid@operator", Operator)] {
        assert!(invite(by, role)(&mut state.clone()).is_ok());
    }
    assert_eq!(refused(&state, invite("user:bea@admin", Owner)), Refusal::Above { needed: Owner });
    assert_eq!(refused(&state, invite("user:cid@operator", Admin)), Refusal::Above { needed: Admin });
    assert_eq!(
        refused(&state, invite("user:ada@admin", Owner)),
        Refusal::Above { needed: Owner },
        "by a lesser device"
    );
    assert_eq!(refused(&state, invite("user:dan@owner", Operator)), Refusal::NoRole);
    assert_eq!(refused(&state, invite("agent:claude", Operator)), Refusal::Agent);
}

#[test]
fn an_invitation_is_for_somebody_who_is_neither_a_member_nor_invited() {
    let mut state = team();
    let ada = actor("user:ada@owner");
    let again = |id: &str, name: &str| NewInvitation { id: object_id(id), ..invitation(name, Operator) };
    assert_eq!(
        refused(&state, |state| state.invite(&ada, again("inv-2", "cid"), at(0))),
        Refusal::AlreadyMember(user("cid"))
    );
    done(&mut state, |state| state.invite(&ada, again("inv-1", "dan"), at(0)));
    assert_eq!(
        refused(&state, |state| state.invite(&ada, again("inv-2", "dan"), at(59))),
        Refusal::AlreadyInvited(user("dan"))
    );
    assert_eq!(
        refused(&state, |state| state.invite(&ada, again("inv-1", "eve"), at(0))),
        Refusal::InvitationKnown(object_id("inv-1"))
    );
    done(&mut state, |state| state.invite(&ada, again("inv-2", "dan"), at(60)));
    assert_eq!(
        state.invitations().map(|one| one.id.as_str()).collect::<Vec<_>>(),
        ["inv-2"],
        "the one that is over went"
    );
}

#[test]
fn an_invitation_lasts_a_minute_to_thirty_days() {
    let state = team();
    let lasting = |lifetime| {
        let new = NewInvitation { lifetime, ..invitation("dan", Operator) };
        move |state: &mut State| state.invite(&actor("user:ada@owner"), new, at(0))
    };
    for wrong in [Duration::from_secs(59), minutes(30 * DAY) + Duration::from_secs(1)] {
        assert_eq!(refused(&state, lasting(wrong)), Refusal::InvitationLifetime(wrong));
    }
    for right in [minutes(1), minutes(30 * DAY)] {
        assert!(lasting(right)(&mut state.clone()).is_ok());
    }
}

#[test]
fn nobody_joins_without_an_invitation_or_after_it_is_over() {
    let mut state = team();
    state.invite(&actor("user:ada@owner"), invitation("dan", Operator), at(0)).unwrap();
    let join = |invitee: Invitee, when| move |state: &mut State| state.join(&invitee, when);
    assert_eq!(refused(&state, join(Invitee::User(user("dan")), at(60))), Refusal::InvitationOver(user("dan")));
    assert_eq!(refused(&state, join(Invitee::User(user("eve")), at(0))), Refusal::NoInvitation("eve".to_owned()));
    assert_eq!(
        refused(&state, join(Invitee::Invitation(object_id("inv-eve")), at(0))),
        Refusal::NoInvitation("inv-eve".to_owned())
    );
}

#[test]
fn without_team_mode_nobody_is_invited_joins_or_is_changed_but_anybody_can_be_removed() {
    let ada = actor("user:ada@owner");
    let mut state = team();
    state.invite(&ada, invitation("dan", Operator), at(0)).unwrap();
    state.set_feature(&ada, FeatureFlag::TeamMode, Switch::Off).unwrap();
    let off = Refusal::FeatureOff(FeatureFlag::TeamMode);
    assert_eq!(refused(&state, |state| state.invite(&ada, invitation("eve", Operator), at(0))), off);
    assert_eq!(refused(&state, |state| state.join(&Invitee::User(user("dan")), at(0))), off);
    assert_eq!(refused(&state, |state| state.set_role(&ada, &user("cid"), Admin)), off);
    assert_eq!(refused(&state, |state| state.set_workspaces(&ada, &user("cid"), Membership::All)), off);
    done(&mut state, |state| state.withdraw_invitation(&ada, &object_id("inv-dan")));
    done(&mut state, |state| state.remove_member(&ada, &user("cid"), at(1)));
}

#[test]
fn an_invitation_is_withdrawn_by_nobody_below_what_it_offers() {
    let mut state = team();
    let (bea, cid) = (actor("user:bea@admin"), actor("user:cid@operator"));
    state.invite(&bea, invitation("dan", Admin), at(0)).unwrap();
    let id = object_id("inv-dan");
    assert_eq!(refused(&state, |state| state.withdraw_invitation(&cid, &id)), Refusal::Above { needed: Admin });
    let withdrawn = done(&mut state, |state| state.withdraw_invitation(&bea, &id));
    assert_eq!(withdrawn, Withdrawn { id: id.clone(), user: user("dan"), devices: vec![] });
    assert_eq!(
        refused(&state, |state| state.withdraw_invitation(&bea, &id)),
        Refusal::NoInvitation("inv-dan".to_owned())
    );
}

#[test]
fn nobody_promotes_above_their_own_role_or_changes_somebody_above_them() {
    let state = team();
    let set = |by: &str, name: &str, role| {
        let (by, name) = (actor(by), user(name));
        move |state: &mut State| state.set_role(&by, &name, role)
    };
    assert_eq!(refused(&state, set("user:bea@admin", "cid", Owner)), Refusal::Above { needed: Owner });
    assert_eq!(refused(&state, set("user:bea@admin", "bea", Owner)), Refusal::Above { needed: Owner });
    assert_eq!(refused(&state, set("user:bea@admin", "ada", Operator)), Refusal::Above { needed: Owner });
    assert_eq!(refused(&state, set("user:cid@operator", "bea", Operator)), Refusal::Above { needed: Admin });
    assert_eq!(refused(&state, set("user:ada@owner", "dan", Operator)), Refusal::NoMember(user("dan")));
    let mut promoted = state.clone();
    let change = done(&mut promoted, set("user:bea@admin", "cid", Admin));
    assert_eq!(change, RoleSet { user: user("cid"), from: Operator, to: Admin, invitations: vec![] });
}

#[test]
fn the_last_owner_is_neither_demoted_nor_removed() {
    let mut state = team();
    let ada = actor("user:ada@owner");
    let last = Refusal::LastOwner(user("ada"));
    assert_eq!(refused(&state, |state| state.set_role(&ada, &user("ada"), Admin)), last);
    assert_eq!(refused(&state, |state| state.remove_member(&ada, &user("ada"), at(1))), last);
    done(&mut state, |state| state.set_role(&ada, &user("bea"), Owner));
    done(&mut state, |state| state.set_role(&ada, &user("ada"), Operator));
    let bea = actor("user:bea@owner");
    let last = Refusal::LastOwner(user("bea"));
    assert_eq!(refused(&state, |state| state.remove_member(&bea, &user("bea"), at(1))), last);
}

#[test]
fn whoever_is_demoted_offers_no_more_than_they_have() {
    let mut state = team();
    let (ada, bea) = (actor("user:ada@owner"), actor("user:bea@admin"));
    state.invite(&bea, invitation("dan", Admin), at(0)).unwrap();
    state.invite(&bea, invitation("eve", Operator), at(0)).unwrap();
    let set = done(&mut state, |state| state.set_role(&ada, &user("bea"), Operator));
    assert_eq!(set.invitations, [object_id("inv-dan")]);
    assert_eq!(state.invitations().map(|one| one.user.as_str()).collect::<Vec<_>>(), ["eve"]);
}

#[test]
fn nobody_gives_away_workspaces_that_are_not_theirs() {
    let mut state = team();
    let (ada, bea) = (actor("user:ada@owner"), actor("user:bea@admin"));
    state.invite(&bea, invitation("eve", Operator), at(0)).unwrap();
    let set = done(&mut state, |state| state.set_workspaces(&ada, &user("bea"), only(["web"])));
    let eve = vec![object_id("inv-eve")];
    assert_eq!(set, WorkspacesSet { user: user("bea"), from: Membership::All, to: only(["web"]), invitations: eve });
    let everywhere = invitation("dan", Operator);
    assert_eq!(refused(&state, |state| state.invite(&bea, everywhere, at(0))), Refusal::OutsideWorkspaces);
    assert_eq!(
        refused(&state, |state| state.set_workspaces(&bea, &user("cid"), only(["api"]))),
        Refusal::OutsideWorkspaces
    );
    done(&mut state, |state| state.set_workspaces(&ada, &user("cid"), only(["web"])));
    done(&mut state, |state| state.set_workspaces(&bea, &user("cid"), only([])));
    done(&mut state, |state| state.set_workspaces(&bea, &user("cid"), only(["web"])));
    let narrow = Actor { membership: only(["api"]), ..actor("user:ada@owner") };
    assert_eq!(
        refused(&state, |state| state.set_workspaces(&narrow, &user("cid"), only(["web"]))),
        Refusal::OutsideWorkspaces,
        "through a credential for less"
    );
}

#[test]
fn an_owner_belongs_to_all_workspaces() {
    let mut state = team();
    let ada = actor("user:ada@owner");
    assert_eq!(
        refused(&state, |state| state.set_workspaces(&ada, &user("ada"), only(["web"]))),
        Refusal::OwnerEverywhere
    );
    let some = NewInvitation { workspaces: only(["web"]), ..invitation("dan", Owner) };
    assert_eq!(refused(&state, |state| state.invite(&ada, some, at(0))), Refusal::OwnerEverywhere);
    state.set_workspaces(&ada, &user("bea"), only(["web"])).unwrap();
    done(&mut state, |state| state.set_role(&ada, &user("bea"), Owner));
    assert_eq!(state.member(&user("bea")).unwrap().workspaces, Membership::All);
}

#[test]
fn with_a_member_go_their_devices_their_tokens_and_their_invitations() {
    let state = with_device(team(), "user:ada@owner", "laptop", "user:bea", Some(Admin));
    let state = with_device(state, "user:ada@owner", "desk", "user:cid", Some(Operator));
    let mut state = with_device(state, "user:bea@admin", "robot", "agent:claude", None);
    let bea = actor("user:bea@admin");
    state.add_device(&bea, device("phone", "user:bea", Some(Admin)), at(0)).unwrap();
    let own = NewToken { role: Some(Admin), ..token("user:bea", [Scope::JournalRead]) };
    state.mint(&bea, own, fresh("own"), at(0)).unwrap();
    state.mint(&bea, token("agent:claude", [Scope::CallsCreate]), fresh("agents"), at(0)).unwrap();
    state.mint(&actor("user:cid@operator"), token("agent:x", [Scope::CallsRead]), fresh("cids"), at(0)).unwrap();
    state.invite(&bea, invitation("dan", Operator), at(0)).unwrap();
    let removed = done(&mut state, |state| state.remove_member(&actor("user:ada@owner"), &user("bea"), at(1)));
    let expected = MemberRemoved {
        user: user("bea"),
        role: Admin,
        devices: vec![device_id("laptop"), device_id("phone"), device_id("robot")],
        tokens: vec![token_id("agents"), token_id("own")],
        invitations: vec![object_id("inv-dan")],
    };
    assert_eq!(removed, expected);
    let revoked = crate::Revocation { at: at(1), by: "user:ada".to_owned(), why: "no member any more".to_owned() };
    for id in ["laptop", "phone", "robot"] {
        let device = state.device(&device_id(id)).unwrap();
        assert_eq!((device.state, &device.revoked), (crate::DeviceState::Revoked, &Some(revoked.clone())));
    }
    for id in ["own", "agents"] {
        assert_eq!(state.token(&token_id(id)).unwrap().revoked, Some(revoked.clone()));
    }
    assert!(state.token(&token_id("cids")).unwrap().revoked.is_none());
    assert!(state.device(&device_id("desk")).unwrap().revoked.is_none());
    assert_eq!(state.member(&user("bea")), None);
}

#[test]
fn nobody_removes_somebody_above_them() {
    let state = team();
    let cid = actor("user:cid@operator");
    assert_eq!(
        refused(&state, |state| state.remove_member(&cid, &user("bea"), at(1))),
        Refusal::Above { needed: Admin }
    );
    let bea = actor("user:bea@admin");
    assert_eq!(
        refused(&state, |state| state.remove_member(&bea, &user("ada"), at(1))),
        Refusal::Above { needed: Owner }
    );
    assert_eq!(refused(&state, |state| state.remove_member(&bea, &user("dan"), at(1))), Refusal::NoMember(user("dan")));
}

#[test]
fn by_a_token_members_are_changed_with_its_scope_only() {
    let state = team();
    let missing = Refusal::Scope(crate::MissingScope { scope: Scope::MembersManage });
    let reader = by_token("user:ada@owner", [Scope::MembersRead]);
    assert_eq!(refused(&state, |state| state.invite(&reader, invitation("dan", Operator), at(0))), missing);
    assert_eq!(refused(&state, |state| state.set_role(&reader, &user("cid"), Admin)), missing);
    assert_eq!(refused(&state, |state| state.remove_member(&reader, &user("cid"), at(0))), missing);
    let manager = by_token("user:ada@owner", [Scope::MembersManage]);
    assert!(manager.needs(Scope::MembersManage).is_ok());
    assert!(state.clone().set_role(&manager, &user("bea"), Operator).is_ok());
}

#[test]
fn by_a_token_no_role_is_given_and_everything_that_takes_away_is_done() {
    let mut state = team();
    let ada = actor("user:ada@owner");
    state.invite(&ada, invitation("dan", Operator), at(0)).unwrap();
    let own = NewToken { role: Some(Owner), ..token("user:ada", [Scope::MembersManage]) };
    state.mint(&ada, own, fresh("t"), at(0)).unwrap();
    let manager = using(&state, "user:ada@owner", "t");
    for role in [Owner, Admin, Operator] {
        let new = invitation("eve", role);
        assert_eq!(refused(&state, |state| state.invite(&manager, new, at(1))), Refusal::RoleInPerson);
    }
    for (name, role) in [("cid", Owner), ("cid", Admin), ("bea", Owner)] {
        let name = user(name);
        assert_eq!(refused(&state, |state| state.set_role(&manager, &name, role)), Refusal::RoleInPerson);
    }
    assert_eq!(Refusal::RoleInPerson.to_string(), "a role is given by a person, not by a token");
    assert_eq!(Refusal::RoleInPerson.advice(), "use a device or the console");
    let nameless = Actor { scopes: None, ..manager.clone() };
    let new = invitation("eve", Operator);
    assert_eq!(
        refused(&state, |state| state.invite(&nameless, new, at(1))),
        Refusal::RoleInPerson,
        "either sign of it"
    );
    done(&mut state, |state| state.set_role(&manager, &user("bea"), Operator));
    done(&mut state, |state| state.set_workspaces(&manager, &user("bea"), only(["web"])));
    done(&mut state, |state| state.withdraw_invitation(&manager, &object_id("inv-dan")));
    done(&mut state, |state| state.remove_member(&manager, &user("cid"), at(1)));
}

#[test]
fn an_admin_of_one_workspace_does_not_promote_an_operator_of_all_to_be_widened_in_turn() {
    let state = bound_team();
    let bea = actor("user:bea@admin");
    assert_eq!(refused(&state, |state| state.set_role(&bea, &user("cid"), Admin)), Refusal::OutsideWorkspaces);
}

#[test]
fn whoever_is_bound_to_workspaces_changes_nobody_beyond_them() {
    let mut state = bound_team();
    let (ada, bea, cid) = (actor("user:ada@owner"), actor("user:bea@admin"), user("cid"));
    let outside = Refusal::OutsideWorkspaces;
    state.invite(&ada, invitation("dan", Operator), at(0)).unwrap();
    for wider in [Membership::All, only(["shop", "web"])] {
        state.set_workspaces(&ada, &cid, wider).unwrap();
        assert_eq!(refused(&state, |state| state.set_role(&bea, &cid, Operator)), outside);
        assert_eq!(refused(&state, |state| state.set_workspaces(&bea, &cid, only(["shop"]))), outside);
        assert_eq!(refused(&state, |state| state.remove_member(&bea, &cid, at(1))), outside);
    }
    assert_eq!(refused(&state, |state| state.withdraw_invitation(&bea, &object_id("inv-dan"))), outside);
    let again = NewInvitation { id: object_id("inv-2"), workspaces: only(["shop"]), ..invitation("dan", Operator) };
    assert_eq!(refused(&state, |state| state.invite(&bea, again, at(60))), outside, "not even when it is over");

    state.set_workspaces(&ada, &cid, only(["shop"])).unwrap();
    let shop = NewInvitation { workspaces: only(["shop"]), ..invitation("eve", Operator) };
    done(&mut state, |state| state.invite(&bea, shop, at(0)));
    done(&mut state, |state| state.withdraw_invitation(&bea, &object_id("inv-eve")));
    done(&mut state, |state| state.set_role(&bea, &cid, Admin));
    done(&mut state, |state| state.set_role(&bea, &cid, Operator));
    let narrow = Actor { membership: only(["web"]), ..ada };
    assert_eq!(
        refused(&state, |state| state.remove_member(&narrow, &cid, at(1))),
        outside,
        "through a credential for less"
    );
    done(&mut state, |state| state.remove_member(&bea, &cid, at(1)));
}

#[test]
fn anybody_narrows_demotes_and_removes_themselves() {
    let mut state = team();
    let ada = actor("user:ada@owner");
    state.set_workspaces(&ada, &user("bea"), only(["shop", "web"])).unwrap();
    let narrow = Actor { membership: only(["shop"]), ..actor("user:bea@admin") };
    assert!(state.clone().remove_member(&narrow, &user("bea"), at(1)).is_ok());
    done(&mut state, |state| state.set_role(&narrow, &user("bea"), Operator));
    done(&mut state, |state| state.set_workspaces(&narrow, &user("bea"), only(["shop"])));
    assert_eq!(
        refused(&state, |state| state.set_workspaces(&narrow, &user("bea"), only(["shop", "web"]))),
        Refusal::OutsideWorkspaces
    );
}
