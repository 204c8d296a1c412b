//! One macro for the closed word lists of the vocabulary: an enum whose variants have exactly one spelling.

#[doc(hidden)]
pub use serde;

/// Why a word was refused: it is none of those allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{word}`; expected one of: {expected}", word = crate::visible::visible(.word))]
pub struct UnknownWord {
    /// What was being read, such as `posture`.
    pub what: &'static str,
    /// The word that was given.
    pub word: String,
    /// The words that would have been accepted.
    pub expected: String,
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
                        expected: [$($word,)+].join(", "),
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
