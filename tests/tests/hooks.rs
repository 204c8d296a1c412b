//! What a coding agent asks before it uses tools of its own: the real daemon, the real `palyra hook claude-code`, and what Claude Code hands it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends"
)]

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use palyra_api::{
    approval::{Approval, Approve, Scope},
    authorize::{Asking, Authorization, Authorize, Decision},
    journal::{Record, RecordQuery},
    tool::PostureSetting,
};
use palyra_gate::{Elsewhere, OnAsk, Wants};
use palyra_journal::{RecordKind, Trouble};
use palyra_policy::Verdict;
use palyra_tests::{
    Faults, Plan,
    daemon::{DaemonLab, DaemonPlan, approve, asked, no, yes},
};
use palyra_types::{Sha256Digest, ToolName, WorkspaceName};
use serde_json::{Map, Value, json};

/// What came of a hook.
#[derive(Debug)]
pub(crate) struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    /// The decision and its reason, as Claude Code reads them.
    fn decision(&self) -> (String, String) {
        let said: Value = serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let told = &said["hookSpecificOutput"];
        assert_eq!(told["hookEventName"], "PreToolUse", "{self:?}");
        let text = |key: &str| told[key].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned();
        (text("permissionDecision"), text("permissionDecisionReason"))
    }

    /// The decision of a hook that did what it is for.
    pub(crate) fn decided(&self) -> (String, String) {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:?}");
        self.decision()
    }

    /// The reason of one that nobody decided, and that blocks in both ways.
    fn blocked(&self) -> String {
        let (decision, reason) = self.decision();
        assert_eq!((self.code, decision.as_str()), (2, "deny"), "{self:?}");
        assert!(self.err.starts_with("Palyra did not decide"), "{self:?}");
        reason
    }
}

pub(crate) fn fed(mut command: Command, said: &[u8]) -> Ended {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // It may be gone before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(said);
    let ended = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: ended.status.code().unwrap(), out: text(ended.stdout), err: text(ended.stderr) }
}

pub(crate) fn hook(lab: &DaemonLab, said: &Value) -> Ended {
    let mut command = lab.palyra();
    command.args(["hook", "claude-code"]).env("PALYRA_TOKEN", lab.agent_token());
    fed(command, said.to_string().as_bytes())
}

/// What Claude Code hands a hook before it uses a tool.
pub(crate) fn before(cwd: &Path, tool: &str, input: &Value) -> Value {
    json!({
        "session_id": "6f1d2c3e-8a1b-4c55-9d10-1f2e3d4c5b6a",
        "transcript_path": "/home/ada/.claude/projects/shop/6f1d2c3e.jsonl",
        "cwd": cwd,
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": input,
        "tool_use_id": "toolu_01ABCDEFGHJKMNPQRSTVWXYZ",
    })
}

pub(crate) fn decision(lab: &DaemonLab, tool: &str, input: &Value) -> (String, String) {
    hook(lab, &before(lab.workspace(), tool, input)).decided()
}

pub(crate) async fn records(lab: &DaemonLab, kind: &str) -> Vec<Record> {
    let query = RecordQuery { from: None, limit: Some(1_000) };
    let records = lab.owner().records(&query).await.unwrap().records;
    records.into_iter().filter(|record| record.kind == kind).collect()
}

