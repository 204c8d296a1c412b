//! What can be fetched, with one spelling.
//!
//! Guarantees: `http` or `https`, a host that all programs read alike, a port from 1 to 65535, no user information; a
//! path without `.` and `..`, in which everything that has no place in a URL is percent-encoded. What is shown is what
//! is sent. The fragment is dropped, because no server ever sees one.
//! Refuses: backslashes, control characters, blanks around it, a `%` without two digits. Does not: look into
//! percent-encoding.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use hyper::Uri;
use palyra_types::host::HostName;
use serde::{Deserialize, Serialize};

use crate::egress::{authority, refusal::shown};

/// Something that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FetchUrl {
    scheme: Scheme,
    host: HostName,
    port: u16,
    /// The path, which begins with a slash, and the query.
    target: String,
}

/// How a host is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// In the open.
    Http,
    /// Encrypted, with a certificate that is verified.
    Https,
}

impl Scheme {
    /// Its one spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn usual_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Http, Self::Https].into_iter().find(|one| one.as_str().eq_ignore_ascii_case(text))
    }
}

impl FetchUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// When it is none that all programs read alike.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        check_characters(text)?;
        let unfragmented = text.split_once('#').map_or(text, |(before, _)| before);
        let (scheme, rest) = split_scheme(unfragmented).ok_or_else(|| UrlError::Relative(shown(text)))?;
        let scheme = Scheme::parse(scheme).ok_or_else(|| UrlError::Scheme(shown(scheme)))?;
        let rest = rest.strip_prefix("//").ok_or_else(|| UrlError::Relative(shown(text)))?;
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = read_authority(authority, scheme)?;
        let (path, query) = split_query(target);
        Self::new((scheme, host, port), path, query)
    }

    /// What a redirect from here leads to.
    ///
    /// # Errors
    /// When that is nothing that can be fetched.
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        check_characters(location)?;
        let location = location.split_once('#').map_or(location, |(before, _)| before);
        if split_scheme(location).is_some() {
            return Self::parse(location);
        }
        if location.starts_with("//") {
            return Self::parse(&format!("{}:{location}", self.scheme.as_str()));
        }
        let (path, query) = split_query(location);
        let (own_path, own_query) = split_query(&self.target);
        let origin = (self.scheme, self.host.clone(), self.port);
        match path.chars().next() {
            None => Self::new(origin, own_path, query.or(own_query)),
            Some('/') => Self::new(origin, path, query),
            Some(_) => {
                let directory = own_path.rsplit_once('/').map_or("", |(directory, _)| directory);
                Self::new(origin, &format!("{directory}/{path}"), query)
            }
        }
    }

    /// How the host is spoken to.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
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

    /// The path and the query, as they are sent.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Whether both lead to the same port of the same host, spoken to in the same way.
    #[must_use]
    pub fn is_same_origin(&self, other: &Self) -> bool {
        (self.scheme, &self.host, self.port) == (other.scheme, &other.host, other.port)
    }

    /// The host, and the port if it is not the usual one, as a Host header has them.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.address() {
            Some(std::net::IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.to_string(),
        };
        if self.port == self.scheme.usual_port() { host } else { format!("{host}:{}", self.port) }
    }

    fn new((scheme, host, port): Origin, path: &str, query: Option<&str>) -> Result<Self, UrlError> {
        let mut target = encoded(&without_dots(path))?;
        if let Some(query) = query {
            target.push('?');
            target.push_str(&encoded(query)?);
        }
        let url = Self { scheme, host, port, target };
        let text = url.to_string();
        if text.len() > LONGEST {
            return Err(UrlError::TooLong(text.len()));
        }
        // SECURITY: the library that sends the request reads it again. Whatever that took for another host is refused.
        let is_alike = |read: &Uri| {
            read.authority().is_some_and(|authority| authority.as_str() == url.authority())
                && read.path_and_query().is_some_and(|target| target.as_str() == url.target)
        };
        if text.parse::<Uri>().ok().is_none_or(|read| !is_alike(&read)) {
            return Err(UrlError::Ambiguous(shown(&text)));
        }
        Ok(url)
    }
}

type Origin = (Scheme, HostName, u16);

impl fmt::Display for FetchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.as_str(), self.authority(), self.target)
    }
}

