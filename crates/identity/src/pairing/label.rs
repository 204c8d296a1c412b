//! What a device says about itself: a short line that shows everything it holds.

use std::{borrow::Cow, fmt};

use palyra_types::visible::is_hidden;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// 1 to 64 visible characters, with no space at either end. Claimed by a device; nobody has checked that it is true.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(Box<str>);

impl Label {
    /// Reads a label.
    ///
    /// # Errors
    /// When it is empty, too long, or hides something.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        match text.chars().count() {
            0 => Err(LabelError::Empty),
            length if length > LONGEST => Err(LabelError::TooLong { length }),
            _ if text.chars().any(is_hidden) || text.trim() != text => Err(LabelError::Hidden),
            _ => Ok(Self(text.into())),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Label {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a label was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Nothing was given.
    #[error("what a device says about itself is empty")]
    Empty,
    /// More than 64 characters.
    #[error("what a device says about itself has {length} characters; the limit is {LONGEST}")]
    TooLong {
        /// How many it has.
        length: usize,
    },
    /// A character that cannot be seen, or a space at an end.
    #[error("what a device says about itself has a character that cannot be seen")]
    Hidden,
}

impl LabelError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "use 1 to 64 visible characters, with no space at either end"
    }
}

const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_shows_everything_that_it_holds() {
        for text in ["a", "Ada's laptop", "Büro 日本", &"é".repeat(64)] {
            assert_eq!(Label::parse(text).unwrap().as_str(), text);
        }
        assert_eq!(Label::parse(""), Err(LabelError::Empty));
        assert_eq!(Label::parse(&"é".repeat(65)), Err(LabelError::TooLong { length: 65 }));
        for text in [" ", "a ", " a", "a\nb", "a\u{202e}b", "a\u{200b}", "a\u{a0}b", "\0"] {
            assert_eq!(Label::parse(text), Err(LabelError::Hidden), "{text:?}");
        }
    }
}
