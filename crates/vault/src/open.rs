//! Opens a vault: finds the file that the journal knows, checks every byte of it, and reads what is in it.
//!
//! The journal knows a head: a generation and the digest of the whole file in it. A change is in the file before the journal hears of it, so
//! after a crash the file may be ahead of the journal, never behind. A file that was written anew stands beside the old one until the journal
//! knows it. Hence, in this order:
//!
//! 1. the file holds the known head: it is taken. What follows that head was never confirmed to anybody; if it is whole and genuine it is kept
//!    and told, and if it is not whole it is cut off;
//! 2. the file beside it ends with the known head: the daemon was stopped before it could be put in its place, which is done now;
//! 3. otherwise the vault is not opened, and nothing is changed.
//!
//! Guarantees: a file with any byte changed, an older one, or another one is not opened. Does not: repair.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use palyra_types::entropy::{Entropy, NoEntropy};
use zeroize::Zeroizing;

use crate::{
    backend::{BackendKind, BlobName},
    contents::{Contents, Description},
    error::OpenError,
    files::{self, OwnError},
    log::{self, Found, Frame, Head, Header, ReadHeader},
    seal::{About, Key},
    vault::{Ground, Vault},
};

/// Whom to believe about what the vault should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// The journal, which knows this head, or no vault at all.
    Journal(Option<Head>),
    /// The file, because an owner says so. It still has to be whole and genuine.
    File,
}

/// A vault that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The vault.
    pub vault: Arc<Vault>,
    /// Whether the journal does not know its head yet, and has to be told before anything else.
    pub is_news: bool,
}

impl Vault {
    /// Opens a vault, or makes one where the journal knows of none and none is there.
    ///
    /// # Errors
    /// When the file is not what it should be, or its key is not to be had. Nothing was changed then.
    pub fn open(ground: Ground, belief: Belief) -> Result<Opened, OpenError> {
        let paths = Paths::of(&ground.directory);
        files::make_own_directory(&ground.directory).map_err(|error| io_error(&ground.directory, error))?;
        let current = read(&paths.current)?;
        let bytes = current.as_ref().map(|(_, bytes)| bytes.as_slice());
        let chosen = match (belief, bytes) {
            (Belief::Journal(None) | Belief::File, None) => {
                let file = found(&ground, &paths)?;
                return Ok(Opened { vault: Arc::new(file), is_news: true });
            }
            (Belief::Journal(None), Some(bytes)) => {
                let head = Scan::of(bytes).whole(bytes, &paths.current)?;
                // One that was made and of which the journal could not be told any more.
                if head.generation != 1 {
                    return Err(OpenError::Unknown { path: paths.current, found: head.generation });
                }
                Chosen { sound: bytes.len(), is_news: true }
            }
            (Belief::File, Some(bytes)) => {
                Scan::of(bytes).whole(bytes, &paths.current)?;
                Chosen { sound: bytes.len(), is_news: true }
            }
            (Belief::Journal(Some(known)), bytes) => match choose(bytes, known, &paths) {
                Ok(chosen) => chosen,
                Err(error) => {
                    let beside = read(&paths.next)?.filter(|(_, bytes)| Scan::of(bytes).ends_with(known));
                    let Some((file, bytes)) = beside else { return Err(error) };
                    // Only if its key is to be had: nothing is changed for a vault that cannot be opened.
                    let contents = decode((file, &bytes), &paths.next, &ground)?;
                    let place = || {
                        fs::rename(&paths.next, &paths.current)?;
                        files::sync_directory(&ground.directory)
                    };
                    place().map_err(|error| io_error(&paths.next, error))?;
                    forget_others(&ground, &contents);
                    return Ok(Opened { vault: Arc::new(Self::new(ground, contents)), is_news: false });
                }
            },
        };
        let Some((file, bytes)) = current else {
            return Err(OpenError::Missing { path: paths.current, known: 0 });
        };
        let contents = decode((file, bytes.get(..chosen.sound).unwrap_or_default()), &paths.current, &ground)?;
        if chosen.sound < bytes.len() {
            let cut = contents.file.set_len(contents.length).and_then(|()| contents.file.sync_all());
            cut.map_err(|error| io_error(&paths.current, error))?;
        }
        // What is left of a file that the journal never heard of.
        match fs::remove_file(&paths.next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&paths.next, error)),
            _ => {}
        }
        forget_others(&ground, &contents);
        Ok(Opened { vault: Arc::new(Self::new(ground, contents)), is_news: chosen.is_news })
    }
}

