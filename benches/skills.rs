//! What a skill costs, in one run: a warm call next to the same component on wasmtime itself; many calls at once; a call and a start among a thousand
//! installed skills next to one; and what counting costs a tight loop and the example skills. A missed target ends the program with an error.
//!
//! The floor is wasmtime with a pool, a prepared instance and nothing that could stop a skill: instantiate, call, drop. A pool can be set up in
//! two ways, as wasmtime does it by itself and as Palyra does it, and the faster of the two counts.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement that cannot be set up ends"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use palyra_benches::{
    daemon::Daemon,
    judge, median, middle, millis,
    place::{Place, PlacePlan, directory},
};
use palyra_gate::{
    Output,
    skills::{SkillCompiler, SkillsGround},
};
use palyra_package::{Grants, Metering, Package, PublisherName, SecretSigningKey, SkillLimits, archive};
use palyra_skills::{
    artifact::ArtifactStore,
    compile::{CompileRequest, compile},
    engine::{EngineOptions, LoadedSkill, SkillCall, SkillEngine},
    host::{FileEntry, HostRefusal, HttpRequest, HttpResponse, LogLevel, SkillHost},
    store::{InstallOptions, SkillChange, SkillStore},
};
use palyra_tests::skill::{example, guest_small, small};
use palyra_types::{AbsolutePath, Principal, Sha256Digest, clock::SystemClock, entropy::SystemEntropy};
use serde_json::json;
use tokio::runtime::Runtime;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store,
    component::{Component, ComponentType, InstancePre, Lift, Linker},
};

fn main() -> std::process::ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let warm = warm(&runtime);
    let crowd = crowd(&runtime);
    metering(&runtime);
    let among = among();
    judge(&[
        ("a warm call takes ≤ 2 times of wasmtime itself, for a component of Rust", warm <= 2.0),
        ("of 80 calls at once, the 99th of a hundred takes ≤ 10 times of the middle one", crowd <= 10.0),
        ("a call among 1 000 installed skills takes ≤ 1.2 times of one alone", among.call <= 1.2),
        ("a start with 1 000 installed skills takes ≤ 1.2 times of one with none", among.start <= 1.2),
    ])
}

/// The failure of a tool, as the world has it.
#[derive(ComponentType, Lift)]
#[component(record)]
#[expect(dead_code, reason = "it is lifted, and nobody looks")]
struct Failure {
    code: String,
    message: String,
}

/// Wasmtime itself.
struct Raw {
    engine: Engine,
    pre: InstancePre<()>,
}

/// How a pool is set up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// As wasmtime does it by itself.
    Usual,
    /// As Palyra does it: what a call wrote is zeroed, and not given back to the kernel.
    Ours,
}

impl Raw {
    fn new(component: &[u8], setup: Setup) -> Self {
        let mut config = Config::new();
        let mut pool = PoolingAllocationConfig::default();
        pool.total_component_instances(128)
            .total_core_instances(512)
            .total_memories(128)
            .total_tables(512)
            .total_stacks(128);
        if setup == Setup::Ours {
            pool.linear_memory_keep_resident(1 << 20).table_keep_resident(1 << 20).pagemap_scan(Enabled::Auto);
        }
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config).expect("an engine");
        let component = Component::new(&engine, component).expect("a component");
        let mut linker = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component).expect("imports");
        let pre = linker.instantiate_pre(&component).expect("an instance");
        Self { engine, pre }
    }

    async fn call(&self, tool: &str, input: &str) -> String {
        let mut store = Store::new(&self.engine, ());
        let instance = self.pre.instantiate_async(&mut store).await.expect("an instance");
        let run =
            instance.get_typed_func::<(&str, &str), (Result<String, Failure>,)>(&mut store, "run").expect("a function");
        let (answer,) = run.call_async(&mut store, (tool, input)).await.expect("a call");
        answer.ok().expect("an answer")
    }
}

/// Ours.
struct Own {
    engine: SkillEngine,
    skill: Arc<LoadedSkill>,
    limits: SkillLimits,
}

