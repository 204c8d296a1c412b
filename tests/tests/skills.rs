//! Skills at a real gate: decided about, asked about, run and attested like any other tool, and never beyond what they were granted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends"
)]

use std::{
    fs,
    time::{Duration, Instant},
};

use palyra_gate::{
    Completed, DecisionScope, Ending, Output, Refusal, TIER_A_EXECUTOR,
    skills::{InstallOptions, Installation, SkillRefusal, StoreError},
};
use palyra_journal::RecordKind;
use palyra_package::{FileAccess, FileGrant, Grants, KvQuota};
use palyra_tests::{
    Lab, Plan, operator,
    scripted::Names,
    site::Site,
    skill::{self, ASKED, Publisher},
    vault::ground,
};
use palyra_types::{HostName, Principal, SecretRef};
use palyra_vault::{BindingTerms, NewSecret, Position, SecretValue, VaultChange};
use serde_json::{Value, json};
use tempfile::TempDir;

const NAME: &str = "api.lab.test";
const OTHER: &str = "other.lab.test";
const VALUE: &str = "s3cr3t-K3y/of+the=host";
const ALLOW_ALL: &str = "@id(\"lab.all\") permit (principal, action, resource);";

/// A gate with skills, a vault and a site whose private part a secret opens.
struct World {
    lab: Lab,
    site: Site,
    files: TempDir,
    publisher: Publisher,
}

impl World {
    async fn new() -> Self {
        Self::with(Plan::default().policies(ALLOW_ALL)).await
    }

    async fn with(plan: Plan) -> Self {
        let files = tempfile::tempdir().unwrap();
        fs::create_dir_all(files.path().join("site/private")).unwrap();
        fs::write(files.path().join("site/private/greeting"), "come in\n").unwrap();
        fs::write(files.path().join("site/greeting"), "hello\n").unwrap();
        let site = Site::start_with_key(&[NAME, OTHER], &files.path().join("site"), VALUE).await;
        let config = site.configuration(&[NAME, OTHER], files.path());
        let names = Names::default().with(NAME, "127.0.0.1").with(OTHER, "127.0.0.1");
        let lab = plan.config(&config).net(names.connector()).open().await;
        let publisher = Publisher::new("lab");
        let world = Self { lab, site, files, publisher };
        world.open_skills().await;
        world.publisher.pin(&world.lab.gate).await;
        world
    }

    async fn open_skills(&self) {
        skill::open(&self.lab.gate, &self.files.path().join("skills"), env!("CARGO_BIN_EXE_harness")).await;
    }

    async fn open_vault(&self) {
        self.lab.gate.open_vault(ground(self.files.path()), None).await.unwrap();
        let ada = Principal::parse("user:ada@owner").unwrap();
        let secret = SecretRef::parse("global/key").unwrap();
        let value = SecretValue::new(VALUE.as_bytes().to_vec()).unwrap();
        let new = NewSecret { secret: secret.clone(), value, expires: None, rotate_after_days: None, note: None };
        let terms = BindingTerms {
            port: self.site.port(),
            positions: ["header:x-api-key", "header:authorization"].map(|text| Position::parse(text).unwrap()).into(),
            ..BindingTerms::usual(secret, HostName::parse(NAME).unwrap())
        };
        let change = VaultChange::Add { secrets: vec![new], bindings: vec![terms] };
        self.lab.gate.change_vault(change, &ada).await.unwrap();
    }

    fn asked(&self) -> String {
        ASKED.replace("PORT", &self.site.port().to_string())
    }

    /// Installs the probe with these tools and grants.
    async fn probe(&self, name: &str, tools: &[&str], grants: Grants) {
        let archive = skill::probe(&format!("lab/{name}"), "1.0.0", tools, &self.asked());
        self.publisher.install(&self.lab.gate, archive, Some(grants)).await.unwrap();
    }

