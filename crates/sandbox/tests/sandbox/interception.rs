//! Programs in an enclosure whose connections are looked into, and secrets that one run has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and looks at the machine with its own programs"
)]

use std::{
    collections::BTreeSet,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_sandbox::{
    Containment, Door, Ended, InterceptedBy, Outcome, PrivateFile, ProcessPlan, RunInput, SECRET_FILES,
    SandboxProcessRunErrorKind as Kind, SandboxProcessRunner, Streams,
    egress::{
        Connector, Forbidden, Interceptor,
        fetch::{Authorities, Trust},
    },
};
use palyra_types::sandbox::EgressEnforcementMode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;
use zeroize::Zeroizing;

use crate::{
    egress_lab::{Keeper, Table, header, hosts::Host, pem},
    interceptors::{PLACEHOLDER, SECRET, Vault},
    lab::{self, Lab, text},
};

const NAME: &str = "api.example";
const COMMIT: &str = "0123456789012345678901234567890123456789";

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

/// A host with an address that tells what it was sent, and a repository.
async fn serve(mut stream: TlsStream<TcpStream>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let body = match head.split(' ').nth(1).unwrap() {
            "/echo" => format!("authorization: {}\n", header(&head, "authorization").unwrap_or_default()),
            "/right" => format!("{}\n", header(&head, "authorization") == Some(format!("Bearer {SECRET}"))),
            "/repo.git/HEAD" => "ref: refs/heads/main\n".to_owned(),
            path if path.starts_with("/repo.git/info/refs") => format!("{COMMIT}\trefs/heads/main\n"),
            other => panic!("nobody asked for {other}"),
        };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all((answer + &body).as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// A lab with a host that only an interceptor trusts.
struct Intercepted {
    lab: Lab,
    host: Host,
    keeper: Arc<Keeper>,
    vault: Arc<Vault>,
}

impl Intercepted {
    async fn new() -> Self {
        let host = Host::tls_serving(NAME, serve).await;
        let rule = format!("[[host]]\nhost = '{NAME}'\nports = [{}]\nallow_private = true\n", host.port());
        let mut lab = Lab::new();
        let net = Connector::new(Arc::new(Table::of(NAME, host.at.ip())), Forbidden::default());
        let options = lab.tier_c_options();
        let runner = SandboxProcessRunner::new([]).unwrap().with_connector(Arc::new(net)).with_tier_c(&options);
        lab.runner = runner;
        Self { lab, host, keeper: Arc::new(Keeper::new(&rule)), vault: Arc::new(Vault::of(&[NAME])) }
    }

    /// A script in an enclosure that intercepts.
    fn plan(&self, script: &str) -> ProcessPlan {
        let script = script.replace("HOST", &format!("https://{NAME}:{}", self.host.port()));
        let mut plan = self.lab.enclose(self.lab.shell(&script));
        for (name, value) in [("HOME", "/tmp/home"), ("NODE_EXTRA_CA_CERTS", "/etc/ssl/certs/ca-certificates.crt")] {
            plan.env.insert(name.to_owned(), value.to_owned());
        }
        plan.env.insert("TOKEN".to_owned(), PLACEHOLDER.to_owned());
        if let Containment::Enclosure(enclosure) = &mut plan.containment {
            enclosure.intercepts = true;
            enclosure.ports = BTreeSet::from([443, self.host.port()]);
        }
        plan
    }

    fn input(&self) -> RunInput {
        let mut authorities = Authorities::default();
        authorities.add_pem(pem(&self.host.certificate()).as_bytes()).unwrap();
        let interceptor: Arc<dyn Interceptor> = Arc::<Vault>::clone(&self.vault);
        RunInput {
            door: Some(Door(self.keeper.clone())),
            interceptor: Some(InterceptedBy { interceptor, trust: Trust::new(authorities) }),
            ..RunInput::default()
        }
    }

    async fn run(&self, script: &str) -> Outcome {
        let plan = self.plan(script);
        let run = self.lab.try_run_with(&plan, self.input());
        tokio::time::timeout(Duration::from_secs(60), run).await.expect("an end").unwrap()
    }

    async fn printed(&self, script: &str) -> String {
        let outcome = self.run(script).await;
        let said = text(&outcome.stdout.bytes).to_owned();
        assert_eq!(outcome.ended, Ended::Exited(0), "{script}: {said}{}", text(&outcome.stderr.bytes));
        said
    }
}

#[tokio::test]
async fn programs_reach_the_host_without_being_told_whom_to_trust() {
    let lab = Intercepted::new().await;
    let masked = format!("authorization: Bearer {}\n", "*".repeat(SECRET.len()));
    let python = "import os, urllib.request as u\n\
                  r = u.Request('HOST/PATH', headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})\n\
                  print(u.urlopen(r).read().decode(), end='')";
    let node = "require('https').get('HOST/PATH', {headers: {authorization: 'Bearer ' + process.env.TOKEN}}, \
                r => r.pipe(process.stdout))";
    let scripts = [
        "curl -sS -H \"Authorization: Bearer $TOKEN\" HOST/PATH".to_owned(),
        format!("/usr/bin/python3 -c \"{python}\""),
        format!("node -e \"{node}\""),
    ];
    for script in &scripts {
        assert_eq!(lab.printed(&script.replace("PATH", "right")).await, "true\n", "{script}");
        assert_eq!(lab.printed(&script.replace("PATH", "echo")).await, masked, "{script}");
    }
    let issuer = lab.printed("curl -sSv HOST/echo 2>&1 | grep -o 'issuer: .*'").await;
    assert_eq!(issuer, "issuer: CN=Palyra run authority\n");
}

#[tokio::test]
async fn git_reaches_the_host_whichever_library_it_uses() {
    let lab = Intercepted::new().await;
    for git in ["/usr/bin/git", "/usr/local/bin/git"] {
        if fs::metadata(git).is_ok() {
            let said = lab.printed(&format!("{git} ls-remote HOST/repo.git refs/heads/main")).await;
            assert_eq!(said, format!("{COMMIT}\trefs/heads/main\n"), "{git}");
        }
    }
}

#[tokio::test]
async fn a_placeholder_that_is_misplaced_is_told_of() {
    let lab = Intercepted::new().await;
    let outcome = lab.run("curl -sS -i -H \"X-Elsewhere: $TOKEN\" HOST/echo").await;
    let said = text(&outcome.stdout.bytes);
    assert!(said.contains("x-palyra-refused: secret_misplaced") && said.contains("Palyra refused this"), "{said}");
    let summary = outcome.egress.unwrap();
    assert_eq!((summary.connections, summary.refused), (0, 1));
}

#[tokio::test]
async fn the_authority_is_trusted_in_its_own_enclosure_and_nowhere_else() {
    let lab = Intercepted::new().await;
    let own = "cat /etc/ssl/certs/palyra-run-authority.pem";
    let first = lab.printed(own).await;
    assert_eq!(first.matches("BEGIN CERTIFICATE").count(), 1);
    fs::write(lab.lab.workspace().join("first.pem"), &first).unwrap();
    for trusted in ["-CAfile /etc/ssl/certs/ca-certificates.crt -no-CApath", "-CApath /etc/ssl/certs -no-CAfile"] {
        let script = format!(
            "cat /etc/ssl/certs/palyra-run-authority.pem > own.pem; openssl verify {trusted} own.pem; \
             openssl verify {trusted} first.pem >/dev/null 2>&1 || echo not the first"
        );
        assert_eq!(lab.printed(&script).await, "own.pem: OK\nnot the first\n", "{trusted}");
    }
    // One that does not intercept is as it was.
    let count = "grep -c 'BEGIN CERT' /etc/ssl/certs/ca-certificates.crt; cat /etc/ssl/certs/palyra-run-authority.pem";
    let plain = lab.lab.run(&lab.lab.enclose(lab.lab.shell(count))).await;
    let usual: usize = text(&plain.stdout.bytes).trim().parse().unwrap();
    let said = lab.printed(count).await;
    assert_eq!(said.lines().next().unwrap(), (usual + 1).to_string());
}

#[tokio::test]
async fn nobody_inside_changes_whom_to_trust() {
    let lab = Intercepted::new().await;
    for file in ["ca-certificates.crt", "palyra-run-authority.pem", "3ce85aee.0"] {
        for attempt in ["echo x >>", "chmod 666", "rm", "touch"] {
            let outcome = lab.run(&format!("{attempt} /etc/ssl/certs/{file}")).await;
            assert_ne!(outcome.ended, Ended::Exited(0), "{attempt} {file}");
        }
    }
    // What was needed for that is out of sight. The workspace lies in the same directory.
    let said = lab.printed("ls -A /tmp | grep -v '^[.]tmp'; echo x > /tmp/x && cat /tmp/x; test ! -e /run").await;
    assert_eq!(said, "home\nx\n");
}

#[tokio::test]
async fn enclosures_that_wait_have_an_authority_each_and_serve_only_those_who_intercept() {
    let lab = Intercepted::new().await;
    let tier_c = lab.lab.runner.tier_c().unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        seen.insert(lab.printed("cat /etc/ssl/certs/palyra-run-authority.pem").await);
        let began = Instant::now();
        while tier_c.waiting() < 2 {
            assert!(began.elapsed() < Duration::from_secs(10), "none waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(lab.printed("curl -sS -H \"Authorization: Bearer $TOKEN\" HOST/right").await, "true\n");
    }
    assert_eq!(seen.len(), 4);
    let plain = lab.lab.run(&lab.lab.enclose(lab.lab.shell("cat /etc/ssl/certs/palyra-run-authority.pem"))).await;
    assert_eq!(text(&plain.stdout.bytes), "");
}

#[tokio::test]
async fn an_interceptor_that_could_not_look_into_everything_is_refused() {
    let lab = Intercepted::new().await;
    let strict = lab.lab.enclose(lab.lab.shell("true"));
    let mut open = lab.plan("true");
    open.egress.mode = EgressEnforcementMode::Preflight;
    for plan in [strict, open, lab.lab.shell("true")] {
        let refused = lab.lab.try_run_with(&plan, lab.input()).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Unavailable);
        let what = "connections can only be looked into with strict egress, in an enclosure that intercepts";
        assert_eq!(refused.detail, what);
    }
}

fn file(name: &str, content: &[u8]) -> PrivateFile {
    PrivateFile { name: name.to_owned(), content: Zeroizing::new(content.to_vec()) }
}

fn with_files(files: Vec<PrivateFile>) -> RunInput {
    RunInput { private_files: files, ..RunInput::default() }
}

#[tokio::test]
async fn secrets_in_files_are_there_to_be_read_for_one_run() {
    let lab = Lab::enclosed();
    let script = "cd /run/secrets && stat -c '%a %u %n' . * && cat token key.pem; \
                  for it in 'echo x > token' 'chmod 600 token' 'touch other' 'rm token' 'chmod 700 .'; do \
                  (eval \"$it\") 2>/dev/null && echo \"done: $it\"; done; ls -A /run";
    let plan = lab.enclose(lab.shell(script));
    let input = with_files(vec![file("token", b"s3cr3t\n"), file("key.pem", b"-----\n"), file("empty", b"")]);
    let outcome = lab.try_run_with(&plan, input).await.unwrap();
    let said = text(&outcome.stdout.bytes);
    let expected = "500 1000 .\n400 1000 empty\n400 1000 key.pem\n400 1000 token\ns3cr3t\n-----\nsecrets\n";
    assert_eq!(said, expected, "{}", text(&outcome.stderr.bytes));
    let after = lab.run(&lab.enclose(lab.shell("ls -A /run"))).await;
    assert_ne!(after.ended, Ended::Exited(0));
    assert_eq!(SECRET_FILES, "/run/secrets");
}

#[tokio::test]
async fn as_many_and_as_large_files_as_may_be_have_room() {
    let lab = Lab::enclosed();
    let files: Vec<PrivateFile> = (0..64).map(|number| file(&format!("file{number}"), &vec![b'x'; 64 << 10])).collect();
    let plan = lab.enclose(lab.shell("cat /run/secrets/* | wc -c"));
    let outcome = lab.try_run_with(&plan, with_files(files)).await.unwrap();
    assert_eq!(text(&outcome.stdout.bytes).trim(), (4 << 20).to_string());
}

#[tokio::test]
async fn files_that_cannot_be_put_there_are_refused() {
    let lab = Lab::enclosed();
    let plan = lab.enclose(lab.shell("true"));
    let many = (0..65).map(|number| file(&format!("file{number}"), b"")).collect();
    let cases = [vec![file("a", &vec![0; (64 << 10) + 1])], vec![file("a", b""), file("a", b"")], many];
    let names = ["", ".", "..", ".hidden", "a/b", "../x", "a\0b", "a b", "\u{e9}"];
    for files in cases.into_iter().chain(names.map(|name| vec![file(name, b"")])) {
        let refused = lab.try_run_with(&plan, with_files(files)).await.unwrap_err();
        assert_eq!(refused.kind, Kind::InvalidInput, "{}", refused.detail);
    }
    let refused = lab.try_run_with(&lab.shell("true"), with_files(vec![file("a", b"")])).await.unwrap_err();
    assert_eq!(refused.detail, "secrets in files need an enclosure, which tier b has not");
}

#[tokio::test]
async fn private_variables_count_before_those_of_the_plan_in_either_tier() {
    let lab = Lab::enclosed();
    let variable = |name: &str, value: &str| (name.to_owned(), Zeroizing::new(value.to_owned()));
    for enclosed in [true, false] {
        let mut plan = lab.shell("echo $TOKEN $OTHER; env | grep -c TOKEN");
        plan.env.insert("TOKEN".to_owned(), "public".to_owned());
        let plan = if enclosed { lab.enclose(plan) } else { plan };
        let private_variables = vec![variable("TOKEN", "s3cr3t"), variable("OTHER", "more")];
        let input = RunInput { private_variables, ..RunInput::default() };
        assert!(!format!("{input:?}").contains("s3cr3t"));
        let outcome = lab.try_run_with(&plan, input).await.unwrap();
        assert_eq!(text(&outcome.stdout.bytes), "s3cr3t more\n1\n");
    }
    for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0")] {
        let input = RunInput { private_variables: vec![variable(name, value)], ..RunInput::default() };
        assert_eq!(lab.try_run_with(&lab.shell("true"), input).await.unwrap_err().kind, Kind::InvalidInput);
    }
    let private_variables = vec![variable("A", "1"), variable("A", "2")];
    let twice = RunInput { private_variables, ..RunInput::default() };
    assert_eq!(lab.try_run_with(&lab.shell("true"), twice).await.unwrap_err().kind, Kind::InvalidInput);
}

