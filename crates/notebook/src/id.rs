//! Ids of entries and artifacts. Each is a ULID, so ids sort by the time they were made.

use std::{borrow::Cow, fmt, str::FromStr};

use palyra_types::{
    clock::Timestamp,
    entropy::{Entropy, NoEntropy},
    id::IdError,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use ulid::Ulid;

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident = $what:literal;)+) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Ulid);

        impl $name {
            /// Makes an id at a time, with randomness of its own.
            ///
            /// # Errors
            /// When there is no randomness to be had.
            pub fn generate(time: Timestamp, entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
                let mut random = [0; 16];
                entropy.fill(&mut random)?;
                Ok(Self(Ulid::from_parts(time.unix_millis().unsigned_abs(), u128::from_le_bytes(random))))
            }

            /// Reads an id in its canonical, upper-case spelling.
            ///
            /// # Errors
            /// When the text is not a canonical ULID.
            pub fn parse(id: &str) -> Result<Self, IdError> {
                let refused = || IdError { what: $what, id: id.to_owned() };
                let ulid = Ulid::from_string(id).map_err(|_| refused())?;
                if ulid.to_string() == id { Ok(Self(ulid)) } else { Err(refused()) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(&self.0.to_string()) }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(id: &str) -> Result<Self, IdError> { Self::parse(id) }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> { serializer.collect_str(self) }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let id = <Cow<'de, str>>::deserialize(deserializer)?;
                Self::parse(&id).map_err(de::Error::custom)
            }
        }
    )+ };
}

ids! {
    /// One entry of a memory.
    EntryId = "entry id";
    /// One artifact.
    ArtifactId = "artifact id";
}

#[cfg(test)]
mod tests {
    use palyra_types::entropy::SeededEntropy;

    use super::*;

    #[test]
    fn an_id_has_one_spelling_and_sorts_by_time() {
        let entropy = SeededEntropy::new(1);
        let at = |millis| EntryId::generate(Timestamp::from_unix_millis(millis), &entropy).unwrap();
        let (one, other) = (at(1_000), at(2_000));
        assert!(one < other && one.to_string() < other.to_string());
        assert_eq!(EntryId::parse(&one.to_string()), Ok(one));
        assert_eq!(serde_json::from_value::<EntryId>(serde_json::to_value(one).unwrap()).unwrap(), one);
        assert!(EntryId::parse(&one.to_string().to_lowercase()).is_err());
        assert_eq!(ArtifactId::parse("x").unwrap_err().to_string(), "the artifact id `x` is not a ULID");
    }
}
