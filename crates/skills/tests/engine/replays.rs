//! A call that was recorded comes to the same answer again, and touches nothing.

use std::sync::Arc;

use palyra_skills::{
    outcome::SkillFailure,
    recording::{RecordedCall, Recording},
};
use serde_json::{Value, json};

use crate::{
    guests,
    host::MemoryHost,
    lab::{Lab, everything},
};

#[tokio::test]
async fn a_replay_gives_the_same_answer() {
    let lab = Lab::new();
    let (probe, command) = (lab.load(&guests::probe()), lab.load(&guests::command()));
    for (skill, tool, input) in [
        (&probe, "now", "1"),
        (&probe, "wasi-now", "1"),
        (&probe, "sleep", "\"5\""),
        (&probe, "random", "\"20\""),
        (&probe, "fetch", "\"POST https://example.org/\""),
        (&probe, "fetch", "\"POST https://forbidden.example/\""),
        (&probe, "kv-get", "\"a\""),
        (&probe, "kv-set", "\"a b\""),
        (&probe, "kv-keys", "\"a\""),
        (&probe, "kv-delete", "\"a\""),
        (&probe, "secret", "\"token\""),
        (&probe, "file-write", "\"notes/a x\""),
        (&probe, "file-read", "\"notes/a\""),
        (&probe, "file-list", "\"notes\""),
        (&probe, "file-stat", "\"notes/b\""),
        (&probe, "file-delete", "\"notes/a\""),
        (&probe, "fail", "\"anyway\""),
        (&command, "random", "1"),
        (&command, "now", "1"),
    ] {
        let host = Arc::new(MemoryHost::default());
        let run = lab.call(skill).grants(everything()).host(&host).recording(100_000).run(tool, input).await;
        let recording = run.recording.clone().unwrap();
        assert_eq!(recording.calls.is_empty(), tool == "fail", "{tool}");
        let kept = serde_json::from_str(&serde_json::to_string(&recording).unwrap()).unwrap();
        let again = lab.call(skill).grants(everything()).replay(tool, input, kept).await;
        assert_eq!((again.answer, again.log), (run.answer, run.log), "{tool}");
        assert_eq!(again.usage.host_calls, run.usage.host_calls, "{tool}");
    }
}

#[tokio::test]
async fn a_recording_can_be_written_by_hand() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let recording = one("kv.get", Value::Null, json!({ "ok": "aGk=" }));
    let run = lab.call(&skill).grants(everything()).replay("kv-get", "\"any\"", recording).await;
    assert_eq!(run.answer, Ok("\"Ok(Some([104, 105]))\"".to_owned()));
    let recording =
        one("kv.get", json!({ "key": "a" }), json!({ "error": { "kind": "failed", "message": "the disk" } }));
    let run = lab.call(&skill).grants(everything()).replay("kv-get", "\"a\"", recording).await;
    assert_eq!(run.answer, Ok(r#""Err(\"failed: the disk\")""#.to_owned()));
}

#[tokio::test]
async fn a_replay_that_asks_something_else_says_so() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let nothing = json!({ "ok": null });
    for (recording, detail) in [
        (Recording::default(), "`kv.get`, and nothing more was recorded"),
        (one("kv.keys", Value::Null, json!({ "ok": [] })), "`kv.get`, and `kv.keys` was recorded"),
        (
            one("kv.get", json!({ "key": "b" }), nothing.clone()),
            r#"`kv.get` with {"key":"a"}, and {"key":"b"} was recorded"#,
        ),
        (one("kv.get", Value::Null, json!({ "ok": 7 })), "`kv.get`, and what was recorded is no answer to it"),
        (one("kv.get", Value::Null, json!(null)), "`kv.get`, and what was recorded is no answer to it"),
        (
            Recording {
                calls: [
                    one("kv.get", Value::Null, nothing.clone()).calls,
                    one("clock.now", Value::Null, json!({ "ok": 1 })).calls,
                ]
                .concat(),
            },
            "nothing more, and `clock.now` was recorded",
        ),
    ] {
        let run = lab.call(&skill).grants(everything()).replay("kv-get", "\"a\"", recording).await;
        assert_eq!(run.answer, Err(SkillFailure::Diverged { detail: detail.to_owned() }));
    }
}

#[tokio::test]
async fn a_recording_that_is_too_large_is_none() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let run = lab.call(&skill).grants(everything()).recording(100).run("random", "\"1000\"").await;
    assert!(run.answer.is_ok());
    assert_eq!(run.recording, None);
    let run = lab.call(&skill).grants(everything()).run("random", "\"1\"").await;
    assert_eq!(run.recording, None, "nobody asked for one");
}

#[tokio::test]
async fn a_replay_is_granted_nothing_that_the_call_was_not() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let recording = one("kv.get", Value::Null, json!({ "ok": null }));
    let run = lab.call(&skill).replay("kv-get", "\"a\"", recording).await;
    assert_eq!(run.answer, Err(SkillFailure::NotGranted { capability: "kv".to_owned() }));
}

fn one(function: &str, asked: Value, answered: Value) -> Recording {
    Recording { calls: vec![RecordedCall { function: function.to_owned(), asked, answered }] }
}
