//! Where a provider is.
//!
//! Guarantees: http or https, a host with one spelling, and a path that endpoints are appended to. Refuses credentials, which would be
//! sent and logged, and queries and fragments, which nothing could be appended to.

use std::fmt;

use http::Uri;
use palyra_types::{
    WebOrigin,
    visible::{is_hidden, visible},
    web_origin::WebOriginError,
    written_as_text,
};

/// Where a provider is, such as `https://api.openai.com/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    text: Box<str>,
    origin: WebOrigin,
}

impl BaseUrl {
    /// Reads an address. A slash at its end is left out.
    ///
    /// # Errors
    /// When it is not one that requests can be sent to.
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let (origin, path) = WebOrigin::parse(text)?;
        if path.contains(['?', '#']) {
            return Err(BaseUrlError::Query);
        }
        let path = path.trim_end_matches('/');
        if !path.split('/').skip(1).all(is_segment) {
            return Err(BaseUrlError::Path(path.to_owned()));
        }
        let text = format!("{origin}{path}");
        text.parse::<Uri>().map_err(|_| BaseUrlError::Path(path.to_owned()))?;
        Ok(Self { text: text.into(), origin })
    }

    /// The address, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
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

written_as_text! {
    BaseUrl, BaseUrlError;
}

/// Why an address was refused. What may hold a password is not quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Nowhere that requests can be sent to.
    #[error(transparent)]
    Origin(#[from] WebOriginError),
    /// A query or a fragment.
    #[error("the address of a provider has a query or a fragment")]
    Query,
    /// Empty or dotted segments, or characters that a path does not have.
    #[error("`{}` is no path of an address", visible(.0))]
    Path(String),
}

impl BaseUrlError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Origin(WebOriginError::Credentials) => {
                "put the key into the vault, and name it with `key = \"global/NAME\"`"
            }
            Self::Query => "leave out everything from the `?` or `#` on",
            Self::Origin(_) | Self::Path(_) => {
                "write it like `https://api.openai.com/v1` or `http://127.0.0.1:11434/v1`"
            }
        }
    }
}

fn is_segment(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..")
        && segment.is_ascii()
        && !segment.contains(['\\', ' ', '"'])
        && !segment.chars().any(is_hidden)
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
        assert_eq!(refused("api.openai.com/v1"), BaseUrlError::Origin(WebOriginError::Scheme));
        for text in ["https://a.example/?x=1", "https://a.example/v1#x", "https://a.example?x"] {
            assert_eq!(refused(text), BaseUrlError::Query, "{text}");
        }
        for text in
            ["http://a.example/../x", "http://a.example/a//b", "http://a.example/a b", "http://a.example/a\r\nb"]
        {
            assert!(matches!(refused(text), BaseUrlError::Path(_)), "{text}");
        }
    }

    #[test]
    fn a_key_in_an_address_belongs_in_the_vault() {
        let error = BaseUrl::parse("https://ada:pass@a.example/v1").unwrap_err();
        assert_eq!(error, BaseUrlError::Origin(WebOriginError::Credentials));
        assert!(error.advice().contains("vault"));
        assert!(!format!("{error} {error:?} {}", error.advice()).contains("pass@"));
    }
}
