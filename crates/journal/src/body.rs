//! What a record says: text that can be erased while the chain that commits to it stays whole.
//!
//! Guarantees: the chain holds `SHA-256(salt ‖ body)` with a salt of 32 random bytes kept beside the body; once both are gone, the
//! commitment confirms no guess. Known shapes of tokens are masked before anything is kept.

use palyra_types::{
    Sha256Digest,
    entropy::{Entropy, NoEntropy},
};
use serde::Serialize;

use crate::mask::masked;

/// The length of a salt.
pub const SALT_LENGTH: usize = 32;

/// A body: masked text and its salt.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    text: String,
    salt: [u8; SALT_LENGTH],
    commitment: Sha256Digest,
}

impl Body {
    /// A body of this text, masked and salted.
    ///
    /// # Errors
    /// When there is no randomness for a salt.
    pub fn new(text: String, entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let mut salt = [0; SALT_LENGTH];
        entropy.fill(&mut salt)?;
        let text = masked(text);
        Ok(Self { commitment: commitment(&salt, text.as_bytes()), text, salt })
    }

    /// A body that holds a value as JSON.
    ///
    /// # Errors
    /// When the value cannot be written as JSON, or there is no randomness for a salt.
    pub fn of(value: &impl Serialize, entropy: &dyn Entropy) -> Result<Self, BodyError> {
        Ok(Self::new(serde_json::to_string(value).map_err(|_| BodyError::NotJson)?, entropy)?)
    }

    /// The text that is kept.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn salt(&self) -> &[u8; SALT_LENGTH] {
        &self.salt
    }

    /// What the chain commits to.
    #[must_use]
    pub const fn commitment(&self) -> Sha256Digest {
        self.commitment
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SECURITY: bodies hold arguments and output; they do not belong in logs.
        write!(f, "Body({} bytes)", self.text.len())
    }
}

/// What the chain commits to for this salt and this text.
#[must_use]
pub fn commitment(salt: &[u8], text: &[u8]) -> Sha256Digest {
    use sha2::Digest;
    let mut hasher = sha2::Sha256::new();
    hasher.update(salt);
    hasher.update(text);
    Sha256Digest::from_bytes(hasher.finalize().into())
}

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The value has no JSON form.
    #[error("the record cannot be written as JSON")]
    NotJson,
    /// No salt.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

#[cfg(test)]
mod tests {
    use palyra_types::entropy::{SeededEntropy, SystemEntropy};

    use super::*;

    #[test]
    fn the_same_text_is_committed_to_differently_each_time() {
        let body = || Body::new("{}".to_owned(), &SystemEntropy).unwrap();
        assert_ne!(body().commitment(), body().commitment());
    }

    #[test]
    fn the_commitment_is_the_hash_of_salt_and_text() {
        let body = Body::new("{\"x\":1}".to_owned(), &SeededEntropy::new(3)).unwrap();
        let together = [body.salt().as_slice(), b"{\"x\":1}"].concat();
        assert_eq!(body.commitment(), Sha256Digest::of(&together));
    }

    #[test]
    fn a_body_does_not_show_itself_in_debug_output() {
        let body = Body::new("hush".to_owned(), &SystemEntropy).unwrap();
        assert_eq!(format!("{body:?}"), "Body(4 bytes)");
    }
}
