//! `kill -9` at any moment: the file always opens, and holds all that was said to be saved and at most one change more.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use palyra_access::{FileStore, RegistryStore, document};

#[test]
fn no_kill_loses_what_was_committed_or_leaves_a_file_that_does_not_open() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    println!("the seed is {random:#x}");
    let (mut last, mut rounds) = (0, 0);
    while last < 500 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (lines, micros) = ((random >> 33) % 24, (random >> 45) % 3_000);
        let said = run_and_kill(&path, lines, Duration::from_micros(micros));
        last = said.unwrap_or(last);
        rounds += 1;
        let found = revision(&path);
        let saved = found.unwrap_or_default();
        // Founding is the first change, and nothing is said of it.
        assert!((last..=last.max(1) + 1).contains(&saved), "{last} was said, and {saved} is there");
        last = saved;
        assert!(rounds < 1_000, "the writer says nothing");
    }
    assert!(rounds > 10, "only {rounds} kills");
}

/// Starts the writer, reads so many lines, waits a moment, and kills it. Returns the last revision that it said.
fn run_and_kill(path: &Path, lines: u64, moment: Duration) -> Option<u64> {
    let mut child = Command::new(writer())
        .arg(path)
        .arg("1000")
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the example is built with the tests");
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = None;
    for _ in 0..lines {
        last = Some(said.next().expect("the writer ended by itself").unwrap().parse().unwrap());
    }
    std::thread::sleep(moment);
    child.kill().unwrap();
    child.wait().unwrap();
    said.map_while(Result::ok).filter_map(|line| line.parse().ok()).last().or(last)
}

/// The revision that is in the file, if there is one.
fn revision(path: &Path) -> Option<u64> {
    let document = FileStore::open(path).unwrap().load().unwrap()?;
    Some(document::decode(&document).unwrap().1)
}

/// The example, which is built beside the tests.
pub fn writer() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples/registry_writer")
}
