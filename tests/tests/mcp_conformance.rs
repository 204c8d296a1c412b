//! The suites of the Model Context Protocol, run against a real daemon: the one of 2025-11-25, and the one of 2026-07-28.
//!
//! Every scenario that a suite has is either run or stands below with the reason why it is not, so that a new one is noticed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use palyra_tests::{facade::target, gateway::Gateway};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    process::Command,
};

/// A suite: its package, the version that it is for, what is run of it, and what is known to fail in that.
struct Suite {
    package: &'static str,
    version: Option<&'static str>,
    run: &'static [&'static str],
    /// Checks that need a tool of the suite's own, by scenario and name.
    excused: &'static [&'static str],
}

const OLDER: Suite = Suite {
    package: "conformance-2025",
    version: None,
    run: &["server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"],
    excused: &[],
};

const OLDER_BY_THE_NEWER: Suite = Suite {
    package: "conformance-2026",
    version: Some("2025-11-25"),
    run: &[
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
    excused: &[],
};

const NEWER: Suite = Suite {
    package: "conformance-2026",
    version: Some("2026-07-28"),
    run: &[
        "server-stateless",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
    ],
    excused: &[
        "server-stateless:sep-2575-server-rejects-undeclared-capability",
        "server-stateless:sep-2575-missing-capability-http-400",
        "server-stateless:sep-2575-http-server-no-independent-requests-on-stream",
        "server-stateless:sep-2575-server-no-log-without-loglevel",
        "server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription",
    ],
};

/// What is not run, by the beginning of its name, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("tools-call-", "wants a tool of the suite's own, which this server does not offer under its name"),
    ("json-schema-2020-12", "wants a tool of the suite's own, to look at its schema"),
    (
        "http-custom-header-server-validation",
        "wants a tool whose arguments stand in headers as well; none is offered here",
    ),
    (
        "input-required-result-",
        "wants tools that ask for input; the only input that is ever asked for here is a person's answer",
    ),
    (
        "elicitation-",
        "wants a tool that asks for input in a form; forms are not used, because a client could fill them in",
    ),
    ("server-sse-polling", "wants a tool that hangs up on its client; what was streamed is not kept here"),
    (
        "tasks-",
        "wants tools of the suite's own that become tasks; a call becomes one here when a person takes long, in `tests/mcp.rs`",
    ),
    ("sep-2640-", "an extension that is not offered"),
    ("logging-set-level", "about log messages, which are not offered"),
    ("completion-complete", "about completions, which are not offered"),
    ("resources-", "about resources, which are not offered"),
    ("sep-2164-", "about resources, which are not offered"),
    ("prompts-", "about prompts, which are not offered"),
    ("caching", "wants prompts and resources besides tools; what it asks about lists of tools is in `tests/mcp.rs`"),
];

impl Suite {
    fn command(&self) -> Command {
        let packages = target().join("conformance/node_modules");
        let mut command = Command::new(packages.join(".bin/node"));
        command.arg(packages.join(self.package).join("dist/index.js")).env_clear().env("PATH", "/usr/bin:/bin");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The scenarios that it has for servers of its version.
    async fn scenarios(&self) -> BTreeSet<String> {
        let output = self.command().args(["list", "--server"]).output().await.unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
        let version = self.version.unwrap_or("2025-11-25");
        let of_version = lines.filter(|line| line.contains(version) || line.contains("extension"));
        of_version.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    async fn run(&self, scenario: &str, at: SocketAddr) -> Output {
        let home = tempfile::tempdir().unwrap();
        let excused: Vec<_> = self.excused.iter().filter(|one| one.starts_with(&format!("{scenario}:"))).collect();
        let mut command = self.command();
        command.args(["server", "--url", &format!("http://{at}/mcp"), "--scenario", scenario]).current_dir(home.path());
        if let Some(version) = self.version {
            command.args(["--spec-version", version]);
        }
        if !excused.is_empty() {
            let list = excused.iter().fold("server:\n".to_owned(), |list, one| format!("{list}  - {one}\n"));
            let file: PathBuf = home.path().join("excused.yml");
            std::fs::write(&file, list).unwrap();
            command.arg("--expected-failures").arg(file);
        }
        tokio::time::timeout(Duration::from_secs(60), command.output()).await.expect("in time").unwrap()
    }
}

/// A server on loopback that adds a credential to whatever is asked of it, and leads to the daemon: the suites have none of their own.
async fn lead_in(gateway: &Gateway) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (own, daemon, token) = (listener.local_addr().unwrap(), gateway.lab.local(), gateway.token.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let token = token.clone();
            tokio::spawn(async move { lead(stream, (own, daemon), &token).await });
        }
    });
    own
}

async fn lead(mut client: TcpStream, (own, daemon): (SocketAddr, SocketAddr), token: &str) -> Option<()> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if client.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    // What is said of another host or origin stays as it is.
    let head = String::from_utf8_lossy(&read[..end]).replace(&own.to_string(), &daemon.to_string());
    let head = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head = head.fold(String::new(), |head, line| head + line + "\r\n");
    let head = format!("{head}authorization: Bearer {token}\r\nconnection: close\r\n\r\n");
    let mut server = TcpStream::connect(daemon).await.ok()?;
    server.write_all(head.as_bytes()).await.ok()?;
    server.write_all(&read[end + 4..]).await.ok()?;
    copy_bidirectional(&mut client, &mut server).await.ok()?;
    Some(())
}

async fn passes(suite: &Suite) {
    let gateway = Gateway::start("").await;
    let at = lead_in(&gateway).await;
    for scenario in suite.run {
        let output = suite.run(scenario, at).await;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{} {scenario}:\n{said}", suite.package);
        assert!(said.contains("Passed: ") && !said.contains("Passed: 0/"), "{} {scenario}:\n{said}", suite.package);
    }
    let known = suite.scenarios().await;
    let forgotten: Vec<_> = known
        .iter()
        .filter(|one| !suite.run.contains(&one.as_str()) && LEFT_OUT.iter().all(|(left, _)| !one.starts_with(left)))
        .collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
    assert!(suite.run.iter().all(|one| known.contains(*one)), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_of_2025_11_25_passes() {
    passes(&OLDER).await;
    passes(&OLDER_BY_THE_NEWER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_of_2026_07_28_passes() {
    passes(&NEWER).await;
}
