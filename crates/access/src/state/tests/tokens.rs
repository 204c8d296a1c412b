//! Minting, rotating, revoking tokens.

use super::*;
use crate::{
    api_token::{ApiTokenRecord, Extent, SURFACES, TokenRevocation, TokenRotation},
    change::{Minted, Rotated, TokensRevoked},
    label::LabelError,
    token::TokenKind,
};
use WorkspaceRole::{Admin, Operator, Owner};

fn mint(by: &str, new: NewToken) -> impl FnOnce(&mut State) -> Result<Minted, Refusal> {
    let by = actor(by);
    move |state: &mut State| state.mint(&by, new, fresh("t"), at(0))
}

fn rotation(id: &str) -> TokenRotation {
    TokenRotation { id: token_id(id), overlap: minutes(10), lifetime: None }
}

fn revoking(id: &str, extent: Extent) -> TokenRevocation {
    TokenRevocation { id: token_id(id), extent, why: "leaked".to_owned() }
}

/// The same, with a token of ada's that mints and makes calls for a day.
fn with_manager(mut state: State, but: impl FnOnce(NewToken) -> NewToken) -> State {
    let new = token("user:ada", [Scope::TokensManage, Scope::CallsCreate]);
    let new = but(NewToken { role: Some(Owner), ..new });
    state.mint(&actor("user:ada@owner"), new, fresh("manager"), at(0)).unwrap();
    state
}

/// The ids of tokens that are not revoked.
fn left(state: &State) -> Vec<&str> {
    state.tokens().filter(|token| token.revoked.is_none()).map(|token| token.id.as_str()).collect()
}

#[test]
fn a_token_is_minted_with_what_was_asked_for() {
    let mut state = team();
    let new = NewToken {
        per_minute: Some(60),
        concurrent: Some(2),
        workspaces: only(["web"]),
        ..token("agent:claude", [Scope::CallsCreate, Scope::CallsRead])
    };
    let minted = done(&mut state, mint("user:cid@operator", new));
    let expected = Minted {
        id: token_id("t"),
        name: "a token".to_owned(),
        principal: principal("agent:claude"),
        role: None,
        workspaces: only(["web"]),
        scopes: scopes([Scope::CallsCreate, Scope::CallsRead]),
        channel: None,
        minted_by: principal("user:cid"),
        expires: at(1_440),
        per_minute: 60,
        concurrent: 2,
        pruned: vec![],
    };
    assert_eq!(minted, expected);
    let record = ApiTokenRecord {
        id: token_id("t"),
        name: "a token".to_owned(),
        kind: TokenKind::Agent,
        principal: principal("agent:claude"),
        role: None,
        workspaces: only(["web"]),
        scopes: scopes([Scope::CallsCreate, Scope::CallsRead]),
        channel: None,
        digest: fresh("t").digest,
        minted_by: principal("user:cid"),
        minted_with: None,
        family: token_id("t"),
        rotated_from_token_id: None,
        created: at(0),
        expires: at(1_440),
        per_minute: 60,
        concurrent: 2,
        last_used: None,
        revoked: None,
        superseded_at: None,
    };
    assert_eq!(state.token(&token_id("t")), Some(&record));
    let said = serde_json::to_string(&minted).unwrap();
    assert!(!said.contains(&record.digest.to_hex()), "the journal holds no digest of a secret");
}

#[test]
fn a_token_has_the_usual_limits_if_nothing_is_said() {
    let mut state = alone();
    done(&mut state, mint("user:ada@owner", token("service:web", [Scope::CallsCreate])));
    let minted = state.token(&token_id("t")).unwrap();
    assert_eq!((minted.per_minute, minted.concurrent), (600, 32));
}

#[test]
fn the_bounds_of_a_token_are_kept() {
    let state = alone();
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    let tried = |new: NewToken| refused(&state, mint("user:ada@owner", new));
    for wrong in [Duration::from_secs(59), minutes(366 * DAY) + Duration::from_millis(1)] {
        assert_eq!(tried(NewToken { lifetime: wrong, ..plain() }), Refusal::Lifetime(wrong));
    }
    for wrong in [0, 100_001] {
        assert_eq!(tried(NewToken { per_minute: Some(wrong), ..plain() }), Refusal::PerMinute(wrong));
    }
    for wrong in [0, 1_001] {
        assert_eq!(tried(NewToken { concurrent: Some(wrong), ..plain() }), Refusal::Concurrent(wrong));
    }
    assert_eq!(tried(token("agent:claude", [])), Refusal::NoScopes);
    let nameless = NewToken { name: " ".to_owned(), ..plain() };
    assert_eq!(tried(nameless), Refusal::Label(LabelError::Empty { what: "name of the token" }));
    for lifetime in [minutes(1), minutes(366 * DAY)] {
        let widest = NewToken { lifetime, per_minute: Some(100_000), concurrent: Some(1_000), ..plain() };
        assert!(mint("user:ada@owner", widest)(&mut state.clone()).is_ok());
    }
}

