//! `palyra skills` as people use it: from nothing to a call, what is refused and how that is said, updates, development and replays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; the program under test is started here"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use palyra_tests::{
    Said,
    daemon::{DaemonLab, DaemonPlan, approve, asked},
};
use serde_json::{Value, json};

/// A directory in which somebody writes skills, with a daemon or without one.
struct Bench {
    lab: DaemonLab,
}

impl Bench {
    fn with_daemon() -> Self {
        Self { lab: DaemonPlan::default().start() }
    }

    fn without_daemon() -> Self {
        Self { lab: DaemonPlan::default().make() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.lab.palyra();
        command.args(args).env("NO_COLOR", "1").env("CARGO_NET_OFFLINE", "true").stdin(Stdio::null());
        command
    }

    fn palyra(&self, args: &[&str]) -> Said {
        Said::of(self.command(args).output().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.lab.workspace().join(name)
    }

    /// Writes a skill whose program answers the same to everything.
    fn skill(&self, name: &str, version: &str, capabilities: &str, answer: &str) -> PathBuf {
        let directory = self.path(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("skill.toml"), manifest(name, version, capabilities)).unwrap();
        fs::write(directory.join("program.bin"), answering(answer)).unwrap();
        directory
    }

    /// Writes, packs and signs a skill.
    fn signed(&self, name: &str, version: &str, capabilities: &str) -> String {
        self.skill(name, version, capabilities, r#"{"ok":true}"#);
        self.palyra(&["skills", "pack", name]).expect(0);
        let file = format!("{name}-{version}.skill");
        self.palyra(&["skills", "sign", &file, "--key", "acme.key"]).expect(0);
        file
    }

    fn key(&self) {
        self.palyra(&["skills", "keygen", "--no-password", "--output", "acme.key"]).expect(0);
    }

    /// Runs a tool, with somebody who says yes if anybody is asked.
    fn run(&self, args: &[&str]) -> Said {
        let mut args = args.to_vec();
        args.splice(0..0, ["--json", "skills", "run"]);
        let running = self.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.answered(running)
    }

    fn answered(&self, mut running: Child) -> Said {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let owner = self.lab.owner();
            while running.try_wait().unwrap().is_none() {
                let pending = owner.approvals(&palyra_api::approval::ApprovalQuery::default()).await.unwrap();
                if !pending.approvals.is_empty() {
                    let _ = approve(&owner, &asked(&owner, 1).await[0]).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Said::of(running.wait_with_output().unwrap())
    }
}

/// A skill.toml whose build is a copy.
fn manifest(name: &str, version: &str, capabilities: &str) -> String {
    format!(
        "id = \"acme/{name}\"\nversion = \"{version}\"\npublisher = \"acme\"\nlicense = \"Apache-2.0\"\nsummary = \"a skill\"\n\
         [[tool]]\nname = \"answer\"\nsummary = \"answers\"\ninput = {{ type = \"object\" }}\n\
         [capabilities]\n{capabilities}\n[build]\ncommand = [\"cp\", \"program.bin\", \"skill.wasm\"]\noutput = \"skill.wasm\"\n"
    )
}

/// A command of WASI preview 1 that prints this.
fn answering(answer: &str) -> Vec<u8> {
    importing("", answer)
}

fn importing(imports: &str, answer: &str) -> Vec<u8> {
    let text = answer.replace('"', "\\22");
    let module = format!(
        r#"(module {imports}
          (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 16) "{text}")
          (func (export "_start")
            (i32.store (i32.const 0) (i32.const 16))
            (i32.store (i32.const 4) (i32.const {}))
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))))"#,
        answer.len()
    );
    wat::parse_str(module).unwrap()
}

/// The answer of a call that was printed as JSON.
fn answer(said: &Said) -> Value {
    said.data()["output"]["value"].clone()
}

#[test]
fn a_newcomer_comes_from_nothing_to_a_call_by_the_commands_of_the_readme() {
    let bench = Bench::with_daemon();
    let said = bench.palyra(&["skills", "new", "acme/hello"]).expect(0);
    assert!(said.out.starts_with("✔ made acme/hello in hello, in rust: "), "{}", said.out);
    assert_eq!(said.err.lines().filter(|line| line.starts_with("  ")).count(), 3, "{}", said.err);
    let here = |args: &[&str]| {
        let mut command = bench.command(args);
        Said::of(command.current_dir(bench.path("hello")).output().unwrap())
    };
    let said = here(&["skills", "test"]).expect(0);
    assert!(said.out.starts_with("✔ tests/") && said.out.ends_with(" passed, 0 failed\n"), "{}", said.out);

    let said = here(&["skills", "keygen", "--no-password"]).expect(0);
    let public = bench.lab.home().join("publisher.pub");
    assert!(said.out.contains(&format!("public {}", public.display())), "{}", said.out);
    let mode = fs::metadata(bench.lab.home().join("publisher.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    here(&["skills", "pack"]).expect(0);
    here(&["skills", "sign", "hello-0.1.0.skill"]).expect(0);
    verified_by_minisign(&bench.path("hello/hello-0.1.0.skill"), &public);

    here(&["skills", "trust", "acme", public.to_str().unwrap()]).expect(0);
    let said = here(&["skills", "install", "hello-0.1.0.skill"]).expect(0);
    assert!(said.out.starts_with("✔ installed acme/hello 0.1.0\n"), "{}", said.out);
    assert!(said.out.contains("skill.acme.hello.count"), "{}", said.out);
    assert!(said.err.contains("  asks to    know the time\n") && said.out.contains("  may use    nothing\n"));

    let said = bench.run(&["acme/hello", "count", r#"{"text":"Tea, or coffee?\n"}"#]).expect(0);
    assert_eq!(answer(&said), json!({ "words": 3, "lines": 1, "characters": 16 }));
    let call = said.data()["id"].as_str().unwrap().to_owned();
    let said = bench.palyra(&["skills", "replay", &call]).expect(0);
    assert!(said.out.starts_with("✔ the same came out"), "{}", said.out);

    // The other tool shows how the host is called, and what becomes of that until it is granted.
    let said = bench.run(&["acme/hello", "time"]).expect(1);
    assert_eq!(answer(&said)["error"]["code"], "not_granted");
    let said = bench.palyra(&["skills", "grant", "acme/hello", "--grant", "clock"]).expect(0);
    assert!(said.out.contains("  may        know the time\n"), "{}", said.out);
    let time = answer(&bench.run(&["acme/hello", "time"]).expect(0))["unix_ms"].as_u64().unwrap();
    assert!(time > 1_767_225_600_000, "{time}");
}

fn verified_by_minisign(package: &Path, key: &Path) {
    let verified = Command::new("minisign").arg("-Vm").arg(package).arg("-p").arg(key).output();
    let verified = verified.expect("`minisign` is installed by scripts/setup");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[test]
fn the_same_files_make_the_same_package_so_that_an_earlier_signature_fits_it() {
    let bench = Bench::without_daemon();
    bench.key();
    bench.signed("hello", "0.1.0", "");
    let read = |name: &str| fs::read(bench.path(name)).unwrap();
    let (package, signature) = (read("hello-0.1.0.skill"), read("hello-0.1.0.skill.minisig"));
    // Other times, and another order on the disk.
    fs::remove_dir_all(bench.path("hello")).unwrap();
    std::thread::sleep(Duration::from_millis(1_100));
    bench.signed("hello", "0.1.0", "");
    assert!(package == read("hello-0.1.0.skill"));
    let inspect = ["--json", "skills", "inspect", "hello-0.1.0.skill", "--key", "acme.pub"];
    let now = bench.palyra(&inspect).expect(0).data()["signature"].clone();
    fs::write(bench.path("hello-0.1.0.skill.minisig"), signature).unwrap();
    let then = bench.palyra(&inspect).expect(0).data()["signature"].clone();
    assert_eq!((now["verified"].clone(), &now), (json!(true), &then));

    let mut altered = package;
    let at = altered.windows(7).position(|bytes| bytes == b"a skill").unwrap();
    altered[at] = b'A';
    fs::write(bench.path("hello-0.1.0.skill"), altered).unwrap();
    let said = bench.palyra(&["skills", "inspect", "hello-0.1.0.skill", "--key", "acme.pub"]).expect(7);
    assert!(said.three_lines()[1].contains("does not fit"), "{}", said.err);
}

#[test]
fn a_key_is_sealed_by_a_password_and_never_overwritten() {
    let bench = Bench::without_daemon();
    let typed = |args: &[&str], line: &str| {
        let mut child = bench.command(args);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
        Said::of(child.wait_with_output().unwrap())
    };
    typed(&["skills", "keygen", "--output", "acme.key"], "four words of mine\n").expect(0);
    let kept = fs::read(bench.path("acme.key")).unwrap();
    let said = bench.palyra(&["skills", "keygen", "--no-password", "--output", "acme.key"]).expect(2);
    assert_eq!(said.three_lines()[0], "error: acme.key is not written");
    assert_eq!(fs::read(bench.path("acme.key")).unwrap(), kept);
    bench.skill("hello", "0.1.0", "", "{}");
    bench.palyra(&["skills", "pack", "hello"]).expect(0);
    let sign = &["skills", "sign", "hello-0.1.0.skill", "--key", "acme.key"];
    let said = typed(sign, "another\n").expect(1);
    assert_eq!(said.three_lines()[1], "cause: the password does not open the secret key");
    assert!(!bench.path("hello-0.1.0.skill.minisig").exists());
    typed(sign, "four words of mine\n").expect(0);
    verified_by_minisign(&bench.path("hello-0.1.0.skill"), &bench.path("acme.pub"));
}

#[test]
fn a_manifest_that_asks_for_less_is_told_every_line_that_is_missing() {
    let bench = Bench::without_daemon();
    let directory = bench.skill("hello", "0.1.0", "inert = [\"wasi:http\"]", "{}");
    let imports = r#"(import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))
      (import "wasi_snapshot_preview1" "path_open" (func (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))"#;
    fs::write(directory.join("program.bin"), importing(imports, "{}")).unwrap();
    let said = bench.palyra(&["skills", "pack", "hello"]).expect(1);
    assert!(
        said.err.contains("error: the skill in hello cannot be packed\ncause: skill.toml asks for less"),
        "{}",
        said.err
    );
    let (_, lines) = said.err.split_once("help:  put under [capabilities] in skill.toml:\n").unwrap();
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    assert_eq!(lines, ["clock = true", "inert = [\"wasi:filesystem\", \"wasi:http\"]"]);
    // What it says is what helps.
    fs::write(directory.join("skill.toml"), manifest("hello", "0.1.0", &lines.join("\n"))).unwrap();
    bench.palyra(&["skills", "pack", "hello"]).expect(0);
}

#[test]
fn a_package_is_installed_only_if_its_publisher_is_trusted_and_the_refusal_has_three_lines() {
    let bench = Bench::with_daemon();
    bench.key();
    let file = bench.signed("hello", "0.1.0", "");
    let said = bench.palyra(&["skills", "install", &file]).expect(1);
    let [_, cause, help] = said.three_lines();
    assert!(cause.contains("no key is known for the publisher acme"), "{cause}");
    assert!(help.contains("palyra skills trust acme KEY.pub"), "{help}");
    fs::rename(bench.path(&format!("{file}.minisig")), bench.path("kept.minisig")).unwrap();
    bench.palyra(&["skills", "trust", "acme", "acme.pub"]).expect(0);
    let said = bench.palyra(&["skills", "install", &file]).expect(1);
    assert!(said.three_lines()[2].contains(&format!("palyra skills sign {file}")), "{}", said.err);
    let said = bench.palyra(&["skills", "install", &file, "--trust-on-first-use", "acme.pub"]).expect(1);
    assert!(said.three_lines()[2].contains("trust_on_first_use = true"), "{}", said.err);
    bench.palyra(&["skills", "install", &file, "--signature", "kept.minisig"]).expect(0);

    // Another key speaks for nobody, and a key that was struck off takes what it signed along.
    bench.palyra(&["skills", "keygen", "--no-password", "--output", "other.key"]).expect(0);
    let newer = bench.signed("hello", "0.2.0", "");
    bench.palyra(&["skills", "sign", &newer, "--key", "other.key"]).expect(0);
    let said = bench.palyra(&["skills", "install", &newer]).expect(1);
    assert!(said.three_lines()[1].contains("does not speak for the publisher acme"), "{}", said.err);
    let publishers = bench.palyra(&["--json", "skills", "publishers"]).expect(0).data();
    let key = publishers["publishers"][0]["keys"][0]["key_id"].as_str().unwrap().to_owned();
    let said = bench.palyra(&["skills", "distrust", "acme", &key]).expect(0);
    assert!(said.out.contains("in quarantine now, because the key signed it: acme/hello"), "{}", said.out);
    let said = bench.palyra(&["skills", "list"]).expect(0);
    assert!(said.err.contains("! acme/hello is in quarantine"), "{}", said.err);
    assert!(bench.palyra(&["skills", "publishers"]).expect(0).out.contains("✖ distrusted"));
}

#[test]
fn an_update_that_asks_for_more_shows_what_is_new_and_is_granted_nothing_of_it() {
    let bench = Bench::with_daemon();
    bench.key();
    bench.palyra(&["skills", "trust", "acme", "acme.pub"]).expect(0);
    let first = bench.signed("notes", "0.1.0", "log = true\nclock = true");
    let said = bench.palyra(&["skills", "install", &first]).expect(0);
    assert!(said.out.contains("may use    nothing"), "{}", said.out);
    let command = "palyra skills grant acme/notes --grant log --grant clock\n";
    assert!(said.err.contains(command), "{}", said.err);
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    let said = bench.palyra(&words).expect(0);
    let may = "  may        write into the log of its calls\n             know the time\n";
    assert!(said.out.contains(may) && said.err.is_empty(), "{} {}", said.out, said.err);
    let listed = bench.palyra(&["skills", "list"]).expect(0).out;
    assert!(listed.contains("write into the log of its calls; know the time"), "{listed}");

    let more = "log = true\nclock = true\nhttp = [\"api.example.org:443\"]\nsecrets = { token = \"to sign in\" }\nfiles = { notes = \"write\" }";
    let second = bench.signed("notes", "0.2.0", more);
    let said = bench.palyra(&["skills", "install", &second]).expect(0);
    assert!(said.out.starts_with("✔ updated from 0.1.0 acme/notes 0.2.0\n"), "{}", said.out);
    assert!(said.err.contains("+ fetch from api.example.org:443"), "{}", said.err);
    assert!(!said.err.contains("+ know the time"), "{}", said.err);
    assert!(said.out.contains("know the time") && !said.out.contains("fetch"), "{}", said.out);
    let grants = bench.palyra(&["--json", "skills", "show", "acme/notes"]).expect(0).data()["grants"].clone();
    assert_eq!(grants, json!({ "log": true, "clock": true, "random": false }));

    let said = bench.palyra(&["skills", "grant", "acme/notes", "--grant-all", "--revoke", "clock"]).expect(0);
    assert!(said.err.contains("which secret is `token`? It says: to sign in"), "{}", said.err);
    let said =
        bench.palyra(&["skills", "grant", "acme/notes", "--revoke", "clock", "--grant", "files:notes=docs:read"]);
    assert!(said.expect(0).out.contains("read files in `docs` as `notes`"));
    let grants = bench.palyra(&["--json", "skills", "show", "acme/notes"]).expect(0).data()["grants"].clone();
    let files = json!({ "notes": { "path": "docs", "access": "read" } });
    let expected =
        json!({ "log": true, "clock": false, "random": false, "http": ["api.example.org:443"], "files": files });
    assert_eq!(grants, expected);
    let said = bench.palyra(&["skills", "grant", "acme/notes", "--grant", "random"]).expect(2);
    assert_eq!(said.three_lines()[1], "cause: the skill does not ask for random");
    let said = bench.palyra(&["skills", "grant", "acme/notes", "--grant", "files:note=docs"]).expect(2);
    assert_eq!(said.three_lines()[2], "help:  did you mean `--grant files:notes=docs`?");
    let said = bench.palyra(&["skills", "install", &second, "--grant", "secret:tokn=github"]).expect(2);
    assert_eq!(said.three_lines()[2], "help:  did you mean `--grant secret:token=global/github`?");
    let said = bench.palyra(&["skills", "grant", "acme/notes", "--revoke", "files:note"]).expect(0);
    assert_eq!(said.err, "! `files:note` was not granted; did you mean `files:notes`?\n");
    assert!(bench.palyra(&["skills", "grant", "acme/notes", "--none"]).expect(0).out.contains("may use    nothing"));
    bench.palyra(&["skills", "install", &first]).expect(1);
    bench.palyra(&["skills", "install", &first, "--allow-downgrade"]).expect(0);
}

#[test]
fn a_skill_runs_stops_and_goes_and_each_says_so_by_its_exit_code() {
    let bench = Bench::with_daemon();
    bench.key();
    bench.palyra(&["skills", "trust", "acme", "acme.pub"]).expect(0);
    let file = bench.signed("hello", "0.1.0", "");
    bench.palyra(&["skills", "install", &file]).expect(0);
    assert_eq!(answer(&bench.run(&["acme/hello", "answer"]).expect(0)), json!({ "ok": true }));
    fs::write(bench.path("input.json"), "{}").unwrap();
    assert_eq!(answer(&bench.run(&["acme/hello", "answer", "--input", "input.json"]).expect(0)), json!({ "ok": true }));
    bench.palyra(&["skills", "run", "acme/hello", "answer", "[]"]).expect(2);
    let said = bench.palyra(&["skills", "run", "acme/hello", "other"]).expect(1);
    assert!(said.three_lines()[2].contains("palyra skills show acme/hello"), "{}", said.err);
    for args in [&["show", "acme/helo"][..], &["remove", "acme/helo"], &["run", "acme/helo", "answer"]] {
        let said = bench.palyra(&[&["skills"], args].concat()).expect(1);
        assert!(said.three_lines()[2].starts_with("help:  did you mean `acme/hello`? "), "{}", said.err);
    }

    let marked =
        "skill.acme.hello.answer  answers\n    ✖ in quarantine: it cannot be called; `palyra skills show acme/hello`";
    let quarantined = || {
        let tools = bench.palyra(&["--json", "tools"]).expect(0).data()["tools"].clone();
        let marked = tools.as_array().unwrap().iter().filter(|tool| tool["quarantined"] == true);
        marked.map(|tool| tool["name"].clone()).collect::<Vec<_>>()
    };
    assert!(quarantined().is_empty());
    bench.palyra(&["skills", "quarantine", "acme/hello", "--reason", "looks odd"]).expect(0);
    assert_eq!(quarantined(), ["skill.acme.hello.answer"]);
    let tools = bench.palyra(&["tools"]).expect(0).out;
    assert!(tools.contains(marked) && tools.matches("in quarantine").count() == 1, "{tools}");
    let said = bench.run(&["acme/hello", "answer"]);
    assert_eq!(said.code, Some(3), "{} {}", said.out, said.err);
    assert!(bench.palyra(&["skills", "show", "acme/hello"]).expect(0).out.contains("✖ in quarantine: looks odd"));
    bench.palyra(&["skills", "release", "acme/hello"]).expect(0);
    assert!(quarantined().is_empty());
    bench.run(&["acme/hello", "answer"]).expect(0);
    bench.palyra(&["skills", "remove", "acme/hello"]).expect(0);
    let said = bench.palyra(&["skills", "show", "acme/hello"]).expect(1);
    assert!(said.three_lines()[2].contains("palyra skills list"), "{}", said.err);
    assert_eq!(bench.palyra(&["skills", "list"]).expect(0).out, "");
}

#[test]
fn a_tool_that_is_not_named_is_the_only_one_and_what_it_is_given_may_stand_in_its_place() {
    let bench = Bench::with_daemon();
    bench.key();
    bench.palyra(&["skills", "trust", "acme", "acme.pub"]).expect(0);
    let file = bench.signed("hello", "0.1.0", "");
    bench.palyra(&["skills", "install", &file]).expect(0);
    assert_eq!(answer(&bench.run(&["acme/hello"]).expect(0)), json!({ "ok": true }));
    assert_eq!(answer(&bench.run(&["acme/hello", r#"{"text":"Tea"}"#]).expect(0)), json!({ "ok": true }));
    let said = bench.palyra(&["skills", "run", "acme/hello", "{}", "{}"]).expect(2);
    assert_eq!(
        said.three_lines(),
        [
            "error: `{}` is no tool of acme/hello",
            "cause: what it is given stands where the tool is named; it has answer",
            "help:  name the tool before it: palyra skills run acme/hello answer JSON",
        ]
    );
    let said = bench.palyra(&["skills", "run", "acme/hello", "anwser"]).expect(1);
    let lines = ["error: `anwser` is no tool of acme/hello", "cause: it has answer", "help:  did you mean `answer`?"];
    assert_eq!(said.three_lines(), lines);

    bench.skill("pair", "0.1.0", "", "{}");
    let two = manifest("pair", "0.1.0", "").replace(
        "[capabilities]",
        "[[tool]]\nname = \"other\"\nsummary = \"more\"\ninput = { type = \"object\" }\n[capabilities]",
    );
    fs::write(bench.path("pair/skill.toml"), two).unwrap();
    bench.palyra(&["skills", "pack", "pair"]).expect(0);
    bench.palyra(&["skills", "sign", "pair-0.1.0.skill", "--key", "acme.key"]).expect(0);
    bench.palyra(&["skills", "install", "pair-0.1.0.skill"]).expect(0);
    let said = bench.palyra(&["skills", "run", "acme/pair"]).expect(2);
    assert_eq!(said.three_lines()[0], "error: it is not said which tool of acme/pair to call");
    assert_eq!(said.three_lines()[1], "cause: it has answer, other");
}

#[test]
fn a_call_of_a_skill_that_asks_is_answered_by_the_command_itself_if_it_says_so() {
    let bench = Bench::with_daemon();
    bench.key();
    bench.palyra(&["skills", "trust", "acme", "acme.pub"]).expect(0);
    let file = bench.signed("web", "0.1.0", "http = [\"example.org:443\"]");
    bench.palyra(&["skills", "install", &file]).expect(0);
    let said = bench.palyra(&["--json", "skills", "run", "acme/web", "answer", "--yes"]).expect(0);
    assert!(said.err.starts_with("approved once, by this command itself: "), "{}", said.err);
    assert_eq!(answer(&said), json!({ "ok": true }));
    let said = bench.palyra(&["--json", "call", "skill.acme.web.answer", "--yes"]).expect(0);
    assert!(said.err.starts_with("approved once, by this command itself: "), "{}", said.err);
    bench.palyra(&["call", "skill.acme.web.answer", "--yes", "--accept"]).expect(2);
}

#[test]
fn why_tells_of_the_last_call_that_failed_or_was_refused_whichever_is_later() {
    let bench = Bench::with_daemon();
    bench.key();
    bench.palyra(&["skills", "trust", "acme", "acme.pub"]).expect(0);
    let endless = r#"(module (memory (export "memory") 1) (func (export "_start") (loop $again (br $again))))"#;
    let broken = r#"(module (memory (export "memory") 1) (func (export "_start") unreachable))"#;
    for (name, program, limits) in [("endless", endless, "[limits]\ncpu_ms = 50"), ("broken", broken, "")] {
        let directory = bench.skill(name, "0.1.0", limits, "{}");
        fs::write(directory.join("program.bin"), wat::parse_str(program).unwrap()).unwrap();
        bench.palyra(&["skills", "pack", name]).expect(0);
        let file = format!("{name}-0.1.0.skill");
        bench.palyra(&["skills", "sign", &file, "--key", "acme.key"]).expect(0);
        bench.palyra(&["skills", "install", &file]).expect(0);
    }
    let good = bench.signed("good", "0.1.0", "");
    bench.palyra(&["skills", "install", &good]).expect(0);
    assert_eq!(bench.palyra(&["why"]).expect(0).out, "nothing was refused or failed lately\n");

    bench.run(&["acme/endless"]).expect(1);
    // What went well is no answer to this.
    bench.run(&["acme/good"]).expect(0);
    let said = bench.palyra(&["why"]).expect(0).out;
    assert!(said.starts_with("✖ limit_exceeded: ") && said.contains("skill.acme.endless.answer"), "{said}");
    let (_, told) = said.split_once("\n  failed   limit_exceeded: ").unwrap_or_else(|| panic!("{said}"));
    assert!(told.contains("\n           ask for less at once; or raise `limits` of the skill"), "{said}");
    assert!(
        told.ends_with("           `palyra skills show acme/endless` shows its limits and what it may use\n"),
        "{said}"
    );

    let said = bench.run(&["acme/broken"]).expect(1);
    let why = bench.palyra(&["--json", "why"]).expect(0).data();
    assert_eq!(why["id"], said.data()["id"]);
    assert_eq!(why["output"]["value"]["error"]["code"], "trapped");

    bench.palyra(&["skills", "quarantine", "acme/good", "--reason", "looks odd"]).expect(0);
    bench.run(&["acme/good"]).expect(3);
    let said = bench.palyra(&["why"]).expect(0).out;
    assert!(said.contains("✖ deny") && said.contains("quarantine"), "{said}");
    bench.run(&["acme/broken"]).expect(1);
    assert!(bench.palyra(&["why"]).expect(0).out.contains("\n  failed   "));
}

#[test]
fn packing_warns_of_what_contradicts_itself_and_packs_all_the_same() {
    let bench = Bench::without_daemon();
    bench.key();
    bench.signed("hello", "0.1.0", "");
    let directory = bench.path("hello");
    assert_eq!(bench.palyra(&["skills", "pack", "hello"]).expect(0).err.matches("! ").count(), 0);
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    write("skill.toml", &manifest("hello", "0.1.0", "clock = true\nhttp = [\"example.org:443\"]"));
    write("SKILL.md", "# hello\n\n## `count`\n\nThe whole name is `skill.acme.hello.tally`.\n");
    let said = bench.palyra(&["skills", "pack", "hello"]).expect(0);
    let warnings: Vec<&str> = said.err.lines().filter(|line| line.starts_with("! ")).collect();
    let expected = [
        "! skill.toml asks for `clock`, `http`, which the program does not import; take it out under [capabilities], or \
         people are asked to grant what nothing uses",
        "! hello-0.1.0.skill.minisig does not fit this package; sign it again: `palyra skills sign hello-0.1.0.skill`",
        "! SKILL.md names `skill.acme.hello.tally`, and the tools of the skill are answer",
        "! SKILL.md describes `count`, which is no tool of the skill, and says nothing about answer",
    ];
    assert_eq!(warnings, expected);
    assert!(said.out.starts_with("✔ packed hello-0.1.0.skill\n"), "{}", said.out);
    let told = bench.palyra(&["--json", "skills", "pack", "hello"]).expect(0).data()["warnings"].clone();
    assert_eq!(told, json!(expected.map(|line| line.strip_prefix("! ").unwrap())));

    bench.palyra(&["skills", "sign", "hello-0.1.0.skill", "--key", "acme.key"]).expect(0);
    write("skill.toml", &manifest("hello", "0.1.0", ""));
    write("SKILL.md", "# hello\n\n## `answer`\n");
    let said = bench.palyra(&["skills", "pack", "hello"]).expect(0);
    assert_eq!(said.err.matches("! ").count(), 1, "the package is another one once more: {}", said.err);
    bench.palyra(&["skills", "sign", "hello-0.1.0.skill", "--key", "acme.key"]).expect(0);
    let said = bench.palyra(&["--json", "skills", "pack", "hello"]).expect(0);
    assert_eq!((said.data()["warnings"].clone(), said.err.contains("! ")), (Value::Null, false), "{}", said.err);
}

#[test]
fn a_call_is_replayed_and_what_cannot_be_is_refused() {
    let bench = Bench::with_daemon();
    bench.key();
    bench.palyra(&["skills", "trust", "acme", "acme.pub"]).expect(0);
    let file = bench.signed("hello", "0.1.0", "");
    bench.palyra(&["skills", "install", &file]).expect(0);
    let call = bench.run(&["acme/hello", "answer"]).expect(0).data()["id"].as_str().unwrap().to_owned();
    let said = bench.palyra(&["--json", "skills", "replay", &call]).expect(0);
    assert_eq!((said.data()["same"].clone(), said.data()["output"].clone()), (json!(true), json!({ "ok": true })));
    bench.palyra(&["skills", "replay", "01JD2Z0Q7R8M4N6P5S3T1V9W2X"]).expect(1).three_lines();
    bench.palyra(&["skills", "replay", "no-call"]).expect(2);
    let list = bench.palyra(&["--json", "call", "fs.list", "--workspace", "lab"]).expect(0).data();
    let said = bench.palyra(&["skills", "replay", list["id"].as_str().unwrap()]).expect(1);
    assert!(said.three_lines()[1].contains("no call of a skill"), "{}", said.err);
}

#[test]
fn in_development_a_change_is_loaded_again() {
    let bench = Bench { lab: DaemonPlan::default().config("[skills]\ndevelopment = true").start() };
    let directory = bench.skill("hello", "0.1.0", "", r#"{"is":1}"#);
    let mut dev = bench.command(&["skills", "dev", "hello"]);
    let mut dev = dev.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("✔ loaded acme/hello 0.1.0 in ") && first.contains(" ms "), "{first}");
    assert_eq!(answer(&bench.run(&["acme/hello", "answer"]).expect(0)), json!({ "is": 1 }));
    let begun = Instant::now();
    fs::write(directory.join("program.bin"), answering(r#"{"is":2}"#)).unwrap();
    let second = lines.next().unwrap().unwrap();
    assert!(second.contains("✔ loaded acme/hello 0.1.0 in "), "{second}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(answer(&bench.run(&["acme/hello", "answer"]).expect(0)), json!({ "is": 2 }));
    // What does not hold together is told, and the next change is loaded all the same.
    fs::write(directory.join("skill.toml"), "id = ").unwrap();
    std::thread::sleep(Duration::from_millis(1_000));
    fs::write(directory.join("skill.toml"), manifest("hello", "0.2.0", "")).unwrap();
    assert!(lines.next().unwrap().unwrap().contains("✔ loaded acme/hello 0.2.0 in "));
    assert!(Command::new("kill").args(["-s", "INT", &dev.id().to_string()]).status().unwrap().success());
    assert_eq!(dev.wait().unwrap().code(), Some(130));
    let said = bench.palyra(&["skills", "list"]).expect(0);
    assert!(said.out.contains("in development"), "{}", said.out);
    // Where nothing is developed any more, it does not run any more.
    let config = bench.lab.home().join("config.toml");
    let text = fs::read_to_string(&config).unwrap().replace("development = true", "development = false");
    fs::write(&config, text).unwrap();
    bench.palyra(&["reload"]).expect(0);
    let said = bench.palyra(&["skills", "run", "acme/hello"]).expect(1);
    assert!(said.err.contains("packages that nobody signed do not run here"), "{}", said.err);
}

#[test]
fn without_development_nothing_unsigned_is_taken_and_the_setting_is_named() {
    let bench = Bench::with_daemon();
    bench.skill("hello", "0.1.0", "", "{}");
    for args in [&["skills", "dev", "hello"][..], &["skills", "install", "hello-0.1.0.skill", "--dev"]] {
        bench.palyra(&["skills", "pack", "hello"]).expect(0);
        let said = bench.palyra(args).expect(1);
        assert!(said.three_lines()[2].contains("`development = true` under [skills]"), "{}", said.err);
    }
}

#[test]
fn cases_pass_fail_with_what_differs_and_are_blessed() {
    let bench = Bench::without_daemon();
    let directory = bench.skill("hello", "0.1.0", "", r#"{"words":3,"lines":[1,2]}"#);
    let said = bench.palyra(&["skills", "test", "hello"]).expect(1);
    assert_eq!(said.three_lines()[0], "error: there is nothing to test");
    fs::create_dir(directory.join("tests")).unwrap();
    let case = |name: &str, text: &str| fs::write(directory.join("tests").join(name), text).unwrap();
    case("good.json", r#"{"tool":"answer","input":{},"output":{"words":3,"lines":[1,2]}}"#);
    case("wrong.json", r#"{"tool":"answer","input":{},"output":{"words":4,"lines":[1,2]}}"#);
    case("open.json", r#"{"tool":"answer","input":{}}"#);
    let said = bench.palyra(&["skills", "test", "hello"]).expect(1);
    assert!(said.out.contains("✔ tests/good.json\n✖ tests/open.json\n"), "{}", said.out);
    assert!(said.out.contains("      /words\n        - 4\n        + 3\n"), "{}", said.out);
    assert!(said.out.ends_with("1 passed, 2 failed\n"), "{}", said.out);

    let said = bench.palyra(&["skills", "test", "hello", "--bless"]).expect(1);
    assert!(said.out.contains("✔ written down tests/open.json\n✖ tests/wrong.json"), "{}", said.out);
    let written: Value = serde_json::from_slice(&fs::read(directory.join("tests/open.json")).unwrap()).unwrap();
    assert_eq!(written, json!({ "tool": "answer", "input": {}, "output": { "words": 3, "lines": [1, 2] } }));
    bench.palyra(&["skills", "test", "hello", "--all"]).expect(2);
    bench.palyra(&["skills", "test", "hello", "--bless", "--all"]).expect(0);
    let said = bench.palyra(&["--json", "skills", "test", "hello"]).expect(0).data();
    assert_eq!((said["passed"].clone(), said["failed"].clone()), (json!(3), json!(0)));
    bench.palyra(&["skills", "pack", "hello"]).expect(0);
    bench.palyra(&["skills", "test", "hello-0.1.0.skill"]).expect(0);

    // The skill would answer it, and no daemon would let it through.
    case("misfit.json", r#"{"tool":"answer","input":7,"output":{"words":3,"lines":[1,2]}}"#);
    for args in [&["skills", "test", "hello"][..], &["skills", "test", "hello", "--bless", "--all"]] {
        let said = bench.palyra(args).expect(1);
        let told = "✖ tests/misfit.json\n    its input does not fit the tool's input schema, so no call can have it: ";
        assert!(said.out.contains(told), "{}", said.out);
    }
}
