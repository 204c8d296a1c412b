//! What a policy set must be to be loaded, and that bad input never changes the set in force.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use palyra_policy::{Engine, LoadError, PolicyRequest, PolicyRequestContext, Preset, Snapshot, SourceFile, Verdict};
use palyra_types::{Action, Principal, Resource, SecretRef, Timestamp};

const GOOD: &str = "@id(\"good\") permit (principal, action == Palyra::Action::\"fs.read\", resource);";

fn load(text: &str) -> Result<Snapshot, LoadError> {
    Snapshot::load(&[SourceFile::operator("rules.cedar", text)])
}

/// What is wrong with a text, as `code line:column`.
fn problems(text: &str) -> Vec<String> {
    let findings = load(text).map_or_else(|error| error.findings, |_| Vec::new());
    let tell = |finding: &palyra_policy::Finding| {
        format!("{} {}:{}", finding.problem.code(), finding.location.line, finding.location.column)
    };
    findings.iter().map(tell).collect()
}

#[test]
fn every_problem_of_every_policy_is_reported_at_once_with_its_place() {
    let text = format!(
        "{GOOD}\n\
         permit (principal, action, resource);\n\
         @id(\"good\") forbid (principal, action == Palyra::Action::\"fs.read\", resource);\n\
         @id(\"bad name\") forbid (principal, action == Palyra::Action::\"fs.read\", resource);\n\
         @id(\"baseline.mine\") forbid (principal, action == Palyra::Action::\"fs.read\", resource);\n\
         @id(\"typo\") forbid (principal, action == Palyra::Action::\"fs.raed\", resource);\n\
         @id(\"broken\") forbid (principal action, resource);"
    );
    assert_eq!(
        problems(&text),
        ["missing_id 2:1", "duplicate_id 3:1", "bad_id 4:1", "reserved_id 5:1", "schema 6:42", "syntax 7:33"]
    );
}

#[test]
fn every_finding_comes_with_advice() {
    for text in [
        "permit",
        "@id(\"a\") permit (principal, action, resource) when { context.x };",
        "permit(principal,action,resource);",
        "\u{feff}x",
    ] {
        for finding in load(text).unwrap_err().findings {
            assert!(!finding.problem.advice().is_empty(), "{finding:?}");
            assert!(!finding.problem.to_string().is_empty(), "{finding:?}");
        }
    }
}

#[test]
fn a_set_whose_approval_could_take_something_away_is_refused() {
    let permit = "@id(\"a\") permit (principal, action == Palyra::Action::\"tool.execute\", resource)";
    let forbid = "@id(\"a\") forbid (principal, action == Palyra::Action::\"tool.execute\", resource)";
    for bad in [
        format!("{permit} unless {{ context.approved }};"),
        format!("{permit} when {{ !context.approved }};"),
        format!("{forbid} when {{ context.approved }};"),
        format!("{permit} when {{ context.approved == context.allowlisted }};"),
    ] {
        assert_eq!(problems(&bad), ["approval_inverted 1:1"], "{bad}");
    }
    for good in [format!("{permit} when {{ context.approved }};"), format!("{forbid} unless {{ context.approved }};")] {
        assert_eq!(problems(&good), Vec::<String>::new(), "{good}");
    }
}

#[test]
fn policies_that_would_test_a_stack_are_refused_and_those_at_the_limit_are_fine() {
    let with = |condition: &str| {
        format!(
            "@id(\"a\") permit (principal, action == Palyra::Action::\"fs.read\", resource) when {{ {condition} }};"
        )
    };
    let nested = |open: &str, inner: &str, close: &str, depth: usize| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let chain = |count: usize| vec!["context.approved"; count].join(" || ");
    assert_eq!(problems(&with(&nested("(", "true", ")", 10_000))), ["too_deep 1:1"]);
    assert_eq!(problems(&with(&nested("if true then ", "true", " else true", 10_000))), ["too_deep 1:1"]);
    assert_eq!(problems(&with(&nested("[", "", "]", 100_000))), ["too_deep 1:1"]);
    assert_eq!(problems(&with(&chain(100_000))), ["too_long 1:1"]);
    // The limit itself loads, on the small stack of a test thread.
    let none = Vec::<String>::new();
    assert_eq!(problems(&with(&nested("(", "context.approved", ")", 40))), none);
    assert_eq!(problems(&with(&chain(166))), none);
    assert_eq!(
        problems(&with(&nested("if context.allowlisted then (", "context.runs_palyra", ") else false", 20))),
        none
    );
    // Brackets in strings and comments nest nothing.
    let comment = format!("// {}\n true", "(".repeat(1000));
    assert_eq!(problems(&with(&comment)), none);
}