    async fn call(&self, skill: &str, tool: &str, text: &str) -> Result<Completed, Refusal> {
        self.lab.gate.run(self.lab.call(&format!("skill.lab.{skill}.{tool}"), json!({ "text": text }))).await
    }

    /// What a call answers.
    async fn said(&self, skill: &str, tool: &str, text: &str) -> String {
        said(&self.call(skill, tool, text).await.unwrap())
    }

    fn all(&self) -> Grants {
        Grants {
            log: true,
            clock: true,
            random: true,
            kv: Some(KvQuota { bytes: 1000, entries: 3 }),
            http: [format!("{NAME}:{}", self.site.port()).parse().unwrap()].into(),
            files: [
                ("notes".to_owned(), FileGrant { path: "notes".to_owned(), access: FileAccess::Write }),
                ("books".to_owned(), FileGrant { path: "books".to_owned(), access: FileAccess::Read }),
            ]
            .into(),
            ..Grants::default()
        }
    }
}

fn said(completed: &Completed) -> String {
    match &completed.output {
        Output::Value { value: Value::String(text) } => text.clone(),
        other => panic!("{other:?}"),
    }
}

fn code(completed: &Completed) -> String {
    match &completed.output {
        Output::Value { value } => value["error"]["code"].as_str().unwrap_or_else(|| panic!("{value}")).to_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skill_is_a_tool_beside_the_others_and_its_receipt_says_what_ran() {
    let world = World::new().await;
    world.probe("probe", &["echo"], Grants::default()).await;
    let names: Vec<String> = world.lab.gate.registry().definitions().map(|one| one.name().to_string()).collect();
    assert!(names.contains(&"skill.lab.probe.echo".to_owned()), "{names:?}");
    assert!(names.contains(&"fs.read".to_owned()), "{names:?}");
    let done = world.call("probe", "echo", "hello").await.unwrap();
    assert_eq!(done.output, Output::Value { value: json!({ "text": "hello" }) });
    let installed = world.lab.gate.skills().unwrap().find("lab/probe").unwrap().clone();
    let attested = world.lab.attested(done.receipt.attestation.call).await;
    assert_eq!(attested["executor"], TIER_A_EXECUTOR);
    assert_eq!(attested["tier"], "a");
    let skill = &attested["skill"];
    assert_eq!(
        json!([
            skill["id"],
            skill["version"],
            skill["publisher"],
            skill["package_sha256"],
            skill["signed_by"],
            skill["replayable"]
        ]),
        json!(["lab/probe", "1.0.0", "lab", installed.package, world.publisher.key.public().key_id(), true]),
    );
    assert_eq!(skill["usage"]["metering"], "epoch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_preset_runs_a_skill_that_reaches_nothing_and_asks_about_one_that_does() {
    let world = World::with(Plan::default()).await;
    // What a tool needs follows from what its skill asks for, granted or not.
    let archive = skill::package("lab/pure", "1.0.0", &["run"], "", skill::guest_small());
    world.publisher.install(&world.lab.gate, archive, None).await.unwrap();
    let done = world.call("pure", "run", "x").await.unwrap();
    assert_eq!(done.output, Output::Value { value: json!({}) });
    world.probe("probe", &["fetch"], Grants { http: world.all().http, ..Grants::default() }).await;
    let url = format!("https://{NAME}:{}/greeting", world.site.port());
    let running = world.lab.propose(world.lab.call("skill.lab.probe.fetch", json!({ "text": format!("POST {url}") })));
    let question = world.lab.asked(1).await.remove(0);
    let shown = serde_json::to_value(&question).unwrap().to_string();
    assert!(shown.contains(NAME) && shown.contains("lab/probe"), "{shown}");
    world.lab.approve(question.id, DecisionScope::Once).await.unwrap();
    assert!(said(&running.await.unwrap().unwrap()).starts_with("Ok("), "it fetches once it is approved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_granted_ends_the_call_with_its_name() {
    let world = World::new().await;
    let tools =
        ["now", "random", "log", "kv-get", "secret", "file-read", "fetch", "wasi-now", "wasi-socket", "wasi-file"];
    world.probe("probe", &tools, Grants::default()).await;
    for (tool, missing) in [
        ("now", "clock"),
        ("random", "random"),
        ("log", "log"),
        ("kv-get", "kv"),
        ("secret", "secrets"),
        ("file-read", "files"),
        ("wasi-now", "clock"),
    ] {
        let done = world.call("probe", tool, "1").await.unwrap();
        assert_eq!(code(&done), "not_granted", "{tool}");
        assert!(done.receipt.attestation.detail.unwrap().contains(&format!("`{missing}`")), "{tool}");
    }
    assert_eq!(code(&world.call("probe", "fetch", "GET https://x.test/").await.unwrap()), "not_granted");
    let socket = world.call("probe", "wasi-socket", &format!("127.0.0.1:{}", world.site.port())).await.unwrap();
    assert_eq!(code(&socket), "inert");
    assert!(world.said("probe", "wasi-file", "/etc/passwd").await.starts_with("Err("));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_those_of_the_granted_directories_and_policy_is_asked_about_each() {
    let forbid = r#"@id("lab.all") permit (principal, action, resource);
        @id("lab.no-keys") @why("keys are not for skills")
        forbid (principal, action in [Palyra::Action::"fs.read", Palyra::Action::"fs.write"], resource is Palyra::Path)
        when { resource.name == "key.pem" };"#;
    let world = World::with(Plan::default().policies(forbid)).await;
    let root = world.lab.workspace();
    for directory in ["notes", "books", "private"] {
        fs::create_dir(root.join(directory)).unwrap();
        fs::write(root.join(directory).join("a.txt"), directory).unwrap();
    }
    fs::write(root.join("notes/key.pem"), "key").unwrap();
    std::os::unix::fs::symlink("../private/a.txt", root.join("notes/way-out")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("notes/further-out")).unwrap();
    let tools = ["file-read", "file-write", "file-list", "file-stat", "file-delete"];
    world.probe("probe", &tools, Grants { files: world.all().files, ..Grants::default() }).await;
    assert_eq!(world.said("probe", "file-read", "books/a.txt").await, format!("Ok({:?})", b"books"));
    assert_eq!(world.said("probe", "file-write", "notes/new.txt hello").await, "Ok(())");
    assert_eq!(fs::read_to_string(root.join("notes/new.txt")).unwrap(), "hello");
    assert_eq!(world.said("probe", "file-delete", "notes/new.txt").await, "Ok(())");
    assert!(!root.join("notes/new.txt").exists());
    assert!(world.said("probe", "file-stat", "notes/a.txt").await.contains("\"a.txt\""));
    assert!(world.said("probe", "file-list", "notes").await.contains("\"a.txt\""));
    for (tool, path, why) in [
        ("file-write", "books/a.txt x", "may only be read"),
        ("file-delete", "books/a.txt", "may only be read"),
        ("file-read", "private/a.txt", "this directory was not granted"),
        ("file-read", "notes/../private/a.txt", "no path without"),
        ("file-read", "notes//etc/passwd", "leads out"),
        ("file-read", "notes/way-out", "leads out"),
        ("file-read", "notes/further-out", "leads out"),
        ("file-write", "notes/way-out x", "leads out"),
        ("file-read", "notes/key.pem", "policy does not let"),
        ("file-write", "notes/key.pem x", "policy does not let"),
        ("file-read", "notes/none", "does not exist"),
        ("file-write", "notes/gpj.\u{202e}exe x", "hidden characters"),
    ] {
        let told = world.said("probe", tool, path).await;
        assert!(told.starts_with("Err(") && told.contains(why), "{tool} {path}: {told}");
        assert!(!told.contains(root.to_str().unwrap()), "where the directories are is not told: {told}");
    }
    assert_eq!(fs::read_to_string(root.join("private/a.txt")).unwrap(), "private");
    assert_eq!(fs::read_to_string(root.join("notes/key.pem")).unwrap(), "key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_skill_keeps_is_its_own_and_bounded() {
    let world = World::new().await;
    let tools = ["kv-get", "kv-set", "kv-keys", "kv-delete", "kv-set-large"];
    let grants = Grants { kv: world.all().kv, ..Grants::default() };
    world.probe("one", &tools, grants.clone()).await;
    world.probe("two", &tools, grants).await;
    assert_eq!(world.said("one", "kv-set", "colour blue").await, "Ok(())");
    assert_eq!(world.said("one", "kv-get", "colour").await, format!("Ok(Some({:?}))", b"blue"));
    assert_eq!(world.said("two", "kv-get", "colour").await, "Ok(None)");
    assert_eq!(world.said("two", "kv-keys", "").await, "Ok([])");
    assert!(world.said("one", "kv-set-large", "2000").await.contains("too large"));
    for key in ["a", "b"] {
        assert_eq!(world.said("one", "kv-set", &format!("{key} 1")).await, "Ok(())");
    }
    assert!(world.said("one", "kv-set", "c 1").await.contains("too large"));
    let told = "invalid: a key has 512 bytes at the most";
    for tool in ["kv-get", "kv-keys", "kv-delete"] {
        assert!(world.said("one", tool, &"k".repeat(513)).await.contains(told), "{tool}");
    }
    world.lab.gate.remove_skill(&skill::id("lab/one"), &operator()).await.unwrap();
    world.probe("one", &tools, Grants { kv: world.all().kv, ..Grants::default() }).await;
    assert_eq!(world.said("one", "kv-keys", "").await, "Ok([])", "what a removed skill kept is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_used_unseen_and_its_placeholder_is_worth_nothing_elsewhere() {
    let world = World::new().await;
    world.open_vault().await;
    let archive = skill::example("web-extract");
    let palyra = Publisher::new("palyra");
    palyra.pin(&world.lab.gate).await;
    // The example asks for another host, and grants are bounded by what is asked for.
    let wide = Grants { http: world.all().http, ..Grants::default() };
    assert!(matches!(
        palyra.install(&world.lab.gate, archive, Some(wide)).await,
        Err(SkillRefusal::Store(StoreError::Grant(_)))
    ));
    let both: Grants = Grants {
        http: [NAME, OTHER].map(|host| format!("{host}:{}", world.site.port()).parse().unwrap()).into(),
        secrets: [("KEY".to_owned(), SecretRef::parse("global/key").unwrap())].into(),
        ..Grants::default()
    };
    world.probe("probe", &["secret", "send"], both).await;
    let handle = world.said("probe", "secret", "KEY").await;
    assert!(handle.starts_with("Ok(") && !handle.contains(VALUE), "{handle}");
    let url = |host: &str, path: &str| format!("https://{host}:{}{path}", world.site.port());
    let opened = world.said("probe", "send", &format!("KEY {}", url(NAME, "/private/greeting"))).await;
    assert!(opened.contains("200") && opened.contains("come in"), "{opened}");
    let elsewhere = world.said("probe", "send", &format!("KEY {}", url(OTHER, "/private/greeting"))).await;
    assert!(elsewhere.contains("denied"), "{elsewhere}");
    let records = world.lab.records().await;
    assert!(records.iter().any(|one| one.record.kind == RecordKind::VaultMisused));
    assert!(records.iter().all(|one| !one.body.as_deref().unwrap_or_default().contains(VALUE)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_was_not_granted_is_refused_whatever_policy_says() {
    let world = World::new().await;
    world.probe("probe", &["fetch"], Grants { http: world.all().http, ..Grants::default() }).await;
    let url = |host: &str| format!("POST https://{host}:{}/greeting", world.site.port());
    assert!(world.said("probe", "fetch", &url(NAME)).await.starts_with("Ok("));
    let refused = world.call("probe", "fetch", &url(OTHER)).await.unwrap();
    assert!(said(&refused).contains("is not granted to the skill"), "{}", said(&refused));
    let attested = world.lab.attested(refused.receipt.attestation.call).await;
    assert_eq!(attested["network"]["refused"], 1);
    assert_eq!(attested["skill"]["usage"]["host_calls"], json!({ "http.fetch": 1 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_asked_the_host_is_run_again_from_its_record() {
    let world = World::new().await;
    let tools = ["now", "random", "kv-get", "fetch", "echo", "fail"];
    world.probe("probe", &tools, world.all_but_files()).await;
    let url = format!("POST https://{NAME}:{}/greeting", world.site.port());
    for (tool, text, host_calls) in [
        ("now", "", 2),
        ("random", "16", 1),
        ("kv-get", "none", 1),
        ("fetch", url.as_str(), 1),
        ("echo", "x", 0),
        ("fail", "no", 0),
    ] {
        let done = world.call("probe", tool, text).await.unwrap();
        let again = world.lab.gate.replay_skill(done.receipt.attestation.call).await.unwrap();
        assert!(again.is_same(), "{tool}: {again:?}");
        assert_eq!(again.host_calls, host_calls, "{tool}");
        assert_eq!(Some(again.attested), done.receipt.attestation.execution_sha256, "{tool}");
    }
    let other = world.lab.gate.run(world.lab.call("daemon.status", json!({}))).await.unwrap();
    let refused = world.lab.gate.replay_skill(other.receipt.attestation.call).await.unwrap_err();
    assert_eq!(refused.to_string(), "it was no call of a skill");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_stops_what_runs_and_keeps_the_rest_from_running() {
    let world = World::new().await;
    world.probe("probe", &["spin", "echo"], Grants::default()).await;
    let running = world.lab.propose(world.lab.call("skill.lab.probe.spin", json!({})));
    let gate = &world.lab.gate;
    palyra_tests::until(|| async {
        world.lab.records().await.iter().any(|one| one.record.kind == RecordKind::ToolStarted)
    })
    .await;
    let begun = Instant::now();
    gate.quarantine_skill(&skill::id("lab/probe"), "it spins", &operator()).await.unwrap();
    let stopped = running.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(stopped.receipt.attestation.ending, Ending::Cancelled);
    let denied = world.call("probe", "echo", "x").await.unwrap_err();
    assert!(matches!(&denied, Refusal::Denied(_)), "{denied}");
    assert_eq!(denied.to_string(), "the skill is in quarantine [baseline.quarantined-skill]");
    // It holds after a reload of the configuration, too.
    gate.reconfigure((*gate.config()).clone()).unwrap();
    assert!(world.call("probe", "echo", "x").await.is_err());
    gate.release_skill(&skill::id("lab/probe"), &operator()).await.unwrap();
    assert_eq!(world.call("probe", "echo", "x").await.unwrap().output, Output::Value { value: json!({ "text": "x" }) });
    let kinds: Vec<_> = world.lab.records().await.iter().map(|one| one.record.kind).collect();
    assert!(kinds.contains(&RecordKind::SkillQuarantined) && kinds.contains(&RecordKind::SkillReleased));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_takes_something_from_a_skill_stops_what_runs_of_it_and_nothing_else_does() {
    let world = World::new().await;
    let (gate, id) = (&world.lab.gate, skill::id("lab/probe"));
    let (less, more) =
        (Grants { log: true, ..Grants::default() }, Grants { log: true, clock: true, ..Grants::default() });
    world.probe("probe", &["spin"], less.clone()).await;
    let other = Grants { random: true, ..Grants::default() };
    let configured = |change: fn(&mut palyra_gate::GateConfig)| {
        let mut config = (*gate.config()).clone();
        change(&mut config);
        gate.reconfigure(config).unwrap();
    };
    let changes = ["more", "as much", "mixed", "update", "capabilities", "limits", "switched off", "removed"];
    for change in changes {
        let started = || async {
            let records = world.lab.records().await;
            records.iter().filter(|one| one.record.kind == RecordKind::ToolStarted).count()
        };
        let before = started().await;
        let mut running = world.lab.propose(world.lab.call("skill.lab.probe.spin", json!({})));
        palyra_tests::until(|| async { started().await > before }).await;
        match change {
            "more" => drop(gate.grant_skill(&id, more.clone(), &operator()).await.unwrap()),
            "as much" => configured(|config| config.skills.limits.cpu_ms *= 2),
            "mixed" => drop(gate.grant_skill(&id, other.clone(), &operator()).await.unwrap()),
            "update" => {
                let second = skill::probe("lab/probe", "1.1.0", &["spin"], &world.asked());
                drop(world.publisher.install(gate, second, Some(more.clone())).await.unwrap());
            }
            "capabilities" => {
                configured(|config| {
                    config.skills.capabilities.retain(|one| *one != palyra_gate::skills::SkillCapability::Clock)
                });
            }
            "limits" => configured(|config| config.skills.limits.memory_bytes = 2 << 20),
            "switched off" => configured(|config| config.skills.enabled = false),
            _ => gate.remove_skill(&id, &operator()).await.unwrap(),
        }
        if ["more", "as much"].contains(&change) {
            let ended = tokio::time::timeout(Duration::from_millis(500), &mut running).await;
            assert!(ended.is_err(), "{change}: {ended:?}");
            running.abort();
            continue;
        }
        let ended = tokio::time::timeout(Duration::from_secs(3), running).await.expect(change).unwrap().unwrap();
        assert_eq!(ended.receipt.attestation.ending, Ending::Cancelled, "{change}");
        configured(|config| config.skills = palyra_gate::skills::WasmPluginRunnerPolicy::default());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_run_again_of_a_skill_that_must_not_run() {
    let world = World::new().await;
    world.probe("probe", &["echo"], Grants::default()).await;
    let done = world.call("probe", "echo", "x").await.unwrap();
    let gate = &world.lab.gate;
    let again = || gate.replay_skill(done.receipt.attestation.call);
    assert!(again().await.unwrap().is_same());
    gate.quarantine_skill(&skill::id("lab/probe"), "it is looked into", &operator()).await.unwrap();
    assert_eq!(again().await.unwrap_err().to_string(), "its skill is in quarantine");
    gate.release_skill(&skill::id("lab/probe"), &operator()).await.unwrap();
    assert!(again().await.unwrap().is_same());

    let mut config = (*gate.config()).clone();
    config.skills.limits.memory_bytes = 2 << 20;
    gate.reconfigure(config).unwrap();
    let told = "it ran with more than `limits` under [skills] leaves a call by now";
    assert_eq!(again().await.unwrap_err().to_string(), told);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_much_a_skill_says_about_its_failure_its_call_is_attested() {
    let world = World::new().await;
    // Each of these bytes takes eight in a text that shows what is hidden.
    for (name, bytes, code) in [("long", 1_000_000, "failed"), ("longer", 1_100_000, "output_too_large")] {
        let body = format!(
            "(drop (memory.grow (i32.const 20))) (i32.store8 (i32.const 16) (i32.const 1))
             (i32.store (i32.const 20) (i32.const 65536)) (i32.store (i32.const 24) (i32.const {bytes}))"
        );
        let archive = skill::package(&format!("lab/{name}"), "1.0.0", &["run"], "", skill::small("", &body));
        world.publisher.install(&world.lab.gate, archive, None).await.unwrap();
        let done = world.call(name, "run", "").await.unwrap();
        let Output::Value { value } = &done.output else { panic!("{:?}", done.output) };
        assert_eq!(value["error"]["code"], code);
        assert!(done.receipt.note.len() < 100_000, "{}", done.receipt.note.len());
        assert_eq!(done.receipt.attestation.skill.as_ref().unwrap().id.as_str(), format!("lab/{name}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_that_hides_a_token_is_not_kept() {
    let world = World::new().await;
    let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    for directory in ["notes", "books"] {
        fs::create_dir(world.lab.workspace().join(directory)).unwrap();
    }
    world.lab.write("notes/plain", "nothing to hide");
    world.lab.write("notes/token", &token);
    world.probe("probe", &["file-read"], world.all()).await;
    for (file, is_kept) in [("plain", true), ("token", false)] {
        let done = world.call("probe", "file-read", &format!("notes/{file}")).await.unwrap();
        assert_eq!(done.receipt.attestation.skill.as_ref().unwrap().replayable, is_kept, "{file}: {:?}", done.output);
        assert_eq!(world.lab.gate.replay_skill(done.receipt.attestation.call).await.is_ok(), is_kept, "{file}");
    }
    let kept: Vec<_> = world.lab.records().await.into_iter().filter_map(|one| one.body).collect();
    let hidden = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &token);
    assert!(kept.iter().all(|body| !body.contains(&token) && !body.contains(&hidden)), "a token is on record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_granted_directory_that_is_not_there_is_told_as_that() {
    let world = World::new().await;
    world.probe("probe", &["echo"], Grants { files: world.all().files, ..Grants::default() }).await;
    let refused = world.call("probe", "echo", "x").await.unwrap_err();
    assert!(refused.to_string().starts_with("the skill was granted a directory as `books`"), "{refused}");
    assert!(refused.advice().contains("palyra skills grant"), "{}", refused.advice());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compiled_code_goes_with_the_last_skill_that_needs_it() {
    let world = World::new().await;
    for name in ["probe", "other"] {
        world.probe(name, &["echo"], Grants::default()).await;
    }
    let artifacts = || {
        let files = fs::read_dir(world.files.path().join("skills/artifacts")).unwrap();
        files.filter(|file| file.as_ref().unwrap().file_name() != "key").count()
    };
    // Both are one program, which is compiled once.
    assert_eq!(artifacts(), 1);
    let remove = |name: &str| {
        let id = skill::id(&format!("lab/{name}"));
        let gate = world.lab.gate.clone();
        async move { gate.remove_skill(&id, &operator()).await.unwrap() }
    };
    remove("probe").await;
    assert_eq!(artifacts(), 1);
    remove("other").await;
    assert_eq!(artifacts(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_that_was_changed_on_the_disk_does_not_run() {
    let world = World::new().await;
    world.probe("probe", &["echo"], Grants::default()).await;
    world.call("probe", "echo", "x").await.unwrap();
    let package = world.lab.gate.skills().unwrap().find("lab/probe").unwrap().package;
    let path = world.files.path().join("skills/packages").join(format!("{package}.skill"));
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() / 2;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let refused = world.call("probe", "echo", "x").await.unwrap();
    assert_eq!(refused.receipt.attestation.ending, Ending::NotStarted);
    assert_eq!(refused.output, Output::Nothing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compiled_code_that_was_changed_on_the_disk_does_not_run() {
    let world = World::new().await;
    world.probe("probe", &["echo"], Grants::default()).await;
    for entry in fs::read_dir(world.files.path().join("skills/artifacts")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if bytes.len() > 1_000 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    let refused = world.call("probe", "echo", "x").await.unwrap();
    assert_eq!(refused.receipt.attestation.ending, Ending::NotStarted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_ends_standing_approvals_and_grants_nothing_new() {
    let world = World::with(Plan::default()).await;
    let first = skill::probe("lab/probe", "1.0.0", &["echo"], &world.asked());
    world.publisher.install(&world.lab.gate, first, Some(Grants { log: true, ..Grants::default() })).await.unwrap();
    // The preset asks, since the skill could be granted a network.
    let session = DecisionScope::Session { pattern: Default::default() };
    let call = || world.lab.call("skill.lab.probe.echo", json!({ "text": "x" }));
    world.lab.approved(call(), session).await.unwrap();
    world.lab.gate.run(call()).await.expect("the standing approval covers it");
    let more = world.asked().replace("entries = 3", "entries = 300");
    let second = skill::probe("lab/probe", "1.1.0", &["echo"], &more);
    let updated = world.publisher.install(&world.lab.gate, second, None).await.unwrap();
    assert_eq!(*updated.grants, Grants { log: true, ..Grants::default() });
    let running = world.lab.propose(call());
    world.lab.asked(1).await;
    running.abort();
    let old = skill::probe("lab/probe", "1.0.0", &["echo"], &world.asked());
    let refused = world.publisher.install(&world.lab.gate, old, None).await.unwrap_err();
    assert!(matches!(refused, SkillRefusal::Store(StoreError::Rollback { .. })), "{refused}");
    // Whoever allows an older version gets the one that was there, and no other that is called like it.
    let downgrade = |archive: Vec<u8>| {
        let (signature, gate) = (Some(world.publisher.sign(&archive)), world.lab.gate.clone());
        let options = InstallOptions { allow_downgrade: true, ..InstallOptions::default() };
        async move { gate.install_skill(Installation { archive, signature, grants: None, options }, &operator()).await }
    };
    let changed = skill::probe("lab/probe", "1.0.0", &["echo"], &world.asked().replace("entries = 3", "entries = 2"));
    let refused = downgrade(changed).await.unwrap_err();
    assert!(matches!(refused, SkillRefusal::Store(StoreError::SameVersion { .. })), "{refused}");
    downgrade(skill::probe("lab/probe", "1.0.0", &["echo"], &world.asked())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_and_nothing_unsigned_is_installed() {
    let world = World::new().await;
    let archive = || skill::probe("lab/probe", "1.0.0", &["echo"], &world.asked());
    let gate = &world.lab.gate;
    let stranger = Publisher { name: world.publisher.name.clone(), ..Publisher::new("other") };
    let refused = stranger.install(gate, archive(), None).await.unwrap_err();
    assert!(matches!(refused, SkillRefusal::Store(_)), "{refused}");
    let unsigned =
        Installation { archive: archive(), signature: None, grants: None, options: InstallOptions::default() };
    assert!(matches!(gate.install_skill(unsigned, &operator()).await.unwrap_err(), SkillRefusal::Store(_)));
    let agent = Principal::parse("agent:claude").unwrap().into();
    let signed = Installation {
        signature: Some(world.publisher.sign(&archive())),
        archive: archive(),
        grants: None,
        options: InstallOptions::default(),
    };
    let refused = gate.install_skill(signed, &agent).await.unwrap_err();
    assert!(matches!(refused, SkillRefusal::Gate(Refusal::NotPermitted(_))), "{refused}");
    assert_eq!(gate.skills().unwrap().skills().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_stops_its_skill() {
    let world = World::new().await;
    world.probe("probe", &["spin"], Grants::default()).await;
    let proposal = world.lab.call("skill.lab.probe.spin", json!({}));
    let call = proposal.call;
    let running = world.lab.propose(proposal);
    palyra_tests::until(|| async { world.lab.story(call).await.contains(&RecordKind::ToolStarted) }).await;
    running.abort();
    palyra_tests::until(|| async { world.lab.story(call).await.contains(&RecordKind::ToolAttested) }).await;
    assert_eq!(world.lab.attested(call).await["ending"], "cancelled");
}

impl World {
    fn all_but_files(&self) -> Grants {
        Grants { files: Default::default(), ..self.all() }
    }
}