#[test]
fn a_users_token_stands_for_whoever_mints_it_with_no_more_than_their_role() {
    let state = team();
    let user_token = |of: &str, role, scope| NewToken { role, ..token(of, [scope]) };
    let own = user_token("user:bea", Some(Admin), Scope::PolicyWrite);
    assert!(mint("user:bea@admin", own)(&mut state.clone()).is_ok());
    let none = user_token("user:bea", None, Scope::CallsCreate);
    assert!(mint("user:bea@admin", none)(&mut state.clone()).is_ok());
    let others = user_token("user:cid", Some(Operator), Scope::JournalRead);
    assert_eq!(refused(&state, mint("user:ada@owner", others)), Refusal::NotYourself(user("cid")));
    let above = user_token("user:bea", Some(Owner), Scope::JournalRead);
    assert_eq!(refused(&state, mint("user:bea@admin", above)), Refusal::Above { needed: Owner });
    let scope = Scope::PolicyWrite;
    let beyond = user_token("user:bea", Some(Operator), scope);
    assert_eq!(refused(&state, mint("user:bea@admin", beyond)), Refusal::ScopeAbove { scope, needed: Admin });
    let scope = Scope::JournalRead;
    let without = user_token("user:bea", None, scope);
    assert_eq!(refused(&state, mint("user:bea@admin", without)), Refusal::ScopeAbove { scope, needed: Operator });
}

#[test]
fn agents_and_services_hold_no_role_and_only_scopes_that_suit_them() {
    let state = team();
    let with_role = NewToken { role: Some(Operator), ..token("agent:claude", [Scope::CallsCreate]) };
    let kind = PrincipalKind::Agent;
    assert_eq!(refused(&state, mint("user:ada@owner", with_role)), Refusal::RoleOfNoUser(kind));
    let scope = Scope::ApprovalsDecide;
    let approving = token("agent:claude", [scope]);
    assert_eq!(refused(&state, mint("user:ada@owner", approving)), Refusal::ScopeUnsuited { scope, kind });
    let kind = PrincipalKind::Service;
    let approving = token("service:web", [scope]);
    assert_eq!(refused(&state, mint("user:ada@owner", approving)), Refusal::ScopeUnsuited { scope, kind });
    assert!(mint("user:cid@operator", token("service:web", [Scope::EventsRead]))(&mut state.clone()).is_ok());
}

#[test]
fn nobody_mints_without_a_role_and_agents_never_do() {
    let state = team();
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    assert_eq!(refused(&state, mint("user:dan@owner", plain())), Refusal::NoRole);
    assert_eq!(refused(&state, mint("user:bea", plain())), Refusal::NoRole);
    assert_eq!(refused(&state, mint("service:web", plain())), Refusal::NoRole);
    assert_eq!(refused(&state, mint("agent:claude", plain())), Refusal::Agent);
}

#[test]
fn by_a_token_nobody_mints_scopes_that_it_does_not_hold() {
    let state = with_manager(team(), |new| new);
    let missing = |scope| Refusal::Scope(crate::MissingScope { scope });
    let manager = using(&state, "user:ada@owner", "manager");
    let with = |by: &Actor, scope| {
        let by = by.clone();
        move |state: &mut State| state.mint(&by, token("agent:claude", [scope]), fresh("t"), at(0))
    };
    assert!(with(&manager, Scope::CallsCreate)(&mut state.clone()).is_ok());
    assert_eq!(refused(&state, with(&manager, Scope::CallsRead)), missing(Scope::CallsRead));
    let other = by_token("user:ada@owner", [Scope::CallsCreate]);
    assert_eq!(refused(&state, with(&other, Scope::CallsCreate)), missing(Scope::TokensManage));
    let narrow = Actor { membership: only(["web"]), ..manager };
    assert_eq!(refused(&state, with(&narrow, Scope::CallsCreate)), Refusal::OutsideWorkspaces);
}

