//! Where a daemon listens.

use std::{fmt, net::SocketAddr};

use palyra_types::visible::visible;

/// The local listener of a daemon: plain HTTP on a loopback address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint(SocketAddr);

impl Endpoint {
    /// Reads `http://127.0.0.1:7717`.
    ///
    /// # Errors
    /// When it is not plain HTTP on a loopback address: over anything else a credential would travel in the clear.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let refused = || EndpointError(text.to_owned());
        let address = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')).ok_or_else(refused)?;
        let address: SocketAddr = address.parse().map_err(|_| refused())?;
        if address.ip().is_loopback() { Ok(Self(address)) } else { Err(refused()) }
    }

    /// The address to connect to.
    #[must_use]
    pub const fn address(self) -> SocketAddr {
        self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// Why an address was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not plain HTTP on a loopback address, such as http://127.0.0.1:7717", visible(.0))]
pub struct EndpointError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_on_loopback_is_taken() {
        assert_eq!(Endpoint::parse("http://127.0.0.1:7717/").unwrap().to_string(), "http://127.0.0.1:7717");
        assert_eq!(Endpoint::parse("http://[::1]:1").unwrap().to_string(), "http://[::1]:1");
        for text in
            ["http://10.0.0.1:80", "https://127.0.0.1:1", "127.0.0.1:1", "http://localhost:1", "http://127.0.0.1"]
        {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }
}
