//! Where an MCP server is that somebody else runs.
//!
//! Guarantees: http or https, a host with one spelling, no credentials and no fragment. Does not: connect.

use std::fmt;

use http::Uri;
use palyra_types::{
    HostName, WebOrigin,
    visible::{is_hidden, visible},
    web_origin::WebOriginError,
    written_as_text,
};

/// Where a server is, such as `https://mcp.example.org/mcp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    text: Box<str>,
    uri: Uri,
    origin: WebOrigin,
}

impl ServerUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is not one that requests can be sent to.
    pub fn parse(text: &str) -> Result<Self, ServerUrlError> {
        let (origin, path) = WebOrigin::parse(text)?;
        if path.contains('#') {
            return Err(ServerUrlError::Fragment);
        }
        if !path.is_ascii() || path.chars().any(|c| is_hidden(c) || matches!(c, ' ' | '"' | '\\')) {
            return Err(ServerUrlError::Path(path.to_owned()));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let text = format!("{origin}{path}");
        let uri = text.parse::<Uri>().map_err(|_| ServerUrlError::Path(path))?;
        Ok(Self { text: text.into(), uri, origin })
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
        self.origin.host()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    /// Whether what is sent there is encrypted.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.origin.is_encrypted()
    }

    /// Whether what is sent there stays on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.origin.is_local()
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

written_as_text! {
    ServerUrl, ServerUrlError;
}

/// Why an address was refused. What may hold a password is not quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerUrlError {
    /// Nowhere that requests can be sent to.
    #[error(transparent)]
    Origin(#[from] WebOriginError),
    /// A fragment, which no server would see.
    #[error("the address of an MCP server has a fragment")]
    Fragment,
    /// Characters that a path does not have.
    #[error("`{}` is no path of an address", visible(.0))]
    Path(String),
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
        assert_eq!(refused("a.example/mcp"), ServerUrlError::Origin(WebOriginError::Scheme));
        assert_eq!(refused("https://a.example/mcp#x"), ServerUrlError::Fragment);
        for text in ["http://a.example/a b", "http://a.example/\u{202e}", "http://a.example/a\r\nb"] {
            assert!(matches!(refused(text), ServerUrlError::Path(_)), "{text}");
        }
    }
}
