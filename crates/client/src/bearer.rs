//! What a client sends along besides the request: a credential, and a key that makes a repeated call the same call.

use std::fmt;

use hyper::header::HeaderValue;
use zeroize::Zeroizing;

/// A credential. It is never printed, and erased from memory when it is dropped.
#[derive(Clone)]
pub struct Bearer(Zeroizing<String>);

impl Bearer {
    /// Reads a credential.
    ///
    /// # Errors
    /// When it is empty or holds anything but visible ASCII.
    pub fn parse(text: &str) -> Result<Self, BearerError> {
        if is_visible(text, MAX_BEARER) { Ok(Self(Zeroizing::new(text.to_owned()))) } else { Err(BearerError) }
    }

    /// The header that carries it.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let text = Zeroizing::new(format!("Bearer {}", *self.0));
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Bearer {
    // SECURITY: whoever holds it is let in, so it does not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer")
    }
}

/// Why a credential was refused. It does not quote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a credential is 1 to {MAX_BEARER} visible ASCII characters")]
pub struct BearerError;

fn is_visible(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

const MAX_BEARER: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_one_visible_word_and_is_not_printed() {
        let bearer = Bearer::parse("plr_secret").unwrap();
        assert_eq!(format!("{bearer:?} {:?}", bearer.header().unwrap()), "Bearer Sensitive");
        for text in ["", "two words", "a\r\nx: y", "é"] {
            assert!(Bearer::parse(text).is_err(), "{text:?}");
        }
    }
}
