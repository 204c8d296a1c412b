//! Installing skills, saying what they may use, and stopping them.
//!
//! Guarantees: what gives is on record before it is in force, what takes away is in force before it is on record; a change is heard of by every call,
//! those that wait and those that run. A skill is compiled before it is installed. Whoever changes something has policy's leave for that skill.
//! Refuses: what the store refuses, and development packages and first trust where `[skills]` does not have them.

use std::{collections::BTreeSet, sync::Arc};

use palyra_journal::RecordKind;
use palyra_package::{
    Capabilities, CapabilityDiff, Grants, Metering, Package, PackageError, PackageId, PublisherKey, PublisherName,
    signature::{signer_of, verify},
};
use palyra_skills::store::{
    ChangeKind, InstallOptions, InstalledSkill, Prepared, SkillChange, SkillSnapshot, StoreError,
};
use palyra_types::{Action, Clock, Entropy, Resource, Sha256Digest, SkillId, visible::visible};
use serde_json::json;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    compiling::CompilingError,
    policy::WasmPluginRunnerPolicy,
    shelf::{OpenShelf, ShelfClosed, ShelfError, SkillsGround},
    tool::makers,
};
use crate::{
    gate::{Gate, Inner, internal},
    petitioner::Petitioner,
    refusal::{CancelCause, Refusal},
};

/// A package to install.
#[derive(Debug)]
pub struct Installation {
    /// The archive.
    pub archive: Vec<u8>,
    /// Its signature, as minisign writes it.
    pub signature: Option<String>,
    /// What it may use; nothing keeps of what an earlier version was granted what this one still asks for.
    pub grants: Option<Grants>,
    /// What is let pass.
    pub options: InstallOptions,
}

/// What installing a package would mean.
#[derive(Debug)]
pub struct Inspection {
    /// The package.
    pub package: Package,
    /// Who signed it, and whether that counts.
    pub standing: Standing,
    /// The version that is installed.
    pub installed: Option<Arc<InstalledSkill>>,
    /// What it asks for more and less than that version.
    pub diff: CapabilityDiff,
}

/// Who signed a package, and whether that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody did.
    Unsigned,
    /// A key that speaks for its publisher.
    Trusted(PublisherKey),
    /// A key of this id, which does not speak for its publisher, or is not known.
    Unknown {
        /// The id that the signature names.
        key_id: String,
    },
    /// The signature does not fit.
    Broken {
        /// Why not.
        why: String,
    },
}

/// Skills that are being read, on a thread of their own. A daemon has other things to do meanwhile, so a thousand of them do not hold up its start.
pub struct OpeningSkills(JoinHandle<Result<OpenShelf, ShelfError>>);

impl OpeningSkills {
    /// Begins to read what is installed. Must be called within a tokio runtime.
    #[must_use]
    pub fn begin(ground: SkillsGround, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self(spawn_blocking(move || OpenShelf::open(ground, clock, entropy.as_ref())))
    }
}

impl Gate {
    /// Opens what is installed.
    ///
    /// # Errors
    /// When it cannot be used. Skills are closed then, and everything else goes on.
    pub async fn open_skills(&self, ground: SkillsGround) -> Result<(), SkillRefusal> {
        let (clock, entropy) = (Arc::clone(&self.inner.clock), Arc::clone(&self.inner.entropy));
        self.take_skills(OpeningSkills::begin(ground, clock, entropy)).await
    }

    /// Takes over what is being opened, once it is.
    ///
    /// # Errors
    /// When it cannot be used. Skills are closed then, and everything else goes on.
    pub async fn take_skills(&self, opening: OpeningSkills) -> Result<(), SkillRefusal> {
        let opened = opening.0.await.map_err(internal)?;
        let inner = Arc::clone(&self.inner);
        let showing = spawn_blocking(move || {
            let state = opened
                .map(Arc::new)
                .map_err(|error| ShelfClosed { message: error.to_string(), advice: error.advice() });
            inner.skills.set(state.clone());
            inner.show_skills();
            state
        });
        let shelf = showing.await.map_err(internal)?.map_err(SkillRefusal::Closed)?;
        let inner = Arc::clone(&self.inner);
        // Another version of the compiler makes other code. Nobody waits for it.
        tokio::spawn(async move { inner.compile_missing(&shelf).await });
        Ok(())
    }

