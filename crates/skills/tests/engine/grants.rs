//! What a skill may use: nothing without its grant, and each function with it.

use std::sync::Arc;

use palyra_package::Grants;
use palyra_skills::{
    host::LogLevel,
    outcome::{LogLine, SkillFailure},
};

use crate::{
    guests,
    host::MemoryHost,
    lab::{Lab, everything},
};

#[tokio::test]
async fn without_grants_every_capability_ends_the_call_and_the_host_is_not_asked() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    for (tool, capability) in [
        ("log", "log"),
        ("now", "clock"),
        ("wasi-now", "clock"),
        ("sleep", "clock"),
        ("random", "random"),
        ("fetch", "http"),
        ("kv-get", "kv"),
        ("kv-set", "kv"),
        ("kv-delete", "kv"),
        ("kv-keys", "kv"),
        ("secret", "secrets"),
        ("file-read", "files"),
        ("file-write", "files"),
        ("file-list", "files"),
        ("file-stat", "files"),
        ("file-delete", "files"),
    ] {
        let host = Arc::new(MemoryHost::default());
        let answer = lab.call(&skill).host(&host).answer(tool, "\"1\"").await;
        assert_eq!(answer, Err(SkillFailure::NotGranted { capability: capability.to_owned() }), "{tool}");
        assert_eq!(host.asked(), Vec::<String>::new(), "{tool}");
    }
}

#[tokio::test]
async fn one_grant_is_no_other() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let grants = Grants { kv: None, ..everything() };
    let refused = Err(SkillFailure::NotGranted { capability: "kv".to_owned() });
    assert_eq!(lab.call(&skill).grants(grants).answer("kv-get", "\"a\"").await, refused);
}

