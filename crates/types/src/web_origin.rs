//! Where something is that speaks HTTP: the beginning of an address, up to its path.
//!
//! Guarantees: http or https, a host with one spelling, and a port that something can listen at. Refuses credentials, which would be sent
//! and logged. Does not: read what follows. What may stand there depends on what is there.

use std::fmt;

use crate::{HostName, host::HostError, visible::visible};

/// Such as `https://api.openai.com` or `http://[::1]:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin {
    encrypted: bool,
    host: HostName,
    port: Option<u16>,
}

impl WebOrigin {
    /// Reads the beginning of an address, and gives back the rest: nothing, or what begins with `/`, `?` or `#`.
    ///
    /// # Errors
    /// When it is not one that requests can be sent to.
    pub fn parse(text: &str) -> Result<(Self, &str), WebOriginError> {
        let (scheme, rest) = text.split_once("://").ok_or(WebOriginError::Scheme)?;
        let encrypted = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(WebOriginError::Scheme),
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(WebOriginError::Credentials);
        }
        let (host, port) = divide(authority)?;
        Ok((Self { encrypted, host: HostName::parse(host)?, port }, rest))
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &HostName {
        &self.host
    }

    /// The port, which is the one of the scheme where none is written.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.encrypted { 443 } else { 80 })
    }

    /// Whether what is sent there is encrypted.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Whether what is sent there stays on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self.host.address() {
            Some(address) => address.is_loopback(),
            None => self.host.as_str() == "localhost",
        }
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.encrypted { "https://" } else { "http://" })?;
        match self.host.address() {
            Some(address) if address.is_ipv6() => write!(f, "[{address}]")?,
            _ => write!(f, "{}", self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Why an address was refused. What may hold a password is not quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebOriginError {
    /// Neither http nor https.
    #[error("the address does not begin with `https://` or `http://`")]
    Scheme,
    /// A user or a password before the host.
    #[error("the address holds credentials")]
    Credentials,
    /// No host that all programs read alike.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No port.
    #[error("`{}` has no port from 1 to 65535", visible(.0))]
    Port(String),
}

/// The host and the port of `host:port`, `[::1]:port` or a host alone.
fn divide(authority: &str) -> Result<(&str, Option<u16>), WebOriginError> {
    let wrong = || WebOriginError::Port(authority.to_owned());
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    // An IPv6 address without brackets would be cut at its last group.
    if host.contains(':') && !host.starts_with('[') {
        return Err(wrong());
    }
    Ok((host, port.map(|port| port_number(port).ok_or_else(wrong)).transpose()?))
}

/// A port that something can listen at, written in digits alone.
#[must_use]
pub fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_spelling_and_what_follows_is_given_back() {
        for (given, origin, port, rest) in [
            ("https://API.OpenAI.com/v1/", "https://api.openai.com", 443, "/v1/"),
            ("https://a.example?x", "https://a.example", 443, "?x"),
            ("http://a.example#x", "http://a.example", 80, "#x"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", 8080, ""),
            ("http://[::1]:9/", "http://[::1]:9", 9, "/"),
            ("http://[::1]", "http://[::1]", 80, ""),
        ] {
            let (read, after) = WebOrigin::parse(given).unwrap();
            assert_eq!((read.to_string().as_str(), read.port(), after), (origin, port, rest));
        }
    }

    #[test]
    fn what_requests_cannot_be_sent_to_is_refused() {
        let refused = |text: &str| WebOrigin::parse(text).unwrap_err();
        for text in ["", "a.example", "ftp://a.example", "HTTPS://a.example", "https:/a.example", "file:///etc"] {
            assert_eq!(refused(text), WebOriginError::Scheme, "{text}");
        }
        for text in ["https://", "https:///v1", "https://127.1/v1", "https://\u{e9}.example"] {
            assert!(matches!(refused(text), WebOriginError::Host(_)), "{text}");
        }
        for port in ["0", "x", "", "+80", "99999"] {
            assert!(matches!(refused(&format!("http://a.example:{port}")), WebOriginError::Port(_)), "{port}");
        }
        assert!(matches!(refused("http://::1"), WebOriginError::Port(_)));
    }

    #[test]
    fn a_password_is_not_quoted() {
        let error = WebOrigin::parse("https://ada:pass@a.example/v1").unwrap_err();
        assert_eq!(error, WebOriginError::Credentials);
        assert!(!format!("{error} {error:?}").contains("pass@"));
    }

    #[test]
    fn what_stays_on_the_machine_is_known() {
        for (text, local) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://localhost:1", true),
            ("http://10.0.0.1", false),
            ("https://localhost.example", false),
        ] {
            assert_eq!(WebOrigin::parse(text).unwrap().0.is_local(), local, "{text}");
        }
    }
}
