//! Keys that a passphrase opens.
//!
//! A blob is sealed under a key that Argon2id makes of the passphrase, with a salt of its own, and kept in a file. Guarantees: whoever has
//! the file and not the passphrase has to guess, at 64 MiB and three passes a guess. Refuses: a passphrase that is too short.

use std::{fmt, path::PathBuf, sync::Arc};

use argon2::{Algorithm, Argon2, Params, Version};
use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_types::entropy::Entropy;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{BackendError, BackendKind, Blob, BlobBackend, BlobName, SHORTEST_PASSPHRASE, key_file};
use crate::seal::{About, Key};

/// Keys that a passphrase opens.
pub struct Passphrase {
    directory: PathBuf,
    passphrase: Zeroizing<String>,
    entropy: Arc<dyn Entropy>,
}

impl Passphrase {
    /// Keys in this directory, opened by this passphrase.
    ///
    /// # Errors
    /// When the passphrase is too short.
    pub fn new(
        directory: PathBuf,
        passphrase: Zeroizing<String>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, BackendError> {
        match passphrase.chars().count() {
            length if length < SHORTEST_PASSPHRASE => Err(BackendError::WeakPassphrase { length }),
            _ => Ok(Self { directory, passphrase, entropy }),
        }
    }

    fn path(&self, name: &BlobName) -> PathBuf {
        self.directory.join(format!("{}.sealed", name.as_str()))
    }

    fn key(&self, cost: &Cost, salt: &[u8]) -> Result<Key, BackendError> {
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32));
        let argon = params.map(|params| Argon2::new(Algorithm::Argon2id, Version::V0x13, params));
        let mut bytes = Zeroizing::new([0; 32]);
        let made =
            argon.and_then(|argon| argon.hash_password_into(self.passphrase.as_bytes(), salt, bytes.as_mut_slice()));
        made.map_err(|_| BackendError::Exhausted)?;
        Key::from_bytes(bytes.as_slice()).ok_or(BackendError::Exhausted)
    }
}

impl BlobBackend for Passphrase {
    fn kind(&self) -> BackendKind {
        BackendKind::Passphrase
    }

    fn get(&self, name: &BlobName) -> Result<Option<Blob>, BackendError> {
        let path = self.path(name);
        let Some(content) = key_file::read(&path)? else { return Ok(None) };
        let not_a_key = || BackendError::NotAKey(path.clone());
        let kept: Kept = serde_json::from_slice(&content).map_err(|_| not_a_key())?;
        if !kept.cost.is_sane() {
            return Err(not_a_key());
        }
        let decode = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| not_a_key());
        let (salt, sealed) = (decode(&kept.salt)?, decode(&kept.sealed)?);
        let about = about(name, &kept.cost, &salt);
        self.key(&kept.cost, &salt)?.open(&about, &sealed).map(Some).map_err(|_| BackendError::WrongPassphrase)
    }

    fn put(&self, name: &BlobName, blob: &Blob) -> Result<(), BackendError> {
        let mut salt = [0; 16];
        self.entropy.fill(&mut salt).map_err(|_| BackendError::Exhausted)?;
        let key = self.key(&USUAL, &salt)?;
        let sealed = key.seal(&about(name, &USUAL, &salt), blob, self.entropy.as_ref());
        let sealed = sealed.map_err(|_| BackendError::Exhausted)?;
        let kept = Kept { cost: USUAL, salt: BASE64_STANDARD.encode(salt), sealed: BASE64_STANDARD.encode(sealed) };
        let text = serde_json::to_vec(&kept).map_err(|_| BackendError::Exhausted)?;
        key_file::write(&self.path(name), &text)
    }

    fn delete(&self, name: &BlobName) -> Result<(), BackendError> {
        key_file::remove(&self.path(name))
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passphrase").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// A blob as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    cost: Cost,
    salt: String,
    sealed: String,
}

/// What a guess costs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl Cost {
    /// SECURITY: the file is not to be believed before it is opened. It must not make a guess cheap to check, nor take all memory.
    const fn is_sane(&self) -> bool {
        self.memory_kib >= USUAL.memory_kib
            && self.memory_kib <= 1 << 20
            && self.passes >= USUAL.passes
            && self.passes <= 16
            && self.lanes >= 1
            && self.lanes <= 16
    }
}

fn about(name: &BlobName, cost: &Cost, salt: &[u8]) -> About {
    let cost = [cost.memory_kib, cost.passes, cost.lanes].map(u32::to_be_bytes).concat();
    About::kind("palyra vault passphrase").and(name.as_str().as_bytes()).and(&cost).and(salt)
}

/// What RFC 9106 recommends where memory is short.
const USUAL: Cost = Cost { memory_kib: 64 << 10, passes: 3, lanes: 4 };

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;

    use super::*;

    fn backend(directory: &std::path::Path, words: &str) -> Passphrase {
        let words = Zeroizing::new(words.to_owned());
        Passphrase::new(directory.to_owned(), words, Arc::new(SystemEntropy)).unwrap()
    }

    #[test]
    fn a_key_opens_for_its_passphrase_alone() {
        let place = tempfile::tempdir().unwrap();
        let name = BlobName::of_key("v", 1);
        let right = backend(place.path(), "correct horse battery");
        assert!(right.get(&name).unwrap().is_none());
        right.put(&name, &Zeroizing::new(vec![7; 32])).unwrap();
        assert_eq!(right.get(&name).unwrap().unwrap().as_slice(), [7; 32]);
        let wrong = backend(place.path(), "correct horse batterx");
        assert!(matches!(wrong.get(&name), Err(BackendError::WrongPassphrase)));
        // What is kept under another name is not taken for this one.
        std::fs::rename(right.path(&name), right.path(&BlobName::of_key("v", 2))).unwrap();
        assert!(matches!(right.get(&BlobName::of_key("v", 2)), Err(BackendError::WrongPassphrase)));
        right.delete(&BlobName::of_key("v", 2)).unwrap();
        assert!(right.get(&BlobName::of_key("v", 2)).unwrap().is_none());
    }

    #[test]
    fn what_makes_guesses_cheap_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let short = Passphrase::new(place.path().to_owned(), Zeroizing::new("short".into()), Arc::new(SystemEntropy));
        assert!(matches!(short, Err(BackendError::WeakPassphrase { length: 5 })));
        let name = BlobName::of_key("v", 1);
        let right = backend(place.path(), "correct horse battery");
        right.put(&name, &Zeroizing::new(vec![7; 32])).unwrap();
        let text = std::fs::read_to_string(right.path(&name)).unwrap();
        let cheap = text.replace("65536", "8");
        assert_ne!(cheap, text);
        key_file::write(&right.path(&name), cheap.as_bytes()).unwrap();
        assert!(matches!(right.get(&name), Err(BackendError::NotAKey(_))));
    }
}
