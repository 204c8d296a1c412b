//! What the engine answers: a verdict and its cause.
//!
//! Guarantees: every decision names why. An allow and an ask name the policies behind them; a deny names the forbids, or says
//! that nothing permits the request, or names the error that made it a deny.

use std::sync::Arc;

use palyra_types::{PolicyId, Sha256Digest, visible::visible, word::words};
use serde::Serialize;

use crate::{
    cedar_request::RequestError,
    request::PolicyRequest,
    source::{Layer, Location},
};

words! {
    /// Run, ask a person first, or refuse. Ordered from most to least free.
    pub enum Verdict ("verdict") {
        /// Run.
        Allow = "allow",
        /// A person has to approve first.
        Ask = "ask",
        /// Refuse.
        Deny = "deny",
    }
}

/// The effect of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Lets a request through.
    Permit,
    /// Stops a request, whatever else permits it.
    Forbid,
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Permit => "permit",
            Self::Forbid => "forbid",
        })
    }
}

/// What people need to know about a policy that decided something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyInfo {
    /// Its id, from `@id`.
    pub id: PolicyId,
    /// Permit or forbid.
    pub effect: Effect,
    /// Baseline or operator.
    pub layer: Layer,
    /// Where it stands.
    #[serde(flatten)]
    pub location: Location,
    /// Why it is there, from `@why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who can change it and how, from `@change`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// A policy that failed to evaluate. Cedar skips such a policy, even a forbid, so the engine denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvaluationFailure {
    /// The policy.
    pub policy: Arc<PolicyInfo>,
    /// What went wrong.
    pub message: String,
}

/// Why the verdict is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// Allow: these permit it without asking.
    Permitted {
        /// The permits.
        by: Vec<Arc<PolicyInfo>>,
    },
    /// Ask: these permit it once approved.
    NeedsApproval {
        /// The permits.
        by: Vec<Arc<PolicyInfo>>,
        /// The forbids that an approval lifts, if any.
        held_by: Vec<Arc<PolicyInfo>>,
    },
    /// Deny: these forbid it.
    Forbidden {
        /// The forbids.
        by: Vec<Arc<PolicyInfo>>,
    },
    /// Deny: nothing permits it.
    NotPermitted,
    /// Deny: a policy could not be evaluated.
    Failed {
        /// The policies and their errors.
        failures: Vec<EvaluationFailure>,
    },
    /// Deny: an approval would take the permission away. The lint refuses such sets; this is the belt to that brace.
    Contradictory {
        /// What forbids it once approved, if a forbid does.
        by: Vec<Arc<PolicyInfo>>,
    },
    /// Deny: the request itself makes no sense.
    Malformed {
        /// What is wrong with it.
        #[serde(serialize_with = "as_text")]
        error: RequestError,
    },
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[must_use = "a decision that nobody looks at protects nothing"]
pub struct Decision {
    /// Allow, ask or deny.
    pub verdict: Verdict,
    /// Why.
    #[serde(flatten)]
    pub cause: Cause,
    /// The digest of the set that decided.
    pub policy_set: Sha256Digest,
}

impl Decision {
    /// The policies that decided, in the order of their ids. Empty when nothing permits the request or it makes no sense.
    #[must_use]
    pub fn policies(&self) -> Vec<&Arc<PolicyInfo>> {
        match &self.cause {
            Cause::Permitted { by } | Cause::Forbidden { by } | Cause::Contradictory { by } => by.iter().collect(),
            Cause::NeedsApproval { by, held_by } => held_by.iter().chain(by).collect(),
            Cause::Failed { failures } => failures.iter().map(|failure| &failure.policy).collect(),
            Cause::NotPermitted | Cause::Malformed { .. } => Vec::new(),
        }
    }

    /// Who can change what, so that it is allowed at once: what the policies that ask or forbid say of it.
    pub fn changes(&self) -> impl Iterator<Item = &str> {
        let by: &[Arc<PolicyInfo>] = match &self.cause {
            Cause::Forbidden { by } => by,
            // What permits it once approved can be as it likes while something holds it back.
            Cause::NeedsApproval { by, held_by } => {
                if held_by.is_empty() {
                    by
                } else {
                    held_by
                }
            }
            Cause::Permitted { .. }
            | Cause::NotPermitted
            | Cause::Failed { .. }
            | Cause::Contradictory { .. }
            | Cause::Malformed { .. } => &[],
        };
        by.iter().filter_map(|policy| policy.change.as_deref())
    }

    /// The reason in one sentence.
    #[must_use]
    pub fn reason(&self) -> String {
        let why = |policies: &[Arc<PolicyInfo>]| match policies {
            [] => "no policy is named".to_owned(),
            [first, rest @ ..] => {
                // SECURITY: an annotation can spell any character as an escape, and a reason is shown as it is.
                let why = first.why.as_deref().map_or_else(|| "the policy gives no `@why`".to_owned(), visible);
                let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
                format!("{why} [{}]{more}", first.id)
            }
        };
        match &self.cause {
            Cause::Permitted { by } | Cause::Forbidden { by } => why(by),
            Cause::NeedsApproval { by, held_by } => why(if held_by.is_empty() { by } else { held_by }),
            Cause::NotPermitted => "no policy permits it".to_owned(),
            Cause::Failed { failures } => match failures.first() {
                Some(first) => {
                    format!("the policy `{}` could not be evaluated: {}", first.policy.id, visible(&first.message))
                }
                None => "a policy could not be evaluated".to_owned(),
            },
            Cause::Contradictory { .. } => "an approval would take the permission away".to_owned(),
            Cause::Malformed { error } => error.to_string(),
        }
    }
}

/// The answer to a whole call: the strictest of its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[must_use = "a decision that nobody looks at protects nothing"]
pub struct CallDecision {
    /// Allow if every part allows; deny if any part denies; else ask.
    pub verdict: Verdict,
    /// The call itself first, then everything it touches.
    pub parts: Vec<PartDecision>,
}

impl CallDecision {
    /// The parts that have the call's own verdict: those that decided it.
    pub fn deciding(&self) -> impl Iterator<Item = &PartDecision> {
        self.parts.iter().filter(|part| part.decision.verdict == self.verdict)
    }
}

/// The answer to one part of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartDecision {
    /// The part.
    #[serde(serialize_with = "as_triple")]
    pub request: PolicyRequest,
    /// Its answer.
    #[serde(flatten)]
    pub decision: Decision,
}

fn as_text<S: serde::Serializer>(error: &RequestError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

pub(crate) fn as_triple<S: serde::Serializer>(request: &PolicyRequest, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Triple<'a> {
        principal: String,
        action: &'a str,
        resource: String,
    }
    Triple {
        principal: request.principal.to_string(),
        action: request.action.as_str(),
        resource: request.resource.to_string(),
    }
    .serialize(serializer)
}