#[test]
fn nothing_private_is_shown() {
    let input = RunInput {
        streams: Streams::Captured { stdin: Some(b"standard input".to_vec()) },
        principal: "agent:one".to_owned(),
        private_variables: vec![("NAME".to_owned(), Zeroizing::new("hidden".to_owned()))],
        private_files: vec![file("name", b"hidden")],
        ..RunInput::default()
    };
    assert_eq!(format!("{input:?}"), "RunInput { principal: \"agent:one\", .. }");
    assert_eq!(format!("{:?}", file("name", b"hidden")), "PrivateFile");
}

/// Prints how long an enclosure takes that nobody started ahead: usual, intercepting, with secrets in files.
#[tokio::test]
#[ignore = "it measures"]
async fn what_it_costs() {
    let lab = Intercepted::new().await;
    let mut options = lab.lab.tier_c_options();
    options.warm.each = 0;
    let runner = SandboxProcessRunner::new([]).unwrap().with_tier_c(&options);
    let usual = lab.lab.enclose(lab.lab.shell("true"));
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..60 {
        let files = with_files(vec![file("token", b"x")]);
        let intercepting = lab.plan("true");
        let cases = [(&usual, RunInput::default()), (&intercepting, RunInput::default()), (&usual, files)];
        for ((plan, input), times) in cases.into_iter().zip(&mut times) {
            let began = Instant::now();
            let prepared = runner.prepare(plan, input).await.unwrap();
            times.push(began.elapsed());
            drop(prepared);
        }
    }
    for (mut times, what) in times.into_iter().zip(["usual", "intercepting", "with a file"]) {
        times.sort();
        println!("{what}: median {:?}, quartiles {:?} {:?}", times[30], times[15], times[45]);
    }
}
