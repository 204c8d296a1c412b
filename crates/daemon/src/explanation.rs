//! Explanations, from the policy engine's words into those of the wire.

use std::sync::Arc;

use palyra_api::policy::{Explanation as Told, NearMiss, Reason};
use palyra_policy::{Cause, Explanation, PolicyInfo};
use palyra_types::visible::visible;

/// An explanation as it is told.
#[must_use]
pub fn told(explanation: &Explanation) -> Told {
    let (request, decision) = (&explanation.request, &explanation.decision);
    Told {
        verdict: decision.verdict.to_string(),
        principal: request.principal.to_string(),
        action: request.action.to_string(),
        resource: visible(&request.resource.to_string()),
        reasons: reasons(&decision.cause),
        near_misses: explanation
            .near_misses
            .iter()
            .map(|miss| NearMiss {
                policy: miss.policy.id.to_string(),
                location: miss.policy.location.to_string(),
                required: miss.required.clone(),
                actual: miss.actual.clone(),
                hint: miss.hint.clone(),
            })
            .collect(),
        change: explanation.change.clone(),
        suggestion: explanation.suggestion.clone(),
    }
}

fn reasons(cause: &Cause) -> Vec<Reason> {
    let policies = |title: &str, by: &[Arc<PolicyInfo>]| -> Vec<Reason> {
        by.iter().map(|policy| reason(title, policy, policy.why.clone())).collect()
    };
    let alone = |title: String| vec![Reason { title, policy: None, location: None, why: None }];
    match cause {
        Cause::Permitted { by } => policies("permitted by", by),
        Cause::NeedsApproval { by, held_by } => {
            [policies("held back by", held_by), policies("permitted once approved by", by)].concat()
        }
        Cause::Forbidden { by } => policies("forbidden by", by),
        Cause::Contradictory { by } => policies("an approval would take it away", by),
        Cause::Failed { failures } => failures
            .iter()
            .map(|failure| {
                let title = "could not be evaluated, so it denies";
                reason(title, &failure.policy, Some(failure.message.clone()))
            })
            .collect(),
        Cause::NotPermitted => alone("no policy permits it".to_owned()),
        Cause::Malformed { error } => alone(error.to_string()),
    }
}

fn reason(title: &str, policy: &PolicyInfo, why: Option<String>) -> Reason {
    Reason {
        title: title.to_owned(),
        policy: Some(policy.id.to_string()),
        location: Some(policy.location.to_string()),
        why,
    }
}