#[test]
fn a_token_mints_nothing_that_outlasts_or_outruns_it() {
    let state = with_manager(alone(), |new| NewToken { per_minute: Some(60), concurrent: Some(4), ..new });
    let manager = using(&state, "user:ada@owner", "manager");
    let mint = |by: &Actor, new: NewToken, when| {
        let by = by.clone();
        move |state: &mut State| state.mint(&by, new, fresh("t"), when)
    };
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    let day = i64::try_from(DAY).unwrap();
    assert_eq!(
        refused(&state, mint(&manager, plain(), at(1))),
        Refusal::Outlasts { ends: at(day + 1), most: at(day) },
        "a minute later than the token that mints it"
    );
    let short = || NewToken { lifetime: minutes(DAY - 1), ..plain() };
    let fast = NewToken { per_minute: Some(61), ..short() };
    assert_eq!(
        refused(&state, mint(&manager, fast, at(1))),
        Refusal::Outruns { what: "requests a minute", asked: 61, most: 60 }
    );
    let broad = NewToken { concurrent: Some(5), ..short() };
    assert_eq!(
        refused(&state, mint(&manager, broad, at(1))),
        Refusal::Outruns { what: "requests at once", asked: 5, most: 4 }
    );
    let exact = NewToken { per_minute: Some(60), concurrent: Some(4), ..short() };
    for new in [short(), exact] {
        let mut state = state.clone();
        done(&mut state, mint(&manager, new, at(1)));
        let minted = state.token(&token_id("t")).unwrap();
        assert_eq!((minted.per_minute, minted.concurrent, minted.expires), (60, 4, at(day)));
        assert_eq!(minted.minted_with, Some(token_id("manager")));
    }
    assert!(
        mint(&actor("user:ada@owner"), plain(), at(1))(&mut state.clone()).is_ok(),
        "in person nothing of it counts"
    );
    let mut rotated = state;
    rotated.rotate(&actor("user:ada@owner"), rotation("manager"), fresh("next"), at(1)).unwrap();
    assert_eq!(
        refused(&rotated, mint(&manager, short(), at(1))),
        Refusal::Outlasts { ends: at(day), most: at(11) },
        "it ends when the one that took over is alone"
    );
}

#[test]
fn a_token_with_wide_limits_mints_the_usual_ones_if_nothing_is_said() {
    let mut state = with_manager(alone(), |new| NewToken { per_minute: Some(9_000), concurrent: Some(900), ..new });
    let manager = using(&state, "user:ada@owner", "manager");
    state.mint(&manager, token("agent:claude", [Scope::CallsCreate]), fresh("t"), at(0)).unwrap();
    let minted = state.token(&token_id("t")).unwrap();
    assert_eq!((minted.per_minute, minted.concurrent), (600, 32));
}

#[test]
fn by_a_token_that_is_not_known_or_over_nothing_is_minted_or_rotated() {
    let mut state = with_manager(alone(), |new| new);
    let ada = actor("user:ada@owner");
    state.mint(&ada, token("agent:claude", [Scope::CallsCreate]), fresh("other"), at(0)).unwrap();
    let manager = using(&state, "user:ada@owner", "manager");
    let short = || NewToken { lifetime: minutes(1), ..token("agent:claude", [Scope::CallsCreate]) };
    let tried = |state: &State, by: &Actor, when| {
        let minted = refused(state, |state| state.mint(by, short(), fresh("t"), when));
        assert_eq!(refused(state, |state| state.rotate(by, rotation("other"), fresh("t"), when)), minted);
        minted
    };
    let nameless = Actor { token: None, ..manager.clone() };
    let unknown = Actor { token: Some(token_id("x")), ..manager.clone() };
    assert_eq!([tried(&state, &nameless, at(1)), tried(&state, &unknown, at(1))], [const { Refusal::TokenUnknown }; 2]);
    state.revoke_token(&ada, revoking("manager", Extent::One), at(1)).unwrap();
    assert_eq!(tried(&state, &manager, at(1)), Refusal::NotLive(token_id("manager")));
}

#[test]
fn a_token_rotates_another_family_to_nothing_that_outlasts_both() {
    let mut state = with_manager(alone(), |new| new);
    let ada = actor("user:ada@owner");
    let plain = |days| NewToken { lifetime: minutes(days * DAY), ..token("agent:claude", [Scope::CallsCreate]) };
    let day = i64::try_from(DAY).unwrap();
    let hour = NewToken { lifetime: minutes(60), ..plain(1) };
    state.mint(&ada, hour, fresh("short"), at(0)).unwrap();
    state.mint(&ada, plain(9), fresh("long"), at(0)).unwrap();
    let manager = using(&state, "user:ada@owner", "manager");
    let rotate = |by: &Actor, id: &str, lifetime, when| {
        let (by, rotation) = (by.clone(), TokenRotation { lifetime, ..rotation(id) });
        move |state: &mut State| state.rotate(&by, rotation, fresh("next"), when)
    };
    let ends = |by: &Actor, id: &str, lifetime, when| done(&mut state.clone(), rotate(by, id, lifetime, when)).expires;
    assert_eq!(ends(&manager, "short", None, at(1)), at(61), "as long as the old one");
    assert_eq!(ends(&manager, "short", Some(minutes(DAY - 1)), at(1)), at(day), "as long as the one that is used");
    assert_eq!(
        refused(&state, rotate(&manager, "short", Some(minutes(DAY)), at(1))),
        Refusal::Outlasts { ends: at(day + 1), most: at(day) }
    );
    assert_eq!(ends(&manager, "long", None, at(1)), at(9 * day), "when the old one would have ended");
    assert_eq!(ends(&manager, "long", Some(minutes(9 * DAY - 1)), at(1)), at(9 * day));
    assert_eq!(
        refused(&state, rotate(&manager, "long", Some(minutes(9 * DAY)), at(1))),
        Refusal::Outlasts { ends: at(9 * day + 1), most: at(9 * day) }
    );
    assert_eq!(ends(&manager, "manager", Some(minutes(9 * DAY)), at(1)), at(9 * day + 1), "its own family as ever");
    assert_eq!(ends(&ada, "short", Some(minutes(9 * DAY)), at(1)), at(9 * day + 1), "in person as ever");
}

