//! What a change has to satisfy, and what it leads to.
//!
//! Guarantees: these are all the rules, and none of them touches the disk. What is signed is verified here; what is granted was asked for.

use std::{collections::BTreeMap, sync::Arc};

use palyra_package::{
    CapabilityDiff, Grants, Package, PackageId, PublisherKey, PublisherName, Trust, TrustOrigin, TrustedKey,
    TrustedPublishers,
    signature::{signer_of, verify},
};
use palyra_types::{Principal, Sha256Digest, Timestamp, visible::is_hidden};

use super::{
    change::{ChangeDescription, ChangeKind, InstallOptions, PackageFiles, Prepared, SkillChange},
    error::{MOST_REASON_BYTES, StoreError},
    snapshot::{InstalledSkill, Quarantine, Seen, SkillSnapshot},
};

/// Checks a change and works out what it leads to.
pub fn apply(now: &SkillSnapshot, change: SkillChange, at: Timestamp) -> Result<Prepared, StoreError> {
    let draft = Draft { base: now, at };
    match change {
        SkillChange::Install { package, archive, signature, grants, options, by } => {
            let request = Request { package: &package, archive, signature, grants, options, by };
            draft.install(request)
        }
        SkillChange::SetGrants { id, grants, by } => draft.set_grants(&id, grants, by),
        SkillChange::Quarantine { id, reason, by } => draft.quarantine(&id, reason, by),
        SkillChange::Release { id, by } => draft.release(&id, by),
        SkillChange::Remove { id, by } => draft.remove(&id, by),
        SkillChange::Trust { publisher, key, by } => Ok(draft.trust(publisher, key, by)),
        SkillChange::Distrust { publisher, key, by } => draft.distrust(publisher, key, by),
    }
}

struct Draft<'a> {
    base: &'a SkillSnapshot,
    at: Timestamp,
}

/// What is to be installed.
struct Request<'a> {
    package: &'a Package,
    archive: Vec<u8>,
    signature: Option<String>,
    grants: Option<Grants>,
    options: InstallOptions,
    by: Principal,
}

