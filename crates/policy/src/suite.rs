//! Policy tests as data: files that say which request gets which decision, by which policies, at which time.
//!
//! A file names a preset or policy files, may add rules and configuration of its own, pins the clock, and lists tests. A `[[test]]` is
//! one request; a `[[matrix]]` is every principal with every request. See `policies/tests/` for examples.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use palyra_types::{PolicyId, Timestamp, ToolMetadata, ToolName, visible::visible};
use serde::{Deserialize, Serialize};

use crate::{
    baseline::{DataError, Preset, builtin_tools},
    decision::{CallDecision, Verdict},
    directory::{read_policies, read_text},
    document::{DocumentError, RequestDocument},
    problem::{Finding, LoadError},
    request::{CallRequest, PolicyEvaluationConfig, PolicyRequestContext},
    set::Snapshot,
    source::SourceFile,
};

/// The time of test files that pin none, so that no test depends on the day it runs.
pub const DEFAULT_CLOCK: &str = "2026-01-05T10:00:00Z";

/// Most tests of one file. A matrix multiplies, so a small file could ask for more than fits into memory.
pub const MAX_CASES: usize = 100_000;

/// Most policy files and directories that one file of tests names. Each is read before their sum is looked at.
const MAX_POLICY_PATHS: usize = 64;

/// A test file, read and ready to run.
#[derive(Debug)]
pub struct Suite {
    /// The name that people see.
    pub name: String,
    /// The policies under test.
    pub set: Snapshot,
    /// The configuration under test.
    pub config: PolicyEvaluationConfig,
    /// The tests, in the order of the file.
    pub cases: Vec<Case>,
}

/// One test.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The call.
    pub call: CallRequest,
    /// Its context.
    pub context: PolicyRequestContext,
    /// The decision it must get.
    pub expect: Verdict,
    /// The policies that must decide, if the test says.
    pub by: Option<BTreeSet<PolicyId>>,
}

/// What became of one test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseReport {
    /// What it shows.
    pub name: String,
    /// Whether the decision was the expected one.
    pub passed: bool,
    /// The decision expected.
    pub expected: Verdict,
    /// The decision made.
    pub actual: Verdict,
    /// The policies expected to decide, if the test says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_by: Option<BTreeSet<PolicyId>>,
    /// The policies that decided.
    pub actual_by: BTreeSet<PolicyId>,
    /// Why, in one sentence a part.
    pub reasons: Vec<String>,
}