#[test]
fn a_rotation_for_which_no_time_is_left_says_so() {
    let mut state = with_manager(alone(), |new| NewToken { lifetime: minutes(2), ..new });
    let brief = NewToken { lifetime: minutes(1), ..token("agent:claude", [Scope::CallsCreate]) };
    let seconds = |seconds: i64| Timestamp::from_unix_millis(at(0).unix_millis() + seconds * 1_000);
    state.mint(&actor("user:ada@owner"), brief, fresh("brief"), seconds(59)).unwrap();
    let manager = using(&state, "user:ada@owner", "manager");
    assert_eq!(
        refused(&state, |state| state.rotate(&manager, rotation("brief"), fresh("next"), seconds(90))),
        Refusal::Outlasts { ends: seconds(150), most: seconds(120) }
    );
}

#[test]
fn what_a_token_minted_goes_with_it() {
    let ada = actor("user:ada@owner");
    let mut state = with_manager(alone(), |new| new);
    let mints = |of: &str| NewToken {
        role: of.starts_with("user:").then_some(Owner),
        lifetime: minutes(60),
        scopes: match of.starts_with("user:") {
            true => scopes([Scope::TokensManage, Scope::CallsCreate]),
            false => scopes([Scope::CallsCreate]),
        },
        ..token(of, [])
    };
    let with = |state: &mut State, id: &str, of: &str, new: &str| {
        let by = using(state, "user:ada@owner", id);
        done(state, |state| state.mint(&by, mints(of), fresh(new), at(1)));
    };
    with(&mut state, "manager", "agent:claude", "child");
    with(&mut state, "manager", "user:ada", "mother");
    with(&mut state, "mother", "agent:claude", "grandchild");
    done(&mut state, |state| state.rotate(&ada, rotation("grandchild"), fresh("heir"), at(2)));
    assert_eq!(state.token(&token_id("heir")).unwrap().minted_with, Some(token_id("mother")));
    done(&mut state, |state| state.rotate(&ada, rotation("manager"), fresh("next"), at(2)));
    with(&mut state, "next", "agent:claude", "cousin");
    done(&mut state, |state| state.mint(&ada, mints("agent:claude"), fresh("apart"), at(2)));

    let revoke = |state: &mut State, id: &str, extent| {
        done(state, |state| state.revoke_token(&ada, revoking(id, extent), at(3))).tokens
    };
    let ids = |ids: &[&str]| ids.iter().map(|id| token_id(id)).collect::<Vec<_>>();
    let mut one = state.clone();
    assert_eq!(revoke(&mut one, "manager", Extent::One), ids(&["child", "grandchild", "heir", "manager", "mother"]));
    assert_eq!(left(&one), ["apart", "cousin", "next"]);
    let mut family = state.clone();
    revoke(&mut family, "manager", Extent::Family);
    assert_eq!(left(&family), ["apart"]);
    let mut below = state;
    assert_eq!(revoke(&mut below, "mother", Extent::One), ids(&["grandchild", "heir", "mother"]));
    assert_eq!(revoke(&mut below, "manager", Extent::Family), ids(&["child", "cousin", "manager", "next"]));
}

#[test]
fn what_a_token_got_hold_of_by_rotating_it_goes_with_it() {
    let ada = actor("user:ada@owner");
    let mut state = with_manager(alone(), |new| new);
    done(&mut state, |state| state.mint(&ada, token("agent:claude", [Scope::CallsCreate]), fresh("worker"), at(0)));
    let manager = using(&state, "user:ada@owner", "manager");
    done(&mut state, |state| state.rotate(&manager, rotation("worker"), fresh("taken"), at(1)));
    let revoked = done(&mut state, |state| state.revoke_token(&ada, revoking("manager", Extent::One), at(2)));
    assert_eq!(revoked.tokens, [token_id("manager"), token_id("taken")]);
}

