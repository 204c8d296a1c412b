//! Finding whoever holds a credential, and with what effect.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_access::{
    Actor, Credential, DeviceRefusal, DeviceRevocation, Ended, Extent, FeatureFlag, Malformed, Membership,
    MissingScope, NewToken, Scope, Snapshot, Switch, TokenKind, TokenRefusal, TokenRevocation, TokenRotation, document,
};
use palyra_types::{Sha256Digest, TokenId, WorkspaceRole};

use super::lab::{Disk, Lab, actor, at, device, only, open, principal, token, user};

#[tokio::test]
async fn a_token_is_found_with_everything_that_counts() {
    let lab = Lab::team().await;
    let new = NewToken {
        role: Some(WorkspaceRole::Operator),
        workspaces: only(["web"]),
        ..token("user:bea", [Scope::JournalRead, Scope::CallsCreate])
    };
    let (text, id) = lab.mint("user:bea@admin", new).await;
    let holder = lab.registry.by_token(&text).unwrap();
    assert_eq!(holder.principal, principal("user:bea@operator"));
    assert_eq!(holder.membership, only(["web"]));
    assert_eq!(holder.credential, Credential::Token(id));
    assert_eq!(holder.scopes.as_deref(), Some(&BTreeSet::from([Scope::JournalRead, Scope::CallsCreate])));
    assert_eq!((&holder.minted_by, holder.expires), (&Some(principal("user:bea")), at(60)));
    assert!(holder.limits.is_some());
    assert_eq!(holder.needs(Scope::JournalRead), Ok(()));
    assert_eq!(holder.needs(Scope::EventsRead), Err(MissingScope { scope: Scope::EventsRead }));
    let again = lab.registry.by_token(&text).unwrap();
    assert!(Arc::ptr_eq(&holder, &again), "nothing is made for a request");
}

#[tokio::test]
async fn a_device_is_found_with_everything_that_counts() {
    let lab = Lab::team().await;
    let (key, id) = lab.pair("user:ada@owner", "laptop", "user:bea", Some(WorkspaceRole::Admin)).await;
    let (robots, _) = lab.pair("user:ada@owner", "robot", "agent:claude", None).await;
    lab.change(|state, _| state.set_workspaces(&actor("user:ada@owner"), &user("bea"), only(["web"]))).await;
    let holder = lab.registry.by_device_key(&key).unwrap();
    assert_eq!(holder.principal, principal("user:bea@admin"));
    assert_eq!((&holder.membership, &holder.credential), (&only(["web"]), &Credential::Device(id)));
    assert!(holder.scopes.is_none() && holder.limits.is_none() && holder.minted_by.is_none());
    assert_eq!((holder.expires, holder.needs(Scope::PolicyWrite)), (at(86_400), Ok(())));
    let robot = lab.registry.by_device_key(&robots).unwrap();
    assert_eq!((&robot.principal, &robot.membership), (&principal("agent:claude"), &Membership::All));
}

#[tokio::test]
async fn an_agents_device_has_no_more_workspaces_than_whoever_paired_it() {
    let lab = Lab::team().await;
    let ada = actor("user:ada@owner");
    let (robots, _) = lab.pair("user:bea@admin", "robot", "agent:claude", None).await;
    let (webs, _) = lab.pair("user:bea@admin", "web", "service:web", None).await;
    let membership = |key| lab.registry.by_device_key(&key).unwrap().membership.clone();
    assert_eq!([membership(robots), membership(webs)], [Membership::All, Membership::All]);
    lab.change(|state, _| state.set_workspaces(&ada, &user("bea"), only(["shop"]))).await;
    assert_eq!([membership(robots), membership(webs)], [only(["shop"]), only(["shop"])]);
}

#[tokio::test]
async fn whoever_asks_by_a_token_is_told_with_it() {
    let lab = Lab::team().await;
    let new = NewToken { workspaces: only(["web"]), ..token("user:bea", [Scope::CallsCreate]) };
    let (text, id) = lab.mint("user:bea@admin", new).await;
    let (laptop, _) = lab.pair("user:ada@owner", "laptop", "user:bea", Some(WorkspaceRole::Admin)).await;
    let expected = Actor {
        principal: principal("user:bea"),
        scopes: Some(BTreeSet::from([Scope::CallsCreate])),
        token: Some(id),
        membership: only(["web"]),
    };
    assert_eq!(Actor::from(&*lab.registry.by_token(&text).unwrap()), expected);
    assert_eq!(Actor::from(&*lab.registry.by_device_key(&laptop).unwrap()), actor("user:bea@admin"));
}

