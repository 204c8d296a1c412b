//! The key that signs checkpoints and attestations, and the notes it signs (C2SP signed-note, Ed25519).
//!
//! Guarantees: the private key is in one file that only its owner can read, replaced never and made once; what is signed is a note whose
//! first line tells a checkpoint (it is the journal's origin) from an attestation (it is a JSON object), so neither can pose as the other.

use std::{
    fs,
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use ed25519_dalek::SigningKey;
use palyra_types::entropy::{Entropy, NoEntropy};
use signed_note::{
    Note, Signature, Signer, StandardSigner, StandardVerifier, VerifierList, key_id, new_ed25519_verifier_key,
};
use zeroize::Zeroizing;

/// The file that holds the private key.
pub const SIGNING_KEY_FILE: &str = "signing.key";

/// The file that holds the private key until the first record that it signed is durable.
pub(crate) const BEGUN_KEY_FILE: &str = "signing.key.begun";

/// The file that holds the public key, for whoever wants to verify.
pub const VERIFY_KEY_FILE: &str = "verify.key";

/// A signing key with its name, which is the journal's origin.
#[derive(Clone)]
pub struct JournalKey {
    pair: Arc<Ed25519KeyPair>,
    /// What a signature says it was made with.
    id: u32,
    public: Arc<VerifyKey>,
}

impl JournalKey {
    /// Makes a new key of this name. A name has no spaces and no `+`.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn generate(name: &str, entropy: &dyn Entropy) -> Result<(Self, Zeroizing<String>), KeyError> {
        let mut seed = Zeroizing::new([0; 32]);
        entropy.fill(seed.as_mut())?;
        let key = SigningKey::from_bytes(&seed);
        let public = [&[ALGORITHM], key.verifying_key().as_bytes().as_slice()].concat();
        let private = Zeroizing::new([&[ALGORITHM], seed.as_slice()].concat());
        let id = key_id(name, &public);
        let text =
            Zeroizing::new(format!("PRIVATE+KEY+{name}+{id:08x}+{}", BASE64_STANDARD.encode(private.as_slice())));
        Ok((Self::from_text(&text)?, text))
    }

    /// Reads the key in a file.
    ///
    /// # Errors
    /// When the file cannot be read, others can read it, or it holds no key.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |error| KeyError::Io(path.to_owned(), error);
        let mode = fs::metadata(path).map_err(io)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(KeyError::OpenToOthers(path.to_owned()));
        }
        let text = Zeroizing::new(fs::read_to_string(path).map_err(io)?);
        Self::from_text(text.trim())
    }

    fn from_text(text: &str) -> Result<Self, KeyError> {
        let signer = StandardSigner::new(text).map_err(|_| KeyError::Malformed)?;
        // `PRIVATE+KEY+name+hash+key`, where the key is base 64 and may hold a `+` itself.
        let seed = text.splitn(5, '+').nth(4).and_then(|seed| BASE64_STANDARD.decode(seed).ok()).map(Zeroizing::new);
        let seed: Option<&[u8; 32]> = seed.as_ref().and_then(|seed| seed.get(1..)?.try_into().ok());
        let seed = seed.ok_or(KeyError::Malformed)?;
        let public = SigningKey::from_bytes(seed).verifying_key();
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public.as_bytes());
        let pair = Arc::new(pair.map_err(|_| KeyError::Malformed)?);
        let public = VerifyKey::parse(&new_ed25519_verifier_key(signer.name(), &public))?;
        Ok(Self { pair, id: signer.key_id(), public: Arc::new(public) })
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> &VerifyKey {
        &self.public
    }

    /// Signs a text that ends with a newline, and returns the whole note.
    ///
    /// # Errors
    /// When the text cannot be the text of a note.
    pub fn sign(&self, text: &str) -> Result<String, KeyError> {
        let signature = self.pair.try_sign(text.as_bytes()).map_err(|_| KeyError::NotSignable)?;
        let signature = Signature::new(self.public.name().to_owned(), self.id, signature.as_ref().to_vec());
        let note = signature.and_then(|signature| Note::new(text.as_bytes(), &[signature]));
        String::from_utf8(note.map_err(|_| KeyError::NotSignable)?.to_bytes()).map_err(|_| KeyError::NotSignable)
    }
}

impl std::fmt::Debug for JournalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JournalKey({})", self.public.text)
    }
}

/// The public half of a key, in the form `name+hash+key` of C2SP signed-note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyKey {
    text: String,
}

