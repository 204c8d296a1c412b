//! What providers and models are called.
//!
//! Guarantees: a provider has a short lower-case word for a name, so that `openai/gpt-4o` divides in one way only; a model has 1 to 256
//! visible ASCII characters, whatever else its makers put into it. Neither can hide anything from whoever reads a log.

use std::{borrow::Cow, fmt};

use palyra_types::visible::visible;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident, $error:ident, $is:ident;)+) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Reads a name.
            ///
            /// # Errors
            /// When it breaks the grammar of these names.
            pub fn parse(text: &str) -> Result<Self, WordError> {
                if $is(text) { Ok(Self(text.into())) } else { Err(WordError::$error(text.to_owned())) }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <Cow<'de, str>>::deserialize(deserializer)?;
                Self::parse(&text).map_err(de::Error::custom)
            }
        }
    )+ };
}

words! {
    /// The name of a provider, such as `openai`.
    ProviderName, Provider, is_provider;
    /// The name of a model, such as `gpt-4o`, `llama3.1:8b` or `meta-llama/Llama-3.1-8B`.
    ModelName, Model, is_model;
}

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// No provider can be called that.
    #[error("`{}` is no name of a provider", visible(.0))]
    Provider(String),
    /// No model can be called that.
    #[error("`{}` is no name of a model", visible(.0))]
    Model(String),
}

impl WordError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Provider(_) => {
                "use up to 32 lower-case letters, digits and -, starting with a letter, such as `openai`"
            }
            Self::Model(_) => "use up to 256 visible ASCII characters without spaces, such as `gpt-4o`",
        }
    }
}

fn is_provider(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

fn is_model(text: &str) -> bool {
    (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_a_short_lower_case_word() {
        for text in ["openai", "a", "vllm-2", &"a".repeat(32)] {
            assert_eq!(ProviderName::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "OpenAI", "2nd", "a/b", "a b", "é", "-a", &"a".repeat(33)] {
            assert_eq!(ProviderName::parse(text), Err(WordError::Provider(text.to_owned())));
        }
    }

    #[test]
    fn a_model_is_what_can_be_seen() {
        for text in ["gpt-4o", "llama3.1:8b", "meta-llama/Llama-3.1-8B", "@cf/x#y"] {
            assert_eq!(ModelName::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "two words", "a\nb", "a\u{202e}b", &"a".repeat(257)] {
            assert_eq!(ModelName::parse(text), Err(WordError::Model(text.to_owned())));
        }
        assert_eq!(ModelName::parse("a\u{202e}b").unwrap_err().to_string(), "`a<U+202E>b` is no name of a model");
    }
}