#[test]
fn what_a_token_minted_stays_when_its_record_is_pruned_and_its_name_stays_taken() {
    let ada = actor("user:ada@owner");
    let mut state = with_manager(alone(), |new| new);
    let manager = using(&state, "user:ada@owner", "manager");
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    state.mint(&manager, plain(), fresh("child"), at(0)).unwrap();
    let long = TokenRotation { lifetime: Some(minutes(366 * DAY)), ..rotation("child") };
    state.rotate(&ada, long, fresh("heir"), at(0)).unwrap();
    let later = at(i64::try_from(92 * DAY).unwrap());
    let minted = done(&mut state, |state| state.mint(&ada, plain(), fresh("new"), later));
    assert_eq!(minted.pruned, [token_id("child"), token_id("manager")]);
    assert_eq!(state.token(&token_id("heir")).unwrap().minted_with, Some(token_id("manager")));
    assert_eq!(
        refused(&state, |state| state.mint(&ada, plain(), fresh("manager"), later)),
        Refusal::TokenKnown(token_id("heir"))
    );
}

#[test]
fn whoever_is_bound_to_workspaces_revokes_no_token_of_somebody_beyond_them() {
    let mut state = team();
    let (ada, bea, cid) = (actor("user:ada@owner"), actor("user:bea@admin"), actor("user:cid@operator"));
    let shop = || NewToken { workspaces: only(["shop"]), ..token("service:web", [Scope::CallsCreate]) };
    state.mint(&cid, shop(), fresh("cids"), at(0)).unwrap();
    state.mint(&bea, token("service:web", [Scope::CallsCreate]), fresh("beas"), at(0)).unwrap();
    state.set_workspaces(&ada, &user("bea"), only(["shop"])).unwrap();
    let revoke = |by: &Actor, id: &str| {
        let (by, revoking) = (by.clone(), revoking(id, Extent::One));
        move |state: &mut State| state.revoke_token(&by, revoking, at(1))
    };
    assert_eq!(refused(&state, revoke(&bea, "cids")), Refusal::OutsideWorkspaces);
    assert_eq!(
        refused(&state, |state| state.rotate(&bea, rotation("cids"), fresh("t"), at(1))),
        Refusal::OutsideWorkspaces
    );
    let narrow = Actor { membership: only([]), ..bea.clone() };
    assert!(revoke(&narrow, "beas")(&mut state.clone()).is_ok(), "one's own");
    state.set_workspaces(&ada, &user("cid"), only(["shop"])).unwrap();
    assert_eq!(refused(&state, revoke(&narrow, "cids")), Refusal::OutsideWorkspaces);
    assert!(revoke(&bea, "cids")(&mut state).is_ok());
}

#[test]
fn a_token_is_for_workspaces_of_its_minter() {
    let mut state = team();
    state.set_workspaces(&actor("user:ada@owner"), &user("bea"), only(["web", "api"])).unwrap();
    let within = |workspaces| NewToken { workspaces, ..token("agent:claude", [Scope::CallsCreate]) };
    assert!(mint("user:bea@admin", within(only(["web"])))(&mut state.clone()).is_ok());
    for workspaces in [Membership::All, only(["web", "db"])] {
        assert_eq!(refused(&state, mint("user:bea@admin", within(workspaces))), Refusal::OutsideWorkspaces);
    }
}

#[test]
fn a_scope_of_a_feature_that_is_off_is_not_minted() {
    let mut state = alone();
    for (scope, feature) in
        [(Scope::CompatChatCreate, FeatureFlag::CompatApi), (Scope::McpCall, FeatureFlag::McpGateway)]
    {
        let new = token("agent:claude", [scope]);
        assert_eq!(refused(&state, mint("user:ada@owner", new)), Refusal::FeatureOff(feature));
    }
    let ada = actor("user:ada@owner");
    state.set_feature(&ada, FeatureFlag::ApiTokens, Switch::Off).unwrap();
    let off = Refusal::FeatureOff(FeatureFlag::ApiTokens);
    assert_eq!(refused(&state, mint("user:ada@owner", token("agent:claude", [Scope::CallsCreate]))), off);
}

#[test]
fn no_two_tokens_share_an_id_or_a_digest() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    state.mint(&ada, plain(), fresh("one"), at(0)).unwrap();
    let known = Refusal::TokenKnown(token_id("one"));
    for again in [
        FreshToken { digest: Sha256Digest::of(b"other"), ..fresh("one") },
        FreshToken { id: token_id("other"), ..fresh("one") },
    ] {
        assert_eq!(refused(&state, |state| state.mint(&ada, plain(), again, at(0))), known);
    }
}

