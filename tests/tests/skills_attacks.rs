//! Skills that attack: each is refused or ended with an error of its own, and the daemon answers others meanwhile.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on ends")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use palyra_gate::{
    Completed, Ending, Gate, Output,
    skills::{InstallOptions, Installation, SkillRefusal},
};
use palyra_package::{Grants, PackageError};
use palyra_tests::{
    Lab, Plan, operator,
    skill::{self, ASKED, Publisher},
};
use palyra_types::ToolName;
use serde_json::json;
use tempfile::TempDir;

const ALLOW_ALL: &str = "@id(\"lab.all\") permit (principal, action, resource);";

/// Small enough that every attack is over soon.
const LIMITS: &str = "\n[limits]\ncpu_ms = 300\nwall_ms = 3000\nmemory_bytes = 16777216\ntable_entries = 10000\noutput_bytes = 65536\n\
                      host_calls = 500\nhost_bytes = 131072\n";

struct World {
    lab: Lab,
    publisher: Publisher,
    _files: TempDir,
}

impl World {
    async fn new() -> Self {
        let lab = Plan::default().policies(ALLOW_ALL).config("[budget]\ncalls = 100000\n").open().await;
        let (files, publisher) = (tempfile::tempdir().unwrap(), Publisher::new("lab"));
        skill::open(&lab.gate, &files.path().join("skills"), env!("CARGO_BIN_EXE_harness")).await;
        publisher.pin(&lab.gate).await;
        let world = Self { lab, publisher, _files: files };
        let tools =
            ["spin", "allocate", "large", "log-storm", "print-storm", "kv-set-large", "panic", "exit", "not-json"];
        let asked = format!("{}{LIMITS}", ASKED.replace("PORT", "443"));
        let grants =
            Grants { log: true, kv: Some(palyra_package::KvQuota { bytes: 1000, entries: 3 }), ..Grants::default() };
        world.install(skill::probe("lab/probe", "1.0.0", &tools, &asked), grants).await;
        let recursion = skill::small("(func $deep (call $deep) (call $deep))", "(call $deep)");
        world.install(skill::package("lab/deep", "1.0.0", &["run"], LIMITS, recursion), Grants::default()).await;
        let table = skill::small(
            "(table $t 1 funcref)",
            "(loop $more (if (i32.eq (table.grow $t (ref.null func) (i32.const 4096)) (i32.const -1)) (then unreachable)) (br $more))",
        );
        world.install(skill::package("lab/table", "1.0.0", &["run"], LIMITS, table), Grants::default()).await;
        world
    }

    async fn install(&self, archive: Vec<u8>, grants: Grants) {
        self.publisher.install(&self.lab.gate, archive, Some(grants)).await.unwrap();
    }

    async fn call(&self, tool: &str, text: &str) -> Completed {
        self.lab.gate.run(self.lab.call(tool, json!({ "text": text }))).await.unwrap()
    }
}

