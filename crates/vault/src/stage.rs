//! Changes of a vault, in two steps: staged, so that they are on the disk, and confirmed, once the journal knows of them.
//!
//! Guarantees: what is staged survives a power cut, and nobody sees it before it is confirmed; one that is undone leaves everything as it
//! was. What is added goes to the end of the file. What is taken away is gone from the file, since for that the file is written anew; so it
//! is for a new key. Readers go on with the old file meanwhile. Refuses: a second change while one is under way, and to go on with a file
//! that somebody else changed.
//!
//! Whoever does not know whether the journal has heard of a change keeps it staged until that is known: whether it is confirmed or
//! undone, the file and the journal must say the same. So dropping one does neither.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_types::{SecretRef, Timestamp, entropy::NoEntropy};
use zeroize::Zeroizing;

use crate::{
    backend::BlobName,
    binding::{Binding, BindingTerms},
    contents::{Contents, Description, Version, VersionDescription},
    error::{LONGEST_NOTE, VaultError},
    files,
    log::{self, Head, Header},
    open::{Paths, about_description, header_bytes},
    seal::Key,
    value::SecretValue,
    vault::{Ground, Reading, Vault},
};

/// A secret to be put: the first version of it, or another one.
#[derive(Debug)]
pub struct NewSecret {
    /// Where it belongs and what it is called.
    pub secret: SecretRef,
    /// Its value.
    pub value: SecretValue,
    /// When it may be used no more.
    pub expires: Option<Timestamp>,
    /// After how many days it should be another one; as before if not given.
    pub rotate_after_days: Option<u32>,
    /// What is to be known about it; as before if not given.
    pub note: Option<String>,
}

/// What is to be changed.
#[derive(Debug)]
pub enum VaultChange {
    /// Values and bindings are added. All of them, or none.
    Add {
        /// The values.
        secrets: Vec<NewSecret>,
        /// The bindings.
        bindings: Vec<BindingTerms>,
    },
    /// A secret is removed, with its bindings; or one of its versions.
    Remove {
        /// The secret.
        secret: SecretRef,
        /// The version; all of them if not given.
        version: Option<u32>,
    },
    /// A binding is removed.
    Unbind(u64),
    /// Everything is sealed under a new key.
    RotateKey,
}

/// A change that is on the disk and not in force, until it is confirmed or undone. If it is neither, nothing else can be changed, and the next
/// one who opens the vault asks the journal which of the two it was.
#[must_use = "a change has to be confirmed or undone"]
pub struct Staged {
    vault: Arc<Vault>,
    before: Head,
    after: Head,
    added: Added,
    work: Option<Work>,
}

/// What a change adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Added {
    /// The versions that count from then on.
    pub versions: Vec<(SecretRef, u32)>,
    /// The bindings.
    pub bindings: Vec<Binding>,
}

impl Vault {
    /// Stages a change.
    ///
    /// # Errors
    /// When it cannot be made. Nothing has changed then.
    pub fn stage(self: &Arc<Self>, change: VaultChange) -> Result<Staged, VaultError> {
        self.claim()?;
        let staged = self.settle().and_then(|()| self.draft(change));
        if staged.is_err() {
            self.is_changing.store(false, Ordering::Release);
        }
        staged
    }

    /// Sees to it that the file is in its place, and ends where it should.
    fn settle(&self) -> Result<(), VaultError> {
        let contents = self.read();
        let paths = Paths::of(&self.ground.directory);
        if !is_at(&contents.file, &paths.current)? {
            // The place could not be had when the journal heard of the file.
            if !is_at(&contents.file, &paths.next)? {
                return Err(VaultError::Meddled);
            }
            fs::rename(&paths.next, &paths.current)?;
            files::sync_directory(&self.ground.directory)?;
        }
        match contents.file.metadata()?.len() {
            length if length < contents.length => Err(VaultError::Meddled),
            length if length > contents.length => Ok(contents.file.set_len(contents.length)?),
            _ => Ok(()),
        }
    }