/// Forgets the key before this one and the one behind it, which a crash in the middle of a change of the key has left.
fn forget_others(ground: &Ground, contents: &Contents) {
    let Header { vault, key, .. } = &contents.header;
    for number in [key.checked_sub(1).filter(|before| *before > 0), key.checked_add(1)].into_iter().flatten() {
        // One that cannot be forgotten opens nothing that is there.
        let _ = ground.backend.delete(&BlobName::of_key(vault, number));
    }
}

/// Who holds the key of the vault in a directory, if there is a vault, as its file says. Nothing of that is checked before it is opened.
///
/// # Errors
/// When there is a file that cannot be read, or that is none of a vault.
pub fn recorded_backend(directory: &Path) -> Result<Option<BackendKind>, OpenError> {
    let paths = Paths::of(directory);
    let Some((_, bytes)) = read(&paths.current)? else { return Ok(None) };
    match log::read_header(&bytes) {
        Some(read) => Ok(Some(read.header.backend)),
        None => Err(OpenError::Damaged { path: paths.current, at: 0 }),
    }
}

/// Where the files of a vault are.
pub(crate) struct Paths {
    pub current: PathBuf,
    /// One that takes the place of the other when the journal knows it.
    pub next: PathBuf,
}

impl Paths {
    pub(crate) fn of(directory: &Path) -> Self {
        Self { current: directory.join("secrets.vault"), next: directory.join("secrets.vault.next") }
    }
}

/// The bytes of a new file, with everything that is known of it but its handle.
pub(crate) fn header_bytes(header: &Header, key: &Key, entropy: &dyn Entropy) -> Result<Vec<u8>, NoEntropy> {
    let mut bytes = header.spell();
    let proof = key.seal(&header.about(&bytes), b"", entropy)?;
    bytes.extend_from_slice(&proof);
    Ok(bytes)
}

/// What the description in a frame is sealed about.
pub(crate) fn about_description(vault: &str, generation: u64, before: &Head) -> About {
    let about = About::kind("palyra vault description").and(vault.as_bytes());
    about.and(&generation.to_be_bytes()).and(before.digest.as_bytes())
}

pub(crate) fn io_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), source }
}

/// How much of a file is taken.
struct Chosen {
    /// How many bytes of it.
    sound: usize,
    /// Whether there is more than the journal knows.
    is_news: bool,
}

fn choose(current: Option<&[u8]>, known: Head, paths: &Paths) -> Result<Chosen, OpenError> {
    let path = || paths.current.clone();
    let Some(bytes) = current else {
        return Err(OpenError::Missing { path: path(), known: known.generation });
    };
    let scan = Scan::of(bytes);
    if scan.heads.iter().any(|(_, head)| *head == known) {
        // What follows the known head and is not whole was being written when the daemon was stopped.
        let is_news = scan.heads.last().is_some_and(|(_, last)| *last != known);
        return Ok(Chosen { sound: scan.sound, is_news });
    }
    if let Some(at) = scan.broken_at(bytes) {
        return Err(OpenError::Damaged { path: path(), at });
    }
    match scan.heads.last() {
        Some((_, head)) if head.generation < known.generation => {
            Err(OpenError::RolledBack { path: path(), found: head.generation, known: known.generation })
        }
        _ => Err(OpenError::Forked { path: path(), known: known.generation }),
    }
}

/// What can be told of a file without its key.
struct Scan {
    /// Every head that the journal may know, and where it ends.
    heads: Vec<(usize, Head)>,
    /// How many bytes are sound.
    sound: usize,
}

impl Scan {
    fn of(bytes: &[u8]) -> Self {
        let mut scan = Self { heads: Vec::new(), sound: 0 };
        let Some(ReadHeader { header, end, digest, .. }) = log::read_header(bytes) else { return scan };
        scan.sound = end;
        let (mut head, mut frames) = (Head { generation: header.generation, digest }, 0);
        if header.frames == 0 {
            scan.heads.push((end, head));
        }
        while let Found::Frame(frame) = log::read_frame(bytes, scan.sound, head.digest) {
            let expected = if frames < header.frames { header.generation } else { head.generation.saturating_add(1) };
            if frame.generation != expected {
                break;
            }
            frames += 1;
            (scan.sound, head) = (frame.end, Head { generation: frame.generation, digest: frame.head });
            if frames >= header.frames {
                scan.heads.push((scan.sound, head));
            }
        }
        scan
    }

    /// Where the file is sound no more, if that is before its end.
    fn broken_at(&self, bytes: &[u8]) -> Option<usize> {
        (self.sound < bytes.len() || self.heads.is_empty()).then_some(self.sound)
    }