/// What attacks come to: the tool, what it is given, and the word that it ends with.
const ATTACKS: [(&str, &str, &str); 9] = [
    ("skill.lab.probe.spin", "", "computed_too_long"),
    ("skill.lab.probe.allocate", "1000000000", "out_of_memory"),
    ("skill.lab.probe.large", "1000000", "output_too_large"),
    ("skill.lab.probe.log-storm", "x", "too_many_host_calls"),
    ("skill.lab.probe.print-storm", "x", "too_many_host_calls"),
    ("skill.lab.probe.kv-set-large", "1000000", "handed_too_much"),
    ("skill.lab.probe.panic", "x", "trapped"),
    ("skill.lab.deep.run", "", "stack_overflow"),
    ("skill.lab.table.run", "", "table_too_large"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attack_ends_with_an_error_of_its_own() {
    let world = World::new().await;
    for (tool, text, expected) in ATTACKS {
        let done = world.call(tool, text).await;
        let Output::Value { value } = &done.output else { panic!("{tool}: {:?}", done.output) };
        assert_eq!(value["error"]["code"], *expected, "{tool}: {value}");
        let limited = !["trapped"].contains(&expected);
        assert_eq!(done.receipt.attestation.ending == Ending::LimitExceeded, limited, "{tool}");
    }
}

/// All of them at once, again and again, for two seconds. Somebody else calls meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_answered_in_time_while_skills_attack() {
    let world = World::new().await;
    // Each is compiled and loaded by now.
    for (tool, text, _) in ATTACKS {
        world.call(tool, text).await;
    }
    let over = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = ATTACKS
        .iter()
        .cycle()
        .take(27)
        .map(|(tool, text, _)| attack(world.lab.gate.clone(), &world.lab, tool, text, Arc::clone(&over)))
        .collect();
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        world.lab.gate.run(world.lab.call("daemon.status", json!({}))).await.unwrap();
        times.push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    over.store(true, Ordering::SeqCst);
    let mut attacks = 0;
    for attacker in attackers {
        attacks += attacker.await.unwrap();
    }
    times.sort_unstable();
    let late = times[times.len() * 95 / 100];
    println!(
        "{attacks} attacks, {} answers: {:?} in the middle, {late:?} of 95, {:?} at the most",
        times.len(),
        times[times.len() / 2],
        times.last()
    );
    assert!(attacks > 27, "{attacks}");
    assert!(late < Duration::from_millis(100), "{late:?}");
}

/// Holding a value to this schema doubles with each level of the value.
const DOUBLING: &str = r##"
[[tool]]
name = "run"
summary = "doubles"
[tool.input]
type = "object"
properties = { leaf = { type = "string" } }
allOf = [{ properties = { a = { "$ref" = "#" } } }, { properties = { a = { "$ref" = "#" } } }]
"##;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_work_without_end_holds_up_nobody() {
    let world = World::new().await;
    let manifest = format!(
        "id = \"lab/doubling\"\nversion = \"1.0.0\"\npublisher = \"lab\"\nlicense = \"Apache-2.0\"\nsummary = \"doubles\"\n{DOUBLING}"
    );
    let files = [("skill.toml".to_owned(), manifest.into_bytes()), ("skill.wasm".to_owned(), skill::guest_small())];
    world.install(palyra_package::archive::pack(&files.into()).unwrap(), Grants::default()).await;
    let nested = |levels| (0..levels).fold(json!({ "leaf": 1 }), |inner, _| json!({ "a": inner }));
    let gate = &world.lab.gate;
    let misfit = gate.run(world.lab.call("skill.lab.doubling.run", nested(1))).await.unwrap_err();
    assert!(misfit.to_string().contains("must be text"), "{misfit}");
    let attacks: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn({
                let (gate, call) = (gate.clone(), world.lab.call("skill.lab.doubling.run", nested(55)));
                async move { gate.run(call).await.unwrap_err() }
            })
        })
        .collect();
    let begun = Instant::now();
    gate.run(world.lab.call("daemon.status", json!({}))).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    for attack in attacks {
        let refused = attack.await.unwrap();
        assert!(refused.to_string().contains("there is too much of them to tell where"), "{refused}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

fn attack(gate: Gate, lab: &Lab, tool: &str, text: &str, over: Arc<AtomicBool>) -> tokio::task::JoinHandle<usize> {
    let proposal = lab.call(tool, json!({ "text": text }));
    tokio::spawn(async move {
        let mut count = 0;
        while !over.load(Ordering::SeqCst) {
            let call = palyra_types::id::CallId::generate(gate.clock().now(), gate.entropy().as_ref()).unwrap();
            gate.run(palyra_gate::ToolProposal { call, ..proposal.clone() }).await.unwrap();
            count += 1;
        }
        count
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_imports_more_than_it_asks_for_or_is_no_program_is_not_installed() {
    let world = World::new().await;
    let install = |archive: Vec<u8>| {
        let signature = Some(world.publisher.sign(&archive));
        let installation = Installation { archive, signature, grants: None, options: InstallOptions::default() };
        let gate = world.lab.gate.clone();
        async move { gate.install_skill(installation, &operator()).await.unwrap_err() }
    };
    let silent = skill::probe("lab/silent", "1.0.0", &["echo"], "");
    let refused = install(silent).await;
    assert!(matches!(refused, SkillRefusal::Package(PackageError::AsksForLess(_))), "{refused}");
    for program in [b"\0asm".to_vec(), b"MZ".to_vec(), Vec::new(), skill::guest_small()[..200].to_vec()] {
        let refused = install(skill::package("lab/none", "1.0.0", &["run"], "", program)).await;
        assert!(matches!(refused, SkillRefusal::Package(_)), "{refused}");
    }
    let foreign = r#"(component (import "evil:host/shell@1.0.0" (instance (export "run" (func)))))"#;
    let refused = install(skill::package("lab/foreign", "1.0.0", &["run"], "", wat::parse_str(foreign).unwrap())).await;
    assert!(matches!(refused, SkillRefusal::Package(_)), "{refused}");
    let names: Vec<ToolName> = world.lab.gate.registry().definitions().map(|one| one.name().clone()).collect();
    assert!(
        names
            .iter()
            .all(|name| !name.as_str().starts_with("skill.lab.none") && !name.as_str().starts_with("skill.lab.silent"))
    );
}
