//! `palyra skills test`: runs the golden cases of a skill, without a daemon.
//!
//! Guarantees: nothing of the machine is reached; whatever a case lets the skill ask of the host is answered from the case. A case is written to
//! only by `--bless`, and one that has an expectation only by `--bless --all`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_daemon::{
    SkillFailure,
    rehearsal::{Problem, Rehearsed, rehearse},
};
use palyra_package::{
    GoldenCase, Package,
    golden::{Expected, ExpectedError},
};
use palyra_types::{entropy::SystemEntropy, visible::visible};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    difference::{self, Difference},
    directory::SkillDirectory,
    sign::read,
};
use crate::{
    Outcome,
    connection::block_on,
    exit::Exit,
    failure::Failure,
    terminal::{BAD, DIM, GOOD, Terminal, WAIT},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TestArgs {
    /// The directory of the skill, or its package.
    #[arg(value_name = "DIR|FILE.skill", default_value = ".", hide_default_value = true)]
    path: PathBuf,
    /// Test the program that is there, and build nothing.
    #[arg(long)]
    no_build: bool,
    /// Write what is answered now into the cases that expect nothing yet.
    #[arg(long)]
    bless: bool,
    /// With --bless: into every case, whatever it expects.
    #[arg(long, requires = "bless")]
    all: bool,
}

#[derive(Serialize)]
struct Report {
    id: String,
    version: String,
    passed: usize,
    failed: usize,
    blessed: usize,
    cases: Vec<CaseReport>,
}

#[derive(Serialize)]
struct CaseReport {
    case: String,
    passed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    blessed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
}

pub(super) fn run(args: &TestArgs, terminal: &Terminal) -> Outcome {
    let Subject { mut package, open } = args.subject(terminal)?;
    if package.golden.is_empty() {
        let cause = "there is no file in tests/ that ends with .json";
        let help = "write tests/first.json with a tool and an input, then `palyra skills test --bless`";
        return Err(Failure::new(Exit::Failure, "no_cases", "there is nothing to test", cause, help));
    }
    // What is to be written down is asked for as if nothing were expected.
    let blessed: BTreeSet<String> = match (args.bless, args.all) {
        (false, _) => BTreeSet::new(),
        (true, false) => open.clone(),
        (true, true) => package.golden.keys().cloned().collect(),
    };
    for (_, case) in package.golden.iter_mut().filter(|(name, _)| blessed.contains(*name)) {
        case.expected = Expected::Output(Value::Null);
    }
    terminal.talk("compiling …");
    let rehearsed = rehearsed(&package)?;
    let mut cases = Vec::new();
    for one in rehearsed {
        let case = match (blessed.contains(&one.case), open.contains(&one.case)) {
            (true, _) => args.bless(one, &package.golden)?,
            (false, true) => unexpected(one),
            (false, false) => judged(one),
        };
        cases.push(case);
    }
    let passed = cases.iter().filter(|case| case.passed).count();
    let failed = cases.len() - passed;
    let blessed = cases.iter().filter(|case| case.blessed).count();
    if terminal.json {
        let (id, version) = (package.manifest.id.to_string(), package.manifest.version.to_string());
        terminal.document("skill.test", Report { id, version, passed, failed, blessed, cases });
    } else {
        cases.iter().for_each(|case| show(case, terminal));
        terminal.out(format!("{passed} passed, {failed} failed"));
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failure })
}

/// What is tested.
struct Subject {
    package: Package,
    /// The cases that expect nothing yet.
    open: BTreeSet<String>,
}

impl TestArgs {
    fn subject(&self, terminal: &Terminal) -> Result<Subject, Failure> {
        if self.path.is_file() {
            if self.bless {
                let cause = "a package is not changed";
                let help = "name the directory of the skill";
                return Err(Failure::new(Exit::Usage, "usage", "there is nothing to bless", cause, help));
            }
            return Ok(Subject { package: read(&self.path)?.1, open: BTreeSet::new() });
        }
        let skill = SkillDirectory::open(&self.path)?;
        if !self.no_build {
            skill.build_aloud(terminal)?;
        }
        let mut files = skill.files()?;
        let mut open = BTreeSet::new();
        for (name, content) in files.iter_mut().filter(|(name, _)| name.starts_with("tests/")) {
            if let Some(expecting) = expecting_null(content) {
                open.insert(name.clone());
                *content = expecting;
            }
        }
        Ok(Subject { package: skill.package_of(files)?.package, open })
    }