#[tokio::test]
async fn each_token_that_is_not_good_is_refused_for_its_own_reason() {
    let lab = Lab::team().await;
    let ada = actor("user:ada@owner");
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    let by_token = |text: &str| lab.registry.by_token(text).map(|_| ()).unwrap_err();
    let (unknown, _) = lab.fresh(TokenKind::Agent);
    assert_eq!(by_token(&unknown), TokenRefusal::Unknown);
    assert_eq!(by_token("plr_agent_x"), TokenRefusal::Malformed(Malformed::Length));
    assert_eq!(by_token(&unknown.replace("agent", "user")), TokenRefusal::Malformed(Malformed::Checksum));

    let (revoked, id) = lab.mint("user:ada@owner", plain()).await;
    let revocation = TokenRevocation { id: id.clone(), extent: Extent::One, why: String::new() };
    assert!(lab.registry.is_good(&Credential::Token(id.clone())));
    lab.change(|state, at| state.revoke_token(&ada, revocation, at)).await;
    assert_eq!(by_token(&revoked), TokenRefusal::Revoked { at: at(0) });
    assert!(!lab.registry.is_good(&Credential::Token(id)));

    let (old, old_id) = lab.mint("user:ada@owner", plain()).await;
    let (new, fresh) = lab.fresh(TokenKind::Agent);
    let overlap = Duration::from_secs(600);
    let rotation = TokenRotation { id: old_id.clone(), overlap, lifetime: None };
    lab.change(|state, at| state.rotate(&ada, rotation, fresh, at)).await;
    assert!(lab.registry.by_token(&old).is_ok() && lab.registry.by_token(&new).is_ok(), "side by side for a while");
    lab.clock.advance(600_000);
    assert_eq!(by_token(&old), TokenRefusal::Superseded { at: at(10) });
    assert!(lab.registry.by_token(&new).is_ok() && !lab.registry.is_good(&Credential::Token(old_id)));

    let (beas, _) = lab.mint("user:bea@admin", plain()).await;
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::TeamMode, Switch::Off)).await;
    assert_eq!(by_token(&beas), TokenRefusal::MinterGone);
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::ApiTokens, Switch::Off)).await;
    assert_eq!((by_token(&new), by_token(&unknown)), (TokenRefusal::Off, TokenRefusal::Off));
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::ApiTokens, Switch::On)).await;
    lab.clock.advance(50 * 60_000);
    assert_eq!(by_token(&new), TokenRefusal::Expired { at: at(60) });
}

#[tokio::test]
async fn each_device_that_is_not_good_is_refused_for_its_own_reason() {
    let lab = Lab::team().await;
    let ada = actor("user:ada@owner");
    let by_key = |id: &str| lab.registry.by_device_key(&Sha256Digest::of(id.as_bytes())).map(|_| ()).unwrap_err();
    assert_eq!(by_key("unknown"), DeviceRefusal::Unknown);
    let waiting = device("waiting", "user:ada", Some(WorkspaceRole::Owner));
    lab.change(|state, at| state.add_device(&ada, waiting, at)).await;
    assert_eq!(by_key("waiting"), DeviceRefusal::Awaiting);
    let (_, lost) = lab.pair("user:ada@owner", "lost", "user:bea", Some(WorkspaceRole::Admin)).await;
    let (beas, _) = lab.pair("user:ada@owner", "beas", "user:bea", Some(WorkspaceRole::Admin)).await;
    let revocation =
        DeviceRevocation { id: lost.clone(), why: String::new(), even_the_last: false, cut_off: BTreeSet::new() };
    lab.change(|state, at| state.revoke_device(&ada, revocation, at)).await;
    assert_eq!(by_key("lost"), DeviceRefusal::Revoked { at: at(0) });
    assert!(!lab.registry.is_good(&Credential::Device(lost)));
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::DevicePairing, Switch::Off)).await;
    assert!(lab.registry.by_device_key(&beas).is_ok(), "what is paired goes on");
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::TeamMode, Switch::Off)).await;
    assert_eq!(by_key("beas"), DeviceRefusal::Off(FeatureFlag::TeamMode));
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::TeamMode, Switch::On)).await;
    lab.clock.set_wall(at(86_400));
    assert_eq!(by_key("beas"), DeviceRefusal::Expired { at: at(86_400) });
}

