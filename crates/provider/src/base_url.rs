//! Where a provider is.
//!
//! Guarantees: http or https, a host with one spelling, and a path that endpoints are appended to. Refuses credentials, which would be
//! sent and logged, and queries and fragments, which nothing could be appended to.

use std::{borrow::Cow, fmt};

use http::Uri;
use palyra_types::{
    HostName,
    host::HostError,
    visible::{is_hidden, visible},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Where a provider is, such as `https://api.openai.com/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    text: Box<str>,
    host: HostName,
    encrypted: bool,
}

impl BaseUrl {
    /// Reads an address. A slash at its end is left out.
    ///
    /// # Errors
    /// When it is not one that requests can be sent to.
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(BaseUrlError::Scheme)?;
        let encrypted = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(BaseUrlError::Scheme),
        };
        if rest.contains(['?', '#']) {
            return Err(BaseUrlError::Query);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(BaseUrlError::Credentials);
        }
        let (host, port) = divide(authority)?;
        let host = HostName::parse(host)?;
        let path = path.trim_end_matches('/');
        if !path.is_empty() && !path.split('/').all(is_segment) {
            return Err(BaseUrlError::Path(path.to_owned()));
        }
        let mut whole = format!("{scheme}://{}", shown(&host));
        if let Some(port) = port {
            whole.push_str(&format!(":{port}"));
        }
        if !path.is_empty() {
            whole.push('/');
            whole.push_str(path);
        }
        whole.parse::<Uri>().map_err(|_| BaseUrlError::Path(path.to_owned()))?;
        Ok(Self { text: whole.into(), host, encrypted })
    }

    /// The address, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
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

    /// The address of what is below it.
    pub(crate) fn below(&self, path: &str) -> Result<Uri, BaseUrlError> {
        let whole = format!("{}/{path}", self.text);
        whole.parse().map_err(|_| BaseUrlError::Path(path.to_owned()))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Serialize for BaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for BaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why an address was refused. What may hold a password is not quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Neither http nor https.
    #[error("the address of a provider begins with `https://` or `http://`")]
    Scheme,
    /// A user or a password before the host.
    #[error("the address of a provider holds credentials")]
    Credentials,
    /// A query or a fragment.
    #[error("the address of a provider has a query or a fragment")]
    Query,
    /// No host that all programs read alike.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No port.
    #[error("`{}` is no port", visible(.0))]
    Port(String),
    /// Empty or dotted segments, or characters that a path does not have.
    #[error("`{}` is no path of an address", visible(.0))]
    Path(String),
}

impl BaseUrlError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Credentials => "put the key into the vault, and name it with `key = \"global/NAME\"`",
            Self::Query => "leave out everything from the `?` or `#` on",
            Self::Scheme | Self::Host(_) | Self::Port(_) | Self::Path(_) => {
                "write it like `https://api.openai.com/v1` or `http://127.0.0.1:11434/v1`"
            }
        }
    }
}

/// The host and the port of `host:port`, `[::1]:port` or a host alone.
fn divide(authority: &str) -> Result<(&str, Option<u16>), BaseUrlError> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    // An IPv6 address without brackets would be cut at its last group.
    if host.contains(':') && !host.starts_with('[') {
        return Err(BaseUrlError::Port(authority.to_owned()));
    }
    let read = |port: &str| match port.parse() {
        Ok(number) if number != 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(BaseUrlError::Port(port.to_owned())),
    };
    Ok((host, port.map(read).transpose()?))
}

fn is_segment(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..")
        && segment.is_ascii()
        && !segment.contains(['\\', ' ', '"'])
        && !segment.chars().any(is_hidden)
}

fn shown(host: &HostName) -> Cow<'_, str> {
    match host.address() {
        Some(address) if address.is_ipv6() => format!("[{address}]").into(),
        _ => host.as_str().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        for (given, kept) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1"),
            ("https://API.OpenAI.com/v1/", "https://api.openai.com/v1"),
            ("http://127.0.0.1:11434/v1//", "http://127.0.0.1:11434/v1"),
            ("http://[::1]:8000", "http://[::1]:8000"),
            ("http://[::1]", "http://[::1]"),
            ("http://localhost/", "http://localhost"),
            ("https://a.example/x/y%20z/v1", "https://a.example/x/y%20z/v1"),
        ] {
            assert_eq!(BaseUrl::parse(given).unwrap().as_str(), kept);
        }
        let url = BaseUrl::parse("http://localhost:1/v1/").unwrap();
        assert_eq!(url.below("chat/completions").unwrap(), "http://localhost:1/v1/chat/completions");
    }

    #[test]
    fn what_requests_cannot_be_sent_to_is_refused() {
        let refused = |text: &str| BaseUrl::parse(text).unwrap_err();
        for text in ["", "api.openai.com", "ftp://a.example", "HTTPS://a.example", "https:/a.example"] {
            assert_eq!(refused(text), BaseUrlError::Scheme, "{text}");
        }
        for text in ["https://a.example/?x=1", "https://a.example/v1#x", "https://a.example?x"] {
            assert_eq!(refused(text), BaseUrlError::Query, "{text}");
        }
        assert_eq!(refused("https://ada:pass@a.example/v1"), BaseUrlError::Credentials);
        for text in ["https://", "https:///v1", "https://127.1/v1", "https://é.example"] {
            assert!(matches!(refused(text), BaseUrlError::Host(_)), "{text}");
        }
        for text in
            ["http://a.example:0", "http://a.example:x", "http://a.example:", "http://::1", "http://a.example:99999"]
        {
            assert!(matches!(refused(text), BaseUrlError::Port(_)), "{text}");
        }
        for text in
            ["http://a.example/../x", "http://a.example/a//b", "http://a.example/a b", "http://a.example/a\r\nb"]
        {
            assert!(matches!(refused(text), BaseUrlError::Path(_)), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_quoted() {
        let error = BaseUrl::parse("https://ada:pass@a.example/v1").unwrap_err();
        assert!(!format!("{error} {error:?} {}", error.advice()).contains("pass@"));
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
            assert_eq!(BaseUrl::parse(text).unwrap().is_local(), local, "{text}");
        }
    }
}