    /// What is installed.
    ///
    /// # Errors
    /// When skills are closed.
    pub fn skills(&self) -> Result<Arc<SkillSnapshot>, SkillRefusal> {
        Ok(self.inner.skills.open()?.store.snapshot())
    }

    /// What installing a package would mean. Changes nothing.
    ///
    /// # Errors
    /// When the package is none, or policy does not let them install it.
    pub async fn inspect_skill(
        &self,
        archive: Vec<u8>,
        signature: Option<String>,
        by: &Petitioner,
    ) -> Result<Inspection, SkillRefusal> {
        let shelf = self.inner.skills.open()?;
        let (archive, package) = read(archive).await?;
        let id = package.manifest.id.skill_id().clone();
        self.inner.may(by, Action::SkillInstall, Resource::Skill(id), None)?;
        let snapshot = shelf.store.snapshot();
        let installed = snapshot.get(&package.manifest.id).cloned();
        let none = Capabilities::default();
        let before = installed.as_ref().map_or(&none, |skill| &skill.manifest.capabilities);
        let diff = CapabilityDiff::between(before, &package.manifest.capabilities);
        let standing = standing(&snapshot, &package, &archive, signature.as_deref());
        Ok(Inspection { diff, standing, installed, package })
    }

    /// Installs or updates a skill.
    ///
    /// # Errors
    /// When the package, its signature or its publisher does not hold, policy does not let them, or it does not compile.
    pub async fn install_skill(
        &self,
        installation: Installation,
        by: &Petitioner,
    ) -> Result<Arc<InstalledSkill>, SkillRefusal> {
        let (gate, by) = (self.clone(), by.clone());
        // To its end, whoever goes away meanwhile.
        let installing = tokio::spawn(async move { gate.install(installation, &by).await });
        installing.await.map_err(internal)?
    }

    /// Says what a skill may use.
    ///
    /// # Errors
    /// When it is not installed, did not ask for it, or policy does not let them.
    pub async fn grant_skill(
        &self,
        skill: &PackageId,
        grants: Grants,
        by: &Petitioner,
    ) -> Result<Arc<InstalledSkill>, SkillRefusal> {
        self.inner.may(by, Action::SkillGrant, about(skill), None)?;
        let change = SkillChange::SetGrants { id: skill.clone(), grants, by: by.principal.clone() };
        self.change_skills(change, RecordKind::SkillGranted, (by, Action::SkillGrant, about(skill))).await?;
        self.installed(skill)
    }

    /// Keeps a skill from running, and stops it where it runs.
    ///
    /// # Errors
    /// When it is not installed, or policy does not let them.
    pub async fn quarantine_skill(
        &self,
        skill: &PackageId,
        reason: &str,
        by: &Petitioner,
    ) -> Result<Arc<InstalledSkill>, SkillRefusal> {
        self.inner.may(by, Action::SkillQuarantine, about(skill), None)?;
        let change = SkillChange::Quarantine { id: skill.clone(), reason: reason.to_owned(), by: by.principal.clone() };
        let leave = (by, Action::SkillQuarantine, about(skill));
        self.change_skills(change, RecordKind::SkillQuarantined, leave).await?;
        self.installed(skill)
    }

    /// Lets a skill run again.
    ///
    /// # Errors
    /// When it is in no quarantine, or policy does not let them.
    pub async fn release_skill(&self, skill: &PackageId, by: &Petitioner) -> Result<Arc<InstalledSkill>, SkillRefusal> {
        self.inner.may(by, Action::SkillQuarantine, about(skill), None)?;
        let change = SkillChange::Release { id: skill.clone(), by: by.principal.clone() };
        self.change_skills(change, RecordKind::SkillReleased, (by, Action::SkillQuarantine, about(skill))).await?;
        self.installed(skill)
    }

