//! One macro for the closed word lists of the vocabulary: an enum whose variants have exactly one spelling.

#[doc(hidden)]
pub use serde;

/// Why a word was refused: it is none of those allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{}`; {}", crate::visible::visible(.word), self.expectation())]
pub struct UnknownWord {
    /// What was being read, such as `posture`.
    pub what: &'static str,
    /// The word that was given.
    pub word: String,
    /// The words that would have been accepted.
    pub expected: &'static [&'static str],
}

impl UnknownWord {
    /// A short list is told whole; of a long one only what comes near.
    fn expectation(&self) -> String {
        match nearest(&self.word, self.expected) {
            Some(near) => format!("did you mean `{near}`?"),
            None if self.expected.len() <= 12 => format!("expected one of: {}", self.expected.join(", ")),
            None => format!(
                "there are {} of them, such as {}",
                self.expected.len(),
                self.expected.get(..3).unwrap_or_default().join(", ")
            ),
        }
    }
}

/// The candidate that is closest to a word, if any is close enough to be meant.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let allowed = word.chars().count() / 3 + 1;
    let distances = candidates.iter().map(|&candidate| (edits(word, candidate), candidate));
    distances.filter(|&(distance, _)| distance <= allowed).min_by_key(|&(distance, _)| distance).map(|(_, near)| near)
}

/// How many single-character edits turn one word into the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, c) in from.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(row.first_mut().unwrap_or(&mut 0), line + 1);
        let mut left = line + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&to) {
            let best = (diagonal + usize::from(c != *other)).min(left + 1).min(*cell + 1);
            diagonal = std::mem::replace(cell, best);
            left = best;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Declares an enum whose variants have exactly one spelling, with `ALL`, `as_str`, `parse`, `Display` and serde.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident ($what:literal) { $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The one spelling of this value.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// Reads the one spelling of a value.
            ///
            /// # Errors
            /// When the word is none of [`Self::ALL`].
            pub fn parse(word: &str) -> Result<Self, $crate::word::UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::word::UnknownWord {
                        what: $what,
                        word: word.to_owned(),
                        expected: &[$($word,)+],
                    }),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(self.as_str()) }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::word::UnknownWord;
            fn from_str(word: &str) -> Result<Self, Self::Err> { Self::parse(word) }
        }

        impl $crate::word::serde::Serialize for $name {
            fn serialize<S: $crate::word::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> $crate::word::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::word::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word: std::borrow::Cow<'de, str> = $crate::word::serde::Deserialize::deserialize(deserializer)?;
                Self::parse(&word).map_err($crate::word::serde::de::Error::custom)
            }
        }
    };
}

#[doc(inline)]
pub use crate::words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_suggested_and_nonsense_is_not() {
        let words = ["fs.read", "fs.write", "tool.execute"];
        assert_eq!(nearest("fs.reed", &words), Some("fs.read"));
        assert_eq!(nearest("tool.exec", &words), Some("tool.execute"));
        assert_eq!(nearest("banana", &words), None);
        assert_eq!((edits("kitten", "sitting"), edits("", "abc"), edits("same", "same")), (3, 3, 0));
    }
}
