//! Attempts to get out of tier C, each by a real daemon, and each shown to succeed where its defence is switched off.
//!
//! The attacks are in `tests/escape/attacks.c`, the table of them in `cases.rs`. Guarantees that are tried: what is refused is refused in the way
//! that its layer refuses; nothing on the machine has changed afterwards; nothing is left.
//! Does not: try allowed hosts. What guards those has tests of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; what is attacked is started here"
)]

#[path = "../escape/bench.rs"]
mod bench;
#[path = "../escape/cases.rs"]
mod cases;
#[path = "../escape/host.rs"]
mod host;
#[path = "../escape/leftovers.rs"]
mod leftovers;
#[path = "../escape/planted.rs"]
mod planted;
#[path = "../escape/weaknesses.rs"]
mod weaknesses;

use bench::{Bench, Identity, Ran};
use cases::{Attempt, Case};
use std::{fmt::Write, time::Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_gets_out_of_an_enclosure_of_a_root_daemon() {
    every_attack_is_refused(Identity::Root).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_gets_out_of_an_enclosure_of_an_ordinary_user() {
    every_attack_is_refused(Identity::Ordinary).await;
}

async fn every_attack_is_refused(identity: Identity) {
    let Some(bench) = Bench::new(identity) else { return };
    let begun = Instant::now();
    let before = bench.host();
    let (mut failures, mut count) = (String::new(), 0);
    for case in cases::all() {
        let ran = attempt(&bench, case).await;
        let mut wrong = complaints(&bench, case, &ran);
        wrong.extend(bench.host().changes(&before));
        println!("{}  {}: {}", if wrong.is_empty() { "ok    " } else { "FAILED" }, case.name, ran.told());
        if !wrong.is_empty() {
            let _ = writeln!(failures, "{}: {}", case.name, wrong.join("; "));
        }
        bench.clean();
        count += 1;
    }
    println!("{count} attacks in {:?}", begun.elapsed());
    assert!(failures.is_empty(), "as {identity:?}:\n{failures}");
}

async fn attempt(bench: &Bench, case: &Case) -> Ran {
    match case.attempt {
        Attempt::Attack([]) => bench.attack(&[case.name]).await,
        Attempt::Attack(args) => bench.attack(args).await,
        Attempt::Shell(line) => bench.shell(line).await,
    }
}

/// What is wrong with what came of an attack.
fn complaints(bench: &Bench, case: &Case, ran: &Ran) -> Vec<String> {
    let mut wrong = Vec::new();
    let expected = case.refusal[usize::from(bench.identity == Identity::Ordinary)];
    let told = ran.told();
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => told.starts_with(beginning),
        None => told.trim() == pattern.trim(),
    };
    if !expected.split('|').map(str::trim_start).any(|pattern| fits(pattern.trim_end())) {
        wrong.push(format!("`{told}` instead of `{expected}` {}", ran.stderr.trim()));
    } else if case.also.is_some_and(|holds| !holds(ran)) {
        wrong.push(format!("`{told}` is not what was bounded"));
    }
    wrong.extend(host::wrong_files(bench.lab.workspace()));
    let is_core =
        |path: &std::path::PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core"));
    wrong.extend(
        host::walk(bench.lab.workspace()).into_iter().find(is_core).map(|path| format!("{} is left", path.display())),
    );
    let left = host::marked(&bench.mark);
    if !left.is_empty() {
        wrong.push(format!("the processes {left:?} are left"));
    }
    if bench.was_reached() {
        wrong.push("a service of the machine was reached".to_owned());
    }
    wrong
}
