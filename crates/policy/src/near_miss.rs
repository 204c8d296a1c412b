//! Finds the permits that came close: each with its first condition that does not hold, what it requires and what there is.
//!
//! Cedar gives no reason for a default deny, so this takes the permits apart and tries their conditions one by one, in the most
//! favourable case: as if the call were approved.

use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Entities, EvalResult, PrincipalConstraint, Request, ResourceConstraint,
    pst::{BinaryOp, Expr, Literal, UnaryOp},
};
use palyra_types::PrincipalKind;
use serde::Serialize;

use crate::{
    cedar_request::CedarRequest,
    condition::evaluate,
    decision::{Effect, PolicyInfo},
    demand::{ContextKey, Demands},
    set::{LoadedPolicy, Snapshot},
    tree::is_context,
};

/// Most near misses that are told.
pub const MAX_NEAR_MISSES: usize = 5;

/// A permit that did not apply, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearMiss {
    /// The permit.
    pub policy: Arc<PolicyInfo>,
    /// Its first condition that does not hold.
    pub required: String,
    /// What there is instead.
    pub actual: String,
    /// What to do about it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The permits that came closest, closest first.
pub(crate) fn find(set: &Snapshot, request: &CedarRequest<'_>) -> Vec<NearMiss> {
    let question = request.context(Demands::ALL).and_then(|context| request.with_approved(context, true));
    let (Ok(question), Ok(entities)) = (question, request.entities(Demands::ALL)) else { return Vec::new() };
    let mut misses: Vec<(u32, NearMiss)> = set
        .policies
        .iter()
        .filter(|policy| policy.info.effect == Effect::Permit && is_for(policy, request))
        .filter_map(|policy| miss(policy, request, &question, &entities))
        .collect();
    misses.sort_by(|(a, miss_a), (b, miss_b)| a.cmp(b).then_with(|| miss_a.policy.id.cmp(&miss_b.policy.id)));
    misses.into_iter().take(MAX_NEAR_MISSES).map(|(_, miss)| miss).collect()
}

/// Whether a permit could ever be for whoever asks. What the configuration of a server names is for that server, and nobody becomes one.
fn is_for(policy: &LoadedPolicy, request: &CedarRequest<'_>) -> bool {
    // One that uses the context as a whole may look at anything.
    let is_for_servers = policy.demands.contains(ContextKey::Configured) && policy.demands != Demands::ALL;
    !is_for_servers || request.facts().request.principal.kind() == PrincipalKind::Service
}

/// How a permit missed, and from how far; `None` if it is about something else altogether.
fn miss(
    policy: &LoadedPolicy,
    request: &CedarRequest<'_>,
    question: &Request,
    entities: &Entities,
) -> Option<(u32, NearMiss)> {
    if !action_matches(policy, request) {
        return None;
    }
    let told = |required: String, actual: String, hint| NearMiss {
        policy: Arc::clone(&policy.info),
        required: palyra_types::visible::visible(&required),
        actual: palyra_types::visible::visible(&actual),
        hint,
    };
    let principal_matches = principal_matches(policy, request);
    match resource_distance(policy, request) {
        Distance::Here => {}
        // Another directory or domain under the same rule is near; another tool is not.
        Distance::Elsewhere if principal_matches => {
            return Some((
                2000,
                told(format!("resource {}", policy.tree.resource), format!("resource is {}", request.resource), None),
            ));
        }
        Distance::Elsewhere | Distance::Other => return None,
    }
    if !principal_matches {
        return Some((
            1000,
            told(format!("principal {}", policy.tree.principal), format!("principal is {}", request.principal), None),
        ));
    }
    let conditions = policy.conditions();
    for (passed, condition) in conditions.iter().enumerate() {
        match condition.evaluate(question, entities) {
            Ok(EvalResult::Bool(true)) => {}
            outcome => {
                let expr = &condition.expr;
                let actual = match outcome {
                    Ok(_) => actual(expr, question, entities),
                    Err(error) => format!("it cannot be evaluated: {error}"),
                };
                let left = u32::try_from(conditions.len() - passed).unwrap_or(u32::MAX);
                return Some((left.min(999), told(expr.to_string(), actual, hint(expr))));
            }
        }
    }
    None
}

