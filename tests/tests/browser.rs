//! The console in a real browser, against a real daemon: what a person sees, and what a page of another origin does not get.
//!
//! The checks themselves are scripts in `tests/browser`, one line each; a failed line fails the test. Chromium, Node and their packages come
//! from `scripts/setup`, and a test fails where one of them is missing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what cannot be set up ends the test")]

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use palyra_gate::PresencePin;
use palyra_tests::daemon::{DaemonLab, DaemonPlan, program};
use palyra_types::visible::{is_hidden, visible, visible_block};

#[test]
fn a_person_answers_in_the_inbox() {
    try_in_a_browser("inbox.mjs");
}

#[test]
fn a_person_pairs_and_revokes_devices() {
    try_in_a_browser("devices.mjs");
}

#[test]
fn a_page_of_another_origin_obtains_nothing() {
    try_in_a_browser("origins.mjs");
}

#[test]
fn a_person_shows_by_a_pin_that_they_are_there() {
    let mut lab = DaemonPlan::default().config("[approvals]\npresence = \"pin\"").make();
    // A first start makes the directory that the PIN is kept in.
    lab.start();
    lab.stop();
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(lab.home().join("identity/presence")).unwrap();
    file.write_all(PresencePin::hash("2718281").unwrap().as_bytes()).unwrap();
    lab.start();
    try_with(&lab, "pin.mjs");
}

#[test]
fn the_page_and_the_daemon_make_the_same_characters_visible() {
    let cases: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(scripts().join("visible.json")).unwrap()).unwrap();
    for (kind, show) in [("line", visible as fn(&str) -> String), ("block", visible_block)] {
        for case in cases[kind].as_array().unwrap() {
            assert_eq!(show(case[0].as_str().unwrap()), case[1].as_str().unwrap());
        }
    }
    let theirs: Vec<(u32, u32)> = serde_json::from_slice(&succeed(node("visible.mjs")).stdout).unwrap();
    assert_eq!(hidden_ranges(), theirs);
}

#[test]
fn the_page_passes_a_type_check() {
    let mut tsc = command(&packages().join("node_modules/.bin/tsc"));
    tsc.arg("--project").arg(scripts());
    succeed(tsc);
}

#[test]
fn the_page_leaves_nothing_to_a_parser_of_markup_and_nothing_to_another_server() {
    for file in std::fs::read_dir(root().join("web/inbox")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http:",
            "https:",
            "style=",
        ] {
            assert!(!text.contains(sink), "{} holds `{sink}`", path.display());
        }
    }
}

fn try_in_a_browser(script: &str) {
    try_with(&DaemonLab::new(), script);
}

fn try_with(lab: &DaemonLab, script: &str) {
    let mut node = node(script);
    node.env("PALYRA_URL", format!("http://{}", lab.local()))
        .env("PALYRA_CONTROL", lab.control().to_string())
        .env("PALYRA_IDENTITY", lab.home().join("identity/device.json"))
        .env("PALYRA_AGENT", lab.agent_token())
        .env("PALYRA_WORKSPACE", "lab")
        .env("PALYRA_PIN", "2718281")
        .env("PALYRA_COMMAND", program("palyra"))
        .env("PALYRA_BROWSER", packages());
    succeed(node);
}

fn hidden_ranges() -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for point in (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|c| is_hidden(*c)).map(u32::from) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == point => *last = point,
            _ => ranges.push((point, point)),
        }
    }
    ranges
}

fn node(script: &str) -> Command {
    let mut node = command(Path::new("node"));
    node.arg(scripts().join(script));
    node
}

#[expect(clippy::disallowed_methods, reason = "a test starts the tools that try the page")]
fn command(program: &Path) -> Command {
    Command::new(program)
}

fn succeed(mut command: Command) -> Output {
    let output = command.output().expect("a tool is missing: run `scripts/setup`");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED")).collect();
    assert!(output.status.success(), "{command:?}\n{}\n\n{said}", failed.join("\n"));
    output
}

/// The packages that `scripts/setup` puts into the target directory, which this test was built in.
fn packages() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found =
        test.ancestors().map(|directory| directory.join("browser")).find(|path| path.join("whole.json").exists());
    found.expect("the Node packages are missing: run `scripts/setup`")
}

fn scripts() -> PathBuf {
    root().join("tests/browser")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