#[test]
fn a_rotated_token_takes_over_after_the_overlap() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    let new = NewToken { per_minute: Some(7), ..token("agent:claude", [Scope::CallsCreate]) };
    state.mint(&ada, new, fresh("one"), at(0)).unwrap();
    let old = state.token(&token_id("one")).unwrap().clone();
    let rotated = done(&mut state, |state| state.rotate(&ada, rotation("one"), fresh("two"), at(100)));
    let expected = Rotated {
        id: token_id("two"),
        rotated_from_token_id: token_id("one"),
        family: token_id("one"),
        principal: principal("agent:claude"),
        minted_by: principal("user:ada"),
        expires: at(1_540),
        superseded_at: at(110),
        pruned: vec![],
    };
    assert_eq!(rotated, expected);
    let successor = ApiTokenRecord {
        id: token_id("two"),
        digest: fresh("two").digest,
        rotated_from_token_id: Some(token_id("one")),
        created: at(100),
        expires: at(1_540),
        ..old.clone()
    };
    assert_eq!(state.token(&token_id("two")), Some(&successor));
    assert_eq!(state.token(&token_id("one")), Some(&ApiTokenRecord { superseded_at: Some(at(110)), ..old }));
    done(&mut state, |state| state.rotate(&ada, rotation("two"), fresh("three"), at(200)));
    assert_eq!(state.token(&token_id("three")).unwrap().family, token_id("one"));
}

#[test]
fn only_a_live_token_rotates_and_only_once() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    let rotate = |id: &str, when| {
        let (ada, rotation) = (ada.clone(), rotation(id));
        move |state: &mut State| state.rotate(&ada, rotation, fresh("next"), when)
    };
    state.mint(&ada, plain(), fresh("one"), at(0)).unwrap();
    assert_eq!(refused(&state, rotate("x", at(0))), Refusal::NoToken(token_id("x")));
    assert_eq!(refused(&state, rotate("one", at(1_440))), Refusal::NotLive(token_id("one")));
    done(&mut state, |state| state.rotate(&ada, rotation("one"), fresh("two"), at(1)));
    assert_eq!(refused(&state, rotate("one", at(2))), Refusal::AlreadyRotated(token_id("one")));
    done(&mut state, |state| state.revoke_token(&ada, revoking("two", Extent::One), at(2)));
    assert_eq!(refused(&state, rotate("two", at(3))), Refusal::NotLive(token_id("two")));
}

#[test]
fn the_bounds_of_a_rotation_are_kept() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    state.mint(&ada, token("agent:claude", [Scope::CallsCreate]), fresh("one"), at(0)).unwrap();
    let rotate = |overlap, lifetime| {
        let (ada, rotation) = (ada.clone(), TokenRotation { id: token_id("one"), overlap, lifetime });
        move |state: &mut State| state.rotate(&ada, rotation, fresh("two"), at(0))
    };
    let long = minutes(7 * DAY) + Duration::from_millis(1);
    assert_eq!(refused(&state, rotate(long, None)), Refusal::Overlap(long));
    let short = Duration::from_secs(59);
    assert_eq!(refused(&state, rotate(minutes(0), Some(short))), Refusal::Lifetime(short));
    let rotated = rotate(minutes(7 * DAY), Some(minutes(1)))(&mut state.clone()).unwrap();
    assert_eq!((rotated.superseded_at, rotated.expires), (at(1_440), at(1)), "no longer than the old one lives");
    let at_once = rotate(minutes(0), None)(&mut state).unwrap();
    assert_eq!(at_once.superseded_at, at(0));
    state.set_feature(&ada, FeatureFlag::ApiTokens, Switch::Off).unwrap();
    let off = |state: &mut State| state.rotate(&ada, rotation("two"), fresh("three"), at(0));
    assert_eq!(refused(&state, off), Refusal::FeatureOff(FeatureFlag::ApiTokens));
}

#[test]
fn whoever_rotates_a_token_answers_for_it_and_could_have_minted_it() {
    let mut state = team();
    let (ada, bea, cid) = (actor("user:ada@owner"), actor("user:bea@admin"), actor("user:cid@operator"));
    state.mint(&bea, token("service:web", [Scope::EventsRead]), fresh("web"), at(0)).unwrap();
    let own = NewToken { role: Some(Admin), ..token("user:bea", [Scope::PolicyWrite]) };
    state.mint(&bea, own, fresh("own"), at(0)).unwrap();
    let rotate = |by: &Actor, id: &str| {
        let (by, rotation) = (by.clone(), rotation(id));
        move |state: &mut State| state.rotate(&by, rotation, fresh("next"), at(1))
    };
    assert_eq!(refused(&state, rotate(&cid, "web")), Refusal::Above { needed: Admin });
    let taken_over = rotate(&ada, "web")(&mut state.clone()).unwrap();
    assert_eq!(taken_over.minted_by, principal("user:ada"));
    assert_eq!(
        refused(&state, rotate(&ada, "own")),
        Refusal::NotYourself(user("bea")),
        "nobody gets hold of a token that stands for somebody else"
    );
    let poorer = NewToken { role: Some(Admin), ..token("user:bea", [Scope::TokensManage]) };
    state.mint(&bea, poorer, fresh("poorer"), at(0)).unwrap();
    let poorer = using(&state, "user:bea@admin", "poorer");
    let missing = Refusal::Scope(crate::MissingScope { scope: Scope::EventsRead });
    assert_eq!(refused(&state, rotate(&poorer, "web")), missing);
    state.set_role(&ada, &user("bea"), Operator).unwrap();
    assert_eq!(refused(&state, rotate(&actor("user:bea@operator"), "own")), Refusal::Above { needed: Admin });
}

