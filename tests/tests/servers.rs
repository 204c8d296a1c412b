//! Servers that the daemon starts and speaks with, at a real gate and in real enclosures: what they may have, what they may not, how they end, and
//! what is on record about them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and it kills a process that it started"
)]

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use palyra_gate::{HostPort, Refusal, RunningServer, ServerEnd, ServerHandle, ServerInput, ServerOutput, ServerPlan};
use palyra_journal::{RecordKind, Trouble};
use palyra_policy::{Preset, SourceFile};
use palyra_tests::{Faults, Lab, Plan, canary::told_in, scripted::Names, site::Site, vault::ground};
use palyra_types::{EgressEnforcementMode, HostName, ObjectId, Principal, SecretRef, WorkspaceName};
use palyra_vault::{BindingTerms, NewSecret, Position, SecretValue, VaultChange};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

const NAME: &str = "api.lab.test";
const OTHER: &str = "other.lab.test";
const VALUE: &str = "s3cr3t-K3y/of+the=host";

/// Answers each line of JSON with one: what it was told and 2 500 letters, or what a shell makes of it.
const SERVER: &str = "
import json, subprocess, sys
print('up', file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if 'sh' in asked:
        done = subprocess.run(['sh', '-c', asked['sh']], capture_output=True, text=True)
        answer = {'out': done.stdout, 'err': done.stderr, 'code': done.returncode}
    else:
        answer = {'echo': asked['say'], 'padding': 'x' * 2500}
    print(json.dumps(answer), flush=True)
";

fn plan() -> ServerPlan {
    ServerPlan {
        name: ObjectId::parse("files").unwrap(),
        command: ["/usr/bin/python3", "-c", SERVER].map(str::to_owned).to_vec(),
        workspace: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        hosts: Vec::new(),
        egress: EgressEnforcementMode::Strict,
    }
}

fn in_workspace() -> ServerPlan {
    ServerPlan { workspace: Some(WorkspaceName::parse("lab").unwrap()), ..plan() }
}

/// A server that is spoken with.
struct Spoken {
    input: ServerInput,
    output: BufReader<ServerOutput>,
    handle: ServerHandle,
}

impl Spoken {
    async fn start(lab: &Lab, plan: ServerPlan) -> Self {
        let RunningServer { input, output, handle } = lab.gate.start_server(plan).await.unwrap();
        Self { input, output: BufReader::new(output), handle }
    }

    async fn ask(&mut self, line: &Value) -> Value {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        let heard = self.output.read_line(&mut answer);
        tokio::time::timeout(Duration::from_secs(60), heard).await.expect("an answer").unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// What a script says that the server runs.
    async fn sh(&mut self, script: &str) -> String {
        let said = self.ask(&json!({ "sh": script })).await;
        format!("{}{}", said["out"].as_str().unwrap(), said["err"].as_str().unwrap())
    }

    async fn ended(&mut self) -> ServerEnd {
        tokio::time::timeout(Duration::from_secs(20), self.handle.ended()).await.expect("an end")
    }

    async fn stop(mut self) -> ServerEnd {
        self.handle.stop();
        self.ended().await
    }
}

/// What is on record of a kind.
async fn told(lab: &Lab, kind: RecordKind) -> Vec<Value> {
    let records = lab.records().await;
    let about = records.iter().filter(|one| one.record.kind == kind);
    about.map(|one| serde_json::from_str(one.body.as_ref().unwrap()).unwrap()).collect()
}

async fn refused(lab: &Lab, plan: ServerPlan) -> Refusal {
    lab.gate.start_server(plan).await.map(drop).unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_as_often_as_it_is_asked_and_is_on_record_from_its_start_to_its_end() {
    let lab = Lab::new().await;
    let mut server = Spoken::start(&lab, plan()).await;
    let began = &told(&lab, RecordKind::ServerStarted).await[0];
    assert_eq!((&began["server"], &began["principal"]), (&json!("files"), &json!("service:mcp.files")));
    assert_eq!(told(&lab, RecordKind::ServerEnded).await.len(), 0);
    let mut heard = 0;
    for number in 0..5_000 {
        let answer = server.ask(&json!({ "say": number })).await;
        assert_eq!(answer["echo"], number);
        heard += answer.to_string().len();
    }
    assert!(heard > 10_000_000, "{heard}");
    assert_eq!(server.handle.executor(), "sandbox_tier_c_linux_bubblewrap");
    let layers = server.handle.layers().to_vec();
    for wanted in ["network_namespace", "no_capabilities", "tree_kill_pid_namespace"] {
        assert!(layers.iter().any(|layer| layer == wanted), "{wanted}: {layers:?}");
    }
    let end = server.stop().await;
    assert_eq!(end, ServerEnd { why: "somebody asked for it".to_owned(), stderr: "up\n".to_owned() });
    let over = &told(&lab, RecordKind::ServerEnded).await[0];
    assert_eq!((&over["server"], &over["why"]), (&json!("files"), &json!("somebody asked for it")));
    assert_eq!((&over["layers"], &over["executor"]), (&json!(layers), &json!("sandbox_tier_c_linux_bubblewrap")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_is_told_of_with_its_last_words() {
    let lab = Lab::new().await;
    let script = "seq 1 100000 >&2; echo cannot go on >&2; exit 7";
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let mut server = Spoken::start(&lab, ServerPlan { command, ..plan() }).await;
    let mut nothing = Vec::new();
    assert_eq!(server.output.read_to_end(&mut nothing).await.unwrap(), 0);
    let ServerEnd { why, stderr } = server.ended().await;
    assert_eq!(why, "it ended by itself with code 7");
    assert!(stderr.ends_with("\n100000\ncannot go on\n"), "{}", stderr.len());
    let lines: Vec<&str> = stderr.lines().collect();
    // From the beginning of a line.
    let first: u32 = lines[0].parse().unwrap();
    assert_eq!(lines[1], (first + 1).to_string());
    assert!((60_000..=65_536).contains(&stderr.len()), "{}", stderr.len());
    assert_eq!(told(&lab, RecordKind::ServerEnded).await[0]["stderr_bytes"], 588_895 + 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_begins_in_a_directory_of_its_own_that_goes_with_it() {
    let lab = Lab::new().await;
    let mut server = Spoken::start(&lab, plan()).await;
    let place = server.sh("pwd").await;
    assert_eq!(server.sh("ls -A; echo kept > file; cat file").await, "kept\n");
    assert!(fs::metadata(place.trim()).unwrap().is_dir());
    // Neither the state directory, nor any workspace, nor another process of the machine is there.
    let journal = lab.journal_directory();
    assert!(server.sh(&format!("ls {}", journal.display())).await.contains("No such file"));
    assert!(server.sh(&format!("ls {}", lab.workspace().display())).await.contains("No such file"));
    let processes: u32 = server.sh("ls /proc | grep -c '^[0-9]'").await.trim().parse().unwrap();
    assert!(processes < 10, "{processes}");
    server.stop().await;
    assert!(!fs::exists(place.trim()).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_works_in_the_workspace_that_its_configuration_names() {
    let lab = Lab::new().await;
    lab.write("note", "hello");
    let mut server = Spoken::start(&lab, in_workspace()).await;
    assert_eq!(server.sh("pwd; cat note; echo made > made").await, format!("{}\nhello", lab.workspace().display()));
    server.stop().await;
    assert_eq!(lab.read("made").unwrap(), "made\n");
    let absent = ServerPlan { workspace: Some(WorkspaceName::parse("absent").unwrap()), ..plan() };
    assert_eq!(refused(&lab, absent).await.code(), "unknown_workspace");
}

/// A gate with a vault, and a site whose private part the secret opens.
struct World {
    lab: Lab,
    site: Site,
    _files: TempDir,
}

impl World {
    async fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        fs::create_dir(files.path().join("private")).unwrap();
        fs::write(files.path().join("private/greeting"), "come in\n").unwrap();
        fs::write(files.path().join("greeting"), "hello\n").unwrap();
        let site = Site::start_with_key(&[NAME, OTHER], files.path(), VALUE).await;
        let names = Names::default().with(NAME, "127.0.0.1").with(OTHER, "127.0.0.1");
        let config = site.configuration(&[NAME, OTHER], files.path());
        let lab = Plan::default().config(&config).net(names.connector()).open().await;
        lab.gate.open_vault(ground(files.path()), None).await.unwrap();
        let value = SecretValue::new(VALUE.as_bytes().to_vec()).unwrap();
        let new = NewSecret { secret: secret(), value, expires: None, rotate_after_days: None, note: None };
        let world = Self { lab, site, _files: files };
        world.change(VaultChange::Add { secrets: vec![new], bindings: Vec::new() }).await;
        world
    }

    async fn change(&self, change: VaultChange) -> palyra_vault::Added {
        self.lab.gate.change_vault(change, &Principal::parse("user:ada@owner").unwrap()).await.unwrap()
    }

    async fn bind(&self) -> u64 {
        let terms = BindingTerms {
            port: self.site.port(),
            positions: [Position::parse("header:authorization").unwrap()].into(),
            ..BindingTerms::usual(secret(), HostName::parse(NAME).unwrap())
        };
        self.change(VaultChange::Add { secrets: Vec::new(), bindings: vec![terms] }).await.bindings[0].id
    }

    /// A server that may reach the site under one of its names.
    fn plan(&self) -> ServerPlan {
        ServerPlan { hosts: vec![HostPort { host: HostName::parse(NAME).unwrap(), port: self.site.port() }], ..plan() }
    }

    fn with_secret(&self) -> ServerPlan {
        ServerPlan { secrets: BTreeMap::from([("KEY".to_owned(), secret())]), ..self.plan() }
    }

    fn curl(&self, name: &str, path: &str) -> String {
        format!("curl -sS https://{name}:{}/{path}", self.site.port())
    }

    async fn forbid(&self, rule: &str) {
        let rule = SourceFile::operator("no.cedar", format!("@id(\"lab.no\") @why(\"that is over\") forbid ({rule});"));
        self.lab.engine.reload(&[Preset::Cautious.source(), rule]).unwrap();
        self.lab.gate.policies_changed("ada").await.unwrap();
    }
}

fn secret() -> SecretRef {
    SecretRef::parse("global/key").unwrap()
}

const NO_NETWORK: &str = "principal, action == Palyra::Action::\"net.connect\", resource in Palyra::Host::\"lab.test\"";

#[tokio::test(flavor = "multi_thread")]
async fn it_reaches_the_hosts_that_its_configuration_names_and_no_other() {
    let world = World::new().await;
    let mut server = Spoken::start(&world.lab, world.plan()).await;
    assert_eq!(server.sh(&world.curl(NAME, "greeting")).await, "hello\n");
    let before = world.site.requests();
    let elsewhere = server.sh(&world.curl(OTHER, "greeting")).await;
    assert!(elsewhere.contains("curl: ("), "{elsewhere}");
    let direct = format!("unset https_proxy HTTPS_PROXY all_proxy ALL_PROXY; {}", world.curl(OTHER, "greeting"));
    assert!(server.sh(&direct).await.contains("curl: ("));
    assert_eq!(world.site.requests(), before);
    server.stop().await;
    let connections = told(&world.lab, RecordKind::EgressConnection).await;
    assert!(connections.iter().all(|one| one["server"] == "files"), "{connections:?}");
    assert!(connections.iter().any(|one| one["named"] == NAME && !one["address"].is_null()), "{connections:?}");
    assert!(connections.iter().all(|one| one["named"] != OTHER || one["address"].is_null()), "{connections:?}");
    assert_eq!(told(&world.lab, RecordKind::ServerEnded).await[0]["network"]["connections"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policy_forbids_meanwhile_a_running_server_may_not_any_more() {
    let world = World::new().await;
    let mut server = Spoken::start(&world.lab, world.plan()).await;
    assert_eq!(server.sh(&world.curl(NAME, "greeting")).await, "hello\n");
    let before = world.site.requests();
    world.forbid(NO_NETWORK).await;
    let refused_now = server.sh(&world.curl(NAME, "greeting")).await;
    assert!(refused_now.contains("curl: (") && world.site.requests() == before, "{refused_now}");
    // It runs on without its host; another one would not start.
    assert_eq!(server.ask(&json!({ "say": 1 })).await["echo"], 1);
    assert_eq!(refused(&world.lab, world.plan()).await.code(), "denied_by_policy");
    world.forbid("principal, action == Palyra::Action::\"mcp.start\", resource").await;
    assert_eq!(server.ended().await.why, "policy changed: that is over [lab.no]");
    let told = told(&world.lab, RecordKind::ServerStarted).await;
    assert_eq!(told.iter().filter(|one| one["refused"].is_string()).count(), 1, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_a_placeholder_that_becomes_the_value_on_the_way_to_its_host() {
    let world = World::new().await;
    assert_eq!(refused(&world.lab, world.with_secret()).await.code(), "denied_by_policy");
    let binding = world.bind().await;
    let mut server = Spoken::start(&world.lab, world.with_secret()).await;
    let seen = server.sh("printf %s \"$KEY\"").await;
    assert!(!seen.is_empty() && !seen.contains(VALUE), "{seen}");
    let with_key = format!("{} -H \"Authorization: Bearer $KEY\"", world.curl(NAME, "private/greeting"));
    assert_eq!(server.sh(&with_key).await, "come in\n");
    let echoed = format!("{} -H \"Authorization: Bearer $KEY\"", world.curl(NAME, "echo"));
    let echoed = server.sh(&echoed).await;
    assert!(echoed.contains("Bearer ***") && !echoed.contains(VALUE), "{echoed}");
    let before = world.site.received().len();
    let misplaced = format!("{} -H \"X-Elsewhere: $KEY\"", world.curl(NAME, "greeting"));
    assert!(server.sh(&misplaced).await.contains("Palyra refused this"));
    world.change(VaultChange::Unbind(binding)).await;
    assert_ne!(server.sh(&with_key).await, "come in\n");
    assert!(world.site.received()[before..].iter().all(|one| !one.text().contains(VALUE)));
    let ServerEnd { stderr, .. } = server.stop().await;
    assert_eq!(stderr, "up\n");
    let used = told(&world.lab, RecordKind::VaultUsed).await;
    assert!(!used.is_empty() && used.iter().all(|one| one["server"] == "files"), "{used:?}");
    for record in world.lab.records().await {
        assert_eq!(told_in(record.body.unwrap_or_default().as_bytes(), VALUE), None, "{:?}", record.record.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_sensitive_tools_are_off_no_server_starts() {
    let lab = Plan::default().config("[policy]\nallow_sensitive_tools = false").open().await;
    let refusal = refused(&lab, plan()).await;
    assert_eq!(refusal.code(), "denied_by_policy");
    assert!(refusal.to_string().contains("baseline.sensitive-capability"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_would_run_palyra_does_not_start() {
    let lab = Lab::new().await;
    let command = ["sh", "-c", "palyra approvals approve 1"].map(str::to_owned).to_vec();
    assert!(refused(&lab, ServerPlan { command, ..plan() }).await.to_string().contains("baseline.runs-palyra"));
    let command = vec!["no-such-program".to_owned()];
    assert_eq!(refused(&lab, ServerPlan { command, ..plan() }).await.code(), "bad_arguments");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_never_more_servers_than_configured() {
    let lab = Plan::default().config("[sandbox.servers]\nmost = 1").open().await;
    let server = Spoken::start(&lab, plan()).await;
    assert_eq!(refused(&lab, plan()).await, Refusal::TooManyServers { limit: 1 });
    server.stop().await;
    Spoken::start(&lab, plan()).await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_end_with_the_gate_and_none_starts_afterwards() {
    let lab = Lab::new().await;
    let mut server = Spoken::start(&lab, plan()).await;
    let place = server.sh("setsid sleep 600 > /dev/null 2>&1 < /dev/null & pwd").await;
    assert_eq!(lab.gate.stop(Duration::from_secs(10)).await, 0);
    // Its end is on record by then, and its directory gone.
    assert_eq!(told(&lab, RecordKind::ServerEnded).await[0]["why"], "the daemon is stopping");
    assert!(!fs::exists(place.trim()).unwrap());
    assert_eq!(server.ended().await.why, "the daemon is stopping");
    assert_eq!(refused(&lab, plan()).await, Refusal::Stopping { goes_on: false });
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_drops_its_handle_ends_it() {
    let lab = Lab::new().await;
    let Spoken { input, output, handle } = Spoken::start(&lab, plan()).await;
    drop(handle);
    palyra_tests::until(|| async { told(&lab, RecordKind::ServerEnded).await.len() == 1 }).await;
    assert_eq!(told(&lab, RecordKind::ServerEnded).await[0]["why"], "its caller is gone");
    drop((input, output));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_does_not_start() {
    let faults = Arc::new(Faults::default());
    let lab = Plan::default().faults(&faults).open().await;
    faults.fail_commits(|transaction| {
        let starts = transaction.records.iter().any(|record| record.kind == RecordKind::ServerStarted);
        starts.then_some(Trouble::DiskFull)
    });
    let marker = lab.workspace().join("marker");
    let command = ["touch", "marker"].map(str::to_owned).to_vec();
    assert_eq!(refused(&lab, ServerPlan { command, ..in_workspace() }).await.code(), "journal_unwritable");
    faults.heal();
    assert!(!marker.exists());
}

#[test]
fn nothing_is_left_of_a_server_whose_daemon_is_killed() {
    kill_a_daemon(None);
}

#[test]
fn the_same_holds_for_an_ordinary_user() {
    kill_a_daemon(Some("65534"));
}

/// Kills a daemon that speaks with a server, and looks for what is left; and has another one start in its place.
fn kill_a_daemon(user: Option<&str>) {
    let home = tempfile::tempdir().unwrap();
    let (state, workspace) = (home.path().join("state"), home.path().join("workspace"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&workspace).unwrap();
    let user = user.filter(|_| is_root());
    if let Some(user) = user {
        let mine = Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(home.path()).status().unwrap();
        assert!(mine.success());
    }
    let mark = format!("{}-{}", std::process::id(), user.unwrap_or("root"));
    let start = || {
        let holder = env!("CARGO_BIN_EXE_holder");
        let mut command = match user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--clear-groups", holder]);
                command
            }
            None => Command::new(holder),
        };
        command.args([&state, &workspace]).arg(&mark).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut places = Vec::new();
    for _ in 0..2 {
        let mut daemon = start();
        let mut said = Vec::new();
        let mut stdout = daemon.stdout.take().unwrap();
        while !said.ends_with(b"\n") {
            let mut byte = [0];
            stdout.read_exact(&mut byte).expect("the daemon ended before its server was up");
            said.extend_from_slice(&byte);
        }
        let place = String::from_utf8(said).unwrap().trim().to_owned();
        assert!(fs::metadata(&place).unwrap().is_dir(), "{place}");
        // What the one before left is gone.
        assert!(places.iter().all(|earlier: &String| !fs::exists(earlier).unwrap()), "{places:?}");
        assert!(marked(&mark) >= 2, "{}", marked(&mark));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let began = std::time::Instant::now();
        while marked(&mark) > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "{} processes are left", marked(&mark));
            std::thread::sleep(Duration::from_millis(5));
        }
        places.push(place);
    }
    for place in places {
        let _ = fs::remove_dir_all(place);
    }
}

/// How many processes have this mark among their variables.
fn marked(mark: &str) -> usize {
    let wanted = format!("MARK={mark}");
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    })
    .count()
}

fn is_root() -> bool {
    let own = fs::read_to_string("/proc/self/status").unwrap();
    own.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
