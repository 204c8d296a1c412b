//! Files that agents keep: as they were kept, in parts, out of others' reach, bounded, and for people to fetch.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on ends")]

use std::fs;

use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_client::Client;
use palyra_tests::{
    Said,
    daemon::{DaemonLab, refused},
    services::{fails, records, refusal, says, says_once_approved},
    token::token,
};
use palyra_types::Sha256Digest;
use serde_json::{Value, json};

async fn agent(lab: &DaemonLab, name: &str) -> Client {
    let minted = lab.owner().mint_token(&token(&format!("agent:{name}"), &["calls.create", "calls.read"])).await;
    lab.holder_of(&minted.unwrap().secret)
}

#[tokio::test]
async fn a_file_comes_back_as_it_was_kept_whole_or_in_parts_also_after_a_restart() {
    let mut lab = DaemonLab::new();
    let agent = lab.agent();
    let text = "# Réport\n".repeat(100);
    let kept =
        says(&agent, "artifact.put", json!({ "name": "report.md", "text": text, "media_type": "text/markdown" })).await;
    assert_eq!((&kept["size"], &kept["sha256"]), (&json!(text.len()), &json!(Sha256Digest::of(text.as_bytes()))));
    let bytes = [0, 159, 146, 150, 255];
    let binary = says(&agent, "artifact.put", json!({ "name": "b", "base64": BASE64_STANDARD.encode(bytes) })).await;
    assert_eq!(binary["media_type"], "application/octet-stream");
    lab.stop();
    lab.start();
    let agent = lab.agent();
    let whole = says(&agent, "artifact.get", json!({ "id": kept["id"] })).await;
    assert_eq!(
        (&whole["content"], &whole["next_offset"], &whole["encoding"]),
        (&json!(text), &Value::Null, &json!("utf-8"))
    );
    // The part ends inside of a character, so it ends before it.
    let part = says(&agent, "artifact.get", json!({ "id": kept["id"], "limit": 4 })).await;
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("# R"), &json!(3)));
    let next = says(&agent, "artifact.get", json!({ "id": kept["id"], "offset": 3, "limit": 6 })).await;
    assert_eq!(next["content"], "éport");
    let got = says(&agent, "artifact.get", json!({ "id": binary["id"] })).await;
    assert_eq!((&got["encoding"], &got["content"]), (&json!("base64"), &json!(BASE64_STANDARD.encode(bytes))));
    let beyond = fails(&agent, "artifact.get", json!({ "id": kept["id"], "offset": 9_999 })).await;
    assert!(beyond.contains("there is nothing from 9999"), "{beyond}");
    let listed = says(&agent, "artifact.list", json!({})).await;
    let names: Vec<_> = listed["artifacts"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["report.md", "b"]);
}

#[tokio::test]
async fn the_files_of_another_agent_are_out_of_reach() {
    let lab = DaemonLab::new();
    let (claude, other) = (agent(&lab, "claude").await, agent(&lab, "other").await);
    let kept = says(&claude, "artifact.put", json!({ "name": "a", "text": "mine" })).await;
    for (name, args) in [
        ("artifact.get", json!({ "id": kept["id"], "scope": "agent:claude" })),
        ("artifact.list", json!({ "scope": "agent:claude" })),
        ("artifact.put", json!({ "name": "a", "text": "x", "scope": "agent:claude" })),
        ("artifact.delete", json!({ "id": kept["id"], "scope": "agent:claude" })),
    ] {
        let (code, message) = refusal(&other, name, args).await;
        assert!(code == "denied_by_policy" && message.contains("belongs to another agent"), "{name}: {message}");
    }
    let unknown = fails(&other, "artifact.get", json!({ "id": kept["id"] })).await;
    assert_eq!(unknown, format!("there is no artifact {} in this scope", kept["id"].as_str().unwrap()));
    let (code, message) = refusal(&other, "artifact.delete", json!({ "id": kept["id"] })).await;
    assert!(code == "bad_arguments" && message == unknown, "nobody is asked about what is not there: {message}");
    says_once_approved(&lab, &claude, "artifact.delete", json!({ "id": kept["id"] })).await;
    assert!(fails(&claude, "artifact.get", json!({ "id": kept["id"] })).await.starts_with("there is no artifact"));
}

#[tokio::test]
async fn what_is_no_name_no_content_or_too_much_is_refused() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    for name in ["../../etc/passwd", "a/b", "a\\b", "a\u{0}b", "a\u{202e}b", "two\nlines"] {
        let why = fails(&agent, "artifact.put", json!({ "name": name, "text": "x" })).await;
        assert!(why.starts_with("the name `"), "{why}");
    }
    for (args, why) in [
        (json!({ "name": "a" }), "a content is given as `text` or as `base64`"),
        (json!({ "name": "a", "text": "x", "base64": "eA==" }), "a content is given as `text` or as `base64`"),
        (json!({ "name": "a", "base64": "%%%" }), "the content is not base64"),
        (
            json!({ "name": "a", "text": "x", "media_type": "Text/HTML\r\nX: y" }),
            "`Text/HTML<U+000D><U+000A>X: y` is not a media type such as text/plain",
        ),
    ] {
        assert_eq!(refusal(&agent, "artifact.put", args).await, ("bad_arguments".to_owned(), why.to_owned()));
    }
    let long = refusal(&agent, "artifact.put", json!({ "name": "a", "text": "x".repeat((1 << 20) + 1) })).await;
    assert_eq!(long.0, "bad_arguments");
    assert_eq!(says(&agent, "artifact.list", json!({})).await["artifacts"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_fetches_what_an_agent_made_and_overwrites_nothing() {
    let lab = DaemonLab::new();
    let page = "<script>alert(1)</script>\u{1b}[2J";
    let kept =
        says(&lab.agent(), "artifact.put", json!({ "name": "p.html", "text": page, "media_type": "text/html" })).await;
    let id = kept["id"].as_str().unwrap().to_owned();
    let palyra = async |args: &[&str]| {
        let mut command = lab.palyra();
        command.args(args);
        Said::of(tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    };
    let listed = palyra(&["artifacts", "list"]).await.expect(0).out;
    assert!(listed.contains("p.html") && listed.contains("agent:local"), "{listed}");
    let file = lab.workspace().join("page");
    palyra(&["artifacts", "get", &id, "--output", file.to_str().unwrap()]).await.expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), page);
    let again = palyra(&["artifacts", "get", &id, "--output", file.to_str().unwrap()]).await.expect(1);
    assert_eq!(again.three_lines()[2], "help:  name a new file");
    assert_eq!(palyra(&["artifacts", "get", &id]).await.expect(0).out, page);
    let mut content = Vec::new();
    lab.owner().artifact(&id, &mut content).await.unwrap();
    assert_eq!(content, page.as_bytes());
    // Whoever may not is not told whether there is such a file.
    let watch = lab.owner().mint_token(&token("service:watch", &["memory.read"])).await.unwrap();
    let refusal = lab.holder_of(&watch.secret).artifact(&id, &mut Vec::new()).await.unwrap_err();
    assert_eq!(refused(refusal), (404, "unknown_artifact".to_owned()));
    // A person is not asked about what they do themselves, and it is on record.
    let deleted = palyra(&["artifacts", "delete", &id.to_ascii_lowercase()]).await.expect(0).out;
    assert_eq!(deleted, format!("✔ deleted {id}\n"));
    assert_eq!(records(&lab, "memory.purged").await[0]["what"]["artifact"], json!(id));
    let again = palyra(&["artifacts", "delete", &id]).await.expect(1);
    let gone = again.three_lines();
    assert!(gone[1].contains(&id), "{gone:?}");
}