    /// Removes a skill, stops it where it runs, and forgets what it kept.
    ///
    /// # Errors
    /// When it is not installed, or policy does not let them.
    pub async fn remove_skill(&self, skill: &PackageId, by: &Petitioner) -> Result<(), SkillRefusal> {
        self.inner.may(by, Action::SkillRemove, about(skill), None)?;
        let change = SkillChange::Remove { id: skill.clone(), by: by.principal.clone() };
        self.change_skills(change, RecordKind::SkillRemoved, (by, Action::SkillRemove, about(skill))).await
    }

    /// Lets a key of a publisher count, or no more.
    ///
    /// # Errors
    /// When policy does not let them.
    pub async fn trust_publisher(
        &self,
        publisher: PublisherName,
        key: PublisherKey,
        counts: bool,
        by: &Petitioner,
    ) -> Result<(), SkillRefusal> {
        // Whoever says whose skills count could install any.
        let any = SkillId::parse(&format!("{publisher}/any")).map_err(internal)?;
        let any = Resource::Skill(any);
        self.inner.may(by, Action::SkillInstall, any.clone(), None)?;
        let who = by.principal.clone();
        let change = match counts {
            true => SkillChange::Trust { publisher, key, by: who },
            false => SkillChange::Distrust { publisher, key, by: who },
        };
        self.change_skills(change, RecordKind::PublisherTrusted, (by, Action::SkillInstall, any)).await?;
        Ok(())
    }

    fn installed(&self, skill: &PackageId) -> Result<Arc<InstalledSkill>, SkillRefusal> {
        let snapshot = self.inner.skills.open()?.store.snapshot();
        snapshot.get(skill).cloned().ok_or_else(|| SkillRefusal::Unknown(skill.clone()))
    }

    /// Changes something for whoever may do so, also by the time that it is their turn.
    async fn change_skills(
        &self,
        change: SkillChange,
        kind: RecordKind,
        (by, action, resource): (&Petitioner, Action, Resource),
    ) -> Result<(), SkillRefusal> {
        let (gate, by) = (self.clone(), by.clone());
        // To its end, whoever goes away meanwhile.
        let changing = tokio::spawn(async move {
            let shelf = gate.inner.skills.open()?;
            let _changing = shelf.changing.lock().await;
            let by = gate.inner.as_they_stand(&by)?;
            gate.inner.may(&by, action, resource, None)?;
            let removed = match &change {
                SkillChange::Remove { id, .. } => Some(id.skill_id().clone()),
                _ => None,
            };
            let prepared = gate.inner.prepare(&shelf, change).await?;
            gate.put(&shelf, prepared, kind).await?;
            // While nobody else changes anything: what another installation keeps is not this one's.
            if let Some(skill) = removed {
                let kept = Arc::clone(shelf.kv());
                let forgetting = spawn_blocking(move || kept.forget(&skill).map_err(ShelfError::from));
                forgetting.await.map_err(internal)?.map_err(|error| SkillRefusal::Shelf(error.to_string()))?;
            }
            Ok(())
        });
        changing.await.map_err(internal)?
    }

    /// Stops every call of a skill that is under way.
    fn stop_skill(&self, skill: &PackageId, cause: &CancelCause) {
        let prefix = format!("skill.{}.{}.", skill.publisher(), skill.name());
        self.cancel_tools(|tool| tool.as_str().starts_with(&prefix), cause);
    }

    /// Stops every call of a skill that may do less by the configuration that is in force now than by the one before.
    pub(crate) fn stop_skills_that_may_less(&self, before: &WasmPluginRunnerPolicy) {
        let now = Arc::clone(&self.inner.settings.load().config);
        let Ok(shelf) = self.inner.skills.open() else { return };
        for skill in shelf.store.snapshot().skills().filter(|skill| now.skills.lets_less(before, skill)) {
            self.stop_skill(&skill.id, &CancelCause::SkillsLimited);
        }
    }