    fn ends_with(&self, known: Head) -> bool {
        self.heads.last().is_some_and(|(_, head)| *head == known)
    }

    /// The head of a file that is sound to its end.
    fn whole(&self, bytes: &[u8], path: &Path) -> Result<Head, OpenError> {
        match self.heads.last() {
            Some((end, head)) if *end == bytes.len() => Ok(*head),
            _ => Err(OpenError::Damaged { path: path.to_owned(), at: self.sound }),
        }
    }
}

/// Makes a new vault, with a new key.
fn found(ground: &Ground, paths: &Paths) -> Result<Vault, OpenError> {
    let mut id = [0; 16];
    ground.entropy.fill(&mut id).map_err(|NoEntropy| OpenError::NoEntropy)?;
    let vault = id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = Key::generate(ground.entropy.as_ref()).map_err(|NoEntropy| OpenError::NoEntropy)?;
    let header = Header { vault, backend: ground.backend.kind(), key: 1, generation: 1, frames: 0 };
    let bytes = header_bytes(&header, &key, ground.entropy.as_ref()).map_err(|NoEntropy| OpenError::NoEntropy)?;
    // The key first: a file without one is of no use to anybody, and an unused key does no harm.
    ground.backend.put(&BlobName::of_key(&header.vault, 1), &Zeroizing::new(key.bytes().to_vec()))?;
    let create = || {
        let _ = fs::remove_file(&paths.next);
        let mut file = files::create_own(&paths.next)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&paths.next, &paths.current)?;
        files::sync_directory(&ground.directory)?;
        Ok(file)
    };
    let file = create().map_err(|error| io_error(&paths.current, error))?;
    Ok(Vault::new(ground.clone(), decode((file, &bytes), &paths.current, ground)?))
}

/// Reads a file that is ours alone, if it is there.
fn read(path: &Path) -> Result<Option<(File, Vec<u8>)>, OpenError> {
    let mut file = match files::open_own_to_change(path) {
        Ok(file) => file,
        Err(OwnError::OpenToOthers) => return Err(OpenError::OpenToOthers(path.to_owned())),
        Err(OwnError::NotRegular) => return Err(OpenError::NotRegular(path.to_owned())),
        Err(OwnError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(OwnError::Io(error)) => return Err(io_error(path, error)),
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| io_error(path, error))?;
    Ok(Some((file, bytes)))
}

/// Opens the descriptions in a file of which every byte is sound.
fn decode((file, bytes): (File, &[u8]), path: &Path, ground: &Ground) -> Result<Contents, OpenError> {
    let damaged = |at| OpenError::Damaged { path: path.to_owned(), at };
    let read = log::read_header(bytes).ok_or_else(|| damaged(0))?;
    let (configured, recorded) = (ground.backend.kind(), read.header.backend);
    if configured != recorded {
        return Err(OpenError::OtherBackend { recorded, configured });
    }
    let blob = ground.backend.get(&BlobName::of_key(&read.header.vault, read.header.key))?;
    let blob = blob.ok_or(OpenError::KeyMissing(recorded))?;
    let key = Key::from_bytes(&blob).ok_or(OpenError::WrongKey(recorded))?;
    key.open(&read.header.about(read.spelt), read.proof).map_err(|_| OpenError::WrongKey(recorded))?;
    let mut contents = Contents {
        file: Arc::new(file),
        length: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        key: Arc::new(key),
        head: Head { generation: read.header.generation, digest: read.digest },
        header: read.header,
        secrets: HashMap::new(),
        bindings: BTreeMap::new(),
    };
    let mut at = read.end;
    while let Found::Frame(frame) = log::read_frame(bytes, at, contents.head.digest) {
        let description =
            describe(&frame, &contents).ok_or_else(|| OpenError::NotGenuine { path: path.to_owned(), at })?;
        contents.add(description, (frame.value_at, frame.value.len()));
        contents.head = Head { generation: frame.generation, digest: frame.head };
        at = frame.end;
    }
    if at == bytes.len() { Ok(contents) } else { Err(damaged(at)) }
}

/// What a frame describes, if the key of the vault sealed it for this very place.
fn describe(frame: &Frame<'_>, contents: &Contents) -> Option<Description> {
    let before = Head { generation: 0, digest: frame.before };
    let about = about_description(&contents.header.vault, frame.generation, &before);
    let text = contents.key.open(&about, frame.description).ok()?;
    serde_json::from_slice(&text).ok()
}
