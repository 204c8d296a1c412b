//! What a program sees in the place of a secret.
//!
//! Guarantees: a placeholder is random, belongs to one run and one secret, and says nothing about the value, not even its length. It is made
//! of small letters and digits alone, so that it passes through headers, URLs, JSON, forms and shells as it is.

use std::fmt;

use palyra_types::entropy::{Entropy, NoEntropy};

/// What a program sees in the place of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder(String);

impl Placeholder {
    /// A new one.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn generate(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let mut bytes = [0; LETTERS];
        entropy.fill(&mut bytes)?;
        // Of 32 letters each byte takes one, none more often than another.
        let letter = |byte: &u8| ALPHABET.get(usize::from(byte & 31)).copied().unwrap_or(b'a');
        let random: Vec<u8> = bytes.iter().map(letter).collect();
        Ok(Self(format!("{PREFIX}{}", String::from_utf8_lossy(&random))))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// So that whoever finds one knows what it is.
const PREFIX: &str = "palyraplaceholder";

/// How many random letters there are: 160 bits.
const LETTERS: usize = 32;

const ALPHABET: &[u8; 32] = b"abcdefghijkmnopqrstuvwxyz2345678";

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SystemEntropy;

    use super::*;

    #[test]
    fn placeholders_differ_and_need_no_quoting() {
        let some: Vec<Placeholder> = (0..100).map(|_| Placeholder::generate(&SystemEntropy).unwrap()).collect();
        for (number, one) in some.iter().enumerate() {
            assert!(one.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
            assert_eq!(one.as_str().len(), PREFIX.len() + LETTERS);
            assert!(!some[..number].contains(one));
        }
    }
}