#[tokio::test]
async fn each_function_works_with_its_grant() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let host = Arc::new(MemoryHost::default());
    let call = async |tool: &str, input: &str| {
        let input = format!("\"{input}\"");
        let answer = lab.call(&skill).grants(everything()).host(&host).answer(tool, &input).await;
        serde_json::from_str::<String>(&answer.unwrap()).unwrap()
    };
    assert_eq!(call("now", "").await, "(1700000000001, true)");
    assert_eq!(call("wasi-now", "").await, "1700000000002");
    assert_eq!(call("sleep", "5").await, "true");
    assert_eq!(call("random", "3").await, "[3, 3, 3]");
    assert_eq!(
        call("fetch", "GET https://example.org/").await,
        r#"Ok((200, "https://example.org/", [("accept", "text/plain")], [98, 111, 100, 121], false))"#
    );
    assert_eq!(call("fetch", "GET https://forbidden.example/").await, r#"Err("denied: policy says no")"#);
    assert_eq!(call("kv-get", "a").await, "Ok(None)");
    assert_eq!(call("kv-set", "a x").await, "Ok(())");
    assert_eq!(call("kv-set", "b y").await, "Ok(())");
    assert_eq!(call("kv-get", "a").await, "Ok(Some([120]))");
    assert_eq!(call("kv-keys", "").await, r#"Ok(["a", "b"])"#);
    assert_eq!(call("kv-delete", "a").await, "Ok(true)");
    assert_eq!(call("kv-delete", "a").await, "Ok(false)");
    assert_eq!(call("kv-set-large", "101").await, r#"Err("too large: the quota is 100 bytes")"#);
    assert_eq!(call("secret", "token").await, r#"Ok("placeholder-token-4")"#);
    assert_eq!(call("file-write", "notes/a hello").await, "Ok(())");
    assert_eq!(call("file-read", "notes/a").await, "Ok([104, 101, 108, 108, 111])");
    assert_eq!(call("file-stat", "notes/a").await, r#"Ok(("a", "Kind::File", 5))"#);
    assert_eq!(call("file-list", "notes").await, r#"Ok([("a", "Kind::File", 5)])"#);
    assert_eq!(call("file-delete", "notes/a").await, "Ok(())");
    assert_eq!(call("file-read", "notes/a").await, r#"Err("absent: no such file")"#);
}

#[tokio::test]
async fn a_secret_or_a_directory_that_was_not_granted_is_refused_before_the_host_is_asked() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let host = Arc::new(MemoryHost::default());
    for (tool, input, refusal) in [
        ("secret", "other", "this secret was not granted"),
        ("file-read", "elsewhere/a", "this directory was not granted"),
        ("file-read", "../notes/a", "this directory was not granted"),
        ("file-read", "/notes/a", "this directory was not granted"),
        ("file-write", "books/a x", "this directory may only be read"),
        ("file-delete", "books/a", "this directory may only be read"),
    ] {
        let answer = lab.call(&skill).grants(everything()).host(&host).answer(tool, &format!("\"{input}\"")).await;
        assert_eq!(answer, Ok(format!(r#""Err(\"denied: {refusal}\")""#)), "{tool} {input}");
    }
    assert_eq!(host.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_free_has_no_power() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    assert_eq!(lab.call(&skill).answer("environment", "1").await, Ok("\"(0, 0)\"".to_owned()));
    let first = lab.call(&skill).answer("hash", "1").await.unwrap();
    assert_eq!(lab.call(&skill).answer("hash", "1").await, Ok(first), "insecure randomness is the same in every call");
    let run = lab.call(&skill).run("print", "\"one two\"").await;
    assert_eq!(
        run.log,
        [(LogLevel::Info, "one two"), (LogLevel::Warn, "one: two")]
            .map(|(level, message)| LogLine { level, message: message.to_owned() })
    );
}

#[tokio::test]
async fn what_is_inert_leads_nowhere() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let answer = lab.call(&skill).answer("wasi-file", "\"/etc/hostname\"").await.unwrap();
    assert!(answer.starts_with("\"Err("), "{answer}");
    let answer = lab.call(&skill).grants(everything()).answer("wasi-socket", "\"127.0.0.1:1\"").await;
    assert!(
        matches!(&answer, Err(SkillFailure::Inert { interface }) if interface.starts_with("wasi:sockets/")),
        "{answer:?}"
    );
    let command = lab.load(&guests::command());
    for tool in ["file", "directory"] {
        let answer = lab.call(&command).answer(tool, "1").await.unwrap();
        assert!(answer.contains("not") || answer.contains("uncategorized"), "{tool}: {answer}");
    }
    assert_eq!(lab.call(&command).answer("environment", "1").await, Ok("0".to_owned()));
}

#[tokio::test]
async fn http_of_wasi_leads_nowhere() {
    let lab = Lab::new();
    let skill = lab.load(&guests::beside(
        r#"(import "wasi:http/outgoing-handler@0.2.0" (instance $http (export "handle" (func))))
           (core func $handle (canon lower (func $http "handle")))
           (core module $c (import "" "handle" (func $handle)) (start $handle))
           (core instance (instantiate $c (with "" (instance (export "handle" (func $handle))))))"#,
    ));
    let answer = lab.call(&skill).grants(everything()).answer("", "").await;
    assert_eq!(answer, Err(SkillFailure::Inert { interface: "wasi:http/outgoing-handler".to_owned() }));
}

#[tokio::test]
async fn a_command_has_clocks_and_randomness_only_with_their_grants() {
    let lab = Lab::new();
    let command = lab.load(&guests::command());
    for (tool, capability) in [("now", "clock"), ("random", "random")] {
        let refused = Err(SkillFailure::NotGranted { capability: capability.to_owned() });
        assert_eq!(lab.call(&command).answer(tool, "1").await, refused);
    }
    assert_eq!(lab.call(&command).grants(everything()).answer("now", "1").await, Ok("1700000000001".to_owned()));
    assert!(lab.call(&command).grants(everything()).answer("random", "1").await.is_ok());
}

#[tokio::test]
async fn the_host_hears_what_is_logged() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let host = Arc::new(MemoryHost::default());
    lab.call(&skill).grants(everything()).host(&host).answer("log", "\"a word\"").await.unwrap();
    lab.call(&skill).host(&host).answer("print", "\"one two\"").await.unwrap();
    assert_eq!(
        *host.said.lock().unwrap(),
        [
            (LogLevel::Warn, "a word".to_owned()),
            (LogLevel::Info, "one two".to_owned()),
            (LogLevel::Warn, "one: two".to_owned())
        ]
    );
}
