//! The schema, and the Cedar names that every request is made of, parsed once.
//!
//! Guarantees: nothing here is parsed per request; every word of the vocabulary in `palyra-types` has its Cedar name.

use std::{
    collections::HashMap,
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
};

use cedar_policy::{
    Entities, EntityId, EntityTypeName, EntityUid, RestrictedExpression, Schema, ValidationMode, Validator,
};
use palyra_types::{
    Action, EgressEnforcementMode, ObjectKind, Posture, PrincipalKind, SandboxTier, Timestamp, ToolCapability,
    WorkspaceRole,
};

/// The text of the schema.
pub const SCHEMA_SRC: &str = include_str!("../../../policies/palyra.cedarschema");

/// Why the embedded schema cannot be used. It is part of the program, so this is a broken build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    /// The schema does not parse.
    #[error("the built-in schema is broken: {0}")]
    Schema(String),
    /// The schema and the vocabulary disagree.
    #[error("the built-in schema does not know {0}")]
    Missing(String),
}

/// The schema and the names that requests are built from.
pub(crate) struct Vocabulary {
    validator: Validator,
    user: EntityTypeName,
    agent: EntityTypeName,
    service: EntityTypeName,
    pub(crate) tool: EntityTypeName,
    pub(crate) tool_group: EntityTypeName,
    pub(crate) skill: EntityTypeName,
    pub(crate) secret: EntityTypeName,
    pub(crate) secret_scope: EntityTypeName,
    pub(crate) path: EntityTypeName,
    pub(crate) host: EntityTypeName,
    pub(crate) workspace: EntityTypeName,
    objects: HashMap<ObjectKind, EntityTypeName>,
    roles: HashMap<WorkspaceRole, EntityUid>,
    actions: HashMap<Action, ActionName>,
    postures: HashMap<Posture, RestrictedExpression>,
    tiers: HashMap<SandboxTier, RestrictedExpression>,
    egress: HashMap<EgressEnforcementMode, RestrictedExpression>,
    capabilities: HashMap<ToolCapability, RestrictedExpression>,
    last_second: RwLock<Option<(i64, RestrictedExpression)>>,
}

/// An action's Cedar name, the groups it is in, the resources it is about, and its entity alone.
pub(crate) struct ActionName {
    pub(crate) uid: EntityUid,
    pub(crate) groups: Vec<EntityUid>,
    pub(crate) resources: Vec<EntityTypeName>,
    pub(crate) entities: Entities,
}

impl Vocabulary {
    /// Parses the schema and looks every name up.
    pub(crate) fn load() -> Result<Arc<Self>, VocabularyError> {
        let (schema, warnings) =
            Schema::from_cedarschema_str(SCHEMA_SRC).map_err(|error| VocabularyError::Schema(describe(&error)))?;
        if let Some(warning) = warnings.into_iter().next() {
            return Err(VocabularyError::Schema(warning.to_string()));
        }
        let action_entities = schema.action_entities().map_err(|error| VocabularyError::Schema(describe(&error)))?;
        let mut actions = HashMap::new();
        for &action in Action::ALL {
            let uid = uid(&type_name("Palyra::Action")?, action.as_str());
            let missing = || VocabularyError::Missing(format!("the action `{action}`"));
            let entity = action_entities.get(&uid).ok_or_else(missing)?.clone();
            let entities =
                Entities::from_entities([entity], None).map_err(|error| VocabularyError::Schema(error.to_string()))?;
            let groups = action_entities.ancestors(&uid).ok_or_else(missing)?.cloned().collect();
            let resources = schema.resources_for_action(&uid).ok_or_else(missing)?.cloned().collect();
            actions.insert(action, ActionName { uid, groups, resources, entities });
        }
        let objects = ObjectKind::ALL
            .iter()
            .map(|&kind| Ok((kind, type_name(object_type(kind))?)))
            .collect::<Result<_, VocabularyError>>()?;
        Ok(Arc::new(Self {
            user: type_name("Palyra::User")?,
            agent: type_name("Palyra::Agent")?,
            service: type_name("Palyra::Service")?,
            tool: type_name("Palyra::Tool")?,
            tool_group: type_name("Palyra::ToolGroup")?,
            skill: type_name("Palyra::Skill")?,
            secret: type_name("Palyra::Secret")?,
            secret_scope: type_name("Palyra::SecretScope")?,
            path: type_name("Palyra::Path")?,
            host: type_name("Palyra::Host")?,
            workspace: type_name("Palyra::Workspace")?,
            objects,
            roles: uids("Palyra::Role", WorkspaceRole::ALL, |role| role.as_str())?,
            actions,
            postures: values("Palyra::Posture", Posture::ALL, |posture| posture.as_str())?,
            tiers: values("Palyra::Tier", SandboxTier::ALL, |tier| tier.as_str())?,
            egress: values("Palyra::Egress", EgressEnforcementMode::ALL, |mode| mode.as_str())?,
            capabilities: values("Palyra::Capability", ToolCapability::ALL, |capability| capability.as_str())?,
            last_second: RwLock::new(None),
            validator: Validator::new(schema),
        }))
    }

    /// The Cedar type of a kind of principal.
    pub(crate) const fn principal(&self, kind: PrincipalKind) -> &EntityTypeName {
        match kind {
            PrincipalKind::User => &self.user,
            PrincipalKind::Agent => &self.agent,
            PrincipalKind::Service => &self.service,
        }
    }

