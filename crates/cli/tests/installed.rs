//! What is installed is what is used: the state directory, its configuration and its policies, and never a guess.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails; the program under test is started here"
)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Explains running `true` with this state directory.
fn explain(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palyra"))
        .args(["--json", "policy", "explain", "--workspace", "/"])
        .args(arguments)
        .env_clear()
        .env("PALYRA_HOME", home)
        .output()
        .unwrap()
}

fn verdict(output: &Output) -> String {
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    document["data"]["verdict"].as_str().unwrap_or("none").to_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const TRUE: &[&str] = &["--", "/bin/true"];
const READ: &[&str] = &["--action", "fs.read", "--resource", "path:/x"];

#[test]
fn without_anything_installed_the_default_preset_is_used_and_said() {
    let home = tempfile::tempdir().unwrap();
    let output = explain(&home.path().join("nothing"), TRUE);
    assert_eq!((verdict(&output), said(&output)), ("ask".into(), "using preset cautious\n".into()));
}

#[test]
fn a_configuration_without_policies_counts() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("config.toml"), "[policy]\npreset = \"observe\"\n").unwrap();
    assert_eq!(verdict(&explain(home.path(), TRUE)), "deny");
    fs::write(home.path().join("config.toml"), "garbage").unwrap();
    assert_eq!(explain(home.path(), TRUE).status.code(), Some(1));
    fs::write(home.path().join("config.toml"), "[polciy]\nallow_sensitive_tools = false\n").unwrap();
    let output = explain(home.path(), TRUE);
    assert!(String::from_utf8_lossy(&output.stdout).contains("did you mean `policy`?"), "{output:?}");
}

#[test]
fn what_a_daemon_would_refuse_is_refused_here_and_what_is_right_is_offered() {
    let home = tempfile::tempdir().unwrap();
    for (config, expected) in [
        ("[policy]\nprest = \"observe\"\n", "expected one of `preset`"),
        ("[policy]\nstate_directory = \"/x\"\n", "unknown field `state_directory`"),
        ("presence = \"pin\"\n", "the key `presence` stands under no section"),
    ] {
        fs::write(home.path().join("config.toml"), config).unwrap();
        let output = explain(home.path(), TRUE);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).contains(expected), "{output:?}");
    }
}

#[test]
fn a_section_that_is_for_the_daemon_alone_is_passed_over() {
    let home = tempfile::tempdir().unwrap();
    let sections = "[journal]\nkeep_bytes = 1000000000\n[log]\nlevel = \"debug\"\n[policy]\npreset = \"observe\"\n";
    fs::write(home.path().join("config.toml"), sections).unwrap();
    assert_eq!(verdict(&explain(home.path(), TRUE)), "deny");
}

#[test]
fn own_rules_stand_beside_the_preset_and_none_leaves_it_out() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("policies")).unwrap();
    let rule = "@id(\"mine\") permit (principal, action == Palyra::Action::\"tool.execute\", resource);";
    fs::write(home.path().join("policies/mine.cedar"), rule).unwrap();
    assert_eq!(verdict(&explain(home.path(), TRUE)), "allow");
    assert_eq!(verdict(&explain(home.path(), READ)), "allow", "the preset still lets the workspace be read");
    fs::write(home.path().join("config.toml"), "[policy]\npreset = \"none\"\n").unwrap();
    assert_eq!(verdict(&explain(home.path(), READ)), "deny");
}

#[test]
fn a_forbid_of_the_preset_survives_own_rules() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("policies")).unwrap();
    fs::write(home.path().join("policies/all.cedar"), "@id(\"all\") permit (principal, action, resource);").unwrap();
    fs::write(home.path().join("config.toml"), "[policy]\npreset = \"observe\"\nallow_sensitive_tools = true\n")
        .unwrap();
    assert_eq!(verdict(&explain(home.path(), TRUE)), "deny");
}

#[test]
fn what_is_there_and_cannot_be_read_is_an_error_not_a_fallback() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("policies"), "a file where a directory should be").unwrap();
    assert_eq!(explain(home.path(), TRUE).status.code(), Some(1));
    let inside_a_file = home.path().join("policies");
    assert_eq!(explain(&inside_a_file, TRUE).status.code(), Some(1));
    assert_eq!(explain(Path::new("relative"), TRUE).status.code(), Some(1));
}

#[test]
fn the_state_directory_is_protected_before_anything_is_installed() {
    let home = tempfile::tempdir().unwrap();
    let target = format!("path:{}/policies/planted.cedar", home.path().display());
    let output = explain(home.path(), &["--action", "fs.write", "--resource", &target]);
    assert_eq!((verdict(&output), output.status.code()), ("deny".into(), Some(3)));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_palyra")).arg("tour").stdout(full).env_clear().status().unwrap();
    assert_eq!(status.code(), Some(1));
}
