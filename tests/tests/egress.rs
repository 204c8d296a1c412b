//! Strict egress by real programs: they reach what is allowed without knowing of a proxy, and nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and it makes a repository"
)]

use std::{fs, process::Command, time::Duration};

use palyra_api::call::{Call, Output};
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, accepted, approve, asked, command, no, over, tool, yes},
    site::{Site, make_repository},
};
use serde_json::{Value, json};

/// Everything is allowed that the sandbox allows.
const ALLOW_ALL: &str = "@id(\"lab.all\") permit (principal, action, resource);";

/// Programs run, and each connection asks.
const ASK_NETWORK: &str = r#"
@id("lab.run") permit (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"process.run");
@id("lab.network") permit (principal, action == Palyra::Action::"net.connect", resource) when { context.approved };
"#;

const NAME: &str = "files.lab.test";

/// A site, and a daemon whose only hosts are its names.
struct Net {
    site: Site,
    lab: DaemonLab,
    _files: tempfile::TempDir,
}

impl Net {
    async fn start(policies: &str, config: &str, as_user: impl FnOnce(DaemonPlan) -> DaemonPlan) -> Self {
        let files = tempfile::tempdir().unwrap();
        fs::write(files.path().join("greeting"), "hello from outside\n").unwrap();
        make_repository(files.path(), "project.git", "cloned\n");
        let site = Site::start(&[NAME, "other.lab.test"], files.path()).await;
        let authority = files.path().join("authority.pem");
        fs::write(&authority, site.certificate()).unwrap();
        // Whoever runs the daemon has to be able to read it.
        assert!(Command::new("chmod").args(["-R", "go+rX"]).arg(files.path()).status().unwrap().success());
        let config = config.replace("PORT", &site.port().to_string()).replace("AUTHORITY", authority.to_str().unwrap());
        let plan = DaemonPlan::default()
            .policies("lab.cedar", policies)
            .config(&config)
            .hosts(&format!("{NAME} 127.0.0.1\nother.lab.test 127.0.0.1\nexample.org 192.0.2.7\n"));
        Self { site, lab: as_user(plan).start(), _files: files }
    }

    fn url(&self, name: &str, path: &str) -> String {
        format!("https://{name}:{}/{path}", self.site.port())
    }

    async fn run<const N: usize>(&self, argv: [&str; N]) -> Ran {
        Ran::of(self.lab.agent().propose(&command(argv), None).await.unwrap())
    }
}

/// What came of a program.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    attestation: Value,
}

impl Ran {
    fn of(call: Call) -> Self {
        let Some(Output::Process { exit_code, stdout, stderr, .. }) = call.output else { panic!("{call:?}") };
        let attestation = call.receipt.unwrap().attestation;
        assert_eq!(attestation["executor"], "sandbox_tier_c_linux_bubblewrap");
        Self { code: exit_code, stdout: stdout.data, stderr: stderr.data, attestation }
    }