    fn draft(self: &Arc<Self>, change: VaultChange) -> Result<Staged, VaultError> {
        let contents = self.read();
        let now = self.ground.clock.now();
        match change {
            VaultChange::Add { secrets, bindings } => {
                check(&secrets, &bindings, &contents, now)?;
                let keep = self.ground.keep_versions.saturating_add(1);
                let crowded = |new: &NewSecret| contents.secrets.get(&new.secret).is_some_and(|one| one.len() >= keep);
                if !secrets.iter().any(crowded) {
                    return self.append(&contents, (secrets, bindings), now);
                }
                let mut kept = Kept::all(&contents);
                for new in &secrets {
                    kept.versions.retain(|version| {
                        version.about.secret != new.secret || {
                            let of_it = contents.secrets.get(&new.secret).map_or(&[][..], Vec::as_slice);
                            let spared = of_it.len().saturating_sub(keep.saturating_sub(1));
                            of_it.iter().skip(spared).any(|one| one.about.version == version.about.version)
                        }
                    });
                }
                self.replace(&contents, kept, (secrets, bindings), now)
            }
            VaultChange::Remove { secret, version } => {
                let there = contents.secrets.get(&secret).ok_or_else(|| VaultError::NoSecret(secret.clone()))?;
                let is_meant = |number: u32| version.is_none_or(|version| version == number);
                let gone = there.iter().filter(|one| is_meant(one.about.version)).count();
                if let (0, Some(version)) = (gone, version) {
                    return Err(VaultError::NoVersion { secret, version });
                }
                let mut kept = Kept::all(&contents);
                kept.versions.retain(|one| one.about.secret != secret || !is_meant(one.about.version));
                if gone == there.len() {
                    kept.bindings.retain(|binding| binding.terms.secret != secret);
                }
                self.replace(&contents, kept, (Vec::new(), Vec::new()), now)
            }
            VaultChange::Unbind(id) => {
                let mut kept = Kept::all(&contents);
                kept.bindings.retain(|binding| binding.id != id);
                if kept.bindings.len() == contents.bindings.len() {
                    return Err(VaultError::NoBinding(id));
                }
                self.replace(&contents, kept, (Vec::new(), Vec::new()), now)
            }
            VaultChange::RotateKey => {
                let kept = Kept { new_key: Some(Key::generate(self.ground.entropy.as_ref())?), ..Kept::all(&contents) };
                self.replace(&contents, kept, (Vec::new(), Vec::new()), now)
            }
        }
    }

    /// Writes what is new to the end of the file.
    fn append(
        self: &Arc<Self>,
        contents: &Contents,
        new: (Vec<NewSecret>, Vec<BindingTerms>),
        now: Timestamp,
    ) -> Result<Staged, VaultError> {
        let mut draft = Draft::new(&self.ground, &contents.header, &contents.key, contents.head, contents.length);
        let added = draft.add_new(new, contents, now, &mut |head| head.generation.saturating_add(1))?;
        let Draft { bytes, head, described, .. } = draft;
        let written = write_at(&contents.file, contents.length, &bytes);
        if let Err(error) = written {
            let _ = contents.file.set_len(contents.length);
            return Err(error.into());
        }
        let length = contents.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let work = Some(Work::Append { described, length });
        Ok(Staged { vault: Arc::clone(self), before: contents.head, after: head, added, work })
    }

    /// Writes another file, with what is kept and what is new.
    fn replace(
        self: &Arc<Self>,
        contents: &Contents,
        kept: Kept,
        new: (Vec<NewSecret>, Vec<BindingTerms>),
        now: Timestamp,
    ) -> Result<Staged, VaultError> {
        let ground = &self.ground;
        let Kept { versions, bindings, new_key } = kept;
        let generation = contents.head.generation.saturating_add(1);
        let frames = versions.len() + bindings.len() + new.0.len() + new.1.len();
        let number = contents.header.key + u64::from(new_key.is_some());
        let header = Header {
            key: number,
            generation,
            frames: u64::try_from(frames).unwrap_or(u64::MAX),
            ..contents.header.clone()
        };
        let is_new_key = new_key.is_some();
        let key = new_key.map_or_else(|| Arc::clone(&contents.key), Arc::new);
        let start = header_bytes(&header, &key, ground.entropy.as_ref())?;
        let head = Head { generation, digest: palyra_types::Sha256Digest::of(&start) };
        let mut draft = Draft { bytes: start, ..Draft::new(ground, &header, &key, head, 0) };
        let reading = Reading::of(contents);
        for version in versions {
            // Opened also if it only moves: what is not sound any more must not be vouched for anew.
            let data_key = reading.data_key(&version)?;
            let sealed = reading.sealed(&version)?;
            let mut about = VersionDescription::clone(&version.about);
            data_key
                .open(&about.about_value(&header.vault), &sealed)
                .map_err(|_| VaultError::Changed(about.secret.clone()))?;
            about.key = draft.wrapped(&about, &data_key)?;
            draft.push(generation, Description::Version(about), &sealed)?;
        }
        for binding in bindings {
            draft.push(generation, Description::Binding(binding), &[])?;
        }
        let added = draft.add_new(new, contents, now, &mut |_| generation)?;
        let Draft { bytes, head, described, .. } = draft;
        let name = BlobName::of_key(&header.vault, number);
        if is_new_key {
            // Before the file that it opens.
            ground.backend.put(&name, &Zeroizing::new(key.bytes().to_vec()))?;
        }
        let file = match create(&Paths::of(&ground.directory).next, &bytes) {
            Ok(file) => file,
            Err(error) => {
                if is_new_key {
                    let _ = ground.backend.delete(&name);
                }
                return Err(error.into());
            }
        };
        let mut replaced = Contents {
            file: Arc::new(file),
            length: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            key,
            header,
            head,
            secrets: HashMap::new(),
            bindings: BTreeMap::new(),
        };
        for (description, place) in described {
            replaced.add(description, place);
        }
        let work = Some(Work::Replace { contents: Box::new(replaced), new_key: is_new_key.then_some(name) });
        Ok(Staged { vault: Arc::clone(self), before: contents.head, after: head, added, work })
    }
}

