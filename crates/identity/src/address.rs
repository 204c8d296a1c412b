//! Where a daemon listens: a host and a port, with one spelling.

use std::{borrow::Cow, fmt, str::FromStr};

use palyra_types::{HostName, visible::visible};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A host and a port, such as `palyra.lan:7443`, `192.0.2.7:7443` or `[2001:db8::7]:7443`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: HostName,
    port: u16,
}

impl Address {
    /// A host and a port. Port 0 is none.
    ///
    /// # Errors
    /// When the port is 0.
    pub fn new(host: HostName, port: u16) -> Result<Self, AddressError> {
        match port {
            0 => Err(AddressError(format!("{host}:0"))),
            port => Ok(Self { host, port }),
        }
    }

    /// Reads `host:port` in its one spelling.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let refused = || AddressError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let host = HostName::parse(host).map_err(|_| refused())?;
        let address = Self::new(host, port.parse().map_err(|_| refused())?)?;
        if address.to_string() == text { Ok(address) } else { Err(refused()) }
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &HostName {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.address() {
            Some(address) if address.is_ipv6() => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Not a host and a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a host and a port", visible(.0))]
pub struct AddressError(pub String);

impl AddressError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "write a host and a port, such as `palyra.lan:7443`, `192.0.2.7:7443` or `[2001:db8::7]:7443`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        for text in ["localhost:7443", "palyra.lan:1", "192.0.2.7:65535", "[2001:db8::7]:7443"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            ":",
            "localhost",
            "localhost:",
            ":7443",
            "localhost:0",
            "localhost:65536",
            "localhost:+1",
            "localhost:07443",
            "Localhost:7443",
            "2001:db8::7:7443",
            "[2001:DB8::7]:7443",
            "[::ffff:192.0.2.7]:1",
            "[localhost]:1",
            "a b:1",
            "a&s=:1",
            "localhost:7443 ",
        ] {
            assert_eq!(Address::parse(text), Err(AddressError(text.to_owned())), "{text:?}");
        }
    }
}
