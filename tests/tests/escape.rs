//! Attempts to get out of tier C, each by a real daemon, and each shown to succeed where its defence is switched off.
//!
//! The attacks are in `tests/escape/attacks.c`, the table of them in `cases.rs`. Guarantees that are tried: what is refused is refused in the way
//! that its layer refuses; nothing on the machine has changed afterwards; nothing is left. Each attack is tried once more with what holds it
//! back switched off, and has to be noticed then: a case that cannot fail shows nothing.

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
#[path = "../escape/together.rs"]
mod together;
#[path = "../escape/weaknesses.rs"]
mod weaknesses;
#[path = "../escape/workspaces.rs"]
mod workspaces;

use bench::{Bench, Identity, Ran};
use cases::{Attempt, Case, Held, Receipt};
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
    let begun = Instant::now();
    let (mut failures, mut count) = (String::new(), 0);
    let without_hosts = (Bench::new(identity), cases::KINDS);
    let with_hosts = (Bench::with_hosts(identity, bench::plan()), [cases::HOSTS].as_slice());
    for (bench, kinds) in [without_hosts, with_hosts] {
        let Some(bench) = bench else { return };
        let before = bench.host();
        for case in kinds.iter().flat_map(|kind| kind.cases) {
            let ran = attempt(&bench, case).await;
            let wrong = complaints(&bench, case, &ran, &before);
            println!("{}  {}: {}", if wrong.is_empty() { "ok    " } else { "FAILED" }, case.name, ran.told());
            if !wrong.is_empty() {
                let _ = writeln!(failures, "{}: {}", case.name, wrong.join("; "));
            }
            bench.clean();
            count += 1;
        }
    }
    println!("{count} attacks in {:?}", begun.elapsed());
    assert!(failures.is_empty(), "as {identity:?}:\n{failures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_on_a_root_daemon_is_noticed_where_its_defence_is_switched_off() {
    every_attack_is_noticed(Identity::Root).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_on_an_ordinary_user_s_daemon_is_noticed_where_its_defence_is_switched_off() {
    every_attack_is_noticed(Identity::Ordinary).await;
}

/// The other half: what was refused above is not, or not in the same way, where what holds it is off.
async fn every_attack_is_noticed(identity: Identity) {
    let (mut unnoticed, mut shown, mut unshown) = (String::new(), 0, Vec::new());
    for (defences, cases) in by_defence(identity) {
        let Held::By(defences) = defences else {
            unshown.extend(cases.iter().map(|case| (case.name, defences)));
            continue;
        };
        let plan = bench::plan().variable("PALYRA_WEAKEN", defences);
        let lists = cases.iter().any(|case| cases::HOSTS.cases.iter().any(|one| one.name == case.name));
        let bench = if lists { Bench::with_hosts(identity, plan) } else { Bench::with(identity, plan) };
        let Some(bench) = bench else { return };
        for case in cases {
            let before = bench.host();
            let ran = attempt(&bench, case).await;
            let wrong = complaints(&bench, case, &ran, &before);
            println!("without {defences}: {}: {}", case.name, wrong.join("; "));
            if wrong.is_empty() {
                let _ = writeln!(unnoticed, "without {defences}: {}: {}", case.name, ran.told());
            }
            shown += 1;
            bench.clean();
        }
    }
    println!("{shown} attacks are noticed; {} have nothing that could be switched off: {unshown:#?}", unshown.len());
    assert!(unnoticed.is_empty(), "as {identity:?}, these cases cannot fail:\n{unnoticed}");
}

/// The attacks by what holds them back.
fn by_defence(identity: Identity) -> Vec<(Held, Vec<&'static Case>)> {
    let mut found: Vec<(Held, Vec<&'static Case>)> = Vec::new();
    for kind in cases::KINDS.iter().chain([&cases::HOSTS]) {
        for case in kind.cases {
            let held = kind.held(case, identity);
            match found.iter_mut().find(|(one, _)| *one == held) {
                Some((_, cases)) => cases.push(case),
                None => found.push((held, vec![case])),
            }
        }
    }
    found
}

async fn attempt(bench: &Bench, case: &Case) -> Ran {
    match case.attempt {
        Attempt::Attack([]) => bench.attack(&[case.name]).await,
        Attempt::Attack(args) => bench.attack(args).await,
        Attempt::Shell(line) => bench.shell(line).await,
    }
}

/// What is wrong with what came of an attack.
fn complaints(bench: &Bench, case: &Case, ran: &Ran, before: &host::Host) -> Vec<String> {
    let mut wrong = bench.host().changes(before);
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
    let reasons = ran.reasons();
    let is_told = match case.receipt {
        Receipt::Any => true,
        Receipt::SystemCall => reasons.iter().any(|reason| reason["reason"] == "system_calls"),
        Receipt::Connection(kind) => reasons.iter().any(|reason| reason["refusal"]["kind"] == kind),
    };
    if !is_told {
        wrong.push(format!("the receipt tells nothing of {:?}: {reasons:?}", case.receipt));
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