    async fn install(&self, installation: Installation, by: &Petitioner) -> Result<Arc<InstalledSkill>, SkillRefusal> {
        let inner = &self.inner;
        let shelf = inner.skills.open()?;
        let Installation { archive, signature, grants, options } = installation;
        let leave = Leave {
            development: options.development,
            first_trust: options.trust_on_first_use.is_some(),
            grants: grants.as_ref().is_some_and(|grants| *grants != Grants::default()),
        };
        leave.configured(inner)?;
        let (archive, package) = read(archive).await?;
        let id = package.manifest.id.clone();
        leave.given(inner, by, &id)?;
        let (component, wasm) = (package.component_digest, Arc::clone(&package.component));
        let metering = package.manifest.limits.metering;
        let change = SkillChange::Install {
            package: Box::new(package),
            archive,
            signature,
            grants,
            options,
            by: by.principal.clone(),
        };
        // What would be refused anyway is not compiled. Nobody else waits while it is: a skill can be stopped meanwhile.
        drop(inner.prepare(&shelf, change.clone()).await?);
        inner.compile(&shelf, component, Arc::clone(&wasm), metering).await?;
        let _changing = shelf.changing.lock().await;
        let prepared = inner.prepare(&shelf, change).await?;
        // Nothing but what somebody else removed meanwhile is compiled again.
        inner.compile(&shelf, component, wasm, metering).await?;
        // SECURITY: compiling takes minutes if a package is made for that. Whoever was shown out meanwhile installs nothing any more.
        leave.configured(inner)?;
        leave.given(inner, &inner.as_they_stand(by)?, &id)?;
        shelf.kv().welcome(id.skill_id());
        self.put(&shelf, prepared, RecordKind::SkillInstalled).await?;
        self.installed(&id)
    }

    /// Puts a change on record and in force, in the order that its direction demands.
    async fn put(&self, shelf: &Arc<OpenShelf>, prepared: Prepared, kind: RecordKind) -> Result<(), SkillRefusal> {
        let inner = &self.inner;
        let told = prepared.describe().clone();
        let before = shelf.store.snapshot();
        let lessened = lessened(&before, &prepared);
        let stop =
            || lessened.iter().for_each(|skill| self.stop_skill(skill, &CancelCause::SkillChanged(told.by.clone())));
        if takes_away(&before, &prepared) {
            inner.keep(shelf, prepared).await?;
            stop();
            return Ok(inner.tell(kind, &told).await?);
        }
        inner.tell(kind, &told).await?;
        if let Err(error) = inner.keep(shelf, prepared).await {
            let body = json!({ "what": kind, "cause": visible(&error.to_string()), "about": told });
            inner.tell(RecordKind::SkillUnkept, &body).await?;
            return Err(error);
        }
        stop();
        Ok(())
    }
}

/// What installing a package takes.
#[derive(Clone, Copy)]
struct Leave {
    development: bool,
    first_trust: bool,
    grants: bool,
}

impl Leave {
    /// Whether `[skills]` has it.
    fn configured(self, inner: &Inner) -> Result<(), SkillRefusal> {
        let policy = Arc::clone(&inner.settings.load().config);
        if self.development && !policy.skills.development {
            return Err(SkillRefusal::NotDeveloping);
        }
        if self.first_trust && !policy.skills.trust_on_first_use {
            return Err(SkillRefusal::NoFirstTrust);
        }
        Ok(())
    }

    /// Whether policy lets somebody.
    fn given(self, inner: &Inner, by: &Petitioner, id: &PackageId) -> Result<(), SkillRefusal> {
        inner.may(by, Action::SkillInstall, about(id), None)?;
        if self.grants {
            inner.may(by, Action::SkillGrant, about(id), None)?;
        }
        Ok(())
    }
}

impl Inner {
    /// Somebody as they stand now. A skill is there in all workspaces, so whoever was bound to some meanwhile has no say in it any more.
    fn as_they_stand(&self, by: &Petitioner) -> Result<Petitioner, Refusal> {
        let now = self.credentials.as_they_stand(by).ok_or(Refusal::Cancelled(CancelCause::CredentialGone))?;
        match (&by.member_of, &now.member_of) {
            (None, Some(_)) => Err(Refusal::NotPermitted("they belong to some workspaces only by now".to_owned())),
            _ => Ok(now),
        }
    }

