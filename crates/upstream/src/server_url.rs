//! Where an MCP server is that somebody else runs.
//!
//! Guarantees: http or https, a host with one spelling, no credentials and no fragment. Does not: connect.

use std::{borrow::Cow, fmt};

use http::Uri;
use palyra_types::{
    HostName,
    host::HostError,
    visible::{is_hidden, visible},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Where a server is, such as `https://mcp.example.org/mcp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    text: Box<str>,
    uri: Uri,
    host: HostName,
    port: u16,
    encrypted: bool,
}

impl ServerUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is not one that requests can be sent to.
    pub fn parse(text: &str) -> Result<Self, ServerUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(ServerUrlError::Scheme)?;
        let encrypted = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(ServerUrlError::Scheme),
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(ServerUrlError::Credentials);
        }
        if path.contains('#') {
            return Err(ServerUrlError::Fragment);
        }
        if !path.is_ascii() || path.chars().any(|c| is_hidden(c) || matches!(c, ' ' | '"' | '\\')) {
            return Err(ServerUrlError::Path(path.to_owned()));
        }
        let (host, port) = divide(authority)?;
        let host = HostName::parse(host)?;
        let shown = match host.address() {
            Some(address) if address.is_ipv6() => format!("[{address}]"),
            _ => host.as_str().to_owned(),
        };
        let place = port.map(|port| format!(":{port}")).unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let text = format!("{scheme}://{shown}{place}{path}");
        let uri = text.parse::<Uri>().map_err(|_| ServerUrlError::Path(path))?;
        let port = port.unwrap_or(if encrypted { 443 } else { 80 });
        Ok(Self { text: text.into(), uri, host, port, encrypted })
    }

    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The address, as requests are sent to it.
    #[must_use]
    pub const fn uri(&self) -> &Uri {
        &self.uri
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

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why an address was refused. What may hold a password is not quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerUrlError {
    /// Neither http nor https.
    #[error("the address of an MCP server begins with `https://` or `http://`")]
    Scheme,
    /// A user or a password before the host.
    #[error("the address of an MCP server holds credentials")]
    Credentials,
    /// A fragment, which no server would see.
    #[error("the address of an MCP server has a fragment")]
    Fragment,
    /// No host that all programs read alike.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No port.
    #[error("`{}` has no port that there is", visible(.0))]
    Port(String),
    /// Characters that a path does not have.
    #[error("`{}` is no path of an address", visible(.0))]
    Path(String),
}

/// The host and the port of `host:port`, `[::1]:port` or a host alone.
fn divide(authority: &str) -> Result<(&str, Option<u16>), ServerUrlError> {
    let wrong = || ServerUrlError::Port(authority.to_owned());
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
pub(crate) fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        for (given, kept, port) in [
            ("https://MCP.Example.org/mcp", "https://mcp.example.org/mcp", 443),
            ("https://a.example", "https://a.example/", 443),
            ("http://127.0.0.1:8080/mcp/", "http://127.0.0.1:8080/mcp/", 8080),
            ("http://[::1]:9", "http://[::1]:9/", 9),
            ("https://a.example/mcp?project=x", "https://a.example/mcp?project=x", 443),
            ("https://a.example?x", "https://a.example/?x", 443),
        ] {
            let url = ServerUrl::parse(given).unwrap();
            assert_eq!((url.as_str(), url.port()), (kept, port));
        }
    }

    #[test]
    fn what_requests_cannot_be_sent_to_is_refused() {
        let refused = |text: &str| ServerUrl::parse(text).unwrap_err();
        for text in ["", "a.example", "ftp://a.example", "HTTPS://a.example", "file:///etc"] {
            assert_eq!(refused(text), ServerUrlError::Scheme, "{text}");
        }
        assert_eq!(refused("https://ada:pass@a.example/mcp"), ServerUrlError::Credentials);
        assert_eq!(refused("https://a.example/mcp#x"), ServerUrlError::Fragment);
        for text in ["https://", "https:///x", "https://127.1/", "https://\u{e9}.example"] {
            assert!(matches!(refused(text), ServerUrlError::Host(_)), "{text}");
        }
        for text in ["http://a.example:0", "http://a.example:x", "http://::1", "http://a.example:+80"] {
            assert!(matches!(refused(text), ServerUrlError::Port(_)), "{text}");
        }
        for text in ["http://a.example/a b", "http://a.example/\u{202e}", "http://a.example/a\r\nb"] {
            assert!(matches!(refused(text), ServerUrlError::Path(_)), "{text}");
        }
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
            assert_eq!(ServerUrl::parse(text).unwrap().is_local(), local, "{text}");
        }
    }
}
