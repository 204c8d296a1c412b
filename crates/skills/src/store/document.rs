//! The registry as text: versioned JSON that carries the digest of its content.
//!
//! ```text
//! {"version":1,"sha256":"<of the bytes of registry>","registry":{"revision":…,"skills":[…],"seen":{…},"publishers":{…}}}
//! ```
//!
//! Guarantees: what was written reads back the same; a document that was cut, altered or written by a later version is refused whole. Manifests are
//! part of it, so that no package has to be read to know what is installed.
//! Does not: protect against somebody who computes the digest anew. The file's permissions do.

use std::{collections::BTreeMap, sync::Arc};

use palyra_package::{Grants, Manifest, PackageId, PublisherKey, TrustedPublishers};
use palyra_types::{Principal, Sha256Digest, Timestamp, registry_document};
use serde::{Deserialize, Serialize};

use super::snapshot::{InstalledSkill, Quarantine, Seen, SkillSnapshot};

/// Writes what is installed.
pub fn encode(snapshot: &SkillSnapshot) -> Result<Vec<u8>, DocumentError> {
    let content = Written {
        revision: snapshot.revision,
        skills: snapshot.skills().map(|skill| WrittenSkill::of(skill)).collect(),
        seen: &snapshot.seen,
        publishers: &snapshot.publishers,
    };
    registry_document::encode(&content)
}

/// Reads what is installed.
pub fn decode(document: &[u8]) -> Result<SkillSnapshot, DocumentError> {
    let read: Read = registry_document::decode(document)?;
    let mut skills = BTreeMap::new();
    for skill in read.skills {
        let skill = skill.installed()?;
        if let Some(twice) = skills.insert(skill.id.clone(), Arc::new(skill)) {
            return Err(DocumentError::Inconsistent(format!("{} is in it twice", twice.id)));
        }
    }
    Ok(SkillSnapshot::new(read.revision, skills, read.seen, read.publishers))
}

#[derive(Serialize)]
struct Written<'a> {
    revision: u64,
    skills: Vec<WrittenSkill<'a>>,
    seen: &'a BTreeMap<PackageId, Seen>,
    publishers: &'a TrustedPublishers,
}

#[derive(Serialize)]
struct WrittenSkill<'a> {
    manifest: &'a Manifest,
    package: Sha256Digest,
    component: Sha256Digest,
    signed_by: &'a Option<PublisherKey>,
    grants: &'a Grants,
    quarantine: &'a Option<Quarantine>,
    installed_by: &'a Principal,
    installed_at: Timestamp,
    development: bool,
}

impl<'a> WrittenSkill<'a> {
    fn of(skill: &'a InstalledSkill) -> Self {
        Self {
            manifest: &skill.manifest,
            package: skill.package,
            component: skill.component,
            signed_by: &skill.signed_by,
            grants: &skill.grants,
            quarantine: &skill.quarantine,
            installed_by: &skill.installed_by,
            installed_at: skill.installed_at,
            development: skill.development,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    revision: u64,
    skills: Vec<ReadSkill>,
    seen: BTreeMap<PackageId, Seen>,
    publishers: TrustedPublishers,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadSkill {
    manifest: Manifest,
    package: Sha256Digest,
    component: Sha256Digest,
    signed_by: Option<PublisherKey>,
    grants: Grants,
    quarantine: Option<Quarantine>,
    installed_by: Principal,
    installed_at: Timestamp,
    development: bool,
}

impl ReadSkill {
    fn installed(self) -> Result<InstalledSkill, DocumentError> {
        let id = self.manifest.id.clone();
        if self.signed_by.is_some() == self.development {
            return Err(DocumentError::Inconsistent(format!("{id} is signed and under development, or neither")));
        }
        if let Err(error) = self.grants.check_within(&self.manifest.capabilities) {
            return Err(DocumentError::Inconsistent(format!("{id} is granted what it does not ask for: {error}")));
        }
        Ok(InstalledSkill {
            version: self.manifest.version.clone(),
            id,
            manifest: Arc::new(self.manifest),
            package: self.package,
            component: self.component,
            signed_by: self.signed_by,
            grants: Arc::new(self.grants),
            quarantine: self.quarantine,
            installed_by: self.installed_by,
            installed_at: self.installed_at,
            development: self.development,
        })
    }
}

/// Why a registry is refused.
pub type DocumentError = registry_document::DocumentError<String>;
