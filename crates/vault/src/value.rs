//! The value of a secret while it is in memory.
//!
//! Guarantees: it is wiped when it is dropped; nothing prints, clones or compares it by accident. Refuses: to be empty, or longer than
//! what a header, a variable or a small file holds.

use std::fmt;

use zeroize::Zeroizing;

/// The value of a secret.
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// These bytes as a value. They are wiped also if they cannot be one.
    ///
    /// # Errors
    /// When there are none, or too many.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ValueError> {
        let bytes = Zeroizing::new(bytes);
        match bytes.len() {
            0 => Err(ValueError::Empty),
            length if length > LONGEST_VALUE => Err(ValueError::TooLong { length }),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes, for whoever has to write them somewhere.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a value is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue")
    }
}

/// Why bytes are no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// There is nothing to keep.
    #[error("the value is empty")]
    Empty,
    /// More than is kept.
    #[error("the value has {length} bytes; the limit is {LONGEST_VALUE}")]
    TooLong {
        /// How many there are.
        length: usize,
    },
}

impl ValueError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Empty => "give the value on standard input, in a file or at the prompt",
            Self::TooLong { .. } => "keep a large file encrypted elsewhere, and its key here",
        }
    }
}

/// How many bytes a value has at most.
pub const LONGEST_VALUE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_neither_empty_nor_endless_and_never_printed() {
        assert_eq!(SecretValue::new(Vec::new()).unwrap_err(), ValueError::Empty);
        let length = LONGEST_VALUE + 1;
        assert_eq!(SecretValue::new(vec![1; length]).unwrap_err(), ValueError::TooLong { length });
        let value = SecretValue::new(b"hunter2".to_vec()).unwrap();
        assert_eq!((value.expose(), value.len(), format!("{value:?}")), (&b"hunter2"[..], 7, "SecretValue".to_owned()));
    }
}
