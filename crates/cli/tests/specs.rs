//! The command line as people see it: each file in `tests/cmd` is a session, checked word by word.

#[test]
fn the_command_line_says_what_the_spec_files_say() {
    trycmd::TestCases::new().env("NO_COLOR", "1").env("PALYRA_HOME", "/nonexistent/palyra").case("tests/cmd/*.trycmd");
}