#[test]
fn one_token_or_its_whole_family_is_revoked() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    state.mint(&ada, token("agent:claude", [Scope::CallsCreate]), fresh("one"), at(0)).unwrap();
    state.mint(&ada, token("agent:claude", [Scope::CallsCreate]), fresh("apart"), at(0)).unwrap();
    state.rotate(&ada, rotation("one"), fresh("two"), at(1)).unwrap();
    state.rotate(&ada, rotation("two"), fresh("three"), at(2)).unwrap();
    let one = done(&mut state, |state| state.revoke_token(&ada, revoking("two", Extent::One), at(3)));
    let revoked = |ids: &[&str]| TokensRevoked {
        tokens: ids.iter().map(|id| token_id(id)).collect(),
        family: token_id("one"),
        why: "leaked".to_owned(),
    };
    assert_eq!(one, revoked(&["two"]));
    assert_eq!(
        refused(&state, |state| state.revoke_token(&ada, revoking("two", Extent::One), at(4))),
        Refusal::TokenRevoked(token_id("two"))
    );
    let rest = done(&mut state, |state| state.revoke_token(&ada, revoking("two", Extent::Family), at(4)));
    assert_eq!(rest, revoked(&["one", "three"]), "all that were left of it");
    assert!(state.token(&token_id("apart")).unwrap().revoked.is_none());
    assert_eq!(state.token(&token_id("two")).unwrap().revoked.as_ref().unwrap().at, at(3), "the first time counts");
}

#[test]
fn anybody_revokes_their_own_token_and_nobody_that_of_somebody_above_them() {
    let mut state = team();
    let (ada, bea) = (actor("user:ada@owner"), actor("user:bea@admin"));
    state.mint(&ada, token("service:web", [Scope::CallsCreate]), fresh("adas"), at(0)).unwrap();
    state.mint(&bea, token("agent:claude", [Scope::CallsCreate]), fresh("beas"), at(0)).unwrap();
    let revoke = |by: Actor, id: &str| {
        let revoking = revoking(id, Extent::One);
        move |state: &mut State| state.revoke_token(&by, revoking, at(1))
    };
    for (by, id) in
        [("user:bea", "beas"), ("user:bea@admin", "beas"), ("user:ada@owner", "beas"), ("service:web", "adas")]
    {
        assert!(revoke(actor(by), id)(&mut state.clone()).is_ok(), "{by} {id}");
    }
    assert_eq!(refused(&state, revoke(bea.clone(), "adas")), Refusal::Above { needed: Owner });
    assert_eq!(refused(&state, revoke(actor("user:cid@operator"), "beas")), Refusal::Above { needed: Admin });
    assert_eq!(refused(&state, revoke(actor("user:dan@owner"), "beas")), Refusal::NoRole);
    assert_eq!(refused(&state, revoke(actor("agent:claude"), "beas")), Refusal::Agent, "not even its own");
    let missing = Refusal::Scope(crate::MissingScope { scope: Scope::TokensManage });
    assert_eq!(refused(&state, revoke(by_token("user:bea@admin", [Scope::TokensRead]), "beas")), missing);
    assert_eq!(refused(&state, revoke(bea, "x")), Refusal::NoToken(token_id("x")));
}

