//! The `palyra` command against a real daemon: what it prints, what it exits with, and who may answer what.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; the program under test is started here"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use palyra_api::approval::{Approve, Scope};
use palyra_client::Client;
use palyra_tests::{
    Said,
    daemon::{DaemonLab, DaemonPlan, approve, asked, no, program, yes},
};
use serde_json::Value;

fn command(lab: &DaemonLab, args: &[&str]) -> Command {
    let mut command = lab.palyra();
    command.args(args).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn palyra(lab: &DaemonLab, args: &[&str]) -> Said {
    Said::of(command(lab, args).output().unwrap())
}

fn spawn(lab: &DaemonLab, args: &[&str]) -> Child {
    command(lab, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Said {
    Said::of(child.wait_with_output().unwrap())
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

const UNAME: &[&str] =
    &["call", "process.run", "--args", r#"{"command":["uname"]}"#, "--workspace", "lab", "--as-agent"];

#[test]
fn a_call_says_what_came_of_it_by_its_exit_code() {
    let mut lab = DaemonPlan::default().config("[approvals]\nanswer_within_seconds = 3").start();
    let list = &["call", "fs.list", "--arg", "path=.", "--arg", "depth:=1", "--workspace", "lab"];
    let said = palyra(&lab, list).expect(0);
    assert!(said.out.starts_with("✔ completed  fs.list  01"), "{}", said.out);
    assert!(said.out.contains("  receipt  record "), "{}", said.out);
    palyra(&lab, &["call", "fs.list", "--arg", "paht=.", "--workspace", "lab"]).expect(1);

    palyra(&lab, &["posture", "set", "fs.list", "disabled"]).expect(0);
    assert_eq!(palyra(&lab, &["posture", "list"]).expect(0).out, "disabled        fs.list  global\n");
    let said = palyra(&lab, list).expect(3);
    assert!(said.err.starts_with("error: policy denies it\ncause: the tool is switched off"), "{}", said.err);
    palyra(&lab, &["posture", "clear", "fs.list"]).expect(0);

    let call = spawn(&lab, UNAME);
    wait(async {
        let owner = lab.owner();
        let question = asked(&owner, 1).await.remove(0);
        owner.deny(question.id, &no(&question, Some("use make"))).await.unwrap();
    });
    let said = ended(call).expect(4);
    assert!(said.err.contains("said no: use make"), "{}", said.err);

    let said = palyra(&lab, UNAME).expect(5);
    assert!(said.err.contains("error: nobody answered in time"), "{}", said.err);

    lab.stop();
    let said = palyra(&lab, list).expect(6);
    assert!(said.err.ends_with("help:  start it: `palyra up`\n"), "{}", said.err);
}

#[test]
fn a_key_makes_a_repeated_call_the_same_call() {
    let lab = DaemonLab::new();
    let args = &["--json", "call", "fs.list", "--workspace", "lab", "--idempotency-key", "once"];
    let (first, again) = (palyra(&lab, args).expect(0).json(), palyra(&lab, args).expect(0).json());
    assert_eq!(first["data"]["id"], again["data"]["id"]);
    assert_eq!(first["data"]["receipt"], again["data"]["receipt"]);
}

#[test]
fn run_passes_bytes_and_codes_through_in_the_working_directory() {
    let lab = DaemonLab::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(lab.workspace().join("bytes"), &bytes).unwrap();
    let output = command(&lab, &["run", "--yes", "--", "cat", "bytes"]).output().unwrap();
    assert!(output.stdout == bytes, "{} bytes came", output.stdout.len());
    assert_eq!(output.status.code(), Some(0));

    palyra(&lab, &["run", "--yes", "--", "grep", "-q", "nothing", "bytes"]).expect(1);
    let said = palyra(&lab, &["run", "--yes", "--", "ls", "/nonexistent"]).expect(2);
    assert!(said.err.contains("No such file"), "{}", said.err);
    let said = palyra(&lab, &["run", "--yes", "--env", "LAB=é", "--", "printenv", "LAB"]).expect(0);
    assert_eq!(said.out, "é\n");

    let mut cat = command(&lab, &["run", "--yes", "--stdin", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all("zwölf\n".as_bytes()).unwrap();
    assert_eq!(ended(cat).expect(0).out, "zwölf\n");
}

#[test]
fn run_names_the_limit_that_it_has_hit_and_where_that_is_set() {
    let lab = DaemonPlan::default().config("[sandbox.limits]\nwall_ms = 2000\noutput_bytes = 100").start();
    let said = palyra(&lab, &["run", "--yes", "--timeout", "1", "--", "sleep", "60"]).expect(124);
    assert!(said.err.ends_with("palyra: timed_out: its limit is 1000 ms, which `--timeout` set\n"), "{}", said.err);
    let configured = "palyra: timed_out: its limit is 2000 ms, which `wall_ms` under [sandbox.limits] in config.toml";
    for args in [&["run", "--yes", "--", "sleep", "60"][..], &["run", "--yes", "--timeout", "60", "--", "sleep", "60"]]
    {
        let said = palyra(&lab, args).expect(124);
        assert!(said.err.contains(configured), "{}", said.err);
    }

    fs::write(lab.workspace().join("long"), "x".repeat(150)).unwrap();
    let limit = "only the first 100 of 150 bytes were kept; the limit is `output_bytes` under [sandbox.limits]";
    let said = palyra(&lab, &["run", "--yes", "--", "cat", "long"]).expect(0);
    assert_eq!(said.out, "x".repeat(100));
    assert!(said.err.contains(&format!("\npalyra: stdout: {limit}")), "{}", said.err);
    let id =
        palyra(&lab, &["--json", "run", "--yes", "--", "cat", "long"]).expect(0).json()["data"]["call"]["id"].clone();
    let said = palyra(&lab, &["journal", "show", id.as_str().unwrap()]).expect(0);
    assert!(said.out.contains(&format!("    … {limit}")), "{}", said.out);
}

#[test]
fn run_says_when_input_is_not_passed_on_and_never_waits_for_it() {
    let lab = DaemonLab::new();
    let told = "palyra: standard input is not passed on to the program; `--stdin` does that\n";
    fs::write(lab.workspace().join("some"), "input").unwrap();
    fs::write(lab.workspace().join("none"), "").unwrap();
    let file = |name: &str| fs::File::open(lab.workspace().join(name)).unwrap();
    let run = |args: &[&str], stdin: Stdio| Said::of(command(&lab, args).stdin(stdin).output().unwrap());
    let said = run(&["run", "--yes", "--", "cat"], file("some").into()).expect(0);
    assert_eq!((said.out.as_str(), said.err.matches(told).count()), ("", 1), "{}", said.err);
    for (args, stdin) in [
        (&["run", "--yes", "--stdin", "--", "cat"][..], file("some").into()),
        (&["--json", "run", "--yes", "--", "cat"], file("some").into()),
        (&["run", "--yes", "--", "cat"], file("none").into()),
        (&["run", "--yes", "--", "cat"], Stdio::null()),
    ] {
        let said = run(args, stdin).expect(0);
        assert!(!said.err.contains(told), "{args:?}: {}", said.err);
    }
    let mut piped = command(&lab, &["run", "--yes", "--", "sleep", "1"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = piped.stdin.take().unwrap();
    pipe.write_all(b"late").unwrap();
    // The pipe stays open, so whoever read it to its end would wait for ever.
    let said = Said::of(piped.wait_with_output().unwrap()).expect(0);
    drop(pipe);
    assert_eq!(said.err.matches(told).count(), 1, "{}", said.err);
}

#[test]
fn run_exits_125_when_palyra_refused_and_says_why() {
    let lab = DaemonPlan::default().config(palyra_tests::TIER_B).start();
    let said = palyra(&lab, &["--json", "run", "--yes", "--", "/nonexistent"]).expect(125);
    let report = said.json();
    assert_eq!((&report["kind"], &report["data"]["exit_code"]), (&"run".into(), &125.into()));
    assert_eq!(report["data"]["error"]["code"], "bad_arguments");
    let said = palyra(&lab, &["run", "--yes", "--tier", "b", "--", "sh", "-c", "true"]).expect(125);
    assert!(said.err.contains("`tier_b_interpreters = \"allow\"` under [sandbox] in config.toml"), "{}", said.err);
    // Nothing runs in a weaker tier than was asked for, and without a word that is c.
    let said = palyra(&lab, &["run", "--yes", "--", "ls"]).expect(125);
    assert!(said.err.contains("tier b: weaker than the call asks for"), "{}", said.err);
    let own = lab.home().join("journal");
    let said = palyra(&lab, &["run", "--yes", "--tier", "b", "--", "ls", own.to_str().unwrap()]).expect(125);
    assert!(said.err.contains("[baseline.touches-state]"), "{}", said.err);
}

#[test]
fn run_without_a_terminal_waits_for_somebody_else_and_an_interrupt_withdraws_it() {
    let lab = DaemonLab::new();
    let running = spawn(&lab, &["run", "--", "uname"]);
    wait(async {
        let owner = lab.owner();
        let question = asked(&owner, 1).await.remove(0);
        approve(&owner, &question).await.unwrap();
    });
    let said = ended(running).expect(0);
    assert_eq!(said.out, "Linux\n");
    assert!(said.err.contains("\nwaiting for an answer: `palyra approvals approve "), "{}", said.err);

    let running = spawn(&lab, &["run", "--", "uname"]);
    wait(async { asked(&lab.owner(), 1).await });
    assert!(Command::new("kill").args(["-s", "INT", &running.id().to_string()]).status().unwrap().success());
    ended(running).expect(130);
    let begun = Instant::now();
    while palyra(&lab, &["--json", "approvals", "list"]).json()["data"]["approvals"] != Value::Array(Vec::new()) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the question is still there");
    }
    let said = palyra(&lab, &["journal", "tail", "-n", "1"]).expect(0);
    assert!(said.out.contains("approval.resolved") && said.out.contains("cancelled"), "{}", said.out);
    // Whoever withdraws a call is not refused anything.
    let said = palyra(&lab, &["why"]);
    assert!(!said.out.contains("its caller is gone"), "{}", said.out);
}

#[test]
fn a_standing_approval_that_is_used_is_told_with_the_command_that_ends_it() {
    let lab = DaemonLab::new();
    let running = spawn(&lab, &["run", "--", "uname"]);
    let id = wait(async {
        let owner = lab.owner();
        let question = asked(&owner, 1).await.remove(0);
        owner.approve(question.id, &Approve { scope: Scope::Session, ..yes(&question) }).await.unwrap();
        question.id.to_string()
    });
    let told = format!("a standing approval of user:owner covers this call; `palyra grants end {id}` ends it\n");
    let said = ended(running).expect(0);
    assert!(!said.err.contains("standing approval"), "whoever was asked knows: {}", said.err);
    let said = palyra(&lab, &["run", "--", "uname"]).expect(0);
    assert_eq!((said.out.as_str(), said.err), ("Linux\n", told));
    assert_eq!(palyra(&lab, &["call", "fs.list", "--workspace", "lab"]).expect(0).err, "", "policy allows it itself");
    palyra(&lab, &["grants", "end", &id]).expect(0);
    let said = palyra(&lab, &["run", "--yes", "--", "uname"]).expect(0);
    assert!(said.err.starts_with("approved once"), "{}", said.err);
}

#[test]
fn a_question_is_shown_whole_and_answered_by_a_part_of_its_id() {
    let lab = DaemonLab::new();
    let call = r#"{"command":["uname","-s","two words \u202e","\tx "],"env":{"A":"b"},"stdin":"typed\nin"}"#;
    let first = spawn(&lab, &["call", "process.run", "--args", call, "--workspace", "lab", "--as-agent"]);
    let question = wait(async { asked(&lab.owner(), 1).await.remove(0) });
    let id = question.id.to_string();
    let shown = palyra(&lab, &["approvals", "show", &id]).expect(0).out;
    assert!(!shown.contains("<U+003C>"), "nothing is made visible twice: {shown}");
    for line in [
        "  program       [/usr/bin/uname]\n  arguments     [-s]\n                [two words <U+202E>]\n                [<U+0009>x ]\n",
        "  environment   A=b\n",
        "  `stdin`       typed\n                in\n",
        "  who           agent:local\n",
        "baseline.execute-ask (built-in:baseline.cedar:",
        "  may write     ",
        "  risk          ",
        "  answer by     ",
        "  then valid    120 s",
        &format!("  digest        {}\n", question.digest),
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    let why = "the tool asks each time unless its posture is to run at once";
    assert_eq!(shown.matches(why).count(), 1, "{shown}");
    let posture = "[baseline.execute-ask]: its posture is `ask_each_time` by default";
    let because = format!("  asks because  {why} {posture}\n                baseline.execute-ask (");
    assert!(shown.contains(&because), "{shown}");
    assert!(shown.contains("\n  to change it  an owner or admin adds a rule that permits it"), "{shown}");
    assert!(palyra(&lab, &["approvals", "list"]).expect(0).out.contains(&id));
    palyra(&lab, &["approvals", "show", "XX"]).expect(1);
    let said = palyra(&lab, &["approvals", "approve", &id[20..], "--session"]).expect(0);
    assert!(said.err.contains("[two words <U+202E>]"), "what is answered is shown: {}", said.err);
    assert!(said.out.starts_with(&format!("✔ approved  {id}")), "{}", said.out);
    ended(first);

    let grants = palyra(&lab, &["--json", "grants", "list"]).expect(0).json();
    assert_eq!(grants["data"]["grants"][0]["id"], id.as_str());
    palyra(&lab, &["grants", "end", &id[20..]]).expect(0);
    assert_eq!(palyra(&lab, &["grants", "list"]).expect(0).out, "");
    palyra(&lab, &["approvals", "approve", &id]).expect(1);
    palyra(&lab, &["approvals", "approve", &id, "--fixed", "1"]).expect(2);
}

#[test]
fn nobody_approves_their_own_call_without_a_terminal() {
    let lab = DaemonLab::new();
    let running = spawn(&lab, &["run", "--", "uname"]);
    let question = wait(async { asked(&lab.owner(), 1).await.remove(0) });
    let said = palyra(&lab, &["approvals", "approve", &question.id.to_string()]).expect(1);
    assert!(said.err.contains("nobody approves their own call"), "{}", said.err);
    // To say no to it is to withdraw it, which anybody may.
    palyra(&lab, &["approvals", "deny", &question.id.to_string(), "--message", "no"]).expect(0);
    ended(running).expect(125);
}

#[test]
fn a_program_starts_in_the_working_directory_also_where_that_lies_in_a_workspace() {
    let lab = DaemonLab::new();
    let below = lab.workspace().join("below");
    fs::create_dir(&below).unwrap();
    let said = Said::of(command(&lab, &["run", "--yes", "--", "pwd"]).current_dir(&below).output().unwrap()).expect(0);
    assert_eq!(said.out.trim(), fs::canonicalize(&below).unwrap().to_str().unwrap());
}

#[test]
fn the_daemon_alone_takes_no_arguments_but_tells_about_itself() {
    let lab = DaemonPlan::default().make();
    let told = |argument: &str| Said::of(lab.command(&program("palyrad")).arg(argument).output().unwrap());
    assert!(told("--help").expect(0).out.contains("Usage: palyrad"));
    assert!(told("--frobnicate").expect(2).err.contains("takes no arguments"));
}

/// A command on a terminal of its own, what it shows there, and what is typed.
struct Screen {
    shell: Child,
    keys: ChildStdin,
    shown: Receiver<Vec<u8>>,
    seen: String,
}

impl Screen {
    fn open(lab: &DaemonLab, args: &str) -> Self {
        let line = format!("exec {} {args}", program("palyra").display());
        let mut shell = lab.command(std::path::Path::new("script"));
        let shell = shell.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", "1");
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let (keys, mut screen) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (tell, shown) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                let _ = tell.send(piece[..count].to_vec());
            }
        });
        Self { shell, keys, shown, seen: String::new() }
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text, and returns what was shown before it.
    fn read_until(&mut self, text: &str) -> String {
        while !self.seen.contains(text) {
            let piece = self.shown.recv_timeout(Duration::from_secs(20));
            let piece = piece.unwrap_or_else(|_| panic!("the screen does not show `{text}`:\n{}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&piece));
        }
        let (before, after) = self.seen.split_once(text).unwrap();
        let (before, after) = (before.to_owned(), after.to_owned());
        self.seen = after;
        before
    }

    /// What is shown until the command ends.
    fn until_it_ends(mut self) -> String {
        let rest: Vec<u8> = self.shown.iter().flatten().collect();
        self.shell.wait().unwrap();
        self.seen + &String::from_utf8_lossy(&rest)
    }

    /// Closes the terminal, and waits for the command.
    fn close(mut self) -> Option<i32> {
        drop(self.keys);
        self.shell.wait().unwrap().code()
    }
}

#[test]
fn a_person_at_a_terminal_answers_with_one_letter_and_what_was_typed_before_does_not_count() {
    let lab = DaemonLab::new();
    let mut screen = Screen::open(&lab, "run -- uname -s");
    // Typed too early: it must not answer a question that was not there yet.
    screen.type_in("a\n");
    screen.read_until("say why > ");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(wait(pending(&lab.owner())), 1, "what was typed before has answered");
    screen.type_in("nonsense\n");
    screen.read_until("nonsense");
    screen.read_until("say why > ");
    std::thread::sleep(Duration::from_millis(100));
    screen.type_in("a\n");
    screen.read_until("approved");
    screen.read_until("Linux");
    assert_eq!(screen.close(), Some(0));
}

#[test]
fn what_is_typed_for_a_question_that_goes_away_does_not_answer_the_next_one() {
    // A machine that was too slow to type in time has shown nothing; it tries again.
    assert!((0..5).any(|_| answers_of_a_replaced_question_are_thrown_away()), "nothing was typed in time");
}

/// Whether it could be tried in time.
fn answers_of_a_replaced_question_are_thrown_away() -> bool {
    let lab = DaemonLab::new();
    let harmless = spawn(&lab, UNAME);
    wait(async { asked(&lab.owner(), 1).await });
    let second = r#"{"command":["rm","-rf","precious"]}"#;
    palyra(&lab, &["call", "process.run", "--args", second, "--workspace", "lab", "--as-agent", "--accept"]).expect(0);
    fs::write(lab.workspace().join("precious"), "kept").unwrap();
    let mut screen = Screen::open(&lab, "approvals watch");
    screen.read_until("[/usr/bin/uname]");
    screen.read_until("say why > ");

    let begun = Instant::now();
    assert!(Command::new("kill").args(["-s", "INT", &harmless.id().to_string()]).status().unwrap().success());
    let announced = "! the question before this one is gone; this is another one";
    screen.read_until(announced);
    screen.read_until("[precious]");
    screen.read_until("  the question changed; look again\r\n");
    // A whole answer and the first letter of one, as late as hands are that were about to type.
    std::thread::sleep(Duration::from_millis(300));
    screen.type_in("a\na");
    screen.read_until("a\r\na");
    let in_time = begun.elapsed() < Duration::from_millis(1400);
    ended(harmless);
    if !in_time {
        return false;
    }
    let between = screen.read_until("  the question changed; look again; what was typed is thrown away\r\n");
    assert!(!between.contains("say why > "), "no answer is asked for before: {between}");
    screen.read_until("say why > ");
    assert!(begun.elapsed() >= Duration::from_millis(1500), "a person has time to look");
    screen.type_in("\n");
    screen.read_until("say why > ");
    assert_eq!(wait(pending(&lab.owner())), 1, "what was typed for the first question has answered the second");
    assert!(lab.workspace().join("precious").exists());

    std::thread::sleep(Duration::from_millis(100));
    screen.type_in("d\n");
    screen.read_until("✖ denied");
    assert_eq!(wait(pending(&lab.owner())), 0);
    screen.type_in("\u{3}");
    assert_eq!(screen.close(), Some(0));
    true
}

#[test]
fn on_a_terminal_a_long_argument_goes_on_behind_a_gutter() {
    let lab = DaemonLab::new();
    let forged = format!("{:63}{:<80}{:<80}", "", "? process.run ls  01J", "  program       [ls]");
    let call = serde_json::json!({ "command": ["uname", forged] }).to_string();
    palyra(&lab, &["call", "process.run", "--args", &call, "--workspace", "lab", "--as-agent", "--accept"]).expect(0);
    let id = wait(async { asked(&lab.owner(), 1).await.remove(0).id.to_string() });
    let show = Screen::open(&lab, &format!("approvals show {id}")).until_it_ends();
    let list = Screen::open(&lab, "approvals list").until_it_ends();
    let mut watch = Screen::open(&lab, "approvals watch");
    let watched = watch.read_until("  a once ");
    watch.type_in("\u{3}");
    assert_eq!(watch.close(), Some(0));
    for shown in [show, list, watched] {
        let rows: Vec<&str> = shown.lines().map(|row| row.trim_start_matches('\u{7}')).collect();
        assert_eq!(rows.iter().filter(|row| row.starts_with('?')).count(), 1, "{shown}");
        assert!(rows.iter().all(|row| row.chars().count() <= 80), "{shown}");
        assert!(rows.iter().any(|row| row.starts_with("    │ ")), "{shown}");
    }
    let shown = palyra(&lab, &["approvals", "show", &id]).expect(0).out;
    assert!(shown.contains(&format!("[{forged}]\n")), "a pipe gets the line as it is: {shown}");
}

async fn pending(owner: &Client) -> usize {
    owner.approvals(&palyra_api::approval::ApprovalQuery::default()).await.unwrap().approvals.len()
}

#[test]
fn watch_misses_nothing_while_the_daemon_is_away() {
    let mut lab = DaemonLab::new();
    let mut watch = spawn(&lab, &["--json", "approvals", "watch"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()["data"].clone();
    let accept = [UNAME, &["--accept"]].concat();
    palyra(&lab, &accept).expect(0);
    let first = next();
    assert_eq!(first["state"], "pending");
    lab.stop();
    lab.start();
    let id = first["id"].as_str().unwrap().to_owned();
    palyra(&lab, &["approvals", "deny", &id]).expect(0);
    palyra(&lab, &accept).expect(0);
    let (denied, second) = (next(), next());
    assert_eq!((&denied["id"], &denied["state"]), (&first["id"], &"denied".into()));
    assert_eq!(second["state"], "pending");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn a_refusal_explains_itself() {
    let lab = DaemonLab::new();
    assert_eq!(palyra(&lab, &["why"]).expect(0).out, "nothing was refused or failed lately\n");
    let own = format!(r#"{{"command":["ls","{}"]}}"#, lab.home().display());
    let said = palyra(&lab, &["call", "process.run", "--args", &own, "--workspace", "lab", "--as-agent"]).expect(3);
    let call = said.err.split('`').nth(1).unwrap().strip_prefix("palyra explain ").unwrap();
    let (why, explained) = (palyra(&lab, &["why"]).expect(0), palyra(&lab, &["explain", &call[16..]]).expect(0));
    assert_eq!(why.out, explained.out);
    for line in ["    forbidden by baseline.touches-state (built-in:baseline.cedar:", "    who can change that: nobody"]
    {
        assert!(why.out.contains(line), "{}", why.out);
    }
}

#[test]
fn what_is_not_there_is_answered_with_the_command_that_lists_what_is() {
    let lab = DaemonLab::new();
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (args, command) in [
        (&["journal", "show", "99999"][..], "`palyra journal tail`"),
        (&["journal", "prove", "99999"], "`palyra journal tail`"),
        (&["journal", "show", unknown], "`palyra journal tail`"),
        (&["explain", unknown], "`palyra journal tail`"),
        (&["explain", "0"], "`palyra journal tail`"),
        (&["explain", "99999"], "`palyra journal tail`"),
        (&["approvals", "show", unknown], "`palyra approvals list`"),
        (&["approvals", "approve", unknown], "`palyra approvals list`"),
        (&["grants", "end", unknown], "`palyra grants list`"),
        (&["posture", "clear", "fs.read"], "`palyra posture list`"),
        (&["call", "fs.lost", "--workspace", "lab"], "`palyra tools`"),
        (&["call", "fs.list", "--workspace", "lost"], "`palyra workspaces`"),
        (&["call", "fs.list", "--workspace", "lab", "--run", unknown], "leave --run out"),
    ] {
        let said = palyra(&lab, args).expect(1);
        let help = said.err.lines().find(|line| line.starts_with("help: ")).unwrap_or_default();
        assert!(help.contains(command) && !help.contains("/openapi.json") && !help.contains("/api/"), "{}", said.err);
    }
}

#[test]
fn a_journal_is_verified_without_a_daemon_and_a_changed_one_is_told() {
    let mut lab = DaemonLab::new();
    palyra(&lab, &["call", "fs.list", "--workspace", "lab"]).expect(0);
    let said = palyra(&lab, &["journal", "tail", "-n", "2"]).expect(0);
    assert_eq!(said.out.lines().count(), 2, "{}", said.out);
    palyra(&lab, &["run", "--yes", "--", "uname", "-s"]).expect(0);
    let said = palyra(&lab, &["journal", "tail"]).expect(0).out;
    let line = |kind: &str| said.lines().rfind(|line| line.contains(kind)).unwrap();
    assert!(line("tool.proposed").ends_with("  tool process.run: uname -s"), "{said}");
    assert!(line("tool.decided").ends_with("  verdict ask"), "{said}");
    let proof = palyra(&lab, &["--json", "journal", "prove", "2"]).expect(0).json();
    assert_eq!(proof["data"]["record"]["seq"], 2);
    palyra(&lab, &["journal", "prove", "99999"]).expect(1);

    let bundle = lab.workspace().join("bundle.jsonl");
    let bundle = bundle.to_str().unwrap();
    palyra(&lab, &["journal", "export", "--output", bundle]).expect(0);
    palyra(&lab, &["journal", "export", "--output", bundle]).expect(1);
    palyra(&lab, &["journal", "verify", "--bundle", bundle]).expect(0);
    let text = fs::read_to_string(bundle).unwrap();
    fs::write(bundle, text.replacen("tool.decided", "tool.decidet", 1)).unwrap();
    let said = palyra(&lab, &["--json", "journal", "verify", "--bundle", bundle]).expect(7);
    assert_eq!(said.json()["data"]["ok"], false);

    palyra(&lab, &["journal", "verify"]).expect(0);
    lab.stop();
    let said = palyra(&lab, &["journal", "verify"]).expect(0);
    assert!(said.out.starts_with("✔ it is what was written: "), "{}", said.out);
    let other = DaemonLab::new();
    let key = other.journal().join("verify.key");
    let said = palyra(&lab, &["journal", "verify", "--key", key.to_str().unwrap()]).expect(7);
    assert!(said.out.starts_with("✖ it is not what was written: record 0 "), "{}", said.out);
}

#[test]
fn a_candidate_is_tried_on_what_was_decided_newly_allowed_first() {
    let lab = DaemonLab::new();
    palyra(&lab, &["run", "--yes", "--", "uname"]).expect(0);
    let rule = r#"@id("all") permit (principal, action == Palyra::Action::"tool.execute", resource);"#;
    fs::write(lab.workspace().join("rule.cedar"), rule).unwrap();
    let said = palyra(&lab, &["policy", "replay", "rule.cedar"]).expect(0);
    assert!(said.out.starts_with("▲▲ newly allowed (1, 1 calls)\n"), "{}", said.out);
    palyra(&lab, &["policy", "replay", "rule.cedar", "--exit-code"]).expect(1);
}

#[test]
fn whoever_else_sits_on_the_port_is_sent_nothing() {
    let (lab, other) = (DaemonLab::new(), DaemonLab::new());
    let mut command = command(&lab, &["tools"]);
    let said = Said::of(command.env("PALYRA_LISTEN__CONTROL", other.control().to_string()).output().unwrap()).expect(6);
    assert!(said.err.starts_with("error: nothing was sent to whoever listens there\n"), "{}", said.err);
}

#[test]
fn a_daemon_that_takes_no_connection_is_not_called_another_program() {
    let lab = DaemonLab::new();
    let full = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = command(&lab, &["tools"]);
    command.env("PALYRA_LISTEN__CONTROL", full.local_addr().unwrap().to_string());
    std::thread::spawn(move || drop(full.accept()));
    let said = Said::of(command.output().unwrap()).expect(6);
    assert!(said.err.starts_with("error: the daemon takes no connection now\n"), "{}", said.err);
    assert!(said.err.contains("\nhelp:  try again in a moment"), "{}", said.err);
}

#[test]
fn status_names_a_state_directory_that_cannot_be_read_and_asks_nobody_else() {
    let lab = DaemonPlan::default().make();
    let home = lab.home().to_str().unwrap();
    let said = palyra(&lab, &["tools"]).expect(6);
    assert!(said.err.contains("device.json"), "a half-made one has no daemon: {}", said.err);
    fs::set_permissions(lab.home(), fs::Permissions::from_mode(0o755)).unwrap();
    let said = palyra(&lab, &["status"]).expect(1);
    assert!(said.err.starts_with(&format!("error: the state directory {home} cannot be used\n")), "{}", said.err);
    assert!(said.err.contains("has mode 0755"), "{}", said.err);

    // Somebody else's, behind a directory that this user cannot enter; root enters all of them.
    let lab = DaemonPlan::default().ordinary_user().make();
    let above = lab.home().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = command(&lab, &["status"]);
    let said = Said::of(command.current_dir("/").output().unwrap()).expect(1);
    fs::set_permissions(above, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(said.err.contains(lab.home().to_str().unwrap()), "{}", said.err);
    assert!(said.err.contains("Permission denied"), "{}", said.err);
}

#[test]
fn status_is_ok_for_the_own_daemon_and_tells_it_from_anybody_elses() {
    let (mut lab, other) = (DaemonLab::new(), DaemonLab::new());
    let status = |lab: &DaemonLab, variables: &[(&str, String)]| {
        let mut command = command(lab, &["status"]);
        Said::of(command.envs(variables.iter().map(|(name, value)| (name, value))).output().unwrap())
    };
    let said = status(&lab, &[]).expect(0);
    assert_eq!(said.out, format!("ok {} at http://{}\n", env!("CARGO_PKG_VERSION"), lab.local()));
    let foreign = format!("; a daemon answers at http://{}, but nothing shows that it is yours\n", other.local());
    let ports =
        [("PALYRA_LISTEN__LOCAL", other.local().to_string()), ("PALYRA_LISTEN__CONTROL", other.control().to_string())];

    let said = status(&lab, &ports).expect(6);
    assert!(said.err.starts_with("error: the daemon of this state directory does not answer\n"), "{}", said.err);
    assert!(
        said.err.contains("shows a certificate that this device does not trust") && said.err.contains(&foreign),
        "{}",
        said.err
    );
    let said = Said::of(command(&lab, &["doctor"]).envs(ports.clone()).output().unwrap()).expect(1);
    assert!(said.out.contains("is taken, and not by this daemon"), "{}", said.out);

    let nowhere = ("PALYRA_HOME", lab.home().join("none").display().to_string());
    let said = status(&lab, &[nowhere, ports[0].clone()]).expect(6);
    assert!(said.err.starts_with("error: there is no daemon of yours\ncause: there is no state"), "{}", said.err);
    assert!(said.err.contains(&foreign), "{}", said.err);

    let named = palyra(&lab, &["status", "--url", &format!("http://{}", other.local())]).expect(0);
    assert!(named.err.starts_with("whose daemon that is was not looked at"), "{}", named.err);

    lab.stop();
    let said = status(&lab, &[]).expect(6);
    assert!(said.err.contains("connection refused\nhelp:  start it: `palyra up`"), "{}", said.err);
}

#[test]
fn doctor_tells_what_is_on_disk_from_what_is_in_force() {
    let lab = DaemonLab::new();
    let report = palyra(&lab, &["--json", "doctor"]).expect(0).json();
    let mut names: Vec<&str> =
        report["data"]["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"policy files") && names.contains(&"policies"), "{names:?}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "every check has a name of its own: {names:?}");
}

#[test]
fn the_demo_is_real_for_root_and_for_an_ordinary_user() {
    for lab in [DaemonLab::new(), DaemonPlan::default().ordinary_user().start()] {
        let said = palyra(&lab, &["demo"]).expect(0);
        for line in
            ["✔ it ran", "Linux", "[baseline.touches-state]", "1 of 1 calls", "✔ verified ", "  receipt  record "]
        {
            assert!(said.out.contains(line), "{line}\n{}\n{}", said.out, said.err);
        }
        let report = palyra(&lab, &["--json", "demo", "--yes"]).expect(0).json();
        assert_eq!(report["data"]["denied"]["error"]["code"], "denied_by_policy");
        assert_eq!(report["data"]["budget"]["code"], "budget_exceeded");
    }
}

#[test]
fn lists_and_links_are_there_for_people_and_programs() {
    let lab = DaemonLab::new();
    assert!(palyra(&lab, &["tools"]).expect(0).out.contains("process.run  "));
    let workspaces = palyra(&lab, &["--json", "workspaces"]).expect(0).json();
    assert_eq!(workspaces["data"]["workspaces"][0]["name"], "lab");
    let link = palyra(&lab, &["open"]).expect(0).out;
    assert!(link.starts_with(&format!("http://{}/#", lab.local())), "{link}");
}
