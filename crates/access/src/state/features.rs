//! Switching features.

use palyra_types::WorkspaceRole;

use super::{State, authority::reaches};
use crate::{
    actor::Actor,
    change::FeatureSet,
    error::Refusal,
    feature::{FeatureFlag, Switch},
    member::Membership,
    scope::Scope,
};

impl State {
    /// How a feature is set.
    #[must_use]
    pub fn feature(&self, feature: FeatureFlag) -> Switch {
        self.features.get(&feature).copied().unwrap_or(feature.by_default())
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn is_on(&self, feature: FeatureFlag) -> bool {
        self.feature(feature).is_on()
    }

    /// Every feature and how it is set.
    pub fn features(&self) -> impl Iterator<Item = (FeatureFlag, Switch)> {
        FeatureFlag::ALL.iter().map(|&feature| (feature, self.feature(feature)))
    }

    /// Switches a feature, for all workspaces. Needs an admin of all of them.
    ///
    /// # Errors
    /// When whoever asks stands too low or is bound to some workspaces, or a feature would be on without the one it needs.
    pub fn set_feature(&mut self, by: &Actor, feature: FeatureFlag, to: Switch) -> Result<FeatureSet, Refusal> {
        let role = self.authorise(by, Scope::DaemonConfigure)?;
        reaches(role, WorkspaceRole::Admin)?;
        self.gives(by, &Membership::All)?;
        let from = self.feature(feature);
        match to {
            Switch::On => {
                if let Some(needs) = feature.needs().filter(|&needs| !self.is_on(needs)) {
                    return Err(Refusal::FeatureNeeds { feature, needs });
                }
            }
            Switch::Off => {
                let needing =
                    FeatureFlag::ALL.iter().find(|other| other.needs() == Some(feature) && self.is_on(**other));
                if let Some(&needing) = needing {
                    return Err(Refusal::FeatureNeeds { feature: needing, needs: feature });
                }
            }
        }
        self.features.insert(feature, to);
        Ok(FeatureSet { feature, from, to })
    }
}
