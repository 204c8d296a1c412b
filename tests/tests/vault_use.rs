//! Secrets in the whole system, from the command line to the host that checks them, as root and as an ordinary user; and everything that the
//! daemon ever writes, looked through for what it must not hold.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and it makes a repository"
)]

use std::{
    fs,
    io::Write,
    process::{Command, Output as Done, Stdio},
};

use palyra_api::{
    call::{Call, Output},
    journal::RecordQuery,
};
use palyra_tests::{
    canary,
    daemon::{DaemonLab, DaemonPlan, accepted, approve, asked, over, tool},
    site::{Site, make_repository},
};
use serde_json::{Value, json};

/// Everything is allowed that the baseline and the egress allow.
const ALLOW_ALL: &str = "@id(\"lab.all\") permit (principal, action, resource);";

const NAME: &str = "api.lab.test";
const VALUE: &str = "c4n4ry-K3y/of+the=host";

/// A daemon with a secret that opens what is private on a site.
struct World {
    site: Site,
    lab: DaemonLab,
    _files: tempfile::TempDir,
}

impl World {
    async fn start(plan: DaemonPlan) -> Self {
        let files = tempfile::tempdir().unwrap();
        fs::create_dir(files.path().join("private")).unwrap();
        fs::write(files.path().join("private/greeting"), "come in\n").unwrap();
        make_repository(files.path(), "private/project.git", "come in\n");
        let site = Site::start_with_key(&[NAME], files.path(), VALUE).await;
        let authority = files.path().join("authority.pem");
        fs::write(&authority, site.certificate()).unwrap();
        // Whoever runs the daemon has to be able to read it.
        assert!(Command::new("chmod").args(["-R", "go+rX"]).arg(files.path()).status().unwrap().success());
        let config = format!(
            "[policy]\npreset = \"none\"\nallow_sensitive_tools = true\n[egress]\ntrust = [\"{}\"]\n\
             [[egress.host]]\nhost = \"{NAME}\"\nports = [{}]\nallow_private = true",
            authority.display(),
            site.port()
        );
        let plan = plan.policies("lab.cedar", ALLOW_ALL).config(&config).hosts(&format!("{NAME} 127.0.0.1\n"));
        let world = Self { site, lab: plan.start(), _files: files };
        world.palyra(&["vault", "put", "key"], VALUE).await;
        let port = world.site.port().to_string();
        world.palyra(&["vault", "bind", "key", "--host", NAME, "--port", &port], "").await;
        world
    }

    fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.site.port())
    }

    /// What a command says, which succeeds.
    async fn palyra(&self, arguments: &[&str], input: &str) -> String {
        let done = self.try_palyra(arguments, input).await;
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{arguments:?}: {told} {}", String::from_utf8_lossy(&done.stderr));
        told
    }

    async fn try_palyra(&self, arguments: &[&str], input: &str) -> Done {
        let mut command = self.lab.palyra();
        command.args(arguments).env("NO_COLOR", "1");
        let input = input.to_owned();
        let running = tokio::task::spawn_blocking(move || {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        let done = running.await.unwrap();
        for stream in [&done.stdout, &done.stderr] {
            assert_eq!(told_in(stream), None, "{}", String::from_utf8_lossy(stream));
        }
        done
    }

    /// Runs a script that has the secret's placeholder in `KEY`.
    async fn run(&self, script: &str) -> (Option<i32>, String) {
        let script = script.replace("SITE", &self.url(""));
        let args = json!({ "command": ["sh", "-c", script], "secrets": { "KEY": "key" } });
        let call = self.lab.agent().propose(&tool("process.run", args), None).await.unwrap();
        assert_eq!(told_in(serde_json::to_string(&call).unwrap().as_bytes()), None, "{call:?}");
        said(call)
    }

    /// Each of these programs opens what is private, and none has the value.
    async fn programs_use_it(&self) {
        let python = "import os, urllib.request as u; \
             print(u.urlopen(u.Request('SITE/private/greeting', headers={'Authorization': 'Bearer ' + os.environ['KEY']})).read().decode(), end='')";
        for script in [
            "curl -sS -H \"Authorization: Bearer $KEY\" SITE/private/greeting".to_owned(),
            "unset https_proxy HTTPS_PROXY all_proxy ALL_PROXY; curl -sS -u \"me:$KEY\" SITE/private/greeting"
                .to_owned(),
            format!("/usr/bin/python3 -c \"{python}\""),
            "git -c http.extraHeader=\"Authorization: Bearer $KEY\" clone -q SITE/private/project.git by-header \
             && cat by-header/readme"
                .to_owned(),
        ] {
            let before = self.site.received().len();
            assert_eq!(self.run(&script).await, (Some(0), "come in\n".to_owned()), "{script}");
            let received = self.site.received().split_off(before);
            assert!(!received.is_empty() && received.iter().all(|one| !one.text().contains("palyraplaceholder")));
        }
        fs::write(self.lab.workspace().join("needles"), canary::backwards(VALUE)).unwrap();
        fs::write(self.lab.workspace().join("look.py"), canary::LOOK).unwrap();
        assert_eq!(self.run("/usr/bin/python3 look.py SITE").await, (Some(0), "True [] True\n".to_owned()));
        let refused = self.run("curl -sS \"SITE/private/greeting?key=$KEY\"").await;
        assert!(refused.1.contains("where no binding lets it go"), "{refused:?}");
        let by_command = ["run", "--secret", "KEY=key", "--", "sh", "-c"];
        let script = format!("curl -sS -H \"Authorization: Bearer $KEY\" {}", self.url("/private/greeting"));
        assert_eq!(self.palyra(&[&by_command[..], &[&script]].concat(), "").await, "come in\n");
        let told = self.lab.owner().records(&RecordQuery::default()).await.unwrap().records;
        let count = |kind: &str| told.iter().filter(|record| record.kind == kind).count();
        assert!(count("vault.used") >= 6, "{}", count("vault.used"));
        assert_eq!(count("vault.misused"), 1);
    }

    /// Nothing that the daemon has written holds a value, in any form, once it has stopped.
    fn nothing_is_written(mut self) {
        self.lab.stop();
        let written = self.lab.written();
        assert!(written.len() > 8, "{written:?}");
        for (path, bytes) in written.iter().filter(|(path, _)| path.file_name().unwrap() != "needles") {
            assert_eq!(told_in(bytes), None, "{}", path.display());
        }
    }
}

/// The exit code and all that a program said.
fn said(call: Call) -> (Option<i32>, String) {
    let Some(Output::Process { exit_code, stdout, stderr, .. }) = call.output else { panic!("{call:?}") };
    (exit_code, stdout.data + &stderr.data)
}

/// The form of the value that is in there, if one is.
fn told_in(bytes: &[u8]) -> Option<String> {
    canary::told_in(bytes, VALUE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_git_and_python_use_a_secret_that_is_nowhere_they_look() {
    let world = World::start(DaemonPlan::default()).await;
    world.programs_use_it().await;
    world.nothing_is_written();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_do_so_for_an_ordinary_user_too() {
    let world = World::start(DaemonPlan::default().ordinary_user()).await;
    world.programs_use_it().await;
    world.nothing_is_written();
}

/// With the log as chatty as it gets, and by every way that a value takes through the daemon, also where it is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_value_is_ever_written_in_any_form() {
    let world = World::start(DaemonPlan::default().variable("PALYRA_LOG", "trace")).await;
    let lab = &world.lab;
    // A value where none belongs: refused, and repeated nowhere.
    for arguments in [
        &["vault", "put", "other", VALUE][..],
        &["vault", "put", "other", "--value", VALUE],
        &["run", "--secret", &format!("KEY={VALUE}"), "--", "true"],
        &["vault", "export", "--recipient", VALUE],
    ] {
        let done = world.try_palyra(arguments, "").await;
        assert!(!done.status.success(), "{arguments:?}");
    }
    let console = lab.console().await;
    for (path, body) in [
        ("secrets/global/other", format!("{{\"value\":\"{VALUE}\",\"encoding\":\"base64\"}}")),
        ("secrets/global/other", format!("{{\"value\":[\"{VALUE}\"]}}")),
        ("secrets/global/other", format!("{{\"value\":\"{VALUE}\",\"expires_at\":\"2001-01-01T00:00:00Z\"}}")),
        ("secrets/global/other", format!("{{\"value\":\"x\",\"{VALUE}\":1}}")),
        ("secrets/global/other", format!("{{\"value\":\"{VALUE}")),
        ("unlock", format!("{{\"passphrase\":\"{VALUE}\"}}")),
        (
            "import",
            format!("{{\"palyra_vault_backup\":1,\"secrets\":[{{\"secret\":\"global/x\",\"value\":\"{VALUE}\"}}]}}"),
        ),
    ] {
        let method = if path.starts_with("secrets") { "PUT" } else { "POST" };
        let answer = asked_plainly(lab, (method, path), (&console, &body));
        assert!(!answer.starts_with("HTTP/1.1 200") || path == "unlock", "{answer}");
        assert_eq!(told_in(answer.as_bytes()), None, "{answer}");
    }
    // Rotated, exported and imported again.
    world.palyra(&["vault", "rotate", "key"], VALUE).await;
    world.palyra(&["vault", "rotate"], "").await;
    let words = "correct horse battery staple\n";
    world.palyra(&["vault", "export", "--passphrase", "--output", "backup.age"], words).await;
    world.palyra(&["vault", "import", "backup.age", "--passphrase"], words).await;
    for arguments in [&["vault", "list"][..], &["vault", "show", "key"], &["vault", "status"], &["doctor"]] {
        world.palyra(arguments, "").await;
        world.palyra(&[arguments, &["--json"]].concat(), "").await;
    }
    // Unseen, echoed in all forms, and handed over.
    for form in ["", "/base64", "/hex", "/url"] {
        let (code, said) = world.run(&format!("curl -sS -H \"Authorization: Bearer $KEY\" SITE/echo{form}")).await;
        assert!(code == Some(0) && said.contains("********"), "{said}");
    }
    let fetch = json!({ "url": world.url("/echo"), "headers": { "authorization": "Bearer {{KEY}}" }, "secrets": { "KEY": "key" } });
    let fetched = lab.agent().propose(&tool("http.fetch", fetch), None).await.unwrap();
    let fetched = serde_json::to_string(&fetched).unwrap();
    assert!(fetched.contains("********") && told_in(fetched.as_bytes()).is_none(), "{fetched}");
    let script = "printf %s \"$RAW\"; cat \"$FILE\"; printf %s \"$RAW\" | base64; printf %s \"$RAW\" >&2; \
                  test \"$RAW\" = \"$(cat \"$FILE\")\"";
    let raw = json!({ "command": ["sh", "-c", script], "secret_values": { "RAW": "key" }, "secret_files": { "FILE": "key" } });
    let running = lab.agent().propose(&accepted(tool("process.run", raw)), None).await.unwrap();
    let question = asked(&lab.owner(), 1).await.remove(0);
    approve(&lab.owner(), &question).await.unwrap();
    let call = over(&lab.agent(), running.id).await;
    assert_eq!(told_in(serde_json::to_string(&call).unwrap().as_bytes()), None, "{call:?}");
    let (code, said) = said(call);
    assert!(code == Some(0) && said.contains("**********************"), "{said}");
    // What anybody can ask for.
    let told = lab.owner().records(&RecordQuery::default()).await.unwrap();
    let told: Value = serde_json::to_value(&told).unwrap();
    assert_eq!(told_in(told.to_string().as_bytes()), None);
    // No core of the daemon holds one, either.
    let limits = fs::read_to_string(format!("/proc/{}/limits", lab.pid())).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(cores.split_whitespace().nth(4), Some("1"), "{cores}");
    world.nothing_is_written();
}

/// Says something to the daemon as no client of ours would, and returns all that it answers.
fn asked_plainly(lab: &DaemonLab, (method, path): (&str, &str), (bearer, body): (&str, &str)) -> String {
    use std::io::Read;
    let head = format!(
        "{method} /api/v1/vault/{path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {bearer}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        lab.local(),
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(lab.local()).unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