/// What there is where a condition did not hold.
fn actual(condition: &Expr, question: &Request, entities: &Entities) -> String {
    let value = |expr: &Expr| match evaluate(expr, question, entities) {
        Ok(value) => format!("{expr} is {value}"),
        Err(error) => format!("{expr} cannot be evaluated: {error}"),
    };
    match condition {
        Expr::BinaryOp { op: BinaryOp::Or, left, right } => {
            format!("{}, and {}", actual(left, question, entities), actual(right, question, entities))
        }
        Expr::BinaryOp { op: BinaryOp::And, left, right } => match evaluate(left, question, entities) {
            Ok(EvalResult::Bool(true)) => actual(right, question, entities),
            _ => actual(left, question, entities),
        },
        Expr::BinaryOp { left, right, .. } => {
            let sides: Vec<_> =
                [left, right].into_iter().filter(|side| !is_constant(side)).map(|side| value(side)).collect();
            sides.join(", ")
        }
        Expr::HasAttr { expr, attrs } => {
            let path = attrs.iter().map(|attr| attr.to_string()).collect::<Vec<_>>().join(".");
            format!("{expr} has no {path}")
        }
        Expr::UnaryOp { op: UnaryOp::Not, expr } => match &**expr {
            Expr::HasAttr { expr, attrs } => format!("{expr} has {}", attrs.first()),
            expr => value(expr),
        },
        Expr::Like { expr, .. } | Expr::Is { expr, .. } => value(expr),
        other => value(other),
    }
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(_) => true,
        Expr::Set(items) => items.iter().all(|item| is_constant(item)),
        _ => false,
    }
}

/// What to do about a condition on one of the configuration's facts.
fn hint(condition: &Expr) -> Option<String> {
    let (key, wanted) = match condition {
        Expr::GetAttr { expr, attr } if is_context(expr) => (attr, None),
        Expr::BinaryOp { op: BinaryOp::Eq, left, right } => match (&**left, &**right) {
            (Expr::GetAttr { expr, attr }, Expr::Literal(Literal::EntityUID(uid))) if is_context(expr) => {
                (attr, Some(uid.eid.to_string()))
            }
            _ => return None,
        },
        Expr::HasAttr { expr, attrs } if is_context(expr) => {
            return match ContextKey::parse(attrs.first()).ok()? {
                ContextKey::Workspace => Some("make the call in a configured workspace".to_owned()),
                ContextKey::Role => Some("say which role it is about".to_owned()),
                _ => None,
            };
        }
        _ => return None,
    };
    let text = match ContextKey::parse(key).ok()? {
        ContextKey::Allowlisted => {
            "add the tool, the skill or the MCP server to `allowlisted_tools`, `allowlisted_skills` or `allowlisted_mcp`"
        }
        ContextKey::PrincipalAuthorized => "add the principal to `tool_execute_principal_allowlist`",
        ContextKey::ChannelAuthorized => "add the channel to `tool_execute_channel_allowlist`",
        ContextKey::AllowSensitiveTools => "set `allow_sensitive_tools = true`",
        ContextKey::Configured => "let the configuration of the MCP server name it",
        ContextKey::Bound => "let the tool send the secret to a host with `palyra vault bind`",
        ContextKey::InScope => {
            "name a secret that is global or belongs to the call's workspace, agent, skill or session"
        }
        ContextKey::Posture => return Some(format!("set the tool's posture to `{}`", wanted?)),
        ContextKey::Tier => return Some(format!("run it in tier {}", wanted?)),
        ContextKey::Egress => return Some(format!("run it with egress `{}`", wanted?)),
        _ => return None,
    };
    Some(text.to_owned())
}

/// Whether the scope of a policy holds for a request.
pub(crate) fn is_about(policy: &LoadedPolicy, request: &CedarRequest<'_>) -> bool {
    action_matches(policy, request)
        && principal_matches(policy, request)
        && matches!(resource_distance(policy, request), Distance::Here)
}

fn action_matches(policy: &LoadedPolicy, request: &CedarRequest<'_>) -> bool {
    let within = |uid: &cedar_policy::EntityUid| *uid == request.action.uid || request.action.groups.contains(uid);
    match policy.cedar.action_constraint() {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(uid) => uid == request.action.uid,
        ActionConstraint::In(uids) => uids.iter().any(within),
    }
}

fn principal_matches(policy: &LoadedPolicy, request: &CedarRequest<'_>) -> bool {
    let within = |uid: &cedar_policy::EntityUid| *uid == request.principal || request.principal_ancestors.contains(uid);
    match policy.cedar.principal_constraint() {
        PrincipalConstraint::Any => true,
        PrincipalConstraint::Eq(uid) => uid == request.principal,
        PrincipalConstraint::In(uid) => within(&uid),
        PrincipalConstraint::Is(of) => of == *request.principal_type,
        PrincipalConstraint::IsIn(of, uid) => of == *request.principal_type && within(&uid),
    }
}

enum Distance {
    Here,
    Elsewhere,
    Other,
}

fn resource_distance(policy: &LoadedPolicy, request: &CedarRequest<'_>) -> Distance {
    let within = |uid: &cedar_policy::EntityUid| *uid == request.resource || request.resource_ancestors.contains(uid);
    let here_or = |here: bool, otherwise: Distance| if here { Distance::Here } else { otherwise };
    match policy.cedar.resource_constraint() {
        ResourceConstraint::Any => Distance::Here,
        ResourceConstraint::Eq(uid) => here_or(uid == request.resource, Distance::Other),
        ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => here_or(within(&uid), Distance::Elsewhere),
        ResourceConstraint::Is(of) => here_or(of == *request.resource_type, Distance::Other),
    }
}
