//! Bytes that somebody bent: thousands of changed manifests, archives, programs and packages, each through the same function that the
//! fuzzer in `fuzz/` calls. The changes come from a seed, so that a failure can be had again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test stops at the first surprise, and builds its programs with cargo"
)]

mod entries;
#[path = "../probing/machine.rs"]
#[expect(dead_code, reason = "only where the canary is matters here")]
mod machine;
mod mutator;
#[path = "../probing/programs.rs"]
mod programs;
mod seeds;
#[path = "../probing/witness.rs"]
mod witness;

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use crate::{entries::Reached, mutator::Mutator};

#[test]
fn bent_manifests_are_refused_or_hold_together() {
    let reached = bend(3_000, &seeds::manifests(), entries::manifest, |_, bytes| bytes);
    assert!(reached[&Reached::Nothing] > 500 && reached[&Reached::Read] > 100, "{reached:?}");
}

#[test]
fn bent_archives_are_refused_or_spelt_in_the_one_way() {
    let reached = bend(3_000, &seeds::packages(), entries::archive, repaired);
    assert!(reached[&Reached::Nothing] > 500 && reached[&Reached::Read] > 100, "{reached:?}");
}

#[test]
fn bent_programs_are_refused_or_run_within_their_limits() {
    let reached = bend(2_000, &seeds::programs(), entries::component, |_, bytes| bytes);
    assert!(reached[&Reached::Nothing] > 500 && reached[&Reached::Ran] > 40, "{reached:?}");
}

#[test]
fn bent_packages_are_refused_or_run_within_their_limits() {
    let reached = bend(2_000, &seeds::packages(), entries::package, repaired);
    assert!(reached[&Reached::Nothing] > 500 && reached[&Reached::Ran] > 40, "{reached:?}");
}

#[test]
fn bent_example_skills_are_refused_or_run_within_their_limits() {
    // Few, because what is accepted is compiled, and these are large.
    let reached = bend(40, &seeds::examples(), entries::package, repaired);
    assert!(reached[&Reached::Nothing] > 20, "{reached:?}");
    let reached = bend(1_000, &seeds::examples(), entries::archive, repaired);
    assert!(reached[&Reached::Nothing] > 500 && reached[&Reached::Read] > 10, "{reached:?}");
}

#[test]
fn what_is_not_bent_is_accepted() {
    let reached: Vec<Reached> = seeds::manifests().iter().map(|bytes| entries::manifest(bytes)).collect();
    assert!(reached.iter().all(|&reached| reached == Reached::Read), "{reached:?}");
    let reached: Vec<Reached> = seeds::packages().iter().map(|bytes| entries::archive(bytes)).collect();
    assert!(reached.iter().all(|&reached| reached == Reached::Read), "{reached:?}");
    let reached: Vec<Reached> = seeds::packages().iter().map(|bytes| entries::package(bytes)).collect();
    assert!(reached.iter().all(|&reached| reached == Reached::Ran), "{reached:?}");
    let reached: Vec<Reached> = seeds::programs().iter().map(|bytes| entries::component(bytes)).collect();
    assert!(reached.iter().all(|&reached| reached == Reached::Ran), "{reached:?}");
}

#[test]
#[ignore = "writes what the fuzzer begins with, below `fuzz/corpus`"]
fn a_corpus_for_the_fuzzer() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, inputs) in [
        ("manifest", seeds::manifests()),
        ("archive", seeds::packages()),
        ("component", seeds::programs()),
        ("package", seeds::packages()),
    ] {
        fs::create_dir_all(corpus.join(target)).unwrap();
        for (number, bytes) in inputs.into_iter().enumerate() {
            fs::write(corpus.join(target).join(format!("seed-{number}")), bytes).unwrap();
        }
    }
}

/// Takes so many changed inputs through an entry. Says how many came how far.
fn bend(
    rounds: usize,
    inputs: &[Vec<u8>],
    entry: impl Fn(&[u8]) -> Reached,
    finish: impl Fn(&mut Mutator, Vec<u8>) -> Vec<u8>,
) -> BTreeMap<Reached, usize> {
    let mut mutator = Mutator::new(SEED);
    let mut reached = BTreeMap::new();
    let (mut slowest, began) = (Duration::ZERO, Instant::now());
    for round in 0..rounds {
        let bent = mutator.next(inputs);
        let bent = finish(&mut mutator, bent);
        let begun = processor_time();
        let Ok(came) = catch_unwind(AssertUnwindSafe(|| entry(&bent))) else {
            panic!("round {round} of seed {SEED:#x}: {} bytes", bent.len());
        };
        let took = processor_time() - begun;
        assert!(took < LONGEST, "round {round} of seed {SEED:#x} took {took:?}");
        slowest = slowest.max(took);
        *reached.entry(came).or_default() += 1;
    }
    println!("{rounds} rounds in {:?}, the slowest in {slowest:?}: {reached:?}", began.elapsed());
    reached
}

/// Half of the archives have their checksums put right.
fn repaired(mutator: &mut Mutator, bytes: Vec<u8>) -> Vec<u8> {
    if mutator.one_in(2) { Mutator::with_checksums(bytes) } else { bytes }
}

/// The time that processors have spent on this process, which a machine that is busy with something else does not make longer.
fn processor_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(spent.tv_sec).unwrap(), u32::try_from(spent.tv_nsec).unwrap());
    Duration::new(seconds, nanoseconds)
}

/// What one input may take of processors, compiling and running included.
const LONGEST: Duration = Duration::from_secs(20);
const SEED: u64 = 0x5ca1_ab1e;
