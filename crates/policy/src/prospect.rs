//! Whether a request could ever be let, when only who makes it, where it comes from and which tool it is about are known.
//!
//! Guarantees: what some call would be let do counts as possible. A condition on what only a call says, such as its workspace, its plan, its
//! program or its time, may hold; every other one holds or does not, as if a person had approved.
//! Does not: promise anything. Each call is decided on its own.

use cedar_policy::{Entities, EvalResult, PolicySet, Request};

use crate::{
    cedar_request::{CedarRequest, RequestError},
    decision::{Effect, Verdict},
    demand::{ContextKey, Demands},
    facts::ProcessFacts,
    near_miss::is_about,
    question::Question,
    request::{PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext},
    set::{LoadedPolicy, Snapshot},
    slice::Slice,
};

impl Snapshot {
    /// Whether a call that this request stands for could be let, whatever it is about and if a person says so. The context says who makes it,
    /// where it comes from and what its tool is.
    #[must_use]
    pub fn could(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
        config: &PolicyEvaluationConfig,
    ) -> bool {
        let process = ProcessFacts::default();
        let cedar = CedarRequest::new(&self.vocabulary, request, context, config, &process);
        cedar.and_then(|cedar| self.leaves_open(&cedar)).unwrap_or(false)
    }

    /// The same for a request in Cedar's terms. Answers are kept: this is asked about every tool whenever somebody lists them.
    fn leaves_open(&self, request: &CedarRequest<'_>) -> Result<bool, RequestError> {
        let slice = self.index.slice(request, |position| self.entry(position));
        let known = slice.demands.both(KNOWN);
        let question = Question::of(&request.facts(), known);
        if let Some(answer) = question.as_ref().and_then(|question| slice.left_open.to(question)) {
            return Ok(answer);
        }
        // What is let as it stands needs no second look. Whether it is, what only a call says cannot make wrong.
        let answer = self.evaluate(request)?.0 != Verdict::Deny || self.may_permit(request, &slice, known)?;
        if let Some(question) = question {
            slice.left_open.keep(question, answer);
        }
        Ok(answer)
    }

    /// Whether some permit may apply, and no forbid surely does.
    fn may_permit(&self, request: &CedarRequest<'_>, slice: &Slice, known: Demands) -> Result<bool, RequestError> {
        let question = request.with_approved(request.context(known)?, true)?;
        let entities = request.entities(known)?;
        let policies = slice.settled.policies().chain(slice.open.iter().flat_map(PolicySet::policies));
        let mut permitted = false;
        for policy in policies.filter_map(|policy| self.loaded(policy.id())) {
            match (policy.info.effect, applies(policy, request, (&question, &entities))) {
                (Effect::Forbid, Applies::Surely) => return Ok(false),
                (Effect::Permit, Applies::Surely | Applies::Perhaps) => permitted = true,
                (Effect::Forbid, Applies::Perhaps) | (_, Applies::Never) => {}
            }
        }
        Ok(permitted)
    }
}

/// Whether a policy applies to what is known of a request.
enum Applies {
    Surely,
    Perhaps,
    Never,
}

fn applies(policy: &LoadedPolicy, request: &CedarRequest<'_>, (question, entities): (&Request, &Entities)) -> Applies {
    if !is_about(policy, request) {
        return Applies::Never;
    }
    let mut applies = Applies::Surely;
    for condition in policy.conditions() {
        let is_known = condition.demands.within(KNOWN);
        match is_known.then(|| condition.evaluate(question, entities)) {
            Some(Ok(EvalResult::Bool(true))) => {}
            Some(Ok(EvalResult::Bool(false))) => return Applies::Never,
            // What cannot be evaluated is not known either.
            Some(_) | None => applies = Applies::Perhaps,
        }
    }
    applies
}

/// What does not depend on the call. How freely a tool may be used does: it can be said for a workspace and for a conversation.
const KNOWN: Demands = Demands::of_keys(&[
    ContextKey::DeviceId,
    ContextKey::Channel,
    ContextKey::TokenId,
    ContextKey::ToolName,
    ContextKey::SkillId,
    ContextKey::Capabilities,
    ContextKey::Elsewhere,
    ContextKey::Approved,
    ContextKey::AllowSensitiveTools,
    ContextKey::SensitiveAction,
    ContextKey::Allowlisted,
    ContextKey::PrincipalAuthorized,
    ContextKey::ChannelAuthorized,
]);

#[cfg(test)]
mod tests {
    use palyra_types::{Action, Channel, Principal, Resource, Timestamp, ToolName};

    use super::*;
    use crate::{Allowlist, Preset, SourceFile};

    /// These rules and a preset.
    fn set(rules: &str, preset: Preset) -> Snapshot {
        Snapshot::load(&[preset.source(), SourceFile::operator("rules.cedar", rules)]).unwrap()
    }

