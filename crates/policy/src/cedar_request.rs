//! Turns a [`PolicyRequest`] into what Cedar evaluates: names, entities, and the two contexts (`approved` false and true).
//! Only what the policies of a slice can look at is built; see [`Demands`].
//!
//! Guarantees: what is built here conforms to the schema (a property test holds it to that), so requests need no validation at
//! run time. Hierarchies come from the ids themselves: a path is in its directories, a host in its domains, a tool in its groups.

use std::collections::HashMap;

use cedar_policy::{Context, Entities, Entity, EntityTypeName, EntityUid, Request, RestrictedExpression};
use palyra_types::{AbsolutePath, Action, Principal, PrincipalKind, Process, Resource};

use crate::{
    demand::{ContextKey, Demands},
    facts::{Facts, ProcessFacts},
    question::{Fact, fact_of},
    request::{PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext},
    vocabulary::{ActionName, Vocabulary, uid},
};

/// Why a request could not be put to Cedar. The decision is then a deny.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request names one tool and its context another.
    #[error("the request is about `{resource}` but its context says `{context}`")]
    Contradiction {
        /// What the resource says.
        resource: String,
        /// What the context says.
        context: String,
    },
    /// Something else than a user was named as the one acted for.
    #[error("`{0}` is no user; a call is made on behalf of a user")]
    NotAUser(String),
    /// The principal acts on behalf of itself, with other roles than its own.
    #[error("`{0}` is named twice, with different roles")]
    TwoSetsOfRoles(String),
    /// The action cannot be taken on this kind of resource.
    #[error("`{action}` is not about a {kind}")]
    WrongResource {
        /// The action.
        action: Action,
        /// The kind of resource given.
        kind: &'static str,
    },
    /// Cedar refused a value.
    #[error("the request cannot be expressed: {0}")]
    Inexpressible(String),
}

/// A request in Cedar's terms. Names and hierarchies are there at once; entities and contexts are made for the slice that asks.
pub(crate) struct CedarRequest<'a> {
    pub(crate) principal: EntityUid,
    pub(crate) action: &'a ActionName,
    pub(crate) resource: EntityUid,
    /// The types of principal and resource, for scopes that test `is`.
    pub(crate) principal_type: &'a EntityTypeName,
    pub(crate) resource_type: &'a EntityTypeName,
    pub(crate) principal_ancestors: Vec<EntityUid>,
    pub(crate) resource_ancestors: Vec<EntityUid>,
    vocabulary: &'a Vocabulary,
    request: &'a PolicyRequest,
    context: &'a PolicyRequestContext,
    config: &'a PolicyEvaluationConfig,
    process: &'a ProcessFacts,
}

impl<'a> CedarRequest<'a> {
    /// `process` is shared by the parts of a call, so that what is run is read once however much it touches.
    pub(crate) fn new(
        vocabulary: &'a Vocabulary,
        request: &'a PolicyRequest,
        context: &'a PolicyRequestContext,
        config: &'a PolicyEvaluationConfig,
        process: &'a ProcessFacts,
    ) -> Result<Self, RequestError> {
        check_agreement(request, context)?;
        let action = vocabulary.action(request.action).ok_or(missing(request.action.as_str()))?;
        let principal_type = vocabulary.principal(request.principal.kind());
        let resource_type = type_of(vocabulary, &request.resource).ok_or(missing(request.resource.kind()))?;
        if !action.resources.contains(resource_type) {
            return Err(RequestError::WrongResource { action: request.action, kind: request.resource.kind() });
        }
        Ok(Self {
            principal: uid(principal_type, request.principal.id().as_str()),
            action,
            resource: uid(resource_type, &request.resource.id()),
            principal_type,
            resource_type,
            principal_ancestors: roles_of(vocabulary, &request.principal)
                .chain(memberships(vocabulary, request, context, config))
                .collect(),
            resource_ancestors: ancestors_of(vocabulary, &request.resource, config),
            vocabulary,
            request,
            context,
            config,
            process,
        })
    }

