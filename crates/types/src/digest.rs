//! SHA-256 digests with one spelling: 64 lower-case hexadecimal digits.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a list of fields, each preceded by its length, so that no two lists share a digest by concatenation.
    #[must_use]
    pub fn of_fields<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for field in fields {
            hasher.update(u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(field);
        }
        Self(hasher.finalize().into())
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A digest that somebody else made.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 64 digits. Records are written by the hundred thousand, so this does not go through formatting.
    #[must_use]
    pub fn to_hex(&self) -> String {
        let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(digit(byte >> 4));
            text.push(digit(byte & 15));
        }
        text
    }

    /// Reads 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// When the text is anything else.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(DigestError);
        }
        for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low).ok_or(DigestError)?;
        }
        Ok(Self(bytes))
    }
}

/// A digest in the making, for content that is read piece by piece.
#[derive(Debug, Clone, Default)]
pub struct RunningDigest(Sha256);

impl RunningDigest {
    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of everything that was taken.
    #[must_use]
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_hex())
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Why a digest was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 digest is 64 lower-case hexadecimal digits")]
pub struct DigestError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sha256Digest::of(b"").to_string(), empty);
        assert_eq!(Sha256Digest::parse(empty), Ok(Sha256Digest::of(b"")));
    }

    #[test]
    fn a_second_spelling_of_a_digest_is_refused() {
        let upper = Sha256Digest::of(b"x").to_string().to_uppercase();
        assert_eq!(Sha256Digest::parse(&upper), Err(DigestError));
        assert_eq!(Sha256Digest::parse("00"), Err(DigestError));
    }

    #[test]
    fn a_digest_made_of_pieces_is_the_digest_of_the_whole() {
        let mut running = RunningDigest::default();
        running.update(b"ab");
        running.update(b"c");
        assert_eq!(running.finish(), Sha256Digest::of(b"abc"));
    }

    #[test]
    fn moving_a_byte_between_fields_changes_the_digest() {
        assert_ne!(Sha256Digest::of_fields([&b"ab"[..], b"c"]), Sha256Digest::of_fields([&b"a"[..], b"bc"]));
    }
}
