//! The key that a provider lets in.
//!
//! Guarantees: it is never printed, cannot break out of its header, and is erased from memory when it is dropped.

use std::fmt;

use http::HeaderValue;
use zeroize::Zeroizing;

/// The key that a provider lets in.
#[derive(Clone)]
pub struct Key(Zeroizing<String>);

impl Key {
    /// Reads a key. White space around it, which files tend to end with, is left out.
    ///
    /// # Errors
    /// When it is empty, longer than 4096 characters, or holds anything but visible ASCII.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim_ascii();
        let is_key = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_key { Ok(Self(Zeroizing::new(text.to_owned()))) } else { Err(KeyError) }
    }

    /// The header that carries it.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let text = Zeroizing::new(format!("Bearer {}", *self.0));
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Key {
    // SECURITY: whoever holds it spends its owner's money, so it does not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Why a key was refused. It does not quote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is 1 to {LONGEST} visible ASCII characters")]
pub struct KeyError;

impl KeyError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "put the key into the vault anew, as the provider shows it"
    }
}

const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_visible_word_and_is_not_printed() {
        let key = Key::parse("sk-secret\n").unwrap();
        assert_eq!(key.header().unwrap(), "Bearer sk-secret");
        assert_eq!(format!("{key:?} {:?}", key.header().unwrap()), "Key Sensitive");
        for text in ["", " ", "two words", "a\r\nx: y", "é", &"a".repeat(4097)] {
            assert_eq!(Key::parse(text).unwrap_err(), KeyError);
        }
    }
}
