//! What the property tests of the engine share: an oracle that knows nothing of the engine's shortcuts, and strategies that
//! generate what the engine is asked.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

pub mod oracle;
pub mod policies;
pub mod questions;

pub use oracle::{Oracle, Outcome};
pub use questions::Question;

use palyra_policy::{Engine, LoadError, SourceFile};
use proptest::test_runner::{Config, FileFailurePersistence};

/// As many cases as the test asks for, unless `PROPTEST_CASES` says otherwise. What failed once is kept beside the test.
pub fn cases(default: u32) -> Config {
    let config = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default(),
        None => Config::with_cases(default),
    };
    let failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("regressions")) as Box<_>);
    Config { failure_persistence, max_shrink_iters: 128, ..config }
}

/// Each policy in a file of its own, so that a finding names the policy it is about.
pub fn files(policies: &[String]) -> Vec<SourceFile> {
    policies.iter().enumerate().map(|(n, text)| SourceFile::operator(format!("{n}.cedar"), text.as_str())).collect()
}

/// An engine with these operator policies, one per file.
pub fn engine(policies: &[String]) -> Result<Engine, LoadError> {
    Engine::new(&files(policies))
}