impl FromStr for FetchUrl {
    type Err = UrlError;
    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for FetchUrl {
    type Error = UrlError;
    fn try_from(text: String) -> Result<Self, UrlError> {
        Self::parse(&text)
    }
}

impl From<FetchUrl> for String {
    fn from(url: FetchUrl) -> Self {
        url.to_string()
    }
}

fn check_characters(text: &str) -> Result<(), UrlError> {
    if text.len() > LONGEST {
        return Err(UrlError::TooLong(text.len()));
    }
    let is_bad = |c: char| c.is_control() || c == '\\' || (c.is_whitespace() && c != ' ');
    if text.contains(is_bad) || text.starts_with(' ') || text.ends_with(' ') {
        return Err(UrlError::Characters(shown(text)));
    }
    Ok(())
}

/// What stands before the first colon, if that can be a scheme, and what stands behind it.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_scheme.then_some((scheme, rest))
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)))
}

fn read_authority(text: &str, scheme: Scheme) -> Result<(HostName, u16), UrlError> {
    if text.contains('@') {
        return Err(UrlError::User);
    }
    authority::parse(text, Some(scheme.usual_port())).map_err(|refusal| UrlError::Host(refusal.detail))
}

/// A path that begins with a slash and has no `.` and `..` in it. One that would lead above the root stays there.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

/// The same with everything percent-encoded that may not stand in a path or a query.
fn encoded(text: &str) -> Result<String, UrlError> {
    let mut out = String::with_capacity(text.len());
    let bytes = text.as_bytes();
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'%' => {
                let digits = bytes.get(index + 1..index + 3).unwrap_or_default();
                if digits.len() != 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(UrlError::Percent(shown(text)));
                }
                out.push('%');
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            _ if PLAIN.contains(&byte) => out.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    Ok(out)
}

/// Why a URL was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It does not say where it leads.
    #[error("`{0}` is no whole URL")]
    Relative(String),
    /// Another scheme.
    #[error("the scheme `{0}` is not fetched")]
    Scheme(String),
    /// User information, which is not repeated.
    #[error("the URL holds a user name")]
    User,
    /// No host, or none that all programs read alike, or no port.
    #[error("in the URL, {0}")]
    Host(String),
    /// Characters that programs read differently.
    #[error("`{0}` holds a backslash, a control character or a blank at its ends")]
    Characters(String),
    /// A percent sign on its own.
    #[error("in `{0}`, a `%` is not followed by two hexadecimal digits")]
    Percent(String),
    /// Longer than servers take.
    #[error("the URL has {0} bytes; the limit is {LONGEST}")]
    TooLong(usize),
    /// Two readings.
    #[error("`{0}` can be read in two ways")]
    Ambiguous(String),
}

impl UrlError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Relative(_) | Self::Ambiguous(_) => "write it like https://example.org/path?query",
            Self::Scheme(_) => "use http or https",
            Self::User => "leave it out; credentials go into an Authorization header",
            Self::Host(_) => {
                "name the host as `example.org`, `192.0.2.7` or `[2001:db8::7]`, and a port from 1 to 65535"
            }
            Self::Characters(_) => "percent-encode what is part of the path, and leave out the rest",
            Self::Percent(_) => "write the percent sign itself as %25",
            Self::TooLong(_) => "send long data as the body",
        }
    }
}

/// What stands for itself in a path and in a query, besides letters and digits.
const PLAIN: &[u8] = b"-._~!$&'()*+,;=:@/?";