impl Staged {
    /// How far the vault was.
    #[must_use]
    pub const fn before(&self) -> Head {
        self.before
    }

    /// How far it is once this is confirmed.
    #[must_use]
    pub const fn after(&self) -> Head {
        self.after
    }

    /// What it adds.
    #[must_use]
    pub const fn added(&self) -> &Added {
        &self.added
    }

    /// The journal knows of it: it is in force from now on.
    pub fn confirm(mut self) -> Added {
        let added = std::mem::take(&mut self.added);
        let Some(work) = self.work.take() else { return added };
        let mut contents = self.vault.write();
        match work {
            Work::Append { described, length } => {
                for (description, place) in described {
                    contents.add(description, place);
                }
                (contents.length, contents.head) = (length, self.after);
            }
            Work::Replace { contents: replaced, new_key } => {
                let paths = Paths::of(&self.vault.ground.directory);
                // If its place cannot be had now, it gets it before the next change or when the vault is opened: the journal knows it.
                let placed = fs::rename(&paths.next, &paths.current)
                    .and_then(|()| files::sync_directory(&self.vault.ground.directory));
                let old = BlobName::of_key(&contents.header.vault, contents.header.key);
                *contents = *replaced;
                if new_key.is_some() && placed.is_ok() {
                    // A key that opens nothing any more may stay where it cannot be removed.
                    let _ = self.vault.ground.backend.delete(&old);
                }
            }
        }
        drop(contents);
        self.vault.is_changing.store(false, Ordering::Release);
        added
    }

    /// The journal does not know of it, and never will: everything is as it was.
    pub fn undo(mut self) {
        let ground = &self.vault.ground;
        match self.work.take() {
            Some(Work::Append { .. }) => {
                let contents = self.vault.read();
                // What cannot be cut off now is cut off before the next change.
                let _ = contents.file.set_len(contents.length).and_then(|()| contents.file.sync_all());
            }
            Some(Work::Replace { new_key, .. }) => {
                let _ = fs::remove_file(Paths::of(&ground.directory).next);
                if let Some(name) = new_key {
                    let _ = ground.backend.delete(&name);
                }
            }
            None => {}
        }
        self.vault.is_changing.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staged").field("before", &self.before).field("after", &self.after).finish_non_exhaustive()
    }
}

/// What becomes of a staged change.
enum Work {
    /// Frames at the end of the file.
    Append { described: Vec<Described>, length: u64 },
    /// Another file.
    Replace { contents: Box<Contents>, new_key: Option<BlobName> },
}

/// What a frame describes, and where its value is.
type Described = (Description, (u64, usize));

/// What of a vault goes into another file.
struct Kept {
    versions: Vec<Version>,
    bindings: Vec<Binding>,
    new_key: Option<Key>,
}

impl Kept {
    fn all(contents: &Contents) -> Self {
        let versions = contents.versions().into_iter().cloned().collect();
        Self { versions, bindings: contents.bindings.values().cloned().collect(), new_key: None }
    }
}

/// Frames that are being written.
struct Draft<'a> {
    ground: &'a Ground,
    header: &'a Header,
    key: &'a Key,
    bytes: Vec<u8>,
    /// Where the bytes are to be in the file.
    base: u64,
    head: Head,
    described: Vec<Described>,
}

impl<'a> Draft<'a> {
    const fn new(ground: &'a Ground, header: &'a Header, key: &'a Key, head: Head, base: u64) -> Self {
        Self { ground, header, key, bytes: Vec::new(), base, head, described: Vec::new() }
    }