pub(crate) fn wanted(tool: &str, args: Value) -> Authorize {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    let workspace = WorkspaceName::parse("lab").ok();
    Authorize { tool: ToolName::parse(tool).unwrap(), args, cwd: None, workspace, conversation: None, on_ask: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tool_is_decided_about_as_ours_is_and_each_decision_is_on_record() {
    let lab = DaemonLab::new();
    fs::write(lab.workspace().join("notes.txt"), "x").unwrap();
    let inside = lab.workspace().join("notes.txt");
    let state = lab.home().join("vault/vault.bin");
    let approving = "cd /tmp && palyra approvals approve 01J";
    let reaching = format!("cd {} && cat identity/device.json", lab.home().display());
    let cases = [
        ("Read", json!({ "file_path": inside }), "allow", "baseline.execute-always-allow"),
        ("Read", json!({ "file_path": "notes.txt" }), "allow", "baseline.execute-always-allow"),
        ("Grep", json!({ "pattern": "x" }), "allow", "baseline.execute-always-allow"),
        ("Glob", json!({ "pattern": "**/*.rs" }), "allow", "baseline.execute-always-allow"),
        ("LS", json!({ "path": lab.workspace() }), "allow", "baseline.execute-always-allow"),
        ("Read", json!({ "file_path": "/etc/hostname" }), "ask", "cautious.read-outside"),
        ("Glob", json!({ "pattern": "/etc/**" }), "ask", "cautious.read-outside"),
        ("Write", json!({ "file_path": inside, "content": "y" }), "ask", "baseline.execute-ask"),
        ("Edit", json!({ "file_path": inside, "old_string": "x", "new_string": "y" }), "ask", "baseline.execute-ask"),
        ("Bash", json!({ "command": "ls -l | wc", "description": "Count" }), "ask", "baseline.execute-ask"),
        ("WebFetch", json!({ "url": "https://example.org/a", "prompt": "p" }), "ask", "baseline.execute-ask"),
        ("WebSearch", json!({ "query": "rust" }), "ask", "baseline.agent-tool"),
        ("TodoWrite", json!({ "todos": [] }), "allow", "baseline.agent-tool"),
        ("Task", json!({ "prompt": "look", "subagent_type": "Explore" }), "allow", "baseline.agent-tool"),
        ("Teleport", json!({ "to": "moon" }), "ask", "baseline.agent-tool"),
        ("mcp__github__create_issue", json!({ "title": "x" }), "ask", "baseline.execute-ask"),
        ("mcp__palyra__fs_read", json!({ "path": "x" }), "allow", "where it arrives"),
        ("mcp__palyra__does_not_exist", json!({}), "ask", "baseline.execute-ask"),
        ("mcp__palyra___tool", json!({}), "ask", "baseline.execute-ask"),
        ("mcp__palyra__evil__tool", json!({}), "ask", "baseline.execute-ask"),
        ("Bash", json!({ "command": approving }), "deny", "baseline.runs-palyra"),
        ("Bash", json!({ "command": reaching }), "deny", "baseline.touches-state"),
        ("Read", json!({ "file_path": state }), "deny", "baseline.touches-state"),
        ("Edit", json!({ "file_path": lab.home().join("policies/own.cedar") }), "deny", "baseline.touches-state"),
        ("Grep", json!({ "pattern": "plr_", "path": lab.home().parent().unwrap() }), "deny", "baseline.touches-state"),
    ];
    for (tool, input, expected, because) in &cases {
        let (decision, reason) = decision(&lab, tool, input);
        assert_eq!(decision, *expected, "{tool} {input}: {reason}");
        assert!(reason.contains(because), "{tool} {input}: {reason}");
    }
    let decided = records(&lab, "hook.decided").await;
    assert_eq!(decided.len(), cases.len());
    for (record, (tool, _, expected, _)) in decided.iter().zip(&cases) {
        let body = record.body.as_ref().unwrap();
        assert_eq!((&body["verdict"], &body["proposal"]["elsewhere"]["tool"]), (&json!(expected), &json!(tool)));
        let proposal = &body["proposal"];
        let who = (&proposal["principal"], &proposal["channel"]);
        assert_eq!(who, (&json!({ "kind": "agent", "id": "local" }), &json!("hook")), "{body}");
        assert!(body["input_sha256"].is_string() && proposal["token"].is_string(), "{body}");
    }
    let bash = decided[9].body.as_ref().unwrap();
    assert_eq!(bash["request"]["elsewhere"], true);
    assert_eq!(bash["proposal"]["args"], json!({ "command": "ls -l | wc" }), "what is said about it is no part of it");
    let proposed = records(&lab, "tool.proposed").await;
    assert!(proposed.is_empty(), "nothing was called");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_judged_by_where_it_leads() {
    let lab = DaemonLab::new();
    let at = |name: &str| lab.workspace().join(name);
    fs::create_dir(at("deep")).unwrap();
    symlink("/etc", at("etc")).unwrap();
    symlink(lab.home(), at("state")).unwrap();
    symlink("/etc/made-by-nobody", at("dangling")).unwrap();
    symlink("circle", at("circle")).unwrap();
    let outside = lab.workspace().parent().unwrap().join("elsewhere");
    for (path, expected) in [
        (at("deep/new.txt"), "allow"),
        (at("deep/../notes.txt"), "allow"),
        (at("../elsewhere"), "ask"),
        (at("deep/../../elsewhere"), "ask"),
        (outside, "ask"),
        (at("etc/hostname"), "ask"),
        (at("etc/../root/x"), "ask"),
        (at("dangling"), "ask"),
        (at("state/config.toml"), "deny"),
        (at("deep/../state"), "deny"),
        (at("circle"), "deny"),
        (Path::new("/proc/self/root").join(lab.home().strip_prefix("/").unwrap()), "deny"),
    ] {
        let (decision, reason) = decision(&lab, "Read", &json!({ "file_path": path }));
        assert_eq!(decision, expected, "{}: {reason}", path.display());
        assert!(!reason.contains("made-by-nobody") && !reason.contains("hostname\""), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_denied_and_blocks_nothing_else() {
    let lab = DaemonLab::new();
    let cwd = lab.workspace();
    let pre = |tool: Value, input: Value| {
        let mut said = before(cwd, "", &input);
        said["tool_name"] = tool;
        said
    };
    let mut without_input = before(cwd, "Read", &json!({}));
    without_input.as_object_mut().unwrap().remove("tool_input");
    let mut strange_cwd = before(cwd, "Read", &json!({ "file_path": "x" }));
    strange_cwd["cwd"] = json!(["/"]);
    let mut no_cwd = before(cwd, "Read", &json!({ "file_path": "x" }));
    no_cwd.as_object_mut().unwrap().remove("cwd");
    let nonsense = [
        pre(json!("Read"), json!({})),
        pre(json!("Read"), json!({ "file_path": 7 })),
        pre(json!("Read"), json!({ "file_path": "a\u{0}b" })),
        pre(json!("Read"), json!({ "file_path": "" })),
        pre(json!("Read"), json!({ "file_path": "~/.ssh/id_ed25519" })),
        pre(json!("Read"), json!({ "file_path": " ~/.ssh/id_ed25519" })),
        pre(json!("Read"), json!({ "file_path": "/etc/hostname\n" })),
        pre(json!("Read"), json!({ "file_path": "/a".repeat(4_000) })),
        pre(json!("Read"), json!([])),
        pre(json!("Read"), json!("file_path")),
        pre(json!(["Read"]), json!({ "file_path": "x" })),
        pre(Value::Null, json!({ "file_path": "x" })),
        pre(json!("Read\u{202e}"), json!({ "file_path": "x" })),
        pre(json!("mcp__only"), json!({})),
        pre(json!("Bash"), json!({ "command": ["ls"] })),
        pre(json!("Bash"), json!({ "command": "ls \u{0} -l" })),
        pre(json!("Bash"), json!({ "command": "x".repeat(200_000) })),
        pre(json!("WebFetch"), json!({ "url": "file:///etc/passwd" })),
        pre(json!("WebFetch"), json!({ "url": "https://ada@example.org@evil.test/" })),
        pre(json!("Glob"), json!({ "pattern": "*/../../x" })),
        pre(json!("Glob"), json!({ "pattern": "{/etc/ssh/*,x}" })),
        pre(json!("Glob"), json!({ "pattern": format!("{{{}/identity/*,x}}", lab.home().display()) })),
        pre(json!("Glob"), json!({ "pattern": "@(..)/lib/*" })),
        pre(json!("Glob"), json!({ "pattern": ".\\./lib/*" })),
        pre(json!("Glob"), json!({ "pattern": "~/x/*" })),
        pre(json!("Glob"), json!({ "pattern": "*", "path": " ~/x" })),
        without_input,
        strange_cwd,
        no_cwd,
    ];
    for said in &nonsense {
        let (decision, reason) = hook(&lab, said).decided();
        assert_eq!(decision, "deny", "{reason}");
        assert!(!reason.chars().any(|c| c.is_control() || c == '\u{202e}'), "{reason:?}");
    }
    let decided = records(&lab, "hook.decided").await;
    assert_eq!(decided.len(), nonsense.len(), "what cannot be read is on record, too");
    for (record, said) in decided.iter().zip(&nonsense) {
        assert_eq!(record.body.as_ref().unwrap()["verdict"], "deny", "{said}");
    }
    let unread = decided[0].body.as_ref().unwrap();
    assert_eq!((&unread["principal"], &unread["channel"]), (&json!("agent:local"), &json!("hook")), "{unread}");
    assert_eq!((&unread["tool"], &unread["code"]), (&json!("Read"), &json!("bad_arguments")), "{unread}");
    assert!(unread["sha256"].is_string() && unread["token"].is_string() && unread["reason"].is_string(), "{unread}");
    let feed = |text: &[u8]| {
        let mut command = lab.palyra();
        command.args(["hook", "claude-code"]).env("PALYRA_TOKEN", lab.agent_token());
        fed(command, text)
    };
    let twice = br#"{"hook_event_name":"PreToolUse","tool_name":"TodoWrite","tool_name":"Bash","tool_input":{}}"#;
    let garbled = [&b""[..], b"{", b"[]", b"null", b"\xff\xfe", twice];
    for text in garbled.iter().chain(&[&b"{}"[..], br#"{"hook_event_name":3}"#]) {
        let (decision, reason) = feed(text).decided();
        assert_eq!(decision, "deny", "{}", String::from_utf8_lossy(text));
        assert!(reason.contains(" [record "), "{reason}");
    }
    let decided = records(&lab, "hook.decided").await;
    for (record, text) in decided[nonsense.len()..].iter().zip(garbled) {
        let body = record.body.as_ref().unwrap();
        let why = "what the hook handed over is no JSON object";
        assert_eq!((&body["verdict"], &body["reason"]), (&json!("deny"), &json!(why)), "{body}");
        assert_eq!((&body["principal"], &body["channel"]), (&json!("agent:local"), &json!("hook")), "{body}");
        assert_eq!((&body["sha256"], &body["token"]), (&json!(Sha256Digest::of(text)), &unread["token"]), "{body}");
        assert!(!body.to_string().contains("tool_name"), "what it says is not kept: {body}");
    }
    assert_eq!(decided.len(), nonsense.len() + garbled.len() + 2, "each left a record");
    assert!(feed(&vec![b' '; (2 << 20) + 1]).blocked().contains("longer than"));
    // Hidden characters are part of what is asked, and visible wherever it is shown.
    let (decision, _) = decision(&lab, "Bash", &json!({ "command": "ls # \u{202e}sl" }));
    assert_eq!(decision, "ask");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_events_are_on_record_and_block_nothing_even_without_a_daemon() {
    let mut lab = DaemonLab::new();
    let event = |name: &str| {
        let mut said = before(lab.workspace(), "Bash", &json!({ "command": "ls" }));
        said["hook_event_name"] = json!(name);
        said["tool_response"] = json!({ "stdout": "a secret" });
        said
    };
    let events = ["PostToolUse", "SessionStart", "UserPromptSubmit", "Stop", "SomethingNew"];
    let said: Vec<Value> = events.iter().map(|name| event(name)).collect();
    for said in &said {
        let ended = hook(&lab, said);
        assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (0, "{}\n", ""), "{said}");
    }
    let told = records(&lab, "hook.told").await;
    let names: Vec<_> = told.iter().map(|record| record.body.as_ref().unwrap()["event"].clone()).collect();
    assert_eq!(names, events);
    assert!(!serde_json::to_string(&told).unwrap().contains("a secret"), "what came of it is not kept");
    let token = lab.agent_token();
    lab.stop();
    let mut command = lab.palyra();
    command.args(["hook", "claude-code"]).env("PALYRA_TOKEN", token);
    let ended = fed(command, said[3].to_string().as_bytes());
    assert_eq!((ended.code, ended.out.as_str()), (0, "{}\n"), "{ended:?}");
    assert!(ended.err.contains("no daemon of this state directory runs"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_gets_no_decision_is_blocked() {
    let mut lab = DaemonLab::new();
    let said = before(lab.workspace(), "TodoWrite", &json!({ "todos": [] })).to_string();
    let ask = |lab: &DaemonLab, token: Option<&str>, more: &[&str]| {
        let mut command = lab.palyra();
        command.args(["hook", "claude-code"]).args(more).env_remove("PALYRA_TOKEN");
        if let Some(token) = token {
            command.env("PALYRA_TOKEN", token);
        }
        fed(command, said.as_bytes())
    };
    let token = lab.agent_token();
    assert_eq!(ask(&lab, Some(&token), &[]).decided().0, "allow", "with everything in order it is let through");
    assert!(ask(&lab, None, &[]).blocked().contains("there is no token"));
    assert!(ask(&lab, Some(""), &[]).blocked().contains("credential"));
    let other = format!("{}x", token.get(..token.len() - 1).unwrap());
    assert!(ask(&lab, Some(&other), &[]).blocked().contains("no credential that is known"));
    assert!(ask(&lab, None, &["--token-file", "/nowhere"]).blocked().contains("/nowhere"));
    let file = lab.workspace().join("token");
    fs::write(&file, &token).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let path = file.to_str().unwrap();
    assert!(ask(&lab, None, &["--token-file", path]).blocked().contains(path), "others can read it");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ask(&lab, None, &["--token-file", path]).decided().0, "allow");
    assert!(ask(&lab, Some(&token), &["--daemon", "http://example.org:80"]).blocked().contains("loopback"));
    // Somebody else on the port: who says nothing, who says something else.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    assert!(ask(&lab, Some(&token), &["--daemon", &url, "--within", "1"]).blocked().contains("did not answer"));
    assert!(begun.elapsed() < Duration::from_secs(10));
    for body in ["{}", "[1]", "nonsense", r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"#] {
        let url = answering(body);
        ask(&lab, Some(&token), &["--daemon", &url, "--within", "5"]).blocked();
    }
    lab.stop();
    assert!(ask(&lab, Some(&token), &["--daemon", &url, "--within", "1"]).blocked().contains("did not answer"));
    let closed = format!("http://{}", lab.local());
    assert!(ask(&lab, Some(&token), &["--daemon", &closed]).blocked().contains("no daemon answers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sits_where_the_daemon_was_gets_no_token_and_decides_nothing() {
    let mut lab = DaemonLab::new();
    let (local, token) = (lab.local(), lab.agent_token());
    let said = before(lab.workspace(), "TodoWrite", &json!({ "todos": [] })).to_string();
    let ask = |lab: &DaemonLab, more: &[&str]| {
        let mut command = lab.palyra();
        command.args(["hook", "claude-code"]).args(more).env("PALYRA_TOKEN", &token);
        fed(command, said.as_bytes())
    };
    assert_eq!(ask(&lab, &[]).decided().0, "allow", "with everything in order it is let through");
    // Killed, it leaves behind where it served.
    lab.kill();
    assert!(lab.home().join("serving.json").exists());
    let heard = allowing(local);
    for _ in 0..2 {
        assert!(ask(&lab, &[]).blocked().contains("no daemon of this state directory runs"));
        let _ = fs::remove_file(lab.home().join("serving.json"));
    }
    assert_eq!(heard.try_iter().count(), 0, "nobody has connected");
    // Who names an address means it, which shows that the stranger was there all the time.
    let url = format!("http://{local}");
    assert_eq!(ask(&lab, &["--daemon", &url]).decided().0, "allow");
    assert!(heard.recv().unwrap().contains(&token));
}

/// A stranger at an address that allows everything, and tells what was said to it.
fn allowing(address: impl ToSocketAddrs) -> Receiver<String> {
    let listener = TcpListener::bind(address).unwrap();
    let (tell, heard) = channel();
    let body = json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse", "permissionDecision": "allow",
        "permissionDecisionReason": "why not" } })
    .to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let (mut said, mut piece) = (Vec::<u8>::new(), [0_u8; 4_096]);
            while !said.ends_with(b"}") {
                match stream.read(&mut piece) {
                    Ok(length) if length > 0 => said.extend_from_slice(&piece[..length]),
                    _ => break,
                }
            }
            let _ = tell.send(String::from_utf8_lossy(&said).into_owned());
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_does_not_answer_in_time_is_told_as_such() {
    let lab = DaemonLab::new();
    let mut palyra = lab.palyra();
    palyra.args(["hook", "claude-code", "--on-ask", "wait", "--within", "2"]).env("PALYRA_TOKEN", lab.agent_token());
    let said = before(lab.workspace(), "Bash", &json!({ "command": "ls" })).to_string();
    let reason = fed(palyra, said.as_bytes()).blocked();
    assert!(reason.contains("nobody answered within 2 s"), "{reason}");
    assert_eq!(records(&lab, "approval.requested").await.len(), 1, "somebody was asked");
}

/// Something on a port that answers one request with this body.
fn answering(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
        let mut read = vec![0; 64 << 10];
        let _ = stream.read(&mut read);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_is_asked_here_sees_what_would_be_done_and_answers_once() {
    let lab = Arc::new(DaemonLab::new());
    let run = |command: &'static str| {
        let lab = Arc::clone(&lab);
        tokio::task::spawn_blocking(move || {
            let said = before(lab.workspace(), "Bash", &json!({ "command": command, "description": "Harmless!" }));
            let mut palyra = lab.palyra();
            palyra.args(["hook", "claude-code", "--on-ask", "wait"]).env("PALYRA_TOKEN", lab.agent_token());
            fed(palyra, said.to_string().as_bytes())
        })
    };
    let owner = lab.owner();
    let waiting = run("cargo test \u{202e}x");
    let question = asked(&owner, 1).await.remove(0);
    let shown = question.command.clone().unwrap();
    assert!(shown.program.ends_with("/bash"), "{shown:?}");
    assert_eq!(shown.args, ["-c", "cargo test \u{202e}x"]);
    assert_eq!(shown.cwd, lab.workspace().to_str().unwrap());
    assert!(
        question.summary.contains("<U+202E>") && question.summary.contains("run by the agent itself"),
        "{question:?}"
    );
    assert_eq!((question.plan.tier.as_deref(), question.risk.level.as_str()), (None, "critical"));
    assert!(question.plan.writes.contains("nothing contains it"), "{question:?}");
    assert_eq!((question.plan.elsewhere, question.plan.hosts.as_slice()), (true, [ANY_HOST.to_owned()].as_slice()));
    let shown = terminal(&lab, &question);
    for line in [
        "  tier          none; the agent's own program does it, with its own environment, and nothing contains it\n"
            .to_owned(),
        format!("  hosts         {ANY_HOST}\n"),
    ] {
        assert!(shown.contains(&line), "{shown}");
    }
    for reassuring in ["the daemon does it itself", "  environment ", "  runs at most ", "hosts         none"] {
        assert!(!shown.contains(reassuring), "{reassuring}: {shown}");
    }
    assert!(!serde_json::to_string(&question.args).unwrap().contains("Harmless"), "{question:?}");
    approve(&owner, &question).await.unwrap();
    let (decision, reason) = waiting.await.unwrap().decided();
    assert_eq!(decision, "allow", "{reason}");
    assert!(reason.contains("approved it"), "{reason}");
    // The same is asked about again, and a no is told with its words.
    let waiting = run("cargo test \u{202e}x");
    let again = asked(&owner, 1).await.remove(0);
    assert_eq!(again.digest, question.digest, "it is the same");
    owner.deny(again.id, &no(&again, Some("not on a Friday"))).await.unwrap();
    let (decision, reason) = waiting.await.unwrap().decided();
    assert_eq!(decision, "deny");
    assert!(reason.contains("not on a Friday"), "{reason}");
    // An answer for the session stands for exactly the same, also where the agent's own user would be asked.
    let waiting = run("cargo test");
    let question = asked(&owner, 1).await.remove(0);
    owner.approve(question.id, &Approve { scope: Scope::Session, ..yes(&question) }).await.unwrap();
    assert_eq!(waiting.await.unwrap().decided().0, "allow");
    let (same, reason) = decision_of(&lab, "cargo test");
    assert_eq!(same, "allow", "{reason}");
    assert!(reason.contains("approved this before"), "{reason}");
    assert_eq!(decision_of(&lab, "cargo test --release").0, "ask");
    let decided = records(&lab, "hook.decided").await;
    let told: Vec<_> = decided.iter().map(|one| one.body.as_ref().unwrap()).collect();
    let verdicts: Vec<_> = told.iter().map(|body| body["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["allow", "deny", "allow", "allow", "ask"]);
    assert_eq!(told[0]["asked_about"], json!(question_call(&lab, "approval.requested").await));
    assert_eq!(told[3]["approval"], json!(question.id), "the answer that stands is named");
    assert_eq!(records(&lab, "tool.attested").await.len(), 2, "what was approved is attested");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_what_the_agent_fetches_itself_names_the_host() {
    let lab = Arc::new(DaemonLab::new());
    let hooked = Arc::clone(&lab);
    let waiting = tokio::task::spawn_blocking(move || {
        let input = json!({ "url": "https://example.org/a", "prompt": "p" });
        let mut palyra = hooked.palyra();
        palyra.args(["hook", "claude-code", "--on-ask", "wait"]).env("PALYRA_TOKEN", hooked.agent_token());
        fed(palyra, before(hooked.workspace(), "WebFetch", &input).to_string().as_bytes())
    });
    let owner = lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    assert_eq!(
        (question.plan.elsewhere, question.plan.hosts.as_slice()),
        (true, ["example.org:443".to_owned()].as_slice())
    );
    let shown = terminal(&lab, &question);
    assert!(shown.contains("  hosts         example.org:443\n"), "{shown}");
    assert!(!shown.contains("  runs at most ") && !shown.contains("the daemon does it itself"), "{shown}");
    owner.deny(question.id, &no(&question, None)).await.unwrap();
    assert_eq!(waiting.await.unwrap().decided().0, "deny");
}

/// A question as a terminal shows it.
pub(crate) fn terminal(lab: &DaemonLab, question: &Approval) -> String {
    let mut palyra = lab.palyra();
    palyra.args(["approvals", "show", &question.id.to_string()]);
    let ended = fed(palyra, b"");
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.out
}

/// Where a program that the agent runs itself may connect to.
const ANY_HOST: &str = "any: nothing holds its network back";

fn decision_of(lab: &DaemonLab, command: &str) -> (String, String) {
    decision(lab, "Bash", &json!({ "command": command }))
}

/// The call of the first record of a kind.
async fn question_call(lab: &DaemonLab, kind: &str) -> String {
    let first = records(lab, kind).await.remove(0);
    first.body.unwrap()["prompt"]["call"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_withdraws_the_question() {
    let lab = DaemonLab::new();
    let said = before(lab.workspace(), "Bash", &json!({ "command": "ls" })).to_string();
    let mut palyra = lab.palyra();
    palyra.args(["hook", "claude-code", "--on-ask", "wait"]).env("PALYRA_TOKEN", lab.agent_token());
    let mut child = palyra.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    let owner = lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    child.kill().unwrap();
    child.wait().unwrap();
    palyra_tests::until(|| async {
        owner.approval(question.id).await.unwrap().state == palyra_api::approval::ApprovalState::Cancelled
    })
    .await;
}

const OWN_RULES: &str = r#"
@id("own.status")
@why("looking at the state of the repository is fine, wherever it happens")
permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"process.run")
when { context.elsewhere && context has process && context.process.command == "/usr/bin/true status" };

@id("own.contained")
@why("what is contained runs")
permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"process.run")
when { context has tier && context.tier == Palyra::Tier::"c" };
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_speaks_of_what_happens_elsewhere_and_one_about_a_tier_does_not_reach_it() {
    let lab = DaemonPlan::default().policies("own.cedar", OWN_RULES).start();
    let agent = lab.agent();
    let ask = async |tool: &str, args: Value| agent.authorize(&wanted(tool, args)).await.unwrap();
    let told = ask("process.run", json!({ "command": ["/usr/bin/true", "status"] })).await;
    let Authorization { decision, code, policy, record, .. } = &told;
    assert_eq!((*decision, code.as_str(), policy.as_deref()), (Decision::Allow, "allowed", Some("own.status")));
    assert!(record.is_some());
    let told = ask("process.run", json!({ "command": ["true", "push"] })).await;
    assert_eq!((told.decision, told.policy.as_deref()), (Decision::Ask, Some("baseline.execute-ask")));
    let told = ask("process.run", json!({ "command": "true status" })).await;
    assert_eq!(told.decision, Decision::Ask, "a shell is another program");
    // Running at once is said of what Palyra runs.
    let posture: PostureSetting = serde_json::from_value(
        json!({ "layer": "global", "key": "", "tool": "process.run", "posture": "always_allow" }),
    )
    .unwrap();
    lab.owner().set_posture(&posture).await.unwrap();
    assert_eq!(ask("process.run", json!({ "command": ["true", "push"] })).await.decision, Decision::Ask);
    let told = ask("acme.deploy", json!({ "to": "production" })).await;
    assert_eq!((told.decision, told.code.as_str()), (Decision::Deny, "denied_by_policy"));
    assert!(told.help.is_some());
    let told = ask("net.connect", json!({ "host": "example.org", "port": 443 })).await;
    assert_eq!((told.decision, told.code.as_str()), (Decision::Deny, "unknown_tool"));
    let told = ask("http.fetch", json!({ "url": "https://example.org/" })).await;
    assert_eq!((told.decision, told.policy.as_deref()), (Decision::Ask, Some("baseline.execute-ask")));
    for args in [
        json!({}),
        json!({ "command": [] }),
        json!({ "command": ["true"], "tier": "c" }),
        json!({ "command": 7 }),
        json!({ "command": ["true"], "cwd": " /etc" }),
    ] {
        let error = agent.authorize(&wanted("process.run", args)).await.unwrap_err();
        assert_eq!(palyra_tests::daemon::refused(error), (422, "bad_arguments".to_owned()));
    }
    let elsewhere =
        Authorize { workspace: WorkspaceName::parse("nowhere").ok(), ..wanted("fs.read", json!({ "path": "/x" })) };
    let error = agent.authorize(&elsewhere).await.unwrap_err();
    assert_eq!(palyra_tests::daemon::refused(error).1, "unknown_workspace");
    let relative = ask("fs.read", json!({ "path": "x" })).await;
    assert_eq!((relative.decision, relative.code.as_str()), (Decision::Deny, "bad_arguments"), "nobody says to what");
    let cwd = Some(lab.workspace().to_str().unwrap().to_owned());
    let inside = Authorize { workspace: None, cwd, ..wanted("fs.read", json!({ "path": "x" })) };
    assert_eq!(agent.authorize(&inside).await.unwrap().decision, Decision::Allow);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_ours_that_says_nothing_of_what_it_reaches_asks_whatever_its_posture() {
    let lab = DaemonLab::new();
    let (agent, owner) = (lab.agent(), lab.owner());
    let cases = [
        ("memory.purge", json!({ "scope": "agent:other" })),
        ("cron.create", json!({})),
        ("daemon.status", json!({})),
        ("mcp.gw.echo", json!({ "text": "x" })),
    ];
    for (tool, args) in cases {
        let told = agent.authorize(&wanted(tool, args.clone())).await.unwrap();
        assert_eq!(told.decision, Decision::Ask, "{tool}: {told:?}");
        // No posture can be set for a tool that is not here.
        if tool.starts_with("mcp.") {
            continue;
        }
        let posture = json!({ "layer": "global", "key": "", "tool": tool, "posture": "always_allow" });
        let posture: PostureSetting = serde_json::from_value(posture).unwrap();
        owner.set_posture(&posture).await.unwrap();
        let told = agent.authorize(&wanted(tool, args)).await.unwrap();
        assert_eq!(told.decision, Decision::Ask, "{tool} with a posture: {told:?}");
    }
    let (decision, reason) = decision(&lab, "mcp__gw__echo", &json!({ "text": "x" }));
    assert_eq!(decision, "ask", "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postures_and_budgets_hold_for_it() {
    let lab = DaemonPlan::default().config("[budget]\ncalls = 2\n").start();
    let agent = lab.agent();
    let conversation = |name: &str| Authorize {
        conversation: Some(name.to_owned()),
        ..wanted("fs.read", json!({ "path": lab.workspace().join("x") }))
    };
    for _ in 0..2 {
        assert_eq!(agent.authorize(&conversation("one")).await.unwrap().decision, Decision::Allow);
    }
    let spent = agent.authorize(&conversation("one")).await.unwrap();
    assert_eq!((spent.decision, spent.code.as_str()), (Decision::Deny, "budget_exceeded"));
    assert_eq!(agent.authorize(&conversation("two")).await.unwrap().decision, Decision::Allow);
    let off: PostureSetting =
        serde_json::from_value(json!({ "layer": "global", "key": "", "tool": "fs.read", "posture": "disabled" }))
            .unwrap();
    lab.owner().set_posture(&off).await.unwrap();
    let told = agent.authorize(&conversation("three")).await.unwrap();
    assert_eq!((told.decision, told.policy.as_deref()), (Decision::Deny, Some("baseline.posture-disabled")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_can_wait_over_http_as_well() {
    let lab = DaemonLab::new();
    let (agent, owner) = (lab.agent(), lab.owner());
    let write = Authorize {
        on_ask: Some(Asking::Wait),
        ..wanted("fs.write", json!({ "path": lab.workspace().join("new.txt"), "content": "x" }))
    };
    let answering = tokio::spawn(async move {
        let question = asked(&owner, 1).await.remove(0);
        assert_eq!(question.files.as_ref().unwrap()["writes"].as_array().unwrap().len(), 1);
        approve(&owner, &question).await.unwrap();
        question
    });
    let told = agent.authorize(&write).await.unwrap();
    let question = answering.await.unwrap();
    assert_eq!((told.decision, told.approval, told.call), (Decision::Allow, Some(question.id), Some(question.call)));
    assert!(!lab.workspace().join("new.txt").exists(), "nothing is done for whoever asks");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_denied() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    lab.gate.recover().await.unwrap();
    let path = lab.workspace().join("x").to_str().unwrap().to_owned();
    let proposal = || {
        let wants = Wants { reads: vec![path.clone()], ..Wants::default() };
        let elsewhere = Elsewhere { tool: "Read".to_owned(), cwd: None, wants, needs: Default::default() };
        let args = json!({ "file_path": path });
        palyra_gate::ToolProposal { elsewhere: Some(Arc::new(elsewhere)), ..lab.call("fs.read", args) }
    };
    assert_eq!(lab.gate.authorize(proposal(), OnAsk::Defer).await.verdict, Verdict::Allow);
    faults.fail_commits(|transaction| {
        let is_ours = transaction.records.iter().any(|record| record.kind == RecordKind::HookDecided);
        is_ours.then_some(Trouble::DiskFull)
    });
    let told = lab.gate.authorize(proposal(), OnAsk::Defer).await;
    assert_eq!((told.verdict, told.code, told.record), (Verdict::Deny, "journal_unwritable", None));
    assert_eq!(lab.gate.hook_refused(&json!({})).await.unwrap_err().code(), "journal_unwritable");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_installs_itself_beside_others_and_works_from_there() {
    let lab = DaemonLab::new();
    let (user, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = user.path().join(".claude/settings.json");
    fs::create_dir(settings.parent().unwrap()).unwrap();
    let theirs = json!({ "hooks": { "PreToolUse": [{ "matcher": "Bash", "hooks": [{ "type": "command", "command": "mine" }] }] } });
    fs::write(&settings, theirs.to_string()).unwrap();
    let palyra = |more: &[&str]| {
        let mut command = lab.palyra();
        command.args(["hook", "claude-code"]).args(more).current_dir(project.path());
        command.env("HOME", user.path()).env_remove("CLAUDE_CONFIG_DIR").env_remove("PALYRA_TOKEN");
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{more:?}: {ended:?}");
        String::from_utf8(ended.stdout).unwrap()
    };
    palyra(&["--install"]);
    let token = lab.home().join("hooks/claude-code.token");
    let kept = fs::read_to_string(&token).unwrap();
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    let minted = lab.owner().tokens().await.unwrap().tokens;
    let own = minted.iter().find(|one| one.principal == "agent:claude-code").unwrap();
    assert_eq!(own.scopes, ["calls.create"]);
    palyra(&["--install"]);
    assert_eq!(fs::read_to_string(&token).unwrap(), kept, "a token that works is kept");
    let read = |path: &Path| serde_json::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap();
    let groups = read(&settings)["hooks"]["PreToolUse"].as_array().unwrap().clone();
    assert_eq!((groups.len(), &groups[0]), (2, &theirs["hooks"]["PreToolUse"][0]));
    let ours = &groups[1]["hooks"][0];
    assert_eq!((&ours["onFailure"], &ours["timeout"]), (&json!("block"), &json!(60)));
    let line = ours["command"].as_str().unwrap().to_owned();
    assert!(!line.contains("plr_"), "{line}");
    // As Claude Code runs it: by a shell, anywhere, with an environment of its own.
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
    let said = before(lab.workspace(), "TodoWrite", &json!({ "todos": [] }));
    assert_eq!(fed(shell, said.to_string().as_bytes()).decided().0, "allow");
    let decided = records(&lab, "hook.decided").await;
    let who = &decided[0].body.as_ref().unwrap()["proposal"]["principal"];
    assert_eq!(who, &json!({ "kind": "agent", "id": "claude-code" }));
    palyra(&["--uninstall"]);
    assert_eq!(read(&settings), theirs);
    palyra(&["--install", "--scope", "project", "--on-ask", "wait"]);
    let own = read(&project.path().join(".claude/settings.local.json"));
    let hook = &own["hooks"]["PreToolUse"][0]["hooks"][0];
    assert_eq!(hook["timeout"], 600);
    assert!(hook["command"].as_str().unwrap().ends_with("--on-ask wait"), "{hook}");
    let printed: Value = serde_json::from_str(&palyra(&["--print"])).unwrap();
    assert_eq!(printed["hooks"]["PreToolUse"][0], groups[1]);
    assert_eq!(read(&settings), theirs, "printing changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_the_scope_and_somebody_without_a_token_get_no_decision() {
    let lab = DaemonLab::new();
    let new = palyra_tests::token::token("agent:looker", &["calls.read"]);
    let looker = lab.owner().mint_token(&new).await.unwrap().secret;
    let args = Map::from_iter([("path".to_owned(), json!("/etc/hostname"))]);
    let plain = wanted("fs.read", Value::Object(args));
    let refused = |error| palyra_tests::daemon::refused(error);
    assert_eq!(refused(lab.holder_of(&looker).authorize(&plain).await.unwrap_err()), (403, "missing_scope".to_owned()));
    assert_eq!(refused(lab.stranger().authorize(&plain).await.unwrap_err()), (401, "unauthenticated".to_owned()));
}
