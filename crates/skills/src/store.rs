//! The skills that are installed: who may change them how, and where they are kept.
//!
//! Guarantees: what is installed is signed by a key that speaks for its publisher, or is marked as development; a version that was seen is never
//! gone back behind unless somebody says so; no change grants anything that the change does not name. A change is there whole after a power cut or
//! not at all. A registry that cannot be read, or was altered, is an error and never an empty one.
//! Does not: run or compile anything, or decide who may change what.
//!
//! ```text
//! registry.json               everything but the packages, replaced whole, with a digest of itself
//! registry.lock               held by the one program that uses the store
//! packages/<sha256>.skill     the packages as they were installed
//! packages/<sha256>.minisig   their signatures
//! ```
//!
//! | you look for | read |
//! |---|---|
//! | what is installed | [`SkillSnapshot`], [`InstalledSkill`] |
//! | how it is changed | [`SkillChange`], [`Prepared`]; the rules are in `rules` |
//! | the files | `files`, `document` |

mod change;
mod document;
mod error;
mod files;
mod rules;
mod snapshot;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use palyra_package::{PackageId, Trust, signature::verify};
use palyra_types::{Clock, Sha256Digest};

use self::files::Files;
pub use self::{
    change::{ChangeDescription, ChangeKind, InstallOptions, Prepared, SkillChange},
    document::DocumentError,
    error::StoreError,
    files::Stamp,
    snapshot::{InstalledSkill, Quarantine, Seen, SkillSnapshot, TrustDomain},
};

/// The installed skills, held by this program alone for as long as this lives.
pub struct SkillStore {
    files: Files,
    clock: Arc<dyn Clock>,
    current: ArcSwap<SkillSnapshot>,
    /// One change at a time.
    writing: Mutex<()>,
}

/// The package of an installed skill, as it was found on the disk and verified again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPackage {
    /// The archive.
    pub archive: Vec<u8>,
    /// What its file looked like while it was read.
    pub stamp: Stamp,
}

impl SkillStore {
    /// Opens the store in a directory, which is made if it is not there.
    ///
    /// # Errors
    /// When another program holds it, the directory or a file is open to others, or the registry cannot be read or was altered.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let files = Files::open(directory)?;
        let snapshot = match files.load_registry()? {
            None if files.has_packages()? => return Err(StoreError::RegistryGone(files.registry_path())),
            None => {
                let empty = SkillSnapshot::default();
                files.save_registry(&document::encode(&empty).map_err(StoreError::Unwritable)?)?;
                empty
            }
            Some(document) => document::decode(&document)
                .map_err(|source| StoreError::Registry { path: files.registry_path(), source })?,
        };
        files.tidy(&wanted(&snapshot))?;
        Ok(Self { files, clock, current: ArcSwap::from_pointee(snapshot), writing: Mutex::new(()) })
    }

    /// What is installed now. It stays as it is while the store changes.
    #[must_use]
    pub fn snapshot(&self) -> Arc<SkillSnapshot> {
        self.current.load_full()
    }

    /// Checks a change and works out what it would lead to. Nothing is changed yet.
    ///
    /// # Errors
    /// When the change is refused; see [`StoreError`].
    pub fn prepare(&self, change: SkillChange) -> Result<Prepared, StoreError> {
        rules::apply(&self.snapshot(), change, self.clock.now())
    }

    /// Carries out a change that was prepared.
    ///
    /// # Errors
    /// When another change came in between, or it cannot be made to stay. Then nothing is changed.
    pub fn commit(&self, prepared: Prepared) -> Result<Arc<SkillSnapshot>, StoreError> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot();
        if before.revision() != prepared.base {
            return Err(StoreError::Overtaken);
        }
        let document = document::encode(&prepared.next).map_err(StoreError::Unwritable)?;
        if let Some(package) = &prepared.package {
            self.files.save_package(package)?;
        }
        self.files.save_registry(&document)?;
        let next = Arc::new(prepared.next);
        self.current.store(Arc::clone(&next));
        // What nobody refers to any more is removed now or, if that fails, when the store is opened the next time.
        for digest in wanted(&before).difference(&wanted(&next)) {
            self.files.remove_package(digest);
        }
        Ok(next)
    }

    /// The package of an installed skill, after its digest and its signature were verified again.
    ///
    /// # Errors
    /// When there is no such skill, its file is gone or altered, or its key no longer speaks for its publisher.
    pub fn verified_package(&self, id: &PackageId) -> Result<StoredPackage, StoreError> {
        let snapshot = self.snapshot();
        let skill = snapshot.get(id).ok_or_else(|| StoreError::NotInstalled(id.clone()))?;
        let (archive, stamp) = self.files.load_package(&skill.package)?;
        if Sha256Digest::of(&archive) != skill.package {
            return Err(StoreError::PackageAltered { id: id.clone(), digest: skill.package });
        }
        if let Some(key) = &skill.signed_by {
            let signature = self.files.load_signature(&skill.package)?;
            verify(&archive, &signature, key)?;
            if !matches!(snapshot.publishers().allows(&id.publisher(), key), Trust::Trusted(_)) {
                return Err(StoreError::Distrusted { publisher: id.publisher(), key_id: key.key_id() });
            }
        }
        Ok(StoredPackage { archive, stamp })
    }

    /// What the file of a skill's package looks like. As long as that stays the same, so did the file; when it differs, look again with
    /// [`Self::verified_package`].
    ///
    /// # Errors
    /// When there is no such skill, or no such file.
    pub fn stamp(&self, id: &PackageId) -> Result<Stamp, StoreError> {
        let snapshot = self.snapshot();
        let skill = snapshot.get(id).ok_or_else(|| StoreError::NotInstalled(id.clone()))?;
        self.files.stamp(&skill.package)
    }
}

/// The packages that a snapshot refers to.
fn wanted(snapshot: &SkillSnapshot) -> BTreeSet<Sha256Digest> {
    snapshot.skills().map(|skill| skill.package).collect()
}

#[cfg(test)]
mod tests;
