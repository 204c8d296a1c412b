//! Switching features.

use super::*;
use crate::change::FeatureSet;

#[test]
fn features_are_as_by_default_until_somebody_says_otherwise() {
    let mut state = alone();
    assert!(state.features().all(|(feature, switch)| switch == feature.by_default()));
    let ada = actor("user:ada@owner");
    let set = done(&mut state, |state| state.set_feature(&ada, FeatureFlag::CompatApi, Switch::On));
    assert_eq!(set, FeatureSet { feature: FeatureFlag::CompatApi, from: Switch::Off, to: Switch::On });
    assert!(state.is_on(FeatureFlag::CompatApi));
}

#[test]
fn team_mode_needs_rbac_whichever_is_switched() {
    let mut state = alone();
    let ada = actor("user:ada@owner");
    let needs = Refusal::FeatureNeeds { feature: FeatureFlag::TeamMode, needs: FeatureFlag::Rbac };
    state.set_feature(&ada, FeatureFlag::TeamMode, Switch::On).unwrap();
    assert_eq!(refused(&state, |state| state.set_feature(&ada, FeatureFlag::Rbac, Switch::Off)), needs);
    state.set_feature(&ada, FeatureFlag::TeamMode, Switch::Off).unwrap();
    state.set_feature(&ada, FeatureFlag::Rbac, Switch::Off).unwrap();
    assert_eq!(refused(&state, |state| state.set_feature(&ada, FeatureFlag::TeamMode, Switch::On)), needs);
}

#[test]
fn only_an_admin_or_an_owner_switches_features() {
    let state = team();
    let switch = |by: Actor| move |state: &mut State| state.set_feature(&by, FeatureFlag::McpGateway, Switch::On);
    assert!(switch(actor("user:bea@admin"))(&mut state.clone()).is_ok());
    let needed = WorkspaceRole::Admin;
    assert_eq!(refused(&state, switch(actor("user:cid@operator"))), Refusal::Above { needed });
    assert_eq!(refused(&state, switch(actor("user:dan@owner"))), Refusal::NoRole);
    assert_eq!(refused(&state, switch(actor("agent:claude"))), Refusal::Agent);
    assert_eq!(refused(&state, switch(actor("service:web"))), Refusal::NoRole);
    let scope = Scope::DaemonConfigure;
    assert_eq!(
        refused(&state, switch(by_token("user:ada@owner", [Scope::PolicyWrite]))),
        Refusal::Scope(crate::MissingScope { scope })
    );
    assert!(switch(by_token("user:ada@owner", [scope]))(&mut state.clone()).is_ok());
}

#[test]
fn features_are_switched_for_all_workspaces_and_so_by_nobody_who_is_bound_to_some() {
    let state = bound_team();
    let switch = |by: Actor| move |state: &mut State| state.set_feature(&by, FeatureFlag::McpGateway, Switch::On);
    assert_eq!(refused(&state, switch(actor("user:bea@admin"))), Refusal::OutsideWorkspaces);
    let narrow = Actor { membership: only(["shop"]), ..by_token("user:ada@owner", [Scope::DaemonConfigure]) };
    assert_eq!(refused(&state, switch(narrow)), Refusal::OutsideWorkspaces, "through a credential for less");
    assert!(switch(actor("user:ada@owner"))(&mut state.clone()).is_ok());
}
