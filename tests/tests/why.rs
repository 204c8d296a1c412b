//! What a person is told who wants to know why a hook was refused something: `palyra why`, and `palyra explain` with the number that the hook
//! showed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

use std::{fs, sync::Arc};

use palyra_api::authorize::{AuthorizationQuery, AuthorizationSelection, Decision};
use palyra_tests::{
    Said,
    daemon::{DaemonLab, DaemonPlan, asked, no, refused},
};
use serde_json::json;

use crate::hooks::{before, decision, fed, records, wanted};

fn palyra(lab: &DaemonLab, args: &[&str]) -> Said {
    Said::of(lab.palyra().args(args).env("NO_COLOR", "1").output().unwrap())
}

/// The number that a hook shows at the end of its reason.
fn number(reason: &str) -> String {
    let (_, number) = reason.rsplit_once("[record ").unwrap_or_else(|| panic!("{reason}"));
    number.trim_end_matches(']').to_owned()
}

fn holds(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_refused_something_by_the_hook_learns_who_asked_for_what_and_which_policy_denied_it() {
    let lab = DaemonLab::new();
    assert_eq!(palyra(&lab, &["why"]).expect(0).out, "nothing was refused or failed lately\n");
    // What asks or runs is nothing that was refused.
    assert_eq!(decision(&lab, "Bash", &json!({ "command": "ls" })).0, "ask");
    assert_eq!(palyra(&lab, &["why"]).expect(0).out, "nothing was refused or failed lately\n");

    let (denied, reason) = decision(&lab, "Bash", &json!({ "command": "cd /tmp && palyra approvals approve 01J" }));
    assert_eq!(denied, "deny");
    let (why, explained) = (palyra(&lab, &["why"]).expect(0), palyra(&lab, &["explain", &number(&reason)]).expect(0));
    assert_eq!(why.out, explained.out);
    assert!(why.out.starts_with(&format!("record {}  20", number(&reason))), "{}", why.out);
    holds(
        &why.out,
        &[
            "\nagent:local asked to use Bash (process.run) itself, by hook, with token ",
            "\nagent:local tool.execute tool:process.run `",
            "palyra approvals approve 01J",
            " elsewhere in workspace lab\n✖ deny   then: ",
            "\n✖ deny   agent:local tool.execute tool:process.run\n    forbidden by baseline.runs-palyra (built-in:baseline.cedar:",
            "\n      because the call would run Palyra itself, and so could approve its own calls\n",
            "\n    who can change that: nobody; a person runs it outside of Palyra\n",
        ],
    );
    let said = palyra(&lab, &["--json", "why"]).expect(0).json();
    assert_eq!((&said["v"], &said["kind"]), (&json!(1), &json!("authorization.explanation")));
    let (decided, now) = (&said["data"]["decided"], &said["data"]["now"]);
    assert_eq!((&decided["tool"], &decided["meant"]), (&json!("Bash"), &json!("process.run")));
    assert_eq!(decided["told"]["record"].to_string(), number(&reason));
    assert_eq!((&now["verdict"], &now["same_policies"]), (&json!("deny"), &json!(true)));
    assert_eq!(said["data"]["policies"][0]["id"], "baseline.runs-palyra");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_long_is_explained_by_where_it_would_be_written_or_by_its_policies_alone() {
    let lab = DaemonLab::new();
    let own = lab.home().join("policies/own.cedar");
    let (denied, _) = decision(&lab, "Write", &json!({ "file_path": own, "content": "x".repeat(20_000) }));
    assert_eq!(denied, "deny");
    let why = palyra(&lab, &["why"]).expect(0).out;
    let written = format!("writing {}", own.display());
    holds(&why, &[" asked to use Write (fs.write) itself, ", &written, "\n    forbidden by baseline.touches-state ("]);

    // What is run is put to policy whole, and too long to be kept.
    let command = format!("palyra stop # {}", "x".repeat(40_000));
    assert_eq!(decision(&lab, "Bash", &json!({ "command": command })).0, "deny");
    let why = palyra(&lab, &["why"]).expect(0).out;
    holds(
        &why,
        &[
            "palyra stop # x",
            "\n    decided by baseline.runs-palyra (built-in:baseline.cedar:",
            "\n      because the call would run Palyra itself",
            "\n        help: nobody; a person runs it outside of Palyra\n",
        ],
    );
    assert!(why.len() < 4_000, "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_permits_is_explained_with_what_came_close_and_the_rule_that_would_permit_it() {
    let lab = DaemonLab::new();
    let told = lab.agent().authorize(&wanted("acme.deploy", json!({ "to": "production" }))).await.unwrap();
    assert_eq!((told.decision, told.code.as_str()), (Decision::Deny, "denied_by_policy"));
    assert_eq!(told.help.as_deref(), Some("`palyra why` shows which rule would allow it"));
    let explained = palyra(&lab, &["explain", &told.record.unwrap().to_string()]).expect(0).out;
    holds(
        &explained,
        &[
            "\nagent:local asked to use acme.deploy itself, by hook, with token ",
            "\n    no policy permits it\n",
            "\n    came close:\n",
            "\n        requires  ",
            "\n    the smallest rule that would permit exactly this:\n",
            "Palyra::Tool::\"acme.deploy\"",
        ],
    );
    // The rule that is suggested does what it is said to, and the decision of then is told as that of then.
    let (_, rule) = explained.split_once("permit exactly this:\n").unwrap();
    fs::write(lab.home().join("policies/own.cedar"), format!("@id(\"own.deploy\")\n{}", without_id(rule))).unwrap();
    palyra(&lab, &["reload"]).expect(0);
    let told_again = lab.agent().authorize(&wanted("acme.deploy", json!({ "to": "production" }))).await.unwrap();
    assert_eq!(told_again.decision, Decision::Allow, "{told_again:?}");
    let explained = palyra(&lab, &["explain", &told.record.unwrap().to_string()]).expect(0).out;
    holds(
        &explained,
        &["✖ deny   then: no policy permits it", "! the policies have changed since; now it would be: allow\n"],
    );
}

/// A rule as it is shown, under another name.
fn without_id(rule: &str) -> String {
    rule.lines().filter(|line| !line.trim_start().starts_with("@id")).map(|line| format!("{line}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_refused_call_and_a_refused_hook_the_later_one_is_explained() {
    let lab = DaemonLab::new();
    let stop = json!({ "command": "palyra stop" });
    let first = decision(&lab, "Bash", &stop).1;
    let args = format!(r#"{{"command":["ls","{}"]}}"#, lab.home().display());
    palyra(&lab, &["call", "process.run", "--args", &args, "--workspace", "lab", "--as-agent"]).expect(3);
    assert!(palyra(&lab, &["why"]).expect(0).out.starts_with("call 01"));
    let second = decision(&lab, "Bash", &stop).1;
    assert!(palyra(&lab, &["why"]).expect(0).out.starts_with(&format!("record {} ", number(&second))));
    let query = AuthorizationQuery { which: Some(AuthorizationSelection::Refused), limit: None };
    let denied = lab.owner().authorizations(&query).await.unwrap();
    let numbers: Vec<_> = denied.authorizations.iter().map(|one| one.told.record.unwrap().to_string()).collect();
    assert_eq!((numbers, denied.more), (vec![number(&second), number(&first)], false));
    let newest = AuthorizationQuery { limit: Some(1), ..query };
    let page = lab.owner().authorizations(&newest).await.unwrap();
    assert_eq!((page.authorizations.as_slice(), page.more), (&denied.authorizations[..1], true));
    // A record tells where links lead, which whoever asked was not told.
    let seq = denied.authorizations[0].told.record.unwrap();
    assert_eq!(refused(lab.agent().authorization(seq).await.unwrap_err()).0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_is_told_with_its_words_and_with_the_rule_by_which_nobody_would_be_asked() {
    let lab = Arc::new(DaemonLab::new());
    let hooked = Arc::clone(&lab);
    let waiting = tokio::task::spawn_blocking(move || {
        let said = before(hooked.workspace(), "Bash", &json!({ "command": "git push" })).to_string();
        let mut palyra = hooked.palyra();
        palyra.args(["hook", "claude-code", "--on-ask", "wait"]).env("PALYRA_TOKEN", hooked.agent_token());
        fed(palyra, said.as_bytes())
    });
    let owner = lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    owner.deny(question.id, &no(&question, Some("not on a Friday"))).await.unwrap();
    let (_, reason) = waiting.await.unwrap().decided();
    let why = palyra(&lab, &["why"]).expect(0).out;
    assert!(why.starts_with(&format!("record {} ", number(&reason))), "{why}");
    holds(
        &why,
        &[
            "git push",
            "\n✖ deny   then: user:owner said no: not on a Friday\n        help: do not try the same again\n",
            "\n    permitted once approved by baseline.execute-ask (",
            "\n    a rule that stops the asking, for exactly this:\n",
        ],
    );
    // The question was a call, and is known by its id as well.
    let explained = palyra(&lab, &["explain", &question.call.to_string()]).expect(0).out;
    assert!(explained.starts_with(&format!("call {}\n", question.call)), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policy_was_not_asked_about_is_explained_with_what_to_do() {
    let lab = DaemonPlan::default().config("[budget]\ncalls = 1\n").start();
    let mut palyra_hook = lab.palyra();
    palyra_hook.args(["hook", "claude-code"]).env("PALYRA_TOKEN", lab.agent_token());
    let (_, reason) = fed(palyra_hook, b"{\"hidden\":1").decided();
    let why = palyra(&lab, &["why"]).expect(0).out;
    assert!(why.starts_with(&format!("record {} ", number(&reason))), "{why}");
    holds(
        &why,
        &[
            "\nagent:local asked for something that cannot be read, by hook, with token ",
            "\n✖ deny   then: what the hook handed over is no JSON object\n        help: send one JSON value, each key once\n",
        ],
    );
    decision(&lab, "Read", &json!({ "path": "x" }));
    holds(
        &palyra(&lab, &["why"]).expect(0).out,
        &["\nagent:local asked to use Read itself, by hook, ", "then: `file_path` is missing\n        help: "],
    );
    let read = json!({ "file_path": "x" });
    assert_eq!(decision(&lab, "Read", &read).0, "allow");
    assert_eq!(decision(&lab, "Read", &read).0, "deny");
    holds(
        &palyra(&lab, &["why"]).expect(0).out,
        &[
            "asked to use Read (fs.read) itself",
            "\n  {\n    \"file_path\": \"x\"\n  }\n✖ deny   then: ",
            "help: open a new run",
        ],
    );
    // What was allowed is explained, too; what is no decision is not.
    let allowed = &records(&lab, "hook.decided").await[2];
    let explained = palyra(&lab, &["explain", &allowed.seq.to_string()]).expect(0).out;
    holds(
        &explained,
        &[
            "✔ allow  then: the tool is allowlisted and its posture is to run at once ",
            "\n    permitted by baseline.execute-always-allow (",
        ],
    );
    palyra(&lab, &["explain", &(allowed.seq + 1_000).to_string()]).expect(1);
}
