//! The engine evaluates a few policies on a part of the context. These tests hold it to what the whole set says of the whole
//! context, by an oracle that shares none of its shortcuts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

mod support;

use std::collections::BTreeSet;

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use support::{Oracle, Outcome, cases, engine, policies, questions};

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
