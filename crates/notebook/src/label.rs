//! Short texts that people read: titles, tags, keys, names.

use palyra_types::visible::{is_hidden, visible};

/// Why a short text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Nothing was given.
    #[error("the {what} is empty")]
    Empty {
        /// What was being written.
        what: &'static str,
    },
    /// Too many characters.
    #[error("the {what} is {length} characters long; the limit is {most}")]
    TooLong {
        /// What was being written.
        what: &'static str,
        /// Its length in characters.
        length: usize,
        /// The limit.
        most: usize,
    },
    /// A character that cannot be seen, or one that has no place there.
    #[error("the {what} `{}` has `{}` in it", visible(.text), visible(&.character.to_string()))]
    Character {
        /// What was being written.
        what: &'static str,
        /// The text as given.
        text: String,
        /// The character.
        character: char,
    },
}

impl LabelError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Empty { .. } => "give it at least one character, or leave it out",
            Self::TooLong { .. } => "make it shorter, and put the rest in the text",
            Self::Character { .. } => "use visible characters on one line; names of files have no `/` or `\\`",
        }
    }
}

/// Checks a short text: something visible, on one line, of at most so many characters.
pub(crate) fn check(what: &'static str, text: &str, most: usize) -> Result<(), LabelError> {
    check_without(what, text, most, "")
}

/// As [`check`], without some characters.
pub(crate) fn check_without(what: &'static str, text: &str, most: usize, without: &str) -> Result<(), LabelError> {
    let length = text.chars().count();
    if length == 0 {
        return Err(LabelError::Empty { what });
    }
    if length > most {
        return Err(LabelError::TooLong { what, length, most });
    }
    match text.chars().find(|&c| is_hidden(c) || without.contains(c)) {
        Some(character) => Err(LabelError::Character { what, text: text.to_owned(), character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_visible() {
        assert_eq!(check("tag", "naïve tag", 9), Ok(()));
        assert_eq!(check("tag", "", 9), Err(LabelError::Empty { what: "tag" }));
        assert_eq!(check("tag", "0123456789", 9), Err(LabelError::TooLong { what: "tag", length: 10, most: 9 }));
        let hidden = check("tag", "a\u{202e}b", 9).unwrap_err();
        assert_eq!(hidden.to_string(), "the tag `a<U+202E>b` has `<U+202E>` in it");
        assert!(check_without("name", "a/b", 9, "/\\").is_err());
        assert!(check("tag", "two\nlines", 9).is_err());
    }
}