impl VerifyKey {
    /// Reads `name+hash+key`.
    ///
    /// # Errors
    /// When the text is no Ed25519 key of that form.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        StandardVerifier::new(text).map_err(|_| KeyError::Malformed)?;
        // A key has one spelling, so that two texts are the same key or are not. The verifier takes upper-case digits as well.
        let mut parts = text.splitn(3, '+');
        let (name, key) = parts.next().zip(parts.nth(1)).ok_or(KeyError::Malformed)?;
        let key = BASE64_STANDARD.decode(key).map_err(|_| KeyError::Malformed)?;
        let spelt = format!("{name}+{:08x}+{}", key_id(name, &key), BASE64_STANDARD.encode(&key));
        if text == spelt { Ok(Self { text: spelt }) } else { Err(KeyError::Malformed) }
    }

    /// Reads the public key of a journal's directory.
    ///
    /// # Errors
    /// When the file cannot be read or holds no key.
    pub fn load(directory: &Path) -> Result<Self, KeyError> {
        let path = directory.join(VERIFY_KEY_FILE);
        Self::parse(&fs::read_to_string(&path).map_err(|error| KeyError::Io(path, error))?)
    }

    /// The key as text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the key, which is the origin of the journal it signs.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.split('+').next().unwrap_or_default()
    }

    /// The text of a note that this key signed.
    ///
    /// # Errors
    /// When the note is malformed or not signed by this key.
    pub fn open(&self, note: &str) -> Result<String, KeyError> {
        let verifier = StandardVerifier::new(&self.text).map_err(|_| KeyError::Malformed)?;
        let parsed = Note::from_bytes(note.as_bytes()).map_err(|_| KeyError::NotSigned)?;
        parsed.verify(&VerifierList::new(vec![Box::new(verifier)])).map_err(|_| KeyError::NotSigned)?;
        String::from_utf8(parsed.text().to_vec()).map_err(|_| KeyError::NotSigned)
    }
}

/// Why there is no key or no signature.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("the key file `{}` cannot be used: {}", .0.display(), .1)]
    Io(PathBuf, #[source] std::io::Error),
    /// Others can read the private key.
    #[error("the key file `{}` can be read by others", .0.display())]
    OpenToOthers(PathBuf),
    /// The text is no key.
    #[error("the key is malformed")]
    Malformed,
    /// The text cannot be signed.
    #[error("the text cannot be signed as a note")]
    NotSignable,
    /// The note is not signed by this key.
    #[error("the note is not signed by this key")]
    NotSigned,
    /// No randomness.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

impl KeyError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Io(path, _) => format!("check that the daemon's user owns {}", path.display()),
            Self::OpenToOthers(path) => format!("if nobody else has read it: `chmod 600 {}`", path.display()),
            Self::Malformed => "restore the key from a backup; a new key starts a new journal".to_owned(),
            Self::NotSignable | Self::NoEntropy(_) => "report this".to_owned(),
            Self::NotSigned => "check that the key belongs to this journal".to_owned(),
        }
    }
}

/// Writes a file that did not exist, so that it is there whole or not at all, and stays after a power cut.
pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeyError> {
    let io = |error| KeyError::Io(path.to_owned(), error);
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&unfinished).map_err(io)?;
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(io)?;
    file.write_all(bytes).and_then(|()| file.write_all(b"\n")).and_then(|()| file.sync_all()).map_err(io)?;
    fs::rename(&unfinished, path).map_err(io)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)
}

/// Ed25519, in the numbering of C2SP signed-note.
const ALGORITHM: u8 = 1;

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;

    use super::*;

    #[test]
    fn a_key_is_read_back_unless_others_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SIGNING_KEY_FILE);
        let (key, text) = JournalKey::generate("palyra.local/x", &SystemEntropy).unwrap();
        write_new(&path, text.as_bytes(), 0o600).unwrap();
        assert_eq!(JournalKey::load(&path).unwrap().public(), key.public());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(JournalKey::load(&path), Err(KeyError::OpenToOthers(_))));
    }

    #[test]
    fn a_public_key_has_one_spelling() {
        let (key, _) = JournalKey::generate("a", &SystemEntropy).unwrap();
        let text = key.public().text();
        let (name, rest) = text.split_once('+').unwrap();
        let (hash, key) = rest.split_once('+').unwrap();
        assert!(VerifyKey::parse(text).is_ok());
        let shouted = format!("{name}+{}+{key}", hash.to_uppercase());
        assert_eq!(VerifyKey::parse(&shouted).is_ok(), shouted == text);
    }

    #[test]
    fn a_note_opens_with_its_key_only_and_as_it_was_signed_only() {
        let (key, _) = JournalKey::generate("a", &SystemEntropy).unwrap();
        let (other, _) = JournalKey::generate("a", &SystemEntropy).unwrap();
        let note = key.sign("a\n1\n").unwrap();
        assert_eq!(key.public().open(&note).unwrap(), "a\n1\n");
        assert!(matches!(other.public().open(&note), Err(KeyError::NotSigned)));
        assert!(matches!(key.public().open(&note.replacen('1', "2", 1)), Err(KeyError::NotSigned)));
        assert!(!format!("{key:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_signature_is_the_one_that_another_implementation_makes() {
        let (key, private) = JournalKey::generate("a", &SystemEntropy).unwrap();
        let mut note = Note::new(b"a\n1\n", &[]).unwrap();
        note.add_sigs(&[&StandardSigner::new(&private).unwrap()]).unwrap();
        assert_eq!(key.sign("a\n1\n").unwrap().as_bytes(), note.to_bytes());
    }
}