    /// What policies with these demands can look up. Every ancestor is a direct parent, so no other entity is needed.
    pub(crate) fn entities(&self, demands: Demands) -> Result<Entities, RequestError> {
        let mut entities = Vec::with_capacity(4);
        // A principal without roles has neither attributes nor ancestors: Cedar reads its absence the same way.
        if !self.principal_ancestors.is_empty() {
            entities.push(entity(self.principal.clone(), HashMap::new(), &self.principal_ancestors)?);
        }
        let attributes = attributes_of(&self.request.resource, self.config);
        if !(attributes.is_empty() && self.resource_ancestors.is_empty()) {
            entities.push(entity(self.resource.clone(), attributes, &self.resource_ancestors)?);
        }
        // SECURITY: whatever the context points to must be there too, or a `forbid … when { context.process.cwd in … }` would
        // quietly never match.
        if demands.contains(ContextKey::Process)
            && let Some(cwd) = self.context.process.as_ref().and_then(|process| process.cwd.as_ref())
        {
            let cwd = Resource::Path(cwd.clone());
            let name = uid(&self.vocabulary.path, &cwd.id());
            if name != self.resource {
                let ancestors = ancestors_of(self.vocabulary, &cwd, self.config);
                entities.push(entity(name, attributes_of(&cwd, self.config), &ancestors)?);
            }
        }
        if demands.contains(ContextKey::OnBehalfOf)
            && let Some(user) = &self.context.on_behalf_of
        {
            let name = uid(self.vocabulary.principal(user.kind()), user.id().as_str());
            if name != self.principal {
                let everywhere =
                    self.config.workspaces.keys().map(|name| uid(&self.vocabulary.workspace, name.as_str()));
                let above: Vec<_> = roles_of(self.vocabulary, user).chain(everywhere).collect();
                entities.push(entity(name, HashMap::new(), &above)?);
            }
        }
        self.action.entities.clone().add_entities(entities, None).map_err(inexpressible)
    }

    /// What the request says.
    pub(crate) const fn facts(&self) -> Facts<'_> {
        Facts { request: self.request, context: self.context, config: self.config, process: self.process }
    }

    /// The part of the context that these demands cover, without `approved`.
    pub(crate) fn context(&self, demands: Demands) -> Result<Context, RequestError> {
        let facts = self.facts();
        let mut pairs = Vec::with_capacity(16);
        for key in demands.keys() {
            if let Some(value) = value_of(key, self.vocabulary, &facts)? {
                pairs.push((key.as_str().to_owned(), value));
            }
        }
        Context::from_pairs(pairs).map_err(inexpressible)
    }

    /// The request as it stands before (`false`) or after (`true`) a person has approved it.
    pub(crate) fn with_approved(&self, context: Context, approved: bool) -> Result<Request, RequestError> {
        let approved = (ContextKey::Approved.as_str().to_owned(), RestrictedExpression::new_bool(approved));
        self.within(context.merge([approved]).map_err(inexpressible)?)
    }

    /// The request in a context.
    pub(crate) fn within(&self, context: Context) -> Result<Request, RequestError> {
        let (principal, action) = (self.principal.clone(), self.action.uid.clone());
        Request::new(principal, action, self.resource.clone(), context, None).map_err(inexpressible)
    }
}

fn missing(what: &str) -> RequestError {
    RequestError::Inexpressible(format!("the schema has no `{what}`"))
}

fn inexpressible(error: impl std::fmt::Display) -> RequestError {
    RequestError::Inexpressible(error.to_string())
}

fn entity(
    name: EntityUid,
    attributes: HashMap<String, RestrictedExpression>,
    ancestors: &[EntityUid],
) -> Result<Entity, RequestError> {
    Entity::new(name, attributes, ancestors.iter().cloned().collect()).map_err(inexpressible)
}

