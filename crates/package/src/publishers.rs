//! Which keys speak for which publishers.
//!
//! Guarantees: a key speaks for a publisher only after somebody pinned it, or took the first one that came along and said so. A key that was
//! struck off does not come back by being the first one again.
//! Does not: verify signatures. [`crate::signature`] does.

use std::collections::{BTreeMap, BTreeSet};

use palyra_types::{Principal, Timestamp, words};
use serde::{Deserialize, Serialize};

use crate::{id::PublisherName, signature::PublisherKey};

/// The publishers that are trusted, and their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustedPublishers {
    publishers: BTreeMap<PublisherName, PublisherKeys>,
}

/// The keys of one publisher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherKeys {
    /// Those that speak for it.
    pub trusted: BTreeMap<PublisherKey, TrustedKey>,
    /// Those that no longer do. Only pinning brings them back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub distrusted: BTreeSet<PublisherKey>,
}

/// How a key came to speak for a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedKey {
    /// How it came about.
    pub how: TrustOrigin,
    /// Who did it.
    pub by: Principal,
    /// When.
    pub at: Timestamp,
}

words! {
    /// How a key came to be trusted.
    pub enum TrustOrigin ("origin of trust") {
        /// Somebody named the key.
        Pinned = "pinned",
        /// It signed the first package of its publisher, and whoever installed that asked for it to be taken.
        FirstUse = "first_use",
    }
}

/// Whether a key speaks for a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// It does.
    Trusted(TrustedKey),
    /// Nothing is known about the publisher. Only here may a first key be taken.
    UnknownPublisher,
    /// Other keys speak for the publisher.
    OtherKey,
    /// It did, and no longer does.
    Distrusted,
}

impl TrustedPublishers {
    /// Whether a key speaks for a publisher.
    #[must_use]
    pub fn allows(&self, publisher: &PublisherName, key: &PublisherKey) -> Trust {
        let Some(keys) = self.publishers.get(publisher) else { return Trust::UnknownPublisher };
        match keys.trusted.get(key) {
            Some(trusted) => Trust::Trusted(trusted.clone()),
            None if keys.distrusted.contains(key) => Trust::Distrusted,
            None => Trust::OtherKey,
        }
    }

    /// Lets a key speak for a publisher from now on.
    pub fn trust(&mut self, publisher: PublisherName, key: PublisherKey, origin: TrustedKey) {
        let keys = self.publishers.entry(publisher).or_default();
        keys.distrusted.remove(&key);
        keys.trusted.insert(key, origin);
    }

    /// Strikes a key off. Says whether it was trusted.
    pub fn distrust(&mut self, publisher: &PublisherName, key: &PublisherKey) -> bool {
        let Some(keys) = self.publishers.get_mut(publisher) else { return false };
        let was = keys.trusted.remove(key).is_some();
        if was {
            keys.distrusted.insert(key.clone());
        }
        was
    }

    /// Every publisher and its keys.
    pub fn iter(&self) -> impl Iterator<Item = (&PublisherName, &PublisherKeys)> {
        self.publishers.iter()
    }

    /// The keys of a publisher.
    #[must_use]
    pub fn of(&self, publisher: &PublisherName) -> Option<&PublisherKeys> {
        self.publishers.get(publisher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::SecretSigningKey;

    fn key() -> PublisherKey {
        SecretSigningKey::generate(None).unwrap().public()
    }

    fn origin(how: TrustOrigin) -> TrustedKey {
        TrustedKey { how, by: Principal::parse("user:ada").unwrap(), at: Timestamp::from_unix_millis(5) }
    }

    #[test]
    fn a_key_speaks_for_its_own_publisher_only() {
        let (acme, other) = (PublisherName::parse("acme").unwrap(), PublisherName::parse("other").unwrap());
        let (one, two) = (key(), key());
        let mut publishers = TrustedPublishers::default();
        assert_eq!(publishers.allows(&acme, &one), Trust::UnknownPublisher);
        publishers.trust(acme.clone(), one.clone(), origin(TrustOrigin::FirstUse));
        assert_eq!(publishers.allows(&acme, &one), Trust::Trusted(origin(TrustOrigin::FirstUse)));
        assert_eq!(publishers.allows(&acme, &two), Trust::OtherKey);
        assert_eq!(publishers.allows(&other, &one), Trust::UnknownPublisher);
    }

    #[test]
    fn a_key_that_was_struck_off_comes_back_by_pinning_alone() {
        let (acme, one) = (PublisherName::parse("acme").unwrap(), key());
        let mut publishers = TrustedPublishers::default();
        publishers.trust(acme.clone(), one.clone(), origin(TrustOrigin::Pinned));
        assert!(publishers.distrust(&acme, &one));
        assert!(!publishers.distrust(&acme, &one));
        assert_eq!(publishers.allows(&acme, &one), Trust::Distrusted);
        assert_eq!(publishers.allows(&acme, &key()), Trust::OtherKey, "a publisher that was known stays known");
        publishers.trust(acme.clone(), one.clone(), origin(TrustOrigin::Pinned));
        assert_eq!(publishers.allows(&acme, &one), Trust::Trusted(origin(TrustOrigin::Pinned)));
    }

    #[test]
    fn publishers_read_back_as_they_were_written() {
        let mut publishers = TrustedPublishers::default();
        publishers.trust(PublisherName::parse("acme").unwrap(), key(), origin(TrustOrigin::Pinned));
        publishers.trust(PublisherName::parse("acme").unwrap(), key(), origin(TrustOrigin::FirstUse));
        let text = serde_json::to_string(&publishers).unwrap();
        assert_eq!(serde_json::from_str::<TrustedPublishers>(&text).unwrap(), publishers);
    }
}