#[test]
fn a_carriage_return_that_ends_a_comment_for_cedar_alone_loses_no_forbid() {
    // Cedar ends the comment at the return; whoever cuts at line feeds would take the forbid for a part of the comment.
    let lost = "// my rules\r@id(\"a\") forbid (principal, action, resource);\r";
    assert_eq!(problems(lost), ["hidden_character 1:12"]);
    let narrowed = "@id(\"a\") forbid (principal, action, resource) // note\rwhen { context.runs_palyra }\n;";
    assert_eq!(problems(narrowed), ["hidden_character 1:54"]);
    let deep = format!("{GOOD} // \r{}", "(".repeat(100_000));
    assert_eq!(problems(&deep), [format!("hidden_character 1:{}", GOOD.len() + 5)]);
    // Lines that end as on Windows are fine.
    assert_eq!(problems(&format!("// a note\r\n{GOOD}\r\n")), Vec::<String>::new());
}

#[test]
fn a_comment_between_policies_hides_nothing_either() {
    assert_eq!(problems(&format!("{GOOD}\n// \u{202e}tibrof\n")), ["hidden_character 2:4"]);
}

#[test]
fn a_bad_set_leaves_the_old_one_in_force() {
    let engine = Engine::new(&[SourceFile::operator("a", GOOD)]).unwrap();
    let before = engine.snapshot().digest();
    assert!(engine.reload(&[SourceFile::operator("a", "permit (")]).is_err());
    assert_eq!(engine.snapshot().digest(), before);
    let next = engine.reload(&[]).unwrap();
    assert_ne!(next.digest(), before);
    assert_eq!(engine.snapshot().digest(), next.digest());
}

#[test]
fn a_snapshot_taken_before_a_reload_keeps_answering_by_the_old_set() {
    let engine = Engine::new(&[SourceFile::operator("a", GOOD)]).unwrap();
    let old = engine.snapshot();
    let before = old.digest();
    engine.reload(&[]).unwrap();
    assert_eq!(old.digest(), before);
    assert!(old.policies().any(|policy| policy.id.as_str() == "good"));
}

#[test]
fn decisions_made_during_reloads_are_each_by_one_whole_set() {
    let permit = SourceFile::operator(
        "permit",
        "@id(\"p\") permit (principal, action == Palyra::Action::\"vault.use\", resource);",
    );
    let forbid = SourceFile::operator(
        "forbid",
        "@id(\"f\") forbid (principal, action == Palyra::Action::\"vault.use\", resource);",
    );
    let sets = [vec![permit.clone()], vec![permit, forbid]];
    let engine = Engine::new(&sets[0]).unwrap();
    let allowing = engine.snapshot().digest();
    let request = PolicyRequest {
        principal: Principal::parse("agent:claude").unwrap(),
        action: Action::VaultUse,
        resource: Resource::parse("secret:global/key").unwrap(),
    };
    let context = PolicyRequestContext {
        bound_secrets: [SecretRef::parse("global/key").unwrap()].into(),
        ..PolicyRequestContext::at(Timestamp::from_unix_millis(0))
    };
    let config = Preset::Cautious.config().unwrap();
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let deciders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = HashSet::new();
                    while !done.load(Ordering::Relaxed) {
                        let decision = engine.decide(&request, &context, &config);
                        let expected = if decision.policy_set == allowing { Verdict::Allow } else { Verdict::Deny };
                        assert_eq!(decision.verdict, expected);
                        seen.insert(decision.policy_set);
                    }
                    seen
                })
            })
            .collect();
        for round in 0..40 {
            engine.reload(&sets[round % 2]).unwrap();
            assert!(engine.reload(&[SourceFile::operator("bad", "permit (")]).is_err());
        }
        done.store(true, Ordering::Relaxed);
        deciders.into_iter().flat_map(|decider| decider.join().unwrap()).collect::<HashSet<_>>()
    });
    assert_eq!(seen.len(), 2, "both sets decided");
}

#[test]
fn too_much_policy_is_refused_as_a_whole() {
    let files: Vec<_> = (0..5).map(|n| SourceFile::operator(format!("{n}"), "// x\n".repeat(800_000))).collect();
    let error = Snapshot::load(&files).unwrap_err();
    assert_eq!(error.findings[0].problem.code(), "too_large");
}

#[test]
fn the_baseline_is_there_whatever_the_operator_writes() {
    for operator in [&[][..], &[SourceFile::operator("a", GOOD)]] {
        let set = Snapshot::load(operator).unwrap();
        for id in ["baseline.posture-disabled", "baseline.sensitive-capability", "baseline.agents-do-not-govern"] {
            assert!(set.policies().any(|policy| policy.id.as_str() == id), "{id}");
        }
    }
}

#[test]
fn one_slip_in_a_policy_about_every_action_is_told_once() {
    assert_eq!(
        problems("@id(\"a\") permit (principal, action, resource)\nwhen { context.tier == Palyra::Tier::\"c\" };"),
        ["schema 2:8"]
    );
}

#[test]
fn a_condition_about_a_fixed_entity_is_refused() {
    let rule = |condition: &str| format!("@id(\"a\") forbid (principal, action, resource) when {{ {condition} }};");
    assert_eq!(problems(&rule("Palyra::User::\"ada\" in Palyra::Role::\"owner\"")), ["fixed_subject 1:1"]);
    assert_eq!(problems(&rule("principal in Palyra::Role::\"owner\"")), Vec::<String>::new());
}