    async fn prepare(&self, shelf: &Arc<OpenShelf>, change: SkillChange) -> Result<Prepared, SkillRefusal> {
        let store = Arc::clone(&shelf.store);
        let preparing = spawn_blocking(move || store.prepare(change));
        Ok(preparing.await.map_err(internal)??)
    }

    async fn keep(self: &Arc<Self>, shelf: &Arc<OpenShelf>, prepared: Prepared) -> Result<(), SkillRefusal> {
        let (inner, shelf) = (Arc::clone(self), Arc::clone(shelf));
        let keeping = spawn_blocking(move || {
            let before = shelf.components();
            shelf.store.commit(prepared)?;
            inner.show_skills();
            let gone: BTreeSet<Sha256Digest> = before.difference(&shelf.components()).copied().collect();
            if !gone.is_empty() {
                shelf.artifacts.forget(&gone);
            }
            Ok::<_, StoreError>(())
        });
        Ok(keeping.await.map_err(internal)??)
    }

    /// Compiles a program for this version of Palyra, unless that was done.
    async fn compile(
        &self,
        shelf: &Arc<OpenShelf>,
        component: Sha256Digest,
        wasm: Arc<[u8]>,
        metering: Metering,
    ) -> Result<(), SkillRefusal> {
        let artifacts = Arc::clone(&shelf.artifacts);
        // One that cannot be authenticated is made anew.
        let known = spawn_blocking(move || artifacts.get(component, metering).is_ok_and(|known| known.is_some()));
        if known.await.map_err(internal)? {
            return Ok(());
        }
        let _turn = shelf.compiling.acquire().await.map_err(internal)?;
        let settings = self.settings.load_full();
        let compiled = shelf.compiler.compile(&settings.runner, &settings.hidden, (wasm, metering)).await?;
        let artifacts = Arc::clone(&shelf.artifacts);
        let putting = spawn_blocking(move || artifacts.put(component, metering, &compiled));
        putting.await.map_err(internal)?.map_err(|error| SkillRefusal::Shelf(error.to_string()))
    }

    /// Compiles whatever is installed and was not compiled for this version of Palyra.
    async fn compile_missing(self: &Arc<Self>, shelf: &Arc<OpenShelf>) {
        for skill in shelf.store.snapshot().skills() {
            let (store, id) = (Arc::clone(&shelf.store), skill.id.clone());
            let metering = skill.manifest.limits.metering;
            if shelf.artifacts.has(skill.component, metering) {
                continue;
            }
            let reading = spawn_blocking(move || Some(Package::read(&store.verified_package(&id).ok()?.archive)));
            // Whoever calls it hears why.
            let Ok(Some(Ok(package))) = reading.await else { continue };
            if let Err(error) = self.compile(shelf, package.component_digest, package.component, metering).await {
                let body = json!({ "what": "compile", "skill": skill.id, "cause": visible(&error.to_string()) });
                // Whoever calls it hears that it is not compiled, in any case.
                let _ = self.tell(RecordKind::SkillUnkept, &body).await;
            }
        }
    }
}

fn about(skill: &PackageId) -> Resource {
    Resource::Skill(skill.skill_id().clone())
}

/// Whether nothing is more than it was before.
fn takes_away(before: &SkillSnapshot, prepared: &Prepared) -> bool {
    let told = prepared.describe();
    match told.kind {
        ChangeKind::Quarantine | ChangeKind::Remove | ChangeKind::Distrust => true,
        ChangeKind::SetGrants => {
            let old = told.skills.first().and_then(|id| before.get(id)).map(|skill| &skill.grants);
            told.grants.as_ref().zip(old).is_some_and(|(new, old)| new.is_within(old))
        }
        ChangeKind::Install | ChangeKind::Update | ChangeKind::Release | ChangeKind::Trust => false,
    }
}

/// The skills of a change that may do less afterwards than before, or are other programs: what runs of them is not what would be let run now.
fn lessened(before: &SkillSnapshot, prepared: &Prepared) -> Vec<PackageId> {
    let after = prepared.outcome();
    let is_lessened = |id: &&PackageId| match (before.get(id), after.get(id)) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(old), Some(new)) => {
            new.quarantine.is_some() || new.package != old.package || !old.grants.is_within(&new.grants)
        }
    };
    prepared.describe().skills.iter().filter(is_lessened).cloned().collect()
}