impl Own {
    fn new(component: &[u8], metering: Metering) -> Self {
        let home = directory();
        let artifacts = ArtifactStore::open(&home.path().join("artifacts"), &SystemEntropy).expect("a directory");
        let digest = Sha256Digest::of(component);
        let compiled = compile(&CompileRequest { wasm: component.to_vec(), metering }).expect("it compiles");
        artifacts.put(digest, metering, &compiled).expect("a file");
        let artifact = artifacts.get(digest, metering).expect("it is authentic").expect("it is there");
        let engine = SkillEngine::new(EngineOptions::default()).expect("an engine");
        let skill = engine.load(artifact, "measurement").expect("it loads");
        let limits =
            SkillLimits { metering, cpu_ms: 600_000, wall_ms: 600_000, fuel: u64::MAX / 2, ..SkillLimits::default() };
        Self { engine, skill, limits }
    }

    async fn call(&self, tool: &str, input: &str) -> String {
        let call = SkillCall {
            skill: Arc::clone(&self.skill),
            id: "palyra/measured".to_owned(),
            tool: tool.to_owned(),
            input: input.to_owned(),
            grants: Arc::new(Grants::default()),
            limits: self.limits,
            host: Arc::new(Nothing),
            record: Some(1 << 20),
        };
        self.engine.call(call).await.answer.expect("an answer")
    }
}

/// How much longer a warm call takes than on wasmtime itself.
fn warm(runtime: &Runtime) -> f64 {
    let component = text_diff();
    let raw = [Setup::Usual, Setup::Ours].map(|setup| Raw::new(&component, setup));
    let own = Own::new(&component, Metering::Epoch);
    let input = json!({ "before": "a\nb\n", "after": "a\nc\n" }).to_string();
    assert_eq!(runtime.block_on(raw[0].call("diff", &input)), runtime.block_on(own.call("diff", &input)));
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(p50(runtime, CALLS, || raw[0].call("diff", &input)));
        times[1].push(p50(runtime, CALLS, || raw[1].call("diff", &input)));
        times[2].push(p50(runtime, CALLS, || own.call("diff", &input)));
    }
    let [usual, tuned, ours] = times.map(|times| micros(median(times)));
    println!("a warm call of a Rust component     {ours:>8.1} µs");
    println!("  on wasmtime, its own pool         {usual:>8.1} µs   {:.2} times", ours / usual);
    println!("  on wasmtime, a pool like ours     {tuned:>8.1} µs   {:.2} times", ours / tuned);
    ours / usual.min(tuned)
}

fn p50<F: Future<Output = String>>(runtime: &Runtime, count: usize, call: impl Fn() -> F) -> Duration {
    runtime.block_on(async {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            let _ = call().await;
            times.push(begun.elapsed());
        }
        median(times)
    })
}

/// How much longer than the middle one the slowest of a hundred calls takes, 80 at a time.
fn crowd(runtime: &Runtime) -> f64 {
    let own = Arc::new(Own::new(&text_diff(), Metering::Epoch));
    let input = json!({ "before": "a\nb\n", "after": "a\nc\n" }).to_string();
    let mut times: Vec<Duration> = runtime.block_on(async {
        let callers = (0..CROWD).map(|_| {
            let (own, input) = (Arc::clone(&own), input.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..CALLS_EACH {
                    let begun = Instant::now();
                    let _ = own.call("diff", &input).await;
                    times.push(begun.elapsed());
                }
                times
            })
        });
        let callers: Vec<_> = callers.collect();
        let mut times = Vec::new();
        for caller in callers {
            times.extend(caller.await.expect("a caller"));
        }
        times
    });
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (middle, late) = (at(0.5), at(0.99));
    println!(
        "{CROWD} calls at once                     {:>8.2} ms in the middle, {:.2} ms the 99th of a hundred: {:.2} times",
        millis(middle),
        millis(late),
        late.as_secs_f64() / middle.as_secs_f64()
    );
    late.as_secs_f64() / middle.as_secs_f64()
}

/// What counting costs.
fn metering(runtime: &Runtime) {
    let lines = |every: usize| (0..3_000).map(|line| format!("line {}\n", line * 7 % every)).collect::<String>();
    let diff = json!({ "before": lines(911), "after": lines(907) }).to_string();
    let people: Vec<_> = (0..3_000).map(|one| json!({ "name": format!("n{one}"), "age": one % 90 })).collect();
    let query =
        json!({ "data": people, "query": "group_by(.age) | map({age: .[0].age, count: length}) | sort_by(.count)" });
    metering_of_example(runtime, "text-diff", "diff", &diff);
    metering_of_example(runtime, "json-query", "query", &query.to_string());
    metering_of_loop(runtime);
}

