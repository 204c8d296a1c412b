//! Explains a decision: who decided, what came close, and which rule would change it.
//!
//! Guarantees: an explanation never changes the decision it explains; a suggested rule validates and, added to the set, permits the
//! request (it is tried before it is shown). A deny caused by a forbid suggests no rule, because none would help.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    cedar_request::CedarRequest,
    decision::{Cause, Decision, as_triple},
    engine::{Engine, part_of},
    facts::ProcessFacts,
    near_miss::{self, NearMiss},
    request::{CallRequest, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext},
    set::Snapshot,
    suggest,
};

/// A decision and what there is to know about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What was asked.
    #[serde(serialize_with = "as_triple")]
    pub request: PolicyRequest,
    /// What was decided.
    #[serde(flatten)]
    pub decision: Decision,
    /// Why, in one sentence.
    pub reason: String,
    /// Permits that came close, closest first.
    pub near_misses: Vec<NearMiss>,
    /// The smallest rule that would permit exactly this request without asking, where a rule can.
    pub suggestion: Option<String>,
    /// Who can change what, so that it is allowed at once, as far as the policies that ask or forbid say.
    pub change: Vec<String>,
}

impl Engine {
    /// Decides one request and explains the decision.
    #[must_use]
    pub fn explain(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> Explanation {
        self.snapshot().explain(request, context, config)
    }
}

impl Snapshot {
    /// Decides every part of a call and explains each decision, the call itself first.
    #[must_use]
    pub fn explain_call(
        &self,
        call: &CallRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> Vec<Explanation> {
        let touches = call.touches.iter().map(|touch| part_of(&call.request, touch, context));
        let process = ProcessFacts::default();
        std::iter::once((call.request.clone(), Cow::Borrowed(context)))
            .chain(touches)
            .map(|(request, context)| self.explain_part(&request, &context, config, &process))
            .collect()
    }

    /// Decides one request and explains the decision.
    #[must_use]
    pub fn explain(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> Explanation {
        self.explain_part(request, context, config, &ProcessFacts::default())
    }

    fn explain_part(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
        process: &ProcessFacts,
    ) -> Explanation {
        let decision = self.decide_part(request, context, config, process);
        let cedar = CedarRequest::new(&self.vocabulary, request, context, config, process).ok();
        let near_misses = match (&decision.cause, &cedar) {
            (Cause::NotPermitted, Some(cedar)) => near_miss::find(self, cedar),
            _ => Vec::new(),
        };
        let a_rule_would_help = match &decision.cause {
            Cause::NotPermitted => true,
            Cause::NeedsApproval { held_by, .. } => held_by.is_empty(),
            _ => false,
        };
        let suggestion =
            cedar.filter(|_| a_rule_would_help).and_then(|cedar| suggest::rule(self, &cedar, request, context));
        Explanation {
            request: request.clone(),
            reason: decision.reason(),
            change: decision.changes().map(str::to_owned).collect(),
            decision,
            near_misses,
            suggestion,
        }
    }
}
