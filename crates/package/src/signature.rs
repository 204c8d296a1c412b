//! Signatures of packages, in the format of minisign.
//!
//! Guarantees: what is [`Verified`] was signed whole, comment included, by the key that was named; signatures that this crate makes are verified
//! by the `minisign` program, and the reverse. Secret keys are never printed.
//! Refuses: signatures of the old kind, over the content itself instead of its digest.
//! Does not: say whether a key is to be trusted. [`crate::publishers`] does.

use std::{fmt, io::Cursor, str::FromStr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palyra_types::visible::visible;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::Zeroizing;

/// The public key of a publisher. One key has one spelling: the line of base64 in a `.pub` file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherKey([u8; KEY_BYTES]);

impl PublisherKey {
    /// Reads the line of base64, or a whole `.pub` file.
    ///
    /// # Errors
    /// When it is no public key of minisign.
    pub fn parse(text: &str) -> Result<Self, SignatureError> {
        let malformed = || SignatureError::NoKey;
        if text.len() > MOST_TEXT_BYTES {
            return Err(malformed());
        }
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let (first, second) = (lines.next().ok_or_else(malformed)?, lines.next());
        let line = if first.starts_with(UNTRUSTED) { second.ok_or_else(malformed)? } else { first };
        if lines.next().is_some() || (second.is_some() && line == first) {
            return Err(malformed());
        }
        let bytes = BASE64_STANDARD.decode(line.trim()).map_err(|_| malformed())?;
        let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| malformed())?;
        if !bytes.starts_with(ALGORITHM) {
            return Err(malformed());
        }
        Ok(Self(bytes))
    }

    /// The short id that minisign shows, which leaves out zeros at its beginning. Anybody can make a key with a given id: it is for people to compare, and proves nothing.
    #[must_use]
    pub fn key_id(&self) -> String {
        let id = self.0.iter().skip(ALGORITHM.len()).take(8);
        id.rev().map(|byte| format!("{byte:02X}")).collect()
    }

    /// The key as a `.pub` file.
    #[must_use]
    pub fn to_file(&self) -> String {
        format!("{UNTRUSTED} minisign public key {}\n{self}\n", self.key_id())
    }
}

impl fmt::Display for PublisherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublisherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublisherKey({self})")
    }
}

impl FromStr for PublisherKey {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for PublisherKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublisherKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A signature that fits a key and an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    key: PublisherKey,
    comment: String,
}

impl Verified {
    /// Who signed.
    #[must_use]
    pub const fn key(&self) -> &PublisherKey {
        &self.key
    }

    /// What the signer wrote beside the signature, which is signed too.
    #[must_use]
    pub fn comment(&self) -> &str {
        &self.comment
    }
}

/// Verifies the signature of an archive.
///
/// # Errors
/// When it is no signature, of the old kind, by another key, or not of this archive.
pub fn verify(archive: &[u8], signature: &str, key: &PublisherKey) -> Result<Verified, SignatureError> {
    if signature.len() > MOST_TEXT_BYTES {
        return Err(SignatureError::NoSignature);
    }
    let public = minisign_verify::PublicKey::from_base64(&key.to_string()).map_err(|_| SignatureError::NoKey)?;
    let signature = minisign_verify::Signature::decode(signature).map_err(|_| SignatureError::NoSignature)?;
    match public.verify(archive, &signature, REFUSE_LEGACY) {
        Ok(()) => Ok(Verified { key: key.clone(), comment: signature.trusted_comment().to_owned() }),
        Err(minisign_verify::Error::UnexpectedKeyId) => Err(SignatureError::OtherKey { expected: key.key_id() }),
        Err(minisign_verify::Error::UnexpectedAlgorithm) => Err(SignatureError::Legacy),
        Err(_) => Err(SignatureError::DoesNotFit),
    }
}

/// The id of the key that a signature says it was made with. For finding the key; it proves nothing.
///
/// # Errors
/// When it is no signature.
pub fn signer_of(signature: &str) -> Result<String, SignatureError> {
    if signature.len() > MOST_TEXT_BYTES {
        return Err(SignatureError::NoSignature);
    }
    let line = signature.lines().nth(1).ok_or(SignatureError::NoSignature)?;
    let bytes = BASE64_STANDARD.decode(line.trim()).map_err(|_| SignatureError::NoSignature)?;
    let id = bytes.get(ALGORITHM.len()..ALGORITHM.len() + 8).ok_or(SignatureError::NoSignature)?;
    Ok(id.iter().rev().map(|byte| format!("{byte:02X}")).collect())
}

/// A key to sign packages with. It is never printed.
pub struct SecretSigningKey {
    secret: minisign::SecretKey,
    public: PublisherKey,
    file: Zeroizing<String>,
}

impl SecretSigningKey {
    /// Makes a key. With a password its file is sealed by it; without one whoever reads the file can sign.
    ///
    /// # Errors
    /// When the machine has no randomness, or no memory to seal it.
    pub fn generate(password: Option<&str>) -> Result<Self, SignatureError> {
        let unusable = |error: minisign::PError| SignatureError::Unusable(error.to_string());
        let Some(password) = password else {
            let secret = minisign::KeyPair::generate_unencrypted_keypair().map_err(unusable)?.sk;
            let file = secret.to_box(None).map_err(unusable)?;
            return Self::of(secret, Zeroizing::new(file.into_string()));
        };
        let sealed = minisign::KeyPair::generate_encrypted_keypair(Some(password.to_owned())).map_err(unusable)?.sk;
        let file = sealed.to_box(None).map_err(unusable)?;
        Self::load(&file.into_string(), Some(password))
    }