impl Draft<'_> {
    fn install(&self, request: Request<'_>) -> Result<Prepared, StoreError> {
        let Request { package, archive, signature, grants, options, by } = request;
        let id = &package.manifest.id;
        if Sha256Digest::of(&archive) != package.digest {
            return Err(StoreError::OtherArchive);
        }
        let mut next = self.base.clone();
        // Whatever a development install was handed beside the archive, it stays unsigned.
        let signature = signature.filter(|_| !options.development);
        let signed_by = if options.development {
            None
        } else {
            let signature = signature.as_deref().ok_or_else(|| StoreError::Unsigned(id.clone()))?;
            Some(self.signer(&mut next.publishers, id, (&archive, signature), (&options, &by))?)
        };
        let before = self.base.get(id);
        if let Some(before) = before.filter(|before| before.development != options.development) {
            return Err(StoreError::OtherDomain { id: id.clone(), development: before.development });
        }
        if before.is_none() && self.base.skills.len() >= MOST_SKILLS {
            return Err(StoreError::TooManySkills { id: id.clone(), most: MOST_SKILLS });
        }
        if !options.development {
            self.no_rollback(package, options.allow_downgrade)?;
            let (version, digest) = (package.manifest.version.clone(), package.digest);
            let seen = match self.base.seen(id) {
                Some(seen) => seen.clone().with(version, digest),
                None => Seen { version, package: digest, lower: BTreeMap::new() },
            };
            next.seen.insert(id.clone(), seen);
        }
        let asked = &package.manifest.capabilities;
        let grants = match grants {
            Some(grants) => grants,
            None => before.map(|before| before.grants.kept_for(asked)).unwrap_or_default(),
        };
        grants.check_within(asked)?;
        let mut description = self.describe_install(package, before.map(Arc::as_ref), by.clone());
        description.first_use = next.publishers != self.base.publishers;
        description.key = signed_by.clone();
        description.development = options.development;
        description.grants = Some(grants.clone());
        let skill = InstalledSkill {
            id: id.clone(),
            version: package.manifest.version.clone(),
            manifest: Arc::clone(&package.manifest),
            package: package.digest,
            component: package.component_digest,
            signed_by,
            grants: Arc::new(grants),
            // SECURITY: another version of a skill that must not run must not run either, until somebody says so.
            quarantine: before.and_then(|before| before.quarantine.clone()),
            installed_by: by,
            installed_at: self.at,
            development: options.development,
        };
        next.skills.insert(id.clone(), Arc::new(skill));
        let files = PackageFiles { digest: package.digest, archive, signature };
        Ok(self.prepared(next, Some(files), description))
    }

    /// The key that signed an archive, if it speaks for the publisher, or is to from now on.
    fn signer(
        &self,
        publishers: &mut TrustedPublishers,
        id: &PackageId,
        (archive, signature): (&[u8], &str),
        (options, by): (&InstallOptions, &Principal),
    ) -> Result<PublisherKey, StoreError> {
        let publisher = id.publisher();
        let key_id = signer_of(signature)?;
        let Some(known) = publishers.of(&publisher) else {
            let Some(key) = &options.trust_on_first_use else {
                return Err(StoreError::UnknownPublisher { publisher, key_id });
            };
            verify(archive, signature, key)?;
            let origin = TrustedKey { how: TrustOrigin::FirstUse, by: by.clone(), at: self.at };
            publishers.trust(publisher, key.clone(), origin);
            return Ok(key.clone());
        };
        // Several keys can have one short id, so each of them is tried.
        let mut refusal = None;
        for key in known.trusted.keys().filter(|key| key.key_id() == key_id) {
            match verify(archive, signature, key) {
                Ok(_) => return Ok(key.clone()),
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            Some(error) => Err(error.into()),
            None if known.distrusted.iter().any(|key| key.key_id() == key_id) => {
                Err(StoreError::Distrusted { publisher, key_id })
            }
            None => Err(StoreError::OtherKey { publisher, key_id }),
        }
    }

    /// Refuses what is older than was seen, and what calls itself the same and is not.
    fn no_rollback(&self, package: &Package, allow_downgrade: bool) -> Result<(), StoreError> {
        let (id, version) = (&package.manifest.id, &package.manifest.version);
        let other = |seen: &Sha256Digest| *seen != package.digest;
        let installed = self.base.get(id).filter(|skill| skill.version == *version && other(&skill.package));
        if installed.is_some() {
            return Err(StoreError::SameVersion { id: id.clone(), version: version.clone() });
        }
        let Some(seen) = self.base.seen(id) else { return Ok(()) };
        if *version < seen.version && !allow_downgrade {
            let (id, version, seen) = (id.clone(), version.clone(), seen.version.clone());
            return Err(StoreError::Rollback { id, version, seen });
        }
        match seen.package_of(version).filter(other) {
            Some(_) => Err(StoreError::SameVersion { id: id.clone(), version: version.clone() }),
            None => Ok(()),
        }
    }

    fn describe_install(&self, package: &Package, before: Option<&InstalledSkill>, by: Principal) -> ChangeDescription {
        let (id, version) = (&package.manifest.id, &package.manifest.version);
        let (kind, summary) = match before {
            None => (ChangeKind::Install, format!("{id} {version} is installed")),
            Some(before) => (ChangeKind::Update, format!("{id} {version} takes the place of {}", before.version)),
        };
        let nothing = palyra_package::Capabilities::default();
        let asked_before = before.map_or(&nothing, |before| &before.manifest.capabilities);
        ChangeDescription {
            skills: vec![id.clone()],
            publisher: Some(id.publisher()),
            version: Some(version.clone()),
            replaced: before.map(|before| before.version.clone()),
            package: Some(package.digest),
            component: Some(package.component_digest),
            asked: CapabilityDiff::between(asked_before, &package.manifest.capabilities),
            ..ChangeDescription::new(kind, summary, by, self.at)
        }
    }

    fn set_grants(&self, id: &PackageId, grants: Grants, by: Principal) -> Result<Prepared, StoreError> {
        let skill = self.installed(id)?;
        grants.check_within(&skill.manifest.capabilities)?;
        let summary = match grants.words() {
            words if words.is_empty() => format!("{id} is granted nothing"),
            words => format!("{id} {}", words.join(", ")),
        };
        let mut description = self.describe(ChangeKind::SetGrants, summary, by, id);
        description.grants = Some(grants.clone());
        Ok(self.with(InstalledSkill { grants: Arc::new(grants), ..skill.clone() }, description))
    }

    fn quarantine(&self, id: &PackageId, reason: String, by: Principal) -> Result<Prepared, StoreError> {
        let skill = self.installed(id)?;
        if skill.quarantine.is_some() {
            return Err(StoreError::Quarantined(id.clone()));
        }
        if reason.trim().is_empty() || reason.len() > MOST_REASON_BYTES || reason.chars().any(is_hidden) {
            return Err(StoreError::Reason(reason));
        }
        let summary = format!("{id} is put into quarantine");
        let mut description = self.describe(ChangeKind::Quarantine, summary, by.clone(), id);
        description.reason = Some(reason.clone());
        let quarantine = Some(Quarantine { reason, by, at: self.at });
        Ok(self.with(InstalledSkill { quarantine, ..skill.clone() }, description))
    }

    fn release(&self, id: &PackageId, by: Principal) -> Result<Prepared, StoreError> {
        let skill = self.installed(id)?;
        if skill.quarantine.is_none() {
            return Err(StoreError::NotQuarantined(id.clone()));
        }
        let is_trusted =
            |key: &PublisherKey| matches!(self.base.publishers().allows(&id.publisher(), key), Trust::Trusted(_));
        if skill.signed_by.as_ref().is_some_and(|key| !is_trusted(key)) {
            return Err(StoreError::ReleaseOfDistrusted(id.clone()));
        }
        let description = self.describe(ChangeKind::Release, format!("{id} is let out of quarantine"), by, id);
        Ok(self.with(InstalledSkill { quarantine: None, ..skill.clone() }, description))
    }

    fn remove(&self, id: &PackageId, by: Principal) -> Result<Prepared, StoreError> {
        let skill = self.installed(id)?;
        let summary = format!("{id} {} is removed", skill.version);
        let mut description = self.describe(ChangeKind::Remove, summary, by, id);
        description.replaced = Some(skill.version.clone());
        let mut next = self.base.clone();
        next.skills.remove(id);
        Ok(self.prepared(next, None, description))
    }

    fn trust(&self, publisher: PublisherName, key: PublisherKey, by: Principal) -> Prepared {
        let summary = format!("key {} speaks for the publisher {publisher}", key.key_id());
        let description = ChangeDescription {
            publisher: Some(publisher.clone()),
            key: Some(key.clone()),
            ..ChangeDescription::new(ChangeKind::Trust, summary, by.clone(), self.at)
        };
        let mut next = self.base.clone();
        next.publishers.trust(publisher, key, TrustedKey { how: TrustOrigin::Pinned, by, at: self.at });
        self.prepared(next, None, description)
    }

    fn distrust(&self, publisher: PublisherName, key: PublisherKey, by: Principal) -> Result<Prepared, StoreError> {
        let mut next = self.base.clone();
        if !next.publishers.distrust(&publisher, &key) {
            return Err(StoreError::NotTrusted { publisher, key_id: key.key_id() });
        }
        let signed =
            |skill: &&Arc<InstalledSkill>| skill.signed_by.as_ref() == Some(&key) && skill.id.publisher() == publisher;
        let skills: Vec<PackageId> = self.base.skills().filter(signed).map(|skill| skill.id.clone()).collect();
        let reason = format!("key {} no longer speaks for the publisher {publisher}", key.key_id());
        for skill in next.skills.values_mut().filter(|skill| skills.contains(&skill.id) && skill.quarantine.is_none()) {
            let quarantine = Some(Quarantine { reason: reason.clone(), by: by.clone(), at: self.at });
            *skill = Arc::new(InstalledSkill { quarantine, ..skill.as_ref().clone() });
        }
        let description = ChangeDescription {
            publisher: Some(publisher),
            key: Some(key),
            skills,
            ..ChangeDescription::new(ChangeKind::Distrust, reason, by, self.at)
        };
        Ok(self.prepared(next, None, description))
    }

    fn installed(&self, id: &PackageId) -> Result<&InstalledSkill, StoreError> {
        self.base.get(id).map(Arc::as_ref).ok_or_else(|| StoreError::NotInstalled(id.clone()))
    }

    fn describe(&self, kind: ChangeKind, summary: String, by: Principal, id: &PackageId) -> ChangeDescription {
        ChangeDescription { skills: vec![id.clone()], ..ChangeDescription::new(kind, summary, by, self.at) }
    }

    /// The same, but for one skill.
    fn with(&self, skill: InstalledSkill, description: ChangeDescription) -> Prepared {
        let mut next = self.base.clone();
        next.skills.insert(skill.id.clone(), Arc::new(skill));
        self.prepared(next, None, description)
    }

    fn prepared(
        &self,
        mut next: SkillSnapshot,
        package: Option<PackageFiles>,
        description: ChangeDescription,
    ) -> Prepared {
        next.revision = self.base.revision + 1;
        next.index();
        Prepared { base: self.base.revision, next, package, description }
    }
}

/// The most skills that can be installed.
const MOST_SKILLS: usize = 10_000;
