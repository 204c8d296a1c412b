//! The engine evaluates a few policies on a part of the context. These tests hold it to what the whole set says of the whole
//! context, by an oracle that shares none of its shortcuts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;

use palyra_policy::{CallRequest, Touch};
use palyra_types::{Action, Principal, Resource};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use crate::support::{Oracle, Outcome, cases, engine, policies, questions, questions::Question};

/// Questions that are put to each set; loading a set costs more than asking it.
const QUESTIONS: usize = 24;

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn a_decision_and_its_policies_are_those_of_the_whole_set(
        set in policies::sets(40),
        asked in prop::collection::vec(questions::question(), QUESTIONS),
    ) {
        let engine = engine(&set).unwrap();
        let oracle = Oracle::new(&set);
        for question in asked {
            let decision = engine.decide(&question.request, &question.context, &question.config);
            prop_assert_eq!(Outcome::of(&decision), oracle.outcome(&question), "{:#?}", question);
        }
    }
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn a_call_is_decided_as_the_strictest_of_what_it_does_and_touches(
        set in policies::sets(40),
        asked in prop::collection::vec((questions::question(), questions::touches()), 8),
    ) {
        let engine = engine(&set).unwrap();
        let oracle = Oracle::new(&set);
        for (question, touches) in asked {
            let call = CallRequest { request: question.request.clone(), touches };
            let decision = engine.decide_call(&call, &question.context, &question.config);
            let told: Vec<_> = decision.parts.iter().map(|part| Outcome::of(&part.decision)).collect();
            let parts = std::iter::once(question.clone()).chain(call.touches.iter().map(|touch| touched(&question, touch)));
            let expected: Vec<_> = parts.map(|part| oracle.outcome(&part)).collect();
            prop_assert_eq!(told, expected, "{:#?} of {:#?}", call, question.context);
            let strictest = decision.parts.iter().map(|part| part.decision.verdict).max();
            prop_assert_eq!(Some(decision.verdict), strictest);
        }
    }
}

/// The question that a touch is on its own.
fn touched(question: &Question, touch: &Touch) -> Question {
    let (action, resource, port) = match touch {
        Touch::Read(path) => (Action::FsRead, format!("path:{path}"), None),
        Touch::Write(path) => (Action::FsWrite, format!("path:{path}"), None),
        Touch::Connect(host, port) => (Action::NetConnect, format!("host:{host}"), Some(*port)),
        Touch::Use(secret) => (Action::VaultUse, format!("secret:{secret}"), None),
        Touch::Reveal(secret) => (Action::VaultGet, format!("secret:{secret}"), None),
        Touch::Execute(skill) => (Action::SkillExecute, format!("skill:{skill}"), None),
        Touch::Object { action, resource } => (*action, resource.to_string(), None),
    };
    let mut part = question.clone();
    part.request.action = action;
    part.request.resource = Resource::parse(&resource).unwrap();
    part.context.port = port;
    part
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn an_answer_that_was_given_before_is_taken_for_the_same_question_only(
        set in policies::sets(40),
        asked in prop::collection::vec(questions::question(), 2..6),
    ) {
        let engine = engine(&set).unwrap();
        let oracle = Oracle::new(&set);
        let tool = Resource::parse("tool:process.run").unwrap();
        let about_tools = asked.into_iter().map(|mut question| {
            question.request.resource = tool.clone();
            question.request.action = Action::ToolExecute;
            question.context.tool_name = None;
            question
        });
        let about_tools: Vec<_> = about_tools.collect();
        for (one, other) in about_tools.iter().zip(about_tools.iter().cycle().skip(1)) {
            // Each is asked, then asked again with one thing changed, and then once more as it was.
            for change in CHANGES {
                let mut changed = one.clone();
                change(&mut changed, other);
                // Nobody acts for themselves with other roles than their own; that is refused before any question.
                let own = |user: &Principal| (user.kind(), user.id()) == (changed.request.principal.kind(), changed.request.principal.id());
                if changed.context.on_behalf_of.as_ref().is_some_and(own) {
                    changed.context.on_behalf_of = None;
                }
                for question in [one, &changed, one, &changed] {
                    let decision = engine.decide(&question.request, &question.context, &question.config);
                    prop_assert_eq!(Outcome::of(&decision), oracle.outcome(question), "{:#?}", question);
                }
            }
        }
    }
}

/// Takes over one thing from another question.
const CHANGES: &[fn(&mut Question, &Question)] = &[
    |one, other| one.request.principal = other.request.principal.clone(),
    |one, other| one.config = other.config.clone(),
    |one, other| one.context.device_id.clone_from(&other.context.device_id),
    |one, other| one.context.channel.clone_from(&other.context.channel),
    |one, other| one.context.session_id = other.context.session_id,
    |one, other| one.context.run_id = other.context.run_id,
    |one, other| one.context.token_id.clone_from(&other.context.token_id),
    |one, other| one.context.on_behalf_of.clone_from(&other.context.on_behalf_of),
    |one, other| one.context.now = other.context.now,
    |one, other| one.context.skill_id.clone_from(&other.context.skill_id),
    |one, other| one.context.capabilities.clone_from(&other.context.capabilities),
    |one, other| one.context.workspace.clone_from(&other.context.workspace),
    |one, other| one.context.process.clone_from(&other.context.process),
    |one, other| one.context.member_of.clone_from(&other.context.member_of),
    |one, other| one.context.role = other.context.role,
    |one, other| one.context.port = other.context.port,
    |one, other| one.context.configured = other.context.configured,
    |one, other| one.context.bound_secrets.clone_from(&other.context.bound_secrets),
    |one, other| one.context.posture = other.context.posture,
    |one, other| one.context.tier = other.context.tier,
    |one, other| one.context.egress = other.context.egress,
    |one, other| one.context.elsewhere = other.context.elsewhere,
];

#[test]
fn the_generated_questions_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let oracles: Vec<_> = (0..12).map(|_| Oracle::new(&sample(&mut runner, &policies::sets(40)))).collect();
    let questions = questions::question();
    let mut reached = BTreeSet::new();
    for _ in 0..60 {
        let question = sample(&mut runner, &questions);
        reached.extend(oracles.iter().map(|oracle| match oracle.outcome(&question) {
            Outcome::Allow { .. } => "allow",
            Outcome::Ask { .. } => "ask",
            Outcome::Forbidden { .. } => "forbidden",
            Outcome::NotPermitted => "not permitted",
            Outcome::Failed { .. } => "failed",
            Outcome::Contradictory { .. } => "contradictory",
            Outcome::Malformed => "malformed",
        }));
    }
    let expected = ["allow", "ask", "failed", "forbidden", "malformed", "not permitted"];
    assert_eq!(reached, BTreeSet::from(expected));
}

fn sample<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}
