//! What policies look at in the context, so that only that is built for them.
//!
//! Guarantees: an attribute that is left out is one that no policy of the slice names, so its absence changes nothing. A policy that
//! uses `context` as a whole demands everything.

use cedar_policy::pst::{Clause, Expr, Template};
use palyra_types::word::words;

use crate::tree::{children, is_context};

words! {
    /// The attributes of the context, as the schema spells them.
    pub(crate) enum ContextKey ("attribute of the context") {
        DeviceId = "device_id",
        Channel = "channel",
        SessionId = "session_id",
        RunId = "run_id",
        TokenId = "token_id",
        OnBehalfOf = "on_behalf_of",
        Now = "now",
        ToolName = "tool_name",
        SkillId = "skill_id",
        Capabilities = "capabilities",
        Workspace = "workspace",
        Process = "process",
        Port = "port",
        Posture = "posture",
        Tier = "tier",
        Egress = "egress",
        Elsewhere = "elsewhere",
        Role = "role",
        Approved = "approved",
        AllowSensitiveTools = "allow_sensitive_tools",
        SensitiveAction = "sensitive_action",
        Allowlisted = "allowlisted",
        PrincipalAuthorized = "principal_authorized",
        ChannelAuthorized = "channel_authorized",
        Member = "member",
        Configured = "configured",
        Bound = "bound",
        InScope = "in_scope",
        RunsPalyra = "runs_palyra",
        TouchesState = "touches_state",
    }
}

/// A set of context attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demands(u32);

impl Demands {
    /// Nothing.
    pub(crate) const NONE: Self = Self(0);
    /// The whole context.
    pub(crate) const ALL: Self = Self(u32::MAX);

    /// What one policy looks at.
    pub(crate) fn of(policy: &Template) -> Self {
        policy.clauses().iter().fold(Self::NONE, |demands, clause| match clause {
            Clause::When(expr) | Clause::Unless(expr) => demands.and(Self::of_condition(expr)),
        })
    }

    /// What one condition looks at.
    pub(crate) fn of_condition(expr: &Expr) -> Self {
        let named = |name: &str| ContextKey::parse(name).map_or(Self::ALL, |key| Self(bit(key)));
        match expr {
            Expr::GetAttr { expr, attr } if is_context(expr) => named(attr),
            Expr::HasAttr { expr, attrs } if is_context(expr) => named(attrs.first()),
            expr if is_context(expr) => Self::ALL,
            other => {
                children(other).into_iter().fold(Self::NONE, |demands, part| demands.and(Self::of_condition(part)))
            }
        }
    }

    /// These attributes.
    pub(crate) const fn of_keys(keys: &[ContextKey]) -> Self {
        let (mut bits, mut rest) = (0, keys);
        while let [key, others @ ..] = rest {
            bits |= bit(*key);
            rest = others;
        }
        Self(bits)
    }

    /// Both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both demand.
    pub(crate) const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the other demands all of it, too.
    pub(crate) const fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether this attribute is demanded.
    pub(crate) const fn contains(self, key: ContextKey) -> bool {
        self.0 & bit(key) != 0
    }

    /// The attributes demanded.
    pub(crate) fn keys(self) -> impl Iterator<Item = ContextKey> {
        ContextKey::ALL.iter().copied().filter(move |&key| self.contains(key))
    }
}

const fn bit(key: ContextKey) -> u32 {
    1 << key as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cedar_policy::{Policy, SchemaFragment, pst};

    use super::*;
    use crate::vocabulary::SCHEMA_SRC;

    fn demands_of(condition: &str) -> Demands {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        match Policy::parse(None, text).unwrap().to_pst().unwrap() {
            pst::Policy::Static(policy) => Demands::of(policy.body()),
            other => panic!("not static: {other}"),
        }
    }

    #[test]
    fn the_schema_and_the_engine_name_the_same_attributes() {
        let (fragment, _) = SchemaFragment::from_cedarschema_str(SCHEMA_SRC).unwrap();
        let schema = fragment.to_json_value().unwrap();
        let declared = schema["Palyra"]["commonTypes"]["Context"]["attributes"].as_object().unwrap();
        let declared: BTreeSet<_> = declared.keys().map(String::as_str).collect();
        assert_eq!(declared, ContextKey::ALL.iter().map(|key| key.as_str()).collect());
    }

    #[test]
    fn a_policy_demands_what_it_names_however_deep() {
        let demands = demands_of(
            "context has process.arg1 && [context.process.arg1].contains(\"x\") || !(context.tier == T::\"c\")",
        );
        assert_eq!(demands.keys().collect::<Vec<_>>(), [ContextKey::Process, ContextKey::Tier]);
        assert_eq!(demands_of("principal.channel == \"x\"").keys().count(), 0);
    }

    #[test]
    fn the_context_as_a_whole_demands_everything() {
        for condition in ["{a: context}.a.approved", "context == {}", "[context].contains({})"] {
            assert_eq!(demands_of(condition), Demands::ALL, "{condition}");
        }
    }
}
