//! Many calls at once: they share threads and places, and none starves the others.

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_package::SkillLimits;
use palyra_skills::{engine::EngineOptions, outcome::SkillFailure};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{
    guests,
    host::MemoryHost,
    lab::{Lab, everything},
};

#[tokio::test]
async fn a_short_call_answers_soon_while_64_loops_run() {
    let lab = Lab::with(EngineOptions { threads: 2, concurrent_calls: 80, ..EngineOptions::default() });
    let skill = lab.load(&guests::probe());
    let limits = SkillLimits { cpu_ms: 60_000, wall_ms: 60_000, ..SkillLimits::default() };
    let loops = (0..64).map(|_| tokio::spawn(lab.call(&skill).limits(limits).start("spin", "1"))).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut times = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        assert_eq!(lab.call(&skill).answer("echo", "1").await, Ok("1".to_owned()));
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times.sort();
    // The middle, since other programs take the processor away from skills at will.
    assert!(times[10] < Duration::from_millis(100), "{times:?}");
    loops.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_loop_that_nobody_waits_for_gives_its_place_back() {
    let lab = Lab::with(EngineOptions { concurrent_calls: 4, ..EngineOptions::default() });
    let skill = lab.load(&guests::probe());
    for _ in 0..5 {
        let loops = (0..4).map(|_| tokio::spawn(lab.call(&skill).start("spin", "1"))).collect::<Vec<_>>();
        tokio::time::sleep(Duration::from_millis(50)).await;
        loops.iter().for_each(tokio::task::JoinHandle::abort);
        let began = Instant::now();
        assert_eq!(lab.call(&skill).answer("echo", "1").await, Ok("1".to_owned()));
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn whoever_finds_no_place_waits_for_one() {
    let lab = Lab::with(EngineOptions { concurrent_calls: 4, ..EngineOptions::default() });
    let skill = lab.load(&guests::probe());
    let host = Arc::new(MemoryHost { slowness: Duration::from_millis(100), ..MemoryHost::default() });
    let call = || lab.call(&skill).grants(everything()).host(&host).start("fetch", "\"GET https://example.org\"");
    let calls = (0..12).map(|_| tokio::spawn(call())).collect::<Vec<_>>();
    for call in calls {
        assert!(call.await.unwrap().answer.is_ok());
    }
}

#[tokio::test]
async fn whoever_finds_no_place_for_long_is_told() {
    let lab = Lab::with(EngineOptions { concurrent_calls: 4, ..EngineOptions::default() });
    let skill = lab.load(&guests::probe());
    let loops = (0..4).map(|_| tokio::spawn(lab.call(&skill).start("spin", "1"))).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let limits = SkillLimits { wall_ms: 50, ..SkillLimits::default() };
    assert_eq!(lab.call(&skill).limits(limits).answer("echo", "1").await, Err(SkillFailure::NoRoom));
    loops.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn thousands_of_failures_cost_no_place() {
    let lab = Lab::with(EngineOptions { concurrent_calls: 4, ..EngineOptions::default() });
    let skill = lab.load(&guests::probe());
    let limits = SkillLimits { memory_bytes: 4 << 20, ..SkillLimits::default() };
    for _ in 0..300 {
        assert!(lab.call(&skill).answer("panic", "1").await.is_err());
        assert!(lab.call(&skill).limits(limits).answer("allocate", "\"50000000\"").await.is_err());
        assert!(lab.call(&skill).answer("exit", "\"0\"").await.is_err());
    }
    assert_eq!(lab.call(&skill).answer("echo", "1").await, Ok("1".to_owned()));
}

#[tokio::test]
async fn a_host_that_panics_fails_one_call() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let answer = lab.call(&skill).grants(everything()).answer("kv-get", "\"panic\"").await;
    assert_eq!(answer, Err(SkillFailure::Trapped { detail: "the host failed to answer".to_owned() }));
    assert!(lab.call(&skill).grants(everything()).answer("kv-get", "\"a\"").await.is_ok());
}

#[tokio::test]
async fn where_addresses_are_few_there_are_fewer_places() {
    const LIMITED: &str = "PALYRA_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        // A limit holds for a whole process, so this is done in one of its own.
        let test = "crowds::where_addresses_are_few_there_are_fewer_places";
        let mut child = Command::new(std::env::current_exe().unwrap());
        assert!(child.args([test, "--exact"]).env(LIMITED, "1").status().unwrap().success());
        return;
    }
    let limit = Rlimit { current: Some(40 << 30), maximum: Some(40 << 30) };
    setrlimit(Resource::As, limit).unwrap();
    let lab = Lab::with(EngineOptions::default());
    let skill = lab.load(&guests::small("", ""));
    let calls = (0..40).map(|_| tokio::spawn(lab.call(&skill).start("", ""))).collect::<Vec<_>>();
    for call in calls {
        assert_eq!(call.await.unwrap().answer, Ok("{}".to_owned()));
    }
}

#[tokio::test]
async fn pools_of_domains_come_and_go() {
    let lab = Lab::with(EngineOptions { concurrent_calls: 4, most_pools: 2, ..EngineOptions::default() });
    let wasm = guests::small("", "");
    drop(lab.load(&wasm));
    let digest = palyra_types::Sha256Digest::of(&wasm);
    let load = |domain: &str| {
        let artifact = lab.artifacts.get(digest, palyra_package::Metering::Epoch).unwrap().unwrap();
        lab.engine.load(artifact, domain)
    };
    for domain in 0..20 {
        let skill = load(&domain.to_string()).unwrap();
        assert_eq!(lab.call(&skill).answer("", "").await, Ok("{}".to_owned()));
    }
    let (_one, _two) = (load("one").unwrap(), load("two").unwrap());
    let error = load("three").unwrap_err();
    assert!(matches!(error, palyra_skills::engine::EngineError::TooManyDomains { limit: 2 }), "{error}");
}