    /// Writes what came of a case into its file.
    fn bless(&self, one: Rehearsed, golden: &BTreeMap<String, GoldenCase>) -> Result<CaseReport, Failure> {
        let expected = match &one.problem {
            None => Expected::Output(Value::Null),
            Some(Problem::Answer { found, .. }) => Expected::Output(found.clone()),
            Some(Problem::Failed(SkillFailure::Told { code, .. })) => {
                Expected::Error(ExpectedError { code: code.clone(), message: None })
            }
            // A trap or a limit is no answer that anybody wants to keep.
            Some(_) => return Ok(judged(one)),
        };
        let path = self.path.join(&one.case);
        let unwritable = |error: &dyn std::fmt::Display| {
            let what = format!("{} cannot be written", path.display());
            Failure::new(Exit::Failure, "unwritable", what, error.to_string(), "check the disk")
        };
        let case = golden.get(&one.case).map(|case| GoldenCase { expected, ..case.clone() });
        let mut text = serde_json::to_string_pretty(&case).map_err(|error| unwritable(&error))?;
        text.push('\n');
        fs::write(&path, text).map_err(|error| unwritable(&error))?;
        Ok(CaseReport { blessed: true, ..judged(Rehearsed { problem: None, ..one }) })
    }
}

/// A case that expects nothing yet, as one that expects `null`; nothing if it does expect something, or is no case at all.
fn expecting_null(content: &[u8]) -> Option<Vec<u8>> {
    let mut case: Map<String, Value> = serde_json::from_slice(content).ok()?;
    if case.contains_key("output") || case.contains_key("error") {
        return None;
    }
    case.insert("output".to_owned(), Value::Null);
    serde_json::to_vec(&case).ok()
}

fn rehearsed(package: &Package) -> Result<Vec<Rehearsed>, Failure> {
    let scratch = Scratch::new().map_err(|error| {
        let what = "there is no place to compile the skill";
        Failure::new(Exit::Failure, "no_scratch", what, error.to_string(), "check TMPDIR, and the disk")
    })?;
    block_on(async {
        rehearse(package, &scratch.0, &SystemEntropy).await.map_err(|cause| {
            let what = format!("{} cannot be run", package.manifest.id);
            let help = "build it again; `palyra skills inspect` tells what its program imports";
            Failure::new(Exit::Failure, "not_runnable", what, cause, help)
        })
    })
}

/// What came of a case that expects something.
fn judged(one: Rehearsed) -> CaseReport {
    let differences = match &one.problem {
        Some(Problem::Answer { expected, found }) => difference::between(expected, found),
        _ => Vec::new(),
    };
    let problem = one.problem.as_ref().map(ToString::to_string);
    let log = one.log.iter().map(|line| visible(&line.message)).collect();
    CaseReport { case: one.case, passed: problem.is_none(), blessed: false, problem, differences, log }
}

/// What came of a case that expects nothing yet.
fn unexpected(one: Rehearsed) -> CaseReport {
    let problem = "it expects nothing yet; `palyra skills test --bless` writes down what is answered now".to_owned();
    CaseReport { problem: Some(problem), passed: false, differences: Vec::new(), ..judged(one) }
}

fn show(case: &CaseReport, terminal: &Terminal) {
    let mark = match (case.passed, case.blessed) {
        (_, true) => terminal.paint(WAIT, "✔ written down"),
        (true, false) => terminal.paint(GOOD, "✔"),
        (false, false) => terminal.paint(BAD, "✖"),
    };
    terminal.out(format!("{mark} {}", visible(&case.case)));
    if let Some(problem) = &case.problem {
        terminal.out_rows(format!("    {}", visible(problem)));
    }
    for difference in case.differences.iter().take(MOST_SHOWN) {
        difference.lines().iter().for_each(|line| terminal.out_rows(format!("      {line}")));
    }
    if case.differences.len() > MOST_SHOWN {
        terminal.out(format!("      … and {} more; --json tells all", case.differences.len() - MOST_SHOWN));
    }
    if !case.passed {
        case.log.iter().for_each(|line| terminal.out_rows(terminal.paint(DIM, &format!("    it said: {line}"))));
    }
}

/// A directory of this process alone, gone when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let mut random = [0; 16];
        palyra_types::entropy::Entropy::fill(&SystemEntropy, &mut random).map_err(io::Error::other)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = std::env::temp_dir().join(format!("palyra-skill-{name}"));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.0));
    }
}

/// How many places of one answer are shown to people.
const MOST_SHOWN: usize = 20;

const EXAMPLES: &str = "\
Examples:
  palyra skills test                       builds the skill here, and runs tests/*.json
  palyra skills test hello-0.1.0.skill     the cases that came with a package
  palyra skills test --bless               writes answers into cases that have none

A case is a file such as tests/counts.json:
  {\"tool\": \"count\", \"input\": {\"text\": \"Tea\"}, \"output\": {\"words\": 1, \"lines\": 1, \"characters\": 3}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_open_until_it_expects_something() {
        assert_eq!(expecting_null(br#"{"tool":"t","input":1,"output":2}"#), None);
        assert_eq!(expecting_null(br#"{"tool":"t","input":1,"error":{"code":"x"}}"#), None);
        assert_eq!(expecting_null(b"no case"), None);
        let open = expecting_null(br#"{"tool":"t","input":1}"#).unwrap();
        assert_eq!(GoldenCase::parse(&open).unwrap().expected, Expected::Output(Value::Null));
    }
}
