//! Compares two policy sets over a corpus of requests and groups what changed, what is newly allowed first.

use std::collections::{BTreeSet, HashMap};

use palyra_types::{PolicyId, Principal};
use serde::Serialize;

use crate::{
    decision::{CallDecision, Verdict},
    request::{CallRequest, PolicyEvaluationConfig, PolicyRequestContext, Touch},
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
    /// Who asks.
    pub who: String,
    /// What they ask for, in one line.
    pub what: String,
    /// The tier and the egress mode it would run with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The verdict before.
    pub before: Verdict,
    /// The verdict after.
    pub after: Verdict,
    /// The policies behind the verdict after.
    pub by: Vec<String>,
    /// Why, in one sentence.
    pub reason: String,
}

/// Flips that differ only in who asks and in which plan it would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlipGroup<'a> {
    /// The first of them; what it says but for `who` and `plan` is true of all.
    pub first: &'a Flip,
    /// Who asks.
    pub who: BTreeSet<&'a str>,
    /// The plans.
    pub plans: BTreeSet<&'a str>,
}

/// What changed between two sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// How many requests were tried.
    pub tried: usize,
    /// Those that are decided differently, by [`Change`], then in the order of the corpus.
    pub flips: Vec<Flip>,
    /// Policies that only the second set has and that decided none of the requests. What they change is unknown.
    pub untried: Vec<PolicyId>,
}

impl Comparison {
    /// The flips, those together that differ only in who asks and in which plan.
    #[must_use]
    pub fn groups(&self) -> Vec<FlipGroup<'_>> {
        let mut groups: Vec<FlipGroup<'_>> = Vec::new();
        let mut places: HashMap<(Change, &str, Verdict, &[String]), usize> = HashMap::new();
        for flip in &self.flips {
            let key = (flip.change, flip.what.as_str(), flip.before, flip.by.as_slice());
            let place = *places.entry(key).or_insert_with(|| {
                groups.push(FlipGroup { first: flip, who: BTreeSet::new(), plans: BTreeSet::new() });
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(place) {
                group.who.insert(&flip.who);
                group.plans.extend(flip.plan.as_deref());
            }
        }
        groups
    }
}

/// Puts every request to both sets.
#[must_use]
pub fn compare(before: Side<'_>, after: Side<'_>, corpus: &[(CallRequest, PolicyRequestContext)]) -> Comparison {
    let mut tried = BTreeSet::new();
    let mut flips: Vec<Flip> = corpus
        .iter()
        .filter_map(|(call, context)| {
            let was = before.set.decide_call(call, context, before.config);
            let is = after.set.decide_call(call, context, after.config);
            tried.extend(is.parts.iter().flat_map(|part| part.decision.policies()).map(|policy| policy.id.clone()));
            let change = Change::between(was.verdict, is.verdict)?;
            Some(Flip {
                change,
                who: who(&call.request.principal),
                what: what(call, context),
                plan: plan(context),
                before: was.verdict,
                after: is.verdict,
                by: deciding_policies(&is).into_iter().map(|id| id.to_string()).collect(),
                reason: reason(&is),
            })
        })
        .collect();
    flips.sort_by_key(|flip| flip.change);
    flips.dedup();
    let known: BTreeSet<&PolicyId> = before.set.policies().map(|policy| &policy.id).collect();
    let new = after.set.policies().map(|policy| &policy.id).filter(|id| !known.contains(id));
    let untried = new.filter(|id| !tried.contains(*id)).cloned().collect();
    Comparison { tried: corpus.len(), flips, untried }
}

/// A call in one line: who, what, with what, and what of the context bears on it.
#[must_use]
pub fn describe(call: &CallRequest, context: &PolicyRequestContext) -> String {
    let is_elsewhere = context.elsewhere && context.tier.is_none() && context.egress.is_none();
    let plan =
        plan(context).map_or_else(String::new, |plan| format!("{}{plan}", if is_elsewhere { " " } else { " in " }));
    let workspace = context.workspace.as_ref().map_or_else(String::new, |name| format!(" in workspace {name}"));
    format!("{} {}{plan}{workspace}", who(&call.request.principal), what(call, context))
}

/// Who asks, with their roles.
#[must_use]
pub fn who(principal: &Principal) -> String {
    let roles: Vec<_> = principal.roles().iter().map(|role| role.as_str()).collect();
    if roles.is_empty() { principal.to_string() } else { format!("{principal} ({})", roles.join(", ")) }
}

/// What is asked for, in one line.
#[must_use]
pub fn what(call: &CallRequest, context: &PolicyRequestContext) -> String {
    let mut words = vec![call.request.action.to_string(), call.request.resource.to_string()];
    words.extend(context.process.as_ref().map(|process| format!("`{}`", process.command())));
    words.extend(context.port.map(|port| format!("port {port}")));
    words.extend(call.touches.iter().map(|touch| match touch {
        Touch::Read(path) => format!("reading {path}"),
        Touch::Write(path) => format!("writing {path}"),
        Touch::Connect(host, port) => format!("connecting to {host}:{port}"),
        Touch::Use(secret) => format!("using the secret {secret}"),
        Touch::Reveal(secret) => format!("being given the secret {secret}"),
        Touch::Execute(skill) => format!("running the skill {skill}"),
        Touch::Object { action, resource } => format!("{action} on {resource}"),
    }));
    words.extend(context.channel.as_ref().map(|channel| format!("by {channel}")));
    palyra_types::visible::visible(&words.join(" "))
}

/// The tier and the egress mode, or that another program does it, if the request says.
#[must_use]
pub fn plan(context: &PolicyRequestContext) -> Option<String> {
    match (context.tier, context.egress) {
        (None, None) if context.elsewhere => Some("elsewhere".to_owned()),
        (None, None) => None,
        (Some(tier), None) => Some(format!("tier {tier}")),
        (None, Some(egress)) => Some(format!("egress {egress}")),
        (Some(tier), Some(egress)) => Some(format!("tier {tier} with egress {egress}")),
    }
}

fn reason(decision: &CallDecision) -> String {
    decision.deciding().next().map_or_else(String::new, |part| part.decision.reason())
}