#[test]
fn tokens_that_have_been_over_for_ninety_days_make_room() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    let day = i64::try_from(DAY).unwrap();
    let plain = |days| NewToken { lifetime: minutes(days * DAY), ..token("agent:claude", [Scope::CallsCreate]) };
    state.mint(&ada, plain(1), fresh("expired"), at(0)).unwrap();
    state.mint(&ada, plain(366), fresh("revoked"), at(0)).unwrap();
    state.mint(&ada, plain(366), fresh("rotated"), at(0)).unwrap();
    state.mint(&ada, plain(366), fresh("live"), at(0)).unwrap();
    state.revoke_token(&ada, revoking("revoked", Extent::One), at(day)).unwrap();
    let long = TokenRotation { lifetime: Some(minutes(366 * DAY)), ..rotation("rotated") };
    state.rotate(&ada, long, fresh("successor"), at(day)).unwrap();
    let kept = done(&mut state.clone(), |state| state.mint(&ada, plain(1), fresh("next"), at(91 * day - 1)));
    assert_eq!(kept.pruned, Vec::<TokenId>::new());
    let minted = done(&mut state, |state| state.mint(&ada, plain(1), fresh("next"), at(92 * day)));
    assert_eq!(minted.pruned, [token_id("expired"), token_id("revoked"), token_id("rotated")]);
    assert_eq!(state.tokens().map(|token| token.id.as_str()).collect::<Vec<_>>(), ["live", "next", "successor"]);
    let family = FreshToken { digest: Sha256Digest::of(b"new"), ..fresh("rotated") };
    assert_eq!(
        refused(&state, |state| state.mint(&ada, plain(1), family, at(92 * day))),
        Refusal::TokenKnown(token_id("successor")),
        "the name of a family stays taken while there is one of it"
    );
}

#[test]
fn there_are_only_so_many_tokens() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    state.mint(&ada, plain(), fresh("t0"), at(0)).unwrap();
    let first = state.token(&token_id("t0")).unwrap().clone();
    for count in 1..MOST_TOKENS {
        let FreshToken { id, digest } = fresh(&format!("t{count}"));
        state.tokens.insert(id.clone(), ApiTokenRecord { family: id.clone(), id, digest, ..first.clone() });
    }
    assert_eq!(state.check(), Ok(()));
    let more = |when| move |state: &mut State| state.mint(&actor("user:ada@owner"), plain(), fresh("more"), when);
    assert_eq!(refused(&state, more(at(0))), Refusal::Full { what: "tokens", most: 10_000 });
    let later = i64::try_from(91 * DAY).unwrap();
    assert_eq!(done(&mut state, more(at(later))).pruned.len(), MOST_TOKENS);
}

fn channel(name: &str) -> Option<Channel> {
    Some(Channel::parse(name).unwrap())
}

#[test]
fn a_token_keeps_its_channel_when_another_takes_over() {
    let mut state = alone();
    let new = NewToken { channel: channel("ci"), ..token("agent:claude", [Scope::CallsCreate]) };
    assert_eq!(done(&mut state, mint("user:ada@owner", new)).channel, channel("ci"));
    let rotation = TokenRotation { id: token_id("t"), overlap: Duration::ZERO, lifetime: None };
    done(&mut state, |state| state.rotate(&actor("user:ada@owner"), rotation, fresh("two"), at(1)));
    assert_eq!(state.token(&token_id("two")).unwrap().channel, channel("ci"));
}

#[test]
fn no_token_is_bound_to_what_stands_for_a_surface_however_it_is_spelt() {
    for surface in SURFACES.iter().map(|surface| (*surface).to_owned()).chain(["CLI".to_owned(), "Hook".to_owned()]) {
        let new = NewToken { channel: channel(&surface), ..token("agent:claude", [Scope::CallsCreate]) };
        let refusal = Refusal::Surface(Channel::parse(&surface).unwrap());
        assert_eq!(refused(&alone(), mint("user:ada@owner", new)), refusal);
    }
}

#[test]
fn a_token_gets_hold_of_none_that_is_outside_of_its_channel() {
    let state = with_manager(alone(), |new| NewToken { channel: channel("ci"), ..new });
    let manager = using(&state, "user:ada@owner", "manager");
    let mint = |wanted: Option<Channel>| {
        let by = manager.clone();
        let plain = token("agent:claude", [Scope::CallsCreate]);
        let new = NewToken { channel: wanted, lifetime: minutes(1), ..plain };
        move |state: &mut State| state.mint(&by, new, fresh("t"), at(1))
    };
    assert_eq!(refused(&state, mint(channel("desk"))), Refusal::OtherChannel(Channel::parse("ci").unwrap()));
    for wanted in [None, channel("ci")] {
        let mut state = state.clone();
        assert_eq!(done(&mut state, mint(wanted)).channel, channel("ci"));
    }
    let mut state = state;
    let free = token("agent:claude", [Scope::CallsCreate]);
    state.mint(&actor("user:ada@owner"), free, fresh("free"), at(1)).unwrap();
    let rotation = TokenRotation { id: token_id("free"), overlap: Duration::ZERO, lifetime: None };
    let rotate = |state: &mut State| state.rotate(&manager, rotation, fresh("two"), at(2));
    assert_eq!(refused(&state, rotate), Refusal::OtherChannel(Channel::parse("ci").unwrap()));
}
