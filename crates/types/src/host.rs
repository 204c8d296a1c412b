//! Host names with one spelling.
//!
//! Guarantees: a lower-case ASCII domain name, or an IP address in its canonical form. Refuses everything that different
//! programs read differently: `127.1`, `0x7f.0.0.1`, `2130706433`, a trailing dot, a zone id, Unicode labels, ports, user info.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::visible::visible;

/// A host: a domain name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName {
    text: Box<str>,
    address: Option<IpAddr>,
}

impl HostName {
    /// Reads a host.
    ///
    /// # Errors
    /// When it is not a domain name or an address in a form that all programs read alike.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bare.unwrap_or(text).parse::<Ipv6Addr>().ok().map(IpAddr::V6) {
            // `::ffff:10.0.0.1` reaches 10.0.0.1, so it is that address.
            return Ok(Self::from_address(address.to_canonical()));
        }
        if bare.is_some() {
            return Err(HostError::Address(text.to_owned()));
        }
        let name = text.to_ascii_lowercase();
        if name.is_empty() || name.len() > 253 {
            return Err(HostError::Length(text.len()));
        }
        if let Some(bad) = name.split('.').find(|label| !is_label(label)) {
            return Err(HostError::Label { host: text.to_owned(), label: bad.to_owned() });
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        if last.starts_with(|c: char| c.is_ascii_digit()) {
            // Only a dotted quad may end in a digit-led label; anything else is an address in disguise.
            return match name.parse() {
                Ok(address) => Ok(Self::from_address(IpAddr::V4(address))),
                Err(_) => Err(HostError::Address(text.to_owned())),
            };
        }
        Ok(Self { text: name.into(), address: None })
    }

    /// The host that is an IP address.
    #[must_use]
    pub fn from_address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { text: address.to_string().into(), address: Some(address) }
    }

    /// The one spelling. IPv6 addresses have no brackets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The address, if the host is one.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The domains above this name, nearest first: `api.example.org` has `example.org` and `org`. An address has none.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.address.is_none().then_some(&*self.text);
        std::iter::from_fn(move || {
            rest = rest.and_then(|name| name.split_once('.')).map(|(_, domain)| domain);
            rest
        })
    }
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !bytes.starts_with(b"-")
        && !bytes.ends_with(b"-")
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for HostName {
    type Err = HostError;
    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a host was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Empty, or longer than a domain name can be.
    #[error("a host name has 1 to 253 characters; this one has {0}")]
    Length(usize),
    /// A label that is empty or holds something else than letters, digits, `-` and `_`.
    #[error("the host `{}` has the label `{}`", visible(.host), visible(.label))]
    Label {
        /// The host as given.
        host: String,
        /// The label that is none.
        label: String,
    },
    /// Looks like an address but is not written as one.
    #[error("the host `{}` looks like an address but is not written as one", visible(.0))]
    Address(String),
}

impl HostError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Length(_) => "give the host name alone, without scheme, port or path",
            Self::Label { .. } => "give the host name alone, international names in their `xn--` form",
            Self::Address(_) => "write addresses like 192.0.2.7 or 2001:db8::7",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> String {
        HostName::parse(text).map_or_else(|error| format!("refused: {error}"), |host| host.to_string())
    }

    #[test]
    fn a_host_has_one_spelling() {
        assert_eq!(host("API.Example.ORG"), "api.example.org");
        assert_eq!(host("[2001:DB8:0::7]"), "2001:db8::7");
        assert_eq!(host("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(host("192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn what_programs_read_differently_is_refused() {
        for text in [
            "127.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "example.org.",
            ".example.org",
            "a..b",
            "",
            "exam ple.org",
            "example.org:443",
            "user@example.org",
            "https://example.org",
            "fe80::1%eth0",
            "[127.0.0.1]",
            "ex\u{0430}mple.org",
            "example\u{3002}org",
            "-a.org",
            "256.1.1.1",
        ] {
            assert!(HostName::parse(text).is_err(), "{text:?} was taken as {}", host(text));
        }
    }

    #[test]
    fn the_domains_above_a_name_are_its_suffixes() {
        let host = HostName::parse("a.b.example.org").unwrap();
        assert_eq!(host.domains().collect::<Vec<_>>(), ["b.example.org", "example.org", "org"]);
        assert_eq!(HostName::parse("10.0.0.1").unwrap().domains().count(), 0);
        assert_eq!(HostName::parse("localhost").unwrap().domains().count(), 0);
    }
}
