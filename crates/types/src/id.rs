//! Ids of things that happen: sessions, runs, calls, approvals. Each is a ULID, so ids sort by the time they were made.
//!
//! Time and randomness are parameters; nothing here reads a clock.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use ulid::{ULID_LEN, Ulid};

use crate::{
    clock::Timestamp,
    entropy::{Entropy, NoEntropy},
    visible::visible,
};

/// Why an id was refused: it is not 26 characters of Crockford's base 32.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {what} `{}` is not a ULID", visible(.id))]
pub struct IdError {
    /// What was being identified.
    pub what: &'static str,
    /// The text as given.
    pub id: String,
}

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident = $what:literal;)+) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Ulid);

        impl $name {
            /// Makes an id from a time and 80 bits of randomness (the upper 48 bits of `random` are ignored).
            #[must_use]
            pub fn from_parts(time: Timestamp, random: u128) -> Self {
                Self(Ulid::from_parts(time.unix_millis().unsigned_abs(), random))
            }

            /// Makes an id at a time, with randomness of its own.
            ///
            /// # Errors
            /// When there is no randomness to be had.
            pub fn generate(time: Timestamp, entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
                let mut random = [0; 16];
                entropy.fill(&mut random)?;
                Ok(Self::from_parts(time, u128::from_le_bytes(random)))
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
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.0.array_to_str(&mut [0; ULID_LEN])) }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(id: &str) -> Result<Self, IdError> { Self::parse(id) }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.array_to_str(&mut [0; ULID_LEN]))
            }
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
    /// One conversation or connection of an agent.
    SessionId = "session id";
    /// One task inside a session; the unit of the budget.
    RunId = "run id";
    /// One proposal.
    CallId = "call id";
    /// One question to a person.
    ApprovalId = "approval id";
    /// One statement about what an execution did.
    AttestationId = "attestation id";
    /// One daemon, which keeps one chain of records.
    NodeId = "node id";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_exactly_one_spelling() {
        let id = RunId::from_parts(Timestamp::from_unix_millis(1_700_000_000_000), 42);
        assert_eq!(RunId::parse(&id.to_string()), Ok(id));
        assert!(RunId::parse(&id.to_string().to_lowercase()).is_err(), "lower case is a second spelling");
        assert!(RunId::parse("not-a-ulid").is_err());
    }
}
