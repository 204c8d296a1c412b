//! Each limit ends a call with an error of its own, and only that call.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use palyra_package::{Grants, Metering, SkillLimits};
use palyra_skills::host::LogLevel;
use palyra_skills::{
    engine::{EngineError, EngineOptions},
    outcome::{LogLine, SkillFailure},
};

use crate::{
    guests,
    host::MemoryHost,
    lab::{Lab, everything},
};

const USUAL: fn() -> SkillLimits = SkillLimits::default;

#[tokio::test]
async fn a_loop_without_end_is_stopped_when_it_has_computed_for_long_enough() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let run = lab.call(&skill).limits(SkillLimits { cpu_ms: 60, ..USUAL() }).run("spin", "1").await;
    assert_eq!(run.answer, Err(SkillFailure::ComputedTooLong { limit_ms: 60 }));
    // Of 2 ms each, and a few more until it is noticed.
    assert!((30..60).contains(&run.usage.ticks.unwrap()), "{:?}", run.usage);
    assert_eq!(run.usage.fuel, None);
}

#[tokio::test]
async fn a_loop_without_end_runs_out_of_fuel() {
    let lab = Lab::new();
    let skill = lab.load_metered(&guests::probe(), Metering::Fuel);
    let run = lab.call(&skill).limits(SkillLimits { fuel: 20_000_000, ..USUAL() }).run("spin", "1").await;
    assert_eq!(run.answer, Err(SkillFailure::OutOfFuel { limit: 20_000_000 }));
    assert_eq!((run.usage.fuel, run.usage.ticks), (Some(20_000_000), None));
}

#[tokio::test]
async fn the_same_call_takes_the_same_fuel() {
    let lab = Lab::new();
    let skill = lab.load_metered(&guests::probe(), Metering::Fuel);
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.push(lab.call(&skill).run("echo", "{}").await.usage.fuel.unwrap());
    }
    assert!(taken[0] > 0);
    assert_eq!(taken[0], taken[1]);
}

#[tokio::test]
async fn waiting_is_bounded_by_the_wall_clock_and_computing_is_not_charged_for_it() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let host = Arc::new(MemoryHost { slowness: Duration::from_secs(60), ..MemoryHost::default() });
    let call = lab.call(&skill).grants(everything()).host(&host);
    let run = call
        .limits(SkillLimits { wall_ms: 80, cpu_ms: 10, ..USUAL() })
        .run("fetch", "\"GET https://example.org\"")
        .await;
    assert_eq!(run.answer, Err(SkillFailure::TookTooLong { limit_ms: 80 }));
    assert_eq!(run.usage.host_calls.get("http.fetch"), Some(&1));
}

#[tokio::test]
async fn the_time_that_people_take_does_not_count() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let host = Arc::new(MemoryHost { slowness: Duration::from_millis(300), ..MemoryHost::default() });
    host.waited.store(300, Ordering::SeqCst);
    let call = lab.call(&skill).grants(everything()).host(&host).limits(SkillLimits { wall_ms: 150, ..USUAL() });
    assert!(call.answer("fetch", "\"GET https://example.org\"").await.is_ok());
}

#[tokio::test]
async fn a_memory_bomb_is_refused_memory_and_told_the_limit() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let limits = SkillLimits { memory_bytes: 8 << 20, ..USUAL() };
    let run = lab.call(&skill).limits(limits).run("allocate", "\"50000000\"").await;
    assert_eq!(run.answer, Err(SkillFailure::OutOfMemory { limit: 8 << 20 }));
    assert!(run.usage.memory_bytes <= 8 << 20, "{}", run.usage.memory_bytes);
    assert_eq!(lab.call(&skill).limits(limits).answer("allocate", "\"1000000\"").await, Ok("\"1000000\"".to_owned()));
}

#[tokio::test]
async fn a_skill_that_copes_without_the_memory_answers() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let limits = SkillLimits { memory_bytes: 8 << 20, ..USUAL() };
    assert_eq!(
        lab.call(&skill).limits(limits).answer("try-allocate", "\"50000000\"").await,
        Ok("\"false\"".to_owned())
    );
}

#[tokio::test]
async fn a_skill_that_begins_with_too_much_memory_does_not_begin() {
    let lab = Lab::new();
    let skill = lab.load(&guests::small_with("200", "", ""));
    let limits = SkillLimits { memory_bytes: 100 << 16, ..USUAL() };
    assert_eq!(
        lab.call(&skill).limits(limits).answer("", "").await,
        Err(SkillFailure::OutOfMemory { limit: 100 << 16 })
    );
    assert!(lab.call(&skill).answer("", "").await.is_ok());
}

