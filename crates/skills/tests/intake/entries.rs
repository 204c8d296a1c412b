//! The four ways in for bytes that came from elsewhere: a manifest, an archive, a program, a package.
//!
//! Guarantees: whatever the bytes are, each comes back and says how far they came. What is accepted at one stage is taken through the next:
//! it is compiled, loaded and run with nothing granted. A promise that does not hold is a panic, which is what the tests and the fuzzer
//! look for. Both use this file.

use std::sync::{Arc, LazyLock};

use palyra_package::{Grants, Manifest, Metering, Package, SkillLimits, Sources, archive, imports, intake};
use palyra_skills::{
    artifact::ArtifactStore,
    compile::{CompileRequest, compile},
    engine::{EngineOptions, SkillCall, SkillEngine},
    outcome::SkillFailure,
};
use palyra_types::{Sha256Digest, entropy::SystemEntropy};

use crate::witness::Witness;

/// How far bytes came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// They were refused.
    Nothing,
    /// They are what they claim to be.
    Read,
    /// They were compiled.
    Compiled,
    /// They were run, to an answer or to a failure.
    Ran,
}

/// Bytes as a `skill.toml`.
pub fn manifest(bytes: &[u8]) -> Reached {
    let Ok(text) = std::str::from_utf8(bytes) else { return Reached::Nothing };
    let manifest = match Manifest::parse(text, |_| Some(b"{\"type\":\"object\"}")) {
        Ok(manifest) => manifest,
        Err(error) => return refused(&error, &error.advice()),
    };
    assert_eq!(manifest.limits.check(), Ok(()));
    assert_eq!(manifest.capabilities.check(), Ok(()));
    assert!(!manifest.tools.is_empty() && manifest.tools.iter().all(|tool| manifest.tool_name(tool).is_ok()));
    assert!(manifest.publisher.as_str() == manifest.id.publisher().as_str());
    assert!(Sources::of(text).is_ok(), "it says which files belong to it");
    let json = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&json).unwrap(), manifest, "interfaces show the same");
    Reached::Read
}

/// Bytes as an archive.
pub fn archive(bytes: &[u8]) -> Reached {
    let files = match archive::unpack(bytes) {
        Ok(files) => files,
        Err(error) => return refused(&error, error.advice()),
    };
    assert!(files.keys().all(|name| archive::is_plain_name(name) && !name.contains("..")));
    assert!(files.values().map(Vec::len).sum::<usize>() <= bytes.len(), "nothing grows");
    assert_eq!(archive::pack(&files).as_deref(), Ok(bytes), "one content has one spelling");
    Reached::Read
}

/// Bytes as a program.
pub fn component(bytes: &[u8]) -> Reached {
    match imports::required(bytes) {
        Ok(_) => run(bytes, "try", SkillLimits { metering: Metering::Fuel, ..SMALL }),
        Err(error) => refused(&error, error.advice()),
    }
}

/// Bytes as a package, and as everything that a package is made of.
pub fn package(bytes: &[u8]) -> Reached {
    intake(bytes);
    match Package::read(bytes) {
        Ok(package) => {
            assert_eq!(package.required.missing_from(&package.manifest.capabilities), []);
            let tool = package.manifest.tools.first().unwrap();
            run(&package.component, &tool.name, package.manifest.limits.within(SMALL))
        }
        Err(error) => refused(&error, &error.advice()),
    }
}

/// Compiles, loads and runs a program with nothing granted.
fn run(wasm: &[u8], tool: &str, limits: SkillLimits) -> Reached {
    let metering = limits.metering;
    let compiled = match compile(&CompileRequest { wasm: wasm.to_vec(), metering }) {
        Ok(compiled) => compiled,
        Err(error) => {
            refused(&error, error.advice());
            return Reached::Read;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let artifacts = ArtifactStore::open(directory.path(), &SystemEntropy).unwrap();
    let digest = Sha256Digest::of(wasm);
    artifacts.put(digest, metering, &compiled).unwrap();
    let skill = match ENGINE.load(artifacts.get(digest, metering).unwrap().unwrap(), "acme") {
        Ok(skill) => skill,
        Err(error) => {
            refused(&error, error.advice());
            return Reached::Compiled;
        }
    };
    let host = Arc::new(Witness::default());
    let call = SkillCall {
        skill,
        id: "acme/probe".to_owned(),
        tool: tool.to_owned(),
        input: "{}".to_owned(),
        grants: Arc::new(Grants::default()),
        limits,
        host: Arc::clone(&host) as _,
        record: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let run = runtime.block_on(ENGINE.call(call));
    let heard = host.heard();
    assert!(heard.iter().all(|line| line.starts_with("log ")), "nothing was granted, and it asked for {heard:?}");
    if let Err(failure) = &run.answer {
        refused(failure, failure.advice());
        if let SkillFailure::Trapped { detail } = failure {
            assert_ne!(detail, "the engine failed while it ran");
        }
        assert!(!matches!(failure, SkillFailure::NoRoom | SkillFailure::Stopped), "{failure:?}");
    }
    Reached::Ran
}

/// Whatever is refused is refused with words.
fn refused(error: &dyn std::error::Error, advice: &str) -> Reached {
    assert!(!error.to_string().is_empty() && !advice.is_empty(), "{error:?}");
    Reached::Nothing
}

static ENGINE: LazyLock<SkillEngine> = LazyLock::new(|| {
    let options = EngineOptions { concurrent_calls: 4, most_memory_bytes: 64 << 20, ..EngineOptions::default() };
    SkillEngine::new(options).unwrap()
});

/// Little of everything, so that a loop is soon over.
const SMALL: SkillLimits = SkillLimits {
    metering: Metering::Epoch,
    fuel: 1_000_000,
    cpu_ms: 50,
    wall_ms: 1_000,
    memory_bytes: 16 << 20,
    table_entries: 10_000,
    output_bytes: 64 << 10,
    host_calls: 500,
    host_bytes: 256 << 10,
    log_bytes: 4 << 10,
};
