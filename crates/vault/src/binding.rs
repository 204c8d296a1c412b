//! Where a secret may go: to which host, at which place of a request, for which tools.
//!
//! Guarantees: a binding names one host by its one spelling, and says for each place in a request that the secret may stand there; what it
//! does not name is out of reach. Refuses: headers that frame a message or name its host, and path prefixes that servers read differently.
//! Does not: allow anything. Policy decides about every use; a binding bounds what it can allow.

use std::{collections::BTreeSet, fmt};

use palyra_types::{HostName, SecretRef, Timestamp, ToolName, visible::visible, written_as_text};
use serde::{Deserialize, Serialize};

/// Where a secret may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// What it is known by.
    pub id: u64,
    /// When it was made.
    pub created: Timestamp,
    /// What it says.
    #[serde(flatten)]
    pub terms: BindingTerms,
}

/// What a binding says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BindingTerms {
    /// The secret.
    pub secret: SecretRef,
    /// The host that it may go to. Always by TLS.
    pub host: HostName,
    /// Its port.
    pub port: u16,
    /// Where in a request it may stand.
    pub positions: BTreeSet<Position>,
    /// What the path of a request has to begin with; any will do if this is empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub paths: BTreeSet<PathPrefix>,
    /// The tools that may send it; any will do if this is empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<ToolName>,
}

impl BindingTerms {
    /// The usual binding: to port 443 of a host, in its `Authorization` header.
    #[must_use]
    pub fn usual(secret: SecretRef, host: HostName) -> Self {
        let positions = BTreeSet::from([Position::Header("authorization".to_owned())]);
        Self { secret, host, port: 443, positions, paths: BTreeSet::new(), tools: BTreeSet::new() }
    }

    /// Whether a tool may send it.
    #[must_use]
    pub fn is_for(&self, tool: &ToolName) -> bool {
        self.tools.is_empty() || self.tools.contains(tool)
    }

    /// Whether it leads to this host.
    #[must_use]
    pub fn leads_to(&self, host: &HostName, port: u16) -> bool {
        self.host == *host && self.port == port
    }

    /// Whether it covers this path.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        self.paths.is_empty() || (is_plain(path) && self.paths.iter().any(|prefix| prefix.covers(path)))
    }

    /// Where the secret may go, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let places: Vec<String> = self.positions.iter().map(Position::words).collect();
        let mut words = format!("to {} port {}, in {}", self.host, self.port, places.join(" and "));
        if !self.paths.is_empty() {
            let paths: Vec<String> = self.paths.iter().map(|prefix| format!("{prefix}…")).collect();
            words = format!("{words}, for {}", paths.join(" and "));
        }
        if !self.tools.is_empty() {
            let tools: Vec<&str> = self.tools.iter().map(ToolName::as_str).collect();
            words = format!("{words}, by {}", tools.join(" and "));
        }
        words
    }

    /// Whether it can be meant.
    ///
    /// # Errors
    /// When no request could have the secret, or too much is listed.
    pub fn check(&self) -> Result<(), BindingError> {
        if self.positions.is_empty() {
            return Err(BindingError::NoPosition);
        }
        if self.port == 0 {
            return Err(BindingError::NoPort);
        }
        match self.positions.len().max(self.paths.len()).max(self.tools.len()) {
            count if count > MOST_LISTED => Err(BindingError::TooMuch { count }),
            _ => Ok(()),
        }
    }
}

/// A place in a request. Written `header:authorization`, `query:key` or `body`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Position {
    /// In the value of this header, in small letters. A name and password in `Authorization: Basic` is looked into.
    Header(String),
    /// As the value of this parameter in the query.
    Query(String),
    /// Anywhere in the body.
    Body,
}

impl Position {
    /// Reads a place.
    ///
    /// # Errors
    /// When it is none, or none where a secret may stand.
    pub fn parse(text: &str) -> Result<Self, BindingError> {
        let malformed = || BindingError::Position(text.to_owned());
        let is_short = |name: &str| !name.is_empty() && name.len() <= LONGEST_NAME;
        match text.split_once(':') {
            None if text == "body" => Ok(Self::Body),
            Some(("header", name)) if is_short(name) => {
                let name = http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| malformed())?;
                // SECURITY: a secret that frames a message could end it early, and one that names its host could lead it elsewhere.
                if FRAMING.contains(&name.as_str()) {
                    return Err(BindingError::Framing(name.as_str().to_owned()));
                }
                Ok(Self::Header(name.as_str().to_owned()))
            }
            Some(("query", name)) if is_short(name) && name.bytes().all(is_unreserved) => {
                Ok(Self::Query(name.to_owned()))
            }
            _ => Err(malformed()),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Header(name) => format!("the header `{name}`"),
            Self::Query(name) => format!("the parameter `{name}`"),
            Self::Body => "the body".to_owned(),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Body => f.write_str("body"),
        }
    }
}

/// What a path begins with: whole segments, so that `/v1` covers `/v1` and `/v1/x`, and not `/v10`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathPrefix(String);