    /// The Cedar type of a kind of object.
    pub(crate) fn object(&self, kind: ObjectKind) -> Option<&EntityTypeName> {
        self.objects.get(&kind)
    }

    /// The Cedar name of a role.
    pub(crate) fn role(&self, role: WorkspaceRole) -> Option<&EntityUid> {
        self.roles.get(&role)
    }

    /// The Cedar name of an action.
    pub(crate) fn action(&self, action: Action) -> Option<&ActionName> {
        self.actions.get(&action)
    }

    /// The Cedar value of a posture.
    pub(crate) fn posture(&self, posture: Posture) -> Option<RestrictedExpression> {
        self.postures.get(&posture).cloned()
    }

    /// The Cedar value of a tier.
    pub(crate) fn tier(&self, tier: SandboxTier) -> Option<RestrictedExpression> {
        self.tiers.get(&tier).cloned()
    }

    /// The Cedar value of an egress mode.
    pub(crate) fn egress(&self, mode: EgressEnforcementMode) -> Option<RestrictedExpression> {
        self.egress.get(&mode).cloned()
    }

    /// The Cedar value of a capability.
    pub(crate) fn capability(&self, capability: ToolCapability) -> Option<RestrictedExpression> {
        self.capabilities.get(&capability).cloned()
    }

    /// The Cedar value of a time, in whole seconds. Cedar parses each date it is given, so the last second is kept.
    pub(crate) fn datetime(&self, time: Timestamp) -> RestrictedExpression {
        let second = time.unix_millis().div_euclid(1000);
        if let Some((kept, value)) = &*self.last_second.read().unwrap_or_else(PoisonError::into_inner)
            && *kept == second
        {
            return value.clone();
        }
        let time = Timestamp::from_unix_millis(second.saturating_mul(1000));
        let value = RestrictedExpression::new_datetime(time.to_string());
        *self.last_second.write().unwrap_or_else(PoisonError::into_inner) = Some((second, value.clone()));
        value
    }

    /// Strict validation, the only kind there is.
    pub(crate) fn validate(&self, set: &cedar_policy::PolicySet) -> cedar_policy::ValidationResult {
        self.validator.validate(set, ValidationMode::Strict)
    }
}

/// A Cedar name from a type and an id.
pub(crate) fn uid(of: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(of.clone(), EntityId::new(id))
}

/// The type that an object kind has in the schema.
const fn object_type(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Session => "Palyra::Session",
        ObjectKind::CronJob => "Palyra::CronJob",
        ObjectKind::Memory => "Palyra::Memory",
        ObjectKind::Daemon => "Palyra::Daemon",
        ObjectKind::Workspace => "Palyra::Workspace",
        ObjectKind::Approval => "Palyra::Approval",
        ObjectKind::PolicySet => "Palyra::PolicySet",
        ObjectKind::Device => "Palyra::Device",
        ObjectKind::Token => "Palyra::Token",
        ObjectKind::Member => "Palyra::Member",
        ObjectKind::Journal => "Palyra::Journal",
        ObjectKind::McpServer => "Palyra::McpServer",
    }
}

fn type_name(name: &str) -> Result<EntityTypeName, VocabularyError> {
    EntityTypeName::from_str(name).map_err(|_| VocabularyError::Missing(format!("the type `{name}`")))
}

fn uids<T: Copy + Eq + std::hash::Hash>(
    of: &str,
    all: &[T],
    word: impl Fn(T) -> &'static str,
) -> Result<HashMap<T, EntityUid>, VocabularyError> {
    let of = type_name(of)?;
    Ok(all.iter().map(|&value| (value, uid(&of, word(value)))).collect())
}

fn values<T: Copy + Eq + std::hash::Hash>(
    of: &str,
    all: &[T],
    word: impl Fn(T) -> &'static str,
) -> Result<HashMap<T, RestrictedExpression>, VocabularyError> {
    let uids = uids(of, all, word)?;
    Ok(uids.into_iter().map(|(value, uid)| (value, RestrictedExpression::new_entity_uid(uid))).collect())
}

/// An error with everything it says.
fn describe(error: &dyn miette::Diagnostic) -> String {
    match error.help() {
        Some(help) => format!("{error} ({help})"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_schema_and_the_vocabulary_name_the_same_actions() {
        let vocabulary = Vocabulary::load().unwrap();
        let groups: BTreeSet<_> =
            vocabulary.validator.schema().action_groups().map(|uid| uid.id().unescaped().to_owned()).collect();
        let declared: BTreeSet<_> = vocabulary
            .validator
            .schema()
            .actions()
            .map(|uid| uid.id().unescaped().to_owned())
            .filter(|action| !groups.contains(action))
            .collect();
        let known: BTreeSet<_> = Action::ALL.iter().map(|action| action.as_str().to_owned()).collect();
        assert_eq!(declared, known);
    }

    #[test]
    fn the_schema_calls_the_same_actions_sensitive_as_the_vocabulary() {
        let vocabulary = Vocabulary::load().unwrap();
        for &action in Action::ALL {
            let in_group =
                vocabulary.action(action).unwrap().groups.iter().any(|group| group.id().unescaped() == "sensitive");
            assert_eq!(in_group, action.is_sensitive(), "{action}");
        }
    }
}
