//! The headers that a caller may send along.
//!
//! Guarantees: names are tokens in lower case, each once; values are visible ASCII, with blanks
//! inside and never at the ends. So what is read is what arrives, and nothing else can come in with it.
//! Refuses: whatever frames the message, names its host or concerns the connection. These are the fetcher's own.

use std::collections::BTreeMap;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use palyra_types::visible::visible;
use serde::{Deserialize, Serialize};

use crate::egress::refusal::shown;

/// Headers of a request, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct FetchHeaders(BTreeMap<String, String>);

impl FetchHeaders {
    /// Reads headers.
    ///
    /// # Errors
    /// When one is not the caller's to set, or would not arrive as it is.
    pub fn parse<N: AsRef<str>, V: Into<String>>(
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, HeaderError> {
        let mut read = BTreeMap::new();
        let mut bytes = 0_usize;
        for (name, value) in headers {
            let (given, value) = (name.as_ref(), value.into());
            let name = given.to_ascii_lowercase();
            check_name(&name)?;
            check_value(&name, &value)?;
            bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
            if read.insert(name.clone(), value).is_some() {
                return Err(HeaderError::Twice(name));
            }
        }
        if bytes > MOST_BYTES {
            return Err(HeaderError::TooLarge(bytes));
        }
        Ok(Self(read))
    }

    /// The headers, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same, without those that are left out.
    #[must_use]
    pub fn without(&self, is_left_out: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| !is_left_out(name));
        Self(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// The same as they are sent.
    pub(crate) fn map(&self) -> HeaderMap {
        let read = |(name, value): (&String, &String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        self.0.iter().filter_map(read).collect()
    }
}

impl TryFrom<BTreeMap<String, String>> for FetchHeaders {
    type Error = HeaderError;
    fn try_from(headers: BTreeMap<String, String>) -> Result<Self, HeaderError> {
        Self::parse(headers)
    }
}

impl From<FetchHeaders> for BTreeMap<String, String> {
    fn from(headers: FetchHeaders) -> Self {
        headers.0
    }
}

/// `name` is in lower case.
fn check_name(name: &str) -> Result<(), HeaderError> {
    // The library's own reading of a name: a token of RFC 9110.
    if name.len() > LONGEST_NAME || HeaderName::try_from(name).is_err() {
        return Err(HeaderError::Name(shown(name)));
    }
    if OWN.contains(&name) || name.starts_with("proxy-") {
        return Err(HeaderError::Own(name.to_owned()));
    }
    Ok(())
}

fn check_value(name: &str, value: &str) -> Result<(), HeaderError> {
    let is_visible = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_visible || value.starts_with(' ') || value.ends_with(' ') {
        return Err(HeaderError::Value(name.to_owned()));
    }
    Ok(())
}

/// Why headers were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// No name of a header.
    #[error("`{0}` is no name of a header")]
    Name(String),
    /// A header that is not the caller's to set.
    #[error("the header `{}` is not the caller's to set", visible(.0))]
    Own(String),
    /// A value that would not arrive as it is. It may be a secret, so it is not repeated.
    #[error("the value of the header `{}` holds something else than visible ASCII, or a blank at its ends", visible(.0))]
    Value(String),
    /// A header that stands there twice, in different spellings.
    #[error("the header `{}` is given twice", visible(.0))]
    Twice(String),
    /// More than servers take.
    #[error("the headers have {0} bytes; the limit is {MOST_BYTES}")]
    TooLarge(usize),
}

impl HeaderError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Name(_) => "write names like `content-type`",
            Self::Own(_) => "leave it out: the host, the length, the encoding and the connection follow from the call",
            Self::Value(_) => "send other characters encoded, or in the body",
            Self::Twice(_) => "give each header once",
            Self::TooLarge(_) => "send long data as the body",
        }
    }
}

/// What the fetcher itself says about a message, its host and its connection; besides everything that begins with
/// `proxy-`.
const OWN: [&str; 13] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "via",
];

const LONGEST_NAME: usize = 256;

/// How many bytes the names and values take at most.
const MOST_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<FetchHeaders, HeaderError> {
        FetchHeaders::parse([(name, value)])
    }

    #[test]
    fn names_are_read_in_any_case_and_kept_in_lower_case() {
        let headers = FetchHeaders::parse([("X-B", "2"), ("Accept", "text/html, */*;q=0.1")]).unwrap();
        let expected = [("accept", "text/html, */*;q=0.1"), ("x-b", "2")];
        assert_eq!(headers.iter().collect::<Vec<_>>(), expected);
        assert_eq!(headers.map().len(), 2);
    }

    #[test]
    fn what_frames_the_message_or_names_the_host_is_refused() {
        for name in [
            "Host",
            "Content-Length",
            "Connection",
            "Transfer-Encoding",
            "Upgrade",
            "TE",
            "Trailer",
            "Proxy-Authorization",
            "Proxy-Connection",
            "proxy-anything",
            "Expect",
            "Keep-Alive",
            "Accept-Encoding",
        ] {
            assert_eq!(read(name, "x"), Err(HeaderError::Own(name.to_ascii_lowercase())));
        }
    }

    #[test]
    fn nothing_can_be_smuggled_in_by_a_name_or_a_value() {
        for name in ["", "a b", "a:", "a\r\nHost", " host", "host ", "a\0", "\u{e9}", "host\t", "(a)"] {
            assert!(matches!(read(name, "x"), Err(HeaderError::Name(_))), "{name:?}");
        }
        for value in ["a\r\nHost: evil", "a\nb", "a\rb", "a\0b", "a\tb", "\u{7f}", "\u{e9}", " a", "a "] {
            assert_eq!(read("x-a", value), Err(HeaderError::Value("x-a".to_owned())), "{value:?}");
        }
    }

    #[test]
    fn a_header_in_two_spellings_is_refused() {
        let twice = FetchHeaders::parse([("X-A", "1"), ("x-a", "2")]);
        assert_eq!(twice, Err(HeaderError::Twice("x-a".to_owned())));
    }

    #[test]
    fn headers_that_no_server_takes_are_refused() {
        assert!(matches!(read("x-a", &"y".repeat(20_000)), Err(HeaderError::TooLarge(20_003))));
        assert!(read(&"x".repeat(300), "y").is_err());
    }
}
