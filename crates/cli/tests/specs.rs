//! The command line as people see it: each file in `tests/cmd` is a session, checked word by word.

#[test]
fn the_command_line_says_what_the_spec_files_say() {
    trycmd::TestCases::new().env("NO_COLOR", "1").env("PALYRA_HOME", "/nonexistent/palyra").case("tests/cmd/*.trycmd");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test runs the program it is about")]
fn a_request_too_long_for_standard_input_is_refused_not_cut_off() {
    use std::{io::Write, process::Stdio};
    let head = "action = 'fs.read'\nresource = 'path:/x'\n# ";
    let request = format!("{head}{}\nwrites = ['/etc/passwd']\n", "x".repeat((4 << 20) - head.len()));
    let mut palyra = std::process::Command::new(env!("CARGO_BIN_EXE_palyra"))
        .args(["policy", "explain", "--preset", "cautious", "--request", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The program need not read to the end of what it refuses.
    let _ = palyra.stdin.take().unwrap().write_all(request.as_bytes());
    assert_eq!(palyra.wait().unwrap().code(), Some(2));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test runs the program it is about")]
fn the_readme_names_the_line_of_the_policy_that_decides() {
    let explained = std::process::Command::new(env!("CARGO_BIN_EXE_palyra"))
        .args(["policy", "explain", "--principal", "agent:local", "--", "/usr/bin/git", "status"])
        .env("PALYRA_HOME", "/nonexistent/palyra")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let explained = String::from_utf8(explained.stdout).unwrap();
    let line = explained.lines().find(|line| line.contains("baseline.execute-ask")).unwrap();
    assert!(include_str!("../../../README.md").contains(line), "README.md does not say: {line}");
}