/// A request that says two things about its tool or skill is refused before anything is decided about either.
fn check_agreement(request: &PolicyRequest, context: &PolicyRequestContext) -> Result<(), RequestError> {
    let contradiction = |context: &str| RequestError::Contradiction {
        resource: request.resource.to_string(),
        context: context.to_owned(),
    };
    match (&request.resource, &context.tool_name, &context.skill_id) {
        (Resource::Tool(tool), Some(named), _) if tool != named => Err(contradiction(named.as_str())),
        (Resource::Skill(skill), _, Some(named)) if skill != named => Err(contradiction(named.as_str())),
        _ => match &context.on_behalf_of {
            Some(other) if other.kind() != PrincipalKind::User => Err(RequestError::NotAUser(other.to_string())),
            Some(other) if is_same(other, &request.principal) && *other != request.principal => {
                Err(RequestError::TwoSetsOfRoles(other.to_string()))
            }
            _ => Ok(()),
        },
    }
}

fn is_same(a: &Principal, b: &Principal) -> bool {
    (a.kind(), a.id()) == (b.kind(), b.id())
}

fn roles_of<'a>(vocabulary: &'a Vocabulary, principal: &'a Principal) -> impl Iterator<Item = EntityUid> {
    principal.roles().iter().filter_map(|&role| vocabulary.role(role).cloned())
}

/// The workspaces that a principal is in: those that it is bound to, and for a user that is bound to none, all that are configured.
fn memberships<'a>(
    vocabulary: &'a Vocabulary,
    request: &PolicyRequest,
    context: &'a PolicyRequestContext,
    config: &'a PolicyEvaluationConfig,
) -> impl Iterator<Item = EntityUid> {
    let all = context.member_of.is_none() && request.principal.kind() == PrincipalKind::User;
    let bound = context.member_of.iter().flatten();
    let configured = config.workspaces.keys().filter(move |_| all);
    bound.chain(configured).map(|name| uid(&vocabulary.workspace, name.as_str()))
}

fn type_of<'a>(vocabulary: &'a Vocabulary, resource: &Resource) -> Option<&'a EntityTypeName> {
    Some(match resource {
        Resource::Tool(_) => &vocabulary.tool,
        Resource::Skill(_) => &vocabulary.skill,
        Resource::Secret(_) => &vocabulary.secret,
        Resource::Path(_) => &vocabulary.path,
        Resource::Host(_) => &vocabulary.host,
        Resource::Object(kind, _) => vocabulary.object(*kind)?,
    })
}

fn ancestors_of(vocabulary: &Vocabulary, resource: &Resource, config: &PolicyEvaluationConfig) -> Vec<EntityUid> {
    match resource {
        Resource::Tool(tool) => tool.groups().map(|group| uid(&vocabulary.tool_group, group)).collect(),
        Resource::Secret(secret) => vec![uid(&vocabulary.secret_scope, &secret.scope().to_string())],
        Resource::Path(path) => path
            .ancestors()
            .map(|directory| uid(&vocabulary.path, directory))
            .chain(workspaces_of(path, config).map(|name| uid(&vocabulary.workspace, name)))
            .collect(),
        Resource::Host(host) => host.domains().map(|domain| uid(&vocabulary.host, domain)).collect(),
        Resource::Skill(_) | Resource::Object(..) => Vec::new(),
    }
}

fn workspaces_of<'c>(path: &AbsolutePath, config: &'c PolicyEvaluationConfig) -> impl Iterator<Item = &'c str> {
    config.workspaces.iter().filter(|(_, root)| path.is_within(root)).map(|(name, _)| name.as_str())
}

fn attributes_of(resource: &Resource, config: &PolicyEvaluationConfig) -> HashMap<String, RestrictedExpression> {
    let pair = |name: &str, value: RestrictedExpression| (name.to_owned(), value);
    match resource {
        Resource::Skill(skill) => {
            let quarantined = config.quarantined_skills.contains(skill);
            HashMap::from([pair("quarantined", RestrictedExpression::new_bool(quarantined))])
        }
        Resource::Secret(secret) => HashMap::from([pair("name", text(secret.name()))]),
        Resource::Path(path) => {
            HashMap::from([pair("path", text(path.as_str())), pair("name", text(path.file_name()))])
        }
        Resource::Host(host) => HashMap::from([pair("name", text(host.as_str()))]),
        Resource::Tool(_) | Resource::Object(..) => HashMap::new(),
    }
}

