//! Cedar skips a policy that fails, even a `forbid`, and decides without it. The engine denies instead and names the policy.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

use palyra_policy::{Cause, Engine, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, SourceFile, Verdict};
use palyra_types::{Action, Principal, Resource, Timestamp};

use crate::support::{Oracle, Outcome, Question};

/// Connecting is permitted, except to high ports; the arithmetic of the exception overflows for every port but 0.
const PERMIT: &str = r#"
@id("connect")
permit (principal, action == Palyra::Action::"net.connect", resource);"#;

const FAILING_FORBID: &str = r#"
@id("no-high-ports")
forbid (principal, action == Palyra::Action::"net.connect", resource)
when { context has port && context.port * 9223372036854775807 * 2 > 1024 };"#;

#[test]
fn cedar_allows_a_request_whose_forbid_fails_and_the_engine_denies_it() {
    let set = [PERMIT.to_owned(), FAILING_FORBID.to_owned()];
    let question = connect_to_port(443);

    let answers = Oracle::new(&set).answers(&question).unwrap();
    assert!(answers.unapproved.allowed, "Cedar skips the forbid");
    assert_eq!(answers.unapproved.reasons, ["connect"]);
    assert_eq!(answers.unapproved.failed, ["no-high-ports"]);

    let engine = Engine::new(&[SourceFile::operator("ports.cedar", set.concat())]).unwrap();
    let decision = engine.decide(&question.request, &question.context, &question.config);
    assert_eq!(decision.verdict, Verdict::Deny);
    assert_eq!(Outcome::of(&decision), Outcome::Failed { policies: vec!["no-high-ports".to_owned()] });
    assert_eq!(
        decision.policies().iter().map(|policy| policy.location.to_string()).collect::<Vec<_>>(),
        ["ports.cedar:4"]
    );
    assert!(
        decision.reason().starts_with("the policy `no-high-ports` could not be evaluated: "),
        "{}",
        decision.reason()
    );
}

#[test]
fn the_same_set_decides_where_nothing_fails() {
    let engine = engine(&[PERMIT, FAILING_FORBID]);
    let question = connect_to_port(0);
    let decision = engine.decide(&question.request, &question.context, &question.config);
    assert_eq!(Outcome::of(&decision), Outcome::Allow { by: vec!["connect".to_owned()] });
}

#[test]
fn a_permit_that_fails_denies_although_another_one_permits() {
    let failing = FAILING_FORBID.replace("forbid", "permit");
    let question = connect_to_port(443);
    let decision = engine(&[PERMIT, &failing]).decide(&question.request, &question.context, &question.config);
    assert!(matches!(decision.cause, Cause::Failed { .. }), "{decision:?}");
}

#[test]
fn a_policy_that_fails_only_once_approved_denies_instead_of_asking() {
    let asks = PERMIT.replace(';', " when { context.approved };");
    let failing =
        FAILING_FORBID.replace("forbid", "permit").replace("context has port", "context.approved && context has port");
    let question = connect_to_port(443);
    let ask = |set: &[&str]| engine(set).decide(&question.request, &question.context, &question.config);
    assert_eq!(ask(&[&asks]).verdict, Verdict::Ask);
    assert_eq!(Outcome::of(&ask(&[&asks, &failing])), Outcome::Failed { policies: vec!["no-high-ports".to_owned()] });
}

#[test]
fn a_policy_that_fails_about_something_else_is_no_concern_of_the_request() {
    let elsewhere = FAILING_FORBID.replace("net.connect", "fs.read");
    let question = connect_to_port(443);
    let decision = engine(&[PERMIT, &elsewhere]).decide(&question.request, &question.context, &question.config);
    assert_eq!(Outcome::of(&decision), Outcome::Allow { by: vec!["connect".to_owned()] });
}

fn engine(set: &[&str]) -> Engine {
    Engine::new(&[SourceFile::operator("ports.cedar", set.concat())]).unwrap()
}

fn connect_to_port(port: u16) -> Question {
    Question {
        request: PolicyRequest {
            principal: Principal::parse("agent:claude").unwrap(),
            action: Action::NetConnect,
            resource: Resource::parse("host:example.org").unwrap(),
        },
        context: PolicyRequestContext { port: Some(port), ..PolicyRequestContext::at(Timestamp::from_unix_millis(0)) },
        config: PolicyEvaluationConfig::default(),
    }
}
