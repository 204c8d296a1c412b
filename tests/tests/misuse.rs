//! Bad input over HTTP: a clear error in the one shape, nothing runs, and others are answered meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use palyra_api::{
    call::NewCall,
    run::{Limits, NewRun},
};
use palyra_client::ClientError;
use palyra_tests::daemon::{DaemonLab, DaemonPlan, accepted, approve, asked, command, no, over, yes};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Sends these bytes, and reads the answer: its status and its body.
async fn say(to: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    // The daemon may answer, and hang up, before everything was sent.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.expect("an answer");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default();
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

struct Raw<'a> {
    lab: &'a DaemonLab,
    bearer: String,
}

impl Raw<'_> {
    fn head(&self, line: &str, more: &str) -> String {
        let (host, token) = (self.lab.local(), &self.bearer);
        format!("{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{more}\r\n")
    }

    async fn ask(&self, line: &str, more: &str, body: &str) -> (u16, String) {
        let length = format!("Content-Length: {}\r\n{more}", body.len());
        let code = |body: &str| {
            let told: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("not the one shape: {body}"));
            assert!(told["error"]["message"].is_string() && told["error"]["request_id"].is_string(), "{body}");
            told["error"]["code"].as_str().unwrap().to_owned()
        };
        let request = format!("{}{body}", self.head(line, &length));
        let (status, body) = say(self.lab.local(), request.as_bytes()).await;
        (status, if status < 400 { body } else { code(&body) })
    }

    async fn propose(&self, body: &str) -> (u16, String) {
        self.ask("POST /api/v1/calls", "Content-Type: application/json\r\n", body).await
    }
}

