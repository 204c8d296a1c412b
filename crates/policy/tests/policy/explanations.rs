//! Every answer explains itself: near misses, suggested rules, and who can change what.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use palyra_policy::{
    CallRequest, Cause, Explanation, PolicyEvaluationConfig, PolicyRequestContext, Preset, RequestDocument, Snapshot,
    SourceFile, Verdict, builtin_tools,
};
use palyra_types::{AbsolutePath, Timestamp, WorkspaceName};
use proptest::prelude::*;

const CARGO: &str = "principal = 'agent:claude'\naction = 'tool.execute'\nresource = 'tool:process.run'\n\
                     run = ['/usr/bin/cargo', 'test']\ncwd = '/home/ada/shop'\nworkspace = 'shop'\ntier = 'b'\nchannel = 'mcp'\n";

fn config() -> PolicyEvaluationConfig {
    let shop = (WorkspaceName::parse("shop").unwrap(), AbsolutePath::parse("/home/ada/shop").unwrap());
    PolicyEvaluationConfig { workspaces: BTreeMap::from([shop]), ..Preset::Cautious.config().unwrap() }
}

fn read(request: &str) -> (CallRequest, PolicyRequestContext) {
    let document: RequestDocument = toml::from_str(request).unwrap();
    document.read(Timestamp::from_unix_millis(1_770_000_000_000), &builtin_tools().unwrap()).unwrap()
}

fn cautious_with(rules: &str) -> Snapshot {
    Snapshot::load(&[Preset::Cautious.source(), SourceFile::operator("rules.cedar", rules)]).unwrap()
}

fn explain(rules: &str, request: &str) -> Explanation {
    let (call, context) = read(request);
    cautious_with(rules).explain(&call.request, &context, &config())
}

/// The near misses as `policy: required / actual`.
fn misses(explanation: &Explanation) -> Vec<String> {
    explanation
        .near_misses
        .iter()
        .map(|miss| format!("{}: {} / {}", miss.policy.id, miss.required, miss.actual))
        .collect()
}

#[test]
fn a_deciding_policy_is_named_with_its_place_and_its_why() {
    let explanation = explain("", CARGO);
    assert_eq!(explanation.decision.verdict, Verdict::Ask);
    let policy = explanation.decision.policies()[0];
    assert_eq!(policy.id.as_str(), "baseline.execute-ask");
    assert_eq!(&*policy.location.file, "built-in:baseline.cedar");
    assert!(policy.location.line > 1);
    assert!(policy.why.is_some());
}

#[test]
fn a_default_deny_tells_the_first_condition_that_fails_with_actual_and_required() {
    let rules = "@id(\"by-channel\") permit (principal, action == Palyra::Action::\"vault.use\", resource) \
                 when { context has channel && context.channel == \"cli\" && context has tier };\n\
                 @id(\"by-agent\") permit (principal == Palyra::Agent::\"other\", action == Palyra::Action::\"vault.use\", resource);\n\
                 @id(\"by-scope\") permit (principal, action == Palyra::Action::\"vault.use\", resource in Palyra::SecretScope::\"workspace:shop\");\n\
                 @id(\"elsewhere\") permit (principal, action == Palyra::Action::\"fs.read\", resource);";
    let set = Snapshot::load(&[SourceFile::operator("rules.cedar", rules)]).unwrap();
    let (call, context) = read(
        "principal = 'agent:claude'\naction = 'vault.use'\nresource = 'secret:global/key'\nchannel = 'mcp'\nbound = ['global/key']",
    );
    let explanation = set.explain(&call.request, &context, &config());
    assert_eq!(explanation.decision.cause, Cause::NotPermitted);
    assert_eq!(
        misses(&explanation),
        [
            "by-channel: context.channel == \"cli\" / context.channel is \"mcp\"",
            "baseline.use-secret-always-allow: context.allowlisted / context.allowlisted is false",
            "baseline.use-secret-ask: context.allowlisted / context.allowlisted is false",
            "by-agent: principal == Palyra::Agent::\"other\" / principal is Palyra::Agent::\"claude\"",
            "by-scope: resource in Palyra::SecretScope::\"workspace:shop\" / resource is Palyra::Secret::\"global/key\"",
        ]
    );
}