impl PathPrefix {
    /// Reads a prefix.
    ///
    /// # Errors
    /// When it does not begin with `/`, or servers could read it differently.
    pub fn parse(text: &str) -> Result<Self, BindingError> {
        let is_prefix = text.starts_with('/') && text.len() <= LONGEST_PATH && is_plain(text);
        if is_prefix { Ok(Self(text.to_owned())) } else { Err(BindingError::Path(text.to_owned())) }
    }

    fn covers(&self, path: &str) -> bool {
        let whole = |rest: &str| rest.is_empty() || self.0.ends_with('/') || rest.starts_with('/');
        path.strip_prefix(self.0.as_str()).is_some_and(whole)
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

written_as_text! {
    Position, BindingError;
    PathPrefix, BindingError;
}

/// Why a binding cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// A place that is none.
    #[error("`{}` is no place in a request", visible(.0))]
    Position(String),
    /// A header that belongs to the connection.
    #[error("the header `{0}` frames the message or names its host, so it can hold no secret")]
    Framing(String),
    /// A path that servers could read differently.
    #[error("`{}` is no plain beginning of a path", visible(.0))]
    Path(String),
    /// No place at all.
    #[error("the binding names no place where the secret may stand")]
    NoPosition,
    /// Port 0.
    #[error("there is no port 0")]
    NoPort,
    /// More than anybody reads.
    #[error("the binding lists {count} items; the limit is {MOST_LISTED}")]
    TooMuch {
        /// How many there are.
        count: usize,
    },
}

impl BindingError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Position(_) | Self::NoPosition => "write `header:authorization`, `query:key` or `body`",
            Self::Framing(_) => "name the header that the service reads its key from, such as `header:authorization`",
            Self::Path(_) => "write it like `/v1/`, without `.`, `..`, `//`, `%` and `?`",
            Self::NoPort => "leave the port out for 443",
            Self::TooMuch { .. } => "make several bindings",
        }
    }
}

/// Whether all servers read a path alike: no empty and no dot segments, nothing encoded, nothing that ends it.
fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'\\' | b'?' | b'#' | b';');
    let mut segments = path.split('/').skip(1).peekable();
    let mut all = true;
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        all &= !matches!(segment, "." | "..") && (is_last || !segment.is_empty());
    }
    all && path.bytes().all(is_plain)
}

pub(crate) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The headers that frame a message, lead it somewhere or concern one hop.
const FRAMING: [&str; 14] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// How many places, paths and tools a binding lists at most.
const MOST_LISTED: usize = 16;
const LONGEST_NAME: usize = 128;
const LONGEST_PATH: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(paths: &[&str]) -> BindingTerms {
        let secret = SecretRef::parse("global/github").unwrap();
        let paths = paths.iter().map(|path| PathPrefix::parse(path).unwrap()).collect();
        BindingTerms { paths, ..BindingTerms::usual(secret, HostName::parse("api.example.org").unwrap()) }
    }

    #[test]
    fn a_prefix_covers_whole_segments_of_paths_that_all_servers_read_alike() {
        let bound = terms(&["/v1", "/files/"]);
        for path in ["/v1", "/v1/", "/v1/a/b", "/files/", "/files/a", "/v1/a~b@c:d,e=f"] {
            assert!(bound.covers(path), "{path}");
        }
        for path in [
            "/",
            "/v10",
            "/files",
            "/V1",
            "/v1/../admin",
            "/v1/./a",
            "/v1//a",
            "/v1/%2e%2e/admin",
            "/v1\\..\\a",
            "/v1;a",
        ] {
            assert!(!bound.covers(path), "{path}");
        }
        assert!(terms(&[]).covers("/any/../thing"));
    }

    #[test]
    fn a_prefix_that_could_be_misread_is_none() {
        for text in ["", "v1", "/a/../b", "/a//b", "/a%2f", "/a?b", "/a#b", "/a b", "/\u{e4}"] {
            assert_eq!(PathPrefix::parse(text), Err(BindingError::Path(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn places_are_written_in_one_way_each() {
        for text in ["header:authorization", "header:x-api-key", "query:api_key", "body"] {
            assert_eq!(Position::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Position::parse("header:X-Api-Key").unwrap().to_string(), "header:x-api-key");
        for text in ["", "header", "header:", "header:a b", "query:", "query:a&b", "Body", "path", "cookie:a"] {
            assert_eq!(Position::parse(text), Err(BindingError::Position(text.to_owned())), "{text:?}");
        }
        for name in FRAMING {
            assert_eq!(Position::parse(&format!("header:{name}")), Err(BindingError::Framing(name.to_owned())));
        }
    }

    #[test]
    fn a_binding_is_told_in_one_sentence() {
        let mut bound = terms(&["/v1/"]);
        assert_eq!(bound.words(), "to api.example.org port 443, in the header `authorization`, for /v1/…");
        bound.tools.insert(ToolName::parse("http.fetch").unwrap());
        bound.positions.insert(Position::Body);
        assert_eq!(
            bound.words(),
            "to api.example.org port 443, in the header `authorization` and the body, for /v1/…, by http.fetch"
        );
        assert!(bound.is_for(&ToolName::parse("http.fetch").unwrap()));
        assert!(!bound.is_for(&ToolName::parse("process.run").unwrap()));
    }
}