fn metering_of_example(runtime: &Runtime, name: &str, tool: &str, input: &str) {
    let component = Package::read(&example(name)).expect("a package").component.to_vec();
    let raw = Raw::new(&component, Setup::Ours);
    let [epoch, fuel] = [Metering::Epoch, Metering::Fuel].map(|metering| Own::new(&component, metering));
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(p50(runtime, 5, || raw.call(tool, input)).as_secs_f64());
        times[1].push(p50(runtime, 5, || epoch.call(tool, input)).as_secs_f64());
        times[2].push(p50(runtime, 5, || fuel.call(tool, input)).as_secs_f64());
    }
    told_metering(&format!("much work for {name}"), times.map(middle));
}

fn told_metering(what: &str, [none, epoch, fuel]: [f64; 3]) {
    println!("{what:<36}{:>8.2} ms   when nothing can stop it", none * 1e3);
    println!("  metered by ticks                  {:>8.2} ms   {:.2} times", epoch * 1e3, epoch / none);
    println!("  metered by fuel                   {:>8.2} ms   {:.2} times", fuel * 1e3, fuel / none);
}

/// What counting costs a tight loop.
fn metering_of_loop(runtime: &Runtime) {
    let component = tight();
    let raw = Raw01::new(&component);
    let [epoch, fuel] = [Metering::Epoch, Metering::Fuel].map(|metering| Own::new(&component, metering));
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(p50(runtime, 3, || raw.call("t", "{}")).as_secs_f64());
        times[1].push(p50(runtime, 3, || epoch.call("t", "{}")).as_secs_f64());
        times[2].push(p50(runtime, 3, || fuel.call("t", "{}")).as_secs_f64());
    }
    told_metering("a tight loop", times.map(middle));
}

/// Wasmtime itself with a component of the smallest world.
struct Raw01(Raw);

impl Raw01 {
    fn new(component: &[u8]) -> Self {
        Self(Raw::new(component, Setup::Ours))
    }

    async fn call(&self, tool: &str, input: &str) -> String {
        let mut store = Store::new(&self.0.engine, ());
        let instance = self.0.pre.instantiate_async(&mut store).await.expect("an instance");
        let run =
            instance.get_typed_func::<(&str, &str), (Result<String, String>,)>(&mut store, "run").expect("a function");
        let (answer,) = run.call_async(&mut store, (tool, input)).await.expect("a call");
        answer.expect("an answer")
    }
}

/// How much longer things take among many installed skills.
struct Among {
    call: f64,
    start: f64,
}

fn among() -> Among {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let home = directory();
    let mut calls = Vec::new();
    let mut places = Vec::new();
    for count in [1, MANY] {
        let root = home.path().join(count.to_string());
        fs::create_dir(&root).expect("a directory");
        let place = runtime.block_on(Place::open(PlacePlan { directory: &root, journal: None, config: "", net: None }));
        fill(&root.join("state/skills"), count);
        let program = AbsolutePath::parse("/bin/false").expect("a path");
        let ground = SkillsGround {
            directory: root.join("state/skills"),
            compiler: SkillCompiler { program, args: Vec::new() },
            concurrent_calls: 64,
            all_memory_bytes: 4 << 30,
        };
        runtime.block_on(place.opened.gate.open_skills(ground)).expect("they open");
        places.push(place);
    }
    for _ in 0..ROUNDS {
        for (number, place) in places.iter().enumerate() {
            let mut times = Vec::new();
            for _ in 0..200 {
                let begun = Instant::now();
                let done = runtime.block_on(place.call("skill.many.skill-0.run", json!({})));
                times.push(begun.elapsed());
                assert_eq!(done.output, Output::Value { value: json!({}) });
            }
            calls.resize(2, Vec::new());
            calls[number].push(median(times).as_secs_f64());
        }
    }
    let status = p50_gate(&runtime, &places[0]);
    let [one, many] = [calls[0].clone(), calls[1].clone()].map(middle);
    println!("a call through the gate, one skill  {:>8.3} ms   (daemon.status: {:.3} ms)", one * 1e3, status * 1e3);
    println!("  among {MANY} skills                {:>8.3} ms   {:.2} times", many * 1e3, many / one);
    drop(places);
    let mut starts: [Vec<f64>; 2] = Default::default();
    let mut daemons = [Daemon::start(), Daemon::start()];
    for daemon in &mut daemons {
        daemon.stop();
    }
    fill(&daemons[1].state().join("skills"), MANY);
    for _ in 0..STARTS {
        for (daemon, times) in daemons.iter_mut().zip(&mut starts) {
            times.push(daemon.up().as_secs_f64());
            daemon.stop();
        }
    }
    let [none, all] = starts.map(middle);
    println!("a start with no skills              {:>8.1} ms", none * 1e3);
    println!("  with {MANY}                         {:>8.1} ms   {:.2} times", all * 1e3, all / none);
    Among { call: many / one, start: all / none }
}

