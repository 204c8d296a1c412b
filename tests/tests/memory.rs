//! Notes that agents keep: found again, out of each other's reach, bounded, and gone once they are forgotten.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on ends")]

use palyra_api::{member::SetFlag, memory::MemoryQuery};
use palyra_client::Client;
use palyra_tests::{
    Said,
    daemon::{DaemonLab, DaemonPlan, refused},
    services::{fails, records, refusal, says, says_once_approved},
    token::token,
};
use serde_json::{Value, json};

/// An agent of this name.
async fn agent(lab: &DaemonLab, name: &str) -> Client {
    let minted = lab.owner().mint_token(&token(&format!("agent:{name}"), &["calls.create", "calls.read"])).await;
    lab.holder_of(&minted.unwrap().secret)
}

async fn found(by: &Client, args: Value) -> Vec<String> {
    let told = says(by, "memory.search", args).await;
    told["found"].as_array().unwrap().iter().map(|hit| hit["snippet"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_agent_finds_what_it_kept_also_after_a_restart() {
    let mut lab = DaemonLab::new();
    let agent = lab.agent();
    let kept = says(
        &agent,
        "memory.put",
        json!({ "text": "The release is built on Fridays", "title": "Release", "tags": ["build"], "key": "release" }),
    )
    .await;
    assert_eq!((&kept["scope"], &kept["usage"]["entries"]), (&json!("agent:local"), &json!(1)));
    says(&agent, "memory.put", json!({ "text": "Coffee is out" })).await;
    let replaced =
        says(&agent, "memory.put", json!({ "text": "The release is built on Mondays", "key": "release" })).await;
    assert_eq!((&replaced["id"], &replaced["usage"]["entries"]), (&kept["id"], &json!(2)));
    lab.stop();
    lab.start();
    let agent = lab.agent();
    assert_eq!(found(&agent, json!({ "query": "built release" })).await, ["The release is built on Mondays"]);
    assert_eq!(found(&agent, json!({ "query": "coffee", "tags": ["none"] })).await, [""; 0]);
    let whole = says(&agent, "memory.list", json!({ "key": "release" })).await;
    assert_eq!(whole["entries"][0]["text"], "The release is built on Mondays");
    let first = says(&agent, "memory.list", json!({ "limit": 1 })).await;
    let rest = says(&agent, "memory.list", json!({ "after": first["next"] })).await;
    assert_eq!(
        (&first["entries"][0]["key"], &rest["entries"][0]["text"], &rest["next"]),
        (&json!("release"), &json!("Coffee is out"), &Value::Null)
    );
}

#[tokio::test]
async fn the_memory_of_another_agent_is_out_of_reach_and_the_denial_says_why() {
    let lab = DaemonLab::new();
    let (claude, other) = (agent(&lab, "claude").await, agent(&lab, "other").await);
    let kept = says(&claude, "memory.put", json!({ "text": "mine alone" })).await;
    for (name, args) in [
        ("memory.search", json!({ "query": "mine", "scopes": ["agent:claude"] })),
        ("memory.list", json!({ "scope": "agent:claude" })),
        ("memory.put", json!({ "text": "x", "scope": "agent:claude" })),
        ("memory.delete", json!({ "id": kept["id"], "scope": "agent:claude" })),
        ("memory.purge", json!({ "scope": "agent:claude" })),
        ("memory.list", json!({ "scope": "workspace:shop" })),
    ] {
        let (code, message) = refusal(&other, name, args.clone()).await;
        assert_eq!(code, "denied_by_policy", "{name} {args}");
        assert!(message.contains("belongs to another agent, workspace or session"), "{name}: {message}");
    }
    assert_eq!(found(&other, json!({ "query": "mine" })).await, [""; 0]);
    // Nor does the id help, in a scope of one's own.
    assert_eq!(says(&other, "memory.list", json!({ "id": kept["id"] })).await["entries"], json!([]));
    let missing = fails(&other, "memory.put", json!({ "text": "x", "id": kept["id"] })).await;
    assert!(missing.contains("there is no entry"), "{missing}");
    let (code, message) = refusal(&other, "memory.delete", json!({ "id": kept["id"] })).await;
    assert!(code == "bad_arguments" && message == "there is no such entry in `agent:other`", "{message}");
    assert_eq!(found(&claude, json!({ "query": "mine" })).await, ["mine alone"]);
}

#[tokio::test]
async fn what_is_kept_for_a_workspace_is_everybodys_there_and_what_is_kept_for_everybody_asks() {
    let lab = DaemonLab::new();
    let (claude, other) = (agent(&lab, "claude").await, agent(&lab, "other").await);
    says(&claude, "memory.put", json!({ "text": "shared in the lab", "scope": "workspace" })).await;
    assert_eq!(found(&other, json!({ "query": "shared" })).await, ["shared in the lab"]);
    let kept =
        says_once_approved(&lab, &claude, "memory.put", json!({ "text": "for everybody", "scope": "global" })).await;
    assert_eq!(kept["scope"], "global");
    assert_eq!(found(&other, json!({ "query": "everybody" })).await, ["for everybody"]);
    says(&claude, "memory.put", json!({ "text": "of this conversation", "scope": "session" })).await;
    assert_eq!(found(&other, json!({ "query": "conversation" })).await, [""; 0]);
}

#[tokio::test]
async fn what_is_deleted_or_purged_asks_and_is_gone_from_every_file() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    for word in ["quicksilver", "brimstone", "antimony"] {
        says(&agent, "memory.put", json!({ "text": format!("keep {word}"), "key": word })).await;
    }
    let deleted = says_once_approved(&lab, &agent, "memory.delete", json!({ "key": "quicksilver" })).await;
    assert!(deleted["deleted"].is_string(), "{deleted}");
    let purged = says_once_approved(&lab, &agent, "memory.purge", json!({ "scope": "own" })).await;
    assert_eq!(purged, json!({ "deleted": 2, "scope": "agent:local" }));
    assert_eq!(found(&agent, json!({ "query": "keep" })).await, [""; 0]);
    let holds = |word: &str| {
        let files = lab.written().into_iter().filter(|(path, _)| path.starts_with(lab.home().join("keeping")));
        files.filter(|(_, bytes)| bytes.windows(word.len()).any(|window| window == word.as_bytes())).count()
    };
    assert_eq!(["quicksilver", "brimstone", "antimony"].map(holds), [0, 0, 0]);
    assert!(!lab.log().contains("quicksilver"), "{}", lab.log());
}

#[tokio::test]
async fn any_text_is_a_query_and_any_text_can_be_kept() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    let strange = "NUL \u{0} turned \u{202e} joined a\u{200d}b 'quoted' \"twice\" -- ; DROP TABLE entry";
    says(&agent, "memory.put", json!({ "text": strange, "title": "../../etc/passwd" })).await;
    let listed = says(&agent, "memory.list", json!({})).await;
    assert_eq!(
        (&listed["entries"][0]["text"], &listed["entries"][0]["title"]),
        (&json!(strange), &json!("../../etc/passwd"))
    );
    for query in ["\"", "a AND", "NEAR(", "title:*", "^", "{a b}:c", "* OR *", "\u{0}", "-", "'; DROP TABLE entry; --"]
    {
        says(&agent, "memory.search", json!({ "query": query })).await;
    }
    assert_eq!(found(&agent, json!({ "query": "DROP TABLE" })).await.len(), 1);
}

#[tokio::test]
async fn what_is_too_much_is_refused_with_the_limit() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    let (code, message) = refusal(&agent, "memory.put", json!({ "text": "x".repeat(65_537) })).await;
    assert!(code == "bad_arguments" && message.contains("`text` must have at most 65536"), "{message}");
    // Characters that fit, whose bytes do not.
    let long = fails(&agent, "memory.put", json!({ "text": "é".repeat(40_000) })).await;
    assert_eq!(long, "the text is 80000 bytes long; the limit is 65536");
    let tag = fails(&agent, "memory.put", json!({ "text": "x", "tags": ["a\u{202e}b"] })).await;
    assert_eq!(tag, "the tag `a<U+202E>b` has `<U+202E>` in it");
    let twice =
        refusal(&agent, "memory.put", json!({ "text": "x", "key": "a", "id": "01J9ZC1KQ8Z3V5T6W7X8Y9ZABC" })).await;
    assert_eq!(twice.1, "an entry is named by its `id` or by its `key`");
    let scope = refusal(&agent, "memory.list", json!({ "scope": "agent:../x/\u{0}" })).await;
    assert!(scope.1.contains("has `<U+0000>`") || scope.1.contains("at position"), "{}", scope.1);
    assert_eq!(says(&agent, "memory.list", json!({})).await["entries"], json!([]));
}