#[tokio::test]
async fn a_body_that_makes_no_sense_is_refused_with_what_is_wrong() {
    let lab = DaemonLab::new();
    let agent = Raw { lab: &lab, bearer: lab.agent_token() };
    let deep = format!("{{\"tool\":\"fs.list\",\"args\":{}1{}}}", "{\"a\":".repeat(100), "}".repeat(100));
    for (body, expected) in [
        ("", (400, "bad_json")),
        ("{", (400, "bad_json")),
        ("{} {}", (400, "bad_json")),
        (r#"{"tool":"fs.list","tool":"process.run"}"#, (400, "bad_json")),
        (r#"{"tool":"fs.list","args":{"path":"a","path":"b"}}"#, (400, "bad_json")),
        ("{\"tool\":\"fs\\ud800\"}", (400, "bad_json")),
        (r#"{"tool":"fs.list","args":{"depth":1e400}}"#, (400, "bad_json")),
        (&deep, (400, "bad_json")),
        ("[]", (400, "bad_request")),
        (r#"["fs.list"]"#, (400, "bad_request")),
        ("{}", (400, "bad_request")),
        (r#"{"tool":"fs.list","wat":1}"#, (400, "bad_request")),
        (r#"{"tool":"fs.list","run":"nonsense"}"#, (400, "bad_request")),
        (r#"{"tool":"fs\u202elist"}"#, (400, "bad_request")),
        (r#"{"tool":"fs.list","args":{"path":7}}"#, (422, "bad_arguments")),
        (r#"{"tool":"no.such"}"#, (404, "unknown_tool")),
        (r#"{"tool":"fs.list","workspace":"elsewhere"}"#, (422, "unknown_workspace")),
        (r#"{"tool":"fs.list","directory":"/etc"}"#, (403, "not_for_agents")),
        (r#"{"tool":"fs.list","run":"01J9ZC1KQ8Z3V5T6W7X8Y9ZABC"}"#, (404, "unknown_run")),
    ] {
        let (status, code) = agent.propose(body).await;
        assert_eq!((status, code.as_str()), expected, "{body}");
    }
    let (status, code) = agent.ask("POST /api/v1/calls", "Content-Type: text/plain\r\n", "{}").await;
    assert_eq!((status, code.as_str()), (415, "not_json"));
    assert_eq!(agent.ask("GET /api/v1/calls/nonsense", "", "").await, (400, "bad_request".to_owned()));
    assert_eq!(agent.ask("PATCH /api/v1/calls", "", "").await, (405, "method_not_allowed".to_owned()));
    assert_eq!(agent.ask("OPTIONS /api/v1/calls", "", "").await, (405, "method_not_allowed".to_owned()));
    assert_eq!(agent.ask("GET /api/v1/nothing", "", "").await, (404, "not_found".to_owned()));
    let owner = Raw { lab: &lab, bearer: lab.console().await };
    assert_eq!(owner.ask("GET /api/v1/journal/records?limit=0", "", "").await, (400, "bad_request".to_owned()));
    assert_eq!(owner.ask("GET /api/v1/journal/records?wat=0", "", "").await, (400, "bad_request".to_owned()));
    assert_eq!(owner.ask("GET /api/v1/events", "Last-Event-ID: x\r\n", "").await, (400, "bad_request".to_owned()));
}

#[tokio::test]
async fn a_directory_that_a_person_works_in_is_not_for_agents_by_its_name_either() {
    let lab = DaemonLab::new();
    let secret = tempfile::tempdir().unwrap();
    let path = secret.path().to_str().unwrap();
    let owner = Raw { lab: &lab, bearer: lab.console().await };
    let (status, told) = owner.propose(&format!(r#"{{"tool":"fs.list","directory":"{path}"}}"#)).await;
    assert_eq!(status, 200, "{told}");
    let told: Value = serde_json::from_str(&told).unwrap();
    let name = told["proposed"]["workspace"].as_str().unwrap().to_owned();
    let agent = Raw { lab: &lab, bearer: lab.agent_token() };
    let (status, code) = agent.propose(&format!(r#"{{"tool":"fs.list","workspace":"{name}"}}"#)).await;
    assert_eq!((status, code.as_str()), (422, "unknown_workspace"));
}

#[tokio::test]
async fn a_body_of_a_hundred_megabytes_is_refused_at_once_and_takes_no_memory() {
    let lab = DaemonLab::new();
    let agent = Raw { lab: &lab, bearer: lab.agent_token() };
    let before = resident(&lab);
    let begun = Instant::now();
    let head = agent.head("POST /api/v1/calls", "Content-Type: application/json\r\nContent-Length: 104857600\r\n");
    let (status, body) = say(lab.local(), head.as_bytes()).await;
    assert_eq!(status, 413, "{body}");
    assert!(begun.elapsed() < Duration::from_secs(1));
    // In pieces whose length nobody announces.
    let head = agent.head("POST /api/v1/calls", "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n");
    let piece = format!("10000\r\n{}\r\n", " ".repeat(0x1_0000));
    let (status, _) = say(lab.local(), (head + &piece.repeat(1_600)).as_bytes()).await;
    // Whoever goes on sending may find the connection closed before they read the answer.
    assert!(matches!(status, 413 | 0), "{status}");
    assert!(resident(&lab) < before + 30_000, "{} kB more", resident(&lab) - before);
}

#[tokio::test]
async fn a_request_for_another_host_or_from_another_page_is_refused() {
    let lab = DaemonLab::new();
    let (port, token) = (lab.local().port(), lab.console().await);
    let ask = async |host: &str, more: &str| {
        let request = format!(
            "GET /api/v1/tools HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{more}\r\n"
        );
        say(lab.local(), request.as_bytes()).await.0
    };
    assert_eq!(ask(&format!("127.0.0.1:{port}"), "").await, 200);
    assert_eq!(ask(&format!("localhost:{port}"), "").await, 200);
    for host in ["127.0.0.1", "127.0.0.1:1", "evil.example", &format!("evil.example:{port}"), ""] {
        assert_eq!(ask(host, "").await, 400, "{host}");
    }
    let own = format!("127.0.0.1:{port}");
    assert_eq!(ask(&own, &format!("Host: {own}\r\n")).await, 400, "two hosts");
    assert_eq!(ask(&own, &format!("Origin: http://{own}\r\n")).await, 200);
    for origin in ["null", "http://127.0.0.1:1", "http://evil.example", &format!("https://{own}")] {
        assert_eq!(ask(&own, &format!("Origin: {origin}\r\n")).await, 403, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(ask(&own, &format!("Sec-Fetch-Site: {site}\r\n")).await, 403, "{site}");
    }
    assert_eq!(ask(&own, "Sec-Fetch-Site: same-origin\r\n").await, 200);
    assert_eq!(ask(&own, "Cookie: session=x\r\n").await, 200, "cookies play no part");
}

#[tokio::test]
async fn a_credential_is_taken_from_the_one_header_only() {
    let lab = DaemonLab::new();
    let (host, token) = (lab.local(), lab.console().await);
    let ask = async |line: &str, headers: &str| {
        let request = format!("GET {line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
        say(host, request.as_bytes()).await.0
    };
    let tools = "/api/v1/tools";
    assert_eq!(ask(tools, &format!("Authorization: Bearer {token}\r\n")).await, 200);
    assert_eq!(ask(tools, &format!("Authorization: Basic {token}\r\n")).await, 401);
    assert_eq!(ask(tools, &format!("Authorization: Bearer {token}x\r\n")).await, 401);
    assert_eq!(ask(tools, &format!("Authorization: {token}\r\n")).await, 401);
    assert_eq!(ask(tools, &format!("Cookie: Authorization=Bearer {token}\r\n")).await, 401);
    assert_eq!(ask(&format!("{tools}?token={token}"), "").await, 401);
    let twice = format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n");
    assert_eq!(ask(tools, &twice).await, 401);
}

#[tokio::test]
async fn slow_senders_hold_nobody_up() {
    let lab = DaemonLab::new();
    let agent = Raw { lab: &lab, bearer: lab.agent_token() };
    let head = agent.head("POST /api/v1/calls", "Content-Type: application/json\r\nContent-Length: 100\r\n");
    let mut slow = Vec::new();
    for index in 0..200 {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        // Half of them never come to the end of their head, the others never to that of their body.
        let said = if index % 2 == 0 { &head.as_bytes()[..20] } else { head.as_bytes() };
        stream.write_all(said).await.unwrap();
        slow.push(stream);
    }
    let client = lab.agent();
    client.tools().await.unwrap();
    for _ in 0..20 {
        let begun = Instant::now();
        client.tools().await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    }
    // They are told so, or hung up on, in time.
    let mut last = slow.pop().unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(15), last.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("408"), "{}", String::from_utf8_lossy(&answer));
    let mut silent = slow.pop().unwrap();
    answer.clear();
    let _ = tokio::time::timeout(Duration::from_secs(15), silent.read_to_end(&mut answer)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_answers_to_one_question_one_wins_and_the_others_are_told_so_soon() {
    let lab = DaemonLab::new();
    let waiting = lab.agent().propose(&accepted(command(["true"])), None).await.unwrap();
    let owner = lab.owner_locally().await;
    let question = asked(&owner, 1).await.remove(0);
    let bearer = lab.console().await;
    let mut answers = Vec::new();
    for index in 0..40 {
        let (owner, question) = (lab.holder_of(&bearer), question.clone());
        answers.push(tokio::spawn(async move {
            match index % 2 {
                0 => owner.approve(question.id, &yes(&question)).await,
                _ => owner.deny(question.id, &no(&question, None)).await,
            }
        }));
    }
    let mut won = 0;
    for answer in answers {
        match answer.await.unwrap() {
            Ok(_) => won += 1,
            Err(ClientError::Refused { status, error }) => {
                assert_eq!((status, error.code.as_str()), (409, "too_late"), "{}", error.message);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(won, 1);
    let begun = Instant::now();
    owner.call(waiting.id).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(100));
}

#[tokio::test]
async fn an_answer_to_something_else_than_was_asked_does_not_count() {
    let lab = DaemonLab::new();
    lab.agent().propose(&accepted(command(["true"])), None).await.unwrap();
    lab.agent().propose(&accepted(command(["false"])), None).await.unwrap();
    let owner = lab.owner();
    let questions = asked(&owner, 2).await;
    let error = owner.approve(questions[0].id, &yes(&questions[1])).await.unwrap_err();
    let ClientError::Refused { status, error } = error else { panic!("{error}") };
    assert_eq!((status, error.code.as_str()), (409, "not_shown"));
}

#[tokio::test]
async fn a_key_counts_once_whatever_is_said_again() {
    use palyra_client::IdempotencyKey;
    let lab = DaemonLab::new();
    let (agent, key) = (lab.agent(), IdempotencyKey::parse("k1").unwrap());
    let call = palyra_tests::daemon::tool("fs.list", serde_json::json!({ "path": "." }));
    let first = agent.propose(&call, Some(&key)).await.unwrap();
    let again = agent.propose(&call, Some(&key)).await.unwrap();
    assert_eq!((first.id, &first.receipt), (again.id, &again.receipt));
    let other = palyra_tests::daemon::tool("fs.list", serde_json::json!({ "path": ".", "depth": 2 }));
    let ClientError::Refused { status, error } = agent.propose(&other, Some(&key)).await.unwrap_err() else { panic!() };
    assert_eq!((status, error.code.as_str(), error.call), (422, "key_reused", Some(first.id)));
    // Somebody else's keys are their own.
    assert_ne!(lab.owner().propose(&call, Some(&key)).await.unwrap().id, first.id);
    // A refusal is told again as it was.
    let key = IdempotencyKey::parse("k2").unwrap();
    let state = lab.home().join("config.toml");
    let denied = command(["cat", state.to_str().unwrap()]);
    let refuse = async || match agent.propose(&denied, Some(&key)).await.unwrap_err() {
        ClientError::Refused { status, error } => (status, error.code.clone(), error.call),
        other => panic!("{other}"),
    };
    let told = refuse().await;
    assert_eq!(told, refuse().await);
    assert_eq!(told.0, 403);
}

#[tokio::test]
async fn a_session_belongs_to_whoever_opened_it() {
    use palyra_api::run::NewRun;
    let lab = DaemonLab::new();
    let theirs = lab.owner().open_run(&NewRun::default()).await.unwrap().session;
    let mine = lab.agent().open_run(&NewRun::default()).await.unwrap().session;
    let open = async |session| lab.agent().open_run(&NewRun { session: Some(session), limits: None }).await;
    assert_eq!(open(mine).await.unwrap().session, mine);
    let ClientError::Refused { status, error } = open(theirs).await.unwrap_err() else { panic!() };
    assert_eq!((status, error.code.as_str()), (404, "unknown_session"));
}

#[tokio::test]
async fn runs_and_streams_are_bounded_for_each_principal() {
    let lab = DaemonLab::new();
    let agent = lab.agent();
    let run = agent.open_run(&Default::default()).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(lab.agent().run_stream(run.id, None).await.unwrap());
    }
    let ClientError::Refused { status, error } = agent.run_stream(run.id, None).await.err().unwrap() else { panic!() };
    assert_eq!((status, error.code.as_str()), (429, "too_many_streams"));
    let mut owners = lab.owner_locally().await.events(None).await.unwrap();
    drop(streams);
    palyra_tests::until(|| async { lab.agent().run_stream(run.id, None).await.is_ok() }).await;
    let mut opened = 0;
    while agent.open_run(&Default::default()).await.is_ok() {
        opened += 1;
        assert!(opened <= 1_200, "nobody counts them");
    }
    assert!(owners.next().await.unwrap().is_some());
}

#[tokio::test]
async fn what_is_refused_does_not_fill_the_journal() {
    let lab = DaemonLab::new();
    let agent = Raw { lab: &lab, bearer: lab.agent_token() };
    let long = "x".repeat(900_000);
    let (status, _) = agent.propose(&format!(r#"{{"tool":"fs.list","args":{{"wat":"{long}"}}}}"#)).await;
    assert_eq!(status, 422);
    let state = lab.home().join("config.toml");
    let argument = "x".repeat(50_000);
    let denied = format!(r#"{{"tool":"process.run","args":{{"command":["cat","{}","{argument}"]}}}}"#, state.display());
    let (status, code) = agent.propose(&denied).await;
    assert_eq!((status, code.as_str()), (403, "denied_by_policy"));
    let records = lab.owner().records(&Default::default()).await.unwrap().records;
    let proposed: Vec<_> = records.iter().filter(|record| record.kind == "tool.proposed").collect();
    assert_eq!(proposed.len(), 2);
    for record in &records {
        assert!(serde_json::to_string(record).unwrap().len() < 50_000, "record {} is long", record.seq);
    }
    assert!(proposed[0].body.as_ref().unwrap()["args"]["left_out"]["bytes"].as_u64().unwrap() > 900_000);
}

#[tokio::test]
async fn a_key_that_waits_answers_another_body_at_once() {
    use palyra_client::IdempotencyKey;
    let lab = DaemonLab::new();
    let key = IdempotencyKey::parse("k").unwrap();
    let agent = lab.agent();
    let first = tokio::spawn({
        let key = key.clone();
        async move { agent.propose(&command(["true"]), Some(&key)).await }
    });
    let owner = lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    let soon = Duration::from_secs(5);
    let (agent, call) = (lab.agent(), command(["false"]));
    let other = agent.propose(&call, Some(&key));
    let ClientError::Refused { error, .. } = tokio::time::timeout(soon, other).await.unwrap().unwrap_err() else {
        panic!()
    };
    assert_eq!(error.code, "key_reused");
    // The same request waits for the same call.
    let again = tokio::spawn({
        let (agent, key) = (lab.agent(), key.clone());
        async move { agent.propose(&command(["true"]), Some(&key)).await }
    });
    approve(&owner, &question).await.unwrap();
    assert_eq!(first.await.unwrap().unwrap().id, again.await.unwrap().unwrap().id);
}

#[tokio::test]
async fn what_long_records_say_is_told_in_portions() {
    use palyra_api::{
        call::{CallQuery, CallSelection},
        policy::{PolicyFile, Replay},
    };
    let mut lab = DaemonLab::new();
    let (agent, owner) = (lab.agent(), lab.owner());
    let (word, stdin) = ("x".repeat(120_000), "x".repeat(780_000));
    for index in 0..20 {
        let args = serde_json::json!({ "command": ["echo", index.to_string(), word], "stdin": stdin });
        let call = palyra_tests::daemon::tool("process.run", args);
        let waiting = agent.propose(&accepted(call), None).await.unwrap();
        let question = owner.approval(waiting.approval.unwrap()).await.unwrap();
        owner.deny(question.id, &no(&question, None)).await.unwrap();
    }
    // What was done so far took memory of its own.
    lab.stop();
    lab.start();
    let before = resident(&lab);
    let owner = lab.owner();
    let query = CallQuery { which: Some(CallSelection::Refused), limit: Some(1_000) };
    let refused = owner.calls(&query).await.unwrap();
    assert!(refused.more && (4..10).contains(&refused.calls.len()), "{} calls", refused.calls.len());
    let few = CallQuery { limit: Some(2), ..query };
    assert_eq!(owner.calls(&few).await.unwrap().calls, refused.calls[..2]);
    let text = r#"@id("all") permit (principal, action == Palyra::Action::"tool.execute", resource);"#.to_owned();
    let files = vec![PolicyFile { name: "all.cedar".to_owned(), text }];
    let candidate = |last| Replay { files: files.clone(), instead: false, preset: None, last };
    let report = owner.replay(&candidate(1_000)).await.unwrap();
    assert_eq!((report.tried, report.skipped), (20, 0));
    assert!((10..20).contains(&report.flips.len()), "{} flips", report.flips.len());
    assert_eq!(report.untold + u64::try_from(report.flips.len()).unwrap(), 20);
    // The newest are those that are tried.
    let newest = owner.replay(&candidate(1)).await.unwrap();
    assert_eq!((newest.tried, newest.flips.len(), newest.flips[0].call), (1, 1, refused.calls[0].id));
    let peak = memory(&lab, "VmHWM:");
    assert!(peak < before + 40_000, "{} kB more", peak - before);
}

#[tokio::test]
async fn questions_that_cannot_be_read_are_named_and_hide_no_others() {
    let lab = DaemonLab::new();
    let (agent, owner) = (lab.agent(), lab.owner());
    let mut ids = Vec::new();
    for index in 0..20 {
        let waiting = agent.propose(&accepted(command(["echo", &index.to_string()])), None).await.unwrap();
        ids.push(waiting.approval.unwrap());
    }
    let (unreadable, readable) = (&ids[1..18], [ids[0], ids[18], ids[19]]);
    let journal = rusqlite::Connection::open(lab.journal().join("journal.db")).unwrap();
    for id in unreadable {
        let changed = journal.execute("UPDATE approvals SET document = '{}' WHERE id = ?1", [id.to_string()]).unwrap();
        assert_eq!(changed, 1);
    }
    let told = owner.approvals(&Default::default()).await.unwrap();
    assert_eq!(told.approvals.iter().map(|question| question.id).collect::<Vec<_>>(), readable);
    assert_eq!((told.unreadable.as_slice(), told.more), (unreadable, false));
    // Page by page, too.
    let page = async |after, limit| {
        let query = palyra_api::approval::ApprovalQuery { limit: Some(limit), after };
        let told = owner.approvals(&query).await.unwrap();
        (told.approvals.len(), told.unreadable, told.more)
    };
    assert_eq!(page(None, 1).await, (1, vec![], true));
    assert_eq!(page(Some(ids[0]), 1).await, (1, unreadable.to_vec(), true));
    assert_eq!(page(Some(ids[18]), 1).await, (1, vec![], false));
}

/// How much memory the daemon has, in kB.
fn resident(lab: &DaemonLab) -> u64 {
    memory(lab, "VmRSS:")
}

fn memory(lab: &DaemonLab, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", lab.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Policies that take a while to load, and let everybody do everything.
fn many() -> String {
    let one = |n: usize| {
        format!("@id(\"many-{n}\") permit (principal == Palyra::Agent::\"nobody-{n}\", action, resource);\n")
    };
    format!("@id(\"all\") permit (principal, action, resource);\n{}", (0..2_000).map(one).collect::<String>())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_whose_caller_hangs_up_is_told_of_and_does_not_overtake_a_later_one() {
    let lab = DaemonLab::new();
    let own = lab.home().join("policies/own.cedar");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(&own, many()).unwrap();
    let raw = Raw { lab: &lab, bearer: lab.console().await };
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(raw.head("POST /api/v1/policy/reload", "Content-Length: 0\r\n").as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(stream);
    let forbid = "@id(\"none\") @why(\"nothing runs\") forbid (principal, action == Palyra::Action::\"tool.execute\", resource);";
    std::fs::write(&own, forbid).unwrap();
    let (status, told) = raw.ask("POST /api/v1/policy/reload", "Content-Length: 0\r\n", "").await;
    assert_eq!(status, 200, "{told}");
    // Whatever the first one still had to do is done by now.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        let refused = lab.agent().propose(&command(["touch", "marker"]), None).await.unwrap_err();
        let ClientError::Refused { error, .. } = refused else { panic!("{refused:?}") };
        assert!(error.message.contains("nothing runs"), "{}", error.message);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (_, records) = raw.ask("GET /api/v1/journal/records?from=0&limit=500", "", "").await;
    let records: Value = serde_json::from_str(&records).unwrap();
    let kinds =
        records["records"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap_or_default().to_owned());
    assert_eq!(kinds.filter(|kind| kind == "policy.reloaded").count(), 2, "{records}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_judged_by_the_switches_of_one_configuration_and_the_policies_of_another() {
    let lab = DaemonLab::new();
    let (own, config) = (lab.home().join("policies/own.cedar"), lab.home().join("config.toml"));
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    let known = std::fs::read_to_string(&config).unwrap();
    assert!(!known.contains("[policy]"), "{known}");
    let permit = "@id(\"permit\") permit (principal, action, resource);";
    let forbid = "@id(\"permit\") permit (principal, action, resource);
                  @id(\"no\") forbid (principal, action == Palyra::Action::\"tool.execute\", resource)
                  when { context has process && context.process.name == \"touch\" };";
    let put = |sensitive: bool, policies: &str| {
        std::fs::write(&config, format!("{known}\n[policy]\nallow_sensitive_tools = {sensitive}\n")).unwrap();
        std::fs::write(&own, policies).unwrap();
    };
    // Neither of the two lets anything be touched.
    let both = [(false, permit), (true, forbid)];
    put(both[0].0, both[0].1);
    lab.owner().reload().await.unwrap();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let proposing: Vec<_> = (0..3)
        .map(|_| {
            let (agent, over) = (lab.agent(), std::sync::Arc::clone(&over));
            tokio::spawn(async move {
                let mut count = 0;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let call = agent.propose(&command(["touch", "marker"]), None).await;
                    assert!(call.is_err(), "{call:?}");
                    count += 1;
                }
                count
            })
        })
        .collect();
    for round in 0..12_usize {
        let (sensitive, policies) = both[(round + 1) % 2];
        put(sensitive, policies);
        lab.owner().reload().await.unwrap();
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    for one in proposing {
        assert!(one.await.unwrap() > 10);
    }
    assert!(!lab.workspace().join("marker").exists());
}

#[tokio::test]
async fn a_call_that_the_budget_refuses_after_it_was_approved_says_so_whenever_it_is_asked() {
    let lab = DaemonPlan::default().policies("true.cedar", TRUE_RUNS).start();
    let (owner, agent) = (lab.owner(), lab.agent());
    let limits = Some(Limits { calls: Some(1), ..Limits::default() });
    let run = agent.open_run(&NewRun { limits, ..NewRun::default() }).await.unwrap().id;
    let of_run = |call: NewCall| NewCall { run: Some(run), ..call };
    let waiting = agent.propose(&of_run(accepted(command(["ls"]))), None).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    agent.propose(&of_run(command(["true"])), None).await.unwrap();
    approve(&owner, &question).await.unwrap();
    let error = over(&agent, waiting.id).await.refusal.unwrap();
    assert_eq!(error.code, "budget_exceeded", "{error:?}");
    assert!(error.message.starts_with("the run has used up its budget"), "{}", error.message);
    assert!(error.help.unwrap().contains("open a new run"));
}

const TRUE_RUNS: &str = r#"
@id("true") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context has process && context.process.name == "true" };
"#;