/// Who signed a package, and whether that counts.
fn standing(snapshot: &SkillSnapshot, package: &Package, archive: &[u8], signature: Option<&str>) -> Standing {
    let Some(signature) = signature else { return Standing::Unsigned };
    let key_id = match signer_of(signature) {
        Ok(key_id) => key_id,
        Err(error) => return Standing::Broken { why: error.to_string() },
    };
    let keys = snapshot.publishers().of(&package.manifest.publisher);
    let mut standing = Standing::Unknown { key_id: key_id.clone() };
    // Several keys can have one short id, so each of them is tried.
    for key in keys.iter().flat_map(|keys| keys.trusted.keys()).filter(|key| key.key_id() == key_id) {
        match verify(archive, signature, key) {
            Ok(_) => return Standing::Trusted(key.clone()),
            Err(error) => standing = Standing::Broken { why: error.to_string() },
        }
    }
    standing
}

async fn read(archive: Vec<u8>) -> Result<(Vec<u8>, Package), SkillRefusal> {
    let reading = spawn_blocking(move || Package::read(&archive).map(|package| (archive, package)));
    Ok(reading.await.map_err(internal)??)
}

/// Why something cannot be done about skills.
#[derive(Debug, thiserror::Error)]
pub enum SkillRefusal {
    /// Skills are closed.
    #[error(transparent)]
    Closed(#[from] ShelfClosed),
    /// There is no such skill.
    #[error("the skill `{0}` is not installed")]
    Unknown(PackageId),
    /// The package is none.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It does not compile.
    #[error(transparent)]
    Compiling(#[from] CompilingError),
    /// Nothing is developed here.
    #[error("packages that nobody signed are not installed here")]
    NotDeveloping,
    /// Keys are pinned here.
    #[error("a publisher's key does not count here by being the first")]
    NoFirstTrust,
    /// What is needed to run it cannot be used.
    #[error("{0}")]
    Shelf(String),
    /// There is nothing to run again.
    #[error("{0}")]
    NoReplay(String),
    /// Policy says no, or it cannot be recorded.
    #[error(transparent)]
    Gate(#[from] Refusal),
}

impl SkillRefusal {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Closed(closed) => closed.advice.clone(),
            Self::Unknown(_) => "`palyra skills list` tells which are".to_owned(),
            Self::Package(error) => error.advice(),
            Self::Store(error) => error.advice(),
            Self::Compiling(error) => error.advice().to_owned(),
            Self::NotDeveloping => {
                "sign it with `palyra skills sign`, or set `development = true` under [skills] in config.toml and `palyra reload`".to_owned()
            }
            Self::NoFirstTrust => {
                "pin the key with `palyra skills trust`, or set `trust_on_first_use = true` under [skills] in config.toml"
                    .to_owned()
            }
            Self::Shelf(_) => "look at what the daemon logs".to_owned(),
            Self::NoReplay(_) => "`palyra journal show` tells what is kept about the call".to_owned(),
            Self::Gate(refusal) => refusal.advice(),
        }
    }
}

impl Inner {
    /// Lets calls and policy see what is installed now.
    pub(crate) fn show_skills(&self) {
        let changing = self.changing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let settings = self.settings.load().with_skills(&self.skills);
        let registry = self.registry_with_skills(&settings.config.skills);
        let exchanging = self.exchanging.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.settings.store(Arc::new(settings));
        self.registry.store(Arc::new(registry));
        self.policies.send_modify(|count| *count += 1);
        drop(exchanging);
        drop(changing);
    }

    /// The tools there are, with those of what is installed.
    pub(crate) fn registry_with_skills(&self, policy: &WasmPluginRunnerPolicy) -> crate::tools::Registry {
        let known = self.registry.load();
        match self.skills.open() {
            Ok(shelf) if policy.enabled => {
                known.with_skills(makers(shelf.store.snapshot().skills(), &Arc::new(policy.clone())))
            }
            _ => known.with_skills([]),
        }
    }
}