#[test]
fn a_rule_that_a_secret_just_misses_tells_what_to_do_about_the_secret() {
    let rules = "@id(\"bound\") permit (principal, action == Palyra::Action::\"vault.put\", resource) when { context.bound };\n\
                 @id(\"here\") permit (principal, action == Palyra::Action::\"vault.put\", resource) when { context.in_scope };";
    let request =
        "principal = 'service:ci'\naction = 'vault.put'\nresource = 'secret:workspace:web/key'\nworkspace = 'shop'";
    let explanation = explain(rules, request);
    assert_eq!(explanation.decision.cause, Cause::NotPermitted);
    let hints: Vec<_> = explanation
        .near_misses
        .iter()
        .map(|miss| (miss.policy.id.as_str(), miss.actual.as_str(), miss.hint.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(
        hints[..2],
        [
            ("bound", "context.bound is false", "let the tool send the secret to a host with `palyra vault bind`"),
            (
                "here",
                "context.in_scope is false",
                "name a secret that is global or belongs to the call's workspace, agent, skill or session"
            ),
        ]
    );
}

#[test]
fn a_secret_that_cannot_be_used_says_why_and_who_can_change_that() {
    let told = |secret: &str, more: &str| {
        let (call, context) = read(&format!(
            "principal = 'agent:claude'\nresource = 'tool:http.fetch'\nworkspace = 'shop'\nuses = ['{secret}']\n{more}"
        ));
        let parts = cautious_with("").explain_call(&call, &context, &config());
        assert_eq!(parts.len(), 2);
        (parts[1].reason.clone(), parts[1].change.clone(), parts[1].suggestion.clone())
    };
    assert_eq!(
        told("global/github", ""),
        (
            "no binding lets this tool send the secret anywhere [baseline.secret-unbound]".to_owned(),
            vec!["an owner or admin binds the secret to a host with `palyra vault bind`".to_owned()],
            None
        )
    );
    assert_eq!(
        told("workspace:web/key", "bound = ['workspace:web/key']"),
        (
            "the secret belongs to another workspace, agent, skill or session [baseline.secret-out-of-scope]"
                .to_owned(),
            vec!["an owner or admin stores the secret in a scope that the call is in".to_owned()],
            None
        )
    );
}

#[test]
fn a_rule_suggested_for_one_secret_permits_no_other() {
    let workspace = Snapshot::load(&[Preset::Workspace.source()]).unwrap();
    let request = "principal = 'agent:claude'\naction = 'vault.use'\nresource = 'secret:global/github'\n\
                   tool_name = 'http.fetch'\nworkspace = 'shop'\nbound = ['global/github', 'global/npm']";
    let (call, context) = read(request);
    let rule = workspace.explain(&call.request, &context, &config()).suggestion.expect("an ask has a rule");
    let set = Snapshot::load(&[Preset::Workspace.source(), SourceFile::operator("rules.cedar", rule)]).unwrap();
    let verdict = |request: &str| {
        let (call, context) = read(request);
        set.decide(&call.request, &context, &config()).verdict
    };
    assert_eq!(verdict(request), Verdict::Allow);
    assert_eq!(verdict(&request.replace("secret:global/github", "secret:global/npm")), Verdict::Ask);
    assert_eq!(verdict(&request.replace("tool_name = 'http.fetch'", "tool_name = 'process.run'")), Verdict::Ask);
    assert_eq!(verdict(&request.replace("bound = ['global/github', ", "bound = [")), Verdict::Deny);
}

#[test]
fn a_suggested_rule_changes_exactly_the_request_it_was_made_for() {
    let rule = explain("", CARGO).suggestion.expect("an ask has a rule that stops the asking");
    let set = cautious_with(&rule);
    let verdict = |request: &str| {
        let (call, context) = read(request);
        set.decide(&call.request, &context, &config()).verdict
    };
    assert_eq!(verdict(CARGO), Verdict::Allow);
    for (from, to) in [
        ("agent:claude", "agent:other"),
        ("'test'", "'build'"),
        ("'test'", "'test', '--release'"),
        ("/usr/bin/cargo", "/tmp/cargo"),
        ("cwd = '/home/ada/shop'", "cwd = '/home/ada/shop/other'"),
        ("tier = 'b'", "tier = 'a'"),
        ("channel = 'mcp'", "channel = 'compat'"),
        ("workspace = 'shop'", "workspace = 'other'"),
    ] {
        assert_eq!(verdict(&CARGO.replace(from, to)), Verdict::Ask, "{from} → {to}");
    }
}

#[test]
fn a_rule_suggested_for_a_call_without_a_command_permits_no_command() {
    let bare = "principal = 'agent:claude'\naction = 'tool.execute'\nresource = 'tool:process.run'\n";
    let rule = explain("", bare).suggestion.expect("an ask has a rule that stops the asking");
    let set = cautious_with(&rule);
    let verdict = |more: &str| {
        let (call, context) = read(&format!("{bare}{more}"));
        set.decide(&call.request, &context, &config()).verdict
    };
    assert_eq!(verdict(""), Verdict::Allow);
    for more in [
        "run = ['/bin/rm', '-rf', '/']",
        "tier = 'a'",
        "egress = 'none'",
        "channel = 'mcp'",
        "workspace = 'shop'",
        "on_behalf_of = 'user:ada'",
        "skill_id = 'acme/markdown'",
    ] {
        assert_eq!(verdict(more), Verdict::Ask, "{more}");
    }
}

#[test]
fn an_escape_in_an_annotation_does_not_reach_the_terminal() {
    let rules = "@id(\"a\") @why(\"\\u{1b}[31m\\u{202e}\") forbid (principal, action == Palyra::Action::\"tool.execute\", resource);";
    assert_eq!(explain(rules, CARGO).reason, "<U+001B>[31m<U+202E> [a]");
}

#[test]
fn a_forbid_suggests_no_rule_and_says_who_can_change_what() {
    let explanation = explain("", &format!("{CARGO}posture = 'disabled'"));
    assert!(matches!(explanation.decision.cause, Cause::Forbidden { .. }));
    assert_eq!(explanation.suggestion, None);
    assert_eq!(explanation.change, ["an owner or admin sets another posture for the tool"]);
}

#[test]
fn an_action_that_always_asks_suggests_no_rule() {
    let explanation = explain("", "principal = 'agent:claude'\naction = 'memory.purge'\nresource = 'memory:global'");
    assert_eq!(explanation.decision.verdict, Verdict::Ask);
    assert_eq!(explanation.suggestion, None);
}

#[test]
fn a_command_full_of_quotes_and_hidden_characters_gets_a_rule_that_works() {
    let request = CARGO.replace("'test'", "\"it's \\\"quoted\\\" \\\\ \\u202e \\u0000 *\"");
    let rule = explain("", &request).suggestion.expect("a rule");
    assert_eq!(explain(&rule, &request).decision.verdict, Verdict::Allow);
    assert_eq!(explain(&rule, CARGO).decision.verdict, Verdict::Ask);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn whatever_is_run_the_suggested_rule_permits_it_and_no_other_command(
        args in prop::collection::vec(any::<String>(), 0..4),
        other in prop::collection::vec("[a-z' ]{0,4}", 0..4),
    ) {
        let (call, mut context) = read(CARGO);
        context.process.as_mut().unwrap().args.clone_from(&args);
        let explanation = cautious_with("").explain(&call.request, &context, &config());
        // A command that reaches for Palyra is forbidden, and then there is no rule.
        prop_assume!(explanation.decision.verdict == Verdict::Ask);
        let with = cautious_with(&explanation.suggestion.expect("a rule"));
        prop_assert_eq!(with.decide(&call.request, &context, &config()).verdict, Verdict::Allow);
        context.process.as_mut().unwrap().args.clone_from(&other);
        let expected = if args == other { Verdict::Allow } else { Verdict::Ask };
        prop_assert_eq!(with.decide(&call.request, &context, &config()).verdict, expected);
    }
}
