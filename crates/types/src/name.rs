//! Names: short printable ASCII, compared byte for byte.
//!
//! Guarantees: 1 to 128 characters, starts with a letter or a digit, and holds only letters, digits and `. _ - : / + @`; the name of
//! a principal has no `@`, because `user:ada@owner` is ada with a role, and the name of a secret has no `/`, because `acme/pdf/key` is
//! `key` in what stands before it. A name never needs quoting and cannot hide characters or mix alphabets.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::visible::visible;

/// Longest name, in bytes.
pub const MAX_NAME_LENGTH: usize = 128;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("the {what} is empty")]
    Empty {
        /// What was being named.
        what: &'static str,
    },
    /// More than [`MAX_NAME_LENGTH`] bytes.
    #[error("the {what} is {length} bytes long; the limit is {MAX_NAME_LENGTH}")]
    TooLong {
        /// What was being named.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// A character outside the allowed set, or a bad first character.
    #[error("the {what} `{}` has `{}` at position {position}", visible(.name), visible(&.character.to_string()))]
    BadCharacter {
        /// What was being named.
        what: &'static str,
        /// The name as given.
        name: String,
        /// The offending character.
        character: char,
        /// Its position, counted in characters from one.
        position: usize,
    },
}

impl NameError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "use letters, digits and . _ - : / +, starting with a letter or a digit"
    }
}

/// Checks the shared grammar of names.
fn check(what: &'static str, signs: &str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { what });
    }
    if name.len() > MAX_NAME_LENGTH {
        return Err(NameError::TooLong { what, length: name.len() });
    }
    let allowed = |index: usize, c: char| c.is_ascii_alphanumeric() || (index > 0 && signs.contains(c));
    match name.chars().enumerate().find(|&(index, c)| !allowed(index, c)) {
        None => Ok(()),
        Some((index, character)) => {
            Err(NameError::BadCharacter { what, name: name.to_owned(), character, position: index + 1 })
        }
    }
}

macro_rules! names {
    ($($(#[$meta:meta])* $name:ident = $what:literal, $signs:literal;)+) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Reads a name.
            ///
            /// # Errors
            /// When it breaks the grammar of [this module](self).
            pub fn parse(name: &str) -> Result<Self, NameError> {
                check($what, $signs, name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(&self.0) }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> { Self::parse(name) }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str { &self.0 }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> { serializer.serialize_str(&self.0) }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <Cow<'de, str>>::deserialize(deserializer)?;
                Self::parse(&name).map_err(de::Error::custom)
            }
        }
    )+ };
}

names! {
    /// The name of a tool, such as `process.run`.
    ToolName = "tool name", "._-:/+@";
    /// The id of a skill, such as `acme/markdown`.
    SkillId = "skill id", "._-:/+@";
    /// The name of a principal within its kind, such as `claude`.
    PrincipalId = "principal name", "._-:/+";
    /// The name of a configured workspace.
    WorkspaceName = "workspace name", "._-:/+@";
    /// The surface a call came in by, such as `cli` or `mcp`.
    Channel = "channel", "._-:/+@";
    /// The id of a paired device.
    DeviceId = "device id", "._-:/+@";
    /// The id of an API token (never the token itself).
    TokenId = "token id", "._-:/+@";
    /// The id of a policy, from its `@id` annotation.
    PolicyId = "policy id", "._-:/+@";
    /// The name of a secret within its scope, such as `github` or `deploy-key`. None of the signs that scopes are written with.
    SecretName = "secret name", "._-";
    /// The id of an object that has no richer type of its own, such as a cron job.
    ObjectId = "object id", "._-:/+@";
}

impl ToolName {
    /// The groups a tool belongs to, smallest first: `mcp.github.delete` is in `mcp.github` and in `mcp`, `status` is in none.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.0.rmatch_indices('.').filter_map(|(dot, _)| self.0.get(..dot)).filter(|group| !group.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_spelling() {
        assert_eq!(ToolName::parse("fs.read").unwrap().as_str(), "fs.read");
        assert_eq!(ToolName::parse("mcp.github.delete").unwrap().groups().collect::<Vec<_>>(), ["mcp.github", "mcp"]);
        assert_eq!(ToolName::parse("status").unwrap().groups().count(), 0);
    }

    #[test]
    fn a_name_with_a_look_alike_character_is_refused_and_the_character_is_named() {
        let error = ToolName::parse("fs.re\u{0430}d").unwrap_err();
        assert!(matches!(error, NameError::BadCharacter { position: 6, character: '\u{0430}', .. }));
        let hidden = ToolName::parse("fs\u{202e}read").unwrap_err();
        assert_eq!(hidden.to_string(), "the tool name `fs<U+202E>read` has `<U+202E>` at position 3");
    }

    #[test]
    fn the_name_of_a_principal_cannot_pose_as_one_with_a_role() {
        assert!(PrincipalId::parse("ada@owner").is_err());
        assert!(ToolName::parse("ada@owner").is_ok());
    }

    #[test]
    fn the_name_of_a_secret_holds_nothing_that_its_scope_is_written_with() {
        for name in ["github", "GITHUB_TOKEN", "deploy-key.v2", "7"] {
            assert_eq!(SecretName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", "a/b", "workspace:shop", "a@b", "a+b", "-flag", ".env", "_x", "a b", &"a".repeat(129)] {
            assert!(SecretName::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn an_empty_and_an_overlong_name_are_refused() {
        assert_eq!(ToolName::parse(""), Err(NameError::Empty { what: "tool name" }));
        assert!(matches!(ToolName::parse(&"a".repeat(129)), Err(NameError::TooLong { length: 129, .. })));
        assert!(ToolName::parse("-flag").is_err());
    }
}
