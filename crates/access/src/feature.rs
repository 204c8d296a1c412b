//! Feature flags: the parts of the daemon that are switched on or off as a whole.
//!
//! Guarantees: a flag has one name, one sentence and one setting that holds where nothing was said. Does not: switch anything; that is a
//! change of the registry's state.

use palyra_types::word::words;

words! {
    /// A part of the daemon that can be switched on and off.
    pub enum FeatureFlag ("feature") {
        /// Members besides the owner.
        TeamMode = "team_mode",
        /// Roles below owner.
        Rbac = "rbac",
        /// Pairing of new devices.
        DevicePairing = "device_pairing",
        /// API tokens.
        ApiTokens = "api_tokens",
        /// The routes that other products' clients speak.
        CompatApi = "compat_api",
        /// The gateway between MCP clients and MCP servers.
        McpGateway = "mcp_gateway",
    }
}

words! {
    /// How a feature is set.
    pub enum Switch ("setting of a feature") {
        /// Switched on.
        On = "on",
        /// Switched off.
        Off = "off",
    }
}

impl FeatureFlag {
    /// What it does, in a sentence.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::TeamMode => "People besides the owners can be invited and work here.",
            Self::Rbac => "The roles admin and operator count; without it only owners have a role.",
            Self::DevicePairing => "New devices can be paired; devices that are paired already work either way.",
            Self::ApiTokens => "API tokens can be minted and are accepted.",
            Self::CompatApi => "Programs written for other products' chat and responses routes can talk to the daemon.",
            Self::McpGateway => "MCP clients can use the tools here, and tools of MCP servers can be called.",
        }
    }

    /// How it is set where nobody said anything.
    #[must_use]
    pub const fn by_default(self) -> Switch {
        match self {
            Self::Rbac | Self::DevicePairing | Self::ApiTokens => Switch::On,
            Self::TeamMode | Self::CompatApi | Self::McpGateway => Switch::Off,
        }
    }

    /// The feature without which it cannot be on.
    #[must_use]
    pub const fn needs(self) -> Option<Self> {
        match self {
            Self::TeamMode => Some(Self::Rbac),
            _ => None,
        }
    }
}

impl Switch {
    /// Whether it is on.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// The name of [`FeatureFlag::TeamMode`].
pub const FEATURE_TEAM_MODE: &str = FeatureFlag::TeamMode.as_str();
/// The name of [`FeatureFlag::Rbac`].
pub const FEATURE_RBAC: &str = FeatureFlag::Rbac.as_str();
/// The name of [`FeatureFlag::DevicePairing`].
pub const FEATURE_DEVICE_PAIRING: &str = FeatureFlag::DevicePairing.as_str();
/// The name of [`FeatureFlag::ApiTokens`].
pub const FEATURE_API_TOKENS: &str = FeatureFlag::ApiTokens.as_str();
/// The name of [`FeatureFlag::CompatApi`].
pub const FEATURE_COMPAT_API: &str = FeatureFlag::CompatApi.as_str();
/// The name of [`FeatureFlag::McpGateway`].
pub const FEATURE_MCP_GATEWAY: &str = FeatureFlag::McpGateway.as_str();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_a_door_to_more_people_or_programs_is_off_until_somebody_says_so() {
        let on: Vec<_> = FeatureFlag::ALL.iter().filter(|flag| flag.by_default().is_on()).copied().collect();
        assert_eq!(on, [FeatureFlag::Rbac, FeatureFlag::DevicePairing, FeatureFlag::ApiTokens]);
    }

    #[test]
    fn the_names_are_the_ones_that_documents_hold() {
        let names = [
            FEATURE_TEAM_MODE,
            FEATURE_RBAC,
            FEATURE_DEVICE_PAIRING,
            FEATURE_API_TOKENS,
            FEATURE_COMPAT_API,
            FEATURE_MCP_GATEWAY,
        ];
        assert_eq!(names, ["team_mode", "rbac", "device_pairing", "api_tokens", "compat_api", "mcp_gateway"]);
        assert!(FeatureFlag::ALL.iter().all(|flag| names.contains(&flag.as_str())));
    }

    #[test]
    fn every_feature_says_what_it_does_in_a_sentence() {
        assert!(FeatureFlag::ALL.iter().all(|flag| flag.about().ends_with('.')));
    }
}
