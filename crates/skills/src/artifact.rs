//! Compiled code on disk.
//!
//! Guarantees: what is loaded is what was put here, byte for byte, for this component, this version and this configuration. The content is
//! read once, into memory, and what was authenticated is what is loaded. Only this module makes an [`AuthenticArtifact`].
//! Does not: compile, or say that the code is good. Compiled code is trusted as the daemon itself is, so whoever can read the key can run
//! code as the daemon; but they could do that anyway.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use aws_lc_rs::hmac;
use palyra_package::Metering;
use palyra_types::{Entropy, Sha256Digest, entropy::NoEntropy};
use wasmtime::{Engine, component::Component};

use crate::configuration::fingerprint;

/// Compiled code on disk, in one directory.
pub struct ArtifactStore {
    directory: PathBuf,
    key: hmac::Key,
}

/// Compiled code that this machine made and nobody changed since.
///
/// There is no way to make one but [`ArtifactStore::get`]:
///
/// ```compile_fail
/// let artifact = palyra_skills::artifact::AuthenticArtifact { metering: todo!(), content: vec![], code: 0 };
/// ```
pub struct AuthenticArtifact {
    metering: Metering,
    content: Vec<u8>,
    /// Where in the content the code begins.
    code: usize,
}

/// Why an artifact could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The disk says no.
    #[error("compiled skills cannot be kept: {0}")]
    Io(#[from] io::Error),
    /// The key is not one.
    #[error("the key of compiled skills is damaged")]
    Key,
    /// There is no randomness for a key.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// Somebody else wrote it, or changed it.
    #[error("the compiled skill was changed, or made by somebody else")]
    NotAuthentic,
    /// It was made for something else, and put in the wrong place.
    #[error("the compiled skill belongs to another component or another configuration")]
    Misplaced,
}

impl ArtifactError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Io(_) => "check the disk and the permissions of the state directory",
            Self::Key => "remove the directory of compiled skills; they are compiled again",
            Self::Entropy(_) => "check that the operating system gives randomness",
            Self::NotAuthentic | Self::Misplaced => {
                "find out who writes into the state directory; then install the skill again, which compiles it"
            }
        }
    }
}

impl ArtifactStore {
    /// Opens the store, or begins it. Its key is a file that only its owner can read.
    ///
    /// # Errors
    /// When the directory or its key cannot be read or made.
    pub fn open(directory: &Path, entropy: &dyn Entropy) -> Result<Self, ArtifactError> {
        make_private(directory)?;
        let path = directory.join(KEY_FILE);
        let key = match read(&path, KEY_BYTES)? {
            Some(key) => key,
            None => {
                let mut key = vec![0; KEY_BYTES];
                entropy.fill(&mut key)?;
                // Somebody who opens the store at the same moment makes another. The first that is there counts.
                let temporary = write_beside(&path, &[&key])?;
                let linked = fs::hard_link(&temporary, &path);
                fs::remove_file(&temporary)?;
                match linked {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                    _ => sync(directory)?,
                }
                read(&path, KEY_BYTES)?.ok_or(ArtifactError::Key)?
            }
        };
        if key.len() != KEY_BYTES {
            return Err(ArtifactError::Key);
        }
        Ok(Self { directory: directory.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, &key) })
    }

    /// Keeps what the compiler made of a component.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, component: Sha256Digest, metering: Metering, compiled: &[u8]) -> Result<(), ArtifactError> {
        let header = header(component, metering);
        let mut mac = hmac::Context::with_key(&self.key);
        mac.update(&header);
        mac.update(compiled);
        let tag = mac.sign();
        replace(&self.directory, &self.path(component, metering), &[tag.as_ref(), &header, compiled])?;
        Ok(())
    }

    /// What the compiler made of a component, if it was compiled by this version and for this configuration.
    ///
    /// # Errors
    /// When something is there that was not put there, or it cannot be read.
    pub fn get(&self, component: Sha256Digest, metering: Metering) -> Result<Option<AuthenticArtifact>, ArtifactError> {
        let Some(content) = read(&self.path(component, metering), MOST_BYTES)? else { return Ok(None) };
        let (tag, signed) = content.split_at_checked(TAG_BYTES).ok_or(ArtifactError::NotAuthentic)?;
        // SECURITY: the file is read once. What is verified here is in memory and is what is loaded, whatever becomes of the file.
        hmac::verify(&self.key, signed, tag).map_err(|_| ArtifactError::NotAuthentic)?;
        let header = header(component, metering);
        if !signed.starts_with(&header) {
            return Err(ArtifactError::Misplaced);
        }
        let code = TAG_BYTES + header.len();
        Ok(Some(AuthenticArtifact { metering, content, code }))
    }

    /// Whether there is something for this version and this configuration. It may turn out not to be authentic.
    #[must_use]
    pub fn has(&self, component: Sha256Digest, metering: Metering) -> bool {
        self.path(component, metering).exists()
    }

    /// Forgets what was made, by any version, of these components.
    pub fn forget(&self, components: &BTreeSet<Sha256Digest>) {
        self.remove(|component| components.iter().any(|one| one.to_hex() == component));
    }

    /// Forgets what was made, by any version, of all components but these.
    pub fn keep_only(&self, components: &BTreeSet<Sha256Digest>) {
        let kept: BTreeSet<String> = components.iter().map(Sha256Digest::to_hex).collect();
        self.remove(|component| !kept.contains(component));
    }

    fn remove(&self, is_gone: impl Fn(&str) -> bool) {
        let Ok(files) = fs::read_dir(&self.directory) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let Some((component, _)) = name.to_str().and_then(|name| name.split_once('-')) else { continue };
            if is_gone(component) {
                // What stays is never loaded by mistake; it only takes room.
                let _ = fs::remove_file(file.path());
            }
        }
    }

    /// The name holds a part of the fingerprint, so that after an upgrade nothing is found rather than something refused.
    fn path(&self, component: Sha256Digest, metering: Metering) -> PathBuf {
        let print = Sha256Digest::of(fingerprint(metering).as_bytes()).to_hex();
        let print = print.get(..16).unwrap_or_default();
        self.directory.join(format!("{component}-{metering}-{print}"))
    }
}

