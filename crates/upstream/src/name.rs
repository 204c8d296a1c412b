//! What servers and their tools are called.
//!
//! Guarantees: a server's name holds no dot, so `mcp.SERVER.TOOL` is read in one way only; a tool is offered under a name that looks like
//! itself, or not at all. Does not: judge what a tool does.

use std::{borrow::Cow, collections::BTreeMap, fmt, str::FromStr};

use palyra_types::{NameError, ObjectId, ToolName, visible::visible};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What a server is called, such as `github`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Box<str>);

impl ServerName {
    /// Reads a name.
    ///
    /// # Errors
    /// When it holds anything but lowercase letters, digits, `-` and `_`, or begins with one of the latter, or is too long.
    pub fn parse(text: &str) -> Result<Self, ServerNameError> {
        let allowed = |(index, byte): (usize, u8)| match byte {
            b'a'..=b'z' | b'0'..=b'9' => true,
            b'-' | b'_' => index > 0,
            _ => false,
        };
        match text.len() {
            1..=LONGEST if text.bytes().enumerate().all(allowed) => Ok(Self(text.into())),
            _ => Err(ServerNameError(text.to_owned())),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As policy knows it.
    ///
    /// # Errors
    /// Never: these names are ids, too.
    pub fn object(&self) -> Result<ObjectId, NameError> {
        ObjectId::parse(&self.0)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ServerName {
    type Err = ServerNameError;
    fn from_str(text: &str) -> Result<Self, ServerNameError> {
        Self::parse(text)
    }
}

impl Serialize for ServerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ServerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Why a name of a server was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no name of an MCP server", visible(.0))]
pub struct ServerNameError(String);

impl ServerNameError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "use 1 to 40 lowercase letters, digits, `-` and `_`, beginning with a letter or a digit"
    }
}

/// What the tools of a server are called here, in the order that the server lists them.
#[must_use]
pub fn offered(server: &ServerName, tools: &[&str]) -> Vec<Result<ToolName, NameRefusal>> {
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for tool in tools {
        *alike.entry(folded(tool)).or_default() += 1;
    }
    let one = |tool: &&str| match alike.get(&folded(tool)) {
        Some(0 | 1) | None => prefixed(server, tool),
        Some(_) => Err(NameRefusal::Alike((*tool).to_owned())),
    };
    tools.iter().map(one).collect()
}

fn prefixed(server: &ServerName, tool: &str) -> Result<ToolName, NameRefusal> {
    let is_plain = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !tool.split('.').all(is_plain) {
        return Err(NameRefusal::Shape(tool.to_owned()));
    }
    Ok(ToolName::parse(&format!("mcp.{server}.{tool}"))?)
}

/// What a person would take two names to be the same by: case and what does not show.
fn folded(tool: &str) -> String {
    tool.chars().filter(|c| !palyra_types::visible::is_hidden(*c)).flat_map(char::to_lowercase).collect()
}

/// Why a tool of a server is not offered, whatever is pinned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameRefusal {
    /// Characters that a tool's name cannot have, or too many.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Empty parts, or parts that begin with a sign.
    #[error("each part of `{}` must begin with a letter or a digit", visible(.0))]
    Shape(String),
    /// Several tools of the server that nobody could tell apart.
    #[error("the server has several tools called `{}`, but for case and hidden characters", visible(.0))]
    Alike(String),
    /// A definition that cannot be pinned.
    #[error("its definition cannot be used: {}", visible(.0))]
    Definition(String),
    /// One that the configuration leaves out.
    #[error("`tools` of this server leaves it out")]
    LeftOut,
}

const LONGEST: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tools: &[&str]) -> Vec<Result<String, String>> {
        let server = ServerName::parse("gh").unwrap();
        let told = |one: Result<ToolName, NameRefusal>| one.map(|name| name.to_string()).map_err(|why| why.to_string());
        offered(&server, tools).into_iter().map(told).collect()
    }

    #[test]
    fn a_server_is_called_what_can_stand_between_two_dots() {
        for name in ["github", "a", "7", "my-server_2", &"a".repeat(40)] {
            assert_eq!(ServerName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", "Github", "a.b", "-a", "_a", "a b", "é", "a\u{200b}", &"a".repeat(41)] {
            assert!(ServerName::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_tool_is_offered_under_its_server() {
        assert_eq!(
            names(&["delete", "repo.create", "read_file"]),
            [Ok("mcp.gh.delete".to_owned()), Ok("mcp.gh.repo.create".to_owned()), Ok("mcp.gh.read_file".to_owned()),]
        );
    }

    #[test]
    fn a_name_that_nobody_could_tell_from_another_is_refused_on_both_sides() {
        let refused = names(&["read", "Read", "write", "wri\u{200b}te", "list", "list"]);
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused_with_the_reason() {
        for name in ["", ".", "a..b", ".a", "a.", "-rf", "a b", "rm\u{202e}", "l\u{0456}st", &"x".repeat(200)] {
            assert!(names(&[name])[0].is_err(), "{name:?}");
        }
        assert_eq!(names(&["a.-b"])[0], Err("each part of `a.-b` must begin with a letter or a digit".to_owned()));
    }
}
