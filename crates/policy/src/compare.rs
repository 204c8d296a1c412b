//! Compares two policy sets over a corpus of requests and groups what changed, what is newly allowed first.

use serde::Serialize;

use crate::{
    decision::{CallDecision, Verdict},
    request::{CallRequest, PolicyEvaluationConfig, PolicyRequestContext},
    set::Snapshot,
    suite::deciding_policies,
};

/// A set and the configuration it is used with.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The policies.
    pub set: &'a Snapshot,
    /// The configuration.
    pub config: &'a PolicyEvaluationConfig,
}

/// How a decision changed, from what wants most attention to what wants least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Ran only after asking, or not at all; now runs unasked.
    NewlyAllowed,
    /// Was denied; now asks.
    NewlyAsked,
    /// Ran or asked; now denied.
    NewlyDenied,
    /// Ran unasked; now asks.
    NoLongerUnasked,
}

impl Change {
    /// How a verdict changed, if it did.
    #[must_use]
    pub const fn between(before: Verdict, after: Verdict) -> Option<Self> {
        match (before, after) {
            (Verdict::Ask | Verdict::Deny, Verdict::Allow) => Some(Self::NewlyAllowed),
            (Verdict::Deny, Verdict::Ask) => Some(Self::NewlyAsked),
            (Verdict::Allow | Verdict::Ask, Verdict::Deny) => Some(Self::NewlyDenied),
            (Verdict::Allow, Verdict::Ask) => Some(Self::NoLongerUnasked),
            (Verdict::Allow, Verdict::Allow) | (Verdict::Ask, Verdict::Ask) | (Verdict::Deny, Verdict::Deny) => None,
        }
    }

    /// What people read above the group.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::NewlyAllowed => "newly allowed",
            Self::NewlyAsked => "asks instead of denying",
            Self::NewlyDenied => "newly denied",
            Self::NoLongerUnasked => "asks instead of running",
        }
    }
}

/// One request that the two sets decide differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flip {
    /// How it changed.
    pub change: Change,
    /// The request in one line.
    pub request: String,
    /// The verdict before.
    pub before: Verdict,
    /// The verdict after.
    pub after: Verdict,
    /// The policies behind the verdict after.
    pub by: Vec<String>,
    /// Why, in one sentence.
    pub reason: String,
}

/// What changed between two sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// How many requests were tried.
    pub tried: usize,
    /// Those that are decided differently, by [`Change`], then in the order of the corpus.
    pub flips: Vec<Flip>,
}

/// Puts every request to both sets.
#[must_use]
pub fn compare(before: Side<'_>, after: Side<'_>, corpus: &[(CallRequest, PolicyRequestContext)]) -> Comparison {
    let mut flips: Vec<Flip> = corpus
        .iter()
        .filter_map(|(call, context)| {
            let was = before.set.decide_call(call, context, before.config);
            let is = after.set.decide_call(call, context, after.config);
            let change = Change::between(was.verdict, is.verdict)?;
            Some(Flip {
                change,
                request: describe(call, context),
                before: was.verdict,
                after: is.verdict,
                by: deciding_policies(&is).into_iter().map(|id| id.to_string()).collect(),
                reason: reason(&is),
            })
        })
        .collect();
    flips.sort_by_key(|flip| flip.change);
    flips.dedup();
    Comparison { tried: corpus.len(), flips }
}

/// A call in one line: who, what, with what, and what of the context bears on it.
#[must_use]
pub fn describe(call: &CallRequest, context: &PolicyRequestContext) -> String {
    let request = &call.request;
    let mut line = format!("{} {} {}", request.principal, request.action, request.resource);
    if !request.principal.roles.is_empty() {
        let roles: Vec<_> = request.principal.roles.iter().map(|role| role.as_str()).collect();
        line = line.replacen(' ', &format!(" ({}) ", roles.join(", ")), 1);
    }
    let mut add = |word: &str, value: Option<String>| {
        if let Some(value) = value {
            line.push_str(&format!(" {word}={value}"));
        }
    };
    add("run", context.process.as_ref().map(|process| format!("`{}`", process.command())));
    add("tier", context.tier.map(|tier| tier.to_string()));
    add("egress", context.egress.map(|egress| egress.to_string()));
    add("channel", context.channel.as_ref().map(ToString::to_string));
    add("port", context.port.map(|port| port.to_string()));
    palyra_types::visible::visible(&line)
}

fn reason(decision: &CallDecision) -> String {
    decision.deciding().next().map_or_else(String::new, |part| part.decision.reason())
}