/// How many bytes a URL has at most.
pub(crate) const LONGEST: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> String {
        FetchUrl::parse(text).map_or_else(|error| format!("refused: {error}"), |url| url.to_string())
    }

    #[test]
    fn a_url_has_one_spelling() {
        for (text, expected) in [
            ("https://example.org", "https://example.org/"),
            ("HTTPS://Example.ORG:443/a", "https://example.org/a"),
            ("http://example.org:80/", "http://example.org/"),
            ("http://example.org:8080?q", "http://example.org:8080/?q"),
            ("https://example.org/a/./b/../c#part", "https://example.org/a/c"),
            ("https://example.org/../../etc/", "https://example.org/etc/"),
            ("https://example.org/a/..", "https://example.org/"),
            ("https://example.org/a b/\u{e9}?q=\u{202e}x", "https://example.org/a%20b/%C3%A9?q=%E2%80%AEx"),
            ("https://example.org/%2e%2e/%2F", "https://example.org/%2e%2e/%2F"),
            ("https://[2001:DB8::7]/", "https://[2001:db8::7]/"),
            ("https://[::ffff:192.0.2.7]/", "https://192.0.2.7/"),
            ("https://example.org//a", "https://example.org//a"),
            ("https://example.org/a|b\"<c>", "https://example.org/a%7Cb%22%3Cc%3E"),
            ("https://example.org?", "https://example.org/?"),
            ("https://example.org/@x:1", "https://example.org/@x:1"),
        ] {
            assert_eq!(read(text), expected, "{text}");
            assert_eq!(read(expected), expected, "{text}");
        }
    }

    #[test]
    fn what_programs_read_differently_is_refused() {
        for text in [
            "",
            "example.org",
            "//example.org/",
            "/path",
            "https:/example.org",
            "https:example.org",
            "https:///path",
            "https://",
            "https://:443/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://user@example.org/",
            "https://user:secret@example.org/",
            "https://example.org@evil.example/",
            "https://example.org\\@evil.example/",
            "https://example.org\\.evil.example/",
            "https://example.org:0/",
            "https://example.org:65536/",
            "https://example.org:/",
            "https://example.org:+443/",
            "https://example.org:0443/",
            "https://example.org:443:443/",
            "https://127.1/",
            "https://0177.0.0.1/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://127.0.0.1./",
            "https://[fe80::1%25lo]/",
            "https://[::1/",
            "https://example.org./",
            "https://ex%61mple.org/",
            "https://ex\u{0430}mple.org/",
            "https://example\u{3002}org/",
            "https://exam ple.org/",
            " https://example.org/",
            "https://example.org/ ",
            "https://example.org/\r\nHost: evil",
            "https://example.org/\t",
            "https://example.org/\0",
            "https://example.org/%",
            "https://example.org/%4",
            "https://example.org/%zz",
            "https://example.org/a\u{2028}b",
        ] {
            assert!(FetchUrl::parse(text).is_err(), "{text:?} was taken as {}", read(text));
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        assert_eq!(read("https://user:secret@example.org/"), "refused: the URL holds a user name");
    }

    #[test]
    fn a_url_that_is_too_long_is_refused_before_and_after_encoding() {
        let long = |piece: &str, count| FetchUrl::parse(&format!("https://example.org/{}", piece.repeat(count)));
        assert!(long("a", 8_000).is_ok());
        assert_eq!(long("a", 9_000), Err(UrlError::TooLong(9_020)));
        assert_eq!(long("\u{e9}", 2_000), Err(UrlError::TooLong(12_020)));
    }

    #[test]
    fn a_redirect_is_resolved_as_browsers_do() {
        let from = FetchUrl::parse("https://example.org:8443/a/b?q=1").unwrap();
        for (location, expected) in [
            ("c", "https://example.org:8443/a/c"),
            ("/c?d", "https://example.org:8443/c?d"),
            ("?d", "https://example.org:8443/a/b?d"),
            ("", "https://example.org:8443/a/b?q=1"),
            ("#part", "https://example.org:8443/a/b?q=1"),
            ("../../../c", "https://example.org:8443/c"),
            ("//other.example/x", "https://other.example/x"),
            ("http://other.example", "http://other.example/"),
            ("./c:d", "https://example.org:8443/a/c:d"),
        ] {
            assert_eq!(from.join(location).unwrap().to_string(), expected, "{location}");
        }
        for location in ["javascript:x", "//user@other.example/", "/a\\b", "\\\\other.example/", "https://127.1/", "/%"]
        {
            assert!(from.join(location).is_err(), "{location}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(text in "https?://[a-z0-9.:@\\[\\]%-]{0,16}[ -~]{0,24}") {
            if let Ok(url) = FetchUrl::parse(&text) {
                prop_assert_eq!(FetchUrl::parse(&url.to_string()), Ok(url.clone()));
                prop_assert!(url.to_string().bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(url.port() != 0);
            }
        }
    }
}
