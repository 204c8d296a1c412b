//! Time zones by name, such as `Europe/Prague`.
//!
//! Guarantees: a name means the rules of the system's own time zone database, which is updated with the system; where it has none, or not this
//! zone, those that were built in.

use std::{borrow::Cow, fmt, str::FromStr};

use jiff::tz::{TimeZone, TimeZoneDatabase};
use palyra_types::visible::visible;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

impl Zone {
    /// Coordinated universal time, which never jumps.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    /// The zone of a name of the IANA database. Upper and lower case are the same there; the name is kept as the database has it.
    ///
    /// # Errors
    /// When there is no such zone.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        if name == "UTC" {
            return Ok(Self::utc());
        }
        let refused = || UnknownZone(name.to_owned());
        // SECURITY: a name is looked up as a file; only what the names of the database are made of is.
        let allowed = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
        if name.is_empty() || name.len() > MOST_BYTES || !name.chars().all(allowed) {
            return Err(refused());
        }
        let rules = TimeZone::get(name).or_else(|_| TimeZoneDatabase::bundled().get(name)).map_err(|_| refused())?;
        let name = rules.iana_name().ok_or_else(refused)?.to_owned();
        Ok(Self { name, rules })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn rules(&self) -> &TimeZone {
        &self.rules
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl FromStr for Zone {
    type Err = UnknownZone;
    fn from_str(name: &str) -> Result<Self, UnknownZone> {
        Self::parse(name)
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&name).map_err(de::Error::custom)
    }
}

/// There is no such time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone `{}`", visible(.0))]
pub struct UnknownZone(pub String);

impl UnknownZone {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "name a zone of the IANA database, such as `Europe/Prague`, `America/New_York` or `UTC`"
    }
}

const MOST_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_known_by_its_name() {
        for name in ["UTC", "Europe/Prague", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            let zone = Zone::parse(name).unwrap();
            assert_eq!((zone.name(), serde_json::to_value(&zone).unwrap()), (name, name.into()));
            assert_eq!(serde_json::from_value::<Zone>(name.into()).unwrap(), zone);
        }
        assert_eq!(Zone::parse("europe/prague").unwrap().name(), "Europe/Prague");
        for name in ["", "Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "Europe/Prague\0", "+02:00"] {
            assert_eq!(Zone::parse(name), Err(UnknownZone(name.to_owned())), "{name}");
        }
    }

    #[test]
    fn the_zones_that_are_built_in_are_there_without_a_system() {
        assert!(TimeZoneDatabase::bundled().get("Europe/Prague").is_ok());
    }
}
