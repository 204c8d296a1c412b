//! Runs the golden cases of a package, without a daemon.
//!
//! Guarantees: nothing of the machine is reached. Whatever a case lets the skill ask of the host is answered from the case itself.
//! Does not: need a permit, for that reason. Nothing that runs here can do anything.

use std::{path::Path, sync::Arc};

use palyra_package::{
    GoldenCase, Grants, Package,
    golden::Expected,
    schema::{BoundedSchema, Effort},
};
use palyra_skills::{
    artifact::ArtifactStore,
    compile::{CompileRequest, compile},
    engine::{EngineOptions, ReplayCall, SkillEngine},
    outcome::{LogLine, SkillFailure},
    recording::{RecordedCall, Recording},
};
use palyra_types::entropy::Entropy;
use serde_json::Value;

use super::policy::WasmPluginRunnerPolicy;

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsed {
    /// The case, by the name of its file.
    pub case: String,
    /// What does not fit; nothing if all does.
    pub problem: Option<Problem>,
    /// What the skill said.
    pub log: Vec<LogLine>,
}

/// What does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No daemon would hand its input to the skill, so whatever the skill makes of it shows nothing.
    #[error("its input does not fit the tool's input schema, so no call can have it: {0}")]
    Input(String),
    /// It answered something else.
    #[error("it answered something else")]
    Answer {
        /// What was expected.
        expected: Value,
        /// What came.
        found: Value,
    },
    /// It failed.
    #[error("it ended with `{}`: {}", .0.code(), .0)]
    Failed(SkillFailure),
    /// It failed in another way than expected.
    #[error("it was to fail with `{expected}`, and it came to this: {found}")]
    Failure {
        /// The expected word.
        expected: String,
        /// What came.
        found: String,
    },
}

/// Runs the golden cases of a package. Blocks while it compiles; `scratch` holds what was compiled.
///
/// # Errors
/// When the package does not compile or load, in words.
pub async fn rehearse(package: &Package, scratch: &Path, entropy: &dyn Entropy) -> Result<Vec<Rehearsed>, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let metering = package.manifest.limits.metering;
    let compiled = compile(&CompileRequest { wasm: package.component.to_vec(), metering }).map_err(|e| words(&e))?;
    let artifacts = ArtifactStore::open(scratch, entropy).map_err(|error| words(&error))?;
    artifacts.put(package.component_digest, metering, &compiled).map_err(|error| words(&error))?;
    let artifact = artifacts.get(package.component_digest, metering).map_err(|error| words(&error))?;
    let artifact = artifact.ok_or_else(|| "what was compiled is gone".to_owned())?;
    let engine = SkillEngine::new(EngineOptions::default()).map_err(|error| words(&error))?;
    let skill = engine.load(artifact, "rehearsal").map_err(|error| words(&error))?;
    let mut rehearsed = Vec::new();
    for (name, case) in &package.golden {
        let tool = package.manifest.tool(&case.tool);
        if let Some(misfit) = tool.and_then(|tool| misfit(&case.input, &tool.input)) {
            let problem = Some(Problem::Input(misfit));
            rehearsed.push(Rehearsed { case: name.clone(), problem, log: Vec::new() });
            continue;
        }
        let recorded = |one: &palyra_package::golden::HostAnswer| RecordedCall {
            function: one.function.clone(),
            asked: one.asked.clone().unwrap_or_default(),
            answered: one.answered.clone(),
        };
        let recording = Recording { calls: case.host.iter().map(recorded).collect() };
        let call = ReplayCall {
            skill: Arc::clone(&skill),
            id: package.manifest.id.to_string(),
            tool: case.tool.clone(),
            input: case.input.to_string(),
            grants: Arc::new(everything(package)),
            limits: package.manifest.limits.within(WasmPluginRunnerPolicy::default().limits),
        };
        let run = engine.replay(call, recording).await;
        let promised = tool.and_then(|tool| tool.output.as_ref());
        let answer = run.answer.and_then(|text| fitting(text, promised));
        rehearsed.push(Rehearsed { case: name.clone(), problem: problem(case, answer), log: run.log });
    }
    Ok(rehearsed)
}

/// What the package asks for: the case itself answers, so nothing is given away.
fn everything(package: &Package) -> Grants {
    let asked = &package.manifest.capabilities;
    let mut grants = Grants::all_of(asked).grants;
    let secret = palyra_types::SecretRef::parse("global/rehearsal");
    grants.secrets = asked.secrets.keys().filter_map(|name| Some((name.clone(), secret.clone().ok()?))).collect();
    let directory = |access| palyra_package::FileGrant { path: ".".to_owned(), access };
    grants.files = asked.files.iter().map(|(name, access)| (name.clone(), directory(*access))).collect();
    grants
}

/// The answer, if it is what the manifest promises. A daemon holds it to the same.
fn fitting(text: String, promised: Option<&Value>) -> Result<String, SkillFailure> {
    let Some(schema) = promised else { return Ok(text) };
    let value: Value =
        serde_json::from_str(&text).map_err(|error| SkillFailure::NotJson { detail: error.to_string() })?;
    misfit(&value, schema).map_or(Ok(text), |detail| Err(SkillFailure::Misfit { detail }))
}

/// Why a value does not fit a schema, or cannot be held to it.
fn misfit(value: &Value, schema: &Value) -> Option<String> {
    let check = match BoundedSchema::compile(schema) {
        Ok(check) => check,
        Err(error) => return Some(error.to_string()),
    };
    check.first_misfit(value, Effort::Whole).unwrap_or_else(|laborious| Some(laborious.to_string()))
}

fn problem(case: &GoldenCase, answer: Result<String, SkillFailure>) -> Option<Problem> {
    match (&case.expected, answer) {
        (Expected::Output(expected), Ok(text)) => {
            let found: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            (*expected != found).then(|| Problem::Answer { expected: expected.clone(), found })
        }
        (Expected::Output(_), Err(failure)) => Some(Problem::Failed(failure)),
        (Expected::Error(expected), Err(failure)) => {
            let says_so = expected.message.as_ref().is_none_or(|message| *message == failure.to_string());
            (expected.code != failure.code() || !says_so).then(|| Problem::Failure {
                expected: expected.code.clone(),
                found: format!("`{}`: {failure}", failure.code()),
            })
        }
        (Expected::Error(expected), Ok(text)) => {
            Some(Problem::Failure { expected: expected.code.clone(), found: format!("it answered {text}") })
        }
    }
}