    /// A configuration that lists these channels only.
    fn listing(channels: &[&str]) -> PolicyEvaluationConfig {
        let only = Allowlist::Only(channels.iter().map(|channel| Channel::parse(channel).unwrap()).collect());
        PolicyEvaluationConfig { tool_execute_channel_allowlist: only, ..Preset::Cautious.config().unwrap() }
    }

    /// An agent that comes in by a channel and looks at a tool.
    fn looking(tool: &str, channel: &str) -> (PolicyRequest, PolicyRequestContext) {
        let tool = ToolName::parse(tool).unwrap();
        let (principal, action) = (Principal::parse("agent:claude").unwrap(), Action::ToolExecute);
        let request = PolicyRequest { principal, action, resource: Resource::Tool(tool.clone()) };
        let context = PolicyRequestContext {
            channel: Channel::parse(channel).ok(),
            tool_name: Some(tool),
            ..PolicyRequestContext::at(Timestamp::from_unix_millis(0))
        };
        (request, context)
    }

    /// What an agent could be let use by the channel `mcp`, where only `cli` is listed and these rules are in force.
    fn could(rules: &str, preset: Preset) -> Vec<&'static str> {
        let (set, config) = (set(rules, preset), listing(&["cli"]));
        let could = |tool: &&str| {
            let (request, context) = looking(tool, "mcp");
            set.could(&request, &context, &config)
        };
        ["fs.list", "fs.write", "process.run"].into_iter().filter(could).collect()
    }

    fn run(effect: &str, condition: &str) -> String {
        let process = "resource == Palyra::Tool::\"process.run\"";
        format!("@id(\"own\") {effect} (principal, action == Palyra::Action::\"tool.execute\", {process}) {condition};")
    }

    #[test]
    fn what_a_channel_rules_out_is_ruled_out_whatever_plan_a_call_would_have() {
        for preset in Preset::ALL {
            assert_eq!(could("", *preset), [""; 0], "{preset}");
        }
    }

    #[test]
    fn what_only_a_call_says_may_hold() {
        for condition in [
            "when { context has tier && context.tier == Palyra::Tier::\"c\" }",
            "when { context has process && context.process.name == \"cargo\" }",
            "when { context has workspace } unless { context.approved == false }",
            "when { context.now > datetime(\"2026-01-01\") }",
            "when { context.posture == Palyra::Posture::\"always_allow\" }",
        ] {
            assert_eq!(could(&run("permit", condition), Preset::Cautious), ["process.run"], "{condition}");
        }
        for condition in [
            "when { context has tier && context.channel_authorized }",
            "when { context has workspace && context has channel && context.channel == \"cli\" }",
        ] {
            assert_eq!(could(&run("permit", condition), Preset::Cautious), [""; 0], "{condition}");
        }
    }

    #[test]
    fn a_forbid_rules_out_what_it_surely_applies_to() {
        let permit = "@id(\"all\") permit (principal, action == Palyra::Action::\"tool.execute\", resource);\n";
        let all = ["fs.list", "fs.write", "process.run"];
        for (condition, expected) in [
            ("", &all[..2]),
            ("when { context has channel && context.channel == \"mcp\" }", &all[..2]),
            ("unless { context has workspace }", &all),
            ("unless { context.approved }", &all),
            ("when { context has channel && context.channel == \"cli\" }", &all),
        ] {
            let rules = format!("{permit}{}", run("forbid", condition));
            assert_eq!(could(&rules, Preset::Cautious), expected, "{condition}");
        }
    }

    #[test]
    fn an_answer_is_kept_and_given_to_the_same_question_alone() {
        let set = set("", Preset::Cautious);
        for _ in 0..3 {
            for (channel, listed, expected) in
                [("mcp", "cli", false), ("cli", "cli", true), ("mcp", "mcp", true), ("cli", "mcp", false)]
            {
                let (request, context) = looking("process.run", channel);
                let could = set.could(&request, &context, &listing(&[listed]));
                assert_eq!(could, expected, "{channel} where {listed} is listed");
            }
        }
        let (config, process) = (listing(&["cli"]), ProcessFacts::default());
        let (request, context) = looking("process.run", "mcp");
        let cedar = CedarRequest::new(&set.vocabulary, &request, &context, &config, &process).unwrap();
        let slice = set.index.slice(&cedar, |position| set.entry(position));
        // Of what was asked, these policies look at nothing but whether the channel is listed.
        assert_eq!(slice.left_open.len(), 2);
    }

    #[test]
    fn policies_are_taken_apart_for_whoever_is_denied_and_no_sooner() {
        let (set, config) = (set("", Preset::Cautious), listing(&["cli"]));
        let apart = || set.policies.iter().filter(|policy| policy.is_taken_apart()).count();
        assert_eq!(apart(), 0);
        let (request, context) = looking("process.run", "cli");
        assert!(set.could(&request, &context, &config));
        assert_eq!(apart(), 0);
        let (request, context) = looking("process.run", "mcp");
        assert!(!set.could(&request, &context, &config));
        assert!((1..set.policies.len()).contains(&apart()), "{}", apart());
    }
}