#[tokio::test]
async fn under_observe_an_agent_reads_what_is_remembered_and_keeps_nothing() {
    let lab = DaemonPlan::default().config("[policy]\npreset = \"observe\"\nallow_sensitive_tools = false").start();
    let agent = lab.agent();
    assert_eq!(found(&agent, json!({ "query": "x" })).await, [""; 0]);
    assert_eq!(refusal(&agent, "memory.put", json!({ "text": "x" })).await.0, "denied_by_policy");
    assert_eq!(refusal(&agent, "memory.purge", json!({ "scope": "own" })).await.0, "denied_by_policy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_and_purges_what_agents_remember_and_that_is_on_record() {
    let lab = DaemonLab::new();
    let (owner, agent) = (lab.owner(), lab.agent());
    let kept = says(&agent, "memory.put", json!({ "text": "colour\u{202e} of the bikeshed", "title": "Shed" })).await;
    says(&agent, "memory.put", json!({ "text": "second" })).await;
    let palyra = async |args: &[&str]| {
        let mut command = lab.palyra();
        command.args(args);
        Said::of(tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    };
    let scopes = palyra(&["memory", "list"]).await.expect(0).out;
    assert!(scopes.contains("agent:local"), "{scopes}");
    let notes = palyra(&["memory", "list", "agent:local"]).await.expect(0).out;
    assert!(notes.contains("colour<U+202E> of the bikeshed") && notes.contains("second"), "{notes}");
    let search = palyra(&["--json", "memory", "search", "bikeshed"]).await.expect(0).data();
    assert_eq!(search[0]["entries"][0]["id"], kept["id"]);
    palyra(&["memory", "delete", kept["id"].as_str().unwrap()]).await.expect(0);
    let again = palyra(&["memory", "delete", kept["id"].as_str().unwrap()]).await.expect(1);
    assert_eq!(again.three_lines()[2], "help:  `palyra memory list SCOPE` shows what is remembered there");
    assert_eq!(palyra(&["memory", "purge", "agent:local"]).await.expect(0).out, "✔ forgotten 1 note of agent:local\n");
    assert!(owner.kept_scopes().await.unwrap().scopes.is_empty());
    let told = records(&lab, "memory.purged").await;
    assert_eq!(told.len(), 2);
    assert_eq!((&told[1]["by"], &told[1]["what"]["memories"]), (&json!("user:owner"), &json!(1)));
    assert!(!format!("{told:?}").contains("bikeshed"));
}

#[tokio::test]
async fn whoever_does_not_govern_reads_their_own_and_deletes_nothing() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    owner.set_flag("team_mode", &SetFlag { on: true }).await.unwrap();
    says(&lab.agent(), "memory.put", json!({ "text": "of the agent" })).await;
    let watch = owner.mint_token(&token("service:watch", &["memory.read"])).await.unwrap();
    let watch = lab.holder_of(&watch.secret);
    let query = |scope: &str| MemoryQuery { scope: Some(scope.to_owned()), ..MemoryQuery::default() };
    assert!(watch.memories(&MemoryQuery::default()).await.unwrap().entries.is_empty());
    assert_eq!(refused(watch.memories(&query("agent:local")).await.unwrap_err()), (403, "denied_by_policy".to_owned()));
    assert_eq!(refused(watch.purge_memory("agent:local").await.unwrap_err()), (403, "missing_scope".to_owned()));
    assert_eq!(owner.memories(&query("agent:local")).await.unwrap().entries.len(), 1);
    assert_eq!(refused(owner.memories(&query("nobody")).await.unwrap_err()), (400, "bad_request".to_owned()));
}