impl std::fmt::Debug for ArtifactStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArtifactStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl AuthenticArtifact {
    /// How its work is counted.
    #[must_use]
    pub const fn metering(&self) -> Metering {
        self.metering
    }

    /// The code, ready for an engine.
    #[expect(unsafe_code, reason = "loading compiled code is trusting it; the one place where that happens")]
    pub(crate) fn component(&self, engine: &Engine) -> wasmtime::Result<Component> {
        let code = self.content.get(self.code..).unwrap_or_default();
        // SAFETY: the bytes are what `Engine::precompile_component` gave, as `deserialize` demands. An `AuthenticArtifact` is only made in
        // `get`, from bytes whose MAC was verified with a key that only the daemon can read and under which only `put` writes; they have
        // been in memory since. That version and configuration fit is covered by the MAC, and checked by wasmtime once more.
        unsafe { Component::deserialize(engine, code) }
    }
}

impl std::fmt::Debug for AuthenticArtifact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticArtifact").field("metering", &self.metering).finish_non_exhaustive()
    }
}

/// What is authenticated beside the code. Each field has its length in front.
fn header(component: Sha256Digest, metering: Metering) -> Vec<u8> {
    let mut header = FORMAT.to_vec();
    header.extend_from_slice(component.as_bytes());
    let fingerprint = fingerprint(metering).as_bytes();
    header.extend_from_slice(&u64::try_from(fingerprint.len()).unwrap_or(u64::MAX).to_be_bytes());
    header.extend_from_slice(fingerprint);
    header
}

/// Makes a directory that is its owner's alone.
fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// The whole file, if it is there and no larger. What is no file is not waited for.
fn read(path: &Path, most: usize) -> Result<Option<Vec<u8>>, ArtifactError> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.cast_signed());
    }
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(ArtifactError::NotAuthentic);
    }
    let mut content = Vec::new();
    file.take(u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut content)?;
    if content.len() > most { Err(ArtifactError::NotAuthentic) } else { Ok(Some(content)) }
}

/// Writes a file whole or not at all.
fn replace(directory: &Path, path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    fs::rename(write_beside(path, pieces)?, path)?;
    sync(directory)
}

/// Makes the names in a directory durable, where directories can be synced.
fn sync(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// Writes a file that only its owner can read, under a name of its own.
fn write_beside(path: &Path, pieces: &[&[u8]]) -> io::Result<PathBuf> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.{}.new", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    let temporary = PathBuf::from(temporary);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary)?;
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    Ok(temporary)
}

const FORMAT: &[u8; 16] = b"palyra-skill-v1\n";
const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 32;
/// Python in a component becomes about 60 MB.
const MOST_BYTES: usize = 512 << 20;