    /// The kinds of refusals that the sandbox tells about.
    fn refusals(&self) -> Vec<&str> {
        let reasons = self.attestation["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
        reasons.iter().filter_map(|reason| reason["refusal"]["kind"].as_str()).collect()
    }
}

const LISTED: &str = "[egress]\ntrust = [\"AUTHORITY\"]\n[[egress.host]]\nhost = \"files.lab.test\"\nports = [PORT]\nallow_private = true";

async fn programs_reach_a_listed_host_and_no_other(net: &Net) {
    let greeting = net.url(NAME, "greeting");
    let other = net.url("other.lab.test", "greeting");
    let python = |url: &str| format!("import urllib.request; print(urllib.request.urlopen('{url}').read().decode())");
    let node = |url: &str| {
        format!(
            "fetch('{url}').then(r => r.text()).then(console.log).catch(e => {{ console.error(e.cause); process.exit(1) }})"
        )
    };
    let direct = |url: &str| format!("unset https_proxy HTTPS_PROXY all_proxy ALL_PROXY; curl -sS {url}");
    for argv in [
        ["curl", "-sS", &greeting],
        ["/usr/bin/python3", "-c", &python(&greeting)],
        ["node", "-e", &node(&greeting)],
        ["sh", "-c", &direct(&greeting)],
    ] {
        let ran = net.run(argv).await;
        assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "hello from outside"), "{argv:?}: {ran:?}");
        assert!(ran.refusals().is_empty(), "{ran:?}");
        assert_eq!(ran.attestation["network"]["connections"], 1, "{ran:?}");
    }
    let ran = net.run(["git", "clone", "-q", &net.url(NAME, "project.git"), "cloned"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(fs::read_to_string(net.lab.workspace().join("cloned/readme")).unwrap(), "cloned\n");
    let before = net.site.requests();
    for argv in [
        ["curl", "-sS", &other],
        ["/usr/bin/python3", "-c", &python(&other)],
        ["node", "-e", &node(&other)],
        ["sh", "-c", &direct(&other)],
        ["git", "ls-remote", &other],
    ] {
        let ran = net.run(argv).await;
        assert_ne!(ran.code, Some(0), "{argv:?}: {ran:?}");
        assert!(!ran.stderr.is_empty(), "{argv:?}");
        assert_eq!(ran.refusals(), ["not_listed"], "{argv:?}: {ran:?}");
    }
    assert_eq!(net.site.requests(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_python_node_and_git_reach_a_listed_host_and_no_other() {
    let net = Net::start(ALLOW_ALL, LISTED, |plan| plan).await;
    programs_reach_a_listed_host_and_no_other(&net).await;
    let records = net.lab.owner().records(&palyra_api::journal::RecordQuery::default()).await.unwrap().records;
    let connections = records.iter().filter(|record| record.kind == "egress.connection").count();
    assert!(connections >= 10, "{connections}");
}

#[tokio::test(flavor = "multi_thread")]
async fn they_do_so_for_an_ordinary_user_too() {
    let net = Net::start(ALLOW_ALL, LISTED, DaemonPlan::ordinary_user).await;
    programs_reach_a_listed_host_and_no_other(&net).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_explained_where_the_program_can_show_it() {
    let net = Net::start(ALLOW_ALL, LISTED, |plan| plan).await;
    let ran = net.run(["curl", "-sS", "-i", "http://example.org/"]).await;
    assert!(ran.stdout.contains("no rule names the host `example.org`"), "{ran:?}");
    assert_eq!(ran.refusals(), ["not_listed"]);
    let told = &ran.attestation["reasons"][0];
    assert_eq!(told["message"], "it could not connect to `example.org` port 80: no rule names the host `example.org`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_policy_asks_about_waits_for_the_answer() {
    let net = Net::start(ASK_NETWORK, LISTED, |plan| plan).await;
    let call = accepted(command(["curl", "-sS", &net.url(NAME, "greeting")]));
    let running = net.lab.agent().propose(&call, None).await.unwrap();
    let owner = net.lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    assert_eq!(question.tool.as_str(), "net.connect");
    assert!(question.summary.starts_with("connect to files.lab.test port "), "{}", question.summary);
    assert!(question.summary.contains("wanted by /usr/bin/curl"), "{}", question.summary);
    assert_eq!(question.plan.hosts, [format!("{NAME}:{}", net.site.port())]);
    assert!(question.plan.writes.starts_with("nothing more than before"), "{}", question.plan.writes);
    assert_eq!(net.site.requests(), 0);
    approve(&owner, &question).await.unwrap();
    let ran = Ran::of(over(&net.lab.agent(), running.id).await);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "hello from outside\n"), "{ran:?}");

    let running = net.lab.agent().propose(&call, None).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    owner.deny(question.id, &no(&question, Some("not today"))).await.unwrap();
    let ran = Ran::of(over(&net.lab.agent(), running.id).await);
    assert_ne!(ran.code, Some(0));
    assert_eq!(ran.refusals(), ["denied_by_person"], "{ran:?}");
    assert_eq!(net.site.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_a_call_declares_is_asked_about_with_it_and_not_again() {
    let net = Net::start(ASK_NETWORK, LISTED, |plan| plan).await;
    let host = format!("{NAME}:{}", net.site.port());
    let args = json!({ "command": ["curl", "-sS", net.url(NAME, "greeting")], "egress_hosts": [host] });
    let running = net.lab.agent().propose(&accepted(tool("process.run", args)), None).await.unwrap();
    let owner = net.lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    assert_eq!(question.tool.as_str(), "process.run");
    assert_eq!(question.plan.hosts, [host]);
    approve(&owner, &question).await.unwrap();
    let ran = Ran::of(over(&net.lab.agent(), running.id).await);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_tighten_close_the_connection() {
    let net = Net::start(ALLOW_ALL, LISTED, |plan| plan).await;
    let call = accepted(command(["curl", "-sSN", &net.url(NAME, "endless")]));
    let running = net.lab.agent().propose(&call, None).await.unwrap();
    while net.site.requests() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let forbid = "@id(\"lab.none\") forbid (principal, action == Palyra::Action::\"net.connect\", resource);";
    fs::write(net.lab.home().join("policies/none.cedar"), forbid).unwrap();
    assert!(
        Command::new("chmod").arg("600").arg(net.lab.home().join("policies/none.cedar")).status().unwrap().success()
    );
    net.lab.owner().reload().await.unwrap();
    let ran = Ran::of(over(&net.lab.agent(), running.id).await);
    assert_ne!(ran.code, Some(0), "{ran:?}");
}

/// Changes what is configured, and has it read.
async fn reconfigure(net: &Net, from: &str, to: &str) {
    let config = net.lab.home().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&config, text.replace(from, to)).unwrap();
    net.lab.owner().reload().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_tightens_closes_the_connection_that_it_would_refuse_now() {
    let net = Net::start(ALLOW_ALL, LISTED, |plan| plan).await;
    let call = accepted(command(["curl", "-sSN", "--max-time", "20", &net.url(NAME, "endless")]));
    let running = net.lab.agent().propose(&call, None).await.unwrap();
    while net.site.requests() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = std::time::Instant::now();
    reconfigure(&net, "allow_private = true", "allow_private = false").await;
    let ran = Ran::of(over(&net.lab.agent(), running.id).await);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "it went on for {:?}", begun.elapsed());
    let ran = net.run(["curl", "-sS", &net.url(NAME, "greeting")]).await;
    assert_eq!(ran.refusals(), ["private_address"], "{ran:?}");
}

/// A yes that comes after the rule is gone is a yes to a host that nobody lists.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_under_the_terms_that_hold_when_it_comes() {
    let net = Net::start(ASK_NETWORK, LISTED, |plan| plan).await;
    let call = accepted(command(["curl", "-sS", &net.url(NAME, "greeting")]));
    let running = net.lab.agent().propose(&call, None).await.unwrap();
    let owner = net.lab.owner();
    let question = asked(&owner, 1).await.remove(0);
    reconfigure(&net, "host = \"files.lab.test\"", "host = \"elsewhere.lab.test\"").await;
    approve(&owner, &question).await.unwrap();
    let ran = Ran::of(over(&net.lab.agent(), running.id).await);
    assert_eq!(ran.refusals(), ["private_address"], "{ran:?}");
    assert_eq!(net.site.requests(), 0);
}

const FLOOD: &str = "
import socket, sys, time
kept = []
for number in range(int(sys.argv[1])):
    client = socket.create_connection(('127.0.0.1', 3128))
    client.sendall(b'CONNECT h%d.flood.test:443 HTTP/1.1\\r\\n\\r\\n' % number)
    if len(sys.argv) > 2:
        kept.append(client)
        continue
    time.sleep(0.005)
    client.close()
time.sleep(1)
print('done')
time.sleep(8 if kept else 0)
";

/// Questions of clients that had gone stayed open, and more of them than connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_cannot_flood_a_person_with_questions() {
    let net = Net::start(ASK_NETWORK, LISTED, |plan| plan).await;
    let owner = net.lab.owner();
    let ran = net.run(["/usr/bin/python3", "-c", FLOOD, "200"]).await;
    assert_eq!(ran.stdout.trim(), "done", "{ran:?}");
    assert_eq!(asked(&owner, 0).await.len(), 0);
    let call = accepted(command(["/usr/bin/python3", "-c", FLOOD, "40", "kept"]));
    let running = net.lab.agent().propose(&call, None).await.unwrap();
    asked(&owner, 16).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(asked(&owner, 16).await.len(), 16);
    net.lab.agent().cancel(running.id).await.unwrap();
    over(&net.lab.agent(), running.id).await;
    for _ in 0..100 {
        if asked(&owner, 0).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("questions of a call that is over are left");
}

/// A yes to the command was one to every connection that it made, and did not say to which host.
#[tokio::test(flavor = "multi_thread")]
async fn a_yes_on_the_command_line_covers_no_connection_that_was_not_declared() {
    let net = Net::start(ASK_NETWORK, LISTED, |plan| plan).await;
    let (url, host) = (net.url(NAME, "greeting"), format!("{NAME}:{}", net.site.port()));
    let mut run = net.lab.palyra();
    run.args(["run", "--yes", "--", "curl", "-sS", &url]).stdin(std::process::Stdio::null());
    let ran = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && ran.stdout.is_empty(), "{told}");
    assert!(told.contains(&format!("connect to {NAME} port")) && told.contains("--host HOST:PORT"), "{told}");
    assert_eq!(net.site.requests(), 0);
    let mut run = net.lab.palyra();
    run.args(["run", "--yes", "--host", &host, "--", "curl", "-sS", &url]).stdin(std::process::Stdio::null());
    let ran = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "hello from outside\n",
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

const CONNECT: &str = "
import socket, sys
for target in sys.argv[1:]:
    client = socket.create_connection(('127.0.0.1', 3128))
    client.sendall(b'CONNECT %s HTTP/1.1\\r\\n\\r\\n' % target.encode())
    print(client.recv(12).decode())
";

/// A person was asked about the daemon's own listener, and their yes was refused.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_about_an_address_that_is_out_of_reach() {
    let net = Net::start(ASK_NETWORK, LISTED, |plan| plan).await;
    let own = net.lab.local().to_string();
    let ran =
        net.run(["/usr/bin/python3", "-c", CONNECT, &own, "10.0.0.1:443", "[::1]:443", "169.254.169.254:443"]).await;
    assert_eq!(ran.stdout, "HTTP/1.1 403\n".repeat(4), "{ran:?}");
    assert_eq!(ran.refusals(), ["own_listener", "private_address", "private_address", "private_address"], "{ran:?}");
}

/// One request a second, whatever comes of it.
const AGAIN: &str =
    "for n in 1 2 3 4 5 6; do curl -sS -o /dev/null -w '%{http_code}\n' --max-time 4 URL || echo failed; sleep 1; done";

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_standing_approval_counts_for_calls_that_run() {
    let net = Net::start(ASK_NETWORK, LISTED, |plan| plan).await;
    let owner = net.lab.owner();
    let line = AGAIN.replace("URL", &net.url(NAME, "greeting"));
    let running = net.lab.agent().propose(&accepted(command(["/bin/sh", "-c", &line])), None).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    let answer = palyra_api::approval::Approve { scope: palyra_api::approval::Scope::Session, ..yes(&question) };
    owner.approve(question.id, &answer).await.unwrap();
    let grants = owner.grants().await.unwrap().grants;
    // What wanted it is not what is covered.
    let covers = serde_json::to_value(&grants[0]).unwrap().to_string();
    assert!(covers.contains(&format!("connections of any program to {NAME} port {}", net.site.port())), "{covers}");
    while net.site.requests() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    owner.end_grant(grants[0].id).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    owner.deny(question.id, &no(&question, None)).await.unwrap();
    let ran = Ran::of(over(&net.lab.agent(), running.id).await);
    let failed = ran.stdout.lines().filter(|line| *line != "200").count();
    assert!(ran.stdout.starts_with("200\n") && failed >= 1, "{ran:?}");
    assert_eq!(ran.refusals(), ["denied_by_person"], "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_and_the_daemon_itself_are_out_of_reach() {
    let listed = LISTED.replace("\nallow_private = true", "");
    let net = Net::start(ALLOW_ALL, &listed, |plan| plan).await;
    let ran = net.run(["curl", "-sS", &net.url(NAME, "greeting")]).await;
    assert_eq!(ran.refusals(), ["private_address"], "{ran:?}");
    let own = net.lab.local().port();
    let config =
        format!("[[egress.host]]\nhost = \"files.lab.test\"\nports = [{own}]\nallow_private = true\ntls = \"any\"");
    let lab =
        DaemonPlan::default().policies("lab.cedar", ALLOW_ALL).config(&config).hosts(&format!("{NAME} 127.0.0.1"));
    let lab = lab.start();
    // Whatever port another daemon has is not this one's own.
    let own = lab.local().port();
    fs::write(
        lab.home().join("config.toml"),
        fs::read_to_string(lab.home().join("config.toml")).unwrap().replace(
            &config,
            &config.replace(&format!("ports = [{}]", net.lab.local().port()), &format!("ports = [{own}]")),
        ),
    )
    .unwrap();
    lab.owner().reload().await.unwrap();
    let url = format!("http://{NAME}:{own}/healthz");
    let call = lab.agent().propose(&command(["curl", "-sS", "--proxytunnel", &url]), None).await.unwrap();
    let ran = Ran::of(call);
    assert_eq!(ran.refusals(), ["own_listener"], "{ran:?}");
    let call = lab
        .agent()
        .propose(&command(["curl", "-sS", "--noproxy", "*", &format!("http://127.0.0.1:{own}/healthz")]), None)
        .await
        .unwrap();
    // The port is answered inside, where no name stands behind the address.
    let ran = Ran::of(call);
    assert!(matches!(ran.code, Some(7 | 56)) && ran.stdout.is_empty(), "{ran:?}");
}
