//! What is installed, compiled and ready to run.
//!
//! Guarantees: a skill is ready only after its package was read once more from the disk and had the digest and the signature that it was installed with, and
//! its compiled code is what was compiled here; as long as the package's file is the same, that is not repeated. Nothing is compiled on the way
//! of a call.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use palyra_package::{Metering, Package, PackageError, PackageId, schema::BoundedSchema};
use palyra_skills::{
    artifact::{ArtifactError, ArtifactStore},
    engine::{EngineError, EngineOptions, LoadedSkill, SkillEngine},
    kv::{KvError, KvStore},
    store::{SkillStore, Stamp, StoreError},
};
use palyra_types::{Clock, Entropy, Sha256Digest, SkillId};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::compiling::SkillCompiler;
use crate::tool::SkillWork;

/// What skills are kept and run by.
pub struct SkillShelf {
    state: ArcSwap<Result<Arc<OpenShelf>, ShelfClosed>>,
}

/// Where skills are kept, and what compiles them.
#[derive(Debug, Clone)]
pub struct SkillsGround {
    /// Their directory, in the state directory.
    pub directory: PathBuf,
    /// What compiles them.
    pub compiler: SkillCompiler,
    /// How many calls run at the same time.
    pub concurrent_calls: u32,
    /// How much memory they have together.
    pub all_memory_bytes: u64,
}

/// Why there are no skills.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("skills are closed: {message}")]
pub struct ShelfClosed {
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

/// Skills that are open.
pub(crate) struct OpenShelf {
    pub(super) store: Arc<SkillStore>,
    pub(super) artifacts: Arc<ArtifactStore>,
    pub(super) compiler: SkillCompiler,
    engine: SkillEngine,
    kv: Arc<KvStore>,
    ready: Mutex<HashMap<ReadyKey, Arc<Ready>>>,
    /// Held by whoever changes what is installed.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Turns to run something again.
    pub(super) replaying: Semaphore,
    /// The turn to compile something.
    pub(super) compiling: Semaphore,
}

/// A package, and how its work is counted.
type ReadyKey = (Sha256Digest, Metering);

/// A skill that can be called at once.
pub(super) struct Ready {
    pub(super) skill: Arc<LoadedSkill>,
    /// What its tools promise to answer.
    pub(super) outputs: HashMap<String, BoundedSchema>,
    /// The package's file, as it was when it was read.
    stamp: Stamp,
}

impl Default for SkillShelf {
    fn default() -> Self {
        let closed = ShelfClosed {
            message: "nobody opened them".to_owned(),
            advice: "start the daemon, which opens them".to_owned(),
        };
        Self { state: ArcSwap::from_pointee(Err(closed)) }
    }
}

impl SkillShelf {
    /// What is open, or why nothing is.
    pub(crate) fn open(&self) -> Result<Arc<OpenShelf>, ShelfClosed> {
        Result::clone(&self.state.load())
    }

    pub(super) fn set(&self, state: Result<Arc<OpenShelf>, ShelfClosed>) {
        self.state.store(Arc::new(state));
    }
}

impl OpenShelf {
    /// Opens what is on the disk. Blocks.
    pub(super) fn open(ground: SkillsGround, clock: Arc<dyn Clock>, entropy: &dyn Entropy) -> Result<Self, ShelfError> {
        let SkillsGround { directory, compiler, concurrent_calls, all_memory_bytes } = ground;
        let store = Arc::new(SkillStore::open(&directory, clock)?);
        let artifacts = Arc::new(ArtifactStore::open(&directory.join("artifacts"), entropy)?);
        let kv = Arc::new(KvStore::open(&directory.join("kv.sqlite3"))?);
        let options = EngineOptions { concurrent_calls, all_memory_bytes, ..EngineOptions::default() };
        let engine = SkillEngine::new(options)?;
        let (ready, changing) = (Mutex::default(), tokio::sync::Mutex::default());
        let (replaying, compiling) = (Semaphore::new(MOST_REPLAYS), Semaphore::new(1));
        let shelf = Self { store, artifacts, compiler, engine, kv, ready, changing, replaying, compiling };
        // A skill that was removed just before the machine went down has left something.
        shelf.kv.keep_only(&shelf.store.snapshot().skills().map(|skill| skill.id.skill_id().clone()).collect())?;
        shelf.artifacts.keep_only(&shelf.components());
        Ok(shelf)
    }

    /// The programs of what is installed.
    pub(super) fn components(&self) -> BTreeSet<Sha256Digest> {
        self.store.snapshot().skills().map(|skill| skill.component).collect()
    }

