//! What holds of every policy set and every request, whatever an operator writes and whatever an agent asks.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;

use palyra_policy::{Cause, Decision, Engine, Layer, LoadError, Snapshot, SourceFile, Verdict};
use proptest::{prelude::*, sample::select};

use crate::support::{
    Oracle, Outcome, Question, cases, engine, files,
    policies::{self, Approval, Failures},
    questions,
};

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn nothing_is_allowed_that_cedar_would_not_allow_on_its_own(set in policies::sets(12), asked in asked(24)) {
        let engine = engine(&set).unwrap();
        let oracle = Oracle::new(&set);
        for question in asked {
            let decision = decide(&engine, &question);
            if decision.verdict == Verdict::Deny {
                continue;
            }
            let answers = oracle.answers(&question).unwrap();
            prop_assert!(answers.approved.allowed && answers.approved.failed.is_empty(), "{:#?}", question);
            prop_assert!(answers.unapproved.failed.is_empty(), "{:#?}", question);
            prop_assert_eq!(answers.unapproved.allowed, decision.verdict == Verdict::Allow, "{:#?}", question);
        }
    }

    #[test]
    fn every_deny_names_a_reason(set in policies::sets(12), asked in asked(24)) {
        let engine = engine(&set).unwrap();
        for question in asked {
            let decision = decide(&engine, &question);
            if decision.verdict != Verdict::Deny {
                continue;
            }
            prop_assert!(!decision.reason().is_empty());
            if matches!(decision.cause, Cause::Forbidden { .. } | Cause::Failed { .. }) {
                let first = decision.policies().first().map(|policy| policy.id.to_string());
                prop_assert!(first.is_some_and(|id| decision.reason().contains(&id)), "{:?}", decision);
            }
        }
    }

    #[test]
    fn removing_an_operator_policy_never_lifts_a_baseline_forbid(
        (set, removed) in non_empty(policies::sets(8)),
        asked in asked(24),
    ) {
        let mut rest = set.clone();
        rest.remove(removed);
        let (whole, rest) = (engine(&set).unwrap(), engine(&rest).unwrap());
        for question in asked {
            if let Outcome::Forbidden { by } = Outcome::of(&decide(&whole, &question)) {
                let baseline = |ids: Vec<String>| -> BTreeSet<String> {
                    ids.into_iter().filter(|id| id.starts_with("baseline.")).collect()
                };
                let expected = baseline(by);
                if expected.is_empty() {
                    continue;
                }
                let Outcome::Forbidden { by } = Outcome::of(&decide(&rest, &question)) else {
                    return Err(TestCaseError::fail(format!("no longer forbidden: {question:#?}")));
                };
                prop_assert_eq!(baseline(by), expected, "{:#?}", question);
            }
        }
    }

    #[test]
    fn a_broken_set_changes_nothing(
        (set, broken_at) in non_empty(policies::sets(6)),
        other in policies::sets(6),
        breakage in select(BREAKAGES),
        asked in asked(12),
    ) {
        let engine = engine(&set).unwrap();
        let digest = engine.snapshot().digest();
        let before: Vec<Decision> = asked.iter().map(|question| decide(&engine, question)).collect();

        let mut broken = files(&other);
        broken.insert(broken_at.min(broken.len()), SourceFile::operator("broken.cedar", breakage.1));
        let error: LoadError = engine.reload(&broken).unwrap_err();
        // The validator repeats itself for every action that a policy is about.
        let found: BTreeSet<_> =
            error.findings.iter().map(|finding| (&*finding.location.file, finding.problem.code())).collect();
        prop_assert_eq!(found, BTreeSet::from([("broken.cedar", breakage.0)]));

        prop_assert_eq!(engine.snapshot().digest(), digest);
        let after: Vec<Decision> = asked.iter().map(|question| decide(&engine, question)).collect();
        prop_assert_eq!(after, before);
    }

    #[test]
    fn the_digest_and_the_decisions_do_not_depend_on_files(
        (set, shuffled) in policies::sets(8).prop_flat_map(|set| (Just(set.clone()), Just(set).prop_shuffle())),
        split in any::<prop::sample::Index>(),
        asked in asked(12),
    ) {
        let apart = engine(&set).unwrap();
        let (first, second) = shuffled.split_at(split.index(shuffled.len() + 1));
        let two_files = [("z.cedar", first), ("a.cedar", second)].map(|(name, part)| {
            SourceFile::operator(name, format!("// A note; it decides nothing.\n{}\n", part.join("\n\n")))
        });
        let together = Engine::new(&two_files).unwrap();
        prop_assert_eq!(apart.snapshot().digest(), together.snapshot().digest());
        for question in asked {
            let [one, other] = [&apart, &together].map(|engine| Outcome::of(&decide(engine, &question)));
            prop_assert_eq!(one, other, "{:#?}", question);
        }
    }

    #[test]
    fn the_digest_changes_with_the_text_of_any_policy(
        (set, changed) in non_empty(policies::sets(8)),
        change in select(CHANGES),
    ) {
        let mut other = set.clone();
        other[changed] = change(&set[changed]);
        let [before, after] = [&set, &other].map(|set| Snapshot::load(&files(set)).unwrap().digest());
        prop_assert_ne!(before, after, "{} and {}", set[changed], other[changed]);
    }

    #[test]
    fn in_a_set_that_loads_an_approval_takes_nothing_away(
        set in policies::set_of(10, Failures::Sometimes, Approval::Anywhere),
        asked in asked(32),
    ) {
        let (engine, kept) = load_what_loads(set);
        let oracle = Oracle::new(&kept);
        // The baseline denies much that these policies would contradict themselves about, so they are judged alone as well.
        let alone = Oracle::of(&kept.iter().map(String::as_str).collect::<Vec<_>>());
        for question in asked {
            let outcomes = [Outcome::of(&decide(&engine, &question)), oracle.outcome(&question), alone.outcome(&question)];
            for outcome in outcomes {
                let contradictory = matches!(outcome, Outcome::Contradictory { .. });
                prop_assert!(!contradictory, "{:?} by {:#?} for {:#?}", outcome, kept, question);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn an_action_on_a_resource_it_is_not_about_is_malformed(question in questions::misfit()) {
        let decision = palyra_policy::evaluate_with_context(&question.request, &question.context, &question.config).unwrap();
        prop_assert!(matches!(decision.cause, Cause::Malformed { .. }), "{:?}", decision);
        prop_assert_eq!(decision.verdict, Verdict::Deny);
    }
}

#[test]
fn a_permit_that_an_approval_takes_away_is_contradictory_and_does_not_load() {
    let set = vec![
        r#"@id("until-approved") permit (principal, action == Palyra::Action::"net.connect", resource) unless { context.approved };"#
            .to_owned(),
    ];
    let question = calm_question();
    assert_eq!(Oracle::new(&set).outcome(&question), Outcome::Contradictory { by: Vec::new() });
    let codes: Vec<_> = engine(&set).unwrap_err().findings.iter().map(|finding| finding.problem.code()).collect();
    assert_eq!(codes, ["approval_inverted"]);
}

#[test]
fn the_baseline_is_in_every_set_and_nothing_else_is_called_baseline() {
    let baseline: Vec<_> = Snapshot::load(&[]).unwrap().policies().map(|policy| policy.id.clone()).collect();
    assert!(!baseline.is_empty());
    let set = Snapshot::load(&files(&["@id(\"own\") permit (principal, action, resource);".to_owned()])).unwrap();
    let in_baseline: Vec<_> =
        set.policies().filter(|policy| policy.layer == Layer::Baseline).map(|policy| policy.id.clone()).collect();
    assert_eq!(in_baseline, baseline);
    assert!(
        set.policies().all(|policy| policy.id.as_str().starts_with("baseline.") == (policy.layer == Layer::Baseline))
    );
}

/// Policies that keep a set from loading, by the code of the problem they make.
const BREAKAGES: &[(&str, &str)] = &[
    ("syntax", "@id(\"x\") permit (principal, action, resource) when { context.approved;"),
    ("syntax", "@id(\"x\") permit (principal, action);"),
    ("missing_id", "permit (principal, action, resource);"),
    ("bad_id", "@id(\"has spaces\") permit (principal, action, resource);"),
    (
        "duplicate_id",
        "@id(\"x\") permit (principal, action, resource); @id(\"x\") forbid (principal, action, resource);",
    ),
    (
        "duplicate_id",
        "@id(\"x\") permit (principal, action, resource); @id(\"x\") permit (principal, action, resource);",
    ),
    ("reserved_id", "@id(\"baseline.posture-disabled\") permit (principal, action, resource);"),
    ("reserved_id", "@id(\"baseline.new\") permit (principal, action, resource);"),
    ("template", "@id(\"x\") permit (principal == ?principal, action, resource);"),
    ("schema", "@id(\"x\") permit (principal, action, resource) when { context.aproved };"),
    ("schema", "@id(\"x\") permit (principal, action == Palyra::Action::\"tool.exec\", resource);"),
    ("schema", "@id(\"x\") permit (principal, action, resource) when { context.tier == Palyra::Tier::\"c\" };"),
    ("schema", "@id(\"x\") permit (principal, action, resource) when { context.posture == Palyra::Posture::\"off\" };"),
    ("approval_inverted", "@id(\"x\") permit (principal, action, resource) unless { context.approved };"),
    ("approval_inverted", "@id(\"x\") forbid (principal, action, resource) when { context.approved };"),
    (
        "fixed_subject",
        "@id(\"x\") permit (principal, action, resource) when { Palyra::User::\"ada\" in Palyra::Role::\"owner\" };",
    ),
    ("hidden_character", "@id(\"x\") @why(\"a\u{202e}b\") permit (principal, action, resource);"),
];

/// Ways to change the text of a policy, some of them without a change of meaning.
const CHANGES: &[fn(&str) -> String] = &[
    |text| format!("@why(\"changed\")\n{text}"),
    |text| text.replace('\n', "\n "),
    |text| text.replacen("@id(\"p", "@id(\"q", 1),
    |text| text.replacen(';', "\nwhen { context.allowlisted };", 1),
    |text| text.replacen(';', "// a note\n;", 1),
];

fn asked(number: usize) -> impl Strategy<Value = Vec<Question>> {
    prop::collection::vec(questions::question(), number)
}

/// A set with at least one policy, and the position of one of them.
fn non_empty(sets: impl Strategy<Value = Vec<String>>) -> impl Strategy<Value = (Vec<String>, usize)> {
    sets.prop_filter("the set is empty", |set| !set.is_empty()).prop_flat_map(|set| {
        let positions = 0..set.len();
        (Just(set), positions)
    })
}

fn decide(engine: &Engine, question: &Question) -> Decision {
    engine.decide(&question.request, &question.context, &question.config)
}

/// An engine with those policies of a set that the lint lets through, and their texts.
fn load_what_loads(set: Vec<String>) -> (Engine, Vec<String>) {
    match engine(&set) {
        Ok(engine) => (engine, set),
        Err(error) => {
            let refused: BTreeSet<String> = error
                .findings
                .iter()
                .inspect(|finding| assert_eq!(finding.problem.code(), "approval_inverted", "{finding:?}"))
                .map(|finding| finding.location.file.to_string())
                .collect();
            let names = files(&set);
            let kept: Vec<String> = set
                .iter()
                .zip(names)
                .filter(|(_, file)| !refused.contains(file.name()))
                .map(|(text, _)| text.clone())
                .collect();
            (engine(&kept).unwrap(), kept)
        }
    }
}

/// A question that no baseline forbid answers: `agent:claude` connects to `example.org`.
fn calm_question() -> Question {
    use palyra_policy::{PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext};
    use palyra_types::{Action, Principal, Resource, Timestamp};
    Question {
        request: PolicyRequest {
            principal: Principal::parse("agent:claude").unwrap(),
            action: Action::NetConnect,
            resource: Resource::parse("host:example.org").unwrap(),
        },
        context: PolicyRequestContext::at(Timestamp::from_unix_millis(0)),
        config: PolicyEvaluationConfig::default(),
    }
}