#[tokio::test]
async fn a_table_bomb_is_refused_entries_and_told_the_limit() {
    let lab = Lab::new();
    let grow = "(if (i32.eq (table.grow $t (ref.null func) (i32.const 5000)) (i32.const -1)) (then unreachable))";
    let skill = lab.load(&guests::small("(table $t 1 funcref)", grow));
    let limits = SkillLimits { table_entries: 1_000, ..USUAL() };
    assert_eq!(lab.call(&skill).limits(limits).answer("", "").await, Err(SkillFailure::TableTooLarge { limit: 1_000 }));
    assert_eq!(lab.call(&skill).answer("", "").await, Ok("{}".to_owned()));
}

#[tokio::test]
async fn a_table_larger_than_the_pool_is_refused_whatever_the_limits_say() {
    let lab = Lab::new();
    let grow = "(drop (table.grow $t (ref.null func) (i32.const 100000000))) (if (i32.lt_s (table.size $t) (i32.const 5)) (then unreachable))";
    let skill = lab.load(&guests::small("(table $t 1 funcref)", grow));
    let limits = SkillLimits { table_entries: u64::MAX, memory_bytes: u64::MAX, ..USUAL() };
    assert_eq!(
        lab.call(&skill).limits(limits).answer("", "").await,
        Err(SkillFailure::TableTooLarge { limit: 100_000 })
    );
}

#[tokio::test]
async fn recursion_without_end_runs_over_the_stack() {
    let lab = Lab::new();
    let skill = lab.load(&guests::small(
        "(func $deep (param i32) (result i32) (i32.add (call $deep (local.get 0)) (i32.const 1)))",
        "(drop (call $deep (i32.const 1)))",
    ));
    assert_eq!(lab.call(&skill).answer("", "").await, Err(SkillFailure::StackOverflow));
    let skill = lab.load_metered(
        &guests::small(
            "(func $deep (param i32) (result i32) (i32.add (call $deep (local.get 0)) (i32.const 1)))",
            "(drop (call $deep (i32.const 1)))",
        ),
        Metering::Fuel,
    );
    assert_eq!(lab.call(&skill).answer("", "").await, Err(SkillFailure::StackOverflow));
}

#[tokio::test]
async fn an_answer_larger_than_it_may_be_is_refused() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let limits = SkillLimits { output_bytes: 1_000, host_bytes: 100_000, ..USUAL() };
    let refused = Err(SkillFailure::OutputTooLarge { limit: 1_000 });
    assert_eq!(lab.call(&skill).limits(limits).answer("large", "\"999\"").await, refused);
    assert!(lab.call(&skill).limits(limits).answer("large", "\"998\"").await.is_ok());
    // This one is not even copied.
    assert_eq!(lab.call(&skill).limits(limits).answer("large", "\"1000000\"").await, refused);
    let command = lab.load(&guests::command());
    assert_eq!(lab.call(&command).limits(limits).answer("large", "1").await, refused);
}

#[tokio::test]
async fn handing_the_host_more_than_it_takes_ends_the_call() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let limits = SkillLimits { host_bytes: 100_000, output_bytes: 1_000, ..USUAL() };
    let call = || lab.call(&skill).grants(everything()).limits(limits);
    let refused = Err(SkillFailure::HandedTooMuch { limit: 100_000 });
    assert_eq!(call().answer("kv-set-large", "\"1000000\"").await, refused);
    // Between what the store takes at once and what the call may hand over.
    let limits = SkillLimits { host_bytes: 1_000, output_bytes: 100_000, ..USUAL() };
    let call = lab.call(&skill).grants(everything()).limits(limits);
    assert_eq!(call.answer("kv-set-large", "\"5000\"").await, Err(SkillFailure::HandedTooMuch { limit: 1_000 }));
    let call = lab.call(&skill).grants(everything());
    assert_eq!(call.answer("random", "\"65537\"").await, Err(SkillFailure::HandedTooMuch { limit: 65_536 }));
}

#[tokio::test]
async fn storms_of_host_calls_end() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let limits = SkillLimits { host_calls: 500, ..USUAL() };
    let ended = Err(SkillFailure::TooManyHostCalls { limit: 500 });
    let run = lab.call(&skill).grants(everything()).limits(limits).run("log-storm", "\"x\"").await;
    assert_eq!((&run.answer, run.usage.host_calls["log.write"]), (&ended, 500));
    assert_eq!(lab.call(&skill).limits(limits).answer("print-storm", "\"x\"").await, ended);
}