#[tokio::test]
async fn a_demotion_bounds_the_credentials_that_there_are() {
    let lab = Lab::team().await;
    let ada = actor("user:ada@owner");
    let own = NewToken {
        role: Some(WorkspaceRole::Admin),
        ..token("user:bea", [Scope::PolicyWrite, Scope::JournalRead, Scope::CallsCreate])
    };
    let (own, _) = lab.mint("user:bea@admin", own).await;
    let (service, _) = lab.mint("user:bea@admin", token("service:web", [Scope::EventsRead, Scope::CallsCreate])).await;
    let (laptop, _) = lab.pair("user:ada@owner", "laptop", "user:bea", Some(WorkspaceRole::Admin)).await;
    let scopes = |text: &str| lab.registry.by_token(text).unwrap().scopes.as_deref().cloned().unwrap();
    lab.change(|state, _| state.set_role(&ada, &user("bea"), WorkspaceRole::Operator)).await;
    assert_eq!(lab.registry.by_token(&own).unwrap().principal, principal("user:bea@operator"));
    assert_eq!(lab.registry.by_device_key(&laptop).unwrap().principal, principal("user:bea@operator"));
    assert_eq!(scopes(&own), BTreeSet::from([Scope::JournalRead, Scope::CallsCreate]));
    assert_eq!(scopes(&service), BTreeSet::from([Scope::EventsRead, Scope::CallsCreate]));
    lab.change(|state, _| state.set_role(&ada, &user("bea"), WorkspaceRole::Admin)).await;
    assert_eq!(lab.registry.by_token(&own).unwrap().principal, principal("user:bea@admin"));
    lab.change(|state, _| state.set_workspaces(&ada, &user("bea"), only(["web"]))).await;
    assert_eq!(lab.registry.by_token(&service).unwrap().membership, only(["web"]));
}

#[tokio::test]
async fn without_rbac_roles_below_owner_and_what_needs_them_do_not_count() {
    let lab = Lab::new();
    let ada = actor("user:ada@owner");
    let with = |role| NewToken { role: Some(role), ..token("user:ada", [Scope::JournalRead, Scope::CallsCreate]) };
    let (lesser, _) = lab.mint("user:ada@owner", with(WorkspaceRole::Operator)).await;
    let (full, _) = lab.mint("user:ada@owner", with(WorkspaceRole::Owner)).await;
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::Rbac, Switch::Off)).await;
    let lesser = lab.registry.by_token(&lesser).unwrap();
    assert_eq!(lesser.principal, principal("user:ada"));
    assert_eq!(lesser.scopes.as_deref(), Some(&BTreeSet::from([Scope::CallsCreate])));
    let full = lab.registry.by_token(&full).unwrap();
    assert_eq!(full.principal, principal("user:ada@owner"));
    assert_eq!(full.needs(Scope::JournalRead), Ok(()));
}

#[tokio::test]
async fn a_scope_counts_while_its_feature_is_on() {
    let lab = Lab::new();
    let ada = actor("user:ada@owner");
    let (lab, ada) = (&lab, &ada);
    let switch = |to| lab.change(move |state, _| state.set_feature(ada, FeatureFlag::CompatApi, to));
    switch(Switch::On).await;
    let new = token("agent:claude", [Scope::CompatChatCreate, Scope::CallsCreate]);
    let (text, _) = lab.mint("user:ada@owner", new).await;
    let scope = Scope::CompatChatCreate;
    assert_eq!(lab.registry.by_token(&text).unwrap().needs(scope), Ok(()));
    switch(Switch::Off).await;
    assert_eq!(lab.registry.by_token(&text).unwrap().needs(scope), Err(MissingScope { scope }));
}

