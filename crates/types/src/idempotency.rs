//! Keys by which a caller says that two requests are one.
//!
//! Guarantees: 1 to 255 visible ASCII characters, compared byte for byte. What a key says is the caller's business.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Longest key, in bytes.
pub const MAX_KEY_LENGTH: usize = 255;

/// A key that a caller gives to a request, so that sending it again does not do it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// Reads a key.
    ///
    /// # Errors
    /// When it is empty, too long, or has other than visible ASCII characters.
    pub fn parse(key: &str) -> Result<Self, IdempotencyKeyError> {
        match key.len() {
            0 => Err(IdempotencyKeyError::Empty),
            length if length > MAX_KEY_LENGTH => Err(IdempotencyKeyError::TooLong { length }),
            _ if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Self(key.into())),
            _ => Err(IdempotencyKeyError::NotVisible),
        }
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for IdempotencyKey {
    type Err = IdempotencyKeyError;

    fn from_str(key: &str) -> Result<Self, IdempotencyKeyError> {
        Self::parse(key)
    }
}

impl Serialize for IdempotencyKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for IdempotencyKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&key).map_err(de::Error::custom)
    }
}

/// Why a key was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyKeyError {
    /// Nothing was given.
    #[error("the idempotency key is empty")]
    Empty,
    /// More than [`MAX_KEY_LENGTH`] bytes.
    #[error("the idempotency key is {length} bytes long; the limit is {MAX_KEY_LENGTH}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A character that is not visible ASCII.
    #[error("the idempotency key has a character that is not visible ASCII")]
    NotVisible,
}

impl IdempotencyKeyError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "use 1 to 255 visible ASCII characters, such as a UUID"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_visible_ascii_of_some_length() {
        let longest = "~".repeat(MAX_KEY_LENGTH);
        for key in ["!", "9f1b-\"x\"/{}", &longest] {
            assert_eq!(IdempotencyKey::parse(key).unwrap().as_str(), key);
        }
        assert_eq!(IdempotencyKey::parse(""), Err(IdempotencyKeyError::Empty));
        assert_eq!(IdempotencyKey::parse(&"~".repeat(256)), Err(IdempotencyKeyError::TooLong { length: 256 }));
        for key in ["a b", "a\n", "k\u{e9}y", "\u{7f}"] {
            assert_eq!(IdempotencyKey::parse(key), Err(IdempotencyKeyError::NotVisible), "{key:?}");
        }
    }
}