/// The value of one attribute of the context; `None` where the request has none.
fn value_of(
    key: ContextKey,
    vocabulary: &Vocabulary,
    facts: &Facts<'_>,
) -> Result<Option<RestrictedExpression>, RequestError> {
    let context = facts.context;
    let known = |value: Option<RestrictedExpression>| value.ok_or(missing(key.as_str()));
    Ok(Some(match fact_of(key, facts) {
        Fact::Absent => return Ok(None),
        Fact::Fleeting => return fleeting(key, vocabulary, context),
        Fact::Flag(value) => RestrictedExpression::new_bool(value),
        Fact::Number(value) => RestrictedExpression::new_long(value),
        Fact::Text(value) => RestrictedExpression::new_string(value),
        Fact::Workspace(name) => RestrictedExpression::new_entity_uid(uid(&vocabulary.workspace, name.as_str())),
        Fact::Capabilities(all) => {
            let all: Option<Vec<_>> = all.into_iter().map(|one| vocabulary.capability(one)).collect();
            known(all.map(RestrictedExpression::new_set))?
        }
        Fact::Posture(posture) => known(vocabulary.posture(posture))?,
        Fact::Tier(tier) => known(vocabulary.tier(tier))?,
        Fact::Egress(mode) => known(vocabulary.egress(mode))?,
        Fact::Role(role) => {
            known(vocabulary.role(role).map(|role| RestrictedExpression::new_entity_uid(role.clone())))?
        }
    }))
}

/// The value of an attribute that is hardly ever the same twice.
fn fleeting(
    key: ContextKey,
    vocabulary: &Vocabulary,
    context: &PolicyRequestContext,
) -> Result<Option<RestrictedExpression>, RequestError> {
    Ok(match key {
        ContextKey::OnBehalfOf => context.on_behalf_of.as_ref().map(|user| {
            RestrictedExpression::new_entity_uid(uid(vocabulary.principal(user.kind()), user.id().as_str()))
        }),
        ContextKey::Now => Some(vocabulary.datetime(context.now)),
        ContextKey::Process => {
            context.process.as_ref().map(|process| process_record(vocabulary, process)).transpose()?
        }
        _ => return Err(missing(key.as_str())),
    })
}

fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

fn process_record(vocabulary: &Vocabulary, process: &Process) -> Result<RestrictedExpression, RequestError> {
    let mut fields = vec![
        ("program", text(process.program.as_str())),
        ("name", text(process.program.file_name())),
        ("args", RestrictedExpression::new_set(process.args.iter().map(|arg| text(arg)))),
        ("command", text(&process.command())),
        ("interpreter", RestrictedExpression::new_bool(process.is_interpreter())),
    ];
    fields.extend(process.args.first().map(|arg| ("arg1", text(arg))));
    fields.extend(process.args.get(1).map(|arg| ("arg2", text(arg))));
    fields.extend(
        process
            .cwd
            .as_ref()
            .map(|cwd| ("cwd", RestrictedExpression::new_entity_uid(uid(&vocabulary.path, cwd.as_str())))),
    );
    RestrictedExpression::new_record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)))
        .map_err(inexpressible)
}

#[cfg(test)]
mod tests {
    use palyra_types::Timestamp;

    use super::*;

    #[test]
    fn a_principal_named_twice_with_different_roles_is_refused() {
        let request = PolicyRequest {
            principal: Principal::parse("user:ada").unwrap(),
            action: Action::PolicyWrite,
            resource: Resource::parse("policy:active").unwrap(),
        };
        let on_behalf_of = |text: &str| PolicyRequestContext {
            on_behalf_of: Some(Principal::parse(text).unwrap()),
            ..PolicyRequestContext::at(Timestamp::from_unix_millis(0))
        };
        assert_eq!(check_agreement(&request, &on_behalf_of("user:ada")), Ok(()));
        assert_eq!(check_agreement(&request, &on_behalf_of("user:bob@owner")), Ok(()));
        assert_eq!(
            check_agreement(&request, &on_behalf_of("user:ada@owner")),
            Err(RequestError::TwoSetsOfRoles("user:ada".to_owned()))
        );
    }
}