#[tokio::test]
async fn a_log_has_an_end_and_the_call_goes_on() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let grants = Grants { log: true, ..Grants::default() };
    let run =
        lab.call(&skill).grants(grants).limits(SkillLimits { log_bytes: 4, ..USUAL() }).run("log", "\"a word\"").await;
    assert_eq!(run.answer, Ok("\"\\\"logged\\\"\"".to_owned()));
    assert_eq!(run.log, [LogLine { level: LogLevel::Warn, message: "a wo".to_owned() }]);
    assert!(run.log_truncated);
}

#[tokio::test]
async fn an_answer_that_is_no_json_is_refused() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    for text in ["\"plain words\"", "\"{'a': 1}\"", "\"\""] {
        let answer = lab.call(&skill).answer("not-json", text).await;
        assert!(matches!(answer, Err(SkillFailure::NotJson { .. })), "{text}: {answer:?}");
    }
}

#[tokio::test]
async fn a_skill_that_panics_or_exits_fails_alone() {
    let lab = Lab::new();
    let skill = lab.load(&guests::probe());
    let run = lab.call(&skill).run("panic", "\"a lost cause\"").await;
    assert!(matches!(&run.answer, Err(SkillFailure::Trapped { .. })), "{:?}", run.answer);
    assert!(run.log.iter().any(|line| line.message.contains("a lost cause")), "{:?}", run.log);
    assert_eq!(lab.call(&skill).answer("exit", "\"0\"").await, Err(SkillFailure::Exited { code: 0 }));
    assert_eq!(lab.call(&skill).answer("exit", "\"3\"").await, Err(SkillFailure::Exited { code: 1 }));
    assert_eq!(lab.call(&skill).answer("echo", "1").await, Ok("1".to_owned()));
}

#[tokio::test]
async fn a_skill_of_too_many_memories_tables_or_instances_is_refused() {
    let lab = Lab::new();
    for (module, count, detail) in [
        ("(core module $m (memory 1))", 5, "5 memories, and 4 is the most"),
        ("(core module $m (table 1 funcref))", 17, "17 tables, and 16 is the most"),
    ] {
        let instances = "(core instance (instantiate $m)) ".repeat(count);
        let error = lab.try_load(&wat::parse_str(format!("(component {module} {instances})")).unwrap()).unwrap_err();
        assert!(matches!(&error, EngineError::TooManyInstances { detail: told } if told == detail), "{error}");
    }
    let many = "(core module $e) ".to_owned() + &"(core instance (instantiate $e)) ".repeat(100);
    let skill = lab.load(&guests::beside(&many));
    let answer = lab.call(&skill).answer("", "").await;
    assert!(matches!(&answer, Err(SkillFailure::TooManyInstances { .. })), "{answer:?}");
}

#[tokio::test]
async fn bulk_operations_in_a_row_are_interrupted_too() {
    let lab = Lab::new();
    // Two thousand times 32 MiB without a loop: minutes, if nothing looked at the clock in between.
    let fill = "(memory.fill (i32.const 4096) (i32.const 7) (i32.const 33550336)) ".repeat(2_000);
    let wasm = guests::small_with("512", "", &fill);
    for metering in [Metering::Epoch, Metering::Fuel] {
        let skill = lab.load_metered(&wasm, metering);
        let began = Instant::now();
        let answer = lab.call(&skill).limits(SkillLimits { cpu_ms: 100, wall_ms: 300, ..USUAL() }).answer("", "").await;
        assert!(
            matches!(
                answer,
                Err(SkillFailure::ComputedTooLong { .. }
                    | SkillFailure::TookTooLong { .. }
                    | SkillFailure::OutOfFuel { .. })
            ),
            "{answer:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(2), "{metering}: {:?}", began.elapsed());
    }
}

/// A component that has the host do much for few instructions, without end.
const GREEDY: &str = r#"(component
  (import "wasi:random/insecure@0.2.0" (instance $random
    (export "get-insecure-random-bytes" (func (param "len" u64) (result (list u8))))))
  (core module $shared
    (memory (export "memory") 300)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096)))
  (core instance $shared (instantiate $shared))
  (core func $get (canon lower (func $random "get-insecure-random-bytes")
    (memory (core memory $shared "memory")) (realloc (core func $shared "realloc"))))
  (core module $m
    (import "host" "get" (func $get (param i64 i32)))
    (import "shared" "memory" (memory 1))
    (func (export "run") (param i32 i32 i32 i32) (result i32)
      (loop $more (call $get (i64.const 16000000) (i32.const 64)) (br $more))
      (i32.const 16)))
  (core instance $i (instantiate $m
    (with "host" (instance (export "get" (func $get))))
    (with "shared" (instance $shared))))
  (func (export "run") (param "tool" string) (param "input" string) (result (result string (error string)))
    (canon lift (core func $i "run")
      (memory (core memory $shared "memory")) (realloc (core func $shared "realloc")))))"#;

