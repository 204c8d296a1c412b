//! What an artifact is said to be, such as `text/markdown; charset=utf-8`.
//!
//! Guarantees: visible ASCII on one line, so that it can be a header of a response as it is.

use std::{borrow::Cow, fmt, str::FromStr};

use palyra_types::visible::visible;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A media type: a type and a subtype in lower case, and perhaps parameters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaType(Box<str>);

impl MediaType {
    /// Reads a media type.
    ///
    /// # Errors
    /// When it is longer than 127 bytes, or not a type and a subtype.
    pub fn parse(text: &str) -> Result<Self, MediaTypeError> {
        let (essence, parameters) = text.split_once(';').map_or((text, None), |(a, b)| (a, Some(b)));
        let is_essence = essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
        let is_visible =
            parameters.is_none_or(|rest| !rest.trim().is_empty() && rest.bytes().all(|b| (b' '..=b'~').contains(&b)));
        if text.len() <= MOST_BYTES && is_essence && is_visible {
            return Ok(Self(text.into()));
        }
        Err(MediaTypeError(text.to_owned()))
    }

    /// The media type as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for MediaType {
    type Err = MediaTypeError;
    fn from_str(text: &str) -> Result<Self, MediaTypeError> {
        Self::parse(text)
    }
}

impl Serialize for MediaType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MediaType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a media type was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a media type such as text/plain", visible(.0))]
pub struct MediaTypeError(pub String);

impl MediaTypeError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "write it in lower case like `text/markdown` or `image/png`, or `application/octet-stream` if it is not known"
    }
}

fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'+' | b'-' | b'_' | b'!' | b'#' | b'$' | b'&' | b'^');
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && text.bytes().all(allowed)
}

const MOST_BYTES: usize = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_a_type_a_subtype_and_perhaps_parameters() {
        for text in ["text/plain", "image/svg+xml", "application/vnd.api+json; charset=\"utf-8\"", "x/7"] {
            assert_eq!(MediaType::parse(text).unwrap().as_str(), text);
        }
        let long = format!("a/{}", "b".repeat(126));
        for text in
            ["", "text", "text/", "/plain", "Text/plain", "a/b/c", "a b/c", "a/b;", "a/b; x\r\ny: z", "a/b; é", &long]
        {
            assert!(MediaType::parse(text).is_err(), "{text}");
        }
    }
}
