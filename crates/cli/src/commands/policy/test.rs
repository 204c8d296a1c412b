//! `palyra policy test`: runs policy tests from data files.

use std::path::PathBuf;

use clap::Args;
use palyra_policy::suite::{CaseReport, Suite};
use palyra_types::visible::visible;
use serde::Serialize;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{BAD, DIM, GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct TestArgs {
    /// Test files, or directories of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Name the tests that passed, too.
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Serialize)]
struct FileReport {
    file: String,
    cases: Vec<CaseReport>,
}

#[derive(Serialize)]
struct Report {
    passed: usize,
    failed: usize,
    files: Vec<FileReport>,
}

pub(crate) fn run(args: &TestArgs, terminal: &Terminal) -> Outcome {
    let mut files = Vec::new();
    for path in &args.paths {
        for suite in Suite::read_all(path)? {
            files.push(FileReport { cases: suite.run(), file: suite.name });
        }
    }
    let cases = || files.iter().flat_map(|file| &file.cases);
    let passed = cases().filter(|case| case.passed).count();
    let failed = cases().count() - passed;
    if terminal.json {
        terminal.document("policy.test", Report { passed, failed, files });
    } else {
        for file in &files {
            show(file, args.verbose, terminal);
        }
        terminal.out(format!("{passed} passed, {failed} failed"));
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failure })
}

fn show(file: &FileReport, verbose: bool, terminal: &Terminal) {
    let failed = file.cases.iter().filter(|case| !case.passed).count();
    if failed > 0 || verbose {
        terminal.out(format!("{} {}", file.file, terminal.paint(DIM, &format!("({} tests)", file.cases.len()))));
    }
    for case in &file.cases {
        if case.passed {
            if verbose {
                terminal.out(format!("  {} {}", terminal.paint(GOOD, "✔"), visible(&case.name)));
            }
            continue;
        }
        terminal.out(format!("  {} {}", terminal.paint(BAD, "✖"), visible(&case.name)));
        let list = |ids: &std::collections::BTreeSet<palyra_types::PolicyId>| {
            ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let expected_by = case.expected_by.as_ref().map_or_else(String::new, |by| format!(" by [{}]", list(by)));
        terminal.out(format!("      expected {}{expected_by}", case.expected));
        terminal.out(format!("      but got  {} by [{}]", case.actual, list(&case.actual_by)));
        for reason in &case.reasons {
            terminal.out(format!("      {reason}"));
        }
    }
}