impl Suite {
    /// Reads a test file, or every `.toml` file of a directory in the order of their names.
    ///
    /// # Errors
    /// With the first file that cannot be used.
    pub fn read_all(path: &Path) -> Result<Vec<Self>, SuiteError> {
        let unreadable =
            |error: std::io::Error| SuiteError::Unreadable { path: path.to_owned(), message: error.to_string() };
        if !path.is_dir() {
            return Ok(vec![Self::read(path)?]);
        }
        let mut paths: Vec<PathBuf> = std::fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(unreadable)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        paths.sort();
        if paths.is_empty() {
            return Err(SuiteError::NoTests(path.to_owned()));
        }
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// Reads a test file.
    ///
    /// # Errors
    /// When the file, the policies it names or a request in it cannot be used.
    pub fn read(path: &Path) -> Result<Self, SuiteError> {
        let text = read_text(path).map_err(SuiteError::File)?;
        Self::parse(&visible(&path.to_string_lossy()), &text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads the text of a test file; `folder` is where the policy files it names are looked for.
    ///
    /// # Errors
    /// When the text, the policies it names or a request in it cannot be used.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Self, SuiteError> {
        let broken = |message: String| SuiteError::Toml { name: name.to_owned(), message };
        let file: SuiteFile = toml::from_str(text).map_err(|error| broken(error.to_string()))?;
        let tools = builtin_tools()?;
        let config = merge(file.preset, file.config).map_err(|error| match error {
            MergeError::Data(error) => SuiteError::Data(error),
            MergeError::Toml(message) => broken(format!("[config]: {message}")),
        })?;
        let mut sources: Vec<SourceFile> = file.preset.map(Preset::source).into_iter().collect();
        if file.policies.len() > MAX_POLICY_PATHS {
            return Err(broken(format!("it names more than {MAX_POLICY_PATHS} policy files")));
        }
        for path in &file.policies {
            sources.extend(read_policies(&folder.join(path)).map_err(SuiteError::Policies)?);
        }
        sources.extend(file.rules.map(|rules| SourceFile::operator(format!("{name}#rules"), rules)));
        let clock = match file.clock {
            Some(clock) => clock,
            None => Timestamp::parse(DEFAULT_CLOCK).map_err(|error| broken(error.to_string()))?,
        };
        let read = Reader { name, defaults: &file.defaults, clock, tools: &tools };
        let mut cases = Vec::new();
        let matrix_size = |matrix: &MatrixEntry| matrix.principals.len().saturating_mul(matrix.requests.len());
        let count = file.matrix.iter().map(matrix_size).fold(file.test.len(), usize::saturating_add);
        if count > MAX_CASES {
            return Err(broken(format!("it has {count} tests; the limit is {MAX_CASES}")));
        }
        for test in file.test {
            cases.push(read.case(test.name, test.request, test.expect, test.by)?);
        }
        for matrix in file.matrix {
            for principal in &matrix.principals {
                for request in &matrix.requests {
                    let request = RequestDocument { principal: Some(principal.clone()), ..request.clone() };
                    let label = format!("{}: {principal} {}", matrix.name, short(&request.clone().or(&file.defaults)));
                    cases.push(read.case(label, request, matrix.expect, matrix.by.clone())?);
                }
            }
        }
        if cases.is_empty() {
            return Err(SuiteError::NoTests(PathBuf::from(name)));
        }
        Ok(Self { name: name.to_owned(), set: Snapshot::load(&sources).map_err(SuiteError::Policies)?, config, cases })
    }

    /// Runs every test.
    #[must_use]
    pub fn run(&self) -> Vec<CaseReport> {
        self.cases.iter().map(|case| self.run_case(case)).collect()
    }

    fn run_case(&self, case: &Case) -> CaseReport {
        let decision = self.set.decide_call(&case.call, &case.context, &self.config);
        let actual_by = deciding_policies(&decision);
        CaseReport {
            name: case.name.clone(),
            passed: decision.verdict == case.expect && case.by.as_ref().is_none_or(|by| *by == actual_by),
            expected: case.expect,
            actual: decision.verdict,
            expected_by: case.by.clone(),
            actual_by,
            reasons: decision
                .deciding()
                .map(|part| format!("{} {}: {}", part.request.action, part.request.resource, part.decision.reason()))
                .collect(),
        }
    }
}

/// The ids of the policies behind a call's verdict.
#[must_use]
pub fn deciding_policies(decision: &CallDecision) -> BTreeSet<PolicyId> {
    decision.deciding().flat_map(|part| part.decision.policies()).map(|policy| policy.id.clone()).collect()
}

/// A preset's configuration with changes laid over it; without a preset, over the configuration that allows nothing.
///
/// # Errors
/// When a change names an unknown key or has the wrong type.
pub fn merge(preset: Option<Preset>, changes: toml::Table) -> Result<PolicyEvaluationConfig, MergeError> {
    let base =
        preset.map_or_else(|| Ok(PolicyEvaluationConfig::default()), Preset::config).map_err(MergeError::Data)?;
    let toml = |error: String| MergeError::Toml(error);
    let mut table = toml::Table::try_from(&base).map_err(|error| toml(error.to_string()))?;
    table.extend(changes);
    table.try_into().map_err(|error: toml::de::Error| toml(error.message().to_owned()))
}

/// Why a configuration could not be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Built-in data is broken.
    #[error(transparent)]
    Data(DataError),
    /// A change does not fit.
    #[error("{0}")]
    Toml(String),
}

/// Why a test file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// The file cannot be used as text.
    #[error("{}: {}", .0.location.file, .0.problem)]
    File(Finding),
    /// The directory cannot be read.
    #[error("{} cannot be read: {message}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        message: String,
    },
    /// There is nothing to run.
    #[error("{} holds no tests", .0.display())]
    NoTests(PathBuf),
    /// The file is not what a test file looks like.
    #[error("{name}: {message}")]
    Toml {
        /// The file.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// The policies under test do not load.
    #[error(transparent)]
    Policies(LoadError),
    /// A request makes no sense.
    #[error("{name}: in `{test}`: {error}")]
    Request {
        /// The file.
        name: String,
        /// The test.
        test: String,
        /// What is wrong.
        error: DocumentError,
    },
    /// Built-in data is broken.
    #[error(transparent)]
    Data(#[from] DataError),
}

impl SuiteError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::File(finding) => finding.problem.advice(),
            Self::Unreadable { .. } => "check that it exists and that you may read it".into(),
            Self::NoTests(_) => "write [[test]] or [[matrix]] entries; policies/tests/ has examples".into(),
            Self::Toml { .. } => "compare with the files in policies/tests/".into(),
            Self::Policies(_) => "run `palyra policy check` on the policies first".into(),
            Self::Request { error, .. } => error.advice().into(),
            Self::Data(_) => "this is a broken build; install Palyra again".into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuiteFile {
    clock: Option<Timestamp>,
    preset: Option<Preset>,
    #[serde(default)]
    policies: Vec<PathBuf>,
    rules: Option<String>,
    #[serde(default)]
    config: toml::Table,
    #[serde(default)]
    defaults: RequestDocument,
    #[serde(default)]
    test: Vec<TestEntry>,
    #[serde(default)]
    matrix: Vec<MatrixEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestEntry {
    name: String,
    request: RequestDocument,
    expect: Verdict,
    by: Option<BTreeSet<PolicyId>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MatrixEntry {
    name: String,
    principals: Vec<String>,
    requests: Vec<RequestDocument>,
    expect: Verdict,
    by: Option<BTreeSet<PolicyId>>,
}

struct Reader<'a> {
    name: &'a str,
    defaults: &'a RequestDocument,
    clock: Timestamp,
    tools: &'a BTreeMap<ToolName, ToolMetadata>,
}

impl Reader<'_> {
    fn case(
        &self,
        name: String,
        request: RequestDocument,
        expect: Verdict,
        by: Option<BTreeSet<PolicyId>>,
    ) -> Result<Case, SuiteError> {
        match request.or(self.defaults).read(self.clock, self.tools) {
            Ok((call, context)) => Ok(Case { name, call, context, expect, by }),
            Err(error) => Err(SuiteError::Request { name: self.name.to_owned(), test: name, error }),
        }
    }
}

fn short(request: &RequestDocument) -> String {
    let action = request.action.map_or_else(|| "?".to_owned(), |action| action.to_string());
    let resource = request.resource.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    format!("{action} {resource}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<Vec<CaseReport>, SuiteError> {
        Suite::parse("t.toml", text, Path::new(".")).map(|suite| suite.run())
    }

    #[test]
    fn a_test_that_expects_something_else_fails_and_says_what_happened() {
        let reports = run("[[test]]\nname = 'x'\nexpect = 'deny'\nby = ['baseline.owner']\n\
                           request = { principal = 'agent:a', action = 'daemon.status', resource = 'daemon:local' }")
        .unwrap();
        assert_eq!(reports.len(), 1);
        assert!(!reports[0].passed);
        assert_eq!(reports[0].actual, Verdict::Allow);
        assert_eq!(reports[0].actual_by, BTreeSet::from([PolicyId::parse("baseline.read-only").unwrap()]));
    }

    #[test]
    fn a_right_verdict_by_the_wrong_policy_fails() {
        let reports = run("[[test]]\nname = 'x'\nexpect = 'allow'\nby = ['baseline.owner']\n\
                           request = { principal = 'agent:a', action = 'daemon.status', resource = 'daemon:local' }")
        .unwrap();
        assert!(!reports[0].passed);
    }

    #[test]
    fn a_matrix_that_multiplies_beyond_memory_is_refused() {
        let principals = "'agent:a',".repeat(2000);
        let requests = "{action='tool.list',resource='daemon:x'},".repeat(2000);
        let text = format!("[[matrix]]\nname='m'\nexpect='allow'\nprincipals=[{principals}]\nrequests=[{requests}]");
        assert!(matches!(run(&text), Err(SuiteError::Toml { message, .. }) if message.contains("4000000 tests")));
    }

    #[test]
    fn a_file_with_a_slip_is_refused() {
        assert!(matches!(run("[[test]]\nname = 'x'\nexpct = 'deny'"), Err(SuiteError::Toml { .. })));
        assert!(matches!(run("[config]\nallow_sensitve_tools = true"), Err(SuiteError::Toml { .. })));
        assert!(matches!(run(""), Err(SuiteError::NoTests(_))));
        assert!(matches!(
            run(
                "rules = 'permit'\n[[test]]\nname='x'\nexpect='deny'\nrequest={principal='agent:a',action='tool.list',resource='daemon:x'}"
            ),
            Err(SuiteError::Policies(_))
        ));
        assert!(matches!(
            run("[[test]]\nname='x'\nexpect='deny'\nrequest={action='tool.list',resource='daemon:x'}"),
            Err(SuiteError::Request { .. })
        ));
    }
}
