//! Texts that people give to things: names of devices and tokens, reasons.
//!
//! Guarantees: a text that passed is short, says something, and hides no character from whoever reads it later.

use palyra_types::visible::{is_hidden, visible};

/// Checks the name of something: 1 to 64 characters, none hidden, no space at either end.
///
/// # Errors
/// When it is anything else.
pub fn check_name(what: &'static str, text: &str) -> Result<(), LabelError> {
    if text.trim().is_empty() {
        return Err(LabelError::Empty { what });
    }
    if text.trim() != text {
        return Err(LabelError::Padded { what, text: text.to_owned() });
    }
    check_note(what, text, LONGEST_NAME)
}

/// Checks a text that may be empty: at most so many characters, none hidden.
///
/// # Errors
/// When it is anything else.
pub fn check_note(what: &'static str, text: &str, longest: usize) -> Result<(), LabelError> {
    if text.chars().nth(longest).is_some() {
        return Err(LabelError::TooLong { what, longest });
    }
    match text.chars().find(|&c| is_hidden(c)) {
        Some(_) => Err(LabelError::Hidden { what, text: text.to_owned() }),
        None => Ok(()),
    }
}

/// Why such a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Nothing that can be read.
    #[error("the {what} is empty")]
    Empty {
        /// What was being named.
        what: &'static str,
    },
    /// More characters than there is room for.
    #[error("the {what} is longer than {longest} characters")]
    TooLong {
        /// What was being named.
        what: &'static str,
        /// How many characters it may have.
        longest: usize,
    },
    /// A space at the beginning or the end.
    #[error("the {what} `{}` begins or ends with a space", visible(.text))]
    Padded {
        /// What was being named.
        what: &'static str,
        /// The text as given.
        text: String,
    },
    /// A control character, or another one that cannot be seen.
    #[error("the {what} `{}` has a character that cannot be seen", visible(.text))]
    Hidden {
        /// What was being named.
        what: &'static str,
        /// The text as given.
        text: String,
    },
}

impl LabelError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Empty { .. } => "give it a name by which people will recognise it",
            Self::TooLong { .. } => "say it shorter",
            Self::Padded { .. } => "leave the space out",
            Self::Hidden { .. } => "type it anew instead of pasting it",
        }
    }
}

/// The longest name, in characters.
pub const LONGEST_NAME: usize = 64;

/// The longest reason, in characters.
pub const LONGEST_REASON: usize = 200;

/// The longest text that a device says of itself, in characters.
pub const LONGEST_REPORT: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_to_64_visible_characters() {
        for good in ["a", "Ada's laptop", "büro – 日本", &"ä".repeat(64)] {
            assert_eq!(check_name("name", good), Ok(()));
        }
        assert_eq!(check_name("name", ""), Err(LabelError::Empty { what: "name" }));
        assert_eq!(check_name("name", "  "), Err(LabelError::Empty { what: "name" }));
        assert_eq!(check_name("name", &"a".repeat(65)), Err(LabelError::TooLong { what: "name", longest: 64 }));
        assert_eq!(check_name("name", " a"), Err(LabelError::Padded { what: "name", text: " a".to_owned() }));
        for hidden in ["a\nb", "a\u{202e}b", "a\0"] {
            assert_eq!(check_name("name", hidden), Err(LabelError::Hidden { what: "name", text: hidden.to_owned() }));
        }
    }

    #[test]
    fn a_reason_may_be_empty() {
        assert_eq!(check_note("reason", "", LONGEST_REASON), Ok(()));
        let long = check_note("reason", &"a".repeat(201), LONGEST_REASON);
        assert_eq!(long, Err(LabelError::TooLong { what: "reason", longest: 200 }));
    }

    #[test]
    fn what_is_hidden_is_shown_in_the_error() {
        let error = check_name("name of the device", "a\u{202e}b").unwrap_err();
        assert_eq!(error.to_string(), "the name of the device `a<U+202E>b` has a character that cannot be seen");
    }
}