#[tokio::test]
async fn fuel_is_no_way_round_the_wall_clock_for_whoever_has_the_host_work() {
    let lab = Lab::new();
    let skill = lab.load_metered(&wat::parse_str(GREEDY).unwrap(), Metering::Fuel);
    let begun = Instant::now();
    let run = lab.call(&skill).limits(SkillLimits { wall_ms: 200, ..USUAL() }).run("", "").await;
    assert_eq!(run.answer, Err(SkillFailure::TookTooLong { limit_ms: 200 }));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// A component that has the engine copy much between its parts for few instructions, without end and without the host.
const COPYING: &str = r#"(component
  (component $a
    (core module $m
      (memory (export "memory") 620)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536))
      (func (export "f") (param i32 i32)))
    (core instance $i (instantiate $m))
    (func (export "f") (param "s" string)
      (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")) string-encoding=utf16)))
  (instance $a (instantiate $a))
  (component $b
    (import "f" (func $f (param "s" string)))
    (core module $shared
      (memory (export "memory") 315)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
    (core instance $shared (instantiate $shared))
    (core func $f (canon lower (func $f) (memory (core memory $shared "memory")) string-encoding=utf8))
    (core module $m
      (import "h" "f" (func $f (param i32 i32)))
      (import "h" "memory" (memory 1))
      (func (export "run") (param i32 i32 i32 i32) (result i32)
        (loop $more (call $f (i32.const 65536) (i32.const 20000000)) (br $more))
        (i32.const 16)))
    (core instance $i (instantiate $m
      (with "h" (instance (export "f" (func $f)) (export "memory" (memory $shared "memory"))))))
    (func (export "run") (param "tool" string) (param "input" string) (result (result string (error string)))
      (canon lift (core func $i "run") (memory (core memory $shared "memory")) (realloc (core func $shared "realloc")))))
  (instance $b (instantiate $b (with "f" (func $a "f"))))
  (export "run" (func $b "run")))"#;

#[tokio::test]
async fn fuel_is_no_way_round_the_wall_clock_for_whoever_has_much_copied() {
    let lab = Lab::new();
    let skill = lab.load_metered(&wat::parse_str(COPYING).unwrap(), Metering::Fuel);
    let begun = Instant::now();
    let run = lab.call(&skill).limits(SkillLimits { wall_ms: 200, fuel: u64::MAX / 2, ..USUAL() }).run("", "").await;
    assert_eq!(run.answer, Err(SkillFailure::TookTooLong { limit_ms: 200 }));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn calls_have_no_more_memory_together_than_they_may() {
    let lab = Lab::with(EngineOptions { all_memory_bytes: 24 << 20, ..EngineOptions::default() });
    let skill = lab.load(&guests::small_with("160", "", "(loop $more (br $more))"));
    let first = tokio::spawn(lab.call(&skill).limits(SkillLimits { cpu_ms: 600, ..USUAL() }).start("", ""));
    let second = tokio::spawn(lab.call(&skill).limits(SkillLimits { cpu_ms: 600, ..USUAL() }).start("", ""));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let third = lab.call(&skill).limits(SkillLimits { cpu_ms: 600, ..USUAL() }).run("", "").await;
    assert_eq!(third.answer, Err(SkillFailure::NoMemoryLeft { limit: 24 << 20 }));
    for one in [first, second] {
        assert_eq!(one.await.unwrap().answer, Err(SkillFailure::ComputedTooLong { limit_ms: 600 }));
    }
    let after = lab.call(&skill).limits(SkillLimits { cpu_ms: 10, ..USUAL() }).run("", "").await;
    assert_eq!(after.answer, Err(SkillFailure::ComputedTooLong { limit_ms: 10 }));
}
