//! An engine, a store of artifacts, and skills to call.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use palyra_package::{Destination, FileAccess, FileGrant, Grants, KvQuota, Metering, SkillLimits};
use palyra_skills::{
    artifact::{ArtifactStore, AuthenticArtifact},
    compile::{CompileRequest, compile},
    engine::{EngineError, EngineOptions, LoadedSkill, ReplayCall, SkillCall, SkillEngine},
    outcome::{SkillFailure, SkillRun},
    recording::Recording,
};
use palyra_types::{SecretRef, Sha256Digest, entropy::SystemEntropy};

use crate::host::MemoryHost;

/// An engine.
pub struct Lab {
    pub engine: SkillEngine,
    pub artifacts: ArtifactStore,
}

/// A call in the making. By default it has no grants and the usual limits.
pub struct Call<'a> {
    lab: &'a Lab,
    skill: Arc<LoadedSkill>,
    pub grants: Grants,
    pub limits: SkillLimits,
    pub host: Arc<MemoryHost>,
    pub record: Option<u64>,
}

impl Lab {
    pub fn new() -> Self {
        Self::with(EngineOptions { concurrent_calls: 16, ..EngineOptions::default() })
    }

    pub fn with(options: EngineOptions) -> Self {
        // Compiled guests are kept from run to run, as skills are.
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("skill-artifacts");
        let artifacts = ArtifactStore::open(&directory, &SystemEntropy).unwrap();
        Self { engine: SkillEngine::new(options).unwrap(), artifacts }
    }

    pub fn load(&self, wasm: &[u8]) -> Arc<LoadedSkill> {
        self.load_metered(wasm, Metering::Epoch)
    }

    pub fn load_metered(&self, wasm: &[u8], metering: Metering) -> Arc<LoadedSkill> {
        self.engine.load(self.artifact(wasm, metering), "acme").unwrap()
    }

    pub fn try_load(&self, wasm: &[u8]) -> Result<Arc<LoadedSkill>, EngineError> {
        self.engine.load(self.artifact(wasm, Metering::Epoch), "acme")
    }

    pub fn artifact(&self, wasm: &[u8], metering: Metering) -> AuthenticArtifact {
        let digest = Sha256Digest::of(wasm);
        if self.artifacts.get(digest, metering).unwrap().is_none() {
            let compiled = compile(&CompileRequest { wasm: wasm.to_vec(), metering }).unwrap();
            self.artifacts.put(digest, metering, &compiled).unwrap();
        }
        self.artifacts.get(digest, metering).unwrap().unwrap()
    }

    pub fn call(&self, skill: &Arc<LoadedSkill>) -> Call<'_> {
        Call {
            lab: self,
            skill: Arc::clone(skill),
            grants: Grants::default(),
            limits: SkillLimits::default(),
            host: Arc::default(),
            record: None,
        }
    }
}

impl Call<'_> {
    pub fn grants(mut self, grants: Grants) -> Self {
        self.grants = grants;
        self
    }

    pub fn limits(mut self, limits: SkillLimits) -> Self {
        self.limits = limits;
        self
    }

    pub fn host(mut self, host: &Arc<MemoryHost>) -> Self {
        self.host = Arc::clone(host);
        self
    }

    pub fn recording(mut self, most_bytes: u64) -> Self {
        self.record = Some(most_bytes);
        self
    }

    pub fn start(self, tool: &str, input: &str) -> impl Future<Output = SkillRun> + Send + 'static + use<> {
        self.lab.engine.call(SkillCall {
            skill: self.skill,
            id: "acme/probe".to_owned(),
            tool: tool.to_owned(),
            input: input.to_owned(),
            grants: Arc::new(self.grants),
            limits: self.limits,
            host: self.host,
            record: self.record,
        })
    }

    pub async fn run(self, tool: &str, input: &str) -> SkillRun {
        self.start(tool, input).await
    }

    pub async fn answer(self, tool: &str, input: &str) -> Result<String, SkillFailure> {
        self.run(tool, input).await.answer
    }

    pub async fn replay(self, tool: &str, input: &str, recording: Recording) -> SkillRun {
        let call = ReplayCall {
            skill: self.skill,
            id: "acme/probe".to_owned(),
            tool: tool.to_owned(),
            input: input.to_owned(),
            grants: Arc::new(self.grants),
            limits: self.limits,
        };
        self.lab.engine.replay(call, recording).await
    }
}

/// Everything that can be granted.
pub fn everything() -> Grants {
    Grants {
        log: true,
        clock: true,
        random: true,
        kv: Some(KvQuota { bytes: 100, entries: 10 }),
        http: [Destination::parse("example.org:443").unwrap()].into(),
        secrets: BTreeMap::from([("token".to_owned(), SecretRef::parse("global/token").unwrap())]),
        files: BTreeMap::from([
            ("notes".to_owned(), FileGrant { path: "notes".to_owned(), access: FileAccess::Write }),
            ("books".to_owned(), FileGrant { path: "books".to_owned(), access: FileAccess::Read }),
        ]),
    }
}