    /// The skills that must not run.
    pub(crate) fn quarantined(&self) -> Vec<SkillId> {
        let installed = self.store.snapshot();
        let kept_back = installed.skills().filter(|skill| skill.quarantine.is_some());
        kept_back.map(|skill| skill.id.skill_id().clone()).collect()
    }

    pub(super) const fn engine(&self) -> &SkillEngine {
        &self.engine
    }

    pub(super) const fn kv(&self) -> &Arc<KvStore> {
        &self.kv
    }

    /// The skill of a call, checked and ready.
    pub(super) async fn ready(
        self: &Arc<Self>,
        work: &SkillWork,
        metering: Metering,
    ) -> Result<Arc<Ready>, ShelfError> {
        self.ready_package(work.skill.as_str(), work.package_sha256, metering).await
    }

    /// The skill of a package that is installed, checked and ready.
    pub(super) async fn ready_package(
        self: &Arc<Self>,
        skill: &str,
        package: Sha256Digest,
        metering: Metering,
    ) -> Result<Arc<Ready>, ShelfError> {
        let snapshot = self.store.snapshot();
        let installed = snapshot.find(skill).filter(|one| one.package == package);
        let installed = installed.ok_or_else(|| ShelfError::Replaced(skill.to_owned()))?;
        let (key, id) = ((package, metering), installed.id.clone());
        let known = self.ready.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known
            && self.store.stamp(&id).is_ok_and(|stamp| stamp == known.stamp)
        {
            return Ok(known);
        }
        let (shelf, domain) = (Arc::clone(self), installed.trust_domain().to_string());
        let loading = spawn_blocking(move || match shelf.load(&id, package, &domain, metering) {
            // What is kept ready keeps its publisher's pool. Those that nobody runs make room.
            Err(ShelfError::Engine(EngineError::TooManyDomains { .. })) => {
                shelf.ready.lock().unwrap_or_else(PoisonError::into_inner).clear();
                shelf.load(&id, package, &domain, metering)
            }
            loaded => loaded,
        });
        let ready = Arc::new(loading.await.map_err(|error| ShelfError::Failed(error.to_string()))??);
        let mut all = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_READY {
            all.clear();
        }
        all.insert(key, Arc::clone(&ready));
        Ok(ready)
    }

    fn load(
        &self,
        id: &PackageId,
        wanted: Sha256Digest,
        domain: &str,
        metering: Metering,
    ) -> Result<Ready, ShelfError> {
        let stored = self.store.verified_package(id)?;
        // SECURITY: an update may have come since somebody looked. It holds by itself, and is not what was decided about.
        if Sha256Digest::of(&stored.archive) != wanted {
            return Err(ShelfError::Replaced(id.to_string()));
        }
        let (package, stamp) = (Package::read(&stored.archive)?, stored.stamp);
        let artifact = self.artifacts.get(package.component_digest, metering)?.ok_or(ShelfError::NotCompiled)?;
        let skill = self.engine.load(artifact, domain)?;
        let outputs = package.manifest.tools.iter().filter_map(|tool| {
            let check = BoundedSchema::compile(tool.output.as_ref()?);
            Some(check.map(|check| (tool.name.clone(), check)).map_err(|error| ShelfError::Failed(error.to_string())))
        });
        Ok(Ready { skill, outputs: outputs.collect::<Result<_, _>>()?, stamp })
    }
}

/// Why a skill is not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShelfError {
    /// What is installed cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was compiled cannot be used.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The package is none.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// Another version, or none, is installed.
    #[error("the version of `{0}` that was decided about is not installed any more")]
    Replaced(String),
    /// It is not there yet.
    #[error("the skill is not compiled for this version of Palyra yet; that is under way, or failed as the log says")]
    NotCompiled,
    /// It cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What skills keep cannot be used.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// Something went wrong.
    #[error("the skill cannot be made ready: {0}")]
    Failed(String),
}

impl ShelfError {
    /// What to do about it.
    pub(super) fn advice(&self) -> String {
        match self {
            Self::Store(error) => error.advice(),
            Self::Artifact(_) | Self::NotCompiled | Self::Package(_) => {
                "install the skill again, which compiles it".to_owned()
            }
            Self::Engine(error) => error.advice().to_owned(),
            Self::Replaced(_) => "propose it again".to_owned(),
            Self::Kv(_) | Self::Failed(_) => "look at what the daemon logs".to_owned(),
        }
    }
}

/// How many calls are run again at the same time. Whoever looks into something has few.
const MOST_REPLAYS: usize = 2;
/// How many skills are kept ready. Then they are read anew.
const MOST_READY: usize = 512;