#[tokio::test]
async fn whoever_is_removed_holds_nothing_any_more() {
    let lab = Lab::team().await;
    let (text, _) = lab.mint("user:bea@admin", token("agent:claude", [Scope::CallsCreate])).await;
    let (key, _) = lab.pair("user:ada@owner", "laptop", "user:bea", Some(WorkspaceRole::Admin)).await;
    lab.change(|state, at| state.remove_member(&actor("user:ada@owner"), &user("bea"), at)).await;
    assert_eq!(lab.registry.by_token(&text).unwrap_err(), TokenRefusal::Revoked { at: at(0) });
    assert_eq!(lab.registry.by_device_key(&key).unwrap_err(), DeviceRefusal::Revoked { at: at(0) });
}

#[tokio::test]
async fn what_a_change_took_away_is_told_and_what_ended_by_itself_is_not() {
    let lab = Lab::team().await;
    let ada = actor("user:ada@owner");
    let plain = || token("agent:claude", [Scope::CallsCreate]);
    let (_, short) = lab.mint("user:ada@owner", plain()).await;
    let (_, long) = lab.mint("user:bea@admin", NewToken { lifetime: Duration::from_secs(86_400), ..plain() }).await;
    let (_, laptop) = lab.pair("user:ada@owner", "laptop", "user:bea", Some(WorkspaceRole::Admin)).await;
    let (_, mine) = lab.pair("user:ada@owner", "mine", "user:ada", Some(WorkspaceRole::Owner)).await;
    let ended = |before: &Snapshot| lab.registry.snapshot().ended_since(before, lab.now());

    let before = lab.registry.snapshot();
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::TeamMode, Switch::Off)).await;
    assert_eq!(ended(&before), Ended { devices: [laptop].into(), tokens: [long.clone()].into() });
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::TeamMode, Switch::On)).await;

    let before = lab.registry.snapshot();
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::ApiTokens, Switch::Off)).await;
    assert_eq!(ended(&before), Ended { tokens: [short.clone(), long.clone()].into(), ..Ended::default() });
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::ApiTokens, Switch::On)).await;

    let before = lab.registry.snapshot();
    let (overlap, lifetime) = (Duration::ZERO, None);
    let (_, fresh) = lab.fresh(TokenKind::Agent);
    let rotation = TokenRotation { id: long.clone(), overlap, lifetime };
    lab.change(|state, at| state.rotate(&ada, rotation, fresh, at)).await;
    assert_eq!(ended(&before), Ended { tokens: [long].into(), ..Ended::default() }, "it is taken over from at once");

    let before = lab.registry.snapshot();
    lab.clock.advance(3_600_000);
    lab.change(|state, _| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On)).await;
    assert!(ended(&before).is_empty(), "{short} ran out by itself, and {mine} counts as before");
}

#[tokio::test]
async fn a_lookup_costs_the_same_among_ten_tokens_and_among_ten_thousand() {
    let lab = Lab::new();
    let mut texts = Vec::new();
    for _ in 0..10 {
        texts.push(lab.mint("user:ada@owner", token("agent:claude", [Scope::CallsCreate])).await.0);
    }
    let crowd = open(Disk::holding(&crowded(&lab, 10_000)), &lab.clock);
    assert_eq!(crowd.snapshot().state().tokens().len(), 10_000);
    let cost = |registry: &palyra_access::AccessRegistry| {
        let round = || {
            let start = Instant::now();
            for _ in 0..20 {
                assert!(texts.iter().all(|text| registry.by_token(text).is_ok()));
            }
            start.elapsed()
        };
        // The best of many rounds: what is measured is the lookup, not who else uses the machine.
        (0..50).map(|_| round()).min().unwrap()
    };
    let (few, many) = (cost(&lab.registry), cost(&crowd));
    assert!(many < few * 3, "{few:?} among few, {many:?} among many");
}

/// The document of a registry, with so many tokens.
fn crowded(lab: &Lab, count: usize) -> Vec<u8> {
    let document: serde_json::Value = serde_json::from_slice(&lab.disk.document()).unwrap();
    let mut registry = document["registry"].clone();
    let tokens = registry["tokens"].as_array_mut().unwrap();
    let one = tokens[0].clone();
    for count in tokens.len()..count {
        let (id, mut token) = (TokenId::parse(&format!("t{count}")).unwrap(), one.clone());
        token["id"] = id.as_str().into();
        token["family"] = id.as_str().into();
        token["digest"] = Sha256Digest::of(id.as_str().as_bytes()).to_hex().into();
        tokens.push(token);
    }
    let document = super::documents::sealed(&registry);
    assert!(document::decode(&document).is_ok());
    document
}