    /// Adds what is new, each in the generation that this says.
    fn add_new(
        &mut self,
        (secrets, bindings): (Vec<NewSecret>, Vec<BindingTerms>),
        contents: &Contents,
        now: Timestamp,
        generation: &mut dyn FnMut(Head) -> u64,
    ) -> Result<Added, VaultError> {
        let mut added = Added::default();
        for new in secrets {
            let since = generation(self.head);
            let newest = contents.newest(&new.secret).map(|version| &version.about);
            let mut about = VersionDescription {
                version: newest.map_or(0, |newest| newest.version).saturating_add(1),
                since,
                created: now,
                expires: new.expires,
                rotate_after_days: new.rotate_after_days.or_else(|| newest.and_then(|newest| newest.rotate_after_days)),
                note: new.note.or_else(|| newest.and_then(|newest| newest.note.clone())),
                key: String::new(),
                secret: new.secret,
            };
            let data_key = Key::generate(self.ground.entropy.as_ref())?;
            let sealed = data_key.seal(
                &about.about_value(&self.header.vault),
                new.value.expose(),
                self.ground.entropy.as_ref(),
            )?;
            about.key = self.wrapped(&about, &data_key)?;
            added.versions.push((about.secret.clone(), about.version));
            self.push(since, Description::Version(about), &sealed)?;
        }
        let mut id = contents.bindings.keys().next_back().copied().unwrap_or(0);
        for terms in bindings {
            let made_in = generation(self.head);
            // Numbers are not given twice, also if the last one was removed.
            id = id.max(made_in.saturating_sub(1)).saturating_add(1);
            let binding = Binding { id, created: now, terms };
            added.bindings.push(binding.clone());
            self.push(made_in, Description::Binding(binding), &[])?;
        }
        Ok(added)
    }

    /// The key of a value, sealed under the vault's.
    fn wrapped(&self, about: &VersionDescription, data_key: &Key) -> Result<String, VaultError> {
        let about = about.about_key(&self.header.vault);
        Ok(BASE64_STANDARD.encode(self.key.seal(&about, data_key.bytes(), self.ground.entropy.as_ref())?))
    }

    fn push(&mut self, generation: u64, description: Description, value: &[u8]) -> Result<(), VaultError> {
        let text = serde_json::to_vec(&description).map_err(io::Error::from)?;
        let about = about_description(&self.header.vault, generation, &self.head);
        let sealed = self.key.seal(&about, &text, self.ground.entropy.as_ref())?;
        let (at, head) = log::write_frame(&mut self.bytes, self.head, generation, (&sealed, value));
        let at = self.base.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        self.described.push((description, (at, value.len())));
        self.head = head;
        Ok(())
    }
}

fn check(
    secrets: &[NewSecret],
    bindings: &[BindingTerms],
    contents: &Contents,
    now: Timestamp,
) -> Result<(), VaultError> {
    for new in secrets {
        if let Some(at) = new.expires.filter(|&at| at <= now) {
            return Err(VaultError::Past(at));
        }
        match new.note.as_ref().map_or(0, String::len) {
            length if length > LONGEST_NOTE => return Err(VaultError::LongNote { length }),
            _ => {}
        }
    }
    for terms in bindings {
        terms.check()?;
        let is_new = || secrets.iter().any(|new| new.secret == terms.secret);
        if !contents.secrets.contains_key(&terms.secret) && !is_new() {
            return Err(VaultError::NoSecret(terms.secret.clone()));
        }
        if let Some(same) = contents.bindings.values().find(|known| known.terms == *terms) {
            return Err(VaultError::Bound(same.id));
        }
    }
    let full = |what, most| Err(VaultError::Full { what, most });
    if contents.secrets.len() + secrets.len() > MOST_SECRETS {
        return full("secrets", MOST_SECRETS);
    }
    if contents.bindings.len() + bindings.len() > MOST_BINDINGS {
        return full("bindings", MOST_BINDINGS);
    }
    Ok(())
}

fn write_at(mut file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)?;
    file.sync_data()
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = files::create_own(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let written = written.and_then(|()| files::sync_directory(path.parent().unwrap_or(Path::new("."))));
    if let Err(error) = written {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Whether an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let own = file.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        Ok(path.exists())
    }
}

impl From<NoEntropy> for VaultError {
    fn from(NoEntropy: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

/// How many secrets a vault holds.
const MOST_SECRETS: usize = 100_000;

/// How many bindings.
const MOST_BINDINGS: usize = 10_000;