fn p50_gate(runtime: &Runtime, place: &Place) -> f64 {
    let mut times = Vec::new();
    for _ in 0..500 {
        let begun = Instant::now();
        let _ = runtime.block_on(place.call("daemon.status", json!({})));
        times.push(begun.elapsed());
    }
    median(times).as_secs_f64()
}

/// Installs so many skills, all of the same program, by the store itself.
fn fill(directory: &Path, count: usize) {
    let wasm = guest_small();
    let store = SkillStore::open(directory, Arc::new(SystemClock::new())).expect("a store");
    let artifacts = ArtifactStore::open(&directory.join("artifacts"), &SystemEntropy).expect("a directory");
    let metering = Metering::Epoch;
    let compiled = compile(&CompileRequest { wasm: wasm.clone(), metering }).expect("it compiles");
    artifacts.put(Sha256Digest::of(&wasm), metering, &compiled).expect("a file");
    let (key, by) = (SecretSigningKey::generate(None).expect("a key"), Principal::parse("user:ada").expect("a user"));
    let publisher = PublisherName::parse("many").expect("a name");
    let trust = SkillChange::Trust { publisher, key: key.public(), by: by.clone() };
    let _ = store.commit(store.prepare(trust).expect("trust")).expect("trust");
    for number in 0..count {
        let manifest = format!(
            "id = \"many/skill-{number}\"\nversion = \"1.0.0\"\npublisher = \"many\"\nlicense = \"MIT\"\nsummary = \"one of many\"\n\
             [[tool]]\nname = \"run\"\nsummary = \"answers\"\ninput = {{ type = \"object\", properties = {{ text = {{ type = \"string\" }} }} }}\n"
        );
        let files =
            BTreeMap::from([("skill.toml".to_owned(), manifest.into_bytes()), ("skill.wasm".to_owned(), wasm.clone())]);
        let packed = archive::pack(&files).expect("an archive");
        let change = SkillChange::Install {
            package: Box::new(Package::read(&packed).expect("a package")),
            signature: Some(key.sign(&packed, "measured").expect("a signature")),
            archive: packed,
            grants: None,
            options: InstallOptions::default(),
            by: by.clone(),
        };
        let _ = store.commit(store.prepare(change).expect("a change")).expect("a change");
    }
}

/// The program of the example `text-diff`.
fn text_diff() -> Vec<u8> {
    Package::read(&example("text-diff")).expect("a package").component.to_vec()
}

/// A component that counts down from a large number.
fn tight() -> Vec<u8> {
    small(
        "",
        "(local $left i32) (local $sum i32)
         (local.set $left (i32.const 50000000))
         (loop $again
           (local.set $sum (i32.xor (i32.mul (local.get $sum) (i32.const 31)) (local.get $left)))
           (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
         (i32.store (i32.const 64) (local.get $sum))",
    )
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A host that has nothing to say.
struct Nothing;

impl SkillHost for Nothing {
    fn now(&self) -> u64 {
        0
    }

    fn monotonic(&self) -> u64 {
        0
    }

    fn random(&self, _: &mut [u8]) -> Result<(), HostRefusal> {
        Err(none())
    }

    fn log(&self, _: LogLevel, _: &str) {}

    fn fetch(&self, _: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn kv_get<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn kv_set<'a>(&'a self, _: &'a str, _: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn kv_delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn kv_keys<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<String>, HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn secret(&self, _: &str) -> Result<String, HostRefusal> {
        Err(none())
    }

    fn file_read<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<u8>, HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn file_write<'a>(&'a self, _: &'a str, _: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn file_list<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<FileEntry>, HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn file_stat<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<FileEntry, HostRefusal>> {
        Box::pin(async { Err(none()) })
    }

    fn file_delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), HostRefusal>> {
        Box::pin(async { Err(none()) })
    }
}

fn none() -> HostRefusal {
    HostRefusal::Absent("there is nothing here".to_owned())
}

const ROUNDS: usize = 9;
const CALLS: usize = 2_000;
const CROWD: usize = 80;
const CALLS_EACH: usize = 200;
const MANY: usize = 1_000;
const STARTS: usize = 9;
