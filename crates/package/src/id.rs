//! What skills and their publishers are called.
//!
//! Guarantees: an id is `publisher/name`, each of lower-case letters, digits and dashes, so that `skill.publisher.name.tool` names one tool of one
//! skill and nothing else. Every [`PackageId`] is a [`SkillId`]; the reverse does not hold.

use std::{borrow::Borrow, fmt, str::FromStr};

use palyra_types::{NameError, SkillId, ToolName, visible::visible};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The id of a skill that comes as a package, such as `acme/text-diff`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageId(SkillId);

impl PackageId {
    /// Reads an id.
    ///
    /// # Errors
    /// When it is not a publisher and a name.
    pub fn parse(text: &str) -> Result<Self, PackageIdError> {
        let (publisher, name) = text.split_once('/').ok_or_else(|| PackageIdError::NoPublisher(text.to_owned()))?;
        check(publisher)?;
        check(name)?;
        Ok(Self(SkillId::parse(text)?))
    }

    /// Who publishes it.
    #[must_use]
    pub fn publisher(&self) -> PublisherName {
        PublisherName(self.parts().0.into())
    }

    /// What the publisher calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The id as policies and the vault know it.
    #[must_use]
    pub const fn skill_id(&self) -> &SkillId {
        &self.0
    }

    /// What one of its tools is called beside every other tool: `skill.acme.text-diff.diff`.
    ///
    /// # Errors
    /// When that is longer than the name of a tool may be.
    pub fn tool_name(&self, tool: &str) -> Result<ToolName, NameError> {
        let (publisher, name) = self.parts();
        ToolName::parse(&format!("skill.{publisher}.{name}.{tool}"))
    }

    /// INVARIANT: there is one slash.
    fn parts(&self) -> (&str, &str) {
        self.0.as_str().split_once('/').unwrap_or_default()
    }
}

/// The name of a publisher, such as `acme`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherName(Box<str>);

impl PublisherName {
    /// Reads a name.
    ///
    /// # Errors
    /// When it holds anything but lower-case letters, digits and dashes, begins with a dash, or is too long.
    pub fn parse(text: &str) -> Result<Self, PackageIdError> {
        check(text)?;
        Ok(Self(text.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(part: &str) -> Result<(), PackageIdError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match part.as_bytes() {
        [] | [b'-', ..] => Err(PackageIdError::Part(part.to_owned())),
        bytes if !bytes.iter().copied().all(allowed) => Err(PackageIdError::Part(part.to_owned())),
        bytes if bytes.len() > MOST_PART_BYTES => Err(PackageIdError::TooLong { length: bytes.len() }),
        _ => Ok(()),
    }
}

/// The longest publisher, and the longest name.
const MOST_PART_BYTES: usize = 48;

/// Why something is no id of a skill, or no name of a publisher.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackageIdError {
    /// No slash.
    #[error("`{}` is not a publisher and a name", visible(.0))]
    NoPublisher(String),
    /// A character that has no place there, or none at all.
    #[error("`{}` is not lower-case letters, digits and dashes", visible(.0))]
    Part(String),
    /// Too long.
    #[error("a publisher, or a name, of {length} bytes; the limit is {MOST_PART_BYTES}")]
    TooLong {
        /// How long.
        length: usize,
    },
    /// No id of a skill at all.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl PackageIdError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "write it like `acme/text-diff`: lower-case letters, digits and dashes, each part beginning with a letter or a digit"
    }
}

macro_rules! text {
    ($($name:ident),+) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = PackageIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    )+ };
}
text!(PackageId, PublisherName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_a_publisher_a_name_and_tools() {
        let id = PackageId::parse("acme/text-diff").unwrap();
        assert_eq!(
            (id.publisher().as_str(), id.name(), id.to_string()),
            ("acme", "text-diff", "acme/text-diff".into())
        );
        assert_eq!(id.tool_name("diff").unwrap().as_str(), "skill.acme.text-diff.diff");
        assert_eq!(id.skill_id(), &SkillId::parse("acme/text-diff").unwrap());
    }

    #[test]
    fn what_could_be_read_as_another_id_or_another_tool_is_refused() {
        for text in [
            "",
            "acme",
            "/",
            "acme/",
            "/diff",
            "a/b/c",
            "Acme/diff",
            "acme/text.diff",
            "acme/text_diff",
            "-a/b",
            "a/-b",
        ] {
            assert!(PackageId::parse(text).is_err(), "{text}");
        }
        for text in ["acme/ä", "acme/a b", "acme/a\u{202e}b", "a@b/c", &format!("{}/x", "a".repeat(49))] {
            assert!(PackageId::parse(text).is_err(), "{text}");
        }
        assert_eq!(PublisherName::parse("a/b"), Err(PackageIdError::Part("a/b".to_owned())));
    }
}