    /// Reads the file of a secret key, as this makes it or the `minisign` program does.
    ///
    /// # Errors
    /// When it is none, it is sealed and there is no password, or the password is another.
    pub fn load(file: &str, password: Option<&str>) -> Result<Self, SignatureError> {
        if file.len() > MOST_TEXT_BYTES {
            return Err(SignatureError::NoSecretKey);
        }
        let line = file.lines().nth(1).ok_or(SignatureError::NoSecretKey)?;
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(line.trim()).map_err(|_| SignatureError::NoSecretKey)?);
        let boxed = minisign::SecretKeyBox::from_string(file).map_err(|_| SignatureError::NoSecretKey)?;
        // SECURITY: without a password minisign asks for one at the terminal, which a library must not.
        let secret = match (bytes.get(2..4), password) {
            // Debian's minisign leaves the checksum of such a key empty. Whether the key is whole shows when it signs.
            (Some([0, 0]), _) if bytes.iter().rev().take(CHECKSUM_BYTES).all(|&byte| byte == 0) => {
                minisign::SecretKey::from_bytes(&bytes).map_err(|_| SignatureError::NoSecretKey)?
            }
            (Some([0, 0]), _) => boxed.into_unencrypted_secret_key().map_err(|_| SignatureError::NoSecretKey)?,
            (Some(b"Sc"), None) => return Err(SignatureError::PasswordNeeded),
            (Some(b"Sc"), Some(password)) => {
                boxed.into_secret_key(Some(password.to_owned())).map_err(|_| SignatureError::WrongPassword)?
            }
            _ => return Err(SignatureError::NoSecretKey),
        };
        Self::of(secret, Zeroizing::new(file.to_owned()))
    }

    fn of(secret: minisign::SecretKey, file: Zeroizing<String>) -> Result<Self, SignatureError> {
        let public = minisign::PublicKey::from_secret_key(&secret)
            .map_err(|error| SignatureError::Unusable(error.to_string()))?
            .to_base64();
        Ok(Self { secret, public: PublisherKey::parse(&public)?, file })
    }

    /// The key that others verify with.
    #[must_use]
    pub fn public(&self) -> PublisherKey {
        self.public.clone()
    }

    /// The content of the file to keep it in.
    #[must_use]
    pub fn to_file(&self) -> &str {
        &self.file
    }

    /// Signs an archive. The comment is signed too; it is one line.
    ///
    /// # Errors
    /// When the comment is more than one line or too long, or the machine has no randomness.
    pub fn sign(&self, archive: &[u8], comment: &str) -> Result<String, SignatureError> {
        if comment.len() > MOST_COMMENT_BYTES || comment.chars().any(char::is_control) {
            return Err(SignatureError::Comment(comment.to_owned()));
        }
        let untrusted = format!("signature from palyra, key {}", self.public.key_id());
        let public = minisign::PublicKey::from_base64(&self.public.to_string())
            .map_err(|error| SignatureError::Unusable(error.to_string()))?;
        minisign::sign(Some(&public), &self.secret, Cursor::new(archive), Some(comment), Some(&untrusted))
            .map(minisign::SignatureBox::into_string)
            .map_err(|error| SignatureError::Unusable(error.to_string()))
    }
}

impl fmt::Debug for SecretSigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretSigningKey({})", self.public.key_id())
    }
}

/// Why a key or a signature is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not a public key.
    #[error("it is no public key of minisign")]
    NoKey,
    /// Not a signature.
    #[error("it is no signature of minisign")]
    NoSignature,
    /// Over the content itself.
    #[error("the signature is of the old kind, over the content itself")]
    Legacy,
    /// Made with another key.
    #[error("the signature was made with another key than {expected}")]
    OtherKey {
        /// The id of the key that was to be.
        expected: String,
    },
    /// The content or the comment is another, or the key only has the same id.
    #[error("the signature does not fit: the package was changed, or another key made it")]
    DoesNotFit,
    /// Not a secret key.
    #[error("it is no secret key of minisign")]
    NoSecretKey,
    /// It is sealed.
    #[error("the secret key is sealed by a password")]
    PasswordNeeded,
    /// Another password sealed it.
    #[error("the password does not open the secret key")]
    WrongPassword,
    /// More than a line.
    #[error("the comment `{}` is not one line of at most {MOST_COMMENT_BYTES} bytes", visible(.0))]
    Comment(String),
    /// The machine could not.
    #[error("the key cannot be used: {}", visible(.0))]
    Unusable(String),
}

impl SignatureError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NoKey => "name the key by the second line of the publisher's `.pub` file, or the file itself",
            Self::NoSignature => "give the `.minisig` file that belongs to the package",
            Self::Legacy => "ask the publisher to sign with a minisign of this decade, which signs digests by default",
            Self::OtherKey { .. } => "check whose package it is; trust another key only if its publisher tells you so",
            Self::DoesNotFit => {
                "fetch the package and its signature again, from the publisher; if it is yours, sign it again: `palyra skills sign FILE.skill`"
            }
            Self::NoSecretKey => "give the file that `palyra skills keygen` or `minisign -G` made",
            Self::PasswordNeeded | Self::WrongPassword => "give the password that the key was made with",
            Self::Comment(_) => "write a shorter comment, on one line",
            Self::Unusable(_) => "try again; if it stays so, make another key",
        }
    }
}

/// `Ed`, eight bytes of id, and an ed25519 key.
const KEY_BYTES: usize = 42;
const ALGORITHM: &[u8] = b"Ed";
const CHECKSUM_BYTES: usize = 32;
const UNTRUSTED: &str = "untrusted comment:";
/// `allow_legacy` of the verifier.
const REFUSE_LEGACY: bool = false;
/// The largest file of a key or a signature.
const MOST_TEXT_BYTES: usize = 16 << 10;
/// The longest comment.
const MOST_COMMENT_BYTES: usize = 1024;

#[cfg(test)]
mod tests;
